"""The lists of Kinetics releases, and of any dataset that is listed in the same way, as rows: a source read file by file.

Two kinds of files are read. CSV files have columns in any order, named by a header; or no header, with or without a label
before the id and a split and ``is_cc`` after the times; fields may be quoted; CRLF and a byte order mark are accepted. JSON
files are those of the official tars, ``{youtube_id: {"annotations": {"label", "segment": [start, end]}, "subset", ...}}``, or
have label and segment in the entry itself; a name ``<id>_<start>_<end>`` can replace a segment. Both may be in gzip or bzip2.

Every line (of a CSV file except its header) or entry (of a JSON file) becomes a row or a reject:

====================  ==========================================================================================
``blank_line``        an empty line
``malformed_row``     another number of fields than the file has, or an entry without a segment of two times
``bad_utf8``          bytes that are not UTF-8, or a lone surrogate in JSON
``bad_id``            an id of another form: 11 letters, digits, ``-`` and ``_`` by default
``bad_time``          not two whole numbers of seconds (``10`` and ``10.0`` both are), 0 <= start < end <= 999999
``bad_split``         an unknown split, in a file with several splits
``other_split``       another split than the one of the file
``empty_label``       no label in a list whose rows have labels
``unknown_label``     a label that is not in the file of labels
====================  ==========================================================================================

Faults that show only in several rows (duplicates, conflicts) are detected by ``datasets.kowl.unify``.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

import fsspec
import polars as pl
import pyarrow as pa

from ...curation.bounded_reading import (
    check_columns,
    compression_by_head,
    decompressed_head,
    line_blocks,
    parse_json,
    read_stream,
)
from ...curation.local_files import may_leave
from ...curation.rows import Sifted, is_text, printable, sift
from ..roles import ROLE_NAMES, ROLES

SPLITS = ("train", "validate", "test")
"""Names of splits, in their order."""

ID = r"[A-Za-z0-9_-]{11}"
"""A YouTube id, as a regular expression."""

SPLIT_NAMES = {name: SPLITS[ROLES.index(role)] for name, role in ROLE_NAMES.items()}
"""Name of a split in a list, in lower case -> split."""

_HEADER = {
    "label": ("label", "label-name", "label_name", "class", "class_name"),
    "youtube_id": ("youtube_id", "video-id", "video_id", "videoid", "youtube-id", "id"),
    "time_start": ("time_start", "start-time", "start_time", "start", "t_start"),
    "time_end": ("time_end", "end-time", "end_time", "end", "t_end"),
    "split": ("split", "subset"),
}
_NAMED_TIMES = re.compile(r"(.+)_(\d{6})_(\d{6})")
"""A name of a JSON file as downloaders name clips: id, start and end."""
_RAW = ("label", "youtube_id", "time_start", "time_end", "split")
MAX_LABEL_BYTES = 1 << 24
_MAX_TIME_S = 999_999


@dataclass(frozen=True)
class ListFile:
    """One list.

    Attributes:
        release: name of the file's release, in snake_case.
        path: path relative to the folder of lists, with ``/``.
        split: ``train``, ``validate`` or ``test``, for a file of one split; None: given by a column.
        labelled: whether every row must have a label (the official test lists have none).
        labels: file of the release's labels, relative to the same folder: one per line, or a JSON list. None: any label is
            accepted.
    """

    release: str
    path: str
    split: str | None = None
    labelled: bool = True
    labels: str | None = None


@dataclass(frozen=True)
class Listed:
    """A row of a list.

    Attributes:
        key: ``<path>:<line>``, from 1, header included; for a JSON file, the number of the entry.
        release: name of the release.
        split: ``train``, ``validate`` or ``test``.
        label: None if the list has none.
        youtube_id: id of the video.
        time_start: start of the clip in its video, seconds.
        time_end: end of the clip in its video, seconds.
    """

    key: str
    release: str
    split: str
    label: str | None
    youtube_id: str
    time_start: int
    time_end: int


def kinetics_lists(*, root: str, files: Sequence[ListFile]) -> Iterator[str]:
    """The files, one piece each, in their order, as JSON for ``read_kinetics_list``.

    Raises:
        ValueError: a file is named twice, a split is unknown, or a path leaves ``root``.
        FileNotFoundError: a file does not exist.
    """
    yield from pieces(root, files)


def pieces(root: str, files: Sequence[Any]) -> Iterator[str]:
    """``kinetics_lists`` for files of any class with the attributes ``path`` and ``split``, and optionally ``labels``."""
    fs, folder = fsspec.core.url_to_fs(root)
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise ValueError(f"list {file.path!r} is named twice")
        if file.split is not None and file.split not in SPLITS:
            raise ValueError(f"list {file.path!r}: split {file.split!r} is not one of {', '.join(SPLITS)}")
        for path in filter(None, (file.path, getattr(file, "labels", None))):
            if may_leave(path):
                raise ValueError(f"list {path!r}: expected a path within {root}")
            if not fs.isfile(posixpath.join(folder, path)):
                raise FileNotFoundError(f"list {path!r}: no such file in {root}")
        seen.add(file.path)
        yield json.dumps(asdict(file))


def read_kinetics_list(piece: str, *, root: str, id_pattern: str = ID) -> Iterator[Sifted]:
    """Videos of a Kinetics list, in its order.

    Args:
        piece: one result of ``kinetics_lists``.
        root: the same as for ``kinetics_lists``.
        id_pattern: regular expression for a whole id, for datasets that are not on YouTube.

    Yields:
        Columns of ``Listed``, and the rejects.

    Raises:
        ValueError: the file is not a list: it has neither header nor column of ids, or is JSON of another form.
    """
    file = ListFile(**json.loads(piece))
    known = None if file.labels is None else _known(root, file.labels)
    place = f"list {file.path!r}"
    with _opened(root, file.path) as (stream, kind):
        is_json = decompressed_head(stream, place, kind).lstrip()[:1] in (b"{", b"[")
        stream.seek(0)
        if is_json:
            raw = _json_rows(read_stream(stream, place, kind=kind), file.path)
        else:
            raw = _csv_rows(line_blocks(stream, place, kind=kind), file.path, id_pattern)
        for frame in raw:
            yield _sifted(frame, file, id_pattern, known)


def _known(root: str, path: str) -> list[str]:
    try:
        with _opened(root, path) as (stream, kind):
            labels = read_class_names(read_stream(stream, path, kind=kind, max_bytes=MAX_LABEL_BYTES))
    except ValueError as error:
        raise ValueError(f"labels {path!r} cannot be read: {error}") from None
    if not all(map(is_text, labels)):
        label = next(label for label in labels if not is_text(label))
        raise ValueError(f"labels {path!r}: {label[:80]!r} contains half a surrogate pair, which is not valid text")
    return labels


def read_class_names(data: bytes) -> list[str]:
    """Labels in a file, in its order: a JSON list, or one per line (quoted or not), without blank lines."""
    text = data.decode("utf-8-sig")
    if text.lstrip().startswith("["):
        return [str(label) for label in parse_json(text.encode())]
    return [line.strip().strip('"') for line in text.splitlines() if line.strip()]


@contextlib.contextmanager
def _opened(root: str, path: str) -> Iterator[tuple[IO[bytes], str | None]]:
    """A file of the folder, and its compression."""
    fs, folder = fsspec.core.url_to_fs(root)
    with fs.open(posixpath.join(folder, path), "rb") as stream:
        kind = compression_by_head(stream.read(3))
        stream.seek(0)
        yield stream, kind


def _csv_rows(blocks: Iterator[list[bytes]], path: str, id_pattern: str) -> Iterator[pl.DataFrame]:
    """Text columns of ``_RAW``, with the line's number, the line, and the fault of the line as a whole."""
    done = 0
    for lines in blocks:
        if any(line.strip() for line in lines):
            break
        done += len(lines)
    else:
        raise ValueError(f"list {path!r} is empty")
    places, first = _columns(lines, path, id_pattern)
    width: int = places.pop("")
    done += first
    for some in itertools.chain([lines[first:]], blocks):
        if not some:
            continue
        block = _decoded(some)
        # Most quotes enclose a field that needs none; a doubled quote is a literal quote.
        bare = pl.col("seen").str.replace_all(r'(^|,)"([^",]*)"', "${1}${2}")
        plain = pl.when(pl.col("seen").str.contains('""', literal=True)).then(pl.col("seen")).otherwise(bare)
        block = block.with_columns(number=pl.int_range(done + 1, done + 1 + pl.len()), plain=plain).with_columns(
            width=pl.col("plain").str.count_matches(",", literal=True) + 1,
            quoted=pl.col("plain").str.contains('"', literal=True),
        )
        unquoted = block.filter(~pl.col("quoted"))
        frame = _cut(unquoted.with_columns(parts=pl.col("plain").str.split_exact(",", width - 1)), places)
        if unquoted.height < block.height:
            frame = pl.concat([frame, _cut(_unquoted(block.filter("quoted"), width), places)]).sort("number")
        fault = (
            pl.when("undecodable")
            .then(pl.lit("bad_utf8"))
            .when(pl.col("seen").str.strip_chars() == "")
            .then(pl.lit("blank_line"))
            .when(pl.col("width") != width)
            .then(pl.lit("malformed_row"))
            .otherwise(pl.lit(""))
        )
        yield frame.with_columns(_stripped(), fault=fault).drop("width", "undecodable")
        done += len(some)


def _decoded(lines: Sequence[bytes]) -> pl.DataFrame:
    """The lines as text (``seen``), and whether they are not UTF-8 (``undecodable``)."""
    try:
        return pl.Series("seen", lines, pl.Binary).cast(pl.String).to_frame().with_columns(undecodable=False)
    except pl.exceptions.ComputeError:
        texts = [line.decode("utf-8", "replace") for line in lines]
        bad = [text.encode() != line for text, line in zip(texts, lines, strict=True)]
        return pl.DataFrame({"seen": texts, "undecodable": bad})


def _unquoted(block: pl.DataFrame, width: int) -> pl.DataFrame:
    """Lines that only the csv module can read: their number of fields, and the first ``width`` of them as a struct."""
    rows = [_fields(line) for line in block["plain"]]
    fields = {f"field_{n}": [row[n] if n < len(row) else None for row in rows] for n in range(width)}
    parts = pl.DataFrame(fields, schema=dict.fromkeys(fields, pl.String)).to_struct("parts")
    return block.with_columns(parts, width=pl.Series([len(row) for row in rows], dtype=pl.UInt32))


def _cut(block: pl.DataFrame, places: Mapping[str, int | None]) -> pl.DataFrame:
    """The columns of ``_RAW`` from ``parts``, with the line, its number and its number of fields."""
    columns = {
        name: pl.lit(None, pl.String) if place is None else pl.col("parts").struct.field(f"field_{place}")
        for name, place in places.items()
    }
    return block.select("seen", "undecodable", "number", "width", **columns)


def _stripped() -> pl.Expr:
    return pl.col(*_RAW).str.strip_chars().replace("", None)


def _fields(line: str) -> list[str]:
    """Fields of one line; none if a field exceeds 131,072 characters. A quote that is not closed ends with the line, so that it
    cannot swallow the next lines."""
    try:
        return line.split(",") if '"' not in line else next(csv.reader([line]), [])
    except csv.Error:
        return []


def _columns(lines: Sequence[bytes], path: str, id_pattern: str) -> tuple[dict[str, Any], int]:
    """Place of each column of ``_RAW`` (None: absent) and, under "", the number of fields; and the first line of data."""
    head = next(n for n, line in enumerate(lines) if line.strip())
    names = [field.strip().lower().lstrip("#") for field in _fields(lines[head].decode("utf-8", "replace"))]
    check_columns(names, f"list {path!r}")
    places = {
        column: next((names.index(alias) for alias in aliases if alias in names), None) for column, aliases in _HEADER.items()
    }
    if places["youtube_id"] is not None:
        twice = [names[place] for place in places.values() if place is not None and names.count(names[place]) > 1]
        if twice:
            raise ValueError(f"list {path!r}: its header names {twice[0]!r} twice: which column is meant?")
        missing = [name for name in ("time_start", "time_end") if places[name] is None]
        if missing:
            raise ValueError(f"list {path!r}: its header {','.join(names)!r} names no column {missing[0]!r}")
        return {**places, "": len(names)}, head + 1
    rows = [_fields(line.decode("utf-8", "replace")) for line in lines[head : head + 1000]]
    width = max({len(row) for row in rows}, key=[len(row) for row in rows].count)
    check_columns(next(row for row in rows if len(row) == width), f"list {path!r}")
    found = pl.DataFrame([row for row in rows if len(row) == width], orient="row", schema=[str(n) for n in range(width)])
    ids = found.select(pl.all().str.contains(rf"^\s*(?:{id_pattern})\s*$").mean()).row(0)
    times = found.select(pl.all().str.contains(r"^\s*\d+(?:\.\d+)?\s*$").mean()).row(0)
    at = next((n for n in range(width - 2) if ids[n] > 0.5 and times[n + 1] > 0.5 and times[n + 2] > 0.5), None)
    if at is None or at > 1:
        raise ValueError(f"list {path!r}: neither a header nor rows of [label,] id, start, end: {lines[head][:80]!r}")
    split = at + 3 if width > at + 3 else None
    return {
        "label": 0 if at else None,
        "youtube_id": at,
        "time_start": at + 1,
        "time_end": at + 2,
        "split": split,
        "": width,
    }, head


def _json_rows(data: bytes, path: str) -> Iterator[pl.DataFrame]:
    entries = parse_json(data, f"list {path!r}", hook=_Pairs)
    columns: dict[str, list[str | None]] = {name: [] for name in _RAW}
    faults: list[str] = []
    named_entries = (
        entries.pairs if isinstance(entries, _Pairs) else [(str(_noted("youtube_id", each)), each) for each in entries]
    )
    for video, entry in named_entries:
        label, segment, split = (_noted(name, entry) for name in ("label", "segment", "split"))
        named = _NAMED_TIMES.fullmatch(video)
        times: list[Any] = segment if isinstance(segment, list) and len(segment) == 2 else []
        if segment is None:
            apart = [_noted(name, entry) for name in ("time_start", "time_end")]
            if None not in apart:
                times = apart
            elif named and label is not None:
                video, *times = named.groups()
        values = (label, video, *(times or (None, None)), split)
        odd = any(isinstance(value, list | _Pairs) for value in values)
        texts = [None if value is None else str(value) for value in values]
        for name, text in zip(_RAW, texts, strict=True):
            columns[name].append(None if text is None else printable(text))
        stored = all(is_text(text) for text in texts if text)
        faults.append("malformed_row" if odd or not times else "" if stored else "bad_utf8")
    if faults and set(faults) == {"malformed_row"}:
        raise ValueError(f"list {path!r}: {_what_lacks(*named_entries[0])}")
    frame = pl.DataFrame(columns, schema=dict.fromkeys(_RAW, pl.String)).with_columns(_stripped())
    yield frame.with_columns(
        seen=pl.Series(columns["youtube_id"], dtype=pl.String),
        number=pl.int_range(1, pl.len() + 1),
        fault=pl.Series(faults, dtype=pl.String),
    )


def _noted(column: str, entry: Any) -> Any:
    """Value in an entry of a JSON file, in its annotations or outside, under any name that the column has in CSV files."""
    facts = dict(entry.pairs) if isinstance(entry, _Pairs) else {}
    notes = facts.get("annotations")
    for place in (dict(notes.pairs) if isinstance(notes, _Pairs) else {}, facts):
        for alias in _HEADER.get(column, (column,)):
            if place.get(alias) is not None:
                return place[alias]
    return None


def _what_lacks(video: str, entry: Any) -> str:
    """Why the first entry of a JSON file is not a clip."""
    facts = dict(entry.pairs) if isinstance(entry, _Pairs) else {}
    notes = facts.get("annotations", entry)
    has = dict(notes.pairs) if isinstance(notes, _Pairs) else {}
    lacks = " and no ".join(repr(name) for name in ("label", "segment") if name not in has) or "'segment' of two times"
    first = f"the first, {printable(video)[:80]!r}, has {', '.join(map(repr, has)) or 'nothing'}, but no {lacks}"
    if not isinstance(entry, _Pairs):
        first = "the first is not an object with names"
    return (
        f"its entries are not clips of Kinetics: {first}. Expected 'label' and 'segment': "
        "[start, end] in seconds, or 'time_start' and 'time_end', in 'annotations' or the entry, or names <id>_<start>_<end>. "
        "A list of whole videos can be read as CSV with columns video and label (vclimb: source.kind = 'csv')"
    )


class _Pairs:
    """A JSON object including repeated names."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _sifted(raw: pl.DataFrame, file: ListFile, id_pattern: str, known: Iterable[str] | None) -> Sifted:
    named = pl.col("split").str.to_lowercase().replace_strict(SPLIT_NAMES, default=None, return_dtype=pl.String)
    times = [pl.col(name).cast(pl.Float64, strict=False) for name in ("time_start", "time_end")]
    whole = [(time >= 0) & (time <= _MAX_TIME_S) & (time == time.floor()) for time in times]
    frame = raw.with_columns(
        key=pl.lit(f"{file.path}:") + pl.col("number").cast(pl.String),
        release=pl.lit(file.release),
        named=named,
        timed=(whole[0] & whole[1] & (times[0] < times[1])).fill_null(False),
        labelled=pl.col("label").is_not_null(),
    )
    checks: dict[str, pl.Expr] = {fault: pl.col("fault") == fault for fault in ("blank_line", "malformed_row", "bad_utf8")} | {
        "bad_id": ~pl.col("youtube_id").str.contains(f"^(?:{id_pattern})$").fill_null(False),
        "bad_time": ~pl.col("timed"),
    }
    if file.split is None:
        checks["bad_split"] = pl.col("named").is_null()
    else:
        checks["other_split"] = pl.col("split").is_not_null() & (pl.col("named").fill_null("") != file.split)
    if file.labelled:
        checks["empty_label"] = pl.col("label").is_null()
    if known is not None:
        checks["unknown_label"] = ~pl.col("label").is_in(list(known)).fill_null(True)
    broken = frame.select(**checks)
    split = pl.col("named") if file.split is None else pl.lit(file.split)
    kept = frame.select(
        "key",
        "release",
        split.alias("split"),
        "label",
        "youtube_id",
        *(time.cast(pl.Int64, strict=False).alias(name) for time, name in zip(times, ("time_start", "time_end"), strict=True)),
    )
    table: pa.Table = kept.to_arrow()
    seen = frame["seen"].str.slice(0, 200).to_arrow()
    return sift(table, {reason: broken[reason].to_numpy() for reason in checks}, detail=seen)
