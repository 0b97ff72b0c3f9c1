"""Files that spare work in later processes, in the user's cache folder: compiled code, and what was read from source files.

What is found there is used as it is, even run, so that files are read only if no other user can have written them. Without a
folder that can be used, everything is made again.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import stat
import tempfile
from pathlib import Path

import platformdirs

_VERSIONS = 4
"""Most files of one subject that are kept, the newest."""


def cached(kind: str, subject: str, key: str) -> bytes | None:
    """Content of a file; None if there is none, if it is damaged, or if others can have written it.

    Args:
        kind: folder of the file.
        subject: what it is of, such as the name of a module.
        key: hexadecimal digest of all that determines its content.
    """
    with contextlib.suppress(OSError, ValueError):
        digest, content = _own_bytes(_path(kind, subject, key)).split(b"\n", 1)
        if digest.decode() == hashlib.sha256(content).hexdigest():
            return content
    return None


def keep(kind: str, subject: str, key: str, content: bytes) -> None:
    """Write a file for ``cached``, if there is a folder to write to; old files of the same subject are removed.

    Raises:
        ValueError: ``subject`` cannot be part of a file's name.
    """
    with contextlib.suppress(OSError):
        path = _path(kind, subject, key)
        _make_own(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:  # for its owner only
            try:
                stream.write(b"\n".join([hashlib.sha256(content).hexdigest().encode(), content]))
                stream.close()
                os.replace(stream.name, path)
            except BaseException:
                Path(stream.name).unlink(missing_ok=True)
                raise
        versions = path.parent.glob(f"{glob.escape(subject)}-*")
        for old in sorted(versions, key=os.path.getmtime)[:-_VERSIONS]:
            old.unlink(missing_ok=True)


def _path(kind: str, subject: str, key: str) -> Path:
    if Path(subject).name != subject:
        raise ValueError(f"{subject!r} is no name of a file")
    return _folder() / kind / f"{subject}-{key[:32]}"


def check_folders(path: Path) -> None:
    """Raise ``PermissionError`` if other users can change a folder above ``path``."""
    for folder in [*path.parents, *path.parent.resolve().parents]:
        facts = folder.stat()
        # In a folder with the sticky bit, such as /tmp, nobody can rename the files of others.
        shared = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
        if shared or facts.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{folder}: others may write to it")


def _make_own(path: Path) -> None:
    """Create a folder of the cache for its owner only; from a folder of an earlier version, others' write access is removed."""
    for folder in (_folder(), path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if facts.st_uid == os.getuid() and stat.S_ISDIR(facts.st_mode) and facts.st_mode & 0o022:
            folder.chmod(0o700)


def _own_bytes(path: Path) -> bytes:
    """Content of a file that only its owner, who is this user or root, can have created or changed.

    Raises:
        PermissionError: others may write to the file, or to a folder above it.
    """
    check_folders(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o022 or facts.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{path}: others may write to it")
        return stream.read()


def _folder() -> Path:
    if not hasattr(os, "getuid"):
        raise FileNotFoundError("no folder for a cache: on this system, files have no owner to check")
    try:
        path = platformdirs.user_cache_path("benchwright")
    except RuntimeError as error:
        raise FileNotFoundError(f"no folder for a cache: {error}") from error
    if not path.is_absolute():  # from some versions, for a user without a home; code is not loaded from the current folder
        raise FileNotFoundError(f"no folder for a cache: {path} is not absolute")
    return path
