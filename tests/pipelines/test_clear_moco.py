"""Images without labels beside CLEAR's dataset, and MoCo on them through the command line."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from benchwright.curation.rows import Sifted
from benchwright.curation.stage_rows import Rows
from benchwright.datasets.clear.unlabelled import place_unlabelled
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.features import open_features
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api, training_results
from benchwright.pipelines.jobs import job

from tests.files import files_of

from .conftest import Cli, kill_at_checkpoint

pytestmark = pytest.mark.usefixtures("blank_figures")

MOCO = (
    "pretraining.settings={backbone='small_cnn', width=4, dim=8, epochs=3, batch_size=32, queue=64, batch_norm_splits=4, "
    "view={side_px=16, blur_chance=0.0}}"
)


def made(bw: Cli, out: Path, *settings: str) -> Path:
    sets = [word for each in ("unlabelled.buckets=[0]", MOCO, *settings) for word in ("--set", each)]
    told = bw("run", "clear", "--config", "tiny", "--out", out, "-q", *sets)
    assert told.code == 0, told.err
    return out


@pytest.fixture
def out(tiny: Path, tmp_path: Path) -> Path:
    """A finished run without them."""
    return Path(shutil.copytree(tiny, tmp_path / "run"))


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only to be read."""
    out = tmp_path_factory.mktemp("unlabelled") / "run"
    api.run(job("clear", config="tiny", overrides=["unlabelled.buckets=[0, 2]", MOCO]), str(out))
    return out


def test_the_dataset_is_the_same_with_and_without_them(tiny: Path, unlabelled: Path) -> None:
    assert files_of(unlabelled / "dataset") == files_of(tiny / "dataset")
    plain = {name: digest for name, digest in files_of(tiny / "stages").items() if "fingerprints" not in name}
    there = files_of(unlabelled / "stages")
    assert {name: there[name] for name in plain} == plain
    assert {name.split("/")[0] for name in there.keys() - plain.keys()} == {"unlabelled", "unlabelled_shards"}


def test_they_are_all_images_of_the_buckets_and_tell_no_label(unlabelled: Path) -> None:
    index = DatasetIndex.open(unlabelled / "unlabelled")
    bucketed = pl.read_parquet(sorted((unlabelled / "stages/bucketed").glob("part-?????.parquet")))
    wanted = bucketed.filter(pl.col("bucket").is_in([0, 2]))
    assert index.table["key"].to_pylist() == wanted["key"].to_list()
    assert index.table["bucket"].to_pylist() == wanted["bucket"].to_list()
    assert index.table["date_taken"].to_pylist() == wanted["date_taken"].to_list()
    assert {"labels", "file", "label", "class_name"}.isdisjoint(index.table.column_names)
    shards = pl.from_arrow(index.table.select(["shard", "bucket"]))
    assert isinstance(shards, pl.DataFrame)
    assert shards.group_by("shard").agg(pl.len(), pl.col("bucket").n_unique()).select(pl.max("len", "bucket")).row(0) == (50, 1)
    sample = ShardDataset(index)[0]
    assert sorted(sample) == ["__key__", "bmp", "json"]
    assert sample["bmp"].shape == (24, 24, 3)
    assert set(sample["json"]) == {"key", "bucket", "date_taken", "date_uploaded"}
    for tar in (unlabelled / "unlabelled").glob("*.tar"):
        assert b"true_class" not in tar.read_bytes()


def test_every_row_is_kept_or_rejected(bw: Cli, unlabelled: Path) -> None:
    stages = {each["name"]: each for each in api.show(str(unlabelled))["stages"]}
    kept, rejects = stages["unlabelled"]["rows"], stages["unlabelled"]["rejects"]
    assert kept + rejects["other_bucket"] == stages["bucketed"]["rows"] == 864
    assert stages["unlabelled_shards"]["rows"] == kept
    listed = bw("rejects", unlabelled, "--stage", "unlabelled").out
    assert listed.count("other_bucket") == rejects["other_bucket"]
    assert bw("verify", unlabelled).code == 0


@pytest.mark.parametrize("name", ["bucket00-00000.tar", "index.parquet", "README.md", "dataset.json"])
def test_verify_names_what_is_damaged_and_a_run_mends_it(bw: Cli, out: Path, name: str) -> None:
    made(bw, out)
    place = out / "unlabelled" / name
    whole = place.read_bytes()
    place.unlink()  # else the tar in stages/, of which it is a link, is damaged, too
    place.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    told = bw("verify", out)
    assert told.code == 1
    assert f"unlabelled/{name}" in told.out + told.err
    place.unlink()
    made(bw, out)
    assert place.read_bytes() == whole
    assert bw("verify", out).code == 0
    (out / "unlabelled" / "stray.txt").write_text("?")
    assert "unlabelled/stray.txt" in bw("verify", out).out


def test_all_buckets_and_none_again(bw: Cli, out: Path) -> None:
    made(bw, out, "unlabelled.buckets=all")
    assert len(DatasetIndex.open(out / "unlabelled")) == 864
    assert bw("run", "clear", "--config", "tiny", "--out", out, "-q").code == 0
    assert not list((out / "unlabelled").iterdir())
    assert "beside" not in json.loads((out / "run.json").read_text())


def test_rows_pass_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in the table, a batch at a time is held: shards go on from batch to batch."""
    rows = Rows.of(pa.table({"key": [str(n) for n in range(10)], "bucket": [0] * 5 + [1] * 5}))
    whole = rows.table()
    monkeypatch.setattr(Rows, "batches", lambda self: (whole.slice(at, 3) for at in range(0, 10, 3)))
    monkeypatch.setattr(Rows, "table", lambda self: pytest.fail("all rows at once"))
    parts = list(place_unlabelled(rows, buckets=[1, 0], max_samples=2))
    assert all(isinstance(part, Sifted) for part in parts)
    shards = [name for part in parts for name in part.kept["shard"].to_pylist()]
    assert shards == [f"bucket{n // 5:02d}-{n % 5 // 2:05d}" for n in range(10)]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("unlabelled.buckets=[9]", "there is no bucket 9: buckets.rule gives 4, numbered from 0"),
        ("unlabelled.buckets=[-1]", "unlabelled.buckets"),
        ("unlabelled.buckets=some", "unlabelled.buckets"),
        ("pretraining.preset=moco_v3", "pretraining.preset = 'moco_v3': there are moco_v2; did you mean 'moco_v2'?"),
        ("pretraining.settings.queue=100", "queue = 100 is not a multiple of batch_size = 256"),
        ("pretraining.settings.epoch=3", "there is no epoch: there are backbone"),
    ],
)
def test_settings_that_are_refused_before_or_in_a_run(bw: Cli, tmp_path: Path, setting: str, told: str) -> None:
    said = bw("run", "clear", "--config", "tiny", "--set", setting, "--out", tmp_path / "run", "-q")
    assert said.code in (1, 2)
    assert told in said.err
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1


def test_what_a_pre_training_refuses_in_one_line(bw: Cli, tiny: Path, unlabelled: Path) -> None:
    for asked, told in [
        ((tiny,), "has no unlabelled images to train on: name their buckets with --set unlabelled.buckets=[0]"),
        ((unlabelled, "-m", "moco_v3"), "no method of pre-training 'moco_v3'"),
        ((unlabelled, "-p", "iid"), "protocol 'pretrain' has its own methods: train it separately"),
        (
            (unlabelled, "--set", "pretraining.settings={batch_size=512, queue=1024}"),
            "has 432 images, and pretraining.settings.batch_size = 512 needs as many",
        ),
        ((unlabelled, "--set", "unlabelled.buckets=[1]"), "unlabelled.buckets: this would change the dataset"),
    ]:
        said = bw("train", *asked, "-p", "pretrain")
        assert said.code == 2
        assert told in said.err
        assert said.err.count("\n") == 1
    assert not (unlabelled / "experiments").exists()


@pytest.mark.usefixtures("two_seeds")
def test_a_pre_training_leaves_weights_and_results(bw: Cli, out: Path) -> None:
    made(bw, out)
    said = bw("train", out, "-p", "pretrain")
    assert said.code == 0, said.err
    assert "epoch 3 of 3: loss" in said.err
    [path] = (out / "pretrained").glob("*.pth.tar")
    assert f"weights in {path}" in said.err
    assert "[features." not in said.err  # no network that feature sets know
    held = torch.load(path, weights_only=True)
    assert (held["arch"], held["epoch"]) == ("small_cnn", 3)
    assert "module.encoder_q.fc.2.weight" in held["state_dict"]
    table = pl.DataFrame(training_results.results(str(out)))
    dataset = json.loads((out / "unlabelled/dataset.json").read_text())["digest"]
    assert table["dataset"].unique().to_list() == [dataset]
    assert table["model"].unique().to_list() == ["small_cnn"]
    assert json.loads(table["settings"][0])["queue"] == 64
    losses = table.filter(metric="contrastive_loss")
    assert losses["position"].to_list() == [1, 2, 3]
    assert np.isfinite(losses["value"].to_numpy()).all()
    assert table.filter(pl.col("metric") == "instance_accuracy")["position"].to_list() == [1, 2, 3, None]
    assert "instance_accuracy" in bw("eval", out).out
    assert bw("verify", out).code == 0
    again = bw("train", out, "-p", "pretrain")
    assert "up to date" in again.err
    assert str(path) in again.err
    # Baselines stand beside it, and neither is stale for the other; another final choice leaves the weights as they are.
    few = ("--set", "baselines.epochs=1", "--set", "baselines.decay_after_epochs=1")
    assert bw("train", out, "-p", "iid", "-m", "nap-finetune", *few).code == 0
    assert set(api.scores(str(out))) == {"pretrain", "iid"}
    assert api.stale(str(out)) == {}
    page = Path(bw("report", out).out.strip()).read_text()
    assert "nap-finetune" in page
    assert "Pre-training on images without labels" in page
    assert "Baselines, pretrain protocol" not in page
    made(bw, out, "choice.per_class=15")
    assert api.stale(str(out)) == {"iid nap-finetune": "trained on another dataset"}
    assert "up to date" in bw("train", out, "-p", "pretrain").err
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert f"pretrained/{path.name}" in bw("verify", out).out
    assert bw("train", out, "-p", "pretrain", "-q").code == 0
    assert bw("verify", out).code == 0


def test_a_pre_training_that_diverges_is_a_reject(bw: Cli, out: Path) -> None:
    made(bw, out)
    said = bw("train", out, "-p", "pretrain", "--set", f"{MOCO[:-1]}, learning_rate=1e30}}")
    assert said.code == 1
    assert "no longer finite in epoch 0" in said.err
    assert "change pretraining.settings.learning_rate" in said.err
    assert "Traceback" not in said.err
    assert "diverged" in bw("rejects", out / "experiments", "--reason", "diverged").out
    assert not (out / "pretrained").exists()
    assert bw("verify", out).code == 0


def test_a_kill_costs_no_byte(bw: Cli, out: Path, tmp_path: Path) -> None:
    """Killed by SIGKILL once it has a checkpoint, it goes on from there to the same weights."""
    made(bw, out, MOCO.replace("epochs=3", "epochs=4"), "pretraining.checkpoint_minutes=0")
    whole = Path(shutil.copytree(out, tmp_path / "whole"))
    kill_at_checkpoint(out, "-p", "pretrain", "-q")
    assert not (out / "pretrained").exists()
    for each in (out, whole):
        said = bw("train", each, "-p", "pretrain", "-q")
        assert said.code == 0, said.err
    digests = [
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in (run / "pretrained").iterdir()] for run in (out, whole)
    ]
    assert digests[0] == digests[1]
    assert not list(out.glob("experiments/stages/*/.work"))


@pytest.mark.usefixtures("two_seeds")
def test_it_learns_while_the_run_waits_for_votes(bw: Cli, tmp_path: Path) -> None:
    out = made(bw, tmp_path / "run", "qa.votes=imported")
    assert not (out / "dataset").exists()
    said = bw("train", out, "-p", "pretrain")
    assert said.code == 0, said.err
    [weights] = (out / "pretrained").glob("*.pth.tar")
    told = bw("train", out, "-p", "iid")
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert "the run is not finished" in told.err
    assert "instance_accuracy" in said.out
    assert "Pre-training on images without labels" in Path(bw("report", out).out.strip()).read_text()
    lines = bw("verify", out).out.splitlines()
    assert [line for line in lines if "unlabelled" in line or "pretrained" in line] == []
    before = weights.read_bytes()
    made(bw, out)  # the votes are there
    assert "up to date" in bw("train", out, "-p", "pretrain").err
    assert weights.read_bytes() == before
    assert bw("verify", out).code == 0
    # Other settings, and the run not at its end: what is published is of the run before.
    other = ["--set", "unlabelled.buckets=[1]", "--set", "images.max_rejects=0"]
    assert bw("run", "clear", "--config", "tiny", *other, "--out", out, "-q").code == 1
    told = bw("train", out, "-p", "pretrain", "--set", MOCO)
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "unlabelled/ does not match the settings of the run: run again" in told.err


@pytest.mark.usefixtures("two_seeds")
def test_what_was_pre_trained_becomes_features_that_baselines_learn(bw: Cli, out: Path, tmp_path: Path) -> None:
    small = (
        "pretraining.settings={backbone='resnet18', dim=8, epochs=1, batch_size=16, queue=32, batch_norm_splits=2, "
        "view={side_px=32, blur_chance=0.0}}"
    )
    made(bw, out)
    before = files_of(out / "dataset")
    said = bw("train", out, "-p", "pretrain", "--set", small)
    assert said.code == 0, said.err
    [path] = (out / "pretrained").glob("*.pth.tar")
    lines = f'[features.moco_b0]\nweights = "{path}"\nencoder = {{ kind = "network", model = "resnet18" }}\n'
    assert lines in said.err
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f'extends = "tiny"\n[unlabelled]\nbuckets = [0]\n{lines}side_px = 32\nresize_px = 32\n'.replace(
            'model = "resnet18" }\nside_px = 32\nresize_px = 32', 'model = "resnet18", side_px = 32, resize_px = 32 }'
        )
    )
    said = bw("run", "clear", "--config", mine, "--out", out)
    assert said.code == 0, said.err
    vectors, table = open_features(out / "dataset", "moco_b0")
    assert vectors.shape == (len(table), 512)
    after = files_of(out / "dataset")
    assert {name: after[name] for name in before if name.endswith(".tar")} == {
        name: digest for name, digest in before.items() if name.endswith(".tar")
    }
    said = bw("train", out, "-m", "finetune", "-p", "streaming", "--set", "baselines.features=moco_b0")
    assert said.code == 0, said.err
    assert {one.facts["settings"].get("features") for one in training_results.finished_trainings(str(out))} == {None, "moco_b0"}
    assert bw("verify", out).code == 0
