"""Frames of a clip as pictures, whatever its container: decoded as for benchmarks, in a separate process."""

from __future__ import annotations

import hashlib
import os
import threading

from ...curation.extras import lacking
from ...curation.rows import MachineFault, Reject
from ...curation.video.child import in_child
from ...curation.video.frame_plans import FramePlan
from ...curation.video.limits import VideoLimits
from ...curation.video.work import FrameSettings
from .cache import Cache
from .query import Refused

FRAMES = 12
_LIMITS = VideoLimits(max_pixels=1 << 24, max_duration_s=1800.0, max_frames=100_000, cpu_limit_s=20.0)
_WALL_S = 60.0
_AT_ONCE = threading.Semaphore(2)
_CONTAINERS = (
    (0, b"YUV4MPEG2 "),
    (0, b"\0\0\1\xba"),
    (0, b"\0\0\1\xb3"),
    (0, b"FLV\1"),
    (0, b"\x30\x26\xb2\x75"),
    (8, b"AVI "),
)
"""Offset and magic bytes of containers that browsers do not play."""
_held: Cache[list[bytes]] = Cache(64 << 20, lambda jpegs: sum(map(len, jpegs)))


def is_other_clip(data: bytes) -> bool:
    """Whether ``data`` is a clip that browsers do not play: avi, y4m, mpeg, flv or asf."""
    return any(data[at : at + len(magic)] == magic for at, magic in _CONTAINERS)


def clip_jpegs(data: bytes) -> list[bytes]:
    """JPEGs of evenly spaced frames; cached.

    Raises:
        Refused: the clip cannot be decoded, or decoding takes too long.
    """
    digest = hashlib.sha256(data).hexdigest()
    if (found := _held.get(digest)) is None:
        with _AT_ONCE:
            found = _held.keep(digest, _decoded(data))
    return found


def _decoded(data: bytes) -> list[bytes]:
    """Decode a clip; the decoder's process reads it from memory, so that nothing is written to disk."""
    handle = os.memfd_create("clip")
    try:
        with open(handle, "wb", closefd=False) as memory:
            memory.write(data)
        plan, size = FramePlan("uniform", FRAMES), FrameSettings(short_side_px=360)
        cut = {"t_start": None, "t_end": None, "key": ""}
        asked = {"limits": _LIMITS, "stream": "best", "plan": plan, "settings": size, "cut": cut}
        _, jpegs = in_child("sample", f"/proc/{os.getpid()}/fd/{handle}", wall_limit_s=_WALL_S, **asked)
        return jpegs
    except Reject as reject:
        raise Refused(f"this clip cannot be decoded: {reject}") from reject
    except ImportError as error:
        raise Refused(f"frames of clips: {lacking(error) or error}") from error
    except (MachineFault, RuntimeError) as error:
        raise Refused(f"this clip cannot be decoded: {error}"[:300]) from error
    finally:
        os.close(handle)
