"""Settings of a pipeline: values in TOML, checked against frozen dataclasses; unknown names are errors."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


_HERE = "benchwright.pipelines"


class ConfigError(ValueError):
    """A setting that is missing, unknown or wrong: says the file, the setting, the value and the rule."""


@dataclasses.dataclass(frozen=True)
class _Location:
    """Marks a setting as a path."""


Location = Annotated[str, _Location()]
"""A path or URL. In a user's TOML file a relative one is relative to the file; otherwise to the working directory."""


def load(config_type: type[T], toml: Traversable, overrides: Iterable[str] = ()) -> tuple[T, dict[str, Any], dict[str, Any]]:
    """Read a TOML file into ``config_type``.

    Args:
        config_type: pydantic dataclass.
        toml: the file.
        overrides: ``a.b=value`` each; the value is TOML, or plain text where it is not.

    Returns:
        The settings; all of them as JSON-like values; and the overrides alone, by dotted name.

    Raises:
        ConfigError: for a file that cannot be read, or a setting that is unknown, missing or wrong.
    """
    values = read_toml(toml)
    packaged = Path(str(files(_HERE)))
    if isinstance(toml, Path) and toml.parent != packaged:
        _resolve(config_type, values, toml.parent)
    given: dict[str, Any] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {text!r}: write it as name=value, as in --set retrieval.per_class=100")
        given[name] = _toml_value(value)
        _put(values, name, given[name])
    adapter = TypeAdapter(config_type)
    try:
        config = adapter.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "(top)"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        shown = "" if first["type"] in ("missing", "unexpected_keyword_argument") else f" = {first['input']!r}"
        rule = {
            "missing": "this setting is missing",
            "unexpected_keyword_argument": f"there is no such setting{_known(config_type, first['loc'])}",
        }.get(first["type"], first["msg"].removeprefix("Value error, "))
        raise ConfigError(f"{toml.name}: {place}{shown}: {rule}{more}") from None
    return config, adapter.dump_python(config, mode="json"), given


def read_toml(toml: Traversable) -> dict[str, Any]:
    """The values of a TOML file. Raises ``ConfigError`` where it is missing or no TOML."""
    try:
        return tomllib.loads(toml.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config {str(toml)!r}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise ConfigError(f"config {str(toml)!r} is not TOML: {error}") from None


def find_config(benchmark: str, name: str | None) -> Traversable:
    """The TOML file of a run: the benchmark's own, one of its variants by name (``tiny``), or a file of the user's."""
    packaged = files(_HERE)
    if name is None:
        return packaged / f"{benchmark}.toml"
    variant = packaged / f"{benchmark}.{name}.toml"
    if "/" not in name and not name.endswith(".toml") and variant.is_file():
        return variant
    return Path(name)


def variants(benchmark: str) -> list[str]:
    """Names of the packaged variants of a benchmark's config, such as ``tiny``."""
    names = [entry.name for entry in files(_HERE).iterdir()]
    return sorted(
        name.removeprefix(f"{benchmark}.").removesuffix(".toml")
        for name in names
        if name.startswith(f"{benchmark}.") and name.endswith(".toml") and name != f"{benchmark}.toml"
    )


def _known(config_type: type, place: tuple[Any, ...]) -> str:
    owner: Any = config_type
    for part in place[:-1]:
        owner = _dataclass_in(typing.get_type_hints(owner).get(part)) if dataclasses.is_dataclass(owner) else None
    if owner is None or not dataclasses.is_dataclass(owner):
        return ""
    return f"; there are {', '.join(field.name for field in dataclasses.fields(owner))}"


def _dataclass_in(hint: Any) -> type | None:
    if dataclasses.is_dataclass(hint):
        return typing.cast(type, hint)
    return next((found for found in map(_dataclass_in, typing.get_args(hint)) if found is not None), None)


def _resolve(config_type: Any, values: Any, base: Path) -> None:
    """Make the relative paths of ``values`` relative to ``base``, in place."""
    owner = _dataclass_in(config_type)
    if owner is None or not isinstance(values, Mapping):
        return
    hints = typing.get_type_hints(owner, include_extras=True)
    for name, value in list(values.items()):
        hint = hints.get(name)
        if isinstance(value, str) and value and _is_location(hint) and "://" not in value and not Path(value).is_absolute():
            typing.cast("dict[str, Any]", values)[name] = str(base / value)
        elif isinstance(value, Mapping):
            _resolve(hint, value, base)


def _is_location(hint: Any) -> bool:
    return any(isinstance(extra, _Location) for extra in getattr(hint, "__metadata__", ())) or any(
        _is_location(argument) for argument in typing.get_args(hint)
    )


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(values: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for name in parents:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {dotted}: {name} is a value and holds no other settings")
        values = typing.cast("dict[str, Any]", inner)
    values[last] = value
