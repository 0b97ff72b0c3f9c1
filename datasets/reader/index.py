"""The index of a published dataset, and access to the bytes that it points to.

A dataset is a folder, or an fsspec URL, with ``*.tar``, ``index.parquet`` (key, shard, offset, size, labels),
``README.md`` and ``dataset.json``. Needs no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ...curation.artifact import unfinished
from ...curation.rng import rng
from ...curation.rows import one_line
from ...curation.shards import scan_shard
from ...curation.store import Store, StoreError
from ...curation.ustar import ShardError

_PLACE_COLUMNS = ("key", "shard", "offset", "size")
_OPEN_FILES = 64
_GROUP_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class DatasetIndex:
    """Some or all samples of a dataset, in the order of its index.

    Attributes:
        url: folder or fsspec URL.
        table: one row per sample: key, shard, offset, size (bytes) and the label columns.
        positions: place of each row in the whole index, int64 (n,). Shuffling depends on it, so that the relative order of
            two samples in an epoch does not change with the selection.
        total: number of rows of the whole index.

    >>> index = DatasetIndex.open("out/dataset")
    >>> len(index), len(index.select({"class_name": "red", "bucket": [1, 2]}))
    (210, 40)
    """

    url: str
    table: pa.Table
    positions: np.ndarray
    total: int

    @classmethod
    def open(cls, url: str | Path, *, where: Mapping[str, Any] | None = None) -> DatasetIndex:
        """Read ``index.parquet``, and keep the rows that ``where`` names (see ``select``).

        Raises:
            FileNotFoundError: the folder has no index.
            ShardError: the index is not a Parquet file, lacks one of key, shard, offset, size, or has nulls in one of them.
            ValueError: ``where`` names a column that does not exist, or matches no row.

        >>> train = DatasetIndex.open("out/dataset", where={"iid_seed0": "train", "bucket": 3})
        >>> train.table.select(["bucket", "iid_seed0"]).to_pylist()[0]
        {'bucket': 3, 'iid_seed0': 'train'}
        """
        fs, root = url_to_fs(str(url))
        path = f"{root.rstrip('/')}/index.parquet"
        if not fs.exists(path):
            raise FileNotFoundError(f"{url}: no index.parquet here{_instead(str(url))}")
        try:
            table = pq.ParquetFile(io.BytesIO(fs.cat_file(path))).read()
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise ShardError(f"{url}/index.parquet cannot be read: {one_line(error)}") from None
        missing = [name for name in _PLACE_COLUMNS if name not in table.column_names]
        if missing:
            raise ShardError(f"{url}/index.parquet: the columns {missing} are missing, there are {table.column_names}")
        return _index(str(url), _checked(table, f"{url}/index.parquet")).select(where or {})

    @classmethod
    def scan(cls, url: str | Path) -> DatasetIndex:
        """Index a folder of tars that has no index, such as webdataset's own: every header is read, no payload is decoded.

        Rows are in the order of shard names, then in the order within the shard. A remote shard is read whole.

        Raises:
            FileNotFoundError: the folder has no ``*.tar``.
            ShardError: a shard breaks a rule (``curation.ustar.iter_members``).
        """
        files = ShardFiles(str(url))
        names = sorted(files.sizes())
        if not names:
            raise FileNotFoundError(f"{url}: no *.tar here")
        rows: list[tuple[str, str, int, int]] = []
        for name in names:
            with files.mapped(name) as tar:
                rows += [(span.key, name, span.offset, span.size) for span in scan_shard(tar, place=f"{url}/{name}.tar")]
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        types = (pa.string(), pa.string(), pa.int64(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return _index(str(url), pa.table(dict(zip(_PLACE_COLUMNS, arrays, strict=True))))

    def select(self, where: Mapping[str, Any]) -> DatasetIndex:
        """The rows that match all of the values, in the same order.

        Args:
            where: column -> a value, a list, tuple or set of accepted values, or None for null:
                ``{"iid_seed0": "train", "bucket": [3, 4]}``.

        Raises:
            ValueError: a column does not exist, a value does not have the column's type, or no row is left, which is
                nearly always a mistake.

        >>> DatasetIndex.open("out/dataset").select({"class_name": "read"})
        Traceback (most recent call last):
            ...
        ValueError: out/dataset: no row has class_name='read'; the column holds ...
        """
        keep = np.ones(len(self), dtype=bool)
        for column, wanted in where.items():
            if column not in self.table.column_names:
                raise ValueError(f"{self.url}: no column {column!r}, there are {self.table.column_names}")
            values = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
            kind = self.table.schema.field(column).type
            try:
                value_set = pa.array(values, kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise ValueError(f"{self.url}: column {column!r} holds {kind}, {wanted!r} does not fit: {error}") from error
            found = np.asarray(pc.is_in(self.table[column], value_set=value_set))
            if not found.any() and len(self):
                seen = pc.unique(self.table[column]).slice(0, 12).to_pylist()
                raise ValueError(f"{self.url}: no row has {column}={wanted!r}; the column holds {seen}")
            keep &= found
        if not keep.any() and len(self):
            raise ValueError(f"{self.url}: no row has all of {dict(where)}")
        return DatasetIndex(self.url, self.table.filter(pa.array(keep)), self.positions[keep], self.total)

    def __len__(self) -> int:
        return self.table.num_rows

    def order(self, *, seed: int | None, epoch: int) -> np.ndarray:
        """Rows in the order of an epoch, int64 (n,): sorted by a random word for each (seed, epoch, position).

        The words are the raw output of Philox, whose n-th value depends only on its key and n. ``seed=None`` returns the
        order of the index.

        >>> index = DatasetIndex.open("out/dataset", where={"class_name": "red", "bucket": 1})
        >>> index.order(seed=0, epoch=0)[:5], index.order(seed=0, epoch=1)[:5]
        (array([16, 17,  9, 18, 12]), array([17,  4, 12, 19, 11]))
        >>> index.order(seed=None, epoch=0)[:5]
        array([0, 1, 2, 3, 4])
        """
        if seed is None:
            return np.arange(len(self))
        words = rng(seed, "reader.order", str(epoch)).bit_generator.random_raw(self.total)
        return np.argsort(words[self.positions], kind="stable")

    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with the rows, their order or their offsets."""
        digest = hashlib.sha256(np.ascontiguousarray(self.positions).tobytes())
        for column in ("offset", "size"):
            digest.update(np.ascontiguousarray(self.table[column].to_numpy()).tobytes())
        return digest.hexdigest()[:16]

    def check(self) -> None:
        """Raise ``ShardError`` unless every shard of the rows exists and is long enough. Lists the folder once."""
        sizes = ShardFiles(self.url).sizes()
        needed = self.table.select(["shard"]).append_column("end", pc.add(self.table["offset"], self.table["size"]))
        for row in needed.group_by("shard").aggregate([("end", "max"), ("end", "count")]).to_pylist():
            place = f"{self.url}/{row['shard']}.tar"
            if row["shard"] not in sizes:
                raise ShardError(f"{place}: the shard is missing; the index has {row['end_count']} samples in it")
            if sizes[row["shard"]] < row["end_max"]:
                raise ShardError(
                    f"{place}, byte {sizes[row['shard']]}: truncated: the index has samples up to byte {row['end_max']}"
                )


def _index(url: str, table: pa.Table) -> DatasetIndex:
    return DatasetIndex(url, table.combine_chunks(), np.arange(table.num_rows), table.num_rows)


def _instead(url: str) -> str:
    """Advice for a folder without an index: it may be the folder of a run, or the run has not written one yet."""
    if Store(f"{url}/dataset").exists("index.parquet"):
        return f": did you mean {url}/dataset?"
    for run in (Store(url), Store(url.rstrip("/").rpartition("/")[0] or ".")):
        with contextlib.suppress(StoreError):
            if why := unfinished(run):
                return f": {why}"
    return "; DatasetIndex.scan reads a folder of bare tars"


def _checked(table: pa.Table, place: str) -> pa.Table:
    """The table with keys and shards as text, offsets and sizes as int64. Raises ``ShardError`` if they cannot be."""
    for name in _PLACE_COLUMNS:
        kind = pa.string() if name in ("key", "shard") else pa.int64()
        same = pa.types.is_string if name in ("key", "shard") else pa.types.is_integer
        column = table[name]
        if not (same(column.type) or pa.types.is_large_string(column.type)) or column.null_count:
            raise ShardError(f"{place}: column {name!r} is {column.type} with {column.null_count} nulls, expected {kind}")
        try:
            table = table.set_column(table.schema.get_field_index(name), name, column.cast(kind))
        except pa.ArrowInvalid as error:
            raise ShardError(f"{place}: column {name!r}: {error}") from None
        if kind == pa.int64() and len(column) and not 0 <= pc.min(table[name]).as_py() <= pc.max(table[name]).as_py() < 1 << 62:
            raise ShardError(f"{place}: column {name!r} holds a number below 0, or of more than 62 bits")
    return table


class ShardFiles:
    """Bytes of the shards of one folder or URL. Can be pickled, and used from several processes and threads.

    Local shards are read with ``pread`` and kept open, 64 at most; remote ones are read by ranges, fetched in parallel.

    >>> files = ShardFiles("out/dataset")
    >>> sorted(files.sizes())[:2], files.place("bucket01-00000")
    (['bucket01-00000', 'bucket01-00001'], 'out/dataset/bucket01-00000.tar')
    >>> [header] = files.read([("bucket01-00000", 0, 512)])
    >>> header[257:262]
    b'ustar'
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connect()

    def _connect(self) -> None:
        # fsspec's file systems must not cross a fork: each process creates its own.
        self._pid = os.getpid()
        self._fs, self._root = url_to_fs(self._url)
        self._local = isinstance(self._fs, LocalFileSystem)
        self._files: dict[str, io.FileIO] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_url": self._url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._url = state["_url"]
        self._connect()

    def place(self, shard: str) -> str:
        """The shard's path or URL, as used in error messages."""
        return f"{self._url.rstrip('/')}/{shard}.tar"

    def sizes(self) -> dict[str, int]:
        """Size in bytes of every ``*.tar`` of the folder, by shard name. Raises ``FileNotFoundError`` without that folder."""
        self._fs.invalidate_cache(self._root)
        if not self._fs.isdir(self._root):
            raise FileNotFoundError(f"{self._url}: no such folder")
        files = self._fs.ls(self._root, detail=True)
        tars = [(str(file["name"]).rsplit("/", 1)[-1], int(file["size"])) for file in files if file["type"] == "file"]
        return {name.removesuffix(".tar"): size for name, size in tars if name.endswith(".tar") and name[0] != "."}

    def read(self, ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        """Bytes of each (shard, offset, size), in the order of ``ranges``.

        Raises:
            ShardError: a shard is missing, or ends before the range does.
        """
        if self._pid != os.getpid():
            self._connect()
        if self._local:
            for shard, offset, size in ranges:
                yield self._checked(os.pread(self._open(shard).fileno(), size, offset), shard, offset, size)
            return
        begin = 0
        while begin < len(ranges):
            end, room = begin + 1, _GROUP_BYTES - ranges[begin][2]
            while end < len(ranges) and (room := room - ranges[end][2]) >= 0:
                end += 1
            yield from self._fetch(ranges[begin:end])
            begin = end

    def _open(self, shard: str) -> io.FileIO:
        file = self._files.get(shard)
        if file is None:
            try:
                file = open(f"{self._root}/{shard}.tar", "rb", buffering=0)  # noqa: SIM115 (closed when dropped)
            except FileNotFoundError:
                raise self._missing(shard) from None
            while len(self._files) >= _OPEN_FILES:
                self._files.pop(next(iter(self._files)), None)
            self._files[shard] = file
        return file

    def _fetch(self, ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        # Adjacent ranges of one shard become one request: reading in index order then fetches long runs.
        runs: list[tuple[str, int, int]] = []
        owner: list[int] = []
        for shard, offset, size in ranges:
            if runs and runs[-1][0] == shard and runs[-1][2] == offset:
                runs[-1] = (shard, runs[-1][1], offset + size)
            else:
                runs.append((shard, offset, offset + size))
            owner.append(len(runs) - 1)
        paths = [f"{self._root}/{shard}.tar" for shard, _, _ in runs]
        try:
            blocks = self._fs.cat_ranges(paths, [run[1] for run in runs], [run[2] for run in runs], on_error="raise")
        except FileNotFoundError:
            present = self.sizes()
            raise self._missing(next((run[0] for run in runs if run[0] not in present), runs[0][0])) from None
        for run, (shard, offset, size) in zip(owner, ranges, strict=True):
            low = offset - runs[run][1]
            yield self._checked(bytes(blocks[run][low : low + size]), shard, offset, size)

    def _checked(self, data: bytes, shard: str, offset: int, size: int) -> bytes:
        if len(data) != size:
            raise ShardError(
                f"{self.place(shard)}, byte {offset}: truncated: the index has {size} bytes here, found {len(data)}"
            )
        return data

    def _missing(self, shard: str) -> ShardError:
        return ShardError(f"{self.place(shard)}: the shard is missing; the index has samples in it")

    def mapped(self, shard: str) -> mmap.mmap | _Held:
        """A whole shard as bytes that can be sliced: mapped if local, else fetched. Raises ``ShardError`` for an empty one."""
        if not self._local:
            return _Held(self._fs.cat_file(f"{self._root}/{shard}.tar"))
        with open(f"{self._root}/{shard}.tar", "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ShardError(f"{self.place(shard)}, byte 0: truncated: the file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _Held(bytes):
    """Bytes that work in a ``with`` statement, as an mmap does."""

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *_: object) -> None:
        return None
