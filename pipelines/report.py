"""What every report shows of a run: its finished stages, a line a stage, and the sources behind them; and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..curation.artifact import Artifact, load_artifact, load_made, load_run
from ..curation.store import Store
from ..eval.report.blocks import Card, Report, Section
from ..eval.report.html import write
from ..eval.report.sections import Source, StageRow, pipeline_section, provenance_section

About = Mapping[str, tuple[str, str]]
""""stage: setting" -> what the file is that the setting names, and its licence."""

OWNERS = "its owner's; this run does not know it"
"""What is told of the licence of a file that someone brought."""


def finished_stages(store: Store) -> dict[str, Artifact]:
    """The finished stages of a run by name, in the order of the plan."""
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
) -> str:
    """Write ``report.html`` into the run's folder: ``sections``, then the pipeline and its sources. Returns its path.

    Args:
        made: the finished stages, see ``finished_stages``.
        out: a local folder.
        drawn, about: see ``sources_of``.
    """
    store = Store(out)
    ends = [
        pipeline_section([stage_row(store, artifact) for artifact in made.values()]),
        provenance_section(sources_of(made.values(), drawn=drawn, about=about)),
    ]
    last = made[list(made)[-1]]
    path = Path(out) / "report.html"
    write(Report(title, subtitle, [*sections, *ends], f"{last.stage}: content digest {last.digest}"), path)
    return str(path)
