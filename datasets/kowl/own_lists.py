"""Your own releases: any number of CSV, Parquet and JSON files, with column names from the settings.

A row is a sample of a release, and needs an id, of any form, and a label. A sample is identified by its id, and by start and
end if there are columns for these: the same id in two lists is the same sample. These files are read:

* ``.csv`` and ``.tsv``, with a header, also compressed (``.gz``, ``.bz2``, ``.xz``);
* ``.parquet``;
* ``.json``: a list of objects, or an object of objects, whose names are then ids (unless the objects have the column);
* ``.jsonl`` and ``.ndjson``: one object per line.

For rows without a split, ``draw_splits`` draws it by the id, or by a column of groups.
"""

from __future__ import annotations

import contextlib
import json
import math
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, cast

import fsspec
import polars as pl
import pyarrow as pa

from ...curation.bounded_reading import bounded, parse_json, plain_ending, read_file, read_lines, utf8_lines
from ...curation.csv_files import check_header, csv_rows
from ...curation.parquet_footer import opened
from ...curation.rng import uniform
from ...curation.rows import Rejected, Sifted, is_text, printable, sift, with_column
from ..kinetics.lists import SPLIT_NAMES, SPLITS, pieces
from ..videos.groups import parts_of_groups

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

_ENDINGS = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")
_MAX_TIME_S = 999_999


@dataclass(frozen=True)
class ListColumns:
    """Column names of a list.

    Attributes:
        id: id of the sample, or of the video that contains the clip.
        label: class of the sample; empty if the release gives none.
        split: ``train``, ``validate`` or ``test`` (also ``val``, ``training``, ...); optional, and may be empty in a row.
        release: release of the row, in a file with several releases.
        start, end: times of the clip in its video, seconds, read to the millisecond; both or neither.
        feature: name of the sample's feature, if it is not the sample's key.
        group: rows with the same value, such as a recording, performer or camera, never end up in different splits when these
            are drawn; by default the id.
    """

    id: str = "id"
    label: str = "label"
    split: str | None = None
    release: str | None = None
    start: str | None = None
    end: str | None = None
    feature: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise ValueError("source.columns: start and end belong together: name both or neither")


@dataclass(frozen=True)
class TableFile:
    """One list.

    Attributes:
        path: path relative to the folder of lists, with ``/``.
        release: name of the file's release; None: given by ``columns.release``.
        split: split of all rows of the file; None: given by a column, or drawn by the shares.
        columns: column names of this file, if they differ from ``source.columns``.
    """

    path: str
    release: str | None = None
    split: str | None = None
    columns: ListColumns | None = None


@dataclass(frozen=True)
class LeftOut:
    """Whole classes and groups that, when splits are drawn, are used for testing only.

    Attributes:
        labels: classes that are never trained on, by their spelling in any list or after ``labels.renames``.
        groups: values of the column ``columns.group``, such as performers or cameras.
    """

    labels: list[str] = field(default_factory=list[str])
    groups: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class SplitShares:
    """How samples without a split are assigned: shares of ``validate`` and ``test``; the rest is for training.

    Attributes:
        validate: share of the ids, over all releases, for validation, 0 to below 1. With ``columns.group``, whole groups that
            hold about this share of the samples.
        test: share of the ids for testing, drawn in the same way; ``validate`` + ``test`` must be below 1.
        leave_out: whole classes and groups for testing only, in addition to the share of the others.
    """

    validate: float = 0.1
    test: float = 0.2
    leave_out: LeftOut = field(default_factory=LeftOut)

    def __post_init__(self) -> None:
        if not (self.validate >= 0 and self.test >= 0 and self.validate + self.test < 1):
            raise ValueError(f"source.without_split: shares {self.validate} and {self.test}: their sum is 0 to below 1")


@dataclass(frozen=True)
class OwnListed:
    """A row of a list, see ``kinetics.lists.Listed``; times are seconds, to the millisecond, or None if a list has none.
    ``split`` is "" if the list has none; ``feature_key`` names the feature; ``group`` must not be divided between splits.
    """

    key: str
    release: str
    split: str
    label: str | None
    youtube_id: str
    time_start: float | None
    time_end: float | None
    feature_key: str | None
    group: str | None


@dataclass(frozen=True)
class Split:
    """Columns that ``draw_splits`` changes: every row has a split, and all rows of an id have the same group."""

    key: str
    split: str
    group: str | None


def listed_tables(*, root: str, files: Sequence[TableFile], columns: ListColumns) -> Iterator[str]:
    """The files, one piece each, in their order, as JSON for ``read_table``.

    Raises:
        ValueError: a file is named twice, is of another kind, has no release, or has a path that leaves ``root``.
        FileNotFoundError: a file does not exist.
    """
    for file in files:
        if plain_ending(file.path) not in _ENDINGS:
            raise ValueError(f"list {file.path!r}: files that end in {', '.join(_ENDINGS)} are read")
        if (file.release is None) == ((file.columns or columns).release is None):
            raise ValueError(f"list {file.path!r}: say its release, or name a column in columns.release, but not both")
    yield from pieces(root, files)


def read_table(piece: str, *, root: str, columns: ListColumns) -> Iterator[OwnListed | Rejected]:
    """Rows of one file, in its order.

    Args:
        piece: one result of ``listed_tables``.
        root: the same as for ``listed_tables``.
        columns: column names for files that do not have their own.

    Yields:
        Rows, and as rejects ``malformed_row`` (a different number of fields than the header, or a value that is neither text
        nor a number), ``empty_id``, ``no_release``, ``bad_split``, ``bad_time`` (not two numbers of seconds, 0 <= start < end
        <= 999999, or both in the same millisecond).

    Raises:
        ValueError: the file is not a table, or lacks a column that the settings name.
    """
    values = json.loads(piece)
    own = values.pop("columns")
    file, names = TableFile(**values), columns if own is None else ListColumns(**own)
    found = _rows(posixpath.join(root, file.path), file.path, names)
    rows = (_listed(f"{file.path}:{number}", row, file, names) for number, row in found)
    yield from bounded(rows, f"list {file.path!r}")


def _listed(key: str, row: Mapping[str, Any] | str, file: TableFile, names: ListColumns) -> OwnListed | Rejected:
    if isinstance(row, str):
        return Rejected(key, "malformed_row", row)
    values: dict[str, str] = {}
    for what, name in asdict(names).items():
        value = "" if name is None else row.get(name)
        text = _text(value)
        if text is None:
            return Rejected(key, "malformed_row", printable(f"{name} is {value!r:.80}"))
        values[what] = text
    if not values["id"]:
        return Rejected(key, "empty_id", f"column {names.id} is empty")
    release = file.release or values["release"]
    if not release:
        return Rejected(key, "no_release", f"{values['id']}: column {names.release} is empty")
    said = SPLIT_NAMES.get(values["split"].lower())
    if values["split"] and said not in ([file.split] if file.split else SPLITS):
        return Rejected(key, "bad_split", f"{values['id']}: {values['split']!r:.80}, not {file.split or ', '.join(SPLITS)}")
    start, end = _seconds(values["start"]), _seconds(values["end"])
    timed = bool(values["start"] or values["end"])
    if timed and (start is None or end is None or start >= end):
        rule = f"two numbers of seconds, 0 <= start < end <= {_MAX_TIME_S}"
        return Rejected(key, "bad_time", f"{values['id']}: {values['start']!r:.40} to {values['end']!r:.40}: {rule}")
    label, feature, group = (values[name] or None for name in ("label", "feature", "group"))
    return OwnListed(key, release, file.split or said or "", label, values["id"], start, end, feature, group)


def _text(value: Any) -> str | None:
    """A value as text without spaces around it, "" for no value; None for a list, an object, or a lone surrogate."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bytes | list | dict):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    return text if is_text(text) else None


def _seconds(text: str) -> float | None:
    """A time to the millisecond: times that differ by less are equal."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if 0 <= value <= _MAX_TIME_S:
            return round(value, 3)
    return None


def draw_splits(
    rows: Rows, *, shares: SplitShares, renames: Mapping[str, str] = MappingProxyType({}), seed: int
) -> Iterator[Sifted]:
    """Whole step: draw a split for every row without one.

    An id has the group of any of its rows. Ids without group are drawn one by one. Groups are kept whole and assigned in random
    order, to train while it has less than its share of the rows, then to validate, then to test: shares are as exact as the
    groups allow, and each split with a share has a group if there are enough. Memory: the ids that have a group, or are left
    out by their label.

    Args:
        rows: rows of ``OwnListed``.
        shares: shares of the splits, and what is left out of training.
        renames: old spelling -> new one, of labels.
        seed: seed for the random choice.

    Yields:
        The rows in their order, with the columns of ``Split``, batch by batch.

    Raises:
        ValueError: no row without a split has a class or group that is to be left out.
    """
    out = shares.leave_out
    tied, labels = _tied_ids(rows, out, renames)

    def ids(columns: Sequence[str]) -> Iterator[tuple[pa.Table, pl.DataFrame]]:
        for table in rows.batches(columns):
            yield table, _with_ties(pl.DataFrame(pl.from_arrow(table.select(["youtube_id", "split"]))), tied)

    sizes, groups = Counter[str](), set[str]()
    for _, listed in ids(["youtube_id", "split"]):
        mine = listed.filter(split="").drop_nulls("group")
        groups.update(mine["group"].unique())
        sizes.update(dict(mine.filter(~pl.col("left")).group_by("group").len().iter_rows()))
    _check_left_out(out, labels, groups)
    total, part_of = sizes.total(), dict[str, int]()
    if total:
        until = (1 - shares.test - shares.validate) * total, (1 - shares.test) * total
        part_of = parts_of_groups(
            sizes, seed=seed, stage="own_lists", until=until, with_middle=shares.validate > 0, with_last=shares.test > 0
        )

    def split_of(split: str, group: str | None, left: bool | None, draw: float) -> str:
        if split or left:
            return split or "test"
        if group is not None:
            return SPLITS[part_of[group]]
        return "test" if draw < shares.test else "validate" if draw < shares.test + shares.validate else "train"

    for table, listed in ids(rows.schema.names):
        draws = pl.Series("draw", uniform(seed, "own_lists", listed["youtube_id"]))
        splits = [split_of(*row) for row in listed.select("split", "group", "left", draws).iter_rows()]
        table = with_column(table, "split", pa.array(splits, pa.string()))
        yield sift(with_column(table, "group", listed["group"].to_arrow().cast(pa.string())), {})


def _tied_ids(rows: Rows, out: LeftOut, renames: Mapping[str, str]) -> tuple[pl.DataFrame, set[str]]:
    """Each id that has a group or is left out, sorted, with ``group`` and ``left``; and the labels of the rows without a split.

    All other ids are drawn by their names alone, so that nothing of them is kept.
    """
    schema = {"youtube_id": pl.String, "group": pl.String, "left": pl.Boolean}
    tied, labels = [pl.DataFrame(schema=schema)], set[str]()
    for table in rows.batches(["youtube_id", "label", "split", "group"]):
        frame = pl.DataFrame(pl.from_arrow(table)).with_columns(new=pl.col("label").replace(dict(renames)))
        mine = frame.filter(split="")
        labels.update(mine["label"].drop_nulls().unique(), mine["new"].drop_nulls().unique())
        left = pl.col("label").is_in(out.labels) | pl.col("new").is_in(out.labels)
        frame = frame.with_columns(left=(left & (pl.col("split") == "")).fill_null(False))
        tied.append(_merged(frame.filter(pl.col("left") | pl.col("group").is_not_null())))
    found = _merged(pl.concat(tied)).sort("youtube_id")
    return found.with_columns(left=pl.col("left") | pl.col("group").is_in(out.groups).fill_null(False)), labels


def _with_ties(listed: pl.DataFrame, tied: pl.DataFrame) -> pl.DataFrame:
    """The rows with the columns of ``tied``, null for ids that are not in it."""
    if tied.is_empty():
        return listed.with_columns(group=pl.lit(None, pl.String), left=pl.lit(None, pl.Boolean))
    # A join would hash all of ``tied`` for each batch.
    at = tied["youtube_id"].search_sorted(listed["youtube_id"]).clip(upper_bound=len(tied) - 1)
    found = tied[at]
    here = found["youtube_id"] == listed["youtube_id"]
    return listed.with_columns(pl.when(here).then(found[name]).alias(name) for name in ("group", "left"))


def _merged(frame: pl.DataFrame) -> pl.DataFrame:
    """Each id once, with its first group; it is left out if one of its rows is."""
    return frame.group_by("youtube_id", maintain_order=True).agg(pl.col("group").drop_nulls().first(), pl.col("left").any())


def _check_left_out(out: LeftOut, labels: set[str], groups: set[str]) -> None:
    for what, values, known in (("labels", out.labels, labels), ("groups", out.groups, groups)):
        if strange := sorted(set(values) - known):
            none = "source.columns.group names their column" if what == "groups" else "there is no label"
            seen = f"there are {', '.join(sorted(known))[:200]}" if known else none
            rule = f"no row without a split is of {strange[0]!r}"
            raise ValueError(f"source.without_split.leave_out.{what}: {rule}: {seen}")


def _rows(place: str, path: str, names: ListColumns) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Number of each row, from 1 (for text, of its line), and the row, or its fault."""
    ending = plain_ending(path)
    if ending in (".csv", ".tsv"):
        lines = utf8_lines(place, f"list {path!r}")
        return csv_rows(lines, f"list {path!r}", _needed(names), delimiter="\t" if ending == ".tsv" else ",")
    if ending == ".parquet":
        return _parquet_rows(place, path, names)
    if ending == ".json":
        return _json_rows(place, path, names)
    return _json_lines(place, path, names)


def _needed(names: ListColumns) -> dict[str, str]:
    """Columns, and the settings that name them."""
    return {name: f"source.columns.{what}" for what, name in asdict(names).items() if name is not None}


def _parquet_rows(place: str, path: str, names: ListColumns) -> Iterator[tuple[int, Mapping[str, Any]]]:
    number = 0
    with fsspec.open(place, "rb") as stream, opened(cast("IO[bytes]", stream), f"list {path!r}") as file:
        check_header(file.schema_arrow.names, f"list {path!r}", _needed(names))
        for batch in file.iter_batches(columns=[*_needed(names)]):
            for row in batch.to_pylist():
                number += 1
                yield number, row


def _json_rows(place: str, path: str, names: ListColumns) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    try:
        value = parse_json(read_file(place))
    except ValueError as error:
        raise ValueError(f"list {path!r} cannot be read as JSON: {error}") from None
    if isinstance(value, dict):
        value = [{names.id: name, **entry} if isinstance(entry, dict) else entry for name, entry in value.items()]
    if not isinstance(value, list):
        raise ValueError(f"list {path!r}: expected a list of objects, or an object of objects")
    yield from _objects(enumerate(value, 1), path, names)


def _json_lines(place: str, path: str, names: ListColumns) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    def parsed() -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(read_lines(place), 1):
            if line.strip():
                try:
                    yield number, parse_json(line)
                except ValueError as error:
                    yield number, f"no JSON: {error}"

    yield from _objects(parsed(), path, names)


def _objects(values: Any, path: str, names: ListColumns) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Columns are checked at the first object; later ones may lack some."""
    checked = False
    for number, value in values:
        if not isinstance(value, dict):
            yield number, value if isinstance(value, str) else f"no object: {value!r:.80}"
            continue
        if not checked:
            check_header(list(value), f"list {path!r}", _needed(names))
            checked = True
        yield number, value
