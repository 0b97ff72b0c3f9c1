"""A run in an object store: S3 as moto serves it over HTTP, through s3fs."""

from __future__ import annotations

import collections
import hashlib
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from benchwright.curation import lock
from benchwright.curation.artifact import load_artifact
from benchwright.curation.flow import source, step
from benchwright.curation.keys import fingerprint, how, where, work_folder
from benchwright.curation.lock import Busy
from benchwright.curation.run import Progress, run, status
from benchwright.curation.store import Store, StoreError
from benchwright.curation.verify import compare, verify
from benchwright.pipelines import api
from werkzeug.serving import WSGIRequestHandler

from tests.curation import steps
from tests.curation.test_run import numbers, numbers_flow

__all__ = ["numbers"]

s3fs = pytest.importorskip("s3fs", reason="s3:// needs s3fs")
moto_server = pytest.importorskip("moto.server", reason="there is no S3 to test with: moto's server is not installed")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto import backends

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    modules = tuple(backends.list_of_moto_modules())
    with pytest.MonkeyPatch.context() as patch:  # moto lists its own folder twice for each request, a third of its time
        patch.setattr(backends, "list_of_moto_modules", lambda: modules)
        server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        s3fs.S3FileSystem.clear_instance_cache()  # one that was made for another module's server answers no more
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """URL of an empty bucket. Credentials and address come from the environment, as they do for users and their workers."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    name = "b" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:20]
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}"


@pytest.fixture
def out(bucket: str) -> str:
    return f"{bucket}/runs/one"


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_run_in_s3_is_the_run_in_a_folder(numbers: Path, tmp_path: Path, out: str, scheduler: str) -> None:
    flow = numbers_flow(numbers, bad="7")
    remote = run(flow, out, scheduler=scheduler, workers=2)
    local = run(flow, str(tmp_path / "local"), scheduler="sync")
    assert [artifact.to_json() for artifact in remote.artifacts] == [artifact.to_json() for artifact in local.artifacts]
    assert verify(out) == []
    assert all(difference.same for difference in compare(out, str(tmp_path / "local")))
    store, folder = Store(out), Store(str(tmp_path / "local"))
    for name in local.result.files():
        assert store.read(name) == folder.read(name)


def test_no_bucket_is_made_of_a_mistyped_name(numbers: Path, bucket: str) -> None:
    with pytest.raises(StoreError, match="there is no bucket 'mistyped-name'"):
        run(numbers_flow(numbers), "s3://mistyped-name/runs", scheduler="sync")
    assert "mistyped-name" not in fsspec.filesystem("s3").ls("", refresh=True)


def test_blobs_and_arrays_are_read_from_s3(numbers: Path, out: str) -> None:
    made = run(numbers_flow(numbers), out, workers=2)
    drawn = made.rows("drawn")
    assert [len(block) for block in drawn.arrays("vector")] == [7, 7, 7, 7, 7, 6]
    ordered = made.rows("ordered")
    values = ordered.table(["value"])["value"].to_numpy()
    assert np.array_equal(ordered.gather("vector", [5, 2])[:, 0], values[[5, 2]])
    assert [blob.read() for blob in ordered.blobs("text")] == [str(value // 3).encode() for value in values]


def test_a_broken_run_in_s3_goes_on(numbers: Path, out: str) -> None:
    flow = numbers_flow(numbers)
    whole = run(flow, out, workers=2)
    store = Store(out)
    store.remove(["stages/drawn/artifact.json", "stages/drawn/part-00002.parquet", "stages/shards/artifact.json"])
    assert [artifact is not None for _, artifact in status(flow, out)] == [True, False, False, False]
    seen: list[Progress] = []
    again = run(flow, out, workers=2, on_progress=seen.append)
    assert [artifact.to_json() for artifact in again.artifacts] == [artifact.to_json() for artifact in whole.artifacts]
    assert {p.stage: p.state for p in seen} == {"listed": "reused", "drawn": "done", "ordered": "reused", "shards": "done"}
    assert {p.state for p in seen if p.stage == "ordered"} == {"reused"}
    assert load_artifact(store, "shards") == whole.result


def test_a_checkpoint_that_arrives_late_is_no_damage_and_goes(tmp_path: Path, out: str) -> None:
    """A worker that is killed may have sent what the store takes only after another has finished the stage."""
    settings = {"counted": how(str(tmp_path)), "ends": how(0), "folder": work_folder()}
    counted = source("counted", step(steps.count_up, **settings))
    run(counted, out, scheduler="sync")
    store, late = Store(out), "stages/counted/.work/0123456789abcdef/state.npz"
    store.write(late, b"late")
    assert verify(out) == []
    run(counted, out, scheduler="sync")
    assert not store.exists(late)


def test_damage_in_s3_is_found(numbers: Path, out: str) -> None:
    run(numbers_flow(numbers), out, workers=2)
    store = Store(out)
    data = bytearray(store.read("stages/drawn/part-00001.blobs"))
    data[3] ^= 1
    store.write("stages/drawn/part-00001.blobs", bytes(data))
    store.remove(["stages/shards/s01.tar"])
    store.write("stages/ordered/stray", b"x")
    assert [problem.place for problem in verify(out)] == [
        "stages/drawn/part-00001.blobs",
        "stages/ordered/stray",
        "stages/shards/s01.tar",
    ]
    with pytest.raises(StoreError, match=r"s01\.tar is missing"):
        store.read("stages/shards/s01.tar")


def test_a_stretch_of_a_file_is_read_by_one_request(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(bucket)
    store.write("a", b"0123456789")
    asked: list[str] = []
    monkeypatch.setattr(WSGIRequestHandler, "log_request", lambda request, *_: asked.append(request.requestline))
    assert [store.read("a", 2, 3), store.read("a", 0, 10), store.read("a", 9, 1)] == [b"234", b"0123456789", b"9"]
    assert [line.split()[0] for line in asked] == ["GET"] * 3
    assert store.read("a") == b"0123456789"
    assert store.read("a", 7) == b"789"
    assert store.read("a", 4, 0) == b""
    for start, size in ((8, 3), (10, 1), (20, 5)):
        with pytest.raises(StoreError, match=f"file a ends before byte {start + size}$"):
            store.read("a", start, size)
    with pytest.raises(StoreError, match="file b is missing"):
        store.read("b", 1, 2)


@pytest.mark.parametrize("scheduler", ["sync", "processes"])
def test_a_part_costs_one_request_for_each_time_it_is_written_or_read(
    numbers: Path, out: str, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    """What is there is asked of the folder, not of each part: as a stage begins, and as it ends.

    For its digest, the run reads back what other processes wrote.
    """
    asked: list[str] = []
    monkeypatch.setattr(WSGIRequestHandler, "log_request", lambda request, *_: asked.append(request.requestline))
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None, rows_per_part=3)
    made = run(listed.each("drawn", step(steps.draw, factor=3, seed=5), rows_per_part=3), out, scheduler=scheduler, workers=2)
    found = collections.Counter(re.findall(r"(\w+) \S+/(\w+/part-\d+\.parquet)[ ?]", "\n".join(asked)))
    lists = collections.Counter(re.findall(r"prefix=\S+%2Fstages%2F(\w+)%2F&delimiter", "\n".join(asked)))
    assert lists == {"listed": 2, "drawn": 2}
    apart = scheduler == "processes"
    assert len(made.artifacts[0].parts) > 10
    for number in range(1, len(made.artifacts[0].parts)):  # the first part of each stage is looked at for its schema as well
        requests = {name: count for name, count in found.items() if f"part-{number:05}" in name[1]}
        part = f"part-{number:05}.parquet"
        read = {("GET", f"listed/{part}"): 2, ("GET", f"drawn/{part}"): 1} if apart else {}
        assert requests == {("PUT", f"listed/{part}"): 1, ("PUT", f"drawn/{part}"): 1, **read}


def test_a_source_in_s3_is_known_by_its_content(numbers: Path, bucket: str) -> None:
    fsspec.filesystem("s3").put_file(str(numbers), f"{bucket}/in/numbers.txt")
    first = f"{bucket}/in/numbers.txt"
    known: dict[str, tuple[str, str]] = {}
    assert fingerprint(first, known).content == hashlib.sha256(numbers.read_bytes()).hexdigest()
    fsspec.filesystem("s3").pipe_file(f"{bucket}/in/numbers.txt", b"1\n")
    assert fingerprint(first, known).content == hashlib.sha256(b"1\n").hexdigest()


def test_clear_in_s3(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = api.job("clear", config="tiny", overrides=["source.count=60"])
    remote = api.run(job, f"{bucket}/clear", workers=2)
    local = api.run(job, str(tmp_path / "local"), workers=2)
    assert not remote.waiting
    assert remote.result.digest == local.result.digest
    assert api.verify(f"{bucket}/clear") == []
    store, folder = Store(f"{bucket}/clear/dataset"), Store(str(tmp_path / "local/dataset"))
    assert store.list("") == folder.list("")
    assert all(store.read(name) == folder.read(name) for name in folder.list(""))
    assert [path.name for path in tmp_path.iterdir()] == ["local"]  # and nothing in a folder named "s3:"


def test_two_runs_in_one_folder_of_s3(numbers: Path, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_BEAT", 0.1)
    with (
        lock.locked_bucket(Store(out), "busy"),
        pytest.raises(Busy, match=f"^another run is in progress in {out}: wait for it"),
    ):
        run(numbers_flow(numbers), out, scheduler="sync")
    assert Store(out).list("") == []  # nothing was made, and the lock is gone
    assert run(numbers_flow(numbers), out, scheduler="sync").result.rows == 41


def test_the_lock_of_a_killed_run_in_s3_is_taken_over(
    numbers: Path, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock, "_SILENCE", 1.0)
    Store(out).write(lock.LOCK, b"killed 7\n")
    assert run(numbers_flow(numbers), out, scheduler="sync").result.rows == 41
    assert lock.LOCK not in Store(out).list("")
    told = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert told == [f"{out}: looking for up to 1 s whether the run still lives that began there"]


def test_a_run_in_s3_that_another_took_over_says_so(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a minute in which its machine slept."""
    monkeypatch.setattr(lock, "_BEAT", 0.05)

    def run_that_sleeps() -> None:
        with lock.locked_bucket(Store(out), "busy"):
            Store(out).write(lock.LOCK, b"another 0\n")
            (beating,) = (thread for thread in threading.enumerate() if thread.name == lock.LOCK)
            beating.join(60)

    with pytest.raises(Busy, match="this run gave no sign for 60 s, and another one began there"):
        run_that_sleeps()
    assert Store(out).read(lock.LOCK) == b"another 0\n"


def test_only_the_bytes_that_are_asked_for_are_read(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(out)
    store.write("part.blobs", bytes(1 << 20))
    asked: list[object] = []
    call = s3fs.S3FileSystem._call_s3

    async def heard(self: object, method: str, *args: object, **words: object) -> object:
        asked.append((method, words.get("Range")))
        return await call(self, method, *args, **words)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", heard)
    assert store.read("part.blobs", 1000, 20) == bytes(20)
    assert asked == [("get_object", "bytes=1000-1019")]


def test_a_file_that_another_process_replaces_can_be_read(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a lock, which its holder writes again and again: its size may be requested before it is replaced."""
    store, call = Store(out), s3fs.S3FileSystem._call_s3
    store.write("lock", b"one 9\n")

    async def replaced(self: object, method: str, *args: object, **words: object) -> object:
        found = await call(self, method, *args, **words)
        if method == "head_object":
            await call(self, "put_object", Bucket=words["Bucket"], Key=words["Key"], Body=b"one 10\n")
        return found

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", replaced)
    assert store.read("lock") == b"one 10\n"
