"""Files of feature tensors, read stretch by stretch: Parquet, npz, npy with ids beside it, torch, and folders of one file a
sample. Nothing is ever unpickled as code: numpy reads without pickle, torch with ``weights_only=True``.

A stretch is read with seeks, so that what a worker holds is the stretch, whatever the size of the file. Two forms cost more:
a compressed npz is decompressed up to the stretch each time, and a torch file that is not local, or has torch's old format,
is loaded whole.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import posixpath
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TORCH = (".pt", ".pth")
_FLOAT32 = 4
_HEAD_BYTES = 1 << 14  # numpy's own limit of an array's head is 10,000
SINGLE = (".npy", *TORCH)
"""Endings of the files of a folder with one file a sample."""

Values = list[tuple[str, np.ndarray]]
"""Names with their tensors, as stored."""


@dataclass(frozen=True)
class FeatureFile:
    """One file, or one folder.

    By the ending of ``path``:

    * ``.parquet``: a column of names and a column of lists, rows in any number of row groups;
    * ``.npz`` and ``.pt``, ``.pth``: an array ``feature`` (n, ...) and the names ``uid`` (n,); or, where there are no two such
      entries, one entry a sample, which is named by it;
    * ``.npy``: an array (n, ...), with the names in the file ``ids``;
    * anything else: a folder with one ``.npy``, ``.pt`` or ``.pth`` file a sample, named by it, sub-folders included.

    Attributes:
        path: relative to the folder of features, with ``/``; ``.`` is the folder itself.
        ids: of a ``.npy`` file: names, one a line, or a ``.npy`` file of strings.
        uid: column or entry of the names.
        feature: column or entry of the tensors.
    """

    path: str
    ids: str | None = None
    uid: str = "uid"
    feature: str = "feature"


@dataclass(frozen=True)
class Stretch:
    """Samples [start, stop) of a file; of a folder the named files. Of a Parquet file ``start`` and ``stop`` are row
    groups. ``first`` is the number of the first sample in the whole file or folder."""

    start: int
    stop: int
    first: int
    names: tuple[str, ...] = ()


def stretches(root: str, file: FeatureFile, *, max_bytes: int, max_files: int) -> Iterator[Stretch]:
    """How to read a file in pieces of about ``max_bytes`` of features, or ``max_files`` files of a folder. Features count as
    float32; those of a Parquet file as they are stored.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a file that does not hold what its ending promises.
    """
    place = _place(root, file.path)
    if file.path.endswith(".parquet"):
        yield from _parquet_groups(place, file, max_bytes)
    elif file.path.endswith((".npz", ".npy", *TORCH)):
        n, each = _size(place, root, file)
        step = max(1, max_bytes // max(each, 1))
        for start in range(0, n, step):
            yield Stretch(start, min(start + step, n), start)
    else:
        names = _files_below(place)
        for start in range(0, len(names), max_files):
            some = names[start : start + max_files]
            yield Stretch(start, start + len(some), start, tuple(some))


def read_stretch(root: str, file: FeatureFile, stretch: Stretch) -> Values:
    """Names and tensors of one stretch, in the order of the file. Raises ``ValueError`` like ``stretches``."""
    place = _place(root, file.path)
    if file.path.endswith(".parquet"):
        return _read_parquet(place, file, stretch)
    if file.path.endswith(".npz"):
        return _read_npz(place, file, stretch)
    if file.path.endswith(".npy"):
        with _open(place) as stream:
            values = _rows_of_npy(stream, place, _length(stream), stretch.start, stretch.stop)
        return list(zip(_ids(root, file)[stretch.start : stretch.stop], values, strict=True))
    if file.path.endswith(TORCH):
        return _read_torch(place, file, stretch)
    return [(os.path.splitext(posixpath.basename(name))[0], _single(f"{place}/{name}")) for name in stretch.names]


def _place(root: str, path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"feature file {path!r}: a path within {root} is wanted")
    return root.rstrip("/") if path == "." else f"{root.rstrip('/')}/{path}"


def _open(place: str) -> Any:
    fs, path = fsspec.core.url_to_fs(place)
    if not fs.isfile(path):
        raise FileNotFoundError(f"feature file {place} is not there")
    return fs.open(path, "rb")


def _length(stream: Any) -> int:
    """Bytes of a stream, which stands at its begin afterwards."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def _files_below(place: str) -> list[str]:
    fs, folder = fsspec.core.url_to_fs(place)
    if not fs.isdir(folder):
        raise FileNotFoundError(f"folder of features {place} is not there")
    found = [path[len(folder.rstrip("/")) + 1 :] for path in fs.find(folder)]
    return sorted(name for name in found if name.endswith(SINGLE))


def _size(place: str, root: str, file: FeatureFile) -> tuple[int, int]:
    """Number of samples, and bytes of one as float32 (of the first, where each has an entry of its own)."""
    if file.path.endswith(".npy"):
        with _open(place) as stream:
            shape = _npy_head(stream, place, _length(stream))[0]
        rows = _count(shape, place)
        if len(_ids(root, file)) != rows:
            raise ValueError(f"{place} has {rows} rows, and {file.ids} names {len(_ids(root, file))}")
        return rows, _FLOAT32 * math.prod(shape[1:])
    if file.path.endswith(".npz"):
        return _size_of_npz(place, file)
    names, tensors = _torch(place, file)
    return len(names), _FLOAT32 * _numbers(tensors[0], f"{place}, {names[0]}").size if names else 0


# ------------------------------------------------------------------------------------------------------------- parquet


def _parquet_groups(place: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    with _open(place) as stream:
        found = _parquet(stream, place, file)
        groups = [found.metadata.row_group(n) for n in range(found.metadata.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
    start = first = rows = held = 0
    for n, (count, size) in enumerate(sizes):
        if held and held + size > max_bytes:
            yield Stretch(start, n, first)
            start, first, held = n, rows, 0
        rows, held = rows + count, held + size
    if sizes:
        yield Stretch(start, len(sizes), first)


def _parquet(stream: IO[bytes], place: str, file: FeatureFile) -> pq.ParquetFile:
    try:
        found = pq.ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{place} is no Parquet file: {error}") from None
    for name in (file.uid, file.feature):
        if name not in found.schema_arrow.names:
            raise ValueError(f"{place} has no column {name!r}: it has {', '.join(found.schema_arrow.names)}")
    kind = found.schema_arrow.field(file.feature).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise ValueError(f"{place}, column {file.feature!r}: {kind}, where lists of numbers are wanted")
    return found


def _read_parquet(place: str, file: FeatureFile, stretch: Stretch) -> Values:
    with _open(place) as stream:
        found = _parquet(stream, place, file)
        table = found.read_row_groups(list(range(stretch.start, stretch.stop)), columns=[file.uid, file.feature])
    names = table[file.uid].cast(pa.string()).to_pylist()
    values: list[np.ndarray] = []
    for chunk in table[file.feature].chunks:
        # One array a row, as views of the chunk's flat values, where rows may differ in width; None within becomes NaN.
        flat = np.asarray(chunk.flatten().to_numpy(zero_copy_only=False))
        widths = np.asarray(chunk.value_lengths().fill_null(0))
        ends = np.cumsum(widths)
        values += [flat[end - width : end] for end, width in zip(ends.tolist(), widths.tolist(), strict=True)]
    return [(name or "", value) for name, value in zip(names, values, strict=True)]


# ------------------------------------------------------------------------------------------------------- npy and npz


def _npy_head(stream: Any, place: str, size: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype, and where the values begin. ``stream`` stands there afterwards. The head's claim must be what ``size``,
    bytes of head and values, leaves for values: memory and loops over rows go by the shape."""
    head = io.BytesIO(stream.read(_HEAD_BYTES))
    try:
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(head)
    except ValueError as error:
        raise ValueError(f"{place} is no .npy array: {error}") from None
    if dtype.hasobject or not dtype.itemsize or (fortran and len(shape) > 1):
        raise ValueError(f"{place}: {dtype} in {'columns' if fortran else 'rows'}; plain numbers, row after row, are wanted")
    if min(shape, default=0) < 0:
        raise ValueError(f"{place} has the shape {shape}, where sides of 0 and up are wanted")
    claimed, held = math.prod(shape) * dtype.itemsize, size - head.tell()
    if claimed != held:
        raise ValueError(f"{place}: values {shape} of {dtype} are {claimed} bytes, and it holds {held}")
    stream.seek(head.tell())
    return shape, dtype, head.tell()


def _count(shape: tuple[int, ...], place: str) -> int:
    if not shape:
        raise ValueError(f"{place} is a single number, where rows are wanted")
    return shape[0]


def _rows_of_npy(stream: Any, place: str, size: int, start: int, stop: int) -> np.ndarray:
    """Rows [start, stop) of an array of ``size`` bytes, head and values, on a stream that can seek."""
    shape, dtype, begin = _npy_head(stream, place, size)
    _count(shape, place)
    each = dtype.itemsize * math.prod(shape[1:])
    stream.seek(begin + start * each)
    return _array(stream, place, dtype, (stop - start, *shape[1:]))


def _whole_npy(stream: Any, place: str, size: int) -> np.ndarray:
    shape, dtype, _ = _npy_head(stream, place, size)
    return _array(stream, place, dtype, shape)


def _array(stream: Any, place: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The values that begin where ``stream`` stands."""
    size = math.prod(shape) * dtype.itemsize
    data = stream.read(size)
    if len(data) != size:
        raise ValueError(f"{place} ends after {len(data)} of {size} bytes of values {shape}")
    return np.frombuffer(data, dtype).reshape(shape)


def _ids(root: str, file: FeatureFile) -> list[str]:
    if file.ids is None:
        raise ValueError(f"feature file {file.path!r}: an .npy file needs a file of names, `ids`")
    place = _place(root, file.ids)
    return _read_ids(place, *_stamp(place))


@functools.lru_cache(maxsize=1)
def _read_ids(place: str, size: int, modified: int) -> list[str]:
    """Names of a file. Kept for the next stretch of the same array; a file that has changed is read anew."""
    with _open(place) as stream:
        if not place.endswith(".npy"):
            return stream.read().decode("utf-8-sig", "surrogateescape").splitlines()
        names = _whole_npy(stream, place, _length(stream))
        if names.dtype.kind not in "US" or names.ndim != 1:
            raise ValueError(f"{place} holds {names.dtype} {names.shape}, where strings (n,) are wanted")
        return _strings(names)


def _strings(names: np.ndarray) -> list[str]:
    """Text; bytes that are not UTF-8 stay as half surrogate pairs, for which a row is turned away."""
    return [name.decode(errors="surrogateescape") if isinstance(name, bytes) else str(name) for name in names.tolist()]


@contextlib.contextmanager
def _zip(place: str) -> Iterator[zipfile.ZipFile]:
    try:
        with _open(place) as stream, zipfile.ZipFile(stream) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # the last for what is encrypted, or packed oddly
        raise ValueError(f"{place} is no npz file: {error}") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")}


def _stacked(members: Any, file: FeatureFile) -> bool:
    return file.uid in members and file.feature in members


def _size_of_npz(place: str, file: FeatureFile) -> tuple[int, int]:
    with _zip(place) as archive:
        members = _members(archive)
        if not members:
            return 0, 0
        if not _stacked(members, file):
            return len(members), _FLOAT32 * math.prod(_shape(archive, members, next(iter(members)), place))
        names, shape = (_shape(archive, members, entry, place) for entry in (file.uid, file.feature))
    rows = _count(shape, f"{place}, {file.feature}")
    if names != (rows,):
        raise ValueError(f"{place}: {file.feature} has {rows} rows and {file.uid} the shape {names}, where ({rows},) is wanted")
    return rows, _FLOAT32 * math.prod(shape[1:])


def _shape(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], entry: str, place: str) -> tuple[int, ...]:
    with archive.open(members[entry]) as member:
        return _npy_head(member, f"{place}, {entry}", members[entry].file_size)[0]


def _read_npz(place: str, file: FeatureFile, stretch: Stretch) -> Values:
    with _zip(place) as archive:
        members = _members(archive)
        if not _stacked(members, file):
            found: Values = []
            for name in list(members)[stretch.start : stretch.stop]:
                with archive.open(members[name]) as member:
                    values = _whole_npy(member, f"{place}, {name}", members[name].file_size)
                found.append((posixpath.basename(name), values))
            return found
        names = _strings(_rows_of_npz(archive, members, file.uid, place, stretch.start, stretch.stop))
        values = _rows_of_npz(archive, members, file.feature, place, stretch.start, stretch.stop)
        return list(zip(names, values, strict=True))


def _rows_of_npz(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], entry: str, place: str, start: int, stop: int
) -> np.ndarray:
    info = members[entry]
    with _member(archive, info) as member:
        return _rows_of_npy(member, f"{place}, {entry}", info.file_size, start, stop)


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


def array_shapes(root: str, path: str) -> dict[str, tuple[int, ...]]:
    """Shape of every array of an .npz file by its entry, or of an .npy file by "". Raises as ``stretches`` does."""
    place = _place(root, path)
    if path.endswith(".npz"):
        with _zip(place) as archive:
            members = _members(archive)
            return {entry: _shape(archive, members, entry, place) for entry in members}
    with _open(place) as stream:
        return {"": _npy_head(stream, place, _length(stream))[0]}


def array_rows(root: str, path: str, entry: str, start: int, stop: int) -> np.ndarray:
    """Rows [start, stop) of an array of ``array_shapes``, read with a seek where it is not packed. Raises ``ValueError``."""
    place = _place(root, path)
    if entry:
        with _zip(place) as archive:
            return _rows_of_npz(archive, _members(archive), entry, place, start, stop)
    with _open(place) as stream:
        return _rows_of_npy(stream, place, _length(stream), start, stop)


# -------------------------------------------------------------------------------------------------------------- torch


def _torch(place: str, file: FeatureFile) -> tuple[Sequence[str], Any]:
    """Names, and tensors by number."""
    loaded = _load_torch(place, *_stamp(place))
    if not isinstance(loaded, dict):
        raise ValueError(f"{place} holds {type(loaded).__name__}, where a dict of tensors is wanted")
    if _stacked(loaded, file):
        try:
            names, tensors, count = [str(name) for name in loaded[file.uid]], loaded[file.feature], len(loaded[file.feature])
        except TypeError as error:  # of what is no list, and of a tensor that is a single number
            raise ValueError(f"{place}: names {file.uid} and tensors {file.feature}, one each, are wanted: {error}") from None
        if len(names) != count:
            raise ValueError(f"{place}: {len(names)} names and {count} tensors")
        return names, tensors
    return [str(name) for name in loaded], list(loaded.values())


def _stamp(place: str) -> tuple[int, int]:
    fs, path = fsspec.core.url_to_fs(place)
    if not fs.isfile(path):
        raise FileNotFoundError(f"feature file {place} is not there")
    info = fs.info(path)
    return int(info["size"]), int(1e6 * float(info.get("mtime", 0)))


@functools.lru_cache(maxsize=1)
def _load_torch(place: str, size: int, modified: int) -> Any:
    """The content of a torch file, mapped where it is local. Kept for the next stretch: a dict of a million takes seconds."""
    import pickle

    import torch

    fs, path = fsspec.core.url_to_fs(place)
    local = "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle of another protocol, which fails, or does not, on its own
            if not local:
                with fs.open(path, "rb") as stream:
                    return torch.load(stream, map_location="cpu", weights_only=True)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError:  # its text advises to load the file unsafely
        raise ValueError(f"{place} is no torch file of plain tensors: nothing else is loaded from it") from None
    except (EOFError, RuntimeError) as error:
        raise ValueError(f"{place} is no torch file of plain tensors: {str(error).splitlines()[0]}") from None


def _numbers(tensor: Any, place: str) -> np.ndarray:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{place} holds {type(tensor).__name__}, where a tensor is wanted")
    plain = tensor.detach()
    return plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy()


def _read_torch(place: str, file: FeatureFile, stretch: Stretch) -> Values:
    names, tensors = _torch(place, file)
    found = range(stretch.start, stretch.stop)
    return [(posixpath.basename(names[n]), _numbers(tensors[n], f"{place}, {names[n]}")) for n in found]


def _single(place: str) -> np.ndarray:
    if place.endswith(TORCH):
        return _numbers(_load_torch(place, *_stamp(place)), place)
    with _open(place) as stream:
        return _whole_npy(stream, place, _length(stream))
