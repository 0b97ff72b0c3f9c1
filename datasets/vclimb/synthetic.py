"""Generated videos, to try the pipeline without files: coloured squares that drift over a background.

A class is a colour and a direction, a group is a shade of the background, a clip is a path and a length of 10 to 20 frames. The
files are YUV4MPEG2, written here, so their bytes do not depend on an encoder. They are payloads of rows; two steps write each
to a temporary file while it is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...curation.records import write_file
from ...curation.rng import rng
from ...curation.rows import Blob
from ...curation.video.frame_plans import FramePlan
from ...curation.video.frames import Clip, FrameSettings, ProbedClip, SampledClip, probe_clip, sample_frames
from ..videos.rows import ListedClip

WIDTH_PX, HEIGHT_PX, FPS = 48, 36, 25
_COLOURS = {
    "red": (81, 90, 240),
    "green": (145, 54, 34),
    "blue": (41, 240, 110),
    "yellow": (210, 16, 146),
    "cyan": (170, 166, 16),
    "magenta": (107, 202, 222),
}
"""Name -> Y, Cb, Cr."""

_WAYS = {"right": (0, 1), "down": (1, 0)}
CLASSES = tuple(f"{colour} {way}" for way in _WAYS for colour in _COLOURS)
"""Names of the twelve classes."""


@dataclass(frozen=True)
class DrawnClip(ListedClip):
    """A clip and the bytes of its video; ``video`` is the file's name."""

    video: str
    content: Blob


@dataclass(frozen=True)
class DrawnPart:
    """The columns of a ``DrawnClip`` that the steps read."""

    key: str
    video: str
    content: Blob
    t_start: float | None
    t_end: float | None


def draw_videos(*, classes: int, groups: int, clips_per_group: int, broken: bool, seed: int) -> Iterator[DrawnClip]:
    """Source step: ``classes * groups * clips_per_group`` videos, class by class.

    Args:
        classes: 2 to 12, the first of ``CLASSES``.
        groups: groups per class.
        clips_per_group: clips per group.
        broken: add two clips to the first class: one of three frames, and one that is not a video.
        seed: seed for paths, shades and lengths.
    """
    for label in CLASSES[:classes]:
        for group in range(1, groups + 1):
            for clip in range(1, clips_per_group + 1):
                yield _clip(label, group, clip, _video(label, group, clip, seed))
    if broken:
        first = CLASSES[0]
        short = _video(first, groups, clips_per_group + 1, seed)
        frame = len(b"FRAME\n") + 3 * WIDTH_PX * HEIGHT_PX
        yield _clip(first, groups, clips_per_group + 1, short[: short.index(b"\n") + 1 + 3 * frame])
        yield _clip(first, groups, clips_per_group + 2, b"this is no video\n")


def _clip(label: str, group: int, clip: int, data: bytes) -> DrawnClip:
    name = f"v_{''.join(word.title() for word in label.split())}_g{group:02d}_c{clip:02d}"
    video = f"{name}.y4m"
    return DrawnClip(name, video, label, None, f"{label}/g{group:02d}", None, None, None, video, video, Blob(data))


def _video(label: str, group: int, clip: int, seed: int) -> bytes:
    colour, way = label.split()
    ground = rng(seed, "drawn ground", f"{label} {group}").integers(60, 190)
    draws = rng(seed, "drawn path", f"{label} {group} {clip}")
    frames = int(draws.integers(10, 21))
    side = int(draws.integers(8, 13))
    place = draws.uniform(0, (HEIGHT_PX - side, WIDTH_PX - side))
    speed = draws.uniform(0.8, 1.6)
    out = [f"YUV4MPEG2 W{WIDTH_PX} H{HEIGHT_PX} F{FPS}:1 Ip A1:1 C444\n".encode()]
    for _ in range(frames):
        planes = np.full((3, HEIGHT_PX, WIDTH_PX), 128, dtype=np.uint8)
        planes[0] = np.clip(ground + draws.integers(-8, 9, (HEIGHT_PX, WIDTH_PX)), 16, 235)
        rows = (np.arange(side) + int(place[0])) % HEIGHT_PX
        columns = (np.arange(side) + int(place[1])) % WIDTH_PX
        planes[np.ix_(np.arange(3), rows, columns)] = np.asarray(_COLOURS[colour], dtype=np.uint8)[:, None, None]
        out += [b"FRAME\n", planes.tobytes()]
        place = place + speed * np.asarray(_WAYS[way])
    return b"".join(out)


@dataclass(frozen=True)
class ProbedDrawn(ProbedClip):
    """Result of ``probe_drawn``, with the video, which is needed again."""

    content: Blob


def probe_drawn(row: DrawnPart, *, plan: FramePlan | None) -> ProbedDrawn:
    """Step: ``curation.video.frames.probe_clip`` for a payload."""
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, row.video), row.content.read())
        probed = probe_clip(Clip(row.key, row.video, row.t_start, row.t_end), root=folder, plan=plan)
    return ProbedDrawn(**vars(probed), content=row.content)


def sample_drawn(row: DrawnPart, *, plan: FramePlan, settings: FrameSettings) -> SampledClip:
    """Step: ``curation.video.frames.sample_frames`` of a payload."""
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, row.video), row.content.read())
        return sample_frames(Clip(row.key, row.video, row.t_start, row.t_end), root=folder, plan=plan, settings=settings)
