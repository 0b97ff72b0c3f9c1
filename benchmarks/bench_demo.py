"""Where the demo's time goes: its phases and stages, by the clock and by processor time of this process and its children.

Imports count where they happen, as for a user; the rest of ``make demo`` is Python's start. With ``--engine`` instead what the
engine adds: the stages up to the vectors beside the bare functions, on one thread, in turn, after a warm-up that loads models.

    python benchmarks/bench_demo.py [--photos 960] [--engine] [--repeats 3] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchwright.curation.flow import Flow

LAST = "embedded"


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Print what the body took."""
    began, before = time.perf_counter(), sum(os.times()[:4])
    yield
    print(
        f"  {name:28}{time.perf_counter() - began:8.1f} s {sum(os.times()[:4]) - before:8.1f} s of processor time", flush=True
    )


def phases(folder: Path, photos: int) -> None:
    """The demo's phases, as ``pipelines/demo.py`` has them, and the stages of its run."""
    with timed("all"):
        with timed("album"):
            from benchwright.datasets.demo_photos.album import make_album

            make_album(folder / "album", seed=0, photos=photos)
        with timed("imports, settings, plan"):
            from benchwright.curation.artifact import load_made
            from benchwright.pipelines import api

            todo = api.job("clear", config="demo", overrides=settings_of(folder / "album"))
        with timed("run"):
            store = api.run(todo, str(folder / "run"), scheduler="threads").store
        with timed("train"):
            api.train(str(folder / "run"))
        with timed("report"):
            api.report(str(folder / "run"))
    made = {stage.name: load_made(store, stage.name) for stage in todo.flow(str(folder / "run")).stages}
    for name, each in sorted(made.items(), key=lambda pair: -pair[1]["seconds"]):
        print(f"    stage {name:22}{each['seconds']:8.1f} s {each['cost']['cpu_seconds']:8.1f} s of processor time")


def settings_of(album: Path) -> list[str]:
    return [f"source.root={album / 'photos'}", f"source.dates_csv={album / 'albums.csv'}"]


def plan_of(album: Path, out: str) -> Flow:
    """The demo's plan up to the vectors."""
    from benchwright.curation.flow import Flow
    from benchwright.pipelines import api

    stages = api.job("clear", config="demo", overrides=settings_of(album)).flow(out).stages
    names = [stage.name for stage in stages]
    return Flow(stages[: names.index(LAST) + 1])


def bare(album: Path, flow: Flow) -> int:
    """The same functions in plain loops, everything in memory, nothing written."""
    from benchwright.curation.rows import Reject, Rejected
    from benchwright.curation.stages.embed import Pictured, embed_images
    from benchwright.curation.stages.image_sources import folder_pieces, read_folder
    from benchwright.curation.stages.images import StoredImage, check_image

    root, dates = str(album / "photos"), str(album / "albums.csv")
    rows = []
    for piece in folder_pieces(root=root, dates_csv=dates):
        rows += [row for row in read_folder(piece, root=root, source_name="demo") if not isinstance(row, Rejected)]
    checked = []
    for row in rows:
        try:
            checked.append(check_image(StoredImage(row.key, row.extension, row.image)))
        except Reject:
            continue
    encoder = flow.stage(LAST).step.all_settings()["encoder"]
    done = embed_images([Pictured(row.key, row.image) for row in checked], encoder=encoder)
    return sum(not isinstance(row, Rejected) for row in done)


def engine(folder: Path, photos: int, repeats: int) -> None:
    """Print the times of the bare functions and of the engine."""
    from benchwright.curation.run import run
    from benchwright.datasets.demo_photos.album import make_album

    album = folder / "album"
    make_album(album, seed=0, photos=photos)
    flow = plan_of(album, f"{folder}/none")
    bare(album, flow)
    times: dict[str, list[float]] = {"bare": [], "engine": []}
    for repeat in range(repeats):
        started = time.perf_counter()
        count = bare(album, flow)
        times["bare"].append(time.perf_counter() - started)
        started = time.perf_counter()
        rows = run(plan_of(album, f"{folder}/{repeat}"), f"{folder}/{repeat}", scheduler="sync").result.rows
        times["engine"].append(time.perf_counter() - started)
    low, high = (statistics.median(times[name]) for name in ("bare", "engine"))
    print(f"{photos} photos to vectors, one thread, median of {repeats}: {count} and {rows} rows")
    print(f"  bare functions {low:7.2f} s\n  engine         {high:7.2f} s   ratio {high / low:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=960)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="120 photos, once")
    options = parser.parse_args()
    if options.quick:
        options.photos, options.repeats = 120, 1
    with tempfile.TemporaryDirectory() as scratch:
        if options.engine:
            engine(Path(scratch), options.photos, options.repeats)
        else:
            phases(Path(scratch), options.photos)


if __name__ == "__main__":
    main()
