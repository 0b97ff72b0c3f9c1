"""vCLIMB's baselines: the paper's settings by method and data set, as plain values."""

from __future__ import annotations

import functools
from typing import Any, Literal

from ...curation.package_data import package_toml
from ...datasets.vclimb.facts import PublishedResult, published_figures
from ...datasets.vclimb.facts import facts as vclimb_facts
from ..methods.registry import METHODS

_facts = functools.cache(functools.partial(package_toml, __package__, "vclimb.toml"))
VclimbPreset = Literal["as_released", "as_written"]
PRESETS: tuple[VclimbPreset, ...] = ("as_released", "as_written")
FrameCount = int | Literal["all"]
CONSISTENT = "+tc"
"""Ends the name of a method that has temporal consistency on top: ``icarl+tc``."""

MODEL = "tsn"
"""Name of the paper's model."""

GROUPS = ("table2", "table3", "table4", "supplement_table1")
"""Names that stand for the rows of the paper's tables of results."""

_PAPER_NAMES = {"EWC": "ewc", "MAS": "mas", "naive": "er", "iCaRL": "icarl", "BiC": "bic"}


def paper_methods() -> list[str]:
    """Methods by name; each may have ``+tc`` behind it."""
    return sorted(_facts()["methods"]["as_released"])


def row_of(result: PublishedResult) -> tuple[str, FrameCount]:
    """Our name of a published result's method, and the frames of a stored clip."""
    plain, _, consistent = result.method.partition("+")
    frames: FrameCount = "all" if result.frames == "all" else int(result.frames)
    return _PAPER_NAMES[plain] + (CONSISTENT if consistent else ""), frames


def table_rows(group: str, *, dataset: str, tasks: int) -> list[tuple[str, FrameCount]]:
    """Methods and frames of a stored clip of the rows of a table that the paper has for a data set and number of tasks.

    >>> table_rows("table4", dataset="activitynet_untrim", tasks=10)[:3]
    [('icarl', 4), ('icarl+tc', 4), ('icarl', 8)]
    >>> table_rows("table4", dataset="ucf101", tasks=10)
    []
    """
    return [row_of(one) for one in published_figures() if (one.group, one.dataset, one.tasks) == (group, dataset, tasks)]


def paper_weights() -> str:
    """First digits of the SHA-256 of the file of ImageNet's weights."""
    return _facts()["weights"]["sha256"]


def present_name(name: str) -> str:
    """A name that a method had before as the one that it has: ``er+tc`` of ``naive+tc``."""
    plain = name.removesuffix(CONSISTENT)
    return METHODS.present(plain) + name[len(plain) :]


def paper_settings(
    name: str, *, dataset: str, preset: VclimbPreset, frames: FrameCount = "all", variant: VclimbPreset | None = None
) -> dict[str, Any]:
    """All settings of one baseline as JSON values, to be changed by a user's own where wanted.

    Args:
        name: one of ``paper_methods()``, with ``+tc`` for temporal consistency on top.
        dataset: "ucf101", "kinetics400", "activitynet_trim" or "activitynet_untrim".
        preset: of optimiser, epochs and methods where paper and code differ.
        frames: of a stored clip, and of the clip that temporal consistency looks at: 4, 8, 16, or "all".
        variant: of temporal consistency, if not that of ``preset``.

    Returns:
        Those of ``core.build.parts_of``, whose ``memory`` has ``frames`` too; ``view`` (of ``ClipView``), and ``consistency``
        (frames, weight, variant) or None.

    Raises:
        ValueError: no such method, data set or preset.
    """
    facts, datasets = _facts(), vclimb_facts().datasets
    name = present_name(name)
    plain = name.removesuffix(CONSISTENT)
    if plain not in facts["methods"]["as_released"]:
        raise ValueError(f"no method {name!r}: there are {', '.join(paper_methods())}, and each with {CONSISTENT}")
    if preset not in facts["schedules"] or dataset not in datasets:
        names = (*facts["schedules"], *datasets)
        raise ValueError(f"preset {preset!r}, data set {dataset!r}: there are {', '.join(names)}")
    kind = next(kind for kind, names in facts["kinds"].items() if plain in names)
    own = {**facts["methods"]["as_released"][plain], **facts["methods"][preset].get(plain, {})}
    changes = facts["changes"].get(preset, {}).get(dataset, {}).get(plain, {})
    consistency = {"frames": frames, **facts["consistency"], "variant": variant or preset}
    return {
        "method": {key: value[dataset] if isinstance(value, dict) else value for key, value in own.items()},
        "criterion": facts["criterion"],
        "model": dict(facts["model"]),
        "view": dict(facts["view"]),
        "schedule": {**facts["schedule"], **facts["schedules"][preset][kind], **changes},
        "memory": {"size": datasets[dataset].memory_videos, **facts["memory"], "frames": frames},
        "consistency": consistency if name.endswith(CONSISTENT) else None,
    }
