"""Your own videos: a folder of class folders, a folder of files named by their class, or a CSV file next to the videos.

``list_folder`` reads folders. ``list_csv`` reads a CSV file with the columns ``video`` and ``label``, and optionally
``t_start``, ``t_end``, ``role`` and ``group``; ``video`` is a path in the folder of videos. Both name clips by path.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Literal

from ...curation.bounded_reading import bounded, utf8_lines
from ...curation.csv_files import csv_rows
from ...curation.rows import Rejected, printable
from ...curation.stages.folder import folders_in, is_outside, open_folder
from ..roles import ROLE_NAMES, ROLES
from ..ucf101.lists import parse_name
from .frame_folders import list_frame_folders
from .inventory import VideoFile, list_videos
from .rows import ListedClip, key_of_name, read_time, segment_key

_COLUMNS = ("video", "label", "t_start", "t_end", "role", "group")


def list_folder(
    *,
    root: str,
    layout: Literal["class_folders", "flat"],
    form: Literal["files", "frames"] = "files",
) -> Iterator[ListedClip | Rejected]:
    """Source step: every video of a folder, labelled by its folder or by its own name.

    Args:
        root: folder of videos.
        layout: ``class_folders``: ``[role/]<class>/<video>``, with a role if the class folders are inside folders ``train``,
            ``val`` or ``test``; ``flat``: ``<class>.<extension>``.
        form: whether a video is a file or a folder of frames.

    Rejected: ``no_class_folder`` for a video outside all class folders, and ``empty_class_folder``. Files that are not videos
    are rejected only by ``list_videos``, whose stage is part of every plan for a folder.
    """
    if layout not in ("class_folders", "flat"):
        raise ValueError(f"layout is {layout!r}: class_folders or flat")
    empty = dict.fromkeys(_class_folders(root) if layout == "class_folders" else ())
    for file in list_videos(root=root) if form == "files" else list_frame_folders(root=root):
        if isinstance(file, Rejected):
            continue
        if empty:
            for depth in (1, 2):
                empty.pop("/".join(file.key.split("/")[:depth]), None)
        yield _by_folder(file) if layout == "class_folders" else _clip(file, file.stem, None, file.key)
    for name in empty:
        yield Rejected(printable(name), "empty_class_folder", f"class {posixpath.basename(name)!r} has no video")


def _class_folders(root: str) -> Iterator[str]:
    """Paths of the folders that name classes."""
    for name in folders_in(open_folder(root)):
        if _role(name):
            yield from (posixpath.join(name, each) for each in folders_in(open_folder(posixpath.join(root, name))))
        else:
            yield name


def _by_folder(file: VideoFile) -> ListedClip | Rejected:
    folders = file.key.split("/")[:-1]
    role = _role(folders[0]) if len(folders) > 1 else None
    named = folders[1:] if role else folders
    if not named:
        return Rejected(file.key, "no_class_folder", "the video is not in a folder named after its class")
    ucf = parse_name(file.stem)
    group = f"{named[0]}/{ucf[1]}" if ucf else file.key
    return _clip(file, "/".join(named), role, group)


def _clip(file: VideoFile, label: str, role: str | None, group: str) -> ListedClip:
    key = key_of_name(posixpath.splitext(file.key)[0])
    return ListedClip(key, file.key, label, role, group, None, None, None, file.key)


def _role(text: str) -> str | None:
    return ROLE_NAMES.get(text.strip().lower())


def list_csv(*, path: str) -> Iterator[ListedClip | Rejected]:
    """Source step: the rows of a CSV file with a header; columns as in the docstring of the module, in any order.

    Rejected: ``malformed_row``, ``empty_video``, ``outside_folder``, ``empty_label``, ``bad_time`` (not two numbers of
    seconds, 0 <= start < end), ``bad_role``.

    Raises:
        ValueError: the file lacks these columns, has a column twice, or is not UTF-8, or more than a million rows are rejected.
    """
    place = f"list {path!r}"
    needed: dict[str, str] = dict.fromkeys(("video", "label"), "source.path")
    rows = csv_rows(utf8_lines(path, place), place, needed, spelled=lambda name: name.strip().lower())
    yield from bounded((_csv_clip(f"{posixpath.basename(path)}:{number}", row) for number, row in rows), place)


def _csv_clip(listed: str, row: Mapping[str, str] | str) -> ListedClip | Rejected:
    if isinstance(row, str):
        return Rejected(listed, "malformed_row", row)
    video, label, start, end, role, group = (row.get(name, "").strip() for name in _COLUMNS)
    video = posixpath.normpath(video.replace("\\", "/")) if video else ""
    t_start, t_end = read_time(start), read_time(end)
    if not video:
        return Rejected(listed, "empty_video")
    if is_outside(video):
        return Rejected(listed, "outside_folder", video)
    if not label:
        return Rejected(listed, "empty_label", video)
    if (start or end) and (t_start is None or t_end is None or t_start >= t_end):
        return Rejected(listed, "bad_time", f"{start!r} to {end!r}: expected seconds, 0 <= start < end")
    known = _role(role)
    if role and known is None:
        return Rejected(listed, "bad_role", f"{role!r} is not one of {', '.join(ROLES)}")
    key = segment_key(key_of_name(posixpath.splitext(video)[0]), t_start, t_end)
    return ListedClip(key, video, label, known, group or video, t_start, t_end, None, listed)
