"""vCLIMB's released split files: pickles, read without executing anything in them.

A file is ``{"train", "val"[, "test"]: [task: {class: [item]}]}``; an item is the name of a video, or, for ActivityNet, a table
of texts. Anything else in a pickle is refused: see ``curation/pickles.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from ...curation.bounded_reading import read_file
from ...curation.pickles import MAX_BYTES, UnsafePickle, load_plain
from ...curation.rows import Rejected
from ..activitynet.annotations import segment
from ..roles import ROLES
from ..ucf101.lists import group_of
from ..videos.rows import ListedClip, key_of_name

MAX_ITEMS = 10_000_000
"""Maximum number of items: a small file can refer to one list many times."""

_KINETICS = re.compile(r"(?:v_)?([A-Za-z0-9_-]{11})_(\d{6})_(\d{6})\Z")


@dataclass(frozen=True)
class SplitClip(ListedClip):
    """A clip of a split file: the columns of ``ListedClip``, and its class and task in the order of learning.

    Attributes:
        class_index: position of the class in the order of learning, from 0.
        task: number of the task, from 0.
    """

    class_index: int
    task: int


def read_split(*, path: str, sha256: str | None = None, tasks: int | None = None) -> Iterator[SplitClip | Rejected]:
    """Source step: the clips of a released split file in the order (role, task, class, item).

    Rejected: ``malformed_item``, ``repeated_clip`` (the video has occurred before), and for segments ``bad_time``.

    Args:
        path: local path or fsspec URL of the pickle.
        sha256: expected SHA-256 of the file, 64 hexadecimal digits; None: any.
        tasks: expected number of tasks; None: any.

    Raises:
        ValueError: the SHA-256 or the number of tasks differs, the pickle is unsafe or damaged or has another structure, or
            classes differ between roles.
    """
    data = read_file(path, max_bytes=MAX_BYTES)
    found = hashlib.sha256(data).hexdigest()
    if sha256 and found != sha256.lower():
        raise ValueError(f"split file {path!r} has SHA-256 {found}, expected {sha256}")
    try:
        split = load_plain(data)
        order = _class_order(split)
    except UnsafePickle as error:
        raise ValueError(f"split file {path!r} is refused: {error}") from None
    if tasks is not None and len(split["train"]) != tasks:
        raise ValueError(f"split file {path!r} has {len(split['train'])} tasks, expected {tasks}")
    yield from _clips(split, order)


def _class_order(split: Any) -> dict[str, tuple[int, int]]:
    """Class -> (index, task), from the training tasks. Checks the structure down to the lists of items."""
    if not isinstance(split, dict) or not {"train"} <= split.keys() <= set(ROLES):
        raise UnsafePickle(f"no table of {', '.join(ROLES)}")
    roles = cast("dict[str, Any]", split)
    items = 0
    for role, tasks in roles.items():
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in cast("list[Any]", tasks)):
            raise UnsafePickle(f"{role!r} is not a list of tasks, each a table of classes")
        if len(tasks) != len(roles["train"]):
            raise UnsafePickle(f"{role!r} has {len(tasks)} tasks, 'train' has {len(roles['train'])}")
        for number, task in enumerate(tasks):
            if any(not isinstance(name, str) or not isinstance(found, list) for name, found in task.items()):
                raise UnsafePickle(f"{role!r}, task {number}: no table of class name -> list of items")
            if task.keys() != roles["train"][number].keys():
                raise UnsafePickle(f"{role!r}, task {number}: other classes than 'train' has there")
            items += sum(map(len, task.values()))
            if items > MAX_ITEMS:
                raise UnsafePickle(f"more than {MAX_ITEMS} items")
    order: dict[str, tuple[int, int]] = {}
    for number, task in enumerate(roles["train"]):
        for name in task:
            if name in order:
                raise UnsafePickle(f"class {name[:80]!r} is in task {order[name][1]} and again in task {number}")
            order[name] = (len(order), number)
    return order


def _clips(split: dict[str, Any], order: dict[str, tuple[int, int]]) -> Iterator[SplitClip | Rejected]:
    keys: dict[str, int] = {}
    for role in (role for role in ROLES if role in split):
        for label, (class_index, task) in order.items():
            for number, item in enumerate(split[role][task][label]):
                listed = f"{role}:{task}:{label}:{number}"
                clip = _clip(item, label, role, listed, keys)
                yield clip if isinstance(clip, Rejected) else SplitClip(**vars(clip), class_index=class_index, task=task)


def _clip(item: Any, label: str, role: str, listed: str, keys: dict[str, int]) -> ListedClip | Rejected:
    if isinstance(item, str) and item:
        key = key_of_name(item)
        if key in keys:
            return Rejected(listed, "repeated_clip", item[:200])
        keys[key] = 1
        if found := _KINETICS.match(item):
            t_start, t_end = float(found[2]), float(found[3])
            return ListedClip(key, found[1], label, role, found[1], t_start, t_end, None, listed)
        return ListedClip(key, item, label, role, group_of(item, label), None, None, None, listed)
    fields = cast("dict[Any, Any]", item) if isinstance(item, dict) else {}
    video = fields.get("filename")
    if not isinstance(video, str) or len(video) != 13 or not video.startswith("v_"):
        return Rejected(listed, "malformed_item", "neither a name nor a segment with 'filename' v_<YouTube id>")
    times = (fields.get("t_start"), fields.get("t_end"), fields.get("video_duration"))
    return segment(video[2:], label, role, times, listed, keys)
