"""Feature matrices straight from the shards: no Python object a sample."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...curation.shards import read_sample
from ...curation.ustar import BLOCK, ShardError, padded
from .decode import decode_npy, npy_layout, npy_start
from .index import DatasetIndex, ShardFiles

_ROWS = 8192
_MEMBERS = 32


def read_features(
    index: DatasetIndex, extension: str = "embedding.npy", *, dtype: str = "float32", into: str | Path | None = None
) -> tuple[np.ndarray, pa.Table]:
    """One array member of every row, stacked.

    In shards of our writing the headers of thousands of samples are read as one numpy array and the values gathered block
    by block; a sample whose headers are of another form is read by itself, with the same result. Memory is the result (or
    nothing, with ``into``) and one block of rows (local shards are mapped, remote ones fetched one at a time).

    Args:
        index: the rows, in the order of the result.
        extension: the member; an .npy of one shape in all rows.
        dtype: of the result; stored values are cast.
        into: a .npy file that is written, in place of memory: the values are a mapping of it, which only reads.

    Returns:
        The values, (n, *shape), and the table of the index, row for row.

    Raises:
        ShardError: a shard is missing or broken, a sample lacks the member, or its shape is another.
    """
    index.check()
    files = ShardFiles(index.url)
    shards = index.table["shard"].combine_chunks().dictionary_encode()
    codes = np.asarray(shards.indices)
    offsets, sizes = index.table["offset"].to_numpy(), index.table["size"].to_numpy()
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(shards.dictionary) + 1))
    result: np.ndarray | None = None
    for code, shard in enumerate(shards.dictionary.to_pylist()):
        of_shard = order[bounds[code] : bounds[code + 1]]
        with files.mapped(shard) as tar:
            for begin in range(0, len(of_shard), _ROWS):
                rows = of_shard[begin : begin + _ROWS]
                keys = index.table["key"].take(pa.array(rows)).to_pylist()
                names = [f"{key}.{extension}" for key in keys]
                block = _stacked(tar, offsets[rows], sizes[rows], names)
                if block is None:
                    block = _one_by_one(tar, offsets[rows], sizes[rows], keys, extension, files.place(shard))
                if result is None:
                    result = _room((len(index), *block.shape[1:]), dtype, into)
                if block.shape[1:] != result.shape[1:]:
                    raise ShardError(
                        f"{files.place(shard)}: member {names[0]} has shape {block.shape[1:]}, others have {result.shape[1:]}"
                    )
                result[rows] = block
    if isinstance(result, np.memmap):
        result.flush()
        return np.load(str(into), mmap_mode="r", allow_pickle=False), index.table
    return result if result is not None else np.empty((0, 0), dtype=dtype), index.table


def _room(shape: tuple[int, ...], dtype: str, into: str | Path | None) -> np.ndarray:
    if into is None:
        return np.empty(shape, dtype)
    return np.lib.format.open_memmap(into, mode="w+", dtype=np.dtype(dtype), shape=shape)


def _stacked(tar: bytes | mmap.mmap, offsets: np.ndarray, sizes: np.ndarray, names: list[str]) -> np.ndarray | None:
    """Values of the named members, (n, *shape); None unless all have plain headers and one .npy header."""
    whole = len(tar) // BLOCK
    if (offsets % BLOCK).any() or (sizes % BLOCK).any() or not len(offsets):
        return None
    blocks = np.frombuffer(tar, dtype=np.uint8, count=whole * BLOCK).reshape(whole, BLOCK)
    found = _find(blocks, offsets // BLOCK, (offsets + sizes) // BLOCK, names)
    if found is None:
        return None
    first, length = found
    if (length != length[0]).any():
        return None
    count = int(padded(int(length[0]))) // BLOCK
    values = blocks[first[:, None] + np.arange(count)].reshape(len(first), -1)
    head = bytes(values[0, : int(length[0])])
    try:
        start = npy_start(head)
        stored, shape, fortran = npy_layout(head[10 if head[6] == 1 else 12 : start])
    except ValueError:
        return None
    size = math.prod(shape) * stored.itemsize
    if fortran or start + size != length[0] or (values[:, :start] != values[0, :start]).any():
        return None
    return np.ascontiguousarray(values[:, start : start + size]).view(stored).reshape(len(first), *shape)


def _find(blocks: np.ndarray, at: np.ndarray, end: np.ndarray, names: list[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """First data block and size of each sample's member, int64 (n,) each, walking all samples member by member."""
    encoded = [name.encode() for name in names]
    if max(map(len, encoded)) > 100:
        return None
    wanted = np.frombuffer(b"".join(name.ljust(100, b"\x00") for name in encoded), dtype=np.uint8).reshape(-1, 100)
    at = at.astype(np.int64)
    first = np.full(len(at), -1, dtype=np.int64)
    length = np.zeros(len(at), dtype=np.int64)
    octal = 8 ** np.arange(10, -1, -1, dtype=np.int64)
    searching = np.arange(len(at))
    for _ in range(_MEMBERS):
        if (at[searching] >= end[searching]).any():
            return None
        headers = blocks[at[searching]]
        digits = headers[:, 124:135].astype(np.int64) - ord("0")
        if not _plain(headers) or (digits < 0).any() or (digits > 7).any():
            return None
        size = digits @ octal
        hit = (headers[:, :100] == wanted[searching]).all(axis=1)
        first[searching[hit]] = at[searching[hit]] + 1
        length[searching[hit]] = size[hit]
        if (at[searching] + 1 + padded(size) // BLOCK > end[searching]).any():
            return None
        at[searching] += 1 + padded(size) // BLOCK
        searching = searching[~hit]
        if not len(searching):
            return first, length
    return None


def _plain(headers: np.ndarray) -> bool:
    """Whether all are headers of regular files without a prefix, with a right checksum of six digits, (n, 512) uint8."""
    field = headers[:, 148:154].astype(np.int64) - ord("0")
    total = headers.sum(axis=1, dtype=np.int64) - headers[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * 0x20
    right = (field @ (8 ** np.arange(5, -1, -1, dtype=np.int64))) == total
    return bool((right & (headers[:, 156] == ord("0")) & (headers[:, 345] == 0)).all())


def _one_by_one(tar: Any, offsets: np.ndarray, sizes: np.ndarray, keys: list[str], extension: str, place: str) -> np.ndarray:
    arrays: list[np.ndarray] = []
    for offset, size, key in zip(offsets.tolist(), sizes.tolist(), keys, strict=True):
        members = read_sample(tar[offset : offset + size], key, place=place, base=offset)
        if extension not in members:
            raise ShardError(f"{place}, byte {offset}: sample {key!r} has no member {extension!r}, it has {list(members)}")
        try:
            arrays.append(decode_npy(members[extension]))
        except ValueError as error:
            raise ShardError(f"{place}, byte {offset}: member {key}.{extension}: {error}") from error
        if arrays[-1].shape != arrays[0].shape:
            raise ShardError(
                f"{place}, byte {offset}: member {key}.{extension} has shape {arrays[-1].shape}, others have {arrays[0].shape}"
            )
    return np.stack(arrays)
