"""The two-camera plan through the engine and the command line: the tiny configuration, raw pairs, and the released metadata."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.flow import PlanError
from benchwright.curation.run import Run, run
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.two_camera.facts import facts
from benchwright.pipelines import api, config
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.two_camera import baselines as two_camera_runs
from benchwright.pipelines.two_camera import pipeline as two_camera
from benchwright.pipelines.two_camera.config import TwoCameraConfig

from tests.pipelines.conftest import with_another_dataset

SETTINGS = Path(two_camera.__file__).parents[1]
QUICK = "{ epochs = 3, batch_size = 64, learning_rate = 1e-2, schedule = 'cosine', patience_epochs = 3 }"
_NETWORK = "{ parameters = 200, preset = 'reilluminated', seeds = [0, 1], settings = { epochs = 5 } }"
CLI = [sys.executable, "-m", "benchwright.pipelines.cli.main"]


def settings(name: str, *overrides: str) -> TwoCameraConfig:
    return config.load(TwoCameraConfig, SETTINGS / name, overrides, benchmark="two_camera")[0]


def made(c: TwoCameraConfig, out: Path, scheduler: str = "sync") -> Run:
    return run(two_camera.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)


def digests(r: Run) -> dict[str, str]:
    return {artifact.stage: artifact.digest for artifact in r.artifacts}


@pytest.fixture(scope="module")
def phone():
    pytest.importorskip("pidng", reason="pidng writes the DNGs of these tests: pip install benchwright[dev]")
    path = Path(__file__).resolve().parents[2] / "benchmarks/make_phone_pairs.py"
    spec = importlib.util.spec_from_file_location("make_phone_pairs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def raw(phone, tmp_path_factory) -> Path:
    """Nine drawn pairs, and one camera's half of a tenth."""
    folder = tmp_path_factory.mktemp("raw")
    phone.make_pairs(folder, pictures=None, pairs=9, size=(504, 378), seed=0)
    (folder / "RAW_0010_CAM_0.dng").write_bytes((folder / "RAW_0000_CAM_0.dng").read_bytes())
    return folder


def raw_settings(raw: Path, *overrides: str) -> TwoCameraConfig:
    return settings(
        "two_camera/s20.toml",
        f"source.root={raw}",
        "source.demosaic=bin2",
        "source.max_rejects=1",
        "source.estimate_from=3",
        "augmentation.count=3",
        'evaluation.baselines=["linear_regression", "gray_world"]',
        f"evaluation.networks={{ network-200 = {_NETWORK} }}",
        *overrides,
    )


# -------------------------------------------------------------------------------------------------------------- the plan


def test_tiny_twice_and_in_other_processes(tmp_path: Path) -> None:
    c = settings("two_camera/tiny.toml", "source.pairs=90")
    first = digests(made(c, tmp_path / "1"))
    assert list(first) == ["drawn", "measured", "folded", "marked", "placed", "shards"]
    assert digests(made(c, tmp_path / "2", "processes")) == first
    other = digests(made(settings("two_camera/tiny.toml", "source.pairs=90", "seed=1"), tmp_path / "3"))
    assert not set(other.values()) & set(first.values())


@pytest.mark.parametrize("name", ["published", "tiny", "s20", "nus", "metadata"])
def test_packaged_settings_make_plans_that_hold_together(name: str) -> None:
    c = settings(f"two_camera/{name}.toml")
    schemas = two_camera.plan(c, "out").schemas()
    rows = {"key", "fold", "original", "source_key", "gt_1", "transform_1to2", "shard"}
    assert rows <= set(schemas["shards"].names)
    two_camera_runs._check_methods(c, [*c.evaluation.networks, *c.evaluation.baselines])


def test_the_published_settings_are_the_facts() -> None:
    radiometric, s20 = settings("two_camera/published.toml"), settings("two_camera/s20.toml")
    f = facts()
    assert radiometric.source.pairs == f.sets["radiometric"]["pairs"]
    assert [round(share * 18_000) for share in radiometric.folds.shares] == f.sets["radiometric"]["parts"]
    assert (4 * radiometric.source.patch_px, 6 * radiometric.source.patch_px) == (32, 48)
    assert s20.source.factor == f.sets["s20"]["factor"]
    assert (s20.folds.count, s20.folds.seed) == (f.sets["s20"]["folds"], f.seed)
    assert s20.augmentation.count == f.targets
    assert {network.parameters for network in s20.evaluation.networks.values()} == set(f.parameters)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["augmentation.count=3", "augmentation.targets=any"], "re-illumination needs pictures"),
        (["folds.released=x.mat"], "give shares or released"),
        (["source.kind=raw"], "source"),
        (["transform.preset=mine"], "as_released"),
        (["source.cameras=['A']"], "cameras"),
        (["evaluation.networks={ a = { parameters = 9, preset = 'radiometric', seeds = [0] } }"], "parameters"),
    ],
)
def test_settings_that_cannot_be_are_told_in_one_line(overrides: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        two_camera.plan(settings("two_camera/tiny.toml", *overrides), "out")


def test_the_released_fit_is_taken_where_it_is_named_and_where_there_is_no_noise() -> None:
    names = ("published", "tiny", "metadata", "s20", "nus")
    named = {name: settings(f"two_camera/{name}.toml").transform.preset for name in names}
    released = dict.fromkeys(("published", "tiny", "metadata"), "as_released")
    assert named == {**released, "s20": "weighted", "nus": "weighted"}
    assert settings("two_camera/s20.toml", "transform.preset=as_released").transform.preset == "as_released"
    given = {field.name: getattr(settings("two_camera/s20.toml"), field.name) for field in dataclasses.fields(TwoCameraConfig)}
    del given["transform"]
    assert TwoCameraConfig(**given).transform.preset == "weighted", "a file of settings that says nothing of it"


def test_dark_raw_pairs_give_their_transform_unless_the_released_fit_is_asked_for(phone, tmp_path: Path) -> None:
    """One scene whose left half lies three levels of noise above black, with its chart in the light half."""
    width, height = 504, 378
    generator = np.random.default_rng(1)
    scene = phone.drawn_scene(width, height, generator)
    scene[:, : width // 2] *= np.float32(0.001)
    corners = phone.paste_chart(scene, colours=phone.chart_colours() * 0.8, left=320, top=250, spacing=24)
    root = tmp_path / "raw"
    root.mkdir()
    header = ",".join(["name", *(f"{axis}{corner}" for corner in range(4) for axis in "xy")])
    lines = [header]
    for number in range(3):
        for camera, matrix in enumerate((phone.CAMERA_1, phone.CAMERA_2)):
            levels = phone.mosaic_of(scene @ matrix.astype(np.float32), generator)
            data = phone.write_dng(levels, black=(phone.BLACK,) * 4, white=phone.WHITE)
            (root / f"RAW_{number:04d}_CAM_{camera}.dng").write_bytes(data)
        lines.append(",".join([f"RAW_{number:04d}_CAM_0", *map(str, corners.ravel().tolist())]))
    (root / "charts.csv").write_text("\n".join(lines) + "\n")
    truth = np.linalg.inv(phone.CAMERA_1) @ phone.CAMERA_2
    same = "source.homographies={ '' = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0] }"
    off = {}
    for asked in ([], ["transform.preset=as_released"]):
        c = raw_settings(root, same, *asked)
        api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path / f"out{len(asked)}"), scheduler="sync")
        pairs = two_camera_runs.read_pairs(str(tmp_path / f"out{len(asked)}" / "dataset"))
        found = pairs.transform_1to2[pairs.original]
        off[len(asked)] = np.linalg.norm(found - truth, axis=(1, 2)) / np.linalg.norm(truth)
    assert off[0].max() < 0.02
    assert off[1].min() > 0.05


def test_shards_hold_thumbnails_and_numbers(tmp_path: Path) -> None:
    api.run(api.job("two_camera", config="tiny", overrides=["source.pairs=40"]), str(tmp_path), scheduler="sync")
    index = DatasetIndex.open(tmp_path / "dataset")
    sample = ShardDataset(index, seed=None)[7]
    assert sample["image_1.npy"].shape == (32, 48, 3)
    assert sample["json"]["transform_1to2"] == index.table["transform_1to2"][7].as_py()
    pairs = two_camera_runs.read_pairs(str(tmp_path / "dataset"))
    # What the shards hold is enough to make T again, to the rounding of 16 bits.
    patches = [sample[name][::8, ::8].reshape(24, 3).astype(float) for name in ("image_1.npy", "image_2.npy")]
    one, two = (each / each.sum(axis=1, keepdims=True) for each in patches)
    assert np.linalg.lstsq(one, two)[0] == pytest.approx(pairs.transform_1to2[7], abs=0.02)


# ------------------------------------------------------------------------------------------------------------- raw pairs


def test_raw_pairs_are_evaluated_and_reported(raw: Path, tmp_path: Path) -> None:
    c = raw_settings(raw)
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="threads", workers=2)
    pairs = two_camera_runs.read_pairs(str(tmp_path / "dataset"))
    assert len(pairs) == 9 * 4
    assert np.bincount(pairs.fold[pairs.original]).tolist() == [3, 3, 3]
    # Copies lie in the fold of what they show.
    fold = dict(zip(pairs.key[pairs.original], pairs.fold[pairs.original], strict=True))
    assert [fold[key] for key in pairs.source_key] == pairs.fold.tolist()
    results = two_camera_runs.evaluate(c, str(tmp_path))
    assert set(results) == {"network-200", "linear_regression", "gray_world"}
    found = two_camera_runs.scores(c, str(tmp_path))["rotating"]
    assert found["network-200"]["warnings"] == []
    assert 0 < found["gray_world"]["mean"]["mean"] < 20
    page = Path(two_camera.report(c, str(tmp_path))).read_text("utf-8")
    assert "do not add up" not in page
    assert "several rows are made of one (augmented)" in page
    for told in ("Alignment", "both cameras in turn", "Table 3 of the paper", "by the estimate", "no_partner"):
        assert told in page, told
    assert page.count("data:image/png") + page.count("data:image/jpeg") >= 15
    assert two_camera_runs.stale(c, str(tmp_path)) == {}
    out = with_another_dataset(tmp_path, tmp_path / "other")
    assert two_camera_runs.scores(c, out) == {}
    assert list(two_camera_runs.stale(c, out).values()) == ["of an earlier dataset"] * 3


def test_baselines_see_masked_pictures_averaged_down(raw: Path, tmp_path: Path) -> None:
    c = raw_settings(raw, "evaluation.longest_px=30")
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="threads", workers=2)
    pictures = two_camera_runs.read_pictures(str(tmp_path), c)
    assert pictures.images.shape == (9, 21, 28, 3)
    assert 0.5 < pictures.usable.mean() < 0.95


def test_averaging_down_keeps_means_and_invalidates_mixed_squares() -> None:
    picture = np.arange(6 * 9 * 3, dtype=np.uint16).reshape(6, 9, 3)
    small = two_camera_runs.averaged(picture, 3)
    assert small.shape == (2, 3, 3)
    assert small[0, 0] == pytest.approx(picture[:3, :3].mean(axis=(0, 1)) / 65535)
    mask = np.ones((6, 9), dtype=bool)
    mask[0, 0] = False
    assert (two_camera_runs.averaged(mask, 3) == 1).tolist() == [[False, True, True], [True, True, True]]


# ------------------------------------------------------------------------------------------------------- released numbers


def test_linear_regression_on_the_released_pairs_is_that_of_table_3(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "two_camera" / "s20_metadata_162_pairs.json"
    c = settings("two_camera/metadata.toml", f"source.path={path}")
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="sync")
    two_camera_runs.evaluate(c, str(tmp_path), methods=["linear_regression"])
    mean = two_camera_runs.scores(c, str(tmp_path))["rotating"]["linear_regression"]["mean"]["mean"]
    assert mean == pytest.approx(facts().tables["s20"]["linear regression"][0], abs=0.06)
    page = Path(two_camera.report(c, str(tmp_path))).read_text("utf-8")
    assert "holds no pictures" in page
    assert "2.19" in page


def test_networks_that_are_taught_by_others_are_evaluated_with_them(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "two_camera" / "s20_metadata_162_pairs.json"
    short = "seeds = [0], settings = { iterations = 2 }, measured_times = 2, reilluminated = true"
    pupil = f"{{ parameters = 470, preset = 'pupil', taught_by = 'teacher', taught_rows = 50, {short} }}"
    teacher = f"{{ parameters = 200, preset = 'decayed', {short} }}"
    given = ("evaluation.baselines=[]", f"source.path={path}")
    c = settings("two_camera/metadata.toml", *given, f"evaluation.networks={{ pupil = {pupil}, teacher = {teacher} }}")
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="sync")
    found = two_camera_runs.evaluate(c, str(tmp_path), methods=["pupil"])["pupil"]
    told = found["identity"]["estimator"]
    assert (told["estimator"], told["parameters"], told["rows"]) == ("distilled network", 470, 50)
    assert told["teacher"]["parameters"] == 200
    assert found["warnings"] == []
    for changes, message in [
        ((("'teacher',", "'nobody',"),), "taught by 'nobody'"),
        ((("'pupil', taught", "'as_written', taught"), ("iterations", "epochs")), "a preset with a decay"),
        ((("reilluminated = true", "reilluminated = false"),), "reilluminated = True is wanted"),
    ]:
        text = pupil
        for old, new in changes:
            text = text.replace(old, new)
        wrong = settings("two_camera/metadata.toml", *given, f"evaluation.networks={{ pupil = {text}, teacher = {teacher} }}")
        with pytest.raises(ValueError, match=message):
            two_camera_runs.evaluate(wrong, str(tmp_path), methods=["pupil"])


def test_methods_that_cannot_be_are_told(tmp_path: Path) -> None:
    c = settings("two_camera/tiny.toml")
    for methods, told in ((["network-9"], "no method 'network-9'"), (["gamut"], "no method 'gamut'")):
        with pytest.raises(ValueError, match=told):
            two_camera_runs.evaluate(c, str(tmp_path), methods=methods)
    with pytest.raises(ValueError, match="no protocol 'rotating': this run has the folds 'fixed'"):
        two_camera_runs.evaluate(c, str(tmp_path), protocols=["rotating"])
    bare = settings("two_camera/tiny.toml", "source.patch_px=0")
    with pytest.raises(ValueError, match="baseline 'gray_world' needs pictures"):
        two_camera_runs.evaluate(bare, str(tmp_path))
    wrong = settings("two_camera/tiny.toml", "evaluation.networks.network-200.settings.rate=1")
    with pytest.raises(ValueError, match=r"network 'network-200': .*rate"):
        two_camera_runs._network(wrong.evaluation.networks, "network-200", lambda _: None)


# --------------------------------------------------------------------------------------------------------- command line


def test_the_command_line_runs_trains_prints_and_verifies(tmp_path: Path, bw) -> None:
    out = tmp_path / "run"
    small = ["--set", "source.pairs=60", "--set", f"evaluation.networks.network-200.settings={QUICK}"]
    planned = bw("plan", "two_camera", "--config", "tiny", "--out", out)
    assert planned.code == 0, planned.err
    assert not out.exists()
    for words in (["run", "two_camera", "--config", "tiny", *small, "--out", out], ["train", out], ["verify", out]):
        answer = bw(*words)
        assert answer.code == 0, answer.err
    told = json.loads(bw("eval", out, "--json").out)
    assert set(told["fixed"]) == {
        "network-200",
        "linear_regression",
        "gray_world",
        "shades_of_gray",
        "white_patch",
        "bright_pixels",
    }
    assert told["fixed"]["gray_world"]["unit"] == "degrees"
    lines = bw("eval", out).out.splitlines()
    assert any(line.startswith("gray_world") and f"{told['fixed']['gray_world']['mean']['mean']:.2f}" in line for line in lines)
    assert Path(bw("report", out).out.strip()).name == "report.html"


def test_a_run_that_is_killed_goes_on_to_the_same_digest(raw: Path, tmp_path: Path, bw) -> None:
    words = ["run", "two_camera", "--config", "s20", "--set", f"source.root={raw}", "--set", "source.demosaic=bin2"]
    words += ["--set", "source.max_rejects=1", "--set", "source.estimate_from=3", "--set", "augmentation.count=3", "--out"]
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [*CLI, *words, str(killed)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
    )
    photographed = killed / "stages" / "photographed"
    until = time.monotonic() + 120
    while time.monotonic() < until and not list(photographed.glob("part-*.parquet")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(photographed.glob("part-*.parquet")), "it was at work"
    assert process.returncode == -signal.SIGKILL, "and was killed at it"
    done = [bw(*words, out) for out in (killed, tmp_path / "whole")]
    assert [answer.code for answer in done] == [0, 0], done[0].err
    shown = [json.loads(bw("show", out, "--json").out)["digest"] for out in (killed, tmp_path / "whole")]
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--config", "s20"], "s20"),
        (["--config", "metadata", "--set", "source.path=nothing.json"], "nothing.json"),
        (["--config", "tiny", "--set", "source.cameras=['Leica', 'Sigma SDMerill (NPL)']"], "no spectrum 'Leica'"),
        (["--config", "tiny", "--set", "source.pixels=8"], "pixels"),
    ],
)
def test_wrong_use_is_told_in_one_line(tmp_path: Path, bw, words: list[str], told: str) -> None:
    answer = bw("run", "two_camera", *words, "--out", tmp_path / "out")
    assert answer.code in (1, 2)
    assert told in answer.err
    assert "Traceback" not in answer.err


def test_a_source_may_not_hold_its_own_run(raw: Path) -> None:
    c = raw_settings(raw)
    with pytest.raises(PlanError, match="lie one in the other"):
        made(c, raw / "out")
