"""Feature matrices, read from the shards or from the feature sets stored next to them."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ...curation.npy import read_npy_head
from ...curation.rows import SNAKE_CASE, one_line
from ...curation.shards import read_sample
from ...curation.ustar import ShardError
from .decode import decode_npy
from .index import DatasetIndex, ShardFiles

FEATURES = "features"
"""Folder of a dataset that holds its feature sets, and key of their table in ``dataset.json``."""


def read_features(
    index: DatasetIndex, extension: str = "embedding.npy", *, dtype: str = "float32", into: str | Path | None = None
) -> tuple[np.ndarray, pa.Table]:
    """One array member of every row, stacked.

    The result is held in memory, or in a file with ``into``; local shards are mapped, remote ones fetched one at a time.

    Args:
        index: the rows, in the order of the result.
        extension: the member: an .npy with the same shape in all rows.
        dtype: dtype of the result; stored values are cast.
        into: .npy file to write the result to instead of memory; the returned values are a read-only mapping of it.

    Returns:
        The values, (n, *shape), and the table of the index, row for row.

    Raises:
        ShardError: a shard is missing or broken, or a sample lacks the member or has it in another shape.

    >>> values, table = read_features(DatasetIndex.open("out/dataset"))
    >>> len(values) == len(table), values.dtype
    (True, dtype('float32'))
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


def feature_file(name: str) -> str:
    """Path of a feature set within its dataset; "" if the name is not valid.

    >>> feature_file("clip"), feature_file("../clip")
    ('features/clip.npy', '')
    """
    return f"{FEATURES}/{name}.npy" if SNAKE_CASE.match(name) else ""


def feature_sets(dataset: str | Path) -> dict[str, dict[str, Any]]:
    """The feature sets of a dataset: name -> ``file``, ``dtype``, ``shape``, ``encoder`` or ``released`` (the name in the
    release that was read), ``checkpoint`` (SHA-256 of the weights file; of parts of it if it is larger than 256 MiB) and
    ``digest`` (of keys and vectors).

    Raises:
        FileNotFoundError: the dataset has no ``dataset.json``.
        ShardError: ``dataset.json`` is damaged.

    >>> feature_sets("out/dataset")  # the tiny configuration has none
    {}
    """
    fs, root = url_to_fs(str(dataset))
    path = f"{root.rstrip('/')}/dataset.json"
    if not fs.exists(path):
        raise FileNotFoundError(f"{dataset}: no dataset.json here")
    try:
        record = json.loads(fs.cat_file(path)).get(FEATURES, {})
        return {name: {**each, "shape": [int(side) for side in each["shape"]]} for name, each in record.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ShardError(f"{dataset}/dataset.json is damaged: {one_line(error)}") from None


def open_features(dataset: DatasetIndex | str | Path, name: str) -> tuple[np.ndarray, pa.Table]:
    """A feature set, memory-mapped, and the table of the index, row for row.

    From a URL, the file is fetched into a temporary file. For a selection of rows (``DatasetIndex.select``) that are not
    contiguous, the values are a copy.

    Args:
        dataset: folder, URL, or the index of some of its rows.
        name: name of the feature set.

    Returns:
        The values, (n, d), read-only unless they are a copy, and the table.

    Raises:
        ValueError: the dataset has no such feature set.
        ShardError: the file is missing, or differs from ``dataset.json``; ``benchwright verify`` compares every byte.

    >>> open_features("out/dataset", "clip")
    Traceback (most recent call last):
        ...
    ValueError: out/dataset: no feature set 'clip': it has none; a table [features.clip] of the settings makes one
    """
    index = dataset if isinstance(dataset, DatasetIndex) else DatasetIndex.open(dataset)
    known = feature_sets(index.url)
    if name not in known:
        available = f"there are {', '.join(known)}" if known else "it has none"
        raise ValueError(
            f"{index.url}: no feature set {name!r}: {available}; a table [features.{name}] of the settings makes one"
        )
    values = _mapped(index.url, feature_file(name), known[name], index.total)
    at = index.positions
    if len(at) and int(at[-1]) - int(at[0]) + 1 == len(at):
        return values[int(at[0]) : int(at[-1]) + 1], index.table
    return values[at], index.table


def _mapped(url: str, file: str, record: dict[str, Any], total: int) -> np.ndarray:
    """The values of all rows. A remote file is fetched into a temporary file that disappears when it is no longer mapped."""
    fs, root = url_to_fs(url)
    path, place = f"{root.rstrip('/')}/{file}", f"{url.rstrip('/')}/{file}"
    if not file or not fs.isfile(path):
        raise ShardError(f"{place}: the feature set is missing; dataset.json names it")
    if isinstance(fs, LocalFileSystem):
        return _checked(path, place, record, total)
    with tempfile.NamedTemporaryFile(suffix=".npy") as fetched:
        fs.get_file(path, fetched.name)
        return _checked(fetched.name, place, record, total)


def _checked(path: str, place: str, record: dict[str, Any], total: int) -> np.ndarray:
    with open(path, "rb") as stream:
        try:
            shape, fortran, dtype, begin = read_npy_head(stream)
        except ValueError as error:
            raise ShardError(f"{place}: {error}") from None
    if fortran or list(shape) != record["shape"] or str(dtype) != record.get("dtype") or dtype.kind != "f" or shape[0] != total:
        raise ShardError(
            f"{place}: it is {dtype} {list(shape)}, where dataset.json has {record.get('dtype')} {record['shape']}, "
            f"and the index {total} rows"
        )
    size, wanted = Path(path).stat().st_size, begin + math.prod(shape) * dtype.itemsize
    if size != wanted:
        raise ShardError(f"{place}: {size} bytes, expected {wanted}: it was truncated, or appended to")
    return np.memmap(path, dtype, "r", begin, shape) if size > begin else np.empty(shape, dtype)
