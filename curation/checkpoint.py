"""Checkpoints of a training, in a folder for that training. A checkpoint is complete or does not exist.

A commit writes the state under a new name; then ``progress.json``, with the names, sizes and SHA-256 of the state and of the
predictions at each position so far (unless the state contains them all); then it removes the old state. Each file is written
under a temporary name, synced and renamed, so that after a kill at any moment the state in ``progress.json`` exists. The folder
identifies the training: ``keys.work_folder`` derives its name from settings, data and code. If the run is not in a local
folder, the files are also written, in the same order, to its store and read from there, so that another machine can resume.
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

from .local_files import remove, remove_half_written, replacing, write_whole
from .records import TEMPORARY, state_of
from .store import Store, StoreError

_PROGRESS = "progress.json"


class Checkpoint:
    """Progress of a training.

    If the folder is empty or its files are damaged, there is no progress, and the training starts over.

    Attributes:
        files: files of predictions, one per finished position.
        state: file from which the training resumes; None if there is no progress.
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
        """Files of predictions, one per finished position."""
        return [self._folder / name for name in self._recorded]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the last ``commit_arrays``, by name; empty if there is no progress."""
        if self.state is None:
            return {}
        with np.load(self.state, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}

    def commit_arrays(self, arrays: Mapping[str, np.ndarray], predicted: Path | None = None) -> None:
        """``commit`` for a state that consists of named arrays."""

        def save(path: Path) -> None:
            with path.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        self.commit(save, predicted)

    def commit(self, save: Callable[[Path], None], predicted: Path | None = None) -> None:
        """Commit the state after one more position.

        Args:
            save: function that writes the state to one file, at the path that is passed to it.
            predicted: file in the folder with the predictions at the position; None if the state contains them.

        Raises:
            ValueError: ``save`` wrote no file or several files.
        """
        self._commits += 1
        state = self._folder / f"after-{self._commits:04}"
        # In a temporary folder: torch stores the file's name in the file and takes none that begins with a dot; numpy adds an
        # extension.
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
        write_whole(self._folder / _PROGRESS, json.dumps(value).encode())  # keys unsorted: in the order of the positions
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
"""Folder in use in this process -> its copy in a store, for folders that have one."""


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copy of a local folder in a store, at ``place``."""

    store: Store
    place: str

    def fetch(self, folder: Path) -> None:
        """Write the files of the copy into ``folder``, except those that are removed meanwhile."""
        for name in self.store.list(self.place):
            with contextlib.suppress(StoreError):
                write_whole(folder / name, self.store.read(posixpath.join(self.place, name)), sync=False)

    def put(self, path: Path) -> None:
        """Copy a file of the folder to the store."""
        with self.store.writing(posixpath.join(self.place, path.name)) as stream, path.open("rb") as file:
            while data := file.read(1 << 22):
                stream.write(data)

    def remove(self, name: str) -> None:
        """Remove a file from the store."""
        self.store.remove([posixpath.join(self.place, name)])


@contextlib.contextmanager
def work_room(store: Store, place: str) -> Iterator[str]:
    """A local folder for the block: ``place`` if the store is local, else a temporary folder that is copied to ``place``."""
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
    """The copy of a folder, also of one inside a folder that has a copy; None if there is none."""
    for room in (folder, *folder.parents):
        if room in _COPIES:
            copy = _COPIES[room]
            return dataclasses.replace(copy, place=posixpath.join(copy.place, *folder.relative_to(room).parts))
    return None
