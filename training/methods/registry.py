"""Methods by name. A table, not a decorator: nothing is registered by being imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from .agem import agem
from .bic import bic
from .cumulative import cumulative
from .ewc import ewc
from .finetune import finetune
from .icarl import icarl
from .joint import joint
from .lucir import lucir
from .lwf import lwf
from .mas import mas
from .method import Method, Rule
from .nap import nap
from .replay import naive
from .reservoir import dynamic_reservoir, reservoir

RULES: Mapping[str, Rule] = {
    "cumulative": cumulative,
    "dynamic_reservoir": dynamic_reservoir,
    "finetune": finetune,
    "nap": nap,
    "reservoir": reservoir,
}
"""Methods that only choose rows: every learner can run them."""

METHODS: Mapping[str, Callable[..., Method]] = {
    "agem": agem,
    "bic": bic,
    "ewc": ewc,
    "icarl": icarl,
    "joint": joint,
    "lucir": lucir,
    "lwf": lwf,
    "mas": mas,
    "naive": naive,
}
"""Methods with a memory or a loss of their own, for ``task_learner.TaskLearner``."""


def maker(name: str) -> Callable[..., Any]:
    """The function of ``RULES`` or ``METHODS`` that is behind a name.

    Raises:
        ValueError: there is none.
    """
    if name not in METHODS and name not in RULES:
        raise ValueError(f"no method is called {name!r}: there are {', '.join(sorted([*RULES, *METHODS]))}")
    return METHODS[name] if name in METHODS else RULES[name]


def method(name: str, *, start: Literal["scratch", "finetune"] = "finetune", **settings: Any) -> Method:
    """A method from its name and settings, as a config states it.

    One that only chooses rows gets a name put together from all of them: ``reservoir-alpha=0.5-finetune``.

    Raises:
        ValueError: no method has that name, a setting is missing or unknown, or ``start`` is neither of the two words.
    """
    if name in METHODS:
        make = METHODS[name]
        given = {**settings, "start": start} if "start" in inspect.signature(make).parameters else settings
        try:
            inspect.signature(make).bind(**given)
        except TypeError as error:
            raise ValueError(f"method {name!r}, settings {settings}: {error}") from error
        return make(**given)
    rule = maker(name)
    words = [name, *(f"{key}={settings[key]}" for key in sorted(settings)), start]
    return Method("-".join(words), rule, start, settings)
