"""The address of a page as a query: which rows, in which order, and what is shown of them."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

LARGEST_PAGE = 200
"""Most rows on a page."""
LONGEST_VALUE = 500
"""Most characters of a value to filter by, or of a text to search for."""
_MOST_CONDITIONS = 12
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
"""Name in an address -> text on the page."""
SIMILARITY = "similarity"
"""Column with the cosine of rows found by a search."""
_TEXTS = ("vectors", "like", "near", "picture", "map", "colour", "lasso")


class Refused(ValueError):
    """A request that cannot be answered, or asks for too much; the message gives the value, the rule, and what to change."""


@contextlib.contextmanager
def one_at_a_time(lock: threading.Lock, seconds: float, others: str) -> Iterator[None]:
    """Hold a lock within the block. ``Refused`` if it is not free within ``seconds``; ``others`` says what they have done."""
    if not lock.acquire(timeout=seconds):
        raise Refused(f"{others} for {seconds:.0f} s: try again")
    try:
        yield
    finally:
        lock.release()


@dataclasses.dataclass(frozen=True)
class Condition:
    """A column, one of ``OPERATORS`` and a value as it was typed."""

    column: str
    operator: str
    value: str


@dataclasses.dataclass(frozen=True)
class Query:
    """Which rows of a table are shown, and how; all of it is in the address.

    Attributes:
        conditions: conditions that must all hold.
        sort: a column; "" for the order of the stage.
        down: whether the largest come first.
        group: a column whose values are counted in place of the rows; "" for the rows.
        histogram: a column whose histogram is drawn next to the rows, or "all"; "" for none.
        page: number of the page, from 1.
        size: rows per page.
        vectors: a column of vectors; "" for the first.
        like: text to find similar rows for: see ``likeness``.
        near: key of a row to find similar rows for.
        picture: digest of a picture to find similar rows for.
        map: how the vectors are drawn: see ``maps.KINDS``; "" for no map, or the first kind where there are few rows.
        colour: a column by which points are coloured.
        lasso: the corners of a line around the points whose rows are shown.
    """

    conditions: tuple[Condition, ...] = ()
    sort: str = ""
    down: bool = False
    group: str = ""
    histogram: str = ""
    page: int = 1
    size: int = 30
    vectors: str = ""
    like: str = ""
    near: str = ""
    picture: str = ""
    map: str = ""
    colour: str = ""
    lasso: str = ""

    @property
    def searching(self) -> bool:
        """Whether this is a search for similar rows."""
        return bool(self.like or self.near or self.picture)

    @classmethod
    def of(cls, asked: Sequence[tuple[str, str]], columns: Sequence[str]) -> Query:
        """The query of an address.

        Args:
            asked: names and values in the address, in order.
            columns: columns of the table.

        Raises:
            Refused: a column, operator or number that is not valid, or too many conditions.
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
        texts = {name: _last(lists, name) for name in _TEXTS}
        if any(texts[name] for name in ("like", "near", "picture")):
            columns = [*columns, SIMILARITY]
        for column in [*(one.column for one in conditions), *filter(None, [sort.removeprefix("-"), group, drawn])]:
            if column not in columns:
                raise Refused(f"no column {column[:80]!r}: there are {', '.join(columns)[:400]}")
        for one in conditions:
            if one.operator not in OPERATORS:
                raise Refused(f"no operator {one.operator[:80]!r}: there are {', '.join(OPERATORS)}")
            if len(one.value) > LONGEST_VALUE:
                raise Refused(f"a value of {len(one.value)} characters: {LONGEST_VALUE} at most")
        if texts["colour"] and texts["colour"] not in columns:
            raise Refused(f"no column {texts['colour'][:80]!r}: there are {', '.join(columns)[:400]}")
        if len(texts["like"]) > LONGEST_VALUE:
            raise Refused(f"a text of {len(texts['like'])} characters: {LONGEST_VALUE} at most")
        page, size = _number(lists, "page", cls.page, 1 << 40), _number(lists, "size", cls.size, LARGEST_PAGE)
        return cls(tuple(conditions), sort.removeprefix("-"), sort.startswith("-"), group, histogram, page, size, **texts)

    def pairs(self, **changed: Any) -> list[tuple[str, str]]:
        """Names and values in the address of this view, or of a view in which these attributes are changed."""
        one = dataclasses.replace(self, **{"page": 1, **changed})
        lines = [pair for c in one.conditions for pair in (("column", c.column), ("is", c.operator), ("value", c.value))]
        lines += [("sort", ("-" if one.down else "") + one.sort)] if one.sort else []
        lines += [("group", one.group)] if one.group else []
        lines += [("histogram", one.histogram)] if one.histogram else []
        lines += [("size", str(one.size))] if one.size != Query.size else []
        lines += [("page", str(one.page))] if one.page != 1 else []
        return lines + [(name, value) for name in _TEXTS if (value := getattr(one, name))]

    def address(self, **changed: Any) -> str:
        """The query string of that address, without the "?"."""
        return urlencode(self.pairs(**changed))


def _last(lists: Mapping[str, Sequence[str]], name: str) -> str:
    return lists[name][-1] if name in lists else ""


def _number(lists: Mapping[str, Sequence[str]], name: str, default: int, most: int) -> int:
    text = _last(lists, name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and 1 <= int(text) <= most):
        raise Refused(f"{name} = {text[:40]!r}: a number from 1 to {most:,}")
    return int(text)


def typed(one: Condition, kind: pa.DataType) -> Any:
    """The value of a condition, converted to the type of its column."""
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
