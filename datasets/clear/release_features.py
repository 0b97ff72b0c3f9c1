"""Vectors of a release: ``training_folder/features/<type>/<bucket>/all.pth``, a tensor (n, d) and a list of n labels in the
order of the bucket's list; without it, ``features/<type>/<bucket>/<class>.pth``, a dict of ID to tensor.

Only this module reads these files; the vectors are then stored in the same way as the feature sets of encoders.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...curation.rows import Reject, Rejected
from ...curation.stages.folder import Folder, open_folder
from ..features.feature_sets import Featured
from ..features.torch_files import as_array, load_torch
from .release_lists import PlaceInRelease, id_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ...curation.stage_rows import Rows


def check_types(root: str, features: Sequence[str]) -> None:
    """Raise ``ValueError`` with the available types if a release lacks one of these types of features."""
    known = _types(open_folder(root))
    if strange := [name for name in features if name not in known]:
        listed = ", ".join(f'"{name}"' for name in known)
        how = f"there are {', '.join(known)}: --set 'source.features=[{listed}]' takes them" if known else f"{root} has none"
        raise ValueError(f"source.features: {strange[0]!r} is not in the release: {how}")


def _types(folder: Folder) -> list[str]:
    """Types of features in a release."""
    found: set[str] = set()
    for at in ("training_folder/features", "features", "train/features", "test/features"):
        place = posixpath.join(folder.root, at)
        listed = folder.fs.ls(place, detail=True) if folder.fs.isdir(place) else []
        found.update(posixpath.basename(each["name"].rstrip("/")) for each in listed if folder.fs.isdir(each["name"]))
    return sorted(found)


def keep_with_vectors(
    rows: Sequence[PlaceInRelease], *, root: str, features: Sequence[str]
) -> Sequence[PlaceInRelease | Rejected]:
    """Step of kind ``each_batch``: keep the images of a release that have a vector of each type, as a dataset needs them all.

    Args:
        rows: rows of ``read_release`` with the same ``root``.
        root: folder of the release.
        features: types of features, such as ``moco_b0``: names of folders.

    Returns:
        The rows in order; rejects are ``no_feature`` if a vector is missing, ``feature_not_finite`` if one is not finite.

    Raises:
        ValueError: the release has no features of a type, or a file is damaged or belongs to other lists.
    """
    check_types(root, features)
    found: list[PlaceInRelease | Rejected] = list(rows)
    for name in features:  # a file is read once for all its rows
        for at, vector in enumerate(_vectors(rows, root, name)):
            if isinstance(vector, Rejected) and not isinstance(found[at], Rejected):
                found[at] = vector
    return found


def read_places(*, rows: Rows) -> Iterator[pa.Table]:
    """Source step: the places in their release of the rows of another stage, marked with ``rows_of``."""
    yield from rows.batches([field.name for field in dataclasses.fields(PlaceInRelease)])


def read_vectors(rows: Sequence[PlaceInRelease], *, root: str, features: str) -> list[Featured]:
    """Vectors of one type for the images that ``keep_with_vectors`` kept, as in the release; step of kind ``each_batch``.

    Args:
        rows, root: see ``keep_with_vectors``.
        features: type of the features.

    Raises:
        ValueError: as for ``keep_with_vectors``, or an image has no vector.
    """
    found: list[Featured] = []
    for row, vector in zip(rows, _vectors(rows, root, features), strict=True):
        if isinstance(vector, Rejected):
            raise ValueError(f"{row.file}: {vector.reason}: {vector.detail}: the release has changed: run again")
        found.append(Featured(row.key, vector))
    return found


def _vectors(rows: Sequence[PlaceInRelease], root: str, features: str) -> Iterator[np.ndarray | Rejected]:
    files = _Files(open_folder(root))
    return (_finite(files, row, features) for row in rows)


class _Files:
    """Torch files of a folder, each read once for the rows of a batch."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._held: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Content of a file, or None if it does not exist."""
        if name not in self._held:
            folder = self._folder
            place = posixpath.join(folder.root, name)
            try:
                place = folder.local_path(name) if folder.local else place
                self._held[name] = load_torch(place) if folder.local or folder.fs.exists(place) else None
            except Reject as reject:
                if reject.reason != "missing_file":
                    raise ValueError(f"{name}: {reject.reason}: {reject.detail}") from None
                self._held[name] = None
        return self._held[name]


def _finite(files: _Files, row: PlaceInRelease, features: str) -> np.ndarray | Rejected:
    try:
        vector = _vector(files, row, features)
    except Reject as reject:
        return Rejected(row.key, reject.reason, reject.detail)
    if not np.isfinite(vector).all():
        return Rejected(row.key, "feature_not_finite", f"{features}: {np.count_nonzero(~np.isfinite(vector))} numbers")
    return vector


def _vector(files: _Files, row: PlaceInRelease, features: str) -> np.ndarray:
    """The vector of an image. Raises ``Reject`` if the release has none."""
    of_bucket = posixpath.join(row.part, "training_folder", "features", features, str(row.bucket), "all.pth")
    held = files.get(of_bucket)
    if held is not None:
        return _in_order(held, of_bucket, row)
    of_class = posixpath.join(row.part, "features", features, str(row.bucket), f"{row.class_name}.pth")
    held = files.get(of_class)
    if held is None:
        raise Reject("no_feature", f"neither {of_bucket} nor {of_class} found")
    if not isinstance(held, dict):
        raise ValueError(f"{of_class} holds {type(held).__name__}, expected a dict of ID to tensor")
    identity = id_of(row.file)
    if identity not in held:
        raise Reject("no_feature", f"{of_class} has no tensor for {identity}")
    return _numbers(cast("dict[str, Any]", held)[identity], of_class)


def _in_order(held: Any, place: str, row: PlaceInRelease) -> np.ndarray:
    """The vector of a row in ``all.pth``, which must have the row's label at the same place."""
    try:
        values, labels = held
        counts = len(values), len(labels)
        label = int(labels[row.listed_at]) if row.listed_at < counts[1] else None
        vector = values[row.listed_at] if row.listed_at < counts[0] else None
    except (TypeError, ValueError, KeyError, IndexError, RuntimeError):
        raise ValueError(f"{place}: expected a tensor (n, d) and a list of n labels") from None
    if counts[0] != counts[1]:
        raise ValueError(f"{place}: {counts[0]} vectors and {counts[1]} labels")
    if label != row.label:
        message = f"{counts[0]} vectors" if label is None else f"label {label}"
        raise ValueError(
            f"{place} has {message} where number {row.listed_at} of the bucket's list, from 0, is {row.file} of label "
            f"{row.label}: its vectors belong to another list"
        )
    return _numbers(vector, place)


def _numbers(vector: Any, place: str) -> np.ndarray:
    found = as_array(vector, place, None)
    if found.ndim != 1 or found.dtype.kind not in "fiu" or found.size > _WIDEST:
        raise ValueError(f"{place} holds {found.dtype} of shape {found.shape}, expected vectors of numbers")
    return np.array(found, dtype=np.float32)


_WIDEST = 1 << 20
