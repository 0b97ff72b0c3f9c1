"""Settings of the KOWL pipeline. What the paper fixes has no default here: it stands in ``kowl.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..datasets.kinetics.lists import ID, ListFile
from ..datasets.kowl.increments import Later
from ..datasets.kowl.splits import Turn
from .config import Location

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class ListSource:
    """Lists in a folder: the releases, splits and files. ``max_rejects``: rows of them that may be bad, or a share below 1.

    The folder should hold lists and nothing else: a run looks at the names, sizes and times of all that is in it.
    """

    kind: Literal["lists"]
    root: Location
    files: Annotated[list[ListFile], Field(min_length=1)]
    max_rejects: float
    id_pattern: str = ID


@dataclass(frozen=True, config=_STRICT)
class DrawnLists:
    """Lists drawn from the seed, and a list of missing videos: no file is needed. See ``datasets/kowl/drawn.toml``."""

    kind: Literal["drawn"]
    drawing: Literal["published", "tiny"]


@dataclass(frozen=True, config=_STRICT)
class Inventory:
    """A file of the clips that a copy holds (``present``) or lacks (``missing``); see ``datasets/kinetics/inventory.py``."""

    path: Location
    means: Literal["present", "missing"]


@dataclass(frozen=True, config=_STRICT)
class Labels:
    """One label space: releases, oldest first; spellings renamed where the oldest release gives the label."""

    releases: Annotated[list[str], Field(min_length=1)]
    renames: dict[str, str]
    normalise: list[Literal["case", "spaces", "punctuation", "brackets"]] = Field(default_factory=list)
    order: Literal["listed", "identity"] = "listed"


@dataclass(frozen=True, config=_STRICT)
class Increments:
    """How later releases come; the first release of ``labels`` is known at the start."""

    preset: Literal["as_released", "as_written"]
    later: list[Later]
    order: Literal["as_released", "shuffled", "interleaved"] = "as_released"


@dataclass(frozen=True, config=_STRICT)
class KowlConfig:
    """All settings. ``seed`` draws what is held out and the orders that are ours; the folds have seeds of their own.

    ``videos`` and ``features`` say which clips there are; samples without one are turned away before they are assigned.
    """

    seed: int
    source: Annotated[ListSource | DrawnLists, Field(discriminator="kind")]
    labels: Labels
    turns: Annotated[list[Turn], Field(min_length=1)]
    increments: Increments
    videos: Inventory | None = None
    features: Inventory | None = None
