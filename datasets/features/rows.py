"""Stored features as rows, and references to them in the rows of samples.

::

    reading, pieces = step(read_stored_features, root=where(folder), width=768), step(feature_pieces, root=..., files=...)
    features = source("stored", reading, pieces=pieces, max_rejects=None)
    join(features, samples).whole("with_feature", step(attach_features, features=rows_of("stored")), gives=WithFeature)

Vectors are written once, by the source; the rows of samples get references to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.rows import ARRAY, Rejected, Shape, Sifted, is_text, sift
from .files import FeatureFile, Stretch
from .formats import read_stretch, stretches

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

PIECE_BYTES = 1 << 25


@dataclass(frozen=True)
class StoredFeature:
    """One stored vector: ``key`` is ``<path>:<number in the file>``, ``uid`` names the sample, ``feature`` is (width,)."""

    key: str
    uid: str
    feature: Annotated[np.ndarray, Shape((-1,), "float32")]


@dataclass(frozen=True)
class WithVector:
    """The column that ``attach_features`` adds to rows that have a column ``feature``."""

    key: str
    vector: Annotated[np.ndarray, Shape((-1,), "float32")]


@dataclass(frozen=True)
class WithFeature:
    """The column that ``attach_features`` adds."""

    key: str
    feature: Annotated[np.ndarray, Shape((-1,), "float32")]


def feature_pieces(*, root: str, files: Sequence[FeatureFile], piece_bytes: int = PIECE_BYTES) -> Iterator[str]:
    """Stretches of the files, in their order, as JSON for ``read_stored_features``.

    Args:
        root: folder or fsspec URL; mark it with ``where``.
        files: the files in this folder.
        piece_bytes: maximum size of the features in one piece, as float32; a worker holds it about three times. Row groups of
            Parquet and samples are never split.

    Raises:
        FileNotFoundError, ValueError: like ``formats.stretches``; ValueError also for a path that is named twice.
    """
    if len({file.path for file in files}) != len(files):
        raise ValueError(f"a feature file is named twice among {', '.join(file.path for file in files)}")
    for file in files:
        for stretch in stretches(root, file, max_bytes=piece_bytes):
            yield json.dumps({"file": asdict(file), "stretch": asdict(stretch)})


def read_stored_features(
    piece: str, *, root: str, width: int, uid_pattern: str | None = None
) -> Iterator[StoredFeature | Rejected]:
    """Vectors of one piece, in its order. Tensors of any shape are flattened, row by row, and cast to float32.

    Args:
        piece: one of the results of ``feature_pieces``.
        root: the same as for ``feature_pieces``.
        width: length of a vector (KOWL: 8,192 for X3D-M, which are 4 x 2,048; 768 for TimeSformer).
        uid_pattern: regular expression that extracts the uid from a stored name: its first group, or the whole match. None:
            names are uids.

    Yields:
        Rows; rejects are ``bad_uid`` (an empty name, one that the pattern does not match, or one with a lone surrogate),
        ``not_numbers``, ``wrong_width``, ``not_finite`` (NaN, or beyond float32).
    """
    values = json.loads(piece)
    file, stretch = FeatureFile(**values["file"]), Stretch(**values["stretch"])
    finds = None if uid_pattern is None else re.compile(uid_pattern)
    for number, (name, tensor) in enumerate(read_stretch(root, file, stretch, numbers=width)):
        key = f"{file.path}:{stretch.first + number}"
        found = None if finds is None else finds.search(name)
        uid = name if finds is None else "" if found is None else found[1 if finds.groups else 0]
        if not uid or not is_text(uid):
            yield Rejected(key, "bad_uid", f"name {name!r}")
        elif tensor.dtype.kind not in "fiu":
            yield Rejected(key, "not_numbers", f"{uid}: {tensor.dtype}")
        elif tensor.size != width:
            yield Rejected(key, "wrong_width", f"{uid}: {tensor.size} numbers {tensor.shape}, not {width}")
        else:
            with np.errstate(over="ignore"):
                vector = np.ascontiguousarray(tensor, dtype=np.float32).reshape(width)
            if np.isfinite(vector).all():
                yield StoredFeature(key, uid, vector)
            else:
                at = int(np.argmin(np.isfinite(vector)))
                yield Rejected(key, "not_finite", f"{uid}: number {at} is {tensor.reshape(-1)[at]}")


def attach_features(rows: Rows, *, features: Rows, uid: str = "key", column: str = "feature") -> Iterator[Sifted]:
    """Whole step: add the column ``feature`` to every row, as a reference to the vector that ``read_stored_features`` wrote.

    Args:
        rows: rows of samples; memory is 16 bytes per row and one batch of them.
        features: rows of ``StoredFeature``, about 100 bytes each in memory.
        uid: column that names the sample (KOWL: its ``key``).
        column: name of the added column.

    Yields:
        The rows in their order, batch by batch. Rejected: ``no_feature``, with the name that was looked up and three of those
        stored; ``conflicting_features`` if a uid is stored with different vectors (a vector stored twice is no conflict).

    Raises:
        ValueError: the rows already have this column.
    """
    if column in rows.column_names:
        raise ValueError(f"rows have a column {column!r} already: {', '.join(rows.column_names)}")
    held, files = _held(features)
    names = ", ".join(map(repr, held["uid"].head(3).to_list()))
    stored = (
        f" is none of the {held.height:,} names of stored features, such as {names}" if held.height else ": nothing is stored"
    )
    for table in rows.batches():
        asked = pl.DataFrame({"uid": pl.Series(pl.from_arrow(table[uid])).cast(pl.String)})
        found = asked.join(held, on="uid", how="left", maintain_order="left")
        absent = found["row"].is_null().to_numpy()
        conflicting = found["vectors"].fill_null(0).to_numpy() > 1
        refs = found.select(sha256=pl.col("sha256").bin.encode("hex"), file="file", row="row")
        places = pa.StructArray.from_arrays(
            [
                refs["sha256"].to_arrow().cast(pa.string()),
                files.take(refs["file"].to_arrow()),
                refs["row"].to_arrow().cast(pa.int64()),
            ],
            fields=list(ARRAY),
        )
        details = asked.select(pl.when(pl.Series(absent)).then(pl.format("'{}'{}", "uid", pl.lit(stored))).otherwise("uid"))
        rules = {"no_feature": absent, "conflicting_features": conflicting}
        yield sift(table.append_column(column, places), rules, detail=details.to_series().to_arrow())


def _held(features: Rows) -> tuple[pl.DataFrame, pa.Array]:
    """uid -> place of its vector, one row per uid, with the number of different vectors stored under it; and the file names."""
    schema = {"uid": pl.String, "sha256": pl.Binary, "file": pl.Int32, "row": pl.Int64}
    parts = [pl.DataFrame(schema=schema)]
    names: dict[str, int] = {}
    for table in features.batches(["uid", "feature"]):
        if not table.num_rows:
            continue
        part = pl.DataFrame(pl.from_arrow(table)).unnest("feature")
        for name in part["file"].unique(maintain_order=True).to_list():
            names.setdefault(name, len(names))
        code = pl.col("file").replace_strict(names, return_dtype=pl.Int32)
        parts.append(part.select("uid", pl.col("sha256").str.decode("hex"), code, "row"))
    every = pl.concat(parts)
    del parts
    again = every.filter(every["uid"].is_duplicated())
    counts = again.group_by("uid").agg(vectors=pl.col("sha256").n_unique())
    once = every.unique("uid", keep="first", maintain_order=True)
    return once.join(counts, on="uid", how="left"), pa.array(list(names), pa.string())
