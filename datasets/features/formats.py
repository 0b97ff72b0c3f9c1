"""Files of feature tensors, read stretch by stretch, each by the module of its format. Nothing is ever unpickled as code: numpy
reads without pickle, torch with ``weights_only=True``.

A stretch is read with seeks, so that what a worker holds is the stretch, whatever the size of the file. Two forms cost more:
a compressed npz is decompressed up to the stretch each time, and a torch file that is not local, or has torch's old format,
is loaded whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from . import folders, npy, npz, parquet, torch_files
from .files import FeatureFile, Stretch, Values, place_of


class Format(Protocol):
    """What the module of a format has; they raise as the functions of the same names below do."""

    def stretches(self, root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]: ...

    def read_stretch(self, root: str, file: FeatureFile, stretch: Stretch, numbers: int | None) -> Values: ...


_FORMATS: dict[str, Format] = {".parquet": parquet, ".npz": npz, ".npy": npy, ".pt": torch_files, ".pth": torch_files}


def _format_of(path: str) -> Format:
    return next((found for ending, found in _FORMATS.items() if path.endswith(ending)), folders)


def stretches(root: str, file: FeatureFile, *, max_bytes: int) -> Iterator[Stretch]:
    """How to read a file in pieces of about ``max_bytes`` of features, or of ``folders.MAX_FILES`` files of a folder. Features
    count as float32; those of a Parquet file as they are stored.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a file that does not hold what its ending promises.
    """
    yield from _format_of(file.path).stretches(root, file, max_bytes)


def read_stretch(root: str, file: FeatureFile, stretch: Stretch, *, numbers: int | None = None) -> Values:
    """Names and tensors of one stretch, in the order of the file.

    Args:
        root, file, stretch: what ``stretches`` was given, and gave.
        numbers: of a tensor that is wanted. Others are told by shape and dtype alone (``files.unread``), whose values take
            up no memory: what a few bytes claim can be gigabytes.

    Raises:
        ValueError: like ``stretches``.
    """
    return _format_of(file.path).read_stretch(root, file, stretch, numbers)


def array_shapes(root: str, path: str) -> dict[str, tuple[int, ...]]:
    """Shape of every array of an .npz file by its entry, or of an .npy file by "". Raises as ``stretches`` does."""
    place = place_of(root, path)
    return npz.shapes(place) if path.endswith(".npz") else {"": npy.shape(place)}


def array_rows(root: str, path: str, entry: str, start: int, stop: int) -> np.ndarray:
    """Rows [start, stop) of an array of ``array_shapes``, read with a seek where it is not packed.

    Raises:
        ValueError: a damaged file, or rows of more than ``npy.MAX_BYTES_AT_ONCE`` together.
    """
    place = place_of(root, path)
    return npz.rows(place, entry, start, stop) if entry else npy.rows(place, start, stop)
