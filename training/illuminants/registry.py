"""Baselines by name: settings chosen on the training fold, fitted, saved and loaded."""

from __future__ import annotations

import dataclasses
import io
import json
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.named import UnknownName, load
from ...curation.registry import Registry, load_entry
from .pictures import Illuminants, Pictures, unit

Setting = Mapping[str, Any]
State = Mapping[str, NDArray[np.float64]]
Fit = Callable[..., State]

_NAMES = (
    "bright_dark_pca",
    "bright_pixels",
    "chromagenic",
    "corrected_moments",
    "gamut",
    "gray_edge",
    "weighted_gray_edge",
)
ESTIMATORS = Registry(
    "estimator",
    {name: f"benchwright.training.illuminants.{name}:{name}" for name in _NAMES},
    fits={name: "pairs of pictures" if name == "chromagenic" else "pictures" for name in _NAMES},
)
"""``estimate(pictures, **state, **settings)``; the state is what ``fit_<name>(pictures, illuminants, **settings)`` gives, where
the same module has one."""

_PIXELS = 1_000_000  # estimated at once
_CHOOSING = 1000  # pictures that settings are compared on


@dataclasses.dataclass(frozen=True)
class Baseline:
    """An estimator with its setting and, where it was trained, its arrays."""

    estimator: str
    setting: Setting
    state: State

    def estimate(self, pictures: Pictures) -> Illuminants:
        """The illuminant of each picture, (n, 3) float64 of length 1, in the first camera's colours."""
        function, _ = _functions(self.estimator)
        step = max(1, _PIXELS // pictures.usable[0].size)
        parts = [pictures[start : start + step] for start in range(0, len(pictures), step)]
        return np.concatenate([function(part, **self.state, **self.setting) for part in parts])

    def save(self) -> bytes:
        """The content of an .npz file; the same baseline gives the same bytes with the same numpy."""
        stream = io.BytesIO()
        what = json.dumps({"estimator": self.estimator, "setting": dict(self.setting)}, sort_keys=True)
        np.savez(
            stream, allow_pickle=False, baseline=np.array(what), **{f"state.{k}": self.state[k] for k in sorted(self.state)}
        )
        return stream.getvalue()

    @classmethod
    def load(cls, data: bytes, estimator: str = "") -> Baseline:
        """What ``save`` gave.

        Args:
            data: the bytes.
            estimator: its name, which has to be given where it is none of the built-in ones: the bytes may be anyone's.

        Raises:
            ValueError: the bytes are none of a baseline's.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                what = json.loads(str(arrays["baseline"]))
                state = {name.removeprefix("state."): arrays[name] for name in arrays.files if name != "baseline"}
            if what["estimator"] in ESTIMATORS.builtin or what["estimator"] == estimator:
                return cls(what["estimator"], what["setting"], state)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{len(data)} bytes are no saved baseline: {error}") from error
        raise ValueError(f"no estimator is called {what['estimator']!r}: there are {', '.join(_NAMES)}")


def candidates() -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """``baselines.toml``: name -> (estimator, settings to choose from)."""
    found: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for name, table in tomllib.loads((files(__package__ or "") / "baselines.toml").read_text(encoding="utf-8")).items():
        estimator = table.pop("estimator")
        found[name] = (estimator, [dict(zip(table, values, strict=True)) for values in product(*table.values())])
    return found


def estimator_of(name: str) -> list[Callable[..., Any]]:
    """The functions that a baseline is made of: those that no other estimator has."""
    return [function for function in _functions(_candidates_of(name)[0]) if function is not None]


def _functions(estimator: str) -> tuple[Callable[..., Illuminants], Fit | None]:
    """What estimates, and what fits, None where there is nothing to train."""
    entry = ESTIMATORS.find(estimator)
    place, _, attribute = entry.reference.rpartition(":")
    estimate = load_entry(entry)
    try:
        return estimate, load(f"{place}:fit_{attribute}")
    except UnknownName:
        return estimate, None


def _candidates_of(name: str) -> tuple[str, list[dict[str, Any]]]:
    tables = candidates()
    if name in tables:
        return tables[name]
    try:
        if name not in ESTIMATORS.builtin:
            return ESTIMATORS.find(name).name, [{}]
    except UnknownName:
        pass
    raise ValueError(f"no baseline is called {name!r}: there are {', '.join(tables)}, or name an estimator of your own")


def fit_baseline(name: str, pictures: Pictures, illuminants: Illuminants) -> Baseline:
    """A baseline of ``baselines.toml``, chosen and trained on these pictures.

    Settings are compared by mean angular error on every fifth picture, at most 1,000; what is trained is trained without these
    for the comparison, and then, with the setting chosen, on all.

    Args:
        name: such as "shades_of_gray"; or an estimator of one's own, which has no settings to choose from.
        pictures: the training fold, n pictures.
        illuminants: (n, 3), their lights in the first camera; gamut mapping takes a length for the light's strength.

    Raises:
        ValueError: no such name, lights that do not go with the pictures, or what the estimator refuses.
    """
    estimator, settings = _candidates_of(name)
    lights = np.asarray(illuminants, dtype=np.float64)
    if lights.shape != (len(pictures), 3):
        raise ValueError(f"illuminants of shape {lights.shape}: {len(pictures)} pictures need ({len(pictures)}, 3)")
    setting = settings[0] if len(settings) == 1 else _best(estimator, settings, pictures, lights)
    return _fitted(estimator, setting, pictures, lights)


def _fitted(estimator: str, setting: Setting, pictures: Pictures, lights: Illuminants) -> Baseline:
    _, fit = _functions(estimator)
    return Baseline(estimator, setting, {} if fit is None else fit(pictures, lights, **setting))


def _best(estimator: str, settings: Sequence[Setting], pictures: Pictures, lights: Illuminants) -> Setting:
    """The first of the settings with the least mean angle on the held-out pictures."""
    held = np.arange(0, len(pictures), 5)
    held = held[:: -(-len(held) // _CHOOSING)]
    rest = np.setdiff1d(np.arange(len(pictures)), held)
    if _functions(estimator)[1] is None:
        rest = held[:1]  # nothing is trained: one picture spares the copy of all others
    elif not len(rest):
        raise ValueError(f"{len(pictures)} pictures: to choose between {len(settings)} settings takes two at least")
    some, truth = pictures[held], unit(lights[held])
    train, train_lights = pictures[rest], lights[rest]

    def mean_angle(setting: Setting) -> float:
        estimates = _fitted(estimator, setting, train, train_lights).estimate(some)
        return float(np.arccos(np.clip((estimates * truth).sum(axis=1), -1, 1)).mean())

    return min(settings, key=mean_angle)


CHOOSING = (Baseline, fit_baseline, _fitted, _best)
"""What chooses settings and fits, of every estimator."""
