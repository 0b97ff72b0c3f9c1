"""A published dataset as the exports need it: its facts, rows, splits and classes, and its samples in batches."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.keys import canonical, sha256
from ...curation.shards import members_sha256, read_sample
from ...curation.store import Store
from ...curation.ustar import ShardError
from ..reader.index import DatasetIndex, ShardFiles

BATCH_BYTES = 16 << 20
"""Maximum payload of a batch of samples that is held in memory."""

PLACES = ("shard", "offset", "size")

Configurations = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True, eq=False)
class Published:
    """A dataset that has been checked against its index.

    Attributes:
        facts: ``dataset.json``.
        index: all rows.
        configurations: name -> split -> the rows in the split, as column -> values; see ``DatasetCard``.
        labels: class names by column; the column holds class indices or names.

    >>> of = Published.open("out/dataset")
    >>> of.labels["label"], list(of.configurations)[0], len(of.index)
    (['BACKGROUND', 'blue', 'green', 'red'], 'iid_seed0', 210)
    """

    facts: Mapping[str, Any]
    index: DatasetIndex
    configurations: Configurations
    labels: Mapping[str, list[str]]

    @classmethod
    def open(cls, dataset: str) -> Published:
        """Read ``dataset.json`` and the index of a folder or URL.

        Raises:
            ShardError: a shard is missing or too short.
            ValueError: ``dataset.json`` is not JSON.
        """
        try:
            facts: dict[str, Any] = json.loads(Store(dataset).read("dataset.json"))
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(f"{dataset}/dataset.json: {error}") from error
        index = DatasetIndex.open(dataset)
        index.check()
        configurations = facts.get("configurations", [])
        found = {each["name"]: {split["name"]: split["where"] for split in each["splits"]} for each in configurations}
        labels = {name: list(names) for name, names in facts.get("labels", {}).items() if name in index.table.column_names}
        return cls(facts, index, found or {"default": {"train": {}}}, labels)

    @property
    def version(self) -> dict[str, str]:
        """Digests that change with the rows, the payloads, the columns, the classes and the splits."""
        index = self.facts["files"]["index.parquet"]["sha256"]
        return {"rows": self.facts["digest"], "index": index, "splits": sha256(canonical([self.configurations, self.labels]))}

    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """``configuration/split`` -> (n,) whether each row is in the split, for all configurations; see ``split_masks``."""
        found = {name: self.split_masks(name) for name in self.configurations}
        return {f"{name}/{split}": mask for name, masks in found.items() for split, mask in masks.items()}

    def split_masks(self, configuration: str) -> dict[str, NDArray[np.bool_]]:
        """Split -> (n,) whether each row is in it, for one configuration; splits without rows are left out.

        Raises:
            ValueError: the configuration names a column that does not exist, or leaves a row out.
        """
        table, found = self.index.table, dict[str, NDArray[np.bool_]]()
        covered = np.zeros(table.num_rows, dtype=bool)
        for split, where in self.configurations[configuration].items():
            mask = np.ones(table.num_rows, dtype=bool)
            for column, wanted in where.items():
                if column not in table.column_names:
                    raise ValueError(f"configuration {configuration!r}: there is no column {column!r}")
                values = pa.array(wanted if isinstance(wanted, list) else [wanted], table.schema.field(column).type)
                mask &= np.asarray(pc.is_in(table[column], value_set=values))
            covered |= mask
            if mask.any():
                found[split] = mask
        if not covered.all():
            key = table["key"][int(np.flatnonzero(~covered)[0])].as_py()
            raise ValueError(f"configuration {configuration!r} leaves out {int((~covered).sum())} rows, such as {key!r}")
        return found

    def class_of(self, row: Mapping[str, Any], column: str) -> str | None:
        """Name of a row's class in a column of ``labels``; None if it has none."""
        value = row[column]
        if value is None or isinstance(value, str):
            return value
        return self.labels[column][value] if 0 <= value < len(self.labels[column]) else None

    def samples(self, rows: NDArray[np.int64] | None = None) -> Iterator[tuple[pa.Table, list[dict[str, bytes]]]]:
        """The rows (by default all) in batches, with the members of each row by extension.

        Raises:
            ShardError: a sample is damaged.
        """
        files, sizes = ShardFiles(self.index.url), self.index.table["size"].to_numpy()
        for some in cut(np.arange(len(self.index)) if rows is None else rows, sizes, BATCH_BYTES):
            table = self.index.table.take(pa.array(some))
            places = list(zip(*(table[name].to_pylist() for name in PLACES), strict=True))
            spans = zip(files.read(places), table["key"].to_pylist(), places, strict=True)
            samples = [read_sample(span, key, place=files.place(at[0]), base=at[1]) for span, key, at in spans]
            if "sha256" in table.column_names:
                for members, row in zip(samples, table.select(["key", "shard", "sha256"]).to_pylist(), strict=True):
                    if members_sha256(members) != row["sha256"]:
                        why = f"sample {row['key']!r} is not what the index records: `benchwright verify OUT` has more"
                        raise ShardError(f"{files.place(row['shard'])}: {why}")
            yield table, samples

    def json_samples(self) -> Iterator[tuple[dict[str, Any], Mapping[str, bytes]]]:
        """Each row as JSON values, without shard, offset and size, and its members by extension."""
        for table, samples in self.samples():
            for row, members in zip(table.drop_columns(list(PLACES)).to_pylist(), samples, strict=True):
                yield {name: _json_value(value) for name, value in row.items()}, members


def _json_value(value: Any) -> Any:
    """A value for JSON: dates and times as ISO 8601, and null for numbers that are not finite."""
    if isinstance(value, list):
        return [_json_value(each) for each in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cut(rows: NDArray[np.int64], sizes: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Split rows into parts of about ``most`` bytes each."""
    after = np.cumsum(sizes[rows])
    yield from (part for part in np.split(rows, np.flatnonzero(np.diff((after - 1) // most)) + 1) if len(part))
