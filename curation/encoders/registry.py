"""Image-text encoders by name."""

from __future__ import annotations

from ..registry import Registry

ENCODERS = Registry(
    "encoder",
    {
        "colours": "benchwright.curation.encoders.spec:Colours",
        "conse": "benchwright.curation.encoders.spec:Conse",
        "efficientnet_lite": "benchwright.curation.encoders.spec:EfficientNetLite",
        "open_clip": "benchwright.curation.encoders.spec:OpenClip",
    },
    fits={
        "colours": "images, texts",
        "conse": "images, texts",
        "efficientnet_lite": "images",
        "open_clip": "images, texts",
    },
)
"""The kinds of settings in ``spec``; what others must have is said by ``own.WrappedEncoder``."""
