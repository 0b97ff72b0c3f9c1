"""Names of, and access to, files of stored features; see ``formats.py``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np

from ...curation.local_files import may_leave

_LARGEST_NUMBER = 32

Values = Iterable[tuple[str, np.ndarray]]
"""Names with their tensors, as stored; tensors of another size than requested are ``unread``."""


def unread(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array of the shape and dtype of a tensor that is not read; it takes up no memory."""
    return np.broadcast_to(np.zeros((), dtype if dtype.itemsize <= _LARGEST_NUMBER else "V1"), shape)


def fits(shape: tuple[int, ...], dtype: np.dtype[Any], numbers: int | None) -> bool:
    """Whether to read a tensor if ``numbers`` numbers are expected; None: always."""
    return numbers is None or (math.prod(shape) == numbers and dtype.kind in "fiu")


@dataclass(frozen=True)
class FeatureFile:
    """One file, or one folder.

    By the ending of ``path``:

    * ``.parquet``: a column of names and a column of lists, in any number of row groups;
    * ``.npz`` and ``.pt``, ``.pth``: an array ``feature`` (n, ...) and the names ``uid`` (n,); or, without these two entries,
      one entry per sample, with the sample's name;
    * ``.npy``: an array (n, ...), with the names in the file ``ids``;
    * anything else: a folder with one ``.npy``, ``.pt`` or ``.pth`` file per sample, with its name, sub-folders included.

    Attributes:
        path: path relative to the folder of features, with ``/``; ``.`` is the folder itself.
        ids: for a ``.npy`` file: file of names, one per line, or a ``.npy`` file of strings.
        uid: column or entry of names.
        feature: column or entry of tensors.
    """

    path: str
    ids: str | None = None
    uid: str = "uid"
    feature: str = "feature"

    def stacked(self, entries: Collection[str]) -> bool:
        """Whether a file with these entries holds one array of tensors and one of names, not one entry per sample."""
        return self.uid in entries and self.feature in entries


@dataclass(frozen=True)
class Stretch:
    """Samples [start, stop) of a file, or the named files of a folder. For a Parquet file ``start`` and ``stop`` are row
    groups. ``first`` is the number of the first sample within the whole file or folder."""

    start: int
    stop: int
    first: int
    names: tuple[str, ...] = ()


def place_of(root: str, path: str) -> str:
    """Join a path to ``root``. Raises ``ValueError`` if it leads out of ``root``."""
    if may_leave(path):
        raise ValueError(f"feature file {path!r}: expected a path within {root}")
    return root.rstrip("/") if path == "." else f"{root.rstrip('/')}/{path}"


def open_file(place: str) -> Any:
    """A seekable stream. Raises ``FileNotFoundError``."""
    fs, path = _found(place)
    return fs.open(path, "rb")


def stamp(place: str) -> tuple[int, int]:
    """Size and modification time of a file, which change with the file. Raises ``FileNotFoundError``."""
    fs, path = _found(place)
    info = fs.info(path)
    return int(info["size"]), int(1e6 * float(info.get("mtime", 0)))


def _found(place: str) -> tuple[Any, str]:
    fs, path = fsspec.core.url_to_fs(place)
    if not fs.isfile(path):
        raise FileNotFoundError(f"feature file {place} is {'no file' if fs.exists(path) else 'not there'}")
    return fs, path
