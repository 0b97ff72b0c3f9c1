"""Generated sequences for configurations that need no files: a body of 20 joints that performs one of ten actions.

Every person has different proportions, stands differently, and moves at a different speed and amplitude. The actions differ in
which limb moves, how far and how often, so that classes are distinguished by motion and not by posture.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import rng
from .layouts import Layout, built_in_layouts
from .rows import InFile, ListedSequence, TensorRow, sequence_of
from .tensors import TensorForm, tensor_row

LAYOUT = "kinect_v1"
MOST_FRAMES = 70

# x to the right of the picture, y up, z away; metres.
_POSE = np.asarray(
    [
        (0, 0, 0), (0, 0.1, 0), (0, 0.5, 0), (0, 0.7, 0), (-0.18, 0.48, 0), (-0.22, 0.22, 0), (-0.24, -0.02, 0.02),
        (-0.24, -0.1, 0.03), (0.18, 0.48, 0), (0.22, 0.22, 0), (0.24, -0.02, 0.02), (0.24, -0.1, 0.03), (-0.1, -0.05, 0),
        (-0.11, -0.45, 0), (-0.12, -0.85, 0.02), (-0.13, -0.9, -0.08), (0.1, -0.05, 0), (0.11, -0.45, 0),
        (0.12, -0.85, 0.02), (0.13, -0.9, -0.08),
    ]
)  # fmt: skip
_ACROSS, _UP, _DEEP = np.eye(3)

Rotation = tuple[int, NDArray[np.float64], Callable[[NDArray[np.float64]], NDArray[np.float64]]]
"""The joint about which a limb rotates, the axis, and the angle in radians as a function of time, [0, 1]."""


def _once(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sin(np.pi * t)


def _often(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sin(6 * np.pi * t)


def _held(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.minimum(1, 4 * np.minimum(t, 1 - t))


_LEFT_ARM, _LEFT_ELBOW, _RIGHT_ARM, _RIGHT_ELBOW = 4, 5, 8, 9
_LEFT_LEG, _LEFT_KNEE, _RIGHT_LEG, _RIGHT_KNEE, _WAIST = 12, 13, 16, 17, 1

ACTIONS: dict[str, tuple[Rotation, ...]] = {
    "raise left arm": ((_LEFT_ARM, _DEEP, lambda t: -2.4 * _once(t)),),
    "raise right arm": ((_RIGHT_ARM, _DEEP, lambda t: 2.4 * _once(t)),),
    "wave left hand": ((_LEFT_ARM, _DEEP, lambda t: -1.6 * _held(t)), (_LEFT_ELBOW, _DEEP, lambda t: -0.7 * (1 + _often(t)))),
    "wave right hand": ((_RIGHT_ARM, _DEEP, lambda t: 1.6 * _held(t)), (_RIGHT_ELBOW, _DEEP, lambda t: 0.7 * (1 + _often(t)))),
    "kick left": ((_LEFT_LEG, _ACROSS, lambda t: 1.1 * _once(t)), (_LEFT_KNEE, _ACROSS, lambda t: -0.4 * _once(2 * t))),
    "kick right": ((_RIGHT_LEG, _ACROSS, lambda t: 1.1 * _once(t)), (_RIGHT_KNEE, _ACROSS, lambda t: -0.4 * _once(2 * t))),
    "bow": ((_WAIST, _ACROSS, lambda t: -0.9 * _once(t)),),
    "lean sideways": ((_WAIST, _DEEP, lambda t: 0.7 * _once(2 * t)),),
    "march": ((_LEFT_LEG, _ACROSS, lambda t: 0.6 * _often(t)), (_RIGHT_LEG, _ACROSS, lambda t: -0.6 * _often(t))),
    "swing both arms": ((_LEFT_ARM, _ACROSS, lambda t: 0.9 * _often(t)), (_RIGHT_ARM, _ACROSS, lambda t: 0.9 * _often(t))),
}
"""The actions: class -> rotations."""


def list_drawn(*, per_class: int, broken: int) -> Iterator[ListedSequence]:
    """Source step: names of sequences, class by class.

    Args:
        per_class: sequences of each class.
        broken: additional sequences of the first class, which contain NaN.
    """
    for label, name in enumerate(ACTIONS):
        for number in range(per_class + (broken if label == 0 else 0)):
            stem = f"{name.replace(' ', '_')}-{number:04d}" + ("-broken" if number >= per_class else "")
            yield ListedSequence(stem, stem, name)


def read_drawn(row: InFile, *, layout: Layout, form: TensorForm, noise_m: float, seed: int) -> TensorRow:
    """Each step: draw the sequence with this name.

    Args:
        noise_m: standard deviation of the sensor's noise, metres.
        seed: seed for all random draws, together with the row's key.

    Raises:
        Reject: ``not_finite`` for the broken sequences, and as for ``tensor_of``.
    """
    joints = draw_sequence(row.class_name, rng(seed, "skeleton.drawn", row.key), noise_m=noise_m)
    if row.key.endswith("-broken"):
        joints[0, 0] = np.nan
    return tensor_row(row, sequence_of(joints[:, None]), layout, form)


def draw_sequence(action: str, generator: np.random.Generator, *, noise_m: float) -> NDArray[np.float64]:
    """Joints over time, (T, 20, 3) float64 in metres, T from 20 to ``MOST_FRAMES``."""
    frames = int(generator.integers(20, MOST_FRAMES + 1))
    begin, pace = generator.uniform(-0.1, 0.1), generator.uniform(0.85, 1.1)
    time = np.clip(begin + pace * np.linspace(0, 1, frames), 0, 1)
    pose = _POSE * generator.uniform(0.9, 1.1, size=3)
    moved = np.tile(pose, (frames, 1, 1))
    for joint, axis, angle in ACTIONS[action]:
        _turn(moved, joint, axis, generator.uniform(0.7, 1.2) * angle(time))
    for joint in (_LEFT_ARM, _RIGHT_ARM, _WAIST):  # small motion that does not depend on the class
        _turn(moved, joint, _ACROSS, generator.normal(0, 0.12) * _once(time))
    heading = _rotations(_UP, np.full(1, generator.uniform(-0.6, 0.6)))[0]
    moved = moved @ heading.T + [generator.uniform(-1, 1), generator.uniform(-0.2, 0.2), generator.uniform(2, 4)]
    # Six digits, as in files: this removes machine-dependent last bits of sines and sums.
    return np.round(moved + generator.normal(0, noise_m, size=moved.shape), 6)


def _turn(joints: NDArray[np.float64], joint: int, axis: NDArray[np.float64], angle: NDArray[np.float64]) -> None:
    """Rotate the limb beyond ``joint`` about this joint, in place."""
    limb = _limbs()[joint]
    pivot = joints[:, joint, None]
    turned = np.einsum("tij,tvj->tvi", _rotations(axis, angle), joints[:, limb] - pivot)
    joints[:, limb] = turned + pivot


def _rotations(axis: NDArray[np.float64], angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation matrices (T, 3, 3) about a unit axis by angles (T,) in radians (Rodrigues)."""
    cross = np.cross(np.eye(3), -axis)
    sine, cosine = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.eye(3) + sine * cross + (1 - cosine) * (cross @ cross)


@functools.cache
def _limbs() -> dict[int, NDArray[np.int64]]:
    """Joint -> the joints beyond it, away from the hips."""
    parents = built_in_layouts()[LAYOUT].parents()
    parents[[0, 1, 2]] = [0, 0, 1]  # the trunk is fixed at the hips, not at the shoulders, the layout's centre
    limbs: dict[int, list[int]] = {joint: [] for joint in range(len(parents))}
    for joint in limbs:
        at = joint
        while at != parents[at]:
            at = int(parents[at])
            limbs[at].append(joint)
    return {joint: np.asarray(limb, dtype=np.int64) for joint, limb in limbs.items()}
