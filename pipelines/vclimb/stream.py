"""The stream of a vCLIMB dataset: clips in tasks, whose frames are read from the shards on demand."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.class_incremental import class_stream
from ...training.core.learner import SecondView, View
from ...training.data.clips import ClipView, consistent, for_memory, shard_clips
from ..stream_trainings import Prepared


def tasks(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training, and the views that its settings request."""
    settings = training["settings"]
    index = DatasetIndex.open(dataset)
    clips = shard_clips(index, clip_view(settings))
    table = index.table
    train, choose, report = settings["roles"]
    stream = class_stream(
        table["task"].to_numpy(),
        table["role"].to_pylist(),
        table["class_index"].to_numpy(),
        table["label"].to_pylist(),
        clips.take,
        roles=(train, None if choose == "none" else choose, report),
    )
    return Prepared(stream, *narrowings(settings))


def clip_view(settings: Mapping[str, Any]) -> ClipView:
    """The view of clips. Raises ValueError for an invalid value, TypeError for a missing or unknown one."""
    values: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in settings["view"].items()}
    return ClipView(**values)


def narrowings(settings: Mapping[str, Any]) -> tuple[View, SecondView | None]:
    """How the memory stores a clip, and the second view for temporal consistency. Raises ValueError for an invalid value."""
    keep = functools.partial(for_memory, frames=_count(settings["memory"]["frames"]))
    if (values := settings["consistency"]) is None:
        return keep, None
    view = functools.partial(consistent, frames=_count(values["frames"]), variant=values["variant"])
    return keep, SecondView(view, values["weight"])


def _count(frames: Any) -> int | None:
    if frames != "all" and (not isinstance(frames, int) or frames < 1):
        raise ValueError(f"frames {frames!r}: a number of at least 1, or 'all'")
    return None if frames == "all" else frames
