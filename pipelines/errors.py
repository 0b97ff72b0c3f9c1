"""Usage errors, which exit with code 2, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WrongUse(ValueError):
    """A command or a setting that is invalid as written; the message states the value and the rule."""


def unknown(what: str, name: str, names: Iterable[str]) -> WrongUse:
    """The error for an unknown name: lists the known ones."""
    known = list(dict.fromkeys(names))
    return WrongUse(f"no {what} {name!r}: there are {', '.join(known)}{did_you_mean(name, known)}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The nearest of ``names`` as the end of an error message, or "" if none is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
