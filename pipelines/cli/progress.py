"""Progress of a run: a plain line per finished stage and, on a terminal, bars with rate and remaining time for the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from .text import on_one_line, printed_bytes, printed_retries, printed_time

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from ...curation.run import Progress


class Teller:
    """Context manager whose ``tell`` is passed to a run as ``on_progress``. Writes to standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description:<12}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[rejects]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> Teller:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars:
            self._bars.stop()

    def tell(self, progress: Progress) -> None:
        """Display the progress of the run."""
        if self._quiet:
            return
        if self._bars:
            self._draw(self._bars, progress)
        elif progress.state != "running":
            print(progress_line(progress), file=sys.stderr, flush=True)

    def _draw(self, bars: Bars, progress: Progress) -> None:
        if progress.state != "running":
            if progress.stage in self._tasks:
                bars.remove_task(self._tasks.pop(progress.stage))
            bars.console.print(progress_line(progress), markup=False, highlight=False, soft_wrap=True)
            return
        rate = "" if progress.rows_per_s is None else f"{progress.rows_per_s:,.0f} rows/s"
        rejects = f"{progress.rejects} rejects" if progress.rejects else ""
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = bars.add_task(progress.stage, total=progress.rows_total, rate=rate, rejects=rejects)
        task, total = self._tasks[progress.stage], progress.rows_total
        bars.update(task, completed=progress.rows, total=total, rate=rate, rejects=rejects)


@contextmanager
def checking() -> Iterator[Callable[[str], None]]:
    """On a terminal, show which stage is being checked."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("checking") as status:
        yield lambda stage: status.update(f"checking {stage}")


def progress_line(progress: Progress) -> str:
    """One line about a stage: place, name, rows, rejects, seconds, rate, cost."""
    head = f"[{progress.index + 1}/{progress.stages}] {progress.stage}"
    if progress.state == "waiting":
        return f"{head}: waiting"
    if progress.state == "stale":
        return on_one_line(f"{head}: stale: {progress.why}")
    text = f"{head}: {progress.rows - progress.rejects} rows"
    if progress.rejects:
        text += f" of {progress.rows}, {progress.rejects} rejected"
    if progress.state == "reused":
        return f"{text}, reused"
    if progress.rows_before:
        text += f", {progress.rows_before} done before"
    rate = "" if progress.rows_per_s is None else f", {progress.rows_per_s:,.0f} rows/s"
    cost = _cost(progress)
    return f"{text}, {progress.seconds:.1f} s{rate}{cost and f', {cost}'}"


def _cost(progress: Progress) -> str:
    """CPU time, peak memory, size of the files, and retries if there were any; "" for a stage that was not run now."""
    if (cost := progress.cost) is None:
        return ""
    used = f"cpu {printed_time(cost['cpu_seconds'])}, memory {printed_bytes(cost['peak_bytes'])}"
    retries = f", {printed_retries(cost['retries'])}" if cost["retries"] else ""
    return f"{used}, files {printed_bytes(progress.bytes)}{retries}"
