"""Steps of the plans that the engine's tests run: a module of its own, so that worker processes can import it."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchwright.curation.checkpoint import Checkpoint
from benchwright.curation.rng import rng
from benchwright.curation.rows import Blob, Reject, Rejected, Shape
from benchwright.curation.stage_rows import Rows


@dataclass(frozen=True)
class Number:
    key: str
    value: int


@dataclass(frozen=True)
class Met:
    key: str
    worker: str


@dataclass(frozen=True)
class Drawn:
    key: str
    value: int
    noise: float
    text: Blob
    vector: Annotated[np.ndarray, Shape((-1,), "float32")]


@dataclass(frozen=True)
class Placed:
    key: str
    shard: str


@dataclass(frozen=True)
class Doubled:
    key: str
    source_key: str


@dataclass(frozen=True)
class Counted:
    key: str
    rows: int


@dataclass(frozen=True)
class OnlyText:
    key: str
    text: Blob


@dataclass(frozen=True)
class OnlyVector:
    key: str
    vector: Annotated[np.ndarray, Shape((-1,), "float32")]


def read_numbers(*, path: str) -> Iterator[Number | Rejected]:
    for index, line in enumerate(Path(path).read_text().splitlines(), 1):
        if line.isdigit():
            yield Number(f"line{index}", int(line))
        else:
            yield Rejected(f"line{index}", "not_a_number", f"line {index} is {line!r}")


def meet(*, folder: str, name: str, wanted: int) -> Iterator[Number]:
    """One row, when so many of these steps are at work at the same time."""
    (Path(folder) / name).touch()
    give_up = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < wanted:
        if time.monotonic() > give_up:
            raise TimeoutError(f"{name} waited alone for a minute")
        time.sleep(0.01)
    yield Number(name, 1)


def fail(*, folder: str, name: str, after: str = "") -> Iterator[Number]:
    """Fails; with ``after``, some time after the step of that name."""
    give_up = time.monotonic() + 60
    while after and not (Path(folder) / after).exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    time.sleep(0.3 if after else 0)
    (Path(folder) / name).touch()
    raise ValueError(name)
    yield


def reject_slowly(row: Number, *, slow: str) -> Number:
    """Rejects the row, and takes its time for the one with that key."""
    time.sleep(0.3 if row.key == slow else 0)
    raise Reject("unwanted", row.key)


def list_pieces(*, root: str) -> list[str]:
    return sorted(path.name for path in Path(root).iterdir())


def read_piece(piece: str, *, root: str) -> Iterator[Number | Rejected]:
    for number in (Path(root) / piece).read_text().splitlines():
        key = f"{Path(piece).stem}:{number}"
        yield Number(key, int(number)) if number.isdigit() else Rejected(key, "not_a_number")


def read_piece_after(piece: str, *, root: str, after: str, bad: str) -> Iterator[Number]:
    """The piece, once the file ``after`` is there; the piece ``bad`` fails."""
    give_up = time.monotonic() + 60
    while not Path(after).exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    if piece == bad:
        raise ValueError("bad")
    yield Number(piece, int((Path(root) / piece).read_text()))


def break_second(row: Number, *, folder: str) -> Number:
    """Leave a file for each row; the second row fails, and the others wait for it, and a little longer."""
    (Path(folder) / row.key).touch()
    if row.value == 2:
        raise ValueError("two")
    give_up = time.monotonic() + 60
    while not (Path(folder) / "line2").exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    time.sleep(1)
    return row


def draw(row: Number, *, factor: int, seed: int, bad: str = "", hurry: int = 1) -> Drawn:
    if bad and bad in str(row.value):
        raise Reject("has_bad_digit", f"{row.value} has a {bad}")
    noise = rng(seed, "draw", row.key).normal()
    vector = np.asarray([row.value * factor, noise, 0, 1], dtype=np.float32)
    return Drawn(row.key, row.value * factor, float(noise), Blob(str(row.value).encode()), vector)


def relabel(row: OnlyText) -> Number:
    """Takes ``text`` and gives ``value``, which the stage before has as well."""
    return Number(row.key, row.text.size)


def needs_vector(row: OnlyVector) -> OnlyVector:
    return row


def breaks(row: Number) -> Number:
    return Number(row.key, 12 // (row.value - 3))


class HoldsALock(Exception):
    """As exceptions of clients of servers do: it cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def breaks_oddly(row: Number, *, how: str) -> Number:
    if row.value != 3:
        return row
    if how == "recursion":
        return breaks_oddly(row, how=how)
    raise HoldsALock("no server")


LOADED = set[str]()


def load_once(row: Number, *, folder: str) -> Number:
    """Carry the row; a file is left by each process, when it first gets a row, as if it loaded a model then."""
    if folder not in LOADED:
        LOADED.add(folder)
        (Path(folder) / uuid.uuid4().hex).touch()
    return row


def end_once(row: Number, *, folder: str) -> Number:
    """End the process at the second row, unless that was done before."""
    ended = Path(folder) / "ended"
    if row.value == 2 and not ended.exists():
        ended.touch()
        os._exit(1)
    return row


def end_thrice(row: Number, *, folder: str) -> Number:
    """End the process at the second row, three times; then wait for the file ``go``."""
    if row.value == 2:
        ended = sum(1 for _ in Path(folder).glob("ended*"))
        if ended < 3:
            (Path(folder) / f"ended{ended}").touch()
            os._exit(1)
        give_up = time.monotonic() + 60
        while not (Path(folder) / "go").exists():
            if time.monotonic() > give_up:
                raise RuntimeError("there is no go")
            time.sleep(0.02)
    return row


def count_up(*, counted: str, ends: int, folder: str) -> Iterator[Number]:
    """Count to 6 and commit each number; end the process at its first call when it has committed ``ends``.

    Each call leaves the number that it went on from in the folder ``counted``.
    """
    checkpoint = Checkpoint(Path(folder))
    done = int(checkpoint.arrays().get("done", 0))
    calls = sum(1 for _ in Path(counted).iterdir())
    (Path(counted) / f"call{calls}").write_text(str(done))
    for number in range(done + 1, 7):
        place = Path(folder) / f"number{number}"
        place.write_text(str(number))
        checkpoint.commit_arrays({"done": np.array(number)}, place)
        if number == ends and calls == 0:
            os._exit(1)
    yield from (Number(path.name, int(path.read_text())) for path in checkpoint.files)


def fail_here(row: Number, *, folder: str, kinds: Sequence[str]) -> Number:
    """Fail at the second row, each time as the next of ``kinds`` says; leaves a file that names the worker each time."""
    from distributed import get_worker

    if row.value == 2:
        calls = sum(1 for _ in Path(folder).iterdir())
        (Path(folder) / f"call{calls}").write_text(get_worker().address)
        if calls < len(kinds):
            if kinds[calls] == "death":
                os._exit(1)
            errors = {"disk": OSError(errno.ENOSPC, "No space left on device", "/scratch"), "bug": ValueError("a bug")}
            raise errors[kinds[calls]]
    return row


def wait_to_go(row: Number, *, folder: str) -> Number:
    """Leave a file for each call; rows after the first wait for the file ``go``."""
    (Path(folder) / f"{row.key}-{uuid.uuid4().hex}").touch()
    while row.value > 1 and not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return row


def wait_within(*, folder: str, value: int) -> Iterator[Number]:
    """Three rows. If the value is 1, those after the first wait for the file ``go``."""
    yield Number("one", value)
    (Path(folder) / "begun").touch()
    while value == 1 and not (Path(folder) / "go").exists():
        time.sleep(0.02)
    yield Number("two", value)
    yield Number("three", value)


def visible_gpus() -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


def name_worker(row: Number, *, device: str = "cpu") -> Met:
    """Which worker of a cluster takes the row; it stays long enough for others to take their share."""
    from distributed import get_worker

    time.sleep(0.05)
    return Met(row.key, str(get_worker().name))


def outlive(row: Number, *, folder: str) -> Met:
    """Made at once by the worker ``second``, but for number 2, before which ``first`` may go on, which waits for that."""
    from distributed import get_worker

    name, place = str(get_worker().name), Path(folder)
    if name == "first":
        (place / "started").touch()
        while not (place / "go").exists():
            time.sleep(0.02)
    elif row.value == 2:
        (place / "go").touch()
        time.sleep(1)  # in which the other would write its part
    return Met(row.key, name)


def warns(row: Number) -> Number:
    if row.value % 10 == 3:
        logging.getLogger("benchwright").warning("%s is a three", row.key)
    return row


def order_by_value(rows: Rows, *, shards: int) -> pa.Table:
    table = rows.table()
    table = table.take(pc.sort_indices(table, [("value", "ascending")]))
    numbers = np.arange(table.num_rows) * shards // max(table.num_rows, 1)
    return table.append_column("shard", pa.array([f"s{n:02d}" for n in numbers], pa.string()))


def sample(row: OnlyText) -> dict[str, Any]:
    return {"txt": row.text.read(), "json": {"key": row.key}}


def keep_all(rows: Rows) -> pa.Table:
    return rows.table()


def lose_one(rows: Rows) -> pa.Table:
    return rows.table().slice(1)


def rename_one(rows: Rows) -> pa.Table:
    table = rows.table()
    return table.set_column(0, "key", pa.array(["?", *table["key"].to_pylist()[1:]]))


def twice(rows: Rows, *, skip: int = 0) -> pa.Table:
    table = rows.table().slice(skip)
    return pa.concat_tables(
        [
            table.append_column("source_key", table["key"]).set_column(
                0, "key", pc.binary_join_element_wise(table["key"], half, "/")
            )
            for half in ("a", "b")
        ]
    )


def count_of(rows: Rows, *, other: Rows) -> pa.Table:
    return rows.table().append_column("rows", pa.array([other.num_rows] * rows.num_rows, pa.int64()))


def with_votes(rows: Rows, *, votes: str) -> pa.Table:
    return rows.table()


def ask(row: Number, *, server: str) -> Number:
    """Rows of 3 need a server, which is up where the file ``server`` is there."""
    if row.value % 10 == 3 and not Path(server).exists():
        raise Reject("unreachable", f"{server} does not answer")
    return row


@dataclass(frozen=True)
class Found:
    key: str
    variable: str
    drawn: float


def look_around(*, name: str) -> Iterator[Found]:
    """An environment variable, and the next number of numpy's global generator."""
    yield Found("only", os.environ.get(name, ""), float(np.random.random()))
