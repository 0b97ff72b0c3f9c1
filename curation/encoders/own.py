"""A user's own encoder: a class or function that returns an object with ``encode_image`` and, optionally, ``encode_text``.

``encode_image(pixels)`` takes upright RGB pixels, uint8 of shape (height, width, 3), and ``encode_text(text)`` takes a text;
each returns a vector of any non-zero norm, and all vectors have the same dimension. Images and texts are encoded one by one, so
that no vector depends on others. An object that has ``encode_prepared`` is used as an ``encoder.Encoder`` directly.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ..code_loading import module_of
from ..keys import canonical
from ..registry import check_arguments
from ..stages.decode import decode_rgb
from .encoder import Encoder, MakeEncoder, unit_rows


class WrappedEncoder:
    """``Encoder`` that wraps a user's own object."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self._inner = inner

    @property
    def width(self) -> int:
        """Dimension of the vectors, found by encoding a grey square."""
        square = self.prepare(np.full((64, 64, 3), 128, np.uint8))
        return int(self._vector(self._inner.encode_image(square)).shape[0])

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """The pixels, passed through the object's own ``prepare`` if it has one."""
        pixels = decode_rgb(image) if isinstance(image, bytes) else image
        return self._inner.prepare(pixels) if hasattr(self._inner, "prepare") else pixels

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Encode images one by one, then normalise."""
        return self._unit([self._inner.encode_image(each) for each in prepared])

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Encode texts one by one, then normalise. Raises ``ValueError`` if the object has no ``encode_text``."""
        if not hasattr(self._inner, "encode_text"):
            raise ValueError(f"encoder {self.name} has no encode_text: texts need one")
        return self._unit([self._inner.encode_text(text) for text in texts])

    def _unit(self, vectors: Sequence[Any]) -> np.ndarray:
        rows = [self._vector(vector) for vector in vectors]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(f"encoder {self.name}: vectors of {' and '.join(sorted({str(row.shape) for row in rows}))}")
        made = unit_rows(np.stack(rows)) if rows else np.zeros((0, self.width), dtype=np.float32)
        if not np.isfinite(made).all() or not made.any(axis=1).all():
            raise ValueError(f"encoder {self.name}: a vector is zero, or not finite")
        return made

    def _vector(self, vector: Any) -> np.ndarray:
        found = np.asarray(vector.detach().cpu() if hasattr(vector, "detach") else vector)
        if found.ndim != 1 or not np.issubdtype(found.dtype, np.number):
            raise ValueError(f"encoder {self.name} gives {found.dtype} of shape {found.shape}: expected one vector of numbers")
        return found


def load_own(make: MakeEncoder, checkpoint: str, device: str, stamp: tuple[int, ...] = ()) -> Encoder:
    """The encoder that ``make`` returns, cached for the same settings in a process.

    ``checkpoint`` and ``device`` are passed if ``make`` has arguments of these names. ``stamp`` distinguishes a checkpoint from
    an earlier one at the same path.

    Raises:
        ValueError: ``make`` does not take these settings, or does not return an encoder.
    """
    function, settings = (make.func, make.keywords) if isinstance(make, functools.partial) else (make, {})
    return _load_own(function, canonical(settings), checkpoint, device, stamp)


@functools.lru_cache(maxsize=2)
def _load_own(function: MakeEncoder, settings: str, checkpoint: str, device: str, stamp: tuple[int, ...]) -> Encoder:
    name = f"{module_of(function)}:{getattr(function, '__qualname__', function)}"
    signature = inspect.signature(function)
    given = json.loads(settings)
    if "device" in signature.parameters:
        given["device"] = device
    if "checkpoint" in signature.parameters:
        given["checkpoint"] = checkpoint
    elif checkpoint:
        raise ValueError(f"encoder {name} has no argument checkpoint: leave encoder_run.checkpoint out")
    try:
        check_arguments(function, given)
    except ValueError as error:
        raise ValueError(f"encoder {name}{signature}: {error}: change encoder.settings") from None
    made = function(**given)
    if hasattr(made, "encode_prepared"):
        return cast(Encoder, made)
    if not hasattr(made, "encode_image"):
        raise ValueError(f"encoder {name} gives {type(made).__name__}, which has no encode_image")
    return WrappedEncoder(name, made)
