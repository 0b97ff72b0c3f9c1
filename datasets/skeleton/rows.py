"""Rows of skeleton sequences, common to all sources, and a sequence in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...curation.rows import Blob, Reject, Shape
from ..reader.decode import decode_npy

MAX_FRAMES = 100_000
"""Longer sequences are rejected: a small file can claim many gigabytes."""


@dataclass(frozen=True)
class ListedSequence:
    """A sequence known by name, not yet read.

    Attributes:
        key: unique; letters, digits, ``_`` and ``-``.
        file: path within the source, or place in an array; "" if only the name is known.
        class_name: the action.
        setup, camera, performer, replication: from the name; None if it does not contain them.
        x_sub, x_view, x_set: ``train`` or ``test`` in the published protocol of that name; None if there is none.
    """

    key: str
    file: str
    class_name: str
    setup: int | None = None
    camera: int | None = None
    performer: int | None = None
    replication: int | None = None
    x_sub: str | None = None
    x_view: str | None = None
    x_set: str | None = None


@dataclass(frozen=True)
class ListedArray:
    """``ListedSequence`` for an array, for which more may be known than from the name.

    Attributes:
        camera, performer: as written in the source, else from the name; None if unknown.
        side: ``train``, ``val`` or ``test`` in the source; None if the source has no sides.
    """

    key: str
    file: str
    class_name: str
    setup: int | None = None
    camera: str | None = None
    performer: str | None = None
    replication: int | None = None
    x_sub: str | None = None
    x_view: str | None = None
    x_set: str | None = None
    side: str | None = None


@dataclass(frozen=True)
class InFile:
    """Columns of a listed sequence that a reading step needs."""

    key: str
    file: str
    class_name: str


@dataclass(frozen=True)
class WithJoints(InFile):
    """``InFile`` with joints instead of a file: (T, M, V, axes), with the same T in all rows; else use ``WithNpy``."""

    joints: Annotated[np.ndarray, Shape((-1, -1, -1, -1), "float32")]


@dataclass(frozen=True)
class SequenceFile(InFile):
    """A sequence of an own source, not yet read, with its labels.

    Attributes:
        camera, performer: as written in the source; None if unknown.
        side: ``train``, ``val`` or ``test`` in the source; None if unknown.
    """

    camera: str | None = None
    performer: str | None = None
    side: str | None = None


@dataclass(frozen=True)
class WithNpy(InFile):
    """``InFile`` with its joints as the bytes of an .npy file, (T, V, axes) or (T, M, V, axes), NaN where one is missing.

    Sequences may differ in their number of frames, while arrays in rows have one shape.
    """

    joints: Blob

    def read(self) -> NDArray[Any]:
        """The joints. Raises ``ValueError`` if they are not an array."""
        return decode_npy(self.joints.read())


@dataclass(frozen=True)
class OwnSequence(WithNpy):
    """``SequenceFile`` with its joints."""

    camera: str | None = None
    performer: str | None = None
    side: str | None = None


@dataclass(frozen=True)
class TensorRow:
    """A sequence as a tensor.

    Attributes:
        x: (C, T, V, M): coordinates, frames, joints, bodies; zeros where a body or frame is missing.
        source_frames: number of frames in the source, which may differ from T.
        bodies: number of bodies in the tensor.
    """

    key: str
    file: str
    class_name: str
    x: Annotated[np.ndarray, Shape((-1, -1, -1, -1), "float32")]
    source_frames: int
    bodies: int


@dataclass(frozen=True)
class CompletedRow(TensorRow):
    """A tensor from joints of which some may have been missing.

    Attributes:
        missing: number of missing joints, over all frames and bodies of the source.
        confidence: (T, V, M) for the tensor: from the source; if it has none, 1, and 0 for missing joints.
    """

    missing: int
    confidence: Annotated[np.ndarray, Shape((-1, -1, -1), "float32")]


@dataclass(frozen=True)
class Sequence:
    """Joints over time, of one or several bodies.

    Attributes:
        joints: (T, M, V, C) float32 or float64, in the units of the source; zeros where a body is not in a frame.
        present: (T, M) bool: whether the body is in the frame.
        missing: number of joints that were missing and have been filled in.
        confidence: (T, M, V), see ``CompletedRow``; None: 1 for all present joints.
    """

    joints: NDArray[Any]
    present: NDArray[np.bool_]
    missing: int = 0
    confidence: NDArray[Any] | None = None


def sequence_of(joints: NDArray[Any]) -> Sequence:
    """A sequence from (T, M, V, C) numbers: a body is in a frame if its numbers are not all 0.

    Raises:
        Reject: ``no_frames``: T is 0; ``not_finite``: NaN or an infinity; ``no_body``: only zeros.
    """
    if not joints.shape[0]:
        raise Reject("no_frames", "0 frames: expected at least 1")
    if not np.isfinite(joints).all():
        frame, body, joint, _ = np.argwhere(~np.isfinite(joints))[0].tolist()
        raise Reject("not_finite", f"frame {frame}, body {body}, joint {joint}: NaN or infinite")
    present = (joints != 0).any(axis=(2, 3))
    if not present.any():
        raise Reject("no_body", f"{joints.shape[0]} frames of zeros")
    return Sequence(joints, present)
