"""The components of a stage's recipe key: settings, fingerprints of the sources, and the code reached (``reachable_code``).

A key identifies what *should* be made; the content digest (``curation.digest``) identifies what *was* made.
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
    """Path or URL of a source among the settings of a step. The key depends on the source's content, not on its path.

    Attributes:
        only: files and folders within a folder that count, relative to it; if empty, everything counts.
    """

    only: tuple[str, ...]

    def __new__(cls, path: str, only: Sequence[str] = ()) -> Self:
        made = super().__new__(cls, path)
        made.only = tuple(dict.fromkeys(only))
        return made

    @property
    def places(self) -> list[str]:
        """Paths that count: the source itself, or the entries of ``only``."""
        return [f"{self.rstrip('/')}/{name}" for name in self.only] or [str(self)]

    def fingerprint(self, known: dict[str, tuple[str, str]] | None = None) -> Fingerprint:
        """Fingerprint of the source, see ``fingerprint``. A missing entry of ``only`` is left for the step to report."""
        if not self.only:
            return fingerprint(str(self), known)
        if not _exists(str(self)):
            raise MissingSource(str(self))
        found = [fingerprint(place, known) if _exists(place) else Fingerprint("", "") for place in self.places]
        content = [[name, one.content] for name, one in zip(self.only, found, strict=True)]
        return Fingerprint(sha256(canonical(content)), sha256(canonical([one.witness for one in found])))


class WhereOfRows(Where):
    """Path of a source that depends on the input rows of the step: see ``where_of_rows``."""

    def of(self, digest: str) -> Where:
        """The path for rows with this content digest."""
        stem, extension = posixpath.splitext(self)
        return Where(f"{stem}-{digest[:16]}{extension}")


class How(Generic[T]):
    """A setting that affects the speed and never the result (batch size, device, time-outs): not part of the key.

    All instances are equal, whatever their values: plans that differ only in them give the same result.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, How)

    def __hash__(self) -> int:
        return hash(How)


class Named(str):
    """Name of a function or class among the settings of a step: see ``named``.

    Attributes:
        settings: keyword arguments to bind to the function or class.
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
    """Mark a setting as the path of a source that belongs to the input rows of the step.

    The start of the rows' content digest is inserted before the file extension, so that other rows have another file.

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

    The key covers the code that the function or class reaches, in addition to that of the step. So a step depends only on the
    method, encoder or model that it uses, not on the registry. The code is loaded in the process that runs the step.

    Args:
        reference: ``package.module:attribute``, or ``path/to/file.py:attribute``, whose path is not part of the key.
        **settings: keyword arguments to bind: the step receives a ``functools.partial``.

    Raises:
        LookupError: there is no code of that name.

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
    """Placeholder among the settings for the work folder of a part; see ``work_folder``."""

    __slots__ = ()


def work_folder() -> str:
    """A setting that becomes a local folder for the part while it is made, for checkpoints of long work.

    The folder's name is derived from what the part is made from: an interrupted part finds its files again, and a part with
    changed code, settings or inputs starts with an empty folder. It is removed when the stage is finished. If the run is not in
    a local folder, it is temporary: files that ``curation.checkpoint.Checkpoint`` commits there are copied to the store, and
    everything else is lost when the process ends.

    >>> work_folder().value  # the engine puts the folder there when the step is called
    ''
    """
    return WorkFolder("")  # type: ignore[return-value]  # the engine replaces it before the step is called


def plain(value: Any) -> Any:
    """The value of a setting that is passed to the step."""
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
    """Yield the functions, classes and ``Named`` in a setting, including those in nested lists and mappings."""
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
        TypeError: the value has no exact representation in JSON, such as an open file or a model.
    """
    if isinstance(value, Where):
        return {"where": str(value)}
    if isinstance(value, Named):
        place, _, attribute = value.rpartition(":")
        identity = {"code": code_digest(value), "of": attribute if place.endswith(".py") else str(value)}
        return identity | {"settings": as_json(name, value.settings)} if value.settings else identity
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
"""Files above this size are fingerprinted by 256 evenly spaced blocks of 64 KiB, including the first and the last."""

_STRETCHES, _STRETCH_BYTES = 256, 1 << 16


class MissingSource(FileNotFoundError):
    """The path of a source does not exist; ``setting`` is the name of the setting that contains it, if known.

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
    """Identifies the content of a source.

    Attributes:
        content: part of the key. For a file, its SHA-256; for a file above ``SAMPLED_BYTES``, the SHA-256 of its size and of
            blocks of it; for a folder, a digest of the relative names and sizes of its files.
        witness: shows whether the source may have changed if ``content`` cannot show it (sizes and times of large files and
            folders); never part of a key, because a copy of the same data on another machine has other times.

    >>> texts = fingerprint("texts")
    >>> texts.content == fingerprint("texts").content, texts.content == texts.witness
    (True, False)
    """

    content: str
    witness: str


def fingerprint(path: str, known: dict[str, tuple[str, str]] | None = None) -> Fingerprint:
    """Fingerprint of a file or folder, local or by fsspec URL. Reads a file once; of a folder, only its listing.

    For a large file or a folder, the fingerprint does not cover all data. It serves, together with the witness, which shows
    every change on this machine, to decide whether to read the source again; the content digest of the rows covers the data.

    Args:
        path: local path or URL.
        known: path -> (witness, content) of files read before; updated in place. A file whose size and time are unchanged is
            not read again.

    Raises:
        MissingSource: the path does not exist.

    >>> fingerprint("texts/one.txt").content[:12]  # the SHA-256 of its 16 bytes
    '82da1ad07463'
    """
    known = {} if known is None else known
    fs, root = fsspec.core.url_to_fs(path)
    if not fs.exists(root):
        raise MissingSource(path)
    if fs.isfile(root):
        info = fs.info(root)
        witness = sha256(canonical([_witness(info)]))  # without the path: a run folder may be moved
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
