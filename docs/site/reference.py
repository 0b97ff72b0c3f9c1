"""Pages of the command line and of the API, and those whose text lies elsewhere in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import benchwright
import click
import typer
from benchwright.pipelines.cli.main import app

ROOT = Path(__file__).resolve().parents[2]

MODULES = {
    "Plans and rows": [
        "curation.flow: Flow, PlanError, Stage, Step, join, rows_of, source, step",
        "curation.rows: Blob, MachineFault, REJECTS, Reject, Rejected, SNAKE_CASE, Shape, Sifted, is_text, one_line, "
        "printable, schema_of, sift, with_column",
        "curation.keys: Fingerprint, MissingSource, SAMPLED_BYTES, canonical, fingerprint, how, named, sha256, where, "
        "where_of_rows, work_folder",
        *("curation.run: Busy, Progress, Run, run, status", "curation.rng", "curation.budget: Budget, NoRows, TooManyRejects"),
        *("curation.png", "curation.cost: CostEstimate", "curation.stage_rows: Rows"),
        "curation.publish: DatasetCard, names_of",
    ],
    "Questions to people": [
        "curation.qa.rounds: ErrorRates, Round, Simulated, addresses_of, ask, asked_rows, export_questions, images_of, "
        "questions_of, unanswered, votes_of, votes_place",
        "curation.qa.options",
    ],
    "Stages": [
        *(f"curation.stages.{name}" for name in ("blur", "buckets", "choose", "dates", "detectors", "exif", "images")),
        *(f"curation.stages.{name}" for name in ("image_sources", "near_duplicates", "picture_hash", "ranks")),
        *(f"curation.stages.{name}" for name in ("external_sort", "reorder", "shortage", "spill: SpillableArray")),
    ],
    "Protocols": [
        *(f"datasets.{name}" for name in ("clear.splits", "iirc.tasks", "iirc.view", "kowl.example", "kowl.increments")),
        *(
            f"datasets.{name}"
            for name in ("kowl.splits", "kowl.tables", "skeleton.orders", "skeleton.splits", "two_camera.folds")
        ),
        *(f"datasets.{name}" for name in ("two_camera.transforms", "ucf101.lists", "vclimb.splits", "videos.rows")),
    ],
    "Commands": [
        *(f"pipelines.{name}" for name in ("api", "benchmark", "cluster", "experiments", "training_results")),
        "pipelines.column_streams",
        "pipelines.stream_trainings: Prepare, Prepared, Runs, learn_stream, stream_training, trainings_of, weights_sha256",
        *(
            "pipelines.config: Location, load, find_config",
            "pipelines.names: OneOf",
            "training.models.registry: MODELS",
            "eval.metrics.registry: METRICS",
            "pipelines.publish: publish_shards",
        ),
        *("pipelines.metrics: measure_by", "pipelines.report: ReportedRun, write_page, results_sections, position_sections"),
        "pipelines.two_camera.baselines: write_artifacts",
    ],
    "Reading datasets": [
        *(f"datasets.reader.{name}" for name in ("dataset", "index", "collate", "web", "decode", "samples", "features")),
        "datasets.exports.avalanche",
    ],
    "Methods": [
        *(f"training.{name}" for name in ("methods.method", "methods.finetune", "methods.er", "models.classifier")),
        *(f"training.core.{name}" for name in ("capacity", "criteria", "exemplars", "memory")),
        *("training.illuminants.pictures", "training.illuminants.registry: load_baseline"),
    ],
    "Metrics": [
        *(f"eval.metrics.{name}" for name in ("angular", "class_incremental", "clear", "confusion", "label_sets", "novelty")),
        "eval.metrics.order_sensitivity",
        *(f"eval.protocols.{name}" for name in ("cross_validation", "domain_incremental", "open_world.loop", "predictions")),
        *("eval.protocols.stream_loop", "eval.labels", "eval.results"),
    ],
}
"""Documented modules, by heading; of some only the names behind the colon."""


def api_pages() -> Iterator[tuple[str, str]]:
    """Path and text of the front door's page, and of one page a group of modules."""
    front = ["# import benchwright", "", "Each name is imported when it is first used.", ""]
    front += ["| name | what |", "| --- | --- |"]
    for name in sorted(set(benchwright.__all__) - {"__version__", "open_dataset"}):
        place = next(place for place, names in benchwright._PLACES.items() if name in names)
        first = (getattr(benchwright, name).__doc__ or "").strip().split("\n\n")[0]
        front.append(f"| [`bw.{name}`][benchwright.{place}.{name}] | {' '.join(first.split())} |")
    yield "api/index.md", "\n".join([*front, "", _directive("benchwright.open_dataset")])
    for title, modules in MODULES.items():
        page = [f"# {title}", "", *(_directive(f"benchwright.{module}") for module in modules)]
        yield f"api/{title.lower().replace(' ', '_')}.md", "\n".join(page)


def _directive(name: str) -> str:
    module, _, members = name.partition(": ")
    return f"::: {module}\n" + (f"    options:\n      members: [{members}]\n" if members else "")


def command_line_page() -> str:
    """The help of every command, as ``--help`` prints it."""
    command = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "What `--help` prints. Exit codes: 0 done, or waiting for votes; 1 failed, too many rejects, files that "
        "do not match their records (`verify`) or runs that differ (`compare`); 2 wrong use; 75 the "
        "scheduler of a cluster was lost or does not answer: repeat the command, or use `--wait-for-scheduler`; 130 "
        "interrupted by Ctrl-C.",
        "",
        "Most commands are functions of the same names in [`benchwright.pipelines.api`](api/commands.md). `list` is "
        "`list_benchmarks` and `list_names`, `eval` is `scores`, `qa export` is `qa_export`, and so on. "
        "What `config` prints has no function: `job(NAME, config=...).values` are the settings. Nor has `demo`.",
    ]
    for path, each in _commands(command, ()):
        lines += ["", f"## {' '.join(path) or 'benchwright'}", "", "```text", _help(each, ("benchwright", *path)), "```"]
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from _commands(each, (*path, name))


def _help(command: click.Command, path: tuple[str, ...]) -> str:
    context = click.Context(command, info_name=" ".join(path), terminal_width=100, max_content_width=100)
    return click.unstyle(command.get_help(context)).rstrip()


def from_the_repository() -> Iterator[tuple[str, Path]]:
    """Path in the site -> file of the repository that is shown there."""
    yield "reproduced.md", ROOT / "REPRODUCED.md"
    yield "changelog.md", ROOT / "CHANGELOG.md"
    yield "contributing.md", ROOT / "CONTRIBUTING.md"
    for card in sorted((ROOT / "datasets").glob("*/README.md")):
        yield f"sources/{card.parent.name}.md", card


def rewritten(text: str, file: Path, pages: dict[Path, str], here: str, stays: Path | None = None) -> str:
    """Links to files of the repository lead to their pages; where there is none the text stays, without a link.

    Those into the folder ``stays`` are left as they are.
    """

    def link(found: re.Match[str]) -> str:
        shown, target, anchor = found["text"], found["target"], found["anchor"] or ""
        if re.match(r"[a-z]+:", target) or not target:
            return found[0]
        place = (file.parent / target).resolve()
        if stays and place.is_relative_to(stays):
            return found[0]
        page = pages.get(place)
        if page is None:
            return shown
        up = "../" * here.count("/")
        return f"[{shown}]({up}{page}{anchor})"

    return re.sub(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)", link, text)
