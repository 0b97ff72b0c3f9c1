"""Load an encoder from its spec."""

from __future__ import annotations

import functools
import os
import threading

from .encoder import Encoder, MakeEncoder
from .spec import Colours, Conse, EfficientNetLite, EncoderSpec

_loading = threading.Lock()


def load_encoder(spec: EncoderSpec | MakeEncoder, *, checkpoint: str = "", device: str = "cpu") -> Encoder:
    """The encoder of ``spec``, loaded once per process.

    Args:
        spec: spec of a built-in encoder; or a class or function that returns a user's own encoder, see ``own``.
        checkpoint: local file with the weights of an ``OpenClip`` encoder, instead of a download; plans mark it with
            ``where``, so that its content is part of the key.
        device: torch device, for ``OpenClip``; the other built-in encoders run on the CPU.

    Raises:
        EncoderUnavailable: weights or packages are missing; the message says which and what to do.
        ValueError: the model of the spec does not exist, or the checkpoint is that of another model.
    """
    with _loading:  # otherwise two threads that start at the same time would both load it
        if isinstance(spec, EncoderSpec):
            return _load(spec, checkpoint, device, _stamp(checkpoint))
        from .own import load_own

        return load_own(spec, checkpoint, device, _stamp(checkpoint))


def _stamp(checkpoint: str) -> tuple[int, ...]:
    """Size and modification time of a local file, which show whether it has changed."""
    try:
        found = os.stat(checkpoint)
    except OSError:  # a URL, or a missing file, which is reported when it is loaded
        return ()
    return found.st_size, found.st_mtime_ns


@functools.cache
def _load(spec: EncoderSpec, checkpoint: str, device: str, stamp: tuple[int, ...]) -> Encoder:
    if isinstance(spec, Colours):
        from .colours import ColourEncoder

        return ColourEncoder()
    if isinstance(spec, Conse):
        from .conse import load_conse

        return load_conse(spec)
    if isinstance(spec, EfficientNetLite):
        from .efficientnet import EfficientNetEncoder, load_network

        return EfficientNetEncoder(spec, load_network(spec.kind))
    from .clip import load_clip

    return load_clip(spec, checkpoint=checkpoint, device=device)
