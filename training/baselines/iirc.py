"""IIRC's baselines: the released code's settings by method and data set, as plain values, and learners made of them."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from ..core.criteria import CRITERIA
from ..core.exemplars import Capacity
from ..core.learner import Learner, Memory
from ..core.schedule import Plateau, Schedule
from ..data.pictures import PictureView
from ..methods.registry import method
from ..models.picture_net import check_picture_net, picture_net


def paper_methods() -> list[str]:
    """Methods by name."""
    return sorted(_facts()["methods"])


def paper_settings(name: str, *, dataset: str) -> dict[str, Any]:
    """All settings of one baseline as JSON values, to be changed by a user's own where wanted.

    Args:
        name: one of ``paper_methods()``.
        dataset: "cifar100" or "imagenet".

    Returns:
        ``method`` (its name and settings), ``criterion``, ``model``, ``view``, ``schedule`` (``plateau``: empty where the
        rate is to stay) and ``memory`` (``per_class``).

    Raises:
        ValueError: no such method or data set.
    """
    facts = _facts()
    if name not in facts["methods"]:
        raise ValueError(f"no method {name!r}: there are {', '.join(paper_methods())}")
    if dataset not in facts["models"]:
        raise ValueError(f"no data set {dataset!r}: there are {', '.join(facts['models'])}")
    own, changes = facts["methods"][name], facts["changes"][dataset].get(name, {})
    return {
        "method": dict(own["method"]),
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
    }


def picture_view(settings: Mapping[str, Any]) -> PictureView:
    """The view of ``settings``, for ``pictures.Album``."""
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in settings["view"].items()}
    return PictureView(**values)


def learner_maker(settings: Mapping[str, Any], *, device: str = "cpu", workers: int = 0) -> Callable[[int], Learner]:
    """Seed -> a fresh learner, for ``eval.protocols.refined_classification.run_refined``.

    Args:
        settings: as ``paper_settings`` gives them; ``model`` has ``inputs`` too where examples are vectors of that length.
        device: "cpu", "cuda".
        workers: threads that load batches ahead.

    Raises:
        ValueError: a value is out of range, or a name is unknown.
        TypeError: a setting is missing or unknown.
    """
    picture_view(settings)
    chosen = method(**settings["method"])
    values: dict[str, Any] = dict(settings["schedule"])
    values["plateau"] = Plateau(**values["plateau"]) if values["plateau"] else None
    schedule = Schedule(**values)
    memory = Memory(Capacity(settings["memory"]["per_class"], per_class=True))
    model = settings["model"]
    inspect.signature(picture_net).bind(None, **model)  # said now, rather than in the first task
    check_picture_net(model["backbone"], model["head"], model.get("inputs", 0))
    if settings["criterion"] != "binary_cross_entropy":
        raise ValueError(f"criterion {settings['criterion']!r}: sets of labels need 'binary_cross_entropy'")

    def make(seed: int) -> Learner:
        return Learner(
            make_model=functools.partial(picture_net, **model),
            method=chosen,
            schedule=schedule,
            criterion=CRITERIA[settings["criterion"]],
            seed=seed,
            memory=memory,
            device=device,
            workers=workers,
            sets=True,
        )

    return make


def identity(settings: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """What a run is, as JSON values. The device is where, not what."""
    return {**settings, "seed": seed}


@functools.cache
def _facts() -> dict[str, Any]:
    return tomllib.loads((files(__package__ or "") / "iirc.toml").read_text(encoding="utf-8"))
