"""Names of every kind, for `benchwright list`; nothing that is listed is imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..curation.registry import BUILT_IN, Entry, Registry, described
from .catalogue import BENCHMARKS, TITLES
from .config import variants
from .errors import unknown

REGISTRIES = {
    "benchmarks": "pipelines.catalogue:BENCHMARKS",
    "detectors": "curation.stages.detectors:DETECTORS",
    "encoders": "pipelines.encoders:ENCODERS",
    "estimators": "training.illuminants.registry:ESTIMATORS",
    "methods": "training.methods.registry:METHODS",
    "metrics": "eval.metrics.registry:METRICS",
    "models": "training.models.registry:MODELS",
    "predictors": "training.predictors.registry:PREDICTORS",
    "sources": "pipelines.sources:SOURCES",
    "trackers": "training.trackers.registry:TRACKERS",
    "transforms": "curation.stages.transforms:TRANSFORMS",
}
"""Kind, in the plural -> its registry, or a table of registries."""


def list_benchmarks() -> list[dict[str, Any]]:
    """The benchmarks: ``name``, ``title``, ``configs`` (names of presets besides the published settings), ``origin``.

    >>> [each["name"] for each in list_benchmarks() if "scaled" in each["configs"]]
    ['kowl']
    """
    rows: list[dict[str, Any]] = []
    for entry in BENCHMARKS.entries():
        configs = [] if entry.hidden else variants(entry.name)
        rows.append({"name": entry.name, "title": _described(entry)[1], "configs": configs, "origin": _origin(entry)})
    return rows


def list_names(kind: str) -> list[dict[str, str]]:
    """All names of a kind, in the plural (``methods``): ``name``, ``fits``, ``summary`` and ``origin``.

    Raises:
        WrongUse: there is no such kind.

    >>> [each["name"] for each in list_names("detectors")]
    ['centerface']
    """
    if kind not in REGISTRIES:
        raise unknown("kind", kind, REGISTRIES)
    module, _, name = REGISTRIES[kind].partition(":")
    found = getattr(importlib.import_module(f"...{module}", __name__), name)
    registries = [found] if isinstance(found, Registry) else [*found.values()]
    entries = [entry for registry in registries for entry in registry.entries()]
    rows = [_row(entry) for entry in dict.fromkeys(entries)]  # entries of several registries are listed once
    return [*rows, *_of_papers(kind)]


def _of_papers(kind: str) -> Iterator[dict[str, str]]:
    """A row for each method named after a row of a paper's table, and for each group of such names."""
    if kind == "methods":
        from ..training.baselines import clear, iirc, vclimb
        from ..training.methods.registry import METHODS

        for name, names in clear.method_groups().items():
            yield _row_of("clear", name, f"A group: {', '.join(names)}")
        rows = {"clear": clear.paper_methods()}
        of_iirc = {name: iirc.paper_settings(name, dataset="cifar100") for name in iirc.paper_methods()}
        rows["iirc"] = {
            name: (method, {**made["method"], "head": made["model"]["head"], "samples": made["data"]["samples"]})
            for name, (method, made) in of_iirc.items()
        }
        for benchmark, methods in rows.items():
            for name, (method, settings) in methods.items():
                if name not in METHODS.builtin:
                    yield _row_of(benchmark, name, _settings_text(method, settings))
        for name in vclimb.GROUPS:
            yield _row_of(
                "vclimb", name, "A group: the rows of this table of the paper for the dataset and its number of tasks."
            )
        for name in vclimb.paper_methods():
            yield _row_of("vclimb", name + vclimb.CONSISTENT, f"{name}, with the loss of temporal consistency.")
    elif kind == "estimators":
        from ..training.illuminants.registry import ESTIMATORS, candidates

        for name, (estimator, choices) in candidates().items():
            if name not in ESTIMATORS.builtin:
                yield _row_of("two_camera", name, _settings_text(estimator, choices))


def _row_of(benchmark: str, name: str, summary: str) -> dict[str, str]:
    return {"name": name, "fits": f"the benchmark {benchmark}", "summary": summary, "origin": BUILT_IN}


def _settings_text(name: str, settings: Mapping[str, Any]) -> str:
    return ", ".join([name, *(f"{key} = {value}" for key, value in settings.items())])


def _row(entry: Entry) -> dict[str, str]:
    fits, summary = _described(entry)
    return {"name": entry.name, "fits": fits, "summary": summary, "origin": _origin(entry)}


def _described(entry: Entry) -> tuple[str, str]:
    titled = entry.kind == BENCHMARKS.kind and entry.origin == BUILT_IN
    return ("", TITLES[entry.name]) if titled else described(entry)


def _origin(entry: Entry) -> str:
    return f"{entry.origin}, not used: a built-in {entry.kind} has this name" if entry.hidden else entry.origin
