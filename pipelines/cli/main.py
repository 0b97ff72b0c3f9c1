"""The command line, ``benchwright``: a front end to the functions of ``pipelines.api``.

Exit codes: 0 done; 1 failed, rejects over budget, or records not matched; 2 usage error; 75 the scheduler of a cluster was
lost, or does not answer; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ...curation.garbage import collect_rarely
from ...datasets.exports.forms import Form
from . import exits
from .models import estimate, export, probe
from .options import (
    AsJson,
    Config,
    Host,
    Kind,
    Name,
    NewOut,
    Out,
    Overrides,
    Pipeline,
    Quiet,
    Scheduler,
    SchedulerWait,
    TrustCode,
    WorkerCount,
    local_folder,
    stage_and_resource,
    stage_and_rows,
    trust,
)
from .qa import qa
from .text import print_lines
from .trainings import evaluate, report, train

# Plain help: the same in a pipe and on a terminal, and without the import of rich.
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done; 1 failed; 2 wrong use; 75 the scheduler of a cluster was lost or does not answer: repeat the "
    "command, or use --wait-for-scheduler; 130 interrupted.\n\nShell completion: benchwright --install-completion",
)
app.add_typer(qa, name="qa")

_DEBUG = {"on": False}


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"benchwright {version('benchwright')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn raw sources into benchmark shards, reproducible byte for byte.

    \b
    Examples:
      benchwright demo --out demo-out
      benchwright run clear --config tiny --out out
      benchwright run clear --config mine.toml --set source.root=photos --out out
      benchwright show out
      benchwright verify out
    """
    _DEBUG["on"] = debug


@app.command("list")
def list_names(kind: Kind = None, as_json: AsJson = False) -> None:
    """List benchmarks, or the names of another kind.

    Kinds: benchmarks, detectors, encoders, estimators, methods, metrics, models, predictors, sources, trackers, transforms.
    Columns: name, what it fits, origin, description.

    \b
    Examples:
      benchwright list
      benchwright list methods
      benchwright list encoders --json
    """
    from .. import listing
    from .text import name_lines

    rows = listing.list_benchmarks() if kind is None else listing.list_names(kind)
    if as_json:
        print(json.dumps(rows, indent=1))
    elif kind is not None:
        print_lines(name_lines(listing.list_names(kind)))
    else:
        for row in listing.list_benchmarks():
            offered = "" if row["origin"] == "built-in" else f" ({row['origin']})"
            print_lines([f"{row['name']:<12} {row['title']}{offered}"])
            if row["configs"]:
                print_lines([f"{'':<12} --config {' | '.join(row['configs'])}; without it, the published settings"])


@app.command("config")
def print_config(name: Name, config: Config = None) -> None:
    """Print a benchmark's settings, to start your own file.

    \b
    Examples:
      benchwright config clear
      benchwright config clear --config demo > mine.toml
    """
    from ..benchmark import find
    from ..config import find_config, read_text

    print(read_text(find_config(find(name).origin, config)), end="")


@app.command("schema")
def print_schema(name: Name) -> None:
    """Print the JSON schema of a benchmark's settings, for editors.

    With a line "#:schema clear.schema.json" at the top of a TOML file, editors that use taplo complete names and mark errors.

    \b
    Examples:
      benchwright schema clear > clear.schema.json
    """
    from .. import api

    print(json.dumps(api.schema(name), indent=1))


@app.command()
def plan(
    name: Name,
    out: NewOut,
    config: Config = None,
    overrides: Overrides = None,
    estimate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=ROWS",
            help="Estimate the cost if this stage yielded ROWS rows, from the run in --out and its trainings (repeatable).",
        ),
    ] = None,
    smaller: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="A run on fewer rows, used together with --out to separate a stage's start-up cost from its cost per row, "
            "also in memory.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the stages, and why some are not up to date.

    Runs nothing. For a stale stage, names what changed: code, a setting or a source.

    \b
    Examples:
      benchwright plan clear --config tiny --out out
      benchwright plan clear --config tiny --out out --set choice.per_class=10
      benchwright plan clear --config tiny --out out --estimate listed=1e8 --estimate retrieved=66e3 --estimate chosen=33e3
      benchwright plan skeleton --config tiny --out out --estimate listed=56880 --smaller smaller
    """
    from .. import api
    from .text import estimate_lines

    todo = api.job(name, config=config, overrides=overrides or ())
    if not estimate:
        if smaller:
            raise typer.BadParameter("only valid together with --estimate", param_hint="--smaller")
        _print_plan(todo, out, as_json=as_json)
        return
    found = api.estimate_costs(todo, out, dict(map(stage_and_rows, estimate)), smaller=smaller or "")
    if as_json:
        print(json.dumps([vars(each) for each in found], indent=1))
    else:
        print_lines(estimate_lines(found))


@app.command()
def run(
    name: Name,
    out: NewOut,
    config: Config = None,
    overrides: Overrides = None,
    scheduler: Scheduler = "threads",
    workers: WorkerCount = None,
    retry: Annotated[
        list[str] | None,
        typer.Option("--retry", metavar="REASON", help="Retry rows that were rejected for this reason (repeatable)."),
    ] = None,
    keep_stale: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-stale",
            metavar="STAGE",
            help="Keep this stage's output even though its code has changed; `show` and `verify` report it (repeatable).",
        ),
    ] = None,
    needs: Annotated[
        list[str] | None,
        typer.Option(
            "--needs",
            metavar="STAGE=RESOURCE",
            help="Run this stage only on workers of the cluster that offer RESOURCE, such as embedded=GPU, or "
            "embedded=GPU=2 for two units (repeatable).",
        ),
    ] = None,
    wait_for_scheduler: SchedulerWait = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would run, and run nothing.")] = False,
    train_too: Annotated[bool, typer.Option("--train", help="Also train the baselines and write the report.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a pipeline, or resume an interrupted run.

    Stages that are up to date (same code, settings and sources) are reused.

    \b
    Examples:
      benchwright run clear --config tiny --out out
      benchwright run clear --config mine.toml --set seed=7 --out out --scheduler processes
      benchwright run clear --config mine.toml --out s3://bucket/run --scheduler tcp://10.0.0.1:8786
      benchwright run clear --out s3://bucket/run --scheduler tcp://10.0.0.1:8786 --needs retrieved=BIG_MEMORY
      benchwright run mine.py --config mine.toml --out out
      benchwright run clear --out out --retry timed_out --retry server_error
      benchwright run clear --out out --keep-stale embedded
      benchwright run vclimb --config tiny --out out --train
    """
    from ...curation.extras import NeedsPackage, how_to_get, missing
    from .. import api
    from .progress import Teller

    needed = dict(map(stage_and_resource, needs or ()))
    todo = api.job(name, config=config, overrides=overrides or ())
    if dry_run:
        _print_plan(todo, out)
        return
    if train_too and missing("torch"):
        raise NeedsPackage(how_to_get("torch"))  # before the dataset is made
    with exits.libraries_silenced(debug=_DEBUG["on"]), Teller(quiet=quiet) as teller:
        done = api.run(
            todo,
            out,
            scheduler=scheduler,
            workers=workers,
            retry=retry or (),
            keep_stale=keep_stale or (),
            needs=needed,
            wait_for_scheduler_s=wait_for_scheduler,
            on_progress=teller.tell,
        )
    if done.waiting:
        print(f"{out}: the run is waiting: {done.waiting}")
        return
    dataset = api.dataset_of(out)
    print(f"{out}: {done.result.rows:,} rows, digest {done.result.digest}" + (f", dataset in {dataset}" if dataset else ""))
    if train_too:
        where = scheduler if "://" in scheduler else "sync"
        train(out, scheduler=where, wait_for_scheduler=wait_for_scheduler, quiet=quiet)
        if "://" not in out:  # reports are written to local folders
            report(out)


def _print_plan(todo: Any, out: str, *, as_json: bool = False) -> None:
    from .. import api
    from .text import plan_lines

    stages = api.plan(todo, out)
    reasons = api.reasons(stages, out)
    if as_json:
        rows = [(stage, None if artifact is None else artifact.rows) for stage, artifact in stages]
        lines = [{"stage": s.name, "kind": s.kind, "rows": n, "why": reasons.get(s.name, "")} for s, n in rows]
        print(json.dumps(lines, indent=1))
    else:
        print_lines(plan_lines(stages, reasons))


@app.command()
def show(out: Out, as_json: AsJson = False) -> None:
    """Print a run's stages: rows, rejects, cost, digests, lineage.

    Shows the lineage from the result back to the sources. The cost is seconds, CPU seconds of all processes, the peak memory of
    a single process, and the size of the files.

    \b
    Examples:
      benchwright show out
      benchwright show out --json | jq .digest
    """
    from .. import api
    from .text import show_lines

    shown = api.show(out)
    if as_json:
        print(json.dumps(shown, indent=1, sort_keys=True))
    else:
        print_lines(show_lines(shown))


@app.command()
def verify(
    out: Out,
    remake: Annotated[
        str | None, typer.Option(metavar="SCRATCH", help="Also rerun everything in this new folder, and compare.")
    ] = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Check every file, digest and count of a run.

    Exits 0 only if all files match their records, and 1 otherwise.

    \b
    Examples:
      benchwright verify out
      benchwright verify out --remake again
    """
    from ...curation.verify import mending
    from .. import api
    from .progress import checking
    from .text import kept_lines

    with checking() as on_stage:
        problems = api.verify(out, on_stage=on_stage)
    if remake is not None and not problems:
        trust(out, trust_code)
        problems = api.remake(out, remake, pipeline=pipeline)
    kept = api.kept_stages(out)
    if as_json:
        document = {"problems": [vars(problem) for problem in problems]}
        print(json.dumps({**document, "kept": kept} if kept else document, indent=1))
    else:
        print_lines([*map(str, problems), *mending(problems)])
        print_lines(kept_lines(kept))
    if problems:
        raise typer.Exit(1)
    if not as_json:
        print(f"{out}: OK: all files match their records")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="Folder or URL of a run.", callback=local_folder)],
    second: Annotated[str, typer.Argument(metavar="B", help="Folder or URL of another run.", callback=local_folder)],
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="Compare only this stage.")] = None,
) -> None:
    """Print the stages and rows in which two runs differ.

    Exits 0 if they are equal, and 1 if they differ. Does not read stages with equal digests; `verify` does.

    \b
    Examples:
      benchwright compare out-a out-b
      benchwright compare out-a out-b --stage retrieved
    """
    from .. import api

    lines = api.describe_differences(api.compare(first, second, stage=stage))
    print_lines(lines or ["identical: their digests match"])
    if lines:
        raise typer.Exit(1)


@app.command()
def view(
    out: Out,
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="Folder of another run to compare with.", show_default=False)
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 for any free one.")] = 8470,
) -> None:
    """Show a run in the browser, finished or not.

    Prints a link with an access token; Ctrl-C stops the server. Writes nothing.

    \b
    Examples:
      benchwright view out
      benchwright view out other-out
      benchwright view out --port 0
      benchwright view out --host 0.0.0.0
    """
    from .. import api

    exits.warn_of_host(host, "can see the run")
    try:
        api.view(out, other and local_folder(other), host=host, port=port, tell=lambda link: print(link, flush=True))
    except KeyboardInterrupt:  # the normal way to stop a server: nothing to resume
        return


@app.command()
def cluster(
    file: Annotated[str, typer.Argument(metavar="FILE.toml", help="Settings: port, [cpu], [gpu], [adaptive].")],
) -> None:
    """Start a cluster of workers on this machine.

    Prints the address for `run --scheduler`; Ctrl-C or SIGTERM stops the cluster. Listens on localhost only.

    \b
    Examples:
      benchwright cluster cluster.toml
      benchwright run clear --config tiny --out out --scheduler tcp://127.0.0.1:8786
    """
    from .. import api

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the workers, and remove their folders
    try:
        api.cluster(file, tell=lambda address: print(address, flush=True))
    except KeyboardInterrupt:  # the normal way to stop it: nothing to resume
        return


@app.command()
def rejects(
    out: Out,
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="Only this stage.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="Only this reason.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum rows to print.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the rejected rows, and why.

    Each line has stage, key, reason and detail, separated by tabs.

    \b
    Examples:
      benchwright rejects out --stage checked --limit 20
      benchwright rejects out --reason truncated --json
    """
    from itertools import islice

    from .. import api
    from .text import on_one_line

    for row in islice(api.rejects(out, stage=stage, reason=reason), None if limit is None else min(limit, sys.maxsize)):
        print(json.dumps(row) if as_json else "\t".join(map(on_one_line, row.values())))


app.command()(train)
app.command("eval")(evaluate)
app.command()(report)
app.command()(export)
app.command()(estimate)
app.command()(probe)


@app.command()
def push(
    out: Out,
    to: Annotated[str, typer.Argument(metavar="WHERE", help="New folder, or fsspec URL such as hf://datasets/NAME.")],
    form: Annotated[
        Form,
        typer.Option(help="parquet for Hugging Face's load_dataset; shards unchanged; or the import formats of these tools."),
    ] = "parquet",
    quiet: Quiet = False,
) -> None:
    """Write the dataset to a hub, an object store or another folder.

    Payloads become columns of Parquet files, and the splits of the benchmark become configurations, which load_dataset(WHERE)
    reads. Repeat an interrupted push to resume it. A repository that does not exist on the hub is created as private.

    \b
    Examples:
      benchwright push out hf://datasets/me/my-clear
      benchwright push out for-the-hub
      benchwright push out s3://bucket/my-clear --form shards
      benchwright push out for-fiftyone --form fiftyone
    """
    from .. import api
    from .text import line_teller

    print(f"{api.push(out, to, form=form, progress=line_teller(quiet=quiet)):,} samples in {to}")


@app.command()
def release(
    out: Out,
    folder: Annotated[str, typer.Option("--to", metavar="FOLDER", help="New or empty local folder.")],
    layout: Annotated[
        str | None, typer.Option(metavar="NAME", help="For CLEAR: training_folder (default) or train_test.")
    ] = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a run in the layout of the published release.

    For CLEAR: images by bucket and class, metadata, the lists of both protocols, features. The layout train_test has the images
    of one split in two folders, as in CLEAR-10 and CLEAR-100 since 2022.

    \b
    Examples:
      benchwright release out --to clear-release
      benchwright release out --to clear-release --layout train_test
    """
    from .. import api

    trust(out, trust_code)
    print(f"{api.release(out, folder, layout=layout, pipeline=pipeline)} images in {folder}")


@app.command()
def demo(
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the album and the run.")] = "demo-out",
    photos: Annotated[int, typer.Option(metavar="N", min=100, help="Size of the album.")] = 960,
    scheduler: Scheduler = "threads",
    workers: WorkerCount = None,
    quiet: Quiet = False,
) -> None:
    """Build a small benchmark from real photos.

    Creates an album of dated photos, and from it a benchmark with baselines and a report, in a few minutes. Each step is
    one of the other commands, printed before it runs.

    \b
    Examples:
      benchwright demo
      benchwright demo --out demo-out --workers 2
    """
    from ..demo import run_demo

    with exits.libraries_silenced(debug=_DEBUG["on"]):
        run_demo(local_folder(out), photos=photos, scheduler=scheduler, workers=workers, quiet=quiet)


@functools.cache
def _command() -> Any:
    command: Any = typer.main.get_command(app)
    for parameter in command.params:
        if parameter.name in ("install_completion", "show_completion"):
            parameter.hidden = True
    return command


def call(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's, and return its exit code; see ``exits``."""
    command = _command()
    exits.warnings_as_lines()
    given = None if arguments is None else list(arguments)
    return exits.guarded(
        lambda: command.main(given, prog_name="benchwright", standalone_mode=False), debug=lambda: _DEBUG["on"]
    )


def main() -> None:
    """Run the process's command line, and end the process."""
    collect_rarely()
    exits.leave(call())


if __name__ == "__main__":
    main()
