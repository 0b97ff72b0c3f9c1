"""Settings that are given to a function of somebody's choice: whether it takes them, in the words of who writes them."""

from __future__ import annotations

import difflib
import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def check_arguments(
    function: Callable[..., Any], settings: Mapping[str, Any], *, given: Iterable[str] = (), partial: bool = False
) -> None:
    """Raise ``ValueError`` where settings are unknown to a function, or it needs others: says the first, and which it takes.

    Args:
        function: what takes them, by name.
        settings: its keyword arguments.
        given: arguments that it is given besides.
        partial: whether it may be given more later.

    >>> def ewc(*, strength: float, online: bool = False): ...
    >>> check_arguments(ewc, {"strength": 3.0})
    >>> check_arguments(ewc, {"strenght": 3.0})
    Traceback (most recent call last):
        ...
    ValueError: strenght = 3.0: there is no such setting: there are strength, online; did you mean 'strength'?
    >>> check_arguments(ewc, {})
    Traceback (most recent call last):
        ...
    ValueError: strength is missing: there are strength, online
    """
    given = set(given)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in given]
    named = [each for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    there = f"there are {', '.join(each.name for each in named)}" if named else "there are none"
    known = {each.name for each in named}
    unknown = [name for name in settings if name not in known]
    if unknown and not any(each.kind == each.VAR_KEYWORD for each in parameters):
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.6)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        value = reprlib.repr(settings[unknown[0]])
        raise ValueError(f"{unknown[0]} = {value}: there is no such setting: {there}{meant}")
    if missing := [each.name for each in named if each.default is each.empty and each.name not in settings and not partial]:
        raise ValueError(f"{missing[0]} is missing: {there}")
