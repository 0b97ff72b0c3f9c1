"""How large a video may be, how long work on it may take, and which containers are opened at all."""

from __future__ import annotations

import resource
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
class VideoLimits:
    """What is rejected before, or while, it is decoded.

    Attributes:
        max_pixels: of a frame, width times height.
        max_duration_s: of the video.
        max_frames: of the video.
        cpu_limit_s: seconds of processor time for one video, which do not depend on what else the machine does. It is a
            guard against files that were made to take for ever, not a measure: leave it far above what a slow machine needs.
    """

    max_pixels: int = 8192 * 4352
    max_duration_s: float = 6 * 3600.0
    max_frames: int = 1_000_000
    cpu_limit_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.max_pixels, self.max_duration_s, self.max_frames, self.cpu_limit_s) <= 0:
            raise ValueError(f"{self}: every limit must be above 0")


class CpuBudget:
    """The processor time that work on one video may still take, that of programs which it calls included once they ended."""

    def __init__(self, limits: VideoLimits) -> None:
        self.limits = limits
        self._end = _used_s() + limits.cpu_limit_s

    def left_s(self) -> float:
        """Seconds that are left. Raises ``Reject`` (``timed_out``) if there are none."""
        left = self._end - _used_s()
        if left <= 0:
            raise too_slow(self.limits)
        return left


def too_slow(limits: VideoLimits) -> Reject:
    """The reject of a video whose time is up, in the same words whoever found it out."""
    return Reject("timed_out", f"more than {limits.cpu_limit_s:g} s of processor time")


def _used_s() -> float:
    called = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + called.ru_utime + called.ru_stime
