"""Registry of models: see ``core.build.MakeModel``."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from annotated_types import Interval

from ...curation.registry import Registry, described

SampleKind = Literal["vectors", "signals", "images", "clips", "graphs"]
"""What samples are; ``signals``: arrays of two axes, such as (channels, times). Only a model knows whether they are graphs."""

WIDEST = 8192
DEEPEST = 256
Width = Annotated[int, Interval(ge=1, le=WIDEST)]
Depth = Annotated[int, Interval(ge=1, le=DEEPEST)]

_HERE = "benchwright.training.models"

MODELS = Registry(
    "model",
    {
        "backbone": f"{_HERE}.backbone:backbone_net",
        "gcn": f"{_HERE}.gcn.network:gcn",
        "linear": f"{_HERE}.linear:linear",
        "mlp": f"{_HERE}.mlp:mlp",
        "pictures": f"{_HERE}.picture_net:picture_net",
        "st_gcn": f"{_HERE}.st_gcn:st_gcn",
        "tsn": f"{_HERE}.tsn:tsn",
    },
    fits={
        "backbone": "images, clips",
        "gcn": "graphs",
        "st_gcn": "graphs",
        "linear": "vectors, signals",
        "mlp": "vectors, signals",
        "pictures": "images, vectors",
        "tsn": "clips",
    },
)
"""Functions that make a network from its settings: ``make(init, *, sample, **settings)``."""


def check_takes(name: str, samples: SampleKind) -> None:
    """Raise ``ValueError`` if a model does not take ``samples``, by its ``fits`` or the line ``Fits:`` of its docstring."""
    words = re.findall(r"\w+", described(MODELS.find(name))[0])
    takes = [kind for kind in get_args(SampleKind) if kind in words]
    fits = {samples, "graphs"} if samples == "signals" else {samples}
    if takes and fits.isdisjoint(takes):
        raise ValueError(f"model {name!r} takes {' or '.join(takes)}, but samples here are {samples}: name another model")
