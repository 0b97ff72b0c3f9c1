"""Features in a torch file: a dict of the tensors and their names, or of a tensor per sample."""

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
    """The tensor of a file that holds nothing else; see ``as_array``."""
    return as_array(load_torch(place), place, numbers)


def load_torch(place: str) -> Any:
    """What a torch file holds: tensors, text, numbers, lists and dicts of them. Raises ``ValueError`` for any other."""
    return _load(place, *stamp(place))


def load_tables(place: str) -> Any:
    """What a torch file holds: tensors and plain values, in tables. It is not kept.

    Raises:
        ValueError: it is not a torch file, or holds anything else.
    """
    try:
        return _load(place, *stamp(place))
    finally:
        _load.cache_clear()


def read_tensors(place: str, file: FeatureFile) -> tuple[Sequence[str], Any]:
    """Names, and tensors by number. Raises ``ValueError`` if the file holds anything else."""
    loaded = load_torch(place)
    if not isinstance(loaded, dict):
        raise ValueError(f"{place} holds {type(loaded).__name__}, expected a dict of tensors")
    if file.stacked(loaded):
        try:
            names, tensors, count = [str(name) for name in loaded[file.uid]], loaded[file.feature], len(loaded[file.feature])
        except TypeError as error:  # of what is no list, and of a tensor that is a single number
            raise ValueError(f"{place}: expected names {file.uid} and tensors {file.feature}, one each: {error}") from None
        if len(names) != count:
            raise ValueError(f"{place}: {len(names)} names and {count} tensors")
        return names, tensors
    return [str(name) for name in loaded], list(loaded.values())


@functools.lru_cache(maxsize=1)
def _load(place: str, size: int, modified: int) -> Any:
    """The content of a torch file, mapped where it is local. Kept for the next stretch: a dict of a million takes seconds."""
    import torch

    fs, path = fsspec.core.url_to_fs(place)
    local = "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
    mapped = _check(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle of another protocol, which fails, or does not, on its own
            if not local:
                with fs.open(path, "rb") as stream:
                    return torch.load(stream, map_location="cpu", weights_only=True)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError:  # of the place itself, such as a file that may not be read
        raise
    except Exception as error:  # torch tells damage in many ways; its text of what it refuses advises to load the file unsafely
        message = "nothing else is loaded from it" if isinstance(error, UnpicklingError) else _line(error)
        raise ValueError(f"{place} is not a torch file of plain tensors: {message}") from None


def _check(place: str) -> bool:
    """Whether a torch file is a zip archive, by its begin.

    Raises:
        ValueError: it holds more than it lists, or packs its members: torch does not, and few packed bytes can be gigabytes.
    """
    with open_file(place) as stream:
        if stream.read(4) != b"PK\x03\x04":  # what torch goes by
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
    """Raise ``ValueError`` if a pickle names ``bytearray``, which torch calls with any number: it makes that many zeros."""
    before = b""
    while data := stream.read(_CHUNK_BYTES):
        if _ROOM in before + data:
            raise ValueError(f"{place} is not a torch file of plain tensors: it names {_ROOM.decode()}")
        before = data[-len(_ROOM) :]


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def plain(value: Any, place: str) -> Any:
    """A tensor of numbers that lie one after another. Raises ``ValueError`` if it is something else."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{place} holds {type(value).__name__}, expected a tensor")
    if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
        raise ValueError(f"{place} holds a tensor of the layout {value.layout} on {value.device}, expected plain numbers")
    return value.detach()


def as_array(tensor: Any, place: str, wanted: int | None) -> np.ndarray:
    """The numbers of a tensor, where they are as many as ``wanted``. Raises ``ValueError`` for what is none."""
    import torch

    values = plain(tensor, place)
    try:
        kind = np.dtype(np.float32) if values.dtype == torch.bfloat16 else torch.empty(0, dtype=values.dtype).numpy().dtype
        if not fits(tuple(values.shape), kind, wanted):
            return unread(tuple(values.shape), kind)
        return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    except (RuntimeError, TypeError) as error:  # of dtypes that numpy does not have
        raise ValueError(f"{place} holds {values.dtype}, expected plain numbers: {_line(error)}") from None
