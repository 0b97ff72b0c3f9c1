"""The colour transform between two cameras, by least squares, and the scale of the colours that it is fitted to.

Source: the paper's Eq. 2, T = (I1' I1)^-1 I1' I2 with a row vector of raw R, G, B for each pixel. ``as_written`` uses the raw
values; ``as_released`` divides every pixel by its R + G + B first, which the released transforms confirm: their rows sum to 1.

``weighted`` is ours. Noise of constant size in the raw values becomes noise of size 1 / (R + G + B) in chromaticities, so that
in plain least squares a few hundred nearly black pixels outweigh all others. Here each pixel is weighted by the inverse of this
variance in both cameras, 1 / (1 / s1^2 + 1 / s2^2), with the sums s of R, G and B. Rows of T sum to 1 as before, no pixel is
left out, and weights stay bounded as a sum goes to zero. ``benchmarks/two_camera_transforms.py`` compares it with others.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from ...curation.rows import Reject

TransformPreset = Literal["weighted", "as_released", "as_written"]

NUMBERS = tuple(f"{one} to {other}" for one in "RGB" for other in "RGB")
"""Names of the nine numbers of T, row by row: from a channel of one camera to one of the other."""

MAX_CONDITION = 1e4
"""Default limit of the ratio of singular values: above it the three channels are nearly dependent, and T is noise."""


class TransformFit(NamedTuple):
    """``matrix`` float64 (..., 3, 3); ``condition`` float64 (...): largest over smallest singular value of the colours.

    >>> colours = np.array([[0.2, 0.3, 0.1], [0.4, 0.1, 0.2], [0.1, 0.2, 0.5]])
    >>> found = fit(colours, 2 * colours, preset="as_written")
    >>> np.diag(found.matrix).round(6), bool(found.condition < 10)
    (array([2., 2., 2.]), True)
    """

    matrix: np.ndarray
    condition: np.ndarray


def fit(
    colours_1: np.ndarray, colours_2: np.ndarray, *, preset: TransformPreset, valid: np.ndarray | None = None
) -> TransformFit:
    """The 3 x 3 matrix T that makes ``colours_1 @ T`` nearest to ``colours_2``.

    Args:
        colours_1: linear raw colours (..., n, 3), any scale; leading axes are independent fits.
        colours_2: the same colours in the second camera, row for row.
        preset: see the docstring of the module.
        valid: bool (..., n): which to use; by default all. Colours whose sum is not above zero in both cameras are left out,
            except by ``as_written``.

    Returns:
        NaN and an infinite condition if fewer than three colours are left, or if they span no volume.

    >>> main = np.array([[0.2, 0.3, 0.1], [0.4, 0.1, 0.2], [0.1, 0.2, 0.5], [0.3, 0.3, 0.3]])  # four pixels, raw R, G, B
    >>> second = main @ np.diag([0.5, 1.0, 0.8])
    >>> np.diag(fit(main, second, preset="as_written").matrix).round(6)
    array([0.5, 1. , 0.8])
    >>> fit(main, second, preset="weighted").matrix.sum(axis=1).round(6)  # of chromaticities: rows sum to 1
    array([1., 1., 1.])
    >>> fit(main[:2], second[:2], preset="as_written").condition  # two colours span no volume
    array(inf)
    """
    # Channels first: sums then run along long axes, which is several times faster.
    one, two = (np.array(np.swapaxes(colours, -1, -2), dtype=np.float64, order="C") for colours in (colours_1, colours_2))
    keep = np.ones((*one.shape[:-2], one.shape[-1]), dtype=bool) if valid is None else valid
    if preset != "as_written":
        totals = [colours[..., 0, :] + colours[..., 1, :] + colours[..., 2, :] for colours in (one, two)]
        keep = keep & (totals[0] > 0) & (totals[1] > 0)
        for colours, scale in zip((one, two), _divisors(*(np.where(keep, t, 1.0) for t in totals), preset=preset), strict=True):
            colours /= scale[..., None, :]
    if not keep.all():
        one, two = (np.where(keep[..., None, :], colours, 0.0) for colours in (one, two))
    # Without BLAS, whose threads may sum in another order: the last digit would depend on the machine's load.
    return from_normal_equations(np.einsum("...in,...jn->...ij", one, one), np.einsum("...in,...jn->...ij", one, two))


def _divisors(total_1: np.ndarray, total_2: np.ndarray, preset: TransformPreset) -> tuple[np.ndarray, np.ndarray]:
    """Divisors of the colours of either camera before the fit: their R + G + B, over the square root of the pixel's weight."""
    if preset == "as_released":
        return total_1, total_2
    # Never below 1, so that colours of mixed sign, whose sum is near zero, do not explode. Division by infinity gives zero.
    with np.errstate(over="ignore", divide="ignore"):
        ratio = (total_1 / total_2) ** 2
        return np.sqrt(1 + ratio), np.sqrt(1 + 1 / ratio)


def from_normal_equations(gram: np.ndarray, cross: np.ndarray) -> TransformFit:
    """Solve the normal equations, ``gram`` = I1' I1 and ``cross`` = I1' I2, float64 (..., 3, 3) each.

    Squaring the condition number leaves eight digits at ``MAX_CONDITION``, enough for three unknowns.

    >>> from_normal_equations(2 * np.eye(3), np.eye(3)).matrix
    array([[0.5, 0. , 0. ],
           [0. , 0.5, 0. ],
           [0. , 0. , 0.5]])
    """
    gram, cross = np.nan_to_num(gram), np.nan_to_num(cross)
    values = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    solvable = values[..., 0] > values[..., 2] * 1e-14
    safe = np.where(solvable[..., None, None], gram, np.eye(3))
    matrix = np.where(solvable[..., None, None], np.linalg.solve(safe, cross), np.nan)
    least = np.where(solvable, values[..., 0], 1.0)
    return TransformFit(matrix, np.where(solvable, np.sqrt(values[..., 2] / least), np.inf))


def checked_fit(
    colours_1: np.ndarray, colours_2: np.ndarray, *, preset: TransformPreset, what: str, max_condition: float = MAX_CONDITION
) -> tuple[np.ndarray, float]:
    """One fit: T, float64 (3, 3), and its condition.

    Args:
        colours_1, colours_2: linear raw colours (n, 3) of both cameras, row for row.
        preset: see the docstring of the module.
        what: name of the colours in the reject.
        max_condition: see ``MAX_CONDITION``.

    Raises:
        Reject: ``singular``: the condition is above ``max_condition``.

    >>> grey = np.full((4, 3), 0.5)
    >>> checked_fit(grey, grey, preset="as_written", what="pair 7")
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: singular: pair 7: condition inf of the colours, limit 10000
    """
    matrix, condition = fit(colours_1, colours_2, preset=preset)
    if not condition <= max_condition:
        raise Reject("singular", f"{what}: condition {float(condition):.3g} of the colours, limit {max_condition:g}")
    return matrix, float(condition)


def checked_light(value: Any, what: str) -> list[float]:
    """Three finite numbers above zero, as a list. Raises ``Reject("bad_numbers", ...)``.

    >>> checked_light([0.5, 1, 0.7], "gt_1")
    [0.5, 1.0, 0.7]
    >>> checked_light([0.5, 0, 0.7], "gt_1")
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: bad_numbers: gt_1: [0.5, 0.0, 0.7], where a light is above zero in every channel
    """
    found = checked_numbers(value, what, 3)
    if not (found > 0).all():
        raise Reject("bad_numbers", f"{what}: {found.tolist()}, where a light is above zero in every channel")
    return found.tolist()


def checked_matrix(value: Any, what: str) -> list[float]:
    """Nine finite numbers, 3 x 3 row by row, of an invertible matrix. Raises ``Reject("bad_numbers", ...)``.

    >>> checked_matrix(np.eye(3), "transform_1to2")
    [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    """
    found = checked_numbers(value, what, 9)
    entries = found.tolist()
    if not _far_from_singular(entries) and np.linalg.matrix_rank(found.reshape(3, 3)) < 3:
        raise Reject("bad_numbers", f"{what}: a matrix without inverse")
    return entries


def _far_from_singular(entries: list[float]) -> bool:
    """Whether the determinant alone shows that a 3 x 3 matrix has an inverse, in a tenth of the time that the rank takes.

    It is the product of the singular values, none of which exceeds the norm: the smallest is at least a billionth of it.
    """
    a, b, c, d, e, f, g, h, i = entries
    determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    norm = math.hypot(*entries)
    return abs(determinant) > 1e-9 * norm * norm * norm


def checked_numbers(value: Any, what: str, count: int) -> np.ndarray:
    """Finite numbers, float64 (count,). Raises ``Reject("bad_numbers", ...)``.

    >>> checked_numbers([[1, 2], [3, 4]], "transform", 4)
    array([1., 2., 3., 4.])
    >>> checked_numbers([1, float("nan")], "gt_1", 2)
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: bad_numbers: gt_1: expected 2 finite numbers, found 2
    """
    try:
        found = np.asarray(value, dtype=np.float64).ravel()
    except (ValueError, TypeError, OverflowError):
        raise Reject("bad_numbers", f"{what}: {type(value).__name__}, expected {count} numbers") from None
    if found.shape != (count,) or not np.isfinite(found).all():
        raise Reject("bad_numbers", f"{what}: expected {count} finite numbers, found {found.size}")
    return found
