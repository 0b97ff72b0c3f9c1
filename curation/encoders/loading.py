"""The one way to get an encoder."""

from __future__ import annotations

import functools
import os
import threading

from .encoder import Encoder, MakeEncoder
from .spec import Colours, Conse, EfficientNetLite, EncoderSpec

_loading = threading.Lock()


def load_encoder(spec: EncoderSpec | MakeEncoder, *, checkpoint: str = "", device: str = "cpu") -> Encoder:
    """The encoder of ``spec``, loaded once a process.

    Args:
        spec: a built-in one; or what makes one of somebody's own, with its settings bound to it, see ``own``.
        checkpoint: local file with the weights of an ``OpenClip`` encoder, in place of a download; plans mark it with
            ``where``, so that its content is part of the key.
        device: a torch device, for ``OpenClip``; the others run on the CPU.

    Raises:
        EncoderUnavailable: weights or packages are missing; one line says which and what to do.
        ValueError: the spec names no such model, or the checkpoint is another's.
    """
    with _loading:  # or two threads that start together would each load it
        if isinstance(spec, EncoderSpec):
            return _load(spec, checkpoint, device, _stamp(checkpoint))
        from .own import load_own

        return load_own(spec, checkpoint, device, _stamp(checkpoint))


def _stamp(checkpoint: str) -> tuple[int, ...]:
    """Size and time of a local file, which are others once it has changed."""
    try:
        found = os.stat(checkpoint)
    except OSError:  # of a URL; and what is not there is told when it is loaded
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
