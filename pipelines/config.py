"""Settings of a pipeline: values in TOML, validated by frozen dataclasses; unknown names are errors."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
import reprlib
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass, rebuild_dataclass

from ..curation.keys import where
from ..curation.registry import Entry, file_of
from ..curation.rows import is_text, printable
from .catalogue import BENCHMARKS
from .errors import WrongUse, did_you_mean
from .names import ByKind, OneOf, beside
from .setting_errors import dataclasses_in, explained, is_by_name, is_of, setting_from
from .settings_type import settings_type

T = TypeVar("T")


_HERE = Path(__file__).parent
_PUBLISHED = "published.toml"
"""Settings of the published size, in the folder of each benchmark."""


class ConfigError(WrongUse):
    """A setting that is missing, unknown or invalid; the message gives the file, the setting, the value and the rule."""


@dataclasses.dataclass(frozen=True)
class _Location:
    """Marks a setting as a path."""


Location = Annotated[str, _Location()]
"""A path or URL. In a user's TOML file, a relative path is relative to the file; otherwise to the working directory."""

_MOST_TEXT = 1 << 22
"""Most characters of a settings file; the longest of this package has a few thousand."""

_LARGEST = 10**18

Rejects = Annotated[float, Field(ge=0)]
"""How many rows may be rejected: a number, or a share if below 1."""


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("a digest has 64 digits from 0 to f")
    return text


Digest = Annotated[str, AfterValidator(_digest)]
"""Content digest of a stage, as reports and `benchwright show` print it."""


@settings_type
class ShardSizes:
    """Sizes of shards.

    Attributes:
        max_samples: maximum number of samples in a shard.
    """

    max_samples: Annotated[int, Field(ge=1)]


SettingOverrides = Iterable[str] | Mapping[str, Any]
"""Settings that replace others: ``a.b=value`` each, where the value is TOML, or plain text if it is not valid TOML; or a
mapping of dotted names to JSON-like values."""


def load(
    config_type: type[T],
    toml: Traversable | None,
    overrides: SettingOverrides = (),
    *,
    benchmark: str = "",
    used: list[Entry] | None = None,
) -> tuple[T, dict[str, Any], dict[str, Any]]:
    """Read a TOML file into ``config_type``.

    A file with ``extends = "tiny"`` (a preset, or a path relative to the file) contains only its changes, which are merged
    table by table into the other file. Lists are replaced, and so are tables with another ``kind``. Dotted names in ``unset``,
    as in ``unset = ["evaluation.networks.small"]``, are first removed from the other file.

    Args:
        config_type: pydantic dataclass.
        toml: the file; None if there is none, so that overrides and defaults are all settings.
        overrides: see ``SettingOverrides``.
        benchmark: the benchmark whose presets ``extends`` may name.
        used: list to which the code named by the settings is appended.

    Returns:
        The settings; all of them as JSON-like values; and only the overrides, by dotted name.

    Raises:
        ConfigError: a file cannot be read, or a setting is unknown, missing or invalid.

    >>> from words import Config
    >>> config, values, changed = load(Config, Path("words.toml"), ["min_words=5"])
    >>> config.min_words, changed
    (5, {'min_words': 5})
    """
    try:
        return _load(config_type, toml, overrides, benchmark, used)
    except RecursionError:
        shown = _shown(toml) if toml else "--set"
        raise ConfigError(f"{shown}: its tables are nested too deeply: settings are tables of a few levels") from None


def _load(
    config_type: type[T], toml: Traversable | None, overrides: SettingOverrides, benchmark: str, used: list[Entry] | None
) -> tuple[T, dict[str, Any], dict[str, Any]]:
    values = {} if toml is None else _with_base(config_type, toml, benchmark, ())
    given = override(values, overrides)
    config = checked(config_type, values, _shown(toml) if toml else _without_toml(benchmark), used, given)
    return config, adapter_of(config_type).dump_python(config, mode="json"), given


def override(values: dict[str, Any], overrides: SettingOverrides) -> dict[str, Any]:
    """Put overrides into a table of settings, and return them by dotted name. Raises ``ConfigError``.

    >>> override({"source": {"count": 3}}, {"source.count": 5}) == override({}, ["source.count=5"])
    True
    >>> override({}, {"source.count": {5}})
    Traceback (most recent call last):
        ...
    benchwright.pipelines.config.ConfigError: source.count = {5}: settings are numbers, text (paths, too), ...
    """
    given: dict[str, Any] = {}
    for name, value in map(_plain, overrides.items()) if isinstance(overrides, Mapping) else map(_named_value, overrides):
        given[name] = value
        _put(values, name, value)
    return given


def _named_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise ConfigError(f"--set {text!r}: write it as name=value, as in --set retrieval.per_class=100")
    return name, _toml_value(name, value)


def _plain(setting: tuple[str, Any]) -> tuple[str, Any]:
    name, value = setting
    if not isinstance(name, str) or not all(name.split(".")):
        raise ConfigError(f"{name!r}: write the name of a setting with its tables, as in retrieval.per_class")
    try:
        return name, json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        kinds = "numbers, text (paths, too), True, False and None, and lists and tables of these"
        raise ConfigError(f"{name} = {reprlib.repr(value)}: settings are {kinds}") from None


def checked(config_type: type[T], values: Any, origin: str, used: list[Entry] | None = None, given: Iterable[str] = ()) -> T:
    """Validate ``values`` as ``config_type``. Raises ``ConfigError``, which names ``origin``, if they do not fit.

    Names of code are looked up without loading it, and their entries appended to ``used``. ``given`` are the dotted names of
    settings from an option ``--set`` rather than from ``origin``.
    """
    adapter = adapter_of(config_type)
    given = list(given)
    _check_finite(values, origin, given)  # before the checks of the settings themselves, which rely on it
    try:
        config = adapter.validate_python(values, context=used)
    except ValidationError as error:
        place, message = explained(config_type, values, error)
        raise ConfigError(f"{setting_from(origin, place, given)} {message}") from None
    except OverflowError as error:
        raise ConfigError(f"{setting_from(origin, [], given)} a number is too large: {error}") from None
    _check_finite(adapter.dump_python(config), origin, given)  # text such as "NaN" has become a number
    return config


@functools.cache
def adapter_of(config_type: type) -> TypeAdapter[Any]:
    """Validator for settings. Dataclasses that do not configure unknown names reject them, as those of this package do.

    >>> from shapes import Config
    >>> adapter_of(Config).validate_python({"count": 3, "cuont": 4})
    Traceback (most recent call last):
        ...
    pydantic_core._pydantic_core.ValidationError: 1 validation error for Config...
    """
    _forbid_unknown(config_type, set())
    return TypeAdapter(config_type)


def _forbid_unknown(owner: type, seen: set[type]) -> bool:
    """Make a dataclass and those in it reject unknown names; return whether anything was changed."""
    if owner in seen or not dataclasses.is_dataclass(owner):
        return False
    seen.add(owner)
    try:
        hints = typing.get_type_hints(owner).values()
    except NameError:  # of a class in a function: pydantic finds it from there, but could not do so again
        return False
    changed = [_forbid_unknown(inner, seen) for hint in hints for inner in dataclasses_in(hint)]
    how: Any = getattr(owner, "__pydantic_config__", {})
    if "extra" not in how:
        typing.cast("Any", owner).__pydantic_config__ = {**how, "extra": "forbid"}
        changed.append(True)
    if any(changed) and is_pydantic_dataclass(owner):
        rebuild_dataclass(owner, force=True)
    return any(changed)


def _check_finite(values: Any, origin: str, given: Sequence[str]) -> None:
    for name, value in _numbers(values):
        if isinstance(value, int):
            if -_LARGEST <= value <= _LARGEST:
                continue
            # Python does not print integers with thousands of digits.
            message = reprlib.repr(value) if value.bit_length() < 1000 else f"a number of {value.bit_length():,} bits"
            rule = "it should be a number of 18 digits at most"
        elif math.isfinite(value):
            continue
        else:
            message, rule = str(value), "it should be a finite number"
        raise ConfigError(f"{setting_from(origin, name.split('.'), given)} {name} = {message}: {rule}")


def _numbers(values: Any, *place: str) -> Iterator[tuple[str, float]]:
    """Dotted name and value of every number."""
    if isinstance(values, int | float) and not isinstance(values, bool):
        yield ".".join(place), values
    named = values.items() if isinstance(values, Mapping) else enumerate(values) if isinstance(values, list | tuple) else ()
    for name, value in typing.cast("Iterable[tuple[Any, Any]]", named):
        yield from _numbers(value, *place, str(name))


def read_toml(toml: Traversable) -> dict[str, Any]:
    """The values of a TOML file. Raises ``ConfigError`` if it is missing or not TOML."""
    try:
        return tomllib.loads(read_text(toml))
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # also numbers with thousands of digits, and deep nesting
        raise ConfigError(f"config {str(toml)!r} is not TOML: {error}") from None


def read_text(toml: Traversable) -> str:
    """The text of a TOML file. Raises ``ConfigError`` if it is missing or not text."""
    try:
        with toml.open(encoding="utf-8-sig") as stream:
            text = stream.read(_MOST_TEXT + 1)  # editors on Windows begin a file with a byte order mark
    except FileNotFoundError:
        raise ConfigError(f"config {str(toml)!r}: no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"config {str(toml)!r} is not TOML: {error}") from None
    except (OSError, ValueError) as error:
        message = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigError(f"config {str(toml)!r} cannot be read: {message}") from None
    if len(text) > _MOST_TEXT:
        raise ConfigError(f"config {str(toml)!r} is not a settings file: it is larger than {_MOST_TEXT:,} characters")
    return text


def _with_base(config_type: type, toml: Traversable, benchmark: str, above: tuple[str, ...]) -> dict[str, Any]:
    if str(toml) in above:
        raise ConfigError(f"config {str(toml)!r}: extends itself, via {' and '.join(above)}")
    values = read_toml(toml)
    base = values.pop("extends", None)
    own = isinstance(toml, Path) and not _is_built_in(toml)
    if own:
        _resolve(config_type, values, typing.cast(Path, toml).parent)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"{_shown(toml)}: extends = {base!r}: expected a preset or a file")
    unset = values.pop("unset", [])
    if not isinstance(unset, list) or not all(isinstance(name, str) for name in typing.cast("list[Any]", unset)):
        raise ConfigError(f"{_shown(toml)}: unset = {unset!r}: expected a list of dotted names")
    found = find_config(benchmark, base, typing.cast(Path, toml).parent if own else Path())
    under = _with_base(config_type, found, benchmark, (*above, str(toml)))
    for name in typing.cast("list[str]", unset):
        _take_out(under, name, f"{_shown(toml)}: unset {name!r}: {_shown(found)}")
    return _laid_over(under, values)


def _take_out(values: dict[str, Any], dotted: str, setting: str) -> None:
    table: Any = values
    *parents, last = dotted.split(".")
    for name in [*parents, last]:
        if not isinstance(table, dict) or name not in table:
            known: list[str] = list(typing.cast("dict[str, Any]", table)) if isinstance(table, dict) else []
            raise ConfigError(f"{setting} has no {name!r}{' there' if name != dotted else ''}{did_you_mean(name, known)}")
        values, table = typing.cast("dict[str, Any]", table), table[name]
    del values[last]


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        old = merged.get(name)
        same = isinstance(old, Mapping) and isinstance(value, Mapping) and value.get("kind", old.get("kind")) == old.get("kind")
        merged[name] = _laid_over(typing.cast("Any", old), typing.cast("Any", value)) if same else value
    return merged


def find_config(benchmark: str, name: str | None, base: Path = Path()) -> Traversable:
    """The TOML file of a run: the benchmark's default, a preset by name (``tiny``), or a user's file.

    Args:
        benchmark: name in one of the three forms, see ``catalogue.BENCHMARKS``. Its settings are next to its module:
            ``published.toml`` and presets such as ``tiny.toml``; or, for a module ``words.py`` with a ``words.toml``, this file
            and presets such as ``words.tiny.toml``.
        name: None for the default, which ``published`` also names.
        base: folder that a user's file is relative to.

    Raises:
        ConfigError: the name is neither a preset nor a file.

    >>> find_config("clear", "tiny").name
    'tiny.toml'
    """
    beside = _beside(benchmark)
    if name is None:
        if _OWN not in beside:
            raise ConfigError(f"benchmark {benchmark!r} has no default settings: give --config FILE.toml")
        return beside[_OWN]
    if name in beside and name != _OWN:
        return beside[name]
    if _OWN in beside and f"{name}.toml" == _PUBLISHED == beside[_OWN].name:
        return beside[_OWN]
    if not (base / name).exists():
        known = variants(benchmark)
        message = f", and no preset of that name: there are {', '.join(known)}" if known and "/" not in name else ""
        others = [other for other in BENCHMARKS.builtin if other != benchmark and name in variants(other)]
        near = f"; {', '.join(others)} has one of that name" if others else did_you_mean(name, known)
        raise ConfigError(f"config {name!r}: no such file{message}{near}")
    return base / name


def brings_settings(benchmark: str) -> bool:
    """Whether a benchmark has default settings, which ``find_config`` returns."""
    return _OWN in _beside(benchmark)


def variants(benchmark: str) -> list[str]:
    """Names of a benchmark's presets, which are next to its module, such as ``tiny``."""
    return sorted(name for name in _beside(benchmark) if name != _OWN)


_OWN = ""
"""Key of the default settings among the presets."""


def _beside(benchmark: str) -> dict[str, Path]:
    module = file_of(BENCHMARKS.find(benchmark)) if benchmark else None
    if module is None:
        return {}
    files = {path.name: path for path in module.parent.glob("*.toml")}
    if _PUBLISHED in files and f"{module.stem}.toml" not in files:
        found = {name.removesuffix(".toml"): path for name, path in files.items() if name != _PUBLISHED}
        return {_OWN: files[_PUBLISHED], **found}
    own = f"{module.stem}."
    return {name[len(own) : -len(".toml")]: path for name, path in files.items() if f"{name[:-5]}.".startswith(own)}


def _is_built_in(toml: Traversable) -> bool:
    return isinstance(toml, Path) and toml.parent.parent == _HERE


def _shown(toml: Traversable) -> str:
    """Name of a TOML file in errors: files of the package with their benchmark."""
    return f"{typing.cast(Path, toml).parent.name}/{toml.name}" if _is_built_in(toml) else toml.name


def _without_toml(benchmark: str) -> str:
    module = file_of(BENCHMARKS.find(benchmark)) if benchmark else None
    return f"{module.name} (no {module.stem}.toml is next to it)" if module else "the settings"


def with_changes(settings: Mapping[str, Any], *changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A baseline's settings with the changes from ``evaluation.settings``, table by table; later changes win.

    Raises:
        ValueError: a table or name that ``settings`` does not have.

    >>> with_changes({"schedule": {"epochs": 20, "momentum": 0.9}}, {"schedule": {"epochs": 5}})
    {'schedule': {'epochs': 5, 'momentum': 0.9}}
    """
    changed = dict(settings)
    for table, values in ((table, values) for tables in changes for table, values in tables.items()):
        known = changed.get(table)
        if not isinstance(known, dict):
            tables = [name for name, value in settings.items() if isinstance(value, dict)]
            raise ValueError(f"evaluation.settings.{table}: there are {', '.join(tables)}")
        if unknown := [name for name in values if name not in known]:
            raise ValueError(f"evaluation.settings.{table}.{unknown[0]}: there are {', '.join(map(str, known))}")
        changed[table] = {**known, **values}
    return changed


def _resolve(config_type: Any, values: Any, base: Path) -> None:
    """Make the relative paths of ``values`` relative to ``base``, in place."""
    owner = next((each for each in dataclasses_in(config_type) if is_of(each, values)), None)
    if owner is None or not isinstance(values, Mapping):
        return
    hints = typing.get_type_hints(owner, include_extras=True)
    for name, value in list(values.items()):
        hint = hints.get(name)
        typing.cast("dict[str, Any]", values)[name] = resolved = _resolved(hint, value, base)
        if isinstance(resolved, Mapping):
            for table in resolved.values() if is_by_name(hint) else [resolved]:
                _resolve(hint, table, base)


def _resolved(hint: Any, value: Any, base: Path) -> Any:
    """A value with paths made relative to ``base``, if its type marks it as a path or as code in a file."""
    if isinstance(value, list):
        return [_resolved(hint, item, base) for item in typing.cast("list[Any]", value)]
    if isinstance(value, Mapping) and _is_marked(hint, ByKind) and isinstance(kind := value.get("kind"), str):
        return {**value, "kind": beside(kind, base)}
    if isinstance(value, Mapping) and _is_marked(hint, _Location):
        return {name: _resolved(hint, item, base) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    if value and _is_marked(hint, _Location) and "://" not in value and not Path(value).is_absolute():
        return str(base / value)
    return beside(value, base) if _is_marked(hint, OneOf) else value


def _is_marked(hint: Any, mark: type) -> bool:
    return any(isinstance(extra, mark) for extra in getattr(hint, "__metadata__", ())) or any(
        _is_marked(argument, mark) for argument in typing.get_args(hint)
    )


def check_file_not_empty(setting: str, path: str) -> None:
    """Raise ``ConfigError`` if a setting names an empty local file, hours before it would be used.

    >>> check_file_not_empty("features.a.weights", "/dev/null")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.config.ConfigError: features.a.weights = '/dev/null': the file is empty
    """
    if path and "://" not in path and os.path.exists(path) and not os.path.isdir(path) and not os.path.getsize(path):
        raise ConfigError(f"{setting} = {path!r}: the file is empty")


def arguments_of(table: Any) -> dict[str, Any]:
    """The settings of a table by name, with paths marked for ``step``."""
    hints = typing.get_type_hints(type(table), include_extras=True)
    values = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
    return {
        name: where(value) if isinstance(value, str) and _is_marked(hints[name], _Location) else value
        for name, value in values.items()
    }


def _toml_value(name: str, text: str) -> Any:
    if not is_text(text) or "\0" in text:
        raise ConfigError(f"--set {name}={printable(text)!r:.80}: not UTF-8 text, or contains a NUL")
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {name}={text[:40]}...: {error}") from None


def _put(values: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for name in parents:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {dotted}: {name} is a value, not a table of settings")
        values = typing.cast("dict[str, Any]", inner)
    values[last] = value
