"""CIFAR-100's python archive (Krizhevsky, 2009): pickles of pixels and labels, read by a restricted unpickler.

Its pictures are not files, so each becomes a PNG: lossless, and with the same bytes everywhere (``curation/png.py``).
"""

from __future__ import annotations

import contextlib
import posixpath
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

import fsspec
import numpy as np

from ...curation.bounded_reading import compression_by_head, decompressed
from ...curation.pickles import MAX_BYTES, UnsafePickle, load_plain
from ...curation.png import stored_png
from ...curation.records import naming
from ...curation.rows import Blob
from ...curation.tars import TAR_ERRORS, members
from .folders import ClassImage

_ENDINGS = (".tar.gz", ".tgz", ".tar")
_SIDE_PX = 32
_CHUNK_BYTES = 1 << 20


def read_archive(*, root: str, classes: int = 100) -> Iterator[ClassImage]:
    """Source step: the pictures of both files of the archive, training pictures first; see ``read_cifar``."""
    for piece in ("train", "test"):
        yield from read_cifar(piece, root=root, classes=classes)


def read_cifar(piece: str, *, root: str, classes: int = 100) -> Iterator[ClassImage]:
    """The pictures of one file of the archive, in its order.

    Args:
        piece: ``train`` or ``test``.
        root: ``cifar-100-python.tar.gz`` as published, or the folder in it: local path or fsspec URL.
        classes: number of fine labels.

    Yields:
        Rows with the key ``<piece>-<number>``; ``file`` is ``<piece>/<number>``, so that files sort in archive order.

    Raises:
        ValueError: a file is missing, damaged or unsafe, or its pixels, labels and names do not fit together.
    """
    data, meta = _tables(root, {piece: (b"data", b"fine_labels"), "meta": (b"fine_label_names",)})
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in meta[b"fine_label_names"]]
    pixels, labels = data[b"data"], data[b"fine_labels"]
    place = f"CIFAR-100 {root!r}, {piece}"
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * _SIDE_PX**2,):
        raise ValueError(f"{place}: its pixels are {getattr(pixels, 'dtype', type(pixels).__name__)}, not uint8 (n, 3072)")
    if not isinstance(labels, list) or len(labels) != len(pixels) or len(names) != classes:
        raise ValueError(f"{place}: {len(pixels)} pictures, {len(labels)} labels, {len(names)} names, expected {classes}")
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise ValueError(f"{place}: a label is not a number from 0 to {classes - 1}")
    pictures = pixels.reshape(-1, 3, _SIDE_PX, _SIDE_PX).transpose(0, 2, 3, 1)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        image = Blob(stored_png(np.ascontiguousarray(picture)))
        yield ClassImage(f"{piece}-{number:05d}", image, "png", piece, names[label], f"{piece}/{number:05d}")


def _tables(root: str, needed: Mapping[str, tuple[bytes, ...]]) -> list[dict[bytes, Any]]:
    """The named files, each as a dict that has the needed keys."""
    place = f"CIFAR-100 {root!r}"
    try:
        with contextlib.ExitStack() as stack:
            streams = _opened(root, list(needed), stack)
            return [
                _table(f"{place}, {name}", stream, keys) for (name, keys), stream in zip(needed.items(), streams, strict=True)
            ]
    except FileNotFoundError as error:
        raise ValueError(f"{place}, {error}: file not found") from None
    except _Refused as error:
        raise ValueError(str(error)) from None
    except TAR_ERRORS as error:
        raise ValueError(f"{place}, {' and '.join(needed)} cannot be read: {type(error).__name__}: {error}") from None


class _Refused(Exception):
    """A file that could be read is not valid."""


def _table(place: str, stream: IO[bytes], needed: tuple[bytes, ...]) -> dict[bytes, Any]:
    try:
        value = load_plain(stream, arrays=True)
    except UnsafePickle as error:
        raise _Refused(f"{place} is refused: {error}") from None
    if not isinstance(value, dict):
        raise _Refused(f"{place} is not a table")
    table: dict[bytes, Any] = {key if isinstance(key, bytes) else str(key).encode(): item for key, item in value.items()}
    if missing := [key.decode() for key in needed if key not in table]:
        raise _Refused(f"{place} has no {missing[0]!r}")
    return table


def _opened(root: str, names: Sequence[str], stack: contextlib.ExitStack) -> list[IO[bytes]]:
    """The files as seekable streams; files of an archive, which is read once and to its end, are copied to temporary files."""
    if not root.lower().endswith(_ENDINGS):
        try:
            return [cast("IO[bytes]", stack.enter_context(fsspec.open(posixpath.join(root, name), "rb"))) for name in names]
        except FileNotFoundError as error:
            raise FileNotFoundError(posixpath.basename(str(error.filename or names[0]))) from None
    held: dict[str, IO[bytes]] = {}
    with fsspec.open(root, "rb") as stream, _unpacked(cast("IO[bytes]", stream)) as plain:
        for _, member, archive in members(plain):
            name = posixpath.basename(member.name)
            if not member.isfile() or name not in names:
                continue
            if name in held:
                raise _Refused(f"CIFAR-100 {root!r}, {name}: the archive has two such files")
            held[name] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
            body = cast("IO[bytes]", archive.extractfile(member))
            for _ in range(MAX_BYTES // _CHUNK_BYTES + 1):  # a larger file is refused, so it need not be copied whole
                data = body.read(_CHUNK_BYTES)
                with naming(tempfile.gettempdir()):
                    held[name].write(data)
    if missing := [name for name in names if name not in held]:
        raise FileNotFoundError(missing[0])
    return [held[name] for name in names]


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    """Decompress by the first bytes."""
    head = stream.read(3)
    stream.seek(0)
    return decompressed(stream, compression_by_head(head))
