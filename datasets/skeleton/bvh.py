"""BVH: a hierarchy of joints and their rotations over time, converted to joint positions (forward kinematics).

A file has two parts. ``HIERARCHY`` is a tree of ``ROOT``, ``JOINT`` and ``End Site``, each with its ``OFFSET`` from its parent
and its ``CHANNELS``. ``MOTION`` has the number of frames, the frame time, and a line of numbers per frame, all channels in the
order of the file. Rotations are in degrees and are applied in the order of the channels, each about the axes that result from
the previous ones. Positions of the root are added to its offset; those of another joint replace its offset, as exporters write
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...curation.rows import Reject
from .layouts import MAX_JOINTS, Layout
from .rows import MAX_FRAMES

MAX_PLACES = 1 << 23
"""Maximum number of joints times frames: lines without numbers cost almost nothing in a file."""

_CHANNELS = {f"{axis}{kind}": (kind, number) for number, axis in enumerate("xyz") for kind in ("position", "rotation")}
_END = " end"


@dataclass
class BvhJoint:
    """A joint of the hierarchy. ``parent`` is -1 for the root; ``channels`` are (position or rotation, axis) as in the file."""

    name: str
    parent: int
    offset: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    channels: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


def sequence_of_bvh(data: bytes, joints: Sequence[str], *, leave_out: bool = False) -> NDArray[np.float64]:
    """Positions of some joints, (T, 1, V, 3), in the unit of the file.

    Args:
        data: the file.
        joints: names in the requested order; an end site is named by its joint and ``" end"``.
        leave_out: whether the file may have other joints; end sites may always be left out.

    Raises:
        Reject: ``wrong_joint_count``: a joint is not in the file, or the file has one that is not requested; ``too_large``:
            more than ``MAX_PLACES``; and as for ``parse_bvh``.
    """
    hierarchy, motion = parse_bvh(data)
    place = {joint.name: number for number, joint in enumerate(hierarchy)}
    if absent := [name for name in joints if name not in place]:
        raise Reject("wrong_joint_count", f"it has no joint {absent[0]!r}; it has {', '.join(place)}"[:200])
    if (values := len(motion) * len(hierarchy)) > MAX_PLACES:
        raise Reject("too_large", f"{len(motion)} frames of {len(hierarchy)} joints: {values:,} places, {MAX_PLACES:,} at most")
    more = [name for name in place if name not in joints and not name.endswith(_END)]
    if more and not leave_out:
        message = f"joint {more[0]!r} of {len(more)} that the layout does not have: see source.other_joints"
        raise Reject("wrong_joint_count", message)
    return positions(hierarchy, motion)[:, None, [place[name] for name in joints]]


def layout_of_bvh(data: bytes, name: str) -> Layout:
    """The joints of a file without end sites, an edge from each to its parent, the root as centre. Raises ``Reject``."""
    hierarchy, _ = parse_bvh(data)
    kept = [number for number, joint in enumerate(hierarchy) if not joint.name.endswith(_END)]
    edges = tuple((new, kept.index(hierarchy[old].parent)) for new, old in enumerate(kept) if new)
    return Layout(name, tuple(hierarchy[old].name for old in kept), edges, 0)


def positions(hierarchy: Sequence[BvhJoint], motion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions of all joints, (T, joints, 3), from the channels, (T, channels)."""
    found = np.zeros((len(motion), len(hierarchy), 3))
    turned: list[NDArray[np.float64]] = []
    first = 0
    for number, joint in enumerate(hierarchy):
        local = np.tile(joint.offset, (len(motion), 1))
        turn = np.tile(np.eye(3), (len(motion), 1, 1))
        for column, (kind, axis) in enumerate(joint.channels, first):
            if kind == "rotation":
                turn = turn @ _rotations(axis, np.radians(motion[:, column]))
            elif joint.parent < 0:
                local[:, axis] += motion[:, column]
            else:
                local[:, axis] = motion[:, column]
        first += len(joint.channels)
        if joint.parent < 0:
            found[:, number] = local
        else:
            above = turned[joint.parent]
            found[:, number] = found[:, joint.parent] + np.einsum("tij,tj->ti", above, local)
            turn = above @ turn
        turned.append(turn)
    return found


def _rotations(axis: int, angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrices (T, 3, 3) of rotations about x, y or z, counter-clockwise as seen from the axis's tip."""
    one, other = (axis + 1) % 3, (axis + 2) % 3
    found = np.tile(np.eye(3), (len(angle), 1, 1))
    found[:, one, one] = found[:, other, other] = np.cos(angle)
    found[:, other, one] = np.sin(angle)
    found[:, one, other] = -np.sin(angle)
    return found


def parse_bvh(data: bytes) -> tuple[list[BvhJoint], NDArray[np.float64]]:
    """The joints in the order of the file, a parent before its children, and the channels, (T, channels).

    Raises:
        Reject: ``empty``; ``not_bvh``: not text, an invalid hierarchy, or more than ``MAX_JOINTS``; ``truncated``;
            ``trailing_lines``; ``no_frames``; ``too_long``; ``bad_frame``: the number of values is not the number of channels;
            ``not_a_number``; ``not_finite``.
    """
    if not data.strip():
        raise Reject("empty", f"{len(data)} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Reject("not_bvh", f"byte {error.start} is no text") from None
    head, mark, tail = text.partition("MOTION")
    if head.split(None, 1)[:1] != ["HIERARCHY"]:
        raise Reject("not_bvh", f"begins with {text[:20]!r}, and not with HIERARCHY")
    hierarchy = _hierarchy(head)
    if not mark:
        raise Reject("truncated", "no MOTION follows the hierarchy")
    return hierarchy, _motion(tail, sum(len(joint.channels) for joint in hierarchy))


def _hierarchy(head: str) -> list[BvhJoint]:
    joints: list[BvhJoint] = []
    above: list[int] = []  # joints whose braces are open
    words = iter(head.replace("{", " { ").replace("}", " } ").split()[1:])
    try:
        for word in words:
            if word in ("ROOT", "JOINT", "End"):
                name = " ".join(itertools.takewhile(lambda each: each != "{", words))
                if (word == "ROOT") != (not joints) or (joints and not above):
                    raise Reject("not_bvh", f"{word} {name[:40]!r}: expected one ROOT, and the others below it")
                name = f"{joints[above[-1]].name}{_END}" if word == "End" else name
                if len(joints) == MAX_JOINTS or any(name == joint.name for joint in joints):
                    message = (
                        f"joint {name[:40]!r} appears twice" if len(joints) < MAX_JOINTS else f"more than {MAX_JOINTS} joints"
                    )
                    raise Reject("not_bvh", message)
                above.append(len(joints))
                joints.append(BvhJoint(name, above[-2] if len(above) > 1 else -1))
            elif word == "}" and above:
                above.pop()
            elif word == "OFFSET" and above:
                joints[above[-1]].offset = _offset(list(itertools.islice(words, 3)))
            elif word == "CHANNELS" and above:
                joints[above[-1]].channels = _channels(words)
            else:
                raise Reject("not_bvh", f"{word[:40]!r} in the hierarchy: expected ROOT, JOINT, End Site, OFFSET or CHANNELS")
    except StopIteration:
        raise Reject("truncated", "the hierarchy is truncated") from None
    if above or not joints:
        raise Reject("truncated", f"{len(joints)} joints, {len(above)} of whose braces are not closed")
    return joints


def _offset(words: list[str]) -> NDArray[np.float64]:
    try:
        found = np.array([float(word) for word in words])
    except ValueError:
        raise Reject("not_bvh", f"OFFSET {' '.join(words)[:60]!r}: expected three numbers") from None
    if len(found) < 3 or not np.isfinite(found).all():
        raise Reject("truncated" if len(found) < 3 else "not_finite", f"OFFSET {' '.join(words)[:60]!r}")
    return found


def _channels(words: Iterator[str]) -> list[tuple[str, int]]:
    count = next(words)
    if not (count.isdecimal() and len(count) < 3 and int(count) <= len(_CHANNELS)):
        raise Reject("not_bvh", f"CHANNELS {count[:20]!r}: expected 0 to {len(_CHANNELS)}")
    names = [next(words).lower() for _ in range(int(count))]
    if odd := [name for name in names if name not in _CHANNELS or names.count(name) > 1]:
        raise Reject("not_bvh", f"channel {odd[0][:40]!r}: expected each of Xposition to Zrotation at most once")
    return [_CHANNELS[name] for name in names]


def _motion(text: str, channels: int) -> NDArray[np.float64]:
    lines = [line for line in text.splitlines() if line.strip()]
    count = lines[0].partition(":")[2].strip() if lines else ""
    if len(lines) < 2 or not lines[0].strip().startswith("Frames") or not count.isdecimal():
        raise Reject("truncated" if len(lines) < 2 else "not_bvh", "expected Frames: and Frame Time: after MOTION")
    if not (frames := lines[2:]):
        raise Reject("no_frames", f"0 frames: {count[:20]} are declared")
    if len(frames) > MAX_FRAMES:
        raise Reject("too_long", f"{len(frames)} frames: at most {MAX_FRAMES} are read")
    if len(count) > 9 or int(count) != len(frames):
        reason = "truncated" if len(count) > 9 or int(count) > len(frames) else "trailing_lines"
        raise Reject(reason, f"{len(frames)} frames: {count[:20]} are declared")
    found = np.empty((len(frames), channels))
    for number, line in enumerate(frames):
        words = line.split()
        if len(words) != channels:
            raise Reject("bad_frame", f"frame {number}: {len(words)} numbers, the channels are {channels}")
        try:
            found[number] = words
        except ValueError:
            raise Reject("not_a_number", f"frame {number}: {line.strip()[:60]!r}") from None
    if not np.isfinite(found).all():
        raise Reject("not_finite", f"frame {int(np.argwhere(~np.isfinite(found))[0, 0])}: NaN or infinite")
    return found
