"""Annotations of ActivityNet v1.3: the official JSON, the JSON of work on action localisation, and the CSV files of TSP. Every
annotated segment becomes a row.

The CSV files have the lengths of the 30 fps copies that TSP's authors made; the JSON has the lengths of the videos. Segments of
no or negative length in the published lists (9 in train, 3 in val of TSP's) are kept here and rejected when frames are cut.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ...curation.bounded_reading import bounded, parse_json, read_file, read_lines
from ...curation.csv_files import csv_rows
from ...curation.rows import Rejected, is_text, printable
from ..roles import ROLE_NAMES
from ..videos.rows import ListedClip, read_time, segment_key

_ID = re.compile(r"[A-Za-z0-9_-]{11}\Z")
_TSP = ("video-name", "t-start", "t-end", "action-label", "video-duration", "temporal-region-label")


def read_activitynet_json(*, path: str) -> Iterator[ListedClip | Rejected]:
    """Source step: segments of the official JSON (``activity_net.v1-3.min.json``) in its order.

    The form used in work on action localisation is read, too: names, with or without ``v_``, of
    ``{"annotations": [{"segment", "label"}], "duration_second"}``, not inside a ``database`` and often without subsets. Without
    subsets, clips have no role.

    Rejected: ``no_annotation`` (videos of the test subset), ``bad_subset``, ``malformed_entry``, ``bad_id``,
    ``empty_label``, ``bad_label`` (not valid text) and ``bad_time``.

    Raises:
        ValueError: the file is not JSON with such a table.
    """
    raw: Any = parse_json(read_file(path), repr(path))
    database = cast("Any", raw).get("database", raw) if isinstance(raw, dict) else None
    if not isinstance(database, dict):
        raise ValueError(f"{path!r} has no table 'database' of videos and their annotations: is it ActivityNet's JSON?")
    videos = cast("dict[str, Any]", database)
    entries = [cast("dict[str, Any]", entry) for entry in videos.values() if isinstance(entry, dict)]
    notes = [note for entry in entries if isinstance(entry.get("annotations"), list) for note in entry["annotations"]]
    _check_names(path, "videos", entries or [{}], ("annotations",), "lists of 'segment' and 'label'")
    _check_names(path, "videos", entries if notes else [], ("duration", "duration_second"), "seconds of the whole video")
    _check_names(path, "annotations", notes, ("segment",), "[start, end] in seconds")
    _check_names(path, "annotations", notes, ("label",), "names of classes")
    yield from _segments(_entries(videos, posixpath.basename(path)))


def _check_names(path: str, what: str, found: Sequence[Any], names: Sequence[str], meaning: str) -> None:
    """Raise ``ValueError`` if none of the entries has one of these names, because the file has another form."""
    tables = [cast("dict[str, Any]", one) for one in found if isinstance(one, dict)]
    if tables and not any(name in one for one in tables for name in names):
        has = ", ".join(map(repr, tables[0])) or "nothing"
        raise ValueError(f"{path!r}: its {what} have no {' or '.join(map(repr, names))}, {meaning}: the first has {has}")


def _entries(database: Mapping[str, Any], file: str) -> Iterator[_Segment | Rejected]:
    without_subsets = not any(isinstance(entry, dict) and "subset" in entry for entry in database.values())
    for name, entry in database.items():
        listed, youtube_id = f"{file}:{printable(name)}", name.removeprefix("v_") if len(name) == 13 else name
        notes = entry.get("annotations") if isinstance(entry, dict) else None
        role = ROLE_NAMES.get(str(cast("Any", entry).get("subset")).lower()) if isinstance(entry, dict) else None
        if not isinstance(notes, list):
            yield Rejected(listed, "malformed_entry", "no list of annotations")
        elif role is None and not without_subsets:
            yield Rejected(listed, "bad_subset", f"{str(entry.get('subset'))[:40]!r} is not one of {', '.join(ROLE_NAMES)}")
        elif not notes:
            yield Rejected(listed, "no_annotation", role or "")
        else:
            for number, note in enumerate(cast("list[Any]", notes)):
                place = f"{listed}:{number}"
                times = note.get("segment") if isinstance(note, dict) else None
                if not isinstance(times, list) or len(times) != 2:
                    yield Rejected(place, "malformed_entry", "no segment of two times")
                else:
                    start, end = cast("list[Any]", times)
                    length = entry.get("duration", entry.get("duration_second"))
                    yield _Segment(place, youtube_id, str(note.get("label") or ""), role, start, end, length)


def read_tsp_csv(*, root: str, files: Mapping[str, str]) -> Iterator[ListedClip | Rejected]:
    """Source step: segments of TSP's CSV files, in their order.

    Rejected: ``background`` (regions without action), ``malformed_row``, ``bad_id``, ``empty_label`` and ``bad_time``.

    Args:
        root: folder of the files.
        files: role -> name of its file in ``root``, in reading order.

    Raises:
        ValueError: a file lacks one of the columns, or has a column twice.
    """
    for role, name in files.items():
        text = (line.decode("utf-8", "replace") for line in read_lines(posixpath.join(root, name)))
        needed: dict[str, str] = dict.fromkeys(_TSP, f"source.files.{role}: is it a file of TSP's ground truth?")
        rows = csv_rows(text, f"list {name!r}", needed)
        yield from bounded(_segments(_regions(rows, name, role)), f"list {name!r}")


def _regions(rows: Iterable[tuple[int, Mapping[str, str] | str]], file: str, role: str) -> Iterator[_Segment | Rejected]:
    for number, row in rows:
        listed = f"{file}:{number}"
        if isinstance(row, str):
            yield Rejected(listed, "malformed_row", row)
        elif row["temporal-region-label"] != "Action":
            yield Rejected(listed, "background", row["temporal-region-label"])
        else:
            times = (row["t-start"], row["t-end"], row["video-duration"])
            yield _Segment(listed, row["video-name"], row["action-label"], role, *times)


class _Segment(NamedTuple):
    """A segment with its values as in the file."""

    listed: str
    youtube_id: str
    label: str
    role: str | None
    start: object
    end: object
    length: object


def _segments(found: Iterable[_Segment | Rejected]) -> Iterator[ListedClip | Rejected]:
    """Rows; rejects are ``bad_id``, ``empty_label``, ``bad_label`` and ``bad_time`` (not a number from 0 to a million)."""
    keys: dict[str, int] = {}
    for one in found:
        yield one if isinstance(one, Rejected) else _clip(one, keys)


def _clip(one: _Segment, keys: dict[str, int]) -> ListedClip | Rejected:
    if not _ID.match(one.youtube_id):
        return Rejected(one.listed, "bad_id", f"{one.youtube_id[:80]!r} is not a YouTube id")
    if not one.label:
        return Rejected(one.listed, "empty_label", one.youtube_id)
    if not is_text(one.label):
        return Rejected(one.listed, "bad_label", f"{one.label[:80]!r} contains half a surrogate pair, which is not valid text")
    return segment(one.youtube_id, one.label, one.role, (one.start, one.end, one.length), one.listed, keys)


def segment(
    youtube_id: str, label: str, role: str | None, times: tuple[object, object, object], listed: str, keys: dict[str, int]
) -> ListedClip | Rejected:
    """A segment as a row, or ``bad_time``.

    Args:
        youtube_id: id of the video.
        label: class.
        role: train, val or test; None if the list has none.
        times: start, end and the video's length, seconds, as in the file.
        listed: position in the list.
        keys: keys used so far, with counts; updated. A segment that occurs twice in a list counts twice (ActivityNet has 49 of
            them), and the second gets the key ``...-2``.
    """
    t_start, t_end, video_s = (read_time(value) for value in times)
    if t_start is None or t_end is None or video_s is None:
        return Rejected(listed, "bad_time", f"{youtube_id}: {times}: expected start, end and length in seconds")
    key = segment_key(f"v_{youtube_id}", t_start, t_end)
    keys[key] = keys.get(key, 0) + 1
    numbered = key if keys[key] == 1 else f"{key}-{keys[key]}"
    return ListedClip(numbered, youtube_id, label, role, youtube_id, t_start, t_end, video_s, listed)
