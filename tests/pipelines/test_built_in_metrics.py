"""Built-in metrics that settings name, beside those of the benchmark."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import benchwright as bw
import numpy as np
import polars as pl
import pytest
from benchwright.curation.code_loading import UnknownName
from benchwright.eval.metrics.registry import METRICS, OF_LABEL_SET_STREAMS, OF_STREAMS
from benchwright.eval.protocols.predictions import Predictions
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.metrics import with_metrics

from .conftest import Cli


@pytest.fixture(scope="module")
def streams(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """CLEAR's run, trained by ``finetune`` with every metric of its streams."""
    out = tmp_path_factory.mktemp("metrics") / "out"
    shutil.copytree(finished("clear"), out)
    few = ["baselines.epochs=2", "baselines.decay_after_epochs=1"]
    bw.train(str(out), methods=["finetune"], overrides=[*few, f"baselines.metrics={list(OF_STREAMS.builtin)}"])
    return str(out)


def whole(out: str, protocol: str) -> dict[tuple[str, str], float | None]:
    """Values of whole trainings: by metric and split."""
    found = pl.DataFrame(bw.results(out)).filter(pl.col("position").is_null(), protocol=protocol, stratum="")
    found = found.filter(seed=0)
    return {(metric, split): value for metric, split, value in found.select("metric", "split", "value").rows()}


def test_they_are_what_the_benchmark_measures_itself(streams: str):
    found = whole(streams, "iid")
    for name, own in [
        ("in_domain", "in_domain_diagonal_mean"),
        ("acc", "acc_lower_triangle_mean"),
        ("bwt", "bwt_below_diagonal_mean"),
        ("fwt", "fwt_above_diagonal_mean"),
    ]:
        assert found[own, ""] == found[name, "test"]
    predictions = next(Predictions(rows) for facts, rows in bw.predictions(streams) if facts["protocol"] == "iid")
    counts = [len(test.keys) for test in predictions.tests]
    assert found["accuracy", ""] == pytest.approx(np.average(predictions.matrix()[-1], weights=counts))


def test_what_takes_in_the_past_is_undefined_under_the_streaming_protocol(streams: str):
    found = whole(streams, "streaming")
    assert found["fwt_above_diagonal_mean", ""] == found["fwt", "test"]
    assert found["next_domain_superdiagonal_mean", ""] == found["next_domain", "test"]
    for name in ("in_domain_diagonal_mean", "final_accuracy", "bwt_below_diagonal_mean"):
        assert found[name, ""] is None or math.isnan(found[name, ""])


def test_metrics_of_something_else_are_refused():
    with pytest.raises(UnknownName, match=r"^no metric 'exact_match': there are acc"):
        with_metrics({}, ["exact_match"])
    with pytest.raises(UnknownName, match=r"^no metric 'accuracy': there are exact_match"):
        with_metrics({}, ["accuracy"], known=OF_LABEL_SET_STREAMS)


OWN = """
def worst(matrix):
    return float(matrix[-1].min())


def tests(predictions):
    return 0.0
"""


def test_an_own_metric_of_a_matrix_is_refused_where_there_is_none(tmp_path: Path):
    own = tmp_path / "own.py"
    own.write_text(OWN)
    assert list(with_metrics({}, [f"{own}:worst"])) == ["own_0"]
    assert list(with_metrics({}, [f"{own}:tests"], known=OF_LABEL_SET_STREAMS)) == ["own_0"]
    message = "^metrics: own.py:worst has the argument 'matrix', and trainings of this benchmark have no matrix of accuracies: "
    for known in (OF_LABEL_SET_STREAMS, METRICS.only()):
        with pytest.raises(WrongUse, match=message):
            with_metrics({}, [f"{own}:worst"], known=known)


@pytest.mark.parametrize("benchmark", ["iirc", "kowl", "two_camera"])
def test_it_is_refused_before_anything_runs(benchmark: str, tmp_path: Path, bw: Cli):
    (tmp_path / "own.py").write_text(OWN)
    out = tmp_path / "out"
    told = bw("run", benchmark, "--config", "tiny", "--set", f"evaluation.metrics=['{tmp_path}/own.py:worst']", "--out", out)
    assert (told.code, told.err.count("\n"), out.exists()) == (2, 1, False)
    assert "own.py:worst has the argument 'matrix'" in told.err
