"""What making a stage costs: CPU time, memory, parts that were made twice; and what it would cost at another size.

Only ``made.json`` holds these figures, the one file that differs between equal runs.
"""

from __future__ import annotations

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
"""So many tasks of a stage tell what comes once, such as loading a model, from what comes again: the later half of them."""


@dataclasses.dataclass(frozen=True)
class Use:
    """Time, CPU time and memory of a process while it was at a task.

    Attributes:
        process: host and number.
        seconds: wall-clock time of the task.
        begin: its CPU seconds when the task began, children that have ended included.
        end: the same when it ended.
        peak_bytes: the most memory that the process has held until then; in one that makes a task at a time, during the task. 0
            in the process of the run.
    """

    process: tuple[str, int]
    seconds: float
    begin: float
    end: float
    peak_bytes: int

    @classmethod
    def since(cls, started: float, begin: float, peak: int = 0) -> Use:
        """What this process used since ``started`` by its clock, when it stood at ``begin`` CPU seconds."""
        return cls(_this_process(), time.perf_counter() - started, begin, cpu_seconds(), peak)


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def cpu_seconds() -> float:
    """CPU seconds of this process, its threads, and its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_bytes() -> int:
    """The most memory that this process has held since ``restart_peak``."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count that of the process which began this one, too
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) << 10
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


_peak_before = 0


def restart_peak() -> None:
    """Have ``peak_bytes`` count from here on, where the system permits it."""
    global _peak_before
    _peak_before = max(_peak_before, peak_bytes())
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes_of_all() -> int:
    """The most memory that this process has held at all: after ``restart_peak`` the system tells no more."""
    return max(_peak_before, peak_bytes())


class Meter:
    """Adds up, in the process of the run, what the tasks of one stage use here and in other processes.

    Args:
        alone: whether no other stage is made meanwhile: then all that this process uses is of this stage, not only its tasks.
    """

    def __init__(self, *, alone: bool = True) -> None:
        restart_peak()
        self._alone, self._began, self._cpu_began = alone, time.perf_counter(), cpu_seconds()
        self._first = self._ended = self._began
        self._of_tasks, self._peak = 0.0, 0
        self._last: dict[tuple[str, int], float] = {}
        self._marks: list[tuple[int, float, float]] = []
        self.retries = 0

    def add(self, use: Use) -> None:
        """Count in a task that has just ended. Tasks side by side in one process share its time: it is counted once."""
        self._ended = time.perf_counter()
        began = self._ended - use.seconds
        self._first = min(self._first, began) if self._last else began
        last = self._last.get(use.process, 0.0)
        if not self._alone or use.process != _this_process():
            self._of_tasks += max(0.0, use.end - max(use.begin, last))
        self._last[use.process] = max(last, use.end)
        self._peak = max(self._peak, use.peak_bytes)

    @property
    def seconds(self) -> float:
        """On the clock, so far; of a stage that is not alone, from the begin of its first task to the end of its last one."""
        return time.perf_counter() - self._began if self._alone else self._ended - self._first

    def mark(self, rows: int) -> None:
        """Note that a task has ended, which took in so many rows."""
        before = self._marks[-1][0] if self._marks else 0
        self._marks.append((before + rows, *self._spent()))

    def _spent(self) -> tuple[float, float]:
        return self.seconds, self._of_tasks + (cpu_seconds() - self._cpu_began if self._alone else 0.0)

    def cost(self) -> dict[str, Any]:
        """The record of a stage that has just been made.

        ``rows`` and ``tasks`` count what was made now, and not what an interrupted run left; ``retries`` how often a cluster
        lost a worker that was at a part, or tried one again since a machine failed at it; ``start_seconds`` and
        ``start_cpu_seconds`` are the share of its time that would not grow with the rows, 0 where too few tasks tell. The stage
        maker adds ``gpu``: whether the stage was made on GPUs.
        """
        seconds, cpu = self._spent()
        rows = self._marks[-1][0] if self._marks else 0
        start = (0.0, 0.0)
        if len(self._marks) >= _FEWEST_TASKS:
            before, *then = self._marks[len(self._marks) // 2 - 1]
            if rows > before:
                again = rows / (rows - before)
                start = tuple(max(0.0, at - (at - half) * again) for at, half in zip((seconds, cpu), then, strict=True))
        return {
            "rows": rows,
            "tasks": len(self._marks),
            "retries": self.retries,
            "cpu_seconds": round(cpu, 3),
            "peak_bytes": max(self._peak, peak_bytes()),
            "start_seconds": round(start[0], 3),
            "start_cpu_seconds": round(start[1], 3),
        }


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """What a stage would cost at another size.

    Attributes:
        stage: its name.
        rows_in: rows that would come in; those that come out, for a source.
        rows: rows that would come out.
        seconds: on the machine of the sample, with as many workers.
        cpu_seconds: of all its processes.
        gpu_seconds: ``seconds`` where the stage is made on GPUs, else 0.
        bytes: of its files.
        peak_bytes: the most memory that a process of the sample held; that of a stage which takes all rows at once may grow.
        sample_rows: rows that the sample took in.
        rough: whether the sample had too few parts to tell its start from its work: all of it counts as work.
    """

    stage: str
    rows_in: int
    rows: int
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    bytes: int
    peak_bytes: int
    sample_rows: int
    rough: bool


def estimates(
    planned: Sequence[tuple[Stage, Artifact | None]],
    made: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, int],
    smaller: Mapping[str, tuple[int, Mapping[str, Any]]] | None = None,
) -> list[CostEstimate]:
    """What the stages of a finished sample would cost with other numbers of rows.

    Time and bytes are taken to grow with the rows that come in, besides the time to start. A stage gives as many rows for one
    that comes in as it did in the sample, unless ``rows`` says how many it gives; a source that ``rows`` does not name gives
    as many as in the sample.

    Args:
        planned: the stages in order, with what the sample made.
        made: the ``made.json`` of each.
        rows: stage -> rows that come out of it.
        smaller: of a smaller sample, stage -> rows that it took in, and its ``made.json``. Where both samples made all of a
            stage, and the second took in fewer rows, the two tell the time to start from that of the work.

    Raises:
        PlanError: where a stage is not made, or its record does not say what it cost, or ``rows`` names no stage.
    """
    names = [stage.name for stage, _ in planned]
    if unknown := [name for name in rows if name not in names]:
        raise PlanError(f"no stage {unknown[0]!r} to estimate from: there are {', '.join(names)}")
    given: dict[str, float] = {}
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
        whole = sample_in / cost["rows"] if cost["rows"] else 1.0  # of the rows that were made in one go
        starts = _starts(made[stage.name], sample_in, (smaller or {}).get(stage.name))
        spent = made[stage.name]["seconds"], cost["cpu_seconds"]
        known = starts or (cost["start_seconds"], cost["start_cpu_seconds"])
        seconds, cpu = (
            start + factor * whole * max(0.0, all_of_it - start) for all_of_it, start in zip(spent, known, strict=True)
        )
        found.append(
            CostEstimate(
                stage=stage.name,
                rows_in=round(rows_in),
                rows=round(rows_out),
                seconds=seconds,
                cpu_seconds=cpu,
                gpu_seconds=seconds if needs_gpu(stage) else 0.0,
                bytes=round(_bytes(artifact, rows_in, rows_out)),
                peak_bytes=cost["peak_bytes"],
                sample_rows=sample_in,
                rough=starts is None and cost["tasks"] < _FEWEST_TASKS,
            )
        )
    return found


def _starts(made: Mapping[str, Any], rows: int, smaller: tuple[int, Mapping[str, Any]] | None) -> tuple[float, float] | None:
    """Seconds and CPU seconds that a stage took besides those that grow with its rows, by two samples; None if they do not
    tell.
    """
    if smaller is None or not (cost := smaller[1].get("cost")):
        return None
    fewer = smaller[0]
    # A stage that takes all rows at once counts none; others may have been made in part by a run that was interrupted.
    if not 0 < fewer < rows or made["cost"]["rows"] not in (0, rows) or cost["rows"] not in (0, fewer):
        return None
    pairs = (made["seconds"], smaller[1]["seconds"]), (made["cost"]["cpu_seconds"], cost["cpu_seconds"])
    first, second = (start_of(more, less, rows=rows, fewer=fewer) for more, less in pairs)
    return first, second


def start_of(more: float, less: float, *, rows: int, fewer: int) -> float:
    """The part that does not grow with the rows, of what ``rows`` and ``fewer`` of them took.

    >>> start_of(5.0, 2.0, rows=40, fewer=10)  # 1 second, and 1 more for every 10 rows
    1.0
    """
    return min(max(0.0, less - (more - less) * fewer / (rows - fewer)), less)


def _bytes(artifact: Artifact, rows_in: float, rows_out: float) -> float:
    """Files of rows grow with the rows that come out, those of rejects with the rows that do not."""
    of_rejects = set(artifact.reject_files())
    rejected = sum(facts["size"] for name, facts in artifact.files().items() if name in of_rejects)
    kept = sum(facts["size"] for name, facts in artifact.files().items() if name not in of_rejects)
    lost = artifact.rows_in - artifact.rows
    return kept * rows_out / max(1, artifact.rows) + rejected * max(0.0, rows_in - rows_out) / max(1, lost)
