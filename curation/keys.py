"""What a stage's recipe key is made of: its settings, its sources' fingerprints, and the code reached (``reachable_code``).

A key says what *should* be made; the content digest (``curation.digest``) says what *was* made. They are never mixed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import fsspec
import numpy as np

from .code_loading import load, module_of
from .reachable_code import code_digest, reached

T = TypeVar("T")


class Where(str):
    """A path or URL among the settings of a step: it says where a source lies, and only its content counts in the key.

    Attributes:
        only: of a folder, what in it counts; empty: all.
    """

    only: tuple[str, ...]

    def __new__(cls, path: str, only: Sequence[str] = ()) -> Self:
        made = super().__new__(cls, path)
        made.only = tuple(dict.fromkeys(only))
        return made

    @property
    def places(self) -> list[str]:
        """What counts: itself, or what in it does."""
        return [f"{self.rstrip('/')}/{name}" for name in self.only] or [str(self)]

    def fingerprint(self, known: dict[str, tuple[str, str]] | None = None) -> Fingerprint:
        """Of its content, see ``fingerprint``. What is named and not there is told by the step that reads it."""
        if not self.only:
            return fingerprint(str(self), known)
        if not _exists(str(self)):
            raise MissingSource(str(self))
        found = [fingerprint(place, known) if _exists(place) else Fingerprint("", "") for place in self.places]
        content = [[name, one.content] for name, one in zip(self.only, found, strict=True)]
        return Fingerprint(sha256(canonical(content)), sha256(canonical([one.witness for one in found])))


class WhereOfRows(Where):
    """A place whose name goes with the rows that the step is given: see ``where_of_rows``."""

    def of(self, digest: str) -> Where:
        """The place for rows of that content digest."""
        stem, extension = posixpath.splitext(self)
        return Where(f"{stem}-{digest[:16]}{extension}")


class How(Generic[T]):
    """A setting that changes the speed and never the result (batch size, device, time-outs): no part of the key.

    All are equal, whatever they hold: two plans that differ in nothing else make the same.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, How)

    def __hash__(self) -> int:
        return hash(How)


class Named(str):
    """A function or class among the settings of a step, by its name: see ``named``.

    Attributes:
        settings: keyword arguments that are bound to it.
    """

    settings: Mapping[str, Any]

    def __new__(cls, reference: str, settings: Mapping[str, Any] | None = None) -> Named:
        made = super().__new__(cls, reference)
        made.settings = dict(settings or {})
        return made


def where(path: str | Path, *, only: Sequence[str] = ()) -> str:
    """Mark a setting as the location of a source: a local path or an fsspec URL of a file or a folder.

    Its content is part of the stage's key, its location is not.

    Args:
        path: location of the source.
        only: relevant files and folders within the folder, relative to it; everything else is ignored, so that the folder may
            contain other files, even the run's own folder. Empty: everything counts.

    >>> import benchwright as bw
    >>> from words import read_texts
    >>> todo = bw.step(read_texts, folder=bw.where("texts"))
    >>> todo.settings["folder"]  # other texts make other rows; the same texts in another place do not
    'texts'
    """
    return Where(str(path), only)


def where_of_rows(path: str) -> str:
    """Mark a setting as the place of a source that is about certain rows, those that the step is given.

    The start of their content digest stands before the extension of the file: other rows have another file.

    >>> where_of_rows("qa/votes.parquet").of("0123456789abcdef0123")
    'qa/votes-0123456789abcdef.parquet'
    """
    return WhereOfRows(path)


def how(value: T) -> T:
    """Mark a setting as one that affects the speed and never the result: it is not part of the stage's key.

    >>> import benchwright as bw
    >>> def fetch(url: str, *, timeout_s: float) -> bytes: ...
    >>> bw.step(fetch, timeout_s=bw.how(30.0)).settings["timeout_s"].value  # the function is given 30.0
    30.0
    """
    return How(value)  # type: ignore[return-value]  # the engine unwraps it before the step is called


def named(reference: str, **settings: Any) -> Any:
    """Mark a setting as the name of a function or class, which is passed to the step.

    The key covers the code that it reaches in addition to that of the step. So a step depends only on the method, encoder or
    model that it uses, not on the registry. It is loaded in the process that runs the step.

    Args:
        reference: ``package.module:attribute``, or ``path/to/file.py:attribute``, whose path is not part of the key.
        **settings: keyword arguments to bind: the step receives a ``functools.partial``.

    Raises:
        LookupError: nothing has that name.

    >>> import benchwright as bw
    >>> bw.named("words.py:count_words", min_words=3)
    'words.py:count_words'
    >>> bw.named("words.py:count_letters")
    Traceback (most recent call last):
        ...
    benchwright.curation.code_loading.UnknownName: 'words.py:count_letters': words.py has no 'count_letters'
    """
    reached(reference)
    return Named(reference, settings)


class WorkFolder(How[str]):
    """Stands among the settings for a folder of the part's own; see ``work_folder``."""

    __slots__ = ()


def work_folder() -> str:
    """A setting that becomes a local folder which belongs to the part while it is made: for checkpoints of long work.

    The folder is named by what the part is made from, so a part that was interrupted finds what it left there, and code,
    settings or inputs that changed find an empty one. It is removed when the stage is finished. Runs that are not in a local
    folder have a temporary one: what ``curation.checkpoint.Checkpoint`` commits there is copied to the store, and all else is
    lost with the process.

    >>> work_folder().value  # the engine puts the folder there when the step is called
    ''
    """
    return WorkFolder("")  # type: ignore[return-value]  # the engine replaces it before the step is called


def plain(value: Any) -> Any:
    """The value that the step is called with."""
    if isinstance(value, How):
        return value.value
    if isinstance(value, Named):
        found = load(str(value))
        return functools.partial(found, **plain(value.settings)) if value.settings else found
    if isinstance(value, Mapping) and any(isinstance(item, Named) for item in value.values()):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(item, Named) for item in value):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Where) else value


def codes_in(value: Any) -> Iterator[Any]:
    """The functions and classes that are a setting, or are in a list or table that is one, or their names."""
    if isinstance(value, Named | type) or inspect.isfunction(value):
        yield value
    if isinstance(value, Named):
        yield from codes_in(value.settings)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from codes_in(item)


def sha256(data: bytes | str) -> str:
    """SHA-256 as 64 hexadecimal digits.

    >>> sha256("a rose is a rose")[:12]
    '82da1ad07463'
    """
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def canonical(value: Any) -> str:
    """JSON text of a JSON-like value with sorted keys: equal values give equal text.

    >>> canonical({"b": 1, "a": [True, None]})
    '{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def as_json(name: str, value: Any) -> Any:
    """A setting as a JSON-like value.

    Raises:
        TypeError: for a value that has no faithful form in JSON, such as an open file or a model.
    """
    if isinstance(value, Where):
        return {"where": str(value)}
    if isinstance(value, Named):
        place, _, attribute = value.rpartition(":")
        told = {"code": code_digest(value), "of": attribute if place.endswith(".py") else str(value)}
        return told | {"settings": as_json(name, value.settings)} if value.settings else told
    if isinstance(value, type) or inspect.isfunction(value):
        if "<" in value.__qualname__:
            raise TypeError(f"setting {name!r} is {value.__qualname__}: give a function or class at the top level of a module")
        return {"code": code_digest(value), "of": f"{module_of(value)}:{value.__qualname__}"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        raise TypeError(f"setting {name!r} is a bare path, {value}: mark it with where(...)")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: as_json(name, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__qualname__, **fields}
    if isinstance(value, Mapping):
        return {str(key): as_json(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(name, item) for item in value]
    raise TypeError(
        f"setting {name!r} is {value!r}: settings are numbers, text, lists, tables, frozen dataclasses, functions and classes"
    )


# ------------------------------------------------------------------------------------------------------------- sources

SAMPLED_BYTES = 1 << 28
"""Files above this size are fingerprinted by 256 stretches of 64 KiB, the first and the last among them."""

_STRETCHES, _STRETCH_BYTES = 256, 1 << 16


class MissingSource(FileNotFoundError):
    """Nothing is at the path of a source; ``setting`` names what holds it, where that is known.

    >>> raise MissingSource("UCF-101", "videos.root")
    Traceback (most recent call last):
        ...
    benchwright.curation.keys.MissingSource: source 'UCF-101': no such file or folder (videos.root): give it in the ...
    """

    def __init__(self, path: str, setting: str = "") -> None:
        text = f" ({setting}): give it in the settings file, or with --set {setting}=PATH" if setting else ""
        super().__init__(f"source {path!r}: no such file or folder{text}")
        self.path = path


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What is known of a source before it is read.

    Attributes:
        content: goes into the key. A file's SHA-256; of a file above ``SAMPLED_BYTES`` that of its size and of stretches
            of it; for a folder, a digest of its relative names and sizes.
        witness: tells whether the source may have changed since, where ``content`` cannot (sizes and times of large files and
            folders); never part of a key, because a copy of the same data on another machine has other times.
    """

    content: str
    witness: str


def fingerprint(path: str, known: dict[str, tuple[str, str]] | None = None) -> Fingerprint:
    """Fingerprint of a file or folder, local or by fsspec URL. Reads a file once; of a folder, only its listing.

    What a large file or a folder holds is in the digest of the rows that are made of it. Their fingerprints say whether it
    is worth reading them again, together with the witness, which sees every change on this machine.

    Args:
        path: local path or URL.
        known: witness -> content of files read before; added to. A file whose size and time are unchanged is not read again.

    Raises:
        FileNotFoundError: where nothing is there.

    >>> fingerprint("texts/one.txt").content[:12]  # the SHA-256 of its 16 bytes
    '82da1ad07463'
    """
    known = {} if known is None else known
    fs, root = fsspec.core.url_to_fs(path)
    if not fs.exists(root):
        raise MissingSource(path)
    if fs.isfile(root):
        info = fs.info(root)
        witness = sha256(canonical([_witness(info)]))  # and not the place: a run folder may move
        if path not in known or known[path][0] != witness:
            known[path] = (witness, _file_content(fs, root))
        whole = int(info["size"]) <= SAMPLED_BYTES
        return Fingerprint(known[path][1], known[path][1] if whole else witness)
    content, witness = hashlib.sha256(), hashlib.sha256()
    found: Mapping[str, Mapping[str, Any]] = fs.find(root, detail=True)
    prefix = root.rstrip("/") + "/"
    for name in sorted(found):
        relative = name.removeprefix(prefix)
        content.update(f"{relative}\0{found[name].get('size')}\n".encode("utf-8", "surrogateescape"))
        witness.update(f"{relative}\0{_witness(found[name])}\n".encode("utf-8", "surrogateescape"))
    return Fingerprint(content.hexdigest(), witness.hexdigest())


def _exists(path: str) -> bool:
    fs, root = fsspec.core.url_to_fs(path)
    return bool(fs.exists(root))


def _file_content(fs: Any, path: str) -> str:
    digest = hashlib.sha256()
    size = int(fs.size(path))
    with fs.open(path, "rb") as stream:
        if size <= SAMPLED_BYTES:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
        else:
            digest.update(f"sampled {size}\n".encode())
            for number in range(_STRETCHES):
                stream.seek((size - _STRETCH_BYTES) * number // (_STRETCHES - 1))
                digest.update(stream.read(_STRETCH_BYTES))
    return digest.hexdigest()


def _witness(info: Mapping[str, Any]) -> str:
    marks = {name: info.get(name) for name in ("size", "mtime", "ino", "ETag", "etag", "LastModified", "created", "md5")}
    return canonical({name: str(value) for name, value in marks.items() if value is not None})
