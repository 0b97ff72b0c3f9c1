"""Predictors by name, with the paper's settings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from .ann import Ann, AnnSetting
from .evm import Evm, EvmSetting
from .gmm_finch import GmmFinch, GmmFinchSetting

KINDS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "ann": (Ann, AnnSetting),
    "evm": (Evm, EvmSetting),
    "gmm_finch": (GmmFinch, GmmFinchSetting),
}


def paper_settings() -> dict[str, dict[str, Any]]:
    """``kowl.toml``: kind -> hyper-parameters."""
    return tomllib.loads((files(__package__ or "") / "kowl.toml").read_text(encoding="utf-8"))


def make_predictor(kind: str, settings: Mapping[str, Any], *, seed: int, device: str = "cpu") -> Ann | Evm | GmmFinch:
    """A fresh predictor.

    Args:
        kind: "ann", "evm" or "gmm_finch".
        settings: a table of ``paper_settings()``, or a user's own with the same keys.

    Raises:
        ValueError: there is no such kind, or a value is out of range.
        TypeError: a hyper-parameter is missing or unknown.
    """
    if kind not in KINDS:
        raise ValueError(f"no predictor is called {kind!r}: there are {', '.join(KINDS)}")
    make, setting = KINDS[kind]
    return make(setting=setting(**settings), seed=seed, device=device)


def identity(kind: str, settings: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """What a predictor is, as JSON values, for ``eval.protocols.open_world``. The device is where, not what."""
    return {"kind": kind, "seed": seed, "settings": dict(settings)}
