"""The common row of all lists of videos: one clip with its label, role and group."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...curation.stages.folder import safe_key

_MAX_KEY = 60
"""Names in a tar have 100 bytes: the rest leaves room for the times of a segment, its number, and a member's extension."""
_MAX_TIME_S = 1e6


@dataclass(frozen=True)
class ListedClip:
    """A clip as listed.

    Attributes:
        key: name of its sample in shards: letters, digits, ``_`` and ``-``.
        name: name of its video: the stem of a file, or the path of an existing file, depending on the source.
        label: name of the class.
        role: ``train``, ``val`` or ``test`` if the list states it, else None.
        group: group that must not be split between roles: UCF101's groups, else the video.
        t_start: start of the clip in its video, seconds; None for the whole video. In published lists it may be no less than
            ``t_end``, which the frame plan rejects.
        t_end: end of the clip, seconds; None for the whole video.
        video_s: length of the whole video as listed, seconds.
        listed: position in the list: ``<file>:<line>``.

    >>> clip = ListedClip("lake-1", "lake", "surfing", None, "lake", t_start=2.0, t_end=6.5, video_s=10.0, listed="mine.csv:2")
    >>> clip.t_end - clip.t_start
    4.5
    """

    key: str
    name: str
    label: str
    role: str | None
    group: str
    t_start: float | None
    t_end: float | None
    video_s: float | None
    listed: str


def key_of_name(name: str) -> str:
    """Key of a video from its name: ``safe_key`` of 60 characters at most.

    >>> key_of_name("Surfing/v_Surfing_g22_c04")
    'Surfing--v_Surfing_g22_c04'
    """
    return safe_key(name, longest=_MAX_KEY)


def segment_key(key: str, t_start: float | None, t_end: float | None) -> str:
    """Key of a segment: the video's key, start and end in milliseconds, seven digits each; only the video's without times.

    >>> segment_key("v_abc", 1.5, 12.0), segment_key("v_abc", None, None)
    ('v_abc-0001500-0012000', 'v_abc')
    """
    if t_start is None or t_end is None:
        return key
    return f"{key}-{round(t_start * 1000):07d}-{round(t_end * 1000):07d}"


def read_time(text: object) -> float | None:
    """Seconds in a field of a list; None unless they are a number from 0 to a million.

    >>> read_time("12.5"), read_time("-1"), read_time("soon")
    (12.5, None, None)
    """
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _MAX_TIME_S else None
