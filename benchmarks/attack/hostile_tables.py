"""Hostile tables, lists, settings and records: depths, numbers without end, views that never end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from . import valid
from .hostile import Specials, put_all


def parquet(name: str) -> Specials:
    """Of Parquet."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        names, rows = valid.ids(6), valid.features().tolist()
        return put_all(
            name,
            {
                "empty": b"",
                "marks alone": b"PAR1PAR1",
                "a footer of 2 GB": b"PAR1" + struct.pack("<I", 0x7FFFFFFF) + b"PAR1",
                "two files in one": valid.parquet({"uid": names, "feature": rows})
                + valid.parquet({"uid": names[:1], "feature": rows[:1]}),
                "other columns": valid.parquet({"a": [1]}),
                "a number instead of a list": valid.parquet({"uid": names, "feature": list(range(6))}),
                "null": valid.parquet({"uid": [None, *names[1:]], "feature": [None, *rows[1:]]}),
                "lists of other lengths": valid.parquet(
                    {"uid": names, "feature": [row[: n + 1] for n, row in enumerate(rows)]}
                ),
                "repeats, well packed": lambda: valid.parquet(
                    {"uid": ["a"] * 2_000, "feature": [[0.0] * 50_000] * 2_000}, compression="zstd"
                ),
                "no rows": valid.parquet({"uid": names[:0], "feature": rows[:0]}),
            },
        )

    return made


def sqlite(name: str) -> Specials:
    """Of SQLite: views instead of tables, without end."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        from benchwright.datasets.yfcc100m.sqlite import COLUMN_NAMES, TABLE

        columns = list(COLUMN_NAMES.values())
        shown = ", ".join(f"x AS {column}" for column in columns)
        view = f"CREATE VIEW {TABLE} AS "
        endless = f"WITH RECURSIVE r(x, rowid) AS (SELECT 1, 1 UNION ALL SELECT x, rowid FROM r) SELECT rowid, {shown} FROM r"
        counting = f"WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS rowid, {shown} FROM r"
        blob = f"SELECT 1 AS rowid, {', '.join(f'zeroblob(900000000) AS {column}' for column in columns)}"
        generated = f"CREATE TABLE {TABLE} ({', '.join(columns)}, w GENERATED ALWAYS AS (zeroblob(900000000)))"
        far = f"CREATE TABLE {TABLE} ({', '.join(columns)})"
        insert = f"INSERT INTO {TABLE} (rowid, {columns[0]}) VALUES (?, ?)"
        return put_all(
            name,
            {
                "recursive view": lambda: valid.sqlite_of([view + endless]),
                "counting view": lambda: valid.sqlite_of([view + counting]),
                "view of gigabytes": lambda: valid.sqlite_of([view + blob]),
                "generated column": lambda: valid.sqlite_of([generated]),
                "rowids at both ends": lambda: valid.sqlite_of([far], [(-(2**63), "1"), (2**63 - 1, "2"), (0, "3")], insert),
                "virtual table": lambda: valid.sqlite_of([f"CREATE VIRTUAL TABLE {TABLE} USING fts5({', '.join(columns)})"]),
                "no table": lambda: valid.sqlite_of(["CREATE TABLE a (b)"]),
                "missing columns": lambda: valid.sqlite_of([f"CREATE TABLE {TABLE} (photoid)"]),
                "mark alone": b"SQLite format 3\0",
                "empty": b"",
            },
        )

    return made


def lines(name: str) -> Specials:
    """Of text in lines."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        def changed(how: Callable[[bytes], bytes]) -> Callable[[Path], None]:
            return lambda folder: (folder / name).write_bytes(how((folder / name).read_bytes())) and None

        def last(data: bytes) -> bytes:
            return data.rstrip(b"\n").split(b"\n")[-1]

        return {
            "empty": changed(lambda data: b""),
            "blank lines": changed(lambda data: b"\n" * 3),
            "NUL": changed(lambda data: bytes(1000)),
            "UTF-16": changed(lambda data: data.decode("utf-8", "replace").encode("utf-16")),
            "byte order mark": changed(lambda data: b"\xef\xbb\xbf" + data),
            "CRLF": changed(lambda data: data.replace(b"\n", b"\r\n")),
            "CR alone": changed(lambda data: data.replace(b"\n", b"\r")),
            "other line ends of Unicode": changed(
                lambda data: data.replace(b"\n", "\u2028".encode()) + "\x0b\x0c\x1c\x85".encode()
            ),
            "surrogates": changed(lambda data: data + b"\xed\xa0\x80\xed\xb0\x80\n"),
            "open quote": changed(lambda data: data + b'"' + last(data) + b"\n" + last(data) + b"\n"),
            "a line of 30 MB": changed(lambda data: data + b"x" * 30_000_000 + b"\n"),
            "30 million blank lines": changed(lambda data: data + b"\n" * 30_000_000),
            "a line 20,000 times": changed(lambda data: data + (last(data) + b"\n") * 20_000),
            "a line of 100,000 fields": changed(lambda data: data + b"," * 100_000 + b"\t" * 100_000 + b"\n"),
            "names that lead out": changed(
                lambda data: data + b"../../../etc/passwd" + last(data)[last(data).find(b",") :] + b"\n"
            ),
            "formula": changed(lambda data: data + b"=1+1" + last(data) + b"\n"),
            "directory": lambda folder: ((folder / name).unlink(), (folder / name).mkdir(), None)[-1],
            "link to itself": lambda folder: ((folder / name).unlink(), (folder / name).symlink_to((folder / name).name), None)[
                -1
            ],
            "gone": lambda folder: (folder / name).unlink(),
        }

    return made


def json_files(name: str) -> Specials:
    """Of JSON."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        found: dict[str, bytes | Callable[[], bytes]] = {
            "deep lists": b"[" * 100_000 + b"]" * 100_000,
            "deep tables": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
            "deep lists within": b'{"skeletons":' + b"[" * 900 + b"]" * 900 + b"}",
            "an int of 5,000 digits": b'{"skeletons":[[[' + b"9" * 5000 + b"]]],"
            b'"database":{"a":{"duration":' + b"9" * 5000 + b"}}}",
            "NaN": b'{"skeletons":[[[NaN,Infinity,-Infinity]]]}',
            "null": b"null",
            "a number": b"3",
            "text": b'"a"',
            "a list": b"[]",
            "a table": b"{}",
            "list of lists": b"[[[[]]]]",
            "surrogates": b'{"\\ud800":{"annotations":[{"label":"\\udc00","segment":[1,2]}]},'
            b'"database":{"\\ud800":{"subset":"training"}}}',
            "two values": b"{}{}",
            "names twice": b'{"a":1,"a":2}',
            "UTF-16": "{}".encode("utf-16"),
            "UTF-32": "{}".encode("utf-32"),
            "byte order mark": b"\xef\xbb\xbf{}",
            "a list of a million": lambda: b"[" + b"0," * 1_000_000 + b"0]",
            "1e999": b'{"skeletons":[[[1e999]]],"label":1e999}',
            "empty": b"",
        }
        return {
            **put_all(name, found),
            **{told: each for told, each in lines(name)().items() if told in ("directory", "link to itself", "gone")},
        }

    return made


def toml(name: str) -> Specials:
    """Of TOML."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        def more(text: str) -> Callable[[Path], None]:
            return lambda folder: (
                (folder / name).write_bytes((folder / name).read_bytes() + text.encode("utf-8", "surrogatepass")) and None
            )

        return {
            "deep": more("\na = " + "[" * 50_000),
            "deep tables": more("\n[" + "a." * 20_000 + "a]\nb = 1\n"),
            "huge integer": more("\n[shards2]\nmax = " + "9" * 5000 + "\n"),
            "hex": more("\n[x]\ny = 0x" + "f" * 5000 + "\n"),
            "infinite": lambda folder: (folder / name).write_bytes(b"seed = inf\n") and None,
            "seed of 300 digits": lambda folder: (
                (folder / name).write_bytes((folder / name).read_bytes().replace(b"seed = 0", b"seed = " + b"9" * 300)) and None
            ),
            "surrogates": more('\n[x]\ny = "\ud800"\n'),
            "extends itself": lambda folder: (folder / name).write_bytes(b'extends = "%s"\n' % name.encode()) and None,
            "extends a file outside": lambda folder: (folder / name).write_bytes(b'extends = "/etc/passwd"\n') and None,
            "extends a folder": lambda folder: (folder / name).write_bytes(b'extends = "/etc"\n') and None,
            "binary": lambda folder: (folder / name).write_bytes(bytes(range(256))) and None,
            **{
                told: each
                for told, each in lines(name)().items()
                if told in ("empty", "NUL", "UTF-16", "CR alone", "directory", "link to itself", "gone")
            },
        }

    return made


def run_files(pattern: str) -> Specials:
    """Of a file within a run: no file, another file, a link that leads out."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        def link(folder: Path) -> None:
            (folder / "file").unlink()
            (folder / "file").symlink_to("/etc/passwd")

        found: dict[str, bytes | Callable[[], bytes]] = {"empty": b"", "text": b"hello", "NUL": bytes(100)}
        if pattern.endswith(".json"):
            found |= {
                "deep": b"[" * 100_000,
                "null": b"null",
                "a list": b"[]",
                "a table": b"{}",
                "an int of 5,000 digits": b'{"digest":' + b"9" * 5000 + b"}",
            }
        if pattern.endswith(".parquet"):
            found |= {
                "other columns": valid.parquet({"a": [1]}),
                "a footer of 2 GB": b"PAR1" + struct.pack("<I", 0x7FFFFFFF) + b"PAR1",
            }
        return {**put_all("file", found), "link that leads out": link}

    return made
