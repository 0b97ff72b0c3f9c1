"""Weighted gray edge: edges that look like highlights count for more, with the light that was found so far.

Source: Gijsenij, Gevers and van de Weijer, "Improving Color Constancy by Photometric Edge Weighting", IEEE TPAMI 34(5),
2012, with the weights of the specular variant. An edge f_x of a picture that was corrected with the estimate so far
varies with the light by its component along white, o_x; the weight is (|o_x| / |f_x|)^kappa. Estimate and correction take
turns.
"""

from __future__ import annotations

import numpy as np

from .gray_edge import gradients, norm, or_gray_world
from .pictures import Illuminants, Pictures, unit

_LEAST = 1e-6  # of the largest channel: to correct a picture means to divide by its light


def weighted_gray_edge(
    pictures: Pictures, *, p: float, sigma: float, kappa: float, rounds: int = 10, settled_deg: float = 0.05
) -> Illuminants:
    """The illuminant of each picture by its weighted edges.

    Args:
        pictures: n of them.
        p: of the Minkowski norm, >= 1.
        sigma: of the Gaussian, in pixels, > 0.
        kappa: power of the weights, >= 0; 0 is gray edge of the first order.
        rounds: at most; the authors' code has 10.
        settled_deg: a picture whose estimate turned by less in a round is done. The released code compares with 0.05 degrees.

    Returns:
        (n, 3) of length 1. A picture without an edge gets gray world's answer.
    """
    if not p >= 1 or not kappa >= 0 or rounds < 1:
        raise ValueError(f"p {p}, kappa {kappa}, rounds {rounds}: p >= 1, kappa >= 0 and a round are needed")
    x, y = gradients(pictures.images, sigma=sigma)
    length = np.hypot(x, y)
    light = np.full((len(pictures), 3), 3**-0.5)
    open_rows = np.flatnonzero(norm(length, pictures.usable, p=np.inf).any(axis=1))
    flat = np.setdiff1d(np.arange(len(pictures)), open_rows)
    for _ in range(rounds):
        # Correction is a scale of each channel, and so it goes through the derivative: the filters run once.
        white = (1 / np.maximum(light[open_rows], _LEAST) / 3**0.5).astype(np.float32)[:, None, None]
        along = np.hypot((x[open_rows] * white).sum(axis=3), (y[open_rows] * white).sum(axis=3)) / np.float32(3**0.5)
        corrected = length[open_rows] * white
        total = np.sqrt((corrected**2).sum(axis=3))
        weight = np.minimum(along / np.where(total > 0, total, 1), 1) ** kappa
        found = norm(corrected * weight[..., None], pictures.usable[open_rows], p=p)
        turn = unit(np.where(found.any(axis=1, keepdims=True), found, 1))  # edges across white alone turn nothing
        light[open_rows] = unit(light[open_rows] * turn)
        cosine = turn.sum(axis=1) / 3**0.5
        open_rows = open_rows[np.degrees(np.arccos(np.minimum(cosine, 1))) >= settled_deg]
        if not len(open_rows):
            break
    light[flat] = 0
    return unit(or_gray_world(light, pictures))
