"""Methods by name. A table, not a decorator: nothing is registered by being imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .cumulative import cumulative
from .finetune import finetune
from .method import Method, Rule
from .nap import nap
from .reservoir import dynamic_reservoir, reservoir

RULES: Mapping[str, Rule] = {
    "cumulative": cumulative,
    "dynamic_reservoir": dynamic_reservoir,
    "finetune": finetune,
    "nap": nap,
    "reservoir": reservoir,
}


def method(rule: str, *, start: Literal["scratch", "finetune"], **settings: Any) -> Method:
    """A method from a rule's name and settings, as a config states it.

    Its name is put together from all of them: ``reservoir-alpha=0.5-finetune``.

    Raises:
        ValueError: no rule has that name, a setting is missing or unknown, or ``start`` is neither of the two words.
    """
    if rule not in RULES:
        raise ValueError(f"no method is called {rule!r}: there are {', '.join(RULES)}")
    words = [rule, *(f"{key}={settings[key]}" for key in sorted(settings)), start]
    return Method("-".join(words), RULES[rule], start, settings)
