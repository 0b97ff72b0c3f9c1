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
    "Plans and rows": ["curation.flow", "curation.rows", "curation.keys", "curation.run", "curation.rng", "curation.budget"],
    "Questions to people": ["curation.qa.rounds", "curation.qa.options"],
    "Stages": [
        *(f"curation.stages.{name}" for name in ("blur", "buckets", "choose", "dates", "detectors")),
        *(f"curation.stages.{name}" for name in ("exif", "images", "reorder", "shortage")),
    ],
    "Commands": [
        "pipelines.api",
        "pipelines.benchmark",
        "pipelines.experiments",
        "pipelines.column_streams",
        "pipelines.streams",
    ],
    "Reading datasets": ["datasets.reader.dataset", "datasets.reader.index", "datasets.reader.features"],
    "Methods": ["training.methods.method", "training.core.criteria", "training.core.exemplars"],
    "Metrics": [
        *(f"eval.metrics.{name}" for name in ("angular", "class_incremental", "clear", "confusion", "label_sets", "novelty")),
        "eval.metrics.order_sensitivity",
        *(f"eval.protocols.{name}" for name in ("domain_incremental", "open_world", "predictions", "streams")),
    ],
}
"""Documented modules, by heading."""


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
    return f"::: {name}\n"


def command_line_page() -> str:
    """The help of every command, as ``--help`` prints it."""
    command = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "What `--help` prints. Exit codes: 0 done, or waiting for votes; 1 failed, too many rejects, files that ",
    ]
    lines[-1] += (
        "do not match their records (`verify`) or runs that differ (`compare`); 2 wrong use; 130 interrupted by Ctrl-C. "
        "Each command is a function of the same name in [`benchwright.pipelines.api`](api/commands.md)."
    )
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
