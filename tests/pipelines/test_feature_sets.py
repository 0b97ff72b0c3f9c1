"""Feature sets of a run: a stage each beside the shards, published, checked, learned from and released."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.code_changes import definitions
from benchwright.curation.keys import fingerprint
from benchwright.curation.ustar import ShardError
from benchwright.datasets.clear.facts import RELEASED, facts
from benchwright.datasets.features.networks import network
from benchwright.datasets.reader.features import feature_sets, open_features, read_features
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.jobs import job, job_of
from benchwright.pipelines.training_results import finished_trainings
from benchwright.training.data.pictures import shard_pictures

from tests.datasets.test_feature_networks import moco, torchvision_model
from tests.files import files_of
from tests.pipelines.conftest import Cli
from tests.pipelines.test_keys_cover_what_runs import Watch, missed

pytestmark = pytest.mark.usefixtures("blank_figures")

TOY = ("features.toy.encoder={kind='colours'}", "features.toy.stored=float16")
SMALL = '{kind="network", model="resnet18", resize_px=32, side_px=32}'


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "moco_b0.pth.tar"
    torch.save(moco(torchvision_model("resnet18")), path)
    return path


def overrides(weights: Path, *more: str) -> list[str]:
    return [f"features.moco_b0.weights={weights}", f"features.moco_b0.encoder={SMALL}", *more]


@pytest.fixture(scope="session")
def featured(tmp_path_factory: pytest.TempPathFactory, tiny: Path, weights: Path) -> Path:
    """The tiny run with two feature sets. Only to be read."""
    out = Path(shutil.copytree(tiny, tmp_path_factory.mktemp("featured") / "run"))
    api.run(job("clear", config="tiny", overrides=overrides(weights, *TOY)), str(out))
    return out


@pytest.fixture
def run(featured: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(featured, tmp_path / "run"))


def made(out: Path) -> dict[str, str]:
    """When each stage was made. In a copy of a run the votes have other times, and are counted again."""
    return {path.parent.name: path.read_text() for path in out.glob("stages/*/made.json") if path.parent.name != "voted"}


def table(out: Path) -> dict[str, Any]:
    return json.loads((out / "dataset/dataset.json").read_text())


def test_a_feature_set_is_a_stage_beside_the_shards(tiny: Path, featured: Path, weights: Path) -> None:
    before, after = files_of(tiny), files_of(featured)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {"run.json", "dataset/croissant.json", "dataset/dataset.json", "dataset/README.md"}
    assert {name.split("/")[1] for name in after.keys() - before if name.startswith("stages")} == {
        "pictures",
        "features_moco_b0",
        "features_toy",
    }
    assert api.show(str(featured))["digest"] == api.show(str(tiny))["digest"] == table(featured)["digest"]
    assert api.verify(str(featured)) == []
    told = feature_sets(featured / "dataset")
    stages = {stage["name"]: stage["digest"] for stage in api.show(str(featured))["stages"]}
    assert {name: (each["dtype"], each["shape"][1], each["digest"]) for name, each in told.items()} == {
        "moco_b0": ("float32", 512, stages["features_moco_b0"]),
        "toy": ("float16", 11, stages["features_toy"]),
    }
    assert told["moco_b0"]["checkpoint"] == fingerprint(str(weights)).content
    assert told["moco_b0"]["encoder"]["model"] == "resnet18"
    assert "| `moco_b0` | features/moco_b0.npy | float32 |" in (featured / "dataset/README.md").read_text()


def test_rows_are_those_of_the_index_and_are_mapped(featured: Path, weights: Path) -> None:
    dataset = featured / "dataset"
    values, index = open_features(dataset, "moco_b0")
    assert isinstance(values, np.memmap)
    assert not values.flags.writeable
    assert index.equals(DatasetIndex.open(dataset).table)
    encoder = network(checkpoint=str(weights), device="cpu", model="resnet18", resize_px=32, side_px=32)
    for row in (0, 77, len(values) - 1):
        [picture] = shard_pictures(DatasetIndex.open(dataset))([row])
        np.testing.assert_array_equal(values[row], encoder.encode_prepared([encoder.prepare(picture)])[0])
    toy, _ = open_features(dataset, "toy")
    embedding, _ = read_features(DatasetIndex.open(dataset))  # by the same encoder
    np.testing.assert_array_equal(toy, embedding.astype(np.float16))
    some = DatasetIndex.open(dataset, where={"class_name": ["red", "blue"]})
    np.testing.assert_array_equal(open_features(some, "toy")[0], toy[some.positions])
    bucket = DatasetIndex.open(dataset, where={"bucket": 2})
    assert isinstance(open_features(bucket, "toy")[0], np.memmap)
    with pytest.raises(ValueError, match="no feature set 'tot': there are moco_b0, toy"):
        open_features(dataset, "tot")


def test_one_more_makes_one_stage_and_other_weights_make_it_again(run: Path, weights: Path, tmp_path: Path) -> None:
    first = made(run)
    other = tmp_path / "other.pth"
    torch.save(torchvision_model("resnet18", 5).state_dict(), other)
    config = overrides(weights, *TOY)
    more = [f"features.imagenet.weights={other}", f"features.imagenet.encoder={SMALL}"]
    api.run(job("clear", config="tiny", overrides=[*config, *more]), str(run))
    second = made(run)
    assert {name for name in second if second[name] != first.get(name)} == {"features_imagenet"}
    other.write_bytes(weights.read_bytes())
    api.run(job("clear", config="tiny", overrides=[*config, *more]), str(run))
    third = made(run)
    assert {name for name in third if third[name] != second[name]} == {"features_imagenet"}
    values = [open_features(run / "dataset", name)[0] for name in ("imagenet", "moco_b0")]
    np.testing.assert_array_equal(*values)
    assert api.verify(str(run)) == []


def test_what_changes_no_image_makes_no_features_again(run: Path, weights: Path) -> None:
    before = made(run)
    config = overrides(weights, *TOY)
    api.run(job("clear", config="tiny", overrides=[*config, "splits.test_share=0.4", "shards.max_samples=20"]), str(run))
    after = made(run)
    assert {name for name in after if after[name] != before[name]} == {"placed", "pictures", "split", "shards"}
    assert api.verify(str(run)) == []


def test_feature_sets_that_are_no_more_are_taken_away(run: Path, weights: Path) -> None:
    api.run(job("clear", config="tiny", overrides=overrides(weights)), str(run))
    assert [path.name for path in (run / "dataset/features").iterdir()] == ["moco_b0.npy"]
    api.run(job("clear", config="tiny"), str(run))
    assert not (run / "dataset/features").exists()
    assert "features" not in table(run)
    assert not [each for each in api.verify(str(run)) if each.place.startswith("dataset")]


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "stranger", "folder"])
def test_verify_finds_damage_and_a_run_mends_it(run: Path, weights: Path, damage: str) -> None:
    file = run / "dataset/features/moco_b0.npy"
    whole = file.read_bytes()
    place = f"dataset/features/{'moco_b0.npy' if damage in ('flipped', 'cut', 'gone') else 'other'}"
    match damage:
        case "flipped":
            file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        case "cut":
            file.write_bytes(whole[:-4])
        case "gone":
            file.unlink()
        case "stranger":
            (run / place).write_text("x")
        case _:
            (run / place).mkdir()
    assert [each.place for each in api.verify(str(run))] == [place]
    if damage in ("cut", "gone"):
        with pytest.raises(ShardError, match=r"features/moco_b0\.npy: .*(bytes, expected|is missing)"):
            open_features(run / "dataset", "moco_b0")
    if damage == "folder":
        return  # what it holds may be anyone's
    config = overrides(weights, *TOY)
    api.run(job("clear", config="tiny", overrides=config), str(run))
    assert file.read_bytes() == whole
    assert api.verify(str(run)) == []


def test_files_that_are_not_what_the_dataset_says_are_not_mapped(run: Path) -> None:
    file = run / "dataset/features/toy.npy"
    values = np.load(file)
    for other in (values[:-1], values.astype(np.float32), np.asfortranarray(values), np.array(values, dtype="S4")):
        np.save(file, other)
        with pytest.raises(ShardError, match=r"features/toy\.npy: it is .*, where dataset\.json has float16 \[210, 11\]"):
            open_features(run / "dataset", "toy")
    file.write_bytes(b"no array")
    with pytest.raises(ShardError, match=r"features/toy\.npy: not a \.npy array"):
        open_features(run / "dataset", "toy")
    manifest = run / "dataset/dataset.json"
    for damaged in ("[]", '{"features": {"toy": {"shape": ["x"]}}}', '{"features": {"toy": 3}}', "{"):
        manifest.write_text(damaged)
        with pytest.raises(ShardError, match=r"dataset\.json is damaged"):
            feature_sets(run / "dataset")
    manifest.write_text('{"features": {"../toy": {"shape": [210, 11], "dtype": "float16"}}}')
    with pytest.raises(ShardError, match="the feature set is missing"):
        open_features(run / "dataset", "../toy")


def test_feature_sets_lie_in_object_stores_as_shards_do(weights: Path, featured: Path) -> None:
    config = overrides(weights, "source.count=300", "features.toy.encoder={kind='colours'}")
    todo, out = job("clear", config="tiny", overrides=config), "memory://feature-sets/run"
    for _ in range(2):
        api.run(todo, out, scheduler="sync")
        assert api.verify(out) == []
    values, index = open_features(f"{out}/dataset", "moco_b0")
    assert isinstance(values, np.memmap)
    assert values.shape == (index.num_rows, 512)
    assert np.isfinite(values).all()
    api.run(job("clear", config="tiny", overrides=["source.count=300"]), out, scheduler="sync")
    assert feature_sets(f"{out}/dataset") == {}
    assert not [each for each in api.verify(out) if each.place.startswith("dataset")]


def train(bw: Cli, out: Path, features: str, *more: str) -> None:
    words = ["--set", f"baselines.features={features}", "--set", "baselines.epochs=2", *more]
    told = bw("train", out, "-m", "finetune", "-p", "streaming", *words)
    assert told.code == 0, told.err


@pytest.mark.usefixtures("two_seeds")
def test_lines_of_two_feature_sets_stand_side_by_side(run: Path, bw: Cli) -> None:
    dataset = files_of(run / "dataset")
    for features in ("moco_b0", "toy", "embedding"):
        train(bw, run, features)
    assert files_of(run / "dataset") == dataset
    scores = json.loads(bw("eval", run, "--json").out)["streaming"]
    assert list(scores) == [f"finetune, features = {name}" for name in ("moco_b0", "toy", "embedding")]
    digests = {name: each["digest"] for name, each in feature_sets(run / "dataset").items()}
    found = {
        one.facts["settings"]["features"]: one.facts["settings"].get("features_digest") for one in finished_trainings(str(run))
    }
    assert found == {**digests, "embedding": None}
    assert bw("verify", run).code == 0
    told = bw(
        "train", run, "-m", "finetune", "-p", "streaming", "--set", "baselines.features=toy", "--set", "baselines.epochs=2"
    )
    assert told.err.count("up to date") == 2
    assert bw("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "Trained on the vectors that also retrieved the images: features toy, embedding." in page


@pytest.mark.usefixtures("two_seeds")
def test_other_features_of_the_same_name_are_trained_on_again(run: Path, bw: Cli, weights: Path, tmp_path: Path) -> None:
    train(bw, run, "moco_b0")
    torch.save(torchvision_model("resnet18", 5).state_dict(), tmp_path / "other.pth")
    config = overrides(tmp_path / "other.pth", *TOY)
    api.run(job("clear", config="tiny", overrides=config), str(run))
    train(bw, run, "moco_b0")
    found = [one.facts["settings"]["features_digest"] for one in finished_trainings(str(run))]
    assert sorted(set(found), key=found.index)[1] == feature_sets(run / "dataset")["moco_b0"]["digest"]
    labels = list(json.loads(bw("eval", run, "--json").out)["streaming"])
    assert labels == [f"finetune, features_digest = {digest[:12]}" for digest in dict.fromkeys(found)]
    assert bw("report", run).code == 0
    assert "Trained on the vectors that also retrieved" not in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "baselines.features=moco",
            "baselines.features = 'moco': there are embedding, moco_b0, pixels; did you mean 'moco_b0'?",
        ),
        (
            "features.moco_b0.wieghts=x",
            "features.moco_b0.wieghts: there is no such setting; there are weights, encoder, stored; ",
        ),
        ("features.bare.stored=float16", "the network resnet50 needs a file of weights: give its path or URL"),
        (
            'features.toy={weights="x", encoder={kind="colours"}}',
            "features.toy.weights = 'x': colours takes no file of weights: remove this setting",
        ),
        ("features.pixels.weights=x", "the name 'pixels' is reserved for the vectors in the shards: choose another"),
        ("features.Clip.weights=x", "the name 'Clip': it should be small letters, digits and _"),
        ('features.one.encoder={kind="netwrk"}', "features.one.encoder.kind = 'netwrk': no encoder 'netwrk': there are "),
        ('features.one={weights="x", encoder={kind="network", resize="x"}}', "features.one.encoder.resize = 'x': it should be"),
        (
            'features.one={weights="x", encoder={kind="network", mean=[1]}}',
            "features.one.encoder.mean.1, features.one.encoder.mean.2: these settings are missing",
        ),
        ('features.one={weights="x", encoder={kind="network", modle="x"}}', "prefix, block, kind; did you mean 'model'?"),
        ("encoder={kind='network'}", "no encoder 'network': there are colours, conse, open_clip"),
    ],
)
def test_settings_that_are_wrong_are_refused_in_one_line_before_anything_runs(
    bw: Cli, tmp_path: Path, weights: Path, given: str, told: str
) -> None:
    sets = [word for each in [*overrides(weights), given] for word in ("--set", each)]
    found = bw("run", "clear", "-c", "tiny", "-o", tmp_path / "out", "--train", *sets)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert told in found.err
    assert not (tmp_path / "out").exists()


def test_train_refuses_a_name_that_there_is_not_and_sets_that_are_not_made(run: Path, bw: Cli) -> None:
    found = bw("train", run, "--set", "baselines.features=tiy")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "baselines.features = 'tiy': there are embedding, moco_b0, toy, pixels; did you mean 'toy'?" in found.err
    found = bw("train", run, "--set", "features.new.encoder={kind='colours'}")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "features.new.encoder: this would change the dataset" in found.err
    assert not (run / "experiments").exists()


def test_weights_that_are_not_there_are_told_before_anything_is_made(bw: Cli, tmp_path: Path) -> None:
    found = bw("run", "clear", "-c", "tiny", "-o", tmp_path / "out", "-q", "--set", "features.moco_b0.weights=nowhere.pth")
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert "source 'nowhere.pth': no such file or folder" in found.err
    assert not (tmp_path / "out/stages").exists()


def test_wrong_weights_are_told_with_their_stage(bw: Cli, run: Path, weights: Path) -> None:
    found = bw("run", "clear", "-c", "tiny", "-o", run, "-q", "--set", f"features.imagenet_rn50.weights={weights}")
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert f"stage 'features_imagenet_rn50', part 0: ValueError: weights {weights}: " in found.err
    assert "of 265 weights" in found.err or "there is no resnet50 in it" in found.err


def test_paths_in_a_file_of_settings_are_relative_to_it(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "tiny"\n[features.mine]\nweights = "nets/mine.pth"\n')
    config = job("clear", config=str(tmp_path / "mine.toml")).config
    assert config.features["mine"].weights == str(tmp_path / "nets/mine.pth")
    assert config.features["mine"].encoder.model == "resnet50"


@pytest.mark.usefixtures("two_seeds")
def test_an_encoder_of_ones_own_makes_a_feature_set(tmp_path: Path, bw: Cli) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nclass Mean:\n    def encode_image(self, pixels):\n        return pixels.mean(axis=(0, 1)) + 1\n"
    )
    (tmp_path / "mine.toml").write_text(
        'extends = "tiny"\n[source]\ncount = 300\n[features.mine.encoder]\nkind = "mine.py:Mean"\n'
    )
    told = bw("run", "clear", "-c", tmp_path / "mine.toml", "-o", tmp_path / "out", "-q")
    assert told.code == 0, told.err
    values, _ = open_features(tmp_path / "out/dataset", "mine")
    assert values.shape[1] == 3
    assert feature_sets(tmp_path / "out/dataset")["mine"]["encoder"]["kind"] == "mine.py:Mean"
    train(bw, tmp_path / "out", "mine")


def test_a_release_has_every_feature_set_under_avalanches_names(run: Path, bw: Cli, tmp_path: Path) -> None:
    assert {*RELEASED.values(), "moco_b0"} == set(facts().features.released)
    assert bw("release", run, "--to", tmp_path / "release").code == 0
    folder = tmp_path / "release/training_folder/features"
    assert sorted(path.name for path in folder.iterdir()) == ["colours", "moco_b0", "toy"]
    values, index = open_features(run / "dataset", "moco_b0")
    for bucket in (1, 2, 3):
        tensor, labels = torch.load(folder / f"moco_b0/{bucket}/all.pth", weights_only=True)
        mine = index["bucket"].to_numpy() == bucket
        np.testing.assert_array_equal(tensor.numpy(), values[mine])
        assert labels == index["label"].to_numpy()[mine].tolist()


def test_two_feature_sets_of_one_name_in_a_release_are_refused(run: Path, bw: Cli, tmp_path: Path) -> None:
    sets = ["--set", "features.colours.encoder={kind='colours'}"]
    assert bw("run", "clear", "-c", "tiny", "-o", run, "-q", *sets).code == 0
    told = bw("release", run, "--to", tmp_path / "release")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "features.colours: the release has features 'colours' already" in told.err


def test_the_published_settings_leave_feature_sets_to_fill_in() -> None:
    assert job("clear", overrides=["source.metadata=yfcc"]).config.features == {}
    config = job("clear", overrides=["source.metadata=yfcc", "features.moco_b0.weights=b0.pth"]).config
    network = config.features["moco_b0"].encoder
    known = facts().features
    assert (network.model, network.side_px, network.resize_px, network.resize) == (
        "resnet50",
        known.side_px,
        224,
        "as_released",
    )
    with pytest.raises(ConfigError, match=r"baselines\.features = 'moco_b0'"):
        job("clear", overrides=["source.metadata=yfcc", "baselines.features=moco_b0"]).flow("out")


@pytest.mark.usefixtures("two_seeds")
def test_the_weights_may_be_gone_once_the_features_are_made(run: Path, bw: Cli, weights: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.pth"
    shutil.copy(weights, moved)
    config = overrides(moved, *TOY)
    api.run(job("clear", config="tiny", overrides=config), str(run))
    moved.unlink()
    train(bw, run, "moco_b0")
    assert bw("report", run).code == 0
    assert job_of(str(run)).config.features["moco_b0"].weights == str(moved)


def test_the_key_of_a_feature_set_has_all_the_code_that_makes_it(tmp_path: Path, weights: Path) -> None:
    config = overrides(weights, "source.count=300", "features.toy.encoder={kind='colours'}")
    todo = job("clear", config="tiny", overrides=config)
    watch, before = Watch(), sys.getprofile()
    threading.setprofile(watch.beside)
    sys.setprofile(watch.main)
    try:
        api.run(todo, str(tmp_path), scheduler="sync")
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    made = ("pictures", "features_moco_b0", "features_toy")
    keys = {stage.name: definitions(stage) for stage in todo.flow(str(tmp_path)).stages if stage.name in made}
    assert [line for line in missed(keys, watch) if ".cli." not in line] == []
    assert {line.partition(":")[0] for line in missed({stage: {} for stage in keys}, watch)} == set(made)
    reached = keys["features_moco_b0"]
    assert "weights_of" in reached["benchwright.datasets.features.checkpoints"]
