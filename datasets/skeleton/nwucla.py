"""Northwestern-UCLA Multiview Action 3D (Wang et al., CVPR 2014), as the JSON files ``all_sqe`` that circulate with CTR-GCN.

A file ``a01_s02_e03_v01.json`` (action, subject, repetition, view) has ``file_name``, ``label`` (1 to 10) and ``skeletons``,
T frames of 20 joints of x, y, z in metres.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ...curation.rows import Reject, Rejected
from ...curation.stages.folder import open_folder, printable, walk
from .facts import facts
from .layouts import Layout
from .rows import InFile, ListedSequence, Sequence, TensorRow, sequence_of
from .tensors import TensorForm, tensor_row

MAX_BYTES = 1 << 28

_NAME = re.compile(r"a(\d\d)_s(\d\d)_e(\d\d)_v(\d\d)\Z", re.ASCII)


def list_nwucla(*, root: str) -> Iterator[ListedSequence | Rejected]:
    """Source step: the sequences of a folder by their names, in the order of the names.

    Turned away: ``bad_name``: a JSON file whose name does not say action, subject, repetition and view; ``unknown_action``.
    Files that are no JSON, and what cannot be listed, are turned away as well.
    """
    fact = facts().nwucla
    for at, entries in walk(open_folder(root)):
        for entry in entries:
            file = posixpath.join(at, entry.name)
            stem, extension = posixpath.splitext(entry.name)
            found = _NAME.match(stem)
            if entry.reason or extension != ".json":
                yield Rejected(printable(file), entry.reason or "not_json", entry.detail)
            elif not found:
                yield Rejected(printable(file), "bad_name", "a01_s01_e00_v01.json is the form of a name")
            else:
                action, subject, repetition, view = map(int, found.groups())
                if action not in fact.actions:
                    yield Rejected(file, "unknown_action", f"action {action}: there are {', '.join(map(str, fact.actions))}")
                    continue
                name = fact.classes[fact.actions.index(action)]
                role = "train" if view in fact.x_view_train_cameras else "test"
                yield ListedSequence(stem, file, name, None, view, subject, repetition, None, role, None)


def read_nwucla(row: InFile, *, root: str, layout: Layout, form: TensorForm) -> TensorRow:
    """Each step: the tensor of a file that ``list_nwucla`` listed.

    Raises:
        Reject: as ``sequence_from_json`` and ``tensor_of`` do, and ``label_differs`` where file and name disagree.
    """
    data = open_folder(root).read(row.file, max_bytes=MAX_BYTES)
    values = json_values(data)
    fact = facts().nwucla
    label = values.get("label")
    if label is not None and label != fact.classes.index(row.class_name) + 1:
        raise Reject("label_differs", f"label {label!r:.40}, by its name it is {row.class_name!r}")
    return tensor_row(row, sequence_from_json(values), layout, form)


def json_values(data: bytes) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        Reject: ``empty``, ``not_json`` (none, cut short, or nested too deep), ``no_skeletons``: no object that has them.
    """
    if not data.strip():
        raise Reject("empty", f"{len(data)} bytes")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Reject("not_json", f"{type(error).__name__}: {str(error)[:80]}") from None
    if not isinstance(values, dict) or "skeletons" not in values:
        raise Reject("no_skeletons", f"{type(values).__name__} without 'skeletons'")
    return cast("dict[str, Any]", values)


def sequence_from_json(values: dict[str, Any]) -> Sequence:
    """The sequence of ``skeletons``: [T][V][C] of one body.

    Raises:
        Reject: ``not_an_array``: frames or joints of different lengths, or no numbers; and as ``sequence_of`` does.
    """
    try:
        joints = np.asarray(values["skeletons"], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise Reject("not_an_array", str(error)[:100]) from None
    if joints.size == 0:
        raise Reject("no_frames", "0 frames: at least 1 is wanted")
    if joints.ndim != 3:
        raise Reject("not_an_array", f"shape {joints.shape}: frames, joints, axes are wanted")
    return sequence_of(joints[:, None])
