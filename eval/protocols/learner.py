"""What a protocol asks of a method. Anything with these four methods can be evaluated; nothing is inherited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


class TaskLearner(Protocol):
    """A model that meets tasks with classes of their own. Anything with these members can be evaluated."""

    @property
    def record(self) -> Mapping[str, Any]:
        """JSON values on the last lesson: its epochs, what the memory holds. Written into the results."""
        ...

    def learn(self, train: Any, validate: Sequence[Any], *, classes: int) -> None:
        """Train on the next task, which brings ``classes`` new classes.

        ``train`` and ``validate`` are samples that the learner can load; their labels are below the number of classes seen
        so far. ``validate`` holds those of all tasks so far (vCLIMB), or of this one (IIRC); it may be empty.
        """
        ...

    def predict(self, examples: Any) -> NDArray[Any]:
        """Class indices (n,) among all classes seen so far; or, where labels are sets, (n, classes seen so far) bool."""
        ...

    def save(self, path: Path) -> None:
        """Write the state after the last ``learn``."""
        ...

    def load(self, path: Path, seen: Sequence[Any]) -> None:
        """Take up a saved state; ``seen`` are the training sets given to ``learn`` until then, in order."""
        ...
