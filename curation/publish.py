"""The files next to the shards of a published dataset: ``index.parquet``, ``README.md`` (the card), ``croissant.json`` and
``dataset.json``.

All of them are functions of the index and the card's facts: no time, no machine, no path. Parquet's bytes also depend on the
version of pyarrow, so a comparison over versions goes by the digest in ``dataset.json``.
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
"""What the index must hold; ``shard`` is the tar's name without ``.tar``. All other columns are labels."""

CROISSANT = "croissant.json"
"""The dataset in Croissant's words, see ``croissant``."""

_FEW = 24
_LETTERS = 200
"""Of a text from data."""


class RepeatedKey(ValueError):
    """Two rows of an index have one key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} occurs twice in the index")
        self.key = key


@dataclasses.dataclass(frozen=True)
class DatasetCard:
    """What a dataset says of itself.

    Args:
        title: one line.
        summary: prose of the card, Markdown.
        pipeline: name of the pipeline that made it.
        digest: content digest of the artifact that was published.
        licence: SPDX identifier, or ``other``.
        citation: BibTeX or text.
        sources: one mapping a source: ``name``, ``url``, ``sha256``, ``licence``, ``citation``, as far as they are known.
        members: extension -> facts in words and values: ``{"embedding.npy": {"holds": "CLIP embedding", "dtype": "float32",
            "shape": [512]}}``.
        columns: label column -> one line of meaning.
        features: name of a feature set next to the shards -> its facts: ``file``, ``dtype``, ``shape``, ...
        tags: words for a hub's search.
        tasks: what it is for, in the words of Hugging Face's hub, such as ``image-classification``.
        labels: column of class indices -> names of the classes, in the order of their indices.
        configurations: name -> split -> the rows in it, as column -> value, or list of values of which any will do. The first
            is what is loaded by default. Each holds every row; one with all rows in "train" where none is given.

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
"""What Markdown, its tables and HTML act on; an underscore within a word is none of it."""


def escaped(text: str) -> str:
    """Text from data, such as the name of a class, as Markdown on one line that shows it as it is, in tables too; a long one
    is cut."""
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
        card: the facts.
        shards: file name (``<shard>.tar``) -> its ``size`` and ``sha256``.
        others: of further files, by their paths in the folder.

    Returns:
        ``index.parquet``, ``README.md``, ``croissant.json`` and ``dataset.json``, which holds the SHA-256 of all others.

    Raises:
        RepeatedKey: two rows of the index have one key.
        ValueError: the index lacks a column, names a shard that is not given, or the other way round.
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
    told = dict(more, features=features) if features else more
    described = dataset_json(card, index, _counts(index, shards), files, **told)
    return {"index.parquet": parquet, "README.md": readme, CROISSANT: croissant, "dataset.json": described}


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as it is published."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", version="2.6", row_group_size=1 << 20)
    return sink.getvalue().to_pybytes()


def dataset_json(
    card: DatasetCard, table: pa.Table, counts: Mapping[str, int], files: Mapping[str, Mapping[str, Any]], **more: Any
) -> bytes:
    """What ``dataset.json`` says of the card, the columns of the published table, and all other files."""
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
        "configurations": [  # lists, since their order counts
            {"name": name, "splits": [{"name": split, "where": dict(where)} for split, where in splits.items()]}
            for name, splits in card.configurations.items()
        ],
        **more,
    }
    return f"{json.dumps(described, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()


def fact_of(data: bytes) -> dict[str, Any]:
    """``size`` and ``sha256`` of a file that is published."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Role -> what Hugging Face's hub calls such a split."""


def names_of(table: pa.Table, indices: str, names: str) -> list[str]:
    """Names of classes in the order of their indices, of two columns that go together; "class 3" for one without a row.

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
    # JSON strings and lists are YAML: no quoting rules to get wrong.
    front = {
        "pretty_name": card.title,
        "license": card.licence.lower(),
        **({"license_name": "see-the-card"} if card.licence == "other" else {}),
        **({"task_categories": list(card.tasks)} if card.tasks else {}),
        "tags": sorted({"webdataset", "benchwright", *card.tags}),
        "size_categories": [_size_category(counts["samples"])],
        # Left to itself, load_dataset takes the tars or the index, whichever are more files, and from tars the pictures of the
        # first formats that it meets.
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
    """A table, and how to open one."""
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
    """``value (count)`` for text, truth and whole numbers with few values; the range for other numbers."""
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
"""Whom a data set owes its pictures to: authors, titles and licences, which CC BY and its kin ask for."""

_NAMES = {
    "author": ("author", "nickname", "owner", "creator", "photographer"),
    "title": ("title",),
    "licence": ("licence", "license", "licence_name", "license_name"),
    "licence_url": ("licence_url", "license_url"),
    "source_url": ("source_url", "page_url", "url"),
}
"""Column of the table -> columns in which sources have it, by preference."""

_LABELS = "labels"
"""Column of JSON in which sources without columns of their own for it keep what else they know of a picture."""


def attribution_csv(index: pa.Table) -> bytes | None:
    """The table as it is published next to a data set: key, author, title, licence, licence_url, source_url.

    Args:
        index: the rows of the data set, with what the source says of them, in columns or in a column ``labels`` of JSON.

    Returns:
        None if no row names a licence.

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
