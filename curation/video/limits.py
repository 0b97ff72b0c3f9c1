"""Limits of the size of a video and of the work on it, and the containers that are accepted."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

from ..rows import Reject

CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,ivf,obu,flv,live_flv,asf,ogg,gif,rm,dv,mxf,nut,"
    "wtv,yuv4mpegpipe,mjpeg,apng"
)
"""FFmpeg's names of the permitted demuxers. Playlists and scripts (hls, concat, image sequences, sdp) are left out, since a
file that claims to be a video could refer to other files and addresses by them."""


@dataclass(frozen=True)
class VideoLimits:
    """Limits above which a video is rejected, before or during decoding.

    Attributes:
        max_pixels: maximum width times height of a frame.
        max_duration_s: maximum duration of the video in seconds.
        max_frames: maximum number of frames of the video.
        cpu_limit_s: maximum processor time for one video in seconds, which does not depend on other work of the machine. It
            only guards against files crafted to take for ever: keep it far above what a slow machine needs.
    """

    max_pixels: int = 8192 * 4352
    max_duration_s: float = 6 * 3600.0
    max_frames: int = 1_000_000
    cpu_limit_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.max_pixels, self.max_duration_s, self.max_frames, self.cpu_limit_s) <= 0:
            raise ValueError(f"{self}: every limit must be above 0")


class CpuBudget:
    """Processor time left for the work on one video; time of programs that it runs counts once they have ended."""

    def __init__(self, limits: VideoLimits) -> None:
        self.limits = limits
        self._end = _used_s() + limits.cpu_limit_s

    def left_s(self) -> float:
        """Seconds that are left. Raises ``Reject`` (``timed_out``) if no time is left."""
        left = self._end - _used_s()
        if left <= 0:
            raise too_slow(self.limits)
        return left


def too_slow(limits: VideoLimits) -> Reject:
    """The reject of a video that took too much processor time, with the same text for all callers."""
    return Reject("timed_out", f"more than {limits.cpu_limit_s:g} s of processor time")


def _used_s() -> float:
    called = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + called.ru_utime + called.ru_stime
