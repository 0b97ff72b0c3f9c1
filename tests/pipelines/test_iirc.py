"""IIRC's plan through the engine: the tiny configuration, other sources, presets, what is published, the report."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
import re
import shutil
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Colours
from benchwright.curation.nested import flat
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.png import stored_png
from benchwright.curation.reachable_code import reached
from benchwright.curation.run import Run, TooManyRejects, run
from benchwright.datasets.iirc.facts import facts
from benchwright.datasets.iirc.samples import columns_of
from benchwright.datasets.iirc.view import RefinedView
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.eval.protocols.predictions import Predictions
from benchwright.eval.results import Line, lines
from benchwright.pipelines import api, config, training_results
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.experiments import Diverged
from benchwright.pipelines.iirc import baselines as iirc_runs
from benchwright.pipelines.iirc import pipeline as iirc
from benchwright.pipelines.iirc.config import IircConfig
from benchwright.pipelines.iirc.paper import departure
from benchwright.pipelines.iirc.report import unwatched
from benchwright.pipelines.iirc.vectors import read_vectors
from benchwright.training.baselines.iirc import paper_methods, paper_settings

from .pages import faults

VARIANTS = ("class_incremental", "folders", "imagenet", "imagenet_lite", "tiny", "tiny_imagenet", "tiny_imagenet_vectors")


def settings(name: str | None, *overrides: str) -> IircConfig:
    return config.load(IircConfig, config.find_config("iirc", name), overrides, benchmark="iirc")[0]


def made(c: IircConfig, out: Path, scheduler: str = "sync") -> Run:
    return run(iirc.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)


def digests(out: Path) -> dict[str, str]:
    return {stage["name"]: stage["digest"] for stage in api.show(str(out))["stages"]}


@pytest.fixture(scope="module")
def tiny(finished, tmp_path_factory) -> Path:
    """The tiny run. Only to be read."""
    return Path(shutil.copytree(finished("iirc"), tmp_path_factory.mktemp("iirc") / "run"))


def test_processes_and_another_seed(tiny: Path, tmp_path: Path) -> None:
    made(settings("tiny"), tmp_path / "processes", "processes")
    assert digests(tmp_path / "processes") == digests(tiny)
    made(settings("tiny", "seed=1"), tmp_path / "other")
    assert not set(digests(tmp_path / "other").values()) & set(digests(tiny).values())


def test_rejects_have_their_reasons(tiny: Path) -> None:
    counts = {stage["name"]: stage["rejects"] for stage in api.show(str(tiny))["stages"] if stage["rejects"]}
    assert counts == {"checked": {"truncated": 2}, "assigned": {"class_not_in_hierarchy": 1}}
    assert api.verify(str(tiny)) == []


def test_too_many_rejects_stop_the_run(tmp_path: Path) -> None:
    for override, message in (("max_broken=1", "checked"), ("max_outside=0", "assigned")):
        with pytest.raises(TooManyRejects, match=message):
            made(settings("tiny", override), tmp_path)


def test_every_picture_is_stored_once_and_seen_as_the_rules_say(tiny: Path) -> None:
    """Eleven subclasses with 24 samples to train: 9 under the superclass, 19 under the subclass, 4 under both."""
    index = DatasetIndex.open(str(tiny / "dataset"))
    assert len(index) == len(set(index.table["key"].to_pylist())) == 11 * 40
    for number in (0, 1):
        view = RefinedView(index.table, number)
        assert [len(task) for task in view.tasks][:2] == [2, 4]
        assert sorted(view.classes) == sorted({*view.parents, *view.parents.values(), "stripes", "checks"})
        learned: dict[str, set[int]] = {}
        for task in range(len(view.tasks)):
            given = view.training(task)
            for row, labels in zip(given.rows.tolist(), given.labels.tolist(), strict=True):
                (name,) = (view.classes[label] for label in labels if label >= 0)
                learned.setdefault(name, set()).add(row)
        sizes = {name: len(rows) for name, rows in learned.items()}
        tops = set(view.parents.values())
        assert sizes == {name: 27 if name in tops else 19 if name in view.parents else 24 for name in view.classes}
        assert len(learned["disc"] & learned["red disc"]) == 4
    # The other configuration has other tasks; the shares are the same.
    assert RefinedView(index.table, 0).tasks != RefinedView(index.table, 1).tasks


def test_a_task_of_the_first_configuration_lies_in_its_shards(tiny: Path) -> None:
    table = DatasetIndex.open(str(tiny / "dataset"), where={"role": "train", "sub_task0": 1, "in_sub": True}).table
    assert all(name.startswith(("train-task00", "train-task01")) for name in table["shard"].to_pylist())
    sample = ShardDataset(str(tiny / "dataset"))[0]
    assert sample["png"].shape == (16, 16, 3)
    assert sample["json"]["role"] in ("train", "test", "intask_valid", "posttask_valid")


def test_bytes_are_carried_over(tiny: Path, tmp_path: Path) -> None:
    """A folder of JPEGs comes out as it went in, and PNGs of the drawn set as a folder give the same samples."""
    root = tmp_path / "pictures"
    index = DatasetIndex.open(str(tiny / "dataset"))
    pictures = ShardDataset(index, decode={})
    for row in range(len(index)):
        sample, label = pictures[row], index.table.slice(row, 1).to_pylist()[0]
        path = root / label["file"].replace("_", " ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample["png"])
    tree = tmp_path / "tree.csv"
    pairs = dict.fromkeys(
        zip(index.table["subclass"].to_pylist(), index.table["superclass"].to_pylist(), strict=True),
    )
    tree.write_text("subclass,superclass\n" + "".join(f"{sub},{top or ''}\n" for sub, top in pairs))
    c = settings(
        "tiny",
        f'source={{kind="folders", root="{root}", splits={{train="train", test="test"}}, max_rejects=0}}',
        f'hierarchy={{kind="file", path="{tree}"}}',
        "max_broken=0",
    )
    rows = made(c, tmp_path / "run").rows().table()
    again = {row["file"]: (row["role"], row["in_super"], row["in_sub"], row["size"]) for row in rows.to_pylist()}
    assert len(again) == len(index)
    for row in index.table.to_pylist():
        role, top, sub, _ = again[row["file"].replace("_", " ")]
        assert (role, top, sub) == (row["role"], row["in_super"], row["in_sub"])


def test_cifar_from_its_archive(tmp_path: Path, shared_data: Path) -> None:
    """Ten pictures a class of CIFAR's names with the official hierarchy and all ten configurations."""
    names = sorted(json.loads((shared_data / "iirc" / "cifar100_classes.json").read_text())["classes"])
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 1000), ("test", 100)):
        data = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
        content = {b"data": data, b"fine_labels": [number % 100 for number in range(count)]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [name.encode() for name in names]}, protocol=2))
    official = shared_data / "iirc"
    c = settings(
        None,
        f"source.root={folder}",
        f"hierarchy.path={official / 'iirc_cifar100_hierarchy.json'}",
        f"tasks.path={official / 'iirc_cifar100_task_configurations.json'}",
    )
    r = made(c, tmp_path / "run")
    table = r.rows("assigned").table([name for name in r.rows("assigned").column_names if name != "image"])
    fact = facts().sets["cifar100"]
    for number in c.tasks.configurations:
        view = RefinedView(table, number)
        assert (len(view.tasks), len(view.classes)) == (fact.tasks, fact.labels)
    flat = settings(
        "class_incremental",
        f"source.root={folder}",
        f"hierarchy.path={official / 'cifar100_classes.json'}",
        f"tasks.path={official / 'incremental_cifar100_task_configurations.json'}",
    )
    rows = made(flat, tmp_path / "flat").rows("assigned")
    view = RefinedView(rows.table([name for name in rows.column_names if name != "image"]), 9)
    assert [len(task) for task in view.tasks] == [50] + [5] * 10
    assert sum(len(view.training(task).rows) for task in range(11)) == 800


def test_tiny_imagenet_in_part(tmp_path: Path, shared_data: Path) -> None:
    """Real JPEGs of 30 classes with the official hierarchy cut down to them."""
    root = tmp_path / "tar"
    root.mkdir()
    classes: dict[str, int] = {}
    with tarfile.open(shared_data / "tiny_imagenet" / "val_10000.tar") as whole, tarfile.open(root / "part.tar", "w") as part:
        for member in whole:
            name = member.name.split("/")[-2]
            if len(classes) < 30 or name in classes:
                classes[name] = classes.get(name, 0) + 1
                if classes[name] <= 10:
                    part.addfile(member, whole.extractfile(member))
            else:
                break
    hierarchy = shared_data / "iirc" / "iirc_imagenet_hierarchy_wnids.json"
    c = settings(
        "tiny_imagenet",
        f"source.root={root}",
        f"hierarchy.path={hierarchy}",
        "tasks.first=3",
        "tasks.later=8",
        "shares.test=0.2",
    )
    r = made(c, tmp_path / "run")
    table = r.rows().table()
    assert table.num_rows == 10 * len(classes)
    view = RefinedView(table, 0)
    known = set(json.loads(hierarchy.read_text())["super_classes"])
    assert set(view.parents.values()) <= known
    assert {name for name in view.classes if name not in known} == set(classes)
    assert set(table["extension"].to_pylist()) == {"jpg"}


def test_presets_have_the_values_of_the_facts() -> None:
    shares, sets = facts().shares, facts().sets
    for name, fact in ((None, "cifar100"), ("imagenet", "imagenet_full"), ("imagenet_lite", "imagenet_lite")):
        c = settings(name)
        assert (c.shares.in_task, c.shares.post_task) == (sets[fact].in_task, sets[fact].post_task)
        assert (c.shares.superclass, c.shares.subclass, c.shares.cap) == (
            shares["superclass"],
            shares["subclass"],
            shares["cap"],
        )
        assert c.tasks.configurations == list(range(sets[fact].configurations))
        assert c.evaluation.seeds == [facts().training["seed"]]
        assert c.evaluation.joint_seeds == list(facts().training["joint_seeds"])
    assert set(facts().confusion["tasks"]) <= set(settings(None).evaluation.confusion_after)
    assert facts().confusion["role"] in settings(None).evaluation.roles
    joint = settings("tiny_imagenet_vectors").evaluation.method_settings["joint"]["schedule"]
    assert (joint["epochs"], joint["first_task_times"]) == (40, 1)
    assert set(VARIANTS) == set(config.variants("iirc"))


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("tiny", ["shares.superclass=1.5"], "share superclass is 1.5"),
        ("tiny", ["evaluation.model=net"], r"evaluation\.model = 'net': no model 'net': there are"),
        ("tiny", ["evaluation.methods=['nope']"], "no method 'nope': see `benchwright list methods`"),
        ("tiny", ["source.shapes=9"], "shapes = 9: expected 1 to 5"),
        ("tiny", ["tasks.first=0"], r"tasks\.first = 0"),
        (None, ['hierarchy={kind="drawn"}'], "needs a generated source"),
        (
            "tiny",
            ["source.kind=folder"],
            "no source 'folder': there are cifar100, drawn, folders, tars, or name your own",
        ),
    ],
)
def test_settings_that_do_not_fit(name: str | None, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        iirc.plan(settings(name, *overrides), "out")


def test_a_hierarchy_that_does_not_fit_is_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "tree.toml").write_text('[superclasses]\ndisc = ["red disc"]\nred = ["red disc"]\n')
    call = ["run", "iirc", "--config", "tiny", "--out", str(tmp_path / "run"), "--quiet", "--scheduler", "sync"]
    given = ["--set", f'hierarchy={{kind="file", path="{tmp_path / "tree.toml"}"}}']
    assert cli.call([*call, *given]) == 2
    told = capsys.readouterr().err
    assert "subclass 'red disc' appears under 'disc' and under 'red': one parent, once" in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists(), "no picture was read for it"
    (tmp_path / "tree.toml").write_text('lone = ["red disc", "red cube"]\n')
    (tmp_path / "pictures/red disc").mkdir(parents=True)
    folders = f'source={{kind="folders", root="{tmp_path / "pictures"}", splits={{}}, max_rejects=0}}'
    assert cli.call([*call, *given, "--set", folders]) == 2
    says = "1 of 2 classes of the hierarchy .* have no folder in .*, the first is 'red cube': .*only_found=true"
    assert re.search(says, capsys.readouterr().err)
    (tmp_path / "tree.toml").write_text('lone = ["cat", "dog"]\n')
    (tmp_path / "pictures/red disc/1.jpg").write_bytes(b"")
    assert cli.call([*call, *given, "--set", "hierarchy.only_found=true", "--set", folders]) == 2
    says = r"none of the 2 classes of the hierarchy .* has a folder in .*, such as 'cat': there are red disc"
    assert re.search(says, capsys.readouterr().err)
    assert not (tmp_path / "run").exists(), "no picture was read for it"


@pytest.mark.parametrize(
    ("files", "given", "told"),
    [
        (
            ["animal/cat/1.jpg", "tool/cat/1.jpg"],
            [],
            "subclass 'cat' appears under 'animal' and under 'tool': one parent, once",
        ),
        (
            ["train/cat/1.jpg", "val/cat/1.jpg"],
            [],
            "; if 'train' and 'val' separate training and test data, name them in source",
        ),
        (["a/b/c/1.jpg"], [], "folder 'a/b/c' of class 'c': expected superclass/subclass/ or subclass/"),
        (
            ["train/cat/1.jpg"],
            ["source.splits={train='train'}"],
            "has the splits train, and shares.test is 0.2: only one of them",
        ),
        (
            ["a/b/1.jpg"],
            ["shares.test=0"],
            "the source has no splits, and shares.test is 0.0: only one of them may define the test set",
        ),
    ],
)
def test_folders_that_are_no_hierarchy_are_told_before_pictures_are_read(
    files: list[str], given: list[str], told: str, tmp_path: Path, capsys
) -> None:
    for file in files:
        (tmp_path / "pictures" / file).parent.mkdir(parents=True)
        (tmp_path / "pictures" / file).write_bytes(b"no picture")
    call = ["run", "iirc", "--config", "folders", "--out", str(tmp_path / "run"), "--quiet", "--scheduler", "sync"]
    settings = [f"source.root={tmp_path / 'pictures'}", "vectors={kind='colours'}", *given]
    assert cli.call([*call, *(part for one in settings for part in ("--set", one))]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_nested_folders_of_ones_own(tiny: Path, tmp_path: Path) -> None:
    """superclass/subclass/ without a file of the hierarchy, shares that are drawn, and the packaged settings for both."""
    root, index = tmp_path / "pictures", DatasetIndex.open(str(tiny / "dataset"))
    pairs = list(zip(index.table["superclass"].to_pylist(), index.table["subclass"].to_pylist(), strict=True))
    for number, (names, sample) in enumerate(zip(pairs, ShardDataset(index, decode={}), strict=True)):
        folder = root / "/".join(filter(None, names))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:04d}.png").write_bytes(sample["png"])
    given = [f"source.root={root}", "tasks.first=2", "tasks.later=4", "vectors={kind='colours'}"]
    c = settings("folders", *given)
    beside = root / next(filter(None, (top for top, _ in pairs))) / "beside.png"  # which is given under no subclass
    shutil.copy(next(root.rglob("*.png")), beside)
    done = made(c, tmp_path / "run")
    assert {one.stage: one.rejects for one in done.artifacts if one.rejects} == {"assigned": {"class_not_in_hierarchy": 1}}
    table = done.rows().table()
    beside.unlink()
    assert {*zip(table["superclass"].to_pylist(), table["subclass"].to_pylist(), strict=True)} == {*pairs}
    by_file = made(settings("folders", *given, "shares.order=files"), tmp_path / "files").rows().table()

    def tested(rows: pa.Table) -> set[str]:
        return {row["file"] for row in rows.to_pylist() if row["role"] == "test"}

    for rows in (table, by_file):
        assert {role: rows["role"].to_pylist().count(role) for role in ("test", "train")} == {"test": 88, "train": 275}
    assert tested(table) != tested(by_file)
    again = made(settings("folders", *given, "seed=1"), tmp_path / "seed").rows().table()
    assert tested(again) != tested(table)
    deep = root / "a/b/c"
    deep.mkdir(parents=True)
    shutil.copy(next(root.rglob("*.png")), deep)
    with pytest.raises(StepFailed, match="folder 'a/b/c' of class 'c': expected superclass/subclass/ or subclass/"):
        made(c, tmp_path / "deep")
    with pytest.raises(ConfigError, match="belongs to a source of folders, and this one is 'drawn'"):
        iirc.plan(settings("tiny", 'hierarchy={kind="folders"}'), "out")


def test_a_proposed_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "is_a.txt").write_text(
        "\n".join(f"{shape} {hue}_{shape}" for shape in ("disc", "ring") for hue in ("red", "blue", "green")) + "\nthing disc\n"
    )
    root = tmp_path / "pictures"
    for name in ("red_disc", "blue_disc", "green_disc", "red_ring", "blue_ring", "green_ring", "other"):
        (root / name).mkdir(parents=True)
        for number in range(10):
            (root / name / f"{number}.png").write_bytes(stored_png(np.full((4, 4, 3), 20 * number, np.uint8)))
    c = settings(
        "tiny",
        f'source={{kind="folders", root="{root}", splits={{}}, max_rejects=0}}',
        f'hierarchy={{kind="parents", path="{tmp_path / "is_a.txt"}", min_subclasses=2, max_subclasses=4}}',
        "shares.test=0.2",
    )
    table = made(c, tmp_path / "run").rows().table()
    assert RefinedView(table, 0).parents == {f"{hue}_{s}": s for s in ("disc", "ring") for hue in ("red", "blue", "green")}


def test_the_report_shows_the_tree_before_anything_is_trained(tiny: Path) -> None:
    page = Path(iirc.BENCHMARK.report(settings("tiny"), str(tiny))).read_text()
    for title in ("Hierarchy", "Tasks", "Assignment of labels", "Pictures", "Pipeline", "Provenance"):
        assert f">{title}<" in page
    assert "Tree of 3 superclasses with 9 subclasses, and 2 lone subclasses" in page
    assert "SYNTHETIC" in page
    assert "configurations 0, 1; trained: none" in page


def test_the_card_names_every_column(tiny: Path) -> None:
    table = DatasetIndex.open(str(tiny / "dataset")).table
    card = (tiny / "dataset" / "README.md").read_text()
    told = columns_of([0, 1])
    assert [name for name in table.column_names if name not in told] == ["key", "shard", "offset", "size"]
    assert all(f"`{name}`" in card for name in table.column_names)
    assert io.BytesIO((tiny / "dataset" / "index.parquet").read_bytes()).read(4) == b"PAR1"


# ------------------------------------------------------------------------------------------------------------ baselines


CURVES = {
    "finetune": [0.487499995, 0.347619044, 0.268181816, 0.136363635],
    "er": [0.487499995, 0.33333333, 0.138131312, 0.104545454],
    "incremental_joint": [0.487499995, 0.502480156, 0.19671717, 0.352272725],
}


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory) -> Path:
    """The tiny run's shards with its three methods trained. Only to be read."""
    out = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(tiny, out)
    assert cli.call(["train", str(out), "--quiet"]) == 0
    return out


def rerun(tiny: Path, out: Path, *overrides: str) -> Path:
    """A copy of the tiny run with other settings for its baselines."""
    shutil.copytree(tiny, out)
    options = [option for override in overrides for option in ("--set", override)]
    assert cli.call(["run", "iirc", "--config", "tiny", "--out", str(out), "--quiet", *options]) == 0
    return out


def predictions(out: Path) -> dict[str, Predictions]:
    """By method, of runs with one configuration and seed."""
    return {facts["method"]: Predictions(rows) for facts, rows in training_results.predictions(str(out))}


def line_of(out: Path, method: str) -> Line:
    (found,) = [line for line in lines(training_results.results(str(out))) if line.method == method]
    return found


def stages(out: Path) -> dict[str, str]:
    """Those of trainings, and their digests."""
    return {stage["name"]: stage["digest"] for stage in api.show(str(out / "experiments"))["stages"]}


def test_methods_see_what_they_may(trained: Path) -> None:
    held = predictions(trained)
    assert set(held) == {"er", "finetune", "incremental_joint"}
    view = RefinedView(DatasetIndex.open(str(trained / "dataset")).table, 0)
    learned = [len(view.training(task).rows) for task in range(len(view.tasks))]
    for name in ("er", "finetune"):
        assert [one.samples for one in held[name].positions] == learned
    so_far = [len(view.training(task, information="complete", reach="so_far").rows) for task in range(len(view.tasks))]
    assert [one.samples for one in held["incremental_joint"].positions] == so_far
    assert so_far[-1] < sum(learned)  # a sample of two tasks is learned once
    for name, found in held.items():
        assert found.classes == view.classes
        assert [test.split for test in found.tests] == ["test", "posttask_valid"]
        for test in found.tests:
            asked = line_of(trained, name).matrix("samples", [""], split=test.split)[0, :, 0]
            assert asked.tolist() == [len(view.evaluation(test.split, known=known).rows) for known in range(len(view.tasks))]


def test_values_are_those_of_the_loop_before_trainings_were_stages(trained: Path) -> None:
    """pw-JS after each task, from the release that had a loop of its own."""
    for name, wanted in CURVES.items():
        line = line_of(trained, name)
        assert line.matrix("pw_js", [""], split="test")[0, :, 0] == pytest.approx(wanted, abs=1e-6)
        assert line.values("pw_js").tolist() == pytest.approx(wanted[-1:], abs=1e-6)


def test_an_interrupted_training_goes_on_to_the_same_bytes(trained: Path, tiny: Path, tmp_path: Path) -> None:
    class Stopped(BaseException):
        pass

    def stop(line: str) -> None:
        if "'1', 2 of " in line:
            raise Stopped

    out = str(shutil.copytree(tiny, tmp_path / "run"))
    with pytest.raises(Stopped):
        api.train(out, methods=["er"], progress=stop)
    assert api.scores(out) == {}
    told: list[str] = []
    api.train(out, methods=["er"], protocols=["configuration-0"], progress=told.append)
    assert not [line for line in told if "'1', 2 of " in line]
    assert stages(Path(out)).items() <= stages(trained).items()


def test_scores_are_better_with_all_samples(trained: Path) -> None:
    found = api.scores(str(trained))
    assert list(found) == ["incomplete information"]
    means = {name: one["mean"] for name, one in found["incomplete information"].items()}
    assert means["incremental_joint"]["pw-JS"] > means["finetune"]["pw-JS"]
    assert all(one["std"]["pw-JS"] is None and one["runs"] == 1 for one in found["incomplete information"].values())


def test_results_of_an_earlier_dataset_are_left_out(trained: Path, tmp_path: Path) -> None:
    assert api.stale(str(trained)) == {}
    out = str(tmp_path / "run")
    shutil.copytree(trained / "experiments", Path(out, "experiments"))
    shutil.copy(trained / "run.json", out)
    held = json.loads((trained / "dataset/dataset.json").read_text())
    Path(out, "dataset").mkdir()
    Path(out, "dataset/dataset.json").write_text(json.dumps(held | {"digest": "0" * 64}))
    assert len(training_results.results(out)) == 0
    assert list(training_results.stale_trainings(out).values()) == ["trained on another dataset"] * 3


def test_joint_training_has_seeds_and_replay_has_buffers_of_its_own(tiny: Path) -> None:
    """Seeds 100 to 104 of the released code, and the buffers of the paper's Appendix E."""
    c = settings(
        "tiny", "evaluation.joint_seeds=[100, 101]", "evaluation.er_sizes=[20, 50]", "evaluation.configurations=[0, 1]"
    )
    found = iirc_runs.trainings(c, str(tiny), ["joint", "er"], [])
    told = [(one.method, one.order, one.seed, one.settings["memory"]["size"]) for one in found]
    # Both configurations have the same labels, and all of them are one task.
    assert [each[:3] for each in told if each[0] == "joint"] == [("joint", 0, 100), ("joint", 0, 101)]
    assert [each[1:] for each in told if each[0] == "er"] == [(c, 0, size) for size in (20, 50) for c in (0, 1)]


def test_what_there_is_not_is_told_before_anything_is_trained(tiny: Path) -> None:
    for override, options, message in (
        ("seed=0", {"methods": ["ewc2"]}, "no method 'ewc2': there are .*; did you mean 'ewc'"),
        ("seed=0", {"protocols": ["configuration-7"]}, "no protocol 'configuration-7': there are configuration-0, configur"),
        ("evaluation.configurations=[7]", {}, "no protocol '7': there are configuration-0, configuration-1"),
        ("evaluation.settings.model.depth=3", {}, "evaluation.settings.model.depth: there are"),
        (
            "evaluation.settings.model.width=99999999",
            {},
            "evaluation.settings.model.width = 99999999: expected int from 1 to 8192",
        ),
        ("evaluation.settings.model.blocks=0", {}, "evaluation.settings.model.blocks = 0: expected int from 1 to 256"),
        ("evaluation.settings.model.backbone='vgg'", {}, "backbone 'vgg'.* a network of your own is named as the model"),
        ("evaluation.model='backbone'", {}, r'no such setting: .*; .* unset = \["evaluation.settings.model.backbone"\]'),
        ("evaluation.settings.net.depth=3", {}, "evaluation.settings.net: there are"),
        ("evaluation.settings.view.side_px=0", {}, "side 0 px"),
        ("evaluation.settings.memory.per_class=4", {}, "per_class = 4: expected true or false"),
        ("evaluation.settings.data.samples='some'", {}, "data.samples 'some': one of task, so_far, all"),
        (
            "evaluation.settings.method.targets=1",
            {"methods": ["er"]},
            "evaluation.method_settings.er.method.targets = 1: there is no such setting: there are .*batches",
        ),
        ("vectors={kind='colours'}", {}, "backbone 'small_cnn' for vectors"),
        ("seed=0", {"methods": ["icarl"]}, "'icarl' needs one class per sample, but samples here have sets of labels"),
        ("evaluation.settings.model.head='linear'", {"methods": ["lucir"]}, "'lucir' compares cosines, .* head is 'linear'"),
        ("evaluation.model='tsn'", {"methods": ["er"]}, "model 'tsn' takes clips, but samples here are images"),
    ):
        with pytest.raises(WrongUse, match=message):
            iirc_runs.trainings(settings("tiny", override), str(tiny), **{"methods": [], "protocols": [], **options})


@pytest.mark.usefixtures("blank_figures")
def test_methods_learn_from_vectors_of_the_same_dataset(tiny: Path, tmp_path: Path) -> None:
    """Colours as vectors: the coloured classes can be told apart by them, and what is published stays the same."""
    chosen = ['vectors={kind="colours"}', "evaluation.settings.model={backbone='mlp', width=8}"]
    c, out = settings("tiny", *chosen), rerun(tiny, tmp_path / "run", *chosen)
    index = DatasetIndex.open(str(out / "dataset"))
    keys, digest = index.table["key"].to_pylist(), digests(out)["embedded"]
    vectors = read_vectors(str(out), digest, keys)
    assert vectors.shape == (len(index), 11)
    encoder = load_encoder(Colours())
    shown = encoder.encode_prepared([encoder.prepare(ShardDataset(index)[7]["png"])])
    np.testing.assert_array_equal(vectors[7:8], shown)
    api.train(str(out), methods=["incremental_joint"])
    line = line_of(out, "incremental_joint")
    assert line.matrix("pw_js", [""], split="test")[0, 0, 0] > 0.3
    assert line.settings["data.vectors"] == digest
    assert "view.side_px" not in line.settings
    assert "frozen vector" in Path(api.report(str(out))).read_text()
    assert digests(out)["shards"] == digests(tiny)["shards"]
    with pytest.raises(WrongUse, match="has no vectors: run the pipeline"):
        iirc_runs.trainings(c, str(tiny), ["er"], [])
    with pytest.raises(ValueError, match=r"no vectors of digest 0{10}: train again"):
        read_vectors(str(out), "0" * 64, keys)


@pytest.mark.usefixtures("blank_figures")
def test_joint_is_one_task_with_all_labels(tiny: Path, tmp_path: Path) -> None:
    overrides = ("evaluation.settings.schedule.epochs=1", "evaluation.information=complete")
    out = rerun(tiny, tmp_path / "run", *overrides)
    assert list(api.train(str(out), methods=["joint"])) == ["complete information"]
    (found,) = predictions(out).values()
    assert [one.samples for one in found.positions] == [11 * 24]
    assert len(found.classes) == 9 + 2 + 3
    line = line_of(out, "joint")
    assert [line.values("pw_js", stratum=kind).shape for kind in ("superclass", "subclass_with", "subclass_without")] == [
        (1,)
    ] * 3
    assert "No method was trained on more than one task." in Path(api.report(str(out))).read_text()


def test_the_report_shows_baselines(trained: Path) -> None:
    page = Path(iirc.BENCHMARK.report(settings("tiny"), str(trained))).read_text()
    assert faults(page) == []
    for title in ("Baselines, incomplete information", "Confusion, incomplete information"):
        assert f">{title}<" in page
    assert "ground truth" in page
    assert "configurations 0, 1; trained: 0" in page
    assert "pw-JS, mean over tasks" in page
    assert "settings changed from the paper" in page
    assert "er, after task 2" in page
    assert "er, configuration 0, posttask_valid: share of" in page  # Figure 6, though the test samples come first
    assert "prints its scores only as curves" not in page
    assert "numbers in its Appendix H" in page
    assert "right after it was learned (R_jj)" in page
    for kind in ("superclasses", "subclasses with a superclass", "lone subclasses"):  # Appendices D.2 and D.3
        assert f"pw-JS on only the labels of {kind}, after each task" in page
    of_tops = line_of(trained, "er").matrix("pw_js", [""], split="test", stratum="superclass")
    assert of_tops[0, -1, 0] == line_of(trained, "er").values("pw_js", split="test", stratum="superclass")[0]


@pytest.mark.usefixtures("blank_figures")
def test_the_report_says_where_shares_come_to_nothing(tiny: Path) -> None:
    index = DatasetIndex.open(str(tiny / "dataset")).table
    told = "No in-task validation samples: task 0 of configuration 0"
    drawn = settings("tiny", "shares.order=drawn")
    assert "in file order, not random samples" in Path(iirc.BENCHMARK.report(settings("tiny"), str(tiny))).read_text()
    assert "in a random order" in Path(iirc.BENCHMARK.report(drawn, str(tiny))).read_text()
    without = index.filter(pc.not_equal(index["role"], "intask_valid"))
    shown = [str(block) for block in unwatched({0: RefinedView(without, 0)})]
    assert told in shown[0]
    assert unwatched({0: RefinedView(index, 0)}) == []


def test_the_record_of_a_line_says_whether_its_settings_are_the_papers() -> None:
    def line(name: str = "er", dataset: str = "cifar100", **changes: Any) -> Line:
        held = flat(paper_settings(name, dataset=dataset)[1])
        labels = "complete" if name in ("joint", "incremental_joint") else "incomplete"
        told = {**held, "data.roles": ["test"], "data.labels": labels, **changes}
        return Line("incomplete information", name, "pictures", told, name, pa.table({}))

    changed = "settings changed from the paper's"
    assert departure(line()) == ""
    assert departure(line(**{"schedule.epochs": 3})) == changed
    assert departure(dataclasses.replace(line(), method="own.py:er")) == "not a method of the paper"
    # Section 2.3: training always has incomplete information; joint training has all labels (section 5).
    assert departure(line(**{"data.labels": "complete"})) == changed
    assert departure(line("joint")) == departure(line("incremental_joint")) == ""
    assert departure(line("joint", **{"data.labels": "incomplete"})) == changed
    assert departure(line("joint", **{"schedule.first_task_times": 1})) == changed
    # Appendix E: the buffers of the released configurations, and of experience replay alone.
    assert [departure(line(**{"memory.size": size})) for size in (50, 200)] == ["", ""]
    assert [departure(line(dataset="imagenet", **{"memory.size": size})) for size in (100, 200)] == ["", changed]
    assert departure(line("lucir", **{"memory.size": 50})) == changed
    # Ours, or not the paper's, with the settings that we have for them.
    assert "does not have it" in departure(line("bic"))
    assert "learning rates 0.5 and 1.0" in departure(line("agem"))
    assert "did not run it" in departure(line("agem", "imagenet"))
    assert departure(line("er_infinite")) == ""
    assert "no configuration" in departure(line("er_infinite", "imagenet"))
    # Of ImageNet the code has joint training for -full alone, and incremental joint training for -lite alone.
    for name, published, there in (
        ("joint", "imagenet_full", True),
        ("joint", "imagenet_lite", False),
        ("incremental_joint", "imagenet_lite", True),
        ("incremental_joint", "imagenet_full", False),
    ):
        why = departure(line(name, "imagenet"), published)
        assert (why == "") == there, (name, published, why)
        assert there or "has no configuration of it for IIRC-ImageNet" in why
    assert departure(line("joint"), "cifar100") == departure(line("er", "imagenet"), "imagenet_lite") == ""


@pytest.mark.usefixtures("blank_figures")
def test_curves_are_averaged_over_configurations(tiny: Path, tmp_path: Path) -> None:
    changed = ("evaluation.settings.schedule.epochs=1", "evaluation.configurations=[0, 1]", 'evaluation.roles=["test"]')
    out = rerun(tiny, tmp_path / "run", *changed)
    told = api.train(str(out), methods=["finetune"])["incomplete information"]["finetune"]
    line = line_of(out, "finetune")
    assert line.runs == [(0, 0), (1, 0)]
    last = line.values("recall")
    assert told["mean"]["recall"] == pytest.approx(np.mean(last))
    assert told["std"]["recall"] == pytest.approx(np.std(last, ddof=1))
    page = Path(api.report(str(out))).read_text()
    assert "configurations 0, 1</p>" in page  # all were trained
    assert "one standard deviation over runs" in page


def test_a_training_is_keyed_by_its_own_method_and_by_no_table_or_settings_type(tiny: Path) -> None:
    """A method that is added to a table, or another one's edit, or a new setting, makes no training stale."""
    every = iirc_runs.trainings(settings("tiny"), str(tiny), paper_methods(), [])
    assert len({one.name("digest") for one in every}) == len(every) == 10
    for one in every:
        step = one.learn
        codes = [step.code(), *(reached(step.settings[name]) for name in ("prepare", "method", "model"))]
        names = {(module, name) for code in codes for module, found in code.definitions.items() for name in found}
        assert not [
            name for name in names if name[1] in ("METHODS", "MODELS", "METRICS", "ENCODERS", "IircConfig", "Evaluation")
        ]
        methods = {module.rpartition(".")[2] for module, _ in names if ".methods." in module} - {"method", "registry"}
        assert methods <= {step.settings["method"].rpartition(":")[0].rpartition(".")[2], "finetune", "er"}


OWN = """
    import torch
    from benchwright.training.methods.method import Method
    from benchwright.training.methods.er import replay

    def calm(*, strength=0.1):
        def teach(lesson):
            lesson.fit(lambda step: step.classification() + strength * step.logits.square().mean())
        return Method("calm", replay, "finetune", {"strength": strength}, teach, "random")

    def net(init, *, sample, width=4):
        layer = torch.nn.Conv2d(3, width, 5, stride=4)
        torch.nn.init.uniform_(layer.weight, -0.1, 0.1, generator=init)
        torch.nn.init.zeros_(layer.bias)
        network = torch.nn.Sequential(layer, torch.nn.Flatten())
        network.width = width * ((sample[1] - 5) // 4 + 1) ** 2
        return network

    def empty(predictions):
        test, last = predictions.tests[0], len(predictions.positions)
        return float((predictions.predicted(last, test)[:, 0] < 0).mean())
"""


def test_own_method_model_and_metric_and_an_edit_of_the_method(tiny: Path, tmp_path: Path) -> None:
    own = tmp_path / "own_iirc.py"
    own.write_text(textwrap.dedent(OWN))
    out = rerun(
        tiny,
        tmp_path / "run",
        f"evaluation.methods=['finetune', '{own}:calm']",
        "evaluation.method_settings={'own_iirc.py:calm'={method={strength=0.2}}}",
        f"evaluation.metrics=['{own}:empty']",
        f"evaluation.model='{own}:net'",
        "evaluation.settings={model={width=3}, schedule={epochs=1, learning_rate=0.1}, view={side_px=16, resize_px=16}}",
    )
    scores = api.train(str(out))["incomplete information"]
    assert list(scores) == ["finetune", "own_iirc.py:calm"]
    assert 0 <= scores["finetune"]["mean"]["empty"] <= 1
    line = line_of(out, "own_iirc.py:calm")
    assert (line.model, line.settings["model.width"], line.settings["method.strength"]) == ("own_iirc.py:net", 3, 0.2)
    before = stages(out)
    own.write_text(textwrap.dedent(OWN).replace("square()", "abs()"))
    assert api.stale(str(out)) == {"incomplete information own_iirc.py:calm": "own_iirc.calm changed"}
    told: list[str] = []
    api.train(str(out), progress=told.append)
    assert [line for line in told if line.endswith(": trained")] == ["incomplete information own_iirc.py:calm, seed 0: trained"]
    after = stages(out)
    assert {name: before[name] for name in before if "finetune" in name}.items() <= after.items()
    assert before != after


@pytest.mark.parametrize("key", ["naive", "mine/own_iirc.py:calm", "own_iirc.py:calm", "WHERE/mine/own_iirc.py:calm"])
def test_settings_of_a_method_by_any_of_its_names(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "mine/own_iirc.py"
    own.parent.mkdir()
    own.write_text(textwrap.dedent(OWN))
    named = key.replace("WHERE", str(tmp_path))
    c = settings("tiny", f"evaluation.method_settings={{'{named}'={{schedule={{epochs=7}}}}}}")
    assert iirc_runs.settings_of(c, "er" if key == "naive" else f"{own}:calm")[1]["schedule"]["epochs"] == 7
    assert iirc_runs.settings_of(c, "finetune")[1]["schedule"]["epochs"] != 7


def test_processes_train_to_the_same_bytes(trained: Path, tiny: Path, tmp_path: Path) -> None:
    out = str(shutil.copytree(tiny, tmp_path / "run"))
    api.train(out, methods=["er", "finetune"], scheduler="processes", workers=2)
    assert stages(Path(out)).items() <= stages(trained).items()


def test_a_loss_that_is_not_finite_stops_its_method_alone(tiny: Path, tmp_path: Path) -> None:
    rate = "evaluation.method_settings.er.schedule.learning_rate=1e30"
    out = str(rerun(tiny, tmp_path / "run", rate, "evaluation.settings.schedule.epochs=1"))
    with pytest.raises(Diverged, match=r"1 training failed: incomplete information er, seed 0: training loss .*: change eval"):
        api.train(out, methods=["er", "finetune"])
    assert list(api.scores(out)["incomplete information"]) == ["finetune"]
