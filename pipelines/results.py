"""Results of baselines in the folder of a run, and whether they are of its dataset, settings and code as they are now.

Every result holds its ``identity``: the digest of the dataset, all settings, and ``code``, the digests of the definitions that
train and evaluate (``code_of``). A benchmark says for the folder of a result what that identity would be today. Training makes
again what differs; ``eval``, ``report`` and ``api.scores`` leave it out, and ``api.stale`` names it with the reason.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import inspect
import json
import posixpath
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..curation.artifact import published_digest
from ..curation.keys import code_digest, sha256
from ..curation.store import Store
from ..curation.verify import DATASET
from ..eval.protocols.run import difference, read_results, to_json

EVAL = "eval"
"""Where results of baselines lie in the folder of a run."""


class Diverged(ValueError):
    """Trainings whose loss did not stay finite; the others have ended."""


class Failures:
    """Trainings whose loss does not stay finite: the others go on, and ``check`` tells at the end."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._lines: list[str] = []

    @contextlib.contextmanager
    def of(self, training: str, setting: str) -> Iterator[None]:
        """Within it one training runs; ``setting`` is what to change where it fails."""
        try:
            yield
        except ArithmeticError as error:
            if type(error) is not ArithmeticError:  # a division by zero, say, is a fault of ours
                raise
            self._lines.append(f"{training}: {error}: change {setting}")
            self._progress(f"{self._lines[-1]}; the others go on")

    def check(self, out: str) -> None:
        """Raise ``Diverged`` where a training failed."""
        if self._lines:
            count = "1 training" if len(self._lines) == 1 else f"{len(self._lines)} trainings"
            raise Diverged(f"{count} failed: {'; '.join(self._lines)}. The others are done: `benchwright eval {out}`")


IdentityOf = Callable[..., Mapping[str, Any]]
"""The names of the folders that lead to a result within ``eval/`` -> the identity that it would be given now. Raises ValueError
where the settings have no such result."""

Result = tuple[Path, dict[str, Any]]
"""Path and content of a ``results.json``."""


def dataset_digest(out: str) -> str:
    """Content digest of the published dataset, "" where there is none. It goes into the identity of what is trained on it."""
    store, name = Store(out), posixpath.join(DATASET, "dataset.json")
    return published_digest(store, name) if store.exists(name) else ""


def code_of(reached: Iterable[Callable[..., Any]], alone: Iterable[Callable[..., Any]] = ()) -> dict[str, str]:
    """Definition -> digest of its code, for the identity of a result.

    Args:
        reached: counted with all that they reach.
        alone: counted without, since they choose from tables of all methods, of which one alone is used: that one belongs
            among ``reached``.
    """
    digests = {_name(each): code_digest(each) for each in reached}
    digests |= {_name(each): _alone(each) for each in alone}
    return {name: digest[:16] for name, digest in digests.items()}


def _name(definition: Callable[..., Any]) -> str:
    return f"{definition.__module__.removeprefix('benchwright.')}.{definition.__qualname__}"


def _alone(definition: Callable[..., Any]) -> str:
    """Digest of the lines of one definition; comments, its docstring and layout do not count."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(definition))).body
    if not isinstance(tree, ast.FunctionDef | ast.ClassDef):
        raise TypeError(f"{definition!r} is neither a function nor a class")
    tree.body = tree.body[ast.get_docstring(tree) is not None :]
    return sha256(ast.dump(tree))


def check_listed(setting: str, value: int, listed: Sequence[int]) -> int:
    """The value. Raises ValueError where the setting does not list it."""
    if value not in listed:
        raise ValueError(f"{setting} = {list(listed)} has no {value}")
    return value


def current_results(out: str, pattern: str, identity_of: IdentityOf, *needed: str) -> list[Result]:
    """Every ``results.json`` of the dataset, the settings and the code as they are now, in the order of their paths.

    Args:
        out: the run.
        pattern: of the folders of baselines within ``eval/``.
        identity_of: see ``IdentityOf``.
        needed: keys that each must have.

    Raises:
        ValueError: where one is damaged.
    """
    found = _results(out, pattern, *needed)
    return [(path, value) for path, value in found if not _stale(out, path, value, identity_of)]


def stale_results(out: str, pattern: str, identity_of: IdentityOf) -> dict[str, str]:
    """The other ones: folder within the run -> why, such as "the code of training.methods.bic.bic changed"."""
    told = {path: _stale(out, path, value, identity_of) for path, value in _results(out, pattern)}
    return {str(path.parent.relative_to(out)): why for path, why in told.items() if why}


def _results(out: str, pattern: str, *needed: str) -> list[Result]:
    alone = _alone_read.get()
    found = sorted((Path(out) / EVAL).glob(f"{pattern}/results.json"))
    return [(path, read_results(path, *needed)) for path in found if alone in (None, path)]


_alone_read: contextvars.ContextVar[Path | None] = contextvars.ContextVar("alone_read", default=None)
"""The only result that is read, while it is looked for the one that has not the form of a result."""

_MALFORMED = (LookupError, TypeError, AttributeError, ArithmeticError, statistics.StatisticsError)


@contextlib.contextmanager
def naming_malformed(out: str, scores: Callable[[], Any]) -> Iterator[None]:
    """Raise ``ValueError`` that names the result for which the block fails, where it has not the form that training gives it.

    Args:
        out: the run.
        scores: what reads the results: it fails by one of them alone, if that is why the block fails.
    """
    try:
        yield
    except _MALFORMED as error:
        for path in sorted((Path(out) / EVAL).rglob("results.json")):
            token = _alone_read.set(path)
            try:
                scores()
            except _MALFORMED as told:
                what = f"{type(told).__name__}: {told}"
                raise ValueError(f"{path} has not the form of a result ({what}): remove it and train again") from error
            finally:
                _alone_read.reset(token)
        raise


def _stale(out: str, path: Path, value: Mapping[str, Any], identity_of: IdentityOf) -> str:
    """Why a result is not of today's dataset, settings and code; "" where it is."""
    held = value["identity"]
    predictor = held.get("predictor")
    of_predictor = predictor.get("dataset_digest") if isinstance(predictor, Mapping) else None
    if (held.get("dataset_digest") or of_predictor) != dataset_digest(out):
        return "of an earlier dataset"
    try:
        asked = json.loads(to_json(identity_of(*path.parent.relative_to(Path(out) / EVAL).parts)))
    except (OSError, ValueError) as error:  # OSError: of a file that the settings name, such as weights
        return f"not of these settings: {error}"
    return difference({name: held.get(name) for name in asked}, asked)


_NAMED = 3


def stale_line(out: str, stale: Mapping[str, str]) -> str:
    """What must be said where there are stale results; "" where there are none."""
    if not stale:
        return ""
    count = "1 stale result is" if len(stale) == 1 else f"{len(stale)} stale results are"
    named = "; ".join(f"{place}: {why}" for place, why in list(stale.items())[:_NAMED])
    more = f"; and {len(stale) - _NAMED} more" if len(stale) > _NAMED else ""
    return (
        f"{count} left out ({named}{more}): `benchwright train {out}` trains them again; those of methods that the settings do "
        "not name, with --method"
    )
