"""Illuminant estimators by name, and ``baselines.toml``, whose tables name one on pictures and the settings to choose from."""

from __future__ import annotations

import inspect
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...curation.code_loading import UnknownName, load
from ...curation.package_data import package_toml
from ...curation.registry import Registry
from .choice import Baseline, PictureEstimator

_ON_PICTURES = (
    "as_projective_as_possible",
    "bright_dark_pca",
    "bright_pixels",
    "chromagenic",
    "corrected_moments",
    "ffcc",
    "gamut",
    "gray_edge",
    "projective",
    "weighted_gray_edge",
)
_HERE = "benchwright.training.illuminants"
_MODULES = {"as_projective_as_possible": "projective"}
_ON_TRANSFORMS = {
    "distilled": "benchwright.training.two_camera.networks:distilled",
    "linear_regression": "benchwright.training.two_camera.linear:LinearEstimator",
    "network": "benchwright.training.two_camera.networks:network",
}
ESTIMATORS = Registry(
    "estimator",
    {**{name: f"{_HERE}.{_MODULES.get(name, name)}:{name}" for name in _ON_PICTURES}, **_ON_TRANSFORMS},
    fits={
        **{name: "pairs of pictures" if name == "chromagenic" else "pictures" for name in _ON_PICTURES},
        **dict.fromkeys(_ON_TRANSFORMS, "transforms"),
    },
)
"""On pictures ``estimate(pictures, **state, **setting)``; where it has to be trained, ``fit_<name>(pictures, lights,
**setting)`` in the same module gives the state. Others are called with their settings and give what
``eval.protocols.cross_validation.Estimator`` describes."""


def functions(reference: str) -> dict[str, str]:
    """References of what an estimator on pictures is made of: ``estimate`` and, where it has to be trained, ``fit``; none for
    one of another kind.

    Raises:
        UnknownName: it cannot be loaded.
    """
    found, (place, _, attribute) = load(reference), reference.rpartition(":")
    if inspect.isclass(found) or next(iter(inspect.signature(found).parameters), "") != "pictures":
        return {}
    fit = f"{place}:fit_{attribute}"
    try:
        load(fit)
    except UnknownName:
        return {"estimate": reference}
    return {"estimate": reference, "fit": fit}


def candidates() -> dict[str, tuple[str, dict[str, Sequence[Any]]]]:
    """``baselines.toml``: name -> estimator, and the values that each setting may have."""
    return {name: (table.pop("estimator"), table) for name, table in package_toml(__package__, "baselines.toml").items()}


def estimator(name: str, choices: Mapping[str, Sequence[Any]]) -> PictureEstimator:
    """An estimator on pictures by its name in one of the three forms of ``curation.registry``."""
    given: dict[str, Any] = {part: load(each) for part, each in functions(ESTIMATORS.find(name).reference).items()}
    given |= choices
    return PictureEstimator(**given)


def load_baseline(data: bytes, name: str = "") -> Baseline:
    """Return the fitted baseline that ``Baseline.save`` wrote, such as a file of ``write_artifacts``.

    Args:
        data: bytes of the file.
        name: name of the estimator, required unless it is built in: the bytes may be anybody's.

    Raises:
        ValueError: the bytes are not a saved baseline.

    >>> from benchwright.training.illuminants.pictures import LinearPictures
    >>> pictures = LinearPictures.of(np.random.default_rng(0).random((4, 8, 8, 3)))
    >>> fitted = estimator(*candidates()["gray_edge_1"]).fitted(pictures, np.ones((4, 3)))
    >>> load_baseline(fitted.save()).estimate(pictures).shape
    (4, 3)
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            what = json.loads(str(arrays["baseline"]))
            state = {each.removeprefix("state."): arrays[each] for each in arrays.files if each != "baseline"}
        found, setting = str(what["estimator"]), what["setting"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{len(data)} bytes are not a saved baseline: {error}") from error
    if not name and found not in _ON_PICTURES:
        raise ValueError(f"no estimator is called {found!r}: there are {', '.join(_ON_PICTURES)}")
    return Baseline(estimator(name or found, {key: [value] for key, value in setting.items()}), setting, state)
