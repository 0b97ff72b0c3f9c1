"""All that users bring, from outside of the package, through the command line: each in one file of at most 40 lines.

| case | here, and in |
| --- | --- |
| a. one method on clear, vclimb, iirc, skeleton | ``test_code_of_ones_own`` |
| b. image backbone, clip backbone | ``test_code_of_ones_own`` (iirc, vclimb) |
| c. graph network | ``test_code_of_ones_own`` (skeleton); on other methods ``test_skeleton_experiments`` |
| d. image-text encoder | ``test_code_of_ones_own`` (clear); in three forms ``test_names`` |
| e. novelty detector | ``test_code_of_ones_own`` (kowl); in processes ``test_kowl_results`` |
| f. illuminant estimator | ``test_code_of_ones_own`` (two_camera); other contracts ``test_two_camera`` |
| g. metric | ``test_another_metric_trains_nothing``; of kowl and two_camera in their files |
| h. benchmark in an installed package | ``test_a_benchmark_of_an_installed_package_has_all_that_built_in_ones_have`` |
| i. threads, processes, a cluster leave the same | ``test_workers_of_every_kind_leave_the_same`` |

Each of a to h is used by threads, by processes and by a cluster; only the encoder by processes in ``test_names``.
Each kind in all three forms of names: ``tests/pipelines/test_three_forms.py``. Each contract by itself, as the documentation
shows it: ``tests/test_extending.py``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.installed import Install
from tests.pipelines.conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

distributed = pytest.importorskip("distributed")

OUTSIDE = Path(__file__).resolve().parents[1] / "fixtures/outside"
EDITS = {
    "method": ("logits.square()", "logits.abs()"),
    "image_backbone": (".relu()", ".sigmoid()"),
    "clip_backbone": (".relu()", ".sigmoid()"),
    "graph_network": (".relu()", ".sigmoid()"),
    "encoder": ("+ 0.01\n\n", "+ 0.02\n\n"),
    "novelty": ("limit: float = 20.0", "limit: float = 15.0", "limit: float = 10.0"),
    "estimator": ("lights.mean(axis=0)", "np.median(lights, axis=0)", "lights.max(axis=0)"),
}
"""File -> a text in it, and what is put in its place, one after the other."""


class Case(NamedTuple):
    """A benchmark, the settings of its tiny run, what is trained, and which file is edited before trainings by processes, and
    which before those by a cluster.
    """

    benchmark: str
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    edits: tuple[str, str]
    protocol: str = ""


THREE = 'increments.later=[{release="second", count=1, seed=0}, {release="third", count=1, seed=1}]'
"""Increments of KOWL, of which the tiny settings have six."""

CASES = [
    Case(
        "clear",
        ("source.count=300", "encoder.kind={}/encoder.py:MeanColour", "baselines.epochs=2", "baselines.decay_after_epochs=1"),
        ("nap-finetune", "{}/method.py:calm"),
        ("method", "encoder"),
        "iid",
    ),
    Case(
        "vclimb",
        ("evaluation.model={}/clip_backbone.py:Changes", "source.classes=4", "split.tasks=2"),
        ("finetune", "{}/method.py:calm"),
        ("method", "clip_backbone"),
    ),
    Case(
        "iirc",
        (
            "evaluation.model={}/image_backbone.py:Squares",
            "evaluation.settings.model={}",
            "evaluation.settings.schedule.epochs=1",
        ),
        ("finetune", "{}/method.py:calm"),
        ("method", "image_backbone"),
    ),
    Case(
        "skeleton",
        ("evaluation.network.architecture={}/graph_network.py:Neighbours", "evaluation.schedule.epochs=2"),
        ("finetune", "{}/method.py:calm"),
        ("method", "graph_network"),
        "default",
    ),
    Case("kowl", ("evaluation.feedback=[0]", THREE), ("evm", "{}/novelty.py:FarFromMeans"), ("novelty", "novelty")),
    Case(
        "two_camera",
        ("source.pairs=60", "evaluation.networks={}"),
        ("gray_world", "{}/estimator.py:mean_light"),
        ("estimator", "estimator"),
    ),
]


METRIC = Case(
    "skeleton",
    ("evaluation.schedule.epochs=2", "evaluation.task_orders=2"),
    ("finetune", "{}/method.py:calm"),
    ("", ""),
    "task_order",
)
WORKERS = Case("clear", ("source.count=300", "baselines.epochs=2", "baselines.decay_after_epochs=1"), (), ("", ""))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's files, none of which was loaded before."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in OUTSIDE.glob("*.py"):
        (folder / file.name).write_bytes(file.read_bytes())
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
    return folder


def edit(mine: Path, name: str) -> None:
    text, texts = (mine / f"{name}.py").read_text(), EDITS[name]
    at = max(place for place, each in enumerate(texts) if each in text)
    (mine / f"{name}.py").write_text(text.replace(texts[at], texts[at + 1]))


def done(bw: Cli, *words: object) -> Any:
    told = bw(*words)
    assert told.code == 0, told.err
    return told


def run(bw: Cli, case: Case, mine: Path, out: Path, *settings: str, scheduler: str = "threads") -> None:
    words = [word for text in (*case.settings, *settings) for word in ("--set", text.replace("{}/", f"{mine}/"))]
    done(bw, "run", case.benchmark, "--config", "tiny", *words, "--out", out, "-q", "--scheduler", scheduler)


def train(bw: Cli, case: Case, mine: Path, out: Path, *words: object) -> list[str]:
    """The trainings that were made, each as it is told."""
    methods = [word for name in case.methods for word in ("--method", name.replace("{}/", f"{mine}/"))]
    protocol = ["--protocol", case.protocol] if case.protocol else []
    told = done(bw, "train", out, *methods, *protocol, *words).err
    return re.findall(r"^(.*): trained$", told, re.MULTILINE)


def digests(out: Path) -> dict[str, str]:
    """Stage of a training -> digest of what it left."""
    records = (out / "experiments/stages").glob("*/artifact.json")
    return {each.parent.name: json.loads(each.read_text())["digest"] for each in records}


def test_every_file_is_short() -> None:
    sizes = {file.name: len([line for line in file.read_text().splitlines() if line.strip()]) for file in OUTSIDE.glob("*.py")}
    assert max(sizes.values()) <= 40, sizes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="tcp://", host="127.0.0.1", dashboard_address=None, silence_logs="ERROR"
    ) as cluster:
        yield cluster


@pytest.mark.usefixtures("two_seeds")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.benchmark)
def test_code_of_ones_own(bw: Cli, case: Case, mine: Path, tmp_path: Path, cluster: Any) -> None:
    """Run, train, eval, report, verify; and after an edit what uses the edited code is trained again, and nothing else: first
    by threads, then by processes, then by a cluster.
    """
    out = tmp_path / "out"
    run(bw, case, mine, out)
    trained = train(bw, case, mine, out, "--scheduler", "threads", "--workers", 2)
    own = case.methods[1].removeprefix("{}/")
    of_own = [name for name in trained if own in name]
    assert 0 < len(of_own) < len(trained)
    assert own in done(bw, "eval", out).out
    done(bw, "report", out)
    assert own in (out / "report.html").read_text()
    done(bw, "verify", out)
    done(bw, "verify", out / "experiments")
    for name, scheduler in zip(case.edits, ("processes", cluster.scheduler_address), strict=True):
        edit(mine, name)
        if name == "encoder":  # its vectors are the dataset
            run(bw, case, mine, out, scheduler=scheduler)
        again = train(bw, case, mine, out, "--scheduler", scheduler, "--workers", 1)
        assert sorted(again) == sorted(trained if name.endswith(("backbone", "network", "encoder")) else of_own)
    assert train(bw, case, mine, out) == []


def test_another_metric_trains_nothing(bw: Cli, mine: Path, tmp_path: Path, cluster: Any) -> None:
    """On orders side by side, whose mean it is, and on one order at a time."""
    out, case = tmp_path / "out", METRIC
    run(bw, case, mine, out)
    assert len(train(bw, case, mine, out)) == 3
    found: list[Any] = []
    for factor, scheduler in ((1, "processes"), (2, "threads"), (3, cluster.scheduler_address)):  # a metric, and edits of it
        (mine / "metric.py").write_text((OUTSIDE / "metric.py").read_text().replace("float(", f"{factor} * float("))
        run(bw, case, mine, out, "evaluation.metrics=['{}/metric.py:first_at_the_end']")
        assert train(bw, case, mine, out, "--scheduler", scheduler, "--workers", 1) == []
        found.append(json.loads(done(bw, "eval", out, "--json").out)["task_order"])
    once, twice, thrice = ({name: one["mean"]["first_at_the_end"] for name, one in scores.items()} for scores in found)
    assert once.keys() == {"finetune", "method.py:calm"}
    assert twice == {name: 2 * value for name, value in once.items()}
    assert thrice == pytest.approx({name: 3 * value for name, value in once.items()})
    assert max(once.values()) > 0
    done(bw, "report", out)
    done(bw, "verify", out)
    done(bw, "verify", out / "experiments")


@pytest.mark.usefixtures("two_seeds")
def test_workers_of_every_kind_leave_the_same(bw: Cli, mine: Path, tmp_path: Path, cluster: Any) -> None:
    out, found = tmp_path / "out", list[dict[str, str]]()
    run(bw, WORKERS, mine, out)
    for scheduler in ("threads", "processes", cluster.scheduler_address):
        words = ["--method", f"{mine}/method.py:calm", "--protocol", "iid", "--scheduler", scheduler, "--workers", 2]
        done(bw, "train", out, *words)
        found.append(digests(out))
        (out / "experiments").rename(tmp_path / f"experiments{len(found)}")
    assert any(name.startswith("learned_") for name in found[0])
    assert found[0] == found[1] == found[2]


# ------------------------------------------------------------------------------------------------ a seventh benchmark


@pytest.fixture
def emblems(install: Install) -> Path:
    """The example, installed as a package with an entry point."""
    files = {"emblems_package/__init__.py": "", "emblems_package/published.toml": "count = 200\n"}
    files["emblems_package/pipeline.py"] = (OUTSIDE / "emblems.py").read_text()
    offers = {
        "benchwright.benchmarks": "emblems = emblems_package.pipeline:BENCHMARK",
        "benchwright.methods": "calmest = emblems_package.methods:calmest",
    }
    return install("emblems-package", "1.0", files, offers) / "emblems_package/pipeline.py"


def trained_in(told: str) -> list[str]:
    return re.findall(r"^(.*): trained$", told, re.MULTILINE)


def test_a_benchmark_of_an_installed_package_has_all_that_built_in_ones_have(
    bw: Cli, emblems: Path, mine: Path, tmp_path: Path, cluster: Any
) -> None:
    """Its source, its stages, shards, a round of questions, baselines, a method from outside on top, and the report."""
    out = tmp_path / "out"
    assert re.search(r"^emblems +.*emblems-package 1\.0\)\n(?! +--config)", f"{done(bw, 'list').out}\n", re.MULTILINE)
    done(bw, "run", "emblems", "--out", out, "-q", "--scheduler", "processes", "--workers", 1)
    assert {path.name for path in (out / "dataset").glob("*.tar")} == {
        f"task{task:02}-{role}-{number:05}.tar"
        for task in (0, 1)
        for role, count in (("train", 2), ("test", 1))
        for number in range(count)
    }
    done(bw, "qa", "export", out)
    answers = sorted((out / "qa/simulated/results").glob("*.csv"))
    assert done(bw, "qa", "import", out, *answers).out.startswith("1200 votes added")
    told = done(bw, "train", out, "--scheduler", "threads").err
    names = [f"tasks {name}, seed {seed}" for name in ("finetune", "er", "cumulative") for seed in (0, 1)]
    assert sorted(trained_in(told)) == sorted(names)
    own = ["--method", "er", "--method", f"{mine}/method.py:calm"]
    by_processes = [*own, "--scheduler", "processes", "--workers", 1]
    assert trained_in(done(bw, "train", out, *by_processes).err) == [
        "tasks method.py:calm, seed 0",
        "tasks method.py:calm, seed 1",
    ]
    found = json.loads(done(bw, "eval", out, "--json").out)["tasks"]
    assert set(found) == {"finetune", "er", "cumulative", "method.py:calm"}
    assert found["cumulative"]["mean"]["Acc"] > 0.6 > found["finetune"]["mean"]["Acc"]
    done(bw, "report", out)
    page = (out / "report.html").read_text()
    sections = ("Pipeline</h2>", "Votes</h2>", "Results</h2>", "Over positions: tasks</h2>", "Samples</h2>")
    for told in (*sections, "method.py:calm", "Acc, test after each position", "number learned so far"):
        assert told in page, told
    assert "acc_class_weighted" not in page, "only the benchmark's choice of metrics"
    done(bw, "verify", out)
    done(bw, "verify", out / "experiments")
    edit(mine, "method")
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:  # as if it were installed there, too
        client.run(sys.path.append, str(emblems.parents[1]))
    own += ["--scheduler", cluster.scheduler_address]
    assert trained_in(done(bw, "train", out, *own).err) == ["tasks method.py:calm, seed 0", "tasks method.py:calm, seed 1"]
    done(bw, "run", "emblems", "--set", "count=216", "--out", out, "-q")
    assert len(trained_in(done(bw, "train", out).err)) == 6  # another dataset
    emblems.write_text(emblems.read_text().replace("/ 255)", "/ 510)"))
    told = done(bw, "plan", "emblems", "--set", "count=216", "--out", out).out
    assert "describe changed" in told
    assert told.count("stale") == 1


def test_columns_that_make_no_stream_are_one_line(bw: Cli, emblems: Path, tmp_path: Path) -> None:
    out, text = tmp_path / "out", emblems.read_text()
    done(bw, "run", "emblems", "--out", out, "-q")
    for old, new, says in [
        ('task="task"', 'task="taks"', "has no column 'taks' for tasks"),
        (
            'task="task"',
            'task="role"',
            "column 'role' for tasks has string and 0 nulls: expected whole numbers without nulls",
        ),
        ('task="task"', 'task="task", domain="task"', "give exactly one"),
        ('label="concept"', 'label="role"', "task 0"),
        ('features="profile.npy"', 'features="json"', "features = 'json': expected the extension of arrays, such as"),
        ("seeds=[0, 1]", 'settings={"schedule": {"epoch": 1}}', "settings.schedule.epoch: there are optimiser"),
        ("seeds=[0, 1]", 'baselines=["err"]', "no method 'err'"),
        ("seeds=[0, 1]", 'baselines=["calmm"]', "si, twp, calmest; did you mean 'calmest'?"),
        ("seeds=[0, 1]", 'model="mpl"', "no model 'mpl'"),
        ("seeds=[0, 1]", 'model="tsn"', "model 'tsn' takes clips, but samples here are vectors"),
        (
            "seeds=[0, 1]",
            'model="platform:machine"',
            "model 'machine': too many positional arguments: it is called as machine(init, *, sample)",
        ),
        (
            'features="profile.npy"',
            'features="halves.npy", model="tsn"',
            "model 'tsn' takes clips, but samples here are signals",
        ),
    ]:
        assert old in text
        emblems.write_text(text.replace(old, new))
        sys.modules.pop("emblems_package.pipeline", None)
        told = bw("train", out)
        assert (told.code, told.err.count("\n")) == (2, 1), told.err
        assert says in told.err
    assert "there is tasks" in bw("train", out, "--protocol", "domains").err
    assert not (out / "experiments").exists()
    emblems.write_text(text.replace('task="task"', 'domain="task"'))
    sys.modules.pop("emblems_package.pipeline", None)
    done(bw, "train", out, "--method", "finetune")
    scores = json.loads(done(bw, "eval", out, "--json").out)["domains"]["finetune"]
    assert set(scores["mean"]) == {"in-domain", "bwt", "fwt"}
    assert scores["mean"]["in-domain"] > 0.6
    # The same numbers as signals of two axes.
    emblems.write_text(emblems.read_text().replace("profile.npy", "halves.npy"))
    sys.modules.pop("emblems_package.pipeline", None)
    done(bw, "train", out, "--method", "finetune")
    both = json.loads(done(bw, "eval", out, "--json").out)["domains"]
    assert [label.rpartition(" ")[2] for label in both] == ["profile.npy", "halves.npy"]
    assert all(each["mean"] == scores["mean"] for each in both.values())
