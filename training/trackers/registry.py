"""Registry of trackers."""

from __future__ import annotations

from ...curation.registry import Registry


def _in(name: str) -> str:
    return f"{__name__.rpartition('.')[0]}.{name}:{name}"


TRACKERS = Registry("tracker", {name: _in(name) for name in ("mlflow", "tensorboard", "wandb")})
"""``train --track NAME=PLACE``. Each built-in tracker needs the package of the same name."""
