"""What the user has to write differently: the errors that end with exit code 2, and what was perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WrongUse(ValueError):
    """A command or a setting that cannot be carried out as it was written: says the value and the rule."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The nearest of ``names`` as the end of an error's line, or "" where none is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
