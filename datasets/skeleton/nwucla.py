"""Northwestern-UCLA Multiview Action 3D (Wang et al., CVPR 2014), as the JSON files ``all_sqe`` distributed with CTR-GCN.

A file ``a01_s02_e03_v01.json`` (action, subject, repetition, view) has ``file_name``, ``label`` (1 to 10) and ``skeletons``,
T frames of 20 joints of x, y, z in metres.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from ...curation.bounded_reading import parse_json, read_file
from ...curation.rows import Reject, Rejected, printable
from ...curation.stages.folder import open_folder, walk
from .facts import facts
from .files import MAX_BYTES, json_values, sequence_from_json
from .layouts import Layout
from .rows import InFile, ListedSequence, TensorRow
from .tensors import TensorForm, tensor_row

_NAME = re.compile(r"a(\d\d)_s(\d\d)_e(\d\d)_v(\d\d)", re.ASCII)


def list_nwucla(*, root: str, lists: str | None = None) -> Iterator[ListedSequence | Rejected]:
    """Source step: the sequences of a folder, in the order of their names, or of CTR-GCN's lists.

    Rejected: ``not_json``: another extension; ``bad_name``: a name without action, subject, repetition and view;
    ``unknown_action``; entries that cannot be listed; ``not_in_lists``: only in the folder; ``no_file``: only in the lists.

    Args:
        root: the folder.
        lists: JSON file, ``{"train": [{"file_name": "a05_s04_e02_v01"}, ...], "val": [...]}``: the lists of CTR-GCN's feeder,
            which are shuffled. Sequences are in the order of the lists, training (views 1 and 2) first.

    Raises:
        ValueError: the file of lists has another form.
    """
    if lists is None:
        yield from _in_folder(root)
        return
    place = {name: at for at, name in enumerate(_names(lists))}
    found: dict[str, ListedSequence] = {}
    for one in _in_folder(root):
        if isinstance(one, Rejected):
            yield one
        elif one.key not in place:
            yield Rejected(one.file, "not_in_lists", one.key)
        else:
            found[one.key] = one
    for name in place:
        yield found.get(name) or Rejected(printable(name), "no_file", "it is in the lists")


def _names(lists: str) -> list[str]:
    try:
        values: Any = parse_json(read_file(lists, max_bytes=MAX_BYTES))
        return [str(entry["file_name"]) for part in ("train", "val") for entry in values[part]]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"lists {lists!r}: expected JSON with train and val, each entry with file_name: {error!r:.200}"
        ) from None


def _in_folder(root: str) -> Iterator[ListedSequence | Rejected]:
    fact = facts().nwucla
    for at, entries in walk(open_folder(root)):
        for entry in entries:
            file = posixpath.join(at, entry.name)
            stem, extension = posixpath.splitext(entry.name)
            found = _NAME.fullmatch(stem)
            if entry.reason or extension != ".json":
                yield Rejected(printable(file), entry.reason or "not_json", entry.detail)
            elif not found:
                yield Rejected(printable(file), "bad_name", "a01_s01_e00_v01.json is the form of a name")
            elif int(found[1]) not in fact.actions:
                yield Rejected(file, "unknown_action", f"action {found[1]}: there are {', '.join(map(str, fact.actions))}")
            else:
                action, subject, repetition, view = map(int, found.groups())
                side = "train" if view in fact.x_view_train_cameras else "test"
                name = fact.classes[fact.actions.index(action)]
                yield ListedSequence(stem, file, name, None, view, subject, repetition, None, side, None)


def read_nwucla(row: InFile, *, root: str, layout: Layout, form: TensorForm) -> TensorRow:
    """Each step: the tensor of a file listed by ``list_nwucla``.

    Raises:
        Reject: as for ``files.read_sequence``, and ``label_differs`` if file and name disagree.
    """
    values = json_values(open_folder(root).read(row.file, max_bytes=MAX_BYTES))
    wanted = facts().nwucla.classes.index(row.class_name) + 1
    if values.get("label", wanted) != wanted:
        raise Reject("label_differs", f"label {values['label']!r:.40}, but {wanted} by its name")
    return tensor_row(row, sequence_from_json(values), layout, form)
