"""Files of feature tensors, read in stretches. No code is ever unpickled: numpy reads without pickle, torch with
``weights_only=True``.

A stretch is read with seeks, so that a worker holds only the stretch, whatever the size of the file. Two forms cost more:
a compressed npz is decompressed up to the stretch each time, and a torch file that is not local, or has torch's old format,
is loaded whole.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import fsspec
import numpy as np

from ...curation.bounded_reading import line_blocks
from . import parquet, torch_files
from .arrays import open_arrays, read_whole, strings
from .files import FeatureFile, Stretch, Values, open_file, place_of, stamp

MAX_FILES = 1 << 10
"""Maximum number of files of a folder in one stretch."""

_MAX_SAMPLES = 1 << 16  # in a stretch, whatever their size: each becomes a row or a reject
_FLOAT32 = 4


@dataclass(frozen=True)
class _Samples:
    """An open file: number of samples, size of the first one in numbers, and a function that reads a range of samples."""

    count: int
    numbers: int
    read: Callable[[int, int, int | None], Values]


def stretches(root: str, file: FeatureFile, *, max_bytes: int) -> Iterator[Stretch]:
    """Split a file into stretches of about ``max_bytes`` of features and at most 65,536 samples, and a folder into stretches of
    ``MAX_FILES`` files. Features are counted as float32 and with the size of the first one; those of Parquet as stored.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        ValueError: the content of the file does not match its ending.
    """
    if file.path.endswith(".parquet"):
        yield from parquet.stretches(root, file, max_bytes)
    elif opened := _opened(root, file):
        with opened as samples:
            count = samples.count
            step = min(max(1, max_bytes // max(_FLOAT32 * samples.numbers, 1)), _MAX_SAMPLES)
        for start in range(0, count, step):
            yield Stretch(start, min(start + step, count), start)
    else:
        names = _files_below(place_of(root, file.path))
        for start in range(0, len(names), MAX_FILES):
            some = names[start : start + MAX_FILES]
            yield Stretch(start, start + len(some), start, tuple(some))


def read_stretch(root: str, file: FeatureFile, stretch: Stretch, *, numbers: int | None = None) -> Values:
    """Names and tensors of one stretch, in the order of the file.

    Args:
        root, file, stretch: arguments and result of ``stretches``.
        numbers: expected size of a tensor in numbers. For others only shape and dtype are returned (``files.unread``), without
            memory for the values: a few bytes can claim gigabytes.

    Raises:
        ValueError: like ``stretches``.
    """
    if file.path.endswith(".parquet"):
        return parquet.read_stretch(root, file, stretch, numbers)
    if opened := _opened(root, file):
        with opened as samples:
            return list(samples.read(stretch.start, stretch.stop, numbers))
    place = place_of(root, file.path)
    return [(os.path.splitext(posixpath.basename(name))[0], _read_one(f"{place}/{name}", numbers)) for name in stretch.names]


def _opened(root: str, file: FeatureFile) -> AbstractContextManager[_Samples] | None:
    for endings, samples in _FORMATS.items():
        if file.path.endswith(endings):
            return samples(root, file)
    return None


@contextlib.contextmanager
def _npy(root: str, file: FeatureFile) -> Iterator[_Samples]:
    with open_arrays(place := place_of(root, file.path)) as arrays:
        array = arrays.get("")
        if file.ids is None:
            raise ValueError(f"feature file {file.path!r}: an .npy file needs a file of names, `ids`")
        names = _read_ids(ids := place_of(root, file.ids), *stamp(ids))
        if len(names) != array.count:
            raise ValueError(f"{place} has {array.count} rows, and {file.ids} names {len(names)}")

        def read(start: int, stop: int, numbers: int | None) -> Values:
            return zip(names[start:stop], array.rows(start, stop, numbers), strict=True)

        yield _Samples(array.count, math.prod(array.shape[1:]), read)


@functools.lru_cache(maxsize=1)
def _read_ids(place: str, size: int, modified: int) -> list[str]:
    """Names in a file, cached for the next stretch of the same array; a file that has changed is read again."""
    if not place.endswith(".npy"):
        with open_file(place) as stream:
            blocks = line_blocks(stream, place, kind=None)
            return [line.decode("utf-8", "surrogateescape") for block in blocks for line in block]
    names = read_whole(place)
    if names.dtype.kind not in "US" or names.ndim != 1:
        raise ValueError(f"{place} holds {names.dtype} {names.shape}, expected strings (n,)")
    return strings(names)


@contextlib.contextmanager
def _npz(root: str, file: FeatureFile) -> Iterator[_Samples]:
    place = place_of(root, file.path)
    with open_arrays(place) as arrays:
        if file.stacked(arrays.names):
            uids, features = arrays.get(file.uid), arrays.get(file.feature)
            count = features.count
            if uids.shape != (count,):
                message = f"{file.feature} has {count} rows and {file.uid} the shape {uids.shape}"
                raise ValueError(f"{place}: {message}, expected ({count},)")

            def read(start: int, stop: int, numbers: int | None) -> Values:
                return zip(strings(uids.rows(start, stop)), features.rows(start, stop, numbers), strict=True)

            yield _Samples(count, math.prod(features.shape[1:]), read)
            return
    with open_arrays(place, by_rows=False) as arrays:

        def read_entries(start: int, stop: int, numbers: int | None) -> Values:
            return ((posixpath.basename(name), arrays.get(name).whole(numbers)) for name in arrays.names[start:stop])

        yield _Samples(len(arrays.names), math.prod(arrays.get(arrays.names[0]).shape) if arrays.names else 0, read_entries)


@contextlib.contextmanager
def _torch(root: str, file: FeatureFile) -> Iterator[_Samples]:
    place = place_of(root, file.path)
    names, tensors = torch_files.read_tensors(place, file)

    def read(start: int, stop: int, numbers: int | None) -> Values:
        return (
            (posixpath.basename(names[n]), torch_files.as_array(tensors[n], f"{place}, {names[n]}", numbers))
            for n in range(start, stop)
        )

    yield _Samples(len(names), torch_files.plain(tensors[0], f"{place}, {names[0]}").numel() if names else 0, read)


_FORMATS = {".npy": _npy, ".npz": _npz, (".pt", ".pth"): _torch}
_OF_ONE = {".npy": read_whole, ".pt": torch_files.read_whole, ".pth": torch_files.read_whole}


def _files_below(place: str) -> list[str]:
    fs, folder = fsspec.core.url_to_fs(place)
    if not fs.isdir(folder):
        raise FileNotFoundError(f"folder of features {place} is not there")
    found = [path[len(folder.rstrip("/")) + 1 :] for path in fs.find(folder)]
    return sorted(name for name in found if name.endswith(tuple(_OF_ONE)))


def _read_one(place: str, numbers: int | None) -> np.ndarray:
    return _OF_ONE[os.path.splitext(place)[1]](place, numbers)
