"""Nuisances and feature sets of KOWL: scored apart from the stream, by the predictors as they were; several sets in one run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.eval.protocols.open_world.measures import tidy
from benchwright.eval.report.blocks import Figure
from benchwright.eval.report.nuisances import nuisance_sections
from benchwright.eval.report.open_world import open_world_sections
from benchwright.pipelines import api
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.kowl.stream import read_increments
from benchwright.pipelines.training_results import results

pytestmark = pytest.mark.usefixtures("blank_figures")

Cli = Callable[..., Any]
"""The fixture ``bw`` of ``conftest``."""
DRAWN = 'features={kind="drawn", width=4, distance=20.0, hidden=0.4, nuisances={same=0.0, rotation=30.0}}'
SECOND = 'feature_sets={second={kind="drawn", width=6, distance=20.0, hidden=0.4, nuisances={rotation=30.0}}}'
SHORT = "evaluation.settings.ann={hidden=16, epochs=3}"
THREE = 'increments.later=[{release="second", count=1, seed=0}, {release="third", count=1, seed=1}]'
"""Three increments in place of six."""


def trained(out: Path, *settings: str, methods: tuple[str, ...] = ("gmm_finch",)) -> pl.DataFrame:
    api.run(api.job("kowl", config="tiny", overrides=[SHORT, THREE, *settings]), str(out), scheduler="sync")
    api.train(str(out), methods=methods, protocols=["1"])
    return pl.DataFrame(pl.from_arrow(tidy(results(str(out)))))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    out = tmp_path_factory.mktemp("nuisances") / "run"
    return out, trained(out, DRAWN, SECOND)


def seen(frame: pl.DataFrame, **wanted: Any) -> pl.DataFrame:
    frame = frame.filter(pl.col("stratification") == "nuisance")
    return frame.filter(*(pl.col(name) == value for name, value in wanted.items()))


def test_the_whole_set_is_seen_through_each_transform(drawn: tuple[Path, pl.DataFrame]) -> None:
    out, frame = drawn
    increments, _ = read_increments(str(out / "dataset"))
    mine = seen(frame, predictor="gmm_finch, model = features", measure="mcc", task="none", cumulative=False, split="train")
    counts = {(row["stratum"], row["phase"], row["increment"]): row["n"] for row in mine.to_dicts()}
    assert counts == {
        (kind, phase, t): len(increments[t].train.y)
        for kind in ("none", "same", "rotation")
        for t in range(len(increments))
        for phase in ("pre", "post")
        if t or phase == "post"
    }


def test_what_changes_nothing_is_scored_as_before_and_noise_is_not(drawn: tuple[Path, pl.DataFrame]) -> None:
    """GMM-FINCH learns from what it predicts: only a twin in the same state says the same of the same vectors."""
    _, frame = drawn
    asked = {
        "predictor": "gmm_finch, model = features",
        "task": "classification",
        "cumulative": False,
        "split": "test_set",
    }
    found = seen(frame, **asked, measure="top1_accuracy", phase="pre")
    by = {
        kind: found.filter(pl.col("stratum") == kind).sort("increment")["value"].to_list()
        for kind in ("none", "same", "rotation")
    }
    assert by["same"] == by["none"]
    assert np.mean(by["rotation"]) < np.mean(by["none"]) - 0.1


def test_nuisances_teach_nothing(drawn: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    plain = trained(tmp_path / "run")
    both = [
        frame.filter(pl.col("stratification") == "").drop("predictor").sort(pl.exclude("value", "n"))
        for frame in (plain, drawn[1].filter(pl.col("predictor") == "gmm_finch, model = features"))
    ]
    assert both[0].equals(both[1])


def test_a_transform_that_comes_later_is_scored_from_kept_states(
    drawn: tuple[Path, pl.DataFrame], tmp_path: Path, bw: Cli
) -> None:
    """What was learned stays, to the byte and to the minute; the figures are those of a training that had the transforms."""
    out, keep = tmp_path / "run", "evaluation.keep_states=true"
    plain = [re.sub(", nuisances={.*?}", "", text) for text in (DRAWN, SECOND)]
    assert not seen(trained(out, *plain, keep)).height
    learned = sorted(path for path in (out / "experiments").rglob("learned_*/**/*") if path.is_file())
    before = [(path, path.stat().st_mtime_ns) for path in learned]
    states = sorted((out / "experiments" / "states").glob("*/*.npz"))
    assert before
    assert len(states) == 2 * len(read_increments(str(out / "dataset"))[0])
    later = trained(out, DRAWN, SECOND, keep)
    assert [(path, path.stat().st_mtime_ns) for path in learned] == before
    order = [name for name in later.columns if name not in ("value", "n", "predictor")]
    both = [seen(frame).sort("predictor", *order) for frame in (later, drawn[1])]
    for name in [*order, "n", "value"]:
        assert both[0][name].equals(both[1][name]), name
    for path in states:
        path.write_bytes(b"no archive")
    more = 'features={kind="drawn", width=4, distance=20.0, hidden=0.4, nuisances={noise=9.0}}'
    api.run(api.job("kowl", config="tiny", overrides=[SHORT, THREE, more, plain[1], keep]), str(out), scheduler="sync")
    told = bw("train", out, "--method", "gmm_finch", "--protocol", "1", "--quiet")
    assert told.code == 1
    assert "increment-0000.npz: no kept state: `benchwright train` with --set evaluation.keep_states=false" in told.err


def test_feature_sets_stand_side_by_side(drawn: tuple[Path, pl.DataFrame]) -> None:
    out, frame = drawn
    assert set(frame["predictor"]) == {"gmm_finch, model = features", "gmm_finch, model = second"}
    assert set(seen(frame, predictor="gmm_finch, model = second")["stratum"]) == {"none", "rotation"}
    [section] = nuisance_sections(seen(frame, split="test_set", measure="top1_accuracy").to_arrow())
    drawn_figures = [block for block in section.blocks if isinstance(block, Figure)]
    assert next(list(figure.data.columns) for figure in drawn_figures if figure.data) == [
        "visual transform", "gmm_finch, model = features", "gmm_finch, model = second",
    ]  # fmt: skip
    assert api.verify(str(out)) == []


def test_no_further_set_has_the_name_of_the_main_one() -> None:
    with pytest.raises(ConfigError, match=r"'features' is the name of the set of \[features\]: give this one another"):
        api.job("kowl", config="tiny", overrides=[SECOND.replace("second", "features")])


def test_the_papers_seven_lines_are_trained_by_one_command_and_drawn_in_one_plot(tmp_path: Path, bw: Cli) -> None:
    """ANN on both feature sets with none and all of the labels, GMM-FINCH on one of them with none, half and all."""
    out = tmp_path / "run"
    lines = ['evaluation.predictors=["ann", "gmm_finch"]', "evaluation.feedback_of_predictors={ann=[0, 1]}"]
    lines += ['evaluation.sets_of_predictors={gmm_finch=["features"]}', SHORT, THREE, re.sub(", nuisances={.*?}", "", SECOND)]
    words = [word for text in lines for word in ("--set", text)]
    assert bw("run", "kowl", "--config", "tiny", *words, "--out", out, "--quiet").code == 0
    told = bw("train", out, "--quiet")
    assert told.code == 0, told.err
    trained = {(row["method"], row["model"], row["protocol"]) for row in results(str(out)).to_pylist()}
    assert trained == {
        *(("ann", name, f"feedback {amount}") for name in ("features", "second") for amount in (0, 1)),
        *(("gmm_finch", "features", f"feedback {amount}") for amount in ("0", "0.5", "1")),
    }
    sections = {section.title: section for section in open_world_sections(tidy(results(str(out))))}
    for title in ("Classification", "Unmapped classes", "Novelty detection", "Novelty recognition", "Novelty reaction time"):
        [figure] = [block for block in sections[title].blocks if isinstance(block, Figure)]
        assert figure.data is not None
        assert list(figure.data.columns)[1:] == [
            "0 % ann on features", "100 % ann on features", "0 % ann on second", "100 % ann on second",
            "0 % gmm_finch", "50 % gmm_finch", "100 % gmm_finch",
        ]  # fmt: skip
    assert bw("train", out, "--method", "ann", "--protocol", "0.5", "--quiet").code == 0  # asked for by name
    assert {row["protocol"] for row in results(str(out)).to_pylist() if row["method"] == "ann"} > {"feedback 0.5"}
    for given, says in (
        ("evaluation.sets_of_predictors={gmm_finch=['third']}", "no feature set 'third': there are features, second"),
        ("evaluation.sets_of_predictors={gmm=['features']}", "no predictor 'gmm'"),
        ("evaluation.feedback_of_predictors={anns=[1]}", "no predictor 'anns'"),
        ("evaluation.settings_of_start={anns={epochs=1}}", "no predictor 'anns'"),
    ):
        told = bw("train", out, "--set", given, "--quiet")
        assert (told.code, says in told.err) == (2, True), told.err


def test_stored_sets_and_nuisances_want_every_sample(drawn: tuple[Path, pl.DataFrame], tmp_path: Path, bw: Cli) -> None:
    increments, _ = read_increments(str(drawn[0] / "dataset"))
    parts = [samples for one in increments for samples in one.splits.values()]
    uid, X = (np.concatenate([getattr(part, name) for part in parts]) for name in ("uid", "X"))
    for name, rows in (("plain", slice(None)), ("wide", slice(None)), ("short", slice(3, None))):
        vectors = np.repeat(X[rows], 2, axis=1) if name == "wide" else X[rows]
        pq.write_table(pa.table({"uid": uid[rows].tolist(), "feature": list(vectors)}), tmp_path / f"{name}.parquet")

    def stored(width: int, name: str, nuisance: str) -> str:
        files = f'files=[{{path="{name}.parquet"}}], nuisances={{rotation=[{{path="{nuisance}.parquet"}}]}}'
        return f'{{kind="stored", root="{tmp_path}", width={width}, {files}}}'

    settings = ["--set", SHORT, "--set", THREE, "--set", f"features={stored(4, 'plain', 'plain')}"]
    words = ["run", "kowl", "--config", "tiny", *settings, "--quiet", "--out"]
    assert bw(*words, tmp_path / "a", "--set", f"feature_sets={{wide={stored(8, 'wide', 'wide')}}}").code == 0
    assert bw("train", tmp_path / "a", "--method", "ann", "--protocol", "0", "--quiet").code == 0
    told = bw(*words, tmp_path / "b", "--set", f"feature_sets={{wide={stored(4, 'plain', 'short')}}}")
    assert told.code == 1
    assert "3 no_feature" in told.err
    assert "feature_sets.wide.max_rejects" in told.err
