"""Encoders by name."""

from __future__ import annotations

from ..curation.registry import Registry

ENCODERS = Registry(
    "encoder",
    {
        "colours": "benchwright.curation.encoders.spec:Colours",
        "conse": "benchwright.curation.encoders.spec:Conse",
        "efficientnet_lite": "benchwright.curation.encoders.spec:EfficientNetLite",
        "network": "benchwright.datasets.features.networks:Network",
        "open_clip": "benchwright.curation.encoders.spec:OpenClip",
    },
    fits={
        "colours": "images, texts",
        "conse": "images, texts",
        "efficientnet_lite": "images",
        "open_clip": "images, texts",
    },
)
"""Encoders by name: the kinds of settings in ``curation.encoders.spec``; the interface of user-defined ones is
``curation.encoders.own.WrappedEncoder``."""
