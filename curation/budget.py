"""How many rows a stage may reject, and the errors when it rejects more, or when no rows are left."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Mapping

from .store import Store


class TooManyRejects(RuntimeError):
    """A stage rejected more rows than its budget allows. Its finished parts are kept.

    >>> Budget(1).check(Store("photos"), "decoded", {"truncated": 2}, rows_in=10, files=[])
    Traceback (most recent call last):
        ...
    benchwright.curation.budget.TooManyRejects: stage 'decoded' rejected 2 rows, and max_rejects is 1: 2 truncated; ...
    """


class NoRows(RuntimeError):
    """A source yielded no rows, or a stage rejected all of them, so that the next stages have no input.

    >>> check_not_empty(Store("photos"), "listed", 0, {}, [], {"root": "empty"})
    Traceback (most recent call last):
        ...
    benchwright.curation.budget.NoRows: photos: source stage 'listed' yielded no rows: check its settings, such as root = ...
    """


@dataclasses.dataclass(frozen=True)
class Budget:
    """How many rows a stage may reject before the run fails.

    Attributes:
        limit: a number of rows, a share of the input rows if below 1, or None for any number.
        setting: dotted name of the setting that determines the limit, for the message.
        expected: reject reasons that do not count, such as files in a folder of videos that are not videos; rows rejected for
            them are also excluded from the input rows of which ``limit`` is a share.

    >>> budget = Budget(0.01, "images.max_rejects", expected=("not_an_image",))
    >>> budget.check(Store("photos"), "decoded", {"not_an_image": 500, "truncated": 1}, rows_in=1000, files=[])
    >>> budget.check(Store("photos"), "decoded", {"truncated": 20}, rows_in=1000, files=[])
    Traceback (most recent call last):
        ...
    benchwright.curation.budget.TooManyRejects: stage 'decoded' rejected 20 rows, and max_rejects is 1.0% of 1000: ...
    """

    limit: float | None = 0
    setting: str = ""
    expected: tuple[str, ...] = ()

    def check(self, store: Store, stage: str, rejects: Mapping[str, int], rows_in: int, files: Iterable[str]) -> None:
        """Raise ``TooManyRejects`` if more rows were rejected than the budget allows.

        Args:
            store: store of the run.
            stage: name of the stage.
            rejects: reason -> number of rejected rows, including the expected reasons.
            rows_in: number of input rows.
            files: names of the tables of rejects, from which the message takes an example.
        """
        counted = {reason: count for reason, count in rejects.items() if reason not in self.expected}
        total, rows = sum(counted.values()), rows_in - sum(rejects.values()) + sum(counted.values())
        if self.limit is None or total <= (self.limit * rows if 0 < self.limit < 1 else self.limit):
            return
        rule = f"{self.limit:.1%} of {rows}" if 0 < self.limit < 1 else f"{int(self.limit)}"
        ranked = sorted(counted, key=lambda reason: (-counted[reason], reason))
        reasons = ", ".join(f"{counted[reason]} {reason}" for reason in ranked)
        raise TooManyRejects(
            f"stage {stage!r} rejected {total} rows, and max_rejects is {rule}: {reasons}"
            f"{example_of(store, files, ranked[0])}; `{show_command(store, stage, ranked[0])}` shows them, and "
            f"{self._allowing(total, rows)} allows them"
        )

    def _allowing(self, rejects: int, rows: int) -> str:
        share = math.ceil(100 * rejects / rows) / 100 if rows else 1.0
        value = f"{share:g}" if share < 1 else str(rejects)
        return f"`--set {self.setting}={value}`" if self.setting else f"max_rejects={value} of this stage in the plan"


def show_command(store: Store, stage: str, reason: str) -> str:
    """The command that prints the rows of a stage that were rejected for ``reason``."""
    return f"benchwright rejects {shlex.quote(store.url)} --stage {stage} --reason {reason}"


def check_not_empty(
    store: Store, stage: str, rows: int, rejects: Mapping[str, int], files: Iterable[str], sources: Mapping[str, str]
) -> None:
    """Raise ``NoRows`` if a stage has no rows left; ``sources`` are the sources among its settings, by name."""
    if rows:
        return
    if not rejects:
        message = ", ".join(f"{name} = {str(place)!r}" for name, place in sources.items()) or "the place of what it reads"
        raise NoRows(f"{store.url}: source stage {stage!r} yielded no rows: check its settings, such as {message}")
    most = max(sorted(rejects), key=lambda reason: rejects[reason])
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rejects.items()))
    raise NoRows(
        f"{store.url}: no rows are left: stage {stage!r} rejected all {sum(rejects.values())} rows ({reasons})"
        f"{example_of(store, files, most)}; "
        f"`{show_command(store, stage, most)}` shows them"
    )


def example_of(store: Store, files: Iterable[str], reason: str) -> str:
    """Text for messages: ``, such as ...`` with the first reject for ``reason`` in the files, or ""."""
    for name in files:
        for row in store.read_parquet(name).to_pylist():
            if row["reason"] == reason:
                return f", such as {row['key']!r}" + (f" ({row['detail'][:200]})" if row["detail"] else "")
    return ""
