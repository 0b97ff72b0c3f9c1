"""Records of the files that a run writes next to its stages and dataset: results, checkpoints, votes, questions, the report.

Each folder of such files has a record, ``.files.json``, with the size and SHA-256 of each file, sealed in the same way as
``run.json``. ``curation.local_files`` maintains it: every file that is written through that module, below a folder that
contains a ``run.json``, is recorded, and cannot be written through a link that leaves the run.

The record is written twice: before the file is replaced, with the file's old and new state, and afterwards with the new state
only. So after a kill at any moment the record still matches the file, and the next write of the file settles the entry.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, cast

from .keys import canonical, sha256

RECORD = ".files.json"
"""File name of the record of a folder."""

TEMPORARY = ".tmp-"
"""Prefix of the names of temporary files, which are renamed once they are complete."""

PUBLISHED = ("dataset", "unlabelled")
"""Folders of a run that are published: the dataset, and the images without labels if the settings request them."""

_APART = ("stages", *PUBLISHED)
"""Folders of a run that have records of their own: ``artifact.json``, and ``dataset.json``."""

_ANSWERS = "qa"
"""Folder of a run to which only commands write, so that every file that a stage reads from it is recorded."""

_SEALED = ("run.json", ".fingerprints.json")
"""Files of a run's folder that have a seal of their own."""

_LOCK = ".lock"
"""Lock file of a run's folder, which is empty."""

JOURNAL = "answers.jsonl"
"""Append-only file of a round of questions, whose lines are sealed one by one: see ``curation.journal``."""

_LONGEST_LINE = 1 << 20

FileState = Mapping[str, Any] | None
"""Size and SHA-256 of a file; None if the file does not exist."""


class LeavesRun(RuntimeError):
    """A link in a run's folder leads out of it, or an entry is neither file nor folder: it is neither read nor written."""


class Damaged(ValueError):
    """A sealed record is not what was written: it was damaged or edited."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A file or stage that does not match its record.

    Attributes:
        place: the file or stage.
        found: what was found.
        recorded: what the record says.
        remove: file or folder to remove so that the next run repairs the problem; "" if nothing needs to, or can, be removed.

    >>> import benchwright as bw
    >>> from pathlib import Path
    >>> done = bw.run(bw.job("words.py"), "words")
    >>> Path("words/dataset/README.md").unlink()
    >>> [(each.place, each.found) for each in bw.verify("words")]
    [('dataset/README.md', 'the file is missing')]
    """

    place: str
    found: str
    recorded: str
    remove: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.found}, but the record says {self.recorded}"


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the path to any ``OSError`` that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def write_file(path: Path, data: bytes) -> None:
    """Write a file at its place; see ``naming`` for its errors, and ``local_files.write_whole`` for files of a run."""
    with naming(path):
        path.write_bytes(data)


# ------------------------------------------------------------------------------------------------------- sealed records


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with its own digest added as ``seal``, so that later edits are detected."""
    return {**record, "seal": sha256(canonical(record))}


def json_text(value: Any) -> bytes:
    """JSON with sorted keys, indented as by ``json.dumps(indent=1)``, which takes twice as long."""
    try:
        text = _indented(value, "\n")
    except TypeError:  # a key that is not a string
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    return (text + "\n").encode()


_compact = json.JSONEncoder(ensure_ascii=False).encode


def _indented(value: Any, line: str) -> str:
    """JSON of a value. ``line`` is the line break and indentation before its closing bracket."""
    if not value or not isinstance(value, (dict, list, tuple)):
        return _compact(value)
    inner = line + " "
    if isinstance(value, dict):
        items = [
            f"{encode_basestring(name)}: {encode_basestring(each) if type(each) is str else _indented(each, inner)}"
            for name, each in sorted(cast("dict[str, Any]", value).items())
        ]
        return "{" + inner + f",{inner}".join(items) + line + "}"
    items = [_indented(each, inner) for each in cast("list[Any]", value)]
    return "[" + inner + f",{inner}".join(items) + line + "]"


def unsealed(data: bytes) -> dict[str, Any]:
    """The record without its seal.

    Raises:
        Damaged: the seal does not match, or the bytes are not exactly what was written, such as ``1E5`` for ``1e5``.
    """
    raw: Any = None
    try:
        raw = json.loads(data)
        fits = isinstance(raw, dict) and json_text(raw) == data and raw.pop("seal", None) == sha256(canonical(raw))
    except UnicodeEncodeError:  # half a surrogate pair, which no record has
        fits = False
    except (ValueError, RecursionError) as error:
        raise Damaged(f"is not JSON: {error}") from None
    if not fits:
        raise Damaged("does not match its seal: it was damaged or edited")
    return raw


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int, str]:
    """Records of a journal without their seals, the size in bytes up to the end of the last complete line, and its seal.

    An incomplete last line is ignored: its write was not confirmed to anybody.

    Raises:
        Damaged: a complete line is not what was written.
    """
    records: list[dict[str, Any]] = []
    size, seal = 0, ""
    with naming(path), path.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), b""), 1):
            if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                break
            try:
                record = json.loads(line)
                record.pop("seal")
                whole, seal = line_of(record, seal)
            except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
                record, whole = {}, b""
            if whole != line:
                raise Damaged(f"{path} line {number} does not match its seal: it was damaged or edited")
            records.append(record)
            size += len(line)
    return records, size, seal


def line_of(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """The line of a record in a journal, and its seal, which also covers the seal of the previous line (``before``)."""
    seal = sha256(before + canonical(record))[:16]
    return f"{canonical({**record, 'seal': seal})}\n".encode(), seal


# -------------------------------------------------------------------------------------------------------------- links


def check_tree(out: str | os.PathLike[str]) -> None:
    """Check that no link in the folder of a run leads out of it, and that it contains only files and folders.

    Raises:
        LeavesRun: at the first violation. Such a folder was made by hand, perhaps by somebody else.
    """
    root = os.path.realpath(out)
    pending = [os.fspath(out)] if os.path.isdir(root) else []
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop()), key=lambda each: each.name)
        except FileNotFoundError:  # removed meanwhile, perhaps by the run itself
            continue
        for entry in entries:
            if entry.is_symlink():
                _check_link(entry.path, root)
            elif entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                raise LeavesRun(f"{entry.path} is neither a file nor a folder, and a run has nothing else: remove it")


def _check_link(path: str, root: str) -> None:
    target = os.path.realpath(path)
    if not _within(target, root):
        raise LeavesRun(f"{path} is a link that leaves the run, to {target}: nothing is written through it: remove it")


def _within(path: str, root: str) -> bool:
    return f"{path}/".startswith(f"{root.rstrip('/')}/")


def is_recorded(path: Path) -> bool:
    """Whether a file at this path is recorded, because it is in the folder of a run, outside its stages and dataset.

    Raises:
        LeavesRun: the path, or a folder above it, is a link that leaves a run.
    """
    names = os.path.abspath(path).split(
        "/"
    )  # strings: this is called for every file that is written, and a Path takes twice the time
    nearest = 0
    for depth in range(len(names) - 1, 0, -1):
        root = "/".join(names[:depth])
        if os.path.isfile(f"{root}/run.json"):
            nearest = nearest or depth
            for end in range(depth + 1, len(names) + 1):
                if os.path.islink(within := "/".join(names[:end])):
                    _check_link(within, os.path.realpath(root or "/"))
    # The sealed files and the lock of a run are not recorded, nor are those of a run nested in it.
    return nearest > 0 and names[nearest] not in _APART and names[-1] not in (*_SEALED, _LOCK)


# ------------------------------------------------------------------------------------------------------------- records


def state_of(path: Path) -> FileState:
    """The current state of a file."""
    try:
        with naming(path), path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"sha256": digest, "size": stream.tell()}
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def changing(path: Path, new: FileState, *, sync: bool) -> Iterator[None]:
    """Record that the block replaces a file, or removes it if ``new`` is None."""
    with _alone(path.parent):
        record = _read_anyhow(path.parent)
        old: list[FileState] = record.get(path.name, [None])
        if old != [new]:
            record[path.name] = [*(state for state in old if state != new), new]
            _write(path.parent, record, sync=sync)
        yield
        if old != [new]:
            record[path.name] = [new]
            _write(path.parent, {name: states for name, states in record.items() if states != [None]}, sync=False)


def settle(folder: Path) -> None:
    """Settle the entries that a kill left open in the records of a folder and of the folders below it."""
    for path in folder.rglob(RECORD):
        where = path.parent
        with _alone(where):
            record = _read_anyhow(where)
            now = {name: state_of(where / name) if len(states) > 1 else states[0] for name, states in record.items()}
            settled = {name: [now[name]] if now[name] in states else states for name, states in record.items()}
            if settled != record:
                _write(where, {name: states for name, states in settled.items() if states != [None]}, sync=True)


def adopt(path: Path) -> None:
    """Record the current state of a file without an entry: a file of an earlier version that was just read and is valid."""
    with _alone(path.parent):
        record = _read_anyhow(path.parent)
        if path.name not in record and is_recorded(path):
            _write(path.parent, {**record, path.name: [state_of(path)]}, sync=True)


def check_file(path: Path) -> None:
    """Raise ``Damaged`` if a file is recorded and does not match its record."""
    states = _read_anyhow(path.parent).get(path.name)
    if states is not None and state_of(path) not in states:
        raise Damaged(f"{path} is not what was written: it was damaged or edited")


def check_records(out: Path, known: Mapping[str, Any]) -> Iterator[Problem]:
    """Compare all files in a run's folder, outside its stages, its dataset and nested runs, with their records.

    Args:
        out: the folder.
        known: relative paths of files that are recorded elsewhere, such as in the recipe of the stage that read them.
    """
    for at, folders, files in os.walk(out):
        folders.sort()
        where = Path(at)
        for name in list(folders):
            apart = (where == out and name in _APART) or (where / name / "run.json").is_file()
            if apart or name.startswith(TEMPORARY) or (where / name).is_symlink():
                folders.remove(name)
            if (where / name).is_symlink():
                yield Problem(_place(out, where / name), "it is a link", "nothing of it")
        yield from _check_folder(out, where, {name for name in files if not name.startswith(TEMPORARY)}, known)


def runs_within(out: Path) -> Iterator[Path]:
    """Folders of nested runs in the folder of a run, such as trainings that the engine runs."""
    for at, folders, _ in os.walk(out):
        where = Path(at)
        folders[:] = sorted(name for name in folders if not (where == out and name in _APART))
        inner = [name for name in folders if (where / name / "run.json").is_file() and not (where / name).is_symlink()]
        yield from (where / name for name in inner)
        folders[:] = [name for name in folders if name not in inner]


def _check_folder(out: Path, where: Path, files: set[str], known: Mapping[str, Any]) -> Iterator[Problem]:
    record: dict[str, list[FileState]] = {}
    if RECORD in files:
        try:
            record = _read(where)
        except (Damaged, OSError) as error:
            text = str(error) if isinstance(error, Damaged) else f"cannot be read: {error.strerror}"
            yield Problem(_place(out, where / RECORD), f"the record of its files {text}", "that it is complete")
            return
    elif where == out / _ANSWERS and any(_place(out, where / name) in known for name in files):
        yield Problem(_place(out, where / RECORD), "the record of its files is missing", "that it exists")
    for name in sorted({*files, *record} - {RECORD}):
        path, states = where / name, record.get(name)
        place = _place(out, path)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            yield Problem(place, "it is not a regular file", "nothing of it")
        elif where == out and name == _LOCK:
            if size := path.stat().st_size:
                yield Problem(place, f"{size} bytes", "that it is empty")
        elif where == out and name in _SEALED:
            try:
                unsealed(path.read_bytes())
            except Damaged as error:
                yield Problem(place, f"it {error}", "that it is complete")
        elif name == JOURNAL and where.is_relative_to(out / _ANSWERS):
            try:
                read_lines(path)
            except Damaged as error:
                yield Problem(place, str(error).removeprefix(f"{path} "), "that it is complete")
        elif states is None and place not in known:
            yield Problem(place, "the file exists", "nothing of it")
        elif states is not None and (found := state_of(path)) not in states:
            yield Problem(place, _state_text(found), " or ".join(map(_state_text, states)))


def _place(out: Path, path: Path) -> str:
    return path.relative_to(out).as_posix()


def _state_text(state: FileState) -> str:
    return "no such file" if state is None else f"{state['size']} bytes, SHA-256 {state['sha256'][:12]}"


def _read(folder: Path) -> dict[str, list[FileState]]:
    """File name -> the states that the file may have. Raises ``Damaged`` for a record that is not what was written."""
    path = folder / RECORD
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Damaged("is not a regular file")
    return dict(unsealed(path.read_bytes()).get("files", {}))


def _read_anyhow(folder: Path) -> dict[str, list[FileState]]:
    try:
        return _read(folder)
    except (OSError, Damaged):  # a new record is begun: entries of other files are lost, and ``check_records`` names these
        return {}


def _write(folder: Path, files: Mapping[str, list[FileState]], *, sync: bool) -> None:
    beside = folder / f"{TEMPORARY}{os.getpid()}-record"
    with naming(folder / RECORD), beside.open("wb") as stream:
        stream.write(json_text(sealed({"files": files})))
        if sync:
            stream.flush()
            os.fsync(stream.fileno())
    beside.replace(folder / RECORD)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one thread or process at a time change the record of a folder."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # file systems without locks on folders
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
