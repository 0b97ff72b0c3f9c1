"""The HTML report of a skeleton run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import load_run
from ...curation.publish import names_of
from ...curation.verify import DATASET
from ...datasets.roles import ROLES
from ...datasets.skeleton.facts import facts
from ...eval.report.blocks import Block, Card, CellValue, Details, Figure, Section, Table, Text
from ...eval.report.sections import task_table
from ...eval.report.skeletons import skeleton_chart
from ..names import short
from ..report import ReportedRun, write_page
from .config import SkeletonConfig
from .joints import layout_for
from .paper import data_differs
from .series import By, Differing, by_network, over_orders
from .training_sections import architecture_section, default_section, grid_section, order_section

_PICTURES = 12
"""Most classes that are drawn."""

_BY_NAME = (
    "source.lists is not set: sequences are in the order of their names, so that nearly all test sequences are of one subject, "
    "who is not in the training set. Scores are therefore shown without published figures: Table 2 uses the order of CTR-GCN's "
    "lists, source.lists = split_train_val.json."
)


def write_report(config: SkeletonConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder, also for an unfinished run. Returns its path."""
    run = ReportedRun.of(out)
    cards = run.cards(("listed", "sequences listed", "in the source"), ("shards", "in the benchmark", "with tensor and graph"))
    over: dict[By, Differing] = {by: over_orders(run.lines, by) for by in ("task", "class")}
    least = [(float(difference.difference.aopd.mean()), one.label) for one, difference in over["task"]]
    cards += [
        Card("smallest difference over task orders", f"{100 * aopd:.1f} %", f"AOPD of {name}")
        for aopd, name in sorted(least)[:1]
    ]
    sections: list[Section] = []
    names: list[str] = []
    first: list[Block] = []
    if (rows := run.rows("split")) is not None:
        wanted = ("class_name", "label", "task", "role", "source_frames")
        table = rows.table([name for name in wanted if name in rows.schema.names])  # a source with only names has no frames
        if "missing" in rows.schema.names:
            filled = [count for count in rows.table(["missing"])["missing"].to_pylist() if count]
            cards.append(
                Card("joints filled in", f"{sum(filled):,}", f"missing in {len(filled):,} of {len(table):,} sequences")
            )
        names = names_of(table, "label", "class_name")
        sections.append(_split(config, table))
    if run.store.exists(posixpath.join(DATASET, "dataset.json")):
        first = [_pictures(out)]
    data = data_differs(config, out, load_run(run.store).config) if run.lines else ""
    trained = [
        order_section(config, run.lines, over, names, data),
        default_section(run.lines),
        architecture_section(config, run.lines),
        grid_section(config, run.lines, data),
    ]
    net = config.evaluation.network
    trained_by = by_network([line for line in run.lines if line.protocol != "architecture"])
    network = " and ".join(trained_by) or f"{net.architecture} {net.depth} x {net.width}"
    frames = f"{config.tensor.frames} frames" if config.source.kind != "ntu_names" else "names only"
    notes = {
        "drawn": ["The sequences of this run are SYNTHETIC, generated from the seed: scores say nothing about methods."],
        "nwucla": [] if getattr(config.source, "lists", None) else [_BY_NAME],
    }
    return write_page(
        run,
        "Continual skeleton graphs",
        f"{short(config.source.kind)}, {frames}, {network}, seed {config.seed}",
        cards=cards,
        notes=notes.get(config.source.kind, []),
        sections=[*sections, *(section for section in trained if section is not None)],
        drawn=f"{short(config.source.kind)}, seed {config.seed}",
        first=first,
    )


def _split(config: SkeletonConfig, rows: pa.Table) -> Section:
    by_class = [_class_line(rows.filter(pc.equal(rows["label"], label))) for label in pc.unique(rows["label"]).sort()]
    framed = "source_frames" in rows.column_names
    headings = ["class", "task", *ROLES, "all", *(["frames, min", "median", "max"] if framed else [])]
    classes = Table(headings, by_class, decimals=0)
    title = "By class, with numbers of frames in the source" if framed else "By class"
    tasks = task_table(rows, ROLES, "Sequences by task, in the default order")
    return Section("Split", [tasks, *_table_1(config, rows), Details(title, [classes], opened=len(by_class) <= 12)])


def _table_1(config: SkeletonConfig, rows: pa.Table) -> list[Block]:
    """This run and the paper's Table 1; empty without rows, or if ``evaluation.paper`` is not set."""
    if config.evaluation.paper is None or not len(rows):
        return []
    published = facts().table_1[config.evaluation.paper]
    classes, tasks = (pc.count_distinct(rows[name]).as_py() for name in ("label", "task"))
    framed = config.source.kind != "ntu_names"
    ours = {
        "sequences": len(rows),
        "joints": len(layout_for(config).joints),
        "classes": classes,
        "tasks": tasks,
        "sequences per task": round(len(rows) / tasks),
        "frames per sequence": config.tensor.frames if framed else None,
    }
    papers = {name: published[name.replace(" ", "_")] for name in ours}
    same = all(value in (None, papers[name]) for name, value in ours.items())
    table = Table(
        ["", *ours],
        [["this run", *ours.values()], ["Table 1", *papers.values()]],
        "As in Table 1: sequences per task are a mean, frames those of the tensors",
    )
    verdict = f"The counts {'equal' if same else 'differ from'} those of the paper's Table 1."
    return [table, Text([verdict], tone="good" if same else "note")]


def _class_line(rows: pa.Table) -> list[CellValue]:
    """Sequences of one class by role, and minimum, median and maximum of the frames in their sources."""
    counts = [pc.sum(pc.equal(rows["role"], role)).as_py() or 0 for role in ROLES]
    frames = pc.quantile(rows["source_frames"], [0, 0.5, 1]).to_pylist() if "source_frames" in rows.column_names else []
    return [rows["class_name"][0].as_py(), str(rows["task"][0].as_py()), *counts, len(rows), *frames]


def _pictures(out: str) -> Figure:
    """The first training sequence of each class, in the form that networks get."""
    from ...datasets.reader.index import DatasetIndex
    from ...datasets.reader.samples import Samples
    from ...datasets.skeleton.samples import TENSOR

    index = DatasetIndex.open(posixpath.join(out, DATASET))
    table = index.table.select(["label", "role", "position"]).append_column("at", pa.array(range(len(index))))
    training = table.filter(pc.equal(table["role"], "train")).sort_by([(name, "ascending") for name in ("label", "position")])
    first = training.group_by("label", use_threads=False).aggregate([("at", "first")])["at_first"].to_pylist()
    data = Samples(index, columns=["class_name"])
    bodies: dict[str, Any] = {}
    layout: Mapping[str, Any] = {}
    for at in first[:_PICTURES]:
        sample = data[at]
        layout = sample["json"]["layout"]
        bodies[sample["class_name"]] = _moving(np.asarray(sample[TENSOR])[..., 0])
    text = f"The first training sequence of {'each class' if len(first) <= _PICTURES else f'the first {_PICTURES} classes'}"
    caption = f"{text}: body 1 of the stored tensor, evenly spaced frames, left to right; joints of layout {layout['name']}."
    edges = [(int(one), int(other)) for one, other in layout["edges"]]
    return skeleton_chart(bodies, edges, caption=caption)


def _moving(x: Any) -> Any:
    """Frames up to the last non-empty one, without padding."""
    there = np.flatnonzero(np.abs(x).sum((0, 2)) > 0)
    return x[:, : there[-1] + 1] if len(there) else x
