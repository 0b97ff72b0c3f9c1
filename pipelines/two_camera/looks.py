"""Linear pictures rendered for viewing."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def white_level(picture: np.ndarray) -> float:
    """The value that is shown as white: the 99th percentile."""
    return max(float(np.percentile(picture, 99)), 1e-6)


def png(linear: np.ndarray, top: float, width_px: int = 220) -> bytes:
    """A linear picture (h, w, 3) as PNG with sRGB gamma (IEC 61966-2-1), ``top`` as white; small pictures are enlarged."""
    values = np.clip(linear / top, 0, 1)
    shown = np.where(values <= 0.0031308, 12.92 * values, 1.055 * np.maximum(values, 1e-12) ** (1 / 2.4) - 0.055)
    stream = io.BytesIO()
    times = max(1, width_px // shown.shape[1])
    Image.fromarray(np.round(255 * shown).astype(np.uint8).repeat(times, axis=0).repeat(times, axis=1)).save(
        stream, format="PNG"
    )
    return stream.getvalue()
