"""The checkpoint of a training, in a folder of the training's own: whole or not there.

Order of a commit: the state under a name of its own, then ``progress.json``, which names it and what was predicted at each
position so far (where the state has not all of it) with their SHA-256, then the old state goes. Each file is written beside
its place, synced and renamed, so that a kill at any moment leaves a ``progress.json`` whose state is there. Whose training it
is the folder says: ``keys.work_folder`` names it by settings, data and code. Where the run is in no local folder, the same is
written in the same order to its store, and read from there: another machine may continue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import posixpath
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files import remove, remove_half_written, replacing, write_whole
from .records import TEMPORARY, state_of
from .store import Store, StoreError

_PROGRESS = "progress.json"


class Checkpoint:
    """What a training has done so far.

    Where the folder holds nothing, or something damaged, nothing was done: then the training starts over.

    Attributes:
        files: what was predicted, a file per position that is done.
        state: the file from which learning resumes; None if nothing was done.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_half_written(folder)
        self._folder, self._copy = folder, copy_of(folder)
        if self._copy is not None:
            self._copy.fetch(folder)
        self._recorded: dict[str, Any] = {}
        self._commits = 0
        self.state: Path | None = None
        try:
            held = json.loads((folder / _PROGRESS).read_bytes())
            files, (state,) = dict(held["files"]), dict(held["state"])
            if all(self._is(name, recorded) for name, recorded in {**files, **held["state"]}.items()):
                self._recorded, self._commits, self.state = files, int(held["done"]), folder / state
        except (OSError, ValueError, LookupError, TypeError):
            pass

    def _is(self, name: str, recorded: Any) -> bool:
        return Path(name).name == name and recorded is not None and state_of(self._folder / name) == recorded

    @property
    def files(self) -> list[Path]:
        """See the class."""
        return [self._folder / name for name in self._recorded]

    def arrays(self) -> dict[str, np.ndarray]:
        """What ``commit_arrays`` wrote last, by name; nothing if nothing was done."""
        if self.state is None:
            return {}
        with np.load(self.state, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}

    def commit_arrays(self, arrays: Mapping[str, np.ndarray], predicted: Path | None = None) -> None:
        """``commit`` of a state that is arrays by name."""

        def save(path: Path) -> None:
            with path.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        self.commit(save, predicted)

    def commit(self, save: Callable[[Path], None], predicted: Path | None = None) -> None:
        """Write the state after one more position by ``save``.

        Args:
            save: writes one file, at the path that it is given.
            predicted: file in the folder with what was predicted at the position; None if the state has it all.

        Raises:
            ValueError: ``save`` wrote no file, or several.
        """
        self._commits += 1
        state = self._folder / f"after-{self._commits:04}"
        # In a folder of its own: torch takes no name that begins with a dot, and puts it into the file; numpy adds an ending.
        with replacing(state) as temporary, tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=self._folder) as room:
            save(Path(room) / state.name)
            saved = list(Path(room).iterdir())
            if len(saved) != 1:
                wrote = f"save(path) of a learner wrote {len(saved)} files"
                raise ValueError(f"{wrote}: expected one, at the path that it is given")
            saved[0].replace(temporary)
        if predicted is not None:
            self._recorded[predicted.name] = state_of(predicted)
        value = {"done": self._commits, "files": self._recorded, "state": {state.name: state_of(state)}}
        write_whole(self._folder / _PROGRESS, json.dumps(value).encode())  # in the order of the positions
        if self._copy is not None:
            for path in (*([] if predicted is None else [predicted]), state, self._folder / _PROGRESS):
                self._copy.put(path)
        self.state = state
        for old in self._folder.glob("after-*"):
            if old != state:
                remove(old)
                if self._copy is not None:
                    self._copy.remove(old.name)


_COPIES: dict[Path, Copy] = {}
"""Of the folders in use in this process, those that have a copy."""


@dataclasses.dataclass(frozen=True)
class Copy:
    """Where the files of a folder are in a store."""

    store: Store
    place: str

    def fetch(self, folder: Path) -> None:
        """Write the files that are there into ``folder``. One that somebody removes meanwhile is left out."""
        for name in self.store.list(self.place):
            with contextlib.suppress(StoreError):
                write_whole(folder / name, self.store.read(posixpath.join(self.place, name)), sync=False)

    def put(self, path: Path) -> None:
        """Write a file of the folder."""
        with self.store.writing(posixpath.join(self.place, path.name)) as stream, path.open("rb") as file:
            while data := file.read(1 << 22):
                stream.write(data)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.store.remove([posixpath.join(self.place, name)])


@contextlib.contextmanager
def work_room(store: Store, place: str) -> Iterator[str]:
    """A local folder for the block: ``place`` itself where the store is local; else a temporary one with its copy there."""
    if store.local is not None:
        path = store.local / place
        path.mkdir(parents=True, exist_ok=True)
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="benchwright-") as room:
        _COPIES[Path(room)] = Copy(store, place)
        try:
            yield room
        finally:
            del _COPIES[Path(room)]


def copy_of(folder: Path) -> Copy | None:
    """The copy of a folder, or of one within it; None if there is none."""
    for room in (folder, *folder.parents):
        if room in _COPIES:
            copy = _COPIES[room]
            return dataclasses.replace(copy, place=posixpath.join(copy.place, *folder.relative_to(room).parts))
    return None
