"""What the engine adds to the demo: its stages up to the vectors, which take nearly all of its time, and the bare functions.

Both run on one thread, in turn, in one process, after a warm-up that loads the model.

    python benchmarks/bench_demo.py [--photos 960] [--repeats 3] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchwright.curation.flow import Flow
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.run import run
from benchwright.curation.stages.embed import Pictured, embed_images
from benchwright.curation.stages.image_sources import folder_pieces, read_folder
from benchwright.curation.stages.images import StoredImage, check_image
from benchwright.datasets.demo_photos.album import make_album
from benchwright.pipelines import api

LAST = "embedded"


def plan_of(album: Path, out: str) -> Flow:
    """The demo's plan up to the vectors."""
    settings = [f"source.root={album / 'photos'}", f"source.dates_csv={album / 'albums.csv'}"]
    stages = api.job("clear", config="demo", overrides=settings).flow(out).stages
    names = [stage.name for stage in stages]
    return Flow(stages[: names.index(LAST) + 1])


def bare(album: Path, flow: Flow) -> int:
    """The same functions in plain loops, everything in memory, nothing written."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=960)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="120 photos, once")
    options = parser.parse_args()
    if options.quick:
        options.photos, options.repeats = 120, 1
    with tempfile.TemporaryDirectory() as scratch:
        album = Path(scratch) / "album"
        make_album(album, seed=0, photos=options.photos)
        flow = plan_of(album, f"{scratch}/none")
        bare(album, flow)
        times: dict[str, list[float]] = {"bare": [], "engine": []}
        for repeat in range(options.repeats):
            started = time.perf_counter()
            count = bare(album, flow)
            times["bare"].append(time.perf_counter() - started)
            started = time.perf_counter()
            rows = run(plan_of(album, f"{scratch}/{repeat}"), f"{scratch}/{repeat}", scheduler="sync").result.rows
            times["engine"].append(time.perf_counter() - started)
        low, high = (statistics.median(times[name]) for name in ("bare", "engine"))
        print(f"{options.photos} photos to vectors, one thread, median of {options.repeats}: {count} and {rows} rows")
        print(f"  bare functions {low:7.2f} s\n  engine         {high:7.2f} s   ratio {high / low:.3f}")


if __name__ == "__main__":
    main()
