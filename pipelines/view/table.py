"""Rows of Parquet files page by page, queried with DuckDB as the address says."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.rows import is_array, is_blob, one_line
from .query import LONGEST_VALUE, SIMILARITY, Condition, Query, Refused, typed

MOST_DOWNLOADED = 100_000
"""Most rows of a download."""
_MOST_GROUPS = 200
_BINS = 24
_DEEPEST = 1_000_000
"""Most rows before a page of a sorted view: more would have to be held in memory for sorting."""
SECONDS = 20.0
"""Time limit of a query."""
_MEMORY = "400MB"
"""Memory limit of DuckDB."""

_SQL = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclasses.dataclass(frozen=True)
class RowsPage:
    """Rows of a page: ``rows`` by column name, and ``total``, the number of rows on all pages."""

    rows: list[dict[str, Any]]
    total: int


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Some rows of a stage by their ``numbers`` from 0, in order; ``similarity`` to the search is added as a column if
    ``shown``."""

    numbers: NDArray[np.int64]
    similarity: NDArray[np.float64]
    shown: bool = True


@dataclasses.dataclass(frozen=True)
class Bars:
    """A histogram: ``bars`` are label, count and the conditions that select the rows; ``summary`` describes it in words."""

    column: str
    bars: list[tuple[str, int, tuple[Condition, ...]]]
    summary: str


class Database:
    """DuckDB over Parquet files that the caller names; it cannot read any other file, or write."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config={"memory_limit": _MEMORY, "preserve_insertion_order": "true"})
        self._connection.execute("SET temp_directory = ''")
        self._connection.execute("SET autoinstall_known_extensions = false")
        self._connection.execute("SET autoload_known_extensions = false")

    @contextlib.contextmanager
    def asking(self, chosen: Chosen | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for one query; ``Refused`` if it takes too long, or too much memory."""
        cursor = self._connection.cursor()
        if chosen is not None:
            ranks = np.arange(len(chosen.numbers))
            names = {_AT: chosen.numbers, _RANK: ranks, SIMILARITY: chosen.similarity}
            cursor.register("chosen", pa.table(names))
        timer = threading.Timer(SECONDS, cursor.interrupt)
        timer.start()
        try:
            yield cursor
        except duckdb.InterruptException:
            raise Refused(f"this took more than {SECONDS:.0f} s: narrow the view, without sorting or grouping") from None
        except duckdb.OutOfMemoryException:
            raise Refused(f"this needs more than {_MEMORY}: narrow the view, without sorting or grouping") from None
        except duckdb.Error as error:
            raise Refused(one_line(error, 300)) from error
        finally:
            timer.cancel()
            cursor.close()


@dataclasses.dataclass(frozen=True)
class ParquetRows:
    """The rows of some Parquet files with one schema.

    Attributes:
        database: database that reads them.
        files: local paths, in order.
        schema: schema of the columns, as in the rows of the stage.
        count: number of rows in all files, from the records rather than by reading.
        chosen: selected rows, the most similar first; None for all rows.
    """

    database: Database
    files: Sequence[str]
    schema: pa.Schema
    count: int
    chosen: Chosen | None = None

    @property
    def plain(self) -> list[str]:
        """Columns that can be filtered by: all except payloads."""
        return [field.name for field in self.schema if not (is_blob(field) or is_array(field))]

    def choosing(self, chosen: Chosen) -> ParquetRows:
        """The same files, restricted to some rows."""
        chosen = dataclasses.replace(chosen, shown=chosen.shown and SIMILARITY not in self.schema.names)
        schema = self.schema.append(pa.field(SIMILARITY, pa.float64())) if chosen.shown else self.schema
        return dataclasses.replace(self, chosen=chosen, schema=schema, count=len(chosen.numbers))

    def fitting(self, query: Query) -> NDArray[np.bool_] | None:
        """For every row whether the conditions on its columns hold; None if there are no such conditions."""
        conditions = tuple(one for one in query.conditions if one.column in self.plain)
        where, values = self._where(dataclasses.replace(query, conditions=conditions))
        return self._column(f"coalesce({where.removeprefix(' WHERE ')}, false)", values).to_numpy() if where else None

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column, in the order of the stage."""
        return self._column(_quoted(name), {})

    def _column(self, term: str, values: Mapping[str, Any]) -> pa.ChunkedArray:
        with self.database.asking() as cursor:
            return cursor.sql(f"SELECT {term} AS v FROM {_FROM}", params={**values, **self._files()}).to_arrow_table()["v"]

    @property
    def _from(self) -> str:
        if self.chosen is None:
            return _FROM
        own = self.schema.names[:-1] if self.chosen.shown else self.schema.names
        lines = [f"r.{_quoted(name)}" for name in own] + [f"chosen.{SIMILARITY}"] * self.chosen.shown
        numbered = f"(SELECT *, row_number() OVER () - 1 AS {_AT} FROM {_FROM})"
        return f"(SELECT {', '.join(lines)}, chosen.{_RANK} FROM {numbered} AS r JOIN chosen ON r.{_AT} = chosen.{_AT})"

    def _ordered(self, query: Query) -> str:
        """The ORDER BY clause: as the query says, else by similarity, else the order of the stage."""
        if query.sort:
            return f" ORDER BY {_quoted(query.sort)} {'DESC' if query.down else 'ASC'} NULLS LAST"
        return f" ORDER BY {_RANK}" if self.chosen is not None else ""

    def page(self, query: Query) -> RowsPage:
        """The rows of a page, payloads as references; or, for a grouped view, the values and their counts."""
        where, values = self._where(query)
        skipped = (query.page - 1) * query.size
        if query.group:
            return self._groups(query, where, values)
        if query.sort and skipped > _DEEPEST:
            raise Refused(f"page {query.page:,} of a sorted view: {_DEEPEST // query.size:,} at most; filter, or do not sort")
        total = self._one(f"SELECT count(*) FROM {self._from}{where}", values)[0] if where else self.count
        values = {**values, "size": query.size, "skipped": skipped}
        named = "*" if self.chosen is None else ", ".join(map(_quoted, self.schema.names))
        sql = f"SELECT {named} FROM {self._from}{where}{self._ordered(query)} LIMIT $size OFFSET $skipped"
        return RowsPage(self._all(sql, values), total)

    def _groups(self, query: Query, where: str, values: Mapping[str, Any]) -> RowsPage:
        column = _quoted(query.group)
        order = f"{column} {'DESC' if query.down else 'ASC'}" if query.sort == query.group else f"2 DESC, {column}"
        counted = f"SELECT {column} AS value, count(*) AS rows FROM {self._from}{where} GROUP BY 1"
        sql = f"{counted} ORDER BY {order} LIMIT {_MOST_GROUPS}"
        total = self._one(f"SELECT count(*) FROM (SELECT DISTINCT {column} FROM {self._from}{where})", values)[0]
        return RowsPage(self._all(sql, values), total)

    def by_keys(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The rows with some keys, in the order of the stage."""
        return self._all(f'SELECT * FROM {_FROM} WHERE list_contains($keys, "key")', {"keys": list(keys)}) if keys else []

    def by_key(self, key: str, column: str = "key", most: int = 1) -> list[dict[str, Any]]:
        """The first rows with this value in a text column."""
        return self._all(f"SELECT * FROM {_FROM} WHERE {_quoted(column)} = $key LIMIT {int(most)}", {"key": key})

    def distinct(self, columns: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Distinct combinations of the values of some columns, sorted."""
        named = ", ".join(map(_quoted, columns))
        return self._all(f"SELECT DISTINCT {named} FROM {_FROM} ORDER BY ALL LIMIT {int(most)}", {})

    def download(self, query: Query, columns: Sequence[str]) -> pa.Table:
        """The rows of all pages, at most ``MOST_DOWNLOADED``, without payloads."""
        where, values = self._where(query)
        named = ", ".join(map(_quoted, columns))
        sql = f"SELECT {named} FROM {self._from}{where}{self._ordered(query)} LIMIT {MOST_DOWNLOADED}"
        with self.database.asking(self.chosen) as cursor:
            table = cursor.sql(sql, params={**values, **self._files()}).to_arrow_table()
        return table.cast(pa.schema([self.schema.field(name).with_nullable(True) for name in columns]))

    def histogram(self, column: str, query: Query) -> Bars:
        """Histogram of a column over the rows of a view."""
        where, values = self._where(query)
        kind, name = self.schema.field(column).type, _quoted(column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._numbers(column, where, values, whole=pa.types.is_integer(kind))
        if pa.types.is_timestamp(kind):
            name = f"strftime({name}, '%Y-%m')"
        elif pa.types.is_nested(kind):
            name = f"len({name})"
        some = self._all(
            f"SELECT {name} AS value, count(*) AS rows FROM {self._from}{where} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_BINS}",
            values,
        )
        exact = not (pa.types.is_nested(kind) or pa.types.is_timestamp(kind))
        bars = [(_value_text(one["value"]), one["rows"], self._being(column, one["value"]) if exact else ()) for one in some]
        what = "lengths" if pa.types.is_nested(kind) else "months" if pa.types.is_timestamp(kind) else "values"
        return Bars(column, bars, f"the {_BINS} most frequent {what}" if len(bars) == _BINS else f"{len(bars)} {what}")

    def _numbers(self, column: str, where: str, values: Mapping[str, Any], *, whole: bool) -> Bars:
        name = _quoted(column)
        finite = f"CASE WHEN isfinite({name}::DOUBLE) THEN {name} END"
        figures = f"min({finite}), max({finite}), avg({finite}), count(*) - count({finite})"
        low, high, mean, rest = self._one(f"SELECT {figures} FROM {self._from}{where}", values)
        if low is None:
            return Bars(column, [], f"{rest:,} rows without a number")
        bins = min(_BINS, int(high - low) + 1) if whole else _BINS
        wide = ((high - low + 1) / bins if whole else (high - low) / bins) or 1.0
        wide = math.ceil(wide) if whole else wide
        sql = (
            f"SELECT least(floor(({finite} - $low) / $wide), $last)::BIGINT AS bin, count(*) AS rows FROM {self._from}{where} "
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
        return (Condition(column, "eq", text),) if len(text) <= LONGEST_VALUE else ()

    def being(self, column: str, value: Any) -> tuple[Condition, ...]:
        """Conditions that select the rows with a value; none if this is not possible."""
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
                values[f"v{at}"] = typed(one, kind)
                cast = "::TIMESTAMP" if pa.types.is_timestamp(kind) else ""
                terms.append(f"{name} {_SQL[one.operator]} $v{at}{cast}")
        return (" WHERE " + " AND ".join(terms) if terms else ""), values

    def _files(self) -> dict[str, Any]:
        return {"files": [*self.files]}

    def _all(self, sql: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        if not self.files:
            return []
        with self.database.asking(self.chosen) as cursor:
            found = cursor.execute(sql, {**values, **self._files()})
            names = [each[0] for each in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _one(self, sql: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
        if not self.files:
            return (0, None, None, 0) if " min(" in sql else (0,)
        with self.database.asking(self.chosen) as cursor:
            return cursor.execute(sql, {**values, **self._files()}).fetchall()[0]


_FROM = "read_parquet($files, hive_partitioning = false)"
"""Without Hive partitioning: a folder called ``year=2020`` in the path of a run is not a column."""
_AT, _RANK = "_bw_at", "_bw_rank"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _value_text(value: Any) -> str:
    return "–" if value is None else "yes" if value is True else "no" if value is False else str(value)
