"""IIRC's baselines: the released code's settings by method and data set, as plain values."""

from __future__ import annotations

import functools
from typing import Any

from ...curation.package_data import package_toml

_facts = functools.cache(functools.partial(package_toml, __package__, "iirc.toml"))


def paper_methods() -> list[str]:
    """Methods by name."""
    return sorted(_facts()["methods"])


def ours(name: str, *, dataset: str) -> str:
    """Why a method's settings for a data set are not the paper's; "" if they are those of the paper's released code.

    Args:
        name: see ``paper_settings``.
        dataset: "cifar100", "imagenet"; or "imagenet_lite" or "imagenet_full", for what differs between the two.
    """
    return _facts()["ours"].get(dataset, {}).get(name, "")


def paper_settings(name: str, *, dataset: str) -> tuple[str, dict[str, Any]]:
    """A method's name in the registry, and all settings of its baseline as JSON values.

    Args:
        name: one of ``paper_methods()``, or any other: it has the settings of experience replay, but for those of the method.
        dataset: "cifar100" or "imagenet".

    Returns:
        Settings of ``core.build.parts_of`` (``model`` is that of ``models.picture_net``), ``view``, and ``data``: ``samples``.

    Raises:
        ValueError: there is no such data set.
    """
    facts = _facts()
    if dataset not in facts["models"]:
        raise ValueError(f"no data set {dataset!r}: there are {', '.join(facts['models'])}")
    own, changes = facts["methods"].get(name, {"name": name}), facts["changes"][dataset].get(name, {})
    own = {**facts["other"], **own}
    return own["name"], {
        "method": dict(own.get("settings", {})),
        "criterion": facts["criterion"],
        "model": {**facts["models"][dataset], "head": own["head"]},
        "view": dict(facts["views"][dataset]),
        "schedule": {
            **facts["schedule"],
            **facts["schedules"][dataset],
            "clip_norm": None,
            "select": own["select"],
            **changes,
        },
        "memory": dict(facts["memory"]),
        "data": {"samples": own["samples"]},
    }
