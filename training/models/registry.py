"""Models by name: see ``core.build.MakeModel``."""

from __future__ import annotations

from ...curation.registry import Registry

_HERE = "benchwright.training.models"

MODELS = Registry(
    "model",
    {
        "linear": f"{_HERE}.linear:linear",
        "mlp": f"{_HERE}.mlp:mlp",
        "pictures": f"{_HERE}.picture_net:picture_net",
        "tsn": f"{_HERE}.tsn:tsn",
    },
    fits={"linear": "vectors", "mlp": "vectors", "pictures": "images, vectors", "tsn": "clips"},
)
"""What makes a network from its settings: ``make(init, *, sample, **settings)``."""
