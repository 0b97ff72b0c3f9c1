"""The loop of every protocol over domains: learn one, test some, commit, go on; a killed run goes on from its last domain.

Order of a commit: the learner's checkpoint under a name of its own, then ``progress.json``, which names it with its
SHA-256, then the old checkpoint goes. Each file is written beside its place, synced and renamed, so that a kill at any
moment leaves a ``progress.json`` whose checkpoint is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...curation.files import remove, remove_half_written, replacing, write_whole
from ...curation.records import Damaged, check_file

Progress = Callable[[str], None]


def to_json(value: Any) -> bytes:
    """Canonical JSON: sorted keys, two spaces, a final newline. NaN is refused; undefined is ``null``."""
    return (json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n").encode()


def read_results(path: Path, *needed: str) -> dict[str, Any]:
    """The content of a ``results.json``, which has an ``identity`` and the keys ``needed``.

    Raises:
        ValueError: where it is damaged.
    """
    try:
        check_file(path)
        value = json.loads(path.read_bytes())
    except Damaged as error:
        raise ValueError(f"{error}: remove it and train again") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}: remove it and train again") from None
    held = value if isinstance(value, dict) else {}
    if not isinstance(held.get("identity"), dict):
        raise ValueError(f"{path} has no identity of a baseline: remove it and train again")
    if missing := [name for name in needed if name not in held]:
        raise ValueError(f"{path} has no {missing[0]!r}: remove it and train again")
    return held


def held_progress(out: Path, whose: Mapping[str, Any]) -> tuple[dict[str, Any], Path] | None:
    """``progress.json`` of ``out`` and the checkpoint that it names, or None where nothing was committed.

    What a kill left half written goes, once the folder is known to be this run's.

    Raises:
        Occupied: ``out`` holds a run of another identity than ``whose``, or a damaged one.
    """
    held = read_held(out, "checkpoint")
    if held is not None:
        check_identity(held["identity"], whose, out)
    remove_half_written(out)
    return None if held is None else (held, checked_checkpoint(out, held))


def read_held(out: Path, *needed: str) -> dict[str, Any] | None:
    """``progress.json`` of ``out``, which has an ``identity`` and the keys ``needed``; None where there is none.

    Raises:
        Occupied: it is damaged.
    """
    path = out / "progress.json"
    if not path.exists():
        return None
    try:
        return read_results(path, *needed)
    except ValueError as error:
        raise Occupied(out, str(error).partition(": remove it")[0]) from None


@contextlib.contextmanager
def taking_up(out: Path) -> Iterator[None]:
    """Raise ``Occupied`` where what ``progress.json`` holds does not fit the run whose identity it has."""
    try:
        yield
    except Occupied:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise Occupied(out, f"{out / 'progress.json'} is damaged ({type(error).__name__}: {error})") from None


def checked_checkpoint(out: Path, held: Mapping[str, Any]) -> Path:
    """The checkpoint that ``progress.json`` names. Raises ``Occupied`` where it is missing, or another."""
    named = held["checkpoint"]
    if not isinstance(named, Mapping) or not isinstance(named.get("file"), str) or Path(named["file"]).name != named["file"]:
        raise Occupied(out, f"{out / 'progress.json'} names no checkpoint")
    checkpoint = out / named["file"]
    if not checkpoint.is_file() or file_digest(checkpoint) != named.get("sha256"):
        raise Occupied(out, f"{checkpoint} is missing or is not the one that progress.json names")
    return checkpoint


class Occupied(ValueError):
    """A folder holds what this run cannot go on from: a run of other data, code or settings, or a damaged one.

    Attributes:
        folder: that holds it.
        what: the first value that differs, or what is damaged.
    """

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"{folder}: {what}: choose another folder, or remove that one")
        self.folder = folder
        self.what = what


def check_identity(held: Mapping[str, Any], whose: Mapping[str, Any], out: Path) -> None:
    """Raise ``Occupied``, with the first value that differs, where ``out`` holds a run of another identity than ``whose``."""
    if told := difference(held, json.loads(to_json(whose))):
        raise Occupied(out, told)


def difference(held: Any, asked: Any, name: str = "") -> str:
    """The first value in which two identities of JSON values differ, in words; "" where they are equal.

    Under ``code`` an identity has the digests of definitions by their names, which no reader wants to see.
    """
    if isinstance(held, Mapping) and isinstance(asked, Mapping):
        keys = sorted({*held, *asked})
        return next((told for key in keys if (told := difference(held.get(key), asked.get(key), f"{name}.{key}"))), "")
    if held == asked:
        return ""
    _, _, definition = name.partition(".code.")
    if definition or name.endswith(".code"):
        return f"the code of {definition} changed" if definition else "it does not say what code it was made by"
    return f"{name.removeprefix('.')} was {reprlib.repr(held)} and is {reprlib.repr(asked)}"


def commit_progress(
    out: Path, whose: Mapping[str, Any], save: Callable[[Path], None], done: int, fields: Mapping[str, Any]
) -> None:
    """Write the checkpoint after ``done`` domains or tasks by ``save``, and ``progress.json`` with ``fields``."""
    checkpoint = out / f"after-{done:03}.pt"
    with replacing(checkpoint) as beside:
        save(beside)
    state = {
        **fields,
        "checkpoint": {"file": checkpoint.name, "sha256": file_digest(checkpoint)},
        "format": 1,
        "identity": whose,
    }
    write_whole(out / "progress.json", to_json(state))
    remove_old(out, checkpoint)


def remove_old(out: Path, checkpoint: Path) -> None:
    """Remove all checkpoints but this one."""
    for old in out.glob("after-*"):
        if old != checkpoint:
            remove(old)


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
