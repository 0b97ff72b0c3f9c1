"""How CGLB's code reads its methods, and how their papers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Variant = Literal["as_released", "as_written"]

READINGS: Mapping[Variant, Mapping[str, Mapping[str, Any]]] = {
    "as_released": {
        "mas": {"data": "new", "average": "mean"},
        "twp": {"gradients": "summed"},
        "lwf": {"heads": "task"},
        "gem": {"forward": "task"},
    },
    "as_written": {
        "mas": {"data": "learned", "average": "mean"},
        "twp": {"gradients": "fresh"},
        "lwf": {"heads": "seen"},
        "gem": {"forward": "memory"},
    },
}
"""Where CGLB's code does other than its papers say. Its slip in MAS's average is a setting, ``average="released"``, and in
neither reading: from the third task on it weighs every parameter by about one half, so that nothing more is learned."""
