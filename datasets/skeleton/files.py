"""Files of one sequence each: NTU's text, JSON, .npy, BVH; and folders of them, named by class."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...curation.bounded_reading import parse_json
from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.folder import key_of, open_folder, walk
from ..reader.decode import decode_npy
from .bodies import BodyRule, sequence_of_bodies
from .bvh import sequence_of_bvh
from .layouts import Layout
from .missing import row_of_joints
from .ntu_text import parse_skeleton
from .own_labels import Known
from .rows import InFile, Sequence, SequenceFile, TensorRow, WithJoints, WithNpy, sequence_of
from .tensors import TensorForm, tensor_row

MAX_BYTES = 1 << 28
EXTENSIONS = (".skeleton", ".json", ".npy", ".bvh")


def list_class_folders(
    *, root: str, labels: str | None = None, pattern: str | None = None
) -> Iterator[SequenceFile | Rejected]:
    """Source step: the files of class folders, ``<class>/.../<file>``, folder by folder, in the order of the names.

    Rejected: ``unknown_format``: an extension that is not in ``EXTENSIONS``; ``no_class_folder``; entries that cannot be
    listed; and as for ``Known.of``.

    Args:
        root: the folder.
        labels, pattern: labels of the files in addition to their folders; see ``own_labels.Known``.
    """
    known = Known.read(labels, pattern)
    for at, entries in walk(open_folder(root)):
        for entry in entries:
            file = posixpath.join(at, entry.name)
            if entry.reason or posixpath.splitext(file)[1].lower() not in EXTENSIONS:
                yield Rejected(printable(file), entry.reason or "unknown_format", entry.detail)
                continue
            try:
                said = known.of(file, {"class": file.split("/", 1)[0] if at else None})
            except Reject as error:
                reason = (
                    "no_class_folder" if error.reason == "no_class" and labels is None and pattern is None else error.reason
                )
                yield Rejected(printable(file), reason, error.detail)
            else:
                yield SequenceFile(key_of(file), file, *said)


def read_sequence(
    row: InFile, *, root: str, layout: Layout, form: TensorForm, bodies: BodyRule, leave_out: bool = False
) -> TensorRow:
    """Each step: the tensor of a file.

    Args:
        row: a listed file; its extension determines the format.
        root: folder of the files.
        layout: joints that every body must have.
        form: form of the tensor.
        bodies: rule for the bodies in NTU's text.
        leave_out: whether a BVH file may have other joints than the layout.

    Raises:
        Reject: as for the readers of the formats, ``completed`` and ``tensor_of``; ``missing_file``, ``too_large`` and others.
    """
    data = open_folder(root).read(row.file, max_bytes=MAX_BYTES)
    match posixpath.splitext(row.file)[1].lower():
        case ".json":
            return row_of_joints(row, joints_from_json(json_values(data)), layout, form)
        case ".npy":
            return row_of_joints(row, joints_from_npy(data), layout, form)
        case ".bvh":
            return row_of_joints(row, sequence_of_bvh(data, layout.joints, leave_out=leave_out), layout, form)
        case _:
            return tensor_row(row, sequence_of_bodies(parse_skeleton(data, joints=len(layout.joints)), bodies), layout, form)


def tensor_of_joints(row: WithJoints, *, layout: Layout, form: TensorForm) -> TensorRow:
    """Each step: the tensor of a sequence whose joints are in its row. Raises ``Reject`` as ``row_of_joints`` does."""
    return row_of_joints(InFile(row.key, row.file, row.class_name), row.joints, layout, form)


def tensor_of_npy(row: WithNpy, *, layout: Layout, form: TensorForm) -> TensorRow:
    """Each step: the tensor of joints in the bytes of an .npy file. Raises ``Reject`` also as ``joints_from_npy`` does."""
    return row_of_joints(InFile(row.key, row.file, row.class_name), joints_from_npy(row.joints.read()), layout, form)


def json_values(data: bytes) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        Reject: ``empty``, ``not_json`` (invalid, truncated, or nested too deep), ``no_skeletons``: no object with skeletons.
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
    """The sequence of ``skeletons``. Raises ``Reject`` as ``joints_from_json`` and ``sequence_of`` do."""
    return sequence_of(joints_from_json(values))


def joints_from_json(values: dict[str, Any]) -> NDArray[np.float64]:
    """The numbers in ``skeletons``, [T][V][C] for one body or [T][M][V][C], as (T, M, V, C).

    Raises:
        Reject: ``not_an_array``: frames or joints of different lengths, or values that are not numbers; ``no_frames``.
    """
    try:
        # As objects: an array of texts would take as much memory for each of them as for the longest.
        nested = np.asarray(values["skeletons"], dtype=object)
        if odd := {type(value).__name__ for value in nested.ravel().tolist()} - {"int", "float"}:
            message = "frames or joints of different lengths" if "list" in odd else " and ".join(sorted(odd))
            raise Reject("not_an_array", f"{message}: expected numbers, (frames, [bodies,] joints, axes)")
        joints = nested.astype(np.float64)
    except (ValueError, OverflowError) as error:
        raise Reject("not_an_array", str(error)[:100]) from None
    return joints_of_array(joints)


def joints_from_npy(data: bytes) -> NDArray[np.float64]:
    """The numbers of an .npy file, (T, V, C) for one body or (T, M, V, C), as (T, M, V, C).

    Raises:
        Reject: ``empty``, ``not_npy`` (invalid, truncated, or of objects), ``not_an_array``, ``no_frames``.
    """
    if not data:
        raise Reject("empty", "0 bytes")
    try:
        joints = decode_npy(data)
    except ValueError as error:
        raise Reject("not_npy", str(error)[:100]) from None
    return joints_of_array(joints)


def joints_of_array(joints: np.ndarray) -> NDArray[np.float64]:
    """Numbers (T, V, C) or (T, M, V, C) as (T, M, V, C). Raises ``Reject``: ``no_frames``, ``not_an_array``."""
    if joints.ndim and not len(joints):
        raise Reject("no_frames", "0 frames: expected at least 1")
    if joints.dtype.kind not in "fiu" or joints.ndim not in (3, 4):
        raise Reject("not_an_array", f"{joints.dtype} {joints.shape}: expected numbers, (frames, [bodies,] joints, axes)")
    with np.errstate(invalid="ignore"):  # NaN is handled later
        whole = joints.astype(np.float64, copy=False)
    return whole[:, None] if whole.ndim == 3 else whole
