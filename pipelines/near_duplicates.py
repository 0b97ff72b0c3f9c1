"""Near-duplicates as a part of a benchmark: their settings, and the stages that they add."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..curation.flow import Flow, Step, step
from ..curation.keys import how
from ..curation.stages.near_duplicates import (
    MAX_DISTANCE,
    MIN_COSINE,
    DuplicateRule,
    KeepRule,
    NearDuplicate,
    near_duplicates_by_hash,
    near_duplicates_by_vector,
)
from ..curation.stages.near_vectors import VectorSearch
from ..curation.stages.picture_hash import hash_picture
from .settings_type import settings_type

HASH_PICTURE = step(hash_picture)
"""The step that hashes rows with the bytes of a picture."""


@settings_type
class NearDuplicates:
    """Near-equal pictures or clips: how they are found, and which of them stay; see ``docs/near_duplicates.md``.

    Attributes:
        by: perceptual hashes, or the vectors of the encoder.
        keep: ``keep_all``, ``keep_first``, ``keep_best`` (the largest), or ``drop_across_splits`` (those of the test set stay).
        within: column, such as "bucket": only rows with the same value are compared; "": all rows are.
        max_distance: for hashes: maximum number of differing bits, of 64.
        min_cosine: for vectors: minimum cosine similarity.
        search: for vectors: how pairs are searched for.
    """

    by: Literal["hash", "embedding"] = "hash"
    keep: KeepRule = "keep_all"
    within: str = ""
    max_distance: Annotated[int, Field(ge=0, le=63)] = MAX_DISTANCE
    min_cosine: Annotated[float, Field(gt=-1, le=1)] = MIN_COSINE
    search: VectorSearch = Field(default_factory=VectorSearch)


def with_near_duplicates(
    flow: Flow,
    near: NearDuplicates | None,
    *,
    hashing: Step = HASH_PICTURE,
    order_by: str = "",
    split: str = "",
    device: str = "cpu",
    rows_per_part: int = 256,
) -> Flow:
    """The plan with the stages ``hashed`` (if needed) and ``near`` added; unchanged if ``near`` is None.

    Args:
        flow: plan whose rows have pictures, or clips.
        near: the settings.
        hashing: the step that hashes a row and adds its number of pixels.
        order_by: column of time, which decides what is the first row of a group.
        split: column with the split of a row; "" if there is none yet.
        device: device for the search of similar vectors.
        rows_per_part: rows per part of the stage that hashes.
    """
    if near is None:
        return flow
    rule = DuplicateRule(near.keep, near.within, order_by if near.keep == "keep_first" else "", split=split)
    if near.by == "hash" or near.keep == "keep_best":
        flow = flow.each("hashed", hashing, rows_per_part=rows_per_part)
    if near.by == "hash":
        found = step(near_duplicates_by_hash, max_distance=near.max_distance, rule=rule)
    else:
        given: dict[str, Any] = {"min_cosine": near.min_cosine, "search": near.search, "device": how(device)}
        found = step(near_duplicates_by_vector, rule=rule, **given)
    return flow.whole("near", found, gives=NearDuplicate, max_rejects=None)
