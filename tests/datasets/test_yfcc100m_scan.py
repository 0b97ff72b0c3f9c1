"""The compiled pass over lines finds what plain Python finds."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from benchwright.datasets.yfcc100m import scan
from benchwright.datasets.yfcc100m.fields import NEEDED
from benchwright.datasets.yfcc100m.lines import LINES_AT_ONCE, MAX_LINE_BYTES

LAYOUT = ("first", "id", "date_taken", "between", "date_uploaded", "url", "licence", "extension", "marker")
NAMES = (*NEEDED, "between")
GIVEN = ("id", "url", "between")
PHOTO = (b"a", b"7", b"2006-02-28 20:33:06.0", b"b", b"1141158787", b"u", b"l", b"jpg", b"0")


def expected(line: bytes) -> list[bytes] | None:
    """Fields of a line that is clean."""
    clean = line.removesuffix(b"\n").removesuffix(b"\r")
    fields = clean.split(b"\t")
    odd = len(fields) != len(LAYOUT) or any(byte < 14 or byte > 127 for byte in clean.replace(b"\t", b""))
    return None if odd or len(line) > MAX_LINE_BYTES else fields


def texts(kind: scan.LinesOfKind) -> dict[int, list[bytes]]:
    """Fields by the numbers of the lines."""
    columns = [column.to_pylist() for column in kind.texts]
    for column in kind.texts:
        column.validate(full=True)
    return {n: [text.encode() for text in row] for n, *row in zip(kind.index.tolist(), *columns, strict=True)}


def scanned(data: bytes, licences: list[str] | None = None) -> scan.Scanned:
    """The lines, which are few."""
    (found,) = scan.Scanner(LAYOUT, NAMES, GIVEN, licences)(data)
    assert found.size == len(data)
    starts = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    assert found.lines == len(starts) - 1
    kinds = (found.photos, found.others, found.unclear)
    assert sorted(n for kind in kinds for n in kind.index.tolist()) == list(range(found.lines))
    for kind in kinds:
        assert kind.spans.tolist() == [[starts[n], starts[n + 1]] for n in kind.index]
    return found


def cut(data: bytes, columns: tuple[str, ...] = NAMES) -> list[list[bytes] | None]:
    """Fields of all lines, none of them a photo."""
    found = scanned(data)
    assert not len(found.photos.index)
    fields = texts(found.others)
    where = [NAMES.index(name) for name in columns]
    return [[fields[n][at] for at in where] if n in fields else None for n in range(found.lines)]


@pytest.mark.parametrize("seed", range(40))
def test_fields_of_any_bytes(seed: int) -> None:
    random = np.random.default_rng(seed)
    alphabet = np.frombuffer(b"\t\t\t\t\tabcdefgh 0123:-" + (b"\0\r\x0b\x80\xff" if seed % 2 else b""), np.uint8)

    def line() -> bytes:
        kind = random.random()
        if kind < 0.2:
            return b"\t".join(PHOTO)
        if kind < 0.8:
            return b"\t".join(random.choice(alphabet[5:], random.integers(0, 90)).tobytes() for _ in LAYOUT)
        return random.choice(alphabet, random.integers(0, 40)).tobytes()

    lines = [line() for _ in range(random.integers(0, 40))]
    whole = [each + (b"\r\n" if random.random() < 0.2 else b"\n") for each in lines]
    if not whole:
        assert not list(scan.Scanner(LAYOUT, NAMES, GIVEN, None)(b""))
        return
    found = scanned(b"".join(whole))
    fields = {n: each for n, line in enumerate(whole) if (each := expected(line)) is not None}
    photos = [n for n, each in fields.items() if tuple(each) == PHOTO]
    assert texts(found.photos) == {n: [b"7", b"u", b"b"] for n in photos}
    rest = {n: [each[LAYOUT.index(name)] for name in NAMES] for n, each in fields.items() if n not in photos}
    assert texts(found.others) == rest


@pytest.mark.parametrize("size", range(1, 140))
def test_text_at_the_end_of_the_data_is_not_read_beyond_it(size: int) -> None:
    data = b"a\tb\tc\td\te\tf\tg\th\t" + b"x" * size + b"\n"
    # A copy of its own whose end is the end of an allocation of numpy's.
    assert cut(np.frombuffer(data, np.uint8).tobytes(), ("marker", "id")) == [[b"x" * size, b"b"]]


def test_a_line_of_the_greatest_length_and_one_beyond() -> None:
    head = b"a\tb\tc\td\te\tf\tg\th\t"
    longest = head + b"x" * (MAX_LINE_BYTES - len(head) - 1) + b"\n"
    assert [fields is not None for fields in cut(longest + longest[:-1] + b"y\n" + longest)] == [True, False, True]


def test_many_lines_come_some_at_a_time() -> None:
    lines = [b"\n"] * LINES_AT_ONCE + [b"\t".join(PHOTO) + b"\n"] * (LINES_AT_ONCE + 3)
    data = b"".join(lines)
    found = list(scan.Scanner(LAYOUT, NAMES, GIVEN, None)(data))
    assert [each.lines for each in found] == [LINES_AT_ONCE, LINES_AT_ONCE, 3]
    assert [len(each.photos.index) for each in found] == [0, LINES_AT_ONCE, 3]
    assert sum(each.size for each in found) == len(data)
    assert found[2].photos.index.tolist() == [0, 1, 2]
    assert found[2].photos.texts[1].to_pylist() == ["u"] * 3


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_found_stays_when_more_is_scanned(count: int) -> None:
    scanner = scan.Scanner(LAYOUT, NAMES, GIVEN, None)
    first, second = (b"\t".join((*PHOTO[:4], stamp, *PHOTO[5:])) + b"\n" for stamp in (b"1141158787", b"1241158787"))
    (found,) = scanner((first + b"\t" * 8 + b"\n" + b"x\n") * count)
    before = repr(found)
    (other,) = scanner((b"\n" + second + b"\n" + b"y\t" * 8 + b"\n") * count)
    assert repr(found) == before
    assert found.uploaded.to_pylist() != other.uploaded.to_pylist()


def test_scans_of_one_thread_take_turns() -> None:
    few, many = (b"\t".join((b"a", key, *PHOTO[2:])) + b"\n" for key in (b"7", b"8"))
    wanted = list(LAYOUT), list(NAMES), list(GIVEN), ["l"]
    scans = [scan.scanner(*wanted)(data) for data in (few * (LINES_AT_ONCE + 1), many * (2 * LINES_AT_ONCE))]
    found = [[each.photos.texts[0].unique().to_pylist() for each in pair] for pair in zip(*scans, strict=True)]
    assert found == [[["7"], ["8"]]] * 2


def test_the_scanner_of_a_thread_is_kept() -> None:
    first = scan.scanner(LAYOUT, NAMES, GIVEN, None)
    assert scan.scanner(list(LAYOUT), list(NAMES), list(GIVEN), None) is first
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(scan.scanner, LAYOUT, NAMES, GIVEN, None).result() is not first
    for licences, good in ([], 0), (["l"], 1), (None, 1):
        (found,) = scan.scanner(LAYOUT, NAMES, GIVEN, licences)(b"\t".join(PHOTO) + b"\n")
        assert len(found.photos.index) == good


@pytest.mark.parametrize("data", [b"a", b"\na"])
def test_a_line_without_its_newline_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ending with a newline"):
        list(scan.Scanner(LAYOUT, NAMES, GIVEN, None)(data))


@pytest.mark.parametrize(
    ("licences", "good"),
    [(None, True), ([], False), (["l"], True), (["k", "l"], True), (["k", "ll", ""], False), ([""], False)],
)
def test_a_photo_has_one_of_the_licences_asked_for(licences: list[str] | None, good: bool) -> None:
    found = scanned(b"\t".join(PHOTO) + b"\n", licences)
    assert (len(found.photos.index), len(found.others.index)) == (good, not good)
    assert texts(found.others) == ({} if good else {0: [PHOTO[LAYOUT.index(name)] for name in NAMES]})


def test_a_photo_without_a_licence_has_none_of_those_asked_for() -> None:
    without = b"\t".join(field if name != "licence" else b"" for name, field in zip(LAYOUT, PHOTO, strict=True)) + b"\n"
    assert [len(scanned(without, licences).photos.index) for licences in (None, [""], ["l"])] == [1, 0, 0]


def day(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def photos(rows: list[tuple[str, str]]) -> scan.Scanned:
    """Photos that were taken and uploaded at given times."""
    data = "".join(f"a\t{n}\t{taken}\tb\t{uploaded}\tu\tl\tjpg\t0\n" for n, (taken, uploaded) in enumerate(rows, 1))
    return scanned(data.encode())


def test_every_day_of_the_calendar_and_the_days_that_are_none() -> None:
    years = [1, 4, 100, 400, 1582, 1600, 1900, 1969, 1970, 1999, 2000, 2001, 2004, 2100, 9999]
    times = [f"{y:04}-{m:02}-{d:02} {d % 24:02}:{m:02}:59" for y in years for m in range(14) for d in range(33)]
    times += ["2006-02-28 24:00:00", "2006-02-28 23:60:00", "2006-02-28 23:00:60", "0000-01-01 00:00:00"]
    found = photos([(f"{time}.7", "9999999999") for time in times])
    latest = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=9_999_999_999)
    tenth = dt.timedelta(milliseconds=700)
    known = [day(time) for time in times]
    assert found.photos.index.tolist() == [n for n, time in enumerate(known) if time is not None and time < latest]
    assert found.taken.to_pylist() == [time + tenth for time in known if time is not None and time < latest]
    assert set(found.uploaded.to_pylist()) == {latest}
    assert 5_000 < len(found.photos.index) < len(times)


@pytest.mark.parametrize(
    ("tenth", "seconds", "good"), [("8", 0, True), ("9", 0, True), ("0", 1, False), ("1", 1, False), ("0", 2, False)]
)
def test_capture_is_before_upload_by_a_tenth_of_a_second_at_least(tenth: str, seconds: int, good: bool) -> None:
    found = photos([(f"2006-02-28 20:33:0{5 + seconds}.{tenth}", "1141158786")])
    assert dt.datetime.fromtimestamp(1141158786, dt.UTC).isoformat() == "2006-02-28T20:33:06+00:00"
    assert len(found.photos.index) == good
