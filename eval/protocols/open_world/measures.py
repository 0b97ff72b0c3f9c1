"""Measures of an open-world training, computed only from its stored predictions.

The name of a metric consists of phase, task, whose known classes the task uses, and measure: ``pre.detection.predictor.mcc``,
``post.none.top1_accuracy``. Its position is the increment. Sums of confusion matrices from increment 1 up to an increment are
named ``cumulative.post.none.mcc``; those over all increments from 1 on, which belong to the whole training, have the plain
name. They cover the same samples before and after feedback. Increment 0 is measured only after feedback: sums that include it,
as in the paper's Figure 12, are named ``from_start.post.none.mcc``, and cannot be compared with sums before feedback.

The paper's Figures 7 to 10, 12 and 13 plot ``mcc``, ``top1_accuracy``, ``top5_accuracy`` or ``nmi_arithmetic`` of a task; its
Figure 11 plots a reaction time with the known classes of the evaluator. All are in one tidy table (``tidy``), so that the data
of a figure are selected by a filter.
"""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ....curation.nested import flat
from ....curation.stage_rows import Rows
from ...labels import line_labels
from ...metrics.confusion import (
    TASKS,
    UNKNOWN,
    OpenWorldTask,
    Ordered,
    matthews_correlation,
    mutual_information,
    normalised_mutual_information,
    top_labels,
)
from ...metrics.novelty import is_novel, reaction_times, says_unknown
from ...results import Value, measured
from .predictions import OpenWorldPredictions, Predicted
from .predictor import Labels

TOP = 5
TEST_SET = "test_set"
"""The paper's test set (its Table 1): the test rows of increment 0; from increment 1 on the validation and test rows together.
Thresholds are found on the validation rows of increment 0, which therefore belong to no measure of it."""
CUMULATIVE, FROM_START = "cumulative.", "from_start."
COLUMNS = pa.schema(
    {
        "increment": pa.int64(),
        "at": pa.float64(),  # place in plots: t before feedback, t + 0.5 after it
        "phase": pa.string(),  # "pre" or "post"
        "split": pa.string(),  # "train", "validate", "test", "test_set"
        "feedback": pa.float64(),
        "cumulative": pa.bool_(),  # over this increment and the earlier ones
        "from_start": pa.bool_(),  # for sums: increment 0 included, as in the released code; only for "post"
        "novel_to": pa.string(),  # "predictor" or "evaluator": whose known classes the task uses; "" for task "none"
        "task": pa.string(),
        "measure": pa.string(),
        "n": pa.int64(),  # samples
        "value": pa.float64(),  # null where undefined
        "predictor": pa.string(),  # with every setting in which it differs from others
        "stratification": pa.string(),  # "" for all samples
        "stratum": pa.string(),
    }
)
"""The tidy table's columns."""


def ordered_measures(ordered: Ordered) -> dict[str, float]:
    """Measure -> value of one sum of ordered confusion matrices; NaN where undefined.

    >>> found = ordered_measures(Ordered.of([0, 0, 1, 1], [[0, 1], [1, 0], [1, 0], [1, 0]]))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'top1_accuracy': 0.75, 'top5_accuracy': 1.0, 'mcc': 0.577, 'mutual_information': 0.216, 'nmi_arithmetic': 0.344}
    """
    return {
        "top1_accuracy": ordered.top_accuracy(1),
        "top5_accuracy": ordered.top_accuracy(TOP),
        "mcc": matthews_correlation(ordered.first),
        "mutual_information": mutual_information(ordered.first),
        "nmi_arithmetic": normalised_mutual_information(ordered.first),
    }


def metric(phase: str, task: str, novel_to: str, measure: str) -> str:
    """The name of a metric, see the module's docstring.

    >>> metric("pre", "detection", "predictor", "mcc"), metric("post", "none", "", "top1_accuracy")
    ('pre.detection.predictor.mcc', 'post.none.top1_accuracy')
    """
    return ".".join(filter(None, [phase, task, novel_to, measure]))


def matrices(truth: Labels, top: Labels, known: Mapping[str, Sequence[int]]) -> dict[tuple[str, OpenWorldTask], Ordered]:
    """Ordered confusion matrices of one split: (novel_to, task) -> matrices that can be added to those of other increments.

    Args:
        truth: (n,) class indices.
        top: (n, k) labels.
        known: "predictor" and "evaluator" -> class indices.

    >>> found = matrices(np.array([0, 9]), np.array([[0], [-1]]), {"predictor": [0, 1]})
    >>> found["", "none"].top_accuracy(1)
    0.5
    >>> found["predictor", "detection"].top_accuracy(1)  # class 9 is novel to the predictor: "unknown" is right
    1.0
    """
    found: dict[tuple[str, OpenWorldTask], Ordered] = {("", "none"): Ordered.of(truth, top)}
    for novel_to, classes in known.items():
        for task in TASKS[1:]:
            found[novel_to, task] = Ordered.of(truth, top, classes, task)
    return found


_Place = tuple[str, str, str, str, str]
"""Phase, task, novel_to, split and stratum."""


class Sums:
    """Measures of sums of ordered confusion matrices, increment by increment and over all increments.

    Increment 0, which is measured only after feedback, counts only in the sums from the start.
    """

    def __init__(self) -> None:
        self._sums: dict[str, dict[_Place, Ordered]] = {"": {}, FROM_START: {}}

    def add(
        self, ordered: Ordered, phase: str, task: str, novel_to: str, *, position: int, split: str, stratum: str = ""
    ) -> Iterator[Value]:
        """Add the matrices of one increment, and yield its values."""
        place = (phase, task, novel_to, split, stratum)
        for begin in [*([""] if position else []), *([FROM_START] if phase == "post" else [])]:
            sums = self._sums[begin]
            sums[place] = sums[place] + ordered if place in sums else ordered
        for measure, value in ordered_measures(ordered).items():
            yield measured(metric(phase, task, novel_to, measure), value, position=position, split=split, stratum=stratum)

    def so_far(self, phase: str, position: int | None, splits: Container[str] | None = None) -> Iterator[Value]:
        """Values of the sums of a phase up to an increment, or of the whole training if ``position`` is None.

        ``splits``: the splits to report; None: all.
        """
        for kind, sums in self._sums.items():
            begin = kind or ("" if position is None else CUMULATIVE)
            samples: set[tuple[str, str]] = set()
            for (of_phase, task, novel_to, split, stratum), ordered in sums.items():
                if of_phase != phase or (splits is not None and split not in splits):
                    continue
                if (split, stratum) not in samples:
                    samples.add((split, stratum))
                    count = f"{begin}{phase}.samples"
                    yield measured(count, ordered.first.n, position=position, split=split, stratum=stratum)
                for measure, value in ordered_measures(ordered).items():
                    name = f"{begin}{metric(phase, task, novel_to, measure)}"
                    yield measured(name, value, position=position, split=split, stratum=stratum)


def measure_open_world(*, predictions: Rows) -> Iterator[Value]:
    """Source step: measures of every phase, split and task; reaction times before feedback; the feedback in increments; and
    the numbers of samples that were novel, and called unknown, before feedback.

    Args:
        predictions: predictions stored by the training; no rows if it diverged.
    """
    if not predictions.num_rows:
        return
    found, sums = OpenWorldPredictions(predictions), Sums()
    for increment, feedback in enumerate(found.feedback):
        memory = feedback.experience, None
        for name in ("known_to_evaluator", "known_to_predictor"):
            yield measured(name, len(getattr(feedback, name)), position=increment, memory=memory)
        yield measured("labels_given", len(feedback.labelled), position=increment, memory=memory)
    phases: dict[str, None] = {}
    unknowns = collections.Counter[tuple[str, str]]()
    for (increment, phase), parts in itertools.groupby(found, lambda part: (part.increment, part.phase)):
        phases[phase] = None
        tops, known = dict[str, tuple[Labels, Labels]](), dict[str, list[int]]()
        for part in parts:
            known |= part.known
            tops[part.split] = part.truth, top_labels(part.columns, part.probabilities, TOP)
            if phase == "post":
                clusters = int(np.count_nonzero(part.columns < UNKNOWN))
                yield measured("recognised_clusters", clusters, position=increment, split=part.split)
        tops = _with_test_set(increment, tops)
        for split, (truth, top) in tops.items():
            yield measured(f"{phase}.samples", len(truth), position=increment, split=split)
            if phase == "pre":
                found_unknown = int(np.count_nonzero(says_unknown(top[:, 0])))
                truly_novel = int(np.count_nonzero(is_novel(truth, known["predictor"])))
                for name, number in (("said_unknown", found_unknown), ("novel", truly_novel)):
                    unknowns[name, split] += number
                    yield measured(f"pre.{name}", number, position=increment, split=split)
            for (novel_to, task), ordered in matrices(truth, top, known).items():
                yield from sums.add(ordered, phase, task, novel_to, position=increment, split=split)
            for novel_to, classes in known.items() if phase == "pre" else ():
                for name, time in reaction_times(is_novel(truth, classes), says_unknown(top[:, 0])).items():
                    of = metric(phase, "detection", novel_to, f"reaction_time.{name}")
                    yield measured(of, time, position=increment, split=split)
        yield from sums.so_far(phase, increment, tops)
    for phase in phases:
        yield from sums.so_far(phase, None)
    for (name, split), number in unknowns.items():
        yield measured(f"pre.{name}", number, split=split)


def in_test_set(increment: int, split: str) -> bool:
    """Whether a split belongs to an increment's ``TEST_SET``.

    >>> [in_test_set(increment, "validate") for increment in (0, 1)], in_test_set(0, "test"), in_test_set(1, "train")
    ([False, True], True, False)
    """
    return split == "test" or (split == "validate" and increment > 0)


def _with_test_set(increment: int, tops: Mapping[str, tuple[Labels, Labels]]) -> dict[str, tuple[Labels, Labels]]:
    """The splits, and additionally ``TEST_SET``: validation rows, then test rows."""
    both = [tops[split] for split in ("validate", "test") if split in tops and in_test_set(increment, split)]
    if not both:
        return dict(tops)
    truth, top = (np.concatenate(each) for each in zip(*both, strict=True))
    return {**tops, TEST_SET: (truth, top)}


def measures_by_stratum(predictions: Rows, strata: pa.Table) -> Iterator[Value]:
    """Measures of the classification task for each stratum, on ``TEST_SET`` and on training samples, by increments in order.

    These are the paper's ablation, Figure 12, which does not name its split. Confusion matrices are summed for each stratum: if
    every sample belongs to exactly one stratum of a stratification, they add up to the matrix of all samples.

    Args:
        predictions: predictions stored by the training; no rows if it diverged.
        strata: ``uid``, ``stratification``, ``stratum``. A sample may belong to several strata of one stratification, and
            counts in each; a sample that is not listed counts in none.

    Yields:
        Values whose stratum is named ``stratification=stratum``. A stratum without samples in an increment has only cumulative
        values.
    """
    wanted = pl.DataFrame(pl.from_arrow(strata)).select("uid", name=pl.col("stratification") + "=" + pl.col("stratum"))
    parts = (part for part in OpenWorldPredictions(predictions) if _shown_split(part))
    phases = itertools.groupby(parts, lambda part: (part.increment, part.phase))
    yield from _measures_of_strata((phase, _summed_by_stratum(some, wanted)) for phase, some in phases)


_Strata = Mapping[tuple[str, str], Mapping[tuple[str, OpenWorldTask], Ordered]]
"""(split, stratum) -> (novel_to, task) -> matrices."""


def _measures_of_strata(phases: Iterable[tuple[tuple[int, str], _Strata]]) -> Iterator[Value]:
    """Measures of each increment and phase, and of the sums up to each increment and over all."""
    sums = Sums()
    for (increment, phase), strata in phases:
        for (split, stratum), found in strata.items():
            samples = next(iter(found.values())).first.n
            yield measured(f"{phase}.samples", samples, position=increment, split=split, stratum=stratum)
            for (novel_to, task), ordered in found.items():
                yield from sums.add(ordered, phase, task, novel_to, position=increment, split=split, stratum=stratum)
        yield from sums.so_far(phase, increment)
    for phase in ("pre", "post"):
        yield from sums.so_far(phase, None)


def measure_start(*, predictions: Rows) -> Iterator[Value]:
    """Source step: measures of the starting release, with all classes unreduced: the paper's Table 3; and, under each visual
    transform, its Figure 13.

    Args:
        predictions: predictions of a training on increment 0 only; no rows if it diverged.
    """
    if not predictions.num_rows:
        return
    predicted = OpenWorldPredictions(predictions)
    feedback = predicted.feedback[0]
    yield measured("labels_given", len(feedback.labelled), position=0, memory=(feedback.experience, None))
    for part in predicted.transformed():
        found = ordered_measures(Ordered.of(part.truth, top_labels(part.columns, part.probabilities, TOP)))
        stratum = f"{NUISANCE}={part.transform}" if part.transform else ""
        for measure, value in {**found, "samples": len(part.truth)}.items():
            yield measured(f"start.{measure}", value, split=part.split, stratum=stratum)


NUISANCE = "nuisance"
"""Stratification by the visual transform applied to all samples, outside the stream; ``none`` is the untransformed stream."""


def measure_nuisances(*, predictions: Rows) -> Iterator[Value]:
    """Source step: measures of every increment's samples, untransformed and under each visual transform, with the predictor
    as it was after the previous increment, and after this one.

    Args:
        predictions: predictions stored by the training; no rows if it diverged.

    Yields:
        Values of the classification task and of unreduced classes, for training samples and for ``TEST_SET``, whose stratum is
        named ``nuisance=rotation``, or ``nuisance=none``.
    """
    if predictions.num_rows:
        yield from nuisance_measures(OpenWorldPredictions(predictions).transformed())


def nuisance_measures(predicted: Iterable[Predicted]) -> Iterator[Value]:
    """The values of ``measure_nuisances`` for some predictions."""
    yield from _measures_of_strata(sorted(_summed_by_transform(predicted).items(), key=lambda phase: phase[0]))


_OF_NUISANCES: tuple[tuple[str, OpenWorldTask], ...] = (("", "none"), ("predictor", "classification"))


def _summed_by_transform(parts: Iterable[Predicted]) -> Mapping[tuple[int, str], _Strata]:
    found: dict[tuple[int, str], dict[tuple[str, str], dict[tuple[str, OpenWorldTask], Ordered]]] = {}
    for part in parts:
        if not (split := _shown_split(part)):
            continue
        strata = found.setdefault((part.increment, part.phase), {})
        mine = strata.setdefault((split, f"{NUISANCE}={part.transform or 'none'}"), {})
        top = top_labels(part.columns, part.probabilities, TOP)
        for novel_to, task in _OF_NUISANCES:
            known = part.known["predictor"] if novel_to else ()
            ordered = Ordered.of(part.truth, top, known, task)
            mine[novel_to, task] = mine[novel_to, task] + ordered if (novel_to, task) in mine else ordered
    return found


def _shown_split(part: Predicted) -> str:
    """``train``, ``TEST_SET``, or "" for the validation samples of increment 0."""
    return "train" if part.split == "train" else TEST_SET if in_test_set(part.increment, part.split) else ""


def _summed_by_stratum(parts: Iterable[Predicted], strata: pl.DataFrame) -> _Strata:
    found: dict[tuple[str, str], Ordered] = {}
    for part in parts:
        top = top_labels(part.columns, part.probabilities, TOP)
        uids = pl.DataFrame({"uid": part.uid.tolist()}, schema={"uid": pl.String}).with_row_index("row")
        pairs = uids.join(strata, on="uid", maintain_order="left")
        row, names = pairs["row"].to_numpy(), np.asarray(pairs["name"].to_list(), dtype=np.str_)
        for name in np.unique(names).tolist():
            at = row[names == name]
            ordered = Ordered.of(part.truth[at], top[at], part.known["predictor"], "classification")
            place = _shown_split(part), name
            found[place] = found[place] + ordered if place in found else ordered
    return {place: {("predictor", "classification"): found[place]} for place in sorted(found)}


def tidy(results: pa.Table) -> pa.Table:
    """The measures of increments as one table of ``COLUMNS``: means over the seeds, if there are several.

    Args:
        results: table with the columns ``eval.results.RESULTS``; settings of trainings may differ.
    """
    results = results.filter(pc.starts_with(results["protocol"].cast(pa.string()), PROTOCOL))
    if not results.num_rows:
        return COLUMNS.empty_table()
    named = {name: _parsed(name) for name in results["metric"].unique().to_pylist()}
    metrics = pl.DataFrame(
        [(name, *parts) for name, parts in named.items() if parts],
        schema={"metric": pl.String, "cumulative": pl.Boolean, "from_start": pl.Boolean, **dict.fromkeys(_PARTS, pl.String)},
        orient="row",
    )
    labels = [(*key, label) for key, label in predictor_labels(results).items()]
    predictors = pl.DataFrame(labels, schema=[*_SETTINGS, "label"], orient="row")
    columns = ["protocol", *_SETTINGS, "position", "split", "stratum", "metric", "value"]
    frame = pl.DataFrame(pl.from_arrow(results.select(columns))).with_columns(pl.col(pl.Categorical).cast(pl.String))
    frame = frame.filter(pl.col("position").is_not_null())
    frame = frame.join(metrics, on="metric", maintain_order="left").join(predictors, on=_SETTINGS, maintain_order="left")
    # Trainings with labels from people, or with scores, are separate lines next to those with amounts of labels from the lists.
    frame = frame.with_columns(pl.col("protocol").str.extract(_AMOUNT, 1).fill_null("0").alias("amount"))
    other = pl.col("protocol").str.replace(_AMOUNT, "").str.strip_chars()
    frame = frame.with_columns(predictor=pl.col("label") + pl.when(other == "").then(pl.lit("")).otherwise(", " + other))
    of = ["protocol", "amount", "predictor", "position", "split", "stratum", "cumulative", "from_start", "phase"]
    frame = frame.group_by(*of, *_PARTS[1:], maintain_order=True).agg(pl.col("value").mean())
    counts = frame.filter(pl.col("measure") == "samples").select(*of, n=pl.col("value").cast(pl.Int64))
    frame = frame.filter(pl.col("measure") != "samples").join(counts, on=of, how="left", maintain_order="left")
    place, strata = pl.col("position").cast(pl.Int64), pl.col("stratum").str.splitn("=", 2)
    frame = frame.with_columns(
        increment=place,
        at=place + pl.when(pl.col("phase") == "post").then(0.5).otherwise(0.0),
        feedback=pl.col("amount").cast(pl.Float64),
        stratification=strata.struct.field("field_0"),
        stratum=strata.struct.field("field_1").fill_null(""),
    )
    return frame.select(COLUMNS.names).to_arrow().cast(COLUMNS)


PROTOCOL = "feedback "
"""Prefix of the names of protocols, followed by the share of labels given, or another kind of feedback."""

_AMOUNT = rf"^{PROTOCOL}(\d[\d.e-]*)?"

_SETTINGS = ["method", "model", "settings"]
_PARTS = ["phase", "task", "novel_to", "measure"]


def predictor_labels(results: pa.Table) -> dict[tuple[str, str, str], str]:
    """Method, model and settings -> the method with the settings that distinguish it from others, whatever the feedback."""
    keys = list(dict.fromkeys(zip(*(results[name].to_pylist() for name in _SETTINGS), strict=True)))
    labels = line_labels([(method, {"model": model, **flat(json.loads(text))}) for method, model, text in keys])
    return dict(zip(keys, labels, strict=True))


def _parsed(name: str) -> tuple[bool, bool, str, str, str, str] | None:
    """Whether a metric is cumulative, and from the start; and its phase, task, novel_to, and measure. None for a metric
    without phase."""
    phase, _, rest = name.removeprefix(CUMULATIVE).removeprefix(FROM_START).partition(".")
    if phase not in ("pre", "post"):
        return None
    task, _, measure = rest.partition(".")
    novel_to = ""
    if task in TASKS[1:]:
        novel_to, _, measure = measure.partition(".")
    from_start = name.startswith(FROM_START)
    return from_start or name.startswith(CUMULATIVE), from_start, phase, task if measure else "", novel_to, measure or task
