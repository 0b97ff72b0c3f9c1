"""Checkpoints of a training: one at a time, in a folder of the training's own, whole or not there.

Order of a commit: the state under a name of its own, then ``progress.json``, which names it with its SHA-256, then the old
state goes. Each file is written beside its place, synced and renamed, so that a kill at any moment leaves a ``progress.json``
whose state is there. Whose training it is the folder says: ``curation.keys.work_folder`` names it by settings, data and code.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...curation.files import remove, remove_half_written, replacing, write_whole
from ...curation.records import TEMPORARY

_PROGRESS = "progress.json"


class Held(NamedTuple):
    """What a checkpoint holds: positions done, the JSON values given with it, and the file of the state."""

    done: int
    fields: Any
    state: Path


def held(folder: Path) -> Held | None:
    """The checkpoint of a folder; None where there is none, or it is damaged: then the training starts over."""
    remove_half_written(folder)
    try:
        value = json.loads((folder / _PROGRESS).read_bytes())
        state = folder / str(value["state"])
        digest = hashlib.sha256(state.read_bytes()).hexdigest()
        whole = state.parent == folder and digest == value["sha256"] and isinstance(value["done"], int)
        return Held(value["done"], value["fields"], state) if whole else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def commit(folder: Path, save: Callable[[Path], None], done: int, fields: Any) -> None:
    """Write the state after ``done`` positions by ``save``, and ``fields``, which are JSON values.

    Raises:
        ValueError: ``save`` wrote no file, or several.
    """
    state = folder / f"after-{done:04}"
    # In a folder of its own: torch takes no name that begins with a dot, and puts it into the file; numpy adds an ending.
    with replacing(state) as beside, tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder) as room:
        save(Path(room) / state.name)
        saved = list(Path(room).iterdir())
        if len(saved) != 1:
            raise ValueError(f"save(path) of a learner wrote {len(saved)} files: one is wanted, at the path that it is given")
        saved[0].replace(beside)
    digest = hashlib.sha256(state.read_bytes()).hexdigest()
    value = {"done": done, "fields": fields, "sha256": digest, "state": state.name}
    write_whole(folder / _PROGRESS, json.dumps(value, sort_keys=True).encode())
    for old in folder.glob("after-*"):
        if old != state:
            remove(old)
