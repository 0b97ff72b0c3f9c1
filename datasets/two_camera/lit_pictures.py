"""Small linear pictures with known lights, and simulated pictures of a second camera, by the sensitivities of both cameras.

This follows section 4.2 of Abdelhamed, Punnappurath and Brown, CVPR 2021, for sources without second pictures and charts: the
transform between the cameras is fitted to the 24 patches of a chart under the picture's light, from the spectra of light,
patches and sensors. The second picture is the first times this transform, on raw values, as in ``quasi_real``.

Only three numbers of a picture's light are known. Its spectrum is our choice: the one of colour-science's lights whose colour
in the main camera is nearest, times a smooth curve, exp(a x + b x^2) over the wavelengths, so that the camera sees exactly the
known colour. Lights of the same colour but other spectra are not distinguished: the transforms are more regular than real ones.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

import fsspec
import numpy as np

from ...curation.npy import npy_blob
from ...curation.rows import Reject, Rejected
from ...curation.stages.raw import as_uint16
from ..features.arrays import open_arrays, strings
from ..spectra.files import Spectra, read_cameras, shipped_lights, shipped_reflectances
from .linear_pairs import LinearPair
from .transforms import checked_light, fit

_GRID_NM = np.arange(400.0, 701.0, 10.0)
_CHART = "ColorChecker N Ohta: "
_WHITE = 0.9
"""Response of the strongest channel of either camera to a perfect white, as a share of full scale: equal exposure of both."""


def read_lit_pictures(
    *,
    pictures: str,
    sensitivities: str,
    sensors: Mapping[str, str],
    main: str,
    second: str,
    without: Sequence[str],
    saturated: float,
) -> Iterator[LinearPair | Rejected]:
    """Source step: the pictures of the main camera, and simulated ones of the second; by file and position.

    Args:
        pictures: folder of ``.npz`` files with ``pictures`` (n, h, w, 3), linear, 1 at full scale, ``lights`` (n, 3) and
            ``names`` (n,), ``<camera>_<number>``; path or URL.
        sensitivities: folder of the cameras' sensitivities (``spectra.files.read_cameras``).
        sensors: camera -> its file in that folder.
        main: camera whose pictures are read.
        second: camera whose pictures are simulated.
        without: lights of colour-science that must not be used.
        saturated: share of full scale from which a value counts as saturated.

    Yields:
        Pairs with the chart of both cameras, and the rejects ``bad_numbers`` (a light) and ``no_spectrum``.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a camera is unknown, a file has another form, or the main camera has no picture.
    """
    cameras = [_sensitivity(sensitivities, sensors, name) for name in (main, second)]
    lights = shipped_lights()
    known = lights.at(_GRID_NM)[[number for number, name in enumerate(lights.names) if name not in without]]
    chart = shipped_reflectances()
    patches = chart.at(_GRID_NM)[[number for number, name in enumerate(chart.names) if name.startswith(_CHART)]]
    fs, folder = fsspec.core.url_to_fs(pictures)
    files = sorted(str(name) for name in fs.glob(posixpath.join(folder, "*.npz")))
    if not files:
        raise FileNotFoundError(f"{pictures}: no .npz file of pictures found")
    found = False
    for file in files:
        names, views, colours = _arrays(fs.unstrip_protocol(file))
        for number in np.flatnonzero([name.rpartition("_")[0] == main for name in names]).tolist():
            found = True
            try:
                light = np.array(checked_light(colours[number], "light"))
                spectrum = lit_by(light, known, cameras[0])
                yield _pair(names[number], views[number].astype(np.float64), light, spectrum, patches, cameras, saturated)
            except Reject as reject:
                yield Rejected(names[number], reject.reason, reject.detail)
    if not found:
        raise ValueError(f"{pictures}: no picture is named {main}_...: source.main must be a camera with pictures")


def _sensitivity(folder: str, sensors: Mapping[str, str], name: str) -> np.ndarray:
    """Sensitivities (w, 3) on the common grid."""
    if name not in sensors:
        raise ValueError(f"no sensor of camera {name!r}: source.sensors has {', '.join(sensors)}")
    one: Spectra = read_cameras(posixpath.join(folder, sensors[name]))
    return one.at(_GRID_NM)[0]


def _arrays(place: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    try:
        with open_arrays(place, by_rows=False) as arrays:
            names, views, lights = (arrays.get(name).whole() for name in ("names", "pictures", "lights"))
    except (ValueError, KeyError) as error:
        raise ValueError(f"{place}: expected an .npz file with names, pictures and lights: {error}") from None
    if views.ndim != 4 or views.shape[3] != 3 or lights.shape != (len(views), 3) or names.shape != (len(views),):
        raise ValueError(f"{place}: names {names.shape}, pictures {views.shape} and lights {lights.shape} of n pictures")
    return strings(names), views, lights


def lit_by(light: np.ndarray, known: np.ndarray, camera: np.ndarray) -> np.ndarray:
    """A spectrum (w,) that the camera sees in the colour ``light``: the nearest known spectrum, times a smooth curve.

    Args:
        light: (3,), at any scale.
        known: spectra (n, w).
        camera: (w, 3).

    Raises:
        Reject: ``no_spectrum``: no curve brings the nearest spectrum to this colour.

    >>> grid = np.linspace(-1, 1, 31)[:, None]
    >>> camera = np.exp(-(((grid - [0.6, 0.0, -0.6]) / 0.3) ** 2))  # three bells
    >>> spectrum = lit_by(np.array([1.0, 2.0, 1.5]), np.ones((1, 31)), camera)
    >>> seen = spectrum @ camera
    >>> (seen / seen[0]).round(6)
    array([1. , 2. , 1.5])
    """
    from scipy.optimize import least_squares

    seen = known @ camera
    near = (seen @ light) / np.linalg.norm(seen, axis=1)
    spectrum = known[int(near.argmax())]
    x = np.linspace(-1, 1, len(spectrum))
    wanted = np.log(light[[0, 2]] / light[1])

    def bent(curve: np.ndarray) -> np.ndarray:
        return spectrum * np.exp(curve[0] * x + curve[1] * x**2)

    def off(curve: np.ndarray) -> np.ndarray:
        found = np.maximum(bent(curve) @ camera, 1e-300)
        return np.log(found[[0, 2]] / found[1]) - wanted

    solved = least_squares(off, np.zeros(2), bounds=(-10, 10), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    if np.abs(solved.fun).max() > 1e-6:
        raise Reject("no_spectrum", f"light {light.tolist()}: no smooth spectrum has that colour in the main camera")
    return bent(solved.x)


def _pair(
    name: str,
    picture: np.ndarray,
    light: np.ndarray,
    spectrum: np.ndarray,
    patches: np.ndarray,
    cameras: Sequence[np.ndarray],
    saturated: float,
) -> LinearPair:
    charts = [(patches * spectrum) @ camera for camera in cameras]
    whites = [spectrum @ camera for camera in cameras]
    charts = [_WHITE * chart / white.max() for chart, white in zip(charts, whites, strict=True)]
    matrix = fit(*charts, preset="as_written").matrix
    seen = picture @ matrix
    # Masked pixels are black; pixels that the matrix maps out of the range of the sensor do not belong to the pair.
    inside = (picture < saturated) & (seen >= 0) & (seen <= 1)
    valid = np.logical_and(picture.max(axis=2) > 0, inside.min(axis=2))
    return LinearPair(
        key=name,
        name=name,
        image_1=npy_blob(as_uint16(picture)),
        image_2=npy_blob(as_uint16(seen)),
        valid=npy_blob(np.asarray(valid)),
        gt_1=light.tolist(),
        gt_2=(whites[1] / whites[1].max()).tolist(),
        patches_1=charts[0].ravel().tolist(),
        patches_2=charts[1].ravel().tolist(),
    )
