"""Estimators on pictures by name: ``baselines.toml``, whose tables name an estimator and the settings to choose from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ...curation.named import load
from .choice import Baseline, PictureEstimator, saved
from .pictures import Illuminants, Pictures

ESTIMATORS: Mapping[str, str] = {
    name: f"{__package__}.{name}:estimator"
    for name in (
        "bright_dark_pca",
        "bright_pixels",
        "chromagenic",
        "corrected_moments",
        "gamut",
        "gray_edge",
        "weighted_gray_edge",
    )
}
"""Name -> where the function is that makes the estimator from the settings to choose from."""


def candidates() -> dict[str, tuple[str, dict[str, Sequence[Any]]]]:
    """``baselines.toml``: name -> estimator, and the values that each setting may have."""
    found: dict[str, tuple[str, dict[str, Sequence[Any]]]] = {}
    for name, table in tomllib.loads((files(__package__ or "") / "baselines.toml").read_text(encoding="utf-8")).items():
        found[name] = (table.pop("estimator"), table)
    return found


def baseline(name: str) -> PictureEstimator:
    """A baseline of ``baselines.toml``, such as "shades_of_gray", yet to be fitted.

    Raises:
        ValueError: no such name.
    """
    tables = candidates()
    if name not in tables:
        raise ValueError(f"no baseline is called {name!r}: there are {', '.join(tables)}")
    estimator, choices = tables[name]
    return load(ESTIMATORS[estimator])(**choices)


def fit_baseline(name: str, pictures: Pictures, illuminants: Illuminants) -> Baseline:
    """A baseline of ``baselines.toml``, chosen and trained on these pictures; see ``PictureEstimator.fitted``."""
    return baseline(name).fitted(pictures, illuminants)


def load_baseline(data: bytes) -> Baseline:
    """What ``Baseline.save`` gave of an estimator of this table.

    Raises:
        ValueError: the bytes are none of a baseline's.
    """
    name, setting, state = saved(data)
    if name not in ESTIMATORS:
        raise ValueError(f"no estimator is called {name!r}: there are {', '.join(ESTIMATORS)}")
    return Baseline(load(ESTIMATORS[name])(**{key: [value] for key, value in setting.items()}), setting, state)
