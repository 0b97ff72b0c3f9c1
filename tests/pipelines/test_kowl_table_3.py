"""KOWL's Table 3: the starting release alone, by the backbone's own classifier, ANN, EVM, and EVM on the ANN's hidden layer."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation.nested import flat
from benchwright.curation.registry import load_name
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.eval.report.blocks import Table
from benchwright.eval.report.starting_release import starting_sections
from benchwright.eval.results import Line, lines
from benchwright.pipelines import api
from benchwright.pipelines.kowl import paper
from benchwright.pipelines.report import ReportedRun
from benchwright.pipelines.training_results import results
from benchwright.training.predictors.original import Original
from benchwright.training.predictors.paper import paper_settings
from benchwright.training.predictors.registry import PREDICTORS, new_predictor
from sklearn import metrics

pytestmark = pytest.mark.usefixtures("blank_figures")

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


def samples_of_table_1(novel_in_increment_0: int) -> pa.Table:
    """Samples with the counts of the paper's Table 1; Table 2 has one novel test sample in increment 0."""
    columns: dict[str, list[Any]] = {name: [] for name in ("increment", "role", "novel", "label_recent_first")}

    def add(increment: int, role: str, novel: bool, labels: list[str], count: int) -> None:
        for name, values in zip(columns, ([increment], [role], [novel], labels), strict=True):
            columns[name].append(np.resize(values, count))

    for row in paper.table_1().to_pylist():
        at, new = row["increment"], [f"new {row['increment']} {n}" for n in range(row["novel_classes"])]
        known = [f"known {n}" for n in range(row["known_classes"])] if at == 0 else ["known 0"]
        add(at, "train", False, known, row["train_known"])
        add(at, "train", True, new or ["none"], row["train_novel"])
        add(at, "test", False, ["known 0"], row["test_known"])
        add(at, "test", True, new or ["never trained"], row["test_novel"] if at else novel_in_increment_0)
    return pa.table({name: np.concatenate(parts) for name, parts in columns.items()})


@pytest.mark.parametrize(("novel", "same"), [(0, True), (1, True), (2, False)])
def test_the_papers_samples_have_the_counts_of_table_1_or_of_table_2(novel: int, same: bool) -> None:
    """The lists have the novel test sample of increment 0 that Table 2 counts and Table 1 leaves out."""
    stored = ['features={kind="stored", root="v", width=4, files=[{path="f.npz"}]}']
    releases = ['labels.releases=["kinetics400", "kinetics600", "kinetics700_2020"]']
    config = api.job("kowl", config="tiny", overrides=[*stored, *releases]).config
    differs = paper.data_differs(config, samples_of_table_1(novel))
    assert differs == ("" if same else "the increments are not those of the paper's Table 1")


def test_table_3_is_shown_beside_features_whose_digest_is_stated(run: Path, bw: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """By data, features and settings of each classifier; without a stated digest there is no figure of the paper."""
    out = str(run / "run")
    bw("train", out, "--protocol", "start", "--method", "original", "--method", "ann", "--method", "ann_evm", "--quiet")
    found = [line for line in lines(results(out)) if line.protocol == "start"]
    plain = api.job("kowl", config="tiny").config
    samples = DatasetIndex.open(f"{out}/dataset").table
    assert paper.data_differs(plain, samples) == "the increments are not those of the paper's Table 1"
    # Counts of a tiny run are never the paper's: test_the_papers_samples_have_the_counts_of_table_1_or_of_table_2.
    monkeypatch.setattr(paper, "has_published_counts", lambda config, ours: True)
    assert paper.data_differs(plain, samples) == "features are synthetic"
    job = api.job("kowl", config="tiny", overrides=['features={kind="stored", root="v", width=4, files=[{path="f.npz"}]}'])
    assert paper.data_differs(job.config, samples) == ""

    def settings(line: Line, **changes: Any) -> Line:
        """The line with the paper's settings."""
        own = {**paper_settings()["ann"], "validation_error": 0, **changes}
        own = {"ann": own, "evm": paper_settings()["evm"]} if line.method == "ann_evm" else own
        own = {} if line.method == "original" else own
        prior = {name: value for name, value in line.settings.items() if name.startswith("prior_knowledge")}
        return dataclasses.replace(line, settings={**flat({"predictor": own}), "experience_limit": None, **prior})

    digests = paper.digests_of_sets(ReportedRun.of(out), dataclasses.replace(plain, feature_sets={"logits": plain.features}))
    assert list(digests) == ["features", "logits"]
    stated = {"TSF": {"features": digests["features"]}, "X3D": {"logits": digests["logits"]}}
    known = dataclasses.replace(plain, evaluation=dataclasses.replace(plain.evaluation, published=stated))
    mine = [settings(line) for line in found]
    rows, notes = paper.table_3_rows(mine, plain, digests, "")
    assert not rows
    assert "no digest shows that features come from the paper's X3D-M or TimeSformer weights" in str(notes[0])
    assert f"--set evaluation.published.TSF.features={digests['features']}" in str(notes[1])
    rows, notes = paper.table_3_rows(mine, known, digests, "")
    assert {row.name: list(row.values.values()) for row in rows} == {
        "X3D Original": [0.8701, 0.7067, 0.6893],
        "TSF ANN 1": [0.8566, 0.7410, 0.7237],
    }
    assert "the table has no row TSF ANN 1 + EVM" in str(notes)
    [section] = starting_sections(mine, rows, notes)
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row[1] for row in table.rows].count("Table 3") == 2
    at = [row[0] for row in table.rows].index("TSF ANN 1")
    assert table.rows[at - 1][:2] == [next(row.under for row in rows if row.name == "TSF ANN 1"), "this run"]
    ann = [line for line in found if line.method == "ann"]
    # Two networks: the text's, as wide as the features (4 here) with dropout 0.5, and that of the released configurations.
    for changes, shown in (
        ({"epochs": 100}, True),
        ({"epochs": 100, "hidden": 4}, True),
        ({"epochs": 100, "hidden": 768, "dropout": 0.75}, True),
        ({"epochs": 100, "hidden": 768}, False),
        ({"epochs": 100, "dropout": 0.75}, False),
        ({"epochs": 100, "hidden": 2048, "dropout": 0.75}, False),
    ):
        rows, notes = paper.table_3_rows([settings(line, **changes) for line in ann], known, digests, "")
        assert [row.name for row in rows] == ["TSF ANN 100"] * shown, (changes, str(notes))
    x3d = dataclasses.replace(known.evaluation, published={"X3D": {"features": digests["features"]}})
    of_x3d = dataclasses.replace(known, evaluation=x3d)
    for changes, shown in (({"hidden": 2048, "dropout": 0.75}, True), ({"hidden": 2048}, False), ({}, True)):
        rows, _ = paper.table_3_rows([settings(line, **changes) for line in ann], of_x3d, digests, "")
        assert [row.name for row in rows] == ["X3D ANN 1"] * shown, changes
    for changes, why in (
        ({"epochs": 2}, "no row TSF ANN 2"),
        ({"validation_error": 0.1}, "were changed: predictor.valid"),
    ):
        rows, notes = paper.table_3_rows([settings(line, **changes) for line in ann], known, digests, "")
        assert not rows
        assert why in str(notes)
    rows, notes = paper.table_3_rows(mine, known, {**digests, "features": "0" * 64}, "")
    assert [row.name for row in rows] == ["X3D Original"]
    assert f"published states {digests['features']} for features, and the run has {'0' * 64}" in str(notes[0])
    assert f"--set evaluation.published.TSF.features={'0' * 64}" in str(notes[1])
    assert "logits=" not in str(notes[1])
    assert len(paper.table_3_rows(mine, known, digests, "")[1]) == 1
    assert not paper.table_3_rows(mine, known, digests, "features are synthetic")[0]


def test_table_2_is_that_of_the_paper() -> None:
    table, whole = paper.table_2(), paper.table_1()
    assert table.num_rows == 11
    for kind in ("known", "novel"):
        both = np.add(table[f"val_{kind}"].to_numpy(), table[f"test_{kind}"].to_numpy())
        np.testing.assert_array_equal(both[1:], whole[f"test_{kind}"].to_numpy()[1:])
    assert (table["val_known"][0].as_py(), table["test_novel"][0].as_py()) == (18_016, 1)
    for kind in ("known_classes", "novel_classes"):
        papers = whole[kind].to_pylist()
        assert table[f"train_{kind}"].to_pylist() == papers
        # Increment 0 has a novel class in Validate and Test, whose one sample is a test sample. Later releases have no val.
        first = papers[0] + (kind == "novel_classes")
        assert table[f"test_{kind}"].to_pylist() == [first, *papers[1:]]
        assert table[f"val_{kind}"].to_pylist() == [first, *papers[1:6], *[0] * 5]


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
        (
            f"evaluation.published.TSF.third={'0' * 64}",
            "published.TSF.third: no feature set 'third': there are features, second",
        ),
        (f"evaluation.published.X3D.second={'0' * 63}x", "a digest has 64 digits from 0 to f"),
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
