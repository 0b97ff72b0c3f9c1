"""Usage errors, which exit with code 2, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WrongUse(ValueError):
    """A command or a setting that is invalid as written; the message states the value and the rule."""


_MOST = 24
"""Maximum number of known names that a message lists if they are listed elsewhere."""


def unknown(what: str, name: str, names: Iterable[str], *, listed: str = "") -> WrongUse:
    """The error for an unknown name: lists the known ones; if they are many, only the nearest, and where all are ``listed``.

    >>> str(unknown("method", "err", ["er", "ewc"], listed="`benchwright list methods`"))
    "no method 'err': there are er, ewc; did you mean 'er'?"
    >>> many = [f"er_{number}" for number in range(40)]
    >>> str(unknown("method", "er", many, listed="`benchwright list methods`"))
    "no method 'er': see `benchwright list methods`; did you mean 'er_9', 'er_8' or 'er_7'?"
    """
    known = list(dict.fromkeys(names))
    if listed and len(known) > _MOST:
        return WrongUse(f"no {what} {name!r}: see {listed}{did_you_mean(name, known, most=3)}")
    return WrongUse(f"no {what} {name!r}: there are {', '.join(known)}{did_you_mean(name, known)}")


def did_you_mean(name: str, names: Iterable[str], *, most: int = 1) -> str:
    """The nearest of ``names`` as the end of an error message, or "" if none is near."""
    near = [repr(each) for each in difflib.get_close_matches(name, list(names), n=most, cutoff=0.6)]
    return f"; did you mean {' or '.join(filter(None, [', '.join(near[:-1]), near[-1]]))}?" if near else ""
