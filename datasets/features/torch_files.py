"""Features in a torch file: a dict of the tensors and their names, or of a tensor a sample."""

from __future__ import annotations

import functools
import posixpath
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import fsspec
import numpy as np

from .files import FeatureFile, Stretch, Values, even_stretches, place_of, stamp


def stretches(root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    """Tensors, which count as the first one does."""
    names, tensors = _tensors(place := place_of(root, file.path), file)
    return even_stretches(len(names), _numbers(tensors[0], f"{place}, {names[0]}").size if names else 0, max_bytes)


def read_stretch(root: str, file: FeatureFile, stretch: Stretch) -> Values:
    """Tensors in the order of the file."""
    names, tensors = _tensors(place := place_of(root, file.path), file)
    found = range(stretch.start, stretch.stop)
    return [(posixpath.basename(names[n]), _numbers(tensors[n], f"{place}, {names[n]}")) for n in found]


def whole(place: str) -> np.ndarray:
    """The tensor of a file that holds nothing else."""
    return _numbers(_load(place, *stamp(place)), place)


def _tensors(place: str, file: FeatureFile) -> tuple[Sequence[str], Any]:
    """Names, and tensors by number."""
    loaded = _load(place, *stamp(place))
    if not isinstance(loaded, dict):
        raise ValueError(f"{place} holds {type(loaded).__name__}, where a dict of tensors is wanted")
    if file.stacked(loaded):
        try:
            names, tensors, count = [str(name) for name in loaded[file.uid]], loaded[file.feature], len(loaded[file.feature])
        except TypeError as error:  # of what is no list, and of a tensor that is a single number
            raise ValueError(f"{place}: names {file.uid} and tensors {file.feature}, one each, are wanted: {error}") from None
        if len(names) != count:
            raise ValueError(f"{place}: {len(names)} names and {count} tensors")
        return names, tensors
    return [str(name) for name in loaded], list(loaded.values())


@functools.lru_cache(maxsize=1)
def _load(place: str, size: int, modified: int) -> Any:
    """The content of a torch file, mapped where it is local. Kept for the next stretch: a dict of a million takes seconds."""
    import pickle

    import torch

    fs, path = fsspec.core.url_to_fs(place)
    local = "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle of another protocol, which fails, or does not, on its own
            if not local:
                with fs.open(path, "rb") as stream:
                    return torch.load(stream, map_location="cpu", weights_only=True)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError:  # its text advises to load the file unsafely
        raise ValueError(f"{place} is no torch file of plain tensors: nothing else is loaded from it") from None
    except OSError:  # of the place itself, such as a file that may not be read
        raise
    except Exception as error:  # a damaged file makes torch's reader raise whatever its bytes lead to
        told = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{place} is no torch file of plain tensors, or is damaged: {told}") from None


def _numbers(tensor: Any, place: str) -> np.ndarray:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{place} holds {type(tensor).__name__}, where a tensor is wanted")
    plain = tensor.detach()
    return plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
