"""The content of a user's copy: the video files of a folder, and the clips of a list that match them.

Nothing outside the folder is read: links that point out of it are rejected; names in lists are only compared with existing
files and never opened.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl
import pyarrow as pa

from ...curation.rows import Rejected, Sifted, printable, sift
from ...curation.stages.folder import FolderEntry, open_folder, walk

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

# fmt: off
EXTENSIONS = (
    "3g2", "3gp", "asf", "avi", "divx", "f4v", "flv", "gif", "m1v", "m2ts", "m2v", "m4v", "mjpeg", "mkv", "mov", "mp4",
    "mpeg", "mpg", "mts", "mxf", "nut", "ogm", "ogv", "ts", "vob", "webm", "wmv", "y4m",
)
# fmt: on
"""Extensions of files that count as videos; whether they are videos is left to the decoder."""

Names = Literal["path", "stem", "youtube"]
"""How clips name their videos: by path in the folder, by file name without folder and extension, or by YouTube id."""

_YOUTUBE = r"(?:v_)?([A-Za-z0-9_-]{11})(?:_(\d{1,6}(?:\.\d{3})?)_(\d{1,6}(?:\.\d{3})?))?$"


@dataclass(frozen=True)
class VideoFile:
    """A video file: ``key`` is its path in the folder, with ``/``; ``size`` is in bytes."""

    key: str
    stem: str
    folder: str
    size: int


@dataclass(frozen=True)
class WithVideo:
    """Columns that ``match_videos`` adds or changes.

    Attributes:
        video: path of the file in the folder.
        copies: number of matching files; the first is used, in the order of ``match_videos``.
        t_start: None if the file contains only the clip.
        t_end: None if the file contains only the clip.
    """

    key: str
    video: str
    copies: int
    t_start: float | None
    t_end: float | None


def list_videos(*, root: str) -> Iterator[VideoFile | Rejected]:
    """Source step: the video files of a folder and its sub-folders, in the order of their paths.

    Rejected: ``not_a_video`` (another extension), ``empty_file``, ``hidden``, ``bad_name``, ``outside_folder``,
    ``linked_folder``, ``not_a_file``, ``unreadable``.

    Args:
        root: local folder or fsspec URL.
    """
    for at, entries in walk(open_folder(root)):
        for entry in entries:
            path = posixpath.join(at, entry.name)
            stem, extension = posixpath.splitext(entry.name)
            if reason := _fault(entry, extension):
                yield Rejected(printable(path), reason, entry.detail)
            else:
                yield VideoFile(path, stem, posixpath.basename(at), entry.size)


def _fault(entry: FolderEntry, extension: str) -> str | None:
    if entry.reason is not None:
        return entry.reason
    if extension.lower().removeprefix(".") not in EXTENSIONS:
        return "not_a_video"
    return None if entry.size else "empty_file"


def match_videos(rows: Rows, *, videos: Rows, names: Names, bare: Literal["whole", "clip"] = "whole") -> Iterator[Sifted]:
    """Whole step: find the file of every clip. Rejected: ``missing_video``.

    With ``names="youtube"`` files may be named ``<id>``, ``v_<id>``, or ``<id>_<start>_<end>`` with times in seconds, as
    downloaders name them (fractions have three decimals, ``000007.250``), in any folders. A file with the clip's own times has
    priority and contains only the clip; next is the file of the whole video. Of several files, one in a folder named like the
    class has priority, then the first by path.

    Args:
        rows: rows of ``ListedClip``, with any other columns.
        videos: rows of ``VideoFile``.
        names: see ``Names``.
        bare: content of a file named only by a YouTube id: the whole video, or the clip, as some tools store it.

    Yields:
        The rows in their order with the columns of ``WithVideo``, batch by batch.

    Raises:
        ValueError: ``names`` is unknown.
    """
    if names not in ("path", "stem", "youtube"):
        raise ValueError(f"names is {names!r}: one of path, stem, youtube")
    files = pl.DataFrame(pl.from_arrow(videos.table(["key", "stem", "folder"])))
    files = files.rename({"key": "video"}).sort("video").with_columns(_plain("folder").alias("folder"))
    youtube = names == "youtube"
    if youtube:
        parts = {name: pl.col("stem").str.extract(_YOUTUBE, n) for n, name in enumerate(("name", "from_s", "to_s"), 1)}
        times = [pl.col(name).cast(pl.Float64) for name in ("from_s", "to_s")]
        files = files.with_columns(**parts).drop_nulls("name").with_columns(*times)
    else:
        files = files.with_columns(pl.col("video" if names == "path" else "stem").alias("name"), from_s=None, to_s=None)
    for table in rows.batches():
        asked = pl.DataFrame(pl.from_arrow(table.select(["key", "name", "label", "t_start", "t_end"])))
        found = _found(asked.with_row_index("at"), files, cuts=youtube, bare=bare)
        kept = table.drop_columns(["t_start", "t_end"])
        for name, column in found.items():
            kept = kept.append_column(name, column)
        yield sift(kept, {"missing_video": found["video"].is_null()}, detail="name")


def _plain(column: str) -> pl.Expr:
    """A class name or folder name in normal form: lower case, only letters and digits."""
    return pl.col(column).str.to_lowercase().str.replace_all(r"[^\p{L}\p{N}]+", "")


def _found(asked: pl.DataFrame, files: pl.DataFrame, *, cuts: bool, bare: str) -> dict[str, pa.Array]:
    joined = asked.join(files, on="name", how="left", maintain_order="left_right")
    cut = pl.col("from_s").is_not_null()
    joined = joined.with_columns(
        own=(cut & (pl.col("from_s") == pl.col("t_start")) & (pl.col("to_s") == pl.col("t_end"))).fill_null(False)
        if cuts
        else pl.lit(False),
        elsewhere=pl.col("folder") != _plain("label"),
    ).filter(pl.col("own") | ~cut | pl.col("video").is_null())
    ranked = joined.sort("at", ~pl.col("own"), "elsewhere", "video", maintain_order=True)
    best = ranked.group_by("at", maintain_order=True).agg(
        pl.col("video", "own").first(), copies=pl.col("video").is_not_null().sum().cast(pl.Int64)
    )
    answer = asked.join(best, on="at", how="left", maintain_order="left")
    alone = pl.col("own").fill_null(False) | (pl.lit(cuts) & pl.lit(bare == "clip"))
    answer = answer.select(
        "video",
        pl.col("copies").fill_null(0),
        *(pl.when(alone).then(None).otherwise(pl.col(name)).alias(name) for name in ("t_start", "t_end")),
    )
    return {name: pa.array(answer[name].to_arrow()).cast(_TYPES[name]) for name in answer.columns}


_TYPES = {"video": pa.string(), "copies": pa.int64(), "t_start": pa.float64(), "t_end": pa.float64()}
