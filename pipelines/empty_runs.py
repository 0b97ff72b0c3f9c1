"""A run that has no rows left: which stage left none, and why."""

from __future__ import annotations

from ..curation.run import Run


def check_not_empty(done: Run, out: str, purpose: str) -> None:
    """Raise ``RuntimeError`` where the last finished stage has no rows: that is a mistake in the settings, or in the votes.

    Args:
        done: the run, at its end or waiting.
        out: its folder, for the message.
        purpose: what the rows were for, as in "nothing is left to publish".
    """
    if done.result.rows:
        return
    emptied = next((one for one in done.artifacts if one.rows_in and not one.rows), None)
    if emptied is None:
        first = next(one for one in done.artifacts if not one.rows)
        raise RuntimeError(f"{out}: nothing is left {purpose}: {first.kind} stage {first.stage!r} gave no rows")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in emptied.rejects.items())
    raise RuntimeError(
        f"{out}: nothing is left {purpose}: stage {emptied.stage!r} rejected all {emptied.rows_in:,} rows ({reasons}): "
        f"see `benchwright rejects {out}`"
    )
