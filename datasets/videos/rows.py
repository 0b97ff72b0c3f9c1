"""The row that every list of videos is brought to: one clip with its label, and what the list says of its role and group."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...curation.stages.folder import safe_key

ROLES = ("train", "val", "test")
"""What clips are used for."""

_MAX_KEY = 60
"""Names in a tar have 100 bytes: what is left has room for the times of a segment, its number, and a member's extension."""
_MAX_TIME_S = 1e6


@dataclass(frozen=True)
class ListedClip:
    """A clip as a list names it.

    Attributes:
        key: names its sample in shards: letters, digits, ``_`` and ``-``.
        name: of its video: the stem of the file, or the path of a file that is there, as the source says.
        label: name of the class.
        role: ``train``, ``val`` or ``test`` where the list says so, else None.
        group: what two roles must not share: UCF101's groups, else the video.
        t_start: of the clip in its video, seconds; None for the whole video. It may be no more than ``t_end`` in published
            lists, which is for the frame plan to reject.
        t_end: likewise.
        video_s: length of the whole video as listed, seconds.
        listed: where it stands: ``<file>:<line>``.
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
    """Key of a segment: that of its video, start and end in milliseconds, seven digits each; the video's own without times.

    >>> segment_key("v_abc", 1.5, 12.0), segment_key("v_abc", None, None)
    ('v_abc-0001500-0012000', 'v_abc')
    """
    if t_start is None or t_end is None:
        return key
    return f"{key}-{round(t_start * 1000):07d}-{round(t_end * 1000):07d}"


def read_time(text: object) -> float | None:
    """Seconds that a field of a list gives; None unless they are a number from 0 to a million.

    >>> read_time("12.5"), read_time("-1"), read_time("soon")
    (12.5, None, None)
    """
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _MAX_TIME_S else None
