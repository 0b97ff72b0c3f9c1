"""Arrays in untrusted .npy and .npz files: the head is checked before any value is read, and rows are read with seeks."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np

from ...curation.npy import read_npy_head
from ...curation.zips import open_zip
from .files import fits, open_file, place_of, unread

MAX_BYTES_AT_ONCE = 1 << 29
"""Maximum size of the values in one read; to read more, read fewer rows at a time."""


class StoredArray:
    """An array on a seekable stream. The shape in its head must match ``size``, the number of bytes of head and values, because
    memory and loops over rows depend on the shape.

    Args:
        origin: position in the stream at which the array begins.
    """

    def __init__(self, stream: Any, place: str, size: int, origin: int = 0) -> None:
        stream.seek(origin)
        try:
            self.shape, fortran, self.dtype, begin = read_npy_head(stream)
        except ValueError as error:
            raise ValueError(f"{place} is {error}") from None
        shape, dtype = self.shape, self.dtype
        if dtype.hasobject or not dtype.itemsize or (fortran and len(shape) > 1):
            raise ValueError(f"{place}: {dtype} in {'columns' if fortran else 'rows'}; expected plain numbers, row after row")
        if min(shape, default=0) < 0 or (0 in shape and max(shape) >= 1 << 48):
            raise ValueError(f"{place} has the shape {shape}, expected sides of 0 and up")
        claimed, held = math.prod(shape) * dtype.itemsize, size - begin
        if claimed != held:
            raise ValueError(f"{place}: values {shape} of {dtype} are {claimed} bytes, and it holds {held}")
        self._stream, self._place, self._begin = stream, place, origin + begin

    @property
    def count(self) -> int:
        """Number of rows. Raises ``ValueError`` if the array is a single number."""
        if not self.shape:
            raise ValueError(f"{self._place} is a single number, expected rows")
        return self.shape[0]

    def rows(self, start: int, stop: int, numbers: int | None = None) -> np.ndarray:
        """Rows [start, stop). If a row does not have ``numbers`` numbers, they are not read but returned as ``files.unread``.
        Raises ``ValueError`` beyond ``MAX_BYTES_AT_ONCE``."""
        wanted = (min(stop, self.count) - start, *self.shape[1:])
        offset = start * self.dtype.itemsize * math.prod(wanted[1:])
        return self._read(offset, wanted, fits(wanted[1:], self.dtype, numbers))

    def whole(self, numbers: int | None = None) -> np.ndarray:
        """The whole array, read only if it has ``numbers`` numbers. Raises ``ValueError`` like ``rows``."""
        return self._read(0, self.shape, fits(self.shape, self.dtype, numbers))

    def _read(self, offset: int, shape: tuple[int, ...], wanted: bool) -> np.ndarray:
        if not wanted:
            return unread(shape, self.dtype)
        size = math.prod(shape) * self.dtype.itemsize
        if size > MAX_BYTES_AT_ONCE:
            message = f"values {shape} of {self.dtype} take {size:,} bytes"
            raise ValueError(f"{self._place}: {message}: {MAX_BYTES_AT_ONCE:,} at most are allowed at once")
        self._stream.seek(self._begin + offset)
        data = self._stream.read(size)
        if len(data) != size:
            raise ValueError(f"{self._place} ends after {len(data)} of {size} bytes of values {shape}")
        return np.frombuffer(data, self.dtype).reshape(shape)


@dataclass(frozen=True)
class Arrays:
    """The arrays of an open file by name; the array of an .npy file has the name "". ``get`` checks the head of an array, which
    can be read until the file is closed."""

    names: list[str]
    get: Callable[[str], StoredArray]


@contextlib.contextmanager
def open_arrays(place: str, *, by_rows: bool = True) -> Iterator[Arrays]:
    """The arrays of an .npz file, or of an .npy file.

    Args:
        by_rows: read uncompressed members of an .npz file with seeks; ``zipfile`` would read everything that is skipped. If
            False, arrays are read whole through ``zipfile``, which checks their checksums.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged archive, or one that holds anything but arrays.
    """
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open_file(place))
        if not place.endswith(".npz"):
            yield Arrays([""], lambda _: StoredArray(stream, place, stream.seek(0, os.SEEK_END)))
            return
        archive = stack.enter_context(open_zip(stream, place, "npz file"))
        members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in members:
                raise ValueError(f"{place} holds {info.filename!r}, expected only arrays (.npy), with different names")
            members[name] = info

        def get(name: str) -> StoredArray:
            info, named = members[name], f"{place}, {name}"
            if info.compress_type != zipfile.ZIP_STORED or not by_rows:
                return StoredArray(archive.open(info), named, info.file_size)
            plain = cast("IO[bytes]", archive.fp)
            plain.seek(info.header_offset + 26)
            lengths = np.frombuffer(plain.read(4), "<u2").tolist()  # lengths of the name and of the extra fields that follow
            return StoredArray(plain, named, info.file_size, info.header_offset + 30 + sum(lengths))

        yield Arrays(list(members), get)


def read_whole(place: str, numbers: int | None = None) -> np.ndarray:
    """The array of an .npy file; see ``StoredArray.whole``."""
    with open_arrays(place) as arrays:
        return arrays.get("").whole(numbers)


def array_shapes(root: str, path: str) -> dict[str, tuple[int, ...]]:
    """Shape of every array of an .npz file by entry, or of an .npy file by "". Raises as ``open_arrays`` does."""
    with open_arrays(place_of(root, path)) as arrays:
        return {name: arrays.get(name).shape for name in arrays.names}


def array_rows(root: str, path: str, entry: str, start: int, stop: int) -> np.ndarray:
    """Rows [start, stop) of an array of ``array_shapes``, read with a seek if it is not compressed.

    Raises:
        ValueError: a damaged file, or rows of more than ``MAX_BYTES_AT_ONCE`` together.
    """
    with open_arrays(place_of(root, path)) as arrays:
        return arrays.get(entry).rows(start, stop)


def strings(names: np.ndarray) -> list[str]:
    """Names as text; bytes that are not UTF-8, and numbers beyond Unicode, become lone surrogates, whose rows are rejected."""
    if names.dtype.kind == "U":
        native = names.dtype.newbyteorder("=")
        codes = np.ascontiguousarray(names, native).view(np.uint32)
        names = np.where(codes > sys.maxunicode, np.uint32(0xDC80), codes).view(native)
    return [name.decode(errors="surrogateescape") if isinstance(name, bytes) else str(name) for name in names.tolist()]
