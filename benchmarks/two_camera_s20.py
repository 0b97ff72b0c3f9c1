"""Networks on the metadata of the 162 S20 pairs, in the published folds: honest training, what improves it, what the paper did.

    python benchmarks/two_camera_s20.py --metadata ../shared/data/two_camera/s20_metadata_162_pairs.json --out /tmp/s20

Nothing looks at a test fold save "as_released", which is there to show what that is worth. Variants are compared by
cross-validation within each fold's training pairs (``--inner``); the outer figures of all of them are printed too, and the
choice that each fold's own training pairs make is the figure to quote. What is finished in ``--out`` is not trained again, so
several processes may share the work (``--only``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchwright.datasets.two_camera.folds import parts
from benchwright.datasets.two_camera.metadata import read_metadata
from benchwright.datasets.two_camera.rows import MeasuredPair, TransformPairs
from benchwright.eval.metrics.angular import angular_error_deg, fold_mean, pooled
from benchwright.eval.protocols.cross_validation import AVERAGE, Estimator, Examples, evaluate_folds, examples, rotating_folds
from benchwright.training.reillumination import reilluminated
from benchwright.training.two_camera import LinearEstimator, NetworkEstimator, hyper_of, settings
from benchwright.training.two_camera_distilled import DistilledEstimator
from benchwright.training.two_camera_newton import Newton

SEEDS = range(10)
INNER_SEEDS = range(3)
INNER_FOLDS = 4


@dataclasses.dataclass(frozen=True)
class Variant:
    """A preset with changes; ``more`` says whether re-illuminated rows are learned from."""

    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    more: bool = False
    measured_times: int = 1
    lights_of_test: bool = False
    pupils: bool = False

    def estimator(self, parameters: int, seeds: range, epochs: float, progress: Callable[[str], None]) -> Estimator:
        values = {**settings(self.preset), **self.changes}
        length = "epochs" if "epochs" in values else "iterations"
        values[length] = max(1, round(values[length] * epochs))
        made = NetworkEstimator(parameters, hyper_of(values), seeds, measured_times=self.measured_times, progress=progress)
        return (
            DistilledEstimator(made, Newton(**settings("pupil")), seeds, rows=1400, measured_times=3) if self.pupils else made
        )


COSINE = {"learning_rate": 1e-2, "schedule": "cosine", "epochs": 12_000, "patience_epochs": None}
VARIANTS = {
    "decayed": Variant("decayed"),
    "decayed x3": Variant("decayed", {"decay": 3.0}),
    "decayed /3": Variant("decayed", {"decay": 0.3}),
    "decayed /10": Variant("decayed", {"decay": 0.1}),
    "decayed /1000": Variant("decayed", {"decay": 0.001}),
    "as_written": Variant("as_written"),
    "validated": Variant("validated"),
    "cosine": Variant("as_written", COSINE),
    "reilluminated, 1e-3": Variant("reilluminated", {"learning_rate": 1e-3, "schedule": "constant"}, True, 12),
    "reilluminated": Variant("reilluminated", {}, True, 12),
    "distilled": Variant("reilluminated", {}, True, 12, pupils=True),
    "reilluminated x2": Variant("reilluminated", {"epochs": 480}, True, 12),
}
AS_RELEASED = {
    "as_released": Variant("as_released"),
    "as_released reilluminated": Variant("reilluminated", {"keep": "test_fold", "check_epochs": 1}, True, 12),
    "as_released, lights of test": Variant("reilluminated", {"keep": "test_fold", "check_epochs": 1}, True, 12, True),
}


def load(path: str) -> TransformPairs:
    found = list(read_metadata(path=path))
    pairs = [pair for pair in found if isinstance(pair, MeasuredPair)]
    assert len(pairs) == len(found), "a row of the metadata was turned away"
    fold = np.empty(len(pairs), dtype=np.int64)
    for number, mine in enumerate(parts(len(pairs), 3, 999)):
        fold[mine] = number
    key = np.array([pair.key for pair in pairs])
    columns: dict[str, np.ndarray] = {
        name: np.array([getattr(pair, name) for pair in pairs]).reshape(len(pairs), *shape)
        for name, shape in [("gt_1", (3,)), ("gt_2", (3,))]
        + [(f"transform_{kind}{way}", (3, 3)) for kind in ("", "chart_") for way in ("1to2", "2to1")]
    }
    originals = np.ones(len(pairs), dtype=bool)
    none = np.array([""] * len(pairs))
    return TransformPairs(key=key, name=key, source_key=key, target_key=none, original=originals, fold=fold, **columns)


def take(rows: Examples, mask: np.ndarray, fold: np.ndarray) -> Examples:
    values = {field.name: getattr(rows, field.name)[mask] for field in dataclasses.fields(rows)}
    return Examples(**{**values, "fold": fold[mask]})


def inner_errors(variant: Variant, rows: Examples, parameters: int, out: Path, epochs: float) -> dict[str, list[float]]:
    """For each outer fold: mean error on inner folds of its training pairs, the median of seeds, and that of their average."""
    path = out / "inner.json"
    if not path.exists():
        inner, outer_of = [], []
        for outer in np.unique(rows.fold):
            pairs = np.unique(rows.pair[(rows.fold != outer) & rows.original])
            number = {pair: k for k, mine in enumerate(parts(len(pairs), INNER_FOLDS, 7)) for pair in pairs[mine]}
            inside = np.isin(rows.pair, pairs) & np.isin(rows.light, pairs)
            fold = np.array([number.get(pair, -1) for pair in rows.pair.tolist()])
            for one in rotating_folds(take(rows, inside, fold)):
                inner.append(dataclasses.replace(one, name=f"{outer} {one.name}"))
                outer_of.append(outer)
        found = variant.estimator(parameters, INNER_SEEDS, epochs, print).estimate_folds(inner)
        gt = dict(zip(rows.key.tolist(), rows.gt, strict=True))
        scores: dict[str, list[float]] = {"seeds": [], "average": []}
        for outer in np.unique(rows.fold):
            mine = [k for k, of in enumerate(outer_of) if of == outer]
            truth = np.array([gt[key] for k in mine for key in inner[k].key_test.tolist()])
            runs = np.array([np.concatenate([run[k] for k in mine]) for run in found.values()])
            scores["seeds"].append(float(np.median([angular_error_deg(run, truth).mean() for run in runs])))
            scores["average"].append(float(angular_error_deg(np.exp(np.log(runs).mean(axis=0)), truth).mean()))
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(scores))
    return json.loads(path.read_text())


def line(name: str, summary: Mapping[str, Any], inner: Mapping[str, list[float]] | None, seconds: str) -> str:
    over = summary["over_runs"]["fold_mean"]
    means = over["mean"]
    text = f"{name:38}{means['median']:7.3f} ({means['min']:.2f}-{means['max']:.2f}){over['median']['median']:8.3f}"
    average = summary["runs"].get(AVERAGE)
    text += f"{average['fold_mean']['mean']:9.3f}" if average else " " * 9
    text += f"{np.mean(inner['seeds']):9.3f}{np.mean(inner['average']):9.3f}" if inner else " " * 18
    return text + f"  {seconds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metadata", required=True, help="the released metadata (.npy files or .json)")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the epochs: shows that it runs, no figures")
    parser.add_argument("--epochs", type=float, default=1.0, help="share of each variant's epochs, for a first look")
    parser.add_argument("--sizes", type=int, nargs="*", default=[200, 470, 1460])
    parser.add_argument("--only", nargs="*", help=f"of {', '.join([*VARIANTS, *AS_RELEASED])}")
    parser.add_argument("--inner", type=int, nargs="*", default=[200], help="sizes whose variants are compared on inner folds")
    args = parser.parse_args()
    epochs = 0.01 if args.quick else args.epochs
    pairs = load(args.metadata)
    measured, more = examples(pairs, direction="1to2"), examples(reilluminated(pairs), direction="1to2")
    print(
        f"{len(pairs)} pairs, {len(more.key)} rows with re-illuminated ones; 3 folds; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; errors in degrees, means of folds"
    )
    print(
        f"{'':38}{'median of seeds (range)':>22}{'median':>7}{'average':>9}{'inner':>9}{'inner av.':>9}  CPU and wall seconds"
    )
    linear = evaluate_folds(LinearEstimator(), measured, parts="rotating", identity={}, out=args.out / "linear")
    print(line("linear regression", linear.summary, None, ""))
    for parameters in args.sizes:
        inner_of, errors_of = {}, {}
        for name, variant in {**VARIANTS, **AS_RELEASED}.items():
            if args.only is not None and name not in args.only:
                continue
            rows = more if variant.more else measured
            out = args.out / (f"{parameters} {name}" if epochs == 1 else f"{parameters} {name}, epochs x {epochs}")
            cpu, wall = time.process_time(), time.perf_counter()
            known = (out / "results.json").exists()
            made = variant.estimator(parameters, SEEDS, epochs, lambda text: None)
            results = evaluate_folds(made, rows, parts="rotating", identity={}, out=out, lights_of_test=variant.lights_of_test)
            if not known:
                spent = f"{time.process_time() - cpu:.0f} {time.perf_counter() - wall:.0f}"
                (out / "seconds.txt").write_text(spent)
            if parameters in args.inner and name in VARIANTS:
                inner_of[name] = inner_errors(variant, rows, parameters, out, epochs)
                errors_of[name] = results.errors
            print(
                line(f"{parameters} {name}", results.summary, inner_of.get(name), (out / "seconds.txt").read_text()), flush=True
            )
        for kind in ("seeds", "average") if inner_of else ():
            chosen = [min(inner_of, key=lambda name, k=k: inner_of[name][kind][k]) for k in range(3)]
            run_names = [AVERAGE] if kind == "average" else [f"seed {seed}" for seed in SEEDS]
            folds = [[errors_of[name][run][k] for k, name in enumerate(chosen)] for run in run_names]
            mean = np.median([fold_mean(run).mean for run in folds])
            middle = np.median([pooled(run).median for run in folds])
            print(f"{parameters} chosen on inner folds, {kind}: {mean:.3f} (pooled median {middle:.3f}), folds chose {chosen}")


if __name__ == "__main__":
    main()
