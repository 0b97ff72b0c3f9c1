"""The two-camera plan through the engine and the command line: the tiny configuration, raw pairs, and the released metadata."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.artifact import Artifact
from benchwright.curation.checkpoint import Checkpoint
from benchwright.curation.flow import PlanError, Step
from benchwright.curation.keys import codes_in
from benchwright.curation.nested import flat
from benchwright.curation.reachable_code import reached
from benchwright.curation.run import Run, run
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.two_camera.facts import facts
from benchwright.eval.protocols.cross_validation import estimates_of
from benchwright.eval.results import RESULTS, Line
from benchwright.pipelines import api, config, experiments, training_results
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.experiments import Diverged
from benchwright.pipelines.report import ReportedRun
from benchwright.pipelines.two_camera import baselines, learning, report
from benchwright.pipelines.two_camera import pipeline as two_camera
from benchwright.pipelines.two_camera.config import TwoCameraConfig
from benchwright.pipelines.two_camera.paper import data_differs, digest_notes, why_not_the_papers
from benchwright.training.illuminants.choice import PictureEstimator
from benchwright.training.illuminants.registry import load_baseline
from benchwright.training.two_camera.networks import load_networks
from benchwright.training.two_camera.settings import hyper_of

from tests.files import ROOT, module_of

from .conftest import kill_at_checkpoint, kill_when
from .forked import forked
from .pages import faults

SETTINGS = Path(two_camera.__file__).parents[1]
QUICK = "{ epochs = 3, batch_size = 64, learning_rate = 1e-2, schedule = 'cosine', patience_epochs = 3 }"
_NETWORK = "{ parameters = 200, preset = 'reilluminated', seeds = [0, 1], settings = { epochs = 5 } }"


def settings(name: str, *overrides: str) -> TwoCameraConfig:
    return config.load(TwoCameraConfig, SETTINGS / name, overrides, benchmark="two_camera")[0]


def made(c: TwoCameraConfig, out: Path, scheduler: str = "sync") -> Run:
    return run(two_camera.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)


def digests(r: Run) -> dict[str, str]:
    return {artifact.stage: artifact.digest for artifact in r.artifacts}


@pytest.fixture(scope="module")
def phone():
    pytest.importorskip("pidng", reason="pidng writes the DNGs of these tests: pip install benchwright[dev]")
    return module_of(ROOT / "benchmarks/make_phone_pairs.py")


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
        "augmentation.targets=any",
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


@pytest.mark.parametrize(
    "name",
    ["published", "tiny", "s20", "nus", "nus64", "metadata", "table1", "table3", "table4", "table4_nus64", "folders"],
)
def test_packaged_settings_make_plans_that_hold_together(name: str) -> None:
    c = settings(f"two_camera/{name}.toml")
    schemas = two_camera.plan(c, "out").schemas()
    rows = {"key", "fold", "original", "source_key", "gt_1", "transform_1to2", "shard"}
    assert rows <= set(schemas["shards"].names)
    for method in (*c.evaluation.networks, *c.evaluation.baselines):
        assert baselines.settings_of(c, method).settings["direction"] == "1to2"


def test_the_published_settings_are_the_facts() -> None:
    radiometric, s20 = settings("two_camera/published.toml"), settings("two_camera/s20.toml")
    f = facts()
    assert radiometric.source.pairs == f.sets["radiometric"]["pairs"]
    assert tuple(round(share * 18_000) for share in radiometric.folds.shares) == f.sets["radiometric"]["parts"]
    assert (4 * radiometric.source.patch_px, 6 * radiometric.source.patch_px) == (32, 48)
    assert s20.source.factor == f.sets["s20"]["factor"]
    assert (s20.folds.count, s20.folds.seed) == (f.sets["s20"]["folds"], f.folds.seed)
    assert s20.augmentation.count == f.augmentation.targets
    assert {network.parameters for network in s20.evaluation.networks.values()} == set(f.network.parameters)


@pytest.mark.parametrize("name", ["s20", "nus", "nus64", "table3"])
def test_tables_2_and_3_have_the_papers_three_networks_at_its_rate_and_for_all_epochs(name: str) -> None:
    c = settings(f"two_camera/{name}.toml")
    shown = {
        name: Line("rotating", name, "network", told(c, name), name, RESULTS.empty_table()) for name in c.evaluation.networks
    }
    c, made = stated(c, augmented="a" * 64)
    papers = [method for method, line in shown.items() if not why_not_the_papers(c, line, made)]
    assert {shown[method].settings["estimator.parameters"] for method in papers} == set(facts().network.parameters)
    assert "network-200-without" in shown
    assert "network-200-without" not in papers
    assert not [method for method in papers if method.endswith(("cosine", "fair"))]
    hyper = {hyper_of(baselines.settings_of(c, method).settings["estimator"]["hyper"]) for method in papers}
    assert {(one.learning_rate, one.schedule, one.epochs, one.patience_epochs) for one in hyper} == {
        (1e-3, "constant", 500_000, None)
    }


def stated(c: TwoCameraConfig, **digests: str) -> tuple[TwoCameraConfig, dict[str, Artifact]]:
    """Settings that state digests of stages as the paper's, and stages with these digests."""
    made = {stage: Artifact(stage, "whole", "", digest, "", {}, 0, 0, {}, ()) for stage, digest in digests.items()}
    return dataclasses.replace(c, published=digests), made


def told(c: TwoCameraConfig, method: str) -> dict[str, object]:
    """The settings of a training, as its record has them."""
    return flat(baselines.settings_of(c, method).settings)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([], ""),
        (["preset='radiometric_newton'"], "estimator.hyper.epochs is None, but 1000000 in the paper"),
        (["settings={ patience_epochs = 500 }"], "patience_epochs is 500, but None in the paper"),
        (["measured_times=12"], "measured_times is 12, but 1 in the paper"),
        (["settings={ keep = 'last' }"], "keep is last, but validation in the paper"),
        (["settings={ learning_rate = 1e-3 }"], "learning_rate is 0.001, but 0.0001 in the paper"),
    ],
)
def test_networks_of_the_radiometric_set_are_the_papers_by_its_own_settings_and_without_augmentation(
    changes: list[str], why: str
) -> None:
    c = settings("two_camera/published.toml", *(f"evaluation.networks.network-470.{each}" for each in changes))
    line = Line("fixed", "network-470", "network", told(c, "network-470"), "", RESULTS.empty_table())
    assert why in why_not_the_papers(c, line, {})
    assert bool(why_not_the_papers(c, line, {})) == bool(why)


@pytest.mark.parametrize("method", ["gray_world", "gamut_pixel", "gamut_edge"])
def test_baselines_of_table_1_see_patches_and_need_no_re_illuminated_copies(method: str) -> None:
    c = settings("two_camera/published.toml")
    line = Line("fixed", method, method.partition("_")[0], told(c, method), "", RESULTS.empty_table())
    line = dataclasses.replace(line, model=baselines.settings_of(c, method).model)
    assert why_not_the_papers(c, line, {}) == ""


@pytest.mark.parametrize(("name", "known"), [("nus", ""), ("table1", ""), ("metadata", facts().sets["s20"]["folded_sha256"])])
def test_each_dataset_is_the_papers_by_a_known_or_stated_digest(name: str, known: str) -> None:
    c = settings(f"two_camera/{name}.toml")
    _, made = stated(c, folded=known or "b" * 64)
    _, others = stated(c, folded="c" * 64)
    why = "are not the paper's" if known else "no digest of the paper's"
    assert why in data_differs(c, others)
    assert data_differs(c, made) == "" if known else why in data_differs(c, made)
    mine, _ = stated(c, folded=made["folded"].digest)
    assert data_differs(mine, made) == ""
    assert "are not the paper's" in data_differs(mine, others)
    rows = {stage: dataclasses.replace(each, rows=facts().sets[c.compare_with]["pairs"]) for stage, each in others.items()}
    [text] = digest_notes(c, rows)
    assert text.paragraphs[1:] == [f"--set published.folded={'c' * 64}"]
    assert digest_notes(c, others) == [], "another number of pairs"


def s20_line(method: str, model: str, *overrides: str) -> tuple[TwoCameraConfig, Line]:
    c = settings("two_camera/s20.toml", *overrides)
    return c, Line("rotating", method, model, told(c, method), "", RESULTS.empty_table())


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([], ""),
        (["augmentation.targets=any"], "those with the light of a test pair were left out"),
        (["augmentation.targets=any", "evaluation.lights_of_test=true"], ""),
        (["augmentation.targets=same_fold"], "illuminants of their own fold"),
        (["augmentation.targets=same_fold", "evaluation.lights_of_test=true"], "illuminants of their own fold"),
        (["augmentation.count=9"], "does not have 99 re-illuminated copies"),
        (["augmentation.count=0"], "99 re-illuminated copies"),
    ],
)
@pytest.mark.parametrize("method", ["linear_regression", "ffcc", "network-200"])
def test_ninety_nine_are_those_that_are_left_for_the_training(method: str, overrides: list[str], why: str) -> None:
    place = f"evaluation.networks.{method}." if method.startswith("network") else "evaluation."
    changes = [each.replace("evaluation.", place) for each in overrides]
    c, line = s20_line(method, {"network-200": "network"}.get(method, method), *changes)
    assert why in why_not_the_papers(c, line, {})
    assert bool(why_not_the_papers(c, line, {})) == bool(why)


@pytest.mark.parametrize(
    ("method", "overrides", "why"),
    [
        ("network-200-without", [], "it was trained without the re-illuminated rows of the dataset"),
        ("network-200", ["evaluation.networks.network-200.reilluminated=true"], "rows are computed from transforms"),
        ("linear_regression", ["evaluation.reilluminated=true"], "rows are computed from transforms"),
        ("ffcc", ["evaluation.relit_pictures=0"], "it was trained without the re-illuminated rows of the dataset"),
        ("ffcc", ["evaluation.relit_pictures=9"], "it was trained without the paper's 99 re-illuminated copies"),
    ],
)
def test_other_re_illuminated_rows_are_told_by_their_kind(method: str, overrides: list[str], why: str) -> None:
    c, line = s20_line(method, "network" if method.startswith("network") else method, *overrides)
    assert why in why_not_the_papers(c, line, {})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("settings={ patience_epochs = 1000 }", "patience_epochs is 1000"),
        ("measured_times=2", "measured_times is 2"),
        ("settings={ keep = 'validation', validation_share = 0.2 }", "keep is validation"),
        ("settings={ check_epochs = 10 }", ""),
        ("preset='as_released'", ""),
        ("preset='as_released_readme'", "epochs is 1000000"),
    ],
)
def test_a_network_of_table_3_stands_beside_it_by_its_whole_training(change: str, why: str) -> None:
    c, line = s20_line("network-470", "network", f"evaluation.networks.network-470.{change}")
    assert why in why_not_the_papers(c, line, {})
    assert bool(why_not_the_papers(c, line, {})) == bool(why)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["augmentation.count=3", "augmentation.targets=any"], "re-illumination needs pictures"),
        (["folds.released=x.mat"], "set either shares or released"),
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
    assert named == {**released, "s20": "as_released", "nus": "as_released"}, "the fits of the release, which Eq. 2 is not"
    ours = {name: settings(f"two_camera/{name}.toml").transform.preset for name in ("folders", "nus64")}
    assert set(ours.values()) == {"weighted"}
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
    for asked in (["transform.preset=weighted"], []):
        c = raw_settings(root, same, *asked)
        api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path / f"out{len(asked)}"), scheduler="sync")
        pairs = learning.read_pairs(str(tmp_path / f"out{len(asked)}" / "dataset"))
        found = pairs.transform_1to2[pairs.original]
        off[len(asked)] = np.linalg.norm(found - truth, axis=(1, 2)) / np.linalg.norm(truth)
    assert off[1].max() < 0.02
    assert off[0].min() > 0.05


def test_shards_hold_thumbnails_and_numbers(tmp_path: Path) -> None:
    api.run(api.job("two_camera", config="tiny", overrides=["source.pairs=40"]), str(tmp_path), scheduler="sync")
    index = DatasetIndex.open(tmp_path / "dataset")
    sample = ShardDataset(index, seed=None)[7]
    assert sample["image_1.npy"].shape == (32, 48, 3)
    assert sample["json"]["transform_1to2"] == index.table["transform_1to2"][7].as_py()
    pairs = learning.read_pairs(str(tmp_path / "dataset"))
    # What the shards hold is enough to make T again, to the rounding of 16 bits.
    patches = [sample[name][::8, ::8].reshape(24, 3).astype(float) for name in ("image_1.npy", "image_2.npy")]
    one, two = (each / each.sum(axis=1, keepdims=True) for each in patches)
    assert np.linalg.lstsq(one, two)[0] == pytest.approx(pairs.transform_1to2[7], abs=0.02)


# ------------------------------------------------------------------------------------------------------------- raw pairs


def scores(out: Path) -> dict:
    return training_results.mean_scores(str(out), two_camera.BENCHMARK.shown)


def train(c: TwoCameraConfig, out: Path, methods: list[str] | None = None) -> None:
    experiments.run_trainings(two_camera.BENCHMARK.trainings(c, str(out), methods or [], []), str(out))


def test_raw_pairs_are_evaluated_and_reported(raw: Path, tmp_path: Path) -> None:
    without = _NETWORK.replace("{ parameters", "{ augmented = false, parameters")
    c = raw_settings(
        raw,
        'evaluation.baselines=["linear_regression", "gray_world", "homography_shades_of_gray"]',
        f"evaluation.networks={{ network-200 = {_NETWORK}, without = {without} }}",
    )
    out = tmp_path / "out"
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(out), scheduler="threads", workers=2)
    pairs = learning.read_pairs(str(out / "dataset"))
    assert len(pairs) == 9 * 4
    assert np.bincount(pairs.fold[pairs.original]).tolist() == [3, 3, 3]
    # Copies lie in the fold of what they show.
    fold = dict(zip(pairs.key[pairs.original], pairs.fold[pairs.original], strict=True))
    assert [fold[key] for key in pairs.source_key] == pairs.fold.tolist()
    train(c, out)
    found = scores(out)["rotating"]
    assert set(found) == {"network-200", "without", "linear_regression", "gray_world", "homography_shades_of_gray"}
    assert found["network-200"]["runs"] == 2
    told = {one["method"]: one["settings"] for one, _ in training_results.predictions(str(out))}
    assert {name: one["relit_pictures"] for name, one in told.items() if "relit_pictures" in one} == {
        "homography_shades_of_gray": 99
    }, "of the baselines it alone learns from pictures"
    assert "looked at the test" not in found["network-200"]["mean"]
    assert 0 < found["gray_world"]["mean"]["mean"] < 20
    page = Path(two_camera.BENCHMARK.report(c, str(out))).read_text("utf-8")
    assert "do not add up" not in page
    assert "one row becomes several (augmented)" in page
    parts = ("Alignment", "chequerboard of both cameras", "This run: angular errors", "ground truth", "no_partner")
    figures = (
        "Re-illumination",
        "measured pairs in both cameras",
        "Errors of every method",
        "Without and with re-illuminated training rows",
    )
    for told in parts + figures:
        assert told in page, told
    assert "Not a fair comparison: the illuminants, transforms or folds of this run are not the paper&#39;s" in page
    assert "2.49" not in page, "no figure of the paper stands beside other pictures"
    assert page.count("data:image/png") + page.count("data:image/jpeg") >= 15
    assert training_results.stale_trainings(str(out)) == {}
    manifest = out / "dataset/dataset.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"digest": "0" * 64}))
    assert scores(out) == {}
    assert set(training_results.stale_trainings(str(out)).values()) == {"trained on another dataset"}


def test_baselines_see_masked_pictures_averaged_down(raw: Path, tmp_path: Path) -> None:
    c = raw_settings(raw, "evaluation.longest_px=30")
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="threads", workers=2)
    assert baselines.settings_of(c, "gray_world").settings["longest_px"] == 30
    pictures, at = learning.pictures_of(str(tmp_path / "dataset"), "digest", 30)
    assert pictures.images.shape == (9, 21, 28, 3)
    assert 0.5 < pictures.usable.mean() < 0.95
    pairs = learning.read_pairs(str(tmp_path / "dataset"))
    assert list(at) == pairs.key[pairs.original].tolist()


def test_learners_of_pictures_are_given_them_under_other_lights(raw: Path, tmp_path: Path, monkeypatch) -> None:
    c = raw_settings(
        raw, 'evaluation.baselines=["homography_shades_of_gray"]', "evaluation.networks={}", "evaluation.relit_pictures=1"
    )
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="threads", workers=2)
    given = []
    fitted = PictureEstimator.fitted
    monkeypatch.setattr(
        PictureEstimator, "fitted", lambda *a, **more: given.append((a[1:], more["relit"])) or fitted(*a, **more)
    )
    train(c, tmp_path)
    assert len(given) == 3
    index = DatasetIndex.open(tmp_path / "dataset")
    rows = {row["key"]: row for row in index.table.to_pylist()}
    measured, _ = learning.pictures_of(str(tmp_path / "dataset"), "digest", 256)
    keys = [key for key, row in rows.items() if row["original"]]
    for (pictures, _), relit in given:
        assert len(pictures) == 6
        assert 1 <= len(relit.pictures) <= 6
        for picture, light, of, under in zip(relit.pictures.images, *relit[1:], strict=True):
            [made] = [  # the row whose light it wears, and whose picture it is, changed by the row's matrix
                row
                for row in rows.values()
                if not row["original"]
                and np.allclose(np.divide(row["gt_1"], row["gt_1"][1]), light)
                and np.allclose(
                    np.maximum(measured.images[keys.index(row["source_key"])] @ np.reshape(row["relight_1"], (3, 3)), 0),
                    picture,
                    atol=1e-5,
                )
            ]
            assert made["fold"] == rows[made["source_key"]]["fold"]
            source, target = (measured.images[keys.index(made[f"{name}_key"])] for name in ("source", "target"))
            assert np.array_equal(pictures.images[of], source)
            assert np.array_equal(pictures.images[under], target)


def test_augmentation_can_be_off(raw: Path) -> None:
    c = raw_settings(raw, "augmentation.count=0")
    assert c.augmentation is None
    assert "augmented" not in [stage.name for stage in two_camera.plan(c, "out").stages]
    assert "relit_pictures" not in baselines.settings_of(c, "corrected_moments").settings
    assert baselines.settings_of(raw_settings(raw), "corrected_moments").settings["relit_pictures"] == 99


def test_an_exported_model_learns_from_as_many_re_illuminated_rows_as_in_the_folds(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    c = raw_settings(
        raw,
        "augmentation={ count = 2, targets = 'training_folds' }",
        "evaluation.networks={}",
        "evaluation.baselines=['linear_regression']",
    )
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(out), scheduler="sync")
    train(c, out)
    assert len(learning.read_pairs(str(out / "dataset"))) > 9 * (1 + 2)
    file = two_camera.BENCHMARK.export(c, str(out), str(tmp_path / "model"))
    told = json.loads(file.with_name("model.json").read_text())
    assert (told["pairs"], told["rows"]) == (9, 9 * (1 + 2))


@pytest.mark.parametrize(
    ("name", "overrides", "told"),
    [
        ("s20", [], "for each test fold, with the illuminants of 99 others of the training folds"),
        ("s20", ["augmentation.targets=any"], "of any 99 others, as in the release; the paper does not say whose"),
        ("s20", ["augmentation.targets=same_fold"], "a rule of ours"),
        ("table3", [], "has 99 re-illuminated rows, read from the same place. They do not say whose illuminant"),
        ("table1", ["evaluation.direction=both"], "no transforms from the second camera to the first"),
        ("table1", [], ""),
    ],
)
def test_reports_say_whose_illuminants_pictures_get_and_which_transforms_are_inverses(
    name: str, overrides: list[str], told: str
) -> None:
    notes = " ".join(report._notes(settings(f"two_camera/{name}.toml", *overrides)))
    assert told in notes
    assert ("inverses" in notes) == (overrides == ["evaluation.direction=both"])


def test_averaging_down_keeps_means_and_invalidates_mixed_squares() -> None:
    picture = np.arange(6 * 9 * 3, dtype=np.uint16).reshape(6, 9, 3)
    small = learning.averaged(picture, 3)
    assert small.shape == (2, 3, 3)
    assert small[0, 0] == pytest.approx(picture[:3, :3].mean(axis=(0, 1)) / 65535)
    mask = np.ones((6, 9), dtype=bool)
    mask[0, 0] = False
    assert (learning.averaged(mask, 3) == 1).tolist() == [[False, True, True], [True, True, True]]


# ------------------------------------------------------------------------------------------------------- released numbers


def released(shared_data: Path, out: Path, *overrides: str) -> TwoCameraConfig:
    """A run of the released metadata."""
    path = shared_data / "two_camera" / "s20_metadata_162_pairs.json"
    c = settings("two_camera/metadata.toml", f"source.path={path}", *overrides)
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(out), scheduler="sync")
    return c


def test_linear_regression_on_the_released_pairs_is_nearly_that_of_table_3_and_not_beside_it(
    shared_data: Path, tmp_path: Path
) -> None:
    c = released(shared_data, tmp_path)
    train(c, tmp_path, ["linear_regression"])
    mean = scores(tmp_path)["rotating"]["linear_regression"]["mean"]["mean"]
    assert mean == pytest.approx(facts().tables["s20"]["linear regression"][0], abs=0.06)
    page = Path(two_camera.BENCHMARK.report(c, str(tmp_path))).read_text("utf-8")
    assert "has no pictures" in page
    assert "2.19" in page
    assert "the dataset does not have 99 re-illuminated copies of each picture" in page, "the paper's learned from them"
    assert "Side by side" not in page
    rows = {}
    for more in ("false", "true"):
        chosen = settings("two_camera/metadata.toml", "source.path=x", f"evaluation.reilluminated={more}")
        training = baselines.settings_of(chosen, "linear_regression").settings
        rows[more] = len(getattr(learning, baselines.rows_learned(training))(str(tmp_path / "dataset"), "digest", "1to2").key)
    assert rows == {"false": 162, "true": 162 * 162}


def augmented(drawn_release: Path, out: Path, *overrides: str) -> TwoCameraConfig:
    """A trained run of ``drawn_release`` whose settings state that its re-illuminated rows are the paper's."""
    c = settings("two_camera/table3.toml", f"source.path={drawn_release}", *overrides)
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(out), scheduler="sync")
    train(c, out)
    return dataclasses.replace(c, published={"augmented": ReportedRun.of(str(out)).made["augmented"].digest})


@pytest.fixture(scope="module")
def without_networks(drawn_release: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TwoCameraConfig, Path]:
    """Settings and folder of such a run, whose report tests may write; ``stages_of`` copies it for other settings."""
    out = tmp_path_factory.mktemp("augmented") / "run"
    return augmented(drawn_release, out, "evaluation.networks={}"), out


def stages_of(out: Path, copy: Path) -> Path:
    """A copy without trainings: of its stages, a run of other settings makes those that they reach."""
    return Path(shutil.copytree(out, copy, ignore=shutil.ignore_patterns("experiments")))


def report_of(c: TwoCameraConfig, out: Path) -> str:
    return Path(two_camera.BENCHMARK.report(c, str(out))).read_text("utf-8")


@pytest.mark.usefixtures("blank_figures")
def test_released_rows_of_re_illuminated_pictures_are_learned_from_and_stand_beside_table_3_if_they_are_stated_to_be_its(
    without_networks: tuple[TwoCameraConfig, Path],
) -> None:
    c, out = without_networks
    found = learning.read_pairs(str(out / "dataset"))
    assert (len(found), int(found.original.sum())) == (16_200, 162)
    copies = found.take(~found.original)
    at = {key: row for row, key in enumerate(found.key.tolist())}
    of = found.take(np.array([at[key] for key in copies.target_key.tolist()]))
    np.testing.assert_allclose(copies.gt_1 / copies.gt_1[:, 1:2], of.gt_1 / of.gt_1[:, 1:2], rtol=1e-6)
    assert (copies.source_key != copies.target_key).all()
    assert (copies.fold == found.fold[[at[key] for key in copies.source_key.tolist()]]).all()
    page = report_of(c, out)
    for told in (
        "Table 3 of the paper",
        "Side by side",
        "162 pairs; the paper says 156",
        "by the digests in the settings",
        "re-lit with the illuminants of test",
        "Each pair has 99 re-illuminated rows",
    ):
        assert told in page, told
    for published, why in (
        ({}, "no digest of the released re-illuminated rows is known"),
        ({"augmented": "0" * 64}, "the re-illuminated rows of this run are not the released ones"),
    ):
        page = report_of(dataclasses.replace(c, published=published), out)
        assert f"Not a fair comparison: {why}" in page
        assert f"--set published.augmented={c.published['augmented']}" in page
        for figures in ("Table 3 of the paper", "Side by side", "2.49"):
            assert figures not in page


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("other", ["", "folds.seed=998", "evaluation.direction=2to1"])
def test_published_figures_stand_beside_the_papers_data_and_settings_alone(
    other: str, drawn_release: Path, without_networks: tuple[TwoCameraConfig, Path], tmp_path: Path
) -> None:
    c, out = without_networks
    if other:
        out = stages_of(out, tmp_path / "run")
        c = augmented(drawn_release, out, "evaluation.networks={}", other)
    page = report_of(c, out)
    assert ("Side by side" in page, "2.49" in page) == (not other, not other)
    assert ("direction is 2to1, but 1to2 in the paper" in page) == other.startswith("evaluation")
    assert ("folds of this run are not the paper&#39;s" in page) == other.startswith("folds")


@pytest.mark.usefixtures("blank_figures")
def test_rows_that_a_run_has_not_are_told_with_the_reason(without_networks: tuple[TwoCameraConfig, Path]) -> None:
    page = report_of(*without_networks)
    missing = page[page.index("Rows of the paper&#39;s table that this run does not have") :].partition("</details>")[0]
    assert missing.count("<tr>") == 24  # of 24 rows but one, and the heading
    for told in (
        "needs pictures, and this run has none",
        "not built: the paper trained it from scratch on full-size pictures",
        "not among this run&#39;s methods",
    ):
        assert told in missing, told


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"estimator.p": [5]}, "settings were changed: estimator.p"),
        ({"estimator.mine": 1}, "settings were changed: estimator.mine"),
        ({"longest_px": 256}, "settings were changed: longest_px"),
        ({"model": "gamut"}, "the estimator is gamut"),
        ({"method": "FC4", "model": "FC4"}, "the method is not in the paper's table"),
    ],
)
def test_baselines_of_other_settings_than_ours_stand_beside_no_figure(changed: dict[str, object], why: str) -> None:
    """An installed estimator that is called as one of the paper's rows is not that row."""
    method, model = (str(changed.get(name, usual)) for name, usual in (("method", "gray_world"), ("model", "gray_edge")))
    assert "FC4" in facts().tables["s20"]
    own = {"direction": "1to2", "reilluminated": False, "longest_px": None}
    own |= {"estimator.order": [0], "estimator.p": [1], "estimator.sigma": [0]}
    own |= {name: value for name, value in changed.items() if name not in ("method", "model")}
    line = Line("rotating", method, model, own, method, RESULTS.empty_table())
    assert why_not_the_papers(settings("two_camera/s20.toml", "source.root=x"), line, {}) == why


@pytest.mark.usefixtures("blank_figures")
def test_networks_of_other_settings_than_the_papers_stand_beside_no_figure(
    drawn_release: Path, without_networks: tuple[TwoCameraConfig, Path], tmp_path: Path
) -> None:
    out = stages_of(without_networks[1], tmp_path / "run")
    decayed = "parameters=200, preset='decayed', seeds=[0], settings={ iterations=2 }, lights_of_test=true"
    c = augmented(drawn_release, out, f"evaluation.networks={{ network-200 = {{ {decayed} }} }}")
    page = report_of(c, out)
    side_by_side = page[page.index("Side by side") :].partition("</table>")[0]
    assert "linear_regression" in side_by_side
    assert "network-200" not in side_by_side


@pytest.mark.usefixtures("blank_figures")
def test_results_say_in_values_and_words_who_looked_at_the_test(shared_data: Path, tmp_path: Path) -> None:
    looks = "parameters = 200, preset = 'as_released', seeds = [0], settings = { epochs = 3, check_epochs = 1 }"
    wears = "parameters = 200, preset = 'decayed', seeds = [0], settings = { iterations = 2 }, lights_of_test = true"
    c = released(shared_data, tmp_path, f"evaluation.networks={{ looks = {{ {looks} }}, wears = {{ {wears} }} }}")
    train(c, tmp_path)
    found = scores(tmp_path)["rotating"]
    assert {name: one["mean"]["looked at the test"] for name, one in found.items() if one["mean"]["looked at the test"]} == {
        "looks": 1
    }
    assert {name for name, one in found.items() if one["mean"]["lights of the test"]} == {"wears"}
    page = Path(two_camera.BENCHMARK.report(c, str(tmp_path))).read_text("utf-8")
    assert "Not comparable with the other rows: the checkpoint was selected on the test fold" in page
    assert "Not comparable with the other rows: training rows are re-lit with the illuminants of test pairs" in page


def test_networks_that_are_taught_by_others_are_evaluated_with_them(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "two_camera" / "s20_metadata_162_pairs.json"
    short = "seeds = [4, 3], settings = { iterations = 2 }, measured_times = 2, reilluminated = true"
    pupil = f"{{ parameters = 470, preset = 'pupil', taught_by = 'teacher', taught_rows = 50, {short} }}"
    teacher = f"{{ parameters = 200, preset = 'decayed', {short} }}"
    given = ("evaluation.baselines=[]", f"source.path={path}")
    c = settings("two_camera/metadata.toml", *given, f"evaluation.networks={{ pupil = {pupil}, teacher = {teacher} }}")
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="sync")
    train(c, tmp_path, ["pupil"])
    ((told, rows),) = training_results.predictions(str(tmp_path))
    own = told["settings"]["estimator"]
    assert (told["model"], own["parameters"], own["rows"]) == ("distilled", 470, 50)
    assert own["teacher"]["parameters"] == 200
    assert list(estimates_of(rows).runs) == [4, 3, "average"]
    assert scores(tmp_path)["rotating"]["pupil"]["runs"] == 2
    for changes, message in [
        ((("'teacher',", "'nobody',"),), "taught by 'nobody'"),
        ((("'pupil', taught", "'as_written', taught"), ("iterations", "epochs")), "a preset with a decay"),
        ((("reilluminated = true", "reilluminated = false"),), "expected reilluminated = True"),
    ]:
        text = pupil
        for old, new in changes:
            text = text.replace(old, new)
        wrong = settings("two_camera/metadata.toml", *given, f"evaluation.networks={{ pupil = {text}, teacher = {teacher} }}")
        with pytest.raises(WrongUse, match=message):
            two_camera.BENCHMARK.trainings(wrong, str(tmp_path), ["pupil"], [])


def test_methods_that_cannot_be_are_told_before_anything_is_read(tmp_path: Path) -> None:
    c = settings("two_camera/tiny.toml")
    nothing = str(tmp_path / "nothing")
    for methods, told in (
        (["network-9"], "no method 'network-9'"),
        (["gamut"], "no method 'gamut'"),
        (["nothing.py:mine"], "nothing.py"),
        (["json:mine"], "json has no 'mine'"),
    ):
        with pytest.raises(WrongUse, match=told):
            two_camera.BENCHMARK.trainings(c, nothing, methods, [])
    with pytest.raises(WrongUse, match="no protocol 'rotating': this run has the folds 'fixed'"):
        two_camera.BENCHMARK.trainings(c, nothing, [], ["rotating"])
    bare = settings("two_camera/tiny.toml", "source.patch_px=0")
    with pytest.raises(WrongUse, match="baseline 'gray_world' needs pictures"):
        two_camera.BENCHMARK.trainings(bare, nothing, [], [])
    wrong = settings("two_camera/tiny.toml", "evaluation.networks.network-200.settings.rate=1")
    with pytest.raises(WrongUse, match=r"network 'network-200': .*rate"):
        two_camera.BENCHMARK.trainings(wrong, nothing, [], [])
    wrong = settings("two_camera/tiny.toml", "evaluation.method_settings.linear_regression.rate=1")
    with pytest.raises(WrongUse, match=r"estimator 'linear_regression': .*LinearEstimator"):
        two_camera.BENCHMARK.trainings(wrong, nothing, ["linear_regression"], [])


# ------------------------------------------------------------------------------------------------------ estimators of one's own

PAGE = SETTINGS.parent / "docs/illuminants.md"
OWN = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
"""The examples of the documentation, in one file."""


def made_at(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (out / "experiments/stages").glob("learned_*/artifact.json")}


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("scheduler", ["sync", "processes"])
def test_estimators_and_metrics_of_ones_own_by_settings_and_by_name(scheduler: str, tmp_path: Path, bw) -> None:
    own, out = tmp_path / f"own_{scheduler}.py", tmp_path / "run"
    assert len(OWN.splitlines()) <= 40
    own.write_text(OWN)
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'extends = "tiny"\n[source]\npairs = 60\n[evaluation]\n'
        f"baselines = ['gray_world', '{own.name}:brightness']\nmetrics = ['{own.name}:above_3_deg']\n"
        f"method_settings = {{ '{own.name}:brightness' = {{ power = [1, 3] }} }}\n"
        f"[evaluation.networks.network-200]\nsettings = {QUICK}\n"
    )
    assert bw("run", "two_camera", "--config", mine, "--out", out, "-q").code == 0
    words = ["train", out, "--scheduler", scheduler, "--workers", "2"]
    told = bw(*words)
    assert told.code == 0, told.err
    assert bw("train", out, "--method", f"{own}:Nearest").code == 0
    found = json.loads(bw("eval", out, "--json").out)["fixed"]
    assert set(found) == {"network-200", "gray_world", f"{own.name}:brightness", f"{own.name}:Nearest"}
    assert all(0 < one["mean"]["mean"] < 20 and 0 <= one["mean"]["above_3_deg"] <= 1 for one in found.values())
    assert bw("report", out).code == 0
    assert faults((out / "report.html").read_text()) == []
    assert f"{own.name}:brightness" in (out / "report.html").read_text()
    assert bw("verify", out).code == bw("verify", out / "experiments").code == 0
    before = made_at(out)
    own.write_text(OWN.replace("argmin(axis=1)", "argmin(1)"))
    assert list(api.stale(str(out)).values()) == [f"own_{scheduler}.Nearest changed"]
    assert bw(*words, "--method", f"{own}:Nearest", "--method", "gray_world", "--method", f"{own}:brightness").code == 0
    after = made_at(out)
    (again,) = [name for name in after if after[name] != before[name]]
    assert "py_nearest" in again


def test_settings_of_an_estimator_in_a_file_that_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "mine/own.py"
    own.parent.mkdir()
    own.write_text(OWN)
    for name in (f"{own}:brightness", "mine/own.py:brightness", "own.py:brightness"):
        c = settings("two_camera/tiny.toml", f"evaluation.method_settings={{'{name}'={{power=[1, 3]}}}}")
        assert baselines.settings_of(c, f"{own}:brightness").settings["estimator"] == {"power": [1, 3]}


def test_files_of_estimators_are_written_out(tmp_path: Path) -> None:
    own, other, out = tmp_path / "own_files.py", tmp_path / "own_folders.py", tmp_path / "run"
    own.write_text(OWN)
    c = settings("two_camera/tiny.toml", "source.pairs=60", f"evaluation.networks.network-200.settings={QUICK}")
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(out), scheduler="sync")
    train(c, out, ["network-200", "gray_world", "linear_regression", f"{own}:Nearest"])
    files = {path.name: path for path in baselines.write_artifacts(str(out), str(tmp_path / "files"))}
    assert set(files) == {"networks.npz", "linear.npz", "test-part.npz", "note.txt"}
    assert files["note.txt"].read_bytes() == b"nothing was fitted"
    nets, names = load_networks(files["networks.npz"].read_bytes())
    assert (nets.runs, names) == (2, ["test part, seed 0", "test part, seed 1"])
    assert load_baseline(files["test-part.npz"].read_bytes()).setting == {"order": 0, "p": 1, "sigma": 0}
    other.write_text(OWN.replace("note.txt", "../note.txt"))
    train(c, out, [f"{other}:Nearest"])
    with pytest.raises(ValueError, match=r"calls a file '\.\./note\.txt': expected a plain"):
        baselines.write_artifacts(str(out), str(tmp_path / "files"))


def test_an_edit_of_an_estimator_trains_it_again_and_nothing_else(tmp_path: Path) -> None:
    """Keys hold the code that each estimator reaches, and none of the others'."""
    c = settings("two_camera/published.toml", "source.patch_px=8")
    own = {one.method: set(modules_of(one.learn)) for one in two_camera.BENCHMARK.trainings(c, str(tmp_path), [], [])}
    assert "benchwright.training.illuminants.gamut" in own["gamut_pixel"]
    assert "benchwright.training.two_camera.newton" in own["network-200"]
    for name, modules in own.items():
        others = {"chromagenic", "bright_pixels", "bright_dark_pca", "corrected_moments", "gamut", "weighted_gray_edge"}
        reaching = {module.rpartition(".")[2] for module in modules if ".illuminants." in module} & others
        corrects = (
            {"bright_pixels", "bright_dark_pca", "weighted_gray_edge"} if name.startswith(("homography", "apap")) else set()
        )
        assert reaching == ({baselines.settings_of(c, name).model} & others) | corrects, name
        assert (".two_camera.newton" in " ".join(modules)) == name.startswith("network"), name


def modules_of(learn: Step) -> Iterator[str]:
    """Modules of which the key of a step holds a definition."""
    for code in [learn.function, *(code for value in learn.settings.values() for code in codes_in(value))]:
        found = reached(str(code) if isinstance(code, str) else code)
        yield from (module for module, names in found.definitions.items() if any(names))


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize(
    "diverging", [[f"settings={QUICK.replace('1e-2', '1e30')}"], ["preset=decayed", "settings={ decay = 1e308 }"]]
)
def test_a_loss_that_is_not_finite_is_a_reject_and_the_others_go_on(diverging: list[str], tmp_path: Path, bw) -> None:
    """Of Adam, and of Levenberg and Marquardt's method."""
    changes = [f"evaluation.networks.network-200.{each}" for each in diverging]
    c = settings("two_camera/tiny.toml", "source.pairs=60", *changes)
    api.run(api.Job(two_camera.BENCHMARK, c, {}, {}), str(tmp_path), scheduler="sync")
    with pytest.raises(Diverged, match=r"network-200.*change evaluation\.networks\.network-200\.settings"):
        train(c, tmp_path, ["network-200", "linear_regression"])
    assert set(scores(tmp_path)["fixed"]) == {"linear_regression"}
    (line,) = bw("rejects", tmp_path / "experiments").out.splitlines()
    assert "diverged" in line
    assert Path(two_camera.BENCHMARK.report(c, str(tmp_path))).is_file()


@pytest.mark.usefixtures("blank_figures")
def test_an_estimator_that_cannot_be_fitted_is_skipped_with_its_reason(tmp_path: Path, bw) -> None:
    out, chosen = tmp_path / "run", '["linear_regression", "corrected_moments"]'
    small = ["source.pairs=20", f"evaluation.baselines={chosen}", "evaluation.networks={}"]
    small.append("evaluation.method_settings.corrected_moments={ degree = [3], order = [0], sigma = [0] }")
    told = bw("run", "two_camera", "--config", "tiny", "--out", out, "-q", "--train", *(w for s in small for w in ("--set", s)))
    reason = "fixed corrected_moments was skipped: 12 pictures: a matrix of 19 moments needs at least as many"
    assert (told.code, told.err.count(reason)) == (0, 2), told.err  # behind the scores, and behind the report
    assert "linear_regression" in told.out
    assert "19 moments" in (out / "report.html").read_text()
    assert set(api.scores(str(out))["fixed"]) == {"linear_regression"}
    assert reason in bw("eval", out).err
    (line,) = bw("rejects", out / "experiments").out.splitlines()
    assert "\tnot_fitted\t" in line


def test_a_shard_that_is_damaged_is_an_error_that_names_it_and_no_estimator_that_cannot_be_fitted(tmp_path: Path, bw) -> None:
    out = tmp_path / "run"
    bw(
        "run",
        "two_camera",
        "--config",
        "tiny",
        "--out",
        out,
        "-q",
        "--set",
        "source.pairs=20",
        "--set",
        "evaluation.networks={}",
    )
    shard = sorted((out / "dataset").rglob("*.tar"))[0]
    shard.write_bytes(shard.read_bytes().replace(b"\x93NUMPY", b"\x93NUMPX"))
    told = bw("train", out, "--method", "gray_world")
    assert told.code != 0
    assert str(shard) in told.err.splitlines()[-1], told.err
    assert "Traceback" not in told.err
    assert not bw("rejects", out / "experiments").out


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
    kill_when(lambda: any(killed.glob("stages/photographed/part-*.parquet")), forked(*words, killed))
    done = [bw(*words, out) for out in (killed, tmp_path / "whole")]
    assert [answer.code for answer in done] == [0, 0], done[0].err
    shown = [json.loads(bw("show", out, "--json").out)["digest"] for out in (killed, tmp_path / "whole")]
    assert shown[0] == shown[1]


_KILLED = {
    "adam": "preset = 'reilluminated', seeds = [0, 1], settings = { epochs = 450, batch_size = 12, check_epochs = 10 }",
    "decayed": "preset = 'decayed', seeds = [0, 1, 2, 3], settings = { iterations = 60, tolerance = 1e-9 }",
    "weighted_gray_edge": "",
}


_STEPS = {"benchwright.training.two_camera.batched._COMMIT_STEPS": 500}
"""Adam's steps between two checkpoints: a tenth."""


@pytest.mark.parametrize("method", _KILLED)
def test_a_kill_of_a_training_costs_what_its_checkpoint_says(
    method: str, tmp_path: Path, bw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 after the first checkpoint; the same command again ends in the rows of a training that was not killed."""
    networks = f"{method} = {{ parameters = 200, {_KILLED[method]} }}" if _KILLED[method] else ""
    words = ["--set", f"evaluation.networks={{ {networks} }}", "--set", "source.pairs=60", "--set"]
    words += ["folds={kind='rotating', count=3, seed=1}"]
    killed = tmp_path / "killed"
    assert bw("run", "two_camera", "--config", "tiny", *words, "--out", killed, "-q").code == 0
    whole = Path(shutil.copytree(killed, tmp_path / "whole"))
    for name, steps in _STEPS.items():
        monkeypatch.setattr(name, steps)
    train = ["--method", method]
    kill_at_checkpoint(killed, *train, set_to=_STEPS)
    (state,) = killed.glob("experiments/stages/learned_*/.work/*/after-*")
    begun = state.stat().st_mtime_ns, dict(Checkpoint(state.parent).arrays())
    told = bw("train", killed, *train)
    assert told.code == 0, told.err
    if method == "adam":
        steps = [int(step) for step in re.findall(r": step (\d+) of", told.err)]
        assert min(steps) > int(begun[1]["step"]) >= 500
    if method == "decayed":
        assert len(re.findall(r"seed \d: \d+ steps", told.err)) == 12 - len(begun[1]) // 2
    assert not list(killed.glob("experiments/stages/*/.work"))
    assert bw("train", whole, *train, "-q").code == 0
    found = [{path.parent.name: json.loads(path.read_text())["digest"] for path in digests_of(out)} for out in (killed, whole)]
    assert found[0] == found[1]
    assert bw("verify", killed / "experiments").code == 0


def digests_of(out: Path) -> list[Path]:
    return sorted((out / "experiments/stages").glob("*/artifact.json"))


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
    with pytest.raises(PlanError, match="are one inside the other"):
        made(c, raw / "out")


# ---------------------------------------------------------------------------------------------------- a source of one's own


def test_pictures_of_a_source_of_ones_own(phone, tmp_path: Path, bw) -> None:
    """Nine pairs: seven with a light or a chart or both, and what is wrong with the others is a reject."""
    own, folder, out = tmp_path / "pairs.py", tmp_path / "npz", tmp_path / "run"
    folder.mkdir()
    own.write_bytes((Path(__file__).parents[1] / "fixtures/outside/pairs.py").read_bytes())
    generator = np.random.default_rng(0)
    cameras = phone.CAMERA_1, phone.CAMERA_2
    for number in range(7):
        light = generator.uniform(0.6, 1, 3)
        scene = generator.uniform(0.05, 0.6, (20, 30, 3)) * light
        seen = {name: scene @ matrix for name, matrix in zip(("one", "two"), cameras, strict=True)}
        if number % 2:
            seen = {name: np.round(65535 * picture).astype(np.uint16) for name, picture in seen.items()}
        lights = {f"light_{camera}": light @ matrix for camera, matrix in enumerate(cameras, 1)}
        charts = {f"chart_{camera}": 0.8 * phone.chart_colours() * light @ m for camera, m in enumerate(cameras, 1)}
        np.savez(folder / f"pair-{number}.npz", **seen, **({} if number == 0 else lights), **({} if number == 1 else charts))
    np.savez(folder / "alone.npz", one=seen["one"])
    np.savez(folder / "dark.npz", one=seen["one"], two=seen["two"])
    np.savez(folder / "short.npz", one=seen["one"], two=seen["two"][1:], **lights)
    mine = tmp_path / "mine.toml"
    mine.write_text(
        "seed = 0\n[source]\nkind = 'pairs.py:npz_pairs'\npaths = {folder = 'npz'}\nmax_rejects = 2\n"
        "[folds]\nkind = 'rotating'\ncount = 2\nseed = 999\n[shards]\nmax_samples = 5\n"
        "[evaluation]\ndirection = '1to2'\nbaselines = ['linear_regression', 'gray_world']\nnetworks = {}\n"
    )
    assert bw("run", "two_camera", "--config", mine, "--out", out, "--train", "-q").code == 0
    shown = json.loads(bw("show", out, "--json").out)["stages"]
    rejects = {stage["name"]: stage["rejects"] for stage in shown if stage["rejects"]}
    assert rejects == {"listed": {"no_partner": 1}, "photographed": {"no_light": 1, "bad_picture": 1}}
    assert bw("verify", out).code == bw("verify", out / "experiments").code == 0
    pairs = learning.read_pairs(str(out / "dataset"))
    assert sorted(pairs.key) == [f"pair-{number}" for number in range(7)]
    truth = np.linalg.inv(cameras[0]) @ cameras[1]
    for matrix, one, two in zip(pairs.transform_1to2, pairs.gt_1, pairs.gt_2, strict=True):
        np.testing.assert_allclose(matrix, truth, atol=0.02)
        np.testing.assert_allclose(two / two[1], (one @ truth) / (one @ truth)[1], atol=1e-4)
    assert pairs.key[np.isnan(pairs.transform_chart_1to2).any(axis=(1, 2))].tolist() == ["pair-1"]
    assert set(json.loads(bw("eval", out, "--json").out)["rotating"]) == {"linear_regression", "gray_world"}
    assert "pairs.py:npz_pairs" in Path(bw("report", out).out.strip()).read_text()
    assert str(tmp_path) not in (out / "dataset/README.md").read_text()
    again = tmp_path / "relit"
    augmentation = ["--set", "augmentation={count=2, targets='any'}", "--set", "source.max_rejects=3"]
    assert bw("run", "two_camera", "--config", mine, *augmentation, "--out", again, "-q").code == 0
    pairs = learning.read_pairs(str(again / "dataset"))
    assert len(pairs) == 6 * 3
    assert "pair-1" not in {*pairs.source_key, *pairs.target_key}
    assert "no_chart" in bw("rejects", again).out


def test_no_torch_where_no_network_is_trained(tmp_path: Path) -> None:
    out, methods = tmp_path / "out", ["--method", "linear_regression", "--method", "gray_world"]
    run_words = ["run", "two_camera", "--config", "tiny", "--set", "source.pairs=40", "--set", "evaluation.networks={}"]
    code = (
        "import sys; from benchwright.pipelines.cli import main\n"
        f"assert main.call({[*run_words, '--out', str(out), '--train', '-q']!r}) == 0\n"
        f"assert main.call({['train', str(out), *methods, '-q']!r}) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    told = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stderr
