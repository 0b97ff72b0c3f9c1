"""Models by name: what makes them, and what they take."""

from __future__ import annotations

from ...curation.registry import Registry

_HERE = "benchwright.training.models"

MODELS = Registry(
    "model",
    {
        "gcn": f"{_HERE}.gcn:Gcn",
        "linear": f"{_HERE}.linear:linear",
        "mlp": f"{_HERE}.mlp:mlp",
        "reduced_resnet": f"{_HERE}.picture_net:reduced_resnet",
        "resnet18": f"{_HERE}.resnet:resnet",
        "resnet34": f"{_HERE}.resnet:resnet",
        "resnet50": f"{_HERE}.resnet:resnet",
        "small_cnn": f"{_HERE}.small_cnn:small_cnn",
        "st_gcn": f"{_HERE}.st_gcn:StGcn",
    },
    fits={
        "gcn": "graphs",
        "linear": "vectors",
        "mlp": "vectors",
        "reduced_resnet": "images",
        "resnet18": "images, clips",
        "resnet34": "images, clips",
        "resnet50": "images, clips",
        "small_cnn": "images, clips",
        "st_gcn": "graphs",
    },
)
