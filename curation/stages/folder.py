"""Folders, local or by fsspec URL, listed in one order on every machine, with no way out of them."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import fsspec

from ..rows import MachineFault, Reject, is_text
from .image_format import KNOWN_EXTENSIONS, normal_extension

_SAFE_PART = r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*"
_SAFE = re.compile(rf"{_SAFE_PART}(?:/{_SAFE_PART})*\Z")
_OF_THE_FILE = (None, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
"""Numbers of a local file's own errors; those of what unpacks it have none. EINVAL is of a place that it claims to have."""

_MAX_KEY = 80
"""Longest key: with ``.embedding.npy`` and the like it is the name of a member of a tar, which has 100 bytes."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder whose files may be read and no others.

    Attributes:
        fs: fsspec's file system.
        root: the folder's path within it; for a local one with every link resolved.
        local: whether it lies on this machine, and is read without fsspec.
    """

    fs: Any
    root: str
    local: bool

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """Bytes of the file ``name``, a relative path.

        Raises:
            Reject: ``outside_folder``, ``missing_file``, ``not_a_file``, ``too_large`` or ``unreadable``.
            MachineFault: see ``check_fault``.
        """
        data = self.head(name, max_bytes + 1)
        if len(data) > max_bytes:
            raise Reject("too_large", f"{name}: above {max_bytes} bytes")
        return data

    def head(self, name: str, size: int) -> bytes:
        """The first ``size`` bytes of a file, or all of a shorter one. Raises ``Reject`` as ``read`` does."""
        if is_outside(name):
            raise Reject("outside_folder", name)
        try:
            with open(self._resolved(name), "rb") if self.local else self.open(name) as stream:
                return stream.read(size)
        except (FileNotFoundError, NotADirectoryError):
            raise Reject("missing_file", name) from None
        except IsADirectoryError:
            raise Reject("not_a_file", name) from None
        except OSError as error:
            self.check_fault(error, name)
            raise Reject("unreadable", f"{name}: {error.strerror or error}") from None

    def check_fault(self, error: Exception, name: str) -> None:
        """Raise ``MachineFault`` for an error of reading ``name`` that says nothing of the file: a disk or network that fails,
        too many open files; of what is not on this machine also a right that is missing, as it is when a token expires."""
        if not isinstance(error, OSError):
            return
        others = not self.local and isinstance(error, PermissionError | ConnectionError | TimeoutError)
        if others or error.errno not in (_OF_THE_FILE if self.local else (None,)):
            raise MachineFault(
                f"{posixpath.join(self.root, name)} cannot be read: {error.strerror or error}. Nothing is known of the file: "
                "finished parts are kept, and the next run continues"
            ) from error

    def local_path(self, name: str) -> str:
        """Path of a file of a local folder, with every link resolved, for libraries that open files themselves.

        Raises:
            Reject: as ``read`` does.
            ValueError: the folder is not on this machine.
        """
        if not self.local:
            raise ValueError(f"{self.root} is not on this machine: {name} has no local path")
        if is_outside(name):
            raise Reject("outside_folder", name)
        try:
            path = self._resolved(name)
            with open(path, "rb"):
                return path
        except (FileNotFoundError, NotADirectoryError):
            raise Reject("missing_file", name) from None
        except OSError as error:
            self.check_fault(error, name)
            raise Reject("unreadable", f"{name}: {error.strerror or error}") from None

    def _resolved(self, name: str) -> str:
        path = os.path.realpath(os.path.join(self.root, name))
        if not _within(path, self.root):
            raise Reject("outside_folder", f"{name} is a link out of the folder")
        # Looked at before it is opened: to open a named pipe is to wait for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Reject("not_a_file", name)
        return path

    def open(self, name: str) -> Any:
        """A binary stream of the file ``name``, which a listing gave."""
        if self.local:
            return open(os.path.join(self.root, name), "rb")
        return self.fs.open(posixpath.join(self.root, name), "rb")


def open_folder(url: str) -> Folder:
    """The folder at a local path or fsspec URL.

    Raises:
        FileNotFoundError: nothing is there.

    >>> [(place, [entry.name for entry in entries]) for place, entries in walk(open_folder("texts"))]
    [('', ['one.txt', 'short.txt', 'two.txt'])]
    """
    return _open_folder(url if "://" in url else os.path.abspath(url))  # the working directory may change


@functools.lru_cache(maxsize=8)
def _open_folder(url: str) -> Folder:
    fs, root = fsspec.core.url_to_fs(url)
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    local = "file" in protocols
    if not fs.exists(root):
        raise FileNotFoundError(f"no folder at {url}")
    return Folder(fs, os.path.realpath(root) if local else root.rstrip("/"), local)


class FolderEntry(NamedTuple):
    """A name in a folder, its bytes, and why it may not be used, or None."""

    name: str
    size: int = 0
    reason: str | None = None
    detail: str = ""


def walk(folder: Folder, *, sizes: bool = True) -> Iterator[tuple[str, list[FolderEntry]]]:
    """Each folder with its entries, depth first, names sorted by code point: the same on every machine.

    Only one folder's names are in memory. Folders are descended into and not listed as entries, except for those that may
    not be entered: hidden ones, links, and those that cannot be read. Links to files within the folder are files.

    Args:
        folder: where to begin.
        sizes: whether they are requested; of a local file that takes longer than all else. Otherwise they may be 0.

    >>> [(place, len(entries)) for place, entries in walk(open_folder("texts"))]
    [('', 3)]
    """
    pending = [""]
    while pending:
        at = pending.pop()
        try:
            listed = _list_local(folder, at, sizes=sizes) if folder.local else _list_remote(folder, at)
        except PermissionError as error:
            folder.check_fault(error, at)
            yield posixpath.dirname(at), [FolderEntry(posixpath.basename(at), 0, "unreadable", error.strerror or "")]
            continue
        entries: list[FolderEntry] = []
        inner: list[str] = []
        for name, kind, size in sorted(listed):
            if kind == "file" and name[0] not in "._" and name.isascii():  # nearly all: what is below asks no more of it
                entries.append(FolderEntry(name, size))
            elif kind in ("outside_folder", "linked_folder", "not_a_file"):
                entries.append(FolderEntry(name, 0, kind))
            elif name.startswith(".") or name == "__MACOSX":
                entries.append(FolderEntry(name, 0, "hidden"))
            elif not is_text(name):
                entries.append(FolderEntry(name, 0, "bad_name", "not UTF-8"))
            elif kind == "folder":
                inner.append(posixpath.join(at, name))
            else:
                entries.append(FolderEntry(name, size))
        pending.extend(reversed(inner))
        yield at, entries


def folders_in(folder: Folder) -> list[str]:
    """Names of the folders directly within, as ``walk`` enters them."""
    listed = _list_local(folder, "", sizes=False) if folder.local else _list_remote(folder, "")
    return sorted(name for name, kind, _ in listed if kind == "folder" and not name.startswith(".") and is_text(name))


def _list_local(folder: Folder, at: str, *, sizes: bool) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    with os.scandir(os.path.join(folder.root, at)) as entries:
        for entry in entries:
            kind = "not_a_file"
            if entry.is_file(follow_symlinks=False):
                kind = "file"
            elif entry.is_symlink():
                target = os.path.realpath(entry.path)
                if not _within(target, folder.root):
                    kind = "outside_folder"
                elif os.path.isdir(entry.path):  # False for a link that leads to itself, of which the entry's own would raise
                    kind = "linked_folder"  # its files are listed where they lie, and circles are not walked
                elif os.path.isfile(entry.path):
                    kind = "file"
            elif entry.is_dir(follow_symlinks=False):
                kind = "folder"
            found.append((entry.name, kind, _size(entry) if sizes and kind == "file" else 0))
    return found


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return 0  # gone in between: its reading will say so


def _list_remote(folder: Folder, at: str) -> list[tuple[str, str, int]]:
    path = posixpath.join(folder.root, at) if at else folder.root
    kinds = {"file": "file", "directory": "folder"}
    infos = folder.fs.ls(path, detail=True)
    named = ((i["name"].rstrip("/").rpartition("/")[2], i) for i in infos)
    return [(name, kinds.get(i["type"], "not_a_file"), int(i["size"] or 0)) for name, i in named if name]


def _within(path: str, root: str) -> bool:
    return f"{path}/".startswith(root.rstrip("/") + "/")


def is_outside(name: str) -> bool:
    """Whether a relative path leaves its folder: absolute, or more ``..`` than folders before them."""
    return name.startswith("/") or "\0" in name or posixpath.normpath(name).split("/")[0] == ".."


def key_of(path: str) -> str:
    """Key of a file from its relative path: ``2004/spring/img_1.jpg`` -> ``2004--spring--img_1``.

    Only letters, digits, ``_`` and ``-`` stay, so that the key can name files and members of shards. A path that the
    rule would change in any other way, and might so make equal to another, or that is too long for the name of a shard's
    member, has eight digits of its SHA-256 appended. An
    image's extension does not count: two files that differ in it alone have one key.

    >>> key_of("2004/spring/img_1.jpg"), key_of("my photo.jpg")
    ('2004--spring--img_1', 'my_photo-5fe47574')
    """
    stem, extension = posixpath.splitext(path)
    # No stem has a NUL: other files than images can have no image's key.
    return safe_key(stem if normal_extension(extension) in KNOWN_EXTENSIONS else f"{path}\0")


def safe_key(name: str, *, longest: int = _MAX_KEY) -> str:
    """Key of a name, with folders joined by ``--``; see ``key_of``, of which this is the rule for stems.

    Args:
        name: of a file or a sample, with ``/`` between folders.
        longest: most characters of the key.

    >>> safe_key("Surfing/v_Surfing_g22_c04")
    'Surfing--v_Surfing_g22_c04'
    """
    key = name.replace("/", "--")
    if len(key) <= longest and _SAFE.match(name):
        return key
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", key)[: longest - 9].strip("-_")
    return f"{readable}-{digest}" if readable else digest
