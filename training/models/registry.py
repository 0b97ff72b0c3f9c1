"""Models by name: see ``core.build.MakeModel``."""

from __future__ import annotations

from ...curation.registry import Registry

_HERE = "benchwright.training.models"

MODELS = Registry(
    "model",
    {
        "gcn": f"{_HERE}.gcn:gcn",
        "linear": f"{_HERE}.linear:linear",
        "mlp": f"{_HERE}.mlp:mlp",
        "pictures": f"{_HERE}.picture_net:picture_net",
        "st_gcn": f"{_HERE}.st_gcn:st_gcn",
        "tsn": f"{_HERE}.tsn:tsn",
    },
    fits={
        "gcn": "graphs",
        "st_gcn": "graphs",
        "linear": "vectors",
        "mlp": "vectors",
        "pictures": "images, vectors",
        "tsn": "clips",
    },
)
"""What makes a network from its settings: ``make(init, *, sample, **settings)``."""
