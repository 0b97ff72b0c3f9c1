"""CIFAR-100's python archive (Krizhevsky, 2009): pickles of pixels and labels, read by a restricted unpickler.

Its pictures are no files, so each becomes a PNG: lossless, and of the same bytes everywhere (``curation/png.py``).
"""

from __future__ import annotations

import contextlib
import posixpath
import tarfile
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import fsspec
import numpy as np

from ...curation.pickles import MAX_BYTES, UnsafePickle, load_plain
from ...curation.png import stored_png
from ...curation.rows import Blob
from .rows import ClassImage

_ENDINGS = (".tar.gz", ".tgz", ".tar")
_SIDE_PX = 32
_CHUNK_BYTES = 1 << 20


def read_archive(*, root: str, classes: int = 100) -> Iterator[ClassImage]:
    """Source step: the pictures of both files of the archive, those that train first; see ``read_cifar``."""
    for piece in ("train", "test"):
        yield from read_cifar(piece, root=root, classes=classes)


def read_cifar(piece: str, *, root: str, classes: int = 100) -> Iterator[ClassImage]:
    """The pictures of one file of the archive, in its order.

    Args:
        piece: ``train`` or ``test``.
        root: ``cifar-100-python.tar.gz`` as it is published, or the folder that is in it: local path or fsspec URL.
        classes: number of fine labels.

    Yields:
        Rows with the key ``<piece>-<number>``; ``file`` is ``<piece>/<number>``, so that files sort as the pictures lie.

    Raises:
        ValueError: a file is missing, damaged or unsafe, or its pixels, labels and names do not fit together.
    """
    data, meta = _table(root, piece, b"data", b"fine_labels"), _table(root, "meta", b"fine_label_names")
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in meta[b"fine_label_names"]]
    pixels, labels = data[b"data"], data[b"fine_labels"]
    place = f"CIFAR-100 {root!r}, {piece}"
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * _SIDE_PX**2,):
        raise ValueError(f"{place}: its pixels are {getattr(pixels, 'dtype', type(pixels).__name__)}, not uint8 (n, 3072)")
    if not isinstance(labels, list) or len(labels) != len(pixels) or len(names) != classes:
        raise ValueError(f"{place}: {len(pixels)} pictures, {len(labels)} labels, {len(names)} names, {classes} are wanted")
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise ValueError(f"{place}: a label is not a number from 0 to {classes - 1}")
    pictures = pixels.reshape(-1, 3, _SIDE_PX, _SIDE_PX).transpose(0, 2, 3, 1)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        image = Blob(stored_png(np.ascontiguousarray(picture)))
        yield ClassImage(f"{piece}-{number:05d}", image, "png", piece, names[label], f"{piece}/{number:05d}")


def _table(root: str, name: str, *needed: bytes) -> dict[bytes, Any]:
    place = f"CIFAR-100 {root!r}, {name}"
    try:
        with _opened(root, name) as stream:
            value = load_plain(stream, arrays=True)
    except UnsafePickle as error:
        raise ValueError(f"{place} is refused: {error}") from None
    except (FileNotFoundError, KeyError):
        raise ValueError(f"{place}: there is no such file") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{place} cannot be read: {type(error).__name__}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{place} is no table")
    table: dict[bytes, Any] = {key if isinstance(key, bytes) else str(key).encode(): item for key, item in value.items()}
    if missing := [key.decode() for key in needed if key not in table]:
        raise ValueError(f"{place} has no {missing[0]!r}")
    return table


@contextlib.contextmanager
def _opened(root: str, name: str) -> Iterator[IO[bytes]]:
    """The file, which can be sought: one of an archive lies in a temporary file."""
    if not root.lower().endswith(_ENDINGS):
        with fsspec.open(posixpath.join(root, name), "rb") as stream:
            yield stream  # type: ignore[misc]
        return
    with tempfile.TemporaryFile() as held:
        with fsspec.open(root, "rb") as stream, tarfile.open(fileobj=stream, mode="r:*") as archive:  # type: ignore[arg-type]
            body = next((archive.extractfile(each) for each in archive if _is(each, name)), None)
            if body is None:
                raise FileNotFoundError(name)
            for _ in range(MAX_BYTES // _CHUNK_BYTES + 1):  # a larger one is refused, and need not be there whole
                held.write(body.read(_CHUNK_BYTES))
        yield held


def _is(member: tarfile.TarInfo, name: str) -> bool:
    return member.isfile() and posixpath.basename(member.name) == name
