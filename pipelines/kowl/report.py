"""The HTML report of a KOWL run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from ...datasets.kowl.facts import facts
from ...datasets.kowl.tables import (
    KINDS,
    NEEDED,
    Recordings,
    class_density,
    increment_table,
    published_table,
    recordings,
    transition_counts,
    transitions,
)
from ...eval.report.blocks import Block, CellValue, Details, Section, Table, Text
from ...eval.report.figures import bar_chart
from ...eval.report.flows import Change, flow_chart
from ...eval.report.open_world import density_section
from ..names import short
from ..report import ReportedRun, write_page
from .card import recorded, youtube_ids
from .config import MAIN, DrawnFeatures, DrawnLists, ExtractedFeatures, KowlConfig, VideoFeatures
from .paper import data_differs, has_published_counts, table_1, table_2
from .people import answers_table
from .pictures import transformed_clips
from .training_sections import training_sections

_EDGES = 60
"""Most changed labels shown for each pair of releases."""
_BANDS = 28
"""Most changed labels in the picture."""


def write_report(config: KowlConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder, also for an unfinished run. Returns its path."""
    run = ReportedRun.of(out)
    sections: list[Section] = []
    if (unified := run.rows("unified")) is not None:
        sections.append(_labels(config, unified))
    if (increments := run.rows("increments")) is not None:
        samples = increments.table([*NEEDED, *recorded(increments)])
        shared = recordings(samples, youtube=youtube_ids(config))
        sections += [_increments(config, samples, shared), density_section(class_density(samples))]
        if run.lines:
            sections += [
                *training_sections(run, config, data_differs(config, samples)),
                *transformed_clips(config, out, increments),
            ]
        sections += _people(config, out)
    cards = run.cards(
        ("listed", "rows of the lists", "in all releases"),
        ("unified", "labelled samples", "by id, start and end"),
        ("increments", "in the increments", "with video and feature"),
    )
    return write_page(
        run,
        "A KOWL-style benchmark",
        f"{', '.join(config.labels.releases)}; rules {config.increments.preset}, seed {config.seed}",
        cards=cards,
        notes=_notes(config),
        sections=sections,
        drawn=f"{short(config.source.kind)}, seed {config.seed}",
    )


def _notes(config: KowlConfig) -> list[str]:
    lines: list[str] = []
    if isinstance(config.source, DrawnLists):
        lines.append("The lists of this run are SYNTHETIC, generated from a seed: ids, labels and missing videos are invented.")
    if isinstance(config.features, DrawnFeatures):
        lines.append(
            f"The features of this run are SYNTHETIC: Gaussians whose centres are about {config.features.distance:g} standard "
            f"deviations apart. A share of {config.features.hidden:g} of the later classes surrounds the centres of starting "
            "classes: before feedback, these cannot be distinguished from known ones. Scores say nothing about videos."
        )
    if lines:
        lines.append("Synthetic data: not comparable with the paper's figures.")
    lines.append(
        "Feedback is SIMULATED: the labels that predictors ask for are those of the lists"
        + (", except in trainings with annotators." if config.evaluation.people else ".")
    )
    for name, features in config.sets.items():
        if not isinstance(features, ExtractedFeatures | VideoFeatures):
            continue
        which = "Features" if name == MAIN else f"Features {name}"
        if features.backbone.kind == "built_in":
            lines.append(f"{which} come from the built-in backbone, colours and edges: scores say nothing about networks.")
        elif features.backbone.kind == "network" and not features.checkpoint:
            lines.append(
                f"{which} come from a network with RANDOM weights: scores say nothing about {features.backbone.model}."
            )
    return lines


def _people(config: KowlConfig, out: str) -> list[Section]:
    rows = answers_table(config, out) if config.evaluation.people else []
    about = "Labels from annotators instead of the lists. A sample without a majority stays unlabelled."
    columns = ["round", "increment", "questions", "answered", "labelled", "same label as in the lists"]
    return [Section("Feedback by people", [Text([about]), Table(columns, rows)])] if rows else []


def _labels(config: KowlConfig, rows: Any) -> Section:
    releases = config.labels.releases
    edges = transitions(rows.table([f"label_{release}" for release in releases]), releases)
    counts = transition_counts(edges).to_pylist()
    blocks: list[Block] = [
        Text(["How the labels of samples change from one release to the next, for samples in both. The kinds are ours."]),
        Table(
            ["from", "to", "kind", "old labels", "new labels", "samples"],
            [list(row.values()) for row in counts],
            "Transitions between releases",
        ),
    ]
    frame = pl.DataFrame(pl.from_arrow(edges)).filter(pl.col("kind") != "kept")
    for (old, new), mine in frame.partition_by(["from_release", "to_release"], as_dict=True, maintain_order=True).items():
        top = mine.sort("samples", descending=True, maintain_order=True).head(_EDGES)
        kinds = mine.group_by("kind", maintain_order=True).agg(pl.col("samples").sum())
        names, values = kinds["kind"].to_list(), kinds["samples"].to_list()
        pair = f"{old} to {new}"
        bands = [Change(*row) for row in _grouped(top.head(_BANDS)).rows()]
        blocks.append(
            flow_chart(
                bands,
                KINDS,
                old_axis=str(old),
                new_axis=str(new),
                value_axis="samples",
                caption=f"Changes of labels, {pair}: the {len(bands)} most frequent of {mine.height}.",
            )
        )
        blocks.append(
            bar_chart(names, values, label_axis="kind", value_axis="samples", caption=f"Samples whose label changed, {pair}.")
        )
        lines: list[Sequence[CellValue]] = [list(row) for row in top.select("from_label", "to_label", "kind", "samples").rows()]
        title = f"Changed labels, {pair}: {top.height} of {mine.height}, most samples first"
        blocks.append(Details(title, [Table(["from", "to", "kind", "samples"], lines)]))
    return Section("Labels across the releases", blocks)


def _grouped(changes: pl.DataFrame) -> pl.DataFrame:
    """Sort changes so that those of one old label are adjacent, with kinds in order."""
    place = pl.col("kind").cast(pl.Enum(KINDS))
    first = pl.col("samples").max().over("from_label")
    return changes.sort(place.min().over("from_label"), first, "from_label", "samples", descending=[False, True, False, True])[
        ["from_label", "to_label", "kind", "samples"]
    ]


def _increments(config: KowlConfig, samples: pa.Table, shared: Recordings) -> Section:
    ours = increment_table(samples)
    papers = tuple(config.labels.releases) == facts().labels.releases
    blocks: list[Block] = [
        _numbers(published_table(ours), "This run, as in Table 1 (val and test together from increment 1 on)")
    ]
    if papers:
        same = has_published_counts(config, published_table(ours))
        verdict = "This run's table equals the published one." if same else "This run's table differs from the published one."
        blocks += [
            _numbers(table_1(), "Table 1 of the paper; Table 2 counts one more novel test sample, in increment 0"),
            Text([verdict], tone="good" if same else "plain"),
        ]
    by_role = [_numbers(ours, "This run, val and test separately")]
    if papers:
        about = (
            "Table 2 of the paper; the validation samples of its increments 6 to 10 play the test role, and are under test. "
            "Known classes are those known before the increment. The paper counts a novel class of validation in increment 0, "
            "of which it has no sample"
        )
        by_role.append(_numbers(table_2(), about))
    blocks.append(Details("By role, as in Table 2", by_role))
    blocks.append(Text([shared.summary()], tone="note" if shared.shared or shared.unknown else "good"))
    return Section("Increments", blocks)


def _numbers(table: pa.Table, caption: str) -> Table:
    rows: list[Sequence[CellValue]] = [[str(row.pop("increment")), *row.values()] for row in table.to_pylist()]
    headings = ["increment", *(name.replace("_", " ") for name in table.column_names if name != "increment")]
    return Table(headings, rows, caption)
