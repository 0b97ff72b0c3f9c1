"""The facts of vCLIMB as records: ``facts.toml`` read and checked. The file says where each value comes from."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...curation.package_data import package_toml


@dataclass(frozen=True)
class DatasetFacts:
    """One data set of Table 1.

    Attributes:
        name: ucf101, activitynet_trim, activitynet_untrim or kinetics400.
        classes: number of classes.
        clips: role -> clips in all, exact; empty where only averages are published.
        per_task: number of tasks -> role -> the table's clips a task.
        per_task_rule: how the table makes whole numbers of averages.
        evaluated: role that is reported.
        memory_videos: videos that the memory holds.
        frames_per_video: the table's average, from which it counts the frames of a memory that keeps all.
    """

    name: str
    classes: int
    clips: Mapping[str, int]
    per_task: Mapping[int, Mapping[str, int]]
    per_task_rule: Literal["floor", "round"]
    evaluated: str
    memory_videos: int
    frames_per_video: int


@dataclass(frozen=True)
class SplitFile:
    """A released split file and its SHA-256."""

    name: str
    dataset: str
    tasks: int
    sha256: str


@dataclass(frozen=True)
class MemoryFacts:
    """A memory's size as the paper prints it: videos, their frames where all are kept, and for 4, 8 and 16 frames each."""

    dataset: str
    videos: int
    all_frames_in_paper: int
    share_percent_in_paper: float
    frames_in_paper: Mapping[int, int]


@dataclass(frozen=True)
class UntrimFacts:
    """Counts of the filter that makes ActivityNet-Untrim."""

    min_coverage: float
    videos: Mapping[str, int]
    multi_label: Mapping[str, int]
    no_coverage: Mapping[str, int]
    dropped_percent_in_paper: float


@dataclass(frozen=True)
class PublishedResult:
    """One published pair of numbers, in percent; ``frames`` is what a stored video keeps: 4, 8, 16 or all."""

    table: str
    tasks: int
    frames: str
    dataset: str
    method: str
    acc_percent: float
    bwf_percent: float


@dataclass(frozen=True)
class Facts:
    """All of it. ``train_per_task`` and ``first_classes`` go by data set and number of tasks, as in ``ucf101_10``."""

    datasets: Mapping[str, DatasetFacts]
    tasks: tuple[int, ...]
    train_share: float
    val_share: float
    activitynet_fps: float
    split_files: tuple[SplitFile, ...]
    train_per_task: Mapping[str, tuple[int, ...]]
    first_classes: Mapping[str, tuple[str, ...]]
    untrim: UntrimFacts
    memory: Mapping[str, MemoryFacts]
    published: tuple[PublishedResult, ...]

    def figures(self, dataset: str, tasks: int) -> list[PublishedResult]:
        """Published results of a data set in so many tasks, in the order of the tables."""
        return [one for one in self.published if (one.dataset, one.tasks) == (dataset, tasks)]


@functools.cache
def facts() -> Facts:
    """The facts, read once a process. An unknown or missing name raises ``TypeError`` or ``KeyError``, which names it."""
    raw = package_toml(__package__, "facts.toml")
    splits = _values(raw["splits"])
    return Facts(
        datasets={item["name"]: DatasetFacts(**_values(item)) for item in raw["datasets"]},
        tasks=splits["tasks"],
        train_share=splits["train_share"],
        val_share=splits["val_share"],
        activitynet_fps=splits["activitynet_fps"],
        split_files=tuple(SplitFile(**item) for item in raw["split_files"]),
        train_per_task=_values(raw["train_per_task"]),
        first_classes=_values(raw["first_classes"]),
        untrim=UntrimFacts(**_values(raw["untrim"])),
        memory={item["dataset"]: MemoryFacts(**_values(item)) for item in raw["memory"]},
        published=tuple(_figures(raw["published"])),
    )


def _figures(tables: list[dict[str, Any]]) -> Iterator[PublishedResult]:
    for table in tables:
        for method, pairs in table["rows"].items():
            for dataset, (acc, bwf) in zip(table["columns"], pairs, strict=True):
                yield PublishedResult(table["table"], table["tasks"], table["frames"], dataset, method, float(acc), float(bwf))


def _values(table: dict[str, Any]) -> dict[str, Any]:
    return {name: _fixed(value) for name, value in table.items() if name != "source"}


def _fixed(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_fixed(item) for item in value)
    if isinstance(value, dict):
        return {int(name) if name.isdecimal() else name: _fixed(item) for name, item in value.items()}
    return value
