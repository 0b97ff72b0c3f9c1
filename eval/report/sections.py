"""Sections that more than one benchmark's report has, composed of blocks from plain numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .blocks import Block, Cell, Details, ImageGrid, Section, Table, Text, Thumb, Value
from .figures import heat_map, line_chart


@dataclasses.dataclass(frozen=True)
class StageRow:
    """One line of the pipeline table: what came in, what went out, why the rest did not, and how long it took.

    ``expands``: whether the stage makes several rows of one, so that more may go out than came in.
    """

    name: str
    kind: str
    rows_in: int | None
    rows_out: int
    rejects: Mapping[str, int]
    seconds: float | None = None
    digest: str = ""
    expands: bool = False


def pipeline_section(stages: Sequence[StageRow], *, title: str = "Pipeline") -> Section:
    """Stages with their counts, and a box that says whether they add up (rows in = rows out + rejects)."""
    rows: list[Sequence[Value]] = []
    wrong: list[str] = []
    for stage in stages:
        lost = sum(stage.rejects.values())
        if stage.rows_in is not None and not stage.expands and stage.rows_in != stage.rows_out + lost:
            wrong.append(f"{stage.name}: {stage.rows_in:,} rows in, {stage.rows_out:,} out, {lost:,} rejected")
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(stage.rejects.items(), key=lambda r: (-r[1], r[0])))
        digest = _digest(stage.digest)
        rows.append([stage.name, stage.kind, stage.rows_in, stage.rows_out, lost, reasons, stage.seconds, digest])
    columns = ["stage", "kind", "rows in", "rows out", "rejects", "by reason", "seconds", "digest"]
    expanding = [stage.name for stage in stages if stage.expands]
    several = f", except where several rows are made of one ({', '.join(expanding)})" if expanding else ""
    verdict = (
        Text([f"The counts do not add up in {len(wrong)} stages.", *wrong], tone="bad")
        if wrong
        else Text([f"In every stage, rows in = rows out + rejects{several}."], tone="good")
    )
    return Section(title, [verdict, Table(columns, rows, decimals=1)])


def counts_table(counts: ArrayLike, rows: Sequence[str], columns: Sequence[str], *, what: str, caption: str) -> Table:
    """A table of counts with its sums: ``counts`` (r, c) integers >= 0, ``what`` the heading of the row names."""
    values = np.asarray(counts, dtype=np.int64)
    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"counts {values.shape} for {len(rows)} rows and {len(columns)} columns")
    body = [[name, *row, sum(row)] for name, row in zip(rows, values.tolist(), strict=True)]
    total = ["all", *values.sum(0).tolist(), int(values.sum())]
    return Table([what, *columns, "all"], body, caption, total=total)


def contact_section(
    thumbs: Mapping[str, Mapping[str, Sequence[Thumb]]], *, title: str, intro: str, side_px: int = 96
) -> Section:
    """Contact sheets: class -> bucket -> thumbnails. A fold a class, the first one open, a grid a bucket."""
    blocks: list[Block] = [Text([intro])]
    for at, (name, buckets) in enumerate(thumbs.items()):
        grids = [ImageGrid(bucket, images, side_px) for bucket, images in buckets.items()]
        blocks.append(Details(f"{name} ({sum(len(grid.thumbs) for grid in grids):,})", grids, opened=at == 0))
    return Section(title, blocks)


def accuracy_blocks(
    matrices: ArrayLike,
    names: Sequence[str],
    *,
    method: str,
    domain: str = "bucket",
    scale: tuple[float, float] | None = None,
) -> list[Block]:
    """Heat map of the mean accuracy matrix, and curves of in-domain, next-domain and last-model accuracy by domain.

    Args:
        matrices: (S, N, N) accuracies in [0, 1] over S seeds, NaN where not tested.
        names: N domain names.
        method: named in the captions.
        scale: of the colours, see ``heat_map``; one for all methods that are compared.
    """
    values = np.asarray(matrices, dtype=np.float64)
    if values.ndim != 3 or values.shape[1:] != (len(names), len(names)) or not len(values):
        raise ValueError(f"matrices {values.shape} for {len(names)} domains: (S, N, N) is needed")
    mean = values.mean(0)
    if np.isnan(mean).all():  # of a single domain, say, where the next one is tested
        return [Text([f"{method}: there is no later {domain} to test on."])]
    seeds = "1 seed" if len(values) == 1 else f"mean of {len(values)} seeds"
    framed = "" if np.isnan(np.diagonal(mean)).all() else f"; the frame marks the {domain} learned last"
    heat = heat_map(
        mean,
        names,
        names,
        row_axis=f"trained up to {domain}",
        column_axis=f"tested on {domain}",
        scale=scale,
        caption=f"{method}: accuracy in percent, {seeds}{framed}.",
    )
    size = len(names)
    curves = {
        f"tested on the same {domain}": np.diagonal(values, axis1=1, axis2=2),
        f"tested on the next {domain}": np.pad(np.diagonal(values, 1, 1, 2), ((0, 0), (0, 1)), constant_values=np.nan),
    }
    shown = {name: curve for name, curve in curves.items() if not np.isnan(curve).all()}
    if size < 2 or not shown:
        return [heat]
    lines = line_chart(
        names,
        {name: curve.mean(0) for name, curve in shown.items()},
        label_axis=f"trained up to {domain}",
        value_axis="accuracy",
        shares=True,
        caption=f"{method}: accuracy after each {domain}" + ("; band: one standard deviation." if len(values) > 1 else "."),
        spread={name: curve.std(0, ddof=1) for name, curve in shown.items()} if len(values) > 1 else None,
    )
    return [heat, lines]


@dataclasses.dataclass(frozen=True)
class Scores:
    """A line of the metric table: fractions in [0, 1] by metric, with a standard deviation where there is one."""

    name: str
    mean: Mapping[str, float]
    std: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])

    @classmethod
    def of(cls, name: str, values: Mapping[str, ArrayLike]) -> Scores:
        """Mean and deviation (ddof 1) of the runs of each metric; NaN where a run has none, and no deviation of one run."""
        runs = {metric: np.asarray(found, dtype=np.float64) for metric, found in values.items()}
        std = {metric: float(found.std(ddof=1)) for metric, found in runs.items() if len(found) > 1}
        return cls(name, {metric: float(found.mean()) for metric, found in runs.items()}, std)


def metric_blocks(
    ours: Sequence[Scores], published: Sequence[Scores], metrics: Mapping[str, str], *, fair: bool, note: str, source: str
) -> list[Block]:
    """Our figures over the paper's, in percent, with the caller's word on whether the comparison is fair.

    Args:
        metrics: name -> heading, in the order of the columns.
        fair: whether data, features and protocol are those of the paper; printed either way.
        note: why; never empty.
        source: the table that the published figures come from.
    """
    if not note.strip():
        raise ValueError("a comparison needs a note that says why it is fair, or why it is not")
    rows: list[Sequence[Value]] = [[one.name, "this run", *_percent(one, metrics)] for one in ours]
    rows += [[one.name, source, *_percent(one, metrics)] for one in published]
    verdict = "Fair comparison" if fair else "No fair comparison"
    return [
        Text([f"{verdict}: {note}"], tone="good" if fair else "note"),
        Table(
            ["method", "from", *metrics.values()], rows, "Metrics in percent, ± one standard deviation over seeds", decimals=1
        ),
    ]


def _percent(scores: Scores, metrics: Iterable[str]) -> list[Value]:
    cells: list[Value] = []
    for name in metrics:
        mean, std = scores.mean.get(name, math.nan), scores.std.get(name, math.nan)
        cells.append(Cell(100 * mean, note="" if math.isnan(std) else f"± {100 * std:.1f}"))
    return cells


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where something came from: its name, address, licence, digest, how it is to be cited, and what it is."""

    name: str
    url: str
    licence: str
    sha256: str = ""
    citation: str = ""
    what: str = ""


def provenance_section(sources: Sequence[Provenance], *, title: str = "Provenance") -> Section:
    """Sources with what is known of them: a column that says nothing of any source is left out."""
    rows = [
        [
            source.name,
            source.what or None,
            Cell(source.url or None, href=source.url),
            source.licence or None,
            _digest(source.sha256),
            source.citation or None,
        ]
        for source in sources
    ]
    headings = ["source", "what it is", "address", "licence", "SHA-256", "cite as"]
    told = [at for at in range(len(headings)) if at == 0 or any(_said(row[at]) for row in rows)]
    return Section(title, [Table([headings[at] for at in told], [[row[at] for at in told] for row in rows])])


def _digest(digest: str) -> Cell:
    """Its first twelve characters, which fit into a table; the whole one comes up under the pointer."""
    return Cell(digest[:12] or None, code=True, title=digest)


def _said(value: Value) -> bool:
    return (value.value if isinstance(value, Cell) else value) is not None
