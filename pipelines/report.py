"""The report of a run: the sections common to all benchmarks, and the page."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..curation.artifact import Artifact, load_artifact, load_made, load_run
from ..curation.local_files import remove, write_whole
from ..curation.qa.agreement import votes_kappa
from ..curation.qa.imports import workers_of
from ..curation.qa.rounds import Round, votes_of
from ..curation.stage_rows import Rows
from ..curation.store import Store
from ..eval.report.blocks import Block, Card, Cards, Report, Section, Table, Text
from ..eval.report.curves import curve_blocks
from ..eval.report.figure_csv import csv_text, figures_of
from ..eval.report.html import render
from ..eval.report.plan_chart import PlanStage, pipeline_section, plan_chart
from ..eval.report.sections import Provenance, provenance_section
from ..eval.report.trainings import metric_blocks
from ..eval.results import Line, lines
from .cli.text import printed_kappa
from .near_report import near_duplicates_sections
from .samples import disputed, rejects_sections, sample_band, samples_sections
from .training_results import FOLDER, current_trainings, kept_trainings, results

About = Mapping[str, tuple[str, str]]
""""stage: setting" -> description and licence of the file that the setting names."""

OWNERS = "its owner's; not known to this run"
"""Licence shown for a file that the user provides."""


@dataclass(frozen=True)
class ReportedRun:
    """A run as reports read it, finished or not.

    Attributes:
        out: local folder of the run.
        store: the folder as a store.
        made: its finished stages by name, in the order of the plan.

    >>> run = ReportedRun.of("out")
    >>> list(run.protocols), [line.label for line in run.protocols["iid"]]
    (['iid', 'streaming'], ['nap-finetune'])
    """

    out: str
    store: Store
    made: Mapping[str, Artifact]

    @classmethod
    def of(cls, out: str) -> ReportedRun:
        """The run in a folder."""
        store = Store(out)
        return cls(out, store, finished_stages(store))

    @functools.cached_property
    def lines(self) -> list[Line]:
        """Lines of the trainings on its dataset."""
        return lines(results(self.out))

    @property
    def protocols(self) -> dict[str, list[Line]]:
        """The lines of each protocol."""
        names = dict.fromkeys(line.protocol for line in self.lines)
        return {name: [line for line in self.lines if line.protocol == name] for name in names}

    def predicted(self, line: Line) -> Rows:
        """Predictions of the first run of one of its lines."""
        order, seed = line.runs[0]
        rows = line.rows.filter(pc.and_(pc.equal(line.rows["order"], order), pc.equal(line.rows["seed"], seed)))
        return self._learned[rows["experiment"][0].as_py()].rows_view(Store(posixpath.join(self.out, FOLDER)))

    @functools.cached_property
    def _learned(self) -> dict[str, Artifact]:
        """Learning stages of the trainings on its dataset, by digest, which is the column ``experiment`` of their results."""
        return {one.learned.digest: one.learned for one in current_trainings(self.out)}

    def rows(self, *stages: str) -> Rows | None:
        """Rows of the first of these stages that is finished; None if none is, or it has no rows."""
        found = next((self.made[stage] for stage in stages if stage in self.made), None)
        return found.rows_view(self.store) if found is not None and found.rows else None

    def cards(self, *shown: tuple[str, str, str]) -> list[Card]:
        """The numbers of rows of finished stages, given as stage, label and note; and the number of rejected rows."""
        lost = sum(sum(one.rejects.values()) for one in self.made.values())
        cards = [Card(label, self.made[stage].rows, note) for stage, label, note in shown if stage in self.made]
        return [*cards, Card("rows rejected", lost, "each with its reason", tone="note" if lost else "plain")]

    def best(self, label: str, metric: str) -> list[Card]:
        """The highest mean of a metric of whole trainings, if there is one."""
        means = [(float(np.mean(line.values(metric))), line) for line in self.lines if len(line.select(metric))]
        value, line = max(((mean, line) for mean, line in means if not math.isnan(mean)), key=lambda m: m[0], default=(0, None))
        return [] if line is None else [Card(label, f"{100 * value:.1f} %", f"{line.label}, {line.protocol}")]


def finished_stages(store: Store) -> dict[str, Artifact]:
    """The finished stages of a run by name, in the order of the plan.

    >>> [name for name, made in finished_stages(Store("out")).items() if made.kind == "source"]
    ['listed']
    """
    found = [load_artifact(store, stage) for stage in load_run(store).stages]
    return {artifact.stage: artifact for artifact in found if artifact is not None}


def plan_stage(store: Store, name: str, made: Artifact | None) -> PlanStage:
    """A stage for the chart of a plan; ``made`` is None if it is not finished."""
    if made is None:
        return PlanStage(name)
    return PlanStage(
        name=name,
        kind=made.kind,
        step=made.recipe["step"].split(".")[-1],
        inputs=list(made.recipe["inputs"]),
        rows_in=made.rows_in,
        rows=made.rows,
        rejects=dict(made.rejects),
        seconds=load_made(store, name).get("seconds"),
        digest=made.digest,
        # A run checks its counts before it writes an artifact: only a stage that expands has more rows out than in.
        expands=made.kind == "whole" and made.rows + sum(made.rejects.values()) > (made.rows_in or 0),
    )


def sources_of(artifacts: Iterable[Artifact], *, drawn: str, about: About | None = None) -> list[Provenance]:
    """Files and folders that the stages read, each once; if there are none, ``drawn`` describes the generated source."""
    found: dict[tuple[str, str], Provenance] = {}
    for artifact in artifacts:
        settings = {**artifact.recipe["settings"], **artifact.recipe.get("pieces", {}).get("settings", {})}
        for name, value in settings.items():
            if isinstance(value, dict) and "content" in value:
                label = f"{artifact.stage}: {name}"
                what, licence = (about or {}).get(label, ("", OWNERS))
                found[label, value["content"]] = Provenance(label, licence, value["content"], what)
    return list(found.values()) or [Provenance(drawn, "generated by this project")]


def write_page(
    run: ReportedRun,
    title: str,
    subtitle: str = "",
    *,
    cards: Sequence[Card] = (),
    notes: Sequence[str] = (),
    sections: Sequence[Section] = (),
    rounds: Sequence[Round] = (),
    drawn: str = "only the settings",
    about: About | None = None,
    first: Sequence[Block] | None = None,
) -> str:
    """Write ``report.html``: a summary, ``sections``, votes, the pipeline, rejected rows, samples, sources; and, in a folder
    next to it, the numbers of its plots and matrices as CSV.

    The summary has the figures, some pictures in the order of times or tasks, and a diagram of the plan with its counts.

    Args:
        run: the run; if it is unfinished, the page shows its finished stages.
        title, subtitle: title and subtitle of the page; by default the subtitle names the pipeline.
        cards: cards of the summary, in addition to those on rejected rows and stages.
        notes: warnings and remarks at the top of the page.
        sections: sections of the benchmark; ``results_sections`` and ``position_sections`` for its trainings.
        rounds: the rounds of questions, see ``votes_sections``.
        drawn, about: see ``sources_of``.
        first: blocks for the summary instead of pictures of the last stage.

    Returns:
        Path of the page.

    >>> shown = [Section("Words", [Text(["Texts of fewer than three words were left out."])])]
    >>> write_page(ReportedRun.of("out"), "Words", "texts and their words", sections=shown, drawn="drawn from a seed")
    'out/report.html'
    """
    record, made, last = load_run(run.store), run.made, run.made[list(run.made)[-1]]
    pending = [name for name in record.stages if name not in made]
    unfinished = [f"The run is not finished: the next stage is {pending[0]}."] if pending else []
    unfinished += [f"It is waiting: {_awaited.get()}."] if _awaited.get() else []
    stages = Card("stages finished", f"{len(made)} of {len(record.stages)}")
    kept = [f"{place}: made by earlier code, which has changed: {why}." for place, why in kept_trainings(run.out).items()]
    texts = [*unfinished, *notes, *kept]
    plan = [plan_stage(run.store, name, made.get(name)) for name in record.stages]
    summary = [
        Cards([*cards, stages]),
        *([Text(texts, tone="note")] if texts else []),
        *(sample_band(run.store, last) if first is None else first),
        plan_chart(
            plan, caption="The width of a band is the number of rows; numbers on the right are the rows rejected by each stage."
        ),
    ]
    shown = [
        Section("Summary", summary),
        *sections,
        *votes_sections(rounds, run),
        pipeline_section(plan),
        *near_duplicates_sections(run.store, made),
        *rejects_sections(run.store, made),
        *samples_sections(run.store, last),
        provenance_section(sources_of(made.values(), drawn=drawn, about=about)),
    ]
    page = Report(title, subtitle or f"Pipeline {record.pipeline}", shown, f"{last.stage}: content digest {last.digest}")
    path = Path(run.out) / "report.html"
    _write_tables(Path(run.out) / TABLES, page)
    write_whole(path, render(page, TABLES).encode())
    return str(path)


TABLES = "report_tables"
"""Folder with the CSV files of a report's plots and matrices, next to the page."""


def _write_tables(folder: Path, page: Report) -> None:
    """Write one CSV per plot, and one per group of matrices; those of an earlier report are removed."""
    found = {name: csv_text(figure) for name, figure in figures_of(page).items()}
    for left in folder.glob("*.csv"):
        if left.name not in found:
            remove(left)
    for name, text in found.items():
        folder.mkdir(exist_ok=True)
        write_whole(folder / name, text.encode())


_awaited: contextvars.ContextVar[str] = contextvars.ContextVar("what the run waits for", default="")
"""What the run waits for, set by ``waiting_for``, since only callers know the plan."""


@contextlib.contextmanager
def waiting_for(awaited: str) -> Iterator[None]:
    """Within the block, ``write_page`` says what a person has to do before the run can continue; "" for nothing."""
    token = _awaited.set(awaited)
    try:
        yield
    finally:
        _awaited.reset(token)


def write_default(title: str, out: str, *, shown: Mapping[str, str], rounds: Sequence[Round]) -> str:
    """Write the report of a benchmark without its own report function. Returns its path.

    Args:
        title: title of the benchmark.
        out: a local folder; the run may be unfinished.
        shown: heading -> metric, see ``Benchmark``.
        rounds: the rounds of questions.
    """
    run = ReportedRun.of(out)
    first, last = next(iter(run.made.values())), list(run.made)[-1]
    found = Card("rows found", first.rows + sum(first.rejects.values()), f"by stage {first.stage}")
    label = "rows at the end" if load_run(run.store).result in run.made else "rows so far"
    cards = [found, *run.cards((last, label, f"of stage {last}"))]
    sections = [*results_sections(run, shown), *position_sections(run, shown)]
    return write_page(run, title, cards=cards, sections=sections, rounds=rounds)


def results_sections(run: ReportedRun, shown: Mapping[str, str]) -> list[Section]:
    """Results on the dataset of a run: a table for each protocol, and the settings in which its lines differ.

    >>> [section] = results_sections(ReportedRun.of("out"), {"Acc": "acc"})
    >>> section.title, len(section.blocks)  # a table of the protocol iid, and one of streaming
    ('Results', 2)
    """
    blocks = [block for protocol, found in run.protocols.items() for block in metric_blocks(found, shown, protocol)]
    return [Section("Results", blocks)] if blocks else []


def position_sections(run: ReportedRun, shown: Mapping[str, str] = MappingProxyType({})) -> list[Section]:
    """Curves and matrices over positions of all trainings on the dataset of a run, a section for each protocol.

    Without ``shown``, there are curves of all metrics.

    >>> [section.title for section in position_sections(ReportedRun.of("out"), {"Acc": "acc"})]
    ['Over positions: iid', 'Over positions: streaming']
    """
    found = {protocol: curve_blocks(lines, shown) for protocol, lines in run.protocols.items()}
    return [Section(f"Over positions: {protocol}", blocks) for protocol, blocks in found.items() if blocks]


def votes_sections(rounds: Sequence[Round], run: ReportedRun) -> list[Section]:
    """For every round of questions with votes: agreement of the annotators, disputed rows, and the annotators."""
    return [_votes(each, run, votes) for each in rounds if (votes := votes_of(each, run.out)) is not None]


_WORKER = {
    "worker": "worker",
    "num_labels": "labels",
    "num_sensitive": "sensitive",
    "agreement": "agreement",
    "num_gold": "gold",
    "gold_right": "gold right",
    "yes_rate": "yes rate",
    "median_seconds": "median s",
    "flags": "flags",
}
_WORKERS = 40
"""Most workers in the table, those with the most votes."""


def _votes(asked: Round, run: ReportedRun, votes: pa.Table) -> Section:
    kappas: list[Sequence[Any]] = [
        [form, votes.filter(pc.equal(votes["form"], form)).num_rows, printed_kappa(votes_kappa(votes, form=form))]
        for form in pc.unique(votes["form"]).to_pylist()
    ]
    rows = workers_of(asked, run.out, votes).select(list(_WORKER)).to_pylist()
    lines = [[", ".join(row[name]) if name == "flags" else row[name] for name in _WORKER] for row in rows]
    agreement = "Agreement between annotators: 1 is perfect, 0 is chance"
    tables = [
        Table(["form", "votes", "Fleiss' kappa"], kappas, agreement),
        *(disputed(run.store, asked, run.made[asked.stage], votes) if asked.stage in run.made else []),
        Table([*_WORKER.values()], lines[:_WORKERS], "Workers (hashed)"),
    ]
    simulated = (
        [Text(["These annotators are SIMULATED: no person has seen the images."], tone="note")] if asked.simulated else []
    )
    return Section(f"Votes: {asked.name}" if asked.name else "Votes", [*simulated, *tables])
