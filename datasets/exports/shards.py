"""A published dataset copied as it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from ...curation.part_writer import Hashing
from ...curation.store import Store, StoreError

UNFINISHED = "unfinished.json"
"""Marks a copy that has no ``dataset.json`` yet, which is written last."""


def copy_dataset(dataset: str, target: Store, *, progress: Callable[[str], None] = lambda _: None) -> int:
    """Copy the files of a published dataset, and return the number of its samples. Files with the right SHA-256 stay.

    Raises:
        StoreError: a file is missing, or has another SHA-256 than its record.

    >>> copy_dataset("out/dataset", Store("elsewhere"))
    210
    """
    source = Store(dataset)
    described = source.read_json("dataset.json")
    if not target.exists("dataset.json"):
        target.write_json(UNFINISHED, {"digest": described["digest"]})
    for name, facts in described["files"].items():
        if not target.holds(name, facts):
            with source.open(name) as stream, target.writing(name) as out:
                shutil.copyfileobj(stream, hashing := Hashing(out), 1 << 22)
                if hashing.facts["sha256"] != facts["sha256"]:  # damaged, or a link to another file
                    raise StoreError(f"{dataset}: file {name} is not what dataset.json says: `benchwright verify OUT` has more")
            progress(f"{name}: {facts['size']:,} bytes")
    target.write("dataset.json", source.read("dataset.json"))
    target.remove([UNFINISHED])
    return described["counts"]["samples"]
