"""Folders of one file a sample, which is named by it, sub-folders included."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator

import fsspec
import numpy as np

from . import npy, torch_files
from .files import FeatureFile, Stretch, Values, place_of

MAX_FILES = 1 << 10
"""Files of one stretch."""

_READERS: dict[str, Callable[[str, int | None], np.ndarray]] = {
    ".npy": npy.whole,
    ".pt": torch_files.whole,
    ".pth": torch_files.whole,
}


def stretches(root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    """Numbers of files, whatever their sizes."""
    names = _files_below(place_of(root, file.path))
    for start in range(0, len(names), MAX_FILES):
        some = names[start : start + MAX_FILES]
        yield Stretch(start, start + len(some), start, tuple(some))


def read_stretch(root: str, file: FeatureFile, stretch: Stretch, numbers: int | None) -> Values:
    """One tensor a file."""
    place = place_of(root, file.path)
    return [(os.path.splitext(posixpath.basename(name))[0], _read(f"{place}/{name}", numbers)) for name in stretch.names]


def _files_below(place: str) -> list[str]:
    fs, folder = fsspec.core.url_to_fs(place)
    if not fs.isdir(folder):
        raise FileNotFoundError(f"folder of features {place} is not there")
    found = [path[len(folder.rstrip("/")) + 1 :] for path in fs.find(folder)]
    return sorted(name for name in found if name.endswith(tuple(_READERS)))


def _read(place: str, numbers: int | None) -> np.ndarray:
    return next(read for ending, read in _READERS.items() if place.endswith(ending))(place, numbers)
