"""Fast Fourier colour constancy: the light is located on a torus by a filtered histogram of log colours.

Source: Barron and Tsai, "Fast Fourier Color Constancy", CVPR 2017. Colours and local differences of a picture are counted in
two histograms of u = log G/R and v = log G/B that wrap around at both ends: a light shifts them. Both are filtered, a map of
plausible lights is added, softmax turns the sum into probabilities, and a bivariate von Mises distribution is fitted to them.
Filters and map are learned by L-BFGS: first by cross-entropy, which is convex, then by the likelihood of the true light. Their
smoothness is a quadratic form, diagonal in Fourier space; the optimisation uses coordinates in which it is a sum of squares.

A position on the torus stands for many lights, whole periods apart. The one nearest to the centre of the training lights is
used, the paper's gray light. The paper's videos, deep features and sRGB input are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.encoders.one_thread import one_thread
from .pictures import AnyPictures, Illuminants, LinearPictures, in_blocks, unit

Floats = NDArray[np.float64]
Measure = Callable[[Floats, Floats], tuple[float, Floats]]
"""(probabilities, true positions) -> a sum over the pictures, and its gradient with respect to the scores."""

BINS = 64
BIN = 1 / 32
"""Bin width in log colour: the torus is 2 wide, a ratio of 7.4 between channels."""
_LEAST = 1 / 256  # share of a picture's brightest value; darker pixels are not counted
_SPREAD = 1.0  # bins squared, added to the variances of the fitted distribution
_FEW = 2.0**-35  # weight of the squares of filters and map themselves, in addition to those of their slopes
_BLOCK = 256  # pictures at once
_AXIS = np.arange(BINS)
_TURN = 2 * np.pi / BINS


def log_colours(lights: NDArray[Any]) -> Floats:
    """u = log G/R and v = log G/B, (n, 2).

    >>> log_colours(np.array([[1.0, 1.0, 1.0], [0.5, 1.0, 2.0]])).round(3)
    array([[ 0.   ,  0.   ],
           [ 0.693, -0.693]])
    """
    logs = np.log(np.asarray(lights, dtype=np.float64))
    return logs[..., 1:2] - logs[..., [0, 2]]


def histograms(pictures: LinearPictures, start: Floats) -> Floats:
    """Histograms of colours and of mean differences to the eight neighbours, (n, 2, 64, 64), of sum 1, or 0 if no pixel counts.

    Args:
        pictures: n pictures. Values below 1/256 of a picture's brightest are ignored.
        start: (2,), log colour of the centre of the first bin.
    """
    counts = np.zeros((len(pictures), 2, BINS * BINS))
    for row in range(len(pictures)):
        values, usable = pictures.images[row].astype(np.float64), pictures.usable[row]
        least = max(_LEAST * values[usable].max(), 1e-300)
        for kind, seen in enumerate((values, _differences(values, usable))):
            chosen = seen[usable & (seen >= least).all(axis=2)]
            places = np.round((log_colours(chosen) - start) / BIN).astype(np.int64) % BINS
            counts[row, kind] = np.bincount(places[:, 0] * BINS + places[:, 1], minlength=BINS * BINS)
    return (counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)).reshape(-1, 2, BINS, BINS)


def _differences(values: Floats, usable: NDArray[np.bool_]) -> Floats:
    """Mean of |pixel - neighbour| over the usable ones of eight neighbours, (h, w, 3)."""
    height, width = usable.shape
    around, there = np.pad(values, ((1, 1), (1, 1), (0, 0))), np.pad(usable, 1)
    total, count = np.zeros_like(values), np.zeros((height, width, 1))
    for y in range(3):
        for x in range(3):
            if (y, x) != (1, 1):
                both = there[y : y + height, x : x + width, None]
                total += both * np.abs(around[y : y + height, x : x + width] - values)
                count += both
    return total / np.maximum(count, 1)


def probabilities(seen: NDArray[Any], filters: Floats, plausible: Floats) -> Floats:
    """Probabilities of each picture's light, (n, 64, 64) of sum 1: softmax of the filtered histograms plus the map.

    Args:
        seen: ``rfft2`` of histograms, (n, 2, 64, 33).
        filters: (2, 64, 64).
        plausible: (64, 64).
    """
    of_colours, of_edges = np.fft.rfft2(filters)
    filtered = seen[:, 0] * of_colours
    filtered += seen[:, 1] * of_edges
    scores = np.fft.irfft2(filtered, s=(BINS, BINS))
    scores += plausible
    scores -= scores.max(axis=(1, 2), keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=(1, 2), keepdims=True)
    return scores


def von_mises(chances: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Fit bivariate von Mises distributions by moments.

    Returns:
        Means (n, 2) in bins, from 0 to below 64; covariances (n, 2, 2), about the bin nearest to the mean; distances of all
        bins from that bin, the short way round, (n, 2, 64); and the sums of cosines and sines, (n, 2, 2), whose angles are the
        means.
    """
    along = np.stack([chances.sum(axis=2), chances.sum(axis=1)], axis=1)  # (n, 2, 64): of u, of v
    sums = along @ np.stack([np.cos(_TURN * _AXIS), np.sin(_TURN * _AXIS)], axis=1)
    mean = np.arctan2(sums[..., 1], sums[..., 0]) / _TURN % BINS
    far = (_AXIS - np.round(mean)[..., None] + BINS / 2) % BINS - BINS / 2
    first = (along * far).sum(axis=2)
    spread = far[:, 0, None] @ chances @ far[:, 1, :, None]
    covariance = np.empty((len(chances), 2, 2))
    covariance[:, [0, 1], [0, 1]] = (along * far**2).sum(axis=2)
    covariance[:, 0, 1] = covariance[:, 1, 0] = spread[:, 0, 0]
    covariance -= first[:, :, None] * first[:, None]
    return mean, covariance + _SPREAD * np.eye(2), far, sums


def bin_cross_entropy(chances: Floats, truth: Floats) -> tuple[float, Floats]:
    """Sum over the pictures, and its gradient with respect to the scores; ``truth`` (n, 2) in bins is split over four bins."""
    target = np.zeros_like(chances)
    low = np.floor(truth).astype(np.int64)
    share = truth - low
    for up in np.ndindex(2, 2):
        weight = np.prod(np.where(up, share, 1 - share), axis=1)
        places = (low + up) % BINS
        target[np.arange(len(truth)), places[:, 0], places[:, 1]] += weight
    return float(-(target * np.log(np.maximum(chances, 1e-300))).sum()), chances - target


def likelihood(chances: Floats, truth: Floats) -> tuple[float, Floats]:
    """Negative log likelihood of the true lights (n, 2) in bins, summed over the pictures, at least 0; and its gradient with
    respect to the scores."""
    mean, covariance, far, sums = von_mises(chances)
    miss = (truth - mean + BINS / 2) % BINS - BINS / 2
    inverse = np.linalg.inv(covariance)
    pulled = (inverse @ miss[..., None])[..., 0]
    value = 0.5 * (np.linalg.slogdet(covariance).logabsdet - 2 * np.log(_SPREAD) + (miss * pulled).sum(axis=1)).sum()
    by_covariance = 0.5 * (inverse - pulled[:, :, None] * pulled[:, None])
    turned = sums[..., :1] * np.sin(_TURN * _AXIS) - sums[..., 1:] * np.cos(_TURN * _AXIS)
    by_mean = -pulled[..., None] * turned / (np.maximum((sums**2).sum(axis=2, keepdims=True), 1e-12) * _TURN)
    first = (np.stack([chances.sum(axis=2), chances.sum(axis=1)], axis=1) * far).sum(axis=2, keepdims=True)
    alone = by_mean + by_covariance[:, [0, 1], [0, 1], None] * (far**2 - 2 * first * far)
    both = far[:, 0, :, None] * far[:, 1, None]  # in place from here: memory takes longer than the arithmetic
    both -= first[:, 1:] * far[:, 0, :, None]
    both -= first[:, :1] * far[:, 1, None]
    both *= 2 * by_covariance[:, 0, 1, None, None]
    slopes = alone[:, 0, :, None] + alone[:, 1, None]
    slopes += both
    slopes -= np.multiply(chances, slopes, out=both).sum(axis=(1, 2), keepdims=True)
    slopes *= chances
    return float(value), slopes


def scale_of(smoothness: Sequence[float]) -> Floats:
    """Factors, (3, 64, 33), from ``rfft2`` of the parameters, (3, 64, 64), to that of both filters and the map: half the sum of
    the squared parameters is then the smoothness penalty."""
    slope = 0.5 * np.sin(_TURN * _AXIS / 2) ** 2  # of differences of neighbours, over the square root of 8
    slopes = slope[:, None] + slope[: BINS // 2 + 1]
    return 1 / (BINS * np.sqrt(2.0 ** np.reshape(smoothness, (3, 1, 1)) * slopes + _FEW))


def maps_of(parameters: Floats, scale: Floats) -> Floats:
    """Both filters and the map, (3, 64, 64)."""
    return np.fft.irfft2(np.fft.rfft2(parameters.reshape(3, BINS, BINS)) * scale, s=(BINS, BINS))


def objective(
    parameters: Floats, seen: NDArray[Any], truth: Floats, scale: Floats, measure: Measure, weight: float
) -> tuple[float, Floats]:
    """The objective and its gradient: ``weight`` times the mean of ``measure``, plus the penalty."""
    maps = maps_of(parameters, scale)
    value, back = 0.0, np.zeros((3, BINS, BINS // 2 + 1), dtype=np.complex128)
    for start in range(0, len(seen), _BLOCK):
        some = slice(start, start + _BLOCK)
        part, slopes = measure(probabilities(seen[some], maps[:2], maps[2]), truth[some])
        value, turned = value + part, np.fft.rfft2(slopes)
        by_filters = np.zeros_like(back[:2])
        for one, its_slopes in zip(seen[some], turned, strict=True):  # each fits into the processor's cache
            by_filters += np.conj(one) * its_slopes
        back[:2] += by_filters
        back[2] += turned.sum(axis=0)
    share = weight / len(seen)
    slopes = share * np.fft.irfft2(back * scale, s=(BINS, BINS)).ravel() + parameters
    return share * value + 0.5 * float(np.square(parameters).sum()), slopes


def fit_ffcc(
    pictures: AnyPictures, illuminants: Illuminants, *, colours: float, edges: float, plausible: float, weight: float
) -> dict[str, Floats]:
    """Learn filters and map.

    Args:
        pictures: n pictures.
        illuminants: (n, 3), of any length.
        colours, edges, plausible: smoothness of the filters of both histograms and of the map of lights, as powers of 2.
        weight: weight of a picture's likelihood relative to the smoothness, as a power of 2; cross-entropy, the start, has
            about a thousandth of it.

    Returns:
        "filters" (2, 64, 64), "plausible_lights" (64, 64), and "start" (2,), the log colour of their first bin.

    Raises:
        ValueError: a light that is not above 0 in all channels.
        ArithmeticError: the loss is not finite.

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (8, 3))
    >>> pictures = LinearPictures.of(np.random.default_rng(1).random((8, 8, 8, 3)) * lights[:, None, None])
    >>> fit_ffcc(pictures, lights, colours=-23, edges=-29, plausible=-26, weight=-2)["filters"].shape
    (2, 64, 64)
    """
    import torch

    from ..core.schedule import LBFGS

    if not (np.asarray(illuminants) > 0).all():
        raise ValueError("a light without some channel has no log colour")
    truth = log_colours(illuminants)
    start = (truth.min(axis=0) + truth.max(axis=0)) / 2 - BIN * BINS / 2
    truth = (truth - start) / BIN
    blocks = in_blocks(pictures, _BLOCK)
    seen = np.concatenate([np.fft.rfft2(histograms(block, start)).astype(np.complex64) for block in blocks])
    scale = scale_of((colours, edges, plausible))
    found = torch.zeros(3 * BINS * BINS, dtype=torch.float64)
    with one_thread():  # BLAS threads would sum in an order of their own
        for measure, times, rounds in ((bin_cross_entropy, 2.0 ** (weight - 10), 16), (likelihood, 2.0**weight, 64)):

            def loss(measure: Measure = measure, times: float = times) -> float:
                value, slopes = objective(found.numpy(), seen, truth, scale, measure, times)
                if not math.isfinite(value):
                    raise ArithmeticError(f"the loss of ffcc is not finite: weight {weight} is too high")
                found.grad = torch.from_numpy(slopes)
                return value

            limits: dict[str, Any] = {"max_iter": rounds, "max_eval": 4 + 2 * rounds, "history_size": rounds}
            limits |= {"tolerance_grad": 0, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
            LBFGS([found], **limits).step(loss)
    maps = maps_of(found.numpy(), scale)
    return {"filters": maps[:2], "plausible_lights": maps[2], "start": start}


def ffcc(pictures: LinearPictures, filters: Floats, plausible_lights: Floats, start: Floats, **_fitting: float) -> Illuminants:
    """The illuminant of each picture from its filtered histograms: (n, 3) of length 1.

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (8, 3))
    >>> pictures = LinearPictures.of(np.random.default_rng(1).random((8, 8, 8, 3)) * lights[:, None, None])
    >>> found = ffcc(pictures, **fit_ffcc(pictures, lights, colours=-23, edges=-29, plausible=-26, weight=-2))
    >>> bool(np.degrees(np.arccos((found * unit(lights)).sum(axis=1))).mean() < 3)  # of pictures that were learned from
    True
    """
    place = von_mises(probabilities(np.fft.rfft2(histograms(pictures, start)), filters, plausible_lights))[0]
    u, v = (start + BIN * place).T
    return unit(np.exp(np.stack([-u, np.zeros(len(u)), -v], axis=1)))
