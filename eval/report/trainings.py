"""Blocks about trainings: metrics, next to a paper's where comparable; curves and matrices over positions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from ..labels import LabelledSettings, differences, shortened, unnamed
from ..metrics.order_sensitivity import mean_and_deviation
from ..results import Line
from .blocks import Block, Cell, CellValue, Details, Figure, Heat, Heats, Switch, Table, Text
from .figures import common_scale, line_chart
from .sections import without_empty_columns

CURVES = 12
"""Most curves in a figure: enough for every method of the six papers, each trained with one setting."""

MOST_CURVES = 8
"""Most curves in a figure where each has a band."""


class HasLabel(Protocol):
    """A row of a table: a line, or several that are shown as one."""

    @property
    def label(self) -> str: ...


R = TypeVar("R", bound=HasLabel)
Column = Callable[[R], Any]
"""Content of a column for a row: the values of its runs as an array, or the value of the cell."""


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table.

    Attributes:
        name: name of the row in that table.
        source: which table.
        values: heading -> value, in the unit of our table.
        under: label of our row below which it is shown; at the end of the table if that row is not shown.
    """

    name: str
    source: str
    values: Mapping[str, CellValue]
    under: str = ""


SPREAD = "± one standard deviation"
"""What ``spread_cell`` shows after the mean, for captions."""


def spread_cell(values: ArrayLike, *, times: float = 100, decimals: int = 1, ddof: int = 1) -> Cell:
    """Mean of the runs that have a value, and ± one standard deviation (divided by n - ``ddof``) if there are several."""
    runs = times * np.asarray(values, dtype=np.float64).ravel()
    if np.isnan(runs).all():
        return Cell(None)
    mean, deviation = mean_and_deviation(runs, ddof=ddof)
    return Cell(float(mean), note="" if np.isnan(deviation) else f"± {deviation:.{decimals}f}")


def lines_table(
    lines: Iterable[R],
    columns: Mapping[str, Column[R]],
    caption: str,
    *,
    times: float = 100,
    decimals: int = 1,
    ddof: int = 1,
    published: Sequence[PublishedRow] = (),
) -> Table:
    """A row per line, with published rows below their line or at the end; columns without any value are left out.

    Args:
        lines: one row each.
        columns: heading -> ``Column``. Arrays are shown as ``spread_cell``.
        caption: caption, including the unit.
        times, decimals, ddof: see ``spread_cell``.
        published: rows of the paper.
    """

    def cell(found: Any) -> CellValue:
        if not isinstance(found, np.ndarray):
            return found
        return spread_cell(found, times=times, decimals=decimals, ddof=ddof)

    def of_paper(one: PublishedRow) -> Sequence[CellValue]:
        return [one.name, one.source, *(one.values.get(name) for name in columns)]

    first: list[CellValue] = ["this run"] if published else [None]
    rows: list[Sequence[CellValue]] = []
    left = list(published)
    for line in lines:
        rows.append([line.label, *first, *(cell(column(line)) for column in columns.values())])
        rows += [of_paper(one) for one in left if one.under == line.label]
        left = [one for one in left if one.under != line.label]
    rows += [of_paper(one) for one in left]
    return without_empty_columns(Table(["method", "from", *columns], rows, caption, decimals=decimals))


def whole_columns(
    metrics: Mapping[str, str], split: Callable[[Line], str | None] = lambda line: None
) -> dict[str, Column[Line]]:
    """Columns of whole trainings: heading -> ``metric`` or ``metric@split``."""

    def column(metric: str, of: str) -> Column[Line]:
        return lambda line: line.values(metric, split=of or split(line))

    return {heading: column(metric, of) for heading, (metric, _, of) in ((h, m.partition("@")) for h, m in metrics.items())}


def metric_blocks(
    lines: Sequence[Line], metrics: Mapping[str, str], caption: str = "", *, published: Sequence[PublishedRow] = ()
) -> list[Block]:
    """Results of whole trainings of one protocol: the chosen metrics, further metrics, and settings in which lines differ.

    Args:
        lines: lines of one protocol.
        metrics: heading -> ``metric`` or ``metric@split``. Names that end in ``_deg`` are in degrees, others are shares.
        caption: text before the unit.
        published: see ``lines_table``.
    """
    degrees = any(name.partition("@")[0].endswith("_deg") for name in metrics.values())
    unit = f"{'degrees' if degrees else 'percent'}, {SPREAD}"
    table = lines_table(
        lines,
        whole_columns(metrics),
        f"{caption}: {unit}" if caption else f"In {unit}",
        times=1 if degrees else 100,
        decimals=2 if degrees else 1,
        published=published,
    )
    return [*([table] if metrics else []), *own_metrics(lines, but=[*metrics.values()]), *settings_details(lines)]


def own_metrics(lines: Sequence[Line], *, but: Collection[str] = ()) -> list[Block]:
    """Metrics added by the settings to the benchmark's: those without a split, ``but`` for some that are shown elsewhere."""
    parts = [line.rows.filter(pc.and_(pc.is_null(line.rows["position"]), pc.equal(line.rows["split"], ""))) for line in lines]
    names = dict.fromkeys(name for part in parts for name in part["metric"].to_pylist() if name not in but)
    columns = whole_columns({name: name for name in names})
    return (
        [lines_table(lines, columns, "Your own metrics as they are, not in percent; mean over runs", times=1, decimals=4)]
        if names
        else []
    )


def settings_details(lines: Sequence[Line]) -> list[Block]:
    """The settings, including the model, in which lines of a table or figure differ: as text those that no label shows, and
    below them a table of all. Empty if there is none."""
    told = [line.labelled for line in lines]
    return [*settings_text(told), *_settings_table({label: settings for label, _, settings in told})]


def settings_text(lines: Sequence[LabelledSettings], what: str = "rows") -> list[Block]:
    """The settings in which lines of a table or figure differ and that their labels do not show; empty if there is none."""
    apart = {label: settings for (label, _, _), settings in zip(lines, unnamed(lines), strict=True)}
    texts = [f"{name}: {'; '.join(settings)}" for name, settings in differences(apart).items()]
    return [Text([f"Other differences between the {what}:", *texts])] if texts else []


def _settings_table(of: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    names = dict.fromkeys(name for settings in of.values() for name in settings)
    told = {name: [_said(settings.get(name)) for settings in of.values()] for name in names}
    rows: list[Sequence[CellValue]] = [[name, *shortened(those)] for name, those in told.items() if len({*those}) > 1]
    return [Details("Settings in which the rows differ", [Table(["setting", *of], rows)])] if rows else []


def _said(value: Any) -> str:
    return "–" if value is None or value == {} else str(value)


# -------------------------------------------------------------------------------------------------- beside a paper's


def record_differences(found: Mapping[str, Any], wanted: Mapping[str, Any], place: str = "") -> list[str]:
    """Differences between a record and a paper's: ``place.name is 1, but 2 in the paper``."""
    return [
        f"{place}{name} is {found.get(name)}, but {value} in the paper"
        for name, value in wanted.items()
        if found.get(name) != value
    ]


def changed_settings(line: Line, papers: Iterable[Mapping[str, Any]], *, apart: Sequence[str] = ()) -> list[str]:
    """Names of the recorded settings of a training that differ from a paper's; of several variants, from the closest.

    Args:
        line: line of the table of results.
        papers: settings by dotted name, one for each variant.
        apart: settings to ignore, since they are checked elsewhere or do not matter.
    """
    found = line.settings
    changed = [
        [name for name in {**paper, **found} if name not in paper or name not in found or found[name] != paper[name]]
        for paper in papers
    ]
    return min(([name for name in names if name not in apart] for names in changed), key=len)


def changes_text(line: Line, papers: Iterable[Mapping[str, Any]], *, apart: Sequence[str] = ()) -> str:
    """The settings in which a training differs from a paper's, as a reason; "" if there is none. See ``changed_settings``."""
    changed = changed_settings(line, papers, apart=apart)
    return f"settings of the paper were changed: {', '.join(changed)}" if changed else ""


def comparable(lines: Sequence[R], data: str, why: Callable[[R], str], same: str) -> tuple[list[R], Text]:
    """The lines that are comparable with a paper's figures, by their records, and the verdict for the report.

    Args:
        lines: lines of one protocol.
        data: why the run's data differ from the paper's, by the records of its stages; "" if they do not.
        why: why a training differs from the paper's, by its own record; "" if it does not.
        same: what comparable lines have in common with the paper.
    """
    reasons = [data or why(line) for line in lines]
    fair = [line for line, reason in zip(lines, reasons, strict=True) if not reason]
    if not fair:
        text = "; ".join(dict.fromkeys(reasons))
        return fair, Text([f"Not a fair comparison: {text}; the paper's figures are not shown."], tone="note")
    others = "".join(f" Not for {line.label}: {reason}." for line, reason in zip(lines, reasons, strict=True) if reason)
    return fair, Text([f"Fair comparison: {same}.{others}"], tone="good")


def digests_to_state(known: str, digests: Mapping[str, str], figures: str = "the paper's figures are") -> Text:
    """How to state that the data of a run are a paper's, which only its user can know.

    Args:
        known: what the user has to know.
        digests: setting -> digest of this run to state there.
        figures: what is then shown, with its verb.

    >>> digests_to_state("this is the authors' archive", {"source.published.dataset": "3f2a"}).paragraphs[1]
    '--set source.published.dataset=3f2a'
    """
    text = (
        f"If you know that {known}, run it again with the settings below, which state digests and recompute nothing: {figures} "
        "then shown next to your results, on the strength of your settings."
    )
    return Text([text, *(f"--set {name}={digest}" for name, digest in digests.items())], tone="note")


# ---------------------------------------------------------------------------------------------------- over positions


def position_curves(
    lines: Sequence[Line],
    metric: str,
    names: Callable[[Line], Sequence[str]],
    *,
    value_axis: str,
    caption: str,
    split: Callable[[Line], str | None] = lambda line: None,
    same: bool = False,
    stratum: str = "",
    ends: bool = False,
) -> list[Block]:
    """A metric over everything tested after each task, mean over runs; lines with a single task are left out, see ``ends``.

    Args:
        lines: lines of one protocol.
        metric: see ``Line.matrix``.
        names: the tasks of a line; runs may have fewer.
        value_axis, caption: see ``line_chart``.
        split: the split of a line.
        same: whether to plot only the task just learned (R_jj).
        stratum: see ``Line.select``.
        ends: whether lines with a single task, such as joint training, are a point at the last task of the others.
    """

    def values_of(line: Line) -> NDArray[np.float64]:
        if same:
            return np.diagonal(line.matrix(metric, names(line), split=split(line)), axis1=1, axis2=2)
        return line.matrix(metric, [""], split=split(line), stratum=stratum)[:, :, 0]

    lengths = [len(names(line)) for line in lines]
    shown = [line for line, length in zip(lines, lengths, strict=True) if length > 1 or (ends and max(lengths) > 1)]
    figures: dict[str, Block] = {}
    for start in range(0, len(shown), CURVES):
        some = shown[start : start + CURVES]
        places = max(map(names, shown), key=len)
        values: dict[str, NDArray[np.float64]] = {}
        for line in some:
            runs = values_of(line)
            lacking = len(places) - runs.shape[1]
            width = (lacking, 0) if runs.shape[1] == 1 else (0, lacking)
            values[line.label] = np.pad(runs, ((0, 0), width), constant_values=math.nan)
        figures[f"{start + 1} to {start + len(some)}"] = _curves(places, values, "task", value_axis, caption)
    return switch("methods", figures)


def _curves(
    places: Sequence[str],
    values: Mapping[str, NDArray[np.float64]],
    axis: str,
    value: str,
    caption: str,
    *,
    limits: tuple[float, float] | None = None,
) -> Figure:
    found = {name: mean_and_deviation(runs) for name, runs in values.items()}
    several = {name: deviation for name, (_, deviation) in found.items() if len(values[name]) > 1}
    return line_chart(
        places,
        {name: mean for name, (mean, _) in found.items()},
        label_axis=axis,
        value_axis=value,
        shares=True,
        caption=f"{caption}; band: one standard deviation over runs." if several else f"{caption}.",
        spread=several,
        limits=limits,
    )


def _diagonals(runs: NDArray[np.float64], of: str) -> dict[str, NDArray[np.float64]]:
    """(S, N) accuracies on the same and on the next domain, where any was tested."""
    curves = {
        f"tested on the same {of}": np.diagonal(runs, axis1=1, axis2=2),
        f"tested on the next {of}": np.pad(np.diagonal(runs, 1, 1, 2), ((0, 0), (0, 1)), constant_values=math.nan),
    }
    return {name: curve for name, curve in curves.items() if not np.isnan(curve).all()}


def method_curves(lines: Mapping[str, ArrayLike], names: Sequence[str], *, of: str) -> list[Block]:
    """Accuracy after each domain on that domain, and on the next one, a curve per line; all figures have the same scale.

    Args:
        lines: label -> (S, N, N) accuracies in [0, 1] of S runs, NaN where not tested.
        names: names of the N domains.
        of: what the domains are.
    """
    tested: dict[str, dict[str, NDArray[np.float64]]] = {}
    for label, runs in lines.items():
        for name, curve in _diagonals(np.asarray(runs, dtype=np.float64), of).items():
            tested.setdefault(name, {})[label] = curve
    if len(names) < 2 or not tested:
        return []
    known = [mean_and_deviation(runs) for curves in tested.values() for runs in curves.values()]
    ends = [mean + way * np.nan_to_num(deviation) for mean, deviation in known for way in (-1, 1)]
    low, high = (100 * min(max(end, 0.0), 1.0) for end in common_scale(ends))
    blocks: list[Block] = []
    for name, curves in sorted(tested.items(), key=lambda each: each[0] != f"tested on the same {of}"):
        figures: dict[str, Block] = {}
        start = 1
        for some in np.array_split([*curves], math.ceil(len(curves) / MOST_CURVES)):
            told = {label: curves[label] for label in some.tolist()}
            caption = f"Accuracy after each {of}, {name}"
            shown = _curves(names, told, f"trained up to {of}", "accuracy", caption, limits=(low - 1, high + 1))
            figures[f"{start} to {start + len(some) - 1}"] = shown
            start += len(some)
        blocks += switch("methods", figures)
    return blocks


def position_heats(
    matrices: Mapping[str, tuple[Sequence[str], ArrayLike]],
    *,
    of: str,
    what: str = "accuracy",
    scale: tuple[float, float] | None = None,
) -> list[Heats | Text]:
    """Matrices of what was tested after each domain, mean over runs, with one colour scale; a page holds hundreds of them.

    Args:
        matrices: label of a line -> names of N domains, and (S, N, N) values in [0, 1] of S runs, NaN where not tested.
        of: what the domains are: "task", "bucket".
        what: what is measured.
        scale: see ``percent_heats``.
    """
    heats: list[Heat] = []
    untested: list[str] = []  # such as single domains, where only the next one is tested
    for label, (names, values) in matrices.items():
        runs = np.asarray(values, dtype=np.float64)
        mean = runs.mean(0)
        if np.isnan(mean).all():
            untested.append(label)
            continue
        title = f"{label}: {'1 run' if len(runs) == 1 else f'mean of {len(runs)} runs'}"
        heats.append(Heat(title, names, names, mean.tolist(), framed=not np.isnan(np.diagonal(mean)).all()))
    blocks: list[Heats | Text] = []
    if heats:
        axes = f"trained up to {of}", f"tested on {of}"
        blocks.append(percent_heats(heats, *axes, unit=f"{what} in percent", scale=scale))
    if untested:
        blocks.append(Text([f"{', '.join(untested)}: not tested on a later {of}, since there is none."]))
    return blocks


def percent_heats(
    heats: Sequence[Heat], row_axis: str, column_axis: str, *, unit: str, scale: tuple[float, float] | None = None
) -> Heats:
    """Matrices of shares, printed in percent, with one colour scale.

    Args:
        heats: matrices of values in [0, 1].
        row_axis, column_axis, unit: see ``Heats``.
        scale: values of the palest and the deepest colour, see ``common_scale``; None: that of these matrices.
    """
    pale, deep = common_scale([heat.values for heat in heats]) if scale is None else scale
    percent = [dataclasses.replace(heat, values=(100 * np.asarray(heat.values)).tolist()) for heat in heats]
    return Heats(percent, (100 * pale, 100 * deep), row_axis, column_axis, unit)


def switch(title: str, options: Mapping[str, Block]) -> list[Block]:
    """A switch between blocks, such as those of several methods; a single block is shown without a switch."""
    return [Switch(title, [*options.items()])] if len(options) > 1 else [*options.values()]
