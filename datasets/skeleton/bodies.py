"""Select the bodies of a file that form the sequence: the usual cleaning if a sensor saw several bodies or lost some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rows import Reject
from .ntu_text import ParsedBodies
from .rows import MAX_FRAMES, Sequence

TrackBy = Literal["place", "identity"]
OrderBy = Literal["first", "longest", "most_moving", "most_spread"]


@dataclass(frozen=True)
class Noise:
    """Which tracks are not persons, in files with two or more tracks (CTR-GCN's released code).

    Attributes:
        min_frames: tracks with this number of frames or fewer are dropped.
        max_spread: a frame in which a track is wider (x) than this times its height (y) is noisy.
        max_share: tracks with this share of noisy frames or more are dropped, but never the only track left. The motion of the
            remaining ones is measured without their noisy frames, if it is smaller then.
    """

    min_frames: int
    max_spread: float
    max_share: float

    def __post_init__(self) -> None:
        if self.min_frames < 0 or self.max_spread < 0 or not 0 <= self.max_share <= 1:
            raise ValueError(
                f"noise: min_frames is {self.min_frames}, max_spread {self.max_spread:g}, max_share {self.max_share:g}: "
                "expected at least 0, at least 0, and 0 to 1"
            )


@dataclass(frozen=True)
class BodyRule:
    """How the bodies of the frames become the bodies of a sequence.

    Attributes:
        track: how bodies of different frames are linked to a track: by their ``place`` in the frame's list, or by the sensor's
            ``identity``.
        most_tracks: maximum number of places or identities; further ones are ignored.
        order: order of the tracks, best first, ties in order of appearance. ``first``: order of appearance; ``longest``: number
            of frames; ``most_moving``: sum of the variances of x, y, z over all joints and frames; ``most_spread``: sum of
            their standard deviations.
        bodies: maximum number of bodies of the sequence.
        noise: tracks to drop; None: none.
        join: whether tracks that do not overlap in time are joined: each, best first, is added to the first body (1 or 2)
            whose time span it does not overlap, or dropped if there is none.
        drop_empty_frames: whether frames without a body are dropped.
        close_gaps: whether gaps in a track are closed: its later frames move forward.
    """

    track: TrackBy
    most_tracks: int
    order: OrderBy
    bodies: int
    noise: Noise | None = None
    join: bool = False
    drop_empty_frames: bool = False
    close_gaps: bool = False

    def __post_init__(self) -> None:
        for name, value in (("most_tracks", self.most_tracks), ("bodies", self.bodies)):
            if not 1 <= value <= 100:
                raise ValueError(f"{name} is {value}: 1 to 100 are possible")


BodyPreset = Literal["st_gcn", "two_s_agcn", "ctr_gcn", "longest", "most_moving"]

PRESETS: dict[BodyPreset, BodyRule] = {
    "st_gcn": BodyRule("place", 2, "first", 2),
    "two_s_agcn": BodyRule("place", 4, "most_spread", 2),
    "ctr_gcn": BodyRule("identity", 100, "most_moving", 2, Noise(11, 0.8, 0.69754), True, True, True),
    "longest": BodyRule("identity", 100, "longest", 2),
    "most_moving": BodyRule("identity", 100, "most_moving", 2),
}
"""Rules by name. ``st_gcn``, ``two_s_agcn``, ``ctr_gcn``: as in the released code of these papers; the others are ours."""


@dataclass
class _Track:
    """One body over time: (n, V, 3) joints at the frames (n,), ascending. ``motion`` is None until it is requested."""

    joints: NDArray[np.float64]
    frames: NDArray[np.int64]
    motion: float | None = None

    def moving(self) -> float:
        if self.motion is None:
            self.motion = float(self.joints.reshape(-1, self.joints.shape[-1]).var(0).sum())
        return self.motion

    def spread(self) -> float:
        seen = self.joints[self.joints.any(axis=(1, 2))]
        return float(seen.reshape(-1, self.joints.shape[-1]).std(0).sum()) if len(seen) else 0.0


def sequence_of_bodies(parsed: ParsedBodies, rule: BodyRule) -> Sequence:
    """The sequence of a file, (T, M, V, 3) float32 with M at most ``rule.bodies``; zeros where a body is missing.

    Raises:
        Reject: ``no_body``: there is no body in any frame, only zeros, or none remains; ``too_long``: more than ``MAX_FRAMES``.
    """
    if parsed.frames > MAX_FRAMES:
        raise Reject("too_long", f"{parsed.frames} frames: at most {MAX_FRAMES} are read")
    frame, frames = parsed.frame, parsed.frames
    if rule.drop_empty_frames:
        seen = np.unique(frame)
        frame, frames = np.searchsorted(seen, frame), len(seen)
    tracks = _tracks(parsed, frame, rule)
    if rule.noise is not None and len(tracks) > 1:
        tracks = _without_noise(tracks, rule.noise)
    tracks = _ordered(tracks, rule.order)
    bodies = _joined(tracks) if rule.join else [[track] for track in tracks]
    bodies = [body for body in bodies[: rule.bodies] if any(track.joints.any() for track in body)]
    if not bodies:
        raise Reject("no_body", f"{frames} frames, {len(parsed.frame)} bodies in them: none is left")
    joints = np.zeros((frames, len(bodies), *parsed.joints.shape[1:]), dtype=np.float32)
    for number, body in enumerate(bodies):
        for track in body:
            joints[track.frames, number] = track.joints
    if rule.drop_empty_frames:
        joints = joints[joints.any(axis=(1, 2, 3))]
    return Sequence(joints, np.any(joints != 0, axis=(2, 3)))


def _tracks(parsed: ParsedBodies, frame: NDArray[np.int64], rule: BodyRule) -> list[_Track]:
    number = parsed.place if rule.track == "place" else parsed.body
    tracks: list[_Track] = []
    for each in range(min(int(number.max(initial=-1)) + 1, rule.most_tracks)):
        mine = np.flatnonzero(number == each)
        # If a body appears twice in a frame, the last one counts.
        at, last = np.unique(frame[mine][::-1], return_index=True)
        place = np.arange(len(at)) + at[0] if rule.close_gaps else at
        tracks.append(_Track(parsed.joints[mine[::-1][last]], place))
    return tracks


def _without_noise(tracks: list[_Track], noise: Noise) -> list[_Track]:
    left = [track for track in tracks if len(track.frames) > noise.min_frames]
    if len(left) == 1:
        return left
    kept = len(left)
    clean: list[_Track] = []
    for track in left:
        wide = np.ptp(track.joints[..., 0], axis=1) > noise.max_spread * np.ptp(track.joints[..., 1], axis=1)
        if kept > 1 and wide.mean() >= noise.max_share:
            kept -= 1
            continue
        if kept > 1 and wide.any():
            still = _Track(track.joints[~wide], track.frames[~wide])
            track.motion = min(track.moving(), still.moving())
        clean.append(track)
    return clean


def _ordered(tracks: list[_Track], order: OrderBy) -> list[_Track]:
    rank: dict[OrderBy, Any] = {
        "first": lambda track: 0,
        "longest": lambda track: -len(track.frames),
        "most_moving": lambda track: -track.moving(),
        "most_spread": lambda track: -track.spread(),
    }
    return sorted(tracks, key=rank[order])


def _joined(tracks: list[_Track]) -> list[list[_Track]]:
    """Bodies 1 and 2 as lists of tracks; the second may be empty."""
    if not tracks:
        return []
    bodies = [tracks[:1], list[_Track]()]
    first, last = int(tracks[0].frames[0]), int(tracks[0].frames[-1])
    spans = [(first, last), (0, 0)]
    for track in tracks[1:]:
        start, end = int(track.frames[0]), int(track.frames[-1])
        for number, (first, last) in enumerate(spans):
            if min(last, end) - max(first, start) <= 0:
                bodies[number].append(track)
                spans[number] = (min(first, start), max(last, end))
                break
    return [body for body in bodies if body]
