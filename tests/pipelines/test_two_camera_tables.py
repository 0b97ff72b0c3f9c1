"""What of a two-camera run stands beside Table 4 of the paper, and figures of many methods."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.datasets.two_camera.rows import TransformPairs, lists
from benchwright.eval.protocols.cross_validation import AVERAGE, Estimates
from benchwright.eval.report.blocks import Sheet
from benchwright.eval.report.boxes import box_chart
from benchwright.pipelines import api, experiments
from benchwright.pipelines.report import ReportedRun
from benchwright.pipelines.two_camera import paper
from benchwright.pipelines.two_camera import pipeline as two_camera
from benchwright.pipelines.two_camera.paper import row_of
from benchwright.pipelines.two_camera.views import all_errors, corrected_section, errors_of, relit_section
from benchwright.training.two_camera.settings import settings


def reported(name: str, path: Path, out: Path, *overrides: str) -> str:
    """The report of a run of released metadata; re-illuminated rows are stated to be the paper's."""
    job = api.job("two_camera", config=name, overrides=[f"source.path={path}", *overrides])
    api.run(job, str(out), scheduler="sync")
    experiments.run_trainings(two_camera.BENCHMARK.trainings(job.config, str(out), [], []), str(out))
    made = ReportedRun.of(str(out)).made
    stated = {"augmented": made["augmented"].digest} if "augmented" in made else {}
    return Path(two_camera.BENCHMARK.report(dataclasses.replace(job.config, published=stated), str(out))).read_text("utf-8")


def test_names_of_baselines_are_those_of_the_papers_rows():
    assert row_of("bright_dark_pca") == "pca"
    assert row_of("gray_edge_1_published") == row_of("gray_edge_1") == "gray edge 1"
    assert row_of("apap_gray_world") == "apap gray world"


@pytest.mark.parametrize("rate", ["1e-3", "2e-3"])
def test_table_4_stands_beside_networks_of_its_own_settings_alone(
    rate: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"epochs": 1, "check_epochs": 1}
    monkeypatch.setattr(paper, "settings", lambda name: {**settings(name), **short})  # the paper's trainings take minutes
    quick = f"settings = {{ epochs = 1, check_epochs = 1, learning_rate = {rate} }}"
    network = f"{{ parameters = 200, preset = 'as_released', seeds = [0], {quick}"
    chosen = f"evaluation.networks={{ without = {network} }}, with = {network}, reilluminated = true }} }}"
    page = reported("table4", shared_data / "two_camera" / "s20_metadata_162_pairs.json", tmp_path, chosen)
    table = page[page.index("Without and with re-illuminated training rows") :].partition("</table>")[0]
    # "with" learned from rows that were made from transforms and not from pictures: it is never the paper's.
    assert ("Table 4 of the paper" in table, "4.65" in table, "3.75" in table) == (rate == "1e-3", rate == "1e-3", False)


def test_boxes_hold_any_number_of_methods():
    drawn = np.random.default_rng(0)
    groups = {f"method {n}": drawn.gamma(2, 1 + n / 10, 50) for n in range(30)}
    figure = box_chart(groups, group_axis="method", value_axis="error, degrees")
    assert [row[0] for row in figure.data.rows] == list(groups)
    row = dict(zip(figure.data.columns, figure.data.rows[7], strict=True))
    assert row["25 %"] == pytest.approx(np.percentile(groups["method 7"], 25))
    assert row["mean"] == pytest.approx(groups["method 7"].mean())
    with pytest.raises(ValueError, match=r"groups \['b'\]: \(n,\) finite values"):
        box_chart({"a": [1.0], "b": [np.nan]}, group_axis="method", value_axis="error")


class Drawn:
    """Pictures of pairs, by row: grey scenes under each pair's light."""

    there = True

    def __init__(self, pairs):
        self.pairs = pairs

    def read(self, row):
        scene = np.linspace(0.1, 0.9, 64).reshape(8, 8, 1)
        return scene * self.pairs.gt_1[row], scene * self.pairs.gt_2[row], np.ones((8, 8), bool)


@pytest.fixture
def pairs():
    key = np.array(["a", "b", "c"])
    one = np.array([[1.0, 1.0, 1.0], [0.5, 1.0, 0.9], [0.9, 1.0, 0.3]])
    T = np.stack([np.eye(3)] * 3)
    return TransformPairs(key, key, key, np.array([""] * 3), np.ones(3, bool), np.arange(3), one, one[:, ::-1], T, T, T, T)


def test_the_two_pairs_whose_lights_differ_most_are_put_under_each_others_light(pairs):
    made = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("a", "c")]  # and not c under the light of a
    at = {"a": 0, "b": 1, "c": 2}
    changes = [[np.diag(gt[at[j]] / gt[at[i]]).ravel() for i, j in made] for gt in (pairs.gt_1, pairs.gt_2)]
    columns = {"source_key": [i for i, _ in made], "target_key": [j for _, j in made]}
    relit = pa.table(columns | {f"relight_{n}": lists(np.array(each)) for n, each in enumerate(changes, 1)})
    [section] = relit_section(Drawn(pairs), pairs, relit)
    [_, sheet] = section.blocks
    assert isinstance(sheet, Sheet)
    assert [name for _, name in sheet.columns] == ["b", "c", "b", "c"]
    for _, (b, c, b_as_c, c_as_b) in sheet.rows:
        assert b_as_c.image == c.image  # grey scenes: under the other's light they are the other picture
        assert c_as_b.image == b.image
        assert b.image != c.image
    assert relit_section(Drawn(pairs), pairs, relit.slice(4)) == [], "no two pairs are under each other's light"


def test_errors_of_several_seeds_are_those_of_the_tables_and_not_of_their_average():
    truth, lights = [np.ones((2, 3))], {0: [np.array([[1, 1, 1], [2, 1, 1]])], 1: [np.array([[1, 1, 3], [1, 1, 1]])]}
    runs = {**lights, AVERAGE: [np.ones((2, 3))]}
    errors = {run: [np.array([0.0, 9.0]) + 5 * (run == 1)] for run in lights} | {AVERAGE: [np.zeros(2)]}
    found = Estimates(["fold 0"], [["a", "b"]], truth, runs, errors)
    assert all_errors(found) == [0.0, 9.0, 5.0, 14.0]
    assert {key: (error, light.tolist()) for key, (error, light) in errors_of(found).items()} == {
        "a": (0.0, [1, 1, 1]),
        "b": (9.0, [2, 1, 1]),
    }


def test_several_methods_correct_the_same_pictures(pairs):
    truth = {key: (0.0, pairs.gt_1[row]) for row, key in enumerate(pairs.key)}
    grey = {key: (float(row), np.ones(3)) for row, key in enumerate(pairs.key)}
    section = corrected_section({"gray_world": grey, "perfect": truth}, True, Drawn(pairs), pairs)
    [_, sheet, table] = section.blocks
    assert [heading for heading, _ in sheet.columns] == ["raw", "gray world", "perfect", "ground truth"]
    assert [list(row) for row in table.rows] == [["a", 0.0, 0.0], ["b", 1.0, 0.0], ["c", 2.0, 0.0]]
    assert [name for name, _ in sheet.rows] == ["a: smallest error", "b: median error", "c: largest error"]
    for _, (raw, uncorrected, perfect, expected) in sheet.rows:
        assert uncorrected.image == raw.image
        assert perfect.image == expected.image
    assert sheet.rows[2][1][1].caption == "2.00 degrees error"
