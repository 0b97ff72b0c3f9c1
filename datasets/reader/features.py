"""Feature matrices straight from the shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...curation.shards import read_sample
from ...curation.ustar import ShardError
from .decode import decode_npy
from .index import DatasetIndex, ShardFiles


def read_features(
    index: DatasetIndex, extension: str = "embedding.npy", *, dtype: str = "float32", into: str | Path | None = None
) -> tuple[np.ndarray, pa.Table]:
    """One array member of every row, stacked.

    Memory is the result (or nothing, with ``into``); local shards are mapped, remote ones fetched one at a time.

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
    keys, offsets, sizes = (index.table[name].to_numpy() for name in ("key", "offset", "size"))
    result: np.ndarray | None = None
    for code, shard in enumerate(shards.dictionary.to_pylist()):
        with files.mapped(shard) as tar:
            for row in np.flatnonzero(codes == code).tolist():
                begin, end = int(offsets[row]), int(offsets[row] + sizes[row])
                values = _member(tar[begin:end], keys[row], extension, files.place(shard), begin)
                if result is None:
                    result = _room((len(index), *values.shape), dtype, into)
                if values.shape != result.shape[1:]:
                    raise ShardError(
                        f"{files.place(shard)}, byte {begin}: member {keys[row]}.{extension} has shape {values.shape}, "
                        f"others have {result.shape[1:]}"
                    )
                result[row] = values
    if isinstance(result, np.memmap):
        result.flush()
        return np.load(str(into), mmap_mode="r", allow_pickle=False), index.table
    return result if result is not None else np.empty((0, 0), dtype=dtype), index.table


def _room(shape: tuple[int, ...], dtype: str, into: str | Path | None) -> np.ndarray:
    if into is None:
        return np.empty(shape, dtype)
    return np.lib.format.open_memmap(into, mode="w+", dtype=np.dtype(dtype), shape=shape)


def _member(span: Any, key: str, extension: str, place: str, base: int) -> np.ndarray:
    members = read_sample(span, key, place=place, base=base)
    if extension not in members:
        raise ShardError(f"{place}, byte {base}: sample {key!r} has no member {extension!r}, it has {list(members)}")
    try:
        return decode_npy(members[extension])
    except ValueError as error:
        raise ShardError(f"{place}, byte {base}: member {key}.{extension}: {error}") from error
