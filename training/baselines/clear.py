"""CLEAR's baselines on stored features: the paper's hyper-parameters and methods by name, and learners made of them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from ..core.learner import BufferLearner, MakeModel
from ..core.loop import Hyper
from ..methods.method import Method
from ..methods.registry import method
from ..models.linear import linear
from ..models.mlp import mlp

MODELS: Mapping[str, MakeModel] = {"linear": linear, "mlp": mlp}


def paper_settings() -> dict[str, dict[str, Any]]:
    """``training/baselines/clear.toml``: preset name ("linear", "linear_imagenet", "mlp") -> model and hyper-parameters."""
    return tomllib.loads((files(__package__ or "") / "clear.toml").read_text(encoding="utf-8"))


def paper_methods() -> dict[str, Method]:
    """The buffers of CLEAR's tables 2 and 6 by the names that ``registry.method`` gives, in the tables' order."""
    found = [method("nap", start="finetune")]
    found += [method("cumulative", start="finetune"), method("cumulative", start="scratch")]
    for start in ("finetune", "scratch"):
        found += [method("reservoir", start=start, alpha=alpha) for alpha in (0.25, 0.5, 1.0, 2.0, 5.0)]
        found += [method("dynamic_reservoir", start=start, alpha=alpha) for alpha in (0.25, 0.5, 0.75, 1.0)]
    return {one.name: one for one in found}


def learner_maker(
    settings: Mapping[str, Any], chosen: Method, *, classes: int, device: str = "cpu"
) -> Callable[[int], BufferLearner]:
    """Seed -> a fresh learner, as ``eval.protocols`` asks for.

    Args:
        settings: one table of ``paper_settings()``, or a user's own with the same keys.
        chosen: the method.
        classes: 11 in CLEAR-10.

    Raises:
        ValueError: the model has no such name.
        TypeError: a hyper-parameter is missing or unknown.
    """
    values = dict(settings)
    name = values.pop("model")
    if name not in MODELS:
        raise ValueError(f"no model is called {name!r}: there are {', '.join(MODELS)}")
    hyper = Hyper(**values)

    def make(seed: int) -> BufferLearner:
        return BufferLearner(make_model=MODELS[name], classes=classes, hyper=hyper, method=chosen, seed=seed, device=device)

    return make


def identity(settings: Mapping[str, Any], chosen: Method, *, classes: int) -> dict[str, Any]:
    """What a run is, as JSON values, for ``eval.protocols.run_protocol``. The device is where, not what."""
    return {
        "classes": classes,
        "hyper": dict(settings),
        "method": chosen.name,
        "settings": dict(chosen.settings),
        "start": chosen.start,
    }
