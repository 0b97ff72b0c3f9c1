"""Steps that take all rows a table at a time give the same, however the rows are divided into parts and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.rows import Sifted
from benchwright.curation.stage_rows import Rows
from benchwright.curation.stages import external_sort, ranks, reorder
from benchwright.datasets.iirc.assign import Hierarchy, Shares, assign
from benchwright.datasets.iirc.tasks import DrawnTasks
from benchwright.datasets.kinetics.inventory import as_clips
from benchwright.datasets.kowl import unify as unify_module
from benchwright.datasets.kowl.increments import Later, assign_increments
from benchwright.datasets.kowl.synthetic import choose_centres
from benchwright.datasets.kowl.unify import unify
from benchwright.datasets.skeleton.splits import select_sequences, split
from benchwright.datasets.two_camera.folds import assign_folds, assign_parts
from benchwright.datasets.two_camera.pictures import estimate_homographies
from benchwright.datasets.vclimb.samples import place
from benchwright.datasets.vclimb.splits import assign_clip_roles, assign_tasks, check_roles, cut_segments, untrim

from .video_rows import Held

COUNT = 331


class Parts(Held):
    """Rows of which no step may hold all columns at once."""

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        assert columns is not None
        return super().table(columns)


def some(seed: int, **columns: list[Any]) -> pa.Table:
    """Rows with keys, and columns of drawn values."""
    draw = np.random.default_rng(seed)
    drawn = {name: [values[place] for place in draw.integers(0, len(values), COUNT)] for name, values in columns.items()}
    return pa.table({"key": [f"k{number:04d}" for number in draw.permutation(COUNT)], **drawn})


def homographies(rows: Rows) -> Iterator[pa.Table]:
    given = {name: [*np.eye(3).ravel()[:8], 1.0 + number] for number, name in enumerate("abc")}
    return estimate_homographies(rows, root="", given=given, pairs=1)


LABELS, ROLES = ["run", "jump", "sit"], ["train", "val", "test"]
SEGMENTS = {"name": [f"v{number}" for number in range(90)], "t_start": [0.0, 3.0], "t_end": [2.0, 4.0, 9.0], "video_s": [9.0]}
LISTED = some(2, label=LABELS, role=[*ROLES, None], group=["g1", "g2", "g3", "g4", "g5"])
CLIPS = some(3, label=LABELS, role=ROLES, task=[0, 1, 2], frames=["a", "b"], frame_sizes=[[1], [2, 3]])
PROBED = some(4, n_frames=[50, 47], fps=[30.0, 29.97], t_start=[0.0], t_end=[None, 1.0], role=ROLES)
SIDES = ["train", "test"]
LISTS = {"class_name": ["sit", "walk", "wave"], "file": ["a.bvh", "b.bvh"], "performer": ["p1", "p2", "p3"], "label": [0, 1, 2]}
SEQUENCES = some(6, **LISTS, x_sub=SIDES, x_view=[*SIDES, None])
SHARES = {"val_share": 0.2, "test_share": 0.2, "classes_per_task": 2}
PHOTOS = some(7, split=["train", "test"], class_name=["cat", "dog", "house", "moon"], file=["1.jpg", "2.jpg", "3.jpg"])
TREE = Hierarchy((("animal", ("dog", "cat")),), ("house",))
SAMPLES = some(
    8, label_recent_first=["run", "jump", "dive"], taken_release=["a", "b"], role=ROLES, release=["a", "b"], split=["x", "y"]
)
LATER = {"first": "a", "later": [Later("b", 2, 0)], "preset": "as_released"}


def assigned(rows: Rows, **given: Any) -> Iterator[Sifted]:
    shares = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8, **given)
    return assign(rows, hierarchy=TREE, shares=shares, tasks=DrawnTasks(1, 1, 0), configurations=[0], seed=0)


LINES = some(
    9,
    youtube_id=["x1", "x2", "x3"],
    time_start=[1, 2, 3],
    time_end=[9, 10, 11, 12],
    label=["run", None],
    split=["train", "validate"],
)

LISTED_TWICE = some(
    10,
    youtube_id=[f"x{number}" for number in range(60)],
    time_start=[1, 2],
    time_end=[9],
    label=["run", "Run", "sit", None],
    split=["train", "validate", "test"],
    release=["a", "b"],
)

STEPS: dict[str, tuple[Callable[[Rows], Iterator[pa.Table | Sifted]], pa.Table]] = {
    "folds": (lambda rows: assign_folds(rows, folds=3, seed=999), some(0)),
    "parts": (lambda rows: assign_parts(rows, shares=[0.6, 0.2, 0.2], seed=0), some(0)),
    "homographies": (homographies, some(1, device=["a", "b", "c"])),
    "untrimmed": (untrim, some(5, **SEGMENTS, label=LABELS, role=ROLES)),
    "longest": (lambda rows: untrim(rows, several_labels="longest"), some(5, **SEGMENTS, label=LABELS, role=ROLES)),
    "listed_roles": (lambda rows: assign_clip_roles(rows, rule="listed", seed=0), LISTED),
    "roles_by_class": (lambda rows: assign_clip_roles(rows, rule="by_class", seed=0), LISTED),
    "roles_by_group": (lambda rows: assign_clip_roles(rows, rule="by_group", seed=0), LISTED),
    "tasks": (lambda rows: assign_tasks(rows, tasks=2, seed=0, classes=["run", "sit"]), LISTED),
    "segments": (lambda rows: cut_segments(rows, roles=["train", "test"]), PROBED),
    "usable": (lambda rows: check_roles(rows, split=rows, roles=["train", "test"], on_lost_role="error"), CLIPS),
    "assigned": (assigned, PHOTOS),
    "assigned_as_drawn": (lambda rows: assigned(rows, order="drawn"), PHOTOS),
    "increments": (lambda rows: assign_increments(rows, order="as_released", seed=0, **LATER), SAMPLES),
    "shuffled": (lambda rows: assign_increments(rows, order="shuffled", seed=0, **LATER), SAMPLES),
    "centred": (lambda rows: choose_centres(rows, first="a", splits=["x"], hidden=0.5, seed=0), SAMPLES),
    "unified": (lambda rows: unify(rows, releases=["a", "b"], renames={}), LISTED_TWICE),
    "unified_by_identity": (
        lambda rows: unify(rows, releases=["b", "a"], renames={"run": "runs"}, normalise=["case"], order="identity"),
        LISTED_TWICE,
    ),
    "kinetics_clips": (as_clips, LINES),
    "sequences": (lambda rows: select_sequences(rows, classes=None, only={"x_view": "train"}), SEQUENCES),
    "classes": (lambda rows: select_sequences(rows, classes=["walk", "sit"], only={}), SEQUENCES),
    "split_by_share": (lambda rows: split(rows, rule="shares", **SHARES), SEQUENCES),
    "split_by_side": (lambda rows: split(rows, rule="x_sub", **SHARES), SEQUENCES),
    "split_by_group": (lambda rows: split(rows, rule="performer", test_groups=["p1"], **SHARES), SEQUENCES),
    "placed_clips": (lambda rows: place(rows, usable=rows, max_samples=20, seed=0), CLIPS),
}


@pytest.mark.parametrize("step_name", STEPS)
def test_a_step_gives_the_same_of_many_parts_as_of_one(step_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step, table = STEPS[step_name]
    whole = gathered(step(Held(table)))
    for module, name, value in (
        (ranks, "TABLE_ROWS", 50),
        (external_sort, "HELD_ROWS", 64),
        (external_sort, "HELD_NUMBERS", 64),
        (unify_module, "HELD_ROWS", 64),
        (unify_module, "_DRAWN", 4),
        (unify_module, "ROWS_AT_ONCE", 50),
        (external_sort, "_DRAWN", 8),
        (reorder, "TABLE_ROWS", 70),
        (reorder, "HELD_BYTES", 100),
    ):
        monkeypatch.setattr(module, name, value)
    parts = [table.slice(start, 13) for start in range(0, COUNT, 13)]
    made = list(step(Parts(*parts[:3], table.slice(0, 0), *parts[3:])))
    assert len(made) > 1
    assert gathered(iter(made)) == whole


def gathered(made: Iterator[pa.Table | Sifted]) -> tuple[list[Any], list[Any]]:
    """All rows that were kept, and all rejects."""
    kept, rejected = list[Any](), list[Any]()
    for each in made:
        kept += (each if isinstance(each, pa.Table) else each.kept).to_pylist()
        rejected += [] if isinstance(each, pa.Table) else each.rejected.to_pylist()
    return kept, rejected
