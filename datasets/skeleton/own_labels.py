"""Labels of your own sequences: class, camera, performer, side and role, from tables or file names."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ...curation.bounded_reading import parse_json, read_file
from ...curation.csv_files import check_header
from ...curation.parquet_footer import opened
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
    table = read_small_table(path)
    columns = [name for name in FIELDS if name in table.column_names]
    if "sequence" not in table.column_names or not columns:
        told = ", ".join(table.column_names)[:200]
        raise ValueError(f"labels {path!r}: expected a column sequence and one of {', '.join(FIELDS)}; it has {told}")
    rows = zip(*(table[name].to_pylist() for name in ("sequence", *columns)), strict=True)
    found: dict[str, dict[str, str]] = {}
    for name, *values in rows:
        if name in found:
            raise ValueError(f"labels {path!r}: sequence {name!r} appears twice")
        found[name] = {field: value for field, value in zip(columns, values, strict=True) if value}
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
        table = read_small_table(path)
        if not {"sequence", "role"} <= set(table.column_names):
            raise ValueError(f"split.roles {path!r}: expected columns sequence and role; it has {table.column_names}")
        pairs = list(zip(table["sequence"].to_pylist(), table["role"].to_pylist(), strict=True))
    found: dict[str, str] = {}
    for name, role in pairs:
        if role not in ROLES or found.setdefault(name, role) != role:
            raise ValueError(
                f"split.roles {path!r}: {name!r} has the role {role!r}: expected one of {', '.join(ROLES)}, and one only"
            )
    if not found:
        raise ValueError(f"split.roles {path!r}: it names no sequence")
    return found


def read_small_table(path: str) -> pa.Table:
    """A CSV (tab-separated for .tsv) or Parquet file of texts, read whole; spaces around the texts are removed.

    Raises:
        FileNotFoundError, ValueError: the file does not exist, is too large, or is not a table.
    """
    data = read_file(path)
    try:
        if path.endswith(".parquet"):
            with opened(io.BytesIO(data), "it") as file:
                table = file.read()
        else:
            names = data.split(b"\n", 1)[0].decode("utf-8-sig").strip().split("\t" if ".tsv" in path else ",")
            options = pacsv.ConvertOptions(column_types={name.strip().strip('"'): pa.string() for name in names})
            parsing = pacsv.ParseOptions(delimiter="\t" if ".tsv" in path else ",")
            table = pacsv.read_csv(io.BytesIO(data), parse_options=parsing, convert_options=options)
        table = table.rename_columns([name.strip() for name in table.column_names])
        trimmed = [pc.utf8_trim_whitespace(column.cast(pa.string())) for column in table.columns]
    except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"table {path!r}: {str(error)[:200]}") from None
    check_header(table.column_names, f"table {path!r}")
    return pa.table(trimmed, names=table.column_names)
