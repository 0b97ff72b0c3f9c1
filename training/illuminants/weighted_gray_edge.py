"""Weighted gray edge: edges that look like highlights under the current estimate count more.

Source: Gijsenij, Gevers and van de Weijer, "Improving Color Constancy by Photometric Edge Weighting", IEEE TPAMI 34(5),
2012, with the weights of the specular variant. In a picture that is corrected with the current estimate, an edge f_x varies
with the light by its component along white, o_x; the weight is (|o_x| / |f_x|)^kappa. Estimation and correction alternate.
"""

from __future__ import annotations

import math

import numpy as np

from .gray_edge import gradients, or_gray_world
from .pictures import Illuminants, LinearPictures, unit

_LEAST = 1e-6  # lower limit of a light's channels, since correcting a picture divides by its light


def weighted_gray_edge(
    pictures: LinearPictures, *, p: float, sigma: float, kappa: float, rounds: int = 10, settled_deg: float = 0.05
) -> Illuminants:
    """The illuminant of each picture from its weighted edges.

    Args:
        pictures: n pictures.
        p: exponent of the Minkowski norm, >= 1 and finite.
        sigma: width of the Gaussian, in pixels, > 0.
        kappa: power of the weights, >= 0; 0 is gray edge of the first order.
        rounds: maximum number of rounds; the authors' code has 10.
        settled_deg: a picture is finished when its estimate turns by less in a round. The released code has 0.05 degrees.

    Returns:
        (n, 3) of length 1. A picture without an edge gets the gray-world estimate.

    >>> reddish = LinearPictures.of(np.random.default_rng(0).random((1, 16, 16, 3)) * [2.0, 1.0, 1.0])
    >>> weighted_gray_edge(reddish, p=1, sigma=1, kappa=0).round(2)  # kappa 0: gray edge of the first order
    array([[0.86, 0.37, 0.34]])
    """
    if not 1 <= p < math.inf or not kappa >= 0 or rounds < 1:
        raise ValueError(f"p {p}, kappa {kappa}, rounds {rounds}: 1 <= p < inf, kappa >= 0 and a round are needed")
    x, y = (derivative.reshape(len(pictures), -1, 3) for derivative in gradients(pictures.images, sigma=sigma))
    length = np.hypot(x, y) * pictures.usable.reshape(len(pictures), -1, 1)
    largest = length.max(axis=1)
    scale = np.where(largest > 0, largest, 1)
    for values in (x, y, length):  # powers of faint edges would underflow to 0
        values /= scale[:, None]
    squares, powers = length**2, (length**p).transpose(0, 2, 1)
    # Correction scales each channel, which commutes with derivative and power: filters and powers run once.
    scale = scale / scale.max(axis=1, keepdims=True)
    light = np.full((len(pictures), 3), 3**-0.5)
    todo = np.flatnonzero(largest.any(axis=1))
    light[np.setdiff1d(np.arange(len(pictures)), todo)] = 0
    for _ in range(rounds):
        gain = (scale[todo] / np.maximum(light[todo], _LEAST) / 3**0.5).astype(np.float32)[..., None]
        along = np.hypot(x[todo] @ gain, y[todo] @ gain) / np.float32(3**0.5)
        total = np.sqrt(squares[todo] @ gain**2)
        weight = np.minimum(along / np.where(total > 0, total, 1), 1) ** (kappa * p)
        found = (gain * (powers[todo] @ weight) ** (1 / p))[..., 0]
        turn = unit(np.where(found.any(axis=1, keepdims=True), found, 1))  # edges orthogonal to white change nothing
        light[todo] = unit(light[todo] * turn)
        todo = todo[np.degrees(np.arccos(np.minimum(turn.sum(axis=1) / 3**0.5, 1))) >= settled_deg]
        if not len(todo):
            break
    return unit(or_gray_world(light, pictures))
