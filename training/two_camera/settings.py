"""Settings for training networks on transforms; those of the paper are in ``two_camera.toml``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ...curation.package_data import package_toml
from ...curation.registry import check_values

KeptWeights = Literal["last", "validation", "test_fold"]
RateSchedule = Literal["constant", "cosine"]


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Hyper-parameters of a training, each from a paper or a config.

    Attributes:
        epochs: maximum number; an epoch is n / batch_size steps for n training rows, and batches continue across epochs, as
            over the repeated dataset of the released code.
        batch_size: rows per step; fewer if there are fewer.
        learning_rate: learning rate of Adam (beta 0.9 and 0.999, epsilon 1e-7: Keras' values).
        schedule: "constant", as in paper and code; "cosine" decreases to 0 at the last epoch.
        keep: "last" keeps the weights at the end; "validation" those of the lowest loss on held-out training pairs;
            "test_fold" those of the lowest loss on the test fold: ``as_released``, and not a fair result.
        validation_share: share of the training pairs that "validation" holds out if the fold has no validation rows.
        check_epochs: interval in epochs between checks of the loss that decides which weights are kept.
        patience_epochs: a run ends when the loss that decides (the training loss with keep = "last") has not decreased by a
            thousandth for this number of epochs: it has converged. None: all epochs.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: RateSchedule
    keep: KeptWeights
    validation_share: float
    check_epochs: float
    patience_epochs: float | None = None

    def __post_init__(self) -> None:
        check_values(Hyper, vars(self))
        if self.epochs < 1 or self.batch_size < 1 or not self.check_epochs > 0:
            raise ValueError(
                f"epochs {self.epochs}, batch_size {self.batch_size}, check_epochs {self.check_epochs}: all above 0"
            )
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate {self.learning_rate} must be positive")
        if not 0 <= self.validation_share < 1:
            raise ValueError(f"validation_share {self.validation_share}: a share from 0 and below 1")


@dataclasses.dataclass(frozen=True)
class Newton:
    """Settings of a training by ``newton``.

    Attributes:
        decay: half of it times the sum of squared parameters is added to the sum of absolute errors; above 0.
        tip: below this absolute error the loss is smoothed: sqrt(r^2 + tip^2).
        iterations: maximum number of steps.
        tolerance: training has converged when ten steps lower the loss by less than this share of it, or no step lowers it.
        curvature_rows: approximate number of rows for the curvature (a different share of all rows at each step); 0: all rows.
            The gradient is always that of all rows.
        starts: number of initialisations of a run; which minimum is reached, and how soon, depends on them.
        scouting: steps from each start, after which only the start with the lowest loss continues.
    """

    decay: float
    tip: float
    iterations: int
    tolerance: float
    curvature_rows: int
    starts: int = 1
    scouting: int = 40

    keep: ClassVar[KeptWeights] = "last"
    """No held-out loss is used: the weights at the minimum are kept."""

    def __post_init__(self) -> None:
        if not (0 < self.decay < math.inf and 0 < self.tip < math.inf and 0 < self.tolerance < 1):
            raise ValueError(f"decay {self.decay}, tip {self.tip}, tolerance {self.tolerance}: above 0, and below 1 the last")
        if self.iterations < 1 or self.curvature_rows < 0:
            raise ValueError(f"iterations {self.iterations}, curvature_rows {self.curvature_rows}: at least 1 and 0")
        if self.starts < 1 or self.scouting < 1:
            raise ValueError(f"starts {self.starts}, scouting {self.scouting}: at least 1")


def settings(preset: str) -> dict[str, Any]:
    """One table of ``training/two_camera/two_camera.toml``, as arguments of ``hyper_of``.

    Raises:
        ValueError: the preset is unknown.

    >>> settings("as_written")["batch_size"]
    256
    """
    presets = package_toml(__package__, "two_camera.toml")
    if preset not in presets:
        raise ValueError(f"no preset {preset!r}: there are {', '.join(presets)}")
    return presets[preset]


def hyper_of(values: Mapping[str, Any]) -> Hyper | Newton:
    """Settings of Adam, or of ``newton`` if there is a weight decay.

    Raises:
        TypeError: a setting is missing or unknown.
        ValueError: a value is invalid.

    >>> hyper_of({**settings("as_written"), "epochs": 100}).epochs
    100
    """
    return Newton(**values) if "decay" in values else Hyper(**values)
