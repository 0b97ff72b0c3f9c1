"""A published dataset in the form of FiftyOne, which shows pictures."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from ...curation.publish import fact_of
from ...curation.store import Store
from .columns import pictures_in
from .published import Published

METADATA, SAMPLES = "metadata.json", "samples.json"
"""Files of the form in addition to the media; the first is written at the start."""

_RESERVED = {"id", "filepath", "tags", "metadata", "media_type", "created_at", "last_modified_at", "frames", "frame_number"}
"""Field names that FiftyOne reserves; a column with such a name becomes ``column_<name>``."""


def write_fiftyone(dataset: str, target: Store, *, progress: Callable[[str], None] = lambda _: None) -> int:
    """Write a published dataset in the form that ``fiftyone.types.FiftyOneDataset`` reads, and return the number of samples.

    Each picture is a sample of FiftyOne, with the columns of the index as fields, and the split of the first configuration as
    its tag. Columns of classes become ``Classification``; dates and times become texts. The frames of a clip share its key, and
    ``frame`` is their position: ``dataset.group_by("key", order_by="frame")``. A sample without a picture is represented by its
    first member. Media with the same bytes are not written again, and ``samples.json`` appears after all media.

    Raises:
        ShardError: a shard is missing or broken.
        ValueError: the target contains a ``metadata.json`` of something else.

    >>> write_fiftyone("out/dataset", Store("for-fiftyone"))
    210
    >>> sample = json.loads(Store("for-fiftyone").read("samples.json"))["samples"][0]
    >>> sample["tags"], sample["label"]
    (['train'], {'_cls': 'Classification', 'label': 'BACKGROUND'})
    """
    of = Published.open(dataset)
    _begin(of, target)
    done = list[str]()
    masks = of.split_masks(next(iter(of.configurations)))
    splits = [[name for name in masks if masks[name][row]] for row in range(len(of.index))]
    pictured = True
    with target.writing(SAMPLES) as stream:
        stream.write(b'{"samples": [')
        for number, (row, members) in enumerate(of.json_samples()):
            fields = _fields(of, row) | {"tags": splits[number], "metadata": None}
            shown = pictures_in(members)
            pictured = pictured and bool(shown)
            for frame, extension in enumerate(shown or sorted(members)[:1]):
                name = f"data/{row['key']}.{extension}"
                if not target.holds(name, fact_of(members[extension])):
                    target.write(name, members[extension])
                document = fields | {"filepath": name} | ({"frame": frame} if len(shown) > 1 else {})
                stream.write(b"%s\n%s" % (b"," * bool(done), json.dumps(document, allow_nan=False).encode()))
                done.append(name)
        stream.write(b"\n]}\n")
    target.write_json(
        METADATA,
        {
            "name": of.facts["title"],
            "media_type": "image" if pictured else "unknown",
            "info": {"benchwright": of.facts["digest"], "licence": of.facts["licence"], "classes": of.labels},
        },
    )
    kept = set(done)
    target.remove([name for each in target.list("data") if (name := posixpath.join("data", each)) not in kept])
    progress(f"{SAMPLES}: {len(done):,} media of {len(of.index):,} samples")
    return len(of.index)


def _begin(of: Published, target: Store) -> None:
    """Mark the target as that of a push, so that an interrupted one is recognised, unless an earlier one has marked it."""
    if not target.exists(METADATA):
        target.write_json(METADATA, {"info": {"benchwright": of.facts["digest"]}})
    try:
        target.read_json(METADATA)["info"]["benchwright"]
    except (LookupError, TypeError):
        raise ValueError(f"{target.url}/{METADATA} is not the record of a push: remove it, or name another place") from None


def _fields(of: Published, row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in of.labels:
            label = of.class_of(row, name)
            value = None if label is None else {"_cls": "Classification", "label": label}
        found[f"column_{name}" if name in _RESERVED else name] = value
    return found
