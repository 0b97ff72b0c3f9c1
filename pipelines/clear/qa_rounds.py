"""Questions for annotators about the images of a CLEAR run."""

from __future__ import annotations

from typing import cast

from ...curation.qa.rounds import Round, Simulated
from .bucket_config import Buckets
from .config import ClearConfig


def rounds(c: ClearConfig) -> list[Round]:
    """The only round of questions: about the retrieved (and screened) images, a batch per bucket; none if the images came with
    labels.

    Also with ``qa.votes = "none"``: annotators may be asked before their votes are counted.
    """
    if c.recipe is None:
        return []
    qa = c.recipe.qa
    retrieved = "asked" if cast("Buckets", c.buckets).first_labelled else "retrieved"
    only = Round(
        stage=retrieved if qa.max_sensitive_score is None else "screened",
        options=[each.as_option() for each in c.recipe.classes],
        seed=c.seed,
        workers=qa.workers,
        background=c.recipe.retrieval.background,
        group="bucket",
        simulated=Simulated(qa.truth, qa.errors) if qa.votes == "simulated" else None,
    )
    return [only]
