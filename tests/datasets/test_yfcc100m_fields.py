"""The compiled passes and the rules agree with the rules written once more in plain Python."""

from __future__ import annotations

import datetime as dt
import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.rows import REJECTS, Sifted
from benchwright.datasets.yfcc100m import lines
from benchwright.datasets.yfcc100m.fields import COLUMNS, NEEDED, Parsed, Place, rest_table, row_schema, sift_fields
from benchwright.datasets.yfcc100m.metadata import pieces, read_metadata

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


Row = dict[str, str | None]


def by_rules(rows: list[Row], folder: Path) -> Sifted:
    """What the rules say, in blocks of thirty rows."""
    blocks: list[Parsed] = []
    for first in range(0, len(rows), 30):
        index = np.arange(len(rows))[first : first + 30]
        texts = {name: [row[name] for row in rows[first : first + 30]] for name in NEEDED}
        rest = rest_table(index - first, index + 1, texts)
        good = row_schema(()).empty_table()
        blocks.append(Parsed(good, index[:0], rest, len(index), REJECTS.empty_table()))
    return sift_fields(blocks, place=Place("m", "line"), licences=None, extra=())


def as_text(rows: list[Row], folder: Path) -> Sifted:
    """What is read from a compressed file."""
    lines = ["\t".join(row.get(name) or "" for name in COLUMNS) + "\n" for row in rows]
    (folder / "m").write_bytes(gzip.compress("".join(lines).encode()))
    kept, rejected = zip(*read_metadata(*pieces(path=str(folder / "m")), path=str(folder / "m")), strict=True)
    return Sifted(pa.concat_tables(kept), pa.concat_tables(rejected))


WAYS = {"by_rules": by_rules, "as_text": as_text}


def times(row: Row) -> tuple[dt.datetime, dt.datetime] | None:
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RULES)
def test_one_odd_value_among_usual_ones(name: str, way: str, tmp_path: Path) -> None:
    for value in [*ODD[name], *mutants(name, 150)]:
        rows: list[Row] = [{**GOOD, "id": "1"}, {**GOOD, name: value}, {**GOOD, "id": "3"}]
        expected = times(rows[1])
        kept, rejected = WAYS[way](rows, tmp_path)
        found = {row["key"]: (row["date_taken"], row["date_uploaded"]) for row in kept.to_pylist()}
        assert found.pop("1") == found.pop("3") == times(rows[0])
        assert list(found.values()) == ([] if expected is None else [expected]), value
        assert rejected.num_rows == (expected is None), value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("block_bytes", [50, 3_000])
def test_rows_stay_in_order_where_blocks_mix_usual_and_odd_ones(
    way: str, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block_bytes)
    odd = ["2006-02-28 20:33:06", "2006-02-30 20:33:06.0", "null", "2006-02-28 20:33:06.25", GOOD["date_taken"]]
    rows: list[Row] = [
        {**GOOD, "id": str(n) if n % 9 else "none", "date_taken": odd[n % 7 if n % 7 < 4 else 4]} for n in range(1, 101)
    ]
    kept, rejected = WAYS[way](rows, tmp_path)
    assert kept["key"].to_pylist() == [row["id"] for row in rows if times(row)]
    keys = [row["id"] if row["id"] != "none" else None for row in rows if not times(row)]
    assert [None if key.startswith("m:") else key for key in rejected["key"].to_pylist()] == keys
    nameless = [n for n, row in enumerate(rows, 1) if row["id"] == "none"]
    assert [key for key in rejected["key"].to_pylist() if key.startswith("m:")] == [f"m:{place}" for place in nameless]
