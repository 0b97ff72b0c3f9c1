"""From raw pairs to transforms and re-illuminated pairs, through the engine, on drawn pairs whose truth is known."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from typing import NamedTuple

import cv2
import numpy as np
import pyarrow as pa
import pytest
import scipy.io
from benchwright.curation.flow import rows_of, source, step
from benchwright.curation.keys import where
from benchwright.curation.npy import npy_blob
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.run import run
from benchwright.curation.stages.alignment import LEAST_AGREEMENT, AlignedPictures, agreement, align, mapped
from benchwright.curation.stages.raw import as_uint16, read_linear
from benchwright.datasets.two_camera.augment import Expanded, PairToRelight, expand, relight, to_light
from benchwright.datasets.two_camera.folds import assign_folds
from benchwright.datasets.two_camera.pair_files import ListedPair, list_pairs, read_within
from benchwright.datasets.two_camera.pictures import (
    WithHomography,
    array_of,
    estimate_homographies,
    measure_pictures,
    photograph,
)
from benchwright.datasets.two_camera.quasi_real import MatchedPair, list_matches, simulate
from benchwright.datasets.two_camera.rows import Folded, as_pairs, lists
from benchwright.datasets.two_camera.samples import picture_sample
from benchwright.datasets.two_camera.transforms import fit
from benchwright.eval.metrics.angular import angular_error_deg
from benchwright.eval.metrics.light_dependence import light_dependence
from benchwright.pipelines import api

from tests.curation.phone_pairs import phone

NAMES = ("{pair}_CAM_0.*", "{pair}_CAM_1.*")
SIZE = (1008, 756)
FITTED = {"preset": "as_released", "max_condition": 1e4, "darkest": 0.0}


def aligned(root, given=None, charts="charts.csv"):
    listed = source(
        "listed", step(list_pairs, root=where(root), names=NAMES, charts=charts), gives=ListedPair, max_rejects=None
    )
    estimate = step(estimate_homographies, root=where(root), given=given or {}, pairs=3)
    return listed.whole("aligned", estimate, gives=WithHomography)


def measured(flow, root, chart="listed", preset="as_released", **settings):
    settings = {"factor": 6, "demosaic": "bin2", "saturated": 0.98, **settings}
    read = step(photograph, root=where(root), chart=chart, **settings)
    fitted = flow.each("photographed", read, rows_per_part=1, max_rejects=None)
    return fitted.each("measured", step(measure_pictures, **{**FITTED, "preset": preset}), rows_per_part=1)


def relit(flow, targets="any", preset="as_released"):
    folded = flow.whole("folded", step(assign_folds, folds=2, seed=999), gives=Folded)
    change = step(relight, charts=rows_of("folded"), count=2, targets=targets, seed=0, **{**FITTED, "preset": preset})
    return (
        folded.each("relit", change, rows_per_part=1)
        .whole("augmented", step(expand), gives=Expanded, expands=True)
        .shards("shards", step(picture_sample), by=["fold"], max_samples=5)
    )


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return folder, phone.make_pairs(folder, pictures=None, pairs=3, size=SIZE, seed=0)


@pytest.fixture(scope="module")
def made(pairs, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    return run(relit(measured(aligned(pairs[0]), pairs[0])), str(out), scheduler="threads", workers=2), out


def error(found, truth):
    return np.linalg.norm(np.reshape(found, (3, 3)) - truth) / np.linalg.norm(truth)


def test_the_pipeline_finds_homography_transforms_and_lights_of_drawn_pairs(pairs, made):
    truth, (result, _) = pairs[1], made
    found = result.rows("aligned").table().to_pylist()[0]
    corners = np.array([[0, 0], [1007, 0], [1007, 755], [0, 755]])
    far = mapped(corners, np.reshape(found["homography"], (3, 3))) - mapped(corners, np.array(truth["homography"]))
    assert np.linalg.norm(far, axis=1).max() < 0.5
    assert found["residual_px"] < 1
    for row in result.rows("measured").table().to_pylist():
        known = truth["pairs"][row["name"]]
        matrix = np.array(known["transform"])
        assert error(row["transform_1to2"], matrix) < 0.01
        assert error(row["transform_2to1"], np.linalg.inv(matrix)) < 0.01
        assert error(row["transform_chart_1to2"], matrix) < 0.002
        assert row["gt_1"] == pytest.approx(known["gt_1"], abs=0.02)  # the real chart's greys are not wholly neutral
        assert np.cross(np.array(row["gt_1"]) @ matrix, row["gt_2"]) == pytest.approx(np.zeros(3), abs=2e-3)
        assert 0.7 < row["valid_share"] < 0.9, "the chart is masked in both views"


def test_real_pictures_give_their_homography_and_transform(shared_data, tmp_path):
    truth = phone.make_pairs(tmp_path / "raw", pictures=shared_data / "raw" / "imx135", pairs=1, size=(2016, 1512), seed=0)
    flow = measured(aligned(tmp_path / "raw"), tmp_path / "raw", demosaic="ahd")
    result = run(flow, str(tmp_path / "out"), scheduler="sync")
    found = result.rows("aligned").table().to_pylist()[0]
    corners = np.array([[0, 0], [2015, 0], [2015, 1511], [0, 1511]])
    far = mapped(corners, np.reshape(found["homography"], (3, 3))) - mapped(corners, np.array(truth["homography"]))
    assert np.linalg.norm(far, axis=1).max() < 0.5
    row = result.rows().table().to_pylist()[0]
    assert error(row["transform_1to2"], np.array(truth["pairs"]["RAW_0000"]["transform"])) < 0.01


def test_the_same_pairs_give_the_same_bytes_on_any_scheduler(pairs, made, tmp_path):
    again = run(relit(measured(aligned(pairs[0]), pairs[0])), str(tmp_path), scheduler="sync")
    assert again.result.digest == made[0].result.digest


def test_every_pair_is_followed_by_itself_under_the_lights_of_others(pairs, made):
    result, _ = made
    table = result.rows("augmented").table()
    assert table.num_rows == 9
    rows = {row["key"]: row for row in table.to_pylist()}
    copy, own, target = rows["RAW_0001-as-RAW_0002"], rows["RAW_0001"], rows["RAW_0002"]
    assert (copy["source_key"], copy["target_key"], copy["original"]) == ("RAW_0001", "RAW_0002", False)
    assert (own["source_key"], own["target_key"], own["original"]) == ("RAW_0001", "", True)
    assert copy["fold"] == own["fold"]
    assert copy["gt_1"] == target["gt_1"]
    assert copy["gt_2"] == target["gt_2"]
    assert copy["image_1"] is None
    assert own["image_1"] is not None
    # By hand: change both pictures, then fit.
    store = result.store
    keep = array_of(store.blob(own["valid"]))
    changed = []
    for number in ("1", "2"):
        mine, theirs = (np.reshape(row[f"patches_{number}"], (24, 3)) for row in (own, target))
        change = np.linalg.lstsq(mine, theirs)[0]
        assert to_light(mine, theirs[None], clear=np.ones((1, 24), bool))[0] == pytest.approx(change, rel=1e-6, abs=1e-9)
        assert np.reshape(copy[f"relight_{number}"], (3, 3)) == pytest.approx(change, rel=1e-5, abs=1e-6)
        assert own[f"relight_{number}"] is None
        changed.append(array_of(store.blob(own[f"image_{number}"]))[keep] / 65535 @ change)
    assert copy["transform_1to2"] == pytest.approx(fit(*changed, preset="as_released").matrix.ravel(), abs=1e-6)
    assert copy["transform_2to1"] == pytest.approx(fit(*changed[::-1], preset="as_released").matrix.ravel(), abs=1e-6)
    arrays = as_pairs(table)
    assert arrays.take(arrays.original).key.tolist() == ["RAW_0000", "RAW_0001", "RAW_0002"]
    assert arrays.transform_1to2.shape == (9, 3, 3)


class Charts(NamedTuple):
    """Rows of pairs, as ``relight`` reads them."""

    whole: pa.Table

    def table(self, columns):
        return self.whole.select(columns)


@pytest.mark.parametrize("preset", ["as_released", "as_written", "weighted"])
def test_transforms_under_many_lights_are_those_of_changed_pictures(preset):
    generator = np.random.default_rng(0)
    lights = np.array([[1.0, 1.0, 1.0], [0.7, 0.9, 1.0], [1.0, 0.8, 0.6], [0.9, 0.9, 0.5]])
    charts = [[0.8 * phone.chart_colours() * light @ camera for light in lights] for camera in (phone.CAMERA_1, phone.CAMERA_2)]
    columns = {f"patches_{n}": lists(np.array(seen).reshape(4, 72)) for n, seen in enumerate(charts, 1)}
    columns |= {
        "saturated": pa.array([[False] * 24] * 4),
        "key": pa.array("abcd"),
        "fold": pa.array([0] * 4),
        "gt_1": lists(lights),
        "gt_2": lists(lights),
    }
    scene = generator.uniform(0.01, 0.5, (700, 100, 3))
    scene = [scene @ phone.CAMERA_1, np.abs(scene @ phone.CAMERA_2 + generator.normal(0, 0.02, scene.shape))]
    images, mask = [npy_blob(as_uint16(picture)) for picture in scene], npy_blob(np.ones((700, 100), dtype=bool))
    row = PairToRelight("a", 0, *images, mask, *(columns[name][0].as_py() for name in ("patches_1", "patches_2", "saturated")))
    given = {"max_condition": 1e4, "darkest": 0.0, "seed": 0, "targets": "any"}
    found = array_of(relight(row, charts=Charts(pa.table(columns)), count=9, preset=preset, **given).relit)
    assert found[:, 0].tolist() == [1, 2, 3]
    pixels = [array_of(image).reshape(-1, 3) / 65535 for image in images]
    for number, line in enumerate(found, 1):
        changes = [np.linalg.lstsq(seen[0], seen[number])[0] for seen in charts]
        changed = [picture @ change for picture, change in zip(pixels, changes, strict=True)]
        own = [seen[0] @ change for seen, change in zip(charts, changes, strict=True)]
        expected = [fit(*pair, preset=preset).matrix.ravel() for pair in (changed, changed[::-1], own, own[::-1])]
        assert line[7:] == pytest.approx(np.concatenate([*expected, *(change.ravel() for change in changes)]), abs=1e-5)
        assert line[1:7] == pytest.approx(np.tile(lights[number], 2))
    singular = dataclasses.replace(row, patches_1=[0.5] * 72)
    with pytest.raises(Reject, match="span no volume"):
        relight(singular, charts=Charts(pa.table(columns)), count=9, preset=preset, **given)


@pytest.mark.parametrize("preset", ["as_released", "as_written", "weighted"])
def test_patches_that_saturate_bend_neither_transforms_nor_re_illumination(preset, tmp_path):
    """As the source's own limit has it, 0.8 here: raw values are cut off there, and no colour comes near 0.98."""
    truth, limit, (width, height) = np.linalg.inv(phone.CAMERA_1) @ phone.CAMERA_2, 0.8, (252, 189)
    generator = np.random.default_rng(0)
    root = tmp_path / "raw"
    root.mkdir()
    lights = np.array([[1.0, 1.0, 1.0], [1.3, 1.0, 0.7]])
    for number, light in enumerate(lights):
        scene = phone.drawn_scene(width, height, generator) * 0.6
        corners = phone.paste_chart(scene, colours=phone.chart_colours(), left=100, top=60, spacing=24)
        for camera, matrix in enumerate((phone.CAMERA_1, phone.CAMERA_2)):
            levels = phone.mosaic_of(np.minimum((scene * light) @ matrix, limit), generator)
            data = phone.write_dng(levels, black=(phone.BLACK,) * 4, white=phone.WHITE)
            (root / f"RAW_{number}_CAM_{camera}.dng").write_bytes(data)
    flow = measured(
        aligned(root, {"": np.eye(3).ravel().tolist()}, charts=None),
        root,
        chart="fixed",
        corners_1=corners.ravel().tolist(),
        saturated=0.97 * limit,
        factor=2,
        preset=preset,
    )
    table = run(relit(flow, preset=preset), str(tmp_path / "out"), scheduler="sync").rows("augmented").table()
    rows = table.to_pylist()
    assert all(1 <= sum(row["saturated"]) <= 8 for row in rows)
    assert max(error(row["transform_chart_1to2"], truth) for row in rows) < 0.003
    assert max(error(row["transform_1to2"], truth) for row in rows if row["original"]) < 0.02
    patches = np.array([rows[at]["patches_1"] for at in (0, 2)]).reshape(2, 24, 3)
    assert not (patches >= 0.98).any()
    assert error(fit(patches[0], np.array(rows[0]["patches_2"]).reshape(24, 3), preset=preset).matrix, truth) > 0.005


def test_targets_may_be_kept_within_the_fold(pairs, made, tmp_path):
    flow = relit(measured(aligned(pairs[0]), pairs[0]), targets="same_fold")
    table = run(flow, str(tmp_path), scheduler="sync").rows("augmented").table().to_pylist()
    fold = {row["key"]: row["fold"] for row in table if row["original"]}
    assert sorted(fold.values()) in ([0, 0, 1], [0, 1, 1])
    assert [fold[row["target_key"]] == row["fold"] for row in table if not row["original"]] == [True, True]


@pytest.mark.parametrize(("targets", "least", "most"), [("any", 0, 3), ("training_folds", 3, 5)])
def test_targets_of_the_training_folds_leave_as_many_for_every_test_fold(targets, least, most):
    """Of twelve pairs in three folds three lights each: without those of a test fold fewer are left, unless drawn for it."""
    generator, fold = np.random.default_rng(0), np.arange(12) % 3
    lights = generator.uniform(0.5, 1.0, (12, 3))
    chart = 0.8 * phone.chart_colours()
    columns = {f"patches_{n}": lists(np.array([chart * light for light in lights]).reshape(12, 72)) for n in (1, 2)}
    columns |= {f"gt_{n}": lists(lights) for n in (1, 2)} | {"saturated": pa.array([[False] * 24] * 12), "fold": pa.array(fold)}
    charts = Charts(pa.table({**columns, "key": pa.array("abcdefghijkl")}))
    image, mask = npy_blob(as_uint16(generator.uniform(0.01, 0.5, (20, 20, 3)))), npy_blob(np.ones((20, 20), dtype=bool))
    given = {"max_condition": 1e4, "darkest": 0.0, "seed": 0, "preset": "as_written", "count": 3, "targets": targets}
    left = []
    for pair, key in enumerate("abcdefghijkl"):
        patches = [columns[f"patches_{n}"][pair].as_py() for n in (1, 2)]
        row = PairToRelight(key, int(fold[pair]), image, image, mask, *patches, [False] * 24)
        of = array_of(relight(row, charts=charts, **given).relit)[:, 0].astype(int)
        assert pair not in of
        assert len(set(of)) == len(of)
        left += [(fold[of] != test).sum() for test in range(3) if test != fold[pair]]
    assert (min(left), max(left)) == (least, most)


def test_bad_files_are_rejects_and_the_others_go_on(pairs, tmp_path):
    root = tmp_path / "raw"
    shutil.copytree(pairs[0], root)
    (root / "RAW_0001_CAM_1.dng").write_bytes((root / "RAW_0001_CAM_1.dng").read_bytes()[:9000])
    shutil.copy(root / "RAW_0000_CAM_0.dng", root / "RAW_0007_CAM_0.dng")
    shutil.copy(root / "RAW_0000_CAM_0.dng", root / "RAW_0008_CAM_0.dng")
    shutil.copy(root / "RAW_0000_CAM_0.dng", root / "RAW_0008_CAM_1.dng")
    result = run(measured(aligned(root), root), str(tmp_path / "out"), scheduler="sync")
    assert result.rows().table()["key"].to_pylist() == ["RAW_0000", "RAW_0002"]
    rejects = {artifact.stage: artifact.rejects for artifact in result.artifacts}
    assert rejects["listed"] == {"no_partner": 1, "no_chart_listed": 1}
    assert rejects["photographed"] == {"truncated": 1}


def test_two_pictures_of_two_scenes_are_a_reject(pairs, tmp_path):
    root = tmp_path / "raw"
    shutil.copytree(pairs[0], root)
    shutil.copy(root / "RAW_0002_CAM_1.dng", root / "RAW_0001_CAM_1.dng")  # the chart is where it was
    flow = aligned(root, {"": np.ravel(pairs[1]["homography"]).tolist()})
    result = run(measured(flow, root), str(tmp_path / "out"), scheduler="sync")
    assert result.rows().table()["key"].to_pylist() == ["RAW_0000", "RAW_0002"]
    [reject] = api.rejects(str(tmp_path / "out"))
    assert (reject["key"], reject["reason"]) == ("RAW_0001", "not_one_scene")
    assert re.fullmatch(r"their detail agrees by -?0\.[01]\d, limit least_agreement = 0\.3", reject["detail"])
    assert run(measured(flow, root, least_agreement=-1.0), str(tmp_path / "out"), scheduler="sync").rows().num_rows == 3


def test_how_far_the_detail_of_two_pictures_agrees():
    draw = np.random.default_rng(0)
    sky = np.linspace(1, 0.1, 90, dtype=np.float32)[:, None, None]  # bright above in all of them
    one, other = (sky * cv2.GaussianBlur(draw.random((90, 120, 3), dtype=np.float32), (0, 0), 2) for _ in range(2))
    valid = np.ones((90, 120), dtype=bool)
    valid[:, :30] = False
    again = 0.1 * one @ np.array([[0.7, 0.3, 0], [0.1, 0.8, 0.1], [0, 0.3, 0.7]], dtype=np.float32)
    again[:, :30] = 1
    assert agreement(AlignedPictures(one, again, valid, 6)) > 0.9
    assert abs(agreement(AlignedPictures(one, other, valid, 6))) < LEAST_AGREEMENT
    assert np.isnan(agreement(AlignedPictures(one, other, valid & False, 6)))
    assert np.isnan(agreement(AlignedPictures(one, np.ones_like(one), valid, 6)))


def test_a_homography_may_be_given_and_one_that_cannot_be_found_is_told(pairs, tmp_path):
    root = pairs[0]
    truth = np.ravel(pairs[1]["homography"]).tolist()
    row = run(aligned(root, {"": truth}), str(tmp_path / "given"), scheduler="sync").rows().table().to_pylist()[0]
    assert (row["homography"], row["residual_px"], row["points"]) == (truth, None, 0)
    with pytest.raises(StepFailed, match="expected nine numbers of a matrix with an inverse"):
        run(aligned(root, {"": [0.0] * 9}), str(tmp_path / "bad"), scheduler="sync")
    blank = tmp_path / "blank"
    blank.mkdir()
    shutil.copy(root / "charts.csv", blank)
    for camera in (0, 1):
        (blank / f"RAW_0000_CAM_{camera}.dng").write_bytes(phone.write_dng(np.full((96, 96), 9000, np.uint16)))
    with pytest.raises(StepFailed, match=r"from 1 pairs \(too_few_matches: 0 points, expected at least 20\); give it instead"):
        run(aligned(blank), str(tmp_path / "none"), scheduler="sync")


def test_a_fixed_chart_and_one_that_is_misplaced(pairs, tmp_path, monkeypatch):
    flow = aligned(pairs[0])
    corners = run(flow, str(tmp_path), scheduler="sync").rows().table()["chart_1"][0].as_py()
    fixed = measured(flow, pairs[0], chart="fixed", corners_1=corners)
    assert run(fixed, str(tmp_path), scheduler="sync").rows().num_rows == 3
    monkeypatch.setattr("benchwright.datasets.two_camera.pictures.MAX_CHART_SPREAD", 0.01)
    beside = measured(flow, pairs[0], chart="fixed", corners_1=[value - 200 for value in corners])
    assert run(beside, str(tmp_path), scheduler="sync").rows("photographed").num_rows == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n", r"charts.csv has no column 'name' \(source.charts\): it has a, b"),
        ("name,x0,y0,x1,y1,x2,y2,x3,y3\nRAW_0000_CAM_0,1,2,3\n", "charts.csv, line 2: 4 fields, the header has 9"),
        ("name,x0,y0,x1,y1,x2,y2,x3,y3\nRAW_0000_CAM_0,1,2,3,4,5,6,7,\n", "line 2: expected eight numbers"),
        ("name,x0,y0,x1,y1,x2,y2,x3,y3,x0\n", "charts.csv: its header names 'x0' twice"),
    ],
)
def test_a_list_of_charts_of_another_form_is_told(pairs, tmp_path, text, told):
    shutil.copy(pairs[0] / "RAW_0000_CAM_0.dng", tmp_path)
    (tmp_path / "charts.csv").write_text(text)
    with pytest.raises(ValueError, match=told):
        list(list_pairs(root=str(tmp_path), names=NAMES, charts="charts.csv"))


def touched(root, *files):
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def listed_in(root, **given):
    found = list_pairs(root=str(root), **{"names": NAMES, **given})
    return [each.reason if isinstance(each, Rejected) else (each.key, each.device, each.file_1, each.file_2) for each in found]


def test_pairs_lie_in_two_folders_or_are_named_by_a_pattern(tmp_path):
    touched(tmp_path, "main/a.dng", "main/b.DNG", "wide/a.dng", "wide/b.nef", "wide/c.dng", "main/.b.dng", "wide/a.dng.xmp")
    found = listed_in(tmp_path, names=["main/{pair}.*", "wide/{pair}.*"])
    assert found == [("a", "", "main/a.dng", "wide/a.dng"), ("b", "", "main/b.DNG", "wide/b.nef"), "no_partner", "no_partner"]
    touched(tmp_path, *(f"phones/{pair}-{camera}.dng" for pair in ("p1/7", "p1 7") for camera in ("wide", "tele")))
    found = listed_in(tmp_path, names=["phones/{pair}-wide.dng", "phones/{pair}-tele.dng"])
    assert found == [("p1_7", "", "phones/p1 7-wide.dng", "phones/p1 7-tele.dng"), "duplicate_key"]
    (tmp_path / "phones/p1 7-tele.dng").unlink()
    found = listed_in(tmp_path, names=["phones/{pair}-wide.dng", "phones/{pair}-tele.dng"])
    assert found == ["no_partner", ("p1_7", "p1", "phones/p1/7-wide.dng", "phones/p1/7-tele.dng")]
    with pytest.raises(ValueError, match=r"source\.names: 'main/\*\.dng': expected \{pair\} once, as in main/\{pair\}\.dng"):
        listed_in(tmp_path, names=["main/*.dng", "wide/*.dng"])
    with pytest.raises(ValueError, match=r"no file is named like x/\{pair\}\.dng or y/\{pair\}\.dng: see source\.names"):
        listed_in(tmp_path, names=["x/{pair}.dng", "y/{pair}.dng"])


def test_pairs_are_listed_in_a_csv_file(tmp_path):
    touched(tmp_path, "main/1.dng", "main/2.dng", "wide/7.dng")
    head = "file_1,file_2,device\n"
    (tmp_path / "pairs.csv").write_text(head + "main/1.dng,wide/7.dng,p1\nmain/2.dng,wide/8.dng,\nmain/1.dng,wide/7.dng,p2\n")
    found = listed_in(tmp_path, pairs="pairs.csv")
    assert found == [("main_1", "p1", "main/1.dng", "wide/7.dng"), "no_file", "duplicate_key"]
    header = ",".join(["name", *(f"{axis}{corner}" for corner in range(4) for axis in "xy")])
    (tmp_path / "charts.csv").write_text(f"{header}\nmain/1,{','.join('12345678')}\nwide/7,{','.join('23456789')}\n")
    first = next(iter(list_pairs(root=str(tmp_path), names=NAMES, pairs="pairs.csv", charts="charts.csv")))
    assert (first.chart_1[0], first.chart_2[0]) == (1, 2)
    for text, told in (
        ("file_1\na.dng\n", r"pairs.csv has no column 'file_2' \(source.pairs\): it has file_1"),
        (head + "main/1.dng,wide/7.dng\n", "pairs.csv, line 2: 2 fields, the header has 3"),
        (head + "main/1.dng,wide/7.dng,p1,\n", "pairs.csv, line 2: 4 fields, the header has 3"),
        ("file_1,file_2,file_1\na,b,c\n", "pairs.csv: its header names 'file_1' twice"),
        (head + 'main/1.dng,"wide/7.dng,p1\n', "pairs.csv, line 2: unexpected end of data"),
        (head + "main/1.dng,../7.dng,\n", r"pairs.csv, line 2: main/1.dng, ../7.dng: expected two paths within .*"),
        (head, "pairs.csv: it lists no pair"),
    ):
        (tmp_path / "pairs.csv").write_text(text)
        with pytest.raises(ValueError, match=told):
            listed_in(tmp_path, pairs="pairs.csv")
    with pytest.raises(FileNotFoundError, match=r"pears\.csv is not there: see source\.pairs"):
        listed_in(tmp_path, pairs="pears.csv")


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    touched(tmp_path, "in/main/1.dng", "in/wide/1.dng", "out/main/1.dng")
    root = tmp_path / "in"
    assert read_within(str(root), "main/1.dng") == (root / "main/1.dng").read_bytes()
    (root / "main/1.dng").unlink()
    (root / "main/1.dng").symlink_to(tmp_path / "out/main/1.dng")
    (root / "again").symlink_to(tmp_path / "out/main")
    for name in ("main/1.dng", "again/1.dng", "../out/main/1.dng"):
        with pytest.raises(Reject, match="outside_folder"):
            read_within(str(root), name)
    (tmp_path / "out/pairs.csv").write_text("file_1,file_2\nmain/1.dng,wide/1.dng\n")
    (root / "pairs.csv").symlink_to(tmp_path / "out/pairs.csv")
    with pytest.raises(ValueError, match=r"pairs\.csv cannot be read: outside_folder: .*: see source\.pairs"):
        listed_in(root, pairs="pairs.csv")
    with pytest.raises(FileNotFoundError, match=r"charts\.csv is not there: see source\.charts"):
        listed_in(root, names=["main/{pair}.*", "wide/{pair}.*"], charts="charts.csv")


# --------------------------------------------------------------------------------------------------------- quasi-real


@pytest.fixture
def nus(tmp_path):
    """Two cameras' folders in the layout of NUS, one scene under two lights, and the charts' corners."""
    tmp_path = tmp_path / "nus"
    tmp_path.mkdir()
    main, second = phone.CAMERA_1, phone.CAMERA_2
    lines = ["name," + ",".join(f"{axis}{corner}" for corner in range(4) for axis in "xy")]
    for camera, matrix, black in (("NikonD5200", main, 100), ("Canon1DsMkIII", second, 2000)):
        (tmp_path / camera).mkdir()
        names, lights = [], []
        for number, light in enumerate(([1.0, 0.9, 0.6], [0.7, 0.9, 1.0])):
            generator = np.random.default_rng(number)
            scene = phone.drawn_scene(360, 240, generator)
            corners = phone.paste_chart(scene, colours=phone.chart_colours() * 0.8, left=200, top=150, spacing=22)
            raw = (scene * np.float32(light)) @ matrix
            levels = np.clip(np.round(black + raw * (15_000 - black)), 0, 65535).astype(np.uint16)
            name = f"{camera}_{number + 1:04d}"
            assert cv2.imwrite(str(tmp_path / camera / f"{name}.PNG"), levels[..., ::-1])
            names.append(name)
            lights.append(np.array(light) @ matrix)
            lines.append(",".join([name, *map(str, corners.ravel().tolist())]))
        scipy.io.savemat(
            tmp_path / camera / f"{camera}_gt.mat",
            {
                "darkness_level": black,
                "saturation_level": 15_000,
                "groundtruth_illuminants": np.array(lights),
                "all_image_names": np.array(names, dtype=object)[:, None],
            },
        )
    (tmp_path / "charts.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "NikonD5200" / "matched_with_Canon1DsMkIII.txt").write_text(
        "NikonD5200_0001,Canon1DsMkIII_0001\nNikonD5200_0002,Canon1DsMkIII_0002\nNikonD5200_0009,Canon1DsMkIII_0001\n"
    )
    return tmp_path


def quasi_real(root):
    names = {"main": "NikonD5200", "second": "Canon1DsMkIII", "charts": "charts.csv"}
    listed = source("listed", step(list_matches, root=where(root), **names), gives=MatchedPair, max_rejects=None)
    made = step(simulate, root=where(root), factor=4, saturated=0.98, lights="listed")
    return listed.each("photographed", made, max_rejects=None).each("measured", step(measure_pictures, **FITTED))


def test_quasi_real_pairs_are_the_main_picture_times_the_charts_transform(nus, tmp_path):
    result = run(quasi_real(nus), str(tmp_path / "out"), scheduler="sync")
    rows = result.rows().table().to_pylist()
    assert [row["key"] for row in rows] == ["NikonD5200_0001", "NikonD5200_0002"]
    assert result.artifacts[0].rejects == {"no_file": 1}
    truth = np.linalg.inv(phone.CAMERA_1) @ phone.CAMERA_2
    for row in rows:
        assert error(row["transform_1to2"], truth) < 0.01
        one, two = (array_of(result.store.blob(row[f"image_{number}"])).astype(float) for number in (1, 2))
        keep = array_of(result.store.blob(row["valid"]))
        assert two[keep] == pytest.approx(one[keep] @ truth, abs=65535 * 0.01)
        assert np.cross(np.array(row["gt_1"]) @ truth, row["gt_2"]) == pytest.approx(np.zeros(3), abs=1e-3)


def test_quasi_real_sources_that_are_broken_are_told(nus, tmp_path):
    path = nus / "Canon1DsMkIII" / "Canon1DsMkIII_0002.PNG"
    path.write_bytes(path.read_bytes()[:-3000])
    result = run(quasi_real(nus), str(tmp_path / "out"), scheduler="sync")
    assert result.artifacts[1].rejects == {"corrupt": 1}
    scipy.io.savemat(nus / "Canon1DsMkIII" / "Canon1DsMkIII_gt.mat", {"darkness_level": 1})
    with pytest.raises(ValueError, match=r"Canon1DsMkIII_gt\.mat: expected .*"):
        list(list_matches(root=str(nus), main="NikonD5200", second="Canon1DsMkIII", charts=None))


def test_pairs_from_spectra_have_transforms_that_depend_on_the_light(tmp_path):
    truth = phone.make_pairs(tmp_path, pictures=None, pairs=24, size=(168, 126), seed=1, spectra=True)
    transforms, off = [], []
    for name, of in truth["pairs"].items():
        files = ((tmp_path / f"{name}_CAM_{camera}.dng").read_bytes() for camera in (0, 1))
        pictures = [read_linear(data, method="bin2")[0] for data in files]
        found = align(*pictures, homography=np.array(truth["homography"]), factor=6)
        colours = [np.clip(image[found.valid], 0, 1).astype(np.float64) for image in (found.image_1, found.image_2)]
        transforms.append(fit(*colours, preset="weighted").matrix)
        off.append(angular_error_deg((np.array(of["gt_1"]) @ transforms[-1])[None], np.array([of["gt_2"]]))[0])
    assert np.median(off) < 0.5
    found = light_dependence(np.array(transforms), np.array([of["gt_1"] for of in truth["pairs"].values()]))
    assert found.depends
    assert found.moved > 0.02


def test_the_truth_of_drawn_pairs_is_written_beside_them(pairs):
    assert json.loads((pairs[0] / "truth.json").read_text()) == pairs[1]
