"""A published dataset copied as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import IO

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
                if _copied(stream, out) != facts["sha256"]:  # damaged, or a link to another file
                    raise StoreError(f"{dataset}: file {name} is not what dataset.json says: `benchwright verify OUT` has more")
            progress(f"{name}: {facts['size']:,} bytes")
    target.write("dataset.json", source.read("dataset.json"))
    target.remove([UNFINISHED])
    return described["counts"]["samples"]


def _copied(stream: IO[bytes], out: IO[bytes]) -> str:
    """Copy, and return the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    while data := stream.read(1 << 22):
        digest.update(data)
        out.write(data)
    return digest.hexdigest()
