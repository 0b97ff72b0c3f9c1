"""Predictors by name, with the paper's settings."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import typing
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from ...curation.registry import Registry, load_name

PREDICTORS = Registry(
    "predictor",
    {
        "ann": "benchwright.training.predictors.ann:Ann",
        "evm": "benchwright.training.predictors.evm:Evm",
        "gmm_finch": "benchwright.training.predictors.gmm_finch:GmmFinch",
    },
    fits=dict.fromkeys(("ann", "evm", "gmm_finch"), "vectors"),
)


def parts(kind: str) -> tuple[Callable[..., Any], ...]:
    """What a predictor is made of, by its name in one of the three forms: its class or function, and the dataclass of its
    argument ``setting``, where it has one.

    Raises:
        ValueError: there is no such kind.
    """
    make: Any = load_name(PREDICTORS, kind)
    hints = typing.get_type_hints(make.__init__ if isinstance(make, type) else make)
    setting: Any = hints.get("setting")
    return (make, setting) if isinstance(setting, type) and dataclasses.is_dataclass(setting) else (make,)


KINDS: Mapping[str, tuple[Callable[..., Any], ...]]
"""The built-in ones, by ``parts``; loaded when they are looked up."""


def __getattr__(name: str) -> Any:
    if name == "KINDS":
        return {kind: parts(kind) for kind in PREDICTORS.builtin}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def paper_settings() -> dict[str, dict[str, Any]]:
    """``kowl.toml``: kind -> hyper-parameters."""
    return tomllib.loads((files(__package__ or "") / "kowl.toml").read_text(encoding="utf-8"))


def make_predictor(kind: str, settings: Mapping[str, Any], *, seed: int, device: str = "cpu") -> Any:
    """A fresh predictor.

    Args:
        kind: "ann", "evm" or "gmm_finch", or one of somebody's own, which is called with ``seed`` and ``device`` where it has
            arguments of these names.
        settings: a table of ``paper_settings()``, or a user's own with the same keys; arguments of one of somebody's own.

    Raises:
        ValueError: there is no such kind, or a value is out of range.
        TypeError: a hyper-parameter is missing or unknown.
    """
    make, *setting = parts(kind)
    given = {"setting": setting[0](**settings)} if setting else dict(settings)
    where = {"seed": seed, "device": device}
    return make(**given, **{name: where[name] for name in where.keys() & inspect.signature(make).parameters.keys()})


def identity(kind: str, settings: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """What a predictor is, as JSON values, for ``eval.protocols.open_world``. The device is where, not what."""
    return {"kind": kind, "seed": seed, "settings": dict(settings)}
