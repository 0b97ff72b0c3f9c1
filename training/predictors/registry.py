"""Predictors by name."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...curation.registry import Registry

PREDICTORS = Registry(
    "predictor",
    {
        "ann": "benchwright.training.predictors.ann:Ann",
        "ann_evm": "benchwright.training.predictors.ann_evm:AnnEvm",
        "evm": "benchwright.training.predictors.evm:Evm",
        "gmm_finch": "benchwright.training.predictors.gmm_finch:GmmFinch",
        "original": "benchwright.training.predictors.original:Original",
    },
    fits=dict.fromkeys(("ann", "ann_evm", "evm", "gmm_finch", "original"), "vectors"),
)


def new_predictor(
    make: Callable[..., Any],
    settings: Mapping[str, Any],
    *,
    seed: int,
    device: str = "cpu",
    names: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Any:
    """A fresh predictor: what ``eval.protocols.open_world.predictor`` asks for.

    Args:
        make: its class or function, called with ``seed``, ``device``, ``names`` and ``outputs`` where it has arguments of these
            names.
        settings: fields of the dataclass of its argument ``setting``, where it has one, and else arguments.
        seed: of all that it draws.
        device: where it runs.
        names: of the class indices.
        outputs: names of the numbers of a vector, where vectors are the outputs of a classifier.

    Raises:
        ValueError: a value is out of range.
        TypeError: a hyper-parameter is missing or unknown.
    """
    arguments, given = inspect.signature(make).parameters, dict(settings)
    if "setting" in arguments:
        setting = typing.get_type_hints(make.__init__ if isinstance(make, type) else make)["setting"]
        if isinstance(setting, type) and dataclasses.is_dataclass(setting):
            given = {"setting": setting(**settings)}
    where = {"seed": seed, "device": device, "names": names, "outputs": outputs}
    return make(**given, **{name: value for name, value in where.items() if name in arguments})
