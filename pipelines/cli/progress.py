"""Progress of a run: bars with rate and remaining time on a terminal, one plain line per stage elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from .text import on_one_line

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
                TimeRemainingColumn(elapsed_when_finished=True),
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
        if self._bars and progress.state == "stale":
            self._bars.console.print(progress_line(progress), markup=False, highlight=False, soft_wrap=True)
        elif self._bars:
            self._draw(self._bars, progress)
        elif progress.state != "running":
            print(progress_line(progress), file=sys.stderr, flush=True)

    def _draw(self, bars: Bars, progress: Progress) -> None:
        rate = f"{progress.rows / progress.seconds:,.0f} rows/s" if progress.seconds > 0.05 else ""
        rejects = f"{progress.rejects} rejects" if progress.rejects else ""
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = bars.add_task(progress.stage, total=progress.rows_total, rate=rate, rejects=rejects)
        if progress.state == "reused":
            rate = "reused"
        if progress.state == "waiting":
            rate = "waiting"
        total = progress.rows if progress.state in ("done", "reused") else progress.rows_total
        bars.update(self._tasks[progress.stage], completed=progress.rows, total=total, rate=rate, rejects=rejects)


@contextmanager
def checking() -> Iterator[Callable[[str], None]]:
    """Show on a terminal which stage is being checked; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("checking") as status:
        yield lambda stage: status.update(f"checking {stage}")


def progress_line(progress: Progress) -> str:
    """One line about a stage: place, name, rows, rejects, seconds, rate."""
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
    rate = f", {progress.rows / progress.seconds:,.0f} rows/s" if progress.seconds > 0.05 else ""
    return f"{text}, {progress.seconds:.1f} s{rate}"
