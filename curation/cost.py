"""Cost of making a stage (time, memory, retries), and estimates of it at another size.

These figures are only in ``made.json``, the one file that differs between equal runs.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .artifact import Artifact
from .flow import PlanError, Stage
from .requirements import needs_gpu

_FEWEST_TASKS = 4
"""Minimum number of tasks of a stage to estimate, from the later half of them, the time to start, such as to load a model."""

_CHANCE = 16 << 20
"""Peaks of equal runs differ by some MiB, since allocators keep what was freed: a difference up to this tells no growth."""


@dataclasses.dataclass(frozen=True)
class Use:
    """Time, CPU time and memory that a process used for a task.

    Attributes:
        process: host name and process ID.
        started: ``time.perf_counter`` of the process when the task began.
        seconds: wall-clock time of the task.
        begin: CPU seconds of the process when the task began, including children that have ended.
        end: CPU seconds of the process when the task ended.
        peak_bytes: peak memory of the process so far; in a process that makes one task at a time, during this task. 0 in the
            process of the run.
    """

    process: tuple[str, int]
    started: float
    seconds: float
    begin: float
    end: float
    peak_bytes: int

    @classmethod
    def since(cls, started: float, begin: float, peak: int = 0) -> Use:
        """What this process used since ``started`` (``time.perf_counter``), when it had used ``begin`` CPU seconds."""
        return cls(_this_process(), started, time.perf_counter() - started, begin, cpu_seconds(), peak)


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def cpu_seconds() -> float:
    """CPU seconds of this process, its threads, and its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_bytes() -> int:
    """Peak memory of this process since ``restart_peak``, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would include the peak of the parent process
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) << 10
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


_peak_before = 0


def restart_peak() -> None:
    """Restart the count of ``peak_bytes``, if the system permits it."""
    global _peak_before
    _peak_before = max(_peak_before, peak_bytes())
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes_of_all() -> int:
    """Peak memory of this process since its start, in bytes, which the system no longer reports after ``restart_peak``."""
    return max(_peak_before, peak_bytes())


class _Covered:
    """Total length of intervals, in which overlaps are counted once."""

    def __init__(self) -> None:
        self.length = 0.0
        self._apart: list[tuple[float, float]] = []  # sorted, without overlaps

    def add(self, begin: float, end: float) -> None:
        first = last = bisect.bisect_left(self._apart, begin, key=lambda each: each[1])
        while last < len(self._apart) and self._apart[last][0] <= end:
            last += 1
        joined = self._apart[first:last]
        whole = min([begin, *(each[0] for each in joined)]), max([end, *(each[1] for each in joined)])
        self._apart[first:last] = [whole]
        self.length += whole[1] - whole[0] - sum(each[1] - each[0] for each in joined)


class Meter:
    """Adds up, in the process of the run, the cost of the tasks of one stage in this and in other processes.

    Args:
        alone: whether no other stage is made at the same time: then everything that this process uses counts, not only tasks.
    """

    def __init__(self, *, alone: bool = True) -> None:
        restart_peak()
        self._alone, self._began, self._cpu_began = alone, time.perf_counter(), cpu_seconds()
        self._first = self._ended = self._began
        self._peak = 0
        self._cpu = collections.defaultdict[tuple[str, int], _Covered](_Covered)
        self._busy = collections.defaultdict[tuple[str, int], _Covered](_Covered)
        self._marks: list[tuple[int, float, float, float]] = []
        self.retries = 0

    def add(self, use: Use) -> None:
        """Add a task that has just ended. The time of concurrent tasks in the same process is counted once."""
        self._ended = time.perf_counter()
        began = self._ended - use.seconds
        self._first = min(self._first, began) if self._busy else began
        self._busy[use.process].add(use.started, use.started + use.seconds)
        if not self._alone or use.process != _this_process():
            self._cpu[use.process].add(use.begin, use.end)
        self._peak = max(self._peak, use.peak_bytes)

    @property
    def seconds(self) -> float:
        """Wall-clock time so far; for a stage that is not alone, from the start of its first task to the end of its last."""
        return time.perf_counter() - self._began if self._alone else self._ended - self._first

    def mark(self, rows: int) -> None:
        """Record that a task with ``rows`` input rows has ended."""
        before = self._marks[-1][0] if self._marks else 0
        self._marks.append((before + rows, *self._spent()))

    def _spent(self) -> tuple[float, float, float]:
        cpu, busy = (sum(each.length for each in times.values()) for times in (self._cpu, self._busy))
        return self.seconds, cpu + (cpu_seconds() - self._cpu_began if self._alone else 0.0), busy

    def cost(self) -> dict[str, Any]:
        """The cost record of a stage that has just been made.

        ``rows`` and ``tasks`` count only what was made now, not what an interrupted run left; ``retries`` counts how often a
        cluster lost a worker while it made a part, or retried a part after a failure of a machine; ``busy_seconds`` is the
        wall-clock time of all tasks, added up over the processes that made them; ``worker_peak_bytes`` is the peak memory of a
        process that is not that of the run, 0 if that made all tasks; ``start_seconds``, ``start_cpu_seconds`` and
        ``start_busy_seconds`` are the share of the time that does not grow with the rows, 0 if there are too few tasks to
        tell. The stage maker adds ``gpu``: whether the stage was made on GPUs.
        """
        seconds, cpu, busy = self._spent()
        rows = self._marks[-1][0] if self._marks else 0
        start = (0.0, 0.0, 0.0)
        if len(self._marks) >= _FEWEST_TASKS:
            before, *then = self._marks[len(self._marks) // 2 - 1]
            if rows > before:
                again = rows / (rows - before)
                start = tuple(max(0.0, at - (at - half) * again) for at, half in zip((seconds, cpu, busy), then, strict=True))
        return {
            "rows": rows,
            "tasks": len(self._marks),
            "retries": self.retries,
            "cpu_seconds": round(cpu, 3),
            "busy_seconds": round(busy, 3),
            "peak_bytes": max(self._peak, peak_bytes()),
            "worker_peak_bytes": self._peak,
            "start_seconds": round(start[0], 3),
            "start_cpu_seconds": round(start[1], 3),
            "start_busy_seconds": round(start[2], 3),
        }


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """Estimated cost of a stage at another size.

    Attributes:
        stage: name of the stage.
        rows_in: number of input rows; for a source, of rows that it yields, rejects included.
        rows: number of output rows.
        seconds: wall-clock time on the machine of the sample, with the same number of workers.
        cpu_seconds: CPU time of all processes.
        gpu_seconds: time in which processes make parts of the stage, added up over the processes, if it is made on GPUs,
            otherwise 0. If the record of the sample does not have it, ``seconds``.
        bytes: size of the stage's files.
        peak_bytes: peak memory of a process, which includes what it held before the stage. For a stage that is made part by
            part, as in the sample. A stage that reads all rows in one process, or all rows of another stage, may need more for
            more rows: from two samples, a constant and a share per input row.
        worker_peak_bytes: the same of a worker process or cluster worker; 0 if the sample was made by threads, all of which
            are in ``peak_bytes``.
        peak_at_least: whether these are only lower bounds: memory may grow with the rows, and the samples do not tell by how
            much, or the sample had so few parts that not all workers may have had a full one.
        sample_rows: number of input rows in the sample.
        rough: whether the sample had too few parts to separate the time to start, so that all time is scaled with the rows.

    >>> import benchwright as bw
    >>> from benchwright.pipelines.api import estimate_costs
    >>> todo = bw.job("words.py")
    >>> done = bw.run(todo, "sample")
    >>> listed, counted, *others = estimate_costs(todo, "sample", {"listed": 300})
    >>> counted.stage, counted.rows_in, counted.rows, counted.gpu_seconds  # 1 of 3 texts was rejected
    ('counted', 300, 200, 0.0)
    """

    stage: str
    rows_in: int
    rows: int
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    bytes: int
    peak_bytes: int
    worker_peak_bytes: int
    peak_at_least: bool
    sample_rows: int
    rough: bool


def cost_estimates(
    planned: Sequence[tuple[Stage, Artifact | None]],
    made: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, int],
    smaller: Mapping[str, tuple[int, Mapping[str, Any]]] | None = None,
) -> list[CostEstimate]:
    """Estimate the cost of the stages of a finished sample for other numbers of rows.

    Time, except the time to start, and bytes are assumed to be proportional to the number of input rows; memory as
    ``CostEstimate.peak_bytes`` says. The ratio of output to input rows is that of the sample, unless ``rows`` gives the number
    of output rows; a source that is not in ``rows`` yields the same number of rows as in the sample.

    Args:
        planned: the stages in order, with their artifacts in the sample.
        made: stage -> its ``made.json`` in the sample.
        rows: stage -> number of output rows.
        smaller: stage -> number of input rows and ``made.json`` in a smaller sample. If both samples made all of a stage, and
            the smaller one had fewer input rows, the time to start and the growth of memory are computed from the two.

    Raises:
        PlanError: a stage has not been made or its record has no cost, or ``rows`` names an unknown stage.
    """
    names = [stage.name for stage, _ in planned]
    if unknown := [name for name in rows if name not in names]:
        raise PlanError(f"no stage {unknown[0]!r} to estimate from: there are {', '.join(names)}")
    given: dict[str, float] = {}
    sample_rows = {stage.name: artifact.rows for stage, artifact in planned if artifact}
    found: list[CostEstimate] = []
    for stage, artifact in planned:
        cost = made.get(stage.name, {}).get("cost")
        if artifact is None or cost is None or not cost["tasks"]:
            why = "has not been made" if artifact is None else "has no record of its cost, since another run made its parts"
            raise PlanError(f"an estimate needs a finished sample, and stage {stage.name!r} {why}: run it in a new --out")
        sample_in, sample_out = artifact.rows_in, artifact.rows
        rows_in = given[stage.after] if stage.after else sample_in * rows.get(stage.name, sample_out) / max(1, sample_out)
        rows_out = float(rows.get(stage.name, sample_out * rows_in / max(1, sample_in)))
        given[stage.name] = rows_out
        factor = rows_in / max(1, sample_in)
        whole = sample_in / cost["rows"] if cost["rows"] else 1.0  # above 1 if an interrupted run had made some of the rows
        fewer = _comparable(made[stage.name], sample_in, (smaller or {}).get(stage.name))
        starts = _starts(made[stage.name], sample_in, fewer) if fewer else None
        growth = max([factor, *(given[name] / max(1, sample_rows[name]) for name in stage.inputs())])
        peaks, at_least = _peaks(cost), growth > 1 and cost["tasks"] < _FEWEST_TASKS
        if growth > 1 and _may_grow(stage):
            less, few = (_peaks(fewer[1]["cost"]), fewer[0]) if fewer else (peaks, 0)
            peaks, at_least = peaks_of(peaks, less, rows=sample_in, fewer=few, factor=growth)
        start = cost["start_seconds"]
        known = starts or (start, cost["start_cpu_seconds"], cost.get("start_busy_seconds", start))
        seconds, cpu, busy = (
            start + factor * whole * max(0.0, all_of_it - start)
            for all_of_it, start in zip(_spent(made[stage.name]), known, strict=True)
        )
        found.append(
            CostEstimate(
                stage=stage.name,
                rows_in=round(rows_in),
                rows=round(rows_out),
                seconds=seconds,
                cpu_seconds=cpu,
                gpu_seconds=busy if needs_gpu(stage) else 0.0,
                bytes=round(_bytes(artifact, rows_in, rows_out)),
                peak_bytes=peaks[0],
                worker_peak_bytes=peaks[1],
                peak_at_least=at_least,
                sample_rows=sample_in,
                rough=starts is None and cost["tasks"] < _FEWEST_TASKS,
            )
        )
    return found


def busy_seconds(made: Mapping[str, Any]) -> float:
    """``busy_seconds`` in the cost of a ``made.json``, see ``Meter.cost``; the stage's seconds if an older record lacks it."""
    return made["cost"].get("busy_seconds", made["seconds"])


def _spent(made: Mapping[str, Any]) -> tuple[float, float, float]:
    return made["seconds"], made["cost"]["cpu_seconds"], busy_seconds(made)


def _comparable(
    made: Mapping[str, Any], rows: int, smaller: tuple[int, Mapping[str, Any]] | None
) -> tuple[int, Mapping[str, Any]] | None:
    """The smaller sample of a stage, if both samples made all of it, and the smaller one had fewer rows."""
    if smaller is None or not (cost := smaller[1].get("cost")):
        return None
    # A stage that takes all rows at once counts 0 rows; part of another stage may have been made by an interrupted run.
    made_all = made["cost"]["rows"] in (0, rows) and cost["rows"] in (0, smaller[0])
    return smaller if 0 < smaller[0] < rows and made_all else None


def _starts(made: Mapping[str, Any], rows: int, smaller: tuple[int, Mapping[str, Any]]) -> tuple[float, float, float]:
    """The share of a stage's ``_spent`` that does not grow with its rows, from two samples."""
    pairs = zip(_spent(made), _spent(smaller[1]), strict=True)
    seconds, cpu, busy = (start_of(more, less, rows=rows, fewer=smaller[0]) for more, less in pairs)
    return seconds, cpu, busy


def _may_grow(stage: Stage) -> bool:
    """Whether one process reads all rows of the stage, or of another stage as well: it may keep something of each."""
    alone = stage.kind == "whole" or (stage.kind == "source" and stage.pieces is None)
    return alone or any(name != stage.after for name in stage.inputs())


def _peaks(cost: Mapping[str, Any]) -> tuple[int, int]:
    return cost["peak_bytes"], cost.get("worker_peak_bytes", 0)


def peaks_of(
    more: tuple[int, int], less: tuple[int, int], *, rows: int, fewer: int, factor: float
) -> tuple[tuple[int, int], bool]:
    """Estimate peak memory for ``factor`` times the rows from that of all processes and that of workers, 0 without any.

    Args:
        more: for ``rows`` rows.
        less: for ``fewer`` rows. If it differs no more than those of equal runs, or only one of the two had workers, the result
            is ``more``, and a lower bound.

    Returns:
        The peaks, and whether they are a lower bound.

    >>> found, at_least = peaks_of((300 << 20, 0), (150 << 20, 0), rows=40, fewer=10, factor=2)
    >>> found[0] >> 20, at_least  # 100 MiB, and 5 more for every row
    (500, False)
    >>> found, at_least = peaks_of((300 << 20, 0), (299 << 20, 0), rows=40, fewer=10, factor=2)
    >>> found[0] >> 20, at_least
    (300, True)
    """
    by_worker = more[1] > 0  # which alone reads the rows; the process of the run does not
    a, b = more[by_worker], less[by_worker]
    grows = (less[1] > 0) == by_worker and a - b > _CHANCE
    start = start_of(a, b, rows=rows, fewer=fewer) if grows else a
    peak = round(start + factor * (a - start))
    return (max(more[0], peak), peak if by_worker else 0), not grows


def start_of(more: float, less: float, *, rows: int, fewer: int) -> float:
    """The constant part of a cost that was ``more`` for ``rows`` rows and ``less`` for ``fewer`` rows.

    >>> start_of(5.0, 2.0, rows=40, fewer=10)  # 1 second, and 1 more for every 10 rows
    1.0
    """
    return min(max(0.0, less - (more - less) * fewer / (rows - fewer)), less)


def _bytes(artifact: Artifact, rows_in: float, rows_out: float) -> float:
    """Estimated size of the files: proportional to output rows, and for tables of rejects to rejected rows."""
    of_rejects = set(artifact.reject_files())
    rejected = sum(facts["size"] for name, facts in artifact.files().items() if name in of_rejects)
    kept = sum(facts["size"] for name, facts in artifact.files().items() if name not in of_rejects)
    lost = artifact.rows_in - artifact.rows
    return kept * rows_out / max(1, artifact.rows) + rejected * max(0.0, rows_in - rows_out) / max(1, lost)
