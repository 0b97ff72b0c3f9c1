"""vCLIMB's baselines: the paper's settings by method and data set, as plain values, and learners made of them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ...datasets.vclimb.facts import facts as vclimb_facts
from ..core.criteria import CRITERIA
from ..core.exemplars import Capacity
from ..core.learner import Learner, Memory, SecondView
from ..core.schedule import Schedule
from ..data.clip_views import ClipView
from ..data.clips import consistent, kept
from ..methods.registry import method
from ..models.tsn import BACKBONES, tsn

Preset = Literal["as_released", "as_written"]
Frames = int | Literal["all"]
CONSISTENT = "+tc"
"""Ends the name of a method that has temporal consistency on top: ``icarl+tc``."""


def paper_methods() -> list[str]:
    """Methods by name; each may have ``+tc`` behind it."""
    return sorted(_facts()["methods"]["as_released"])


def paper_settings(
    name: str, *, dataset: str, preset: Preset = "as_released", frames: Frames = "all", variant: Preset | None = None
) -> dict[str, Any]:
    """All settings of one baseline as JSON values, to be changed by a user's own where wanted.

    Args:
        name: one of ``paper_methods()``, with ``+tc`` for temporal consistency on top.
        dataset: "ucf101", "kinetics400", "activitynet_trim" or "activitynet_untrim".
        preset: of optimiser, epochs and methods where paper and code differ.
        frames: of a stored clip, and of the clip that temporal consistency looks at: 4, 8, 16, or "all".
        variant: of temporal consistency; None: "as_written" whatever the preset, since the code has a slip there.

    Returns:
        ``method`` (its name and settings), ``criterion``, ``model``, ``view``, ``schedule``, ``memory`` (capacity; unit;
        frames; choice, "method" for the method's own, or "random", "herding", "given"; keys, best first, where given), and
        ``consistency`` (frames, weight, variant) or None.

    Raises:
        ValueError: no such method, data set or preset.
    """
    facts, datasets = _facts(), vclimb_facts().datasets
    plain = name.removesuffix(CONSISTENT)
    if plain not in facts["methods"]["as_released"]:
        raise ValueError(f"no method {name!r}: there are {', '.join(paper_methods())}, and each with {CONSISTENT}")
    if preset not in facts["schedules"] or dataset not in datasets:
        names = (*facts["schedules"], *datasets)
        raise ValueError(f"preset {preset!r}, data set {dataset!r}: there are {', '.join(names)}")
    kind = next(kind for kind, names in facts["kinds"].items() if plain in names)
    own = {**facts["methods"]["as_released"][plain], **facts["methods"][preset].get(plain, {})}
    chosen = {key: value[dataset] if isinstance(value, dict) else value for key, value in own.items()}
    changes = facts["changes"].get(preset, {}).get(dataset, {}).get(plain, {})
    consistency = {"frames": frames, **facts["consistency"]}
    if variant is not None:
        consistency["variant"] = variant
    return {
        "method": {"name": plain, **chosen},
        "criterion": facts["criterion"],
        "model": dict(facts["model"]),
        "view": dict(facts["view"]),
        "schedule": {**facts["schedule"], **facts["schedules"][preset][kind], **changes},
        "memory": {"capacity": datasets[dataset].memory_videos, **facts["memory"], "frames": frames},
        "consistency": consistency if name.endswith(CONSISTENT) else None,
    }


def clip_view(settings: Mapping[str, Any]) -> ClipView:
    """The view of ``settings``, for ``clips.shard_clips``."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings["view"].items()
    }
    return ClipView(**values)


def learner_maker(
    settings: Mapping[str, Any], *, weights: Path | None = None, device: str = "cpu", workers: int = 0
) -> Callable[[int], Learner]:
    """Seed -> a fresh learner, for ``eval.protocols.class_incremental.run_class_incremental``.

    Args:
        settings: as ``paper_settings`` gives them.
        weights: file of the backbone's weights; None: random ones.
        device: "cpu", "cuda".
        workers: threads that load batches ahead.

    Raises:
        ValueError: a value is out of range, or a name is unknown.
        TypeError: a setting is missing or unknown.
    """
    clip_view(settings)
    chosen = method(**settings["method"])
    schedule = Schedule(**settings["schedule"])
    memory = settings["memory"]
    keep = functools.partial(kept, frames=_count(memory["frames"]))
    room = Memory(Capacity(memory["capacity"], memory["unit"]), keep, {key: rank for rank, key in enumerate(memory["keys"])})
    if memory["choice"] != "method" and chosen.exemplars is not None:
        chosen = dataclasses.replace(chosen, exemplars=memory["choice"])
    second = None
    if settings["consistency"] is not None:
        values = settings["consistency"]
        view = functools.partial(consistent, frames=_count(values["frames"]), variant=values["variant"])
        second = SecondView(view, values["weight"])
    inspect.signature(tsn).bind(None, weights=weights, **settings["model"])  # said now, rather than in the first task
    if settings["model"]["backbone"] not in BACKBONES:
        raise ValueError(f"no backbone is called {settings['model']['backbone']!r}: there are {', '.join(BACKBONES)}")
    if settings["criterion"] not in CRITERIA:
        raise ValueError(f"criterion {settings['criterion']!r}: there are {', '.join(CRITERIA)}")

    def make(seed: int) -> Learner:
        return Learner(
            make_model=functools.partial(tsn, weights=weights, **settings["model"]),
            method=chosen,
            schedule=schedule,
            criterion=CRITERIA[settings["criterion"]],
            seed=seed,
            memory=room,
            second=second,
            device=device,
            workers=workers,
        )

    return make


def identity(settings: Mapping[str, Any], *, seed: int, weights: Path | None = None) -> dict[str, Any]:
    """What a run is, as JSON values. The device is where, not what; of the weights the content counts, not the place."""
    digest = None if weights is None else _sha256(weights, weights.stat().st_mtime_ns)
    return {**settings, "seed": seed, "weights": digest}


@functools.lru_cache(maxsize=4)
def _sha256(path: Path, modified: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _count(frames: Frames) -> int | None:
    if frames != "all" and (not isinstance(frames, int) or frames < 1):
        raise ValueError(f"frames {frames!r}: a number of at least 1, or 'all'")
    return None if frames == "all" else frames


@functools.cache
def _facts() -> dict[str, Any]:
    return tomllib.loads((files(__package__ or "") / "vclimb.toml").read_text(encoding="utf-8"))
