"""A published dataset in the forms of FiftyOne and Label Studio, tools that show pictures."""

from __future__ import annotations

import datetime
import json
import math
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...curation.qa.label_studio import choice_config
from ...curation.qa.mturk import data_uri
from ...curation.store import Store
from .columns import column_of
from .published import PLACES, Published

METADATA, SAMPLES = "metadata.json", "samples.json"
"""Files of FiftyOne's form in addition to the media; the first is written at the start."""

CONFIG, TASKS = "config.xml", "tasks.json"
"""Files of Label Studio's form; the first is written at the start."""

_RESERVED = {"id", "filepath", "tags", "metadata", "media_type", "created_at", "last_modified_at", "frames", "frame_number"}
"""Field names that FiftyOne reserves; a column with such a name becomes ``column_<name>``."""


def write_fiftyone(dataset: str, target: Store, *, progress: Callable[[str], None] = lambda _: None) -> int:
    """Write a published dataset in the form that ``fiftyone.types.FiftyOneDataset`` reads, and return the number of samples.

    Each picture is a sample of FiftyOne, with the columns of the index as fields, and the split of the first configuration as
    its tag. Columns of classes become ``Classification``; dates and times become texts. The frames of a clip share its key, and
    ``frame`` is their position: ``dataset.group_by("key", order_by="frame")``. A sample without a picture is represented by its
    first member. Media that exist with the same size are not written again, and ``samples.json`` appears after all media.

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
    done, same = list[str](), _same(of, target)
    first = next(iter(of.configurations))
    masks = {name.partition("/")[2]: mask for name, mask in of.masks().items() if name.startswith(f"{first}/")}
    splits = [[name for name in masks if masks[name][row]] for row in range(len(of.index))]
    pictured = True
    with target.writing(SAMPLES) as stream:
        stream.write(b'{"samples": [')
        for number, (row, members) in enumerate(_rows(of)):
            fields = _fields(of, row) | {"tags": splits[number], "metadata": None}
            shown = _pictures(members)
            pictured = pictured and bool(shown)
            for frame, extension in enumerate(shown or sorted(members)[:1]):
                name = f"data/{row['key']}.{extension}"
                if not same or target.size(name) != len(members[extension]):
                    target.write(name, members[extension])
                told = fields | {"filepath": name} | ({"frame": frame} if len(shown) > 1 else {})
                stream.write(b"%s\n%s" % (b"," * bool(done), json.dumps(told, allow_nan=False).encode()))
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


def write_label_studio(
    dataset: str, target: Store, *, side_px: int = 512, progress: Callable[[str], None] = lambda _: None
) -> int:
    """Write a published dataset as a project of Label Studio, to review and correct its labels; return the number of tasks.

    ``tasks.json`` (Import) has for each sample a thumbnail of its picture (of the middle frame for a clip), the columns of the
    index, and the sample's class as a prediction. ``config.xml`` (Labeling Interface, Code) asks for the class: the column
    ``label`` if it exists, else the first column of classes.

    Args:
        dataset: folder or URL.
        target: destination.
        side_px: longest side of a thumbnail.
        progress: called with one line.

    Raises:
        ValueError: the dataset has no classes, or a sample has no picture that can be decoded.

    >>> write_label_studio("out/dataset", Store("for-label-studio"))
    210
    >>> task = json.loads(Store("for-label-studio").read("tasks.json"))[0]
    >>> task["data"]["image"][:23], task["predictions"][0]["result"][0]["value"]
    ('data:image/jpeg;base64,', {'choices': ['BACKGROUND']})
    """
    of = Published.open(dataset)
    column = "label" if "label" in of.labels else next(iter(of.labels), "")
    if not column:
        raise ValueError(f"{dataset}: it has no column of classes, which Label Studio needs")
    target.write(CONFIG, choice_config(list(dict.fromkeys(of.labels[column]))).encode())
    with target.writing(TASKS) as stream:
        for number, (row, members) in enumerate(_rows(of)):
            if not (shown := _pictures(members)):
                raise ValueError(f"{dataset}: sample {row['key']!r} has no picture, only {sorted(members)}: name another form")
            image = data_uri({row["key"]: members[shown[len(shown) // 2]]}, row["key"], side_px=side_px)
            task: dict[str, Any] = {"data": {**row, "image": image}}
            if name := of.class_of(row, column):
                result = {"from_name": "class", "to_name": "image", "type": "choices", "value": {"choices": [name]}}
                task["predictions"] = [{"model_version": f"benchwright {of.facts['digest'][:12]}", "result": [result]}]
            stream.write(b"%s\n%s" % (b"," if number else b"[", json.dumps(task, allow_nan=False).encode()))
        stream.write(b"\n]\n")
    progress(f"{TASKS}: {len(of.index):,} tasks")
    return len(of.index)


def _same(of: Published, target: Store) -> bool:
    """Whether the media in the target belong to the same dataset."""
    if not target.exists(METADATA):
        # Written first, so that an interrupted push can be recognised.
        target.write_json(METADATA, {"info": {"benchwright": of.facts["digest"]}})
        return True
    try:
        return target.read_json(METADATA)["info"]["benchwright"] == of.facts["digest"]
    except (LookupError, TypeError):
        raise ValueError(f"{target.url}/{METADATA} is not the record of a push: remove it, or name another place") from None


def _rows(of: Published) -> Iterator[tuple[dict[str, Any], Mapping[str, bytes]]]:
    """Each row as JSON values, without shard, offset and size, and its members."""
    for table, samples in of.samples():
        for row, members in zip(table.drop_columns(list(PLACES)).to_pylist(), samples, strict=True):
            yield {name: _plain(value) for name, value in row.items()}, members


def _plain(value: Any) -> Any:
    """A value for JSON: dates and times as ISO 8601, and null for numbers that are not finite."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fields(of: Published, row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in of.labels:
            label = of.class_of(row, name)
            value = None if label is None else {"_cls": "Classification", "label": label}
        found[f"column_{name}" if name in _RESERVED else name] = value
    return found


def _pictures(members: Mapping[str, bytes]) -> Sequence[str]:
    """Extensions of the pictures of a sample, in frame order."""
    return sorted(each for each in members if column_of(each)[1] in ("image", "images"))
