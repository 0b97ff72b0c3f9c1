"""What a tracker is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """What is reported of one training. ``tracker(place, name, facts)`` makes one: where to, what it is called, and what it is.

    It is made where the training runs, and once more where it is measured: equal names are one training.
    """

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Take numbers by name (``loss/task_00``), at an epoch of a task, or after so many positions."""
        ...

    def close(self) -> None:
        """Write what is left; no more comes."""
        ...
