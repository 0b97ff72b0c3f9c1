"""Curves over an axis, written as SVG without matplotlib's drawing, which takes a tenth of a second a picture.

A report on open-world measures has seventy such pictures, each in two themes. Glyphs are those of the DejaVu Sans that comes
with matplotlib, as outlines: the same on every machine. The same numbers give the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 604.8, 244.8
_TICK, _NAME = 8.5, 9.0
"""Sizes of type in points: labels of ticks and of the legend, names of axes."""
_PAD = 6.0
_KEY = 26.0
"""Length of a line in the legend."""

Places = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Ink:
    """Colours of a page: of the ground, of words, of pale words, of the grid."""

    page: str
    words: str
    faint: str
    grid: str


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line with markers.

    Attributes:
        name: for the legend.
        x, y: (n,) places; where y is NaN the line is broken.
        hollow: (n,) bool, whether a marker is filled with the colour of the page.
        band: lower and upper edge, (n,) each, or None.
        colour, width, dashes, marker, size: how it looks; ``dashes`` are lengths of line and gap in widths, () for a whole
            line; ``marker`` is a key of ``MARKERS``, ``size`` its diameter. In points.
    """

    name: str
    x: Places
    y: Places
    hollow: NDArray[np.bool_]
    band: tuple[Places, Places] | None
    colour: str
    width: float
    dashes: tuple[float, ...]
    marker: str
    size: float


def _star() -> list[tuple[float, float]]:
    turns = [(0.1 * n * math.tau, 1.15 if n % 2 == 0 else 0.45) for n in range(10)]
    return [(r * math.sin(a), -r * math.cos(a)) for a, r in turns]


_HALF = [(-0.33, -1), (0.33, -1), (0.33, -0.33), (1, -0.33), (1, 0.33), (0.33, 0.33)]
_PLUS = [*_HALF, *((-x, -y) for x, y in _HALF)]
MARKERS = {
    "o": [(math.cos(a), math.sin(a)) for a in np.linspace(0, math.tau, 16, endpoint=False)],
    "s": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "D": [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
    "^": [(0, -1.1), (1.05, 0.9), (-1.05, 0.9)],
    "v": [(0, 1.1), (1.05, -0.9), (-1.05, -0.9)],
    "P": _PLUS,
    "X": [((x - y) * 0.75, (x + y) * 0.75) for x, y in _PLUS],
    "*": _star(),
}
"""Outlines around (0, 0), of radius 1 about."""


def curves_svg(
    curves: Sequence[Curve],
    ticks: Sequence[tuple[float, str]],
    ink: Ink,
    *,
    label_axis: str,
    value_axis: str,
    limits: tuple[float, float] | None = None,
    legend_title: str = "",
) -> bytes:
    """The picture of one curve or more.

    Args:
        ticks: place and label along the horizontal axis.
        limits: of the vertical axis; None: what the values need.
        legend_title: above the names of the curves, or "".
    """
    x_low, x_high = _span([np.array([place for place, _ in ticks]), *(curve.x for curve in curves)])
    y_low, y_high = limits or _span([y for curve in curves for y in (curve.y, *(curve.band or ()))])
    steps = nice_steps(y_low, y_high)
    title = [(legend_title, _NAME)] if legend_title else []
    legend = _KEY + _PAD + max(_extent(text, size) for text, size in [*title, *((c.name, _TICK) for c in curves)])
    left = 3 * _PAD + _NAME + max(_extent(label, _TICK) for _, label in steps)
    right, top, bottom = _WIDTH - legend - 3 * _PAD, 2 * _PAD, _HEIGHT - 4 * _PAD - _TICK

    def across(x: float) -> float:
        return left + (right - left) * (x - x_low) / (x_high - x_low)

    def down(y: float) -> float:
        return bottom - (bottom - top) * (y - y_low) / (y_high - y_low)

    drawn: list[str] = []
    for value, label in steps:
        drawn.append(_line([(left, down(value)), (right, down(value))], ink.grid, 0.8))
        drawn.append(_words(label, left - _PAD, down(value) + 0.36 * _TICK, _TICK, ink.words, anchor=1.0))
    drawn.append(_line([(left, bottom), (right, bottom)], ink.faint, 0.8))
    drawn += [_words(label, across(x), bottom + _PAD + _TICK, _TICK, ink.words, anchor=0.5) for x, label in ticks]
    drawn.append(_words(label_axis, (left + right) / 2, _HEIGHT - _PAD, _NAME, ink.faint, anchor=0.5))
    drawn.append(_words(value_axis, _PAD + _NAME, (top + bottom) / 2, _NAME, ink.faint, anchor=0.5, upwards=True))
    places = [[across(x) for x in curve.x.tolist()] for curve in curves]
    for curve, xs in zip(curves, places, strict=True):  # below all lines
        drawn += _band(curve, xs, down)
    for curve, xs in zip(curves, places, strict=True):
        drawn += _line_and_markers(curve, xs, down, ink.page)
    at = top + 2.0
    for text, size in title:
        drawn.append(_words(text, right + 2 * _PAD, at + 0.36 * size, size, ink.words))
        at += size + _PAD
    for curve in curves:
        begin = right + 2 * _PAD
        drawn.append(_line([(begin, at), (begin + _KEY, at)], curve.colour, curve.width, curve.dashes))
        drawn.append(_marker(curve, begin + _KEY / 2, at, curve.colour))
        drawn.append(_words(curve.name, begin + _KEY + _PAD, at + 0.36 * _TICK, _TICK, ink.words))
        at += _TICK + _PAD
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}pt" height="{_HEIGHT}pt" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, *drawn, "</svg>", ""]).encode()


def _band(curve: Curve, across: Sequence[float], down: Callable[[float], float]) -> list[str]:
    if curve.band is None:
        return []
    edges = [(x, float(low), float(high)) for x, low, high in zip(across, *curve.band, strict=True)]
    drawn: list[str] = []
    for part in _unbroken([low + high for _, low, high in edges]):
        some = [edges[n] for n in part]
        outline = [(x, down(high)) for x, _, high in some] + [(x, down(low)) for x, low, _ in reversed(some)]
        drawn.append(f'<path d="{_path(outline)}Z" fill="{curve.colour}" fill-opacity="0.15"/>')
    return drawn


def _line_and_markers(curve: Curve, across: Sequence[float], down: Callable[[float], float], page: str) -> list[str]:
    drawn: list[str] = []
    values = curve.y.tolist()
    for part in _unbroken(values):
        points = [(across[n], down(values[n])) for n in part]
        if len(points) > 1:
            drawn.append(_line(points, curve.colour, curve.width, curve.dashes))
        fills = [page if curve.hollow[n] else curve.colour for n in part]
        drawn += [_marker(curve, *point, fill) for point, fill in zip(points, fills, strict=True)]
    return drawn


def _unbroken(values: Sequence[float]) -> list[list[int]]:
    """Stretches of places that have a value."""
    parts: list[list[int]] = [[]]
    for n, value in enumerate(values):
        if math.isnan(value):
            parts.append([])
        else:
            parts[-1].append(n)
    return [part for part in parts if part]


def _span(values: Sequence[Places]) -> tuple[float, float]:
    """From the least to the largest, with a little room."""
    every = np.concatenate(values)
    every = every[~np.isnan(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return low - room, high + room


def nice_steps(low: float, high: float, most: int = 8) -> list[tuple[float, str]]:
    """Round numbers from low to high, ``most`` at most, with their labels."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * times for times in (1, 2, 2.5, 5, 10, 20) if (high - low) / (power * times) <= most - 1)
    exponent = math.floor(math.log10(step))
    mantissa = step / 10.0**exponent
    places = max(0, -exponent + (abs(mantissa - round(mantissa)) > 1e-6))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(n * step, f"{n * step:,.{places}f}") for n in range(first, last + 1)]


# ------------------------------------------------------------------------------------------------------------------ SVG


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)


def _line(points: Sequence[tuple[float, float]], colour: str, width: float, dashes: Sequence[float] = ()) -> str:
    told = f' stroke-dasharray="{" ".join(f"{width * each:.2f}" for each in dashes)}"' if dashes else ""
    return f'<path d="{_path(points)}" fill="none" stroke="{colour}" stroke-width="{width:.2f}"{told}/>'


def _marker(curve: Curve, x: float, y: float, fill: str) -> str:
    half = curve.size / 2
    outline = _path([(x + half * dx, y + half * dy) for dx, dy in MARKERS[curve.marker]])
    return f'<path d="{outline}Z" fill="{fill}" stroke="{curve.colour}" stroke-width="1"/>'


def _words(text: str, x: float, y: float, size: float, colour: str, *, anchor: float = 0.0, upwards: bool = False) -> str:
    """Text whose base line is at (x, y): ``anchor`` 0 begins there, 0.5 is centred, 1 ends there."""
    outline, _ = _glyphs(text)
    turn = " rotate(-90)" if upwards else ""
    back = -anchor * _extent(text, size)
    moved = f"translate({x:.2f} {y:.2f}){turn} translate({back:.2f} 0) scale({size / 100:g} {-size / 100:g})"
    return f'<path transform="{moved}" d="{outline}" fill="{colour}"/>'


def _extent(text: str, size: float) -> float:
    return _glyphs(text)[1] * size / 100


@functools.lru_cache(4096)
def _glyphs(text: str) -> tuple[str, float]:
    """Outlines of a text at 100 points, y upwards, and how long it is. Labels are data: a dollar sign is a dollar sign."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=100)
    length, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    points, codes = text_to_path.get_text_path(font, text, ismath=False)
    told: list[str] = []
    before = 0
    for (x, y), code in zip(np.asarray(points).tolist(), codes, strict=True):
        # Codes of matplotlib's paths: 1 move, 2 line, 3 two points of a curve, 4 three, 79 close. A code stands at each point.
        if code == 79:
            told.append("Z")
        elif code in (3, 4) and before == code:
            told.append(f"{x:.1f} {y:.1f}")
        else:
            told.append(f"{'.MLQC'[code]}{x:.1f} {y:.1f}")
        before = code
    return " ".join(told), float(length)
