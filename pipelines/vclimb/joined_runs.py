"""The paper's tables and Figure 3 from several runs: tables span data sets, and Tables 1 and 2 numbers of tasks."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...datasets.vclimb.facts import PublishedResult, facts, published_figures
from ...eval.report.blocks import Block, CellValue, Section, Table, Text
from ...eval.report.sections import without_empty_columns
from ...eval.report.trainings import SPREAD, position_curves, spread_cell, switch
from ...eval.results import Line
from ...training.baselines.vclimb import CONSISTENT, FrameCount, row_of
from ..errors import WrongUse
from ..jobs import job_of
from ..report import ReportedRun
from .config import VclimbConfig
from .paper import METRICS, data_of, why_not_the_papers
from .table_1 import TABLE_1, Table1Rows, table_1_rows
from .training_sections import last_held, task_names

_MEMORY = ("capacity, videos", "capacity, frames", "held, videos", "held, frames")


@dataclass(frozen=True)
class JoinedRun:
    """What the paper's tables take from a run.

    Attributes:
        dataset: the paper's dataset: that of the released split file, otherwise that of the settings.
        tasks: number of tasks.
        lines: all lines of its trainings.
        fair: those that are comparable with the paper's figures.
        verdict: how many are, and why others are not.
    """

    dataset: str
    tasks: int
    lines: Sequence[Line]
    fair: Sequence[Line]
    verdict: str

    @property
    def name(self) -> str:
        """Dataset and number of tasks."""
        return f"{self.dataset}, {self.tasks} tasks"

    def line(self, method: str, frames: FrameCount) -> Line | None:
        """The line of a method and number of frames of a stored clip; of several, the first that is comparable."""
        found = [
            line for line in (*self.fair, *self.lines) if (line.method, line.settings["memory.frames"]) == (method, frames)
        ]
        return found[0] if found else None


def _opened(out: str) -> tuple[VclimbConfig, ReportedRun]:
    """A run and its settings. Raises ``WrongUse`` if it is not one of vCLIMB."""
    todo = job_of(out)
    if todo.benchmark.name != "vclimb":
        raise WrongUse(f"{out} is a run of {todo.benchmark.name}: only runs of vclimb are joined with one of vclimb")
    return todo.config, ReportedRun.of(out)


def _joined(config: VclimbConfig, run: ReportedRun) -> JoinedRun | None:
    """A run as the paper's tables of results take it; None if nothing is trained."""
    if not (found := run.lines):
        return None
    data = data_of(run.made)
    why = [why_not_the_papers(line, data) for line in found]
    fair = [line for line, reason in zip(found, why, strict=True) if not reason]
    reasons = "; ".join(dict.fromkeys(filter(None, why)))
    verdict = f"{len(fair)} of {len(found)} results are comparable with the paper's{f' ({reasons})' if reasons else ''}"
    return JoinedRun(data.dataset or config.evaluation.dataset, len(task_names(found[0])), found, fair, verdict)


def joined_section(outs: Sequence[str]) -> Section:
    """All tables in the paper's form, of Table 1 its lower half, and curves as in Figure 3, from several runs.

    Args:
        outs: folders or URLs of runs.

    Raises:
        WrongUse: two of them have the same dataset and number of tasks, or one is not a run of vCLIMB.
    """
    runs: dict[tuple[str, int], JoinedRun] = {}
    counts: list[Table1Rows] = []
    untrained: list[str] = []
    places: dict[tuple[str, int], str] = {}
    for out in outs:
        config, reported = _opened(out)
        run, rows = _joined(config, reported), table_1_rows(config, reported)
        own = dict.fromkeys(((each.dataset, each.tasks) for each in (run, rows) if each is not None), out)
        for dataset, tasks in own.keys() & places.keys():
            what = f"{places[dataset, tasks]} and {out} are both of {dataset}, {tasks} tasks"
            raise WrongUse(f"{what}: a table has one place for them, so join one of them")
        places |= own
        if run is None:
            untrained.append(posixpath.basename(out.rstrip("/")))
        else:
            runs[run.dataset, run.tasks] = run
        counts += [] if rows is None else [rows]
    notes = [f"{run.name}: {run.verdict}." for run in runs.values()]
    notes += [f"{name}: nothing is trained." for name in untrained]
    notes.append("Of several settings of a method, the first that is comparable is shown: a run's own report has all.")
    blocks = [Text(notes, tone="note"), *_table_1(counts), *paper_tables(runs), *_curves(runs)]
    return Section("Several runs, as in the paper's tables", blocks)


def _table_1(found: Sequence[Table1Rows]) -> list[Block]:
    """Table 1's rows of vCLIMB, a pair for each run; empty if there are none."""
    rows: list[Sequence[CellValue]] = [
        [each.dataset, each.tasks, name, *values]
        for each in found
        for name, values in (("these runs", each.ours), ("the paper", each.papers))
    ]
    caption = "Table 1: clips per task (mean), and frames of whole videos"
    columns = ["data set", "tasks", "from", *TABLE_1]
    return [Table(columns, rows, caption)] if rows else []


def paper_tables(runs: Mapping[tuple[str, int], JoinedRun]) -> list[Block]:
    """Tables 2 to 4 and the supplement's Table 1, as far as these runs fill them; keys are dataset and number of tasks."""
    tables: dict[str, list[PublishedResult]] = {}
    for one in published_figures():
        tables.setdefault(one.table, []).append(one)
    return [table for name, found in tables.items() if (table := _table(name, found, runs)) is not None]


def _table(name: str, found: Sequence[PublishedResult], runs: Mapping[tuple[str, int], JoinedRun]) -> Table | None:
    """A table of the paper: a row of these runs for each of its rows, and the paper's below where comparable."""
    rows: list[Sequence[CellValue]] = []
    datasets = list(dict.fromkeys(one.dataset for one in found))
    of = {(one.method, one.tasks, one.frames, one.dataset): one for one in found}
    for method, tasks, frames in dict.fromkeys((one.method, one.tasks, one.frames) for one in found):
        ours, papers = list[CellValue](), list[CellValue]()
        for dataset in datasets:
            one, run = of.get((method, tasks, frames, dataset)), runs.get((dataset, tasks))
            line = run.line(*row_of(one)) if one and run else None
            nothing = [None] * (len(_MEMORY) + len(METRICS))
            ours += nothing if line is None else _cells(line)
            papers += _published(one) if one and run and line in run.fair else nothing
        if any(cell is not None for cell in ours):
            rows.append([method, tasks, frames, "these runs", *ours])
        if any(cell is not None for cell in papers):
            rows.append([method, tasks, frames, "the paper", *papers])
    if not rows:
        return None
    columns = [f"{dataset}: {what}" for dataset in datasets for what in (*_MEMORY, *METRICS)]
    caption = f"{name}: percent, {SPREAD}; capacity of the memory, and what it held after the last task"
    table = Table(["model", "tasks", "frames per video", "from", *columns], rows, caption, decimals=2)
    return without_empty_columns(table)


def _cells(line: Line) -> list[CellValue]:
    return [*_memory(line), *(spread_cell(line.values(metric), decimals=2) for metric in METRICS.values())]


def _memory(line: Line) -> list[CellValue]:
    """Capacity in videos and in frames, and videos and frames held. Of whole videos, frames are those of the mean held one."""
    if (held := last_held(line)) is None:
        return [None] * len(_MEMORY)
    size, frames = line.settings["memory.size"], line.settings["memory.frames"]
    if line.settings["memory.unit"] == "parts":
        return [None, size, *held]
    return [size, round(size * held[1] / held[0]) if frames == "all" else size * frames, *held]


def _published(one: PublishedResult) -> list[CellValue]:
    """The paper prints capacities alone; the videos in Table 2, and in the text for the others. Its metrics are by classes."""
    memory, stored = facts().memory[one.dataset], one.method not in ("EWC", "MAS")
    frames = memory.get("all_frames_in_paper") if one.frames == "all" else memory.frames_in_paper[int(one.frames)]
    capacity = [memory.videos, frames] if stored else [None, None]
    return [*capacity, None, None, one.acc_percent, one.bwf_percent, None, None]


def _curves(runs: Mapping[tuple[str, int], JoinedRun]) -> list[Block]:
    """For each method, frames of a stored clip and number of tasks: the method with and without temporal consistency on every
    dataset, after each task. Figure 3 is that of iCaRL with 8 frames and 10 tasks."""
    of: dict[str, list[Line]] = {}
    for run in runs.values():
        for plain, frames in dict.fromkeys(
            (line.method.removesuffix(CONSISTENT), line.settings["memory.frames"]) for line in run.lines
        ):
            for method in (plain, plain + CONSISTENT):
                if (line := run.line(method, frames)) is not None:
                    shown = dataclasses.replace(line, label=f"{method}, {run.dataset}")
                    of.setdefault(f"{plain}, {frames} frames, {run.tasks} tasks", []).append(shown)
    figures: dict[str, Block] = {}
    for key, found in of.items():
        caption = f"{key}: accuracy over all classes seen so far, after each task"
        if drawn := position_curves(found, "acc_class_weighted", task_names, value_axis="accuracy", caption=caption):
            figures[key] = drawn[0]
    return switch("method, frames, tasks", figures)
