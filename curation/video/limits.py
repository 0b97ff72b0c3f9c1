"""How large a video may be, how long work on it may take, and which containers are opened at all."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..rows import Reject

CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,ivf,obu,flv,live_flv,asf,ogg,gif,rm,dv,mxf,nut,"
    "wtv,yuv4mpegpipe,mjpeg,apng"
)
"""FFmpeg's names of the demuxers that are used. Not among them: playlists and scripts (hls, concat, image sequences, sdp), by
which a file that calls itself a video names other files and addresses."""


@dataclass(frozen=True)
class Limits:
    """What is turned away before, or while, it is decoded.

    Attributes:
        max_pixels: of a frame, width times height.
        max_duration_s: of the video.
        max_frames: of the video.
        time_limit_s: seconds of wall clock for one video. It is a guard against files that were made to take for ever, not
            a measure: leave it far above what a slow machine needs, or what is made will depend on the machine.
    """

    max_pixels: int = 8192 * 4352
    max_duration_s: float = 6 * 3600.0
    max_frames: int = 1_000_000
    time_limit_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.max_pixels, self.max_duration_s, self.max_frames, self.time_limit_s) <= 0:
            raise ValueError(f"{self}: every limit must be above 0")


class Deadline:
    """The moment by which work on one video must be done."""

    def __init__(self, time_limit_s: float) -> None:
        self._limit_s = time_limit_s
        self._end = time.monotonic() + time_limit_s

    def left_s(self) -> float:
        """Seconds that are left. Raises ``Reject`` (``timed_out``) where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise Reject("timed_out", f"more than {self._limit_s:g} s")
        return left
