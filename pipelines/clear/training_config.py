"""Settings of trainings on a CLEAR dataset, and of pre-training on its unlabelled images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ...eval.metrics.registry import OF_STREAMS
from ...training.baselines.clear import method_groups, paper_methods, presets
from ...training.methods.registry import METHODS
from ...training.moco.settings import moco_presets, moco_settings
from ...training.models.registry import MODELS
from ..config import Location
from ..errors import did_you_mean
from ..names import OneOf, known_keys
from ..settings_type import settings_type


def _among(there: Sequence[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in there:
            raise ValueError(f"there are {', '.join(there)}{did_you_mean(name, there)}")
        return name

    return check


@settings_type
class Baselines:
    """Which baselines ``train`` runs by default.

    Attributes:
        preset: hyper-parameters and model of the paper.
        methods: names of methods, or of groups such as ``table1``.
        method_settings: changes for single methods, by name.
        model: replaces the preset's model, by name or reference.
        model_settings: keyword arguments of the model.
        features: what is trained on: "embedding", the vectors by which the images were retrieved; the name of a feature set; or
            "pixels". By default the preset's features; for a release without ``encoder``, the first of ``source.features``
            instead of "embedding".
        view: changes to the preset's ``PictureView``, which prepares pictures, if they are trained on.
        weights: weights of the model: a file, or ``hub://NAME``, published by torchvision or timm (for the model ``backbone``).
        workers: threads that load batches ahead; changes only the speed.
        metrics: your own metrics, in addition to the paper's: references of functions, see ``pipelines.metrics.measure_by``.
        epochs: number of epochs; this and the following replace the preset's, see ``training.core.schedule``.
        batch_size: samples per step.
        learning_rate: learning rate of the first epoch; the preset ``linear`` has the paper's 1.0, and 0.1 for features of a
            network trained on ImageNet's labels.
        decay_after_epochs: the epoch after which the rate falls to a tenth, once.
        decay_every_epochs: or the number of epochs after each of which the rate falls to a tenth.
        mixed_precision: float16 where that is safe, on GPUs.
        compile: ``torch.compile``; results differ in their last bits.
    """

    preset: Annotated[str, AfterValidator(_among(presets()))]
    methods: list[Annotated[str, OneOf(METHODS, (*method_groups(), *paper_methods()))]]
    method_settings: Annotated[dict[str, dict[str, Any]], AfterValidator(known_keys(METHODS, paper_methods()))] = Field(
        default_factory=dict[str, dict[str, Any]]
    )
    model: Annotated[str, OneOf(MODELS)] | None = None
    model_settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    features: str | None = None
    view: dict[str, Any] = Field(default_factory=dict[str, Any])
    weights: Location | None = None
    workers: Annotated[int, Field(ge=0)] = 0
    metrics: list[Annotated[str, OneOf(OF_STREAMS)]] = Field(default_factory=list[str])
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    decay_after_epochs: Annotated[int, Field(ge=1)] | None = None
    decay_every_epochs: Annotated[int, Field(ge=1)] | None = None
    mixed_precision: bool | None = None
    compile: bool | None = None

    def __post_init__(self) -> None:
        if self.decay_after_epochs is not None and self.decay_every_epochs is not None:
            raise ValueError("decay_after_epochs or decay_every_epochs: one of them")


@settings_type
class PretrainingSettings:
    """How ``train --protocol pretrain`` learns from unlabelled images.

    Attributes:
        preset: name of the settings: "moco_v2".
        settings: changes to the preset, by the names of ``training.moco.settings.MocoSettings``; ``view`` is a table.
        seed: seed of all random draws.
        workers: threads that load pictures ahead; changes only the speed, as does what follows.
        checkpoint_minutes: time between two checkpoints.
    """

    preset: Annotated[str, AfterValidator(_among(moco_presets()))] = "moco_v2"
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 0
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 10

    def __post_init__(self) -> None:
        try:
            moco_settings(self.preset, self.settings)
        except ValueError as error:
            raise ValueError(f"settings: {error}") from None
