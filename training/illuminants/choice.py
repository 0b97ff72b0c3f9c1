"""Estimators on pictures in cross-validation: settings are chosen on training pictures, then fitted, tested and saved."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...curation.checkpoint import Checkpoint
from ...curation.npy import npz_bytes
from ...datasets.two_camera.folds import Fold
from .pictures import AnyPictures, Illuminants, in_blocks, unit

Choice = Mapping[str, Any]
FittedState = Mapping[str, NDArray[np.float64]]
EstimateFunction = Callable[..., Illuminants]
"""``estimate(pictures, **state, **setting)`` -> (n, 3) lights in the first camera, of length 1; it gets ``LinearPictures``."""
FitFunction = Callable[..., FittedState]
"""``fit(pictures, lights, **setting)`` -> arrays by name; it gets ``LinearPictures`` or ``StoredPictures``."""

_CHOOSING = 1000  # pictures that settings are compared on


@dataclasses.dataclass(frozen=True)
class Baseline:
    """An estimator with its setting and, if it was trained, its arrays."""

    estimator: PictureEstimator
    setting: Choice
    state: FittedState

    def estimate(self, pictures: AnyPictures) -> Illuminants:
        """The illuminant of each picture, (n, 3) float64 of length 1, in the first camera's colours."""
        return np.concatenate([self.estimator.estimate(block, **self.state, **self.setting) for block in in_blocks(pictures)])

    def save(self) -> bytes:
        """The content of an .npz file; the same baseline gives the same bytes with the same numpy."""
        what = json.dumps({"estimator": self.estimator.name, "setting": dict(self.setting)}, sort_keys=True)
        return npz_bytes({"baseline": np.array(what), **{f"state.{k}": self.state[k] for k in sorted(self.state)}})


class RelitPictures(NamedTuple):
    """Training pictures re-illuminated with the lights of other pictures.

    Attributes:
        pictures: n pictures under their new lights.
        lights: (n, 3), new lights in the first camera.
        of: (n,) index of the training picture that is re-illuminated.
        under: (n,) index of the training picture whose light is used; -1: none of them.
    """

    pictures: AnyPictures
    lights: Illuminants
    of: NDArray[np.int64]
    under: NDArray[np.int64]

    def without(self, places: NDArray[np.int64]) -> RelitPictures:
        """Only pictures that neither show one of the training pictures at ``places`` nor use its light."""
        rows = np.flatnonzero(~(np.isin(self.of, places) | np.isin(self.under, places)))
        return RelitPictures(self.pictures[rows], self.lights[rows], self.of[rows], self.under[rows])


class PictureEstimator:
    """An estimator on pictures, as required by ``eval.protocols.cross_validation``.

    Settings are compared by mean angular error on every fifth picture, at most 1,000. For the comparison, estimators are
    trained without these pictures; then the chosen setting is trained on all. Re-illuminated pictures are used in both, but for
    the comparison not those that show a held-out picture or use its light.

    Args:
        estimate: see ``EstimateFunction``.
        fit: see ``FitFunction``; None if there is nothing to train.
        **choices: the values that each setting may have, "inf" for infinity; every combination is tried.

    Attributes:
        folder: folder for a checkpoint after each fold; None: no checkpoints.
        relit_pictures: number of re-illuminated pictures to train on per training picture, from the fold's re-illuminated rows.
    """

    needs_pictures = True

    def __init__(self, *, estimate: EstimateFunction, fit: FitFunction | None = None, **choices: Sequence[Any]) -> None:
        self.name, self.estimate, self.fit = estimate.__name__, estimate, fit
        if alone := [
            name for name, each in choices.items() if isinstance(each, str) or not isinstance(each, Sequence) or not each
        ]:
            raise ValueError(f"{alone[0]} = {choices[alone[0]]!r}: expected a list of the values to choose from")
        for function in (estimate, *([] if fit is None else [fit])):
            inspect.signature(function).bind_partial(**choices)
        values = [[math.inf if value == "inf" else value for value in each] for each in choices.values()]
        self.settings: list[Choice] = [dict(zip(choices, each, strict=True)) for each in product(*values)]
        self.folder: Path | None = None
        self.relit_pictures = 0
        self._saved: dict[str, bytes] = {}

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[Illuminants]]:
        """0 -> lights of each fold's test rows; settings are chosen on the fold's measured training rows."""
        checkpoint = None if self.folder is None else Checkpoint(self.folder)
        done = {} if checkpoint is None else checkpoint.arrays()
        for fold in folds[len(done) // 2 :]:
            keys, lights = fold.pair_train[fold.measured_train], fold.gt_train[fold.measured_train]
            rows = _spread(fold, self.relit_pictures)
            relit = _relit(fold, keys, rows) if len(rows) else None
            baseline = self.fitted(fold.pictures(keys), lights, relit=relit)
            estimates = np.maximum(baseline.estimate(fold.pictures(fold.key_test)), 1e-6)
            file = np.frombuffer(baseline.save(), dtype=np.uint8)
            done |= {f"estimates of {fold.name}": estimates / estimates[:, 1:2], f"file of {fold.name}": file}
            if checkpoint is not None:
                checkpoint.commit_arrays(done)
        self._saved = {f"{fold.name.replace(' ', '-')}.npz": done[f"file of {fold.name}"].tobytes() for fold in folds}
        return {0: [done[f"estimates of {fold.name}"] for fold in folds]}

    def artifacts(self) -> dict[str, bytes]:
        """The baseline of each fold, with its setting."""
        return self._saved

    def fitted(self, pictures: AnyPictures, illuminants: Illuminants, *, relit: RelitPictures | None = None) -> Baseline:
        """Choose the setting, and train the estimator, on these pictures.

        Args:
            pictures: the training fold, n pictures.
            illuminants: (n, 3), their lights in the first camera; gamut mapping uses the length as the light's strength.
            relit: re-illuminated training pictures, which are also trained on.

        Raises:
            ValueError: the lights do not match the pictures, or the estimator rejects them.
            ArithmeticError: what was trained is not finite.
        """
        lights = np.asarray(illuminants, dtype=np.float64)
        if lights.shape != (len(pictures), 3):
            raise ValueError(f"illuminants of shape {lights.shape}: {len(pictures)} pictures need ({len(pictures)}, 3)")
        setting = self.settings[0] if len(self.settings) == 1 else self._best(pictures, lights, relit)
        return self._with(setting, *_together(pictures, lights, relit))

    def _with(self, setting: Choice, pictures: AnyPictures, lights: Illuminants) -> Baseline:
        state = {} if self.fit is None else self.fit(pictures, lights, **setting)
        if strange := [name for name, values in state.items() if not np.isfinite(values).all()]:
            raise ArithmeticError(f"{strange[0]} of {self.name} is not finite with {dict(setting)}")
        return Baseline(self, setting, state)

    def _best(self, pictures: AnyPictures, lights: Illuminants, relit: RelitPictures | None) -> Choice:
        """The first of the settings with the least mean angle on the held-out pictures."""
        held = np.arange(0, len(pictures), 5)
        held = held[:: -(-len(held) // _CHOOSING)]
        rest = np.setdiff1d(np.arange(len(pictures)), held)
        if self.fit is None:
            rest = held[:1]  # nothing is trained: one picture spares the copy of all others
        elif not len(rest):
            raise ValueError(f"{len(pictures)} pictures: choosing between {len(self.settings)} settings needs at least two")
        some, truth = pictures[held], unit(lights[held])
        without = None if relit is None or self.fit is None else relit.without(held)
        train, train_lights = _together(pictures[rest], lights[rest], without)

        def mean_angle(setting: Choice) -> float:
            try:
                baseline = self._with(setting, train, train_lights)
            except ValueError as error:
                raise ValueError(
                    f"{error}; {len(held)} of {len(pictures)} are held out to choose between {len(self.settings)} settings, "
                    "one of which evaluation.method_settings can name"
                ) from error
            except ArithmeticError:  # another one may be fitted
                return math.inf
            estimates = baseline.estimate(some)
            return float(np.arccos(np.clip((estimates * truth).sum(axis=1), -1, 1)).mean())

        return min(self.settings, key=mean_angle)


def _together(pictures: AnyPictures, lights: Illuminants, relit: RelitPictures | None) -> tuple[AnyPictures, Illuminants]:
    if relit is None:
        return pictures, lights
    return pictures + relit.pictures, np.concatenate([lights, relit.lights])


def _relit(fold: Fold, keys: NDArray[np.str_], rows: NDArray[np.int64]) -> RelitPictures:
    """Re-illuminated training rows of a fold; ``keys`` are those of its measured training pictures."""
    at = {key: place for place, key in enumerate(keys.tolist())}
    pairs, under = fold.pair_train[rows], fold.light_train[rows]
    places = [np.array([at.get(key, -1) for key in each.tolist()], dtype=np.int64) for each in (pairs, under)]
    return RelitPictures(fold.pictures(pairs, under), fold.gt_train[rows], *places)


def _spread(fold: Fold, count: int) -> NDArray[np.int64]:
    """Re-illuminated training rows of a fold: ``count`` evenly spaced ones of each pair, or all if there are fewer."""
    rows = np.flatnonzero(~fold.measured_train)
    pairs = fold.pair_train[rows]
    found = [np.empty(0, dtype=np.int64)]
    for pair in np.unique(pairs) if count else ():
        own = rows[pairs == pair]
        found.append(own[np.unique(np.linspace(0, len(own) - 1, min(count, len(own))).astype(np.int64))])
    return np.sort(np.concatenate(found))
