r"""Figures of KOWL's preset ``scaled``, real lists with DRAWN features, for REPRODUCED.md.

    benchwright run kowl --config scaled --set source.root=LISTS --out out
    benchwright train out --set evaluation.keep_states=true
    python benchmarks/kowl_scaled.py figures out

Nuisances are then scored from the states, without training:

    benchwright run kowl --config scaled --set source.root=LISTS --set evaluation.keep_states=true \
        --set 'features.nuisances={gaussian_blur=0.5, rotation=2.0}' --out out
    benchwright train out --method ann --protocol 1

Predictor ``original`` needs outputs of a classifier, which drawn features do not have. ``outputs`` writes those of a stand-in:
minus half the squared distance to the mean of each Kinetics-400 class, over the training samples of increment 0.

    python benchmarks/kowl_scaled.py outputs out outputs
    benchwright run kowl --config scaled --set source.root=LISTS \
        --set 'feature_sets.outputs={kind="stored", root="outputs", files=[{path="outputs.npz"}],'\
    'width=400, outputs="outputs/classes.txt"}' \
        --set 'features.nuisances={gaussian_blur=0.5, rotation=2.0}' --out start
    benchwright train start --protocol start --method original --method ann --method evm --method ann_evm
    benchwright train start --protocol start --method ann --set evaluation.settings.ann.epochs=100
    python benchmarks/kowl_scaled.py start start
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.compute as pc
from benchwright.eval.protocols.open_world.measures import tidy
from benchwright.pipelines.report import ReportedRun
from benchwright.pipelines.training_results import results

FIGURES = (  # title, task, phase, novel_to, measure
    ("classification MCC before", "classification", "pre", "predictor", "mcc"),
    ("after", "classification", "post", "predictor", "mcc"),
    ("detection MCC", "detection", "pre", "predictor", "mcc"),
    ("recognition NMI", "recognition", "pre", "predictor", "nmi_arithmetic"),
    ("reaction time", "detection", "pre", "evaluator", "reaction_time.last_sample.any"),
)


def write_outputs(run: str, folder: Path) -> None:
    rows = ReportedRun.of(run).rows("increments")
    assert rows is not None
    table = rows.table(["key", "role", "increment", "label_kinetics400"])
    features = np.concatenate(list(rows.arrays("feature")))
    labels = np.array(table["label_kinetics400"].fill_null("").to_pylist())
    learned = pc.and_(pc.equal(table["role"], "train"), pc.equal(table["increment"], 0)).to_numpy()
    names = np.unique(labels[learned])
    means = np.stack([features[learned & (labels == name)].mean(axis=0) for name in names])
    # The squared length of the vector itself is common to all classes.
    outputs = features @ means.T - (means**2).sum(axis=1) / 2
    folder.mkdir(exist_ok=True)
    np.savez(folder / "outputs.npz", feature=outputs.astype(np.float32), uid=np.array(table["key"].to_pylist()))
    (folder / "classes.txt").write_text("\n".join(names) + "\n")


def print_figures(run: str) -> None:
    """On the test set: the sum over increments 1 to 10, or for reaction times the mean; and every increment in brackets."""
    frame = pl.DataFrame(pl.from_arrow(tidy(results(run)))).filter(
        pl.col("split") == "test_set", pl.col("increment") > 0, ~pl.col("from_start")
    )
    for (predictor, amount), mine in sorted(frame.partition_by(["predictor", "feedback"], as_dict=True).items()):
        print(f"{predictor}, {amount:g}")
        for title, task, phase, novel_to, measure in FIGURES:
            asked = {"task": task, "phase": phase, "novel_to": novel_to, "measure": measure}
            every = mine.filter(*(pl.col(name) == value for name, value in asked.items())).sort("increment")
            found = every.filter(pl.col("stratum") == "")
            each, summed = (found.filter(pl.col("cumulative") == which)["value"].to_list() for which in (False, True))
            whole = summed[-1] if summed else np.mean(each)
            print(f"  {title}: {whole:.3f} ({', '.join(f'{value:.3f}' for value in each)})")
            nuisances = every.filter("cumulative", pl.col("stratification") == "nuisance", pl.col("increment") == 10)
            for stratum, value in nuisances.select("stratum", "value").rows():
                print(f"    {stratum}: {value:.3f}")


def print_start(run: str) -> None:
    """MCC as in Table 3, and MCC and accuracy under each transform as in Figure 13, of all trainings."""
    frame = pl.DataFrame(pl.from_arrow(results(run))).with_columns(pl.col(pl.Categorical).cast(pl.String))
    frame = frame.filter(pl.col("metric").is_in(["start.mcc", "start.top1_accuracy"]))
    frame = frame.with_columns(epochs=pl.col("settings").str.extract(r'"epochs": *(\d+)').fill_null(""))
    keys = ["method", "epochs", "stratum", "metric"]
    for row in frame.pivot("split", index=keys, values="value", aggregate_function="first").sort(keys).to_dicts():
        print(*(row[key] for key in keys), *(f"{name} {row[name]:.3f}" for name in ("train", "validate", "test")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("figures", "outputs", "start"))
    parser.add_argument("run")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("outputs"))
    args = parser.parse_args()
    if args.what == "outputs":
        write_outputs(args.run, args.folder)
    else:
        {"figures": print_figures, "start": print_start}[args.what](args.run)


if __name__ == "__main__":
    main()
