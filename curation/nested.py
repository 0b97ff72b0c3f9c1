"""Settings within settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(settings: Mapping[str, Any], *place: str) -> dict[str, Any]:
    """Nested settings by dotted name.

    >>> flat({"memory": {"size": 200}, "epochs": 20})
    {'memory.size': 200, 'epochs': 20}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, *place, name)
        else:
            found[".".join([*place, name])] = value
    return found
