"""CLEAR from sources that bring labels: a release read back, by our writer and by hand, and photos whose classes are known."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from benchwright.curation.verify import verify
from benchwright.datasets.clear.facts import facts
from benchwright.datasets.reader.features import feature_sets, open_features, read_features
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api
from benchwright.pipelines.training_results import results
from PIL import Image

from tests.datasets import release_by_hand as by_hand
from tests.files import files_of

from .conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

SEEDS = [f"iid_seed{seed}" for seed in range(5)]
FEW = [
    "baselines.epochs=3",
    "baselines.learning_rate=0.5",
    "baselines.batch_size=32",
    "baselines.decay_after_epochs=2",
    'baselines.methods=["si", "agem", "reservoir-alpha=1.0-finetune"]',
]


def run(out: Path, config: str, *settings: str) -> pa.Table:
    """The index of the dataset of a run."""
    api.run(api.job("clear", config=config, overrides=[*settings]), str(out))
    return DatasetIndex.open(str(out / "dataset")).table


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, pa.Table]:
    """A run of the tiny CLEAR, its release, and the index of its dataset."""
    folder = tmp_path_factory.mktemp("first")
    table = run(folder / "run", "tiny", *FEW)
    api.release(str(folder / "run"), str(folder / "release"))
    return folder / "run", folder / "release", table


@pytest.fixture(scope="module")
def back(first: tuple[Path, Path, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """A run from that release, and the index of its dataset."""
    out = tmp_path_factory.mktemp("back") / "run"
    return out, run(out, "clear10_release", f"source.root={first[1]}", "source.features=['colours']", *FEW)


def test_a_release_read_back_has_the_labels_buckets_splits_and_times(
    first: tuple[Path, Path, pa.Table], back: tuple[Path, pa.Table]
) -> None:
    same = ["key", "bucket", "label", "class_name", "stream", "date_uploaded", "extension", "width", *SEEDS]
    assert back[1].select(same).to_pylist() == first[2].select(same).to_pylist()
    assert verify(str(back[0])) == []


@pytest.mark.usefixtures("two_seeds")
def test_methods_of_table_1_give_the_same_results_to_the_digit(
    first: tuple[Path, Path, pa.Table], back: tuple[Path, pa.Table]
) -> None:
    columns = ["protocol", "method", "seed", "position", "tested", "metric", "value"]
    found: list[Any] = []
    for out in (first[0], back[0]):
        api.train(str(out))
        found.append(results(str(out)).select(columns).to_pylist())
    assert found[0] == found[1]
    assert {row["protocol"] for row in found[0]} == {"iid", "streaming"}


def test_a_release_of_a_release_has_the_same_files(
    bw: Cli, first: tuple[Path, Path, pa.Table], back: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    told = bw("release", back[0], "--to", tmp_path / "again")
    assert told.code == 0, told.err
    wanted = {name: digest for name, digest in files_of(first[1]).items() if not name.startswith("all_metadata/")}
    assert files_of(tmp_path / "again") == wanted


def test_train_and_test_folders_are_written_and_read_back(bw: Cli, first: tuple[Path, Path, pa.Table], tmp_path: Path) -> None:
    told = bw("release", first[0], "--to", tmp_path / "two", "--layout", "train_test")
    assert told.code == 0
    assert told.err.splitlines() == [
        "benchwright: warning: Avalanche will not find the buckets of its streaming protocol: it counts them from 0, and these "
        "are 1, 2, 3",
        "benchwright: warning: Avalanche will not find the features: it has the names moco_b0, and these are called colours",
    ]
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["test", "train"]
    features = ["source.features=['colours']", f"source.root={tmp_path / 'two'}"]
    table = run(tmp_path / "run", "clear10_release", *features).sort_by("key")
    wanted = first[2].sort_by("key")
    same = ["key", "bucket", "label", "class_name", "iid_seed0"]
    assert table.select(same).to_pylist() == wanted.select(same).to_pylist()
    assert all(table[name].equals(table["iid_seed0"]) for name in SEEDS)
    vectors = _vectors(tmp_path / "run", "colours")
    values, index = read_features(DatasetIndex.open(str(first[0] / "dataset")))
    assert [vectors[key].tolist() for key in index["key"].to_pylist()] == values.tolist()
    again = bw("release", tmp_path / "run", "--to", tmp_path / "again", "--layout", "train_test")
    assert again.code == 0
    assert files_of(tmp_path / "again") == files_of(tmp_path / "two")
    wrong = bw("release", first[0], "--to", tmp_path / "no", "--layout", "train-test")
    assert wrong.code == 2
    assert "did you mean 'train_test'?" in wrong.err
    assert not (tmp_path / "no").exists()


def _vectors(out: Path, name: str = "moco_b0") -> dict[str, Any]:
    values, table = open_features(out / "dataset", name)
    return dict(zip(table["key"].to_pylist(), values, strict=True))


def test_what_avalanche_cannot_find_is_told(bw: Cli, tmp_path: Path) -> None:
    share = "splits.test_share=0.4"
    run(tmp_path / "run", "tiny", share)
    told = bw("release", tmp_path / "run", "--to", tmp_path / "release")
    assert told.err.splitlines() == [
        "benchwright: warning: Avalanche will not find the splits of its iid protocol: it reads testset_ratio_0.3 with seeds 0 "
        "to 4, found: testset_ratio_0.4 with 5 seeds",
        "benchwright: warning: Avalanche will not find the features: it has the names moco_b0, moco_imagenet, byol_imagenet, "
        "imagenet, and these are called colours",
    ]
    root = f"source.root={tmp_path / 'release'}"
    given = ["--set", root, "--set", "source.features=['colours']"]
    back = bw("run", "clear", "--config", "clear10_release", *given, "--out", tmp_path / "no")
    assert "testset_ratio_0.4 is: set source.test_share = 0.4" in back.err
    assert back.err.count("\n") == 1


# ---------------------------------------------------------------------------------------------------------- by hand


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand.write_release(tmp_path_factory.mktemp("made") / "CLEAR10-TEST")


def test_from_a_folder_made_by_hand_to_table_1_in_one_command(bw: Cli, made: Path, tmp_path: Path) -> None:
    out, few = tmp_path / "run", ["--set", "baselines.epochs=1"]
    told = bw("run", "clear", "--config", "clear10_release", "--set", f"source.root={made}", *few, "--out", out, "--train")
    assert told.code == 0, told.err
    table = DatasetIndex.open(str(out / "dataset")).table
    files = dict(zip(table["file"].to_pylist(), table.to_pylist(), strict=True))
    training, listed = made / "training_folder", 0
    for bucket in by_hand.BUCKETS:
        for line in (training / f"filelists/{bucket}/all.txt").read_text().split("\n"):
            path, label = line.split()
            row = files[path]
            assert (row["bucket"], row["label"], row["key"]) == (int(bucket), int(label), Path(path).stem)
            for seed in range(5):
                part = training / f"testset_ratio_0.3/split_{seed}/{bucket}/{row[f'iid_seed{seed}']}.txt"
                assert line in part.read_text().split("\n")
            listed += 1
    assert listed == table.num_rows == 42
    vectors = _vectors(out)
    for number in range(by_hand.EACH):
        assert np.array_equal(vectors[by_hand.identity("2", 1, number)], by_hand.vector("2", 1, number).numpy())
    page = (out / "report.html").read_text()
    rows = page.partition(">Baselines, both protocols</h2>")[2].partition("</table>")[0]
    table1 = ["ewc", "si", "lwf", "cwr", "gdumb", "er", "agem", "reservoir-alpha=1.0-finetune"]
    assert all(f">{name}<" in rows for name in [*table1, "dynamic_reservoir-alpha=1.0-finetune"])
    assert {row["seed"] for row in results(str(out)).to_pylist() if row["protocol"] == "iid"} == set(range(5))


def test_card_and_report_of_labels_that_came_along_tell_of_nobody_who_confirmed_them(made: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", "clear10_release", f"source.root={made}")
    api.report(str(tmp_path / "run"))
    card = (tmp_path / "run/dataset/README.md").read_text()
    page = (tmp_path / "run/report.html").read_text()
    assert "Limits of the buckets by date_uploaded" in page  # as the metadata of the release have them
    for text in (card, page):
        assert not [word for word in ("annotator", "confirmed", "retrieved", "retrieval") if word in text.lower()]
    assert "labels, buckets and splits are those of the release that was read" in card
    assert "BACKGROUND, camera, computer" in card


def test_card_of_a_run_without_votes_says_that_nobody_looked(tmp_path: Path) -> None:
    run(tmp_path / "run", "tiny", "qa.votes=none")
    card = (tmp_path / "run/dataset/README.md").read_text()
    assert "red, green, blue; not checked by annotators" in card
    assert "confirmed" not in card.partition("##")[0]


@pytest.fixture(scope="module")
def several(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A release with a second set, whose vectors tell nothing, and a run of both that was trained by each."""
    folder = tmp_path_factory.mktemp("several")
    root = Path(shutil.copytree(made, folder / "release"))
    for bucket in by_hand.BUCKETS:
        values, labels = torch.load(root / f"training_folder/features/moco_b0/{bucket}/all.pth", weights_only=True)
        (root / f"training_folder/features/imagenet/{bucket}").mkdir(parents=True)
        torch.save((values[:, :4] * 0 + 1, labels), root / f"training_folder/features/imagenet/{bucket}/all.pth")
    few = ["baselines.epochs=3", 'baselines.methods=["nap-finetune"]']
    run(folder / "run", "clear10_release", f"source.root={root}", 'source.features=["moco_b0", "imagenet"]', *few)
    api.train(str(folder / "run"))  # the first set
    api.train(str(folder / "run"), overrides=["baselines.features=imagenet"])  # at the paper's rate for them
    return root, folder / "run"


@pytest.mark.usefixtures("two_seeds")
def test_sets_of_a_release_stand_side_by_side_in_one_run(several: tuple[Path, Path]) -> None:
    out = several[1]
    assert verify(str(out)) == []
    known = feature_sets(out / "dataset")
    assert {name: (each["released"], each["shape"]) for name, each in known.items()} == {
        "moco_b0": ("moco_b0", [42, 6]),
        "imagenet": ("imagenet", [42, 4]),
    }
    scores = api.scores(str(out))["iid"]
    assert scores["nap-finetune, features = moco_b0"]["mean"]["in-domain"] > 0.9
    assert scores["nap-finetune, features = imagenet"]["mean"]["in-domain"] < 0.5
    apart = scores["nap-finetune, features = imagenet"]["apart"]
    assert (apart.pop("schedule.learning_rate"), [*apart]) == (0.1, ["features_digest"])
    api.report(str(out))
    page = (out / "report.html").read_text()
    for protocol, both in (("iid", ["in-domain", "next-domain"]), ("streaming", ["next-domain"])):
        part = page.partition(f">Baselines, {protocol} protocol</h2>")[2].partition("<h2")[0]
        columns = [f"{metric}, {name}" for metric in both for name in ("imagenet_rn50", "moco_b0")]
        assert re.findall(r"<th[^>]*>([a-z]+-domain, [^<]*)</th>", part)[: len(columns)] == columns, (
            "in the form of Tables 6 and 8"
        )
    for title in ("Map of the vectors", "Drift"):
        part = page.partition(f">{title}</h2>")[2].partition("<h2")[0]
        assert re.findall(r"<summary>(moco_b0|imagenet)</summary>", part) == ["moco_b0", "imagenet"]


@pytest.mark.usefixtures("two_seeds")
def test_the_papers_figures_stand_beside_a_release_that_its_holder_states_to_be_the_archive(
    several: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = several[0], shutil.copytree(several[1], tmp_path / "run")
    monkeypatch.setattr(facts().buckets, "labelled", [1, 2])  # as if these counts were the published ones
    monkeypatch.setattr(facts().choice, "per_class", by_hand.EACH)
    monkeypatch.setattr(facts(), "class_names", tuple(by_hand.CLASSES))
    api.train(str(out), protocols=["iid"], overrides=["baselines.epochs=100"])  # the paper's settings
    page = Path(api.report(str(out))).read_text()
    digests = dict(re.findall(r"--set source\.published\.(\w+)=([0-9a-f]{64})", page))
    assert [*digests] == ["dataset", "moco_b0", "imagenet"]
    assert "the CLEAR paper, Table" not in page
    stated = [f"source.published.{name}={digest}" for name, digest in digests.items()]
    few = ["baselines.epochs=3", 'baselines.methods=["nap-finetune"]', 'source.features=["moco_b0", "imagenet"]']
    run(out, "clear10_release", f"source.root={root}", *few, *stated)
    page = Path(api.report(str(out))).read_text()
    assert "because the setting source.published states that" in page
    rows = page.partition(">Baselines, iid protocol</h2>")[2].partition("</table>")[0]
    assert "the CLEAR paper, Tables" in rows


def test_a_release_of_several_sets_has_them_all(several: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = several
    api.release(str(out), str(tmp_path / "again"))
    places = sorted(path.relative_to(root) for path in (root / "training_folder/features").rglob("*.pth"))
    assert len(places) == 4
    for place in places:
        wanted, found = (torch.load(folder / place, weights_only=True) for folder in (root, tmp_path / "again"))
        assert torch.equal(wanted[0], found[0])
        assert wanted[1] == found[1]
    api.release(str(out), str(tmp_path / "two"), layout="train_test")
    sets = ["moco_b0", "imagenet"]
    named = ['source.features=["moco_b0", "imagenet"]', 'baselines.methods=["nap-finetune"]']
    run(tmp_path / "back", "clear10_release", f"source.root={tmp_path / 'two'}", *named)
    for name in sets:
        one, other = _vectors(out, name), _vectors(tmp_path / "back", name)
        assert {key: each.tolist() for key, each in one.items()} == {key: each.tolist() for key, each in other.items()}


@pytest.mark.usefixtures("two_seeds")
def test_a_part_without_images_is_trained(bw: Cli, made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "part"))
    shutil.rmtree(root / "labeled_images")
    part = ["source.images=false", 'source.classes=["computer", "BACKGROUND"]']
    table = run(tmp_path / "run", "clear10_release", f"source.root={root}", *part, "baselines.epochs=1")
    assert Counter(zip(table["label"].to_pylist(), table["class_name"].to_pylist(), strict=True)) == {
        (0, "BACKGROUND"): 14,
        (2, "computer"): 14,
    }
    scores = api.train(str(tmp_path / "run"), methods=["er"])
    assert set(scores) == {"iid", "streaming"}
    assert bw("report", tmp_path / "run").code == 0
    refused = bw("release", tmp_path / "run", "--to", tmp_path / "release")
    assert refused.code == 2
    assert "the run has no images" in refused.err


def test_a_part_of_the_classes_is_released_with_the_names_of_all(bw: Cli, made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "part"))
    run(tmp_path / "run", "clear10_release", f"source.root={root}", 'source.classes=["camera"]')
    assert bw("release", tmp_path / "run", "--to", tmp_path / "release").code == 0
    assert (tmp_path / "release/class_names.txt").read_text() == "BACKGROUND\ncamera\ncomputer"
    shutil.rmtree(root)
    gone = bw("release", tmp_path / "run", "--to", tmp_path / "release2")
    assert gone.code == 2
    assert "the class names are read from it again" in gone.err


@pytest.mark.usefixtures("two_seeds")
def test_without_splits_iid_is_left_out(bw: Cli, made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "part"))
    shutil.rmtree(root / "training_folder/testset_ratio_0.3")
    run(tmp_path / "run", "clear10_release", f"source.root={root}", "baselines.epochs=1", 'baselines.methods=["er"]')
    told = bw("train", tmp_path / "run")
    assert told.code == 0
    assert "has no iid splits, since its release has none: skipping this protocol" in told.err
    assert {row["protocol"] for row in results(str(tmp_path / "run")).to_pylist()} == {"streaming"}
    asked = bw("train", tmp_path / "run", "--protocol", "iid")
    assert asked.code == 2
    assert "has no iid splits" in asked.err
    assert bw("release", tmp_path / "run", "--to", tmp_path / "two", "--layout", "train_test").code == 2


def test_seeds_that_a_release_lacks_are_not_trained(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made, tmp_path / "part"))
    for seed in (1, 4):
        shutil.rmtree(root / f"training_folder/testset_ratio_0.3/split_{seed}")
    run(tmp_path / "run", "clear10_release", f"source.root={root}", "baselines.epochs=1", 'baselines.methods=["er"]')
    api.train(str(tmp_path / "run"))
    seeds = {(row["protocol"], row["seed"]) for row in results(str(tmp_path / "run")).to_pylist()}
    assert seeds == {*(("iid", seed) for seed in (0, 2, 3)), *(("streaming", seed) for seed in range(5))}


@pytest.mark.usefixtures("two_seeds")
def test_an_encoder_takes_the_place_of_features(made: Path, tmp_path: Path) -> None:
    encoder = ["source.features=[]", "encoder.kind=colours"]
    run(tmp_path / "run", "clear10_release", f"source.root={made}", *encoder, "baselines.epochs=1")
    assert set(api.train(str(tmp_path / "run"), methods=["er"])) == {"iid", "streaming"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            ["splits={rule='as_written', test_share=0.3}"],
            "splits = .*: source.kind = 'release' comes with its own labels, buckets and",
        ),
        (
            ["qa.votes=none"],
            "qa = .*: source.kind = 'release' comes with its own labels, buckets and splits: remove this table",
        ),
        (["encoder.kind=colours", "source.images=false"], "encoder = .*source.images = false leaves no image to encode"),
        (["source.features=[]", "source.images=false"], "source = .*: images = false and no features: there would be nothing"),
        (["images.take_first=9"], "images = .*: take_first and drop_duplicates would change the lists of the release"),
        (["source.features=['../x']"], r"source.features = \['../x'\]: the name '../x': it should be small letters"),
        (["source.features=['a', 'a']"], r"source.features = .*: a, a: one appears twice"),
        (["features.moco_b0.weights=x"], "features = .*moco_b0: source.features has 'moco_b0', its name in a release"),
        (["baselines.features=clip"], "baselines.features = 'clip': there are embedding, moco_b0, pixels"),
        (["source.features=['moco_b0', 'imagenet']"], "source.features: 'imagenet' is not in the release: there are moco_b0"),
        (["source.published.clip=x"], "source.published.clip = 'x': a digest has 64 digits"),
        ([f"source.published.clip={'0' * 64}"], "source = .*: published.clip: there are dataset, moco_b0"),
        (["source.root=/nowhere"], "/nowhere"),
        (["source.buckets=[7]"], r"source.buckets: 7 is not in the release: there are 1, 2"),
    ],
)
def test_settings_that_do_not_fit_a_release_are_refused_in_one_line(
    bw: Cli, made: Path, tmp_path: Path, settings: list[str], told: str
) -> None:
    given = [part for setting in [f"source.root={made}", *settings] for part in ("--set", setting)]
    done = bw("run", "clear", "--config", "clear10_release", *given, "--out", tmp_path / "run", "--quiet")
    assert done.code in (1, 2)
    assert re.search(told, done.err)
    assert done.err.count("\n") == 1
    if "source.features" in told:
        assert not (tmp_path / "run").exists(), "it is told before anything is made"


@pytest.mark.parametrize("section", ["buckets", "encoder", "retrieval", "classes", "qa", "choice", "splits"])
def test_a_source_without_labels_needs_every_section(bw: Cli, tmp_path: Path, section: str) -> None:
    lines = bw("config", "clear", "--config", "tiny").out.splitlines()
    kept, table = [], ""
    for line in lines:
        table = line.strip("[]") if line.startswith("[") else table
        kept += [] if table.partition(".")[0] == section else [line]
    (tmp_path / "mine.toml").write_text("\n".join(kept))
    done = bw("run", "clear", "--config", tmp_path / "mine.toml", "--out", tmp_path / "run")
    assert done.code == 2
    assert done.err == (
        f"benchwright: mine.toml: {section}: this setting is missing: give it in the file, or with --set {section}=...\n"
    )


def test_a_dataset_without_vectors_is_refused_by_the_baselines_in_one_line(bw: Cli, made: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", "clear10_release", f"source.root={made}", "source.features=[]")
    done = bw("train", tmp_path / "run")
    assert done.code == 2
    assert "has no vectors to train on: name those of the release in source.features, or an encoder" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.usefixtures("two_seeds")
def test_images_of_a_release_are_learned_without_any_vectors(bw: Cli, made: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", "clear10_release", f"source.root={made}", "source.features=[]")
    small = [f"baselines.{each}" for each in ("features=pixels", "preset=resnet18", "view.side_px=16", "view.resize_px=16")]
    sets = [word for each in [*small, "baselines.epochs=1"] for word in ("--set", each)]
    told = bw("train", tmp_path / "run", "-p", "streaming", "-m", "finetune", *sets)
    assert told.code == 0, told.err
    assert {row["method"] for row in results(str(tmp_path / "run")).to_pylist()} == {"finetune"}
    run(tmp_path / "lists", "clear10_release", f"source.root={made}", "source.images=false")
    told = bw("train", tmp_path / "lists", "-m", "finetune", *sets)
    assert told.code == 2
    assert "has no images, and baselines.features is 'pixels': set source.images = true" in told.err
    assert told.err.count("\n") == 1


# --------------------------------------------------------------------------------------------------------- avalanche


AVALANCHE = os.environ.get("AVALANCHE_PYTHON", "")
"""Python of an environment as ``benchmarks/compare_avalanche.py`` makes one."""

VIEW = """
import contextlib, json, sys
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
library = ensure_torchvision()
from avalanche.benchmarks.classic import CLEAR
from avalanche.benchmarks.datasets.clear import _CLEARFeature, _CLEARImage
public, two = sys.argv[1:]
found = {}
with contextlib.redirect_stdout(sys.stderr):
    for seed in range(5):
        for part in ("train", "test"):
            given = {"data_name": "clear10_neurips2021", "root": public, "download": False, "split": part, "seed": seed}
            found[f"images {seed} {part}"] = _CLEARImage(**given).get_paths_and_targets(root_appended=False)
            vectors = _CLEARFeature(**given, feature_type="moco_b0").tensors_and_targets
            found[f"vectors {seed} {part}"] = [[[v.tolist() for v in values], labels] for values, labels in vectors]
            given = {**given, "data_name": "clear10", "root": two}
            images, vectors = _CLEARImage(**given), _CLEARFeature(**given, feature_type="moco_b0")
            found[f"two {seed} {part}"] = sorted({(str(p.relative_to(two)), y) for p, y in zip(images.paths, images.targets)})
            found[f"two vectors {seed} {part}"] = len({tuple(v.tolist()) for v in vectors.tensors})
    iid = CLEAR(data_name="clear10_neurips2021", evaluation_protocol="iid", seed=0, dataset_root=public)
    streaming = CLEAR(data_name="clear10_neurips2021", evaluation_protocol="streaming", dataset_root=public)
found["experiences"] = [[len(e.dataset) for e in b.train_stream] for b in (iid, streaming)]
print(json.dumps(found))
"""


@pytest.mark.skipif(not AVALANCHE, reason="AVALANCHE_PYTHON names no Python with Avalanche")
def test_avalanches_view_of_a_release_is_ours(made: Path, tmp_path: Path) -> None:
    table = run(tmp_path / "run", "clear10_release", f"source.root={made}")
    api.release(str(tmp_path / "run"), str(tmp_path / "public"))
    api.release(str(tmp_path / "run"), str(tmp_path / "two"), layout="train_test")
    command = [AVALANCHE, "-W", "ignore", "-c", VIEW, str(tmp_path / "public"), str(tmp_path / "two")]
    seen = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    rows, vectors = table.to_pylist(), _vectors(tmp_path / "run")

    def ours(seed: int, part: str, bucket: int) -> list[tuple[str, int]]:
        found = [row for row in rows if row["bucket"] == bucket and row[f"iid_seed{seed}"] == part]
        return [(row["key"], row["label"]) for row in found]

    for seed in range(5):
        for part in ("train", "test"):
            for at, bucket in enumerate((1, 2)):
                wanted = ours(seed, part, bucket)
                listed = seen[f"images {seed} {part}"][at]
                assert sorted((Path(path).stem, label) for path, label in listed) == sorted(wanted)
                values, labels = seen[f"vectors {seed} {part}"][at]
                mine = [vectors[Path(path).stem].tolist() for path, _ in listed]
                assert (values, labels) == (mine, [label for _, label in listed])
            # Avalanche 0.6.0 gives the images of all buckets as those of each: they are compared together.
            wanted = [*ours(0, part, 1), *ours(0, part, 2)]
            assert sorted((Path(path).stem, label) for path, label in seen[f"two {seed} {part}"]) == sorted(wanted)
            assert all(path.split("/")[0] == part for path, _ in seen[f"two {seed} {part}"])
            assert seen[f"two vectors {seed} {part}"] == len(wanted)
    assert seen["experiences"] == [[15, 15], [21, 21]]


# ---------------------------------------------------------------------------------------------------------- labelled


def photo(path: Path, colour: tuple[int, int, int], taken: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if taken is not None:
        exif.get_ifd(0x8769)[0x9003] = taken
    out = io.BytesIO()
    drawn = np.random.default_rng(len(path.name) + sum(colour)).integers(-20, 20, (16, 16, 3)) + np.array(colour)
    Image.fromarray(drawn.clip(0, 255).astype(np.uint8)).save(out, "JPEG", exif=exif.tobytes())
    path.write_bytes(out.getvalue())


COLOURS = {"bus": (200, 30, 30), "BACKGROUND": (90, 90, 90), "camera": (30, 30, 200)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for name, colour in COLOURS.items():
        for year in (2007, 2008, 2009):
            for number in range(8):
                photo(root / name / str(year) / f"{number}.jpg", colour, f"{year}:05:0{number + 1} 12:00:00")
    photo(root / "bus" / "undated.jpg", COLOURS["bus"], None)
    photo(root / "nowhere.jpg", COLOURS["bus"], "2007:05:01 12:00:00")
    (root / ".hidden").write_text("")
    return root


LABELLED = ['buckets.rule={kind="calendar", period="year"}', "encoder.kind=colours", "baselines.epochs=2"]


@pytest.mark.usefixtures("two_seeds")
def test_class_folders_with_exif_become_a_benchmark(bw: Cli, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = [f"source.root={photos}", *LABELLED, "baselines.methods=['finetune', 'er']"]
    given = [part for setting in settings for part in ("--set", setting)]
    told = bw("run", "clear", "--config", "labelled", *given, "--out", out, "--train")
    assert told.code == 0, told.err
    table = DatasetIndex.open(str(out / "dataset")).table
    assert Counter(zip(*(table[name].to_pylist() for name in ("bucket", "label", "class_name")), strict=True)) == {
        (bucket, label, name): 8 for bucket in range(3) for label, name in enumerate(("BACKGROUND", "bus", "camera"))
    }
    assert Counter(table["iid_seed0"].to_pylist()) == {"train": 54, "test": 18}, "int(0.3 x 8) of each class and bucket"
    reasons = Counter(row["reason"] for row in api.rejects(str(out)))
    assert reasons == {"no_date": 1, "no_class": 1, "hidden": 1}
    assert [*api.scores(str(out))["iid"]] == ["finetune", "er"]
    card = (out / "dataset/README.md").read_text()
    assert "as their source labels them" in card
    assert not [word for word in ("annotator", "confirmed", "retrieved") if word in card + (out / "report.html").read_text()]
    assert bw("release", out, "--to", tmp_path / "release").code == 0
    assert (tmp_path / "release/class_names.txt").read_text() == "BACKGROUND\nbus\ncamera"
    features = [f"source.root={tmp_path / 'release'}", "source.features=['colours']"]
    back = run(tmp_path / "back", "clear10_release", *features)
    same = ["key", "bucket", "label", "class_name", *SEEDS]
    assert back.select(same).to_pylist() == table.select(same).to_pylist()


def test_a_csv_file_gives_paths_labels_and_dates(photos: Path, tmp_path: Path) -> None:
    with (tmp_path / "mine.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["path", "label", "date", "place"])
        for at, path in enumerate(sorted(photos.rglob("*.jpg"))):
            taken = "" if at == 0 else f"20{10 + at % 3}-01-0{1 + at % 9}"
            lines.writerow([path.relative_to(photos), "" if at == 1 else "zebra" if at % 2 else "ant", taken, "Rome"])
        lines.writerow(["bus/gone.jpg", "ant", "2010-01-01", "Rome"])
    given = [f"source.root={photos}", f"source.csv={tmp_path / 'mine.csv'}", "source.background=zebra", *LABELLED]
    table = run(tmp_path / "run", "labelled", *given)
    assert Counter(table["class_name"].to_pylist()) == {"zebra": 36, "ant": 36}
    assert dict(zip(table["class_name"].to_pylist(), table["label"].to_pylist(), strict=True)) == {"zebra": 0, "ant": 1}
    reasons = Counter(row["reason"] for row in api.rejects(str(tmp_path / "run")))
    assert reasons == {"no_date": 1, "no_class": 1, "missing_file": 1, "hidden": 1}


@pytest.mark.parametrize("listed", [False, True])
def test_a_background_that_no_photo_has_is_told_before_anything_is_made(
    bw: Cli, photos: Path, tmp_path: Path, listed: bool
) -> None:
    given, there = [f"source.root={photos}", "source.background=none", *LABELLED], "BACKGROUND, bus, camera"
    if listed:
        (tmp_path / "mine.csv").write_text("path,label,date\nbus/2007/0.jpg,ant,2011-05-05\nbus/2007/1.jpg,,2011-05-05\n")
        given, there = [*given, f"source.csv={tmp_path / 'mine.csv'}"], "ant"
    done = bw("run", "clear", "--config", "labelled", *(x for s in given for x in ("--set", s)), "--out", tmp_path / "no")
    assert (done.code, done.err) == (2, f"benchwright: source.background = 'none': there are {there}\n")
    assert not (tmp_path / "no").exists()


def test_columns_have_the_names_that_the_settings_say(bw: Cli, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("bild,tag\nbus/2007/0.jpg,2011-05-05\ncamera/2007/0.jpg,2012-05-05\n")
    given = [f"source.root={photos}", f"source.csv={tmp_path / 'mine.csv'}", "images.max_rejects=100", *LABELLED]
    told = bw("run", "clear", "--config", "labelled", *(x for s in given for x in ("--set", s)), "--out", tmp_path / "no")
    assert "mine.csv: columns bild, tag: path and date are needed, each once" in told.err
    named = ["source.path_column=bild", "source.date_column=tag"]
    wrong = (x for s in (*given, *named, "source.label_column=art") for x in ("--set", s))
    told = bw("run", "clear", "--config", "labelled", *wrong, "--out", tmp_path / "neither")
    assert (told.code, told.err.count("\n")) == (1, 1), told.err
    assert "source.label_column = 'art': source.csv has no such column" in told.err
    table = run(tmp_path / "run", "labelled", *given, *named)
    assert table.select(["class_name", "bucket"]).to_pylist() == [
        {"class_name": "bus", "bucket": 0},
        {"class_name": "camera", "bucket": 1},
    ]
    assert [str(date.year) for date in table["date_taken"].to_pylist()] == ["2011", "2012"]


def test_as_many_of_each_class_are_chosen_where_the_settings_say_so(bw: Cli, photos: Path, tmp_path: Path) -> None:
    choice = 'choice={per_class=5, method="random", on_shortage="error"}'
    table = run(tmp_path / "run", "labelled", f"source.root={photos}", choice, *LABELLED)
    assert set(Counter(zip(table["bucket"].to_pylist(), table["label"].to_pylist(), strict=True)).values()) == {5}
    wrong = [f"source.root={photos}", choice.replace("random", "top_score"), *LABELLED]
    told = bw("run", "clear", "--config", "labelled", *(x for s in wrong for x in ("--set", s)), "--out", tmp_path / "no")
    assert "source.kind = 'labelled' has no scores: only choice.method = 'random' works" in told.err
    assert told.err.count("\n") == 1
