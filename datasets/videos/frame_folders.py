"""Videos stored as folders of pictures, as vCLIMB's released code reads them: ``<class>/<video>/frame<number>.jpg``.

A folder with pictures whose names end in a number is a video, with its frames in the order of these numbers. Pictures are
stored unchanged unless they are larger than requested.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator

import numpy as np

from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.decode import check_pixels, decode_rgb, read_header
from ...curation.stages.folder import Folder, FolderEntry, open_folder, walk
from ...curation.video.frame_plans import FramePlan, choose_frames
from ...curation.video.frames import AS_USUAL, NO_SURPRISES, Clip, FrameSettings, ProbedClip, SampledClip, sampled_clip
from ...curation.video.limits import VideoLimits
from ...curation.video.pixels import encode_jpeg, scaled_size
from .inventory import VideoFile

_FRAME = re.compile(r"(?P<number>\d{1,9})\.(?:jpg|jpeg|png)\Z", re.IGNORECASE)

_MAX_BYTES = 1 << 26
"""Maximum size of a picture file in bytes."""


def list_frame_folders(*, root: str) -> Iterator[VideoFile | Rejected]:
    """Source step: the folders that hold frames, in the order of their paths; ``size`` is the total size of the frames.

    Rejected: ``not_a_frame`` (any other file), and as for ``inventory.list_videos``.

    Args:
        root: local folder or fsspec URL.
    """
    for at, entries in walk(open_folder(root)):
        frames = [entry for entry in entries if entry.reason is None and _FRAME.search(entry.name)]
        for entry in entries:
            if entry not in frames:
                yield Rejected(printable(posixpath.join(at, entry.name)), entry.reason or "not_a_frame", entry.detail)
        if frames and at:
            name = posixpath.basename(at)
            folder = posixpath.basename(posixpath.dirname(at))
            yield VideoFile(at, name, folder, sum(entry.size for entry in frames))


def probe_frame_folder(
    row: Clip, *, root: str, fps: float, plan: FramePlan | None = None, limits: VideoLimits = NO_SURPRISES
) -> ProbedClip:
    """Step: the properties of a clip's folder of frames. The frame rate is not stored there, but a setting.

    Raises:
        Reject: ``no_frames``, ``repeated_frame``, ``too_many_frames``, and as for ``stages.decode.read_header``; with a plan
            also ``bad_segment`` and ``too_few_frames``.
    """
    folder = open_folder(root)
    names = _frames(folder, row.video, limits)
    header = read_header(folder.read(names[0].name, max_bytes=_MAX_BYTES), max_pixels=limits.max_pixels)
    if plan is not None:
        choose_frames(plan, np.arange(len(names) + 1) / fps, fps=fps, t_start=row.t_start, t_end=row.t_end, key=row.key)
    return ProbedClip(
        row.key,
        row.video,
        container="frames",
        codec=header.extension,
        stream=0,
        width_px=header.width,
        height_px=header.height,
        rotation_deg=0,
        fps=fps,
        n_frames=len(names),
        duration_s=len(names) / fps,
        start_s=0.0,
        size_bytes=sum(entry.size for entry in names),
        t_start=row.t_start,
        t_end=row.t_end,
    )


def sample_frame_folder(
    row: Clip, *, root: str, fps: float, plan: FramePlan, settings: FrameSettings = AS_USUAL, limits: VideoLimits = NO_SURPRISES
) -> SampledClip:
    """Step: the frames of a clip that a plan chooses, like ``curation.video.frames.sample_frames`` for video files.

    A JPEG whose shorter side is not above ``short_side_px`` is stored byte for byte; other pictures become JPEGs, larger ones
    scaled down by area averaging.

    Raises:
        Reject: as for ``probe_frame_folder`` and ``stages.decode.decode_rgb``; also ``bad_segment``, ``too_few_frames`` or
            ``size_changes``.
    """
    folder = open_folder(root)
    names = _frames(folder, row.video, limits)
    times_s = np.arange(len(names) + 1) / fps
    places, n_available = choose_frames(plan, times_s, fps=fps, t_start=row.t_start, t_end=row.t_end, key=row.key)
    made = {place: _jpeg(folder, names[place].name, settings, limits) for place in sorted(set(places))}
    sizes = {size for _, size in made.values()}
    if len(sizes) > 1:
        raise Reject("size_changes", f"frames of {' and '.join(f'{w}x{h}' for w, h in sorted(sizes)[:2])}")
    width, height = sizes.pop()
    return sampled_clip(
        row,
        [made[place][0] for place in places],
        n_available=n_available,
        frame_index=places,
        frame_time_s=times_s[places].tolist(),
        width_px=width,
        height_px=height,
    )


def _frames(folder: Folder, video: str, limits: VideoLimits) -> list[FolderEntry]:
    """The frames of a video in order, with their paths relative to the folder of videos."""
    try:
        _, entries = next(walk(Folder(folder.fs, posixpath.join(folder.root, video), folder.local)))
    except (FileNotFoundError, NotADirectoryError):
        raise Reject("missing_file", f"{video}: no such folder") from None
    numbered = [(int(found["number"]), entry) for entry in entries if not entry.reason and (found := _FRAME.search(entry.name))]
    if not numbered:
        raise Reject("no_frames", f"{video}: no picture whose name ends in a number")
    if len(numbered) > limits.max_frames:
        raise Reject("too_many_frames", f"{len(numbered)} frames, limit {limits.max_frames}")
    numbered.sort(key=lambda pair: (pair[0], pair[1].name))
    for (number, entry), (following, other) in itertools.pairwise(numbered):
        if number == following:
            raise Reject("repeated_frame", f"{video}: {entry.name} and {other.name} are both frame {number}")
    return [FolderEntry(posixpath.join(video, entry.name), entry.size) for _, entry in numbered]


def _jpeg(folder: Folder, name: str, settings: FrameSettings, limits: VideoLimits) -> tuple[bytes, tuple[int, int]]:
    """A frame as JPEG, and its width and height."""
    from PIL import Image

    data = folder.read(name, max_bytes=_MAX_BYTES)
    header = read_header(data, max_pixels=limits.max_pixels)
    size = scaled_size(header.width, header.height, settings.short_side_px)
    if header.extension == "jpg" and size == (header.width, header.height):
        check_pixels(data, header, max_pixels=limits.max_pixels)
        return data, size
    pixels = decode_rgb(data, max_pixels=limits.max_pixels)
    if size != (header.width, header.height):
        pixels = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
    return encode_jpeg(np.ascontiguousarray(pixels), settings.jpeg_quality), size
