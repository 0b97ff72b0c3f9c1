"""Joints in tables, CSV or Parquet, with one row per joint and frame or one row per frame; one or many sequences per file.

A table is read in blocks, and the rows of one sequence, which must be consecutive, are held at a time. A joint without a row,
an empty cell and NaN are missing values, and are distinguished from 0.
"""

from __future__ import annotations

import csv
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import IO, cast

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from ...curation.bounded_reading import check_columns, compression_by_name, decompressed, plain_ending, read_lines
from ...curation.npy import npy_blob
from ...curation.parquet_footer import opened
from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.folder import open_folder, safe_key, walk
from .layouts import Layout
from .own_labels import FIELDS, Known
from .rows import MAX_FRAMES, OwnSequence
from .tensors import TensorForm

MAX_ROWS = 1 << 22
"""Maximum number of rows of a sequence, which are held in memory at a time."""

MAX_NUMBERS = 1 << 26
"""Maximum number of values of a sequence: two rows can claim a hundred thousand frames."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_BLOCK_BYTES = 1 << 17
"""Size of the CSV blocks that Arrow parses at a time. It reads up to 32 blocks ahead."""
_NOTHING = ("", "nan", "na", "n/a", "null", "none")
_ENDINGS = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns of a table, except those of the coordinates, which are ``tensor.axes``.

    Attributes:
        sequence: sequence of the row. In a folder of tables, a file without this column is one sequence, named after the file.
        frame: number of the frame. The frame step of a sequence is the greatest common divisor of its differences. Optional
            in tables with one row per frame: each row is then the next frame.
        joint: name of the joint in the layout, or its number from 0; for tables with one row per joint.
        body: body of the joint, if there are several.
        label, camera, performer, side: property of the sequence, the same in all of its rows.
    """

    sequence: str = "sequence"
    frame: str = "frame"
    joint: str = "joint"
    body: str = "body"
    label: str = "class"
    camera: str = "camera"
    performer: str = "performer"
    side: str = "side"


@dataclass(frozen=True)
class _Reading:
    """How a table is read; ``cells`` are the columns of the coordinates, (joints, axes) of a wide table, else (1, axes)."""

    columns: TableColumns
    wide: bool
    cells: tuple[tuple[str, ...], ...]
    layout: Layout
    form: TensorForm
    leave_out: bool


def read_tables(
    *,
    path: str,
    columns: TableColumns,
    wide: str | None,
    delimiter: str,
    labels: str | None,
    pattern: str | None,
    leave_out: bool,
    layout: Layout,
    form: TensorForm,
) -> Iterator[OwnSequence | Rejected]:
    """Source step: the sequences of a table, or of the tables in a folder, in their order.

    Rejected: ``not_a_number``, ``bad_frame`` (not a whole number), ``repeated_joint`` (twice in a frame), ``wrong_joint_count``
    (a joint that is not in the layout), ``too_long``, ``too_large``, ``differs_within`` (a property, such as the class, changes
    within a sequence), ``no_sequence`` (rows without a sequence); in a folder also ``unknown_format``, ``bad_table`` and
    entries that cannot be listed; and as for ``Known.of``.

    Args:
        path: a file, compressed or not, or a folder.
        columns: names of the columns.
        wide: for tables with one row per frame: pattern of the column names, such as ``{joint}_{axis}`` or ``{axis}{number}``.
        delimiter: delimiter of CSV files.
        labels, pattern: labels of the sequences in addition to their rows; see ``own_labels.Known``.
        leave_out: whether joints that are not in the layout are ignored.
        layout: names of the joints.
        form: names of the axes.

    Raises:
        FileNotFoundError, ValueError: the file or a column does not exist, the file is not a table, or the rows of a sequence
            are not consecutive.
    """
    known, cells = Known.read(labels, pattern), _cells(wide, layout, form)
    reading = _Reading(columns, wide is not None, cells, layout, form, leave_out)
    fs, within = fsspec.core.url_to_fs(path)
    if not fs.isdir(within):
        if not fs.exists(within):
            raise FileNotFoundError(f"no table at {path}")
        yield from _of_file(path, posixpath.basename(path), reading, delimiter, known, None)
        return
    for at, entries in walk(open_folder(path)):
        for entry in entries:
            file = posixpath.join(at, entry.name)
            place, folder = posixpath.join(path, file), file.split("/", 1)[0] if at else ""
            try:
                if entry.reason or plain_ending(file) not in _ENDINGS:
                    yield Rejected(printable(file), entry.reason or "unknown_format", entry.detail)
                else:
                    yield from _of_file(place, file, reading, delimiter, known, folder)
            except ValueError as error:  # reported without the path of the folder, which is not part of the data
                yield Rejected(printable(file), "bad_table", printable(str(error).replace(repr(place), repr(file))))


def _cells(wide: str | None, layout: Layout, form: TensorForm) -> tuple[tuple[str, ...], ...]:
    if wide is None:
        return (form.axes,)
    try:
        named = tuple(
            tuple(wide.format(joint=joint, number=number, axis=axis) for axis in form.axes)
            for number, joint in enumerate(layout.joints)
        )
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"source.wide = {wide!r}: expected {{joint}} or {{number}}, and {{axis}}: {error}") from None
    if len({name for names in named for name in names}) < len(layout.joints) * len(form.axes):
        raise ValueError(
            f"source.wide = {wide!r} maps several joints or axes to the same column: {{joint}} or {{number}}, and {{axis}}"
        )
    return named


def _of_file(
    path: str, file: str, reading: _Reading, delimiter: str, known: Known, folder: str | None
) -> Iterator[OwnSequence | Rejected]:
    """The sequences of one file; ``folder`` is the class folder that contains it, None for a single file."""
    names = reading.columns
    for name, rows, first in _together(_blocks(path, reading, delimiter, folder is not None), names.sequence, path, file):
        text = file if folder is not None and name == file else f"{file}#{name}"
        if name is None or rows is None:
            fault = (
                ("no_sequence", f"no value in column {names.sequence}") if name is None else ("too_large", f"{MAX_ROWS:,} rows")
            )
            yield Rejected(f"{printable(file)}, row {first}", *fault)
            continue
        try:
            said = {field: _one(rows, column, field) for field, column in zip(FIELDS, _described(names), strict=True)}
            of = known.of(name, said if said["class"] or not folder else {**said, "class": folder})
            key = safe_key(printable(text.replace("#", "/") if folder else name))
            yield OwnSequence(key, printable(text), of[0], npy_blob(_joints(rows, reading)), *of[1:])
        except Reject as error:
            yield Rejected(printable(text), error.reason, error.detail)


def _described(names: TableColumns) -> tuple[str, ...]:
    """Columns for the fields ``own_labels.FIELDS``."""
    return names.label, names.camera, names.performer, names.side


def _one(rows: pa.Table, column: str, field: str) -> str | None:
    if column not in rows.column_names:
        return None
    found = [value for value in pc.unique(_text(rows[column])).to_pylist() if value]
    if len(found) > 1:
        raise Reject("differs_within", f"{field}: {found[0][:40]!r} and {found[1][:40]!r} within one sequence")
    return found[0] if found else None


# ---------------------------------------------------------------------------------------------------------------- reading


def _words(name: str) -> tuple[str, ...]:
    """Words of a joint or column, sorted: ``left_eye``, ``LEFT_EYE`` and ``leftEye`` equal the layouts' ``eye_left``."""
    return tuple(sorted(word.lower() for word in _WORD.findall(name)))


def _spelled(header: Sequence[str], reading: _Reading) -> dict[str, str]:
    """Columns of a wide table that have the same words as a required column that is missing -> the required column."""
    cells = [cell for cells in reading.cells for cell in cells]
    by_words: dict[tuple[str, ...], list[str]] = {}
    for name in header:
        by_words.setdefault(_words(name), []).append(name)
    found = {cell: by_words.get(_words(cell), []) for cell in cells if reading.wide and cell not in header}
    return {names[0]: cell for cell, names in found.items() if len(names) == 1 and names[0] not in cells}


def _needed(header: Sequence[str], reading: _Reading, path: str, in_folder: bool) -> dict[str, str]:
    """Columns to read, in their order -> their required names.

    Raises:
        ValueError: a column does not exist, or appears twice.
    """
    spelled, given = _spelled(header, reading), header
    header = [spelled.get(name, name) for name in given]
    columns, optional = reading.columns, {"body", "label", "camera", "performer", "side"}
    optional |= ({"joint", "frame"} if reading.wide else set()) | ({"sequence"} if in_folder else set())
    named = {each.name: cast("str", getattr(columns, each.name)) for each in fields(columns)}
    wanted = [name for name in (cell for cells in reading.cells for cell in cells) if name not in header]
    wanted += [
        name
        for field, name in named.items()
        if name not in header and (field not in optional or name != getattr(TableColumns, field))
    ]
    if wanted:
        message = "source.wide" if reading.wide and wanted[0] not in named.values() else "source.columns and tensor.axes"
        raise ValueError(f"table {path!r} has no column {wanted[0]!r}, it has {', '.join(header)[:200]}: see {message}")
    if twice := [name for name in header if header.count(name) > 1]:
        raise ValueError(f"table {path!r} has two columns {twice[0]!r}")
    left = {named["joint"]} if reading.wide else set[str]()
    kept = {*named.values(), *(cell for cells in reading.cells for cell in cells)} - left
    return {name: called for name, called in zip(given, header, strict=True) if called in kept}


def _blocks(path: str, reading: _Reading, delimiter: str, in_folder: bool) -> Iterator[pa.Table]:
    """The rows of a table in blocks; CSV cells are texts. Raises ``ValueError`` if it is not a table."""
    try:
        with fsspec.open(path, "rb") as raw:
            stream = cast("IO[bytes]", raw)
            if plain_ending(path) == ".parquet":
                with opened(stream, f"table {path!r}") as file:
                    needed = _needed(file.schema_arrow.names, reading, path, in_folder)
                    yield from (_table(each, needed) for each in file.iter_batches(batch_size=1 << 14, columns=list(needed)))
                return
            delimiter = "\t" if plain_ending(path) == ".tsv" else delimiter
            line = next(read_lines(path), b"").decode()
            header = next(csv.reader([line], delimiter=delimiter), [])
            check_columns(header, f"table {path!r}")
            needed = _needed(header, reading, path, in_folder)
            options = pacsv.ConvertOptions(include_columns=list(needed), column_types=dict.fromkeys(needed, pa.string()))
            packed = decompressed(stream, compression_by_name(path))
            reader = pacsv.open_csv(
                packed,
                read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=pacsv.ParseOptions(delimiter=delimiter),
                convert_options=options,
            )
            yield from (_table(each, needed) for each in reader)
    except (pa.ArrowException, UnicodeDecodeError, OSError, EOFError, csv.Error, TypeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"table {path!r} cannot be read: {str(error)[:200]}") from None


def _table(batch: pa.RecordBatch, needed: Mapping[str, str]) -> pa.Table:
    return pa.Table.from_batches([batch]).rename_columns([needed[name] for name in batch.schema.names])


def _together(
    blocks: Iterator[pa.Table], column: str, path: str, file: str
) -> Iterator[tuple[str | None, pa.Table | None, int]]:
    """Each sequence: its name, its rows (None if there are too many), and the number of its first row, from 1."""
    held: list[pa.Table] = []
    seen: set[str] = set()
    current: str | None = None
    count = first = row = 0
    for block in blocks:
        names = np.full(block.num_rows, file, dtype=object)
        if column in block.column_names:
            names = np.asarray([name or None for name in _text(block[column]).to_pylist()], dtype=object)
        cuts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)] if len(names) else []
        for start, stop in itertools.pairwise(cuts):
            name = names[start]
            if name != current or not count:
                if count:
                    yield current, pa.concat_tables(held) if held else None, first
                if name in seen:
                    message = f"sequence {name!r} continues in row {row + start + 1}, after another one"
                    raise ValueError(f"table {path!r}: {message}: sort the table by its column {column!r}")
                current, held, count, first = name, [], 0, row + start + 1
                seen.update([] if name is None else [name])
            count += stop - start
            if count > MAX_ROWS:
                held.clear()
            else:
                held.append(block.slice(start, stop - start))
        row += len(names)
    if count:
        yield current, pa.concat_tables(held) if held else None, first


# ---------------------------------------------------------------------------------------------------------------- numbers


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_trim_whitespace(column.cast(pa.string()))


def _numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """The column as float64, NaN for empty cells. Raises ``Reject``."""
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = _text(column)
            column = pc.if_else(pc.is_in(pc.utf8_lower(column), pa.array(_NOTHING)), None, column)
        return np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Reject("not_a_number", f"column {name}: {str(error)[:120]}") from None


def _joints(rows: pa.Table, reading: _Reading) -> NDArray[np.float64]:
    """(T, M, V, axes), NaN for missing values."""
    frame, frames = _frames(rows, reading.columns.frame)
    body, bodies = np.zeros(rows.num_rows, dtype=np.int64), 1
    if reading.columns.body in rows.column_names:
        names = _text(rows[reading.columns.body]).combine_chunks().dictionary_encode(null_encoding="encode")
        body, bodies = names.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(names.dictionary)
    count = len(reading.layout.joints)
    if (numbers := frames * bodies * count * len(reading.form.axes)) > MAX_NUMBERS:
        raise Reject("too_large", f"{frames} frames of {bodies} bodies: {numbers:,} numbers, {MAX_NUMBERS:,} at most")
    found = np.full((frames, bodies, count, len(reading.form.axes)), np.nan)
    cells = np.stack([_numbers(rows[name], name) for names in reading.cells for name in names], axis=1)
    if reading.wide:
        place, values = frame * bodies + body, cells.reshape(len(cells), count, -1)
        flat = found.reshape(frames * bodies, count, -1)
    else:
        joint, kept = _joint_numbers(rows[reading.columns.joint], reading)
        place, values = ((frame * bodies + body) * count + joint)[kept], cells[kept]
        flat = found.reshape(frames * bodies * count, -1)
    if len(np.unique(place)) < len(place):
        what = "frame" if reading.wide else "joint of a frame"
        raise Reject("repeated_joint", f"{len(place) - len(np.unique(place))} rows are of a {what} that another row has")
    flat[place] = values
    for number in range(bodies if bodies > 1 else 0):  # a body is not missing before its first frame and after its last one
        there = frame[body == number]
        found[: there.min(), number] = found[there.max() + 1 :, number] = 0
    return found


def _frames(rows: pa.Table, column: str) -> tuple[NDArray[np.int64], int]:
    """Frame of each row, from 0, and the number of frames."""
    if column not in rows.column_names:
        return np.arange(rows.num_rows), rows.num_rows
    numbers = _numbers(rows[column], column)
    whole = np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < 1 << 53)
    if not whole.all():
        raise Reject("bad_frame", f"{numbers[~whole][0]:g} in column {column}: expected whole numbers")
    there, frame = np.unique(numbers.astype(np.int64), return_inverse=True)
    step = int(np.gcd.reduce(np.diff(there))) if len(there) > 1 else 1
    place = (there - there[0]) // step
    if place[-1] >= MAX_FRAMES:
        raise Reject("too_long", f"frames {there[0]} to {there[-1]}: at most {MAX_FRAMES} are read")
    return place[frame.ravel()], int(place[-1]) + 1


def _joint_numbers(column: pa.ChunkedArray, reading: _Reading) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Joint number of each row, and whether the row is kept."""
    text, joints = _text(column), reading.layout.joints
    found = np.array(pc.fill_null(pc.index_in(text, pa.array(joints)), -1).to_numpy(), dtype=np.int64)
    if (found < 0).all():  # numbers instead of names
        found = np.array(
            pc.fill_null(pc.index_in(text, pa.array([str(n) for n in range(len(joints))])), -1).to_numpy(), np.int64
        )
    by_words = {_words(joint): number for number, joint in enumerate(joints)}
    for name in pc.unique(text.filter(pa.array(found < 0))).to_pylist() if len(by_words) == len(joints) else ():
        if name is not None and (number := by_words.get(_words(name))) is not None:
            found[pc.equal(text, name).to_numpy(zero_copy_only=False)] = number
    kept = found >= 0
    if not kept.all() and not (reading.leave_out and kept.any()):
        name = text[int(np.flatnonzero(~kept)[0])].as_py()
        raise Reject("wrong_joint_count", f"joint {str(name)[:40]!r}: layout {reading.layout.name} has none of that name")
    return found, kept
