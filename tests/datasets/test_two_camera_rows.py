"""Rows, transforms, folds and released metadata of the two-camera data sets."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.npy import npy_blob
from benchwright.curation.rows import Blob, Reject, Rejected
from benchwright.curation.run import run
from benchwright.datasets.two_camera.folds import assign_folds, parts
from benchwright.datasets.two_camera.linear_pairs import LinearPair, check_pair
from benchwright.datasets.two_camera.metadata import read_released_pairs, with_released_rows
from benchwright.datasets.two_camera.pictures import array_of
from benchwright.datasets.two_camera.rows import Augmented, Folded, MeasuredPair, lists, numbers
from benchwright.datasets.two_camera.transforms import checked_fit, fit


def angles_deg(a, b):
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def entry(number=0, **changes):
    matrix = (np.eye(3) + 0.1).tolist()
    return {
        "image_name_1": f"RAW_{number:04d}_CAM_0",
        "image_name_2": f"RAW_{number:04d}_CAM_1",
        "wb_gt_1": [0.5, 1.0, 0.6],
        "wb_gt_2": [0.6, 1.0, 0.5],
        **{f"transform_{what}_{way}": matrix for what in ("image", "chart") for way in ("1to2", "2to1")},
        **changes,
    }


# ---------------------------------------------------------------------------------------------------------- transforms


def test_both_presets_find_the_matrix_that_made_the_second_colours():
    generator = np.random.default_rng(0)
    colours = generator.uniform(0.1, 1, (50, 3))
    linear = np.array([[0.8, 0.1, 0.1], [0.2, 0.9, 0.1], [0.0, 0.2, 0.7]])
    assert np.allclose(fit(colours, colours @ linear, preset="as_written").matrix, linear)
    rows_sum_to_one = linear / linear.sum(1, keepdims=True)
    brighter = (colours @ rows_sum_to_one) * generator.uniform(0.5, 2, (50, 1))
    for preset in ("as_released", "weighted"):
        assert np.allclose(fit(colours, colours @ rows_sum_to_one, preset=preset).matrix, rows_sum_to_one)
        assert np.allclose(fit(colours, brighter, preset=preset).matrix, rows_sum_to_one), "exposure does not count"


def test_fits_of_many_pairs_at_once_are_the_single_fits_and_leave_out_what_is_not_valid():
    generator = np.random.default_rng(1)
    one, two = generator.uniform(0.1, 1, (2, 7, 24, 3))
    valid = generator.uniform(size=(7, 24)) > 0.3
    one[0, 0] = 0.0
    for preset in ("as_released", "as_written", "weighted"):
        together = fit(one, two, preset=preset, valid=valid)
        for number in range(7):
            alone = fit(one[number], two[number], preset=preset, valid=valid[number])
            assert np.allclose(together.matrix[number], alone.matrix)
            keep = valid[number] & ((one[number] > 0).any(1) | (preset == "as_written"))
            a, b = one[number][keep], two[number][keep]
            if preset != "as_written":
                sums = a.sum(1, keepdims=True), b.sum(1, keepdims=True)
                root = (sums[0] ** -2 + sums[1] ** -2) ** -0.5 if preset == "weighted" else 1.0
                a, b = root * a / sums[0], root * b / sums[1]
            assert np.allclose(alone.matrix, np.linalg.lstsq(a, b)[0])
            assert np.isclose(alone.condition, np.linalg.cond(a))


def dark_picture():
    """Two cameras' colours as 16-bit pictures hold them, a quarter of them nearly black, and the matrix between them."""
    generator = np.random.default_rng(5)
    truth = np.array([[0.75, 0.2, 0.05], [0.1, 0.8, 0.1], [0.0, 0.25, 0.75]])
    scene = generator.uniform(0.02, 0.3, (4000, 3))
    scene[:1000] *= 0.001
    noisy = (colours + generator.normal(0, 4e-5, colours.shape) for colours in (scene, scene @ truth))
    return *(np.round(np.clip(colours, 0, 1) * 65535) / 65535 for colours in noisy), truth


def test_nearly_black_pixels_decide_the_released_fit_and_not_the_weighted_one():
    one, two, truth = dark_picture()
    # Of the code before there was a weighted fit.
    assert fit(one, two, preset="as_released").matrix.ravel().tolist() == pytest.approx(
        [
            *(0.7205799917909471, 0.20603736426019925, 0.07338264394885549),
            *(0.10811562439366366, 0.7768072129719623, 0.11507716263436789),
            *(0.02362794746448197, 0.26864259116212585, 0.7077294613733967),
        ],
        rel=1e-13,
    )
    for colours, known in (((one, two), truth), ((two, one), np.linalg.inv(truth))):
        off = {p: np.linalg.norm(fit(*colours, preset=p).matrix - known) for p in ("as_released", "weighted")}
        assert off["as_released"] > 0.05 * np.linalg.norm(known)
        assert off["weighted"] < 1e-4 * np.linalg.norm(known)


@pytest.mark.parametrize("total", [1e-12, 1e-310])
def test_a_colour_whose_sum_is_next_to_nothing_does_not_decide_the_weighted_fit(total):
    one, two, truth = (colours[1000:] if len(colours) > 3 else colours for colours in dark_picture())
    odd = np.array([[0.01, total - 0.01, 0.0]]) if total > 1e-300 else np.array([[total, 0.0, 0.0]])
    for pair in ((odd, two[:1]), (one[:1], odd)):
        found = fit(np.concatenate([one, pair[0]]), np.concatenate([two, pair[1]]), preset="weighted").matrix
        assert found == pytest.approx(truth, abs=1e-3)


@pytest.mark.parametrize(
    "colours", [np.ones((30, 3)), np.tile([[1.0, 2, 3], [3, 1, 2]], (9, 1)), np.zeros((9, 3)), np.ones((0, 3))]
)
def test_colours_that_span_no_volume_are_turned_away(colours):
    with pytest.raises(Reject, match="singular"):
        checked_fit(colours, colours, preset="as_released", what="image")


def test_lists_of_numbers_come_back_with_their_gaps():
    values = np.array([[1.0, 2, 3], [np.nan] * 3, [4, 5, 6]])
    column = lists(values)
    assert column.to_pylist() == [[1, 2, 3], None, [4, 5, 6]]
    assert np.array_equal(numbers(pa.chunked_array([column, column]), 3), np.concatenate([values, values]), equal_nan=True)
    with pytest.raises(ValueError, match=r"lengths \[2\]"):
        numbers(pa.array([[1.0, 2.0]]), 3)


# --------------------------------------------------------------------------------------------------------------- folds


@pytest.mark.parametrize(("name", "count"), [("s20", 162), ("nus", 195)])
def test_the_permutation_is_that_of_the_released_folds(shared_data, name, count):
    released = scipy.io.loadmat(shared_data / "two_camera" / f"{name}_idx_3_parts_no_rep.mat")["idx_parts_no_rep"]
    assert np.array_equal(np.stack(parts(count, 3, 999)), released)


def test_the_released_parts_of_the_radiometric_set_are_10800_3600_3600_and_not_the_permutation(shared_data):
    released = scipy.io.loadmat(shared_data / "two_camera" / "radio_idx_train_val_test_parts.mat")["idx_parts"][0]
    assert [part.size for part in released] == [10_800, 3_600, 3_600]
    assert sorted(np.concatenate([part.ravel() for part in released]).tolist()) == list(range(18_000))
    assert not np.array_equal(released[0].ravel(), np.random.RandomState(999).permutation(18_000)[:10_800])


# ------------------------------------------------------------------------------------------------------------ metadata


def test_the_released_162_pairs_have_the_properties_that_the_protocol_states(shared_data, tmp_path):
    path = shared_data / "two_camera" / "s20_metadata_162_pairs.json"
    flow = source("measured", step(read_released_pairs, path=where(path)), gives=MeasuredPair).whole(
        "folded", step(assign_folds, folds=3, seed=999), gives=Folded
    )
    table = run(flow, str(tmp_path), scheduler="sync").rows().table()
    assert table.num_rows == 162
    assert table["key"][0].as_py() == "RAW_0000"
    assert np.bincount(table["fold"].to_numpy()).tolist() == [54, 54, 54]
    gt_1, gt_2 = numbers(table["gt_1"], 3), numbers(table["gt_2"], 3)
    chart, image = (numbers(table[f"transform_{name}1to2"], 9).reshape(-1, 3, 3) for name in ("chart_", ""))
    # Computed from the released files: row vectors, so gt_1 @ T; the chart's T is far better than the image's.
    assert angles_deg((gt_1[:, None] @ chart)[:, 0], gt_2).mean() == pytest.approx(0.62, abs=0.01)
    assert angles_deg((gt_1[:, None] @ image)[:, 0], gt_2).mean() == pytest.approx(2.19, abs=0.01)
    assert image.sum(2).mean() == pytest.approx(0.9999, abs=1e-4)
    assert image.sum(2).std() == pytest.approx(0.0006, abs=1e-4)
    assert np.allclose(chart.sum(2), 1)


def test_pickled_metadata_is_read_as_json_is(tmp_path):
    entries = [entry(number, wb_gt_1=np.array([[0.5, 1.0, 0.6]]), wb_gt_2=np.float32([0.25, 1, 0.5])) for number in range(6)]
    np.save(tmp_path / "list.npy", np.array(entries, dtype=object))
    (tmp_path / "list.json").write_text(
        json.dumps([{k: np.asarray(v).tolist() if k[:2] == "wb" else v for k, v in e.items()} for e in entries])
    )
    (tmp_path / "folder").mkdir()
    for number, one in enumerate(entries):
        np.save(tmp_path / "folder" / f"{number:05d}.npy", np.array(one, dtype=object))
    found = [list(read_released_pairs(path=str(tmp_path / name))) for name in ("list.npy", "list.json", "folder")]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 6
    assert found[0][0].gt_1 == [0.5, 1.0, 0.6]
    assert found[0][5].key == "RAW_0005"
    every_third = list(read_released_pairs(path=str(tmp_path / "folder"), augmented=2))
    assert [pair.key for pair in every_third] == ["RAW_0000", "RAW_0003"]
    folded = step(assign_folds, folds=2, seed=0)
    path = where(str(tmp_path / "folder"))
    flow = source("measured", step(read_released_pairs, path=path, augmented=2), gives=MeasuredPair)
    flow = flow.whole("folded", folded, gives=Folded)
    flow = flow.whole("augmented", step(with_released_rows, path=path, augmented=2), gives=Augmented, expands=True)
    table = run(flow, str(tmp_path / "run"), scheduler="sync").rows().table()
    assert table["key"].to_pylist()[:2] == ["RAW_0000", "RAW_0000-as-RAW_0003-1"]
    assert table["source_key"].to_pylist() == ["RAW_0000"] * 3 + ["RAW_0003"] * 3
    assert table["original"].to_pylist() == [True, False, False] * 2
    with pytest.raises(ValueError, match="6 rows are not groups of one pair and 3 augmented"):
        list(read_released_pairs(path=str(tmp_path / "folder"), augmented=3))


def test_a_bad_or_repeated_pair_of_the_augmented_set_is_turned_away_with_its_rows(tmp_path):
    """Groups of one pair and two rows: good, with a bad row, the first again, with a file that is no metadata, good."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for group, pair in enumerate((0, 1, 0, 3, 4)):
        for more in range(3):
            bad = {"wb_gt_1": [0.0, 1, 1]} if (group, more) == (1, 2) else {}
            np.save(folder / f"{group}{more}.npy", np.array(entry(pair, **bad), dtype=object))
    (folder / "31.npy").write_bytes(b"")
    path = where(str(folder))
    flow = source("measured", step(read_released_pairs, path=path, augmented=2), gives=MeasuredPair, max_rejects=3)
    flow = flow.whole("folded", step(assign_folds, folds=2, seed=0), gives=Folded)
    flow = flow.whole("augmented", step(with_released_rows, path=path, augmented=2), gives=Augmented, expands=True)
    table = run(flow, str(tmp_path / "run"), scheduler="sync").rows().table()
    assert table["source_key"].to_pylist() == ["RAW_0000"] * 3 + ["RAW_0004"] * 3
    rejects = [each for each in read_released_pairs(path=str(folder), augmented=2) if isinstance(each, Rejected)]
    assert [(each.key, each.reason) for each in rejects] == [
        ("10.npy", "bad_numbers"),
        ("20.npy", "duplicate_key"),
        ("30.npy", "unreadable"),
    ]
    assert rejects[0].detail.startswith("12.npy: wb_gt_1")
    assert rejects[2].detail.startswith("31.npy: ")
    entries = [entry(0), entry(0), entry(1), entry(1, transform_image_2to1=None)]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    [good, bad] = read_released_pairs(path=str(tmp_path / "list.json"), augmented=1)
    assert isinstance(good, MeasuredPair)
    assert (bad.key, bad.detail.partition(":")[0]) == ("row-3", "row-4")


class Hostile:
    """Would write a file where it was unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_metadata_that_names_code_is_not_run(tmp_path):
    np.save(tmp_path / "hostile.npy", np.array([Hostile(tmp_path / "ran")], dtype=object))
    with pytest.raises(ValueError, match=r"names posix\.system"):
        list(read_released_pairs(path=str(tmp_path / "hostile.npy")))
    (tmp_path / "folder").mkdir()
    (tmp_path / "hostile.npy").rename(tmp_path / "folder" / "a.npy")
    [reject] = read_released_pairs(path=str(tmp_path / "folder"))
    assert (reject.key, reject.reason) == ("a.npy", "unreadable")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wb_gt_1": [1, 2]}, "bad_numbers"),
        ({"wb_gt_2": [0.0, 1, 1]}, "bad_numbers"),
        ({"wb_gt_2": "light"}, "bad_numbers"),
        ({"transform_image_1to2": [[1, 0, 0], [0, 1, 0], [0, 1, 0]]}, "bad_numbers"),
        ({"transform_chart_2to1": [[float("nan")] * 3] * 3}, "bad_numbers"),
        ({"image_name_2": "RAW_0007_CAM_1"}, "different_pair"),
        ({"image_name_1": "a\ud800_CAM_0", "image_name_2": "a\ud800_CAM_1"}, "bad_name"),
        ({"image_name_1": "RAW_0001_CAM_0", "image_name_2": "RAW_0001_CAM_1"}, "duplicate_key"),
    ],
)
def test_a_bad_pair_is_turned_away_with_its_reason(tmp_path, changes, reason):
    (tmp_path / "pairs.json").write_text(json.dumps([entry(1), entry(0, **changes)]))
    good, bad = read_released_pairs(path=str(tmp_path / "pairs.json"))
    assert isinstance(good, MeasuredPair)
    assert isinstance(bad, Rejected)
    assert (bad.key, bad.reason) == ("row-2", reason)


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{'descr': '|O'", b"[1, 2", b"[" * 200_000])
def test_a_file_that_is_no_metadata_is_told_in_one_line(tmp_path, data):
    for name in ("pairs.npy", "pairs.json"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=name):
            list(read_released_pairs(path=str(tmp_path / name)))


def test_metadata_above_the_limit_are_told_with_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr("benchwright.datasets.two_camera.metadata.MAX_BYTES", 100)
    (tmp_path / "a.npy").write_bytes(bytes(101))
    with pytest.raises(ValueError, match=r"a\.npy: 101 bytes, limit 100"):
        list(read_released_pairs(path=str(tmp_path / "a.npy")))
    [reject] = read_released_pairs(path=str(tmp_path))
    assert (reject.key, reject.reason, reject.detail) == ("a.npy", "unreadable", f"{tmp_path}/a.npy: 101 bytes, limit 100")


# ----------------------------------------------------------------------------------------- pictures of a source of one's own

PICTURE = npy_blob(np.full((4, 5, 3), 20_000, dtype=np.uint16))
PAIR = LinearPair("a", "a", PICTURE, PICTURE, None, [1.0, 2.0, 1.0], [1.0, 1.0, 1.0], None, None)


@pytest.mark.parametrize(
    ("changes", "reason", "told"),
    [
        ({"image_1": Blob(b"PNG")}, "bad_picture", "image_1 is not an .npy file"),
        (
            {"image_2": npy_blob(np.zeros((4, 5), dtype=np.uint16))},
            "bad_picture",
            r"image_2 is uint16 \(4, 5\): expected uint16 or float",
        ),
        ({"image_2": npy_blob(np.zeros((4, 5, 3), dtype=np.uint8))}, "bad_picture", "image_2 is uint8"),
        ({"image_2": npy_blob(np.full((4, 5, 3), np.nan))}, "bad_picture", "not finite"),
        ({"image_2": npy_blob(np.zeros((5, 4, 3)))}, "bad_picture", r"\(5, 4, 3\), where image_1 has \(4, 5, 3\)"),
        ({"valid": npy_blob(np.ones((4, 5)))}, "bad_mask", r"valid is float64 \(4, 5\): expected bool"),
        ({"gt_1": [1.0, -1.0, 1.0]}, "bad_numbers", "above zero in every channel"),
        ({"gt_2": None}, "no_light", "gt_2: give the light, or the colours of a chart"),
        ({"patches_1": [0.5] * 72}, "bad_numbers", "of one camera only"),
        ({"patches_1": [0.5] * 72, "patches_2": [0.5] * 9}, "bad_numbers", "patches_2: expected 72 finite numbers"),
        ({"gt_1": None, "patches_1": [1.0] * 72, "patches_2": [0.5] * 72}, "chart_saturated", "all grey patches"),
    ],
)
def test_a_pair_that_cannot_be_taken_is_a_reject(changes, reason, told):
    assert check_pair(PAIR, charts=False).gt_1 == [1, 2, 1]
    with pytest.raises(Reject, match=told) as reject:
        check_pair(dataclasses.replace(PAIR, **changes), charts=False)
    assert reject.value.reason == reason


def test_pictures_come_as_floats_or_as_levels_and_the_light_from_the_chart():
    levels = np.arange(60, dtype=np.uint16).reshape(4, 5, 3) * 1000
    chart = np.tile([0.2, 0.4, 0.1], 24).tolist()
    pictures = {"image_1": npy_blob(levels), "image_2": npy_blob(levels / 65535)}
    given = {**pictures, "gt_1": None, "patches_1": chart, "patches_2": chart}
    pair = check_pair(dataclasses.replace(PAIR, **given), charts=True)
    assert array_of(pair.image_1).tolist() == array_of(pair.image_2).tolist() == levels.tolist()
    assert array_of(pair.valid).all()
    assert pair.gt_1 == pytest.approx([0.5, 1, 0.25])
    with pytest.raises(Reject, match="remove it, or give patches"):
        check_pair(PAIR, charts=True)
