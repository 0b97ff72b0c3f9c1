"""The compiled passes over lines find what plain Python finds."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from benchwright.datasets.yfcc100m import scan
from benchwright.datasets.yfcc100m.lines import MAX_LINE_BYTES

COLUMNS = 5


def expected(line: bytes) -> list[bytes] | None:
    """Fields of a line that is clean."""
    clean = line.removesuffix(b"\n").removesuffix(b"\r")
    fields = clean.split(b"\t")
    odd = len(fields) != COLUMNS or any(byte < 14 or byte > 127 for byte in clean.replace(b"\t", b""))
    return None if odd or len(line) > MAX_LINE_BYTES else fields


def cut(data: bytes, wanted: list[int]) -> list[list[bytes] | None]:
    """Fields of all lines by the compiled passes."""
    bounds, starts = scan.fields(data, COLUMNS, wanted)
    clean = bounds[:, 0, 0] >= 0
    assert starts.tolist() == [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    columns = [column.to_pylist() for column in scan.texts(data, bounds, clean, range(len(wanted)))]
    texts = iter([[text.encode() for text in row] for row in zip(*columns, strict=True)])
    return [next(texts) if kept else None for kept in clean]


@pytest.mark.parametrize("seed", range(40))
def test_fields_of_any_bytes(seed: int) -> None:
    random = np.random.default_rng(seed)
    alphabet = np.frombuffer(b"\t\t\t\t\tabcdefgh 0123:-" + (b"\0\r\x0b\x80\xff" if seed % 2 else b""), np.uint8)
    lines = [
        b"\t".join(random.choice(alphabet[5:], random.integers(0, 90)).tobytes() for _ in range(COLUMNS))
        if random.random() < 0.7
        else random.choice(alphabet, random.integers(0, 40)).tobytes()
        for _ in range(random.integers(0, 40))
    ]
    ends = [b"\r\n" if random.random() < 0.2 else b"\n" for _ in lines]
    whole = [line + end for line, end in zip(lines, ends, strict=True)]
    wanted = sorted(random.choice(COLUMNS, random.integers(1, COLUMNS + 1), replace=False).tolist())
    fields = [expected(line) for line in whole]
    assert cut(b"".join(whole), wanted) == [each and [each[n] for n in wanted] for each in fields]


@pytest.mark.parametrize("size", range(1, 140))
def test_text_at_the_end_of_the_data_is_not_read_beyond_it(size: int) -> None:
    data = b"a\tb\tc\td\t" + b"x" * size + b"\n"
    # A copy of its own whose end is the end of an allocation of numpy's, and no text where none is asked for.
    assert cut(np.frombuffer(data, np.uint8).tobytes(), [4, 0]) == [[b"x" * size, b"a"]]


def test_a_line_of_the_greatest_length_and_one_beyond() -> None:
    head = b"a\tb\tc\td\t"
    longest = head + b"x" * (MAX_LINE_BYTES - len(head) - 1) + b"\n"
    assert [fields is not None for fields in cut(longest + longest[:-1] + b"y\n" + longest, [0])] == [True, False, True]


def day(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def test_every_day_of_the_calendar_and_the_days_that_are_none() -> None:
    years = [1, 4, 100, 400, 1582, 1600, 1900, 1969, 1970, 1999, 2000, 2001, 2004, 2100, 9999]
    times = [f"{y:04}-{m:02}-{d:02} {d % 24:02}:{m:02}:59" for y in years for m in range(14) for d in range(33)]
    times += ["2006-02-28 24:00:00", "2006-02-28 23:60:00", "2006-02-28 23:00:60", "0000-01-01 00:00:00"]
    lines = [f"{n}\t{time}.7\t9999999999\tu\tl\tjpg\t0\n" for n, time in enumerate(times, 1)]
    data = "".join(lines).encode()
    bounds, _ = scan.fields(data, 7, range(7))
    found, taken, uploaded = scan.photos(data, bounds)
    latest = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=9_999_999_999)
    tenth = dt.timedelta(milliseconds=700)
    known = [day(time) for time in times]
    assert found.tolist() == [time is not None and time < latest for time in known]
    assert taken.to_pylist() == [time + tenth for time in known if time is not None and time < latest]
    assert set(uploaded.to_pylist()) == {latest}
    assert 5_000 < found.sum() < len(times)


@pytest.mark.parametrize(
    ("tenth", "seconds", "good"), [("8", 0, True), ("9", 0, True), ("0", 1, False), ("1", 1, False), ("0", 2, False)]
)
def test_capture_is_before_upload_by_a_tenth_of_a_second_at_least(tenth: str, seconds: int, good: bool) -> None:
    data = f"7\t2006-02-28 20:33:0{5 + seconds}.{tenth}\t{1141158786}\tu\tl\tjpg\t0\n".encode()
    assert dt.datetime.fromtimestamp(1141158786, dt.UTC).isoformat() == "2006-02-28T20:33:06+00:00"
    assert scan.photos(data, scan.fields(data, 7, range(7))[0])[0].tolist() == [good]
