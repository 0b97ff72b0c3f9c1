"""Blurring as a part of a benchmark: its settings, and the stage that it adds."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, JsonValue

from ..curation.budget import Budget
from ..curation.flow import Flow, step
from ..curation.keys import where
from ..curation.stages.blur import HOW_TO_GET, blur
from ..curation.stages.detectors import DETECTORS, detector
from .config import ConfigError, Location
from .names import OneOf, short
from .settings_type import settings_type


@settings_type
class Blurring:
    """Blurring of faces or other objects in pictures; see ``docs/blurring.md``.

    Attributes:
        detector: the detector that finds them.
        checkpoint: local file with the weights of the detector.
        settings: further keyword arguments of the detector.
        min_score: boxes with a lower score are ignored.
        margin: enlargement of a box on each side, as a share of its sides.
        cells: along the longer side of a box; each becomes its mean colour.
        jpeg_quality: JPEG quality of changed pictures.
    """

    detector: Annotated[str, OneOf(DETECTORS)] = "centerface"
    checkpoint: Location = ""
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    min_score: Annotated[float, Field(ge=0, le=1)] = 0.2
    margin: Annotated[float, Field(ge=0, le=10)] = 0.3
    cells: Annotated[int, Field(ge=1, le=16)] = 4
    jpeg_quality: Annotated[int, Field(ge=1, le=100)] = 95


def with_blurring(flow: Flow, b: Blurring | None, *, max_pixels: int, max_rejects: Budget, rows_per_part: int) -> Flow:
    """The plan with the stage ``blurred`` added; unchanged if ``b`` is None.

    Args:
        flow: plan whose rows have pictures that decode.
        b: the settings.
        max_pixels: limit with which the pictures were checked.
        max_rejects: budget of the stage.
        rows_per_part: rows per part of the stage.
    """
    if b is None:
        return flow
    given: dict[str, Any] = {"min_score": b.min_score, "margin": b.margin, "cells": b.cells, "jpeg_quality": b.jpeg_quality}
    if b.checkpoint:
        given["checkpoint"] = where(b.checkpoint)
    if b.detector == "centerface" and not b.checkpoint:
        raise ConfigError(f"blurring.checkpoint is missing: {HOW_TO_GET}")
    try:
        found = detector(b.detector, **b.settings)
    except ValueError as error:
        raise ConfigError(f"blurring.settings.{error}: these are of {short(b.detector)}") from None
    hidden = step(blur, detector=found, max_pixels=max_pixels, **given)
    return flow.each("blurred", hidden, max_rejects=max_rejects, rows_per_part=rows_per_part)
