"""Settings that name user code (encoders, sources), and the plan steps built from them. See docs/extending.md."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from ..curation.budget import Budget
from ..curation.encoders.spec import EncoderSpec, OpenClip
from ..curation.flow import Flow, PlanError, Step, source, step
from ..curation.keys import named, where
from ..curation.registry import Registry, check_arguments, load_entry, load_name
from ..datasets.features.networks import Network
from .config import ConfigError, Location, Rejects, arguments_of, check_file_not_empty
from .encoders import ENCODERS
from .errors import did_you_mean
from .names import short
from .settings_type import settings_type


@settings_type
class OwnEncoder:
    """A user-defined encoder.

    Attributes:
        kind: ``path/to/file.py:name``, ``module:name``, or the name that a plugin gives it.
        settings: its keyword arguments.
    """

    kind: str
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


@settings_type
class OwnSource:
    """A user-defined source: a function that yields rows like those of the benchmark's other sources.

    Attributes:
        kind: ``path/to/file.py:name``, ``module:name``, or the name that a plugin gives it.
        paths: arguments that are files, folders or URLs: their content counts, not their location.
        settings: its other arguments. An argument ``seed`` gets the seed of the run.
        max_rejects: rows that it may reject: a number, or a share if below 1.
    """

    kind: str
    paths: dict[str, Location] = Field(default_factory=dict[str, str])
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    max_rejects: Rejects = 0


def source_of(
    name: str,
    s: Any,
    registry: Registry,
    *,
    seed: int,
    budget: Budget | float = 0,
    pieces: Callable[..., Any] | None = None,
    gives: Any = None,
    rows_per_part: int = 65536,
    **more: Any,
) -> Flow:
    """The stage ``name`` of a source of any kind. The kind's function gets the settings that it has as arguments.

    Args:
        name: name of the stage.
        s: settings of the source, distinguished by ``kind``.
        registry: registry of the benchmark's sources.
        seed: seed of the run.
        budget: number of rows that it may reject.
        pieces: lists what can be read separately, for functions that read one piece; gets settings in the same way.
        gives, rows_per_part: see ``flow.source``.
        more: settings from elsewhere, or that replace those of ``s``.
    """
    if isinstance(s, OwnSource):
        return own_source(name, s, seed=seed)
    values = {**arguments_of(s), "seed": seed, **more}

    def bound(function: Callable[..., Any]) -> Step:
        return step(function, **{each: values[each] for each in inspect.signature(function).parameters if each in values})

    parts = None if pieces is None else bound(pieces)
    read = bound(load_name(registry, s.kind))
    return source(name, read, pieces=parts, gives=gives, max_rejects=budget, rows_per_part=rows_per_part)


def own_source(name: str, s: OwnSource, *, seed: int) -> Flow:
    """The stage ``name`` of a user-defined source.

    Raises:
        ConfigError: an argument is unknown or missing.
    """
    function = load_name(_SOURCES, s.kind)
    given = {**s.settings, **{each: where(path) for each, path in s.paths.items()}}
    if "seed" in inspect.signature(function).parameters:
        given = {"seed": seed, **given}
    try:
        return source(name, step(function, **given), max_rejects=Budget(s.max_rejects, "source.max_rejects"))
    except PlanError as error:
        raise ConfigError(f"source.kind = {short(s.kind)!r}: {error}") from None


_SOURCES = Registry("source", {})


def encoder_of(spec: EncoderSpec | OwnEncoder, *, at: str = "encoder", texts: bool = False) -> Any:
    """The setting ``encoder`` of ``embed_images`` and ``retrieve``, keyed only by the code of this encoder.

    Args:
        spec: settings of the encoder.
        at: the table of these settings.
        texts: whether it encodes texts, too.

    Raises:
        ConfigError: the encoder does not take the settings, or its class lacks a method.
    """
    if not isinstance(spec, OwnEncoder):
        if isinstance(spec, OpenClip):
            _check_architecture(f"{at}.model", spec.model)
        return spec
    entry = ENCODERS.find(spec.kind)
    found = load_entry(entry)
    if inspect.isclass(found):  # what a function returns is known only after the call, which may load weights
        of_batches = hasattr(found, "encode_prepared")
        wanted = ["encode_prepared"] if of_batches else ["encode_image"]
        wanted += ["encode_texts" if of_batches else "encode_text"] if texts else []
        if lacks := [name for name in wanted if not hasattr(found, name)]:
            raise ConfigError(f"{at}.kind = {short(spec.kind)!r}: an encoder has a method {lacks[0]}, and this class has none")
    given = {"checkpoint", "device"} - spec.settings.keys()
    try:
        check_arguments(found, spec.settings, given=given)
    except ValueError as error:
        raise ConfigError(f"{at}.settings.{error}: these are of {short(spec.kind)}") from None
    return named(entry.reference, **spec.settings)


def weights_of(spec: Network | EncoderSpec | OwnEncoder, setting: str, weights: str) -> str:
    """The argument ``checkpoint`` of ``embed_images``, ``extract_images`` and ``retrieve``: '' if the setting is empty.

    Raises:
        ConfigError: the encoder takes no file of weights, or the file is empty.
    """
    if not weights:
        return ""
    if isinstance(spec, OwnEncoder):
        takes = "checkpoint" in inspect.signature(load_name(ENCODERS, spec.kind)).parameters
    else:
        takes = isinstance(spec, Network | OpenClip)
    if not takes:
        raise ConfigError(f"{setting} = {weights!r}: {short(spec.kind)} takes no file of weights: remove this setting")
    check_file_not_empty(setting, weights)
    return where(weights)


def _check_architecture(setting: str, model: str) -> None:
    """Check that open_clip has the architecture, by the names of its files, since importing it takes seconds."""
    package = importlib.util.find_spec("open_clip")
    folders = [] if package is None else package.submodule_search_locations or []
    known = [path.stem for folder in folders for path in Path(folder, "model_configs").glob("*.json")]
    if known and model.replace("/", "-") not in known:
        raise ConfigError(f"{setting} = {model!r}: open_clip has no such architecture{did_you_mean(model, sorted(known))}")
