"""What counts as a failure: how an error is told, what a run left behind, what it lost."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from .parser import Parser, Told

_LINE = 4_000
"""Characters of a line that is still one line."""

_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")


def root_of(error: BaseException) -> BaseException:
    """The error that a step raised, where the engine told it as its own."""
    while type(error).__name__ == "StepFailed" and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_leak(error: BaseException) -> bool:
    """Whether nobody has put it into words: it is no ``ValueError``, no ``OSError``, and none that the project raised.

    Those are what the command line prints as they are; of all others it prints their type as well, and how to see where.
    """
    root = root_of(error)
    if type(root).__module__.startswith("benchwright.") or type(root).__name__ in ("BadParameter", "UsageError"):
        return False
    if isinstance(root, ValueError | OSError):
        return False
    if type(root) is RuntimeError:
        return not _raised_by_us(root)
    return True


def _raised_by_us(error: BaseException) -> bool:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and str(at.tb_frame.f_globals.get("__name__", "")).startswith("benchwright.")


def is_unclear(line: str, folder: Path, out: Path) -> bool:
    """Whether a line names no file of the folder or of the run, or is no line."""
    if "\n" in line or len(line) > _LINE:
        return True
    names = {path.name for path in folder.rglob("*")} | {path.stem for path in folder.rglob("*") if len(path.stem) > 2}
    return str(folder) not in line and str(out) not in line and "/etc" not in line and not any(name in line for name in names)


def silent_loss(parser: Parser, told: Told, data: bytes | None) -> str:
    """Rows that are neither in the output nor among the rejects; "" where there are none."""
    if told.lost:
        return f"stages {', '.join(told.lost)} have other rows out than in"
    if parser.count is None or data is None or told.source_rows < 0:
        return ""
    there = parser.count(data)
    if told.source_rows < there and not told.rejects:
        return f"{there} in the file, {told.source_rows} rows and no reject"
    return ""


def unrepeatable(details: Collection[str], folder: Path) -> str:
    """What of the rejects another run would write in another way; "" for nothing."""
    for detail in details:
        if _ADDRESS.search(detail):
            return f"an address of memory: {detail[:200]}"
        if str(folder) in detail:
            return f"the place of the folder: {detail[:200]}"
    return ""
