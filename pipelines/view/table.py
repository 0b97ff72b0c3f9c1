"""Rows of Parquet files page by page: a view is what the address of its page says, and DuckDB makes it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow as pa

from ...curation.rows import is_array, is_blob

LARGEST_PAGE = 200
"""Rows of a page."""
MOST_DOWNLOADED = 100_000
"""Rows of a download."""
_MOST_GROUPS = 200
_MOST_CONDITIONS = 12
_LONGEST_VALUE = 500
"""Characters of a value to filter by."""
_BINS = 24
_DEEPEST = 1_000_000
"""Rows that a sorted view may leave out: more would have to be held in memory to be sorted."""
SECONDS = 20.0
"""That a question to the rows may take."""
_MEMORY = "400MB"
"""That DuckDB may use."""

OPERATORS = {
    "eq": "=",
    "ne": "≠",
    "lt": "<",
    "le": "≤",
    "gt": ">",
    "ge": "≥",
    "has": "contains",
    "starts": "begins with",
    "none": "is empty",
    "some": "is not empty",
}
"""Name in an address -> how it is told."""
_SQL = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Refused(ValueError):
    """A view that there is not, or that asks for too much: the value, the rule, and what to change."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """A column, one of ``OPERATORS`` and a value as it was typed."""

    column: str
    operator: str
    value: str


@dataclasses.dataclass(frozen=True)
class Query:
    """Which rows of a table, and in which order: all of it stands in the address.

    Attributes:
        conditions: all of which hold.
        sort: a column; "" for the order of the stage.
        down: whether the largest come first.
        group: a column whose values are counted in place of the rows; "" for the rows.
        histogram: a column whose histogram is drawn beside them, or "all"; "" for none.
        page: from 1.
        size: rows of a page.
    """

    conditions: tuple[Condition, ...] = ()
    sort: str = ""
    down: bool = False
    group: str = ""
    histogram: str = ""
    page: int = 1
    size: int = 30

    @classmethod
    def of(cls, asked: Sequence[tuple[str, str]], columns: Sequence[str]) -> Query:
        """The query of an address.

        Args:
            asked: its names and values, in order.
            columns: those of the table.

        Raises:
            Refused: for a column, operator or number that there is not, or too many conditions.
        """
        lists: dict[str, list[str]] = {}
        for name, value in asked:
            lists.setdefault(name, []).append(value)
        names, operators, values = (lists.get(name, []) for name in ("column", "is", "value"))
        if not len(names) == len(operators) == len(values):
            raise Refused("a condition of the address lacks its column, is or value: fill in the form again")
        conditions = [Condition(*each) for each in zip(names, operators, values, strict=True) if each[0]]
        if len(conditions) > _MOST_CONDITIONS:
            raise Refused(f"{len(conditions)} conditions: {_MOST_CONDITIONS} at most")
        sort, group, histogram = (_last(lists, name) for name in ("sort", "group", "histogram"))
        drawn = "" if histogram == "all" else histogram
        for column in [*(one.column for one in conditions), *filter(None, [sort.removeprefix("-"), group, drawn])]:
            if column not in columns:
                raise Refused(f"no column {column[:80]!r}: there are {', '.join(columns)[:400]}")
        for one in conditions:
            if one.operator not in OPERATORS:
                raise Refused(f"no operator {one.operator[:80]!r}: there are {', '.join(OPERATORS)}")
            if len(one.value) > _LONGEST_VALUE:
                raise Refused(f"a value of {len(one.value)} characters: {_LONGEST_VALUE} at most")
        page, size = _number(lists, "page", cls.page, 1 << 40), _number(lists, "size", cls.size, LARGEST_PAGE)
        return cls(tuple(conditions), sort.removeprefix("-"), sort.startswith("-"), group, histogram, page, size)

    def address(self, **changed: Any) -> str:
        """What stands after the "?" in the address of this view, or of one that differs in these attributes."""
        one = dataclasses.replace(self, **{"page": 1, **changed})
        told = [pair for c in one.conditions for pair in (("column", c.column), ("is", c.operator), ("value", c.value))]
        told += [("sort", ("-" if one.down else "") + one.sort)] if one.sort else []
        told += [("group", one.group)] if one.group else []
        told += [("histogram", one.histogram)] if one.histogram else []
        told += [("size", str(one.size))] if one.size != Query.size else []
        told += [("page", str(one.page))] if one.page != 1 else []
        return urlencode(told)


def _last(lists: Mapping[str, Sequence[str]], name: str) -> str:
    return lists[name][-1] if name in lists else ""


def _number(lists: Mapping[str, Sequence[str]], name: str, default: int, most: int) -> int:
    text = _last(lists, name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and 1 <= int(text) <= most):
        raise Refused(f"{name} = {text[:40]!r}: a number from 1 to {most:,}")
    return int(text)


@dataclasses.dataclass(frozen=True)
class Found:
    """Rows of a page: ``rows`` as tables of names, and ``total`` of all pages."""

    rows: list[dict[str, Any]]
    total: int


@dataclasses.dataclass(frozen=True)
class Bars:
    """A histogram: ``bars`` are label, count and the conditions that choose them; ``told`` are further figures in words."""

    column: str
    bars: list[tuple[str, int, tuple[Condition, ...]]]
    told: str


class Database:
    """DuckDB over Parquet files that the caller names; nothing else can be read through it, and nothing written."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config={"memory_limit": _MEMORY, "preserve_insertion_order": "true"})
        self._connection.execute("SET temp_directory = ''")
        self._connection.execute("SET autoinstall_known_extensions = false")
        self._connection.execute("SET autoload_known_extensions = false")

    @contextlib.contextmanager
    def asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """What a question is put to; ``Refused`` where it takes too long, or too much memory."""
        cursor = self._connection.cursor()
        timer = threading.Timer(SECONDS, cursor.interrupt)
        timer.start()
        try:
            yield cursor
        except duckdb.InterruptException:
            raise Refused(f"this took more than {SECONDS:.0f} s: name a narrower view, without sorting or grouping") from None
        except duckdb.OutOfMemoryException:
            raise Refused(f"this needs more than {_MEMORY}: name a narrower view, without sorting or grouping") from None
        except duckdb.Error as error:
            raise Refused(" ".join(str(error).split())[:300]) from error
        finally:
            timer.cancel()
            cursor.close()


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of some Parquet files of one schema.

    Attributes:
        database: what reads them.
        files: local paths, in order.
        schema: of the columns, as the rows of a stage have it.
        count: rows in all of them, where that is known without reading.
    """

    database: Database
    files: Sequence[str]
    schema: pa.Schema
    count: int

    @property
    def plain(self) -> list[str]:
        """Columns that can be filtered by: those that hold no payload."""
        return [field.name for field in self.schema if not (is_blob(field) or is_array(field))]

    def page(self, query: Query) -> Found:
        """The rows of a page, payloads as references; or of a grouped view the values and their counts."""
        where, values = self._where(query)
        skipped = (query.page - 1) * query.size
        if query.group:
            return self._groups(query, where, values)
        if query.sort and skipped > _DEEPEST:
            raise Refused(f"page {query.page:,} of a sorted view: {_DEEPEST // query.size:,} at most; filter, or do not sort")
        total = self._one(f"SELECT count(*) FROM {_FROM}{where}", values)[0] if where else self.count
        order = f" ORDER BY {_quoted(query.sort)} {'DESC' if query.down else 'ASC'} NULLS LAST" if query.sort else ""
        values = {**values, "size": query.size, "skipped": skipped}
        return Found(self._all(f"SELECT * FROM {_FROM}{where}{order} LIMIT $size OFFSET $skipped", values), total)

    def _groups(self, query: Query, where: str, values: Mapping[str, Any]) -> Found:
        column = _quoted(query.group)
        order = f"{column} {'DESC' if query.down else 'ASC'}" if query.sort == query.group else f"2 DESC, {column}"
        sql = f"SELECT {column} AS value, count(*) AS rows FROM {_FROM}{where} GROUP BY 1 ORDER BY {order} LIMIT {_MOST_GROUPS}"
        total = self._one(f"SELECT count(*) FROM (SELECT DISTINCT {column} FROM {_FROM}{where})", values)[0]
        return Found(self._all(sql, values), total)

    def by_keys(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of some keys, in the order of the stage."""
        return self._all(f'SELECT * FROM {_FROM} WHERE list_contains($keys, "key")', {"keys": list(keys)}) if keys else []

    def by_key(self, key: str, column: str = "key", most: int = 1) -> list[dict[str, Any]]:
        """The first rows that have this value in a column of text."""
        return self._all(f"SELECT * FROM {_FROM} WHERE {_quoted(column)} = $key LIMIT {int(most)}", {"key": key})

    def distinct(self, columns: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Different values of some columns together, in order."""
        named = ", ".join(map(_quoted, columns))
        return self._all(f"SELECT DISTINCT {named} FROM {_FROM} ORDER BY ALL LIMIT {int(most)}", {})

    def download(self, query: Query, columns: Sequence[str]) -> pa.Table:
        """The rows of all pages, ``MOST_DOWNLOADED`` at most, without payloads."""
        where, values = self._where(query)
        named = ", ".join(map(_quoted, columns))
        order = f" ORDER BY {_quoted(query.sort)} {'DESC' if query.down else 'ASC'} NULLS LAST" if query.sort else ""
        sql = f"SELECT {named} FROM {_FROM}{where}{order} LIMIT {MOST_DOWNLOADED}"
        with self.database.asking() as cursor:
            table = cursor.sql(sql, params={**values, **self._files()}).to_arrow_table()
        return table.cast(pa.schema([self.schema.field(name).with_nullable(True) for name in columns]))

    def histogram(self, column: str, query: Query) -> Bars:
        """How the values of a column are spread over the rows of a view."""
        where, values = self._where(query)
        kind, name = self.schema.field(column).type, _quoted(column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._numbers(column, where, values, whole=pa.types.is_integer(kind))
        if pa.types.is_timestamp(kind):
            name = f"strftime({name}, '%Y-%m')"
        elif pa.types.is_nested(kind):
            name = f"len({name})"
        some = self._all(
            f"SELECT {name} AS value, count(*) AS rows FROM {_FROM}{where} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_BINS}", values
        )
        exact = not (pa.types.is_nested(kind) or pa.types.is_timestamp(kind))
        bars = [(_told(one["value"]), one["rows"], self._being(column, one["value"]) if exact else ()) for one in some]
        what = "lengths" if pa.types.is_nested(kind) else "months" if pa.types.is_timestamp(kind) else "values"
        return Bars(column, bars, f"the {_BINS} most frequent {what}" if len(bars) == _BINS else f"{len(bars)} {what}")

    def _numbers(self, column: str, where: str, values: Mapping[str, Any], *, whole: bool) -> Bars:
        name = _quoted(column)
        finite = f"CASE WHEN isfinite({name}::DOUBLE) THEN {name} END"
        figures = f"min({finite}), max({finite}), avg({finite}), count(*) - count({finite})"
        low, high, mean, rest = self._one(f"SELECT {figures} FROM {_FROM}{where}", values)
        if low is None:
            return Bars(column, [], f"{rest:,} rows without a number")
        bins = min(_BINS, int(high - low) + 1) if whole else _BINS
        wide = ((high - low + 1) / bins if whole else (high - low) / bins) or 1.0
        wide = math.ceil(wide) if whole else wide
        sql = (
            f"SELECT least(floor(({finite} - $low) / $wide), $last)::BIGINT AS bin, count(*) AS rows FROM {_FROM}{where} "
            "GROUP BY 1 ORDER BY 1"
        )
        some = self._all(sql, {**values, "low": low, "wide": wide, "last": bins - 1})
        counts = {one["bin"]: one["rows"] for one in some if one["bin"] is not None}
        bars: list[tuple[str, int, tuple[Condition, ...]]] = []
        for at in range(bins):
            start, end = low + at * wide, low + (at + 1) * wide
            if whole and start > high:
                break
            label = str(start) if whole and wide == 1 else f"{_short(start)} to {_short(end - 1 if whole else end)}"
            last = not whole and at == bins - 1
            upper = Condition(column, "le" if last else "lt", repr(high if last else end))
            bars.append((label, counts.get(at, 0), (Condition(column, "ge", repr(start)), upper)))
        lacking = f", {rest:,} without a number" if rest else ""
        return Bars(column, bars, f"from {_short(low)} to {_short(high)}, mean {_short(mean)}{lacking}")

    def _being(self, column: str, value: Any) -> tuple[Condition, ...]:
        if value is None:
            return (Condition(column, "none", ""),)
        text = str(value)
        return (Condition(column, "eq", text),) if len(text) <= _LONGEST_VALUE else ()

    def being(self, column: str, value: Any) -> tuple[Condition, ...]:
        """Conditions that choose the rows of one value; none where that cannot be said."""
        return () if pa.types.is_nested(self.schema.field(column).type) else self._being(column, value)

    def _where(self, query: Query) -> tuple[str, dict[str, Any]]:
        terms: list[str] = []
        values: dict[str, Any] = {}
        for at, one in enumerate(query.conditions):
            name, kind = _quoted(one.column), self.schema.field(one.column).type
            if one.operator in ("none", "some"):
                terms.append(f"{name} IS {'' if one.operator == 'none' else 'NOT '}NULL")
                continue
            values[f"v{at}"] = one.value
            if one.operator == "has":
                inner = f"array_to_string({name}::VARCHAR[], ' ')" if pa.types.is_list(kind) else f"{name}::VARCHAR"
                terms.append(f"contains(lower({inner}), lower($v{at}))")
            elif one.operator == "starts":
                terms.append(f"starts_with({name}::VARCHAR, $v{at})")
            else:
                values[f"v{at}"] = _typed(one, kind)
                cast = "::TIMESTAMP" if pa.types.is_timestamp(kind) else ""
                terms.append(f"{name} {_SQL[one.operator]} $v{at}{cast}")
        return (" WHERE " + " AND ".join(terms) if terms else ""), values

    def _files(self) -> dict[str, Any]:
        return {"files": [*self.files]}

    def _all(self, sql: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        if not self.files:
            return []
        with self.database.asking() as cursor:
            found = cursor.execute(sql, {**values, **self._files()})
            names = [each[0] for each in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _one(self, sql: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
        if not self.files:
            return (0, None, None, 0) if " min(" in sql else (0,)
        with self.database.asking() as cursor:
            return cursor.execute(sql, {**values, **self._files()}).fetchall()[0]


_FROM = "read_parquet($files)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _typed(one: Condition, kind: pa.DataType) -> Any:
    """The value as the type of its column."""
    try:
        if pa.types.is_boolean(kind):
            return {"true": True, "yes": True, "false": False, "no": False}[one.value.strip().lower()]
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            number = float(one.value)
            return int(one.value) if one.value.strip().lstrip("+-").isdigit() and abs(number) < 1 << 62 else number
    except (ValueError, KeyError):
        raise Refused(f"{one.column} {OPERATORS[one.operator]} {one.value[:80]!r}: the column holds {kind}") from None
    if pa.types.is_nested(kind):
        raise Refused(f"{one.column} holds lists: ask whether it contains a value, or is empty")
    return one.value


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _told(value: Any) -> str:
    return "–" if value is None else "yes" if value is True else "no" if value is False else str(value)
