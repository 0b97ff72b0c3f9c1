"""Rows of skeleton sequences, as every source of them gives them, and a sequence in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...curation.rows import Blob, Reject, Shape
from ..reader.decode import decode_npy

ROLES = ("train", "val", "test")

MAX_FRAMES = 100_000
"""Longer sequences are rejected: a small file can claim many gigabytes."""


@dataclass(frozen=True)
class ListedSequence:
    """A sequence that is known by name, not yet read.

    Attributes:
        key: unique; letters, digits, ``_`` and ``-``.
        file: path within the source, or place in an array; "" if only the name is known.
        class_name: its action.
        setup, camera, performer, replication: as the name says; None if it does not.
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
    """``ListedSequence`` of an array, of which more may be known than its name says.

    Attributes:
        camera, performer: in the words of the source; as the name says where the source does not; else None.
        side: ``train``, ``val`` or ``test`` in the source; None if it does not say.
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
    """What a reading step needs of a listed sequence."""

    key: str
    file: str
    class_name: str


@dataclass(frozen=True)
class WithJoints(InFile):
    """``InFile`` of a source that gives joints and no files: (T, M, V, axes), of one T in all rows; else see ``WithNpy``."""

    joints: Annotated[np.ndarray, Shape((-1, -1, -1, -1), "float32")]


@dataclass(frozen=True)
class SequenceFile(InFile):
    """A sequence of your own, not yet read, and what is known of it.

    Attributes:
        camera, performer: in the words of the source; None if it does not say.
        side: ``train``, ``val`` or ``test`` in the source; None if it does not say.
    """

    camera: str | None = None
    performer: str | None = None
    side: str | None = None


@dataclass(frozen=True)
class WithNpy(InFile):
    """``InFile`` with its joints as the bytes of an .npy file, (T, V, axes) or (T, M, V, axes), NaN where one is missing.

    Sequences may have any number of frames, while arrays of rows all have one shape.
    """

    joints: Blob

    def read(self) -> NDArray[Any]:
        """The joints. Raises ``ValueError`` if they are no array."""
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
        x: (C, T, V, M): axes of space, frames, joints, bodies; zeros where a body or frame is missing.
        source_frames: frames that the source has, of which a tensor may hold more or fewer.
        bodies: bodies that the tensor holds.
    """

    key: str
    file: str
    class_name: str
    x: Annotated[np.ndarray, Shape((-1, -1, -1, -1), "float32")]
    source_frames: int
    bodies: int


@dataclass(frozen=True)
class CompletedRow(TensorRow):
    """A tensor of joints some of which may have been missing.

    Attributes:
        missing: joints that were, of all frames and bodies of the source.
        confidence: (T, V, M) of the tensor: that of the source; where it has none 1, and 0 of joints that were missing.
    """

    missing: int
    confidence: Annotated[np.ndarray, Shape((-1, -1, -1), "float32")]


@dataclass(frozen=True)
class Sequence:
    """Joints over time, of one body or several.

    Attributes:
        joints: (T, M, V, C) float32 or float64, in the units of the source; zeros where a body is not in a frame.
        present: (T, M) bool: whether the body is in the frame.
        missing: joints that were missing, and are filled in.
        confidence: (T, M, V), see ``CompletedRow``; None: 1 of all that are present.
    """

    joints: NDArray[Any]
    present: NDArray[np.bool_]
    missing: int = 0
    confidence: NDArray[Any] | None = None


def sequence_of(joints: NDArray[Any]) -> Sequence:
    """A sequence from (T, M, V, C) numbers: a body is in a frame where not all of its numbers are 0.

    Raises:
        Reject: ``no_frames``: T is 0; ``not_finite``: NaN or an infinity; ``no_body``: nothing but zeros.
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
