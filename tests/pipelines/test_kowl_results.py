"""KOWL as a user runs it: stored features of every form, AVA-Kinetics strata, wrong use, and a loop that was killed."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from benchwright.curation.flow import Flow
from benchwright.curation.run import run
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.eval.protocols.open_world.measures import tidy
from benchwright.pipelines import api
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.kowl.stream import read_increments
from benchwright.pipelines.training_results import results

from tests.files import copy_package

from .conftest import kill_when
from .forked import forked
from .pages import faults

pytestmark = pytest.mark.usefixtures("blank_figures")

Cli = Callable[..., Any]
"""The fixture ``bw`` of ``conftest``."""
ANN = "evaluation.settings.ann.epochs=5"
THREE = 'increments.later=[{release="second", count=1, seed=0}, {release="third", count=1, seed=1}]'
"""Three increments in place of six, where how many there are is not the point."""


@pytest.fixture(scope="module")
def tiny(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the tiny KOWL, without results. Only to be read."""
    return Path(shutil.copytree(finished("kowl"), tmp_path_factory.mktemp("kowl") / "run"))


@pytest.fixture(scope="module")
def vectors(tiny: Path) -> tuple[list[str], np.ndarray]:
    """Keys and features of that run, in another order."""
    increments, _ = read_increments(str(tiny / "dataset"))
    every = [samples for one in increments for samples in one.splits.values()]
    uid = np.concatenate([samples.uid for samples in every])
    X = np.concatenate([samples.X for samples in every])
    order = np.random.default_rng(0).permutation(len(uid))
    return uid[order].tolist(), X[order]


@pytest.mark.parametrize("form", ["npz", "parquet", "torch", "folder"])
def test_stored_features_give_what_drawn_ones_give(
    form: str, tiny: Path, vectors: tuple[list[str], np.ndarray], tmp_path: Path, bw: Cli
) -> None:
    uid, X = vectors
    root = tmp_path / "features"
    root.mkdir()
    names = {"npz": "x3d.npz", "parquet": "x3d.parquet", "torch": "x3d.pt", "folder": "."}
    if form == "npz":
        np.savez_compressed(root / names[form], uid=np.array(uid), feature=X)
    elif form == "parquet":
        pq.write_table(pa.table({"uid": uid, "feature": list(X)}), root / names[form], row_group_size=300)
    elif form == "torch":
        torch.save(dict(zip(uid, torch.from_numpy(X), strict=True)), root / names[form])
    else:
        for name, vector in zip(uid[:-7], X[:-7], strict=True):
            np.save(root / f"{name}.npy", vector)
    features = f'features={{kind = "stored", root = "{root}", width = 4, files = [{{path = "{names[form]}"}}]}}'
    out = tmp_path / "run"
    told = bw("run", "kowl", "--config", "tiny", "--set", features, "--out", out, "--quiet")
    assert told.code == 0, told.err
    mine, theirs = (DatasetIndex.open(folder / "dataset").table for folder in (out, tiny))
    if form == "folder":  # seven clips have no feature, and are rejected before they are assigned
        assert mine.num_rows == theirs.num_rows - 7
        lines = bw("rejects", out, "--reason", "no_feature").out.splitlines()
        assert sorted(line.split("\t")[1] for line in lines) == sorted(uid[-7:])
        return
    columns = ["key", "increment", "role", "position", "label_recent_first", "sha256"]
    columns = [name for name in columns if name in mine.column_names]
    assert mine.select(columns).equals(theirs.select(columns))
    ours, other = (read_increments(str(folder / "dataset"))[0] for folder in (out, tiny))
    for a, b in zip(ours, other, strict=True):
        for split, samples in a.splits.items():
            np.testing.assert_array_equal(samples.X, b.splits[split].X)
    if form == "npz":
        assert bw("train", out, "--method", "gmm_finch", "--protocol", "1", "--quiet").code == 0
        assert "gmm_finch" in bw("eval", out).out


def test_bad_features_and_settings_are_one_line(tiny: Path, tmp_path: Path, bw: Cli) -> None:
    root = tmp_path / "features"
    root.mkdir()
    (root / "x.npz").write_text("no zip")

    def tell(*settings: str) -> tuple[int, str]:
        given = [word for text in settings for word in ("--set", text)]
        told = bw("run", "kowl", "--config", "tiny", *given, "--out", tmp_path / "out", "--quiet")
        return told.code, told.err

    stored = f'features={{kind = "stored", root = "{root}", width = 4, files = [{{path = "%s"}}]}}'
    frames = (
        f'features={{kind = "extracted", root = "{root}", width = 4, frames = 1, resize_px = 16, side_px = 16, backbone = %s}}'
    )
    for settings, code, says in [
        ([stored % "x.npz"], 1, "is not a valid npz file"),
        ([stored % "gone.npz"], 1, "gone.npz is not there"),
        ([stored % "../x.npz"], 1, "a path within"),
        ([frames % '{kind = "guess"}'], 2, "backbone"),
        ([frames % '{kind = "built_in"}'], 1, "no *.tar here"),
        (['ava={path = "/no/such.csv"}'], 1, "no such file"),
        (["features.hidden=2"], 2, "features"),
        (["increments.preset=as_guessed"], 2, "as_guessed"),
    ]:
        found, error = tell(*settings)
        assert (found, error.count("\n")) == (code, 1), error
        assert says in error


def test_unknown_predictors_amounts_and_hyper_parameters_are_wrong_use(tiny: Path, tmp_path: Path, bw: Cli) -> None:
    for words, says in [
        (("--method", "gmm_finsh"), "no predictor 'gmm_finsh': there are ann, ann_evm, evm, gmm_finch, original"),
        (("--protocol", "iid"), "no protocol 'iid': expected a share of labels from 0 to 1"),
        (("--protocol", "1.5"), "no protocol '1.5'"),
    ]:
        told = bw("train", tiny, *words)
        assert told.code == 2
        assert says in told.err
        assert told.err.count("\n") == 1
    for setting, says in [
        ("evaluation.settings.ann.momentum=1", "evaluation.settings.ann has no 'momentum'"),
        ("evaluation.settings.gmm_finch.epsilon=-1", "evaluation.settings.gmm_finch: min_error_tol 0.05, epsilon -1"),
        ("evaluation.settings.svm.c=1", "no predictor 'svm'"),
        ("evaluation.settings={'gone.py:Nothing' = {c = 1}}", "no predictor 'gone.py:Nothing'"),
        ("evaluation.metrics=['in_domain_diagonal_mean']", "no metric 'in_domain_diagonal_mean'"),
    ]:
        out = tmp_path / re.sub(r"\W", "-", setting)
        told = bw("run", "kowl", "--config", "tiny", "--set", setting, "--out", out, "--quiet")
        assert told.code == 2
        assert says in told.err
        assert not out.exists()


def test_a_dry_run_makes_nothing(tmp_path: Path, bw: Cli) -> None:
    told = bw("run", "kowl", "--config", "tiny", "--out", tmp_path / "out", "--dry-run")
    assert told.code == 0
    for stage in ("listed", "unified", "increments", "shards"):
        assert stage in told.out
    assert not (tmp_path / "out").exists()


def learned(out: Path) -> dict[str, str]:
    return {stage["name"]: stage["digest"] for stage in api.show(str(out / "experiments"))["stages"]}


def test_a_killed_loop_goes_on_to_the_same_rows(tmp_path: Path, bw: Cli) -> None:
    """kill -9 after the second increment; the same command again ends in the rows of a loop that was not killed."""
    out = tmp_path / "run"
    assert bw("run", "kowl", "--config", "tiny", "--set", ANN, "--set", THREE, "--out", out, "--quiet").code == 0
    err = tmp_path / "err.txt"
    process = forked("train", out, "--method", "ann", "--protocol", "0.5", err=err)
    kill_when(lambda: err.exists() and "increment 1 " in err.read_text(), process)
    assert len(list(out.glob("experiments/stages/learned_*/*/*/progress.json"))) == 1
    assert not list(out.glob("experiments/stages/learned_*/artifact.json"))
    told = bw("train", out, "--method", "ann", "--protocol", "0.5")
    assert told.code == 0
    assert "increment 0 " not in told.err
    assert "increment 2 " in told.err
    killed = learned(out)
    assert len(killed) == 2
    assert bw("verify", out).code == 0
    (out / "experiments").rename(tmp_path / "killed")
    assert bw("train", out, "--method", "ann", "--protocol", "0.5", "--quiet").code == 0
    assert learned(out) == killed
    again = bw("train", out, "--method", "ann", "--protocol", "0.5")
    assert again.code == 0
    assert "increment " not in again.err
    assert "up to date" in again.err


def test_features_are_mapped_once_and_by_digest(tiny: Path, tmp_path: Path) -> None:
    held, names = read_increments(str(tiny / "dataset"))
    file = tmp_path / "features-0123456789abcdef.npy"
    (tmp_path / "features-of-an-older-run.npy").write_bytes(b"old")
    mapped, same = read_increments(str(tiny / "dataset"), str(file))
    assert names == same
    assert list(tmp_path.iterdir()) == [file]
    for a, b in zip(held, mapped, strict=True):
        for split, samples in a.splits.items():
            other = b.splits[split].X
            np.testing.assert_array_equal(samples.X, other)
            assert not other.flags.owndata
            assert not other.flags.writeable
    stamp = file.stat().st_mtime_ns
    read_increments(str(tiny / "dataset"), str(file))
    assert file.stat().st_mtime_ns == stamp


_EDITED = """
import json, sys
import benchwright.training.predictors.evm as edited
from benchwright.pipelines import api
out, told = sys.argv[1], []
before = {"file": edited.__file__, "stale": api.stale(out), "scores": api.scores(out)}
api.train(out, methods=["evm", "gmm_finch"], protocols=["1"], progress=told.append)
print(json.dumps({**before, "told": told, "after": api.stale(out), "again": api.scores(out)}))
"""


def test_an_edit_of_a_predictor_trains_it_alone(tiny: Path, tmp_path: Path) -> None:
    out, package = tmp_path / "run", copy_package(tmp_path / "edited")
    shutil.copytree(tiny, out)
    first = api.train(str(out), methods=["evm", "gmm_finch"], protocols=["1"])
    source = package / "training/predictors/evm.py"
    text = source.read_text()
    assert text.count("scores[:, 0] = 1 - ") == 1
    source.write_text(text.replace("scores[:, 0] = 1 - ", "scores[:, 0] = 2 - "))
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", _EDITED, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["file"] == str(source)
    assert list(told["stale"]) == ["feedback 1 evm"]
    assert "training.predictors.evm" in told["stale"]["feedback 1 evm"]
    assert set(told["scores"]["feedback 1"]) == {"gmm_finch"}
    assert "feedback 1 gmm_finch, seed 0: up to date" in told["told"]
    assert "feedback 1 evm, seed 0: trained" in told["told"]
    assert told["after"] == {}
    assert told["again"]["feedback 1"]["gmm_finch"] == first["feedback 1"]["gmm_finch"]
    assert told["again"]["feedback 1"]["evm"] != first["feedback 1"]["evm"]


def test_weights_that_are_not_finite_stop_their_predictor_alone(tmp_path: Path, bw: Cli) -> None:
    out = tmp_path / "run"
    words = ["--set", "evaluation.settings.ann.learning_rate=1e30", "--set", "evaluation.feedback=[1]", "--set", THREE]
    assert bw("run", "kowl", "--config", "tiny", *words, "--out", out, "--quiet").code == 0
    told = bw("train", out, "--method", "ann", "--method", "evm", "-q")
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert "feedback 1 ann, seed 0: weights are not finite" in told.err
    assert "change evaluation.settings.ann" in told.err
    assert set(api.scores(str(out))["feedback 1"]) == {"evm"}
    assert [row["reason"] for row in api.rejects(str(out / "experiments"))] == ["diverged"]
    assert bw("report", out).code == 0
    assert faults((out / "report.html").read_text()) == []


OWN = """
import numpy as np

class Majority:
    def __init__(self, *, seed, device, weight=1.0):
        self.weight = weight
    def fit(self, experience, validation):
        y = np.concatenate([y for _, _, y in experience])
        self.classes, counts = np.unique(y[y >= 0], return_counts=True)
        self.share = (counts / counts.sum()).astype(np.float32)
    def predict(self, uid, X):
        return self.classes, np.tile(self.share, (len(X), 1))
    def request(self, uid, X):
        return list(uid)
    def state(self):
        return {"classes": self.classes, "share": self.share}
    def restore(self, state, experience):
        self.classes, self.share = state["classes"], state["share"]

def unsure(predictions):
    shares = [part.probabilities.max(axis=1).mean() for part in predictions if part.phase == "pre"]
    return {"unsure": 1 - np.mean(shares), "increments": len(predictions.feedback)}
"""


def test_predictors_and_metrics_of_ones_own(tiny: Path, tmp_path: Path, bw: Cli) -> None:
    """By reference; side by side in processes; an edit trains that predictor again and nothing else."""
    out, own = tmp_path / "run", tmp_path / "own_novelty.py"
    own.write_text(OWN)
    settings = [THREE, f'evaluation.predictors=["evm", "{own}:Majority"]', "evaluation.feedback=[0, 1]"]
    settings += [f'evaluation.settings={{"{own}:Majority" = {{weight = 0.5}}}}', f'evaluation.metrics=["{own}:unsure"]']
    words = [word for text in settings for word in ("--set", text)]
    assert bw("run", "kowl", "--config", "tiny", *words, "--out", out, "--quiet").code == 0
    told = bw("train", out, "--scheduler", "processes", "--workers", "2")
    assert told.code == 0, told.err
    found = api.scores(str(out))["feedback 1"]
    assert list(found) == ["evm", "own_novelty.py:Majority"]
    mean = found["own_novelty.py:Majority"]["mean"]
    assert 0 < mean["unsure"] < 1
    assert mean["increments"] == 3
    first = {path: path.stat().st_mtime_ns for path in out.glob("experiments/stages/learned_*/artifact.json")}
    own.write_text(OWN.replace("counts / counts.sum()", "np.ones(len(counts)) / len(counts)"))
    again = forked("train", out, err=tmp_path / "err.txt")  # in a process that has not loaded the file
    again.join(600)
    said = (tmp_path / "err.txt").read_text()
    assert again.exitcode == 0, said
    changed = {path for path, stamp in first.items() if path.stat().st_mtime_ns != stamp}
    assert changed == {path for path in first if "majority" in str(path)}
    assert "evm, seed 0: up to date" in said
    assert bw("train", out, "--method", f"{own}:Minority").code == 2
    wrong = bw("train", out, "--method", f"{own}:unsure")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)


@pytest.fixture(scope="module")
def annotated(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[int, int]]]:
    """A run with annotations for two clips of three, GMM-FINCH's results and a report; and what the annotations say: key ->
    (actions, persons). Only to be read."""
    folder = tmp_path_factory.mktemp("ava")
    told: dict[str, tuple[int, int]] = {}
    draw = np.random.default_rng(0)
    (folder / "lists").mkdir()
    with (folder / "lists" / "ava_train.csv").open("w") as stream:
        for number, row in enumerate(DatasetIndex.open(tiny / "dataset").table.to_pylist()):
            if number % 3 == 0:
                continue
            actions, persons = (int(draw.integers(1, 4)) for _ in range(2))
            told[row["key"]] = (actions, persons)
            time_s = (row["time_start"] + row["time_end"]) / 2
            for person in range(persons):
                for action in range(actions):
                    x = 0.1 + 0.8 * draw.random()
                    stream.write(f"{row['youtube_id']},{time_s:.3f},0.05,0.1,{x:.3f},0.9,{1 + 20 * action},{person}\n")
    out = folder / "run"
    annotations = f'ava={{path="{folder / "lists"}"}}'
    api.run(api.job("kowl", config="tiny", overrides=[THREE, annotations]), str(out), scheduler="sync")
    for words in (["train", str(out), "--method", "gmm_finch", "--protocol", "1", "--quiet"], ["report", str(out)]):
        assert cli.call(words) == 0
    return out, told


def test_measures_by_ava_stratum(annotated: tuple[Path, dict[str, tuple[int, int]]]) -> None:
    out, told = annotated
    everything = pl.DataFrame(pl.from_arrow(tidy(results(str(out)))))
    whole, frame = (everything.filter((pl.col("stratification") == "") == whole) for whole in (True, False))
    last = frame.filter("from_start", pl.col("increment") == 2, pl.col("phase") == "post", pl.col("measure") == "mcc")
    index = DatasetIndex.open(out / "dataset").table.to_pylist()
    tested = [row["key"] for row in index if row["role"] == "test" or (row["role"] == "val" and row["increment"])]
    for name, place in (("actions", 0), ("persons", 1)):
        of_split = last.filter(pl.col("stratification") == name)
        counts = dict(of_split.filter(pl.col("split") == "test_set").select("stratum", "n").rows())
        expected = {str(k): sum(told[key][place] == k for key in tested if key in told) for k in (1, 2, 3)}
        assert counts == {**expected, "N/A": sum(key not in told for key in tested)}
        trained = collections.Counter(str(row[f"ava_{name}"] or "N/A") for row in index if row["role"] == "train")
        assert dict(of_split.filter(pl.col("split") == "train").select("stratum", "n").rows()) == trained
    # Accuracy of the strata of a partition, weighed by their samples, is that of the whole.
    top1 = frame.filter("from_start", pl.col("increment") == 2, pl.col("phase") == "post")
    top1 = top1.filter(pl.col("measure") == "top1_accuracy", pl.col("stratification") == "area", pl.col("split") == "test_set")
    assert set(top1["stratum"]) == {"SM", "AVG", "LG", "N/A"}
    mean = float((top1["value"] * top1["n"]).sum() / top1["n"].sum())
    same = whole.filter(
        pl.col("from_start"),
        pl.col("increment") == 2,
        pl.col("phase") == "post",
        pl.col("split") == "test_set",
        pl.col("task") == "classification",
        pl.col("novel_to") == "predictor",
        pl.col("measure") == "top1_accuracy",
    )
    assert mean == pytest.approx(same["value"].item())


def test_the_report_shows_tables_and_figures(annotated: tuple[Path, dict[str, tuple[int, int]]]) -> None:
    page = (annotated[0] / "report.html").read_text()
    for title in (
        "Labels across the releases",
        "Increments",
        "Class density",
        "Classification",
        "Novelty reaction time",
        "Content of the clips",
        "Pipeline",
    ):
        assert f">{title}<" in page
    for caption in ("By number of actions", "By size of the persons", "By type of activity"):
        assert caption in page
    for measure in ("top-1 accuracy", "Matthews correlation", "normalised mutual information"):  # Figure 12
        assert f"By number of actions: {measure}, cumulative from increment 0, after feedback." in page
        assert f"By number of actions, training samples: {measure}, cumulative from increment 0, after feedback." in page
    assert "actions; a clip with two types counts in both" in page  # AVA's actions; the paper's text has Kinetics'
    assert "on training samples: the paper does not name the split" in page  # of Figure 12
    assert "SYNTHETIC" in page
    assert "counts do not add up" not in page
    assert ">Visual transforms<" not in page


def test_the_real_ava_list_finds_its_clips(shared_data: Path, tmp_path: Path) -> None:
    """Key frames of the real test list lie in real clips; nothing is annotated in them, so every stratum is N/A."""
    kinetics = shared_data / "kinetics"
    overrides = [
        f"source.root={kinetics}",
        f'ava={{path="{kinetics / "ava_kinetics_test_v1.0.csv"}"}}',
        "features.width=4",
    ]
    flow = api.job("kowl", config="scaled", overrides=overrides).flow(str(tmp_path))
    kept = [stage for stage in flow.stages if stage.name not in ("centred", "with_feature", "placed", "shards")]
    names = [stage.name for stage in kept]
    unified = names.index("unified")
    kept[unified + 1] = dataclasses.replace(kept[unified + 1], after="unified")
    made = run(Flow(tuple(kept)), str(tmp_path), scheduler="threads", workers=2)
    table = pl.DataFrame(
        pl.from_arrow(made.rows("strata").table(["ava_timestamp_s", "time_start", "time_end", "stratum_area"]))
    )
    assert table.height == 136_195
    found = table.filter(pl.col("ava_timestamp_s").is_not_null())
    assert found.height == 1_844  # the list is of the test clips of Kinetics-700
    assert found.select(pl.col("ava_timestamp_s").is_between("time_start", "time_end").all()).item()
    assert set(table["stratum_area"]) == {"N/A"}
