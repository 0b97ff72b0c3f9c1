"""Pictures with known lights, and a second camera by spectra: the spectrum, the transform, the mask, and the rejects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchwright.curation.npy import npy_blob
from benchwright.curation.rows import Blob, Reject, Rejected
from benchwright.datasets.features import arrays
from benchwright.datasets.spectra.files import shipped_lights, shipped_reflectances
from benchwright.datasets.two_camera.linear_pairs import check_pair
from benchwright.datasets.two_camera.lit_pictures import lit_by, read_lit_pictures
from benchwright.datasets.two_camera.pictures import array_of, measure_pictures
from benchwright.eval.metrics.angular import angular_error_deg
from benchwright.pipelines import api, config
from benchwright.pipelines.two_camera import baselines, learning
from benchwright.pipelines.two_camera import pipeline as two_camera
from benchwright.pipelines.two_camera.paper import data_differs
from benchwright.pipelines.two_camera.training_sections import _of_other_pictures

GRID = np.arange(400.0, 701.0, 10.0)


def bells(centres, width=35.0):
    """A camera (33, 3) from 400 to 720 nm."""
    return np.exp(-(((np.arange(400.0, 721.0, 10.0)[:, None] - centres) / width) ** 2))


ONE, TWO = bells([600, 540, 460]), bells([610, 530, 470], 30.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Five pictures of camera One under lights that colour-science has, and one of another camera."""
    folder = tmp_path_factory.mktemp("lit")
    (folder / "sensors").mkdir()
    for name, camera in (("one", ONE), ("two", TWO)):
        rows = "\n".join(" ".join(f"{value:.9g}" for value in channel) for channel in camera.T)
        (folder / "sensors" / f"{name}.txt").write_text(f"400nm-720nm, step 10nm\n----\n{name}\n{rows}\n")
    lights = shipped_lights().at(np.arange(400.0, 721.0, 10.0))
    drawn = np.random.default_rng(0)
    spectra = lights[[shipped_lights().names.index(name) for name in ("A", "D50", "D65", "D75", "FL2")]]
    seen = spectra @ ONE
    seen /= seen.max(axis=1, keepdims=True)
    pictures = drawn.uniform(0.02, 0.6, (5, 16, 16, 3)) * seen[:, None, None]
    pictures[0, :4, :4] = 0  # a masked chart
    pictures[0, 8, 8] = 1.0  # saturated
    names = [*(f"One_{number:04d}" for number in range(5)), "Other_0001"]
    np.savez(
        folder / "all.npz",
        pictures=np.concatenate([pictures, pictures[:1]]).astype(np.float16),
        lights=np.concatenate([seen, seen[:1]]).astype(np.float32),
        names=np.array(names),
    )
    return folder


def read(source, **changes):
    given = {
        "main": "One",
        "second": "Two",
        "without": ["LPS"],
        "saturated": 0.98,
        "sensors": {"One": "one.txt", "Two": "two.txt"},
    }
    return [*read_lit_pictures(pictures=str(source), sensitivities=str(source / "sensors"), **{**given, **changes})]


@pytest.fixture(scope="module")
def pairs(source):
    return read(source)


def test_the_second_picture_is_the_first_times_the_charts_transform_under_its_light(pairs):
    assert [pair.key for pair in pairs] == [f"One_{number:04d}" for number in range(5)], "and none of the other camera"
    for pair in pairs:
        one, two = (array_of(image).astype(float) / 65535 for image in (pair.image_1, pair.image_2))
        charts = [np.reshape(patches, (24, 3)) for patches in (pair.patches_1, pair.patches_2)]
        matrix = np.linalg.lstsq(*charts)[0]
        valid = array_of(pair.valid)
        np.testing.assert_allclose((one @ matrix)[valid], two[valid], atol=2e-5)
        # White is 0.9 in the strongest channel of either, and the chart's brightest patch is near it and no brighter.
        assert 0.75 < charts[0].max() < 0.9
        # The light of the second camera is about the first's under the chart's transform.
        assert angular_error_deg(np.array([pair.gt_1]) @ matrix, np.array([pair.gt_2]))[0] < 1.5


def test_the_light_in_the_second_camera_is_that_of_the_spectrum_that_it_came_from(pairs):
    spectra = shipped_lights().at(GRID)[[shipped_lights().names.index(name) for name in ("A", "D50", "D65", "D75", "FL2")]]
    for pair, spectrum in zip(pairs, spectra, strict=True):
        assert angular_error_deg(np.array([pair.gt_2]), (spectrum @ TWO[:31])[None])[0] < 0.3
        patches = shipped_reflectances().at(GRID)[[n.startswith("ColorChecker N Ohta") for n in shipped_reflectances().names]]
        expected = (patches * spectrum) @ TWO[:31]
        found = np.reshape(pair.patches_2, (24, 3))
        np.testing.assert_allclose(found / found.max(), expected / expected.max(), atol=0.01)


def test_black_and_saturated_pixels_are_not_valid(pairs):
    valid = array_of(pairs[0].valid)
    assert not valid[:4, :4].any()
    assert not valid[8, 8]
    assert valid.mean() > 0.8


def test_pairs_can_be_measured(pairs):
    row = measure_pictures(check_pair(pairs[1], charts=True), preset="as_written", max_condition=1e4, darkest=0.0)
    charts = [np.reshape(row.patches_1, (24, 3)), np.reshape(row.patches_2, (24, 3))]
    np.testing.assert_allclose(np.reshape(row.transform_1to2, (3, 3)), np.linalg.lstsq(*charts)[0], atol=1e-3)


def test_a_colour_that_no_smooth_spectrum_has_is_turned_away():
    with pytest.raises(Reject, match="no smooth spectrum has that colour"):
        lit_by(np.array([1e-9, 1.0, 1e-9]), np.ones((1, 31)), ONE[:31])


def test_a_light_of_zero_is_a_reject_and_the_others_go_on(source, tmp_path):
    with np.load(source / "all.npz") as held:
        lights = held["lights"].copy()
        lights[2, 1] = 0
        np.savez(tmp_path / "all.npz", pictures=held["pictures"], lights=lights, names=held["names"])
    (tmp_path / "sensors").symlink_to(source / "sensors")
    rows = read(tmp_path)
    assert [(row.key, row.reason) for row in rows if isinstance(row, Rejected)] == [("One_0002", "bad_numbers")]
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"main": "Three", "sensors": {"Three": "one.txt", "Two": "two.txt"}}, "no picture is named Three_"),
        ({"second": "Three"}, "no sensor of camera 'Three': source.sensors has One, Two"),
    ],
)
def test_cameras_that_are_not_there_are_told(source, changes, told):
    with pytest.raises(ValueError, match=told):
        read(source, **changes)


def test_files_of_another_form_are_told(source, tmp_path):
    (tmp_path / "sensors").symlink_to(source / "sensors")
    with pytest.raises(FileNotFoundError, match=r"no \.npz file of pictures found"):
        read(tmp_path)
    (tmp_path / "all.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ValueError, match=r"all\.npz: expected an \.npz file with names, pictures and lights"):
        read(tmp_path)
    np.savez(tmp_path / "all.npz", pictures=np.ones((2, 4, 4)), lights=np.ones((2, 3)), names=np.array(["One_1", "One_2"]))
    with pytest.raises(ValueError, match=r"pictures \(2, 4, 4\)"):
        read(tmp_path)


def test_pictures_that_unpack_to_more_than_the_limit(source, tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "MAX_BYTES_AT_ONCE", 1 << 20)
    (tmp_path / "sensors").symlink_to(source / "sensors")
    np.savez_compressed(tmp_path / "all.npz", pictures=np.zeros((1, 1024, 1024, 3)), lights=np.ones((1, 3)), names=["One_1"])
    assert (tmp_path / "all.npz").stat().st_size < 1 << 16
    with pytest.raises(ValueError, match=r"all\.npz, pictures: values .* take 25,165,824 bytes: 1,048,576 at most"):
        read(tmp_path)


def test_a_picture_with_more_bytes_than_its_head_says():
    with pytest.raises(ValueError, match=r"are 4 bytes, and it holds 8"):
        array_of(Blob(npy_blob(np.ones(1, np.float32)).read() + bytes(4)))


def test_a_run_of_the_packaged_settings_learns_from_relit_pictures(source, tmp_path):
    places = [f"source.pictures={source}", f"source.sensitivities={source / 'sensors'}", "source.main=One", "source.second=Two"]
    sensors = ["source.sensors={ One = 'one.txt', Two = 'two.txt' }"]
    few = ["augmentation.count=2", "evaluation.networks={}", 'evaluation.baselines=["gray_world"]', "folds.count=2"]
    job = api.job("two_camera", config="nus64", overrides=[*places, *sensors, *few])
    api.run(job, str(tmp_path / "out"), scheduler="sync")
    pairs = learning.read_pairs(str(tmp_path / "out/dataset"))
    assert len(pairs) == 3 * 3 + 2 * 2, "each under the lights of the other pictures of its fold: the other fold is tested"
    assert baselines.settings_of(job.config, "apap_pca").settings["relit_pictures"] == 99
    assert "thumbnails" in data_differs(job.config, {})
    page = Path(two_camera.BENCHMARK.report(job.config, str(tmp_path / "out"))).read_text("utf-8")
    assert "Pictures of Two are simulated" in page
    lines = [SimpleNamespace(model="gray_edge", method=name) for name in ("gray_world", "gray_edge_1", "gray_edge_1_published")]
    [papers] = _of_other_pictures(job.config, [*lines, SimpleNamespace(model="chromagenic", method="chromagenic")])
    told, table = papers.blocks
    assert "thumbnails" in told.paragraphs[0]
    assert [row[:2] for row in table.rows] == [["gray world", 4.43], ["gray edge 1", 4.49]], "each row once, and no other"


def test_the_real_thumbnails_are_read_camera_by_camera(shared_data):
    c, _, _ = config.load(two_camera.TwoCameraConfig, config.find_config("two_camera", "nus64"), [], benchmark="two_camera")
    given = {"main": "FujifilmXM1", "second": c.source.second, "without": c.source.without, "saturated": c.source.saturated}
    places = {"pictures": str(shared_data / "nus64"), "sensitivities": str(shared_data / "spectra/nus_cameras")}
    rows = [*read_lit_pictures(**places, sensors=c.source.sensors, **given)]
    assert len(rows) == 196
    assert not any(isinstance(row, Rejected) for row in rows)
