"""TOML files that lie beside a module of this package: published facts, presets, tables."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def package_toml(package: str | None, name: str) -> dict[str, Any]:
    """The tables of a file: ``package_toml(__package__, "facts.toml")``."""
    return tomllib.loads(resources.files(package or "").joinpath(name).read_text(encoding="utf-8"))


def published_facts(package: str | None) -> dict[str, Any]:
    """The tables of ``facts.toml``, lists as tuples, without what says where a fact stands (``source``, ``note``)."""
    return _fixed(package_toml(package, "facts.toml"))


def _fixed(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_fixed(each) for each in value)
    if isinstance(value, dict):
        return {name: _fixed(each) for name, each in value.items() if name not in ("source", "note")}
    return value
