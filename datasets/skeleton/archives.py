"""Files of many sequences of different lengths: .npz archives, and the pickles of pyskl, MMPose and MMAction2.

An .npz file holds one array per sequence, or one array of objects with the labels in another. A pickle is a list of
annotations, or a table with ``annotations`` and ``split``. Objects and pickles are read as plain values: no code in them runs.
A pickle or an array of objects is held in memory as a whole.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

import fsspec
import numpy as np

from ...curation.npy import npy_blob, read_npy_head
from ...curation.pickles import MAX_BYTES, UnsafePickle, load_plain
from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.folder import safe_key
from ...curation.zips import open_zip
from ..features.arrays import open_arrays
from .files import joints_of_array
from .own_labels import Known, class_of
from .rows import OwnSequence

MAX_PICKLE_BYTES = 1 << 32
"""Larger pickles are refused; those of pyskl are up to a gigabyte large."""


def read_npz(
    *,
    path: str,
    sequences: str | None,
    classes: str | None,
    names: Sequence[str] | None,
    labels: str | None,
    pattern: str | None,
) -> Iterator[OwnSequence | Rejected]:
    """Source step: the sequences of an .npz file, each (T, V, C) or (T, M, V, C).

    Rejected: ``not_an_array``, ``no_frames``, ``bad_label``; and as for ``Known.of``.

    Args:
        path: the file.
        sequences: name of an array of objects that holds the sequences; None: every array is a sequence, and the part of its
            name before the first ``/`` is its class.
        classes: with ``sequences``, name of the array of their classes: names or numbers.
        names: class names by number; None: ``class000`` and so on.
        labels, pattern: other labels of the sequences; see ``own_labels.Known``.

    Raises:
        FileNotFoundError, ValueError: the file or array does not exist or is damaged, or objects are not arrays.
    """
    known, file = Known.read(labels, pattern), posixpath.basename(path)
    if sequences is not None:
        stored = _objects(path, sequences)
        class_names = [None] * len(stored) if classes is None else _objects(path, classes).tolist()
        if len(class_names) != len(stored):
            raise ValueError(f"{path}: {sequences} has {len(stored)} sequences, and {classes} {len(class_names)} classes")
        stem = posixpath.splitext(file)[0]
        for number, (joints, label) in enumerate(zip(stored, class_names, strict=True)):
            yield _own(f"{stem}-{number:06d}", f"{file}#{number}", joints, label, names, known)
        return
    with open_arrays(path, by_rows=False) as arrays:
        for entry in arrays.names:
            label, slash, _ = entry.partition("/")
            try:
                joints = arrays.get(entry).whole()
            except ValueError as error:
                raise ValueError(f"{error}; an array of objects is named by source.sequences") from None
            yield _own(entry, f"{file}:{entry}", joints, label if slash else None, names, known)


def _objects(path: str, entry: str) -> np.ndarray:
    """An array in an .npz file, of plain values or of objects."""
    with fsspec.open(path, "rb") as stream, open_zip(cast("IO[bytes]", stream), path, "npz file") as archive:
        if f"{entry}.npy" not in archive.namelist():
            available = ", ".join(name.removesuffix(".npy") for name in archive.namelist())
            raise ValueError(f"{path} has no array {entry!r}: it has {available[:200]}")
        with archive.open(f"{entry}.npy") as member:
            try:
                shape, _, dtype, begin = read_npy_head(member)
                member.seek(begin)
                found = load_plain(member.read(MAX_BYTES + 1), objects=True) if dtype.hasobject else None
            except ValueError as error:
                raise ValueError(f"{path}, {entry}: {error}") from None
    if found is None:
        with open_arrays(path, by_rows=False) as arrays:
            return arrays.get(entry).whole()
    if len(shape) == 0 or not isinstance(found, np.ndarray):
        raise ValueError(f"{path}, {entry}: {type(found).__name__} {shape}, expected an array of sequences")
    return found


def _own(
    name: str,
    place: str,
    joints: Any,
    label: Any,
    names: Sequence[str] | None,
    known: Known,
    said: Mapping[str, str] | None = None,
) -> OwnSequence | Rejected:
    """The row of one sequence; a numeric ``label`` is an index of ``names``."""
    try:
        if isinstance(label, (int, float, np.integer, np.floating)):
            label = class_of(cast("float", label), names)
        of = known.of(name, {**(said or {}), "class": None if label is None else str(label)})
        if isinstance(joints, np.ndarray) and joints.dtype.hasobject:  # sequences of one length, stored as one array of objects
            joints = joints.tolist()
        array = np.asarray(joints) if isinstance(joints, (list, np.ndarray)) else np.empty(0, dtype=object)
        values = joints_of_array(array)
        values = values.astype(np.float32) if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else values
        return OwnSequence(safe_key(printable(name)), printable(place), of[0], npy_blob(values), *of[1:])
    except Reject as error:
        return Rejected(printable(place), error.reason, error.detail)
    except ValueError as error:
        return Rejected(printable(place), "not_an_array", str(error)[:100])


def read_pyskl(
    *, path: str, names: Sequence[str] | None, sides: Mapping[str, str], labels: str | None, pattern: str | None
) -> Iterator[OwnSequence | Rejected]:
    """Source step: the annotations of a pickle, whose ``keypoint`` is (M, T, V, C).

    ``keypoint_score``, (M, T, V), becomes the last axis of the joints.

    Rejected: ``not_an_annotation``, ``not_an_array``, ``bad_label``, ``no_frames``; and as for ``Known.of``.

    Args:
        path: the pickle.
        names: class names by number; None: ``class000`` and so on.
        sides: ``train``, ``val`` or ``test`` -> name of a list in the pickle's ``split``, such as ``xsub_train``.
        labels, pattern: other labels of the sequences; see ``own_labels.Known``.

    Raises:
        FileNotFoundError, ValueError: the file does not exist, holds anything but plain values, or lacks annotations or one of
            the named lists.
    """
    known, file = Known.read(labels, pattern), posixpath.basename(path)
    with fsspec.open(path, "rb") as stream:
        try:
            if (size := cast("IO[bytes]", stream).seek(0, os.SEEK_END)) > MAX_PICKLE_BYTES:
                raise ValueError(f"{size:,} bytes, at most {MAX_PICKLE_BYTES:,} are read")
            value = load_plain(cast("IO[bytes]", stream), objects=True, max_bytes=MAX_PICKLE_BYTES)
        except (UnsafePickle, ValueError) as error:
            raise ValueError(f"pickle {path!r}: {error}") from None
    split = value.get("split", {}) if isinstance(value, dict) else {}
    found = value.get("annotations") if isinstance(value, dict) else value
    if not isinstance(found, list) or not isinstance(split, dict):
        raise ValueError(f"pickle {path!r}: expected a list of annotations, or a table with annotations and split")
    if absent := [name for name in sides.values() if not isinstance(split.get(name), list)]:
        message = ", ".join(map(str, split))[:200] or "none"
        raise ValueError(f"pickle {path!r} has no split {absent[0]!r}, see source.sides: it has {message}")
    side_of = {
        name: side for side, listed in sides.items() for name in cast("list[Any]", split[listed]) if isinstance(name, str)
    }
    annotations = cast("list[Any]", found)
    for number, annotation in enumerate(annotations):
        yield _annotated(annotation, f"{file}#{number}", names, known, side_of)
        annotations[number] = None  # frees the memory of what is written


def _annotated(
    annotation: Any, place: str, names: Sequence[str] | None, known: Known, side_of: Mapping[str, str]
) -> OwnSequence | Rejected:
    given = cast("dict[Any, Any]", annotation) if isinstance(annotation, dict) else {}
    name, points, score = (given.get(each) for each in ("frame_dir", "keypoint", "keypoint_score"))
    if not isinstance(name, str) or not isinstance(points, np.ndarray) or points.ndim != 4:
        text = f"{', '.join(map(str, given))[:100] or type(annotation).__name__}: expected frame_dir and keypoint (M, T, V, C)"
        return Rejected(place, "not_an_annotation", text)
    if score is not None:
        if not isinstance(score, np.ndarray) or score.shape != points.shape[:3]:
            return Rejected(place, "not_an_annotation", f"{name[:80]}: keypoint {points.shape}, and no such keypoint_score")
        points = np.concatenate([points, score[..., None]], axis=3)
    said = {"side": side_of[name]} if name in side_of else {}
    return _own(name, place, points.transpose(1, 0, 2, 3), given.get("label"), names, known, said)
