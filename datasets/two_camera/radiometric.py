"""The radiometric set: pairs of pictures computed from spectra of lights, surfaces and two cameras.

Source: Abdelhamed, Punnappurath and Brown, CVPR 2021, section 4.1, after Barnard et al.: one random light and 24 random
surfaces per picture; a response is the sum over wavelengths of light times reflectance times sensitivity; the ground truth is
the response to a perfect reflector. The published set has 18,000 pairs of 32 x 48 pixels, 10,800 / 3,600 / 3,600 of them for
training, validation and test. The paper names neither the two cameras nor the seed, and the 87 lights are unavailable: all of
them are settings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...curation.rng import rng
from ...curation.rows import Sifted, sift, with_column
from ..spectra.files import (
    Spectra,
    read_cameras,
    read_spectra,
    shipped_cameras,
    shipped_lights,
    shipped_reflectances,
)
from .rows import lists, numbers
from .transforms import TransformPreset, fit

_PAIRS_PER_PIECE = 2000


@dataclass(frozen=True)
class Rendered:
    """A generated pair.

    Attributes:
        key: ``radiometric_00000``.
        name: same as ``key``.
        light: name of the light.
        surfaces: numbers of the surfaces, in the order of the patches.
        colours_1: linear raw colours of the surfaces in the first camera (3 * surfaces,), patch by patch; 1 is the response of
            the strongest channel to a perfect reflector, in either camera.
        colours_2: the colours in the second camera.
        gt_1: response of the first camera to a perfect reflector (3,).
        gt_2: response of the second camera.
    """

    key: str
    name: str
    light: str
    surfaces: list[int]
    colours_1: list[float]
    colours_2: list[float]
    gt_1: list[float]
    gt_2: list[float]


@dataclass(frozen=True)
class Scene:
    """Spectra on one grid: ``lights`` (n, w), ``reflectances`` (m, w), ``cameras`` (2, w, 3), float64."""

    light_names: tuple[str, ...]
    lights: np.ndarray
    reflectances: np.ndarray
    cameras: np.ndarray


@functools.cache
def scene(
    sensitivities: str | None,
    cameras: tuple[str, str],
    reflectances: str | None,
    lights: str | None,
    without: tuple[str, ...],
    step_nm: int,
) -> Scene:
    """The spectra on the grid covered by all of them, with step ``step_nm``. None: spectra of colour-science.

    Raises:
        ValueError: a camera or light is unknown, no light is left, or the spectra have too small a common range.
    """
    found = [
        shipped_cameras() if sensitivities is None else read_cameras(sensitivities),
        shipped_reflectances() if reflectances is None else read_spectra(reflectances),
        shipped_lights() if lights is None else read_spectra(lights),
    ]
    low = max(float(one.wavelength_nm[0]) for one in found)
    high = min(float(one.wavelength_nm[-1]) for one in found)
    grid = np.arange(np.ceil(low / step_nm) * step_nm, high + 1e-9, step_nm)
    if len(grid) < 3:
        raise ValueError(f"the spectra have {low:g} to {high:g} nm in common: too little")
    sensors, surfaces, sources = found
    both = Spectra(cameras, sensors.wavelength_nm, np.stack([sensors.named(name) for name in cameras])).at(grid)
    if unknown := [name for name in without if name not in sources.names]:
        raise ValueError(f"no light {unknown[0]!r} that could be left out: there are {', '.join(sources.names)}")
    kept = [number for number, name in enumerate(sources.names) if name not in without]
    if not kept:
        raise ValueError("no light is left")
    return Scene(tuple(sources.names[number] for number in kept), sources.at(grid)[kept], surfaces.at(grid), both)


def pieces(*, pairs: int) -> Iterator[str]:
    """Ranges of pairs, such as ``0-2000``."""
    for start in range(0, pairs, _PAIRS_PER_PIECE):
        yield f"{start}-{min(start + _PAIRS_PER_PIECE, pairs)}"


def draw_pairs(
    piece: str,
    *,
    pairs: int,
    sensitivities: str | None,
    cameras: Sequence[str],
    reflectances: str | None,
    lights: str | None,
    without: Sequence[str],
    surfaces: int,
    step_nm: int,
    seed: int,
) -> Iterator[pa.Table]:
    """Source step: the pairs of one range, as ``Rendered``.

    Args:
        piece: one of ``pieces``.
        pairs: number of pairs of the whole set; determines the width of the numbers in keys.
        sensitivities: file of cameras (``spectra.files.read_cameras``), or None for those of colour-science.
        cameras: names of the first, main camera and of the second.
        reflectances: file of surfaces (``spectra.files.read_spectra``), or None for those of colour-science.
        lights: file of lights, or None for those of colour-science.
        without: lights to leave out, such as ``LPS``, whose one line at 589 nm shows a camera a single colour.
        surfaces: number of surfaces in each picture, drawn without replacement.
        step_nm: step of the common wavelength grid.
        seed: seed for the lights and surfaces of each pair.
    """
    first, second = cameras
    world = scene(sensitivities, (first, second), reflectances, lights, tuple(without), step_nm)
    if not 3 <= surfaces <= len(world.reflectances):
        raise ValueError(f"{surfaces} surfaces in a picture: expected from 3 to the {len(world.reflectances)} available")
    start, stop = map(int, piece.split("-"))
    width = max(5, len(str(pairs - 1)))
    keys = [f"radiometric_{number:0{width}d}" for number in range(start, stop)]
    light = np.empty(len(keys), dtype=np.int64)
    chosen = np.empty((len(keys), surfaces), dtype=np.int64)
    for row, key in enumerate(keys):
        generator = rng(seed, "draw_pairs", key)
        light[row] = generator.integers(len(world.lights))
        chosen[row] = generator.choice(len(world.reflectances), surfaces, replace=False)
    columns = {
        "key": pa.array(keys),
        "name": pa.array(keys),
        "light": pa.array(world.light_names).take(pa.array(light)),
        "surfaces": pa.array(list(chosen)),
    }
    for number in (1, 2):
        # (lights, 3, w): sensitivity of each channel times the spectrum of each light.
        taken = np.einsum("lw,wc->lcw", world.lights, world.cameras[number - 1])
        white = taken.sum(axis=2)
        response = np.einsum("lcw,mw->lmc", taken, world.reflectances, optimize=True) / white.max(axis=1)[:, None, None]
        columns[f"colours_{number}"] = lists(response[light[:, None], chosen])
        columns[f"gt_{number}"] = lists((white / white.max(axis=1, keepdims=True))[light])
    yield pa.table(columns).select(list(Rendered.__dataclass_fields__))


def measure_drawn(table: pa.Table, *, preset: TransformPreset, max_condition: float) -> Sifted:
    """Table step: the transforms between the patches' colours, as ``MeasuredPair``.

    Rejects ``singular``: the condition number of the colours is above ``max_condition``.
    """
    colours = [
        numbers(table[f"colours_{n}"], len(table["colours_1"][0])).reshape(table.num_rows, -1, 3) if table.num_rows else _EMPTY
        for n in (1, 2)
    ]
    there, back = fit(*colours, preset=preset), fit(*colours[::-1], preset=preset)
    table = with_column(table, "transform_1to2", lists(there.matrix))
    table = with_column(table, "transform_2to1", lists(back.matrix))
    for name in ("transform_chart_1to2", "transform_chart_2to1"):
        table = with_column(table, name, pa.nulls(table.num_rows, pa.list_(pa.float64())))
    for number, condition in ((1, there.condition), (2, back.condition)):
        table = with_column(table, f"condition_{number}", pa.array(condition.astype(np.float32).astype(np.float64)))
    worst = np.maximum(there.condition, back.condition)
    singular = ~(worst <= max_condition)
    details: list[str | None] = [None] * len(worst)
    for row in np.flatnonzero(singular):
        details[row] = f"condition {worst[row]:.3g} of the colours, limit {max_condition:g}"
    return sift(table, {"singular": singular}, detail=pa.array(details, pa.string()))


_EMPTY = np.empty((0, 3, 3))
