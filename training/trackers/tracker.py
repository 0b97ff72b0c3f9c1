"""Interface of trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """Reports one training; made by ``tracker(place, name, facts)``: where to report, the training's name, facts about it.

    It is made where the training runs, and again where it is evaluated: equal names are the same training.
    """

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers by name (``loss/task_00``); ``step`` is the epoch of a task, or a number of positions."""
        ...

    def close(self) -> None:
        """Write pending values; nothing is logged afterwards."""
        ...
