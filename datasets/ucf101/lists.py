"""The official lists of UCF101, ``classInd.txt`` and three pairs ``trainlist0N.txt``, ``testlist0N.txt``; and clip names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from ...curation.bounded_reading import read_lines
from ...curation.rows import Rejected
from ..videos.rows import ListedClip, key_of_name

_LINE = re.compile(r"([^/\\]+)/([^/\\]+)\.avi(?:\s+(\d+))?\Z")


def read_classes(root: str) -> dict[str, int]:
    """Class -> its number from 1, from ``classInd.txt``.

    Raises:
        ValueError: a line is not a number and a name, or one of them occurs twice.

    >>> from pathlib import Path
    >>> done = Path("classInd.txt").write_text("1 ApplyEyeMakeup\\n2 Archery\\n")
    >>> read_classes(".")
    {'ApplyEyeMakeup': 1, 'Archery': 2}
    """
    classes: dict[str, int] = {}
    for number, line in enumerate(_lines(root, "classInd.txt"), 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not fields[0].isdecimal() or fields[1] in classes or int(fields[0]) in classes.values():
            raise ValueError(f"classInd.txt, line {number}: expected a new number and a new class, not {line[:80]!r}")
        classes[fields[1]] = int(fields[0])
    return classes


def read_lists(*, root: str, split: int = 1) -> Iterator[ListedClip | Rejected]:
    """Source step: the clips of one official split, test before train; each of the three splits has all 13,320 clips.

    Rejected: ``malformed_row``, ``unknown_class``, ``wrong_class_number``, ``bad_name`` (not ``v_<Class>_g01_c01``).

    Args:
        root: folder with the seven files.
        split: 1, 2 or 3. It decides ``role``, which vCLIMB does not use.

    Raises:
        ValueError: another split, or an invalid ``classInd.txt``.

    >>> from pathlib import Path
    >>> lists = {"classInd": "1 Archery", "testlist01": "Archery/v_Archery_g01_c01.avi", "trainlist01": "Archery/holiday.avi 1"}
    >>> sizes = [Path(f"{name}.txt").write_text(text) for name, text in lists.items()]
    >>> clip, rejected = read_lists(root=".")
    >>> clip.key, clip.role, clip.group, rejected.reason
    ('v_Archery_g01_c01', 'test', 'Archery/g01', 'bad_name')
    """
    if split not in (1, 2, 3):
        raise ValueError(f"split is {split}: UCF101 has 1, 2 and 3")
    classes = read_classes(root)
    for role in ("test", "train"):
        file = f"{role}list{split:02d}.txt"
        for number, line in enumerate(_lines(root, file), 1):
            if line.strip():
                yield _clip(line.strip(), f"{file}:{number}", role, classes)


def _clip(line: str, listed: str, role: str, classes: dict[str, int]) -> ListedClip | Rejected:
    found = _LINE.match(line)
    if found is None:
        return Rejected(listed, "malformed_row", line[:200])
    label, stem, number = found.groups()
    if label not in classes:
        return Rejected(listed, "unknown_class", line[:200])
    if number is not None and int(number) != classes[label]:
        return Rejected(listed, "wrong_class_number", f"{line[:200]}: classInd.txt says {classes[label]}")
    if parse_name(stem) is None:
        return Rejected(listed, "bad_name", line[:200])
    return ListedClip(key_of_name(stem), stem, label, role, group_of(stem, label), None, None, None, listed)


def _lines(root: str, name: str) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in read_lines(posixpath.join(root, name)))


_NAME = re.compile(r"v_([A-Za-z0-9]+)_(g\d{2})_(c\d{2})\Z")


def parse_name(stem: str) -> tuple[str, str, str] | None:
    """Class as in the file name (``HandStandPushups``), group ``g01`` to ``g25`` and clip ``c01`` and up, from a file name
    without extension; None if it has another form. Clips of one group share people, place or recording.

    >>> parse_name("v_HandStandPushups_g01_c02")
    ('HandStandPushups', 'g01', 'c02')
    >>> parse_name("holiday") is None
    True
    """
    found = _NAME.match(stem)
    return (found[1], found[2], found[3]) if found else None


def group_of(stem: str, label: str) -> str:
    """Name of a clip's group, unique across classes: ``Surfing/g22``; the clip's own name if it has no group.

    >>> group_of("v_Surfing_g22_c04", "Surfing"), group_of("holiday", "Surfing")
    ('Surfing/g22', 'holiday')
    """
    name = parse_name(stem)
    return f"{label}/{name[1]}" if name else stem
