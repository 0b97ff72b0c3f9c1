"""The demo: build a benchmark from an album of dated photos, with the commands that a user would run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import api
from .cli.progress import Teller
from .cli.text import score_lines

SEED = 0


def run_demo(
    out: str, *, photos: int = 960, scheduler: str = "threads", workers: int | None = None, quiet: bool = False
) -> str:
    """Create the album, run the pipeline on it, train the baselines, write the report. Resumes if interrupted.

    Args:
        out: local folder; ``album`` and ``run`` are created in it.
        photos: size of the album, without the broken files.
        scheduler: as for ``api.run``.
        workers: as for ``api.run``.
        quiet: print only the path of the report.

    Returns:
        Path of the report.
    """
    from ..datasets.demo_photos.album import make_album

    def say(line: str) -> None:
        if not quiet:
            print(f"\n$ {line}", file=sys.stderr, flush=True)

    album, folder = Path(out) / "album", str(Path(out) / "run")
    say(f"python -m benchwright.datasets.demo_photos {album} --seed {SEED} --photos {photos}")
    if not album_is_whole(album, photos):
        make_album(album, seed=SEED, photos=photos)
    settings = [f"source.root={album / 'photos'}", f"source.dates_csv={album / 'albums.csv'}"]
    say(f"benchwright run clear --config demo --set {settings[0]} --set {settings[1]} --out {folder}")
    todo = api.job("clear", config="demo", overrides=settings)
    with Teller(quiet=quiet) as teller:
        api.run(todo, folder, scheduler=scheduler, workers=workers, on_progress=teller.tell)
    say(f"benchwright train {folder}")
    scores = api.train(folder)
    if not quiet:
        print("\n".join(score_lines(scores)), file=sys.stderr, flush=True)
    say(f"benchwright report {folder}")
    path = api.report(folder)
    print(f"Report: {Path(path).resolve()}")
    return path


def album_is_whole(album: Path, photos: int) -> bool:
    """Whether a complete album of this seed and size exists: its parameters are written last."""
    listed = album / "album.json"
    if not listed.is_file():
        return False
    made = json.loads(listed.read_text())
    return made.get("seed") == SEED and made.get("photos") == photos
