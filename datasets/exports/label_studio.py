"""A published dataset as a project of Label Studio, to review and correct its labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...curation.qa.label_studio import choice_config
from ...curation.qa.mturk import data_uri
from ...curation.store import Store
from .columns import pictures_in
from .published import Published

CONFIG, TASKS = "config.xml", "tasks.json"
"""Files of the form; the first is written at the start."""


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
        for number, (row, members) in enumerate(of.json_samples()):
            if not (shown := pictures_in(members)):
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
