"""Export of a network, or the linear regression: trained on all pairs, checked, and written as an ONNX file with a card."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import platform
import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from ...curation.artifact import load_artifact, load_run
from ...curation.local_files import holds_files, write_whole
from ...curation.rng import rng
from ...curation.stages.raw import SATURATED
from ...curation.store import Store
from ...curation.verify import DATASET
from ...datasets.two_camera.facts import STATISTICS
from ...eval.metrics.light_dependence import light_dependence
from ...eval.metrics.order_sensitivity import mean_and_deviation
from ...eval.protocols.cross_validation import AVERAGE, Direction, PairExamples, all_pairs
from ...eval.results import Line, lines
from ...training.two_camera.linear import linear_ratios, load_linear
from ...training.two_camera.networks import load_networks
from ...training.two_camera.onnx_file import linear_onnx_bytes, onnx_bytes, torch_ratios
from ...training.two_camera.onnx_run import Float32Array, OnnxNetwork
from ...training.two_camera.shapes import INPUTS, RATIOS
from ..errors import WrongUse, unknown
from ..experiments import Training, run_trainings
from ..names import short
from ..training_results import FOLDER, dataset_digest, results
from ..user_code import OwnSource
from . import learning
from .baselines import LINEAR, ChosenEstimator, directions, rows_learned, settings_of, training_of
from .config import Fixed, QuasiReal, RawPairs, TwoCameraConfig
from .dependence import few_pairs
from .exported_model import CARD, FACTS, MEASURED, NETWORK, Model, Reading, json_of
from .model_card import card, with_deviation
from .paper import SHOWN

MOST_DIFFERENCE = 1e-4
"""Largest relative difference of a ratio between onnxruntime and torch or numpy: float32 sums in another order differ by some
millionths."""


@dataclasses.dataclass(frozen=True)
class _Learned:
    """A model trained on all pairs.

    Attributes:
        shape: layers of the network.
        networks: number of networks that are averaged.
        parameters: number of parameters of all networks; ``operations`` of an estimate.
        onnx: metadata -> the ONNX file.
        ratios: transforms (n, 9) -> ratios (n, 2), to check the file against; computed ``by`` torch or numpy, of ``version``.
    """

    shape: str
    networks: int
    parameters: int
    operations: int
    onnx: Callable[[Mapping[str, str]], bytes]
    ratios: Callable[[Float32Array], np.ndarray]
    by: str
    version: str


def _learned_networks(data: bytes) -> _Learned:
    nets, _ = load_networks(data)
    each = nets.shape
    counts = nets.runs * each.parameters, nets.runs * each.operations
    onnx, ratios = functools.partial(onnx_bytes, nets), functools.partial(torch_ratios, nets)
    return _Learned(str(each), nets.runs, *counts, onnx, ratios, "torch", torch.__version__)


def _learned_regression(data: bytes) -> _Learned:
    weights = load_linear(data)
    counts = weights.size, INPUTS * RATIOS
    onnx = functools.partial(linear_onnx_bytes, weights)
    return _Learned(
        f"{INPUTS}-{RATIOS}, linear", 1, *counts, onnx, lambda X: linear_ratios(X, weights), "numpy", np.__version__
    )


def export(
    config: TwoCameraConfig,
    out: str,
    folder: str,
    *,
    network: str | None = None,
    direction: Direction | None = None,
    average: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Train a network of the settings, or their linear regression, on all pairs, and write ``model.onnx`` with its card.

    Args:
        config: settings of the run.
        out: the run, finished and trained.
        folder: output folder: new, empty, or with an earlier export.
        network: name of the network in the settings, or ``linear_regression``; optional if there is at most one network.
        direction: a direction of the settings; optional if they have only one.
        average: whether to export the average of all seeds as one file; otherwise the network of the first seed.
        progress: called with one line per step.

    Returns:
        The ONNX file.

    Raises:
        WrongUse: an unknown network, one without fold results for its expected error, or one that needs a test fold.
    """
    name, way = _chosen(config, out, network, direction)
    in_folds = settings_of(config, name, way)
    expected = _expected(_line(config, out, name, in_folds), average=average)
    _check_folder(folder)
    trained = _on_all_pairs(config, in_folds, average=average)
    validated = isinstance(config.folds, Fixed) and name != LINEAR
    training = training_of(config, out, name, trained, "all pairs, validated" if validated else "all pairs")
    run_trainings([training], out, progress=progress)
    learned = (_learned_regression if name == LINEAR else _learned_networks)(_artifact(out, training))
    rows = _rows(out, trained.settings)
    [fold] = all_pairs(rows, relit_rows=trained.settings.get("relit_rows"))
    about = {
        "input": f"T {way}, 3 x 3 row by row, colour_{way[-1]} = colour_{way[0]} @ T",
        "output": f"R/G and B/G of the light in camera {way[0]}",
        "dataset": dataset_digest(out),
    }
    data = learned.onnx(about)
    model = Model(
        benchmark="two_camera",
        network=name,
        shape=learned.shape,
        networks=learned.networks,
        direction=way,
        transform=config.transform,
        reading=_reading(config, out),
        low=fold.X_train.min(axis=0).astype(float).tolist(),
        high=fold.X_train.max(axis=0).astype(float).tolist(),
        pairs=int(rows.original.sum()),
        rows=len(fold.X_train),
        source=short(config.source.kind),
        dataset=about["dataset"],
        validated=bool(trained.settings["estimator"].get("hyper", {}).get("keep") == "validation"),
        expected=expected,
        parameters=learned.parameters,
        operations=learned.operations,
        depends=_depends(rows),
        file_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    measured = _measured(data, learned, rows.X)
    # FACTS first: it marks the folder, so that an interrupted export can be repeated.
    for file, content in ((FACTS, json_of(model)), (NETWORK, data), (CARD, card(model).encode()), (MEASURED, measured)):
        write_whole(Path(folder) / file, content)
    _tell(model, json.loads(measured), progress)
    return Path(folder) / NETWORK


def _chosen(config: TwoCameraConfig, out: str, network: str | None, direction: Direction | None) -> tuple[str, Direction]:
    names, ways = list(config.evaluation.networks), directions(config)
    regression = [LINEAR] if LINEAR in config.evaluation.baselines else []
    if not names and not regression:
        raise WrongUse(
            f"{out}: its settings have no network that could be exported, and no {LINEAR}: see evaluation.networks and "
            "evaluation.baselines"
        )
    if network is None and len(names) > 1:
        raise WrongUse(f"{out}: several networks, {', '.join(names)}: name one with --network")
    if network is not None and network not in [*names, LINEAR]:
        if network in config.evaluation.baselines:
            raise WrongUse(
                f"{network}: networks become ONNX files, {', '.join(names)}, and {LINEAR}; others are only for comparison"
            )
        raise unknown("network", network, [*names, *regression])
    if direction is None and len(ways) > 1:
        raise WrongUse(f"{out}: trained in both directions: name one with --direction")
    if direction is not None and direction not in ways:
        raise WrongUse(f"{out}: direction {direction}, where the settings have {config.evaluation.direction}")
    return network or [*names, LINEAR][0], direction or ways[0]


def _line(config: TwoCameraConfig, out: str, name: str, chosen: ChosenEstimator) -> Line:
    """The network's line of results over the folds."""
    wanted = {"protocol": config.folds.kind, "method": short(name)}
    for line in lines(results(out)):
        settings = json.loads(line.rows["settings"][0].as_py())
        if all(getattr(line, each) == value for each, value in wanted.items()) and settings == chosen.settings:
            return line
    raise WrongUse(
        f"{out}: there are no fold results for {name}, or its results are stale: run `benchwright train {out} --method "
        f"{name}` first"
    )


def _expected(line: Line, *, average: bool) -> dict[str, list[float]]:
    """Statistic -> mean over the folds, and standard deviation over the seeds (0 for one seed, and for the average)."""
    several = len(line.runs) > 1
    found: dict[str, list[float]] = {}
    for statistic, metric in zip(STATISTICS, SHOWN, strict=True):
        if average and several:
            [value] = line.select(metric, stratum=AVERAGE)["value"].to_pylist()
            found[statistic] = [value, 0.0]
        else:
            mean, deviation = mean_and_deviation(line.values(metric))
            found[statistic] = [float(mean), float(np.nan_to_num(deviation))]
    return found


def _check_folder(folder: str) -> None:
    if holds_files(folder) and not (Path(folder) / FACTS).is_file():
        raise WrongUse(f"{folder}: it contains files, but no {FACTS} of an earlier export: choose a new or empty folder")


def _on_all_pairs(config: TwoCameraConfig, chosen: ChosenEstimator, *, average: bool) -> ChosenEstimator:
    """The estimator for a training without folds: only the first seed, unless the average is exported."""
    if chosen.settings["looks_at_test"]:
        raise WrongUse(
            f"{chosen.change.removesuffix('.settings')}: preset with keep = 'test_fold': without folds there is no test fold "
            "to select the weights: export a network of another preset"
        )
    own = chosen.settings["estimator"]
    if "seeds" not in own:
        if average:
            raise WrongUse(f"{LINEAR}: it has a single solution, no seeds to average: remove --average")
        return chosen
    own = {**own, "seeds": own["seeds"] if average else [min(own["seeds"])]}
    return chosen._replace(settings={**chosen.settings, "estimator": own})


def _artifact(out: str, training: Training) -> bytes:
    store = Store(posixpath.join(out, FOLDER))
    artifact = load_artifact(store, f"learned_{training.name(dataset_digest(out))}")
    files = [] if artifact is None else artifact.rows_view(store).table(["name", "run", "file"]).to_pylist()
    found = [row["file"] for row in files if row["run"] is None and row["name"] in ("networks.npz", "linear.npz")]
    if not found:
        raise WrongUse(f"{out}: {training.method} cannot be fitted to all pairs: see `benchwright rejects {out}/{FOLDER}`")
    return found[0]


def _rows(out: str, settings: Mapping[str, Any]) -> PairExamples:
    """The rows of the training."""
    read = getattr(learning, rows_learned(settings))
    return read(posixpath.join(out, DATASET), dataset_digest(out), settings["direction"])


def _depends(rows: PairExamples) -> bool | None:
    """Whether T depends on the light; None if this cannot be determined."""
    try:
        return light_dependence(rows.X[rows.original].reshape(-1, 3, 3).astype(np.float64), rows.gt[rows.original]).depends
    except ValueError:
        return None


def _reading(config: TwoCameraConfig, out: str) -> Reading | None:
    source = config.source
    if isinstance(source, RawPairs):
        store = Store(out)
        aligned = load_artifact(store, "aligned") if "aligned" in load_run(store).stages else None
        table = [] if aligned is None else aligned.rows_view(store).table(["device", "homography"]).to_pylist()
        homographies = {row["device"]: row["homography"] for row in table}
        return Reading(source.factor, source.demosaic, source.saturated, homographies, source.least_agreement)
    if isinstance(source, QuasiReal):
        return Reading(source.factor, "bin2", source.saturated, {})
    return Reading(1, "bilinear", SATURATED, {}) if isinstance(source, OwnSource) else None


def _measured(data: bytes, learned: _Learned, X: np.ndarray) -> bytes:
    """Machine-dependent measurements: difference between onnxruntime and torch or numpy, and time of an estimate."""
    network = OnnxNetwork(data)
    low, high = X.min(axis=0), X.max(axis=0)
    rows = np.concatenate([X[:10_000], rng(0, "export").uniform(low, high, (1000, 9)).astype(np.float32)])
    theirs, ours = network(rows), learned.ratios(rows)
    difference = float((np.abs(theirs - ours) / np.maximum(ours, 1e-6)).max())
    if not difference <= MOST_DIFFERENCE:
        raise RuntimeError(f"onnxruntime is {difference:.2g} of a ratio away from {learned.by}, limit {MOST_DIFFERENCE:g}")
    document = {
        "max_difference": {f"onnxruntime and {learned.by}": difference, "share of": "a ratio", "transforms": len(rows)},
        "latency_us": {**network.latency_us(rows), "threads": 1, "transforms a call": 1},
        "versions": {"onnxruntime": onnxruntime.__version__, learned.by: learned.version},
        "machine": {"processor": _processor(), "system": platform.system(), "architecture": platform.machine()},
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _processor() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in described.splitlines() if line.startswith("model name")), "")


def _tell(model: Model, measured: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    mean, deviation = model.expected["mean"]
    tell(f"{model.network} ({model.shape}), trained on all {model.pairs} pairs, {model.rows:,} rows")
    tell(f"expected error on unseen pairs: {with_deviation(mean, deviation)} degrees on average, by the folds")
    if model.depends is False:
        nothing = "T does not depend on the illuminant, as far as these pairs show: these cameras offer nothing to learn."
        tell(f"{nothing}{few_pairs(model.pairs)}".removesuffix("."))
    [held_against, difference], *_ = measured["max_difference"].items()
    tell(f"{held_against} differ by {difference:.1e} of a ratio at most")
    latency = measured["latency_us"]["median"]
    cost = f"{model.parameters:,} parameters, {model.operations:,} multiplications, {model.file_bytes:,} bytes"
    tell(f"cost of an estimate: {cost}; {latency:.1f} µs here (median, one thread)")
