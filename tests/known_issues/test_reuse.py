"""What a run takes from an earlier one, and what it must not; and how it goes on after damage."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.flow import Flow, PlanError, source, step
from benchwright.curation.keys import fingerprint, how, where, where_of_rows
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.rows import Blob, Shape
from benchwright.curation.run import run, status
from benchwright.curation.store import Store, StoreError
from benchwright.curation.verify import verify

# Worker processes cannot import the tests: the steps travel with the tasks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Number:
    key: str
    value: int


@dataclass(frozen=True)
class Text:
    key: str
    text: Blob


@dataclass(frozen=True)
class Vector:
    key: str
    vector: Annotated[np.ndarray, Shape((-1,), "float32")]


def read(*, count: int) -> Iterator[Number]:
    yield from (Number(f"k{n:02d}", n) for n in range(count))


def read_files(*, files: object) -> Iterator[Number]:
    yield Number("k", 0)


def to_text(row: Number) -> Text:
    return Text(row.key, Blob(str(row.value).encode()))


def size_of(row: Text) -> Number:
    return Number(row.key, int(row.text.read()))


def same(table: pa.Table) -> pa.Table:
    return table


def read_folder(*, root: str) -> Iterator[Number]:
    yield from (Number(path.name, int(path.read_text())) for path in sorted(Path(root).iterdir()))


def widening(row: Number) -> Vector:
    return Vector(row.key, np.zeros(3 + row.value, np.float32))


def note(row: Number, *, log: str) -> Number:
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(f"{row.value} ")
    return row


def kill_worker(row: Number) -> Number:
    os.kill(os.getpid(), signal.SIGKILL)
    return row


def texts() -> Flow:
    return source("read", step(read, count=10)).each("made", step(to_text), rows_per_part=4)


@pytest.mark.parametrize("cut", [0, 10, -4])
def test_a_damaged_part_is_made_again(cut: int, tmp_path: Path) -> None:
    """A part of Parquet that was cut off (or whose end was overwritten) failed this run and every later one."""
    first = run(texts(), str(tmp_path), scheduler="sync")
    part = tmp_path / "stages/made/part-00001.parquet"
    (tmp_path / "stages/made/artifact.json").unlink()
    part.write_bytes(part.read_bytes()[:cut] + (b"xxxx" if cut < 0 else b""))
    assert run(texts(), str(tmp_path), scheduler="sync").result == first.result
    assert verify(str(tmp_path)) == []


@pytest.mark.parametrize("text", ['{"stage"', "[]", "{}"])
@pytest.mark.parametrize("name", [".fingerprints.json", "stages/made/artifact.json"])
def test_a_damaged_record_is_written_again(name: str, text: str, tmp_path: Path) -> None:
    """A record that was cut off failed this run and every later one, though all parts were there."""
    first = run(texts(), str(tmp_path), scheduler="sync")
    (tmp_path / name).write_text(text)
    assert len(status(texts(), str(tmp_path))) == 2
    assert run(texts(), str(tmp_path), scheduler="sync").result == first.result
    assert verify(str(tmp_path)) == []


@pytest.mark.parametrize("broken", [False, True])
def test_payloads_that_moved_are_not_looked_for_at_their_old_places(broken: bool, tmp_path: Path) -> None:
    """No test held the engine to this: rows that are the same, cut into other parts, have their payloads elsewhere."""

    def flow(rows_per_part: int) -> Flow:
        made = source("read", step(read, count=10)).each("made", step(to_text), rows_per_part=rows_per_part)
        return made.table("same", step(same), rows_per_part=4).each("sized", step(size_of), rows_per_part=4)

    first = run(flow(3), str(tmp_path), scheduler="sync")
    for path in (tmp_path / "stages/made").iterdir():
        path.unlink()
    if broken:
        (tmp_path / "stages/same/artifact.json").unlink()
    again = run(flow(7), str(tmp_path), scheduler="sync")
    assert [a.digest for a in again.artifacts] == [a.digest for a in first.artifacts]
    assert [int(blob.read()) for blob in again.rows("same").blobs("text")] == list(range(10))
    assert verify(str(tmp_path)) == []


def test_a_file_of_a_source_folder_that_changed_in_place(tmp_path: Path) -> None:
    """No test held the engine to this: the key of a folder knows names and sizes, and here neither changes."""
    root = tmp_path / "in"
    root.mkdir()
    (root / "a").write_text("1")
    flow = source("read", step(read_folder, root=where(root))).each("made", step(to_text))
    run(flow, str(tmp_path / "run"), scheduler="sync")
    before = (root / "a").stat()
    (root / "a").write_text("2")
    os.utime(root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    again = run(flow, str(tmp_path / "run"), scheduler="sync")
    assert again.rows("read").table(["value"])["value"].to_pylist() == [2]
    assert next(again.rows("made").blobs("text")).read() == b"2"


@pytest.mark.parametrize(
    "value", [[where("a"), where("b")], {"a": where("a")}, [where_of_rows("a")], [how(3)], how(where("a"))]
)
def test_marks_inside_a_setting_are_refused(value: object) -> None:
    """Of paths in a list the names went into the key and the content did not: changed files were not read again."""
    with pytest.raises(PlanError, match=r"setting 'files' holds (where|where_of_rows|how)\(...\) inside it"):
        step(read_files, files=value)


def test_a_source_may_not_hold_the_run(tmp_path: Path) -> None:
    """A run inside its own source folder was made again each time: the folder was never the same."""
    flow = source("read", step(read_files, files=where(tmp_path)))
    with pytest.raises(PlanError, match="are one inside the other"):
        run(flow, str(tmp_path / "run"), scheduler="sync")


def test_parts_are_made_in_order(tmp_path: Path) -> None:
    """dask took the parts of a stage in an order of its own, so that those made first waited in memory for the others."""
    log = tmp_path / "log"
    flow = source("read", step(read, count=30)).each("noted", step(note, log=str(log)), rows_per_part=1)
    run(flow, str(tmp_path / "run"), scheduler="threads", workers=1)
    assert log.read_text().split() == [str(n) for n in range(30)]


def test_arrays_of_several_widths_are_told(tmp_path: Path) -> None:
    """Arrays whose width changes from part to part ended in numpy's "could not be broadcast", without a name."""
    flow = source("read", step(read, count=2)).each("wide", step(widening), rows_per_part=1)
    rows = run(flow, str(tmp_path), scheduler="sync").rows()
    with pytest.raises(StoreError, match=r"shapes \[\(3,\), \(4,\)\]"):
        rows.gather("vector", [0, 1])


def test_a_killed_worker_is_told(tmp_path: Path) -> None:
    """A worker that the system killed gave "A process in the process pool was terminated abruptly", without the stage."""
    flow = source("read", step(read, count=2)).each("killed", step(kill_worker), rows_per_part=1)
    with pytest.raises(StepFailed, match="stage 'killed': a worker process was killed"):
        run(flow, str(tmp_path / "run"), scheduler="processes", workers=1)


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    """A full disk gave "No space left on device", without saying where."""
    store = Store(str(tmp_path))
    full = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 (closed below)
    with full, pytest.raises(OSError, match=r"No space left on device: .*stages/made/part"), store.writing("stages/made/part"):
        full.write(b"x")
    assert list((tmp_path / "stages/made").iterdir()) == []


def test_a_relative_folder_is_relative_to_where_the_process_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Store("out").write("name.txt", name.encode())
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*.txt"))] == [
        "first/out/name.txt",
        "second/out/name.txt",
    ]
    assert Store("out").read("name.txt") == b"second"


def test_a_run_that_moves_is_up_to_date_with_a_source_of_one_file(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "names.txt").write_text("a\nb\n")
    before = fingerprint(str(first / "names.txt"))
    first.rename(tmp_path / "second")
    assert fingerprint(str(tmp_path / "second" / "names.txt")) == before
