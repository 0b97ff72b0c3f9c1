"""AVA-Kinetics: lines become annotations or rejects, clips find their key frame, and strata are what they are called."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from benchwright.curation.flow import join, rows_of, source, step
from benchwright.curation.keys import where
from benchwright.curation.run import run
from benchwright.datasets.ava_kinetics.strata import (
    Annotated,
    Stratified,
    action_types,
    add_strata,
    key_frames,
    read_annotations,
    strata_of,
    thirds,
)
from benchwright.datasets.kinetics.lists import Listed, ListFile, kinetics_lists, read_kinetics_list
from benchwright.eval.metrics.confusion import UNKNOWN, Confusion, accuracy
from benchwright.eval.protocols.open_world.loop import Increment, Setting, SplitSamples, run_open_world
from benchwright.eval.protocols.open_world.measures import measures_by_stratum

from tests.eval import open_worlds

ID = "abcdefghij{}"


def line(n: int, t: float, box: str = "", action: str = "", person: str | None = None) -> str:
    fields = [ID.format(n), f"{t:.6f}", *(box.split() or [""] * 4), action]
    return ",".join(fields if person is None else [*fields, person])


LINES = [
    line(0, 5, "0.0 0.0 0.5 0.5", "12"),  # one person who stands and holds something
    line(0, 5, "0.0 0.0 0.5 0.5", "17"),
    line(0, 5, "0.5 0.0 1.0 1.0", "12"),
    line(1, 15, "0.1 0.1 0.2 0.2", "80", "7"),  # one person under two boxes, by the number
    line(1, 15, "0.1 0.1 0.2 0.3", "79", "7"),
    line(2, 7),  # nobody
    line(3, 1, "0 0 1 1", "1"),  # two key frames in one clip: 5 is the middle
    line(3, 6, "0 0 0.5 1", "15"),
    line(4, 40, "0 0 1 1", "1"),  # out of the clip
]


def read(path: Path) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    parts = list(read_annotations(path=str(path)))
    rejects = [(r["key"].split(":")[1], r["reason"]) for part in parts for r in part.rejected.to_pylist()]
    return pl.DataFrame(pl.from_arrow(pa.concat_tables([part.kept for part in parts]))), rejects


def test_every_form_of_line_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join([*LINES, "abcdefghijX,191.000000"]) + "\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    rows, rejects = read(tmp_path / "a.csv")
    assert rejects == []
    assert rows.height == len(LINES) + 1
    assert rows.row(3, named=True) == {
        "key": "a.csv:4", "youtube_id": "abcdefghij1", "timestamp_s": 15.0,
        "x1": 0.1, "y1": 0.1, "x2": 0.2, "y2": 0.2, "action": 80, "person": 7,
    }  # fmt: skip
    assert rows["action"].to_list()[-1] is None
    assert read(tmp_path / "a.csv.gz")[0].drop("key").equals(rows.drop("key"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "malformed_row"),
        ("abcdefghijk", "malformed_row"),
        ("abcdefghijk,1,0,0,1", "malformed_row"),
        ("abcdefghijk,1,0,0,1,1,", "malformed_row"),
        ("abcdefghijk,1,,0,1,1,5", "malformed_row"),
        ("short,1", "bad_id"),
        (",1", "bad_id"),
        ("abcdefghijk,later", "bad_time"),
        ("abcdefghijk,-1", "bad_time"),
        ("abcdefghijk,nan", "bad_time"),
        ("abcdefghijk,", "bad_time"),
        ("abcdefghijk,1,0.5,0,0.5,1,5", "bad_box"),
        ("abcdefghijk,1,0,0,1.2,1,5", "bad_box"),
        ("abcdefghijk,1,0,x,1,1,5", "bad_box"),
        ("abcdefghijk,1,0,0,1,1,0", "bad_action"),
        ("abcdefghijk,1,0,0,1,1,81", "bad_action"),
        ("abcdefghijk,1,0,0,1,1,run", "bad_action"),
        ("abcdefghijk,1,0,0,1,1,5,him", "bad_person"),
    ],
)
def test_a_bad_line_is_one_reject(tmp_path, bad, reason):
    (tmp_path / "a.csv").write_text("\n".join([LINES[0], bad, LINES[1]]) + "\n")
    rows, rejects = read(tmp_path / "a.csv")
    assert rejects == [("2", reason)]
    assert rows.height == 2


def test_types_cover_all_actions_once():
    types = action_types()
    assert sorted(n for first, last in types.values() for n in range(first, last + 1)) == list(range(1, 81))


def test_key_frames_count_actions_persons_and_area(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(reversed(LINES)) + "\n")
    frames = key_frames(read(tmp_path / "a.csv")[0], action_types())
    first, second, nobody = frames.rows()[:3]
    assert first == (ID.format(0), 5.0, 2, 2, pytest.approx((0.25 + 0.5) / 2), ["PM", "OM"])
    assert second[2:4] == (2, 1)
    assert second[5] == ["PI"]
    assert nobody == (ID.format(2), 7.0, None, None, None, [])
    every = key_frames(read(tmp_path / "a.csv")[0], action_types(), "all")  # two of one person, one of the other
    assert every["actions"].to_list()[:3] == [3, 2, None]
    assert every.drop("actions").equals(frames.drop("actions"))


@dataclass(frozen=True)
class Clip:
    key: str
    youtube_id: str
    time_start: int
    time_end: int


CLIPS = (
    Clip("c0", ID.format(0), 0, 10),
    Clip("c0 too", ID.format(0), 5, 15),  # another clip of the video that holds the key frame, at its start
    Clip("c1", ID.format(1), 5, 15),  # at its end
    Clip("c2", ID.format(2), 0, 10),
    Clip("c3", ID.format(3), 0, 10),
    Clip("c4", ID.format(4), 0, 10),
    Clip("c5", ID.format(5), 0, 10),  # not in the list
)


def listed(*, clips: tuple[Clip, ...]) -> Iterator[Clip]:
    """Source step of clips."""
    yield from clips


def stratified(path: Path, out: Path, clips: tuple[Clip, ...] = CLIPS) -> pa.Table:
    boxes = source("boxes", step(read_annotations, path=where(path)), gives=Annotated)
    add = step(add_strata, annotations=rows_of("boxes"), types=action_types())
    flow = join(boxes, source("listed", step(listed, clips=clips))).whole("strata", add, gives=Stratified)
    return run(flow, str(out), scheduler="sync").rows().table()


def test_clips_find_the_key_frame_within_their_times(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(LINES) + "\n")
    table = stratified(tmp_path / "a.csv", tmp_path / "out")
    assert table["key"].to_pylist() == [clip.key for clip in CLIPS]
    assert table["ava_timestamp_s"].to_pylist() == [5, 5, 15, 7, 6, None, None]
    assert table["ava_actions"].to_pylist() == [2, 2, 2, None, 1, None, None]
    assert table["ava_persons"].to_pylist() == [2, 2, 1, None, 1, None, None]
    assert table["stratum_activity"].to_pylist() == [["PM", "OM"]] * 2 + [["PI"], ["N/A"], ["OM"], ["N/A"], ["N/A"]]
    # 0.375, 0.375, 0.01, 0.5: two in the first third, since four do not come out even; equal areas by key.
    assert table["stratum_area"].to_pylist() == ["SM", "AVG", "SM", "N/A", "LG", "N/A", "N/A"]
    long = strata_of(table)
    assert Counter(long["stratification"].to_pylist()) == {"actions": 7, "persons": 7, "area": 7, "activity": 9}


def test_thirds_are_even_and_ascending():
    areas = np.random.default_rng(0).random(100)
    areas[::10] = np.nan
    names = np.asarray(thirds(areas, [str(n) for n in range(100)]))
    assert Counter(names.tolist()) == {"SM": 30, "AVG": 30, "LG": 30, "N/A": 10}
    assert areas[names == "SM"].max() < areas[names == "AVG"].min()
    assert areas[names == "AVG"].max() < areas[names == "LG"].min()
    back = np.random.default_rng(1).permutation(100)
    equal = np.asarray(thirds(np.full(100, 0.5), [f"{n:03d}" for n in range(100)]))
    assert (np.asarray(thirds(np.full(100, 0.5), [f"{n:03d}" for n in back])) == equal[back]).all()
    assert thirds(np.array([np.nan]), ["a"]) == ["N/A"]


def test_the_real_test_list_names_key_frames_of_real_clips(tmp_path, shared_data):
    folder = shared_data / "kinetics"
    if not (folder / "ava_kinetics_test_v1.0.csv").is_file():
        pytest.skip("the AVA-Kinetics test list is not there")
    files = (ListFile("k600", "kinetics-600_test_labelled.csv", split="test"),)
    lists = source(
        "lists",
        step(read_kinetics_list, root=where(folder)),
        pieces=step(kinetics_lists, root=where(folder), files=files),
        gives=Listed,
        max_rejects=10,
    )
    boxes = source("boxes", step(read_annotations, path=where(folder / "ava_kinetics_test_v1.0.csv")), gives=Annotated)
    add = step(add_strata, annotations=rows_of("boxes"), types=action_types())
    done = run(join(boxes, lists).whole("strata", add, gives=Stratified), str(tmp_path), scheduler="sync")
    rows = done.rows()
    assert done.rows("boxes").num_rows == 64_304
    table = rows.table(["youtube_id", "ava_timestamp_s", "stratum_area", "time_start", "time_end"])
    frame = pl.DataFrame(pl.from_arrow(table))
    found = frame.drop_nulls("ava_timestamp_s")
    listed_ids = done.rows("boxes").table(["youtube_id"])["youtube_id"].unique()
    same_video = frame.filter(pl.col("youtube_id").is_in(pl.Series(pl.from_arrow(listed_ids)).implode()))
    assert found.height > 1800
    assert found.height > 0.98 * same_video.height  # a key frame that is not within a clip of its video is rare
    assert set(frame["stratum_area"]) == {"N/A"}  # the test list has no boxes


class Remembers:
    """Says the class that the features name, and unknown for those of class 2; twice wrong in a known way."""

    def fit(self, experience, validation):
        return None

    def predict(self, uid, X):
        said = X[:, 0].astype(np.int64)
        return np.array([-1, 0, 1]), (said[:, None] == np.array([-1, 0, 1])).astype(np.float32)

    def request(self, uid, X):
        return list(uid)

    def state(self):
        return {"nothing": np.zeros(1)}

    def restore(self, state, experience):
        return None


def block(name: str, truth: list[int], said: list[int]) -> SplitSamples:
    uid = np.array([f"{name}{n}" for n in range(len(truth))], dtype=np.str_)
    return SplitSamples(uid, np.array(said, np.float32)[:, None], np.array(truth, np.int64))


def test_measures_of_strata_come_from_the_stored_predictions(tmp_path):
    none = SplitSamples(np.array([], dtype=np.str_), np.empty((0, 1), np.float32), np.array([], np.int64))
    increments = [
        Increment("0", block("a", [0, 1], [0, 1]), none, block("b", [0, 0, 1, 1], [0, 1, 1, 1])),
        Increment("1", block("c", [0, 2], [0, -1]), none, block("d", [0, 1, 2, 2], [0, 0, -1, -1])),
    ]
    told = run_open_world(Remembers(), increments, ["x", "y", "z"], setting=Setting(0.0), folder=tmp_path)
    predictions = open_worlds.rows_of(told)
    strata = pa.table(
        {
            "uid": ["b0", "b1", "b2", "b3", "d0", "d1", "d2", "d3", "b0"],
            "stratification": ["area"] * 8 + ["kind"],
            "stratum": ["SM", "SM", "LG", "LG", "SM", "LG", "LG", "SM", "only"],
        }
    )
    values = list(measures_by_stratum(predictions, strata))
    name = "post.classification.predictor.top1_accuracy"
    rows = {
        (v.stratum.partition("=")[2], v.position, v.metric != name): v.value
        for v in values
        if v.position is not None and v.metric in (name, f"from_start.{name}")
    }
    assert rows == {
        ("LG", 0, False): 1.0, ("LG", 0, True): 1.0, ("LG", 1, False): 0.5, ("LG", 1, True): 0.75,
        ("SM", 0, False): 0.5, ("SM", 0, True): 0.5, ("SM", 1, False): 1.0, ("SM", 1, True): 0.75,
        ("only", 0, False): 1.0, ("only", 0, True): 1.0, ("only", 1, True): 1.0,
    }  # fmt: skip
    counts = {(v.stratum, v.position): v.value for v in values if v.metric == "from_start.post.samples"}
    assert counts["area=LG", 1] == counts["area=SM", 1] == 4
    # The strata of one stratification add up to the whole.
    truth = np.array([0, 0, 1, 1, 0, 1, UNKNOWN, UNKNOWN])
    said = np.array([0, 1, 1, 1, 0, 0, UNKNOWN, UNKNOWN])
    whole = accuracy(Confusion.of(truth, said))
    assert (4 * rows["LG", 1, True] + 4 * rows["SM", 1, True]) / 8 == whole
    pre = [v for v in values if v.metric.startswith("pre.")]
    assert {v.split for v in values} == {"test_set"}  # no training sample is annotated
    seen = pa.table({"uid": ["a0", "a1", "c0", "c1", "b0"], "stratification": ["area"] * 5, "stratum": ["SM"] * 5})
    ends = {(v.split, v.metric): v.value for v in measures_by_stratum(predictions, seen) if v.position == 1}
    assert [ends[split, f"from_start.{name}"] for split in ("train", "test_set")] == [1.0, 1.0]
    assert [ends[split, "from_start.post.samples"] for split in ("train", "test_set")] == [4, 1]
    assert len({v.position for v in pre if v.position is not None}) == 1
