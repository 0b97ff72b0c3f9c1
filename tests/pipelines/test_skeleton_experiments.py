"""Experiments on skeleton streams, on the tiny configuration: trained through the engine, measured, told in a report."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation.nested import flat
from benchwright.curation.reachable_code import reached
from benchwright.datasets.skeleton.facts import table_2, table_3
from benchwright.datasets.skeleton.orders import task_orders
from benchwright.datasets.skeleton.view import load_arrays
from benchwright.eval.metrics.order_sensitivity import TABLE_2_DDOF, forgetting_bound, order_difference
from benchwright.eval.results import RESULTS, Line, lines
from benchwright.pipelines import api, config, experiments, training_results
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.skeleton import baselines
from benchwright.pipelines.skeleton import paper as skeleton_paper
from benchwright.pipelines.skeleton import series as skeleton_series
from benchwright.pipelines.skeleton.config import SkeletonConfig, training_settings
from benchwright.pipelines.skeleton.learning import learn_orders, node_stream
from benchwright.pipelines.skeleton.order_scores import order_scores
from benchwright.pipelines.skeleton.paper import data_differs
from benchwright.pipelines.skeleton.series import (
    best_of_grid,
    by_repeat,
    default_matrices,
    last,
    learned_orders,
    of_experiment,
    over_orders,
    repeats_of,
    tasks_of,
)
from benchwright.pipelines.skeleton.training_sections import as_in, grid_section
from benchwright.training.methods.registry import METHODS

from tests.training.graph_settings import BEST, GRIDS, PAPER

from .pages import faults

pytestmark = pytest.mark.usefixtures("blank_figures")

SHORT = "evaluation.schedule.epochs=10"
"""A third of the tiny settings' epochs, after which methods differ as they do then."""

EVERYTHING = (
    SHORT,
    'evaluation.experiments=["default", "task_order", "class_order", "architecture", "grid"]',
    "evaluation.grid={er = {fraction = [0.1, 0.2]}}",
    'evaluation.architectures.methods=["finetune"]',
    "evaluation.task_orders=4",
    "evaluation.class_orders=2",
)


def settings(name: str | None, *overrides: str) -> SkeletonConfig:
    if name == "tiny":
        overrides = (SHORT, *overrides)
    return config.load(SkeletonConfig, config.find_config("skeleton", name), overrides, benchmark="skeleton")[0]


def digests(out: Path) -> dict[str, str]:
    return {stage["name"]: stage["digest"] for stage in api.show(str(out / "experiments"))["stages"]}


def train(c: SkeletonConfig, out: Path, *methods: str, on: tuple[str, ...] = (), **how: Any) -> list[str]:
    """Train by settings that the run has not recorded; the lines that were told."""
    told: list[str] = []
    experiments.run_trainings(baselines.trainings(c, str(out), methods, on), str(out), progress=told.append, **how)
    return told


def found_in(out: Path) -> list[Line]:
    return lines(training_results.results(str(out)))


def line(out: Path, protocol: str, label: str) -> Line:
    (one,) = [one for one in found_in(out) if (one.protocol, one.label) == (protocol, label)]
    return one


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with every experiment trained, and its report. Only to be read."""
    out = tmp_path_factory.mktemp("skeleton") / "run"
    chosen = [argument for each in EVERYTHING for argument in ("--set", each)]
    assert cli.call(["run", "skeleton", "--config", "tiny", "--out", str(out), "--quiet", *chosen]) == 0
    assert cli.call(["train", str(out), "--quiet"]) == 0  # not by --train, which writes the report once more
    assert {each.protocol for each in found_in(out) if each.method == "joint"} == {"default"}  # not in several orders
    ordered = ("--protocol", "task_order", "--protocol", "class_order")
    assert cli.call(["train", str(out), "--method", "joint", *ordered]) == 0
    assert cli.call(["report", str(out)]) == 0
    return out


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_every_order_is_there_once_and_under_the_bound(run: Path) -> None:
    found = found_in(run)
    assert {(one.protocol, len(one.runs)) for one in found} == {
        ("default", 1),
        ("task_order", 4),
        ("class_order", 2),
        ("architecture", 1),
        ("grid", 1),
    }
    assert [one.label for one in of_experiment(found, "grid")] == ["er, method.fraction = 0.1", "er, method.fraction = 0.2"]
    shapes = [(one.settings["model.width"], one.settings["model.depth"]) for one in of_experiment(found, "architecture")]
    assert shapes == [(8, 2), (16, 2), (16, 1)]
    for one in found:
        assert sorted(int(each) for task in tasks_of(one) for each in task.split("+")) in (list(range(10)), [])
        told = [last(one, name)["value"].to_pylist() for name in ("aa", "af_from_best", "bound", "bound_own")]
        for aa, forgotten, bound, own in zip(*told, strict=True):
            assert forgotten <= own + 1e-12 <= bound + 2e-12
            assert bound == pytest.approx(float(forgetting_bound(aa, 5)))
    assert tasks_of(line(run, "task_order", "finetune")) == ["0+1", "2+3", "4+5", "6+7", "8+9"]
    rows = last(line(run, "task_order", "finetune"), "accuracy").to_pylist()
    orders = {one: [row["tested"] for row in rows if row["order"] == one] for one in {row["order"] for row in rows}}
    assert len({tuple(order) for order in orders.values()}) == 4
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1  # the same tasks in other orders


@pytest.mark.parametrize("start", ["finetune", "scratch"])
def test_order_sensitivity_does_not_apply_to_joint_training_as_in_the_paper(start: str) -> None:
    """Section 5.1: JOINT, which is replay of all samples there, was not trained for these experiments."""
    one = Line("task_order", "joint", "gcn", {"method.start": start}, "joint", pa.table({}))
    assert not skeleton_series.depends_on_orders(one)
    assert skeleton_series.depends_on_orders(dataclasses.replace(one, method="er"))


@pytest.mark.parametrize("asked", [[], ["task_order"], ["default", "class-order"]])
def test_settings_with_nothing_to_train_are_refused(run: Path, asked: list[str]) -> None:
    c = settings("tiny", 'evaluation.methods=["joint"]', 'evaluation.experiments=["task_order"]')
    with pytest.raises(WrongUse) as told:
        baselines.trainings(c, str(run), [], asked)
    assert str(told.value) == "joint is not trained in several orders, as in the paper: add --method joint, or another method"
    assert baselines.trainings(c, str(run), ["joint"], asked)
    beside = settings("tiny", 'evaluation.methods=["joint"]')  # experiments default and task_order
    assert [one.protocol for one in baselines.trainings(beside, str(run), [], [])] == ["default"]


def test_a_shared_beginning_is_the_same_whatever_is_trained_beside_it(run: Path) -> None:
    for method in ("finetune", "er", "joint"):
        pair = [default_matrices(line(run, experiment, method)) for experiment in ("task_order", "default")]
        np.testing.assert_array_equal(*pair)
    # The tiny network is of width 16 and depth 2.
    swept = line(run, "architecture", "finetune, model.depth = 2, model.width = 16")
    np.testing.assert_array_equal(default_matrices(swept), default_matrices(line(run, "default", "finetune")))
    # What joint has learned in the end does not depend on the order: it is outside of order sensitivity.
    one, *others = (each.classes for each in learned_orders(line(run, "task_order", "joint")))
    assert others
    assert all(each == one for each in others)
    assert {each.method for each, _ in over_orders(found_in(run), "task")} == {"finetune", "er"}
    # Joint forgets less than what does nothing against it.
    assert (
        by_repeat(line(run, "task_order", "joint"), "aa").mean() > by_repeat(line(run, "task_order", "finetune"), "aa").mean()
    )


def test_each_order_is_a_run_of_its_own_or_has_the_draw_of_its_repeat(run: Path, copy: Path) -> None:
    shutil.rmtree(copy / "experiments")
    chosen = "evaluation.draws=per_order", "evaluation.orders_per_part=3"
    train(settings("tiny", *chosen, "evaluation.task_orders=4"), copy, "finetune", "er", on=("task_order",))
    for name in ("finetune", "er"):
        shared, own = (learned_orders(line(out, "task_order", name)) for out in (run, copy))
        assert [one.tasks for one in shared] == [one.tasks for one in own]
        same = [one.classes == other.classes for one, other in zip(shared, own, strict=True)]
        assert same[0], "the default order has the draw of its repeat"
        assert not all(same[1:])
    # Fewer orders, in other parts, are the same runs.
    train(settings("tiny", *chosen[:1], "evaluation.task_orders=3"), copy, "er", on=("task_order",))
    few, many = (
        {one.number: one.classes for one in learned_orders(line(copy, "task_order", f"er, orders = {count}"))}
        for count in (3, 4)
    )
    assert few.items() < many.items()


def test_parts_and_processes_change_nothing(run: Path, copy: Path) -> None:
    before = digests(run)
    shutil.rmtree(copy / "experiments")
    c = settings("tiny", "evaluation.task_orders=4", "evaluation.orders_per_part=2")
    train(c, copy, "finetune", on=("task-order",), scheduler="processes", workers=2)
    made = digests(copy)
    assert made.items() <= before.items()
    (stage,) = [name for name in made if name.startswith("learned_")]
    parts = [len(list((folder / "experiments" / "stages" / stage).glob("part-*.parquet"))) for folder in (copy, run)]
    assert parts == [2, 1]
    assert api.verify(str(copy / "experiments")) == []


def test_a_run_that_was_cut_goes_on_and_trains_no_more_than_it_must(run: Path, copy: Path) -> None:
    shutil.rmtree(copy / "experiments")
    c = settings("tiny", "evaluation.task_orders=4", "evaluation.orders_per_part=1")
    told: list[str] = []

    def stop(told_line: str) -> None:
        told.append(told_line)
        if "3 of 4 orders" in told_line:
            raise KeyboardInterrupt

    chosen = baselines.trainings(c, str(copy), ["er"], ["task_order"])
    with pytest.raises(KeyboardInterrupt):
        experiments.run_trainings(chosen, str(copy), progress=stop)
    assert told[-1].startswith("task_order er, seed 0: 3 of 4 orders, ")
    assert told[-1].endswith(" a minute")
    (stage,) = (copy / "experiments" / "stages").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in stage.glob("part-*.parquet")}
    assert len(before) == 2
    train(c, copy, "er", on=("task_order",))
    after = {path.name: path.stat().st_mtime_ns for path in stage.glob("part-*.parquet")}
    assert len(after) == 4
    assert before.items() <= after.items()
    assert digests(copy).items() <= digests(run).items()


def test_an_experiment_with_nothing_to_train_is_wrong_use(run: Path) -> None:
    with pytest.raises(WrongUse, match="experiment 'grid': the settings name nothing to train for finetune"):
        baselines.trainings(settings("tiny"), str(run), ["bare"], ["grid"])


def test_a_setting_of_one_method_makes_no_other_again_and_stands_beside_the_old_one(run: Path, copy: Path) -> None:
    c = settings("tiny", "evaluation.task_orders=4", "evaluation.settings={replay = {fraction = 0.5}}")
    told = train(c, copy, on=("default",))
    states = [each.rpartition(": ")[2] for each in told if each.endswith(("up to date", "trained"))]
    assert sorted(states) == ["trained", "up to date", "up to date"]
    assert digests(run).items() <= digests(copy).items()
    labels = [one.label for one in of_experiment(found_in(copy), "default")]
    assert labels == ["finetune", "er, method.fraction = 0.2", "joint", "er, method.fraction = 0.5"]
    # Task orders of the old setting stay as they are, under their own setting.
    assert line(copy, "task_order", "er").settings["method.fraction"] == 0.2


def test_more_orders_stand_beside_fewer_and_are_told_as_one(run: Path, copy: Path) -> None:
    train(settings("tiny", "evaluation.task_orders=2"), copy, "finetune", on=("task_order",))
    labels = [one.label for one in of_experiment(found_in(copy), "task_order")]
    assert sorted(labels) == ["er", "finetune, orders = 2", "finetune, orders = 4", "joint"]
    before, after = ([(o.label, d) for o, d in over_orders(found_in(out), "task")] for out in (run, copy))
    assert [label for label, _ in after] == ["finetune", "er"]
    assert before[0][1].orders in (after[0][1].orders, 4)


def test_a_further_repeat_is_another_draw_and_leaves_the_first(copy: Path) -> None:
    told = train(settings("tiny", "evaluation.repeats=2"), copy, "finetune", on=("default",))
    assert "default finetune, seed 0: up to date" in told
    finetune = line(copy, "default", "finetune")
    assert repeats_of(finetune) == 2
    one, other = default_matrices(finetune)
    assert not np.array_equal(one, other, equal_nan=True)
    first, second = finetune.values("aa", split="test")
    assert by_repeat(finetune, "aa").std(ddof=1) == pytest.approx(abs(first - second) / np.sqrt(2))


def test_differences_over_orders_have_the_deviation_of_table_2(copy: Path) -> None:
    c = settings("tiny", "evaluation.repeats=2", "evaluation.task_orders=4")
    train(c, copy, "finetune", on=("task_order",))
    aopd = next(over.difference.aopd for one, over in over_orders(found_in(copy), "task") if one.method == "finetune")
    assert len(set(aopd.tolist())) == 2
    (told,) = (
        scores
        for label, scores in order_scores(c, str(copy))["difference over orders, by task"].items()
        if label.startswith("finetune")
    )
    assert told["std"]["AOPD"] == pytest.approx(abs(aopd[0] - aopd[1]) / 2)  # divided by n; by n - 1 it were / sqrt(2)
    page = Path(api.report(str(copy))).read_text()
    assert "divided by n as in Table 2" in page


def test_an_edit_of_one_method_reaches_that_one_alone() -> None:
    place = "benchwright.training.methods"
    own = {name: METHODS.builtin[name] for name in BEST["ucla"]}
    files = {reference.partition(":")[0] for reference in own.values()}
    assert not files & set(reached(learn_orders).definitions)
    for reference in own.values():
        mine = set(reached(reference).definitions)
        file = reference.partition(":")[0]
        assert file in mine
        assert files & mine <= {file, f"{place}.finetune"}  # which has the rule of those without a memory


HELD = """
from benchwright.training.methods.finetune import present
from benchwright.training.methods.method import Method

def held(*, strength=0.5):
    def teach(lesson):
        def loss(step):
            if lesson.teacher is None:
                return step.classification()
            old = lesson.teacher(step.batch.x).detach()
            return step.classification() + strength * (step.logits[:, : lesson.old_classes] - old).square().mean()
        lesson.fit(loss)
    return Method("held", present, "finetune", {"strength": strength}, teach)
"""
PULLED = """
from benchwright.training.methods.finetune import present
from benchwright.training.methods.method import Method

def pulled(*, strength=0.01):
    def teach(lesson):
        start = {name: value.detach().clone() for name, value in lesson.parameters().items()}
        def loss(step):
            apart = [(value - start[name]).square().sum() for name, value in lesson.parameters().items()]
            return step.classification() + strength * sum(apart)
        lesson.fit(loss)
    return Method("pulled", present, "finetune", {"strength": strength}, teach, learners=("streams",))
"""
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, adjacency, inputs, width, init):
        super().__init__()
        self.width = width
        self.register_buffer("adjacency", adjacency / adjacency.sum(1, keepdim=True))
        self.layer, self.norm = nn.Linear(inputs, width), nn.BatchNorm1d(width)
        for each in self.layer.parameters():
            nn.init.uniform_(each, -0.1, 0.1, generator=init)

    def forward(self, x):
        return self.norm(self.layer(self.adjacency @ x).relu().mean(1))

def net(init, *, sample, adjacency, width, depth):
    return Net(adjacency, sample[1], width, init)
"""


def test_methods_and_networks_of_ones_own(copy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A method for all benchmarks, one for streams side by side, and a network: trained, and trained again where edited."""
    shutil.rmtree(copy / "experiments")
    methods = [tmp_path / "own_held.py", tmp_path / "own_pulled.py"]
    for path, text in zip(methods, (HELD, PULLED), strict=True):
        path.write_text(text)
    asked = [f"{path}:{path.stem.removeprefix('own_')}" for path in methods]
    arguments = ["train", str(copy), "--protocol", "default", *(word for name in asked for word in ("--method", name))]
    assert cli.call([*arguments, "--method", "agem"]) == 0
    told = capfd.readouterr()
    assert [each for each in told.err.splitlines() if each.endswith("trained")] == [
        "default own_held.py:held, seed 0: trained",
        "default own_pulled.py:pulled, seed 0: trained",
        "default agem, seed 0: trained",
    ]
    assert "own_held.py:held" in told.out
    held = line(copy, "default", "own_held.py:held")
    assert default_matrices(held).shape == (1, 5, 5)
    assert held.matrix("accuracy", ["0+1"])[0, 0, 0] > 0.5
    assert held.settings["schedule.epochs"] == 10
    before = digests(copy)
    methods[0].write_text(HELD.replace("strength * (", "100 * strength * ("))
    assert cli.call(["eval", str(copy)]) == 0
    assert "own_held.py:held" not in capfd.readouterr().out
    assert cli.call(arguments) == 0
    told = capfd.readouterr()
    assert "default own_pulled.py:pulled, seed 0: up to date" in told.err
    assert "default own_held.py:held, seed 0: stale: own_held.held changed" in told.err
    after = digests(copy)
    changed = {name.partition("_default_")[2][:8] for name in after if after[name] != before[name]}
    assert changed == {"own_held"}
    assert cli.call(["report", str(copy)]) == 0
    assert "own_held.py:held" in (copy / "report.html").read_text()
    assert api.verify(str(copy / "experiments")) == []

    (tmp_path / "own_net.py").write_text(NET)
    c = settings("tiny", f'evaluation.network.architecture="{tmp_path}/own_net.py:net"', "evaluation.schedule.epochs=30")
    with pytest.raises(WrongUse, match=r"method 'twp' computes attention .*own_net.py:net' has none: name gcn or st_gcn"):
        baselines.trainings(c, str(copy), ["twp"], ["default"])
    train(c, copy, "finetune", "agem", "joint", on=("default",))
    mine = {one.method: one for one in of_experiment(found_in(copy), "default") if one.model == "own_net.py:net"}
    assert set(mine) == {"finetune", "agem", "joint"}
    assert by_repeat(mine["joint"], "aa").mean() > by_repeat(mine["finetune"], "aa").mean()


CONFUSED = """
def confused(predictions):
    "Share of the errors at the end that name a class of the last task."
    (test,) = [each for each in predictions.tests if each.split == "test"]
    guess, known = predictions.predicted(len(predictions.positions), test), predictions.positions[-2].known
    return float((guess[guess != test.labels] >= known).mean())
"""


def test_a_new_metric_of_predictions_trains_nothing_again(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "own_metric.py").write_text(CONFUSED)
    before = digests(copy)
    c = settings("tiny", "evaluation.task_orders=4", f'evaluation.metrics=["{tmp_path}/own_metric.py:confused"]')
    told = train(c, copy, "finetune", on=("task_order",))
    assert told == ["task_order finetune, seed 0: up to date"]
    assert {name for name in digests(copy) if name not in before} == {
        name.replace("learned_", "measured_") + "_own_0" for name in before if "learned_task_order_finetune" in name
    }
    (value,) = line(copy, "task_order", "finetune").select("confused")["value"].to_pylist()
    assert 0.5 < value <= 1  # what learns without a memory names what it has just learned


def test_a_method_of_all_benchmarks_learns_each_order_by_itself(copy: Path) -> None:
    shutil.rmtree(copy / "experiments")
    c = settings("tiny", "evaluation.task_orders=2", "evaluation.class_orders=1", "evaluation.schedule.epochs=2")
    train(c, copy, "cumulative", "icarl", on=("task_order", "class_order"))
    assert {(one.protocol, one.method, len(one.runs)) for one in found_in(copy)} == {
        (kind, method, count) for kind, count in (("task_order", 2), ("class_order", 1)) for method in ("cumulative", "icarl")
    }
    by_class = {one.method: difference for one, difference in over_orders(found_in(copy), "class")}
    assert {name: (each.orders, len(each.names)) for name, each in by_class.items()} == {
        "cumulative": (3, 10),
        "icarl": (3, 10),
    }
    rows = last(line(copy, "class_order", "icarl"), "accuracy")
    assert sorted(int(each) for name in rows["tested"].to_pylist() for each in name.split("+")) == list(range(10))


def test_a_model_that_learns_one_order_has_a_seed_for_each_order_too(run: Path) -> None:
    def seeds(c: SkeletonConfig) -> list[int]:
        chosen = baselines.trainings(c, str(run), ["cumulative"], ["task_order", "class_order"])
        return [node_stream(str(run / "dataset"), "", each.facts()).seed or each.seed for each in chosen]

    few = "evaluation.task_orders=2", "evaluation.class_orders=1", "evaluation.repeats=2"
    assert seeds(settings("tiny", *few)) == [0, 0, 1, 1, 0, 1]
    first, second, *others = seeds(settings("tiny", *few, "evaluation.draws=per_order"))
    assert (first, others[0]) == (0, 1)  # the default order of each repeat
    assert len({first, second, *others}) == 6


@pytest.mark.parametrize("network", ["gcn", "st_gcn"])
def test_what_a_second_body_does_is_learned(tmp_path: Path, network: str) -> None:
    """The first body of every sequence is noise, and the class what the second does; in streams, and one order at a time."""
    draw = np.random.default_rng(0)
    for number, name in enumerate(("grasp", "point", "wave")):
        (tmp_path / "two" / name).mkdir(parents=True)
        for sequence in range(12):
            joints = 0.3 * draw.normal(size=(6, 2, 4, 3))
            joints[:, 1, :, number] += 3
            np.save(tmp_path / "two" / name / f"{sequence}.npy", joints)
    (tmp_path / "two.toml").write_text(
        f"""
extends = "tiny"
classes = "all"
source = {{ kind = "folders", root = "{tmp_path / "two"}" }}
layout = {{ kind = "declared", name = "hand", joints = ["a", "b", "c", "d"], edges = [[0, 1], [0, 2], [0, 3]], centre = 0 }}
tensor = {{ fit = "pad", scale = "none", frames = 6, bodies = 2 }}
[split]
classes_per_task = 1
test = 0.4
[orders]
tasks = 3
classes = 1
[evaluation]
methods = ["joint", "cumulative"]
experiments = ["default"]
[evaluation.network]
architecture = "{network}"
"""
    )
    out = tmp_path / "run"
    assert cli.call(["run", "skeleton", "--config", str(tmp_path / "two.toml"), "--out", str(out), "--train", "--quiet"]) == 0
    found = {one.method: float(by_repeat(one, "aa").mean()) for one in found_in(out)}
    assert found.keys() == {"joint", "cumulative"}
    assert min(found.values()) > 0.75


def test_a_training_that_diverges_is_a_reject_and_the_others_go_on(copy: Path) -> None:
    shutil.rmtree(copy / "experiments")
    few = "evaluation.task_orders=4", "evaluation.orders_per_part=2", "evaluation.schedule.epochs=30"
    c = settings("tiny", "evaluation.settings={ewc = {strength = 1e38}}", *few)
    with pytest.raises(experiments.Diverged, match=r"2 trainings failed: task_order ewc, seed 0: weights are not finite"):
        train(c, copy, "ewc", "finetune", on=("task_order",))
    assert [one.method for one in found_in(copy)] == ["finetune"]
    assert {row["reason"] for row in api.rejects(str(copy / "experiments"))} == {"diverged"}


def test_results_tell_what_the_memory_held(run: Path) -> None:
    """After each task of each order: the share of every task so far, and nothing of a method without a memory."""
    arrays = load_arrays(str(run / "dataset"))
    sizes = np.bincount(arrays.labels[arrays.roles == "train"])
    for one in of_experiment(found_in(run), "task_order"):
        rows = one.select("accuracy").sort_by([("order", "ascending"), ("position", "ascending")]).to_pylist()
        held = {(row["order"], row["position"]): (row["memory_samples"], row["memory_parts"]) for row in rows}
        if one.method != "er":
            assert set(held.values()) == {(None, None)}
            continue
        learned = {(row["order"], row["position"], row["tested"]) for row in rows}
        for (order, position), (samples, parts) in held.items():
            tasks = [tested for o, p, tested in learned if (o, p) == (order, position)]
            share = one.settings["method.fraction"]
            assert samples == parts == sum(int(share * sum(sizes[int(c)] for c in task.split("+"))) for task in tasks)
    assert "er" in {one.method for one in of_experiment(found_in(run), "task_order")}
    assert pq.read_table(run / "experiments" / "results.parquet").equals(training_results.results(str(run)))


def test_tables_are_printed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["eval", str(run)]) == 0
    told = capfd.readouterr().out
    for words in ("task_order", "AF from best", "difference over orders, by task", "er, 4 orders", "finetune, 6 orders"):
        assert words in told
    assert "joint, 4 orders" not in told  # whose end no order changes
    assert "Table 2" not in told  # drawn sequences are not the paper's
    assert cli.call(["eval", str(run), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    mine = {one.method: difference for one, difference in over_orders(found_in(run), "task")}["finetune"]
    assert found["difference over orders, by task"]["finetune, 4 orders"]["mean"]["AOPD"] == pytest.approx(
        mine.difference.aopd[0]
    )
    assert found["grid"]["er, method.fraction = 0.1"]["std"]["AA"] is None
    best = best_of_grid(found_in(run))["er", "gcn 2 x 16"]
    tried = {name: each["mean"]["AA, validation"] for name, each in found["grid"].items()}
    assert tried[best.label] == max(tried.values())


def test_published_figures_stand_beside_no_other_data(copy: Path) -> None:
    """Whatever the settings of today say: the record of this run says that its sequences are drawn."""
    chosen = [argument for each in (*EVERYTHING, "evaluation.paper=ucla") for argument in ("--set", each)]
    assert cli.call(["run", "skeleton", "--config", "tiny", "--out", str(copy), "--quiet", *chosen]) == 0
    told = api.scores(str(copy))["difference over orders, by task"]
    assert not [label for label in told if "Table 2" in label]
    assert cli.call(["report", str(copy)]) == 0
    assert "Not a fair comparison: source.kind" in (copy / "report.html").read_text()


@pytest.mark.parametrize(("name", "paper"), [(None, "ucla"), ("ntu", "ntu")])
def test_the_papers_data_are_told_by_settings_and_number_of_sequences(run: Path, name: str | None, paper: str) -> None:
    def unlike(*overrides: str) -> str:
        path = config.find_config("skeleton", name)
        c, values, _ = config.load(SkeletonConfig, path, overrides, benchmark="skeleton")
        return data_differs(c, str(run), values)

    count, frames = ("1,484", 52) if paper == "ucla" else ("6,667", 300)
    assert unlike() == f"it has 200 sequences instead of {count}"
    assert unlike("tensor.frames=20") == f"tensor.frames = 20 instead of {frames}"
    assert unlike("split.val=0.2") == "split.val = 0.2 instead of 0.1"
    assert unlike('source={kind="drawn", per_class=9, noise_m=0.1}').startswith("source.kind = 'drawn'")


def test_published_figures_stand_beside_the_papers_settings_alone() -> None:
    c = settings(None)

    def why(method: str = "ewc", model: str = "gcn", orders: int = 120, repeats: int = 5, **changed: Any) -> str:
        told = flat(training_settings(c.evaluation, method, {}, 64, 2)) | {"orders": 120, "seed": 3, "task_orders": "all"}
        told |= {"draws": "per_order"}
        one = Line("task_order", method, model, {**told, **changed}, method, pa.table({}))
        over = skeleton_series.OverOrders(["0", "1"], order_difference([[[1.0, 0.5], [0.75, 0.5]]] * repeats), orders)
        series = skeleton_series.Series(method, method, (one,), one.settings)
        return skeleton_paper.why_not_the_papers(c, series, over, "task")

    def beside(*arguments: Any, **changed: Any) -> bool:
        return not why(*arguments, **changed)

    assert beside()
    assert beside(repeats=6)
    assert why(repeats=4) == "Table 2 is the mean over 5 repeats, and 4 of these have every order"
    assert why(draws="per_repeat").startswith("the orders of a repeat share initial weights and memories")
    assert beside("er")
    assert not beside(orders=6), "differences over fewer orders are smaller"
    assert not beside("joint")  # which Table 2 does not have
    assert not beside(model="st_gcn")
    assert not beside(**{"method.strength": 100.0})
    assert not beside(**{"schedule.epochs": 50})
    assert not beside(**{"model.readout": "sum_max"})
    assert table_2("task", "ucla")["finetune"].aopd_percent == 96.74


def test_captions_name_the_papers_figures() -> None:
    def named(preset: str | None, model: str, what: str) -> str:
        return as_in(settings(preset), model, what)

    assert named(None, "gcn", "task") == "as in Figure 3 (a) of the paper"
    assert named("ntu_st_gcn", "st_gcn", "both") == "as in Figure 6 (b) of the paper"
    assert named(None, "gcn", "depth") == "as in Figure 8 of the paper"
    assert named("ntu", "gcn", "depth") == ""  # which it has of UCLA-CIL alone
    assert named("tiny", "gcn", "both") == "as in Figure 5 of the paper"


def test_table_3_marks_settings_of_the_papers_trainings_alone() -> None:
    c = settings(None)

    def marked(data: str = "", model: str = "gcn", epochs: int | None = None) -> list[Any]:
        found: list[Line] = []
        for size in (100, 10):
            told = flat(training_settings(c.evaluation, "er", table_3("ucla")["er"], 64, 2)) | {"orders": 1, "seed": 0}
            told |= {f"method.{name}": size for name in table_3("ucla")["er"] if size == 10}
            told |= {} if epochs is None else {"schedule.epochs": epochs}
            facts = {
                "benchmark": "b",
                "dataset": "d",
                "experiment": str(size),
                "protocol": "grid",
                "method": "er",
                "model": model,
            }
            facts |= {"settings": json.dumps(told), "seed": 0, "position": 4, "tested": "", "stratum": "", "order": 0}
            found += lines(pa.Table.from_pylist([{**facts, "metric": "aa", "split": "val", "value": 0.5}], schema=RESULTS))
        table = grid_section(c, found, data).blocks[1]
        return [row[table.columns.index("Table 3")] for row in table.rows] if "Table 3" in table.columns else []

    assert marked() == ["best", None]
    assert marked(data="other sequences") == []
    assert marked(model="st_gcn") == []
    assert marked(epochs=1) == []


def test_report_shows_it_all(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert faults(page) == []
    for words in (
        "Continual skeleton graphs",
        "Order sensitivity",
        "Architecture sensitivity",
        "Grids",
        "bound for 5 tasks",
        "over all classes",
        "SYNTHETIC",
    ):
        assert words in page
    assert page.count("<svg") + page.count("data:image/svg") >= 10
    assert "AOPD of er" in page or "AOPD of finetune" in page
    assert "AOPD of joint" not in page
    of_orders = page.partition("Order sensitivity</h2>")[2].partition("<h2")[0]
    assert "Means over task orders" in of_orders
    assert "finetune" in of_orders
    assert "joint" not in of_orders  # whose end no order changes; its accuracy stands under the default order
    assert "joint" in page
    assert "as in Figure 1 of the paper" in page
    assert "as in Figure 3 of the paper" in page
    assert "as in Figure 5 of the paper" in page
    assert "evaluation.paper" not in page  # it names none, and nobody asked for a comparison
    files = {path.name: list(csv.reader(path.open())) for path in (run / "report_tables").glob("*.csv")}
    assert all(f"report_tables/{name}" in page for name in files)
    first, both, *_, classes = (
        files[f"order-sensitivity-{n}.csv"] for n in range(1, 10) if f"order-sensitivity-{n}.csv" in files
    )
    points = [(row["order"], row["value"]) for row in last(line(run, "task_order", "er"), "aa").to_pylist()]
    assert first[0] == ["method", "orders of", "order", "AA", "AF"]
    assert sorted(float(row[3]) for row in first[1:] if row[0] == "er") == sorted(value for _, value in points)
    assert [row[1] for row in both[1:] if row[0] == "finetune"] == ["task orders"] * 4 + ["class orders"] * 2
    assert classes[0][0] == "class"
    assert len(classes) == 11


def test_two_networks_stand_side_by_side(copy: Path) -> None:
    few = ("evaluation.network.architecture=st_gcn", "evaluation.network.width=4", "evaluation.schedule.epochs=1")
    before = [(one.protocol, one.label) for one in found_in(copy) if one.protocol == "task_order"]
    train(settings("tiny", *few, "evaluation.task_orders=2"), copy, "er", "twp", on=("task_order",))
    found = of_experiment(found_in(copy), "task_order")
    assert [one.label for one in found if one.method == "er"] == ["er, model = gcn", "er, model = st_gcn"]
    assert "finetune, model = gcn" in [one.label for one in found]  # which no other network has learned by
    assert len(found) == len(before) + 2
    assert cli.call(["report", str(copy)]) == 0
    page = (copy / "report.html").read_text()
    assert faults(page) == []
    for words in (
        "gcn 2 x 16 and st_gcn 2 x 4",
        "task orders by gcn 2 x 16",
        "task orders by st_gcn 2 x 4",
        "Figure 4 of the paper",
    ):
        assert words in page
    assert list(best_of_grid(found_in(copy))) == [("er", "gcn 2 x 16")]
    # Task orders of both networks, class orders of one: in the plot of both kinds a method of a network has one name.
    with (copy / "report_tables" / "order-sensitivity-2.csv").open() as stream:
        both = {(row["method"], row["orders of"]) for row in csv.DictReader(stream)}
    assert both == set(itertools.product(["finetune", "er"], ["task orders", "class orders"]))
    assert "gcn 2 x 16: er, class orders" in page


@pytest.mark.parametrize(
    ("overrides", "methods", "on", "says"),
    [
        ((), ["ewcc"], [], "no method 'ewcc'.*did you mean 'ewc'"),
        ((), ["ewc"], [], r"evaluation.settings.ewc: strength is missing: there are strength, "),
        ((), [], ["task_orders"], "did you mean 'task_order'"),
        (("evaluation.settings={replay = {share = 0.2}}",), [], [], r"evaluation.settings.er: .*share"),
        (("evaluation.settings={er = {fraction = 2.0}}",), [], [], r"evaluation.settings.er: fraction 2.0"),
        (("evaluation.task_orders=121",), [], ["task_order"], "evaluation.task_orders = 121"),
        (("evaluation.class_orders=11",), [], ["class_order"], "evaluation.class_orders = 11: the run wrote 10"),
        (
            ("evaluation.settings={ewc = {strength = 1}}", 'evaluation.methods=["ewc", "lwf"]'),
            [],
            [],
            "evaluation.settings.lwf: ",
        ),
        (("evaluation.network.architecture=gnc",), [], [], "evaluation.network.architecture = 'gnc': no model 'gnc'"),
        (
            ("evaluation.network.architecture=mlp",),
            [],
            [],
            "evaluation.network: it does not accept adjacency, which samples of this dataset have: name another model",
        ),
        ((), ["nowhere.py:method"], [], "nowhere.py.*no such file"),
    ],
)
def test_what_does_not_fit_is_told(run: Path, overrides: tuple[str, ...], methods: list[str], on: list[str], says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        baselines.trainings(settings("tiny", *overrides), str(run), methods, on)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (['evaluation.methods=["ewc"]'], "evaluation.settings.ewc: strength is missing"),
        (['evaluation.experiments=["class_order"]', "evaluation.class_orders=11"], "orders.classes = 10 are listed"),
        (['evaluation.methods=["twp"]', "evaluation.network.architecture=OWN"], "method 'twp' computes attention"),
        (["evaluation.network.architecture=st_gcn", "evaluation.network.settings={form='chen'}"], "evaluation.network: form"),
    ],
)
def test_baselines_that_do_not_fit_are_told_before_anything_is_made(tmp_path: Path, overrides: list[str], says: str) -> None:
    (tmp_path / "own_net.py").write_text(NET)
    changed = [each.replace("OWN", f"{tmp_path}/own_net.py:net") for each in overrides]
    with pytest.raises(WrongUse, match=says):
        api.run(api.job("skeleton", config="tiny", overrides=changed), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_without_a_data_set_nothing_is_trained(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="no dataset yet"):
        baselines.trainings(settings("tiny"), str(tmp_path), [], [])


@pytest.mark.parametrize(("name", "paper"), [(None, "ucla"), ("ntu", "ntu")])
def test_packaged_settings_are_the_paper_s(name: str | None, paper: Any) -> None:
    e = settings(name).evaluation
    assert e.paper == paper
    assert e.settings["joint"] == {"start": "finetune"}
    for method in e.methods:
        assert method == "joint" or e.settings.get(method, {}) == BEST[paper][method]
        assert {key: tuple(values) for key, values in e.grid.get(method, {}).items()} == GRIDS[method]
    assert {"widths": e.architectures.widths, "depths": e.architectures.depths} == PAPER["sensitivity"]
    told = PAPER["training"]
    assert (e.network.width, e.network.depth) == (told["width"], told["depth"])
    assert (e.schedule.epochs, e.schedule.learning_rate) == (told["epochs"], told["learning_rate"])
    assert (len(task_orders(5)), e.class_orders) == (told["task_orders"], told["class_orders"])
    assert (e.repeats, e.draws) == (told["repeats"], "per_order")
    assert set(table_2("task", paper)) == set(table_2("class", paper)) == {*e.methods} - {"joint"}


def test_st_gcn_at_a_size_for_processors_says_what_is_not_the_papers() -> None:
    # By `extends = "published"`: what it does not say is the paper's.
    ours, papers = (flat(dataclasses.asdict(settings(name).evaluation)) for name in ("st_gcn", None))
    changed = {name for name in ours if ours[name] != papers.get(name)}
    assert changed == {
        "experiments",
        "repeats",
        "class_orders",
        "network.architecture",
        "schedule.epochs",
        "schedule.graph_batch_size",
        "settings.gem.forward",
    }
    assert set(settings("st_gcn").evaluation.methods) == set(BEST["ucla"])
    # Batches of 32 of a task's 238 training sequences, on the average: as many steps as the paper's.
    assert abs(13 * -(-238 // 32) - PAPER["training"]["epochs"]) < 5


def test_the_deviations_of_table_2_are_divided_by_n() -> None:
    """Five MOPDs of NTU-CIL are whole numbers of 132nds or 66ths, whose possible sums of squares fit one divisor alone."""

    def fits(sequences: int, mean: float, std: float, divisor: int) -> bool:
        for total in range(5 * sequences + 1):
            if round(100 * total / (5 * sequences), 2) != mean:
                continue
            least = total * total / 5
            for squares in range(math.ceil(least), math.ceil(least) + 400):
                if (squares - total) % 2 == 0:  # as of whole numbers
                    deviation = 100 * math.sqrt((squares - least) / divisor) / sequences
                    if round(deviation, 2) == std:
                        return True
        return False

    told = [(132, one) for one in table_2("task", "ntu").values()] + [(66, one) for one in table_2("class", "ntu").values()]
    spread = [(count, one.mopd_percent, one.mopd_std_percent) for count, one in told if one.mopd_std_percent]
    assert len(spread) == 8
    repeats = PAPER["training"]["repeats"]
    assert all(fits(*one, divisor=repeats - TABLE_2_DDOF) for one in spread)
    assert not any(fits(*one, divisor=repeats - 1) for one in spread)


def test_table_2_has_the_figures_that_66_test_sequences_a_class_allow() -> None:
    # A task of NTU-CIL has 132 test sequences: an MOPD without deviation is a multiple of 1/132.
    for one in table_2("task", "ntu").values():
        if not one.mopd_std_percent:
            assert one.mopd_percent == pytest.approx(round(one.mopd_percent * 1.32) / 1.32, abs=0.005)
    assert min(table_2("task", "ucla").values(), key=lambda one: one.aopd_percent).aopd_percent == 58.21
