"""Experiments on skeleton streams, on the tiny configuration: trained through the engine, measured, told in a report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchwright.datasets.skeleton.published import table_2
from benchwright.eval.metrics.order_sensitivity import forgetting_bound
from benchwright.pipelines import api, config
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.skeleton import baselines as skeleton_runs
from benchwright.pipelines.skeleton.config import SkeletonConfig
from benchwright.pipelines.skeleton.results import best_of_grid, difference, measure_table, of_experiment, trained

from tests.training.graph_settings import BEST, GRIDS

EVERYTHING = (
    'evaluation.experiments=["default", "task_order", "class_order", "architecture", "grid"]',
    "evaluation.grid={replay = {fraction = [0.1, 0.2]}}",
    'evaluation.architectures.methods=["bare"]',
    "evaluation.task_orders=4",
    "evaluation.class_orders=2",
)


def settings(name: str | None, *overrides: str) -> SkeletonConfig:
    return config.load(SkeletonConfig, config.find_config("skeleton", name), overrides, benchmark="skeleton")[0]


def digests(out: Path) -> dict[str, str]:
    return {stage["name"]: stage["digest"] for stage in api.show(str(out))["stages"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with every experiment trained, and its report. Only to be read."""
    out = tmp_path_factory.mktemp("skeleton") / "run"
    chosen = [argument for each in EVERYTHING for argument in ("--set", each)]
    assert cli.call(["run", "skeleton", "--config", "tiny", "--out", str(out), "--train", "--quiet", *chosen]) == 0
    return out


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_every_order_is_there_once_and_under_the_bound(run: Path) -> None:
    c = skeleton_runs.config_of(str(run))
    found = trained(c, str(run))
    assert {(one.experiment, len(one.streams)) for one in found} == {
        ("default", 1),
        ("task_order", 4),
        ("class_order", 2),
        ("architecture", 1),
        ("grid", 1),
    }
    assert [one.name for one in of_experiment(found, "grid")] == ["replay, fraction 0.1", "replay, fraction 0.2"]
    shapes = [(s.width, s.depth) for one in of_experiment(found, "architecture") if one.method == "bare" for s in one.streams]
    assert shapes == [(8, 2), (16, 2), (16, 1)]
    for stream in (s for one in found for s in one.streams):
        told = stream.measures()
        assert len(stream.tasks) == 5
        assert sorted(each for task in stream.tasks for each in task) == list(range(10))
        assert told["af_from_best"] <= told["bound_own"] + 1e-12 <= told["bound"] + 2e-12
        assert told["bound"] == pytest.approx(float(forgetting_bound(told["aa"], 5)))
    first, *others = (s.tasks for s in of_experiment(found, "task_order")[0].streams)
    assert first == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert len({first, *others}) == 4
    assert {tuple(sorted(order)) for order in others} == {first}  # the same tasks in other orders
    table = measure_table(c, str(run))
    assert table.num_rows == sum(len(one.streams) for one in found)
    assert set(table["experiment"].to_pylist()) == set(skeleton_runs.EXPERIMENTS)


def test_a_shared_beginning_is_the_same_whatever_is_trained_beside_it(run: Path) -> None:
    found = {(one.experiment, one.name): one for one in trained(skeleton_runs.config_of(str(run)), str(run))}
    for method in ("bare", "replay", "joint"):
        np.testing.assert_array_equal(found["task_order", method].streams[0].matrix, found["default", method].streams[0].matrix)
    # The tiny network is of width 16 and depth 2.
    swept = found["architecture", "bare, width 16, depth 2"].streams[0].matrix
    np.testing.assert_array_equal(swept, found["default", "bare"].streams[0].matrix)
    # What joint has learned in the end does not depend on the order.
    ends = [stream.final for stream in found["task_order", "joint"].streams]
    assert all(end == ends[0] for end in ends)
    assert difference(list(found.values()), "joint", "task").aopd[0] == 0
    # Joint forgets less than what does nothing against it.
    assert found["task_order", "joint"].mean("aa")[0] > found["task_order", "bare"].mean("aa")[0]


def test_parts_and_processes_change_nothing(run: Path, copy: Path) -> None:
    shutil.rmtree(copy / "eval")
    c = settings("tiny", "evaluation.task_orders=4", "evaluation.orders_per_part=2", "evaluation.workers=2")
    skeleton_runs.evaluate(c, str(copy), methods=["bare"], protocols=["task-order"])
    made, told = (folder / "eval" / "task_order" / "bare" for folder in (copy, run))
    assert digests(made) == digests(told)
    parts = [len(list((folder / "stages" / "repeat_0").glob("part-*.parquet"))) for folder in (made, told)]
    assert parts == [2, 1]
    assert api.verify(str(made)) == []


def test_a_run_that_was_cut_goes_on_and_trains_no_more_than_it_must(run: Path, copy: Path) -> None:
    shutil.rmtree(copy / "eval")
    c = settings("tiny", "evaluation.task_orders=4", "evaluation.orders_per_part=1")
    lines: list[str] = []

    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        lines.append(line)
        if "2 of 4 orders" in line:
            raise Stopped

    with pytest.raises(Stopped):
        skeleton_runs.evaluate(c, str(copy), methods=["replay"], protocols=["task_order"], progress=stop)
    stage = copy / "eval" / "task_order" / "replay" / "stages" / "repeat_0"
    before = {path.name: path.stat().st_mtime_ns for path in stage.glob("part-*")}
    assert len(before) == 2
    assert lines[-1].startswith("task_order replay, repeat 0: 2 of 4 orders, ")
    assert lines[-1].endswith(" a minute")
    skeleton_runs.evaluate(c, str(copy), methods=["replay"], protocols=["task_order"])
    after = {path.name: path.stat().st_mtime_ns for path in stage.glob("part-*")}
    assert len(after) == 4
    assert before.items() <= after.items()
    assert digests(stage.parent.parent) == digests(run / "eval" / "task_order" / "replay")


def test_an_experiment_with_nothing_to_train_is_wrong_use(copy: Path) -> None:
    with pytest.raises(WrongUse, match="experiment 'grid': the settings name nothing to train for bare"):
        skeleton_runs.evaluate(settings("tiny"), str(copy), methods=["bare"], protocols=["grid"])


def test_a_setting_of_one_method_makes_no_other_again(run: Path, copy: Path) -> None:
    c = settings("tiny", "evaluation.task_orders=4", "evaluation.settings={replay = {fraction = 0.5}}")
    lines: list[str] = []
    skeleton_runs.evaluate(c, str(copy), protocols=["default"], progress=lines.append)
    assert [line.rpartition(": ")[2].startswith("there already") for line in lines] == [True, False, True]
    assert digests(copy / "eval/default/bare") == digests(run / "eval/default/bare")
    changed = next(one for one in trained(c, str(copy)) if (one.experiment, one.method) == ("default", "replay"))
    assert json.loads(changed.streams[0].settings) == {"fraction": 0.5}
    # What was trained with the old setting is not shown as if it had the new one.
    assert "replay" not in [one.method for one in of_experiment(trained(c, str(copy)), "task_order")]


def test_a_further_repeat_is_another_draw_and_leaves_the_first(run: Path, copy: Path) -> None:
    c = settings("tiny", "evaluation.repeats=2")
    lines: list[str] = []
    skeleton_runs.evaluate(c, str(copy), methods=["bare"], protocols=["default"], progress=lines.append)
    assert lines[0] == "default bare, repeat 0: there already"
    bare = next(one for one in trained(c, str(copy)) if (one.experiment, one.method) == ("default", "bare"))
    assert bare.repeats == 2
    one, other = bare.streams
    assert not np.array_equal(one.matrix, other.matrix, equal_nan=True)
    assert bare.mean("aa")[1] == pytest.approx(abs(one.measures()["aa"] - other.measures()["aa"]) / np.sqrt(2))


def test_tables_are_printed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["eval", str(run)]) == 0
    told = capfd.readouterr().out
    for words in ("task order", "AF from best", "difference over orders, by task", "joint, 4 orders", "bare, 6 orders"):
        assert words in told
    assert "Table 2" not in told  # drawn sequences are not the paper's
    assert cli.call(["eval", str(run), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    c = skeleton_runs.config_of(str(run))
    mine = difference(trained(c, str(run)), "bare", "task")
    assert found["difference over orders, by task"]["bare, 4 orders"]["mean"]["AOPD"] == pytest.approx(mine.aopd[0])
    assert found["grid"]["replay, fraction 0.1"]["std"]["AA"] is None
    best = best_of_grid(trained(c, str(run)))["replay"]
    tried = {name: line["mean"]["AA, validation"] for name, line in found["grid"].items()}
    assert tried[best.name] == max(tried.values())


def test_published_figures_stand_beside_ours_where_the_settings_say_so(copy: Path) -> None:
    record = json.loads((copy / "run.json").read_text())
    assert record["config"]["evaluation"]["paper"] is None
    chosen = [argument for each in (*EVERYTHING, "evaluation.paper=ucla") for argument in ("--set", each)]
    assert cli.call(["run", "skeleton", "--config", "tiny", "--out", str(copy), "--quiet", *chosen]) == 0
    lines = api.scores(str(copy))["difference over orders, by task"]
    assert lines["bare, Table 2"]["mean"] == pytest.approx({"AOPD": 0.9674, "MOPD": 1.0})
    assert lines["bare, Table 2"]["std"]["AOPD"] == pytest.approx(0.0072)
    assert "joint, Table 2" not in lines


def test_report_shows_it_all(run: Path) -> None:
    page = (run / "report.html").read_text()
    for words in (
        "Continual skeleton graphs",
        "What the tensors hold",
        "Order sensitivity",
        "Architecture sensitivity",
        "Grids",
        "bound for 5 tasks",
        "over all classes",
        "DRAWN",
    ):
        assert words in page
    assert page.count("<svg") + page.count("data:image/svg") >= 10


@pytest.mark.parametrize(
    ("overrides", "asked", "says"),
    [
        ((), {"methods": ["ewcc"]}, "no method 'ewcc'"),
        ((), {"methods": ["ewc"]}, "no method 'ewc': there are bare, replay, joint"),
        ((), {"protocols": ["task_orders"]}, "did you mean 'task_order'"),
        (("evaluation.settings={replay = {share = 0.2}}",), {}, r"evaluation.settings.replay: .*fraction"),
        (("evaluation.task_orders=121",), {"protocols": ["task_order"]}, "evaluation.task_orders = 121"),
        (("evaluation.class_orders=11",), {"protocols": ["class_order"]}, "evaluation.class_orders = 11: the run wrote 10"),
        (("evaluation.settings={ewc = {strength = 1}}", 'evaluation.methods=["ewc", "lwf"]'), {}, "evaluation.settings.lwf: "),
    ],
)
def test_what_does_not_fit_is_told(run: Path, overrides: tuple[str, ...], asked: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        skeleton_runs.evaluate(settings("tiny", *overrides), str(run), **asked)


def test_without_a_data_set_nothing_is_trained(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="no data set yet"):
        skeleton_runs.evaluate(settings("tiny"), str(tmp_path))


@pytest.mark.parametrize(("name", "paper"), [(None, "ucla"), ("ntu", "ntu")])
def test_packaged_settings_are_the_paper_s(name: str | None, paper: Any) -> None:
    e = settings(name).evaluation
    assert e.paper == paper
    for method in e.methods:
        assert e.settings.get(method, {}) == BEST[paper][method]
        assert {key: tuple(values) for key, values in e.grid.get(method, {}).items()} == GRIDS[method]
    assert (e.architectures.widths, e.architectures.depths) == ([32, 64, 128, 256, 512], [1, 2, 4, 8, 16])
    assert set(table_2("task", paper)) == set(table_2("class", paper)) == set(e.methods)


def test_table_2_has_the_figures_that_66_test_sequences_a_class_allow() -> None:
    # A task of NTU-CIL has 132 test sequences: an MOPD without deviation is a multiple of 1/132.
    for one in table_2("task", "ntu").values():
        if not one.mopd_std_percent:
            assert one.mopd_percent == pytest.approx(round(one.mopd_percent * 1.32) / 1.32, abs=0.005)
    assert min(table_2("task", "ucla").values(), key=lambda one: one.aopd_percent).aopd_percent == 58.21
