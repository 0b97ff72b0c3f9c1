"""A published dataset in the form that Hugging Face's ``load_dataset`` reads: Parquet with the payloads, and a dataset card.

Each row is written once. Rows that belong to the same splits in all configurations share files, so that a split is a list of
files. For example, the five iid splits of CLEAR and its stream are configurations over the same images.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...curation.keys import canonical, sha256
from ...curation.part_writer import Hashing
from ...curation.store import Store, remote_errors
from .columns import Feature, MemberColumn, feature_of, member_columns
from .published import PLACES, Published, cut

FILE_BYTES = 256 << 20
"""Maximum payload of a file, unless a single sample is larger."""

EXPORTED = "export.json"
"""Record of an export: what it was made of, and its files, name -> size and SHA-256, or null if of an earlier export."""


def write_parquet(
    dataset: str, target: Store, *, file_bytes: int = FILE_BYTES, progress: Callable[[str], None] = lambda _: None
) -> int:
    """Write a published dataset as Parquet with a card for the Hugging Face Hub, and return the number of rows.

    A file with the size and SHA-256 in ``export.json`` is not written again, so a repeated call continues where one was
    interrupted. Memory holds one row group and the index.

    Args:
        dataset: folder or URL with ``dataset.json``, index and shards.
        target: destination: a folder, or any fsspec URL such as ``hf://datasets/NAME``.
        file_bytes: maximum payload of a file.
        progress: called with one line per file.

    Raises:
        ShardError: a shard is missing or broken.
        ValueError: the configurations name a column that does not exist, or leave a row out.

    >>> write_parquet("out/dataset", Store("for-the-hub"))
    210
    >>> import polars as pl
    >>> rows = pl.read_parquet("for-the-hub/data/*.parquet")
    >>> rows.select("class_name", pl.col("image").struct.field("path").str.tail(4)).row(0)
    ('BACKGROUND', '.bmp')
    """
    of = Published.open(dataset)
    table, labels = of.index.table, of.labels
    members = member_columns(dataset, pc.unique(table["shard"]).to_pylist(), taken=table.column_names)
    plain = [field for field in table.schema if field.name not in PLACES]
    features = {field.name: _labelled(field, labels) for field in plain}
    for column in members:
        features |= column.features()
    plain = [pa.field(field.name, pa.int64()) if field.name in labels else field for field in plain]
    schema = pa.schema([*plain, *(field for column in members for field in column.fields())])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    masks = of.masks()
    files: dict[str, list[str]] = {}
    done = _Done(target, {**of.version, "file_bytes": file_bytes, "columns": sha256(canonical(features))})
    for number, (splits, rows) in enumerate(_atoms(masks)):
        for part, some in enumerate(cut(rows, table["size"].to_numpy(), file_bytes)):
            name = f"data/{number:03d}-{part:05d}.parquet"
            if not done.has(name):
                with target.writing(name) as stream:
                    hashing = Hashing(stream)
                    with pq.ParquetWriter(hashing, schema, compression="zstd") as writer:
                        for group in _tables(of, some, members, schema):
                            writer.write_table(group)
                done.add(name, hashing.facts)
                progress(f"{name}: {len(some):,} rows")
            for split in splits:
                files.setdefault(split, []).append(name)
    counts = {split: int(mask.sum()) for split, mask in masks.items()}
    target.write("README.md", _card(of, features, files, done.files, counts))
    done.close()
    return len(of.index)


def make_repository(url: str) -> bool:
    """Create the private repository that ``hf://datasets/OWNER/NAME`` names. Return False if it exists already.

    Raises:
        OSError: the Hub refuses, or cannot be reached.
        ValueError: the URL names no dataset of the Hub.
    """
    from huggingface_hub import HfApi  # imported only here: it takes a quarter of a second

    found = re.match(r"hf://datasets/([^/@]+/[^/@]+)", url)
    if not found:
        raise ValueError(f"{url}: expected hf://datasets/OWNER/NAME")
    with remote_errors(url):
        if HfApi().repo_exists(found[1], repo_type="dataset"):
            return False
        HfApi().create_repo(found[1], repo_type="dataset", private=True, exist_ok=True)
    return True


class _Done:
    """Files that an earlier export to the same place has written.

    Attributes:
        files: those made of the same dataset with the same settings, with their size and SHA-256.
    """

    def __init__(self, target: Store, of: Mapping[str, Any]) -> None:
        self._target = target
        self._of = of
        held: Any = target.read_json(EXPORTED) if target.exists(EXPORTED) else {}
        before: Any = held.get("files", {}) if isinstance(held, dict) else None
        # Records of an earlier form have only the sizes.
        if not isinstance(before, dict) or not all(isinstance(facts, dict | int | None) for facts in before.values()):
            raise ValueError(f"{target.url}/{EXPORTED} is not the record of an export: remove it, or name another place")
        same = held.get("of") == of
        self.files: dict[str, dict[str, Any]] = {
            name: facts for name, facts in before.items() if same and isinstance(facts, dict)
        }
        self._earlier = [name for name in before if name not in self.files]
        if target.local and not held:  # so that a folder is known as an export's before its first file is whole
            self._write()

    def has(self, name: str) -> bool:
        return name in self.files and self._target.holds(name, self.files[name])

    def add(self, name: str, facts: dict[str, Any]) -> None:
        self.files[name] = facts
        self._write()

    def close(self) -> None:
        """Remove the files that remain from an earlier export of other content."""
        self._target.remove([name for name in self._earlier if name not in self.files])
        self._earlier = []
        self._write()

    def _write(self) -> None:
        self._target.write_json(EXPORTED, {"of": self._of, "files": {**dict.fromkeys(self._earlier), **self.files}})


def _labelled(field: pa.Field, labels: Mapping[str, Sequence[str]]) -> Feature:
    if field.name in labels:
        return {"names": list(labels[field.name]), "_type": "ClassLabel"}
    return feature_of(field.type)


def _atoms(masks: Mapping[str, NDArray[np.bool_]]) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
    """Groups of rows that are in the same splits, with the names of these splits, in the order of their first rows."""
    names = list(masks)
    codes = np.packbits(np.stack([*masks.values()]), axis=0)
    _, first, which = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    for code in np.argsort(first).tolist():
        yield [name for name in names if masks[name][first[code]]], np.flatnonzero(which.ravel() == code)


def _as_indices(table: pa.Table, labels: Mapping[str, Sequence[str]]) -> pa.Table:
    """The table with class names replaced by class indices."""
    for name, names in labels.items():
        if pa.types.is_string(table.schema.field(name).type):
            places = pc.index_in(table[name], value_set=pa.array(names, pa.string())).cast(pa.int64())
            table = table.set_column(table.column_names.index(name), name, places)
    return table


def _tables(of: Published, rows: NDArray[np.int64], members: Sequence[MemberColumn], schema: pa.Schema) -> Iterator[pa.Table]:
    for table, samples in of.samples(rows):
        arrays = [values for column in members for values in column.values(samples, table["key"].to_pylist())]
        plain = _as_indices(table.drop_columns(list(PLACES)), of.labels)
        yield pa.Table.from_arrays([*plain.columns, *arrays], schema=schema)


# ---------------------------------------------------------------------------------------------------------------- the card


def _card(
    of: Published,
    features: Mapping[str, Feature],
    files: Mapping[str, Sequence[str]],
    written: Mapping[str, Mapping[str, Any]],
    counts: Mapping[str, int],
) -> bytes:
    """The dataset's card, with the Hub's description of configurations and columns in its head."""
    _, head, text = Store(of.index.url).read("README.md").decode().split("---\n", 2)
    columns = [{"name": name, **_yaml(feature)} for name, feature in features.items()]
    texts: list[dict[str, Any]] = []
    described: list[dict[str, Any]] = []
    for number, (name, splits) in enumerate(of.configurations.items()):
        there = {split: files[f"{name}/{split}"] for split in splits if f"{name}/{split}" in files}
        data = [{"split": split, "path": list(paths)} for split, paths in there.items()]
        texts.append({"config_name": name, "data_files": data, **({} if number else {"default": True})})
        spans = {split: sum(written[path]["size"] for path in paths) for split, paths in there.items()}
        held = [{"name": each, "num_bytes": size, "num_examples": counts[f"{name}/{each}"]} for each, size in spans.items()]
        size = sum(spans.values())
        info = {"features": columns, "splits": held, "download_size": size, "dataset_size": size}
        described.append({"config_name": name, **info})
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in (("configs", texts), ("dataset_info", described))
    ]
    front = [line for line in head.splitlines() if not line.startswith(("tags:", "configs:"))]
    tags = json.loads(next((line[5:] for line in head.splitlines() if line.startswith("tags:")), "[]"))
    front.append(f"tags: {json.dumps([tag for tag in tags if tag != 'webdataset'], ensure_ascii=False)}")
    body = text.partition("## How to read it")
    rest = body[2].partition("\n## ")
    how = ["## How to read it", "", "```python", "from datasets import load_dataset", ""]
    how += [f'dataset = load_dataset("FOLDER OR NAME", "{name}")' for name in of.configurations] + ["```", ""]
    return "\n".join(["---", *front, *lines, "---", body[0] + "\n".join(how), f"## {rest[2]}" if rest[2] else ""]).encode()


def _yaml(feature: Feature) -> dict[str, Any]:
    """A feature in the form used in the head of a card."""
    kind = feature["_type"]
    if kind == "List":
        inner = _yaml(feature["feature"])
        return {"list": inner.get("dtype", inner)}
    if kind == "Value":
        return {"dtype": feature["dtype"]}
    if kind in ("Image", "Audio"):
        return {"dtype": kind.lower()}
    if kind == "ClassLabel":
        return {"dtype": {"class_label": {"names": {str(at): name for at, name in enumerate(feature["names"])}}}}
    dimensions = kind.removeprefix("Array").removesuffix("D")
    return {"dtype": {f"array{dimensions}_d": {"shape": feature["shape"], "dtype": feature["dtype"]}}}
