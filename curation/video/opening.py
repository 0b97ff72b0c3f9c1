"""Opens video files: chooses the stream, and tells what is wrong with a file or the machine."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from ..child_processes import memory_is_short
from ..rows import MachineFault, Reject
from .limits import CONTAINERS, CpuBudget
from .tables import TO_THE_END, box_sizes

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.error import FFmpegError
    from av.video.stream import VideoStream

EXACT = "+bitexact"
"""Flag of decoders: without it frames of MPEG-4 and related codecs depend on the processor and FFmpeg's version."""


def demands(codec: str) -> dict[str, str]:
    """Further options of decoders, by FFmpeg's name of the codec: that of MJPEG tells of damage only if it is to stop there. It
    would leave parts of the frame as they were in memory, and so differ in each run."""
    return {"err_detect": "+explode"} if codec == "mjpeg" else {}


StreamChoice = Literal["best"] | int
"""Stream of a file that is used as the video: ``best``, the one that the ffmpeg command selects by default, or a number from 0
over all streams of the file, as printed by ffprobe."""

_ATTACHED = 0x400 | 0x800
"""Dispositions of still pictures: covers and thumbnails."""

_DEFAULT = 0x1
_PIXELS_OF_DEFAULT = 5_000_000
"""Number of pixels that the ffmpeg command adds to a stream that is marked as default when it ranks streams by size."""

_OF_THE_MACHINE = {errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.ENOSPC}
"""Errors of the system, which FFmpeg passes on; its demuxers and decoders never raise them themselves."""


left_open: WeakKeyDictionary[CpuBudget, InputContainer] = WeakKeyDictionary()
"""Budget of the work on a file -> the container that ``read_index`` opened, in which FFmpeg may have decoded a frame."""


@contextlib.contextmanager
def open_video(
    path: str, budget: CpuBudget, choice: StreamChoice, *, to_seek: bool = False
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its video stream, with one decoder thread.

    Args:
        path: path of the file.
        budget: processor time for the work on the file.
        choice: stream to use.
        to_seek: whether the caller seeks first, so that the container opened by ``read_index`` can be reused.

    Raises:
        Reject: ``empty_file``, ``not_a_video``, ``truncated``, ``corrupt``, ``no_video_stream``, ``unsupported_codec``,
            ``too_many_pixels`` or ``timed_out``; also for whatever FFmpeg raises in the body.
        MachineFault: the system refuses memory or open files.
    """
    import av
    from av.error import FFmpegError

    budget.left_s()
    max_pixels = budget.limits.max_pixels
    options = {"max_pixels": str(max_pixels), "threads": "1", "flags": EXACT}
    allowed = {"format_whitelist": CONTAINERS, "protocol_whitelist": "file"}
    name, container = f"file:{path}", left_open.pop(budget, None)
    try:
        with contextlib.ExitStack() as closing:
            if container is None or not to_seek or container.name != name:
                container = None  # if it does not open, the reason must not be that of an open file
                container = av.open(name, options=options, container_options=allowed, metadata_errors="replace")
            closing.push(lambda *_: None if left_open.get(budget) is container else container.close())
            stream = next((one for one in ranked(container) if choice in ("best", one.index)), None)
            if stream is None:
                which = "none of them" if choice == "best" else f"number {choice} is not"
                raise Reject("no_video_stream", f"{len(container.streams)} streams, {which} moving pictures")
            context = stream.codec_context
            if context is None:
                raise Reject("unsupported_codec", "no decoder for the video stream")
            if context.width * context.height > max_pixels:
                raise Reject("too_many_pixels", f"{context.width}x{context.height}, limit {max_pixels} pixels")
            context.options = options | demands(context.codec.canonical_name)
            context.thread_count = 1
            yield container, stream
    except FFmpegError as error:
        check_machine(error)
        raise Reject(*_why_unreadable(path, error, is_open=container is not None)) from None


def ranked(container: InputContainer) -> list[VideoStream]:
    """The video streams, without still pictures, in the order in which the ffmpeg command prefers them: by pixels, with a
    bonus for streams marked as default, then by number."""

    def worth(stream: VideoStream) -> int:
        context = stream.codec_context
        pixels = context.width * context.height if context is not None else 0
        return pixels + _PIXELS_OF_DEFAULT * bool(int(stream.disposition) & _DEFAULT)

    moving = [stream for stream in container.streams.video if not int(stream.disposition) & _ATTACHED]
    return sorted(moving, key=worth, reverse=True)  # stable: keeps the order of equals


def check_machine(error: FFmpegError) -> None:
    """Raise ``MachineFault`` if the error says nothing about the file."""
    if error.errno in _OF_THE_MACHINE:
        raise MachineFault(f"{error.strerror}: use fewer --workers, or fix what the system lacks") from None
    if error.errno == errno.ENOMEM and memory_is_short():
        raise MachineFault("memory is short: use fewer --workers, or more memory") from None


def _why_unreadable(path: str, error: Exception, *, is_open: bool) -> tuple[str, str]:
    with open(path, "rb") as stream:
        head = stream.read(16)
    if isinstance(error, EOFError):
        return "no_frames", "the file ends behind its header"
    text = f"{type(error).__name__}: {getattr(error, 'strerror', '')}"
    if not head:
        return "empty_file", "0 bytes"
    if head[4:8] == b"ftyp":
        return (
            ("corrupt", text) if _boxes_are_whole(path) else ("truncated", "the file ends before its boxes do, or lacks moov")
        )
    known = head.startswith((b"\x1aE\xdf\xa3", b"OggS", b"FLV", b"\x00\x00\x01", b"G", b"GIF8")) or head[8:12] == b"AVI "
    return ("corrupt", text) if is_open or known else ("not_a_video", f"begins with {head!r}")


def _boxes_are_whole(path: str) -> bool:
    """Whether the top-level boxes of an MP4 file, including ``moov``, fill the file."""
    size, at, names = os.path.getsize(path), 0, set[bytes]()
    with open(path, "rb") as stream:
        while at < size:
            stream.seek(at)
            head = stream.read(16)
            header, length = box_sizes(head)
            length = size - at if (header, length) == TO_THE_END else length
            names.add(head[4:8])
            if length < 8:
                return True  # damaged rather than truncated
            at += length
    return at == size and b"moov" in names
