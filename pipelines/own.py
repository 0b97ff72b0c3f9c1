"""Settings for code of one's own, which any benchmark may use, and what a plan makes of them. See docs/extending.md."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

from ..curation.encoders.registry import ENCODERS
from ..curation.encoders.spec import EncoderSpec
from ..curation.keys import named

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class OwnEncoder:
    """An encoder of one's own. ``settings`` are the keyword arguments that it is made with."""

    kind: str
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


def encoder_of(spec: EncoderSpec | OwnEncoder) -> Any:
    """The setting ``encoder`` of ``embed_images`` and ``retrieve``: keyed by the code of that one encoder."""
    return named(ENCODERS.find(spec.kind).reference, **spec.settings) if isinstance(spec, OwnEncoder) else spec


def shown(kind: str) -> str:
    """A kind as cards and reports have it: code in a file without its folder."""
    return kind.rpartition("/")[2]
