"""Methods by name. A table, not a decorator: nothing is registered by being imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from ...curation.registry import Registry, load_name
from .method import Method

_HERE = "benchwright.training.methods"

RULES = {
    "cumulative": f"{_HERE}.cumulative:cumulative",
    "dynamic_reservoir": f"{_HERE}.reservoir:dynamic_reservoir",
    "finetune": f"{_HERE}.finetune:finetune",
    "nap": f"{_HERE}.nap:nap",
    "reservoir": f"{_HERE}.reservoir:reservoir",
}
"""Methods that only choose rows: every learner can run them."""

TAUGHT = {
    "agem": f"{_HERE}.agem:agem",
    "bic": f"{_HERE}.bic:bic",
    "ewc": f"{_HERE}.ewc:ewc",
    "icarl": f"{_HERE}.icarl:icarl",
    "joint": f"{_HERE}.joint:joint",
    "lucir": f"{_HERE}.lucir:lucir",
    "lwf": f"{_HERE}.lwf:lwf",
    "mas": f"{_HERE}.mas:mas",
    "naive": f"{_HERE}.replay:naive",
}
"""Methods with a memory or a loss of their own, for ``task_learner.TaskLearner``."""

METHODS = Registry(
    "method",
    {**RULES, **TAUGHT},
    fits={**dict.fromkeys(RULES, "domains, tasks"), **dict.fromkeys(TAUGHT, "tasks")},
)
"""All of them. Of one's own are a rule, ``rule(buffer, sizes, *, seed, **settings)``, and what gives a ``Method``."""


def maker(name: str) -> Callable[..., Any]:
    """The rule, or the function that gives a ``Method``, that is behind a name in one of the three forms.

    Raises:
        ValueError: there is none.
    """
    return load_name(METHODS, name)


def is_rule(function: Callable[..., Any]) -> bool:
    """Whether it only chooses rows, by the names of its arguments."""
    return list(inspect.signature(function).parameters)[:2] == ["buffer", "sizes"]


def method(name: str, *, start: Literal["scratch", "finetune"] = "finetune", **settings: Any) -> Method:
    """A method from its name and settings, as a config states it.

    One that only chooses rows gets a name put together from all of them: ``reservoir-alpha=0.5-finetune``.

    Raises:
        ValueError: no method has that name, a setting is missing or unknown, or ``start`` is neither of the two words.
    """
    make = maker(name)
    if is_rule(make):
        words = [name.rpartition(":")[2], *(f"{key}={settings[key]}" for key in sorted(settings)), start]
        return Method("-".join(words), make, start, settings)
    given = {**settings, "start": start} if "start" in inspect.signature(make).parameters else settings
    try:
        inspect.signature(make).bind(**given)
    except TypeError as error:
        raise ValueError(f"method {name!r}, settings {settings}: {error}") from error
    made = make(**given)
    if not isinstance(made, Method):
        raise ValueError(f"method {name!r} gives {type(made).__name__}: it should give a Method, or be a rule")
    return made
