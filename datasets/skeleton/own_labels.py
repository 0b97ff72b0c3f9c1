"""Labels of your own sequences: class, camera, performer, side and role, from tables or file names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import fsspec
import pyarrow as pa

from ...curation.bounded_reading import MAX_BYTES, parse_json, plain_ending, read_file, utf8_lines
from ...curation.csv_files import check_header, whole_csv_rows
from ...curation.parquet_footer import bounded_batches, opened
from ...curation.rows import Reject
from ..roles import ROLES

FIELDS = ("class", "camera", "performer", "side")
"""Column names in a table of labels, and group names in a pattern."""


@dataclass(frozen=True)
class Known:
    """Labels of sequences from a table by name, and from a pattern that matches names.

    Attributes:
        labels: name of a sequence -> field -> value; None: no table.
        pattern: regular expression, searched in the name, with groups such as ``(?P<performer>s\\d+)``; None: none.
    """

    labels: Mapping[str, Mapping[str, str]] | None
    pattern: re.Pattern[str] | None

    @staticmethod
    def read(labels: str | None, pattern: str | None) -> Known:
        """Read a file of labels, see ``read_labels``, and compile a regular expression.

        Raises:
            ValueError: the file or the expression is invalid, or the expression has no groups or one that is not in ``FIELDS``.
        """
        try:
            compiled = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r}: {error}") from None
        if compiled and (not compiled.groupindex or set(compiled.groupindex) - set(FIELDS)):
            raise ValueError(f"pattern {pattern!r}: expected groups (?P<name>...), named {', '.join(FIELDS)}")
        return Known(None if labels is None else read_labels(labels), compiled)

    def of(self, name: str, said: Mapping[str, str | None]) -> tuple[str, str | None, str | None, str | None]:
        """Class, camera, performer and side of a sequence: from the table, else from the pattern, else from ``said``.

        Raises:
            Reject: ``bad_name``: the pattern does not match; ``no_class``; ``bad_side``: not train, val or test.
        """
        found = {field: value for field, value in said.items() if value}
        if self.pattern is not None:
            if (match := self.pattern.search(name)) is None:
                raise Reject("bad_name", f"{name[:80]!r} does not fit source.pattern")
            found |= {field: value for field, value in match.groupdict().items() if value}
        if self.labels is not None:
            stem = posixpath.splitext(name)[0]
            found |= next((self.labels[each] for each in (name, stem, posixpath.basename(stem)) if each in self.labels), {})
        if not found.get("class"):
            raise Reject("no_class", f"{name[:80]!r}: its class is not given")
        if found.get("side", "train") not in ROLES:
            raise Reject("bad_side", f"{found['side'][:40]!r}: {', '.join(ROLES)} are possible")
        return found["class"], found.get("camera"), found.get("performer"), found.get("side")


def class_of(label: float, names: Sequence[str] | None) -> str:
    """Name of the class with a number, as the number is in a file; without names, ``class000`` and so on.

    Raises:
        Reject: ``bad_label``: not whole, or without a name.
    """
    if label % 1 or label < 0 or (names is not None and label >= len(names)):  # NaN and infinities are not whole either
        most = "up" if names is None else f"to {len(names) - 1}"
        raise Reject("bad_label", f"{label}: expected a whole number from 0 {most}")
    return f"class{int(label):03d}" if names is None else names[int(label)]


def read_labels(path: str) -> dict[str, dict[str, str]]:
    """A table, CSV or Parquet, with a column ``sequence`` and some of ``FIELDS``: name -> field -> value. Others are ignored.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the table lacks these columns, or a sequence appears twice.
    """
    found: dict[str, dict[str, str]] = {}
    for row in read_texts(path, {"sequence": "source.labels"}, FIELDS):
        name = row.pop("sequence")
        if not row:
            raise ValueError(f"table {path!r} has none of the columns {', '.join(FIELDS)} (source.labels)")
        if name in found:
            raise ValueError(f"labels {path!r}: sequence {name!r} appears twice")
        found[name] = {field: value for field, value in row.items() if value}
    return found


def read_roles(path: str) -> dict[str, str]:
    """Roles by name of a sequence, from a table, CSV or Parquet, with columns ``sequence`` and ``role``, or from a JSON object
    of lists of names by ``train``, ``val`` and ``test``.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another form, a role is unknown, or a sequence has two roles.
    """
    if path.endswith(".json"):
        values: Any = parse_json(read_file(path), f"split.roles {path!r}")
        if not isinstance(values, dict) or not all(
            isinstance(names, list) for names in cast("dict[str, Any]", values).values()
        ):
            raise ValueError(f"split.roles {path!r}: expected an object of lists of names: train, val, test")
        pairs = [(str(name), role) for role, names in cast("dict[str, list[Any]]", values).items() for name in names]
    else:
        rows = read_texts(path, dict.fromkeys(("sequence", "role"), "split.roles"))
        pairs = [(row["sequence"], row["role"]) for row in rows]
    found: dict[str, str] = {}
    for name, role in pairs:
        if role not in ROLES or found.setdefault(name, role) != role:
            raise ValueError(
                f"split.roles {path!r}: {name!r} has the role {role!r}: expected one of {', '.join(ROLES)}, and one only"
            )
    if not found:
        raise ValueError(f"split.roles {path!r}: it names no sequence")
    return found


def read_texts(path: str, needed: Mapping[str, str], optional: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Rows of a CSV (tab-separated for .tsv) or Parquet file as texts, without spaces around them; "" for no value.

    Args:
        path: the file; CSV may be compressed.
        needed: column -> the setting to change if it is missing.
        optional: other columns to read if they are there.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is no such table, lacks a needed column, or is too large.
    """
    place, wanted = f"table {path!r}", {*needed, *optional}
    if plain_ending(path) == ".parquet":
        with fsspec.open(path, "rb") as stream, opened(cast("IO[bytes]", stream), place) as file:
            names = {name: name.strip() for name in file.schema_arrow.names}
            check_header([*names.values()], place, needed)
            columns = [name for name, ours in names.items() if ours in wanted]
            for batch in bounded_batches(file, columns, f"the rows of {place}", max_bytes=MAX_BYTES):
                texts = pa.table({names[name]: batch[name].cast(pa.string()) for name in batch.schema.names})
                yield from ({name: (value or "").strip() for name, value in row.items()} for row in texts.to_pylist())
        return
    delimiter = "\t" if plain_ending(path) == ".tsv" else ","
    for _, row in whole_csv_rows(utf8_lines(path, place), place, needed, delimiter=delimiter):
        yield {name: value.strip() for name, value in row.items() if name in wanted}
