"""Networks on the metadata of the 162 S20 pairs, in the published folds: honest training, what improves it, what the paper did.

    python benchmarks/two_camera_s20.py --metadata ../shared/data/two_camera/s20_metadata_162_pairs.json --out /tmp/s20

Nothing looks at a test fold save "as released", which is there to show what that is worth. Variants are compared by
cross-validation within each fold's training pairs; the outer figures of all of them are printed too, and the choice that
each fold's own training pairs make ("chosen on inner folds") is the figure to quote. What is finished in ``--out`` is not
trained again, so several processes may share the work (``--sizes``, ``--only``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchwright.datasets.two_camera.folds import Fold, parts
from benchwright.datasets.two_camera.metadata import read_released_pairs
from benchwright.datasets.two_camera.rows import MeasuredPair, TransformPairs
from benchwright.eval.metrics.angular import angular_error_deg, fold_mean, pooled
from benchwright.eval.protocols.cross_validation import (
    AVERAGE,
    Estimates,
    Estimator,
    PairExamples,
    estimate_folds,
    estimates_of,
    examples,
    rotating_folds,
)
from benchwright.training.two_camera.batched import TrainedNetworks, estimated_ratios
from benchwright.training.two_camera.linear import LinearEstimator, with_green
from benchwright.training.two_camera.networks import NetworkEstimator, load_networks
from benchwright.training.two_camera.reillumination import reilluminated
from benchwright.training.two_camera.settings import hyper_of, settings
from benchwright.training.two_camera.shapes import chosen_shape

SEEDS = range(10)
INNER_SEEDS = range(3)
INNER_FOLDS = 4


@dataclasses.dataclass(frozen=True)
class Variant:
    """A preset with changes.

    Attributes:
        more: whether re-illuminated rows are learned from.
        taught: whether the average of the networks that ``teaches`` names takes the place of the truth.
        teaches: these are the ten 200-parameter networks that learn from such rows.
    """

    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    more: bool = False
    lights_of_test: bool = False
    taught: bool = False
    teaches: bool = False

    def estimator(self, parameters: int, seeds: range, epochs: float, teacher: NetworkEstimator) -> Estimator:
        if self.teaches and parameters == teacher.shape.parameters:
            return teacher
        values = {**settings(self.preset), **self.changes}
        length = "epochs" if "epochs" in values else "iterations"
        values[length] = max(1, round(values[length] * epochs))
        hyper, shape = hyper_of(values), chosen_shape(parameters=parameters)
        if not self.taught:
            return NetworkEstimator(shape, hyper, seeds, measured_times=12 if self.more else 1)
        return NetworkEstimator(shape, hyper, seeds, measured_times=3, teacher=teacher, rows=1400)


class Once(NetworkEstimator):
    """The ten networks that learn from re-illuminated rows, and teach others: trained once for all variants.

    ``kept``: where their weights lie if an earlier call has trained them.
    """

    def __init__(self, epochs: float, seeds: range, kept: Path) -> None:
        values = settings("reilluminated")
        values["epochs"] = max(1, round(values["epochs"] * epochs))
        super().__init__(chosen_shape(parameters=200), hyper_of(values), seeds, measured_times=12)
        self.kept = kept

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[np.ndarray]]:
        if self._trained is None and self.kept.exists():
            nets, names = load_networks(self.kept.read_bytes())
            self._trained = TrainedNetworks(nets, np.zeros(len(names), dtype=np.int64), np.empty((0, len(names)))), names
        if self._trained is None:
            super().estimate_folds(folds)
        assert self._trained is not None
        found = iter(estimated_ratios(self._trained[0].nets, [fold.X_test for _ in self.seeds for fold in folds]))
        return {seed: [with_green(next(found)) for _ in folds] for seed in self.seeds}


DECAYS = {200: (1.0, 0.3, 0.1), 470: (0.1, 0.03), 1460: (0.001,)}
SEVERAL = {200: (1.0, 0.3), 470: (0.1,), 1460: ()}
PUPILS = {200: (0.2, 0.05), 470: (0.05,), 1460: ()}


def variants(parameters: int) -> dict[str, Variant]:
    """What is compared on inner folds."""
    found: dict[str, Variant] = {}
    if parameters == 200:
        found["as written, 10,000 epochs"] = Variant("as_written", {"epochs": 10_000, "patience_epochs": None})
    for decay in DECAYS[parameters]:
        found[f"decay {decay:g}"] = Variant("decayed", {"decay": decay})
    for decay in SEVERAL[parameters]:
        found[f"decay {decay:g}, best of 4 starts"] = Variant("decayed", {"decay": decay, "starts": 4, "scouting": 15})
    if parameters == 200:
        found["reilluminated"] = Variant("reilluminated", {}, True, teaches=True)
    for decay in PUPILS[parameters]:
        found[f"taught, decay {decay:g}"] = Variant("pupil", {"decay": decay}, True, taught=True)
    return found


SELECTED = {"keep": "test_fold", "check_epochs": 1}
AS_RELEASED = {
    "as released, 10,000 epochs": Variant("as_released", {"epochs": 10_000}),
    "as released, lights of test": Variant("reilluminated", SELECTED, True, True),
}
"""Not fair: the test fold chooses the checkpoint; the last learns from the lights of test pairs, too, as the release does."""


def load(path: str) -> TransformPairs:
    found = list(read_released_pairs(path=path))
    pairs = [pair for pair in found if isinstance(pair, MeasuredPair)]
    assert len(pairs) == len(found), "a row of the metadata was rejected"
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


def take(rows: PairExamples, mask: np.ndarray, fold: np.ndarray) -> PairExamples:
    values = {field.name: getattr(rows, field.name)[mask] for field in dataclasses.fields(rows)}
    return PairExamples(**{**values, "fold": fold[mask]})


def inner_errors(
    variant: Variant, rows: PairExamples, parameters: int, out: Path, epochs: float, teacher: Once
) -> dict[str, list[float]]:
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
        made = variant.estimator(parameters, INNER_SEEDS, epochs, teacher)
        found = made.estimate_folds(inner)
        out.mkdir(parents=True, exist_ok=True)
        (out / "inner_networks.npz").write_bytes(made.artifacts()["networks.npz"])
        gt = dict(zip(rows.key.tolist(), rows.gt, strict=True))
        scores: dict[str, list[float]] = {"seeds": [], "average": []}
        for outer in np.unique(rows.fold):
            mine = [k for k, of in enumerate(outer_of) if of == outer]
            truth = np.array([gt[key] for k in mine for key in inner[k].key_test.tolist()])
            runs = np.array([np.concatenate([run[k] for k in mine]) for run in found.values()])
            scores["seeds"].append(float(np.median([angular_error_deg(run, truth).mean() for run in runs])))
            scores["average"].append(float(angular_error_deg(np.exp(np.log(runs).mean(axis=0)), truth).mean()))
        path.write_text(json.dumps(scores))
    return json.loads(path.read_text())


def tested(made: Estimator, rows: PairExamples, out: Path, *, lights_of_test: bool) -> Estimates:
    """Estimates on all folds, from the folder where they are there; with the weights beside them."""
    path = out / "estimates.parquet"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        found = pa.concat_tables(estimate_folds(made, rows, parts="rotating", lights_of_test=lights_of_test))
        for row in found.select(["name", "file"]).to_pylist():
            if row["file"] is not None:
                (out / row["name"]).write_bytes(row["file"])
        pq.write_table(found, out / "half.parquet")
        (out / "half.parquet").rename(path)
    return estimates_of(pq.read_table(path))


def line(name: str, found: Estimates, inner: Mapping[str, list[float]] | None, seconds: str) -> str:
    each = [fold_mean(errors) for run, errors in found.errors.items() if run != AVERAGE]
    means = [one.mean for one in each]
    text = f"{name:38}{np.median(means):7.3f} ({min(means):.2f}-{max(means):.2f}){np.median([one.median for one in each]):8.3f}"
    text += f"{fold_mean(found.errors[AVERAGE]).mean:9.3f}" if AVERAGE in found.errors else " " * 9
    text += f"{np.mean(inner['seeds']):9.3f}{np.mean(inner['average']):9.3f}" if inner else " " * 18
    return text + f"  {seconds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metadata", required=True, help="the released metadata (.npy files or .json)")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the epochs: shows that it runs, no figures")
    parser.add_argument("--epochs", type=float, default=1.0, help="share of each variant's epochs, for a first look")
    parser.add_argument("--sizes", type=int, nargs="*", default=[200, 470, 1460])
    parser.add_argument("--only", nargs="*", default=[""], help="variants whose names hold one of these words")
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
    print(line("linear regression", tested(LinearEstimator(), measured, args.out / "linear", lights_of_test=False), None, ""))
    folder = args.out / ("200 reilluminated" if epochs == 1 else f"200 reilluminated, epochs x {epochs}")
    teacher = Once(epochs, SEEDS, folder / "networks.npz")
    inner_teacher = Once(epochs, INNER_SEEDS, folder / "inner_networks.npz")
    for parameters in args.sizes:
        inner_of, errors_of = {}, {}
        compared = variants(parameters)
        for name, variant in {**compared, **(AS_RELEASED if parameters == 200 else {})}.items():
            if not any(part in name for part in args.only):
                continue
            rows = more if variant.more else measured
            out = args.out / (f"{parameters} {name}" if epochs == 1 else f"{parameters} {name}, epochs x {epochs}")
            cpu, wall = time.process_time(), time.perf_counter()
            known = (out / "estimates.parquet").exists()
            made = variant.estimator(parameters, SEEDS, epochs, teacher)
            found = tested(made, rows, out, lights_of_test=variant.lights_of_test)
            if not known:
                spent = f"{time.process_time() - cpu:.0f} {time.perf_counter() - wall:.0f}"
                (out / "seconds.txt").write_text(spent)
            errors = found.errors
            if name in compared:
                inner_of[name] = inner_errors(variant, rows, parameters, out, epochs, inner_teacher)
                errors_of[name] = errors
            print(line(f"{parameters} {name}", found, inner_of.get(name), (out / "seconds.txt").read_text()), flush=True)
            if name in AS_RELEASED:
                best = [min((errors[seed][k] for seed in SEEDS), key=np.mean) for k in range(3)]
                print(f"    and of the ten starts that of the least test error, fold by fold: {fold_mean(best).mean:.3f}")
        for kind in ("seeds", "average") if inner_of else ():
            print_choice(f"{parameters} chosen on inner folds, {kind}", kind, inner_of, errors_of)


def print_choice(title: str, kind: str, inner_of: Mapping[str, Any], errors_of: Mapping[str, Any]) -> None:
    """The figure to quote: each fold takes the variant of the least inner error, which its own training pairs alone decide."""
    chosen = [min(inner_of, key=lambda name, k=k: inner_of[name][kind][k]) for k in range(3)]
    names = [AVERAGE] if kind == "average" else [*SEEDS]
    runs = [[errors_of[name][run][k] for k, name in enumerate(chosen)] for run in names]
    means = [fold_mean(run).mean for run in runs]
    middle, of_all = (np.median([of(run).median for run in runs]) for of in (fold_mean, pooled))
    each = [np.median([fold[k].mean() for fold in runs]) for k in range(3)]
    folds = ", ".join(f"{mean:.2f} by {name!r}" for mean, name in zip(each, chosen, strict=True))
    print(
        f"{title}: {np.median(means):.3f} ({min(means):.2f}-{max(means):.2f}), median {middle:.3f}, pooled {of_all:.3f}; "
        f"folds {folds}",
        flush=True,
    )


if __name__ == "__main__":
    main()
