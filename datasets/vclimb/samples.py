"""The last steps before the shards: order the clips, assign shards, and build the samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import Blob
from ...curation.shard_assignment import assign_shards
from ...curation.shards import row_values
from ...curation.stages.ranks import draws
from ...curation.video.frames import frame_members, unpack_frames
from .splits import tell_lost_roles

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

COLUMNS = {
    "class_index": "place of the class in the order of learning, from 0",
    "task": "task that brings the class, from 0",
    "role": "train, val or test",
    "label": "name of the class",
    "name": "the video, as the list names it",
    "group": "what roles should not share: recordings, people; the video where nothing is known",
    "video": "file that the frames come from, in the folder of videos",
    "copies": "files there that would have done",
    "t_start": "start of the clip in its video, seconds; none: the whole video",
    "t_end": "end, likewise",
    "video_s": "length of the video as listed, seconds",
    "listed": "where the list names it",
    "release": "release that lists the clip",
    "split": "split of that release",
    "youtube_id": "video",
    "time_start": "start of the clip in the YouTube video, seconds",
    "time_end": "end, likewise",
    "coverage": "share of the video that its longest segment covers",
    "segment": "number of the segment in its video, from 0",
    "source_key": "listed row that stands for the clip",
    "container": "FFmpeg's name of the file's format",
    "codec": "FFmpeg's name of the codec",
    "stream": "number of the video among all streams of the file, from 0",
    "rotation_deg": "by which frames were turned for display",
    "fps": "frames a second of the file, on average",
    "n_frames": "frames of the file",
    "duration_s": "seconds from the first frame to the end of the last",
    "start_s": "time stamp of the first frame",
    "size_bytes": "of the file",
    "n_available": "frames of the clip, on the plan's clock",
    "frames": "frames that are stored",
    "frame_sizes": "bytes of each of them: a sample begins with them, each after 512 bytes and filled up to a multiple of 512",
    "width_px": "of the stored frames",
    "height_px": "of the stored frames",
    "sha256": "of the sample's members: extension, NUL, size, NUL, bytes, in the order of the extensions",
}
"""Meaning of the columns, for the dataset's card."""

NOT_IN_INDEX = ("frame_index", "frame_time_s")
"""Columns with a number per frame, which are in the samples but not in the index."""


@dataclass(frozen=True)
class PlacedClip:
    """Columns that ``place`` adds or changes: ``frames`` becomes the number of frames, and ``jpegs`` holds them."""

    key: str
    shard: str
    frames: int
    jpegs: Blob


def place(rows: Rows, *, usable: Rows, max_samples: int, seed: int) -> Iterator[pa.Table]:
    """Whole step: sort by (task, role), shuffle within, assign shards. Warns if a class lost all clips of a role in decoding.

    Args:
        rows: rows with ``label``, ``task``, ``role``, and the columns of ``SampledClip``.
        usable: the clips before their frames were decoded, with ``label``, ``role`` and ``task``.
        max_samples: maximum number of samples per shard; a shard holds one task and role.
        seed: seed for the shuffle, so that a sequential reader of the shards sees all classes of the task.
    """
    tell_lost_roles(usable, rows)
    for table in assign_shards(rows, by=["task", "role"], max_samples=max_samples, order=draws(rows, seed, "place")):
        counts = pc.list_value_length(table["frame_sizes"]).cast(pa.int64())
        jpegs = table["frames"]
        yield table.set_column(table.column_names.index("frames"), "frames", counts).append_column("jpegs", jpegs)


@dataclass(frozen=True)
class Sampled:
    """A row as it is written to a shard."""

    key: str
    jpegs: Blob
    frame_sizes: list[int]
    frame_index: list[int]
    frame_time_s: list[float]
    label: str
    class_index: int
    task: int
    role: str
    group: str
    video: str
    t_start: float | None
    t_end: float | None


def sample(row: Sampled) -> dict[str, Any]:
    """Members of a sample: the frames in order, ``0000.jpg`` and so on, and JSON with their labels."""
    frames = frame_members(unpack_frames(row.jpegs.read(), row.frame_sizes))
    return {**frames, "json": row_values(row, but=["jpegs", "frame_sizes"])}
