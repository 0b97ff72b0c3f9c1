"""The HTML report of a skeleton run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.artifact import load_run
from ...curation.store import Store
from ...curation.verify import DATASET
from ...datasets.skeleton.splits import ROLES
from ...eval.report.blocks import Block, Card, Cards, Details, Section, Table, Text, Value
from ...eval.report.skeletons import skeleton_chart
from ...eval.results import lines
from ..experiments import results
from ..own import shown
from ..report import finished_stages, stage_cards, write_page
from .config import SkeletonConfig
from .figures import architecture_section, default_section, grid_section, order_section
from .results import data_differs, over_orders

_PICTURES = 12
"""Classes that are drawn."""


def write_report(config: SkeletonConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    store = Store(out)
    made = finished_stages(store)
    found = lines(results(out))
    cards = stage_cards(
        made, [("listed", "sequences listed", "in the source"), ("shards", "in the benchmark", "with tensor and graph")]
    )
    best = min(
        ((difference.aopd[0], one.label) for one, difference in over_orders(found, "task")),
        default=None,
    )
    if best is not None:
        cards.append(Card("least difference over task orders", f"{100 * best[0]:.1f} %", f"AOPD of {best[1]}"))
    sections = [Section("Summary", [Cards(cards), *_caveats(config)])]
    names: list[str] = []
    if "split" in made:
        rows = made["split"].rows_view(store).table(["class_name", "label", "task", "role", "source_frames"])
        names = _class_names(rows)
        sections.append(_split(rows))
    if store.exists(posixpath.join(DATASET, "dataset.json")):
        sections.append(_pictures(out))
    unlike = data_differs(config, out, load_run(store).config) if found else ""
    sections += [
        section
        for section in (
            order_section(config, found, names, unlike),
            default_section(found),
            architecture_section(config, found),
            grid_section(found),
        )
        if section is not None
    ]
    net = config.evaluation.network
    network = f"{net.architecture} {net.depth} x {net.width}"
    subtitle = f"{shown(config.source.kind)}, {config.tensor.frames} frames, {network}, seed {config.seed}"
    drawn = f"{shown(config.source.kind)}, seed {config.seed}"
    return write_page("Continual skeleton graphs", subtitle, sections, made, out, drawn=drawn)


def _caveats(config: SkeletonConfig) -> list[Block]:
    if config.source.kind == "drawn":
        return [Text(["The sequences of this run are DRAWN from the seed: scores say nothing about methods."], tone="note")]
    return []


def _class_names(rows: pa.Table) -> list[str]:
    named = dict(zip(rows["label"].to_pylist(), rows["class_name"].to_pylist(), strict=True))
    return [named[label] for label in sorted(named)]


def _split(rows: pa.Table) -> Section:
    frame = pl.DataFrame(pl.from_arrow(rows))
    counted = [((pl.col("role") == role).sum().cast(pl.Int64)).alias(role) for role in ROLES]
    by_task = (
        frame.group_by("task").agg(pl.col("label").n_unique().alias("classes"), *counted, pl.len().alias("all")).sort("task")
    )
    by_class = (
        frame.group_by("task", "label", "class_name")
        .agg(
            *counted,
            pl.len().alias("all"),
            pl.col("source_frames").min().alias("least"),
            pl.col("source_frames").median().alias("median"),
            pl.col("source_frames").max().alias("most"),
        )
        .sort("label")
    )
    lines: list[Sequence[Value]] = [[str(row[0]), *row[1:]] for row in by_task.rows()]
    total = ["all", *by_task.drop("task").sum().row(0)]
    classes: list[Sequence[Value]] = [[row[2], str(row[0]), *row[3:]] for row in by_class.rows()]
    headings = ["class", "task", *ROLES, "all", "frames, least", "median", "most"]
    return Section(
        "Split",
        [
            Table(["task", "classes", *ROLES, "all"], lines, "Sequences by task, in the default order", total=total),
            Details(
                "By class, with the frames of the source", [Table(headings, classes, decimals=0)], opened=len(classes) <= 12
            ),
        ],
    )


def _pictures(out: str) -> Section:
    """The first training sequence of each class, as networks get it."""
    from ...datasets.reader.dataset import ShardDataset
    from ...datasets.reader.index import DatasetIndex
    from ...datasets.skeleton.samples import TENSOR

    index = DatasetIndex.open(posixpath.join(out, DATASET))
    table = index.table.select(["label", "class_name", "role", "position"])
    first = (
        pl.DataFrame(pl.from_arrow(table))
        .with_row_index("at")
        .filter(pl.col("role") == "train")
        .sort("label", "position")
        .group_by("label", maintain_order=True)
        .first()
    )
    data = ShardDataset(index)
    bodies: dict[str, Any] = {}
    layout: Mapping[str, Any] = {}
    for row in first.head(_PICTURES).iter_rows(named=True):
        sample = data[row["at"]]
        layout = sample["json"]["layout"]
        bodies[row["class_name"]] = _moving(np.asarray(sample[TENSOR])[..., 0])
    told = f"The first training sequence of {'each class' if len(first) <= _PICTURES else f'the first {_PICTURES} classes'}"
    caption = f"{told}: body 1 of the stored tensor, frames in even steps from left to right; joints as in {layout['name']}."
    edges = [(int(one), int(other)) for one, other in layout["edges"]]
    return Section("What the tensors hold", [skeleton_chart(bodies, edges, caption=caption)])


def _moving(x: Any) -> Any:
    """Frames up to the last that is not empty: what was padded is not drawn."""
    there = np.flatnonzero(np.abs(x).sum((0, 2)) > 0)
    return x[:, : there[-1] + 1] if len(there) else x
