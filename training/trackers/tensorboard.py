"""TensorBoard: event files, one folder per training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .tracker import Tracker


def tensorboard(place: str, name: str, facts: Mapping[str, Any]) -> Tracker:
    """Event files of TensorBoard in a folder: ``tensorboard --logdir FOLDER``."""
    from torch.utils.tensorboard import SummaryWriter

    return _Events(SummaryWriter(os.path.join(place or "tensorboard", name)), facts)


class _Events:
    def __init__(self, writer: Any, facts: Mapping[str, Any]) -> None:
        self._writer = writer
        self._writer.add_text("training", f"```\n{json.dumps(dict(facts), indent=1, sort_keys=True)}\n```")

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
