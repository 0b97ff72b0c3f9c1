"""Folders, local or by fsspec URL: listed in the same order on every machine; nothing outside them can be read."""

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
"""``errno`` of errors that concern a local file itself; None: decompression errors. EINVAL: an offset that the file claims."""

_MAX_KEY = 80
"""Maximum length of a key: with a suffix such as ``.embedding.npy`` it names a tar member, which has 100 bytes."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; only files inside it can be read.

    Attributes:
        fs: fsspec file system.
        root: path of the folder in ``fs``; for a local folder with every link resolved.
        local: whether the folder is on this machine and read without fsspec.
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
        """The first ``size`` bytes of a file, or the whole file if it is shorter. Raises ``Reject`` as ``read`` does."""
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
        """Raise ``MachineFault`` for an error in reading ``name`` that says nothing about the file: a failing disk or network,
        too many open files; in a remote folder also a missing permission, for example after a token has expired."""
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
        # Checked before the file is opened: opening a named pipe would block for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Reject("not_a_file", name)
        return path

    def open(self, name: str) -> Any:
        """Open the file ``name``, which must come from a listing, as a binary stream."""
        if self.local:
            return open(os.path.join(self.root, name), "rb")
        return self.fs.open(posixpath.join(self.root, name), "rb")


def open_folder(url: str) -> Folder:
    """Return the folder at a local path or fsspec URL.

    Raises:
        FileNotFoundError: nothing exists at this path.

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
    """A name in a folder, its size in bytes, and the reason why it cannot be used, or None."""

    name: str
    size: int = 0
    reason: str | None = None
    detail: str = ""


def walk(folder: Folder, *, sizes: bool = True) -> Iterator[tuple[str, list[FolderEntry]]]:
    """Yield each folder with its entries, depth first, names sorted by code point: the same on every machine.

    The names of one folder at a time are in memory. Folders are entered and not listed as entries, except those that may
    not be entered: hidden folders, links, and folders that cannot be read. Links to files within the folder count as files.

    Args:
        folder: where to begin.
        sizes: whether to request file sizes, the slowest step for local files. Otherwise sizes may be 0.

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
            if kind == "file" and name[0] not in "._" and name.isascii():  # nearly all names: they pass all checks below
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
    """Names of the direct subfolders, in the order in which ``walk`` enters them."""
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
                elif os.path.isdir(entry.path):  # False for a link to itself, for which entry.is_dir() would raise
                    kind = "linked_folder"  # its files are listed at their real place; cycles are not followed
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
        return 0  # deleted meanwhile: reading it will report that


def _list_remote(folder: Folder, at: str) -> list[tuple[str, str, int]]:
    path = posixpath.join(folder.root, at) if at else folder.root
    kinds = {"file": "file", "directory": "folder"}
    infos = folder.fs.ls(path, detail=True)
    named = ((i["name"].rstrip("/").rpartition("/")[2], i) for i in infos)
    return [(name, kinds.get(i["type"], "not_a_file"), int(i["size"] or 0)) for name, i in named if name]


def _within(path: str, root: str) -> bool:
    return f"{path}/".startswith(root.rstrip("/") + "/")


def is_outside(name: str) -> bool:
    """Whether a relative path leaves its folder: it is absolute, or a ``..`` goes above the folder."""
    return name.startswith("/") or "\0" in name or posixpath.normpath(name).split("/")[0] == ".."


def key_of(path: str) -> str:
    """Key of a file from its relative path: ``2004/spring/img_1.jpg`` -> ``2004--spring--img_1``.

    A key has only letters, digits, ``_`` and ``-``, so that it can name files and members of shards. If any other character
    is replaced (two paths might then get the same key), or if the path is too long for the name of a shard's member, eight
    hexadecimal digits of the path's SHA-256 are appended. The extension of an image is ignored: two files that differ only
    in it have the same key.

    >>> key_of("2004/spring/img_1.jpg"), key_of("my photo.jpg")
    ('2004--spring--img_1', 'my_photo-5fe47574')
    """
    stem, extension = posixpath.splitext(path)
    # No stem contains a NUL, so that a file that is not an image cannot get the key of an image.
    return safe_key(stem if normal_extension(extension) in KNOWN_EXTENSIONS else f"{path}\0")


def safe_key(name: str, *, longest: int = _MAX_KEY) -> str:
    """Key of a name, with folders joined by ``--``: the rule that ``key_of`` applies to stems.

    Args:
        name: name of a file or a sample, with ``/`` between folders.
        longest: maximum number of characters of the key.

    >>> safe_key("Surfing/v_Surfing_g22_c04")
    'Surfing--v_Surfing_g22_c04'
    """
    key = name.replace("/", "--")
    if len(key) <= longest and _SAFE.match(name):
        return key
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", key)[: longest - 9].strip("-_")
    return f"{readable}-{digest}" if readable else digest
