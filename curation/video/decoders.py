"""Decoders with a common interface: from the index of a file and the wanted frames to these frames, as stored.

The reference is a sequential decode of the whole file. ``pyav_frames`` decodes less if the packets show what is enough;
``ffmpeg_frames`` decodes everything with another build of FFmpeg, and serves to verify the former.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from ..child_processes import Died, begun_with_limit, memory_is_short
from ..rows import MachineFault, Reject
from .av1 import Av1Reader, as_padding, needed_parts
from .index import KeyFrame, VideoIndex
from .limits import CONTAINERS, CpuBudget, VideoLimits
from .nal import NalError
from .opening import EXACT, demands, open_video
from .packets import demuxed

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream


class Miscounted(Exception):
    """The number of frames differs from that predicted from the packets: frames returned so far may be the wrong ones.

    Args:
        n_frames: actual number of frames of the file.
    """

    def __init__(self, n_frames: int) -> None:
        super().__init__(n_frames)
        self.n_frames = n_frames


Decoder = Callable[..., Iterator[tuple[int, "VideoFrame"]]]
"""``decode(index, wanted, *, budget)``: the frames of a file with the numbers ``wanted`` (increasing, in order of display),
each with its number, in any order; of a frame that comes twice the second one counts. Raises ``Miscounted`` if the index is
wrong, which invalidates all frames returned so far; ``Reject`` if the file cannot be decoded.
"""


_HELD_BYTES = 64 << 20
"""Maximum bytes of packets held back until their dependencies are known."""


class _Surprise(Exception):
    """Packets or decoder do not behave as predicted from the index."""


def pyav_frames(index: VideoIndex, wanted: Sequence[int], *, budget: CpuBudget) -> Iterator[tuple[int, VideoFrame]]:
    """Decode by PyAV in this process, on one thread: only what the frames depend on if the index permits, otherwise all."""
    if not index.sequential:
        try:
            with open_video(index.path, budget, index.stream, to_seek=True) as (container, stream):
                yield from _sought(container, stream, index, wanted, budget)
            return
        except _Surprise:  # frames returned so far may depend on what was found behind them: all are returned again
            pass
    yield from _sequential(index, set(wanted), budget)


def _sought(
    container: InputContainer, stream: VideoStream, index: VideoIndex, wanted: Sequence[int], budget: CpuBudget
) -> Iterator[tuple[int, VideoFrame]]:
    """Decode from the key frames before wanted frames, skipping pictures on which no wanted frame depends."""
    from av.error import FFmpegError

    context = stream.codec_context
    # FFmpeg conceals damage with frames decoded before, which differ after seeking: on damage, decode the whole file. In open
    # groups of pictures seeking itself damages the first pictures, which are not wanted: there only later ones are checked.
    if not _has_open_groups(index):
        context.options = {**context.options, "err_detect": "+explode"}
    frame_of = {int(index.packet_pts[index.places[frame]]): frame for frame in wanted}
    skips = index.codec == "h264"  # its decoder knows by itself from which pictures nothing is predicted
    packets, at = container.demux(stream), -1
    for key, last in _runs(index, wanted):
        if key.place != at:
            budget.left_s()
            container.seek(key.pts, stream=stream)
            packets, at = container.demux(stream), -1
        run = _run(packets, index, key, at, last)
        try:
            for place, packet in _needed(run, context.extradata or b"", frame_of) if index.codec == "av1" else run:
                if skips:
                    context.skip_frame = "DEFAULT" if packet.pts in frame_of else "NONREF"
                if packet.pts in frame_of or not index.spare[place]:
                    yield from _chosen(context.decode(packet), frame_of, key.pts)
            yield from _chosen(context.decode(None), frame_of, key.pts)
        except FFmpegError as error:
            raise _Surprise(str(error)) from None
        at = last + 1
        if any(index.places[frame] <= last for frame in frame_of.values()):
            raise _Surprise("a frame did not come")
        # A drained decoder accepts packets again only after it is flushed.
        if at >= len(index.packet_pts):
            return
        context.flush_buffers()


_Run = Iterator[tuple[int, "Packet[VideoStream]"]]


def _run(packets: Iterator[Packet[VideoStream]], index: VideoIndex, key: KeyFrame, at: int, last: int) -> _Run:
    """Yield the packets of a run with their indices; ``at`` is the index of the first one, or -1 after seeking to ``key``."""
    for packet in packets:
        if not packet.size:
            raise _Surprise("the file ends early")
        at = _landed(index, key, packet) if at < 0 else at
        if packet.pts != index.packet_pts[at]:
            raise _Surprise("packets come in another order")
        yield at, packet
        at += 1
        if at > last:
            return


def _needed(run: _Run, extradata: bytes, frame_of: Mapping[int, int]) -> _Run:
    """AV1 packets without the parts on which no wanted frame depends; all packets if the dependencies are unknown."""
    held: list[tuple[int, Packet[VideoStream]]] = []
    size = 0
    for place, packet in run:
        held.append((place, packet))
        size += packet.size
        if size > _HELD_BYTES:
            break
    try:
        if size > _HELD_BYTES:
            raise NalError("too much to hold")
        reader = Av1Reader(extradata)
        parts = [reader.parts(bytes(packet)) for _, packet in held]
        needed = needed_parts(parts, {number for number, (_, packet) in enumerate(held) if packet.pts in frame_of})
    except NalError:
        yield from held
        yield from run
        return
    for (place, packet), each, keeps in zip(held, parts, needed, strict=True):
        if any(keeps):
            if not all(keeps):
                packet.update(as_padding(bytes(packet), [part for part, kept in zip(each, keeps, strict=True) if not kept]))
            yield place, packet


def _runs(index: VideoIndex, wanted: Sequence[int]) -> list[tuple[KeyFrame, int]]:
    """Runs of packets to decode: the key frame at which each begins, and the index of its last wanted packet."""
    keys = np.asarray([key.place for key in index.keys])
    runs: list[tuple[KeyFrame, int]] = []
    starts: list[tuple[KeyFrame, int]] = []
    for frame in wanted:
        place = int(index.places[frame])
        number = int(np.searchsorted(keys, place, side="right")) - 1
        # A picture that follows a key frame but is displayed before it may be predicted from pictures before the key frame.
        while number > 0 and index.packet_pts[place] < index.keys[number].pts:
            number -= 1
        starts.append((index.keys[number], place))
    for key, place in sorted(starts):
        if runs and key.place <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], place))
        else:
            runs.append((key, place))
    return runs


def _has_open_groups(index: VideoIndex) -> bool:
    """Whether any picture follows a key frame but is displayed before it."""
    least_after = np.minimum.accumulate(index.packet_pts[::-1])[::-1]
    return any(int(least_after[key.place]) < key.pts for key in index.keys)


def _landed(index: VideoIndex, key: KeyFrame, packet: Packet[VideoStream]) -> int:
    """Index of the packet at which seeking arrived."""
    found = np.flatnonzero(index.packet_pts == packet.pts)
    place = int(found[0]) if len(found) else -1
    if place > key.place or all(place != other.place for other in index.keys):
        raise _Surprise("seeking arrived elsewhere")
    return place


def _chosen(frames: Sequence[VideoFrame], frame_of: dict[int, int], first_pts: int) -> Iterator[tuple[int, VideoFrame]]:
    for frame in frames:
        if frame.pts is None:
            raise _Surprise("a frame without a time")
        if frame.is_corrupt and frame.pts >= first_pts:
            raise _Surprise("damage is concealed")
        place = frame_of.pop(frame.pts, None)
        if place is not None:
            yield place, frame


def _sequential(index: VideoIndex, wanted: set[int], budget: CpuBudget) -> Iterator[tuple[int, VideoFrame]]:
    number = -1
    for number, frame in enumerate(all_frames(index, budget=budget)):
        if number in wanted:
            yield number, frame
    if number + 1 != index.n_frames:
        raise Miscounted(number + 1)


def all_frames(index: VideoIndex, *, budget: CpuBudget) -> Iterator[VideoFrame]:
    """Decode every frame of the file from the start: the reference for all decoders.

    Raises:
        Reject: ``corrupt`` if a packet is marked as damaged or does not decode, or the decoder conceals damage in a frame.
    """
    from av.error import InvalidDataError, PatchWelcomeError

    decoded = 0
    with open_video(index.path, budget, index.stream) as (container, stream):
        for count, packet in enumerate(chain(demuxed(container, stream), [None])):
            if count % 16 == 0:
                budget.left_s()
            if packet is not None and packet.is_corrupt:
                raise Reject(
                    "corrupt",
                    f"packet {count} is damaged, or a part of the file beside it is missing; "
                    "if files were joined byte by byte, use ffmpeg -f concat",
                )
            try:
                frames = stream.decode(packet)
            except (InvalidDataError, PatchWelcomeError) as error:
                raise Reject("corrupt", f"packet {count} does not decode: {error.strerror}") from None
            for frame in frames:
                if frame.is_corrupt:
                    raise Reject("corrupt", f"frame {decoded} is damaged: the decoder conceals parts that do not decode")
                decoded += 1
                yield frame


_LOG_BYTES = 1 << 20
"""Bytes of the ffmpeg command's log that are read, from its end."""

_FEW = 200
"""Number of runs of frames above which the expression of the select filter takes longer than sending all frames."""


def ffmpeg_binary() -> str:
    """Return the ffmpeg command on the path, or else the one of the optional package ``imageio-ffmpeg``.

    Raises:
        RuntimeError: neither is available.
    """
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise RuntimeError("decoder 'ffmpeg': no ffmpeg command on the path; pip install imageio-ffmpeg brings one") from None


def ffmpeg_frames(index: VideoIndex, wanted: Sequence[int], *, budget: CpuBudget) -> Iterator[tuple[int, VideoFrame]]:
    """Decode by the ffmpeg command, by ffmpeg-python; it decodes the whole file and sends the frames as stored.

    Raises:
        RuntimeError: the ffmpeg command is missing or too old.
        Died: the command was ended by a signal.
        MachineFault: the command could not get memory.
    """
    sent = sorted({0, *wanted})
    with tempfile.TemporaryFile() as errors:
        command = _ffmpeg_command(index, sent, budget.limits)
        process = begun_with_limit(command, budget.left_s(), stderr=errors)
        try:
            numbers = iter(range(1 << 62)) if len(_stretches(sent)) > _FEW else iter(sent)
            missing = set(wanted)
            for number, frame in _received(cast("IO[bytes]", process.stdout), numbers, set(wanted)):
                missing.discard(number)
                yield number, frame
            code = process.wait()
            budget.left_s()
            errors.seek(max(0, errors.tell() - _LOG_BYTES))
            log = errors.read().decode("utf-8", "replace")
        finally:
            process.kill()
            process.wait()
            cast("IO[bytes]", process.stdout).close()
    _check_ending(code, log)
    _check_turned(index, log)
    counted = re.findall(r"(\d+) frames decoded", log)
    if code or not counted:
        raise Reject("corrupt", f"ffmpeg ended with {code}")  # without the log, whose times and addresses differ in each run
    if int(counted[0]) != index.n_frames:
        raise Miscounted(int(counted[0]))
    if missing:
        raise Reject("corrupt", f"{len(missing)} of the {len(wanted)} requested frames did not come from ffmpeg")


def _check_ending(code: int, log: str) -> None:
    """Raise for an exit of the command that says nothing about the file."""
    signalled = re.search(r"received signal (\d+)", log)  # ffmpeg turns some signals into an exit code
    if code < 0 or signalled:
        raise Died(int(signalled[1]) if signalled else -code)
    if code and (unknown := re.search(r"Unrecognized option '?[\w-]+|Option \S+ not found", log)):
        raise RuntimeError(f"decoder 'ffmpeg': {ffmpeg_binary()} says {unknown[0]!r}: version 5.1 or later is needed")
    if code and "Cannot allocate memory" in log and memory_is_short():
        raise MachineFault("memory is short: use fewer --workers, or more memory")


def _check_turned(index: VideoIndex, log: str) -> None:
    """Reject a video in which frames are turned, as 192x108 to 108x192: they have as many bytes, and would be read wrongly."""
    here = index.width_px, index.height_px
    for width, height in re.findall(r"incoming frame - w: *(\d+) h: *(\d+)", log):
        there = int(width), int(height)
        if there != here and math.prod(there) == math.prod(here):
            raise Reject("size_changes", f"{here[0]}x{here[1]} according to the file, but {width}x{height} in a frame")


def _stretches(wanted: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive frames, as (first, last)."""
    runs = np.split(np.asarray(wanted), np.flatnonzero(np.diff(wanted) > 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs]


def _ffmpeg_command(index: VideoIndex, wanted: Sequence[int], limits: VideoLimits) -> list[str]:
    import ffmpeg

    opened = ffmpeg.input(
        f"file:{index.path}",
        noautorotate=None,
        threads=1,
        max_pixels=limits.max_pixels,
        flags=EXACT,
        protocol_whitelist="file",
        format_whitelist=CONTAINERS,
        reinit_filter=0,  # otherwise the numbers begin again where the size, the pixel format or the range of colours changes
        **demands(index.codec),
    )
    frames, runs = opened[str(index.stream)], _stretches(wanted)
    if len(runs) <= _FEW:
        frames = frames.filter("select", "+".join(f"between(n,{first},{last})" for first, last in runs))
    frames = frames.filter("settb", "1").filter("setpts", "N")  # the container takes no times that go back, as in joined files
    # Raw frames do not carry palettes; all other frames are sent as stored, in a container that names their pixel format.
    pixels = "rgb24" if index.pix_fmt == "pal8" else index.pix_fmt
    raw = {"format": "nut", "vcodec": "rawvideo", "pix_fmt": pixels, "threads": 1}
    sent = frames.output("pipe:", **raw, fps_mode="passthrough", enc_time_base="1:1")
    # With -xerror a packet that does not decode, and a frame in which damage is concealed, end the command.
    command = ffmpeg.compile(sent.global_args("-nostdin", "-hide_banner", "-v", "verbose", "-xerror"), cmd=ffmpeg_binary())
    return [str(word) for word in command]


def _received(pipe: IO[bytes], numbers: Iterator[int], wanted: set[int]) -> Iterator[tuple[int, VideoFrame]]:
    """Yield the wanted frames that come through the pipe, which sends the first frame and others, with their numbers."""
    import av
    from av.error import InvalidDataError

    # PyAV would open a stream whose ``name`` is a file descriptor as that file; a plain object is read as an unseekable stream.
    with contextlib.suppress(InvalidDataError, EOFError), av.open(_Pipe(pipe), "r", format="nut") as container:
        size = 0  # of each frame as that of the first one: the container states size and pixel format only once
        for packet in container.demux(video=0):
            if not packet.size:
                continue
            number, size = next(numbers, None), size or packet.size
            if number is None:
                raise Reject("corrupt", "more than the requested frames came from ffmpeg")
            if number not in wanted:
                continue
            if packet.size != size:
                raise Reject("size_changes", f"{size} bytes in the first frame, {packet.size} in another")
            for frame in packet.decode():
                yield number, frame


class _Pipe:
    """A stream with only ``read``, as a pipe permits."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.read = cast("io.BufferedReader", pipe).read


DECODERS: dict[str, Decoder] = {"pyav": pyav_frames, "ffmpeg": ffmpeg_frames}
"""Decoders by name. Both return the same frames."""
