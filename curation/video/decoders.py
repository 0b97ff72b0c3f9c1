"""The decoders, behind one protocol: given a file's index and the frames wanted, they give those frames as they were stored.

The definition is a sequential decode of the whole file. ``pyav_frames`` decodes less where the packets tell what is enough;
``ffmpeg_frames`` decodes all with another build of FFmpeg, and so is the judge of the former.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from ..child_processes import Died, limit_cpu, memory_is_short
from ..rows import MachineFault, Reject
from .av1 import Av1Reader, as_padding, needed_parts
from .index import EXACT, KeyFrame, VideoIndex, open_video
from .limits import CONTAINERS, CpuBudget, VideoLimits
from .nal import NalError

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream


class Miscounted(Exception):
    """The file holds another number of frames than its packets foretold: those given so far may be the wrong ones.

    Args:
        n_frames: how many it holds.
    """

    def __init__(self, n_frames: int) -> None:
        super().__init__(n_frames)
        self.n_frames = n_frames


Decoder = Callable[..., Iterator[tuple[int, "VideoFrame"]]]
"""``decode(index, wanted, *, budget)``: the frames of a file at the places ``wanted`` (increasing, in order of display), each
with its place, in any order. Raises ``Miscounted`` if the index is wrong: then what was given before does not count;
``Reject`` where the file cannot be decoded.
"""


_HELD_BYTES = 64 << 20
"""Of packets that are held back until those are known which depend on them."""


class _Surprise(Exception):
    """The packets and the decoder do not do what was foretold."""


def pyav_frames(index: VideoIndex, wanted: Sequence[int], *, budget: CpuBudget) -> Iterator[tuple[int, VideoFrame]]:
    """Decoder: PyAV in this process, on one thread; only what the frames depend on where the index permits, or else all."""
    left = set(wanted)
    if not index.sequential:
        with contextlib.suppress(_Surprise), open_video(index.path, budget, index.stream, to_seek=True) as (container, stream):
            for place, frame in _sought(container, stream, index, sorted(left), budget):
                left.discard(place)
                yield place, frame
        if not left:
            return
    yield from _sequential(index, left, budget)


def _sought(
    container: InputContainer, stream: VideoStream, index: VideoIndex, wanted: Sequence[int], budget: CpuBudget
) -> Iterator[tuple[int, VideoFrame]]:
    """Decode from key frame to key frame, passing over pictures that nothing depends on."""
    from av.error import FFmpegError

    context = stream.codec_context
    # Damage is concealed with what was decoded before, which is not the same here: if there is any, decode all. Where
    # groups of pictures are open, their first ones are damaged by the seeking itself, and are not wanted.
    if not _has_open_groups(index):
        context.options = {**context.options, "err_detect": "+explode"}
    frame_of = {int(index.packet_pts[index.places[frame]]): frame for frame in wanted}
    skips = index.codec == "h264"  # whose decoder knows by itself what nothing is predicted from
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
                    yield from _chosen(context.decode(packet), frame_of)
            yield from _chosen(context.decode(None), frame_of)
        except FFmpegError as error:
            raise _Surprise(str(error)) from None
        at = last + 1
        if any(index.places[frame] <= last for frame in frame_of.values()):
            raise _Surprise("a frame did not come")
        # A decoder that was drained takes packets again only once it is flushed, which seeking does.
        if at >= len(index.packet_pts):
            return
        context.flush_buffers()


_Run = Iterator[tuple[int, "Packet[VideoStream]"]]


def _run(packets: Iterator[Packet[VideoStream]], index: VideoIndex, key: KeyFrame, at: int, last: int) -> _Run:
    """The packets of a stretch with their places; ``at`` is that of the first one, or -1 after seeking the key frame."""
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
    """AV1's packets without what the frames wanted do not depend on; all of them where that is not known."""
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
    """Stretches to be decoded: the key frame at which each begins, and the place of the last packet that is wanted of it."""
    keys = np.asarray([key.place for key in index.keys])
    runs: list[tuple[KeyFrame, int]] = []
    starts: list[tuple[KeyFrame, int]] = []
    for frame in wanted:
        place = int(index.places[frame])
        number = int(np.searchsorted(keys, place, side="right")) - 1
        # A picture displayed before the key frame that it follows may be predicted from what comes before that one.
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
    """Whether pictures are displayed before the key frame that they follow."""
    least_after = np.minimum.accumulate(index.packet_pts[::-1])[::-1]
    return any(int(least_after[key.place]) < key.pts for key in index.keys)


def _landed(index: VideoIndex, key: KeyFrame, packet: Packet[VideoStream]) -> int:
    """Place of the packet at which seeking arrived."""
    found = np.flatnonzero(index.packet_pts == packet.pts)
    place = int(found[0]) if len(found) else -1
    if place > key.place or all(place != other.place for other in index.keys):
        raise _Surprise("seeking arrived elsewhere")
    return place


def _chosen(frames: Sequence[VideoFrame], frame_of: dict[int, int]) -> Iterator[tuple[int, VideoFrame]]:
    for frame in frames:
        if frame.pts is None:
            raise _Surprise("a frame without a time")
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
    """Every frame of the file, decoded from the start: the definition.

    Raises:
        Reject: ``corrupt`` where a packet does not decode.
    """
    from av.error import InvalidDataError, PatchWelcomeError

    with open_video(index.path, budget, index.stream) as (container, stream):
        for count, packet in enumerate(container.demux(stream)):
            if count % 16 == 0:
                budget.left_s()
            try:
                frames = stream.decode(packet if packet.size else None)
            except (InvalidDataError, PatchWelcomeError) as error:
                raise Reject("corrupt", f"packet {count} does not decode: {error.strerror}") from None
            yield from frames


_FEW = 200
"""Runs of frames above which the select filter's expression would take longer than sending all frames."""


def ffmpeg_binary() -> str:
    """The ffmpeg command on the path, or the one that the optional package ``imageio-ffmpeg`` brings.

    Raises:
        RuntimeError: there is neither.
    """
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise RuntimeError("decoder 'ffmpeg': no ffmpeg command on the path; pip install imageio-ffmpeg brings one") from None


def ffmpeg_frames(index: VideoIndex, wanted: Sequence[int], *, budget: CpuBudget) -> Iterator[tuple[int, VideoFrame]]:
    """Decoder: the ffmpeg command, by ffmpeg-python; it decodes the whole file and sends the frames as they are stored.

    Raises:
        RuntimeError: there is no ffmpeg command, or it is too old.
        Died: it was ended by a signal.
        MachineFault: the system refuses it memory.
    """
    # One thread is in progress in the child process that calls this: nothing is locked when it is forked.
    limited = functools.partial(limit_cpu, budget.left_s())
    with tempfile.TemporaryFile() as told:
        command = _ffmpeg_command(index, wanted, budget.limits)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told, preexec_fn=limited)
        try:
            yield from _received(cast("IO[bytes]", process.stdout), wanted, all_sent=len(_stretches(wanted)) > _FEW)
            code = process.wait()
            budget.left_s()
            told.seek(max(0, told.tell() - 65536))
            log = told.read().decode("utf-8", "replace")
        finally:
            process.kill()
            process.wait()
            cast("IO[bytes]", process.stdout).close()
    _check_ending(code, log)
    counted = re.findall(r"(\d+) frames decoded(?:; (\d+) decode errors)?", log)  # before version 6 it does not tell of errors
    if code or not counted:
        raise Reject("corrupt", f"ffmpeg ended with {code}")  # its log tells times and addresses, no two of them alike
    if int(counted[0][1] or 0):
        raise Reject("corrupt", f"{counted[0][1]} packets do not decode")
    if int(counted[0][0]) != index.n_frames:
        raise Miscounted(int(counted[0][0]))


def _check_ending(code: int, log: str) -> None:
    """Raise for an end of the command that says nothing of the file."""
    signalled = re.search(r"received signal (\d+)", log)  # of some it makes an exit code
    if code < 0 or signalled:
        raise Died(int(signalled[1]) if signalled else -code)
    if code and (unknown := re.search(r"Unrecognized option '?[\w-]+|Option \S+ not found", log)):
        raise RuntimeError(f"decoder 'ffmpeg': {ffmpeg_binary()} says {unknown[0]!r}: version 5.1 or later is needed")
    if code and "Cannot allocate memory" in log and memory_is_short():
        raise MachineFault("memory is short: use fewer --workers, or more memory")


def _stretches(wanted: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of adjacent frames, as first and last."""
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
    )
    frames, runs = opened[str(index.stream)], _stretches(wanted)
    if len(runs) <= _FEW:
        frames = frames.filter("select", "+".join(f"between(n,{first},{last})" for first, last in runs))
    # Palettes do not travel with raw frames; all else is sent as stored, in a container that says how.
    pixels = "rgb24" if index.pix_fmt == "pal8" else index.pix_fmt
    sent = frames.output("pipe:", format="nut", vcodec="rawvideo", pix_fmt=pixels, fps_mode="passthrough", threads=1)
    command = ffmpeg.compile(sent.global_args("-nostdin", "-hide_banner", "-v", "verbose"), cmd=ffmpeg_binary())
    return [str(word) for word in command]


def _received(pipe: IO[bytes], wanted: Sequence[int], *, all_sent: bool) -> Iterator[tuple[int, VideoFrame]]:
    """The frames that come through the pipe, with their places."""
    import av
    from av.error import InvalidDataError

    places = set(wanted)
    numbers = iter(range(1 << 62)) if all_sent else iter(wanted)
    # PyAV reads a stream that names itself by its number as that file; in a plain object it sees one that cannot seek.
    with contextlib.suppress(InvalidDataError, EOFError), av.open(_Pipe(pipe), "r", format="nut") as container:
        for frame in container.decode(video=0):
            number = next(numbers, None)
            if number is None:
                raise Reject("corrupt", f"more than the {len(wanted)} requested frames came from ffmpeg")
            if number in places:
                yield number, frame


class _Pipe:
    """Only what can be done with a pipe."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.read = cast("io.BufferedReader", pipe).read


DECODERS: dict[str, Decoder] = {"pyav": pyav_frames, "ffmpeg": ffmpeg_frames}
"""By name. Both give the same frames."""
