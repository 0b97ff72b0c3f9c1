"""Files of one sequence each: NTU's text, JSON, .npy; and folders of them that are named by their class."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.folder import key_of, open_folder, walk
from ...curation.streams import parse_json
from ..reader.decode import decode_npy
from .bodies import BodyRule, sequence_of_bodies
from .layouts import Layout
from .ntu_text import parse_skeleton
from .rows import InFile, ListedSequence, Sequence, TensorRow, WithJoints, sequence_of
from .tensors import TensorForm, tensor_row

MAX_BYTES = 1 << 28
EXTENSIONS = (".skeleton", ".json", ".npy")


def list_class_folders(*, root: str) -> Iterator[ListedSequence | Rejected]:
    """Source step: the files of class folders, ``<class>/.../<file>``, folder by folder, in the order of the names.

    Rejected: ``unknown_format``: an ending that is none of ``EXTENSIONS``; ``no_class_folder``; what cannot be listed.
    """
    for at, entries in walk(open_folder(root)):
        for entry in entries:
            file = posixpath.join(at, entry.name)
            if entry.reason or posixpath.splitext(file)[1].lower() not in EXTENSIONS:
                yield Rejected(printable(file), entry.reason or "unknown_format", entry.detail)
            elif not at:
                yield Rejected(printable(file), "no_class_folder", "it lies in no folder that names its class")
            else:
                yield ListedSequence(key_of(file), file, file.split("/", 1)[0])


def read_sequence(row: InFile, *, root: str, layout: Layout, form: TensorForm, bodies: BodyRule) -> TensorRow:
    """Each step: the tensor of a file.

    Args:
        row: a listed file; its ending says what it is.
        root: folder of the files.
        layout: joints that every body must have.
        form: of the tensor.
        bodies: of NTU's text.

    Raises:
        Reject: as the readers of the formats and ``tensor_of`` do; ``missing_file``, ``too_large`` and the like.
    """
    data = open_folder(root).read(row.file, max_bytes=MAX_BYTES)
    match posixpath.splitext(row.file)[1].lower():
        case ".json":
            sequence = sequence_from_json(json_values(data))
        case ".npy":
            sequence = sequence_from_npy(data)
        case _:
            sequence = sequence_of_bodies(parse_skeleton(data, joints=len(layout.joints)), bodies)
    return tensor_row(row, sequence, layout, form)


def tensor_of_joints(row: WithJoints, *, layout: Layout, form: TensorForm) -> TensorRow:
    """Each step: the tensor of a sequence whose joints a source of one's own gives. Raises ``Reject`` as ``tensor_of`` does."""
    return tensor_row(InFile(row.key, row.file, row.class_name), sequence_of(row.joints), layout, form)


def json_values(data: bytes) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        Reject: ``empty``, ``not_json`` (none, cut short, or nested too deep), ``no_skeletons``: no object that has them.
    """
    if not data.strip():
        raise Reject("empty", f"{len(data)} bytes")
    try:
        values = parse_json(data)
    except ValueError as error:
        raise Reject("not_json", f"{type(error).__name__}: {str(error)[:80]}") from None
    if not isinstance(values, dict) or "skeletons" not in values:
        raise Reject("no_skeletons", f"{type(values).__name__} without 'skeletons'")
    return cast("dict[str, Any]", values)


def sequence_from_json(values: dict[str, Any]) -> Sequence:
    """The sequence of ``skeletons``, [T][V][C] of one body.

    Raises:
        Reject: ``not_an_array``: frames or joints of different lengths, or no numbers; and as ``sequence_of`` does.
    """
    try:
        # As objects: an array of texts would make as much room for each of them as for the longest.
        nested = np.asarray(values["skeletons"], dtype=object)
        if odd := {type(value).__name__ for value in nested.ravel().tolist()} - {"int", "float"}:
            told = "frames or joints of different lengths" if "list" in odd else " and ".join(sorted(odd))
            raise Reject("not_an_array", f"{told}: numbers, (frames, [bodies,] joints, axes), are wanted")
        joints = nested.astype(np.float64)
    except (ValueError, OverflowError) as error:
        raise Reject("not_an_array", str(error)[:100]) from None
    return _sequence(joints)


def sequence_from_npy(data: bytes) -> Sequence:
    """The sequence of an .npy file, (T, V, C) of one body or (T, M, V, C).

    Raises:
        Reject: ``empty``, ``not_npy`` (none, cut short, or of objects), ``not_an_array``; and as ``sequence_of`` does.
    """
    if not data:
        raise Reject("empty", "0 bytes")
    try:
        joints = decode_npy(data)
    except ValueError as error:
        raise Reject("not_npy", str(error)[:100]) from None
    return _sequence(joints)


def _sequence(joints: np.ndarray) -> Sequence:
    if joints.ndim and not len(joints):
        raise Reject("no_frames", "0 frames: at least 1 is wanted")
    if joints.dtype.kind not in "fiu" or joints.ndim not in (3, 4):
        raise Reject("not_an_array", f"{joints.dtype} {joints.shape}: numbers, (frames, [bodies,] joints, axes), are wanted")
    with np.errstate(invalid="ignore"):  # what is no number is rejected below
        whole = joints.astype(np.float64, copy=False)
    return sequence_of(whole[:, None] if whole.ndim == 3 else whole)
