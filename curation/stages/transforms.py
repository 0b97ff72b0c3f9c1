"""Registry of visual transforms."""

from __future__ import annotations

from ..registry import Registry

_NAMES = ("colour_invert", "colour_jitter", "gaussian_blur", "gaussian_noise", "perspective", "rotation", "vertical_flip")

TRANSFORMS = Registry(
    "transform",
    {name: f"benchwright.curation.stages.visual_transforms:{name}" for name in _NAMES},
    fits=dict.fromkeys(_NAMES, "frames of a video"),
)
"""A transform of your own must be a ``visual_transforms.OwnTransform``."""
