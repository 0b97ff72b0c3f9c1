"""CLEAR's baselines on features and on pixels: the paper's hyper-parameters by preset, the methods of its tables by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from ...curation.package_data import package_toml

_facts = functools.cache(functools.partial(package_toml, __package__, "clear.toml"))
PIXELS = "pixels"
"""In place of the name of features: the pictures themselves."""


def presets() -> list[str]:
    """Names of the settings of ``clear.toml``, each with its model."""
    return list(_facts()["presets"])


def paper_settings(preset: str, features: str | None = None) -> tuple[str, dict[str, Any]]:
    """Name of the model, and the settings of ``core.build.parts_of`` except for those of the method; ``view`` is of pictures.

    Args:
        preset: its name.
        features: what is learned from: "embedding" or "pixels"; None: what the preset learns from.

    Raises:
        ValueError: there is no such preset.
    """
    facts = _facts()
    if preset not in facts["presets"]:
        raise ValueError(f"preset {preset!r}: there are {', '.join(facts['presets'])}")
    own: dict[str, Any] = {"features": "embedding", **facts["presets"][preset]}
    model, network, view = own.pop("model"), own.pop("settings", {}), own.pop("view", {})
    own.pop("methods", None)
    features = features or own["features"]
    del own["features"]
    settings = {
        "model": dict(network),
        "criterion": facts["criterion"],
        "schedule": {**facts["schedule"], "clip_norm": None, **own},
        "memory": dict(facts["memory"]),
        "features": features,
    }
    return model, settings | ({"view": {**facts["view"], **view}} if features == PIXELS else {})


def paper_methods(preset: str | None = None) -> dict[str, tuple[str, dict[str, Any]]]:
    """The methods of CLEAR's tables by their names in ours: the method's own name, and its settings, with those of a preset."""
    changes = _facts()["presets"][preset].get("methods", {}) if preset else {}
    rows = {name: (name, {**settings, **changes.get(name, {})}) for name, settings in _facts()["methods"].items()}
    found: list[tuple[str, dict[str, Any]]] = [("nap", {})]
    found += [("cumulative", {"start": start}) for start in ("finetune", "scratch")]
    for start in ("finetune", "scratch"):
        found += [("reservoir", {"alpha": alpha, "start": start}) for alpha in (0.25, 0.5, 1.0, 2.0, 5.0)]
        found += [("dynamic_reservoir", {"alpha": alpha, "start": start}) for alpha in (0.25, 0.5, 0.75, 1.0)]
    return {**rows, **{_name(method, settings): (method, settings) for method, settings in found}}


def method_groups() -> dict[str, list[str]]:
    """Names that stand for several methods: the rows of a table of the paper.

    >>> {name: len(names) for name, names in method_groups().items()}
    {'table1': 9, 'table2': 8, 'table6': 19}
    """
    return {name: list(names) for name, names in _facts()["groups"].items()}


def expanded(names: Iterable[str]) -> list[str]:
    """The names with those of a group in the group's place, each once.

    >>> expanded(["lwf", "table1"])
    ['lwf', 'ewc', 'si', 'cwr', 'gdumb', ..., 'dynamic_reservoir-alpha=1.0-finetune']
    """
    there = method_groups()
    return list(dict.fromkeys(each for name in names for each in there.get(name, [name])))


def _name(method: str, settings: dict[str, Any]) -> str:
    """``reservoir-alpha=0.5-finetune``."""
    numbers = [f"{key}={value}" for key, value in settings.items() if key != "start"]
    return "-".join([method, *numbers, settings.get("start", "finetune")])
