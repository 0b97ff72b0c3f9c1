"""Generated pictures for configurations that need no files: one colour per class, drifting over the years."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from ...curation.rng import rng
from ...curation.rows import Blob, Rejected
from ...curation.stages.image_sources import FoundImage

_COLOURS = {
    "red": (200, 30, 30),
    "green": (30, 140, 40),
    "blue": (30, 60, 200),
    "yellow": (240, 220, 40),
    "purple": (130, 40, 160),
    "orange": (240, 140, 20),
}
_OTHERS = [(120, 120, 120), (20, 20, 20), (240, 240, 240)]
_FIRST_DAY = dt.datetime(2008, 1, 1)
_SIDE_PX = 24


def draw_pictures(*, count: int, classes: Sequence[str], seed: int) -> Iterator[FoundImage | Rejected]:
    """Draw ``count`` pictures over eight years; one in twenty-five is broken.

    Each shows a disc in the colour of its class, or in a grey of no class, on a background that darkens over the years. They
    are BMP files, whose bytes do not depend on an encoder's version.

    Args:
        count: number of pictures.
        classes: names of colours.
        seed: seed for all random draws.

    Raises:
        ValueError: a class is not a colour that can be drawn.
    """
    if unknown := [name for name in classes if name not in _COLOURS]:
        raise ValueError(f"class {unknown[0]!r} cannot be generated: expected one of {', '.join(_COLOURS)}")
    kinds: list[str] = [*classes, ""]
    for number in range(count):
        key = f"drawn{number:06d}"
        generator = rng(seed, "draw_pictures", key)
        kind = kinds[int(generator.integers(len(kinds)))]
        days = 8 * 365 * number / count
        taken = _FIRST_DAY + dt.timedelta(days=days, seconds=int(generator.integers(86_400)))
        data = _picture(kind, number / count, generator)
        if number % 25 == 24:
            data = data[: int(generator.integers(len(data)))]
        uploaded = taken + dt.timedelta(hours=1 + int(generator.integers(200)))
        yield FoundImage(
            key, Blob(data), "bmp", taken, uploaded, "drawn", f"{key}.bmp", json.dumps({"true_class": kind or None})
        )


def _picture(kind: str, era: float, generator: np.random.Generator) -> bytes:
    colour = _COLOURS[kind] if kind else _OTHERS[int(generator.integers(len(_OTHERS)))]
    ground = np.full((_SIDE_PX, _SIDE_PX, 3), int(250 - 120 * era), dtype=np.int64)
    rows, columns = np.mgrid[:_SIDE_PX, :_SIDE_PX]
    middle = generator.integers(9, 15, size=2)
    radius = int(generator.integers(6, 10))
    disc = (rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 <= radius**2
    ground[disc] = colour
    noisy = np.clip(ground + generator.integers(-20, 21, size=ground.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "BMP")
    return out.getvalue()
