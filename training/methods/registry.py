"""Methods by name. A table, not a decorator: nothing is registered by being imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...curation.named import load
from .method import Method

_HERE = __package__ or ""

METHODS: Mapping[str, str] = {
    name: f"{_HERE}.{place}"
    for name, place in {
        "agem": "agem:agem",
        "bic": "bic:bic",
        "cumulative": "cumulative:cumulative",
        "dynamic_reservoir": "reservoir:dynamic_reservoir",
        "er": "replay:er",
        "ewc": "ewc:ewc",
        "finetune": "finetune:finetune",
        "icarl": "icarl:icarl",
        "joint": "cumulative:joint",
        "lucir": "lucir:lucir",
        "lwf": "lwf:lwf",
        "mas": "mas:mas",
        "nap": "nap:nap",
        "reservoir": "reservoir:reservoir",
    }.items()
}
"""Name -> where the function is that makes the method."""

FORMER = {"naive": "er", "replay": "er"}
"""Names that were used before, and still can be read."""


def reference(name: str) -> str:
    """Where the function is that makes the method: of a built-in name, or the name itself where it is a reference.

    Raises:
        ValueError: there is none of that name.
    """
    if ":" in name:
        return name
    name = FORMER.get(name, name)
    if name not in METHODS:
        raise ValueError(f"no method is called {name!r}: there are {', '.join(sorted(METHODS))}")
    return METHODS[name]


def made(make: Callable[..., Method], settings: Mapping[str, Any]) -> Method:
    """The method that ``make`` gives for settings.

    Raises:
        ValueError: a setting is missing, unknown or wrong.
    """
    name = getattr(make, "__name__", repr(make))
    try:
        inspect.signature(make).bind(**settings)
    except TypeError as error:
        raise ValueError(f"method {name!r}, settings {dict(settings)}: {error}") from error
    return make(**settings)


def method(name: str, **settings: Any) -> Method:
    """A method from its name and settings, as a config states it.

    Raises:
        ValueError: no method has that name, or a setting is missing, unknown or wrong.
    """
    return made(load(reference(name)), settings)
