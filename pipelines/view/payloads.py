"""Kinds of payloads, recognised by their bytes and shapes alone, and how each is sent to a browser."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...curation.stages.decode import PILLOW_ERRORS
from ...curation.stages.image_format import PILLOW_NAMES, sniff_extension
from ...datasets.reader.decode import decode_npy
from ...datasets.skeleton.layouts import built_in_layouts
from ...eval.report.images import thumbnail
from .clips import is_other_clip
from .query import Refused

THUMB_PX, LARGE_PX = 144, 1280
_MOST_FRAMES = 300
"""Most frames of a skeleton that are sent to a browser."""
_LONGEST_TEXT = 4000
_SMALL_PX = 480
"""Arrays are enlarged until a side has this many pixels, and so are pictures of at most ``_TINY_PX``."""
_TINY_PX = 64
_MOST_PIXELS = 80_000_000
_DECODING = threading.Semaphore(4)
"""Pictures decoded at the same time: a large one takes hundreds of megabytes."""
_CLIPS = {b"ftyp": "video/mp4", b"\x1a\x45\xdf\xa3": "video/webm", b"OggS": "video/ogg"}
_SOUNDS = ((0, b"fLaC", "audio/flac"), (0, b"ID3", "audio/mpeg"), (0, b"\xff\xfb", "audio/mpeg"), (8, b"WAVE", "audio/wav"))
"""Offset, magic bytes and media type of sounds."""
_MOST_LINES, _POINTS = 8, 400
"""Most lines of a curve, and most pairs of points of each."""


@dataclasses.dataclass(frozen=True)
class Payload:
    """Bytes of a file, or an array, that belong to a row.

    Attributes:
        name: name of the column, or extension of the file in a shard.
        kind: "picture", "clip", "sound", "skeleton", "image" (an array of pixels), "vector", "array", "text" or "bytes".
        data: the bytes; None for an array.
        array: the array; None for other bytes.
        note: a remark to show with it.
    """

    name: str
    kind: str
    data: bytes | None = None
    array: NDArray[Any] | None = None
    note: str = ""

    @property
    def summary(self) -> str:
        """A description in one line."""
        if self.array is not None:
            return f"{self.array.dtype} ({', '.join(map(str, self.array.shape))})"
        data = self.data or b""
        return ", ".join(filter(None, (sniff_extension(data) or self.kind, f"{len(data):,} bytes", self.note)))

    @property
    def seen(self) -> bool:
        """Whether it is shown as a picture."""
        return self.kind in ("picture", "image")


def payload_of(name: str, value: bytes | NDArray[Any]) -> Payload:
    """The payload, with its kind determined from its content."""
    if isinstance(value, bytes) and value.startswith(b"\x93NUMPY"):
        try:
            value = decode_npy(value)
        except ValueError:
            return Payload(name, "bytes", value if isinstance(value, bytes) else None)
    if not isinstance(value, bytes):
        return Payload(name, _array_kind(value), array=value)
    if sniff_extension(value) in PILLOW_NAMES:
        return Payload(name, "picture", value)
    if media_type(value) or is_other_clip(value):
        return Payload(name, "sound" if media_type(value).startswith("audio") else "clip", value)
    return Payload(name, "text" if _text(value) is not None else "bytes", value)


def media_type(data: bytes) -> str:
    """Media type of a clip or sound that browsers play; "" for any other data."""
    clip = next((kind for magic, kind in _CLIPS.items() if magic in (data[:4], data[4:8])), "")
    return clip or next((kind for at, magic, kind in _SOUNDS if data.startswith(magic, at)), "")


def _array_kind(array: NDArray[Any]) -> str:
    joints = {len(layout.joints) for layout in built_in_layouts().values()}
    if not array.size or array.dtype.kind not in "fiu":
        return "array"
    if (
        array.ndim in (3, 4)
        and array.shape[0] in (2, 3)
        and array.shape[2] in joints
        and (array.ndim == 4 or array.shape[2] > 4)
    ):
        return "skeleton"
    if array.ndim == 3 and array.shape[2] in (1, 3) and min(array.shape[:2]) > 3:
        return "image"
    return "vector" if array.ndim == 1 else "array"


def text_of(payload: Payload) -> str:
    """The beginning of a text; JSON is indented."""
    return _text(payload.data or b"") or ""


def _text(data: bytes) -> str | None:
    try:
        text = data[: 1 << 20].decode()
        if data[:1] in (b"{", b"["):
            text = json.dumps(json.loads(data), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return None
    if any(not (letter.isprintable() or letter in "\n\t\r") for letter in text[:_LONGEST_TEXT]):
        return None
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def picture_type(data: bytes) -> str:
    """Media type of what ``picture`` returns."""
    return "image/png" if data[:1] == b"\x89" else "image/jpeg"


def picture(payload: Payload, side_px: int, light: Sequence[float] = ()) -> bytes:
    """JPEG or PNG of a payload that is shown as a picture.

    Args:
        payload: a picture, or an array of pixels.
        side_px: longest allowed side.
        light: colour of the light, by which the pixels of an array are divided.

    Raises:
        Refused: the payload cannot be shown.
    """
    with _DECODING:
        if payload.array is not None:
            return _developed(payload.array, side_px, light)
        try:
            with Image.open(io.BytesIO(payload.data or b""), formats=[*PILLOW_NAMES.values()]) as opened:
                width, height = opened.size
            if width * height > _MOST_PIXELS:
                raise ValueError(f"{width} x {height} pixels: {_MOST_PIXELS:,} at most are shown")
            image = thumbnail(payload.data or b"", side_px, where=payload.name)
        except (*PILLOW_ERRORS, ValueError, Image.DecompressionBombError) as error:
            raise Refused(f"{payload.name}: {error}"[:300]) from error
    return _enlarged(image) if side_px > _SMALL_PX and max(image.size) <= _TINY_PX else _jpeg(image)


def _developed(array: NDArray[Any], side_px: int, light: Sequence[float]) -> bytes:
    """PNG of linear pixels with display gamma, the brightest 0.5 % white; small arrays are enlarged with visible pixels."""
    step = max(1, max(array.shape[:2]) // (2 * side_px))  # pixels too small to see are not computed
    pixels = np.nan_to_num(np.asarray(array[::step, ::step], dtype=np.float32), posinf=0.0, neginf=0.0)
    if len(light) == pixels.shape[2]:
        shade = np.maximum(np.asarray(light, dtype=np.float64), 1e-6)
        pixels = pixels / (shade / shade.max())
    if array.dtype != np.uint8 or len(light):
        pixels = 255 * np.clip(pixels / max(float(np.percentile(pixels, 99.5)), 1e-9), 0, 1) ** (1 / 2.2)
    image = Image.fromarray(np.repeat(pixels.round().astype(np.uint8), 3 // pixels.shape[2], axis=2))
    image.thumbnail((side_px, side_px))
    return _enlarged(image) if side_px > _SMALL_PX and max(image.size) < _SMALL_PX else _png(image)


def _enlarged(image: Image.Image) -> bytes:
    """PNG of a small picture, enlarged with visible pixels."""
    times = max(1, _SMALL_PX // max(image.size))
    return _png(image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST))


@functools.cache
def unseen() -> bytes:
    """Placeholder PNG for a picture that cannot be shown."""
    image = Image.new("RGB", (THUMB_PX, THUMB_PX // 2), (238, 238, 238))
    ImageDraw.Draw(image).multiline_text((34, 20), "cannot be\nshown", fill=(85, 85, 85), align="center")
    return _png(image)


def _jpeg(image: Image.Image) -> bytes:
    return simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=85, colorsubsampling="420")


def _png(image: Image.Image) -> bytes:
    memory = io.BytesIO()
    image.save(memory, "PNG")
    return memory.getvalue()


def motion(payload: Payload) -> dict[str, Any]:
    """Bones, and joint coordinates of each body frame by frame in [0, 1], the second downwards."""
    array = np.asarray(payload.array, dtype=np.float64)
    array = array[..., None] if array.ndim == 3 else array
    layout = next(one for one in built_in_layouts().values() if len(one.joints) == array.shape[2])
    step = -(-array.shape[1] // _MOST_FRAMES)
    flat = np.nan_to_num(array[:2, ::step])
    there = [body for body in range(flat.shape[3]) if np.any(flat[..., body])]
    flat = flat[..., there or [0]]
    low, high = flat.min((1, 2, 3), keepdims=True), flat.max((1, 2, 3), keepdims=True)
    span = max(float((high - low).max()), 1e-9)
    placed = (flat - (low + high) / 2) / span + 0.5
    placed[1] = 1 - placed[1]
    return {"edges": [list(edge) for edge in layout.edges], "frames": placed.transpose(1, 3, 2, 0).round(4).tolist()}


def vector_figures(array: NDArray[Any]) -> Mapping[str, float | int]:
    """Width, norm, mean, minimum and maximum of a vector."""
    values = np.asarray(array, dtype=np.float64)
    return {
        "width": len(values),
        "norm": float(np.linalg.norm(values)),
        "mean": float(values.mean()),
        "least": float(values.min()),
        "most": float(values.max()),
    }


def curve_points(array: NDArray[Any]) -> list[str]:
    """The points of a line for a vector, or for each channel of a signal, in a box of 100 x 100; empty for other arrays.

    Of a long line, the least and the most of each stretch are points.

    >>> curve_points(np.array([0.0, 1.0, 2.0]))
    ['0,100 50,50 100,0']
    """
    lines = np.atleast_2d(array)
    if not lines.size or lines.dtype.kind not in "biuf":
        return []
    if lines.ndim != 2 or len(lines) > min(_MOST_LINES, lines.shape[1] - 1) or not np.isfinite(lines).all():
        return []
    places = np.arange(lines.shape[1], dtype=np.float64)
    if len(places) > 2 * _POINTS:
        ends = np.linspace(0, len(places), _POINTS, endpoint=False).astype(np.int64)
        pairs = [np.minimum.reduceat(lines, ends, axis=1), np.maximum.reduceat(lines, ends, axis=1)]
        lines, places = np.stack(pairs, axis=2).reshape(len(lines), -1), np.repeat(places[ends], 2)
    lines = lines.astype(np.float64)
    low, high = lines.min(), lines.max()
    heights = 100 * (high - lines) / ((high - low) or 1.0)
    return [" ".join(f"{x:.4g},{y:.4g}" for x, y in zip(100 * places / places[-1], line, strict=True)) for line in heights]


def save_npy(stream: io.BytesIO, payload: Payload) -> None:
    """Write an array as a ``.npy`` file."""
    np.save(stream, np.asarray(payload.array), allow_pickle=False)
