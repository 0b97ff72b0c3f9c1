"""Missing joints: separate coordinates from confidences, and fill in or reject missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.rows import Reject
from .layouts import Layout
from .rows import InFile, Sequence, TensorRow
from .tensors import TensorForm, tensor_row


def row_of_joints(row: InFile, joints: NDArray[Any], layout: Layout, form: TensorForm) -> TensorRow:
    """The row for joints from an own source. Raises ``Reject`` as ``completed`` and ``tensor_of`` do."""
    return tensor_row(row, completed(joints, layout, form), layout, form)


def completed(joints: NDArray[Any], layout: Layout, form: TensorForm) -> Sequence:
    """A sequence from (T, M, V, axes) numbers, with missing joints filled in as ``form`` says.

    A joint is missing in a frame if one of its coordinates is NaN, or its confidence is NaN or less than ``least_confidence``.
    A body whose coordinates are all 0 in a frame, or NaN in all frames, is absent rather than missing. With a
    ``least_confidence`` it is missing between its first and its last frame, because trackers write 0 when they lose it.

    Raises:
        Reject: ``wrong_joint_count``, ``wrong_axis_count``; ``not_finite``: an infinity; ``missing_joint``, ``low_confidence``:
            if nothing is filled in; ``never_seen``: a joint is missing in all frames; ``too_many_missing``: see
            ``max_missing``; ``no_frames``, ``no_body``.
    """
    frames, _, count, axes = joints.shape
    if not frames:
        raise Reject("no_frames", "0 frames: expected at least 1")
    if count != len(layout.joints):
        raise Reject("wrong_joint_count", f"{count} joints: layout {layout.name} has {len(layout.joints)}")
    if axes != len(form.axes):
        message = f"{axes} axes: expected {len(form.axes)}, {', '.join(form.axes)}; see tensor.axes"
        raise Reject("wrong_axis_count", message)
    space = joints if form.confidence is None else joints[..., form.space]
    space = space if space.dtype.kind == "f" else space.astype(np.float64)
    infinite = np.asarray(np.isinf(joints).any(3))
    if infinite.any():
        raise Reject("not_finite", f"{_place(infinite, layout)}: infinite")
    absent = np.asarray(np.isnan(space).all(axis=(0, 2, 3)))
    space = np.where(absent[:, None, None], 0, space) if absent.any() else space
    present = (space != 0).any(axis=(2, 3))
    if form.least_confidence:
        present = np.logical_or.accumulate(present) & np.logical_or.accumulate(present[::-1])[::-1]
    if not present.any():
        raise Reject("no_body", f"{frames} frames without a coordinate that is neither NaN nor 0")
    lost = np.asarray(np.isnan(space).any(3)) & present[:, :, None]
    if form.missing == "reject" and lost.any():
        raise Reject("missing_joint", f"{_place(lost, layout)}: NaN, or no value; see tensor.missing")
    confidence: NDArray[Any] | None = None
    if form.confidence is not None:
        confidence = np.where(present[:, :, None], joints[..., form.axes.index(form.confidence)], 0)
        unsure = present[:, :, None] & ~(confidence >= form.least_confidence)
        if form.missing == "reject" and unsure.any():
            message = f"{_place(unsure, layout)}: less than tensor.least_confidence = {form.least_confidence:g}, or NaN"
            raise Reject("low_confidence", f"{message}; see tensor.missing")
        lost |= unsure
        confidence = np.nan_to_num(confidence)
    if not lost.any():
        return Sequence(space, present, 0, confidence)
    share = lost.sum() / (present.sum() * count)
    if share > form.max_missing:
        message = f"{share:.1%} of the joints, and tensor.max_missing is {form.max_missing:g}"
        raise Reject("too_many_missing", message)
    filled = np.array(space, dtype=np.float64)
    for body in range(space.shape[1]):
        for joint in np.flatnonzero(lost[:, body].any(0)).tolist():
            there = np.flatnonzero(present[:, body] & ~lost[:, body, joint])
            if not len(there):
                raise Reject("never_seen", f"joint {layout.joints[joint]!r} of body {body} is in no frame")
            _fill(filled[:, body, joint], np.flatnonzero(lost[:, body, joint]), there, form.missing == "hold")
    confidence = (present[:, :, None] & ~lost).astype(np.float32) if confidence is None else confidence
    return Sequence(filled.astype(space.dtype), present, int(lost.sum()), confidence)


def _fill(track: NDArray[np.float64], lost: NDArray[np.int64], there: NDArray[np.int64], hold: bool) -> None:
    """Fill the frames ``lost`` of one joint (T, C) in place, from the frames ``there`` in which it is present."""
    if hold:
        track[lost] = track[there[np.maximum(np.searchsorted(there, lost) - 1, 0)]]
        return
    for axis in range(track.shape[1]):
        track[lost, axis] = np.interp(lost, there, track[there, axis])


def _place(odd: NDArray[np.bool_], layout: Layout) -> str:
    frame, body, joint = np.argwhere(odd)[0].tolist()
    return f"frame {frame}, body {body}, joint {layout.joints[joint]!r}"
