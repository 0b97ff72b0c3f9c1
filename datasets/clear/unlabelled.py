"""Images of some buckets without labels: selection of the buckets, shards, and samples."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ...curation.rows import Blob, Sifted, sift, with_column
from ...curation.shards import row_values

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

COLUMNS = {
    "sha256": "of the sample's members: extension, NUL, size, NUL, bytes, in the order of the extensions",
    "bucket": "time bucket, from 0 in order of time",
    "width": "pixels, as displayed",
    "height": "pixels, as displayed",
    "date_taken": "capture time by the camera's clock, local",
    "date_uploaded": "upload time, UTC",
}
"""Meaning of the columns, for the dataset's card."""

LABELS = ("labels", "file")
"""Source columns that hold labels, or may hold them, as a folder's name does; they are not published."""


def place_unlabelled(rows: Rows, *, buckets: Sequence[int] | Literal["all"], max_samples: int) -> Iterator[pa.Table | Sifted]:
    """Keep the rows of some buckets, in order, and name the shard of each; reject the others as ``other_bucket``.

    Rows are read and written bucket by bucket; one table is held at a time.

    Args:
        rows: rows with the column ``bucket``, with the rows of each bucket together.
        buckets: bucket numbers, or "all".
        max_samples: maximum number of samples per shard; a shard holds one bucket.

    Raises:
        ValueError: a bucket does not exist.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c", "d"], "bucket": [0, 0, 0, 1]}))
    >>> [part] = place_unlabelled(rows, buckets=[0], max_samples=2)
    >>> part.kept["shard"].to_pylist(), part.rejected["reason"].to_pylist()
    (['bucket00-00000', 'bucket00-00000', 'bucket00-00001'], ['other_bucket'])
    """
    seen, there = Counter[int](), set[int]()
    for table in rows.batches():
        numbers = table["bucket"].to_numpy()
        there.update(np.unique(numbers).tolist())
        other = np.zeros(len(numbers), dtype=bool) if buckets == "all" else ~np.isin(numbers, list(buckets))
        kept, rejected = sift(table, {"other_bucket": other}, detail="bucket")
        shards: list[str] = []
        for bucket in kept["bucket"].to_pylist():
            shards.append(f"bucket{bucket:02d}-{seen[bucket] // max_samples:05d}")
            seen[bucket] += 1
        yield Sifted(with_column(kept, "shard", pa.array(shards, pa.string())), rejected)
    if missing := sorted(set[Any](() if buckets == "all" else buckets) - there):
        known = f"{min(there)} to {max(there)}" if there else "none"
        raise ValueError(f"unlabelled.buckets names bucket {missing[0]}, which does not exist: the buckets are {known}")


@dataclass(frozen=True)
class UnlabelledSample:
    """A row as it is written to a shard."""

    key: str
    extension: str
    image: Blob
    bucket: int
    date_taken: dt.datetime | None
    date_uploaded: dt.datetime | None


def unlabelled_sample(row: UnlabelledSample) -> dict[str, Any]:
    """Members of a sample: the unchanged image, and its bucket and times as JSON."""
    labels = row_values(row, but=["extension", "image"])
    for name in ("date_taken", "date_uploaded"):
        time = getattr(row, name)
        labels[name] = time.isoformat(sep=" ") if time is not None else None
    return {row.extension: row.image.read(), "json": labels}
