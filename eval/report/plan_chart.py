"""The stages of a run, as a table and as a chart of the rows that pass from one to the next and the rows rejected."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .blocks import Cell, CellValue, Figure, Section, Table, Text
from .figures import Theme, drawn_figure, short_labels

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes

_WIDE, _HIGH, _STEP = 3.3, 0.62, 0.95
_THICKEST, _THINNEST = 2.4, 0.04
"""Widths of the band between two stages: for the most rows, and for one row."""
_ARROW, _LABEL = 0.45, 2.45
"""Widths of the arrow to the rejects, and of their text."""
_REASONS = 3


@dataclasses.dataclass(frozen=True)
class PlanStage:
    """A stage of a run.

    Attributes:
        name: name of the stage.
        kind: kind of stage.
        step: name of the function that it calls.
        inputs: names of the stages that it reads.
        rows: number of rows out; None if it has not run.
        rejects: reason -> rows.
        rows_in: number of rows in; None for a source.
        seconds: how long it took.
        digest: digest of its output.
        expands: whether it makes several rows of one, so that more rows may go out than came in.
        href: link of its box, on pages of a server: a path of lower-case words; "" for none.
    """

    name: str
    kind: str = ""
    step: str = ""
    inputs: Sequence[str] = ()
    rows: int | None = None
    rejects: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    rows_in: int | None = None
    seconds: float | None = None
    digest: str = ""
    expands: bool = False
    href: str = ""


def pipeline_section(stages: Sequence[PlanStage]) -> Section:
    """Stages with their counts, and a box that says whether these add up (rows in = rows out + rejects)."""
    rows: list[Sequence[CellValue]] = []
    wrong: list[str] = []
    made = [stage for stage in stages if stage.rows is not None]
    for stage in made:
        lost = sum(stage.rejects.values())
        if stage.rows_in is not None and not stage.expands and stage.rows_in != (stage.rows or 0) + lost:
            wrong.append(f"{stage.name}: {stage.rows_in:,} rows in, {stage.rows:,} out, {lost:,} rejected")
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in _ranked(stage))
        digest = short_digest(stage.digest)
        rows.append([stage.name, stage.kind, stage.rows_in, stage.rows, lost, reasons, stage.seconds, digest])
    expanding = [stage.name for stage in made if stage.expands]
    several = f", except where one row becomes several ({', '.join(expanding)})" if expanding else ""
    verdict = (
        Text([f"The counts do not add up in {len(wrong)} stages.", *wrong], tone="bad")
        if wrong
        else Text([f"In every stage, rows in = rows out + rejects{several}."], tone="good")
    )
    columns = ["stage", "kind", "rows in", "rows out", "rejects", "by reason", "seconds", "digest"]
    return Section("Pipeline", [verdict, Table(columns, rows, decimals=1)])


def short_digest(digest: str) -> Cell:
    """The first twelve characters, which fit into a table; the whole digest is shown when hovering."""
    return Cell(digest[:12] or None, code=True, title=digest)


def _ranked(stage: PlanStage) -> list[tuple[str, int]]:
    """Reasons of rejects, most frequent first."""
    return sorted(stage.rejects.items(), key=lambda each: (-each[1], each[0]))


def plan_chart(stages: Sequence[PlanStage], *, caption: str = "") -> Figure:
    """Boxes joined by bands as wide as their numbers of rows; rejects leave to the right, second inputs come in on the left.

    Args:
        stages: in the order of the plan, at least one.
        caption: see ``Figure``.
    """
    tops = {stage.name: at * _STEP for at, stage in enumerate(stages)}
    most = max([stage.rows or 0 for stage in stages] + [1])
    joined = any({*stage.inputs} - {above} for stage, above in zip(stages, ["", *tops], strict=False))
    left = 0.95 if joined else 0.02

    def draw(axes: Axes, theme: Theme) -> None:
        for stage, following in zip(stages, [*stages[1:], None], strict=True):
            top = tops[stage.name]
            if following is not None and stage.name in following.inputs and stage.rows is not None:
                half = max(_THICKEST * stage.rows / most, _THINNEST) / 2
                x, y = [_WIDE / 2 - half, _WIDE / 2 + half], top + _HIGH
                axes.fill_between(x, y, y + _STEP - _HIGH, color=theme.series[0], alpha=0.35, linewidth=0)
            _box(axes, theme, stage, top)
            _second_inputs(axes, theme, stage, stages, tops)
        axes.set_xlim(-left, _WIDE + _ARROW + _LABEL)
        axes.set_ylim(tops[stages[-1].name] + _HIGH + 0.1, -0.1)
        axes.set_axis_off()

    words = [f"{one.name} {'not run yet' if one.rows is None else f'{one.rows:,} rows'}{_lost(one)}" for one in stages]
    table = Table(
        ["stage", "kind", "step", "reads", "rows", "rejected"],
        [[one.name, one.kind, one.step, ", ".join(one.inputs), one.rows, sum(one.rejects.values())] for one in stages],
    )
    size = (0.8 * (left + _WIDE + _ARROW + _LABEL), 0.3 + 0.5 * len(stages))
    figure = drawn_figure(draw, size, f"Stages from top to bottom: {'; '.join(words)}.", caption, table)
    return dataclasses.replace(figure, fits=True)


def _box(axes: Axes, theme: Theme, stage: PlanStage, top: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    made = stage.rows is not None
    frame: Any = {"edgecolor": theme.faint, "linewidth": 0.9, "linestyle": "-" if made else (0, (3, 2))}
    shape = f"round,pad=0,rounding_size={_HIGH / 5}"
    box = FancyBboxPatch((0, top), _WIDE, _HIGH, boxstyle=shape, facecolor=theme.page, **frame)
    box.set_url(stage.href or None)
    axes.add_patch(box)
    axes.text(0.12, top + 0.24, short_labels([stage.name], 22)[0], fontsize=9, weight="bold", va="center")
    axes.text(0.12, top + 0.46, short_labels([stage.kind or "not run yet"], 20)[0], fontsize=7, va="center", color=theme.faint)
    if made:
        axes.text(_WIDE - 0.12, top + 0.24, f"{stage.rows:,}", fontsize=9, ha="right", va="center")
        axes.text(
            _WIDE - 0.12,
            top + 0.46,
            "row" if stage.rows == 1 else "rows",
            fontsize=7,
            ha="right",
            va="center",
            color=theme.faint,
        )
    if stage.rejects:
        text = re.sub(r" (?=\d)", "\N{NO-BREAK SPACE}", _lost(stage).removeprefix(", "))  # a reason stays with its number
        lines = textwrap.wrap(text, 28, break_long_words=False, break_on_hyphens=False)
        lines = lines if len(lines) <= 3 else [*lines[:2], f"{lines[2].removesuffix(', ...')} ..."]
        axes.annotate(
            "\n".join(short_labels(lines, 32)),
            xy=(_WIDE, top + _HIGH / 2),
            xytext=(_WIDE + _ARROW, top + _HIGH / 2),
            fontsize=8,
            linespacing=1.05,
            va="center",
            color=theme.series[1],
            arrowprops={"arrowstyle": "<|-", "color": theme.series[1], "linewidth": 0.9, "shrinkA": 2, "shrinkB": 0},
        )


def _second_inputs(axes: Axes, theme: Theme, stage: PlanStage, stages: Sequence[PlanStage], tops: Mapping[str, float]) -> None:
    """Draw lines on the left from input stages other than the one above."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    at = [one.name for one in stages].index(stage.name)
    above = stages[at - 1].name if at else ""
    for name in stage.inputs:
        if name == above or name not in tops:
            continue
        a, b = tops[name] + _HIGH / 2, tops[stage.name] + _HIGH / 2
        x = -0.25 - 0.12 * min((b - a) / _STEP, 5)
        codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
        axes.add_patch(PathPatch(Path([(0, a), (x, a), (x, b), (0, b)], codes), facecolor="none", edgecolor=theme.series[0]))


def _lost(stage: PlanStage) -> str:
    if not stage.rejects:
        return ""
    ranked = _ranked(stage)
    named = ", ".join(f"{reason} {count:,}" for reason, count in ranked[:_REASONS])
    return f", {sum(stage.rejects.values()):,} rejected: {named}{', ...' if len(ranked) > _REASONS else ''}"
