"""NTU RGB+D 60 and 120 (Shahroudy et al., CVPR 2016; Liu et al., TPAMI 2020): names, protocols, the list of missing skeletons.

A name ``S001C002P003R002A013`` consists of setup, camera, performer, replication and action.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator

from ...curation.bounded_reading import read_lines
from ...curation.rows import Rejected, printable
from ...curation.stages.folder import open_folder, walk
from .facts import facts
from .rows import ListedSequence

_NAME = re.compile(r"S(\d{3})C(\d{3})P(\d{3})R(\d{3})A(\d{3})", re.ASCII)


def list_ntu(*, root: str) -> Iterator[ListedSequence | Rejected]:
    """Source step: the ``.skeleton`` files of a folder by name, folder by folder, in the order of the names.

    Rejected: ``not_skeleton``: other files; ``bad_name``: a name without all five numbers, or with one out of range;
    entries that cannot be listed.
    """
    for at, entries in walk(open_folder(root)):
        for entry in entries:
            file = posixpath.join(at, entry.name)
            stem, extension = posixpath.splitext(entry.name)
            if entry.reason or extension != ".skeleton":
                yield Rejected(printable(file), entry.reason or "not_skeleton", entry.detail)
            else:
                yield listed_by_name(stem, file) or _bad_name(printable(file), stem)


def list_ntu_names(*, path: str) -> Iterator[ListedSequence | Rejected]:
    """Source step: the names in a text file, one per line, with or without ``.skeleton``. There are no files to read.

    Rejected: ``bad_name``.
    """
    for number, line in enumerate(read_lines(path), 1):
        if name := line.decode("utf-8", "backslashreplace").strip().removesuffix(".skeleton"):
            yield listed_by_name(name, "") or _bad_name(f"line {number}", name)


def _bad_name(key: str, name: str) -> Rejected:
    fact = facts().ntu
    most = f"{fact.setups}, {fact.cameras}, {fact.performers}, {fact.replications}, {len(fact.classes)}"
    return Rejected(key, "bad_name", f"{printable(name)[:40]!r}: S001C001P001R001A001 is the form, up to {most}")


def listed_by_name(name: str, file: str) -> ListedSequence | None:
    """The sequence with this name, with its sides in X-Sub, X-View and X-Set; None if the name is not one of NTU's."""
    fact = facts().ntu
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    setup, camera, performer, replication, action = map(int, found.groups())
    most = (fact.setups, fact.cameras, fact.performers, fact.replications, len(fact.classes))
    if any(not 1 <= value <= top for value, top in zip((setup, camera, performer, replication, action), most, strict=True)):
        return None
    sides = (performer in fact.x_sub_train_performers, camera in fact.x_view_train_cameras, setup % 2 == 0)
    x_sub, x_view, x_set = ("train" if side else "test" for side in sides)
    name_of_class = fact.classes[action - 1]
    return ListedSequence(name, file, name_of_class, setup, camera, performer, replication, x_sub, x_view, x_set)


@functools.lru_cache(maxsize=2)
def read_missing(path: str) -> frozenset[str]:
    """Names in a list of missing skeletons: the first one in every line; lines without one, such as headings, are ignored.

    Raises:
        ValueError: the list has no name.
    """
    lines = (line.decode("utf-8", "replace") for line in read_lines(path))
    names = frozenset(found[0] for line in lines if (found := _NAME.search(line)))
    if not names:
        raise ValueError(f"list of missing skeletons {path!r}: no name such as S001C002P005R002A008 is in it")
    return names
