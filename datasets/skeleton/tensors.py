"""Convert joints over time to tensors (C, T, V, M): centring, scaling, number of frames, modalities. Deterministic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rows import Reject
from .layouts import Layout
from .rows import MAX_FRAMES, CompletedRow, InFile, Sequence, TensorRow

MAX_AXES = 10

Modality = Literal["joint", "bone", "joint_motion", "bone_motion"]
LengthRule = Literal["resample", "pad", "interpolate"]
Missing = Literal["reject", "hold", "interpolate"]


@dataclass(frozen=True)
class TensorForm:
    """How a sequence becomes a tensor; the steps are applied in this order.

    Attributes:
        centre_joint: joint whose position in the first frame of the first body is subtracted from all positions; None: no
            centring.
        scale: ``min_max`` scales each axis of the whole sequence to [-1, 1] (a constant axis to 0); or ``none``.
        fit: how a sequence gets the right length. ``resample``: frames ``linspace(0, T - 1, frames)``, rounded down; ``pad``:
            zeros after the last frame; ``interpolate``: linear, like torch's bilinear with ``align_corners=False``.
        frames: number of frames, T of the tensor.
        bodies: number of bodies, M of the tensor: the first ones of the sequence, padded with zeros. Networks process each
            body separately and average the features of all, absent ones included, as in CTR-GCN's code.
        modality: ``joint``; ``bone``: each joint minus its parent; ``joint_motion`` and ``bone_motion``: the next frame minus
            this one, 0 for the last.
        axes: names of the values of a joint, in the order of the source; for a table, the names of its columns.
        confidence: name of the axis that is not a coordinate but the confidence of a joint; stored next to the tensor.
        least_confidence: joints with a lower confidence count as missing.
        missing: how missing joints are treated, before all other steps. ``reject``: the sequence is rejected; ``hold``: a joint
            keeps its last known position, or takes its first one; ``interpolate``: a straight line between the last and the
            next known position.
        max_missing: a sequence with a larger share of missing joints, over all frames, is rejected; 0 to 1.
    """

    scale: Literal["min_max", "none"]
    fit: LengthRule
    frames: int
    bodies: int
    centre_joint: int | None = None
    modality: Modality = "joint"
    axes: tuple[str, ...] = ("x", "y", "z")
    confidence: str | None = None
    least_confidence: float = 0.0
    missing: Missing = "reject"
    max_missing: float = 0.5

    def __post_init__(self) -> None:
        for name, value, most in (("frames", self.frames, MAX_FRAMES), ("bodies", self.bodies, 100)):
            if not 1 <= value <= most:
                raise ValueError(f"tensor {name} is {value}: 1 to {most} are possible")
        if self.centre_joint is not None and self.centre_joint < 0:
            raise ValueError(f"tensor centre_joint is {self.centre_joint}: joints are numbered from 0")
        named = ", ".join(self.axes)
        if len(set(self.axes)) < len(self.axes) or not 1 <= len(self.space) <= MAX_AXES or not all(self.axes):
            raise ValueError(f"tensor axes are {named!r}: expected 1 to {MAX_AXES} different names of axes of space")
        if self.confidence is not None and self.confidence not in self.axes:
            raise ValueError(f"tensor confidence is {self.confidence!r}, which is not in tensor.axes, {named}")
        if self.least_confidence and self.confidence is None:
            raise ValueError(f"tensor least_confidence is {self.least_confidence:g}: tensor confidence names no axis")
        if not 0 <= self.max_missing <= 1:
            raise ValueError(f"tensor max_missing is {self.max_missing:g}: expected a share from 0 to 1")

    @property
    def space(self) -> list[int]:
        """Indices of the coordinates among all axes."""
        return [number for number, name in enumerate(self.axes) if name != self.confidence]

    @property
    def completes(self) -> bool:
        """Whether joints may be missing or have a confidence; rows are then ``CompletedRow``."""
        return self.missing != "reject" or self.confidence is not None


def tensor_of(sequence: Sequence, layout: Layout, form: TensorForm) -> NDArray[np.float32]:
    """The tensor of a sequence, (C, T, V, M) float32.

    Absent bodies stay 0 in all steps except ``interpolate``, which ignores presence; ``min_max`` uses only present bodies.

    Raises:
        Reject: ``wrong_joint_count``: not the layout's; ``wrong_axis_count``: not the number of coordinates in ``axes``;
            ``too_long``: more frames than the tensor has with ``pad``; ``not_finite``: coordinates too large for float32.
    """
    frames, bodies, joints, axes = sequence.joints.shape
    if joints != len(layout.joints):
        raise Reject("wrong_joint_count", f"{joints} joints: layout {layout.name} has {len(layout.joints)}")
    if axes != len(form.space):
        message = f"{axes} axes: expected {len(form.space)}; see tensor.axes"
        raise Reject("wrong_axis_count", message)
    if form.fit == "pad" and frames > form.frames:
        raise Reject("too_long", f"{frames} frames: at most {form.frames} are padded")
    taken = min(bodies, form.bodies)
    with np.errstate(over="ignore", invalid="ignore"):
        found = modality_of(_fixed_size(sequence, taken, form), layout, form.modality)
    if not np.isfinite(found).all():
        raise Reject("not_finite", "coordinates that float32 cannot hold")
    return found


def _fixed_size(sequence: Sequence, taken: int, form: TensorForm) -> NDArray[np.float32]:
    """The first bodies of a sequence, (C, T, V, M)."""
    x = sequence.joints[:, :taken]
    present = sequence.present[:, :taken, None, None]
    if form.centre_joint is not None:
        first = int(sequence.present[:, 0].argmax())
        x = np.where(present, x - x[first, 0, form.centre_joint], 0)
    if form.scale == "min_max":
        x = np.where(present, _scaled(x, x[sequence.present[:, :taken]].reshape(-1, x.shape[3])), 0)
    full = np.zeros((x.shape[3], form.frames, x.shape[2], form.bodies), dtype=np.float32)
    full[..., :taken] = _fitted(x, form).transpose(3, 0, 2, 1)
    return full


def _scaled(x: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    low, high = values.min(0), values.max(0)
    span = high - low
    # Same order of operations as in the released code, for bit-identical results.
    return np.where(span > 0, (x - low) / np.where(span > 0, span, 1) * 2 - 1, 0)


def _fitted(x: NDArray[Any], form: TensorForm) -> NDArray[Any]:
    count = len(x)
    if form.fit == "resample":
        return x[np.linspace(0, count - 1, form.frames).astype(np.int64)]
    if form.fit == "pad":
        return np.concatenate([x, np.zeros((form.frames - count, *x.shape[1:]), dtype=x.dtype)])
    place = np.maximum((np.arange(form.frames) + 0.5) * (count / form.frames) - 0.5, 0)
    low = np.minimum(place.astype(np.int64), count - 1)
    share = (place - low).astype(x.dtype)[:, None, None, None]
    return x[low] * (1 - share) + x[np.minimum(low + 1, count - 1)] * share


def modality_of(x: NDArray[np.float32], layout: Layout, modality: Modality) -> NDArray[np.float32]:
    """Convert joint tensors to another modality.

    Args:
        x: (..., C, T, V, M).
        modality: see ``TensorForm``. CTR-GCN's joint pairs of the bones are those of ``layout.parents()``.

    Returns:
        Array of the shape of ``x``; ``x`` itself for ``joint``.
    """
    if modality in ("bone", "bone_motion"):
        x = x - x[..., layout.parents(), :]
    if modality in ("joint_motion", "bone_motion"):
        moved = np.zeros_like(x)
        moved[..., :-1, :, :] = x[..., 1:, :, :] - x[..., :-1, :, :]
        return moved
    return x


def node_vectors(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features of joints: (n, C, T, V, 1) to (n, V, T * C), the axes of frame 0, then of frame 1, ...

    With M > 1 bodies, (n, C, T, V, M) to (n, M, V, T * C).
    """
    n, axes, frames, joints, bodies = x.shape
    found = np.ascontiguousarray(x.transpose(0, 4, 3, 2, 1)).reshape(n, bodies, joints, frames * axes)
    return found[:, 0] if bodies == 1 else found


def tensor_row(row: InFile, sequence: Sequence, layout: Layout, form: TensorForm) -> TensorRow:
    """The row of a sequence, a ``CompletedRow`` if joints may be missing. Raises ``Reject`` as ``tensor_of`` does."""
    bodies = min(int(sequence.present.any(0).sum()), form.bodies)
    x = tensor_of(sequence, layout, form)
    made = TensorRow(row.key, row.file, row.class_name, x, len(sequence.joints), bodies)
    if not form.completes:
        return made
    known = sequence.confidence
    known = np.repeat(sequence.present[:, :, None], x.shape[2], axis=2) if known is None else known
    taken = np.zeros((*x.shape[1:],), dtype=np.float32)
    taken[..., : known.shape[1]] = _fitted(known[:, : form.bodies, :, None].astype(np.float64), form)[..., 0].transpose(0, 2, 1)
    return CompletedRow(made.key, made.file, made.class_name, x, made.source_frames, bodies, sequence.missing, taken)
