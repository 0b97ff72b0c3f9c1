"""Samples of a published dataset by row, decoded, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...curation.shards import read_sample
from ...curation.ustar import ShardError
from .decode import DECODERS, decode_member
from .index import DatasetIndex, ShardFiles

Sample = dict[str, Any]


class Samples:
    """Decoded samples, accessed by row.

    A sample is a dict: ``__key__``, each member by its extension (decoded), and the ``columns`` of the index.

    Args:
        index: the rows; or the dataset's folder or URL, for all rows.
        extensions: members to decode; None for all.
        columns: columns of the index to add to each sample.
        decode: decoder for each extension or last part of an extension; with ``{}`` all members stay bytes.

    Raises:
        ShardError: a shard that the rows name is missing or too short.
        ValueError: an unknown column, or a column with the name of a member.

    >>> samples = Samples("out/dataset", extensions=["embedding.npy"], columns=["class_name"])
    >>> len(samples), sorted(samples[0])
    (210, ['__key__', 'class_name', 'embedding.npy'])
    """

    def __init__(
        self,
        index: DatasetIndex | str | Path,
        *,
        extensions: Sequence[str] | None = None,
        columns: Sequence[str] = (),
        decode: Mapping[str, Callable[[bytes], Any]] = DECODERS,
    ) -> None:
        self.index = index if isinstance(index, DatasetIndex) else DatasetIndex.open(index)
        self.index.check()
        unknown = set(columns) - set(self.index.table.column_names)
        if unknown:
            raise ValueError(f"columns {list(columns)}: {sorted(unknown)} are not in the index")
        if both := set(columns) & set(extensions or ()):
            raise ValueError(
                f"columns {list(columns)}: {sorted(both)} are also among the extensions: a sample has one of each name"
            )
        self._extensions = None if extensions is None else frozenset(extensions)
        self._decode = decode
        self._files = ShardFiles(self.index.url)
        self._rows = self.index.table.select([*dict.fromkeys(("key", "shard", "offset", "size", *columns))])
        self._columns = tuple(columns)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> Sample:
        return next(self.read(self.places([row])))

    def places(self, rows: Sequence[int]) -> np.ndarray:
        """Row numbers (n,) int64 from the start of the index; negative ones count from its end. Raises ``IndexError``."""
        for row in rows:
            if not -len(self) <= row < len(self):
                raise IndexError(f"row {row} of {len(self)}")
        return np.array([row % len(self) for row in rows], dtype=np.int64)

    def read(self, rows: np.ndarray) -> Iterator[Sample]:
        """Samples of the rows (n,) with these numbers, in this order.

        Raises:
            ShardError: a shard is damaged, or a sample lacks a member of ``extensions``.
            ValueError: a member has the name of a column.
        """
        table = self._rows.take(pa.array(rows)).to_pydict()
        places = list(zip(table["shard"], table["offset"], table["size"], strict=True))
        for number, (span, (shard, offset, _)) in enumerate(zip(self._files.read(places), places, strict=True)):
            key, place = table["key"][number], self._files.place(shard)
            sample: Sample = {"__key__": key}
            for extension, data in read_sample(span, key, place=place, base=offset).items():
                if self._extensions is None or extension in self._extensions:
                    sample[extension] = decode_member(extension, data, self._decode, key=key, place=place)
            if self._extensions is not None and len(sample) <= len(self._extensions):
                missing = sorted(self._extensions - sample.keys())
                raise ShardError(f"{place}, byte {offset}: sample {key!r} has no member {missing}")
            for column in self._columns:
                if column in sample:
                    raise ValueError(f"{place}: sample {key!r} has a member named {column!r}, as the column is")
                sample[column] = table[column][number]
            yield sample
