"""Files next to a module of this package: published facts, presets, tables and templates."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def package_text(package: str | None, name: str) -> str:
    """Content of a text file in a package: ``package_text(__package__, "report.css")``."""
    return resources.files(package or "").joinpath(name).read_text(encoding="utf-8")


def package_toml(package: str | None, name: str) -> dict[str, Any]:
    """Content of a TOML file in a package: ``package_toml(__package__, "facts.toml")``."""
    return tomllib.loads(package_text(package, name))


class FactTable(dict[Any, Any]):
    """A table of published facts, whose values are also attributes: ``facts.labels.count``."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"no fact {name!r}: there are {', '.join(map(str, self))}")
        return self[name]


def published_facts(package: str | None) -> FactTable:
    """Content of ``facts.toml``, with lists as tuples and numeric names as integers, without ``source`` and ``note``."""
    return _fixed(package_toml(package, "facts.toml"))


def _fixed(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_fixed(each) for each in value)
    if isinstance(value, dict):
        named = {int(name) if name.isdecimal() else name: each for name, each in value.items()}
        return FactTable({name: _fixed(each) for name, each in named.items() if name not in ("source", "note")})
    return value
