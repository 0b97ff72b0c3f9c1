"""Settings of CLEAR's baselines that override a preset named on the command line; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...training.baselines.clear import paper_settings
from .config import ClearConfig

SCHEDULE = (
    "epochs",
    "batch_size",
    "learning_rate",
    "decay_after_epochs",
    "decay_every_epochs",
    "mixed_precision",
    "compile",
)
"""Settings of the baselines that override the schedule of a preset."""


def kept_settings(config: ClearConfig, given: Mapping[str, Any]) -> list[str]:
    """A line on settings in the file that override a preset named on the command line, as they override the file's own."""
    b = config.baselines
    if "baselines.preset" not in given:
        return []
    model, settings = paper_settings(b.preset, b.features)
    presets = {"model": model, **{name: settings["schedule"].get(name) for name in SCHEDULE}}
    stated = {name: getattr(b, name) for name in presets if f"baselines.{name}" not in given}
    kept = [
        f"{name} = {value!r} ({'not in the preset' if presets[name] is None else f'the preset: {presets[name]!r}'})"
        for name, value in stated.items()
        if value not in (None, presets[name])
    ]
    text = f"baselines.preset = {b.preset!r}: settings in the file override the preset: {', '.join(kept)}"
    text += "; --set changes them, and a whole table baselines={...} replaces them"
    return [text] if kept else []
