"""Results of trainings on a CLEAR dataset, in the form of the paper's tables and figures."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.keys import canonical
from ...curation.verify import DATASET
from ...datasets.clear.facts import FEATURES, PublishedCell, published_tables
from ...datasets.reader.index import DatasetIndex
from ...eval.labels import line_labels, unnamed
from ...eval.protocols.domain_incremental import METRICS
from ...eval.report.blocks import Block, CellValue, Section, Table, Text
from ...eval.report.figures import common_scale
from ...eval.report.sections import folded
from ...eval.report.trainings import (
    SPREAD,
    Column,
    PublishedRow,
    comparable,
    lines_table,
    method_curves,
    own_metrics,
    position_heats,
    settings_details,
    settings_text,
    whole_columns,
)
from ...eval.results import Line
from ...training.baselines.clear import expanded
from ..feature_sets import EMBEDDING, stage_of
from ..report import ReportedRun
from .bucket_names import Bucket, bucket_names
from .config import ClearConfig
from .paper import (
    OFFLINE,
    SAME,
    coverage_table,
    data_differs,
    digest_notes,
    features_of,
    known_digests,
    named_tables,
    network_of,
    published_rows,
    why_not_the_papers,
    why_not_the_papers_offline,
)
from .unlabelled import PRETRAIN

_UNIT = f"percent, {SPREAD}"
_NARROW = ("in_domain", "next_domain")
"""Metrics in the paper's tables that compare sets of features."""

LineKey = tuple[str, str]
"""Protocol and features."""


@dataclass(frozen=True)
class MethodLines:
    """Trainings of one protocol, one network and one set of features.

    Attributes:
        lines: lines whose labels show only the method, and settings that distinguish lines of it.
        runs: label -> (S, N, N) accuracies in [0, 1] over S seeds, NaN where not tested.
    """

    protocol: str
    network: str
    features: str
    lines: tuple[Line, ...]
    runs: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Row:
    """A row of a table: the trainings of one method, by protocol and features.

    Attributes:
        label: the method, and settings that distinguish it from its other rows.
        method: name of the method.
        settings: settings in which rows of the table may differ.
        of: protocol and features -> line. Lines of a row differ only in settings that are the same for all rows of a column.
    """

    label: str
    method: str
    settings: Mapping[str, Any]
    of: Mapping[LineKey, Line]


@dataclass(frozen=True)
class LabelledLine:
    """A line with a label that is unique in its table."""

    label: str
    line: Line
    features: str


def results_sections(run: ReportedRun, config: ClearConfig, buckets: list[Bucket]) -> list[Section]:
    """Tables of both protocols together and of each, with curves and matrices; all matrices share one colour scale."""
    lines = [line for line in run.lines if line.protocol != PRETRAIN]
    if not lines:
        return []
    shards = run.made.get("shards")
    known = known_digests(config)
    data = data_differs(shards.digest if shards else "", known["dataset"])
    table = DatasetIndex.open(posixpath.join(run.out, DATASET)).table
    numbers = np.unique(table["bucket"].to_numpy()).tolist()
    offline = [line for line in lines if line.protocol == "offline"]
    timed = [line for line in lines if line.protocol != "offline"]
    names, groups = bucket_names(buckets, numbers), grouped(timed, config, numbers)
    means = [mean for group in groups for runs in group.runs.values() if not np.isnan(mean := runs.mean(0)).all()]
    scale = common_scale(means) if means else (0.0, 1.0)
    sections = both_protocols(groups, data, known)
    together: dict[tuple[str, str], list[MethodLines]] = {}
    for group in groups:
        together.setdefault((group.protocol, group.network), []).append(group)
    for (protocol, network), some in together.items():
        alone = len({group.network for group in groups if group.protocol == protocol}) == 1
        title = f"Baselines, {protocol} protocol" + ("" if alone else f", {network}")
        lines = [line for group in some for line in group.lines]
        sections.append(
            Section(title, [*_compared(some, data, known), *shared_space(run, lines), *_by_features(some, names, scale)])
        )
    covered = coverage_table([(line, group.features) for group in groups for line in group.lines], data, known)
    last = Section("Tables of the paper", [covered, *digest_notes(run, config, table)])
    return [*sections, *_offline(offline, numbers, names, data), last]


def _offline(lines: Sequence[Line], buckets: Sequence[int], names: Sequence[str], data: str) -> list[Section]:
    """Results of training on all buckets at once, for which the paper has one figure."""
    if not lines:
        return []

    def on(bucket: int) -> Column[Line]:
        return lambda line: line.matrix("accuracy", [str(bucket)])[:, 0, 0]

    texts = [f"bucket {name}" if name == str(bucket) else name for name, bucket in zip(names, buckets, strict=True)]
    columns = {**whole_columns({"all": "accuracy"}), **{name: on(bucket) for name, bucket in zip(texts, buckets, strict=True)}}
    fair, verdict = comparable(lines, data, why_not_the_papers_offline, SAME)
    papers = [
        PublishedRow(OFFLINE.network, "the CLEAR paper, text of its supplement", {"all": OFFLINE.accuracy}, each.label)
        for each in fair
    ]
    table = lines_table(lines, columns, f"Accuracy on the test sets: {_UNIT}", published=papers)
    return [Section("Trained on all buckets at once", [verdict, table, *settings_details(lines)])]


def grouped(lines: Sequence[Line], config: ClearConfig, buckets: Sequence[int]) -> list[MethodLines]:
    """Lines grouped by protocol and network in order of occurrence, and by features in the order of the paper's tables."""
    found: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.protocol, network_of(line), features_of(line, config)), []).append(line)
    first = {key[:2]: at for at, key in reversed([*enumerate(found)])}
    order = [*FEATURES]
    groups: list[MethodLines] = []
    for key in sorted(found, key=lambda key: (first[key[:2]], order.index(key[2]) if key[2] in order else -1)):
        labelled = _relabelled(found[key])
        groups.append(MethodLines(*key, labelled, {line.label: _runs(line, buckets) for line in labelled}))
    return groups


def _relabelled(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with new labels: the method, and settings that distinguish lines of the same method."""
    labels = line_labels([(line.method, line.settings) for line in lines])
    return tuple(dataclasses.replace(line, label=label) for line, label in zip(lines, labels, strict=True))


def _runs(line: Line, buckets: Sequence[int]) -> NDArray[np.float64]:
    found = line.matrix("accuracy", [str(number) for number in buckets])
    return np.pad(found, ((0, 0), (0, len(buckets) - found.shape[1]), (0, 0)), constant_values=np.nan)


# ---------------------------------------------------------------------------------------------------------------- tables


def _metric_label(metric: str) -> str:
    return metric.replace("_", "-")


def _metrics(protocol: str) -> list[str]:
    return [*METRICS["iid" if protocol == "iid" else "streaming"]]


def _column(key: LineKey, metric: str) -> Column[Row]:
    def column(row: Row) -> Any:
        line = row.of.get(key)
        return None if line is None else line.values(metric)

    return column


def _rows(groups: Sequence[MethodLines]) -> list[Row]:
    """A row per method and its settings, in order of occurrence."""
    of_rows = _of_rows(groups)
    found: dict[tuple[str, str], dict[LineKey, Line]] = {}
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    for group in groups:
        for line in group.lines:
            own = {name: value for name, value in line.settings.items() if name in of_rows}
            key = line.method, canonical(own)
            found.setdefault(key, {})[group.protocol, group.features] = line
            settings[key] = own
    line_settings = [(key[0], settings[key]) for key in found]
    return [
        Row(label, *own, of) for label, own, of in zip(line_labels(line_settings), line_settings, found.values(), strict=True)
    ]


def _of_rows(groups: Sequence[MethodLines]) -> set[str]:
    """Settings in which lines of a column differ, and settings of methods; others are the same for a whole column."""
    columns = [unnamed([("", line.method, line.settings) for line in group.lines]) for group in groups]
    every = {name for group in groups for line in group.lines for name in line.settings}
    return {name for column in columns for apart in column for name in apart} | {
        name for name in every if name.startswith("method.")
    }


def _differences(groups: Sequence[MethodLines], rows: Sequence[Row], column: Callable[[MethodLines], str]) -> list[Block]:
    """The settings in which columns of a table differ, and those in which rows differ."""
    of_rows = {*_of_rows(groups), "features"}  # columns are named after features
    columns = {
        column(group): {name: value for line in group.lines for name, value in line.settings.items() if name not in of_rows}
        for group in groups
    }
    return [
        *settings_text([(name, name, settings) for name, settings in columns.items()], "columns"),
        *settings_text([(row.label, row.method, row.settings) for row in rows]),
    ]


def _beside(
    rows: Sequence[Row], data: str, known: Mapping[str, str], heading: Callable[[PublishedCell], str]
) -> tuple[Text, list[PublishedRow]]:
    """The verdict on showing the paper's figures next to these rows, and the published rows to show."""
    several = len({key for row in rows for key in row.of}) > 1
    trained = [
        LabelledLine(f"{row.label}, {key[0]}, {key[1]}" if several else row.label, line, key[1])
        for row in rows
        for key, line in row.of.items()
    ]
    fair, verdict = comparable(trained, data, lambda one: why_not_the_papers(one.line, one.features, known), SAME)
    lines = {id(one.line) for one in fair}
    papers = [
        (row.label, {key: line for key, line in row.of.items() if id(line) in lines})  # published cells are matched one by one
        for row in rows
    ]
    return verdict, [one for label, of in papers for one in published_rows(label, of, heading)]


def _compared(groups: Sequence[MethodLines], data: str, known: Mapping[str, str]) -> list[Block]:
    """Table for one protocol and network: a row per method, a column per metric (and set of features, if several)."""
    protocol, several = groups[0].protocol, len(groups) > 1
    metrics = [name for name in _metrics(protocol) if name in _NARROW or not several]

    def heading(metric: str, features: str) -> str:
        return f"{_metric_label(metric)}, {features}" if several else _metric_label(metric)

    rows = _rows(groups)
    columns = {
        heading(metric, group.features): _column((protocol, group.features), metric) for metric in metrics for group in groups
    }
    verdict, papers = _beside(rows, data, known, lambda cell: heading(cell.metric, cell.features))
    tables = dict.fromkeys(
        table.name
        for table in published_tables()
        if [*table.metrics] == [protocol] and table.network == groups[0].network and (len(table.features) > 1 or not several)
    )
    form = f"In the form of the paper's {named_tables(tables)}: " if tables else "In "
    table = lines_table(rows, columns, f"{form}{_UNIT}", published=papers)
    return [verdict, table, *(_differences(groups, rows, lambda group: group.features) if several else [])]


_TABLE_1 = {
    "reservoir-alpha=1.0-finetune": "Finetuning with a Reservoir",
    "dynamic_reservoir-alpha=1.0-finetune": "Finetuning with a Biased Reservoir",
}
"""Rows of Table 1 whose names in the paper are less specific than ours."""


def both_protocols(groups: Sequence[MethodLines], data: str, known: Mapping[str, str]) -> list[Section]:
    """The table in the form of the paper's Table 1, with its methods first and in its order; empty if no method was trained
    under both protocols."""
    blocks: dict[str, list[Block]] = {}
    order = {name: at for at, name in enumerate(expanded(["table1"]))}
    for network, features in dict.fromkeys((group.network, group.features) for group in groups):
        some = [group for group in groups if (group.network, group.features) == (network, features)]
        every = _rows(some)
        counts = Counter(method for method, _ in {(row.method, key) for row in every for key in row.of})
        rows = [row for row in every if counts[row.method] > 1]
        rows.sort(key=lambda row: order.get(row.method, len(order)))
        if not rows:
            continue
        columns = {
            f"{group.protocol} {_metric_label(metric)}": _column((group.protocol, features), metric)
            for group in some
            for metric in _metrics(group.protocol)
        }
        verdict, papers = _beside(rows, data, known, lambda cell: f"{cell.protocol} {_metric_label(cell.metric)}")
        table = lines_table(rows, columns, f"In the form of the paper's Table 1: {_UNIT}", published=papers)
        words = [f"{row.label} is {_TABLE_1[row.label]}" for row in rows if row.label in _TABLE_1]
        note = [Text([f"In the paper's terms, {', '.join(words)}."])] if words else []
        apart = _differences(some, rows, lambda group: group.protocol)
        blocks[f"{network}, {features}"] = [verdict, table, *note, *apart]
    return [Section("Baselines, both protocols", folded(blocks))] if blocks else []


# --------------------------------------------------------------------------------------------------------------- figures


def _short(label: str) -> str:
    """A label shortened for a legend: ``alpha 0.25 i/k, scratch``."""
    found = re.match(r"(dynamic_)?reservoir-alpha=([\d.]+)-(scratch|finetune)(.*)", label)
    return f"alpha {found[2]}{' i/k' if found[1] else ''}, {found[3]}{found[4]}" if found else label


def _by_features(groups: Sequence[MethodLines], names: Sequence[str], scale: tuple[float, float]) -> list[Block]:
    """Curves, matrices and settings of each set of features."""
    blocks: dict[str, list[Block]] = {}
    for group in groups:
        shown = blocks[group.features] = []
        if len(groups) > 1:
            columns = whole_columns({_metric_label(metric): metric for metric in _metrics(group.protocol)})
            shown.append(lines_table(group.lines, columns, f"In {_UNIT}"))
        shown += [*own_metrics(group.lines), *settings_details(group.lines)]
        shown += method_curves({_short(label): runs for label, runs in group.runs.items()}, names, of="bucket")
        matrices = {label: (names, runs) for label, runs in group.runs.items()}
        shown += position_heats(matrices, of="bucket", scale=scale)
    return folded(blocks)


def pretraining_sections(lines: Sequence[Line]) -> list[Section]:
    """Loss and accuracy of the last epoch of each pre-training; empty without pre-trainings."""
    rows: list[Sequence[CellValue]] = []
    for line in lines:
        if line.protocol != PRETRAIN:
            continue
        for at, (_, seed) in enumerate(line.runs):
            epochs = int(line.settings["epochs"])
            last = [float(line.values(name, at=epochs)[at]) for name in ("contrastive_loss", "instance_accuracy")]
            rows.append([line.label, line.rows["model"][0].as_py(), seed, epochs, *last])
    if not rows:
        return []
    text = (
        "Encoders trained on images without labels, which are published next to the dataset. Accuracy: how often a query's own "
        "key scores highest among those of the queue, in the last epoch."
    )
    headings = ["method", "backbone", "seed", "epochs", "loss", "accuracy"]
    details = settings_details([line for line in lines if line.protocol == PRETRAIN])
    return [Section("Pre-training on images without labels", [Text([text]), Table(headings, rows), *details])]


def shared_space(run: ReportedRun, lines: Iterable[Line]) -> list[Block]:
    """A note if classes were learned from the same vectors by which their images were retrieved."""
    if "retrieved" not in run.made:
        return []
    learned = dict.fromkeys(str(line.settings.get("features", EMBEDDING)) for line in lines)
    same = [name for name in learned if name == EMBEDDING or _made_alike(run, stage_of(name), "embedded")]
    if not same:
        return []
    text = (
        f"Trained on the vectors that also retrieved the images: features {', '.join(same)}. The encoder chose images near its "
        "prompts, so its own vectors separate the classes more easily; features of another network have no such advantage."
    )
    return [Text([text], tone="note")]


def _made_alike(run: ReportedRun, stage: str, other: str) -> bool:
    """Whether two stages used the same encoder with the same weights."""
    if stage not in run.made or other not in run.made:
        return False
    one, two = (run.made[name].recipe["settings"] for name in (stage, other))
    return all(one[name] == two[name] for name in ("encoder", "checkpoint"))
