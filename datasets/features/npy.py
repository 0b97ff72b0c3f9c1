"""Features in an .npy file, with their names in another; and .npy arrays on a stream, as the entries of an .npz file are."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...curation.npy import read_npy_head
from ...curation.streams import line_blocks
from .files import FeatureFile, Stretch, Values, even_stretches, fits, open_file, place_of, stamp, unread

MAX_BYTES_AT_ONCE = 1 << 29
"""Of values that are read in one go; who wants more reads fewer rows."""


def stretches(root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    """Rows of the array, which must be as many as its names."""
    sides = shape(place := place_of(root, file.path))
    count = row_count(sides, place)
    if len(_ids(root, file)) != count:
        raise ValueError(f"{place} has {count} rows, and {file.ids} names {len(_ids(root, file))}")
    return even_stretches(count, math.prod(sides[1:]), max_bytes)


def read_stretch(root: str, file: FeatureFile, stretch: Stretch, numbers: int | None) -> Values:
    """Rows with the names at their numbers."""
    with open_file(place := place_of(root, file.path)) as stream:
        values = read_rows(stream, place, _length(stream), stretch.start, stretch.stop, numbers)
    return list(zip(_ids(root, file)[stretch.start : stretch.stop], values, strict=True))


def _ids(root: str, file: FeatureFile) -> list[str]:
    if file.ids is None:
        raise ValueError(f"feature file {file.path!r}: an .npy file needs a file of names, `ids`")
    place = place_of(root, file.ids)
    return _read_ids(place, *stamp(place))


@functools.lru_cache(maxsize=1)
def _read_ids(place: str, size: int, modified: int) -> list[str]:
    """Names of a file. Kept for the next stretch of the same array; a file that has changed is read again."""
    if not place.endswith(".npy"):
        with open_file(place) as stream:
            blocks = line_blocks(stream, place, kind=None)
            return [line.decode("utf-8", "surrogateescape") for block in blocks for line in block]
    names = whole(place)
    if names.dtype.kind not in "US" or names.ndim != 1:
        raise ValueError(f"{place} holds {names.dtype} {names.shape}, where strings (n,) are wanted")
    return strings(names)


def strings(names: np.ndarray) -> list[str]:
    """Text; bytes that are not UTF-8, and numbers beyond Unicode, become half surrogate pairs, whose rows are rejected."""
    if names.dtype.kind == "U":
        native = names.dtype.newbyteorder("=")
        codes = np.ascontiguousarray(names, native).view(np.uint32)
        names = np.where(codes > sys.maxunicode, np.uint32(0xDC80), codes).view(native)
    return [name.decode(errors="surrogateescape") if isinstance(name, bytes) else str(name) for name in names.tolist()]


# --------------------------------------------------------------------------------------------------------- whole files


def shape(place: str) -> tuple[int, ...]:
    """Sides of the array of a file."""
    with open_file(place) as stream:
        return read_head(stream, place, _length(stream))[0]


def rows(place: str, start: int, stop: int) -> np.ndarray:
    """Rows [start, stop) of the array of a file."""
    with open_file(place) as stream:
        return read_rows(stream, place, _length(stream), start, stop)


def whole(place: str, numbers: int | None = None) -> np.ndarray:
    """The array of a file."""
    with open_file(place) as stream:
        return read_whole(stream, place, _length(stream), numbers)


def _length(stream: Any) -> int:
    """Bytes of a stream, which stands at its begin afterwards."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


# -------------------------------------------------------------------------------------------------- arrays on a stream


def read_head(stream: Any, place: str, size: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype, and where the values begin. ``stream`` stands there afterwards. The head's claim must be what ``size``,
    bytes of head and values, leaves for values: memory and loops over rows go by the shape."""
    try:
        shape, fortran, dtype, begin = read_npy_head(stream)
    except ValueError as error:
        raise ValueError(f"{place} is {error}") from None
    if dtype.hasobject or not dtype.itemsize or (fortran and len(shape) > 1):
        raise ValueError(f"{place}: {dtype} in {'columns' if fortran else 'rows'}; plain numbers, row after row, are wanted")
    if min(shape, default=0) < 0 or (0 in shape and max(shape) >= 1 << 48):
        raise ValueError(f"{place} has the shape {shape}, where sides of 0 and up are wanted")
    claimed, held = math.prod(shape) * dtype.itemsize, size - begin
    if claimed != held:
        raise ValueError(f"{place}: values {shape} of {dtype} are {claimed} bytes, and it holds {held}")
    stream.seek(begin)
    return shape, dtype, begin


def row_count(shape: tuple[int, ...], place: str) -> int:
    """The first side. Raises ``ValueError`` where there is none."""
    if not shape:
        raise ValueError(f"{place} is a single number, where rows are wanted")
    return shape[0]


def read_rows(stream: Any, place: str, size: int, start: int, stop: int, numbers: int | None = None) -> np.ndarray:
    """Rows [start, stop) of an array of ``size`` bytes, head and values, on a stream that can seek. Rows of another size than
    ``numbers`` are not read. Raises ``ValueError`` beyond ``MAX_BYTES_AT_ONCE``."""
    shape, dtype, begin = read_head(stream, place, size)
    row_count(shape, place)
    wanted = (stop - start, *shape[1:])
    if not fits(shape[1:], dtype, numbers):
        return unread(wanted, dtype)
    each = dtype.itemsize * math.prod(shape[1:])
    stream.seek(begin + start * each)
    return _array(stream, place, dtype, wanted)


def read_whole(stream: Any, place: str, size: int, numbers: int | None = None) -> np.ndarray:
    """An array of ``size`` bytes, head and values; one of another size than ``numbers`` is not read."""
    shape, dtype, _ = read_head(stream, place, size)
    return _array(stream, place, dtype, shape) if fits(shape, dtype, numbers) else unread(shape, dtype)


def _array(stream: Any, place: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The values that begin where ``stream`` stands."""
    size = math.prod(shape) * dtype.itemsize
    if size > MAX_BYTES_AT_ONCE:
        raise ValueError(
            f"{place}: values {shape} of {dtype} take {size:,} bytes: {MAX_BYTES_AT_ONCE:,} at most are read at once"
        )
    data = stream.read(size)
    if len(data) != size:
        raise ValueError(f"{place} ends after {len(data)} of {size} bytes of values {shape}")
    return np.frombuffer(data, dtype).reshape(shape)
