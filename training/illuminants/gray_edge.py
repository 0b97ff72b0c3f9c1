"""Gray world, shades of gray, white patch and gray edge: one formula with an order of derivative n, a norm p and a scale sigma.

Sources: van de Weijer, Gevers and Gijsenij, "Edge-Based Color Constancy", IEEE Transactions on Image Processing 16(9),
2007, whose framework e(n, p, sigma) is

    ( integral |d^n f_sigma(x) / dx^n|^p dx )^(1/p) = k e.

Its special cases: gray world e(0, 1, 0), Buchsbaum, "A spatial processor model for object colour perception", Journal of
the Franklin Institute 310, 1980; white patch e(0, inf, 0), Land and McCann, "Lightness and Retinex Theory", JOSA 61,
1971; shades of gray e(0, p, 0), Finlayson and Trezzi, "Shades of Gray and Colour Constancy", Color Imaging Conference
2004, with p = 6 for its data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pictures import Illuminants, LinearPictures, PictureArrays, unit

_ROUNDING = np.float32(1e-6)  # share of a picture's largest value; smaller derivatives are 0: flat pictures have no edge


def gray_edge(pictures: LinearPictures, *, order: int, p: float, sigma: float) -> Illuminants:
    """The illuminant of each picture from the Minkowski norm of its derivatives.

    Args:
        pictures: n pictures.
        order: order of the derivative: 0, 1 or 2.
        p: exponent of the norm, >= 1; ``math.inf`` takes the maximum.
        sigma: width of the Gaussian, in pixels; 0 for none, allowed only for order 0.

    Returns:
        (n, 3) of length 1. A picture without an edge gets the gray-world estimate.

    Raises:
        ValueError: settings outside these ranges.

    >>> reddish = LinearPictures.of(np.random.default_rng(0).random((1, 8, 8, 3)) * [2.0, 1.0, 1.0])
    >>> gray_edge(reddish, order=0, p=1, sigma=0).round(2)  # gray world: near (2, 1, 1) / sqrt(6)
    array([[0.82, 0.42, 0.38]])
    >>> gray_edge(reddish, order=1, p=1, sigma=0)
    Traceback (most recent call last):
        ...
    ValueError: sigma 0: a derivative needs a Gaussian wider than 0 pixels, and narrower than 10,000
    """
    if not p >= 1:
        raise ValueError(f"p {p}: a Minkowski norm has p >= 1")
    return unit(or_gray_world(norm(magnitude(pictures.images, order=order, sigma=sigma), pictures.usable, p=p), pictures))


def norm(values: NDArray[np.floating], usable: NDArray[np.bool_], *, p: float) -> Illuminants:
    """Minkowski means of the usable pixels, (n, 3), of values >= 0 of shape (n, h, w, 3).

    >>> norm(np.array([[[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]]]), np.ones((1, 1, 2), bool), p=1)
    array([[2., 2., 2.]])
    """
    counts = usable.sum(axis=(1, 2))[:, None]
    kept = np.ascontiguousarray(np.moveaxis(values, 3, 1)).reshape(len(values), 3, -1)  # numpy sums slowly along short axes
    if not usable.all():
        kept = kept * usable.reshape(len(values), 1, -1)
    if p == 1:
        return kept.sum(axis=2, dtype=np.float64) / counts
    largest = kept.max(axis=2).astype(np.float64)
    if np.isinf(p):
        return largest
    scale = np.where(largest > 0, largest, 1)  # powers of large numbers overflow
    kept = (kept / scale[..., None].astype(kept.dtype)) ** p
    return scale * (kept.sum(axis=2, dtype=np.float64) / counts) ** (1 / p)


def magnitude(images: PictureArrays, *, order: int, sigma: float) -> PictureArrays:
    """Magnitude of each channel's derivative, (n, h, w, 3), by Gaussian derivatives with replicated borders.

    The second order is sqrt(fxx^2 + 4 fxy^2 + fyy^2), as in the code that the authors of gray edge released.

    >>> ramp = np.tile(np.linspace(0, 1, 32, dtype=np.float32)[None, None, :, None], (1, 32, 1, 3))
    >>> magnitude(ramp, order=1, sigma=1)[0, 16, 16].round(3)  # a step of 1 / 31 a pixel
    array([0.032, 0.032, 0.032], dtype=float32)
    """
    if order == 0:
        return images if sigma == 0 else _filtered(images, sigma, 0, 0)
    if order == 1:
        return np.hypot(*gradients(images, sigma=sigma))
    if order == 2:
        xx, xy, yy = (_filtered(images, sigma, *orders) for orders in ((0, 2), (1, 1), (2, 0)))
        return np.hypot(np.hypot(xx, yy), 2 * xy)  # squares of faint pictures would underflow to 0
    raise ValueError(f"order {order}: derivatives of order 0, 1 and 2 are known")


def gradients(images: PictureArrays, *, sigma: float) -> tuple[PictureArrays, PictureArrays]:
    """Gaussian derivatives along x and along y, each (n, h, w, 3), per pixel; ``sigma`` is in pixels, above 0.

    >>> ramp = np.tile(np.linspace(0, 31, 32, dtype=np.float32)[None, None, :, None], (1, 32, 1, 3))
    >>> x, y = gradients(ramp, sigma=1)
    >>> float(x[0, 16, 16, 0].round(3)), float(y[0, 16, 16, 0].round(3))  # one a pixel to the right, none downwards
    (1.0, 0.0)
    """
    return _filtered(images, sigma, 0, 1), _filtered(images, sigma, 1, 0)


def or_gray_world(estimates: Illuminants, pictures: LinearPictures) -> Illuminants:
    """The estimates, or gray-world estimates where one has no direction: all zeros, or not finite.

    >>> pictures = LinearPictures.of(np.full((2, 2, 2, 3), [0.3, 0.0, 0.4]))
    >>> or_gray_world(np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 4.0]]), pictures).round(3)
    array([[0.3, 0. , 0.4],
           [0. , 3. , 4. ]])
    """
    none = ~(np.isfinite(estimates).all(axis=1) & (estimates > 0).any(axis=1))
    if none.any():
        estimates = estimates.copy()
        estimates[none] = norm(pictures.images[none], pictures.usable[none], p=1)
    return estimates


def positive(estimates: Illuminants, pictures: LinearPictures) -> Illuminants:
    """Directions of the estimates, with 0 for negative components; the gray-world estimate if no component is positive.

    >>> pictures = LinearPictures.of(np.full((2, 2, 2, 3), [0.3, 0.0, 0.4]))
    >>> positive(np.array([[-1.0, 0.0, 0.0], [-1.0, 3.0, 4.0]]), pictures).round(3)
    array([[0.6, 0. , 0.8],
           [0. , 0.6, 0.8]])
    """
    return unit(or_gray_world(np.maximum(estimates, 0), pictures))


def kernel(sigma: float, order: int) -> NDArray[np.float64]:
    """Sampled derivative of a Gaussian up to 4 sigma, corrected so that it is exact for polynomials of its order.

    Plain samples of the second derivative do not sum to 0 (nor do scipy's): flat regions would count as edges.
    """
    if not 0 < sigma < 1e4:
        raise ValueError(f"sigma {sigma}: a derivative needs a Gaussian wider than 0 pixels, and narrower than 10,000")
    x = np.arange(-np.ceil(4 * sigma), np.ceil(4 * sigma) + 1)
    gauss = np.exp(-0.5 * (x / sigma) ** 2)
    if order == 0:
        return gauss / gauss.sum()
    if order == 1:
        return x * gauss / (x**2 * gauss).sum()
    bent = (x**2 - (x**2 * gauss).sum() / gauss.sum()) * gauss
    return 2 * bent / (x**2 * bent).sum()


def _filtered(images: PictureArrays, sigma: float, order_y: int, order_x: int) -> PictureArrays:
    from scipy import ndimage

    rows = ndimage.correlate1d(images, kernel(sigma, order_y), axis=1, mode="nearest")
    filtered = np.asarray(ndimage.correlate1d(rows, kernel(sigma, order_x), axis=2, mode="nearest"), dtype=np.float32)
    if order_y + order_x:
        filtered[np.abs(filtered) < _ROUNDING * images.max(axis=(1, 2, 3), keepdims=True)] = 0
    return filtered
