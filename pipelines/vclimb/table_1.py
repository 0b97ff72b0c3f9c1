"""Table 1 of the paper: a run's clips per task, classes per task and frames per video, and the paper's."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.compute as pc

from ...datasets.roles import ROLES
from ...datasets.vclimb.facts import facts
from ...datasets.vclimb.tables import frames_per_video, table_1
from ...eval.report.blocks import CellValue
from ..report import ReportedRun
from .card import split_stage
from .config import SplitFileSource, VclimbConfig

TABLE_1 = (*ROLES, "classes per task", "frames per video")


class Table1Rows(NamedTuple):
    """A run's row of Table 1 and the paper's, with the columns ``TABLE_1``."""

    dataset: str
    tasks: int
    ours: list[CellValue]
    papers: list[CellValue]


def table_1_rows(config: VclimbConfig, run: ReportedRun) -> Table1Rows | None:
    """The rows of a run; None if its split is not finished, or the paper has no row for its data set and number of tasks."""
    dataset, role = config.evaluation.dataset, config.evaluation.roles[2]
    # Official lists are compared, too: their numbers per task do not depend on the order of the classes.
    listed = isinstance(config.source, SplitFileSource) or dataset.startswith(config.source.kind.removesuffix("_csv"))
    rows = run.rows(*filter(None, [split_stage(run.made)]))
    if rows is None or not listed or "task" not in rows.column_names:
        return None
    columns = ["label", "task", "role", "video_s"]
    clips = rows.table([name for name in columns if name in rows.column_names])
    of, tasks = facts().datasets[dataset], pc.count_distinct(clips["task"]).as_py()
    if tasks not in of.per_task:
        return None
    frames = frames_per_video(clips, facts().splits.activitynet_fps, role)
    if frames is None and (sampled := run.rows("sampled")) is not None:
        found = sampled.table(["role", "n_available"])
        frames = pc.mean(found["n_available"].filter(pc.equal(found["role"], role))).as_py()
    classes = pc.count_distinct(clips["label"]).as_py()
    counts, published = table_1(clips, of.per_task_rule), of.per_task[tasks]
    ours = [*(counts.get(r) for r in ROLES), classes // tasks, None if frames is None else int(frames)]
    papers = [*(published.get(r) for r in ROLES), of.classes // tasks, of.frames_per_video]
    return Table1Rows(dataset, tasks, ours, papers)
