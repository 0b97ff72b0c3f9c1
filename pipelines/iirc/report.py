"""The HTML report of an IIRC run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...curation.encoders.spec import EfficientNetLite
from ...curation.store import Store
from ...datasets.iirc.assign import ROLES
from ...datasets.iirc.facts import facts
from ...datasets.iirc.view import RefinedView
from ...eval.report.blocks import Block, CellValue, Details, Section, Table, Text
from ...eval.report.figures import bar_chart
from ...eval.report.label_trees import tree_figure
from ...eval.report.sections import picture_sheets
from ...eval.results import Line
from ..names import short
from ..report import ReportedRun, write_page
from .config import DrawnSource, IircConfig
from .paper import published_set
from .training_sections import protocol_sections

_THUMB_PX = 64
_SUPERCLASSES = 30
"""Most superclasses with a contact sheet, which has ``_EACH`` pictures of each subclass."""
_EACH = 4


def write_report(config: IircConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder, also for an unfinished run. Returns its path."""
    run = ReportedRun.of(out)
    sections: list[Section] = []
    published = ""
    if (rows := run.rows("assigned")) is not None:
        index = rows.table()
        view = RefinedView(index, config.tasks.configurations[0])
        published = published_set(len(view.classes), len(view.tasks))
        sections += [_hierarchy(index), _tasks(config, index), _shares(config, index), _pictures(index, run.store)]
    for protocol, found in run.protocols.items():
        sections += protocol_sections(config, protocol, found, run.predicted, published)
    cards = run.cards(("found", "pictures found", "in the source"), ("assigned", "in the benchmark", "each stored once"))
    return write_page(
        run,
        "An IIRC\u2011style benchmark",
        f"{short(config.source.kind)}, set-up {config.setup}, {_configurations(config, run.lines)}",
        cards=[*cards, *run.best("best pw-JS after the last task", "pw_js")],
        notes=_notes(config),
        sections=sections,
        drawn=f"{short(config.source.kind)}, seed {config.seed}",
    )


def _configurations(config: IircConfig, found: Sequence[Line]) -> str:
    """The configurations of the settings, and those that methods were trained on if these differ."""
    text = f"configurations {', '.join(map(str, config.tasks.configurations))}"
    orders = sorted({order for line in found for order, _ in line.runs})
    if orders == sorted(config.tasks.configurations):
        return text
    return f"{text}; trained: {', '.join(map(str, orders)) or 'none'}"


def _notes(config: IircConfig) -> list[str]:
    notes: list[str] = []
    if isinstance(config.source, DrawnSource):
        notes.append(
            "The pictures of this run are SYNTHETIC, generated from the seed: coloured shapes. "
            "Scores say nothing about methods."
        )
    if config.vectors is not None:
        text = f"Methods were trained on one frozen vector per picture, from the encoder {short(config.vectors.kind)}."
        if isinstance(config.vectors, EfficientNetLite):
            text += (
                " Its weights were trained on ImageNet's 1,000 classes: "
                "compare methods within this run, not absolute scores with other runs."
            )
        notes.append(text)
    return notes


# ------------------------------------------------------------------------------------------------------------- hierarchy


def _hierarchy(index: pa.Table) -> Section:
    groups, lone = groups_of(index)
    sizes = collections.Counter(len(inner) for inner in groups.values())
    blocks: list[Block] = [tree_figure(groups, lone, caption="Superclasses, their subclasses, and lone subclasses.")]
    if groups:
        order = sorted(sizes)
        figure = bar_chart(
            [str(size) for size in order],
            [sizes[size] for size in order],
            label_axis="subclasses",
            value_axis="superclasses",
            caption="Number of subclasses per superclass.",
        )
        blocks.append(figure)
    verdict = _official(groups, lone)
    return Section("Hierarchy", blocks + ([Text([verdict], tone="good")] if verdict else []))


def groups_of(index: pa.Table) -> tuple[dict[str, list[str]], list[str]]:
    """Superclass -> subclasses, and lone subclasses, in a table of samples."""
    groups: dict[str, list[str]] = {}
    lone: list[str] = []
    pairs = dict.fromkeys(zip(index["superclass"].to_pylist(), index["subclass"].to_pylist(), strict=True))
    for top, sub in pairs:
        (lone if top is None else groups.setdefault(top, [])).append(sub)
    return groups, lone


def _official(groups: Mapping[str, Sequence[str]], lone: Sequence[str]) -> str:
    """A sentence if the counts match those of a published hierarchy, else ""."""
    counts = (len(groups), sum(map(len, groups.values())), len(lone))
    for name, fact in facts().sets.items():
        if counts == (fact.superclasses, fact.subclasses_with, fact.lone):
            text = f"{counts[0]} superclasses, {counts[1]} + {counts[2]} subclasses"
            return f"The counts are those of IIRC's {name.split('_')[0]}: {text}."
    return ""


# ----------------------------------------------------------------------------------------------------------------- tasks


def _tasks(config: IircConfig, index: pa.Table) -> Section:
    views = {number: RefinedView(index, number) for number in config.tasks.configurations}
    rows: list[Sequence[CellValue]] = []
    for number, view in views.items():
        kinds = collections.Counter(view.kinds)
        sizes = [len(task) for task in view.tasks]
        counts = [kinds["superclass"], kinds["subclass_with"], kinds["subclass_without"]]
        rows.append(
            [str(number), len(sizes), sum(sizes), sizes[0], min(sizes[1:], default=0), max(sizes[1:], default=0), *counts]
        )
    headings = ["configuration", "tasks", "labels", "in the first task", "fewest in a later task", "most in a later task"]
    headings += ["superclasses", "subclasses with a superclass", "lone subclasses"]
    first = next(iter(views))
    blocks: list[Block] = [
        Table(headings, rows, "Task configurations"),
        _first_tasks(views[first], first),
        *unwatched(views),
        Details(f"Labels of each task of configuration {first}", [_labels(views[first])]),
    ]
    return Section("Tasks", blocks)


def _first_tasks(view: RefinedView, number: int) -> Table:
    rows: list[Sequence[CellValue]] = []
    for task, names in enumerate(view.tasks):
        train, valid = (view.training(task, role=role) for role in ("train", "intask_valid"))
        asked = [len(view.evaluation(role, known=task, task=task).rows) for role in ("posttask_valid", "test")]
        union = len(view.evaluation("test", known=task).rows)
        rows.append([str(task), len(names), len(train.rows), len(valid.rows), *asked, union])
    headings = ["task", "labels", "train", "in-task valid.", "post-task valid.", "test", "test so far, without repeats"]
    return Table(headings, rows, f"Samples of each task of configuration {number}; a sample may belong to two tasks")


def unwatched(views: Mapping[int, RefinedView]) -> list[Block]:
    """A note on tasks without in-task validation samples, which choose the epoch and lower the learning rate."""
    lacking = [
        f"task {task} of configuration {number}"
        for number, view in views.items()
        for task in range(len(view.tasks))
        if not len(view.training(task, role="intask_valid").rows)
    ]
    if not lacking:
        return []
    text = ", ".join([*lacking[:3], *([f"{len(lacking) - 3} more"] if len(lacking) > 3 else [])])
    return [
        Text(
            [
                f"No in-task validation samples: {text}. In these tasks they neither select an epoch nor lower the learning "
                "rate. Increase shares.in_task to get some: a superclass gets shares.superclass of those of its subclasses, "
                "rounded down."
            ],
            tone="note",
        )
    ]


def _labels(view: RefinedView) -> Table:
    kinds = dict(zip(view.classes, view.kinds, strict=True))
    marks = {"superclass": " (superclass)", "subclass_with": "", "subclass_without": " (lone)"}
    rows: list[Sequence[CellValue]] = [
        [str(number), ", ".join(f"{name}{marks[kinds[name]]}" for name in names)] for number, names in enumerate(view.tasks)
    ]
    return Table(["task", "labels"], rows)


def _shares(config: IircConfig, index: pa.Table) -> Section:
    role = np.asarray(index["role"].to_pylist())
    top, sub = np.asarray(index["in_super"]), np.asarray(index["in_sub"])
    has = np.asarray([name is not None for name in index["superclass"].to_pylist()])
    rows: list[Sequence[CellValue]] = []
    for name in ROLES:
        mine = role == name
        counts = (mine & has & top & ~sub, mine & has & top & sub, mine & has & sub & ~top, mine & ~has, mine & ~top & ~sub)
        rows.append([name, int(mine.sum()), *(int(count.sum()) for count in counts)])
    headings = ["role", "samples", "superclass only", "both", "subclass only", "lone", "neither"]
    order = "in a random order" if config.shares.order == "drawn" else "in file order, not random samples"
    text = (
        f"Shares are contiguous ranges of each subclass {order}. Evaluation samples have both labels, restricted to those "
        "known at that time. Some samples have neither: where a superclass has more than twice as many subclasses as the cap, "
        "or its share is less than one sample."
    )
    return Section("Assignment of labels", [Table(headings, rows), Text([text])])


def _pictures(index: pa.Table, store: Store) -> Section:
    places: dict[str, dict[str, list[int]]] = {}
    names = zip(*(index[name].to_pylist() for name in ("role", "superclass", "subclass")), strict=True)
    for row, (role, top, sub) in enumerate(names):
        group = places.setdefault(top or "lone subclasses", {}) if len(places) < _SUPERCLASSES or top in places else None
        if role == "train" and group is not None and len(group.setdefault(sub, [])) < _EACH and len(group) <= _SUPERCLASSES:
            group[sub].append(row)
    there = {top: {sub: rows for sub, rows in subs.items() if rows} for top, subs in places.items()}
    intro = f"The first {_EACH} training pictures of the subclasses of up to {_SUPERCLASSES} superclasses."
    return picture_sheets(index, there, store, title="Pictures", intro=intro, side_px=_THUMB_PX, facets=["superclass"])
