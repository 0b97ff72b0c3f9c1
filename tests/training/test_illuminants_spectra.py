"""Estimators on pictures made from published spectra: order of the errors, and answers near the truth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from benchwright.datasets.two_camera.radiometric import draw_pairs
from benchwright.eval.metrics.angular import angular_error_deg
from benchwright.training.illuminants.pictures import LinearPictures
from benchwright.training.illuminants.registry import candidates, estimator

TRAIN, TEST = slice(0, 400), slice(400, 600)


@pytest.fixture(scope="module")
def drawn(shared_data):
    """600 pairs of 24 patches of 3 x 3 pixels, and their lights."""
    spectra = shared_data / "spectra"
    (table,) = draw_pairs(
        "0-600",
        pairs=600,
        sensitivities=str(spectra / "camspec_database.txt"),
        cameras=["Canon 5DMarkII", "Nikon D700"],
        reflectances=str(spectra / "sfu_reflectances_1995x101_380_780_4nm.csv"),
        lights=None,
        without=["LPS"],
        surfaces=24,
        step_nm=10,
        seed=0,
    )
    columns: dict[str, np.ndarray] = {}
    for name in ("colours_1", "colours_2", "gt_1"):
        column = table[name]
        flat = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).flatten().to_numpy()
        columns[name] = flat.reshape(600, -1)
    views = [np.kron(columns[f"colours_{k}"].reshape(600, 4, 6, 3), np.ones((1, 3, 3, 1))) for k in (1, 2)]
    return LinearPictures.of(views[0], second=views[1]), columns["gt_1"] / columns["gt_1"][:, 1:2]


def test_the_order_of_errors_on_real_spectra(drawn):
    pictures, lights = drawn
    names = ["corrected_moments", "gamut_pixel", "gray_world", "gray_edge_2"]
    error = []
    for name in names:
        found = estimator(*candidates()[name]).fitted(pictures[TRAIN], lights[TRAIN]).estimate(pictures[TEST])
        error.append(angular_error_deg(found / found[:, 1:2], lights[TEST]).mean())
    assert error == sorted(error)
    assert error[0] < 2 < error[2] < 4  # degrees


def test_a_second_camera_tells_lights_that_were_seen_before(drawn):
    pictures, lights = drawn
    found = estimator(*candidates()["chromagenic"]).fitted(pictures[TRAIN], lights[TRAIN]).estimate(pictures[TEST])
    error = angular_error_deg(found / found[:, 1:2], lights[TEST])
    assert np.median(error) < 0.02  # most of the 105 lights are among the training pairs, and are recognised
    assert (error < 0.02).mean() > 0.6
