"""The HTML report of a CLEAR run: buckets, concepts, pictures, and what was trained."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.verify import DATASET
from ...datasets.clear.facts import facts
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.domain_incremental import METRICS
from ...eval.report.blocks import Block, Section, Table, Text, Value
from ...eval.report.figures import bar_chart
from ...eval.report.sections import counts_table, picture_sheets
from ...eval.report.trained import (
    Column,
    PublishedRow,
    changed_settings,
    comparable,
    diagonal_curves,
    lines_table,
    metric_blocks,
    position_matrices,
    whole_columns,
)
from ...eval.results import Line, flat
from ...training.baselines.clear import paper_methods, paper_settings
from ..own import shown
from ..report import OWNERS, ReportedRun, write_page
from .config import ClearConfig, FolderSource
from .pipeline import rounds

_THUMB_PX = 96
_THUMBS = 6
"""Thumbnails a class and bucket: enough to see what is there, few enough for a page of some megabytes."""

_ROWS = {
    "": {
        "nap": "nap-finetune",
        "cumulative, fine-tuned": "cumulative-finetune",
        "cumulative, from scratch": "cumulative-scratch",
        "offline": "joint",
    },
    "Table 1": {
        **{name: name.lower() for name in ("EWC", "SI", "LwF", "CWR", "GDumb", "ER", "AGEM")},
        "reservoir, fine-tuned": "reservoir-alpha=1.0-finetune",
        "biased reservoir, fine-tuned": "dynamic_reservoir-alpha=1.0-finetune",
    },
    "Table 2": {
        **{f"alpha {alpha:g}": f"reservoir-alpha={alpha:.1f}-finetune" for alpha in (0.5, 1, 2, 5)},
        **{f"alpha {alpha:g} i/k": f"dynamic_reservoir-alpha={alpha}-finetune" for alpha in (0.25, 0.5, 0.75, 1.0)},
    },
}

PUBLISHED = {
    name: [(table, row) for table, rows in _ROWS.items() for row, of in rows.items() if of == name]
    for name in dict.fromkeys(name for rows in _ROWS.values() for name in rows.values())
}
"""Our method -> tables and rows of the paper."""

_SOURCES = {
    "listed: root": ("the folder of photos", OWNERS),
    "listed: dates_csv": ("when the photos were taken and uploaded", OWNERS),
    "listed: path": ("metadata of the photos", OWNERS),
}
_VOTES = {
    "simulated": ("answers of SIMULATED annotators", "none: drawn by this run"),
    "imported": ("answers of annotators, as qa import read them", "of who asked them"),
}

_PRESETS = ("linear", "linear_imagenet", "resnet18")
_MODELS = {"linear": "linear on YFCC-B0", "pictures": "ResNet-18"}
"""How the list of the paper's figures begins the names of the models of its presets."""
_SAME = "images, features, splits and settings of the paper"
_PAPER_METRICS = {
    "in_domain": "in_domain",
    "next_domain": "next_domain",
    "acc": "accuracy",
    "bwt": "backward_transfer",
    "fwt": "forward_transfer",
}


def write_report(config: ClearConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    run = ReportedRun.of(out)
    first, last = next(iter(run.made)), list(run.made)[-1]
    cards = run.cards((first, "images found", "of the source"), (last, "in the benchmark", f"after stage {last}"))
    names = [each.name for each in config.classes]
    names += [config.retrieval.background] if config.retrieval.background else []
    encoder = shown(config.encoder.kind)
    return write_page(
        run,
        "A CLEAR\u2011style benchmark",
        f"{len(config.classes)} concepts, seed {config.seed}, encoder {encoder}",
        cards=[*cards, *run.best("in-domain accuracy", "in_domain")],
        notes=_notes(config),
        sections=[_buckets(run), _classes(run, names), *_sheets(run, names), *_baselines(run)],
        rounds=rounds(config) if config.qa.votes != "none" else (),
        drawn=f"{shown(config.source.kind)}, seed {config.seed}",
        about={**_SOURCES, **({"voted: votes": _VOTES[config.qa.votes]} if config.qa.votes in _VOTES else {})},
    )


def _notes(config: ClearConfig) -> list[str]:
    told: list[str] = []
    if config.qa.votes == "simulated":
        told.append(
            "The annotators of this run are SIMULATED: their answers are drawn from the labels that came with the images."
        )
    if isinstance(config.source, FolderSource) and config.source.name == "demo album":
        told.append(
            "The photos are crops of a few photographs and clips that ship with Python packages. The run shows how the "
            "pipeline works; its scores say nothing about methods."
        )
    return told


def _buckets(run: ReportedRun) -> Section:
    rows = run.rows("bucketed")
    if rows is None:
        return Section("Time buckets", [Text(["No bucket yet."])])
    by = "date_uploaded" if rows.schema.field("date_uploaded").type == pa.timestamp("us") else "date_taken"
    frame = pl.DataFrame(pl.from_arrow(pa.concat_tables(rows.batches(["bucket", by]))))
    spans = frame.group_by("bucket").agg(first=pl.col(by).min(), last=pl.col(by).max(), images=pl.len()).sort("bucket")
    names, counts = [str(name) for name in spans["bucket"]], spans["images"].to_list()
    lines = [[name, str(first), str(last), count] for name, (_, first, last, count) in zip(names, spans.rows(), strict=True)]
    return Section(
        "Time buckets",
        [
            bar_chart(names, counts, label_axis="bucket", value_axis="images", caption="Images a bucket, before retrieval."),
            Table(["bucket", "first", "last", "images"], lines, f"Limits of the buckets by {by}"),
        ],
    )


def _classes(run: ReportedRun, names: Sequence[str]) -> Section:
    blocks: list[Block] = []
    for stage, caption in (("retrieved", "retrieved"), ("voted", "confirmed by annotators"), ("chosen", "in the benchmark")):
        rows = run.rows(stage)
        if rows is None:
            continue
        table = rows.table(["concept", "bucket"])
        buckets, at = np.unique(table["bucket"].to_numpy(), return_inverse=True)
        cells = len(buckets) * np.array([names.index(name) for name in table["concept"].to_pylist()]) + at
        counts = np.bincount(cells, minlength=len(names) * len(buckets)).reshape(len(names), len(buckets))
        blocks.append(
            counts_table(counts, names, [str(b) for b in buckets], what="concept", caption=f"Images {caption}, by bucket")
        )
    return Section("Concepts", blocks or [Text(["Nothing is retrieved yet."])])


def _sheets(run: ReportedRun, names: Sequence[str]) -> list[Section]:
    rows = run.rows("chosen", "retrieved")
    if rows is None:
        return []
    table = rows.table(["key", "concept", "bucket", "score", "rank", "image"])
    table = table.sort_by([("concept", "ascending"), ("bucket", "ascending"), ("rank", "ascending")])
    places: dict[str, dict[str, list[int]]] = {name: {} for name in names}
    for at, (name, bucket) in enumerate(zip(table["concept"].to_pylist(), table["bucket"].to_pylist(), strict=True)):
        mine = places[name].setdefault(f"bucket {bucket}", [])
        mine += [at] if len(mine) < _THUMBS else []
    there = {name: parts for name, parts in places.items() if parts}
    intro = f"The first {_THUMBS} images of each class and bucket by rank, with the cosine of image and prompt."
    return [picture_sheets(table, there, run.store, title="Contact sheets", intro=intro, side_px=_THUMB_PX)]


def _baselines(run: ReportedRun) -> list[Section]:
    """A section a protocol; the matrices of all have one scale of colours, so that they can be compared."""
    if not run.lines:
        return []
    index = DatasetIndex.open(posixpath.join(run.out, DATASET))
    buckets = [str(each) for each in np.unique(index.table["bucket"].to_numpy())]
    over_time = [line for line in run.lines if line.protocol != "offline"]
    matrices = {(line.label, line.protocol): (line.label, buckets, _matrices(line, buckets)) for line in over_time}
    figures = position_matrices(matrices, of="bucket")
    data = data_differs(run.made["shards"].digest, facts().release.dataset_digest)
    sections = _both_protocols(run.protocols, data)
    for protocol, found in run.protocols.items():
        if protocol == "offline":
            sections.append(_offline(found, buckets, data))
            continue
        fair, verdict = comparable(found, data, why_not_the_papers, _SAME)
        blocks: list[Block] = [verdict, *metric_blocks(found, _metrics(protocol), published=published(fair, protocol))]
        for line in found:
            blocks += [figures[line.label, protocol], *diagonal_curves(*matrices[line.label, protocol], of="bucket")]
        sections.append(Section(f"Baselines, {protocol} protocol", blocks))
    return sections


def _offline(found: Sequence[Line], buckets: Sequence[str], data: str) -> Section:
    """What was trained on all buckets at once."""
    fair, verdict = comparable(found, data, why_not_the_papers, _SAME)
    columns = {f"bucket {name}": functools.partial(_on_bucket, name) for name in buckets}
    blocks: list[Block] = [verdict, *metric_blocks(found, {"accuracy": "accuracy"}, published=published(fair, "offline"))]
    return Section(
        "Trained on all buckets at once", [*blocks, lines_table(found, columns, "Percent, on each bucket's test set")]
    )


def _on_bucket(name: str, line: Line) -> Any:
    return line.matrix("accuracy", [name])[:, 0, 0]


@dataclass(frozen=True)
class Pair:
    """A row of the paper's Table 1: what was trained under both protocols by one method and the same settings."""

    label: str
    iid: Line
    streaming: Line


def _both_protocols(protocols: Mapping[str, Sequence[Line]], data: str) -> list[Section]:
    """The table that has the form of the paper's Table 1; nothing where only one protocol was trained."""
    iid, streaming = ({line.label: line for line in protocols.get(name, ())} for name in ("iid", "streaming"))
    pairs = [Pair(label, line, streaming[label]) for label, line in iid.items() if label in streaming]
    if not pairs:
        return []
    fair, verdict = comparable(
        pairs, data, lambda pair: why_not_the_papers(pair.iid) or why_not_the_papers(pair.streaming), _SAME
    )
    columns = {
        f"{protocol} {heading}": functools.partial(_of_line, protocol, column)
        for protocol in ("iid", "streaming")
        for heading, column in whole_columns(_metrics(protocol)).items()
    }
    papers: dict[tuple[str, str], dict[str, Value]] = {}
    for protocol in ("iid", "streaming"):
        for row in published([getattr(pair, protocol) for pair in fair], protocol):
            values = {f"{protocol} {heading}": value for heading, value in row.values.items()}
            papers.setdefault((row.name, row.source), {}).update(values)
    rows = [PublishedRow(name, source, values) for (name, source), values in papers.items()]
    caption = "In the form of the paper's Table 1: percent, \u00b1 one standard deviation"
    return [Section("Baselines, both protocols", [verdict, lines_table(pairs, columns, caption, published=rows)])]


def _of_line(protocol: str, column: Column[Line], pair: Pair) -> Any:
    return column(getattr(pair, protocol))


def _metrics(protocol: str) -> dict[str, str]:
    """Heading -> metric."""
    return {name.replace("_", "-"): name for name in METRICS["iid" if protocol == "iid" else "streaming"]}


def _matrices(line: Line, buckets: Sequence[str]) -> np.ndarray:
    """(S, N, N) accuracies in [0, 1] over S seeds, NaN where not tested."""
    found = line.matrix("accuracy", buckets)
    return np.pad(found, ((0, 0), (0, len(buckets) - found.shape[1]), (0, 0)), constant_values=np.nan)


# ------------------------------------------------------------------------------------------------------------ the paper


def data_differs(digest: str, known: str) -> str:
    """Why the dataset of a run cannot be shown to be the paper's, by the digest of its shards and that of the paper's."""
    if not known:
        return "no digest of the paper's images and features is known, so this run's cannot be shown to be the same"
    return "" if digest == known else "the images, splits or features of this run are not those of the paper"


def why_not_the_papers(line: Line) -> str:
    """Why a training is none of the paper's, by its record; "" where it is."""
    if line.method not in PUBLISHED:
        return "no method of the paper's tables"
    papers = [(*paper_settings(name), paper_methods(name)[line.method][1]) for name in _PRESETS]
    same = [flat({**settings, "method": method}) for model, settings, method in papers if model == line.model]
    if not same or (line.protocol == "offline" and line.model == "linear"):
        return f"the model is {line.model}"
    changed = changed_settings(line, same)
    return f"settings of the paper were changed: {', '.join(changed)}" if changed else ""


def published(lines: Sequence[Line], protocol: str) -> list[PublishedRow]:
    """The paper's figures for these lines' methods; it does not print every metric of every row."""
    rows: list[PublishedRow] = []
    begin = "streaming_" if protocol == "streaming" else ""
    places = ((*place, _MODELS[line.model]) for line in lines for place in PUBLISHED[line.method])
    for table, row, model in dict.fromkeys(places):
        mine = [f for f in facts().published if (f.table, f.method) == (table, row) and f.model.startswith(model)]
        printed = {f.metric: f.percent for f in mine}
        names = {"accuracy": "accuracy"} if protocol == "offline" else _PAPER_METRICS
        values = {ours.replace("_", "-"): printed.get(f"{begin}{theirs}") for ours, theirs in names.items()}
        rows += [PublishedRow(row, f"the CLEAR paper, {table or 'text'}", values)] if any(values.values()) else []
    return rows
