"""Sections of the two-camera report about trainings, next to the paper's figures where the record of a run allows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...curation.registry import BUILT_IN
from ...datasets.two_camera.facts import STATISTICS, TABLE, facts
from ...datasets.two_camera.rows import TransformPairs
from ...eval.protocols.cross_validation import estimates_of
from ...eval.report.blocks import Block, Cell, CellValue, Details, Section, Table, Text
from ...eval.report.boxes import box_chart
from ...eval.report.trainings import (
    SPREAD,
    Column,
    PublishedRow,
    comparable,
    lines_table,
    own_metrics,
    settings_details,
    whole_columns,
)
from ...eval.results import Line
from ...training.illuminants.registry import ESTIMATORS
from ..report import ReportedRun
from ..training_results import skipped_trainings
from .baselines import LINEAR
from .config import LitPictures, TwoCameraConfig
from .network_costs import cost_blocks
from .paper import (
    SHOWN,
    augmentation_of,
    data_differs,
    digest_notes,
    learns,
    other_augmentation,
    other_training,
    paper_name,
    row_of,
    warnings_of,
    why_not_the_papers,
)
from .views import COMPARED, Pictures, all_errors, corrected_section, errors_of

_ON_LEARNED = (
    "Methods that learn from pictures are fitted to the training pictures and their illuminants, as the networks are; they see "
    "pictures, and the networks the nine numbers of T. The chromagenic methods, which are not in the paper, can "
    "only return illuminants of training pictures."
)


_SAME = {"s20": "illuminants, transforms and folds of the release (162 pairs; the paper says 156), and settings of the paper"}


def kind_of(line: Line) -> str:
    """What a method learns from, or where it comes from, in words."""
    if line.model in ("network", "distilled"):
        return "network on T"
    if line.model == LINEAR:
        return "regression on T"
    if ":" in line.model:
        return "user-defined"
    origin = {entry.name: entry.origin for entry in ESTIMATORS.entries()}.get(line.model, "a package that is not installed")
    if origin != BUILT_IN:
        return f"of {origin}"
    return "learned" if learns(line) else "statistics"


def beside_the_paper(config: TwoCameraConfig, run: ReportedRun, found: Sequence[Line]) -> list[Block]:
    """Results of the run; below them the published table, and both side by side for trainings that match the paper's."""
    columns: dict[str, Column[Line]] = {
        **_comparable(found),
        "kind": kind_of,
        **whole_columns(dict(zip(STATISTICS, SHOWN, strict=True))),
    }
    same = _SAME.get(config.compare_with or "", "illuminants, transforms, folds and settings of the paper")
    same += ", by the digests in the settings" if config.published else ""
    fair, verdict = comparable(
        found, data_differs(config, run.made), lambda line: why_not_the_papers(config, line, run.made), same
    )
    rows: list[PublishedRow] = []
    beside: list[Sequence[CellValue]] = []
    if config.compare_with is not None and fair:
        name, table = TABLE[config.compare_with], facts().tables[config.compare_with]
        rows = [
            PublishedRow(row, f"{name} of the paper", dict(zip(STATISTICS, each, strict=True))) for row, each in table.items()
        ]
        pairs = [(line.label, float(np.nanmean(line.values(SHOWN[0]))), table[paper_name(line)][0]) for line in fair]
        beside = [[label, ours, paper, ours - paper] for label, ours, paper in pairs]
    caption = f"This run: angular errors in degrees, means over folds, {SPREAD} over seeds"
    columns_beside = ["method", "ours, mean", "paper, mean", "difference"]
    return [
        lines_table(found, columns, caption, times=1, decimals=2, published=rows),
        verdict,
        *digest_notes(config, run.made),
        *([Table(columns_beside, beside, "Side by side", decimals=2), _not_here(config, found)] if beside else []),
        *_of_other_pictures(config, found),
        *_with_and_without(config, run, found),
        *([Text([_ON_LEARNED])] if any(map(learns, found)) else []),
    ]


def _of_other_pictures(config: TwoCameraConfig, found: Sequence[Line]) -> list[Block]:
    """The paper's rows for the methods of this run, separately, if its pictures are the paper's at another size."""
    if not isinstance(config.source, LitPictures) or config.compare_with is None:
        return []
    table = facts().tables[config.compare_with]
    names = [name for name in dict.fromkeys(map(paper_name, found)) if name in table]
    text = (
        f"Results on the same dataset at full size; ours differ: {data_differs(config, {})}. They indicate only the magnitude "
        "of the errors, and are not a target."
    )
    rows: list[Sequence[CellValue]] = [[name, *table[name]] for name in names]
    title = f"{TABLE[config.compare_with]} of the paper, for other pictures"
    return [Details(title, [Text([text]), Table(["row", *STATISTICS], rows, decimals=2)])] if rows else []


def _comparable(found: Sequence[Line]) -> dict[str, Column[Line]]:
    """The column that marks lines that are not fair; empty if all are."""
    if not any(map(warnings_of, found)):
        return {}
    return {"comparable": lambda line: Cell("no", tone="bad") if warnings_of(line) else "yes"}


def _not_here(config: TwoCameraConfig, found: Sequence[Line]) -> Details:
    """The published rows that no line of this run matches, and why."""
    ours = {paper_name(line) for line in found}
    on_transforms = {*(f"ours-{count}" for count in facts().network.parameters), row_of(LINEAR)}
    rows: list[Sequence[CellValue]] = []
    for row in facts().tables[config.compare_with or "s20"]:
        why = "not among this run's methods"
        if not config.pictured and row not in on_transforms:
            why = "needs pictures, and this run has none"
        if row not in ours:
            rows.append([row, facts().not_run.get(row, why)])
    return Details("Rows of the paper's table that this run does not have", [Table(["row", "why"], rows)])


def _with_and_without(config: TwoCameraConfig, run: ReportedRun, found: Sequence[Line]) -> list[Block]:
    """Networks without and with re-illuminated rows, if the run has both, in the form of Table 4."""
    kinds = {line.label: augmentation_of(config, line) for line in found if line.model == "network"}
    if "none" not in kinds.values() or len({*kinds.values()}) < 2:
        return []
    lines = [line for line in found if line.label in kinds]
    columns: dict[str, Column[Line]] = {
        "re-illuminated rows": lambda line: kinds[line.label],
        **_comparable(lines),
        **whole_columns(dict(zip(STATISTICS[:4], SHOWN, strict=False))),
    }
    papers = facts().augmented.get(config.compare_with or "", {})
    data = data_differs(config, run.made)

    def why(line: Line) -> str:
        if line.settings["direction"] != "1to2" or line.settings.get("estimator.parameters") != facts().network.parameters[0]:
            return f"Table 4 is for {facts().network.parameters[0]} parameters and direction 1to2"
        other = "" if kinds[line.label] == "none" else other_augmentation(config, line, run.made)
        return other or other_training(config, line.settings)

    fair, _ = comparable(lines, data, why, "")
    rows = [
        PublishedRow(
            "without" if kind == "none" else "with", "Table 4 of the paper", dict(zip(STATISTICS, numbers, strict=False))
        )
        for kind, numbers in (("none", papers.get("without")), ("of pictures", papers.get("with")))
        if numbers is not None and kind in {kinds[line.label] for line in fair}
    ]
    caption = "Without and with re-illuminated training rows: angular errors in degrees, means over folds"
    return [lines_table(lines, columns, caption, times=1, decimals=2, published=rows)]


def results_sections(config: TwoCameraConfig, run: ReportedRun, pictures: Pictures, pairs: TransformPairs) -> list[Section]:
    skipped = [[name, why] for name, why in skipped_trainings(run.out).items()]
    left_out: list[Block] = (
        [Table(["method", "why"], skipped, "Skipped methods: they cannot be fitted to this data")] if skipped else []
    )
    if not run.lines:
        return [Section("Results", left_out)] if left_out else []
    found = sorted(run.lines, key=lambda line: np.nanmean(line.values(SHOWN[0])))
    blocks = [
        *beside_the_paper(config, run, found),
        *left_out,
        *own_metrics(found),
        *cost_blocks(found),
        *settings_details(found),
    ]
    if warnings := sorted({warning for line in found for warning in warnings_of(line)}):
        blocks.append(Text([f"Not comparable with the other rows: {warning}." for warning in warnings], tone="note"))
    estimates = {line.label: estimates_of(run.predicted(line)) for line in found}
    chart = box_chart(
        {name: all_errors(mine) for name, mine in estimates.items()},
        group_axis="method",
        value_axis="angular error, degrees",
        caption="Errors of every method over all tested pairs: median and quartiles, whiskers from the 5th to the 95th "
        "percentile, and the mean as a dot; for networks with several seeds, the errors of all seeds.",
    )
    sections = [Section("Results", blocks), Section("Errors", [chart])]
    if pictures.there:
        chosen = _compared(found)
        first = chosen[0].settings["direction"] == "1to2"
        sections.append(
            corrected_section({line.label: errors_of(estimates[line.label]) for line in chosen}, first, pictures, pairs)
        )
    return sections


def _compared(found: Sequence[Line]) -> list[Line]:
    """The methods whose corrections are shown: the best of each kind, then the next best; only fair ones if there are any."""
    fair = [line for line in found if not warnings_of(line)] or [*found]
    mine = [line for line in fair if line.settings["direction"] == fair[0].settings["direction"]]
    best = {kind_of(line).partition(",")[0]: line for line in reversed(mine)}
    ranked = sorted(mine, key=lambda line: line is not best[kind_of(line).partition(",")[0]])[:COMPARED]
    return sorted(ranked, key=mine.index)
