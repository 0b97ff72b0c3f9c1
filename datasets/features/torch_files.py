"""Features in a torch file: a dict of tensors and names, or of one tensor per sample."""

from __future__ import annotations

import functools
import warnings
import zipfile
from collections.abc import Sequence
from pickle import UnpicklingError
from typing import IO, Any

import fsspec
import numpy as np

from ...curation.zips import open_zip
from .files import FeatureFile, fits, open_file, stamp, unread

_ROOM = b"bytearray"
_CHUNK_BYTES = 1 << 20


def read_whole(place: str, numbers: int | None = None) -> np.ndarray:
    """The tensor of a file that holds only one; see ``as_array``."""
    return as_array(load_torch(place), place, numbers)


def load_torch(place: str) -> Any:
    """Content of a torch file: tensors, text, numbers, lists and dicts of them. Raises ``ValueError`` for anything else."""
    return _load(place, *stamp(place))


def load_tables(place: str) -> Any:
    """Content of a torch file, tensors and plain values in tables, without keeping it in the cache.

    Raises:
        ValueError: the file is not a torch file, or holds anything else.
    """
    try:
        return _load(place, *stamp(place))
    finally:
        _load.cache_clear()


def read_tensors(place: str, file: FeatureFile) -> tuple[Sequence[str], Any]:
    """Names, and tensors by number. Raises ``ValueError`` if the file holds something else."""
    loaded = load_torch(place)
    if not isinstance(loaded, dict):
        raise ValueError(f"{place} holds {type(loaded).__name__}, expected a dict of tensors")
    if file.stacked(loaded):
        try:
            names, tensors, count = [str(name) for name in loaded[file.uid]], loaded[file.feature], len(loaded[file.feature])
        except TypeError as error:  # not a list, or a tensor that is a single number
            raise ValueError(f"{place}: expected names {file.uid} and tensors {file.feature}, one each: {error}") from None
        if len(names) != count:
            raise ValueError(f"{place}: {len(names)} names and {count} tensors")
        return names, tensors
    return [str(name) for name in loaded], list(loaded.values())


@functools.lru_cache(maxsize=1)
def _load(place: str, size: int, modified: int) -> Any:
    """The content of a torch file, mapped if local. Cached for the next stretch: loading a dict of a million takes seconds."""
    import torch

    fs, path = fsspec.core.url_to_fs(place)
    local = "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
    mapped = _check(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on a pickle of another protocol, which fails on its own if it cannot be read
            if not local:
                with fs.open(path, "rb") as stream:
                    return torch.load(stream, map_location="cpu", weights_only=True)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError:  # the place itself, such as a file without read permission
        raise
    except Exception as error:  # torch raises many errors; its text for rejected content suggests loading it unsafely
        message = "nothing else is loaded from it" if isinstance(error, UnpicklingError) else _line(error)
        raise ValueError(f"{place} is not a torch file of plain tensors: {message}") from None


def _check(place: str) -> bool:
    """Whether a torch file is a zip archive, by its first bytes.

    Raises:
        ValueError: it holds more than it lists, or compressed members: torch writes none, and they can expand to gigabytes.
    """
    with open_file(place) as stream:
        if stream.read(4) != b"PK\x03\x04":  # the test that torch uses
            _check_calls(stream, place)
            return False
        with open_zip(stream, place, "torch file") as archive:
            for info in archive.infolist():
                if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                    raise ValueError(f"{place}: its member {info.filename!r} is packed, which torch does not do")
                if info.filename.endswith(".pkl"):
                    with archive.open(info) as member:
                        _check_calls(member, place)
    return True


def _check_calls(stream: IO[bytes], place: str) -> None:
    """Raise ``ValueError`` if a pickle names ``bytearray``: torch calls it with any number, and allocates as many zeros."""
    before = b""
    while data := stream.read(_CHUNK_BYTES):
        if _ROOM in before + data:
            raise ValueError(f"{place} is not a torch file of plain tensors: it names {_ROOM.decode()}")
        before = data[-len(_ROOM) :]


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def plain(value: Any, place: str) -> Any:
    """The value, if it is a dense tensor of plain numbers on the CPU. Raises ``ValueError`` otherwise."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{place} holds {type(value).__name__}, expected a tensor")
    if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
        raise ValueError(f"{place} holds a tensor of the layout {value.layout} on {value.device}, expected plain numbers")
    return value.detach()


def as_array(tensor: Any, place: str, wanted: int | None) -> np.ndarray:
    """The numbers of a tensor, read only if there are ``wanted`` of them. Raises ``ValueError`` if it is not a plain tensor."""
    import torch

    values = plain(tensor, place)
    try:
        kind = np.dtype(np.float32) if values.dtype == torch.bfloat16 else torch.empty(0, dtype=values.dtype).numpy().dtype
        if not fits(tuple(values.shape), kind, wanted):
            return unread(tuple(values.shape), kind)
        return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    except (RuntimeError, TypeError) as error:  # dtypes that numpy does not have
        raise ValueError(f"{place} holds {values.dtype}, expected plain numbers: {_line(error)}") from None
