"""``python -m benchwright.datasets.demo_photos OUT --seed 0``"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .album import AlbumError, make_album


def main(arguments: list[str] | None = None) -> int:
    """Write an album. Return 0, or 1 with one line on stderr if a package is missing or the folder is in use."""
    parser = argparse.ArgumentParser(prog="benchwright.datasets.demo_photos", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write the album to")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--photos", type=int, default=960, help="number of good photos; broken ones are added")
    options = parser.parse_args(arguments)
    try:
        album = make_album(options.out, seed=options.seed, photos=options.photos)
    except AlbumError as error:
        print(f"demo_photos: {error}", file=sys.stderr)
        return 1
    print(f"{album.files} files in {album.photos_dir}, what they show in {album.csv}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
