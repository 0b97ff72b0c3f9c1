"""Find pairs of raw files, and the charts in them, by file name or from CSV files next to them.

S20 is a folder with raw files ``<pair>_CAM_0`` and ``<pair>_CAM_1``; its sub-folders, if any, are further devices.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np

from ...curation.csv_files import whole_csv_rows
from ...curation.local_files import may_leave
from ...curation.rows import Reject, Rejected
from ...curation.stages.folder import open_folder

MAX_BYTES = 1 << 28
_PLACES = {"{pair}": "(?P<pair>.+)", "*": "[A-Za-z0-9]+"}


@dataclass(frozen=True)
class ListedPair:
    """Two raw files of one scene.

    Attributes:
        device: folder of the files within the source, "" if there is none; identifies cameras that are fixed to each other.
        file_1: path of the first camera's file within the source; ``file_2`` of the second's.
        chart_1: centres of the corner patches (dark skin, bluish green, black, white) in raw pixels of the first camera, x
            and y in turn (8,); None if they are not listed.
        chart_2: the same in the second camera; None: computed by the homography.
    """

    key: str
    name: str
    device: str
    file_1: str
    file_2: str
    chart_1: list[float] | None
    chart_2: list[float] | None


def list_pairs(
    *, root: str, names: Sequence[str], pairs: str | None = None, charts: str | None = None
) -> Iterator[ListedPair | Rejected]:
    """Source step: the pairs in a folder tree, by path.

    Args:
        root: local path or fsspec URL.
        names: patterns for the paths of the first and of the second camera's files within ``root``. ``{pair}`` is the part that
            the files of a pair have in common, folders included, and ``*`` matches letters and digits:
            ``["main/{pair}.*", "wide/{pair}.*"]`` are two folders with files of equal names.
        pairs: name of a CSV file in ``root`` to use instead of ``names``, with the columns ``file_1``, ``file_2`` and, if there
            are several devices, ``device``; or None.
        charts: name of a CSV file in ``root`` with the columns ``name`` (a file within ``root``, without its extension) and
            ``x0, y0`` to ``x3, y3``; or None.

    Yields:
        Pairs in the order of their files, or of the CSV file, and the rejects ``no_partner`` (only one camera), ``two_files``
        (two files of one camera), ``no_file``, ``duplicate_key`` and ``no_chart_listed``. Files with other names are ignored.

    Raises:
        FileNotFoundError: the folder or a CSV file does not exist.
        ValueError: the folder has no pair, a name has no ``{pair}``, or a CSV file has another form.
    """
    fs, folder = fsspec.core.url_to_fs(root)
    if not fs.isdir(folder):
        raise FileNotFoundError(f"folder of raw pairs {root} is not there")
    listed = read_charts(root, charts) if charts is not None else None
    seen: dict[str, str] = {}
    found = _named(fs, folder, root, names) if pairs is None else _in_csv(root, pairs)
    for number, (name, device, files) in enumerate(found):
        key = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        corners = [(listed or {}).get(posixpath.splitext(each[0])[0]) for each in files if each]
        if not all(files):
            yield Rejected(key, "no_partner", next(each for each in files if each)[0])
        elif any(len(same) > 1 for same in files):
            yield Rejected(key, "two_files", ", ".join(max(files, key=len)))
        elif missing := [path for [path] in files if pairs is not None and not fs.isfile(posixpath.join(folder, path))]:
            yield Rejected(key, "no_file", missing[0])
        elif key in seen:
            yield Rejected(f"{key}-{number}", "duplicate_key", f"{name!r} and {seen[key]!r} have one key")
        elif listed is not None and corners[0] is None:
            yield Rejected(key, "no_chart_listed", f"{posixpath.splitext(files[0][0])[0]} is not in {charts}")
        else:
            seen[key] = name
            yield ListedPair(key, name, device, files[0][0], files[1][0], *corners)


_Files = tuple[list[str], list[str]]
"""Files of the first and of the second camera; one each in a valid pair."""


def _named(fs: Any, folder: str, root: str, names: Sequence[str]) -> Iterator[tuple[str, str, _Files]]:
    """Name, device and files of each pair, found by the patterns of file names."""
    patterns = [_pattern(name) for name in names]
    inside = folder.rstrip("/") + "/"
    found: dict[str, _Files] = {}
    for path in sorted(name[len(inside) :] for name in fs.find(folder)):
        for camera, pattern in enumerate(patterns):
            matched = pattern.fullmatch(path)
            if matched and not posixpath.basename(path).startswith("."):
                found.setdefault(matched["pair"], ([], []))[camera].append(path)
    if not found:
        raise ValueError(f"{root}: no file is named like {' or '.join(names)}: see source.names")
    for name, files in found.items():
        yield name, posixpath.dirname(name), files


def _pattern(name: str) -> re.Pattern[str]:
    if name.count("{pair}") != 1:
        raise ValueError(f"source.names: {name!r}: expected {{pair}} once, as in main/{{pair}}.dng")
    return re.compile("".join(_PLACES.get(part, re.escape(part)) for part in re.split(r"(\{pair\}|\*)", name)))


def _in_csv(root: str, name: str) -> Iterator[tuple[str, str, _Files]]:
    """Name, device and files of each pair in a CSV file, in its order; a pair is named after its first file."""
    rows = _read_csv(root, name, ("file_1", "file_2"), "source.pairs")
    if not rows:
        raise ValueError(f"{name}: it lists no pair")
    for number, line in rows:
        files = [line[column].strip() for column in ("file_1", "file_2")]
        if not all(files) or any(map(may_leave, files)):
            raise ValueError(f"{name}, line {number}: {', '.join(files)}: expected two paths within {root}")
        yield posixpath.splitext(files[0])[0], line.get("device", "").strip(), ([files[0]], [files[1]])


def _read_csv(root: str, name: str, columns: Sequence[str], setting: str) -> list[tuple[int, dict[str, str]]]:
    """Lines of a CSV file in ``root`` with their numbers; see ``whole_csv_rows``."""
    lines = read_listed(root, name, setting).removeprefix(b"\xef\xbb\xbf").splitlines()
    return list(whole_csv_rows((line.decode("utf-8", "replace") for line in lines), name, dict.fromkeys(columns, setting)))


def read_charts(root: str, name: str) -> dict[str, list[float]]:
    """Corner patches by file name without extension, eight numbers each, from a CSV file in ``root``; see ``list_pairs``."""
    columns = [f"{axis}{corner}" for corner in range(4) for axis in "xy"]
    charts: dict[str, list[float]] = {}
    for number, line in _read_csv(root, name, ("name", *columns), "source.charts"):
        try:
            corners = [float(line[column]) for column in columns]
        except ValueError:
            raise ValueError(f"{name}, line {number}: expected eight numbers") from None
        if not np.isfinite(corners).all() or line["name"] in charts:
            raise ValueError(f"{name}, line {number}: {line['name']!r} occurs twice, or a number is not finite")
        charts[line["name"]] = corners
    return charts


def read_listed(root: str, name: str, setting: str) -> bytes:
    """Read a file that concerns all rows. Raises ``FileNotFoundError`` or ``ValueError``, which name ``setting``."""
    try:
        return read_within(root, name)
    except Reject as reject:
        place = posixpath.join(root, name)
        if reject.reason == "missing_file":
            raise FileNotFoundError(f"{place} is not there: see {setting}") from None
        raise ValueError(f"{place} cannot be read: {reject.reason}: {reject.detail}: see {setting}") from None


def read_within(root: str, name: str) -> bytes:
    """Read a file within ``root`` of at most ``MAX_BYTES``. Raises ``Reject`` as ``Folder.read`` does."""
    return open_folder(root).read(name, max_bytes=MAX_BYTES)
