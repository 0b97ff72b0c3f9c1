"""Files of stored features: how they are named and opened; see ``formats.py``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np

from ...curation.files import may_leave

_LARGEST_NUMBER = 32

Values = Iterable[tuple[str, np.ndarray]]
"""Names with their tensors, as stored; those of another size than asked for as ``unread`` ones."""


def unread(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Shape and dtype of a tensor that is not read, as an array that takes up no memory."""
    return np.broadcast_to(np.zeros((), dtype if dtype.itemsize <= _LARGEST_NUMBER else "V1"), shape)


def fits(shape: tuple[int, ...], dtype: np.dtype[Any], numbers: int | None) -> bool:
    """Whether it is worth to read such a tensor, where ``numbers`` numbers are wanted; None: any tensor is."""
    return numbers is None or (math.prod(shape) == numbers and dtype.kind in "fiu")


@dataclass(frozen=True)
class FeatureFile:
    """One file, or one folder.

    By the ending of ``path``:

    * ``.parquet``: a column of names and a column of lists, rows in any number of row groups;
    * ``.npz`` and ``.pt``, ``.pth``: an array ``feature`` (n, ...) and the names ``uid`` (n,); or, where there are no two such
      entries, one entry per sample, which is named by it;
    * ``.npy``: an array (n, ...), with the names in the file ``ids``;
    * anything else: a folder with one ``.npy``, ``.pt`` or ``.pth`` file a sample, named by it, sub-folders included.

    Attributes:
        path: path relative to the folder of features, with ``/``; ``.`` is the folder itself.
        ids: for a ``.npy`` file: file of the names, one per line, or a ``.npy`` file of strings.
        uid: column or entry of the names.
        feature: column or entry of the tensors.
    """

    path: str
    ids: str | None = None
    uid: str = "uid"
    feature: str = "feature"

    def stacked(self, entries: Collection[str]) -> bool:
        """Whether a file of these entries holds one array of tensors and one of names, and not an entry a sample."""
        return self.uid in entries and self.feature in entries


@dataclass(frozen=True)
class Stretch:
    """Samples [start, stop) of a file; of a folder the named files. Of a Parquet file ``start`` and ``stop`` are row
    groups. ``first`` is the number of the first sample in the whole file or folder."""

    start: int
    stop: int
    first: int
    names: tuple[str, ...] = ()


def place_of(root: str, path: str) -> str:
    """Where a path lies. Raises ``ValueError`` if it leads out of ``root``."""
    if may_leave(path):
        raise ValueError(f"feature file {path!r}: expected a path within {root}")
    return root.rstrip("/") if path == "." else f"{root.rstrip('/')}/{path}"


def open_file(place: str) -> Any:
    """A stream that can seek. Raises ``FileNotFoundError``."""
    fs, path = _found(place)
    return fs.open(path, "rb")


def stamp(place: str) -> tuple[int, int]:
    """Size and time of a file: others once it has changed. Raises ``FileNotFoundError``."""
    fs, path = _found(place)
    info = fs.info(path)
    return int(info["size"]), int(1e6 * float(info.get("mtime", 0)))


def _found(place: str) -> tuple[Any, str]:
    fs, path = fsspec.core.url_to_fs(place)
    if not fs.isfile(path):
        raise FileNotFoundError(f"feature file {place} is {'no file' if fs.exists(path) else 'not there'}")
    return fs, path
