"""IIRC's plan through the engine: the tiny configuration, other sources, presets, what is published, the report."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Colours
from benchwright.curation.png import stored_png
from benchwright.curation.run import Run, TooManyRejects, run
from benchwright.datasets.iirc.facts import facts
from benchwright.datasets.iirc.samples import columns_of
from benchwright.datasets.iirc.view import RefinedView, names_of
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api, config
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.iirc import baselines as iirc_runs
from benchwright.pipelines.iirc import pipeline as iirc
from benchwright.pipelines.iirc.config import IircConfig

from tests.pipelines.conftest import with_another_dataset

VARIANTS = ("class_incremental", "imagenet", "imagenet_lite", "tiny", "tiny_imagenet", "tiny_imagenet_vectors")


def settings(name: str | None, *overrides: str) -> IircConfig:
    return config.load(IircConfig, config.find_config("iirc", name), overrides, benchmark="iirc")[0]


def made(c: IircConfig, out: Path, scheduler: str = "sync") -> Run:
    return run(iirc.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)


def digests(out: Path) -> dict[str, str]:
    return {stage["name"]: stage["digest"] for stage in api.show(str(out))["stages"]}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """The tiny run. Only to be read."""
    out = tmp_path_factory.mktemp("iirc") / "run"
    assert cli.call(["run", "iirc", "--config", "tiny", "--out", str(out), "--quiet"]) == 0
    return out


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
                (name,) = names_of(labels, view.classes)
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
    assert set(facts().confusion["tasks"]) <= set(settings(None).evaluation.confusion_after)
    assert set(VARIANTS) == set(config.variants("iirc"))


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("tiny", ["shares.superclass=1.5"], "share superclass is 1.5"),
        ("tiny", ["source.shapes=9"], "shapes = 9: 1 to 5 can be drawn"),
        ("tiny", ["tasks.first=0"], r"tasks\.first = 0"),
        (None, ['hierarchy={kind="drawn"}'], "belongs to a drawn source"),
        ("tiny", ["source.kind=folder"], "'kind' is 'folder': one of 'cifar100', 'folders', 'tars', 'drawn'"),
    ],
)
def test_settings_that_do_not_fit(name: str | None, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        iirc.plan(settings(name, *overrides), "out")


def test_a_hierarchy_that_does_not_fit_is_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "tree.toml").write_text('[superclasses]\ndisc = ["red disc"]\nred = ["red disc"]\n')
    call = ["run", "iirc", "--config", "tiny", "--out", str(tmp_path / "run"), "--quiet", "--scheduler", "sync"]
    assert cli.call([*call, "--set", f'hierarchy={{kind="file", path="{tmp_path / "tree.toml"}"}}']) == 1
    told = capsys.readouterr().err
    assert "subclass 'red disc' stands under 'disc' and under 'red': one parent, once" in told
    assert "Traceback" not in told


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
    page = Path(iirc.report(settings("tiny"), str(tiny))).read_text()
    for title in ("Hierarchy", "Tasks", "Who is given under what", "Pictures", "Pipeline", "Provenance"):
        assert f">{title}<" in page
    assert "Tree of 3 superclasses with 9 subclasses, and 2 lone subclasses" in page
    assert "DRAWN" in page
    assert "configurations 0, 1; trained: none" in page


def test_the_card_names_every_column(tiny: Path) -> None:
    table = DatasetIndex.open(str(tiny / "dataset")).table
    card = (tiny / "dataset" / "README.md").read_text()
    told = columns_of([0, 1])
    assert [name for name in table.column_names if name not in told] == ["key", "shard", "offset", "size"]
    assert all(f"`{name}`" in card for name in table.column_names)
    assert io.BytesIO((tiny / "dataset" / "index.parquet").read_bytes()).read(4) == b"PAR1"


# ------------------------------------------------------------------------------------------------------------ baselines


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory) -> Path:
    """The tiny run's shards with its three methods trained. Only to be read."""
    out = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(tiny, out)
    assert cli.call(["train", str(out), "--quiet"]) == 0
    return out


def results(out: Path) -> dict[str, bytes]:
    """Everything that the loop wrote."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted((out / "eval").rglob("*")) if path.is_file()}


def test_methods_see_what_they_may(trained: Path) -> None:
    held = {path.parts[-4]: json.loads(path.read_text()) for path in trained.glob("eval/incomplete/*/*/*/results.json")}
    assert set(held) == {"er", "finetune", "incremental_joint"}
    index = DatasetIndex.open(str(trained / "dataset"))
    view = RefinedView(index.table, 0)
    learned = [len(view.training(task).rows) for task in range(len(view.tasks))]
    assert held["er"]["learned"] == held["finetune"]["learned"] == learned
    so_far = [len(view.training(task, information="complete", reach="so_far").rows) for task in range(len(view.tasks))]
    assert held["incremental_joint"]["learned"] == so_far
    assert so_far[-1] < sum(learned)  # a sample of two tasks is learned once
    for result in held.values():
        rows = [one for one in result["measures"] if one["task"] == "all" and one["scope"] == "all"]
        asked = [(one["role"], int(one["known"])) for one in rows]
        assert [one["samples"] for one in rows] == [len(view.evaluation(role, known=known).rows) for role, known in asked]
        assert [one["name"] for one in result["classes"]] == list(view.classes)


def test_a_loop_that_stopped_goes_on_to_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        if "task 1 " in line:
            raise Stopped

    (tmp_path / "dataset").symlink_to(trained / "dataset")
    (tmp_path / "run.json").write_bytes((trained / "run.json").read_bytes())  # with it what is written here is recorded
    with pytest.raises(Stopped):
        iirc_runs.evaluate(settings("tiny"), str(tmp_path), methods=["er"], progress=stop)
    assert iirc_runs.scores(settings("tiny"), str(tmp_path)) == {}
    iirc_runs.evaluate(settings("tiny"), str(tmp_path), methods=["er"], protocols=["configuration-0"])
    told = {name: data for name, data in results(trained).items() if name.startswith("eval/incomplete/er/")}
    assert results(tmp_path) == told


def test_scores_are_better_with_all_samples(trained: Path) -> None:
    found = iirc_runs.scores(settings("tiny"), str(trained))
    assert list(found) == ["incomplete information"]
    means = {name: one["mean"] for name, one in found["incomplete information"].items()}
    assert means["incremental_joint"]["pw-JS"] > means["finetune"]["pw-JS"]
    assert all(one["std"]["pw-JS"] is None and one["runs"] == 1 for one in found["incomplete information"].values())


def test_results_of_an_earlier_dataset_are_left_out(trained: Path, tmp_path: Path) -> None:
    c = settings("tiny")
    assert iirc_runs.stale(c, str(trained)) == {}
    out = with_another_dataset(trained, tmp_path / "run")
    assert iirc_runs.scores(c, out) == iirc_runs.finished(c, out) == {}
    assert list(iirc_runs.stale(c, out).values()) == ["of an earlier dataset"] * 3


def test_what_there_is_not_is_told(trained: Path) -> None:
    for options, message in (
        ({"methods": ["ewc2"]}, "no method 'ewc2'"),
        ({"protocols": ["configuration-7"]}, "no protocol 'configuration-7': there are configuration-0, configuration-1"),
    ):
        with pytest.raises(ValueError, match=message):
            iirc_runs.evaluate(settings("tiny"), str(trained), **options)  # type: ignore[arg-type]
    for override, message in (
        ("evaluation.settings.model.depth=3", "evaluation.settings.model.depth: there are"),
        ("evaluation.settings.net.depth=3", "evaluation.settings.net: there are"),
    ):
        with pytest.raises(ValueError, match=message):
            iirc_runs.baseline_settings(settings("tiny", override), "er")


def test_methods_learn_from_vectors_of_the_same_dataset(tiny: Path, tmp_path: Path) -> None:
    """Colours as vectors: the coloured classes can be told apart by them, and what is published stays the same."""
    chosen = ['vectors={kind="colours"}', "evaluation.settings.model={backbone='mlp', width=8}"]
    c = settings("tiny", *chosen)
    made(c, tmp_path)
    (tmp_path / "dataset").symlink_to(tiny / "dataset")
    index = DatasetIndex.open(str(tmp_path / "dataset"))
    keys = index.table["key"].to_pylist()
    vectors = iirc_runs.read_vectors(str(tmp_path), keys)
    assert vectors.shape == (len(index), 11)
    shown = load_encoder(Colours()).encode_images([ShardDataset(index)[7]["png"]])
    np.testing.assert_array_equal(vectors[7:8], shown)
    found = iirc_runs.evaluate(c, str(tmp_path), methods=["incremental_joint"])["incomplete"]["incremental_joint"]
    assert found[0].curve("pw_js")[0] > 0.3
    page = Path(iirc.report(c, str(tmp_path))).read_text()
    assert "frozen vector" in page
    assert digests(tmp_path)["shards"] == digests(tiny)["shards"]
    with pytest.raises(ValueError, match=r"backbone 'small_cnn' for vectors"):
        iirc_runs.evaluate(settings("tiny", chosen[0]), str(tmp_path), methods=["er"])
    with pytest.raises(ValueError, match="has no vectors"):
        iirc_runs.evaluate(c, str(tiny), methods=["er"])


def test_joint_is_one_task_with_all_labels(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "dataset").symlink_to(tiny / "dataset")
    c = settings("tiny", "evaluation.settings.schedule.epochs=1", "evaluation.information=complete")
    found = iirc_runs.evaluate(c, str(tmp_path), methods=["joint"])
    (result,) = found["complete"]["joint"]
    assert (len(result.tasks), result.learned) == (1, (11 * 24,))
    assert sorted(result.kinds) == ["subclass_with"] * 9 + ["subclass_without"] * 2 + ["superclass"] * 3


def test_the_report_shows_baselines(trained: Path) -> None:
    page = Path(iirc.report(settings("tiny"), str(trained))).read_text()
    for title in ("Baselines, incomplete information", "Confusion, incomplete information"):
        assert f">{title}<" in page
    assert "what would be right" in page
    assert "configurations 0, 1; trained: 0" in page
    assert "pw-JS, mean over tasks" in page


def test_curves_are_averaged_over_configurations(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "run")
    c = settings(
        "tiny", "evaluation.settings.schedule.epochs=1", "evaluation.configurations=[0, 1]", 'evaluation.roles=["test"]'
    )
    found = iirc_runs.evaluate(c, str(tmp_path / "run"), methods=["finetune"])["incomplete"]["finetune"]
    assert len(found) == 2
    last = [one.curve("recall")[-1] for one in found]
    told = iirc_runs.scores(c, str(tmp_path / "run"))["incomplete information"]["finetune"]
    assert told["mean"]["recall"] == pytest.approx(np.mean(last))
    assert told["std"]["recall"] == pytest.approx(np.std(last, ddof=1))
    page = Path(iirc.report(c, str(tmp_path / "run"))).read_text()
    assert "configurations 0, 1</p>" in page  # all were trained
    assert "one standard deviation over runs" in page
