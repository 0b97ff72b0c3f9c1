"""The benchmarks: those that come with the package, and those that installed packages offer."""

from __future__ import annotations

from ..curation.registry import Registry

TITLES = {
    "clear": "CLEAR: time buckets of photos, retrieved concepts, crowd QA; iid and streaming protocols",
    "iirc": "IIRC: labels of two levels that are refined task by task",
    "kowl": "KOWL-718: one label space over the Kinetics releases, open-world increments, novelty evaluation",
    "skeleton": "Skeleton graphs whose actions come in tasks: order and architecture sensitivity",
    "two_camera": "Two-camera illuminant estimation: the illuminant from the colour transform between two cameras",
    "vclimb": "vCLIMB: classes of videos that come in tasks, memory counted in frames",
}
"""Name -> one line."""

BENCHMARKS = Registry(
    "benchmark", {name: f"benchwright.pipelines.{name}.pipeline:BENCHMARK" for name in TITLES}, attribute="BENCHMARK"
)
