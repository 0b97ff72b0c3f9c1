"""The facts of CLEAR-10: ``facts.toml``, which states the source of each value; and the results in the paper's tables,
``tables.toml``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...curation.package_data import FactTable, package_toml, published_facts
from ...curation.stages.buckets import BucketLimits

FEATURES = {
    "clip": "CLIP",
    "imagenet_rn50": "Pretrained-ImageNet",
    "moco_imagenet_rn50": "MoCo-ImageNet",
    "byol_imagenet_rn50": "BYOL-ImageNet",
    "moco_b0": "MoCo-YFCC-B0",
}
"""The five feature sets of the paper in the order of its tables, with their names there."""

RELEASED = {"imagenet_rn50": "imagenet", "moco_imagenet_rn50": "moco_imagenet", "byol_imagenet_rn50": "byol_imagenet"}
"""Feature sets -> names of their folders in the release, where Avalanche looks for them; others keep theirs (``moco_b0``)."""


@dataclasses.dataclass(frozen=True)
class PublishedCell:
    """One number of a table of the paper.

    Attributes:
        table: "Table 6".
        protocol: ``iid`` or ``streaming``.
        features: one of ``FEATURES``, or "pixels".
        network: network trained on the features: ``linear``, ``mlp`` or ``resnet18``.
        row: name of the method with its settings, as in our trainings.
        method: name of the method alone: ``ewc``, ``reservoir``, ``dynamic_reservoir`` for "alpha i/k".
        alpha: alpha of a reservoir; else None.
        start: ``scratch`` or ``finetune`` if the table states it; else "".
        metric: name of the metric in our results.
        mean, std: in percent, over five seeds.
        printed: mean and std as printed in the table: ``91.6±.1``.
    """

    table: str
    protocol: str
    features: str
    network: str
    row: str
    method: str
    alpha: float | None
    start: str
    metric: str
    mean: float
    std: float
    printed: str


@dataclasses.dataclass(frozen=True)
class PublishedTable:
    """A table of the paper for one network; its fields are explained in ``tables.toml``.

    Attributes:
        metrics: protocol -> metrics, in the order of the columns.
        note: inconsistencies in its figures, or "".
        cells: cells in row order.
    """

    name: str
    network: str
    features: tuple[str, ...]
    metrics: Mapping[str, tuple[str, ...]]
    can_run: str
    was_run: str
    lacks: str
    note: str
    cells: tuple[PublishedCell, ...]


@functools.cache
def facts() -> FactTable:
    """All facts. ``classes`` are in the order of the released configuration, ``class_names`` in the order of the labels:
    alphabetical, the background first (``class_names.txt``).
    """
    found = published_facts(__package__)
    names = (found.retrieval.background, *sorted(each.name for each in found.classes))
    return FactTable(found, class_names=names)


@functools.cache
def published_limits() -> tuple[BucketLimits, ...]:
    """Limits of the upload times of the eleven buckets of the release, from ``bucket_limits.toml``."""
    return tuple(BucketLimits(item["start"], item["end"]) for item in package_toml(__package__, "bucket_limits.toml")["limits"])


@functools.cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Tables 1, 2 and 4 to 9, in this order; Table 1 in two parts, one per network.

    >>> [(table.name, table.network, len(table.cells)) for table in published_tables()][:3]
    [('Table 1', 'resnet18', 63), ('Table 1', 'linear', 63), ('Table 2', 'linear', 56)]
    >>> published_tables()[-1].cells[0]
    PublishedCell(table='Table 9', protocol='streaming', features='clip', network='mlp', row='nap-finetune', ...
    """
    return tuple(_table(raw) for raw in package_toml(__package__, "tables.toml")["tables"])


def _table(raw: Mapping[str, Any]) -> PublishedTable:
    notes = {name: " ".join(str(raw.get(name, "")).split()) for name in ("can_run", "was_run", "lacks", "note")}
    metrics = {protocol: tuple(names) for protocol, names in raw["metrics"].items()}
    return PublishedTable(raw["name"], raw["network"], tuple(raw["features"]), metrics, **notes, cells=tuple(_cells(raw)))


def _cells(raw: Mapping[str, Any]) -> Iterator[PublishedCell]:
    for row, printed in raw["rows"].items():
        method, alpha, start = _row(row)
        for (protocol, metrics), part in zip(raw["metrics"].items(), printed.split("|"), strict=True):
            places = [(metric, features) for metric in metrics for features in raw["features"]]
            for (metric, features), cell in zip(places, part.split(), strict=True):
                mean, std = map(float, cell.split("±"))
                of = (raw["name"], protocol, features, raw["network"], row, method, alpha, start)
                yield PublishedCell(*of, metric, mean, std, cell)


def _row(name: str) -> tuple[str, float | None, str]:
    """Split a row name such as ``reservoir-alpha=0.5-scratch`` into method, alpha and start."""
    found = re.fullmatch(r"(\w+?)(?:-alpha=([\d.]+))?(?:-(scratch|finetune))?", name)
    if found is None:
        raise ValueError(f"tables.toml, row {name!r}: method, alpha and start are joined by hyphens")
    return found[1], float(found[2]) if found[2] else None, found[3] or ""
