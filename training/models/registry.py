"""Models by name: see ``core.build.MakeModel``."""

from __future__ import annotations

from collections.abc import Mapping

_HERE = __package__ or ""

MODELS: Mapping[str, str] = {
    "linear": f"{_HERE}.linear:linear",
    "mlp": f"{_HERE}.mlp:mlp",
    "pictures": f"{_HERE}.picture_net:picture_net",
    "tsn": f"{_HERE}.tsn:tsn",
}
"""Name -> where the function is that makes the model."""


def reference(name: str) -> str:
    """Where the function is that makes the model: of a built-in name, or the name itself where it is a reference.

    Raises:
        ValueError: there is none of that name.
    """
    if ":" not in name and name not in MODELS:
        raise ValueError(f"no model is called {name!r}: there are {', '.join(MODELS)}")
    return MODELS.get(name, name)
