"""What every report shows of a run: its finished stages, a line a stage, and the sources behind them; and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..curation.artifact import Artifact, load_artifact, load_made, load_run
from ..curation.qa.agreement import votes_kappa
from ..curation.qa.imports import workers_of
from ..curation.qa.rounds import Round, votes_of
from ..curation.store import Store
from ..eval.report.blocks import Block, Card, Cards, Cell, Figure, Report, Section, Table, Text, Value
from ..eval.report.html import write
from ..eval.report.plans import PlanStage, plan_chart
from ..eval.report.sections import Source, StageRow, pipeline_section, provenance_section
from .cli.text import printed_kappa
from .samples import rejects_sections, samples_sections

About = Mapping[str, tuple[str, str]]
""""stage: setting" -> what the file is that the setting names, and its licence."""

OWNERS = "its owner's; this run does not know it"
"""What is told of the licence of a file that someone brought."""


def finished_stages(store: Store) -> dict[str, Artifact]:
    """The finished stages of a run by name, in the order of the plan.

    >>> [name for name, made in finished_stages(Store("out")).items() if made.kind == "source"]
    ['listed']
    """
    found = [load_artifact(store, stage) for stage in load_run(store).stages]
    return {artifact.stage: artifact for artifact in found if artifact is not None}


def stage_row(store: Store, artifact: Artifact) -> StageRow:
    """A stage's line in the pipeline table."""
    seconds = load_made(store, artifact.stage).get("seconds")
    # A run checks its counts before it writes an artifact: more rows out than in are those of a stage that expands.
    expands = artifact.kind == "whole" and artifact.rows + sum(artifact.rejects.values()) > (artifact.rows_in or 0)
    rejects = dict(artifact.rejects)
    return StageRow(
        artifact.stage, artifact.kind, artifact.rows_in, artifact.rows, rejects, seconds, artifact.digest, expands=expands
    )


def sources_of(artifacts: Iterable[Artifact], *, drawn: str, about: About | None = None) -> list[Source]:
    """Files and folders that the stages read, each once; ``drawn`` is named where there are none."""
    found: dict[tuple[str, str], Source] = {}
    for artifact in artifacts:
        settings = {**artifact.recipe["settings"], **artifact.recipe.get("pieces", {}).get("settings", {})}
        for name, value in settings.items():
            if isinstance(value, dict) and "content" in value:
                label = f"{artifact.stage}: {name}"
                what, licence = (about or {}).get(label, ("", OWNERS))
                found[label, value["content"]] = Source(label, "", licence, value["content"], what=what)
    return list(found.values()) or [Source(drawn, "", "drawn by this project")]


def stage_cards(made: Mapping[str, Artifact], shown: Iterable[tuple[str, str, str]]) -> list[Card]:
    """A card with the rows of each stage that is there; ``shown`` are stage, label and note."""
    return [Card(label, made[stage].rows, note) for stage, label, note in shown if stage in made]


def write_page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    made: Mapping[str, Artifact],
    out: str,
    *,
    drawn: str,
    about: About | None = None,
    after: Sequence[Section] = (),
) -> str:
    """Write ``report.html`` into the run's folder: ``sections``, the pipeline, rejected rows, ``after``, and the sources.

    Args:
        made: the finished stages, see ``finished_stages``.
        out: a local folder.
        drawn, about: see ``sources_of``.

    Returns:
        Its path.

    >>> shown = [Section("Words", [Text(["Texts of fewer than three words were left out."])])]
    >>> write_page("Words", "texts and their words", shown, finished_stages(Store("out")), "out", drawn="drawn from a seed")
    'out/report.html'
    """
    store = Store(out)
    table = pipeline_section([stage_row(store, artifact) for artifact in made.values()])
    pipeline = Section(table.title, [_drawing(store, made), *table.blocks])
    provenance = provenance_section(sources_of(made.values(), drawn=drawn, about=about))
    last = made[list(made)[-1]]
    path = Path(out) / "report.html"
    shown = [*sections, pipeline, *rejects_sections(store, made), *after, provenance]
    write(Report(title, subtitle, shown, f"{last.stage}: content digest {last.digest}"), path)
    return str(path)


def _drawing(store: Store, made: Mapping[str, Artifact]) -> Figure:
    stages = [
        PlanStage(name, one.kind, one.recipe["step"].split(".")[-1], list(one.recipe["inputs"]), one.rows, dict(one.rejects))
        if (one := made.get(name))
        else PlanStage(name)
        for name in load_run(store).stages
    ]
    caption = "Bands are as wide as there are rows; numbers to the right are of rows that a stage rejected."
    return plan_chart(stages, caption=caption)


def write_default(title: str, out: str, *, scores: Mapping[str, Mapping[str, Any]], rounds: Sequence[Round]) -> str:
    """Write the report of a benchmark that has none of its own. Returns its path.

    Args:
        title: of the benchmark.
        out: a local folder; the run may be unfinished: what is there is shown.
        scores: see ``results_sections``.
        rounds: what people are asked, see ``votes_sections``.
    """
    store = Store(out)
    record, made = load_run(store), finished_stages(store)
    last = made[list(made)[-1]]
    lost = sum(sum(one.rejects.values()) for one in made.values())
    first = next(iter(made.values()))
    cards = [
        Card("rows found", first.rows + sum(first.rejects.values()), f"by stage {first.stage}"),
        Card("rows rejected", lost, "each with its reason", tone="note" if lost else "plain"),
        Card("rows at the end" if record.result in made else "rows so far", last.rows, f"of stage {last.stage}"),
        Card("stages made", f"{len(made)} of {len(record.stages)}"),
    ]
    pending = [name for name in record.stages if name not in made]
    told = [f"The run is not finished: stage {pending[0]} is the first that is not made yet."] if pending else []
    summary = Section("Summary", [Cards(cards), *([Text(told, tone="note")] if told else [])])
    after = [*samples_sections(store, last), *votes_sections(rounds, out), *results_sections(out, scores)]
    return write_page(title, f"Pipeline {record.pipeline}", [summary], made, out, drawn="the settings alone", after=after)


def results_sections(out: str, scores: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """What was measured on the dataset of a run in ``out``: a table a protocol.

    Args:
        out: the run.
        scores: protocol -> method -> ``mean`` and ``std`` by metric, and ``unit``, as ``eval`` prints them.
    """
    tables: list[Block] = []
    for protocol, methods in scores.items():
        metrics = list(dict.fromkeys(name for result in methods.values() for name in result["mean"]))
        degrees = any(result.get("unit") == "degrees" for result in methods.values())
        times = 1 if degrees else 100
        rows: list[Sequence[Value]] = [
            [method, *(_measured(result["mean"].get(name), result["std"].get(name), times) for name in metrics)]
            for method, result in methods.items()
        ]
        caption = f"{protocol}: {'degrees' if degrees else 'percent'}, ± one standard deviation"
        tables.append(Table(["method", *metrics], rows, caption, decimals=2 if degrees else 1))
    return [Section("Results", tables)] if tables else []


def _measured(mean: float | None, std: float | None, times: int) -> Cell:
    return Cell(
        None if mean is None else times * mean, note="" if std is None else f"± {times * std:.{2 if times == 1 else 1}f}"
    )


def votes_sections(rounds: Sequence[Round], out: str) -> list[Section]:
    """Of every round of questions whose votes are there: how annotators agree, and who they are."""
    return [_votes(each, out, votes) for each in rounds if (votes := votes_of(each, out)) is not None]


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
"""Workers in the table, those with most votes."""


def _votes(asked: Round, out: str, votes: pa.Table) -> Section:
    kappas: list[Sequence[Any]] = [
        [form, votes.filter(pc.equal(votes["form"], form)).num_rows, printed_kappa(votes_kappa(votes, form=form))]
        for form in pc.unique(votes["form"]).to_pylist()
    ]
    rows = workers_of(asked, out, votes).select(list(_WORKER)).to_pylist()
    lines = [[", ".join(row[name]) if name == "flags" else row[name] for name in _WORKER] for row in rows]
    agreement = "Agreement between annotators: 1 is perfect, 0 is chance"
    tables = [
        Table(["form", "votes", "Fleiss' kappa"], kappas, agreement),
        Table([*_WORKER.values()], lines[:_WORKERS], "Workers (hashed)"),
    ]
    simulated = (
        [Text(["These annotators are SIMULATED: no person has seen the images."], tone="note")] if asked.simulated else []
    )
    return Section(f"Votes: {asked.name}" if asked.name else "Votes", [*simulated, *tables])
