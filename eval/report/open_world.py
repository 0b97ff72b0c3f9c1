"""Figures and sections of an open-world report, from the tidy table of ``protocols.open_world.measures.tidy``.

The paper's Figures 7 to 11 (Prijatelj et al., JAIR 81, 2024) plot a measure over the increments: before feedback at t, after
it at t + 0.5, with a curve per predictor and feedback amount. Novelty detection, recognition and reaction time are measured
only before feedback. Figure 3 plots how many samples the classes of an increment have. The ablations (Figure 12) show the
classification task by strata of the samples, cumulative from increment 0, after feedback.

The table's column ``predictor`` distinguishes trainings with the same amount of feedback. Drawing functions return None if the
table lacks the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ..protocols.open_world.measures import TEST_SET
from .blocks import Block, Details, Figure, Section, Table, Text
from .figures import line_chart, rank_chart

MEASURES: Mapping[str, str] = {
    "mcc": "Matthews correlation",
    "top1_accuracy": "top-1 accuracy",
    "top5_accuracy": "top-5 accuracy",
    "nmi_arithmetic": "normalised mutual information",
}
"""Measures that are plotted, with their axis labels."""
_SHORT = {"mcc": "MCC", "top1_accuracy": "top-1", "top5_accuracy": "top-5", "nmi_arithmetic": "NMI"}
REACTION = "reaction_time.last_sample.any"
_TASKS = {"none": "unmapped classes", "detection": "novelty detection", "recognition": "novelty recognition"}
_SPLITS = (TEST_SET, "test", "validate", "train")
_INCREMENT = "increment"
MOST_CURVES = 8


def density_figure(density: pa.Table, *, role: str = "train", novel: bool | None = None, caption: str = "") -> Figure | None:
    """Number of samples of the classes of each increment, most frequent class first (Figure 3).

    Args:
        density: ``increment``, ``role``, ``label``, ``samples``, ``novel``, as from ``datasets.kowl.tables.class_density``.
        role: "train", "val" or "test".
        novel: only classes that are new in the increment (True), or known before it (False); None: all.
    """
    frame = pl.DataFrame(pl.from_arrow(density)).filter(pl.col("role") == role)
    if novel is not None:
        frame = frame.filter(pl.col("novel") == novel)
    groups = {
        str(increment): mine["samples"].to_numpy()
        for (increment,), mine in frame.sort(_INCREMENT).partition_by(_INCREMENT, as_dict=True, maintain_order=True).items()
    }
    if not groups:
        return None
    which = {None: "classes", True: "new classes", False: "known classes"}[novel]
    return rank_chart(
        groups, rank_axis=f"{which}, most frequent first", value_axis="samples", group_axis=_INCREMENT, caption=caption
    )


def split_said(split: str) -> str:
    """A split in words, for captions.

    >>> split_said("test_set"), split_said("test")
    ('test set', 'test samples')
    """
    return "test set" if split == TEST_SET else f"{split} samples"


@dataclasses.dataclass(frozen=True)
class Shown:
    """Which rows of the tidy table are plotted.

    Attributes:
        task: "classification", "detection", "recognition" or "none".
        split: a split of the table.
        phases: "pre", "post" or both.
        cumulative: whether values are sums over this increment and the earlier ones, from increment 1 on.
        from_start: whether these sums include increment 0, as in the paper's Figure 12.
        novel_to: "predictor" or "evaluator"; ignored for the task "none".
    """

    task: str
    split: str
    phases: Sequence[str] = ("pre", "post")
    cumulative: bool = False
    from_start: bool = False
    novel_to: str = "predictor"

    def rows(self, frame: pl.DataFrame, measure: str) -> pl.DataFrame:
        """The rows of ``frame`` that hold a value of ``measure``."""
        return frame.filter(
            pl.col("measure") == measure,
            pl.col("task") == self.task,
            pl.col("split") == self.split,
            pl.col("cumulative") == self.cumulative,
            pl.col("from_start") == self.from_start,
            pl.col("phase").is_in(list(self.phases)),
            pl.col("novel_to") == ("" if self.task == "none" else self.novel_to),
            pl.col("value").is_not_null(),
        )

    def said(self, measure: str) -> str:
        """The selection in words, for captions."""
        task = [] if measure.startswith("reaction_time.") else [_TASKS.get(self.task, self.task)]
        novel = [] if self.task == "none" else [f"novel to the {self.novel_to}"]
        return ", ".join([capital(_said(measure)), *task, split_said(self.split), *novel, *self._summed()])

    def _summed(self) -> list[str]:
        return ["cumulative from increment 0" if self.from_start else "cumulative"] if self.cumulative else []


def measure_figure(
    tidy: pa.Table, measure: str, shown: Shown, *, feedback: float | None = None, predictor: str | None = None
) -> Figure | None:
    """A measure over the increments: one curve per predictor at one feedback amount, or one per amount of one predictor."""
    amounts, predictors = ({name: pl.col(c) == name for name in _names(tidy, c)} for c in ("feedback", "predictor"))
    if feedback is not None:
        same, of = pl.col("feedback") == feedback, f"feedback {feedback:g}"
        curves = {str(name): same & which for name, which in predictors.items()}
    else:
        same, of = pl.col("predictor") == predictor, str(predictor)
        curves = {f"feedback {amount:g}": same & which for amount, which in amounts.items()}
    return measure_curves(tidy, measure, shown, curves, of=of)


def measure_curves(tidy: pa.Table, measure: str, shown: Shown, curves: Mapping[str, pl.Expr], *, of: str) -> Figure | None:
    """A measure over the increments: hollow points before feedback, at t, and filled points after it, at t + 0.5.

    Args:
        tidy: columns of ``open_world.measures.COLUMNS``, with the rows of all samples or of one stratification.
        measure: a measure of the table.
        shown: the rows to plot.
        curves: name -> Polars expression for the rows of the curve; at most eight.
        of: what all curves have in common, for the legend and the caption.

    Raises:
        ValueError: more than eight curves, or two values for one point, so that the curves do not separate runs.
    """
    frame = shown.rows(pl.DataFrame(pl.from_arrow(tidy)), measure)
    places = frame.select("at", "phase").unique().sort("at")
    drawn: dict[str, np.ndarray] = {}
    for name, which in curves.items():
        mine = frame.filter(which)
        if mine["at"].is_duplicated().any():
            at = mine.filter(mine["at"].is_duplicated())["at"][0]
            rule = "give the runs different names, for example in `predictor`"
            raise ValueError(f"curve {name!r} has more than one {measure} at {at}: {rule}")
        drawn[name] = places.join(mine.select("at", "value"), on="at", how="left", maintain_order="left")["value"].to_numpy()
    if all(np.isnan(curve).all() for curve in drawn.values()):
        return None
    hollow = (places["phase"] == "pre").to_numpy()
    how = (
        "Hollow: before feedback; full: after it." if len(shown.phases) > 1 else f"Measured {_when(shown.phases[0])} feedback."
    )
    return line_chart(
        places["at"].to_numpy(),
        drawn,
        label_axis="increment",
        value_axis=_said(measure),
        hollow=hollow if len(shown.phases) > 1 else None,
        limits=_limits(list(drawn.values())),
        legend_title=of,
        caption=f"{shown.said(measure)}, {of}. {how}",
    )


def open_world_sections(tidy: pa.Table) -> list[Section]:
    """Sections of a report: classification, novelty detection, recognition, reaction time, and the sums at the end.

    Plotted is the first split of test_set, test, validate and train that the table has.

    Args:
        tidy: see ``measure_curves``.

    Raises:
        ValueError: a table without rows or without a column ``predictor``.
    """
    if "predictor" not in tidy.column_names or not tidy.num_rows:
        raise ValueError(f"expected a tidy table with rows and a column 'predictor': {tidy.num_rows} of {tidy.column_names}")
    there = _names(tidy, "split")
    chosen = next(name for name in _SPLITS if name in there)
    chapters: list[Section] = []
    for title, task, phases, measures, about in _CHAPTERS:
        if blocks := _task_blocks(tidy, measures, Shown(task, chosen, phases)):
            blocks += _training_panels(tidy, measures, Shown(task, "train", phases)) if chosen != "train" else []
            chapters.append(Section(title, [Text([about]), *blocks]))
    return [*chapters, *_reaction_section(tidy, chosen), _last_section(tidy, chosen)]


def _training_panels(tidy: pa.Table, measures: Sequence[str], shown: Shown) -> list[Block]:
    """The same figures for training samples, which are predicted before they are learned: the paper's other panels."""
    found = [figure for measure in measures for figure in _both_ways(tidy, measure, shown)]
    return [Details("Training samples", found)] if found else []


_ABOUT_CLASSIFICATION = (
    "All classes without feedback so far count as one class, unknown. Before feedback, the predictor sees an increment's "
    "samples without labels; after feedback, it sees the same samples, having been trained on the labels that it received. "
    "The test set is the test samples, from increment 1 on together with the validation samples."
)
_ABOUT_RAW = (
    "Classes are compared without any mapping: the prediction for a sample of a class without feedback so far is always wrong. "
    "Half steps are after feedback."
)
_ABOUT_DETECTION = "Two classes: known to the predictor, or not. Only before feedback, since feedback reveals what is new."
_ABOUT_RECOGNITION = (
    "All known classes count as one; new classes, and the clusters that a predictor assigns to them, remain separate. Only "
    "before feedback."
)
_ABOUT_REACTION = (
    "How late the first novel sample of an increment is detected: 0 is immediately, 1 is never. It is the harmonic mean of the "
    "share of samples and the share of novel samples that came before, and so depends on the order of the samples: in the test "
    "set, validation samples come before test samples (the paper does not say). A sample is "
    "novel if its class is in no earlier training split. A predictor that calls everything unknown reacts immediately: compare "
    "with novelty detection."
)


def density_section(density: pa.Table) -> Section:
    """Figure 3 for every role, with all classes and with new ones; see ``density_figure``."""
    blocks: list[Block] = []
    for role in ("train", "val", "test"):
        captions = ((None, f"Samples of {role} by class; all classes."), (True, f"Samples of {role} by class; new classes."))
        drawn = [density_figure(density, role=role, novel=novel, caption=caption) for novel, caption in captions]
        found = [figure for figure in drawn if figure is not None]
        opened = found[:1] if role == "train" else []
        rest = found[len(opened) :]
        blocks += [*opened, *([Details("New classes of train" if opened else f"Samples of {role}", rest)] if rest else [])]
    about = "Samples of each class in every increment, the most frequent class first."
    return Section("Class density", [Text([about]), *blocks])


_CHAPTERS = (
    ("Classification", "classification", ("pre", "post"), tuple(MEASURES), _ABOUT_CLASSIFICATION),
    ("Unmapped classes", "none", ("pre", "post"), ("mcc", "top1_accuracy", "nmi_arithmetic"), _ABOUT_RAW),
    ("Novelty detection", "detection", ("pre",), ("mcc", "top1_accuracy", "nmi_arithmetic"), _ABOUT_DETECTION),
    ("Novelty recognition", "recognition", ("pre",), ("nmi_arithmetic", "mcc"), _ABOUT_RECOGNITION),
)


def _task_blocks(tidy: pa.Table, measures: Sequence[str], shown: Shown) -> list[Block]:
    """The first measure visible; its cumulative sums, where they are drawn, and the other measures in closed details."""
    blocks: list[Block] = list(_both_ways(tidy, measures[0], shown))
    if blocks and "post" in shown.phases:
        summed = _both_ways(tidy, measures[0], dataclasses.replace(shown, cumulative=True))
        blocks += [Details(f"{capital(_said(measures[0]))}, cumulative", summed)] if summed else []
    for measure in measures[1:]:
        found = _both_ways(tidy, measure, shown)
        blocks += [Details(capital(_said(measure)), found)] if found else []
    return blocks


def _both_ways(tidy: pa.Table, measure: str, shown: Shown) -> list[Figure]:
    """All predictors and feedback amounts in one figure, as in the paper, if that is at most ``MOST_CURVES`` curves.

    Else figures by predictor, highest feedback first, and by feedback; only one of the two if the other has single curves; each
    with at most ``MOST_CURVES`` curves.
    """
    predictors, amounts = _names(tidy, "predictor"), _names(tidy, "feedback")
    figures: list[Figure | None] = []
    runs = _runs(pl.DataFrame(pl.from_arrow(tidy)))
    if len(predictors) > 1 and len(amounts) > 1 and len(runs) <= MOST_CURVES:
        figures = [measure_curves(tidy, measure, shown, runs, of="by feedback and predictor")]
        return [figure for figure in figures if figure is not None]
    if len(predictors) > 1 or len(amounts) == 1:
        parts = _parts(tidy, "predictor", predictors)
        figures += [measure_figure(part, measure, shown, feedback=float(a)) for a in reversed(amounts) for part in parts]
    if len(amounts) > 1:
        parts = _parts(tidy, "feedback", amounts)
        figures += [measure_figure(part, measure, shown, predictor=str(name)) for name in predictors for part in parts]
    return [figure for figure in figures if figure is not None]


def _runs(frame: pl.DataFrame) -> dict[str, pl.Expr]:
    """A predictor at an amount of feedback -> its rows. The name begins with the amount: legends cut long names."""
    found = frame.select("predictor", "feedback").unique().sort("predictor", "feedback").rows()
    return {
        f"{100 * amount:g} % {name.replace(', model = ', ' on ')}": (pl.col("predictor") == name)
        & (pl.col("feedback") == amount)
        for name, amount in found
    }


def _parts(tidy: pa.Table, column: str, names: Sequence[str | float]) -> list[pa.Table]:
    """Split the table by the values of a column, with at most ``MOST_CURVES`` values in each part."""
    batches = [names[at : at + MOST_CURVES] for at in range(0, len(names), MOST_CURVES)]
    return [tidy.filter(pc.is_in(tidy[column], pa.array(batch, tidy[column].type))) for batch in batches]


def _reaction_section(tidy: pa.Table, split: str) -> list[Section]:
    shown = Shown("detection", split, ("pre",), novel_to="evaluator")
    figures = _both_ways(tidy, REACTION, shown)
    if not figures:
        return []
    panels = _training_panels(tidy, [REACTION], dataclasses.replace(shown, split="train")) if split != "train" else []
    frame = pl.DataFrame(pl.from_arrow(tidy)).filter(
        pl.col("measure").str.starts_with("reaction_time."), pl.col("split") == split, pl.col("novel_to") == "evaluator"
    )
    readings = sorted(frame["measure"].unique().to_list())
    rows = [
        [name, f"{amount:g}", *values] for name, amount, *values in measured_rows(frame, ["predictor", "feedback"], readings)
    ]
    columns = ["predictor", "feedback", *(_reading(reading) for reading in readings)]
    caption = (
        "Mean reaction time over the increments, under each definition: counted up to the last novel sample or up to the last "
        "sample; detected by any prediction of unknown, or by that of a novel sample; and with the detected sample "
        "among the novel samples counted, or without it"
    )
    return [Section("Novelty reaction time", [Text([_ABOUT_REACTION]), *figures, Table(columns, rows, caption), *panels])]


def measured_rows(frame: pl.DataFrame, keys: Sequence[str], measures: Sequence[str]) -> list[tuple[Any, ...]]:
    """A row per key, sorted, with the mean of every measure."""
    wide = frame.pivot("measure", index=keys, values="value", aggregate_function="mean").sort(keys)
    return wide.select(
        *keys, *(measure if measure in wide.columns else pl.lit(None).alias(measure) for measure in measures)
    ).rows()


def _last_section(tidy: pa.Table, split: str) -> Section:
    """Cumulative measures after the last increment, and the increments that they sum up."""
    frame = pl.DataFrame(pl.from_arrow(tidy)).filter(
        pl.col("split") == split, pl.col("novel_to") != "evaluator", pl.col("measure").is_in(list(MEASURES))
    )
    sums = frame.filter("cumulative", ~pl.col("from_start"))
    last = sums.filter(pl.col(_INCREMENT) == pl.col(_INCREMENT).max().over("predictor", "feedback"))
    rows = [
        [name, f"{amount:g}", task, _when(phase), samples, *values]
        for task, phase, name, amount, samples, *values in measured_rows(
            last, ["task", "phase", "predictor", "feedback", "n"], [*MEASURES]
        )
    ]
    about = (
        f"Sums of confusion matrices over the increments from 1 on, {split_said(split)}: the same samples before and after "
        "feedback. A predictor without feedback or training has equal figures in both. The released code sums only the "
        "matrices after feedback, including increment 0. Task none compares unmapped classes."
    )
    columns = ["predictor", "feedback", "task", "measured", "samples", *_SHORT.values()]
    main = [row for row in rows if row[2] == "classification"]
    each = Details("Increment by increment", [_increments_table(frame)])
    return Section(
        "Over all increments", [Text([about]), Table(columns, main), each, Details("All tasks", [Table(columns, rows)])]
    )


def _increments_table(frame: pl.DataFrame) -> Table:
    """Every increment before and after feedback, side by side."""
    mine = frame.filter(~pl.col("cumulative"), pl.col("task") == "classification").with_columns(
        pl.concat_str("phase", "measure", separator=".").alias("measure")
    )
    measures = [f"{phase}.{measure}" for measure in MEASURES for phase in ("pre", "post")]
    rows = [
        [name, f"{amount:g}", str(increment), *values]
        for name, amount, increment, *values in measured_rows(mine, ["predictor", "feedback", _INCREMENT], measures)
    ]
    columns = [f"{short} {_when(phase)}" for short in _SHORT.values() for phase in ("pre", "post")]
    return Table(["predictor", "feedback", "increment", *columns], rows, "Classification, each increment's samples only")


def _names(tidy: pa.Table, column: str) -> list[str | float]:
    return pl.DataFrame(pl.from_arrow(tidy.select([column])))[column].unique().sort().to_list()


def _said(measure: str) -> str:
    return "novelty reaction time" if measure.startswith("reaction_time.") else MEASURES.get(measure, measure)


def _reading(measure: str) -> str:
    """The definition of a reaction time, as a column's title."""
    _, end, detection, *before = measure.split(".")
    by = "any detection" if detection == "any" else "detection of a novel sample"
    until = {"last_novel": "last novel sample", "last_sample": "last sample"}[end]
    return f"up to the {until}, {by}, detected sample {'not ' if before else ''}counted"


def capital(text: str) -> str:
    """The text with a capital first letter; the others stay as they are, unlike with ``str.capitalize``."""
    return text[:1].upper() + text[1:]


def _when(phase: str) -> str:
    return "before" if phase == "pre" else "after"


def _limits(curves: Sequence[np.ndarray]) -> tuple[float, float]:
    """Zero to one, with room for the points; MCC may be below zero."""
    low = min(float(np.nanmin(curve)) for curve in curves if not np.isnan(curve).all())
    return min(-0.03, low - 0.03), 1.03


# ------------------------------------------------------------------------------------------------------------- strata


def by_stratum(rows: pl.DataFrame, places: Sequence[str]) -> list[float | None]:
    """The value of each stratum in ``places``, None where there is none."""
    values = dict(rows.select("stratum", "value").rows())
    return [values.get(place) for place in places]


def stratum_figures(
    places: Sequence[str], curves: Mapping[str, Sequence[float | None]], *, axis: str, said: str, caption: str
) -> list[Figure]:
    """Curves of scores over strata, at most ``MOST_CURVES`` in a figure; those without a value are left out."""
    known = {name: curve for name, values in curves.items() if not np.isnan(curve := np.array(values, np.float64)).all()}
    figures: list[Figure] = []
    for at in range(0, len(known), MOST_CURVES):
        some = dict([*known.items()][at : at + MOST_CURVES])
        limits = _limits([*some.values()])
        figures.append(line_chart(places, some, label_axis=axis, value_axis=said, caption=caption, limits=limits))
    return figures


_SIZES = ("SM", "AVG", "LG")
_STRATA_MEASURES = {"top1_accuracy": "top-1", "mcc": "MCC", "nmi_arithmetic": "NMI"}


def strata_section(strata: pa.Table, title: str, about: Sequence[str], stratifications: Mapping[str, str]) -> Section | None:
    """Measures by stratum: the paper's Figure 12 for each stratification, with its numbers.

    Args:
        strata: columns of ``protocols.open_world.measures.COLUMNS``; one task, on the test set and on training samples.
        title, about: title and introduction of the section.
        stratifications: name -> heading of those to show, in order.

    Returns:
        None if the table has none of the stratifications.
    """
    frame = pl.DataFrame(pl.from_arrow(strata)).filter("cumulative", pl.col("measure").is_in(list(_STRATA_MEASURES)))
    frame = frame.filter(pl.col(_INCREMENT) == pl.col(_INCREMENT).max().over("stratum", "predictor", "feedback", "phase"))
    blocks = _strata_blocks(frame.filter(pl.col("split") == TEST_SET), stratifications)
    if not blocks:
        return None
    training = _strata_blocks(frame.filter(pl.col("split") == "train"), stratifications, ", training samples")
    return Section(title, [Text(about), *blocks, *([Details("Training samples", training)] if training else [])])


def _strata_blocks(frame: pl.DataFrame, stratifications: Mapping[str, str], where: str = "") -> list[Block]:
    """Figures and tables of one split; ``where`` ends their headings."""
    blocks: list[Block] = []
    for name, heading in stratifications.items():
        mine, told = frame.filter(pl.col("stratification") == name), f"{heading}{where}"
        if mine.height:
            start = mine.filter("from_start")
            later = _strata_table(mine.filter(~pl.col("from_start")), f"{told}: sums from increment 1 on", ("pre", "post"))
            blocks += [*_strata_figures(start, told)]
            blocks.append(_strata_table(start, f"{told}: sums from increment 0 on, after feedback", ("post",)))
            blocks.append(Details("Before and after feedback, without increment 0", [later]))
    return blocks


def _place(name: str) -> tuple[int, float, str]:
    """Sort key: numbers and thirds by size, then names; samples without annotation last."""
    if name.isdigit():
        return 0, float(name), ""
    return (1, _SIZES.index(name), "") if name in _SIZES else (3 if name == "N/A" else 2, 0, name)


def _strata_table(sums: pl.DataFrame, caption: str, phases: Sequence[str]) -> Table:
    """A row per stratum, predictor and amount of feedback; samples as after feedback."""
    key = ["stratum", "predictor", "feedback"]
    after = pl.col("n").filter(pl.col("phase") == "post").max().over(key)
    named = sums.with_columns(pl.concat_str("phase", "measure", separator=".").alias("measure"), after.alias("n"))
    measures = [f"{phase}.{measure}" for phase in phases for measure in _STRATA_MEASURES]
    wide = sorted(measured_rows(named, [*key, "n"], measures), key=lambda row: (_place(row[0]), *row[1:3]))
    rows = [[stratum, name, f"{amount:g}", *values] for stratum, name, amount, *values in wide]
    columns = [f"{short} {_when(phase)}" for phase in phases for short in _STRATA_MEASURES.values()]
    return Table(["stratum", "predictor", "feedback", "samples", *columns], rows, caption)


def _strata_figures(sums: pl.DataFrame, heading: str) -> list[Figure]:
    """Each measure by stratum, a curve per predictor and amount of feedback; at most ``MOST_CURVES`` in a figure."""
    places = sorted(sums["stratum"].unique().to_list(), key=_place)
    figures: list[Figure] = []
    for measure in _STRATA_MEASURES if len(places) > 1 else ():
        mine, said = sums.filter(pl.col("measure") == measure), MEASURES[measure]
        curves = {name: by_stratum(mine.filter(of), places) for name, of in _runs(sums).items()}
        caption = f"{heading}: {said}, cumulative from increment 0, after feedback."
        figures += stratum_figures(places, curves, axis="stratum", said=said, caption=caption)
    return figures
