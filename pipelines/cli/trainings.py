"""The commands ``train``, ``eval`` and ``report``: baselines, their metrics, and the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from . import exits
from .options import (
    AsJson,
    Methods,
    Out,
    Overrides,
    Pipeline,
    Protocols,
    Quiet,
    Scheduler,
    SchedulerWait,
    TrustCode,
    WorkerCount,
    trust,
)


def train(
    out: Out,
    methods: Methods = None,
    protocols: Protocols = None,
    overrides: Overrides = None,
    scheduler: Scheduler = "sync",
    workers: WorkerCount = None,
    retry: Annotated[
        list[str] | None,
        typer.Option("--retry", metavar="REASON", help="Retry trainings that were rejected for REASON: diverged."),
    ] = None,
    keep_stale: Annotated[
        bool,
        typer.Option(
            "--keep-stale",
            help="Reuse existing trainings even though their code has changed; `eval`, `report`, `show` and `verify` say so.",
        ),
    ] = False,
    needs: Annotated[
        str | None,
        typer.Option(
            "--needs",
            metavar="RESOURCE",
            help="Resource that cluster workers must offer for each training; '' for none. Default: GPU if the device is one.",
        ),
    ] = None,
    wait_for_scheduler: SchedulerWait = 0.0,
    track: Annotated[
        str | None,
        typer.Option(
            "--track",
            metavar="NAME=PLACE",
            help="Log losses and metrics to tensorboard=FOLDER, wandb=PROJECT, mlflow=URI, or FILE.py:NAME=PLACE.",
        ),
    ] = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Train baselines on the published shards.

    Interrupt it at any time, and repeat the command to resume it. Skips trainings that are up to date, and keeps those with
    other settings. Prints the metrics at the end.

    \b
    Examples:
      benchwright train out
      benchwright train out --method cumulative-finetune --protocol iid
      benchwright train out --method table1
      benchwright train out --set baselines.preset=mlp --set baselines.epochs=50
      benchwright train out --scheduler processes --workers 8
      benchwright train out --method er --keep-stale
      benchwright train out --track tensorboard=runs
      torchrun --standalone --nproc-per-node 2 --no-python benchwright train out
    """
    from .. import api
    from .text import line_teller

    trust(out, trust_code)
    with api.reading_once():
        results = api.train(
            out,
            methods=methods or (),
            protocols=protocols or (),
            overrides=overrides or (),
            scheduler=scheduler,
            workers=workers,
            retry=retry or (),
            keep_stale=keep_stale,
            needs=needs,
            wait_for_scheduler_s=wait_for_scheduler,
            track=track,
            pipeline=pipeline,
            progress=line_teller(quiet=quiet),
        )
        if results is not None:  # only torchrun's first process reports them
            _print_scores(out, results, pipeline)


def evaluate(out: Out, as_json: AsJson = False, pipeline: Pipeline = None, trust_code: TrustCode = False) -> None:
    """Print the metrics of the baselines.

    \b
    Examples:
      benchwright eval out
      benchwright eval out --json
    """
    from .. import api

    trust(out, trust_code)
    with api.reading_once():
        _print_scores(out, api.scores(out, pipeline=pipeline), pipeline, as_json=as_json)


def _print_scores(out: str, results: Any, pipeline: str | None, *, as_json: bool = False) -> None:
    from .. import api
    from .text import print_lines, score_lines

    stale, skipped = _print_warnings(out, pipeline)
    waiting = api.awaited(out, pipeline=pipeline)
    for name, reason in waiting.items():
        print(f"{name}: {reason}", file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(results, indent=1))
        return
    if not results and waiting:
        return
    if not results:
        if skipped and not stale:
            raise FileNotFoundError(f"{out}: no results: all baselines were skipped")
        available = "all baselines are stale" if stale else "no baselines trained yet"
        raise FileNotFoundError(f"{out}: {available}: run `benchwright train {out}`")
    print_lines(score_lines(results))


def _print_warnings(out: str, pipeline: str | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Print warnings about stale and kept results and skipped trainings; return those that are stale or skipped."""
    from .. import api
    from .text import kept_results_line, stale_line

    stale, skipped = api.stale(out, pipeline=pipeline), api.skipped(out, pipeline=pipeline)
    if text := stale_line(out, stale):
        exits.say(text)
    if text := kept_results_line(out, api.kept(out, pipeline=pipeline)):
        exits.say(text)
    for place, why in skipped.items():
        exits.say(f"{place} was skipped: {why}")
    return stale, skipped


def report(
    out: Out,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--beside",
            metavar="OTHER",
            help="Another run of the benchmark, whose results are joined with this run's in tables of the paper's form "
            "(vclimb); repeatable.",
        ),
    ] = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
) -> None:
    """Write the HTML report of a run.

    Prints its path.

    \b
    Examples:
      benchwright report out
      benchwright report trim --beside untrim --beside ucf
    """
    from .. import api

    for each in (out, *(beside or ())):
        trust(each, trust_code)
    with api.reading_once():
        print(api.report(out, beside=beside or (), pipeline=pipeline))
        _print_warnings(out, pipeline)
