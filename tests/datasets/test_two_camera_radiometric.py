"""Spectra, the radiometric set that is drawn from them, and the facts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from benchwright.curation.flow import source, step
from benchwright.curation.rows import Rejected
from benchwright.curation.run import run
from benchwright.datasets.spectra.files import (
    Spectra,
    read_cameras,
    read_spectra,
    shipped_cameras,
    shipped_lights,
    shipped_reflectances,
)
from benchwright.datasets.two_camera.facts import STATISTICS, facts
from benchwright.datasets.two_camera.folds import assign_parts, mark_originals, released_parts
from benchwright.datasets.two_camera.radiometric import Rendered, draw_pairs, measure_drawn, pieces
from benchwright.datasets.two_camera.radiometric_file import read_radiometric_file
from benchwright.datasets.two_camera.rows import Augmented, Folded, MeasuredPair, as_pairs, numbers
from benchwright.datasets.two_camera.samples import patch_picture, patch_sample
from benchwright.pipelines import api
from benchwright.pipelines.two_camera import learning
from benchwright.training.illuminants.registry import candidates

SHIPPED = {
    "sensitivities": None,
    "cameras": ["Nikon 5100 (NPL)", "Sigma SDMerill (NPL)"],
    "reflectances": None,
    "lights": None,
    "without": ["LPS"],
    "surfaces": 24,
    "step_nm": 10,
}


def flow(pairs, seed=0, **settings):
    drawn = step(draw_pairs, pairs=pairs, seed=seed, **{**SHIPPED, **settings})
    fitted = step(measure_drawn, preset="as_released", max_condition=1e4)
    return source("drawn", drawn, pieces=step(pieces, pairs=pairs), gives=Rendered).table(
        "measured", fitted, gives=MeasuredPair
    )


# ------------------------------------------------------------------------------------------------------------- spectra


def test_the_published_files_of_spectra_are_read(shared_data):
    cameras = read_cameras(str(shared_data / "spectra" / "camspec_database.txt"))
    assert len(cameras.names) == 28
    assert cameras.values.shape == (28, 33, 3)
    assert cameras.named("Canon 1DMarkIII")[0].tolist() == [0.0005826, 0.0022632, 0.010972]
    assert (cameras.wavelength_nm[0], cameras.wavelength_nm[-1]) == (400, 720)
    surfaces = read_spectra(str(shared_data / "spectra" / "sfu_reflectances_1995x101_380_780_4nm.csv"))
    assert surfaces.values.shape == (1995, 101)
    assert surfaces.values.max() <= 1
    assert (surfaces.wavelength_nm[0], surfaces.wavelength_nm[1], surfaces.wavelength_nm[-1]) == (380, 384, 780)
    for path in sorted((shared_data / "spectra" / "nus_cameras").glob("*.mat")):
        assert read_cameras(str(path)).values.shape == (1, 33, 3)


def test_spectra_between_known_wavelengths_lie_on_straight_lines():
    one = Spectra(("a",), np.array([400.0, 410, 430]), np.array([[1.0, 2, 6]]))
    assert one.at(np.array([400.0, 405, 420, 430])).tolist() == [[1, 1.5, 4, 6]]
    colours = Spectra(("a",), np.array([400.0, 410]), np.array([[[1.0, 2, 3], [3, 2, 1]]]))
    assert colours.at(np.array([405.0])).tolist() == [[[2, 2, 2]]]
    with pytest.raises(ValueError, match="390 to 405 nm requested, spectra cover 400 to 430 nm"):
        one.at(np.array([390.0, 405]))
    with pytest.raises(ValueError, match="no spectrum 'b': there are a"):
        one.named("b")


def test_what_colour_science_ships_is_enough_for_a_set():
    assert shipped_cameras().names == ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)")
    assert len(shipped_lights().names) > 100
    assert {"A", "D65", "FL11", "LED-B3"} <= set(shipped_lights().names)
    assert len(shipped_reflectances().names) >= 48
    assert shipped_reflectances().values.max() <= 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Canon\n1 2 3\n", "no line such as"),
        ("400nm-420nm, step 10nm\n----\nA\n1 2 3\n1 2\n", "line 5: 2 numbers, expected 3"),
        ("400nm-420nm, step 10nm\n----\nA\n1 2 3\n1 x 3\n", "line 5: expected numbers, found '1 x 3'"),
        ("400nm-420nm, step 10nm\n----\nA\n1 2 3\n1 2 3\n", "camera 'A' has 2 lines"),
        ("400nm-420nm, step 10nm\n----\nA\n1 2 3\n1 2 3\n1 -2 3\n", "not finite or below 0"),
        ("400nm-420nm, step 10nm\n----\n" + "A\n1 2 3\n1 2 3\n1 2 3\n" * 2, "name 'A' occurs twice"),
        ("400nm-420nm, step 10nm\n----\n", "no spectrum in it"),
    ],
)
def test_a_camera_file_of_another_form_is_told(tmp_path, text, told):
    (tmp_path / "cameras.txt").write_text(text)
    with pytest.raises(ValueError, match=told):
        read_cameras(str(tmp_path / "cameras.txt"))


@pytest.mark.parametrize("text", ["", "400nm-420nm, step 10nm\n----\nA\n1 2 3\n1 2 3\n1 2 3\n"])
def test_a_text_is_no_camera_file_of_matlab(tmp_path, text):
    (tmp_path / "cameras.mat").write_text(text)
    with pytest.raises(ValueError, match=r"cameras\.mat"):
        read_cameras(str(tmp_path / "cameras.mat"))


def test_lights_may_have_their_wavelengths_in_the_first_line_or_one_value_a_line(tmp_path):
    (tmp_path / "a.csv").write_text("400,410,420\n1,2,3\n4,5,6\n")
    assert read_spectra(str(tmp_path / "a.csv")).values.tolist() == [[1, 2, 3], [4, 5, 6]]
    (tmp_path / "b.txt").write_text("# lamp 1\n" + "1\n" * 101 + "# lamp 2\n" + "2\n" * 101)
    assert read_spectra(str(tmp_path / "b.txt")).values.mean(axis=1).tolist() == [1, 2]
    (tmp_path / "c.csv").write_text("1,2,3\n4,5\n")
    with pytest.raises(ValueError, match=r"lines of \[2, 3\] numbers"):
        read_spectra(str(tmp_path / "c.csv"))


# --------------------------------------------------------------------------------------------------------- the drawing


def test_a_response_is_the_sum_over_wavelengths_by_hand(tmp_path):
    (tmp_path / "lights.csv").write_text("400,410,420\n1,2,1\n1,2,1\n")
    (tmp_path / "surfaces.csv").write_text("400,410,420\n0.5,0.5,0.5\n1,0,0\n0,1,0\n")
    camera = "{}\n1 0 0\n0 1 0\n0 0 1\n"
    (tmp_path / "cameras.txt").write_text("400nm-420nm, step 10nm\n----\n" + camera.format("A") + camera.format("B"))
    settings = {
        "sensitivities": str(tmp_path / "cameras.txt"),
        "reflectances": str(tmp_path / "surfaces.csv"),
        "lights": str(tmp_path / "lights.csv"),
        "without": [],
        "surfaces": 3,
    }
    [table] = draw_pairs("0-1", pairs=1, step_nm=10, seed=0, cameras=["A", "B"], **settings)
    row = table.to_pylist()[0]
    # White gives 1, 2, 1; in units of its strongest channel 0.5, 1, 0.5.
    assert row["gt_1"] == [0.5, 1, 0.5]
    by_surface = {0: [0.25, 0.5, 0.25], 1: [0.5, 0, 0], 2: [0, 1, 0]}
    assert np.reshape(row["colours_2"], (3, 3)).tolist() == [by_surface[number] for number in row["surfaces"]]


def test_pairs_depend_on_seed_and_key_and_not_on_pieces(tmp_path):
    table = run(flow(60), str(tmp_path), scheduler="sync").rows().table()
    [alone] = draw_pairs("40-41", pairs=60, seed=0, **SHIPPED)
    assert alone["surfaces"][0].as_py() == table["surfaces"][40].as_py()
    assert alone["light"][0].as_py() == table["light"][40].as_py()
    [other] = draw_pairs("40-41", pairs=60, seed=1, **SHIPPED)
    assert other["surfaces"][0].as_py() != table["surfaces"][40].as_py()
    assert all(len(set(surfaces)) == 24 for surfaces in table["surfaces"].to_pylist())


def test_the_transform_nearly_maps_the_lights_and_its_rows_sum_to_one(tmp_path):
    table = run(flow(300), str(tmp_path), scheduler="sync").rows().table()
    matrix = numbers(table["transform_1to2"], 9).reshape(-1, 3, 3)
    assert matrix.sum(axis=2) == pytest.approx(np.ones((300, 3)), abs=1e-6)
    one, two = numbers(table["gt_1"], 3), numbers(table["gt_2"], 3)
    seen = (one[:, None] @ matrix)[:, 0]
    cosine = (seen * two).sum(1) / np.linalg.norm(seen, axis=1) / np.linalg.norm(two, axis=1)
    assert np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean() < 3
    back = numbers(table["transform_2to1"], 9).reshape(-1, 3, 3)
    assert np.abs(back @ matrix - np.eye(3)).mean() < 0.2


def test_a_light_of_one_line_is_singular():
    [table] = draw_pairs("0-400", pairs=400, seed=0, **{**SHIPPED, "without": []})
    lamps = table["light"].to_pylist()
    sifted = measure_drawn(table, preset="as_released", max_condition=1e4)
    assert sifted.rejected.num_rows == lamps.count("LPS") > 0
    assert set(sifted.rejected["reason"].to_pylist()) == {"singular"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cameras": ["Nikon 5100 (NPL)", "Box Brownie"]}, "no spectrum 'Box Brownie': there are"),
        ({"without": ["candle"]}, "no light 'candle'"),
        ({"surfaces": 1000}, "1000 surfaces in a picture: expected from 3 to"),
        ({"step_nm": 200}, "too little"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, told):
    with pytest.raises(ValueError, match=told):
        list(draw_pairs("0-1", pairs=1, seed=0, **{**SHIPPED, **settings}))


def test_parts_are_shares_of_all_pairs_and_shards_hold_thumbnails(tmp_path):
    whole = (
        flow(50)
        .whole("folded", step(assign_parts, shares=[0.6, 0.2, 0.2], seed=0), gives=Folded)
        .table("marked", step(mark_originals), gives=Augmented)
        .shards("shards", step(patch_sample, columns=6, patch_px=8), by=["fold"], max_samples=100)
    )
    result = run(whole, str(tmp_path), scheduler="threads", workers=2)
    table = result.rows("placed").table()
    assert np.bincount(table["fold"].to_numpy()).tolist() == [30, 10, 10]
    assert as_pairs(table).original.all()
    assert result.rows().table()["shard"].unique().to_pylist() == ["fold00-00000", "fold01-00000", "fold02-00000"]


def test_a_thumbnail_is_32_by_48_pixels_of_constant_patches():
    colours = np.linspace(0, 1, 72).reshape(24, 3)
    picture = patch_picture(colours, columns=6, patch_px=8)
    assert (picture.shape, picture.dtype) == ((32, 48, 3), np.uint16)
    assert picture[8:16, 16:24].reshape(-1, 3).tolist() == [np.round(colours[8] * 65535).astype(int).tolist()] * 64


def test_the_released_parts_are_taken_by_number(shared_data, tmp_path):
    table = run(flow(20), str(tmp_path), scheduler="sync").rows()
    path = shared_data / "two_camera" / "radio_idx_train_val_test_parts.mat"
    fold = next(released_parts(table, path=str(path)))["fold"].to_pylist()
    released = scipy.io.loadmat(path)["idx_parts"][0]
    assert [next(n for n in range(3) if number in released[n]) for number in range(20)] == fold


# --------------------------------------------------------------------------------------------------------------- facts


def test_the_facts_are_consistent():
    f = facts()
    assert sum(f.sets["radiometric"]["parts"]) == f.sets["radiometric"]["pairs"]
    assert f.sets["s20"]["pairs"] - f.sets["s20"]["pairs_as_written"] == 6
    assert f.network.parameters == tuple(90 * layers + 20 for layers in (2, 5, 16))
    for table in f.tables.values():
        for row in table.values():
            mean, median, best, worst, first, third = row
            assert len(row) == len(STATISTICS)
            assert best < first < median < third < worst
            assert best < mean < worst
    ordering = [f.tables["radiometric"][name][0] for name in ("ours-470", "ours-200", "gamut pixel", "gray world")]
    assert ordering == sorted(ordering)


def test_the_tables_are_whole_and_agree_with_each_other():
    f = facts()
    assert {name: len(table) for name, table in f.tables.items()} == {"radiometric": 11, "nus": 23, "s20": 24}
    assert set(f.tables["s20"]) - set(f.tables["nus"]) == {"linear regression"}
    for name, table in f.augmented.items():
        assert table["with"] == f.tables[name]["ours-200"][:4]
    assert set(f.not_run) < set(f.tables["nus"])
    ours = {"ours-200", "ours-470", "ours-1460"}
    built = {{"bright_dark_pca": "pca", "ffcc": "FFCC"}.get(name, name.replace("_", " ")) for name in candidates()}
    assert set(f.tables["nus"]) - set(f.not_run) - ours <= built


def drawn_file(path: Path, count: int = 6, **changes: object) -> dict[str, np.ndarray]:
    """A .mat file in the layout that the released loader reads."""
    draw = np.random.default_rng(0)
    found = {
        "transforms1to2": np.eye(3) + draw.uniform(0, 0.2, (count, 3, 3)),
        "wb_gts_1": draw.uniform(0.4, 1.0, (count, 4)),
        "wb_gts_2": draw.uniform(0.4, 1.0, (count, 3)),
    }
    scipy.io.savemat(path, {**found, **changes})
    return found


def test_the_authors_file_of_lights_and_transforms_is_read_with_the_released_parts(tmp_path: Path) -> None:
    drawn = drawn_file(tmp_path / "radio.mat", 7)
    lists = np.empty(3, dtype=object)
    lists[:] = [np.array([[5, 0, 2]]), np.array([[1]]), np.array([[3, 6, 4]])]
    scipy.io.savemat(tmp_path / "parts.mat", {"idx_parts": lists})
    files = [f"source.path={tmp_path / 'radio.mat'}", f"folds.released={tmp_path / 'parts.mat'}"]
    networks = (
        "evaluation.networks={ n = { parameters = 200, preset = 'radiometric', seeds = [0], settings = { epochs = 2 } } }"
    )
    api.run(api.job("two_camera", config="table1", overrides=[*files, networks]), str(tmp_path / "run"), scheduler="sync")
    pairs = learning.read_pairs(str(tmp_path / "run/dataset"))
    at = np.array([int(key[-5:]) for key in pairs.key])
    assert pairs.fold[np.argsort(at)].tolist() == [0, 1, 0, 2, 2, 0, 2]
    np.testing.assert_allclose(pairs.transform_1to2, drawn["transforms1to2"][at])
    np.testing.assert_allclose(pairs.transform_2to1 @ pairs.transform_1to2, np.stack([np.eye(3)] * 7), atol=1e-12)
    np.testing.assert_allclose(pairs.gt_1, drawn["wb_gts_1"][at, :3])
    api.train(str(tmp_path / "run"))
    page = Path(api.report(str(tmp_path / "run"))).read_text()
    assert "no digest of the paper&#39;s illuminants and transforms is known" in page
    drawn_file(tmp_path / "flat.mat", 7, transforms1to2=drawn["transforms1to2"].reshape(7, 9))
    assert [*read_radiometric_file(path=str(tmp_path / "flat.mat"))] == [*read_radiometric_file(path=files[0][12:])]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"transforms1to2": np.ones((3, 3, 6))}, "expected .n, 3, 3. or .n, 9. and twice .n, 3."),
        ({"wb_gts_2": np.ones((5, 3))}, "shapes"),
        ({"wb_gts_1": np.ones((6, 2))}, "shapes"),
        ({"wb_gts_1": np.ones(6)}, "shapes"),
    ],
)
def test_another_file_than_the_authors_is_told_in_one_line(tmp_path: Path, changes: dict[str, np.ndarray], told: str) -> None:
    drawn_file(tmp_path / "radio.mat", **changes)
    with pytest.raises(ValueError, match=told):
        list(read_radiometric_file(path=str(tmp_path / "radio.mat")))


def test_a_pair_of_the_authors_file_that_cannot_be_is_a_reject(tmp_path: Path) -> None:
    lights = np.ones((6, 3))
    lights[2, 1] = 0
    drawn_file(tmp_path / "radio.mat", wb_gts_1=lights)
    found = [*read_radiometric_file(path=str(tmp_path / "radio.mat"))]
    assert [(each.key, each.reason) for each in found if isinstance(each, Rejected)] == [("radiometric_00002", "bad_numbers")]
    with pytest.raises(FileNotFoundError):
        list(read_radiometric_file(path=str(tmp_path / "nowhere.mat")))
