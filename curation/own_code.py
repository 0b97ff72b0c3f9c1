"""Where in the user's own code an error arose: the last of its lines that is neither ours nor a library's."""

from __future__ import annotations

import functools
import re
import sysconfig
import traceback
from pathlib import Path

_OURS = ("curation", "datasets", "eval", "front_door", "pipelines", "training")


@functools.cache
def _not_own() -> tuple[str, ...]:
    root = Path(__file__).resolve().parents[1]
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(f"{path}/" for path in [*(root / name for name in _OURS), *libraries])


def own_line(error: BaseException) -> str:
    """`` (FILE, line N)`` of the user's code in the traceback of an error, "" where there is none.

    >>> own_line(ValueError("raised nowhere"))
    ''
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not str(Path(frame.filename).resolve()).startswith(_not_own())]
    own = [frame for frame in own if not re.search(r"/(site|dist)-packages/|/bin/benchwright$", frame.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
