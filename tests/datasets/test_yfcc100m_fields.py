"""The quick look at a block of fields and the careful one agree with the rules, written once more in plain Python."""

from __future__ import annotations

import datetime as dt
import re

import numpy as np
import polars as pl
import pytest
from benchwright.curation.rows import REJECTS
from benchwright.datasets.yfcc100m.fields import NEEDED, Block, Place, sift_fields

GOOD = {
    "id": "6185218911",
    "date_taken": "2006-02-28 20:33:06.0",
    "date_uploaded": "1320000000",
    "url": "http://farm7.staticflickr.com/1/6185218911_a.jpg",
    "licence": "Attribution License",
    "extension": "jpg",
    "marker": "0",
}
RULES = {
    "id": r"[1-9][0-9]{0,17}",
    "date_taken": r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?",
    "date_uploaded": r"[1-9][0-9]{0,9}",
}
ODD: dict[str, list[str | None]] = {
    "id": ["0", "01", "1" * 18, "1" * 19, "-1", "+1", " 1", "1 ", "1.0", "0x1", "\u0661", None],
    "date_taken": [
        *["2006-02-28T20:33:06.0", "2006-02-28 20:33:06", "2006-02-28 20:33:06.123456", "2006-02-28 20:33+0100"],
        *["2006-02-29 00:00:00.0", "2004-02-29 00:00:00.0", "0000-01-01 00:00:00.0", "0001-01-01 00:00:00.0", "null", None],
        *["2011-10-30 18:40:00.0", "2011-10-30 18:39:59.9", "2006-02-28 24:00:00.0", "2006-02-28 23:59:60.0"],
    ],
    "date_uploaded": [
        *["0x12345678", "0xFFFFFFFF", "-123456789", "+123456789", " 123456789", "123456789 ", "0123456789", "1e00000009"],
        *["999999999", "9999999999", "12345678901", "1", "0", "123456789.", "null", None],
    ],
}


def blocks(rows: list[dict[str, str | None]]) -> Block:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(NEEDED, pl.String))
    return Block(frame, Place("m", "line", lambda at: at), REJECTS.empty_table())


def times(row: dict[str, str | None]) -> tuple[dt.datetime, dt.datetime] | None:
    """Both times of a row that is good, by the rules as they are written down."""
    if not all(row[name] and re.fullmatch(rule, str(row[name]), re.ASCII) for name, rule in RULES.items()):
        return None
    text = str(row["date_taken"])[:19]
    leap = text.endswith(":60")  # the second after :59
    try:
        taken = dt.datetime.fromisoformat(text[:-2] + "59" if leap else text)
    except ValueError:
        return None
    taken += dt.timedelta(seconds=leap, microseconds=int(str(row["date_taken"])[20:].ljust(6, "0")))
    uploaded = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(str(row["date_uploaded"])))
    return (taken, uploaded) if taken < uploaded else None


def mutants(name: str, count: int) -> list[str]:
    random = np.random.default_rng(7)
    found: list[str] = []
    for _ in range(count):
        text = list(GOOD[name])
        for place in random.integers(0, len(text), random.integers(1, 3)):
            text[place] = "0123456789019- :.+TxZ"[random.integers(0, 21)]
        found.append("".join(text))
    return found


@pytest.mark.parametrize("name", RULES)
def test_one_odd_value_among_usual_ones(name: str) -> None:
    for value in [*ODD[name], *mutants(name, 150)]:
        rows: list[dict[str, str | None]] = [{**GOOD, "id": "1"}, {**GOOD, name: value}, {**GOOD, "id": "3"}]
        expected = times(rows[1])
        kept, rejected = sift_fields([blocks(rows)], licences=None, extra=())
        found = {row["key"]: (row["date_taken"], row["date_uploaded"]) for row in kept.to_pylist()}
        assert found.pop("1") == found.pop("3") == times(rows[0])
        assert list(found.values()) == ([] if expected is None else [expected]), value
        assert rejected.num_rows == (expected is None), value


def test_rows_stay_in_order_where_blocks_mix_usual_and_odd_ones() -> None:
    odd = ["2006-02-28 20:33:06", "2006-02-30 20:33:06.0", "null", "2006-02-28 20:33:06.25", GOOD["date_taken"]]
    rows: list[dict[str, str | None]] = [
        {**GOOD, "id": str(n) if n % 9 else "none", "date_taken": odd[n % 7 if n % 7 < 4 else 4]} for n in range(1, 101)
    ]
    kept, rejected = sift_fields([blocks(rows[:30]), blocks(rows[30:31]), blocks(rows[31:])], licences=None, extra=())
    assert kept["key"].to_pylist() == [row["id"] for row in rows if times(row)]
    keys = [row["id"] if row["id"] != "none" else None for row in rows if not times(row)]
    assert [None if key.startswith("m:") else key for key in rejected["key"].to_pylist()] == keys
    nameless = [n if n < 30 else n - 30 if n < 31 else n - 31 for n, row in enumerate(rows) if row["id"] == "none"]
    assert [key for key in rejected["key"].to_pylist() if key.startswith("m:")] == [f"m:{place}" for place in nameless]
