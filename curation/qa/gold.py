"""Gold questions: their file as a person writes it, and the key of those that a run has exported."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ..keys import sha256
from ..records import check_file
from ..rows import is_text, printable
from ..run import lock
from ..store import Store
from .mturk import Gold
from .mturk_results import clean, csv_records

BUSY = "another import or a run is at work in {}: wait for it, and import again"

_KEY = "gold_key.json"
"""File of a round that has the key of all gold questions that were exported."""


def gold_questions(path: str, per_batch: int, classes: Collection[str], *, thumbnails: bool) -> Gold:
    """The questions of a CSV file, see ``rounds.export_questions``. Raises ``ValueError`` for the first line that is none."""
    place = "file" if thumbnails else "url"
    folder = Path(os.path.realpath(path)).parent
    asked: dict[str, tuple[str, bytes]] = {}
    for line, row in _lines(path, ("class_name", place), classes):
        name, where_from = row["class_name"], f"{path} line {line}"
        what = _file(folder, row[place], where_from).read_bytes() if thumbnails else row[place].encode()
        # Named after what is asked: another file of gold questions may be in use later, while answers to this one still come.
        key = f"gold{sha256(name.encode() + bytes(1) + what)[:16]}"
        if key in asked:
            raise ValueError(f"{where_from}: this question stands there twice")
        asked[key] = name, what
    if not asked:
        raise ValueError(f"{path}: no gold question stands below its header")
    table = pa.table({"key": list(asked), "concept": [name for name, _ in asked.values()]})
    if thumbnails:
        return Gold(table, per_batch, {key: what for key, (_, what) in asked.items()})
    return Gold(table.append_column("url", pa.array([what.decode() for _, what in asked.values()])), per_batch)


def _lines(path: str, needed: Sequence[str], classes: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and fields of the gold questions. Raises ``ValueError`` for the first line that is none."""

    def check_header(path: Path, header: list[str]) -> None:
        if any(header.count(name) != 1 for name in needed):
            raise ValueError(f"{path}: gold questions need a header with the columns {', '.join(needed)}, each once")

    for line, header, fields in csv_records(Path(path), check_header):
        if len(fields) != len(header):
            raise ValueError(f"{path} line {line}: {len(fields)} fields, the header has {len(header)}")
        row = dict(zip(header, fields, strict=True))
        for name in needed:
            if not row[name].strip() or clean(row[name]) != row[name]:
                raise ValueError(f"{path} line {line}: {name} is {row[name]!a:.60}: it must be text, in UTF-8")
        if row["class_name"] not in classes:
            raise ValueError(f"{path} line {line}: class_name {row['class_name']!r:.60} is no class of the run")
        yield line, row


def _file(folder: Path, name: str, place: str) -> Path:
    file = Path(os.path.realpath(folder / name))
    if not file.is_relative_to(folder):
        raise ValueError(f"{place}: file {name!r} lies outside the folder of the CSV")
    if not file.is_file():
        raise ValueError(f"{place}: file {name!r} not found next to the CSV")
    return file


def gold_key(store: Store, folder: str) -> dict[str, str]:
    """Key -> right class of all gold questions of a round's exports; empty where there were none. Raises ``ValueError`` or
    ``StoreError`` where the file is damaged."""
    name = posixpath.join(folder, _KEY)
    if store.local:
        check_file(store.local / name)
    gold = store.read_json(name) if store.exists(name) else {}
    place = posixpath.join(store.url, name)
    if not isinstance(gold, dict):
        raise ValueError(f"{place}: not a gold key: it is no object")
    for key, right in gold.items():
        if not (isinstance(right, str) and is_text(key) and is_text(right)):
            raise ValueError(f"{place}: not a gold key: the class of question {printable(key)!r:.60} is no text")
    return gold


def add_to_gold_key(store: Store, folder: str, placed: Mapping[str, str]) -> None:
    """Add questions to the key beside the run. Those of earlier exports stay: their answers may still come."""
    name = posixpath.join(folder, _KEY)
    with lock(store, BUSY):
        store.write_json(name, {**gold_key(store, folder), **placed})
        if store.local:
            (store.local / name).chmod(0o600)
