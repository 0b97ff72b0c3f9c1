"""Networks and baselines of a two-camera run in folds: training, what is stale, scores."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...datasets.two_camera.samples import IMAGES, VALID
from ..results import EVAL, Failures, code_of, current_results, dataset_digest, stale_results
from .config import Metadata, Network, Radiometric, TwoCameraConfig

if TYPE_CHECKING:
    from ...datasets.two_camera.rows import TransformPairs
    from ...eval.protocols.cross_validation import Examples, Fold
    from ...training.illuminants.pictures import Pictures

LINEAR = "linear_regression"
SHOWN = ("mean", "median", "best_25", "worst_25", "q1", "q3")
"""Statistics of angular errors that ``eval`` and the report show, in degrees."""


def evaluate(
    config: TwoCameraConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train and test networks and baselines on the published dataset; what is finished is read, not done again.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of networks of the settings, and baselines; by default those of the settings.
        protocols: ``rotating`` or ``fixed``, that of the settings; there is no choice.
        progress: told one line a step.

    Returns:
        Method -> the content of its ``results.json``.

    Raises:
        ValueError: a method or protocol that is not known, or a baseline that needs pictures where there are none.
    """
    from ...eval.protocols.cross_validation import evaluate_folds, examples

    parts = config.folds.kind
    if wrong := [name for name in protocols if name != parts]:
        raise ValueError(f"no protocol {wrong[0]!r}: this run has the folds {parts!r}")
    chosen = list(methods) or [*config.evaluation.networks, *config.evaluation.baselines]
    _check_methods(config, chosen)
    pairs = read_pairs(posixpath.join(out, "dataset"))
    direction = config.evaluation.direction
    rows = examples(pairs, direction=direction)
    more: Examples | None = None
    pictures: Pictures | None = None
    results: dict[str, Any] = {}
    failures = Failures(progress)
    for name in chosen:
        progress(name)
        network = config.evaluation.networks.get(name)
        lights_of_test = network is not None and network.lights_of_test
        mine = rows
        if network is not None:
            estimator: Any = _network(config.evaluation.networks, name, progress)
            if network.reilluminated:
                from ...training.two_camera.reillumination import reilluminated

                more = more or examples(reilluminated(pairs.take(pairs.original)), direction=direction)
                mine = more
        elif name == LINEAR:
            from ...training.two_camera.networks import LinearEstimator

            estimator = LinearEstimator()
        else:
            if pictures is None:
                progress("reading pictures")
                pictures = read_pictures(out, config)
            estimator = PictureEstimator(name, pictures, pairs.key[pairs.original])
        whose = _identity(config, out, parts, name)
        with failures.of(f"{parts}/{name}", f"evaluation.networks.{name}.settings"):
            found = evaluate_folds(
                estimator,
                mine,
                parts=parts,
                identity={key: value for key, value in whose.items() if key != "estimator"},
                out=Path(out) / EVAL / parts / name,
                lights_of_test=lights_of_test,
            )
            results[name] = found.summary
    failures.check(out)
    return results


def _identity(config: TwoCameraConfig, out: str, parts: str, name: str) -> dict[str, Any]:
    """What the results of a method are of: its settings, the dataset, and the code that estimates and evaluates."""
    from ...datasets.two_camera.rows import as_pairs
    from ...eval.protocols.cross_validation import evaluate_folds, examples
    from ...training.illuminants.pictures import Pictures
    from ...training.illuminants.registry import CHOOSING, estimator_of
    from ...training.two_camera.networks import LinearEstimator
    from ...training.two_camera.reillumination import reilluminated

    if parts != config.folds.kind:
        raise ValueError(f"folds.kind = {config.folds.kind!r}, and not {parts!r}")
    _check_methods(config, [name])
    network, alone = config.evaluation.networks.get(name), [read_pairs]
    code: list[Callable[..., Any]] = [evaluate_folds, examples, as_pairs]
    if network is not None:
        estimator = _network(config.evaluation.networks, name, lambda _: None)
        whose, code, alone = estimator.identity, [*code, type(estimator), reilluminated], [*alone, _network]
    elif name == LINEAR:
        whose, code = LinearEstimator.identity, [*code, LinearEstimator]
    else:
        whose, code = picture_identity(name), [*code, *estimator_of(name), Pictures]
        alone = [*alone, *CHOOSING, PictureEstimator, read_pictures, averaged]
    return {
        "code": code_of(code, alone=alone),
        "dataset_digest": dataset_digest(out),
        "direction": config.evaluation.direction,
        "estimator": dict(whose),
        "lights_of_test": network is not None and network.lights_of_test,
        "longest_px": config.evaluation.longest_px,
        "reilluminated": network is not None and network.reilluminated,
    }


def _check_methods(config: TwoCameraConfig, chosen: Sequence[str]) -> None:
    from ...training.illuminants.registry import candidates

    known = [*config.evaluation.networks, LINEAR, *candidates()]
    if unknown := [name for name in [*chosen, *config.evaluation.baselines] if name not in known]:
        raise ValueError(f"no method {unknown[0]!r}: there are {', '.join(known)}")
    if shadowed := [name for name in config.evaluation.networks if name in (LINEAR, *candidates()) or not _plain(name)]:
        raise ValueError(f"network {shadowed[0]!r}: a name of letters, digits, - and _ that no baseline has is wanted")
    needing = [name for name in chosen if name in candidates()]
    without = isinstance(config.source, Metadata) or (isinstance(config.source, Radiometric) and not config.source.patch_px)
    if needing and without:
        raise ValueError(f"baseline {needing[0]!r} needs pictures, and this run has none: leave it out of the methods")
    if needing and config.evaluation.direction != "1to2":
        raise ValueError(f"baseline {needing[0]!r} looks at the first camera's pictures: direction 1to2 is wanted")


def _plain(name: str) -> bool:
    return bool(name) and all(letter.isalnum() or letter in "-_" for letter in name)


def _network(networks: Mapping[str, Network], name: str, progress: Callable[[str], None]) -> Any:
    from ...training.two_camera.distilled import DistilledEstimator
    from ...training.two_camera.networks import NetworkEstimator, hyper_of, settings
    from ...training.two_camera.newton import Newton

    network = networks[name]
    try:
        hyper = hyper_of({**settings(network.preset), **network.settings})
    except TypeError as error:
        raise ValueError(f"network {name!r}: {error}") from None

    def tell(line: str) -> None:
        progress(f"{name}: {line}")

    if network.taught_by is None:
        return NetworkEstimator(network.parameters, hyper, network.seeds, measured_times=network.measured_times, progress=tell)
    teacher = networks.get(network.taught_by)
    if teacher is None or teacher.taught_by is not None or not isinstance(hyper, Newton):
        raise ValueError(
            f"network {name!r}, taught by {network.taught_by!r}: a network that has no teacher, and a preset with a decay"
        )
    same = ("reilluminated", "lights_of_test")
    if unlike := [field for field in same if getattr(network, field) != getattr(teacher, field)]:
        raise ValueError(
            f"network {name!r}: {unlike[0]} = {getattr(teacher, unlike[0])} is wanted, as {network.taught_by!r} has it"
        )
    taught = _network(networks, network.taught_by, tell)
    rows, times = network.taught_rows, network.measured_times
    return DistilledEstimator(taught, network.parameters, hyper, network.seeds, rows=rows, measured_times=times)


def read_pairs(url: str) -> TransformPairs:
    """All rows of a published dataset, in the order of its index."""
    from ...datasets.reader.index import DatasetIndex
    from ...datasets.two_camera.rows import as_pairs

    return as_pairs(DatasetIndex.open(url).table)


def read_pictures(out: str, config: TwoCameraConfig) -> Pictures:
    """The pictures of all measured pairs in the order of the index, averaged down; all in memory."""
    from ...curation.shards import read_sample
    from ...datasets.reader.decode import decode_npy
    from ...datasets.reader.features import read_features
    from ...datasets.reader.index import DatasetIndex, ShardFiles
    from ...training.illuminants.pictures import Pictures

    index = DatasetIndex.open(posixpath.join(out, "dataset"), where={"original": True})
    if isinstance(config.source, Radiometric):
        first, second = (read_features(index, name)[0] for name in IMAGES)
        for picture in (first, second):
            picture /= np.float32(65535)
        return Pictures.of(first, second=second)
    places = list(zip(*(index.table[name].to_pylist() for name in ("shard", "offset", "size")), strict=True))
    views: list[list[np.ndarray]] = [[], [], []]
    for key, place, data in zip(index.table["key"].to_pylist(), places, ShardFiles(index.url).read(places), strict=True):
        members = read_sample(data, key, place=place[0], base=place[1])
        valid = decode_npy(members[VALID])
        for view, value in zip(views, (*(decode_npy(members[name]) for name in IMAGES), valid), strict=True):
            view.append(averaged(value, config.evaluation.longest_px))
    if len(shapes := {view.shape for view in views[0]}) > 1:
        raise ValueError(f"pictures of the shapes {sorted(shapes)}: baselines need one shape")
    usable = np.stack(views[2]) == 1
    return Pictures.of(np.stack(views[0]), usable, second=np.stack(views[1]))


def averaged(picture: np.ndarray, longest_px: int) -> np.ndarray:
    """A picture (h, w[, 3]) averaged over squares so that no side is above ``longest_px``, float32; integers as shares of their
    greatest value. A mask is 1 where all of a square is valid."""
    scale = 1.0 if picture.dtype == np.bool_ else 1 / np.iinfo(picture.dtype).max
    each = -(-max(picture.shape[:2]) // longest_px)
    height, width = picture.shape[0] // each, picture.shape[1] // each
    squares = picture[: height * each, : width * each].reshape(height, each, width, each, *picture.shape[2:])
    return (squares.mean(axis=(1, 3), dtype=np.float64) * scale).astype(np.float32)


def picture_identity(name: str) -> dict[str, Any]:
    """What a baseline of ``training.illuminants`` is: its estimator, and the settings that it chooses from."""
    from ...training.illuminants.registry import candidates

    estimator, settings = candidates()[name]
    choices = [repr(setting) for setting in settings]  # as text: JSON has no infinite number, which some hold
    return {"choices": choices, "estimator": name, "function": estimator}


class PictureEstimator:
    """A baseline of ``training.illuminants`` as the folds' protocol wants an estimator.

    Args:
        name: of ``baselines.toml``.
        pictures: of the measured pairs.
        keys: theirs.
    """

    looks_at_test = False

    def __init__(self, name: str, pictures: Pictures, keys: np.ndarray) -> None:
        self.identity: Mapping[str, Any] = picture_identity(name)
        self._name, self._pictures = name, pictures
        self._at = {key: row for row, key in enumerate(keys.tolist())}
        self._saved: dict[str, bytes] = {}

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[str, list[np.ndarray]]:
        """``baseline`` -> lights of each fold's test rows; settings are chosen on the fold's measured training rows."""
        from ...training.illuminants.registry import fit_baseline

        found: list[np.ndarray] = []
        for fold in folds:
            measured = fold.pair_train == fold.light_train
            train = np.asarray([self._at[key] for key in fold.pair_train[measured].tolist()])
            fitted = fit_baseline(self._name, self._pictures[train], fold.gt_train[measured])
            self._saved[f"{fold.name.replace(' ', '-')}.npz"] = fitted.save()
            test = np.asarray([self._at[key] for key in fold.key_test.tolist()])
            estimates = np.maximum(fitted.estimate(self._pictures[test]), 1e-6)
            found.append(estimates / estimates[:, 1:2])
        return {"baseline": found}

    def artifacts(self) -> dict[str, bytes]:
        """The baseline of each fold, with its setting."""
        return self._saved


# --------------------------------------------------------------------------------------------------------------- results


_RESULTS = "*/*"
"""Folders of results within ``eval/``: folds, method."""


def stale(config: TwoCameraConfig, out: str) -> dict[str, str]:
    """Results of another dataset, other settings or other code: folder -> why."""
    return stale_results(out, _RESULTS, functools.partial(_identity, config, out))


def scores(config: TwoCameraConfig, out: str) -> dict[str, dict[str, Any]]:
    """Angular errors in degrees on the published dataset: folds -> method -> ``mean`` and ``std`` over its runs of each
    statistic (mean of folds).
    """
    found: dict[str, dict[str, Any]] = {}
    for path, summary in current_results(out, _RESULTS, functools.partial(_identity, config, out), "runs", "warnings"):
        runs = [run["fold_mean"] for name, run in summary["runs"].items() if name != "average"]
        values = {name: [run[name] for run in runs] for name in SHOWN}
        found.setdefault(path.parts[-3], {})[path.parts[-2]] = {
            "mean": {name: float(np.mean(each)) for name, each in values.items()},
            "std": {name: float(np.std(each)) if len(each) > 1 else None for name, each in values.items()},
            "unit": "degrees",
            "warnings": summary["warnings"],
        }
    return found
