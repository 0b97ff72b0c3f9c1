"""Storage that fails: no row is rejected for it, the line names the place, and the next run goes on to the same bytes."""

from __future__ import annotations

import errno
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.local_files import Written
from benchwright.curation.rows import MachineFault
from benchwright.curation.run import run
from benchwright.curation.stages.folder import open_folder
from benchwright.curation.stages.image_sources import folder_pieces, read_folder
from benchwright.curation.stages.tar_sources import read_tar, tar_pieces
from benchwright.curation.store import Store, file_sha256
from benchwright.pipelines.cli import exits
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

from tests.curation import steps

FAULTS = {
    "slow down": OSError(errno.EBUSY, "Please reduce your request rate."),
    "expired": PermissionError("The provided token has expired."),
    "silent": TimeoutError(),
    "reset": ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
}


class Failing(MemoryFileSystem):
    """Files in memory, of which one cannot be read while ``fault`` is set."""

    protocol = "failing"
    store: ClassVar[dict[str, Any]] = {}
    fault: ClassVar[Exception | None] = None
    at: ClassVar[str] = ""
    late: ClassVar[bool] = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("failing://"))

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if Failing.fault is not None and path.endswith(Failing.at):
            if Failing.late and "r" in mode:
                return Breaking(bytes(100))
            raise Failing.fault
        return super()._open(path, mode, **more)

    def cat_file(self, path: str, **more: Any) -> bytes:
        if Failing.fault is not None and path.endswith(Failing.at):
            raise Failing.fault
        return super().cat_file(path, **more)

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        if Failing.fault is not None and path.endswith(Failing.at):
            raise Failing.fault
        return super().ls(path, detail, **more)

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        if Failing.fault is not None and path.endswith(Failing.at):
            raise Failing.fault
        return super().info(path, **more)


class Breaking(io.BytesIO):
    """A file whose connection breaks while it is read."""

    def read(self, *_: Any) -> bytes:
        assert Failing.fault is not None
        raise Failing.fault


@pytest.fixture
def photos() -> Iterator[str]:
    """Four photos, in a folder and in a tar."""
    fsspec.register_implementation("failing", Failing, clobber=True)
    fs = fsspec.filesystem("failing")
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for number in range(4):
            picture = io.BytesIO()
            Image.new("RGB", (32, 32), (number * 60, 0, 0)).save(picture, "JPEG")
            fs.pipe_file(f"/folder/{number}.jpg", picture.getvalue())
            header = tarfile.TarInfo(f"{number}.jpg")
            header.size = len(picture.getvalue())
            tar.addfile(header, io.BytesIO(picture.getvalue()))
    fs.pipe_file("/tars/a.tar", held.getvalue())
    yield "failing://"
    Failing.fault, Failing.late = None, False
    fs.rm("/", recursive=True)


def flow_of(kind: str, photos: str) -> Flow:
    root = where(f"{photos}/{kind}")
    pieces, read = (folder_pieces, read_folder) if kind == "folder" else (tar_pieces, read_tar)
    listed = step(read, root=root, source_name="s", require_date=False)
    return source("listed", listed, pieces=step(pieces, root=root, files_per_piece=2), max_rejects=None)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "file"), [("folder", "2.jpg"), ("tars", "a.tar")])
def test_storage_that_fails_rejects_no_row(photos: str, tmp_path: Path, kind: str, file: str, fault: str) -> None:
    flow = flow_of(kind, photos)
    whole = run(flow, str(tmp_path / "whole"), scheduler="sync").result
    assert whole.rows == 4
    Failing.at, Failing.fault = f"/{kind}/{file}", FAULTS[fault]
    with pytest.raises((RuntimeError, OSError)) as told:
        run(flow, str(tmp_path / "out"), scheduler="sync")
    line = exits.error_line(told.value)
    assert f"/{kind}/{file}" in line
    assert "\n" not in line
    Failing.fault = None
    assert run(flow, str(tmp_path / "out"), scheduler="sync").result.digest == whole.digest


def test_a_disk_that_fails_is_no_fault_of_the_file() -> None:
    with pytest.raises(MachineFault, match=r"/proc/\d+/mem cannot be read: Input/output error"):
        open_folder("/proc/self").read("mem", max_bytes=10)


@pytest.mark.parametrize("fault", [*FAULTS.values(), RuntimeError("of a library\nin two lines")])
@pytest.mark.parametrize("do", ["read", "size", "exists", "write", "list", "parquet", "stream"])
def test_errors_of_remote_runs_name_the_place(photos: str, fault: Exception, do: str) -> None:
    store = Store(f"{photos}/run")
    store.write("stages/a.json", b"{}")
    Failing.at, Failing.fault = "/run/stages/a.json" if do != "list" else "/run/stages", fault
    Failing.late = do in ("parquet", "stream")
    with pytest.raises(OSError, match=r"failing:///run/stages") as told:
        {
            "read": lambda: store.read("stages/a.json"),
            "size": lambda: store.size("stages/a.json"),
            "exists": lambda: store.exists("stages/a.json"),
            "write": lambda: store.write("stages/a.json", b"[]"),
            "list": lambda: store.list("stages"),
            "parquet": lambda: store.read_parquet("stages/a.json"),
            "stream": lambda: file_sha256(store, "stages/a.json"),
        }[do]()
    assert "\n" not in exits.error_line(told.value)


def numbers(path: Path) -> Flow:
    listed = source("read", step(steps.read_numbers, path=where(str(path))))
    return listed.each("made", step(steps.draw, factor=2, seed=0), rows_per_part=3)


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
@pytest.mark.parametrize("part", ["part-00000", "part-00007"])
def test_a_disk_that_is_full_when_a_part_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str, part: str
) -> None:
    """Parts reach the disk while others are made: that one of them cannot is told with its file, and those before it stay."""
    (tmp_path / "numbers.txt").write_text("".join(f"{n}\n" for n in range(30)))
    expected = run(numbers(tmp_path / "numbers.txt"), str(tmp_path / "whole"), scheduler="sync").result.digest
    out, put = tmp_path / "out", Written.place

    def full(self: Written) -> None:
        if f"/made/{part}.parquet" in str(self.path):
            self.beside.unlink()
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        put(self)

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # for worker processes
    with monkeypatch.context() as patch:
        patch.setattr(Written, "place", full)
        with pytest.raises(OSError, match=rf"No space left on device: .*{part}\.parquet"):
            run(numbers(tmp_path / "numbers.txt"), str(out), scheduler=scheduler, workers=2)
    there = {each.name for each in (out / "stages" / "made").glob("part-*.parquet")}
    assert there >= {f"part-{n:05d}.parquet" for n in range(int(part[-5:]))}
    assert f"{part}.parquet" not in there
    if scheduler == "sync":  # the others may still be at later parts
        assert not list(out.rglob(".tmp-*"))
    assert run(numbers(tmp_path / "numbers.txt"), str(out), scheduler=scheduler, workers=2).result.digest == expected
