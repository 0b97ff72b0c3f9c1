"""Settings of MoCo v2, as published or with changes. Needs no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...curation.package_data import package_toml
from ...curation.registry import check_values
from ..models.registry import Width

_facts = functools.cache(functools.partial(package_toml, __package__, "moco.toml"))
BACKBONES = ("resnet18", "resnet34", "resnet50", "small_cnn")


@dataclass(frozen=True)
class MocoView:
    """Random augmentation of both views of a picture: crop, colours, blur and flip (the released code's ``--aug-plus``).

    Attributes:
        side_px: side of the square input.
        crop_area: minimum and maximum share of the picture's area in a crop.
        crop_aspect: minimum and maximum width over height of a crop, log-uniform.
        jitter_chance: probability of colour jitter, which applies the next four in a random order.
        brightness, contrast, saturation: factors are in [1 - x, 1 + x].
        hue: turns are in [-x, x].
        grey_chance, blur_chance, flip_chance: probabilities of greyscale, blur and flip.
        blur_sigma_px: minimum and maximum standard deviation of the Gaussian.
        mean, std: mean and standard deviation of red, green, blue, where white is 1.
    """

    side_px: int
    crop_area: tuple[float, float]
    crop_aspect: tuple[float, float]
    jitter_chance: float
    brightness: float
    contrast: float
    saturation: float
    hue: float
    grey_chance: float
    blur_chance: float
    blur_sigma_px: tuple[float, float]
    flip_chance: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        try:
            check_values(MocoView, vars(self))
        except ValueError as error:
            raise ValueError(f"view.{error}") from None
        for name in ("jitter_chance", "grey_chance", "blur_chance", "flip_chance", "brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"view.{name} = {getattr(self, name)}: it should be between 0 and 1")
        for name, least in (("crop_area", 0), ("crop_aspect", 0), ("blur_sigma_px", 0)):
            low, high = getattr(self, name)
            if not least < low <= high:
                raise ValueError(f"view.{name} = [{low}, {high}]: expected two numbers above 0, the smaller first")
        if not 0 <= self.hue <= 0.5 or self.crop_area[1] > 1 or self.side_px < 1 or min(self.std) <= 0:
            raise ValueError(
                f"view: hue {self.hue}, crop_area {self.crop_area}, side_px {self.side_px}, std {self.std}: hue is at most "
                "0.5, an area at most 1, a side at least 1, a deviation above 0"
            )
        if self.blur_chance and self.side_px <= self.blur_reach_px:
            raise ValueError(
                f"view.side_px = {self.side_px}: a blur of {self.blur_sigma_px[1]} pixels reaches {self.blur_reach_px} of them:"
                " raise side_px, or lower blur_sigma_px or blur_chance"
            )

    @property
    def blur_reach_px(self) -> int:
        """Radius of the widest blur in pixels: three standard deviations."""
        return math.ceil(3 * self.blur_sigma_px[1])


@dataclass(frozen=True)
class MocoSettings:
    """Settings of a pre-training; ``moco.toml`` has the published ones.

    Attributes:
        backbone: one of ``BACKBONES``.
        width: channels of the first convolution of ``small_cnn``.
        dim: length of a query or key.
        epochs: passes over the pictures, each in a new order; the last incomplete batch of each is left out.
        batch_size: pictures per step.
        learning_rate: learning rate of the first epoch; it decreases to 0 by a cosine, epoch by epoch.
        momentum, weight_decay: settings of SGD.
        temperature: divisor of the logits.
        encoder_momentum: share of its weights that the key encoder keeps in a step.
        queue: number of keys in the queue, a multiple of ``batch_size``.
        batch_norm_splits: number of parts of a batch that are normalised separately, as on that number of GPUs; keys go to
            parts at random (the paper's shuffled batch norm). 1: the whole batch, unshuffled.
        mixed_precision: float16 on CUDA; float32 on other devices.
        view: augmentation of the pictures.
    """

    backbone: str
    width: Width
    dim: Width
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    temperature: float
    encoder_momentum: float
    queue: int
    batch_norm_splits: int
    mixed_precision: bool
    view: MocoView

    def __post_init__(self) -> None:
        check_values(MocoSettings, vars(self))
        if self.backbone not in BACKBONES:
            raise ValueError(f"backbone = {self.backbone!r}: there are {', '.join(BACKBONES)}")
        for name in ("epochs", "batch_size", "queue", "batch_norm_splits"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: it should be at least 1")
        if not (0 < self.learning_rate < math.inf and 0 < self.temperature < math.inf and 0 <= self.weight_decay < math.inf):
            raise ValueError(
                f"learning_rate {self.learning_rate}, temperature {self.temperature}, weight_decay {self.weight_decay}: the "
                "first two are positive, the last is not negative, and all are finite"
            )
        if not (0 <= self.momentum < 1 and 0 <= self.encoder_momentum <= 1):
            raise ValueError(f"momentum {self.momentum}, encoder_momentum {self.encoder_momentum}: shares between 0 and 1")
        if self.queue % self.batch_size:
            raise ValueError(
                f"queue = {self.queue} is not a multiple of batch_size = {self.batch_size}: a step replaces a whole batch of "
                f"the queue; set queue to {max(self.queue // self.batch_size, 1) * self.batch_size}, or another batch_size"
            )
        if self.batch_size % self.batch_norm_splits or self.batch_size // self.batch_norm_splits < 2:
            raise ValueError(
                f"batch_norm_splits = {self.batch_norm_splits}: batch_size = {self.batch_size} has to be a multiple of it, and "
                "each part to have at least 2 pictures"
            )

    def rate(self, epoch: int) -> float:
        """The learning rate in ``epoch`` (0-based)."""
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))


def moco_presets() -> list[str]:
    """Names of the settings of ``moco.toml``."""
    return list(_facts())


def moco_settings(preset: str, changes: Mapping[str, Any]) -> MocoSettings:
    """Return the settings of a preset with changes; those of ``view`` are changed by name, too.

    Raises:
        ValueError: a name is unknown, or a value is out of range.

    >>> moco_settings("moco_v2", {}).queue
    65536
    >>> moco_settings("moco_v2", {"queue": 1000})
    Traceback (most recent call last):
        ...
    ValueError: queue = 1000 is not a multiple of batch_size = 256: ...
    """
    values = dict(_facts()[preset])
    view, asked = dict(values.pop("view")), dict(changes)
    own = asked.pop("view", {})
    if not isinstance(own, Mapping):
        raise ValueError(f"view = {own!r}: expected a table")
    for known, given, place in ((values, asked, ""), (view, own, "view.")):
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"there is no {place}{unknown[0]}: there are {', '.join(known)}{'' if place else ', view'}")
        known.update(given)
    pairs: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in view.items()}
    return MocoSettings(**values, view=MocoView(**pairs))
