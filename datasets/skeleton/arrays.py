"""Common array files: ST-GCN's .npy (N, C, T, V, M) with a pickle of names and labels, CTR-GCN's .npz with x_train, y_train.

Their sequences are padded with zeros: a sequence ends with its last frame with a body. Nothing is unpickled as code.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ...curation.pickles import UnsafePickle, load_plain
from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.folder import key_of, open_folder
from ..features.arrays import array_rows, array_shapes
from ..roles import ROLES
from .layouts import Layout
from .missing import row_of_joints
from .ntu import listed_by_name
from .own_labels import Known, class_of
from .rows import InFile, ListedArray, ListedSequence, TensorRow
from .tensors import TensorForm

MAX_LABEL_BYTES = 1 << 28


@dataclass(frozen=True)
class ArrayFile:
    """One file of sequences.

    Attributes:
        data: path relative to the root. ``.npy``: (N, C, T, V, M), as in ST-GCN and PaddleVideo. ``.npz``: ``x_train`` and
            ``x_test`` (N, T, M * V * 3); ``y_train`` and ``y_test``, one-hot rows (N, classes) as in CTR-GCN, or numbers, (N,)
            or (N, 1); optionally ``x_val`` and ``y_val``.
        labels: for an ``.npy`` file: a pickle of two lists, names and numbers, or an ``.npy`` file in the form of ``y_train``.
        side: for an ``.npy`` file: the side of a protocol or split that it holds, if any.
    """

    data: str
    labels: str | None = None
    side: Literal["train", "val", "test"] | None = None


def list_arrays(
    *,
    root: str,
    files: Sequence[ArrayFile],
    protocol: str | None,
    names: Sequence[str] | None,
    labels: str | None = None,
    pattern: str | None = None,
) -> Iterator[ListedArray | Rejected]:
    """Source step: the sequences of the files, in their order. A name of NTU's form is parsed.

    A sequence without a name is named by its file, side and number: ``file-train-000000``.

    Rejected: ``bad_label``: a number without a name or not whole, a one-hot row that is not zeros and a single 1; and as for
    ``Known.of``.

    Args:
        root: folder of the files, local or an fsspec URL.
        files: files to read.
        protocol: protocol to which the sides of the files belong: ``x_sub``, ``x_view`` or ``x_set``; None: sides in protocols
            come only from the names.
        names: class names by number; None: ``class000`` and so on.
        labels, pattern: other labels of the sequences; see ``own_labels.Known``.

    Raises:
        FileNotFoundError, ValueError: a file is missing or has another form, or labels have another length or kind.
    """
    known = Known.read(labels, pattern)
    for file in files:
        for entry, side, samples, numbers in _parts(root, file):
            for number, (sample, label) in enumerate(zip(samples, numbers, strict=True)):
                place = f"{file.data}{f':{entry}' if entry else ''}#{number}"
                row = listed_by_name(sample.removesuffix(".skeleton"), place) or ListedSequence(
                    key_of(printable(sample)), place, ""
                )
                filming = {field: str(value) for field in ("camera", "performer") if (value := getattr(row, field)) is not None}
                try:
                    if isinstance(label, str):
                        raise Reject("bad_label", label)
                    said = known.of(sample, {**filming, "class": class_of(label, names), "side": side})
                except Reject as error:
                    yield Rejected(place, error.reason, error.detail)
                    continue
                values: dict[str, Any] = {
                    **vars(row),
                    **dict(zip(("class_name", "camera", "performer", "side"), said, strict=True)),
                }
                if protocol is not None and side is not None:
                    values[protocol] = side
                yield ListedArray(**values)


Label = int | float | str
"""A number as in the file, not yet checked; or a message that describes an invalid one-hot row."""


def _parts(root: str, file: ArrayFile) -> Iterator[tuple[str, str | None, list[str], list[Label]]]:
    """Each array of a file: its entry, its side, and the names and labels of its rows."""
    shapes = array_shapes(root, file.data)
    if not file.data.endswith(".npz"):
        samples, labels = _labels(root, file, shapes[""][0] if shapes[""] else 0)
        yield "", file.side, samples, labels
        return
    stem = posixpath.splitext(file.data)[0]
    found = [side for side in ROLES if f"x_{side}" in shapes]
    if not found:
        raise ValueError(f"{file.data} has {', '.join(shapes)}: expected x_train and x_test")
    for side in found:
        x, y = shapes[f"x_{side}"], shapes.get(f"y_{side}")
        if not x or not y or x[0] != y[0]:
            raise ValueError(f"{file.data}: x_{side} is {x} and y_{side} {y}, expected as many rows")
        labels = _numbers(array_rows(root, file.data, f"y_{side}", 0, y[0]), f"{file.data}, y_{side}")
        yield f"x_{side}", side, [f"{stem}-{side}-{n:06d}" for n in range(y[0])], labels


def _numbers(labels: np.ndarray, place: str) -> list[Label]:
    """Class numbers from an array of numbers or of one-hot rows. A single column holds numbers."""
    if labels.dtype.kind not in "biuf" or labels.ndim > 2 or 0 in labels.shape[1:]:
        raise ValueError(f"{place} holds {labels.dtype} {labels.shape}: expected numbers (n,) or one-hot rows (n, classes)")
    if labels.ndim < 2 or labels.shape[1] == 1:
        return labels.reshape(-1).tolist()
    hot = ((labels == 0) | (labels == 1)).all(1) & (np.count_nonzero(labels, axis=1) == 1)
    message = "a row with {} numbers that are not 0, up to {}: expected zeros and a single 1"
    return [
        number if one else message.format(np.count_nonzero(row), row.max())
        for number, one, row in zip(labels.argmax(1).tolist(), hot.tolist(), labels, strict=True)
    ]


def _labels(root: str, file: ArrayFile, count: int) -> tuple[list[str], list[Label]]:
    if file.labels is None:
        raise ValueError(f"{file.data}: an .npy file needs a file of labels")
    if file.labels.endswith(".npy"):
        shape = array_shapes(root, file.labels)[""]
        numbers = _numbers(array_rows(root, file.labels, "", 0, shape[0] if shape else 0), file.labels)
        samples = [f"{posixpath.splitext(file.data)[0]}-{n:06d}" for n in range(len(numbers))]
    else:
        samples, numbers = _pickled(root, file.labels)
    if not len(samples) == len(numbers) == count:
        raise ValueError(f"{file.data} has {count} rows, {file.labels} {len(samples)} names and {len(numbers)} labels")
    return samples, numbers


def _pickled(root: str, path: str) -> tuple[list[str], list[Any]]:
    try:
        value = load_plain(open_folder(root).read(path, max_bytes=MAX_LABEL_BYTES), arrays=True)
    except UnsafePickle as error:
        raise ValueError(f"labels {path!r}: {error}") from None
    except Reject as error:
        raise ValueError(f"labels {path!r}: {error.reason} {error.detail}") from None
    lists = [cast("Any", item) for item in value] if isinstance(value, (list, tuple)) else []
    if len(lists) < 2 or not all(isinstance(item, (list, tuple, np.ndarray)) for item in lists[:2]):
        raise ValueError(f"labels {path!r}: expected a pickle of two lists, names and labels")
    samples = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in lists[0]]
    numbers = list(lists[1])
    if not all(isinstance(number, (int, np.integer)) for number in numbers):
        raise ValueError(f"labels {path!r}: the second list holds what is no whole number")
    return samples, [int(number) for number in numbers]


def read_arrays(rows: list[InFile], *, root: str, layout: Layout, form: TensorForm) -> list[TensorRow | Rejected]:
    """Batch step: the tensors of rows that ``list_arrays`` listed; adjacent rows are read together.

    Rejected: as for ``tensor_of`` and ``missing.completed``.
    """
    made: list[TensorRow | Rejected] = []
    for (path, entry, _), group in itertools.groupby(enumerate(rows), key=_stretch):
        some = [row for _, row in group]
        first = _place(some[0].file)[2]
        for row, values in zip(some, array_rows(root, path, entry, first, first + len(some)), strict=True):
            try:
                made.append(row_of_joints(row, _joints(values, len(layout.joints), len(form.axes)), layout, form))
            except Reject as error:
                made.append(Rejected(row.key, error.reason, error.detail))
    return made


def _place(file: str) -> tuple[str, str, int]:
    where, _, number = file.rpartition("#")
    path, colon, entry = where.rpartition(":")
    return (path, entry, int(number)) if colon else (where, "", int(number))


def _stretch(item: tuple[int, InFile]) -> tuple[str, str, int]:
    """A key that is equal for consecutive rows of one array."""
    path, entry, number = _place(item[1].file)
    return path, entry, number - item[0]


def _joints(values: np.ndarray, joints: int, axes: int) -> NDArray[Any]:
    """(T, M, V, C) up to the last frame with a body."""
    if values.dtype.kind not in "fiu":
        raise Reject("not_an_array", f"{values.dtype}: expected numbers")
    if values.ndim == 4:
        whole = values.transpose(1, 3, 2, 0)
    elif values.ndim == 2 and values.shape[1] % (joints * axes) == 0:
        whole = values.reshape(len(values), -1, joints, axes)
    else:
        raise Reject("wrong_joint_count", f"{values.shape} numbers, expected (C, T, V, M) or (T, M x {joints} x {axes})")
    there = np.flatnonzero((whole != 0).any(axis=(1, 2, 3)))
    return np.ascontiguousarray(whole[: there[-1] + 1] if len(there) else whole)
