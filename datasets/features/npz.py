"""Features in an .npz file: an array of them and one of their names, or an entry a sample."""

from __future__ import annotations

import contextlib
import math
import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast

import numpy as np

from ...curation.zips import open_zip
from .files import FeatureFile, Stretch, Values, even_stretches, open_file, place_of
from .npy import read_head, read_rows, read_whole, row_count, strings


def stretches(root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    """Rows of the array; or entries, which count as the first one does."""
    return even_stretches(*_size(place_of(root, file.path), file), max_bytes)


def _size(place: str, file: FeatureFile) -> tuple[int, int]:
    """How many samples, and how many numbers one has."""
    with _zip(place) as archive:
        members = _members(archive, place)
        if not members:
            return 0, 0
        if not file.stacked(members):
            return len(members), math.prod(_shape(archive, members, next(iter(members)), place))
        names, shape = (_shape(archive, members, entry, place) for entry in (file.uid, file.feature))
    count = row_count(shape, f"{place}, {file.feature}")
    if names != (count,):
        raise ValueError(
            f"{place}: {file.feature} has {count} rows and {file.uid} the shape {names}, where ({count},) is wanted"
        )
    return count, math.prod(shape[1:])


def read_stretch(root: str, file: FeatureFile, stretch: Stretch, numbers: int | None) -> Values:
    """Rows of both arrays; or entries in the order of the archive."""
    with _zip(place := place_of(root, file.path)) as archive:
        members = _members(archive, place)
        if not file.stacked(members):
            found: Values = []
            for name in list(members)[stretch.start : stretch.stop]:
                with archive.open(members[name]) as member:
                    values = read_whole(member, f"{place}, {name}", members[name].file_size, numbers)
                found.append((posixpath.basename(name), values))
            return found
        names = strings(_rows(archive, members, file.uid, place, stretch.start, stretch.stop))
        values = _rows(archive, members, file.feature, place, stretch.start, stretch.stop, numbers)
        return list(zip(names, values, strict=True))


def shapes(place: str) -> dict[str, tuple[int, ...]]:
    """Shape of every array by its entry."""
    with _zip(place) as archive:
        members = _members(archive, place)
        return {entry: _shape(archive, members, entry, place) for entry in members}


def rows(place: str, entry: str, start: int, stop: int) -> np.ndarray:
    """Rows [start, stop) of one array."""
    with _zip(place) as archive:
        return _rows(archive, _members(archive, place), entry, place, start, stop)


@contextlib.contextmanager
def _zip(place: str) -> Iterator[zipfile.ZipFile]:
    with open_file(place) as stream, open_zip(stream, place, "npz file") as archive:
        yield archive


def _members(archive: zipfile.ZipFile, place: str) -> dict[str, zipfile.ZipInfo]:
    """Arrays by name. Raises ``ValueError`` where the archive holds anything else."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename or name in found:
            raise ValueError(f"{place} holds {info.filename!r}, where arrays (.npy) of different names are wanted alone")
        found[name] = info
    return found


def _shape(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], entry: str, place: str) -> tuple[int, ...]:
    with archive.open(members[entry]) as member:
        return read_head(member, f"{place}, {entry}", members[entry].file_size)[0]


def _rows(
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    entry: str,
    place: str,
    start: int,
    stop: int,
    numbers: int | None = None,
) -> np.ndarray:
    info = members[entry]
    with _member(archive, info) as member:
        return read_rows(member, f"{place}, {entry}", info.file_size, start, stop, numbers)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """A member to be read with seeks, which ``zipfile`` makes by reading all that is skipped: not where nothing is packed."""
    if info.compress_type != zipfile.ZIP_STORED:
        return archive.open(info)
    stream = cast("IO[bytes]", archive.fp)
    stream.seek(info.header_offset + 26)
    name, extra = np.frombuffer(stream.read(4), "<u2").tolist()
    return _Window(stream, info.header_offset + 30 + name + extra)


class _Window:
    """What lies from ``begin`` on in a stream, with positions of its own. Closing it leaves the stream open."""

    def __init__(self, stream: IO[bytes], begin: int) -> None:
        self._stream, self._begin = stream, begin
        stream.seek(begin)

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(size)

    def seek(self, offset: int) -> None:
        self._stream.seek(self._begin + offset)

    def tell(self) -> int:
        return self._stream.tell() - self._begin

    def __enter__(self) -> _Window:
        return self

    def __exit__(self, *_: object) -> None:
        return None
