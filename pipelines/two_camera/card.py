"""Publication of a two-camera run: the dataset and its card."""

from __future__ import annotations

from typing import Any

from ...curation.publish import DatasetCard
from ...curation.run import Run
from ...datasets.two_camera.samples import COLUMNS, IMAGES, RELIT_COLUMNS, VALID
from ..names import short
from ..publish import publish_shards
from .config import Radiometric, RadiometricFile, TwoCameraConfig

_CITATION = """A. Abdelhamed, A. Punnappurath, M. S. Brown.
Leveraging the Availability of Two Cameras for Illuminant Estimation. CVPR 2021."""


def publish(run: Run, config: TwoCameraConfig, folder: str) -> None:
    """Write the dataset: shards with index, card and manifest."""
    members: dict[str, Any] = {"json": {"holds": "keys, fold, lights and transforms"}}
    if config.pictured:
        members |= {name: {"dtype": "uint16", "holds": "linear raw RGB, 65535 at full scale"} for name in IMAGES}
    if config.pictured and not isinstance(config.source, Radiometric):
        members[VALID] = {"dtype": "bool", "holds": "pixels that count"}
    folds = run.rows().table(["fold"])["fold"].to_pylist()
    card = DatasetCard(
        title="A two-camera illuminant data set",
        summary=(
            f"Pairs of views of one scene by two cameras ({short(config.source.kind)}), with the light in both and the 3 x 3 "
            f"colour transforms between them (rules {config.transform.preset}). Columns of vectors are lists; matrices are row "
            "by row."
            + (" transform_2to1 is the inverse of transform_1to2." if isinstance(config.source, RadiometricFile) else "")
        ),
        pipeline="two_camera",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members=members,
        columns=COLUMNS if config.augmentation is None else COLUMNS | RELIT_COLUMNS,
        tags=["colour-constancy", "white-balance", "illuminant-estimation"],
        tasks=["other"],
        configurations={"default": {f"fold_{fold}": {"fold": fold} for fold in sorted(set(folds))}},
    )
    publish_shards(run, card, folder)
