"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import did_you_mean

SCHEDULERS = ("sync", "threads", "processes")


def local_folder(value: str) -> str:
    """Remove the ``file://`` of a URL of a local folder."""
    return value.removeprefix("file://") if value.startswith("file:///") else value


def trust(out: str, wanted: bool) -> None:
    """If ``wanted``, trust the code that a run names as if the user had named it."""
    from ..jobs import allow

    if wanted:
        allow(out)


def known_scheduler(value: str) -> str:
    """A scheduler's name or address. Raises ``typer.BadParameter`` for any other word."""
    if value not in SCHEDULERS and "://" not in value:
        rule = f"one of {', '.join(SCHEDULERS)}, or tcp://HOST:PORT{did_you_mean(value, SCHEDULERS)}"
        raise typer.BadParameter(f"{value!r}: {rule}")
    return value


def stage_and_rows(value: str) -> tuple[str, int]:
    """The parts of ``STAGE=ROWS``. Raises ``typer.BadParameter`` for anything else."""
    stage, equals, rows = value.partition("=")
    try:
        count = float(rows.replace("_", ""))
    except ValueError:
        count = -1.0
    if not (stage and equals and 0 <= count < 1e15 and count == int(count)):
        raise typer.BadParameter(f"{value!r}: STAGE=ROWS, such as listed=1000000 or listed=1e6", param_hint="--estimate")
    return stage, int(count)


def stage_and_resource(value: str) -> tuple[str, str]:
    """The parts of ``STAGE=RESOURCE``. Raises ``typer.BadParameter`` for anything else."""
    stage, equals, resource = value.partition("=")
    if not (stage and equals):
        rule = f"STAGE=RESOURCE, such as embedded=GPU, or {value}= if any worker will do" if stage else "STAGE=RESOURCE"
        raise typer.BadParameter(f"{value!r}: {rule}", param_hint="--needs")
    return stage, resource


def _names() -> list[str]:
    from ..catalogue import BENCHMARKS

    return [entry.name for entry in BENCHMARKS.entries()]


def _kinds() -> list[str]:
    from ..listing import REGISTRIES

    return list(REGISTRIES)


Out = Annotated[str, typer.Argument(metavar="DIR", help="Folder or URL of a run.", callback=local_folder, show_default=False)]
NewOut = Annotated[
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder or fsspec URL that holds the run.", callback=local_folder)
]
Config = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE.toml", help="Settings: a file, or a preset such as 'tiny'."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting, as in --set retrieval.per_class=100."),
]
Scheduler = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help="sync, threads, processes, or the address of a dask.distributed scheduler (tcp://HOST:8786).",
        callback=known_scheduler,
        autocompletion=lambda: list(SCHEDULERS),
    ),
]
WorkerCount = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Number of threads or processes; default: one per core.")
]
SchedulerWait = Annotated[
    float,
    typer.Option(
        "--wait-for-scheduler",
        metavar="SECONDS",
        min=0,
        help="Wait so long for a cluster's scheduler that does not answer or was lost, instead of exiting with code 75.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings, errors and the result.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A benchmark of `benchwright list`, a Python file with a BENCHMARK, or module:NAME.",
        autocompletion=_names,
    ),
]
Kind = Annotated[
    str | None,
    typer.Argument(metavar="[KIND]", help="What to list; benchmarks by default.", autocompletion=_kinds, show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Pipeline = Annotated[
    str | None,
    typer.Option("--pipeline", metavar="FILE.py", help="The run's pipeline; default: the recorded one."),
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Also run code that is named only in the run's record.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on; default: localhost only.")]
RoundName = Annotated[
    str | None,
    typer.Option("--round", metavar="NAME", help="The round of questions, if the pipeline has several."),
]

Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        "-m",
        metavar="METHOD",
        help="A baseline, or a group such as table1 (clear); repeatable. Default: those in the settings.",
    ),
]
Protocols = Annotated[
    list[str] | None,
    typer.Option(
        "--protocol",
        "-p",
        metavar="PROTOCOL",
        help="A protocol or experiment, such as iid or pretrain (clear), 0.5 (kowl), task_order (skeleton); repeatable. "
        "Default: those in the settings.",
    ),
]
