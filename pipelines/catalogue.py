"""The benchmarks that come with the package. Nothing is imported to name them, so that lists and completion are quick."""

from __future__ import annotations

from typing import Any

TITLES = {
    "clear": "CLEAR: time buckets of photos, retrieved concepts, crowd QA; iid and streaming protocols",
    "iirc": "IIRC: labels of two levels that are refined task by task",
    "kowl": "KOWL-718: one label space over the Kinetics releases, open-world increments, novelty evaluation",
    "skeleton": "Skeleton graphs whose actions come in tasks: order and architecture sensitivity",
    "two_camera": "Two-camera illuminant estimation: the colour transform between two cameras tells the light",
    "vclimb": "vCLIMB: classes of videos that come in tasks, memory counted in frames",
}
"""Name -> one line. The module of that name beside this one holds the ``BENCHMARK``."""


def listed() -> list[dict[str, Any]]:
    """The benchmarks: ``name``, ``title``, ``configs`` (names of packaged settings beside the published ones)."""
    from .config import variants

    return [{"name": name, "title": title, "configs": variants(name)} for name, title in TITLES.items()]
