"""Clips in shards of frames, as rows. Each clip is a WebDataset sample with members ``0000.jpg``, ``0001.jpg``, ... in temporal
order, and possibly others. No frame is read here: rows say where their sample is.

::

    clips = source("frames", step(read_clips, root=where(folder)), pieces=step(shards_below, root=...), max_rejects=None)
    join(clips, samples).whole("with_frames", step(attach_clips, clips=rows_of("frames")), gives=WithFrames)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ...curation.rows import Rejected, Sifted, sift
from ...curation.shards import scan_shard
from ..reader.index import ShardFiles

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

_FRAME = re.compile(r"(\d+)\.(?:jpe?g|png|webp)\Z")


@dataclass(frozen=True)
class FrameClip:
    """One clip: ``key`` is ``<shard>/<sample>``, ``uid`` names the clip, the others locate its sample, in bytes."""

    key: str
    uid: str
    clip_sample: str
    clip_shard: str
    clip_offset: int
    clip_size: int
    clip_frames: int


@dataclass(frozen=True)
class WithFrames:
    """The columns that ``attach_clips`` adds."""

    key: str
    clip_sample: str
    clip_shard: str
    clip_offset: int
    clip_size: int
    clip_frames: int


def shards_below(*, root: str) -> list[str]:
    """Names of the shards (``*.tar``) of a folder or URL, sorted. Raises ``FileNotFoundError`` if it has none."""
    names = sorted(ShardFiles(root).sizes())
    if not names:
        raise FileNotFoundError(f"{root}: no *.tar here, expected shards of frames")
    return names


def read_clips(shard: str, *, root: str, uid_pattern: str | None = None) -> Iterator[FrameClip | Rejected]:
    """Clips of one shard, in the order of the shard; only headers are read, no frames.

    Args:
        shard: one of ``shards_below``.
        root: the same as for ``shards_below``.
        uid_pattern: regular expression that extracts the clip's uid from a sample's key: its first group, or the whole match.
            None: keys are uids.

    Yields:
        Rows; rejects are ``no_frames`` and ``bad_uid`` (the pattern does not match).

    Raises:
        ShardError: the file is not a tar, or is damaged.
    """
    finds = None if uid_pattern is None else re.compile(uid_pattern)
    files = ShardFiles(root)
    with files.mapped(shard) as tar:
        for span in scan_shard(tar, place=files.place(shard)):
            key = f"{shard}/{span.key}"
            found = None if finds is None else finds.search(span.key)
            uid = span.key if finds is None else "" if found is None else found[1 if finds.groups else 0] or ""
            frames = sum(_FRAME.match(name) is not None for name in span.members)
            if not frames:
                yield Rejected(key, "no_frames", f"members {', '.join(span.members[:5])}")
            elif not uid:
                yield Rejected(key, "bad_uid", f"sample {span.key!r}")
            else:
                yield FrameClip(key, uid, span.key, shard, span.offset, span.size, frames)


def attach_clips(rows: Rows, *, clips: Rows) -> Iterator[Sifted]:
    """Whole step: find the frames of every row by its key. Rejected: ``no_frames``, and ``several_clips`` if the shards hold a
    uid more than once.

    Args:
        rows: rows of samples.
        clips: rows of ``FrameClip``; all of them are held in memory.
    """
    columns = ["clip_sample", "clip_shard", "clip_offset", "clip_size", "clip_frames"]
    every = pl.concat(pl.DataFrame(pl.from_arrow(table)) for table in clips.batches(["uid", *columns]))
    named = every.select("uid").with_row_index("at").group_by("uid").agg(pl.col("at").min(), times=pl.len())
    held = every.drop("uid")
    del every
    for table in rows.batches():
        asked = pl.DataFrame({"uid": pl.Series(pl.from_arrow(table["key"])).cast(pl.String)})
        asked = asked.join(named, on="uid", how="left", maintain_order="left")
        found = held.select(pl.all().gather(asked["at"]))
        for name in columns:
            table = table.append_column(
                name, found[name].to_arrow().cast("int64" if found[name].dtype == pl.Int64 else "string")
            )
        absent, again = asked["times"].is_null().to_numpy(), (asked["times"].fill_null(0) > 1).to_numpy()
        yield sift(table, {"no_frames": absent, "several_clips": again}, detail="key")


def frames_of(members: Mapping[str, bytes], count: int) -> list[bytes]:
    """``count`` frames spread evenly over a sample: the middle frames of ``count`` equal parts.

    If the clip has fewer frames, some are repeated.

    Args:
        members: extension -> bytes, with at least one frame.
    """
    numbered = sorted((int(match[1]), name) for name in members if (match := _FRAME.match(name)))
    return [members[numbered[place][1]] for place in evenly(len(numbered), count)]


def evenly(total: int, count: int) -> Sequence[int]:
    """``count`` positions among ``total``: int(t / 2 + i t) with t = total / count."""
    return [(2 * i + 1) * total // (2 * count) for i in range(count)]
