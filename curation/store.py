"""Storage of a run: a folder or fsspec URL, with one folder per stage. ``stage_rows`` reads the rows in it.

::

    OUT/run.json                         which pipeline, with which settings
    OUT/stages/<stage>/artifact.json     recipe, digests, counts, files: written after all parts, marks the stage as finished
    OUT/stages/<stage>/made.json         date, versions, duration and cost: the only file that differs between equal runs
    OUT/stages/<stage>/code.json         the definitions that the stage's code reached, each with the start of its digest
    OUT/stages/<stage>/part-00000.parquet            the rows; its footer is the record of the part
    OUT/stages/<stage>/part-00000.blobs              byte payloads, one after another
    OUT/stages/<stage>/part-00000.<column>.npy       arrays, memory-mapped when read
    OUT/stages/<stage>/part-00000.rejects.parquet    the rows that were rejected, with reasons
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import io
import json
import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .local_files import Written, may_leave, remove, writing
from .parquet import read_groups
from .records import json_text, naming
from .rows import Blob, is_text, one_line, printable

_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "r2"}
"""Protocols of object stores."""

_SMALL_BYTES, _MOST_BYTES = 1 << 20, 1 << 26
"""Bytes of a remote file up to which reading all of it costs no more than another request, and up to which it is read at once
where all of it is wanted."""


class StoreError(RuntimeError):
    """Something in a store is missing, damaged, or not what its record says."""


@contextlib.contextmanager
def remote_errors(place: str) -> Iterator[None]:
    """Turn the errors of a remote file system, which may have any type and name no file, into ``OSError`` with the place.

    Raises:
        OSError: with the place; ``FileNotFoundError`` and ``FileExistsError`` are passed on unchanged.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, StoreError):
        raise
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error) or type(error).__name__, place) from error
    except Exception as error:
        raise OSError(errno.EIO, one_line(error, None), place) from error


class _Remote:
    """Stream of a remote file; ``read`` raises as ``remote_errors`` does."""

    def __init__(self, stream: Any, place: str) -> None:
        self._stream, self._place = stream, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, *size: int) -> bytes:
        with remote_errors(self._place):
            return self._stream.read(*size)


def _filesystem(url: str) -> tuple[Any, str, Path | None]:
    """File system, path in it, and the path as a local folder, or None if it is not local."""
    # A relative path is relative to the current folder, not to the one at the time of the first call with this path.
    return _opened(url, "" if "://" in url or url.startswith("/") else os.getcwd())


@functools.cache
def _opened(url: str, standing: str) -> tuple[Any, str, Path | None]:
    # Other processes write here too: in a cached listing, the files that a worker has just written would be missing.
    fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    root = root.rstrip("/")
    return fs, root, Path(root) if "file" in _protocols(fs) else None


@dataclasses.dataclass(frozen=True)
class Store:
    """A folder (local path) or fsspec URL that holds one run. Names within it are relative and use ``/``."""

    url: str

    def __post_init__(self) -> None:
        if not is_text(self.url):
            raise StoreError(f"{printable(self.url)}: the name of a run's folder must be UTF-8, since records contain it")

    @property
    def shared(self) -> bool:
        """Whether other processes can read what is written."""
        return "memory" not in _protocols(_filesystem(self.url)[0])

    @property
    def local(self) -> Path | None:
        """The folder if the store is on the local file system, otherwise None."""
        return _filesystem(self.url)[2]

    def path(self, name: str) -> str:
        """Full path of ``name`` for the file system of the store."""
        if may_leave(name):
            raise StoreError(f"name {name!r} leaves the store {self.url}")
        return posixpath.join(_filesystem(self.url)[1], name)

    def exists(self, name: str) -> bool:
        """Whether a file or folder of that name exists."""
        # ``exists`` of some file systems returns False for any error.
        return os.path.exists(self.path(name)) if self.local else self._info(name) is not None

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""
        info = self._info(name)
        return None if info is None else int(info["size"])

    def holds(self, name: str, facts: Mapping[str, Any]) -> bool:
        """Whether a file has the ``size`` and ``sha256`` in ``facts``. A file of the right size is read, unless the file system
        states its SHA-256, as the Hugging Face Hub does for files in LFS.
        """
        info = self._info(name)
        if info is None or info["size"] != facts.get("size"):
            return False
        stated = info.get("lfs")
        return (stated["sha256"] if stated else file_sha256(self, name)) == facts.get("sha256")

    def _info(self, name: str) -> Mapping[str, Any] | None:
        """What the file system says of a file, ``size`` among it; None if it does not exist."""
        try:
            if self.local:
                return {"size": os.stat(self.path(name)).st_size}
            with self._errors(name):
                return _filesystem(self.url)[0].info(self.path(name))
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """Names of the files directly in ``folder``, sorted; empty if the folder does not exist."""
        return [name for name, is_file in self._entries(folder) if is_file]

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of the files directly in ``folder``, by name; a thousand by one request of an object store."""
        if not self.local:
            return {
                posixpath.basename(info["name"]): int(info["size"]) for info in self._infos(folder) if info["type"] == "file"
            }
        found = dict[str, int]()
        for name in self.list(folder):
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                found[name] = os.stat(self.path(posixpath.join(folder, name))).st_size
        return found

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly in ``folder``, sorted."""
        return [name for name, is_file in self._entries(folder) if not is_file]

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        """Name of each file and folder, and whether it is a file."""
        path = self.path(folder)
        if self.local:
            listed = os.scandir(path) if os.path.isdir(path) else ()
            return sorted((entry.name, entry.is_file()) for entry in listed if entry.is_file() or entry.is_dir())
        kinds = {"file": True, "directory": False}
        infos = [info for info in self._infos(folder) if info["type"] in kinds]
        return sorted((posixpath.basename(info["name"].rstrip("/")), kinds[info["type"]]) for info in infos)

    def _infos(self, folder: str) -> list[Mapping[str, Any]]:
        """What a remote file system says of each file and folder directly in ``folder``."""
        try:
            with self._errors(folder):
                return _filesystem(self.url)[0].ls(self.path(folder), detail=True)
        except FileNotFoundError:
            return []

    def _errors(self, name: str) -> contextlib.AbstractContextManager[None]:
        return remote_errors(posixpath.join(self.url, name))

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading. Raises ``StoreError`` if it is missing."""
        try:
            if self.local:
                return open(self._plain(name), "rb")
            with self._errors(name):
                stream = _filesystem(self.url)[0].open(self.path(name), "rb")
            return cast("IO[bytes]", _Remote(stream, posixpath.join(self.url, name)))
        except FileNotFoundError:
            raise StoreError(f"{self.url}: file {name} is missing") from None

    def _plain(self, name: str) -> str:
        """Full path of a local file. Raises ``StoreError`` unless it is a regular file: reading a pipe could block forever."""
        path = self.path(name)
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise StoreError(f"{self.url}: {name} is not a regular file: remove it")
        return path

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file, or ``size`` bytes of it from ``start`` on. Raises ``StoreError`` if not all of them exist."""
        data = None if self.local or (start and size is None) or size == 0 else self._requested(name, start, size)
        if data is None:
            with naming(self.path(name)) if self.local else contextlib.nullcontext(), self.open(name) as stream:
                stream.seek(start)
                data = stream.read() if size is None else stream.read(size)
        if size is not None and len(data) != size:
            raise StoreError(f"{self.url}: file {name} ends before byte {start + size}")
        return data

    def at_once(self, name: str, size: int, *, most: int = _SMALL_BYTES) -> bytes | None:
        """Content of a remote file of ``size`` bytes, at most ``most``; None of one that should be read in pieces."""
        return self.read(name, 0, size) if self.local is None and size <= most else None

    def _requested(self, name: str, start: int, size: int | None) -> bytes | None:
        """Bytes of a remote file, in one request; None if the request of a byte range fails, as it does past the end.

        Opening the file would request its size first, and fail if another process replaced the file before the read.
        """
        stretch = {} if size is None else {"start": start, "end": start + size}
        try:
            with self._errors(name):
                return _filesystem(self.url)[0].cat_file(self.path(name), **stretch)
        except FileNotFoundError:
            raise StoreError(f"{self.url}: file {name} is missing") from None
        except OSError:
            if size is None:
                raise
            return None

    @contextlib.contextmanager
    def writing(self, name: str, *, later: list[Written] | None = None) -> Iterator[IO[bytes]]:
        """Write a file so that it appears whole or not at all: temporary file, fsync, rename (or one upload).

        With ``later``, a local file is appended to that list instead, and the caller does the fsync and the rename.
        """
        target = self.path(name)
        if self.local:
            with writing(target, later=later) as stream:
                yield stream
            return
        fs = _filesystem(self.url)[0]
        with tempfile.NamedTemporaryFile() as stream:
            yield stream  # type: ignore[misc]  # the wrapper has the methods of a binary file
            stream.flush()
            if self.is_bucket:  # object stores have no folders, and makedirs would create a bucket from a mistyped name
                try:
                    with self._errors(name):
                        fs.put_file(stream.name, target)
                except FileNotFoundError:
                    raise self._no_bucket(target) from None
                return
            with self._errors(name):
                fs.makedirs(posixpath.dirname(target), exist_ok=True)
                fs.put_file(stream.name, target)

    def write(self, name: str, data: bytes) -> None:
        """Write a small file whole; see ``writing``."""
        with self.writing(name) as stream:
            stream.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file atomically unless it exists; return whether it was written. Only for object stores."""
        try:
            with self._errors(name):
                _filesystem(self.url)[0].pipe_file(self.path(name), data, mode="create")
        except FileNotFoundError:
            raise self._no_bucket(self.path(name)) from None
        except FileExistsError:
            return False
        return True

    @property
    def is_bucket(self) -> bool:
        """Whether the store is in an object store."""
        return not _BUCKETS.isdisjoint(_protocols(_filesystem(self.url)[0]))

    def _no_bucket(self, target: str) -> StoreError:
        return StoreError(f"{self.url}: there is no bucket {target.split('/')[0]!r}: correct the name, or create the bucket")

    def write_json(self, name: str, value: Any) -> None:
        """Write indented JSON with sorted keys."""
        self.write(name, json_text(value))

    def read_json(self, name: str) -> Any:
        """Read a JSON file. Raises ``StoreError`` if it is missing or damaged."""
        try:
            return json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self.url}: file {name} is not JSON: {error}") from None

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; names that do not exist are ignored."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if self.local:
                    remove(self.path(name))
                    continue
                with self._errors(name):
                    _filesystem(self.url)[0].rm_file(self.path(name))

    def remove_folder(self, name: str) -> None:
        """Remove a folder if it exists and is empty. Object stores have no folders."""
        fs = _filesystem(self.url)[0]
        with contextlib.suppress(OSError):
            if self.local:
                os.rmdir(self.path(name))
            elif not self.is_bucket:
                fs.rmdir(self.path(name))

    def remove_tree(self, name: str) -> None:
        """Remove a folder and its contents, if it exists."""
        if self.local:
            shutil.rmtree(self.path(name), ignore_errors=True)
            return
        with contextlib.suppress(FileNotFoundError), self._errors(name):
            _filesystem(self.url)[0].rm(self.path(name), recursive=True)

    def read_parquet(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        encoded: Sequence[str] = (),
        size: int | None = None,
        data: bytes | None = None,
    ) -> pa.Table:
        """Rows [start, stop) of a Parquet file; reads only the row groups that contain them.

        Args:
            name: name of the file.
            columns: columns to read; None: all.
            start: first row.
            stop: row after the last one; None: all.
            encoded: text columns that are returned as dictionaries.
            size: bytes of the file if they are known: a remote file that is not large is then read by one request, not three.
            data: content of the file, if it has been read.
        """
        if data is None and size is not None:
            everything = columns is None and (start, stop) == (0, None)
            data = self.at_once(name, size, most=_MOST_BYTES if everything else _SMALL_BYTES)
        with self._parquet(name, encoded, data) as file:
            if missing := [column for column in columns or () if column not in file.schema_arrow.names]:
                raise StoreError(f"{self.url}: file {name} is damaged: it has no column {missing[0]!r}")
            return read_groups(file, columns, start, stop)

    @contextlib.contextmanager
    def _parquet(self, name: str, encoded: Sequence[str] = (), data: bytes | None = None) -> Iterator[pq.ParquetFile]:
        with self._arrow_file(name) if data is None else pa.BufferReader(data) as stream:
            try:
                yield pq.ParquetFile(stream, read_dictionary=list(encoded))
            except (pa.ArrowException, OSError, OverflowError, MemoryError, UnicodeDecodeError) as error:
                if isinstance(error, OSError) and error.errno is not None and not self.local:
                    raise  # a network error: the file may be intact
                raise StoreError(f"{self.url}: file {name} is damaged: {error}") from None

    def _arrow_file(self, name: str) -> Any:
        # Not a Python file object: Arrow's threads would hold Python objects, and releasing them while the interpreter
        # shuts down aborts the process.
        if not self.local:
            return self.open(name)
        try:
            return pa.OSFile(self._plain(name), "rb")
        except FileNotFoundError:
            raise StoreError(f"{self.url}: file {name} is missing") from None

    def footer(self, name: str, data: bytes | None = None) -> dict[str, Any]:
        """The record that ``write_parquet`` stored in the footer of a file, whose content is ``data`` if it has been read."""
        with self._parquet(name, data=data) as file:
            metadata = file.schema_arrow.metadata or {}
        try:
            return json.loads(metadata[b"benchwright"])
        except (KeyError, ValueError):
            raise StoreError(f"{self.url}: file {name} has no record in its footer") from None

    def array(self, name: str) -> np.ndarray:
        """Array in a ``.npy`` file, memory-mapped if the store is local."""
        try:
            if self.local:
                return np.load(self._plain(name), mmap_mode="r", allow_pickle=False)
            return np.load(io.BytesIO(self.read(name)), allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError) as error:
            raise StoreError(f"{self.url}: array file {name} is missing or damaged: {error}") from None

    def blob(self, ref: Any) -> Blob:
        """The payload of a value of a reference column; reading it raises ``StoreError`` if its SHA-256 does not match."""
        return Blob(ref=ref, fetch=self._fetch)

    def _fetch(self, ref: Any) -> bytes:
        data = self.read(ref["file"], ref["offset"], ref["size"])
        if hashlib.sha256(data).hexdigest() != ref["sha256"]:
            raise StoreError(
                f"{self.url}: file {ref['file']} is damaged: the {ref['size']} bytes from {ref['offset']} on are not what "
                "was written; remove that file and run again to regenerate it"
            )
        return data


def file_sha256(store: Store, name: str) -> str:
    """SHA-256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with store.open(name) as stream:
        while chunk := stream.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
