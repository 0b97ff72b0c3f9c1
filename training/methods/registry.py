"""Registry of methods: a table, so importing a module registers nothing."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...curation.registry import Registry, check_arguments, check_values, load_name
from .method import Method

_HERE = "benchwright.training.methods"
_EVERYWHERE = "domains, tasks, sets of labels"
_EVERY = ("agem", "cumulative", "der", "er", "ewc", "finetune", "gdumb", "gem", "joint", "lwf", "mas", "nap", "si")

METHODS = Registry(
    "method",
    {
        "agem": f"{_HERE}.agem:agem",
        "bic": f"{_HERE}.bic:bic",
        "cumulative": f"{_HERE}.cumulative:cumulative",
        "cwr": f"{_HERE}.cwr:cwr",
        "der": f"{_HERE}.der:der",
        "dynamic_reservoir": f"{_HERE}.biased_reservoir:dynamic_reservoir",
        "er": f"{_HERE}.er:er",
        "ewc": f"{_HERE}.ewc:ewc",
        "finetune": f"{_HERE}.finetune:finetune",
        "gdumb": f"{_HERE}.gdumb:gdumb",
        "gem": f"{_HERE}.gem:gem",
        "icarl": f"{_HERE}.icarl:icarl",
        "joint": f"{_HERE}.cumulative:joint",
        "lucir": f"{_HERE}.lucir:lucir",
        "lwf": f"{_HERE}.lwf:lwf",
        "mas": f"{_HERE}.mas:mas",
        "nap": f"{_HERE}.nap:nap",
        "reservoir": f"{_HERE}.biased_reservoir:reservoir",
        "si": f"{_HERE}.si:si",
        "twp": f"{_HERE}.twp:twp",
    },
    fits={
        **dict.fromkeys(_EVERY, _EVERYWHERE),
        **dict.fromkeys(("dynamic_reservoir", "reservoir"), _EVERYWHERE),
        **dict.fromkeys(("bic", "lucir"), "tasks, sets of labels"),
        "cwr": "domains, tasks",
        "icarl": "domains, tasks, sets of labels with predict=head",
        "twp": "tasks of graphs",
    },
    former={"bare": "finetune", "naive": "er", "replay": "er"},
)
"""Functions that make a ``Method`` from its settings: ``make(**settings) -> Method``."""


def made(make: Callable[..., Any], settings: Mapping[str, Any]) -> Method:
    """Return the method that ``make`` builds from ``settings``, with its ``settings``.

    Raises:
        ValueError: a setting is missing, unknown or wrong, or ``make`` does not return a ``Method``.
    """
    name = getattr(make, "__name__", repr(make))
    try:
        check_arguments(make, settings)
        check_values(make, settings)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    found = make(**settings)
    if not isinstance(found, Method):
        raise ValueError(f"method {name!r} gives {type(found).__name__}, not a Method")
    bound = inspect.signature(make).bind(**settings)
    bound.apply_defaults()
    return dataclasses.replace(found, settings=bound.arguments)


def method(name: str, **settings: Any) -> Method:
    """Return a method by name, in one of the three forms of ``curation.registry``, with its settings.

    Raises:
        ValueError: no method has that name, or a setting is missing, unknown or wrong.

    >>> method("ewc", strength=3e3).settings
    {'strength': 3000.0, 'fisher': 'summed', 'online': False, 'decay': 1.0}
    >>> method("ewc")
    Traceback (most recent call last):
        ...
    ValueError: ewc: strength is missing: there are strength, ...
    """
    return made(load_name(METHODS, name), settings)
