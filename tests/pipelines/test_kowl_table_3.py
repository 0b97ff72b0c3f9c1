"""KOWL's Table 3: the starting release alone, by the backbone's own classifier, ANN, EVM, and EVM on the ANN's hidden layer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation.registry import load_name
from benchwright.datasets.kowl.facts import facts
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api
from benchwright.pipelines.kowl import report
from benchwright.pipelines.training_results import results
from benchwright.training.predictors.original import Original
from benchwright.training.predictors.registry import PREDICTORS, new_predictor
from sklearn import metrics

Cli = Callable[..., Any]
"""The fixture ``bw`` of ``conftest``."""
ANN = {"hidden": 16, "epochs": 20}


def test_outputs_that_are_no_class_are_unknown_and_equal_names_are_added() -> None:
    made = Original(names=["a", "b", "c"], outputs=["c", "x", "a", "y", "a"])
    columns, shares = made.predict(np.array(["k"]), np.log(np.array([[1, 2, 3, 4, 10]], np.float32)))
    assert columns.tolist() == [-1, 0, 2]
    np.testing.assert_allclose(shares, [[6 / 20, 13 / 20, 1 / 20]], rtol=1e-6)
    with pytest.raises(ValueError, match="vectors of 4 numbers, and 5 names"):
        made.predict(np.array(["k"]), np.zeros((1, 4), np.float32))


def test_evm_on_the_hidden_layer_resumes_and_learns_with_the_ann() -> None:
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 15)
    X = (6 * np.eye(4, 8)[y] + draw.normal(size=(60, 8))).astype(np.float32)
    uid = np.array([f"c{n}" for n in range(60)])
    seen = [(uid, X, y)]
    made, again = (
        new_predictor(load_name(PREDICTORS, "ann_evm"), {"ann": ANN, "evm": {"tail_size": 5}}, seed=0) for _ in range(2)
    )
    made.fit(seen, seen[0])
    columns, shares = made.predict(uid, X)
    assert (columns[shares.argmax(axis=1)] == y).mean() > 0.9
    again.restore(made.state(), seen)
    np.testing.assert_array_equal(again.predict(uid, X)[1], shares)
    more = [*seen, (np.char.add(uid, "x"), X + 20, np.full(60, 4))]
    for one in (made, again):
        one.fit(more, seen[0])
    assert 4 in made.predict(uid, X)[0]
    np.testing.assert_array_equal(again.predict(uid, X)[1], made.predict(uid, X)[1])
    with pytest.raises(TypeError):
        new_predictor(load_name(PREDICTORS, "ann_evm"), {"ann": {"depth": 3}, "evm": {}}, seed=0)


@pytest.fixture(scope="module")
def run(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run, with a classifier of the first release that is right on three samples of four."""
    folder = tmp_path_factory.mktemp("table")
    shutil.copytree(finished("kowl"), folder / "plain")
    table = DatasetIndex.open(folder / "plain" / "dataset").table
    names = sorted({label for label in table["label_first"].to_pylist() if label})
    (folder / "classes.txt").write_text("\n".join(names))
    rows = [names.index(label or names[0]) for label in table["label_first"].to_pylist()]
    said = [(row + (n % 4 == 0)) % len(names) for n, row in enumerate(rows)]
    vectors = 9 * np.eye(len(names), dtype=np.float32)[said]
    pq.write_table(pa.table({"uid": table["key"].to_pylist(), "feature": list(vectors)}), folder / "logits.parquet")
    files = 'files=[{path="logits.parquet"}], nuisances={flip=[{path="logits.parquet"}]}'
    given = f'kind="stored", root="{folder}", width={len(names)}, {files}, outputs="{folder}/classes.txt"'
    settings = [f"feature_sets={{logits={{{given}}}}}", "evaluation.settings.ann={hidden=16, epochs=20}"]
    api.run(api.job("kowl", config="tiny", overrides=settings), str(folder / "run"), scheduler="sync")
    return folder


def test_table_3_of_a_run(run: Path, bw: Cli) -> None:
    out = run / "run"
    told = bw("train", out, "--protocol", "start", "--method", "original", "--method", "ann", "--method", "ann_evm", "--quiet")
    assert told.code == 0, told.err
    assert all(heading in told.out for heading in ("mcc train", "mcc val", "mcc test"))
    found = {
        (row["method"], row["model"], row["split"]): row["value"]
        for row in results(str(out)).to_pylist()
        if row["metric"] == "start.mcc" and not row["stratum"]
    }
    assert {place[:2] for place in found} == {("original", "logits"), ("ann", "features"), ("ann_evm", "features")}
    table = DatasetIndex.open(out / "dataset").table.to_pylist()
    names = (run / "classes.txt").read_text().splitlines()
    for role, split in (("train", "train"), ("val", "validate"), ("test", "test")):
        truth, said = [], []
        for n, row in enumerate(table):
            if row["increment"] == 0 and row["role"] == role:
                truth.append(row["label_first"])
                said.append(names[(names.index(row["label_first"]) + (n % 4 == 0)) % len(names)])
        assert found["original", "logits", split] == pytest.approx(metrics.matthews_corrcoef(truth, said))
    assert found["ann", "features", "train"] > 0.5
    assert bw("report", out).code == 0
    page = (out / "report.html").read_text()
    assert "The starting release only" in page
    assert "MCC by visual transform, test samples of the starting release" in page
    assert "Table 3 of the paper is not shown: the increments are not those of the paper" in page
    flipped = [row for row in results(str(out)).to_pylist() if row["stratum"] == "nuisance=flip" and row["split"] == "test"]
    assert {row["value"] for row in flipped if row["metric"] == "start.mcc"} == {found["original", "logits", "test"]}


def test_table_3_is_not_shown_of_weights_that_nobody_knows(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the backbone nor its weights were looked at: any checkpoint had the paper's figures beside it."""
    monkeypatch.setattr(report, "_is_published", lambda config, ours: True)
    backbone = 'backbone={kind="network", model="x3d_m"}, checkpoint="mine.pt"'
    view = "width=192, frames=4, stride=1, clips=1, resize_px=32, side_px=32"
    c = api.job("kowl", config="tiny", overrides=[f'features={{kind="videos", root="v", {backbone}, {view}}}']).config
    samples = DatasetIndex.open(run / "plain" / "dataset").table
    why = report._other_data(c, samples.append_column("uid", samples["key"]))
    assert "no digest of the paper's X3D-M and TimeSformer weights is known" in why
    assert not any(str(value) in why for value in facts().table_3["test"])


def test_settings_of_one_feature_set_and_transforms_with_kept_states(run: Path, tmp_path: Path, bw: Cli) -> None:
    """What is changed of the ANN on a set is changed of ANN and EVM there, too; the start is scored through transforms."""
    feature = 'kind="drawn", width=4, distance=20.0, hidden=0.4, nuisances={noise=9.0}'
    settings = [
        f"features={{{feature}}}",
        f"feature_sets={{second={{{feature}}}}}",
        "evaluation.settings.ann={hidden=8, epochs=2}",
        "evaluation.settings_of_sets.second.ann={hidden=5}",
        "evaluation.keep_states=true",
    ]
    out = tmp_path / "run"
    api.run(api.job("kowl", config="tiny", overrides=settings), str(out), scheduler="sync")
    told = bw("train", out, "--protocol", "start", "--method", "ann", "--method", "ann_evm", "--quiet")
    assert told.code == 0, told.err
    rows = results(str(out)).to_pylist()
    used = {(row["method"], row["model"]): json.loads(row["settings"])["predictor"] for row in rows}
    assert used["ann", "features"].items() >= {"hidden": 8, "epochs": 2}.items()
    assert used["ann", "second"].items() >= {"hidden": 5, "epochs": 2}.items()
    assert used["ann_evm", "second"]["ann"] == used["ann", "second"]
    assert used["ann", "features"]["validation_error"] == 0  # a threshold would call known classes unknown
    assert {row["stratum"] for row in rows if row["metric"] == "start.mcc"} == {"", "nuisance=noise"}
    assert "optimiser steps" in told.err + told.out
    for given, says in (
        ("evaluation.settings_of_sets={third={ann={hidden=5}}}", "no feature set 'third': there are features, second"),
        ("evaluation.settings_of_sets={second={anns={hidden=5}}}", "no predictor 'anns'"),
        ("evaluation.settings_of_sets={second={ann={hiden=5}}}", "has no 'hiden'"),
    ):
        told = bw("train", out, "--set", given, "--quiet")
        assert (told.code, says in told.err) == (2, True), told.err


def test_a_classifiers_outputs_are_for_original_alone(run: Path, bw: Cli) -> None:
    told = bw("train", run / "plain", "--protocol", "start", "--method", "original")
    assert told.code == 2
    assert "nothing to train: predictor 'original' takes a feature set with outputs" in told.err
    (run / "short.txt").write_text("one\ntwo")
    told = bw(
        "train",
        run / "run",
        "--method",
        "original",
        "--protocol",
        "start",
        "--set",
        f"feature_sets.logits.outputs={run}/short.txt",
    )
    assert told.code == 2
    assert "names 2 outputs, and the vectors have" in told.err
