"""The files next to the shards of a published dataset: ``index.parquet``, ``README.md`` (the card), ``croissant.json`` and
``dataset.json``.

All of them depend only on the index and the card, not on time, machine or path. The bytes of Parquet files also depend on the
version of pyarrow; to compare datasets made with different versions, use the digest in ``dataset.json``.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .croissant import croissant_json
from .rows import visible

INDEX_COLUMNS = {"key": pa.string(), "shard": pa.string(), "offset": pa.int64(), "size": pa.int64()}
"""Columns that the index must have; ``shard`` is the tar's name without ``.tar``. All other columns are labels."""

CROISSANT = "croissant.json"
"""File name of the metadata in the Croissant format, see ``croissant``."""

_FEW = 24
_LETTERS = 200
"""Maximum length of a text from data, such as a class name, in the card."""


class RepeatedKey(ValueError):
    """Two rows of an index have the same key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} occurs twice in the index")
        self.key = key


@dataclasses.dataclass(frozen=True)
class DatasetCard:
    """Description of a dataset, for its card and metadata.

    Args:
        title: title, one line.
        summary: prose of the card, Markdown.
        pipeline: name of the pipeline that made the dataset.
        digest: content digest of the published artifact.
        licence: SPDX identifier, or ``other``.
        citation: BibTeX or text.
        sources: one mapping per source: ``name``, ``url``, ``sha256``, ``licence``, ``citation``, as far as known.
        members: extension -> properties: ``{"embedding.npy": {"holds": "CLIP embedding", "dtype": "float32",
            "shape": [512]}}``.
        columns: label column -> its meaning, one line.
        features: name of a feature set next to the shards -> its properties: ``file``, ``dtype``, ``shape``, ...
        tags: search terms for a hub.
        tasks: tasks that the dataset is for, as named by the Hugging Face hub, such as ``image-classification``.
        labels: column of class indices -> names of the classes, by class index.
        configurations: name -> split -> condition for the rows in it, as column -> value, or a list of alternative values. The
            first configuration is loaded by default. Each contains every row. Without any, all rows are in "train".

    >>> DatasetCard("Words", "Texts, and how many words each has.", "words", digest="0" * 64, licence="CC0-1.0").licence
    'CC0-1.0'
    """

    title: str
    summary: str
    pipeline: str
    digest: str
    licence: str
    citation: str = ""
    sources: Sequence[Mapping[str, str]] = ()
    members: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict[str, Mapping[str, Any]])
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    features: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict[str, Mapping[str, Any]])
    tags: Sequence[str] = ()
    tasks: Sequence[str] = ()
    labels: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict[str, Sequence[str]])
    configurations: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict[str, Mapping[str, Mapping[str, Any]]]
    )


_MARKUP = re.compile(r"[\\`*<\[&|~]|(?<![^\W_])_|_(?![^\W_])")
"""Characters that are special in Markdown, its tables or HTML; an underscore within a word is not."""


def escaped(text: str) -> str:
    """Text from data, such as a class name, escaped as one line of Markdown, also for tables; long texts are truncated."""
    text = text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(text.splitlines())))


def dataset_files(
    index: pa.Table,
    card: DatasetCard,
    shards: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, bytes]:
    """Bytes of the files next to the shards.

    Args:
        index: ``INDEX_COLUMNS`` and the label columns, one row per sample, in the dataset's order.
        card: description of the dataset.
        shards: file name (``<shard>.tar``) -> its ``size`` and ``sha256``.
        others: path in the folder -> ``size`` and ``sha256`` of further files.

    Returns:
        ``index.parquet``, ``README.md``, ``croissant.json`` and ``dataset.json``, which contains the SHA-256 of all others.

    Raises:
        RepeatedKey: two rows of the index have the same key.
        ValueError: the index lacks a column, or its shards are not exactly those in ``shards``.
    """
    _check_index(index, shards)
    parquet, readme = parquet_bytes(index), _readme(index, card, shards).encode()
    files = {**shards, **others, "index.parquet": fact_of(parquet), "README.md": fact_of(readme)}
    croissant = croissant_json(
        name=card.title,
        description=card.summary,
        licence=card.licence,
        citation=card.citation.strip(),
        digest=card.digest,
        table=index,
        columns={**_PLACES, **card.columns},
        files=files,
    )
    files[CROISSANT] = fact_of(croissant)
    more = {
        "sources": [dict(each) for each in card.sources],
        "members": {name: dict(each) for name, each in card.members.items()},
    }
    features = {name: dict(each) for name, each in card.features.items()}
    facts = dict(more, features=features) if features else more
    described = dataset_json(card, index, _counts(index, shards), files, **facts)
    return {"index.parquet": parquet, "README.md": readme, CROISSANT: croissant, "dataset.json": described}


def parquet_bytes(table: pa.Table) -> bytes:
    """Bytes of a table as a published Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", version="2.6", row_group_size=1 << 20)
    return sink.getvalue().to_pybytes()


def dataset_json(
    card: DatasetCard, table: pa.Table, counts: Mapping[str, int], files: Mapping[str, Mapping[str, Any]], **more: Any
) -> bytes:
    """Content of ``dataset.json``: the card, the columns of the published table, and all other files."""
    described = {
        "format": 1,
        "title": card.title,
        "pipeline": card.pipeline,
        "digest": card.digest,
        "licence": card.licence,
        "counts": counts,
        "columns": {field.name: str(field.type) for field in table.schema},
        "files": files,
        "labels": {name: list(names) for name, names in card.labels.items()},
        "configurations": [  # lists, since the order matters
            {"name": name, "splits": [{"name": split, "where": dict(where)} for split, where in splits.items()]}
            for name, splits in card.configurations.items()
        ],
        **more,
    }
    return f"{json.dumps(described, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()


def fact_of(data: bytes) -> dict[str, Any]:
    """``size`` and ``sha256`` of a published file."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Role of a split -> its name on the Hugging Face hub."""


def names_of(table: pa.Table, indices: str, names: str) -> list[str]:
    """Class names by class index, from a column of indices and one of names; "class 3" for a class without rows.

    >>> names_of(pa.table({"label": [2, 0, 2], "class_name": ["dog", "cat", "dog"]}), "label", "class_name")
    ['cat', 'class 1', 'dog']
    """
    pairs = table.select([indices, names]).group_by([indices, names]).aggregate([]).to_pylist()
    found = {row[indices]: row[names] for row in pairs if row[indices] is not None and row[indices] >= 0}
    return [found.get(at, f"class {at}") for at in range(max(found, default=-1) + 1)]


def _check_index(index: pa.Table, shards: Mapping[str, Mapping[str, Any]]) -> None:
    for name, kind in INDEX_COLUMNS.items():
        if name not in index.column_names or index.schema.field(name).type != kind:
            raise ValueError(f"the index needs a column {name!r} of type {kind}; it has {index.schema.names}")
    if pc.count_distinct(index["key"]).as_py() != index.num_rows:
        counts = pc.value_counts(index["key"])
        twice = next(item["values"].as_py() for item in counts if item["counts"].as_py() > 1)
        raise RepeatedKey(twice)
    named = {f"{name}.tar" for name in pc.unique(index["shard"]).to_pylist()}
    if named != set(shards):
        raise ValueError(f"the index and the files differ in these shards: {sorted(named ^ set(shards))[:3]}")


def _counts(index: pa.Table, shards: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    return {"samples": index.num_rows, "shards": len(shards), "bytes": sum(fact["size"] for fact in shards.values())}


def _readme(index: pa.Table, card: DatasetCard, shards: Mapping[str, Mapping[str, Any]]) -> str:
    counts = _counts(index, shards)
    # JSON strings and lists are valid YAML, which avoids its quoting rules.
    front = {
        "pretty_name": card.title,
        "license": card.licence.lower(),
        **({"license_name": "see-the-card"} if card.licence == "other" else {}),
        **({"task_categories": list(card.tasks)} if card.tasks else {}),
        "tags": sorted({"webdataset", "benchwright", *card.tags}),
        "size_categories": [_size_category(counts["samples"])],
        # Without this, load_dataset would take either the tars or the index, whichever has more files, and from tars only the
        # pictures of the first formats that it finds.
        "configs": [{"config_name": "index", "data_files": [{"split": "samples", "path": "index.parquet"}]}],
    }
    lines = ["---", *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()), "---", ""]
    lines += [f"# {card.title}", "", card.summary.strip(), ""]
    lines += [
        f"{counts['samples']:,} samples in {counts['shards']:,} shards, {counts['bytes'] / 1e6:,.1f} MB. Made by the "
        f"benchwright pipeline `{card.pipeline}`; content digest `{card.digest}`. SHA-256 of every file: `dataset.json`.",
        "",
        "## Members of a sample",
        "",
        "| extension | holds |",
        "| --- | --- |",
        *(f"| `{extension}` | {_facts(facts)} |" for extension, facts in sorted(card.members.items())),
        "",
        "## Columns of `index.parquet`",
        "",
        "| column | type | meaning | values |",
        "| --- | --- | --- | --- |",
        *(_column_line(index, name, card.columns.get(name, "")) for name in index.column_names),
        "",
        *_HOW_TO_READ,
    ]
    if card.features:
        lines += ["", "## Feature sets", "", *_feature_lines(card.features)]
    if card.sources:
        lines += ["", "## Sources", "", *(f"- {_facts(source)}" for source in card.sources)]
    lines += ["", "## Licence", "", card.licence]
    if card.citation:
        lines += ["", "## Citation", "", "```", card.citation.strip(), "```"]
    return "\n".join(lines) + "\n"


def _feature_lines(features: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines of the card with a table of the feature sets, and an example of how to open one."""
    names = ["file", "dtype", "shape", "digest"]
    rows = [f"| `{name}` | {' | '.join(_cell(each.get(fact, '')) for fact in names)} |" for name, each in features.items()]
    return [
        "Vectors of the images, row for row with `index.parquet`; `dataset.json` records how they were computed.",
        "",
        "| name | file | type | shape | content digest |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        "```python",
        "from benchwright.datasets.reader.features import open_features",
        f'values, table = open_features(".", "{next(iter(features))}")  # memory-mapped',
        "```",
    ]


_PLACES = {
    "key": "name of the sample",
    "shard": "tar that holds it, without `.tar`",
    "offset": "byte of its first header in the tar",
    "size": "bytes from there to the next sample",
}

_HOW_TO_READ = """## How to read it

The shards are plain WebDataset tars:

```python
import glob, webdataset
dataset = webdataset.WebDataset(sorted(glob.glob("*.tar")), shardshuffle=False).decode("rgb8")
```

With the index, in any order, by rows that you choose:

```python
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.reader.dataset import ShardDataset
dataset = ShardDataset(DatasetIndex.open("."), seed=0, batch_size=64)
for batch in dataset.loader(num_workers=2, collate_fn=list): ...
```

`load_dataset` of Hugging Face gives the index of this folder, without the members. `benchwright push RUN FOLDER` writes a form
for it that has the members as columns, and the splits.""".splitlines()


def _size_category(samples: int) -> str:
    names = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B"]
    return next((name for power, name in enumerate(names, start=3) if samples < 10**power), "n>1B")


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(_cell(value) if name == "holds" else f"{name} {_cell(value)}" for name, value in facts.items())


def _column_line(index: pa.Table, name: str, meaning: str) -> str:
    field = index.schema.field(name)
    values = "" if name in INDEX_COLUMNS else _values(index[name])
    return f"| `{name}` | {_cell(field.type)} | {_cell(meaning or _PLACES.get(name, ''))} | {values} |"


def _values(column: pa.ChunkedArray) -> str:
    """``value (count)`` for text, boolean and integer columns with few distinct values; the range for other numbers."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        counts = sorted(
            ((item["values"], item["counts"]) for item in pc.value_counts(column).to_pylist()),
            key=lambda pair: (pair[0] is None, pair[0] if pair[0] is not None else 0),
        )
        if len(counts) <= _FEW:
            return ", ".join(f"{escaped(str(value))} ({count:,})" for value, count in counts)
        if pa.types.is_string(kind):
            return f"{len(counts):,} values"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        if column.null_count == len(column):
            return "no values"
        limits = pc.min_max(column).as_py()
        return f"{_cell(limits['min'])} to {_cell(limits['max'])}"
    return ""


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


ATTRIBUTION = "ATTRIBUTION.csv"
"""File name of the table of authors, titles and licences, which CC BY and similar licences require."""

_NAMES = {
    "author": ("author", "nickname", "owner", "creator", "photographer"),
    "title": ("title",),
    "licence": ("licence", "license", "licence_name", "license_name"),
    "licence_url": ("licence_url", "license_url"),
    "source_url": ("source_url", "page_url", "url"),
}
"""Column of the table -> columns in which sources may have it, in order of preference."""

_LABELS = "labels"
"""JSON column for facts about a picture for which a source has no separate columns."""


def attribution_csv(index: pa.Table) -> bytes | None:
    """Content of ``ATTRIBUTION.csv``: key, author, title, licence, licence_url, source_url.

    Args:
        index: rows of the dataset, with the facts of the source in columns or in a JSON column ``labels``.

    Returns:
        The table as CSV; None if no row has a licence.

    >>> rows = pa.table({"key": ["1", "2"], "licence": ["CC BY 2.0", None], "nickname": ["Ann", "Bo"]})
    >>> print(attribution_csv(rows).decode())
    key,author,title,licence,licence_url,source_url
    1,Ann,,CC BY 2.0,,
    2,Bo,,,,
    <BLANKLINE>
    """
    wanted = {name for names in _NAMES.values() for name in names}
    there = [name for name in index.column_names if name in wanted or name in ("key", _LABELS)]
    lines = [_line(row) for row in index.select(there).to_pylist()]
    if not any(line["licence"] for line in lines):
        return None
    text = io.StringIO()
    table = csv.DictWriter(text, ["key", *_NAMES], lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    return text.getvalue().encode()


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    try:
        labels = json.loads(row.get(_LABELS) or "{}")
    except (TypeError, ValueError):  # labels of another kind
        labels = {}
    known = {**(labels if isinstance(labels, dict) else {}), **{name: value for name, value in row.items() if value}}
    found = {name: next((known[each] for each in names if known.get(each)), "") for name, names in _NAMES.items()}
    return {"key": row["key"], **{name: value if isinstance(value, str) else "" for name, value in found.items()}}
