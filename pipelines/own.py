"""Settings for code of one's own, which any benchmark may use, and what a plan makes of them. See docs/extending.md."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

from ..curation.budget import Budget
from ..curation.encoders.spec import ENCODERS, EncoderSpec
from ..curation.flow import Flow, PlanError, source, step
from ..curation.keys import named, where
from ..curation.registry import Registry, load_entry, load_name
from .config import ConfigError, Location, Rejects

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class OwnEncoder:
    """An encoder of one's own. ``settings`` are the keyword arguments that it is made with."""

    kind: str
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, config=_STRICT)
class OwnSource:
    """A source of one's own: a function that gives rows like those of the benchmark's other sources.

    Attributes:
        kind: its name.
        paths: arguments that are files, folders or URLs: their content counts, and not their place.
        settings: its other arguments. ``seed`` is that of the run, where it has such an argument.
        max_rejects: rows that it may reject, or a share below 1.
    """

    kind: str
    paths: dict[str, Location] = Field(default_factory=dict[str, str])
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    max_rejects: Rejects = 0


def own_source(name: str, s: OwnSource, *, seed: int) -> Flow:
    """The stage ``name`` of a source of one's own.

    Raises:
        ConfigError: where its function has no such argument, or lacks one.
    """
    function = load_name(_SOURCES, s.kind)
    given = {**s.settings, **{each: where(path) for each, path in s.paths.items()}}
    if "seed" in inspect.signature(function).parameters:
        given = {"seed": seed, **given}
    try:
        return source(name, step(function, **given), max_rejects=Budget(s.max_rejects, "source.max_rejects"))
    except PlanError as error:
        raise ConfigError(f"source.kind = {shown(s.kind)!r}: {error}") from None


_SOURCES = Registry("source", {})


def encoder_of(spec: EncoderSpec | OwnEncoder) -> Any:
    """The setting ``encoder`` of ``embed_images`` and ``retrieve``: keyed by the code of that one encoder."""
    if not isinstance(spec, OwnEncoder):
        return spec
    entry = ENCODERS.find(spec.kind)
    try:
        signature = inspect.signature(load_entry(entry))
        signature.bind_partial(**spec.settings)
    except TypeError as error:
        raise ConfigError(f"encoder.settings: {error}: change them to fit {shown(spec.kind)}") from None
    return named(entry.reference, **spec.settings)


def shown(kind: str) -> str:
    """A kind as cards and reports have it: code in a file without its folder."""
    return kind.rpartition("/")[2]
