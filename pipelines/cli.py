"""The command line, ``benchwright``: the functions of ``pipelines.api``, for people.

Exit codes: 0 done; 1 failed, rejects over budget, or not what the records say; 2 wrong use; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help=(
        "Turn raw sources into benchmark shards, byte for byte the same every time.\n\n"
        "Examples:\n\n"
        "  benchwright demo --out demo-out\n\n"
        "  benchwright run clear --config tiny --out out\n\n"
        "  benchwright run clear --config mine.toml --set source.root=photos --out out --scheduler processes\n\n"
        "  benchwright show out --json\n\n"
        "  benchwright verify out"
    ),
)
qa = typer.Typer(no_args_is_help=True, help="Questions for annotators: write what they are asked, read what they answered.")
app.add_typer(qa, name="qa")

_DEBUG = {"on": False}

Out = Annotated[str, typer.Argument(metavar="DIR", help="Folder or URL of a run.")]
NewOut = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder or fsspec URL that holds the run.")]
Config = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE.toml", help="Settings: a file, or a packaged variant such as 'tiny'."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting, as in --set retrieval.per_class=100."),
]
Scheduler = Annotated[
    str,
    typer.Option(help="sync, threads, processes, or the address of a dask.distributed scheduler (tcp://HOST:8786)."),
]
Workers = Annotated[int | None, typer.Option(help="Threads or processes; as many as there are cores by default.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors and the result.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A benchmark of `benchwright list`, or a Python file with a BENCHMARK.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"benchwright {version('benchwright')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    _DEBUG["on"] = debug


@app.command("list")
def list_benchmarks(as_json: AsJson = False) -> None:
    """List the benchmarks and their packaged settings.

    Example: benchwright list
    """
    from .benchmark import NAMES, find
    from .config import variants

    rows = [{"name": name, "title": find(name).title, "configs": variants(name)} for name in NAMES]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(f"{row['name']:<12} {row['title']}  [--config {' | '.join(row['configs'])}]")


@app.command()
def plan(name: Name, out: NewOut, config: Config = None, overrides: Overrides = None) -> None:
    """Print the stages of a pipeline, and which of them are there already. Makes nothing.

    Example: benchwright plan clear --config tiny --out out
    """
    from . import api

    _print_plan(api.plan(api.job(name, config=config, overrides=overrides or ()), out))


@app.command()
def run(
    name: Name,
    out: NewOut,
    config: Config = None,
    overrides: Overrides = None,
    scheduler: Scheduler = "threads",
    workers: Workers = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be made, and make nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a pipeline, or go on with one that was broken off: what is there already is used as it is.

    Examples:

      benchwright run clear --config tiny --out out

      benchwright run clear --config mine.toml --set seed=7 --out s3://bucket/run --scheduler tcp://10.0.0.1:8786
    """
    from . import api
    from .progress import Teller

    todo = api.job(name, config=config, overrides=overrides or ())
    if dry_run:
        _print_plan(api.plan(todo, out))
        return
    with Teller(quiet=quiet) as teller:
        done = api.run(todo, out, scheduler=scheduler, workers=workers, on_progress=teller.tell)
    if done.waiting:
        print(f"The run waits: {done.waiting}")
        return
    print(f"{out}: {done.result.rows} rows, digest {done.result.digest}")


def _print_plan(stages: Sequence[tuple[Any, Any]]) -> None:
    for stage, artifact in stages:
        state = f"there already, {artifact.rows} rows" if artifact is not None else "to be made"
        print(f"{stage.name:<12} {stage.kind:<11} {state:<28} {stage.step.name}")


@app.command()
def show(out: Out, as_json: AsJson = False) -> None:
    """Print what a run made: rows, rejects by reason and digest of every stage, and the chain back to its sources.

    Example: benchwright show out --json
    """
    from . import api

    shown = api.show(out)
    if as_json:
        print(json.dumps(shown, indent=1, sort_keys=True))
        return
    print(f"pipeline  {shown['pipeline']}")
    print(f"digest    {shown['digest'] or '(the run has not reached its end)'}")
    print(f"\n{'stage':<12} {'rows':>9} {'rejects':>9} {'seconds':>8}  digest")
    for stage in shown["stages"]:
        turned_away = sum(stage["rejects"].values())
        print(f"{stage['name']:<12} {stage['rows']:>9} {turned_away:>9} {stage['seconds'] or 0:>8.2f}  {stage['digest'][:16]}")
        for reason, count in stage["rejects"].items():
            print(f"{'':<12} {'':>9} {count:>9} {'':>8}  {reason}")
    print("\nchain")
    for link in reversed(shown["provenance"]["chain"]):
        inputs = ", ".join(f"{name} {digest[:12]}" for name, digest in link["inputs"].items())
        contents = [
            f"{key} {v['content'][:12]}" for key, v in link["settings"].items() if isinstance(v, dict) and "content" in v
        ]
        print(f"  {link['stage']:<12} {link['step']} <- {inputs or 'source'} {'; '.join(contents)}".rstrip())


@app.command()
def verify(
    out: Out,
    remake: Annotated[str | None, typer.Option(metavar="SCRATCH", help="Also make the run again in this new folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every file, digest, count and link of a run against its records. Exits 0 only where all is well.

    Examples:

      benchwright verify out

      benchwright verify out --remake /tmp/again
    """
    from . import api

    problems = api.verify(out)
    if remake is not None and not problems:
        problems = api.remake(out, remake)
    if as_json:
        print(json.dumps({"problems": [vars(problem) for problem in problems]}, indent=1))
    for problem in problems if not as_json else []:
        print(problem)
    if problems:
        raise typer.Exit(1)
    if not as_json:
        print(f"{out}: everything is as recorded")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A")],
    second: Annotated[str, typer.Argument(metavar="B")],
    stage: Annotated[str | None, typer.Option(help="Compare this stage alone.")] = None,
) -> None:
    """Tell two runs apart, stage by stage and row by row. Exits 0 where they are the same.

    Example: benchwright compare out-a out-b --stage retrieved
    """
    from . import api

    lines = api.describe(api.compare(first, second, stage=stage))
    print("\n".join(lines) or "the same, row by row")
    if lines:
        raise typer.Exit(1)


@app.command()
def rejects(
    out: Out,
    stage: Annotated[str | None, typer.Option(help="Of this stage alone.")] = None,
    reason: Annotated[str | None, typer.Option(help="With this reason alone.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Print at most so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the rows that were turned away: stage, key, reason, detail, separated by tabs.

    Example: benchwright rejects out --stage checked --limit 20
    """
    from itertools import islice

    from . import api

    for row in islice(api.rejects(out, stage=stage, reason=reason), limit):
        print(json.dumps(row) if as_json else "\t".join(value.replace("\t", " ").replace("\n", " ") for value in row.values()))


@qa.command("export")
def qa_export(
    out: Out,
    folder: Annotated[
        str | None, typer.Option("--to", metavar="FOLDER", help="Where the files go; DIR/qa/export by default.")
    ] = None,
    tool: Annotated[str, typer.Option(help="mturk, or label-studio.")] = "mturk",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Most images a batch; one batch a bucket by default.")] = None,
    urls: Annotated[bool, typer.Option("--urls", help="Send the addresses of the images, not thumbnails.")] = False,
) -> None:
    """Write what annotators are asked: two HTML forms and the batches as CSV (MTurk), or a Label Studio project.

    Example: benchwright qa export out --batch-size 200
    """
    from . import clear_runs

    if tool not in ("mturk", "label-studio"):
        raise typer.BadParameter(f"{tool!r}: mturk or label-studio", param_hint="--tool")
    into = folder or f"{out}/qa/export"
    config = _clear(out)
    for path in clear_runs.export_questions(config, out, into, tool=tool, batch_size=batch_size, thumbnails=not urls):
        print(path)


@qa.command("import")
def qa_import(
    out: Out,
    results: Annotated[
        list[str], typer.Argument(metavar="RESULTS...", help="Result files: MTurk's .csv or Label Studio's .json.")
    ],
    salt: Annotated[
        str | None, typer.Option(help="Secret text for the hashes of worker ids; kept in DIR/qa/salt by default.")
    ] = None,
) -> None:
    """Read what annotators answered, and put it where the run looks for it.

    Example: benchwright qa import out results/*.csv
    """
    from . import clear_runs

    for name in results:
        existing(name)
    done = clear_runs.import_votes(_clear(out), out, results, salt=salt or clear_runs.own_salt(out))
    print(f"{done.votes} votes")
    for reason, count in done.rejects.items():
        print(f"{count} turned away: {reason}")
    for form, kappa in done.kappas.items():
        print(f"Fleiss' kappa, form {form}: {kappa:.3f}")
    if done.missing.num_rows:
        print(f"{done.missing.num_rows} images and forms are short of votes, such as {done.missing['key'][0].as_py()}")
    print(f"Run again to go on: the pipeline finds the votes in {out}/{clear_runs.VOTES_FILE}")


def _clear(out: str) -> Any:
    from . import api
    from .clear_config import ClearConfig

    config = api.job_of(out).config
    if not isinstance(config, ClearConfig):
        raise ValueError(f"{out}: this pipeline asks no annotators")
    return config


Methods = Annotated[
    list[str] | None, typer.Option("--method", "-m", help="A baseline; several may be given. Those of the settings by default.")
]
Protocols = Annotated[list[str] | None, typer.Option("--protocol", "-p", help="iid or streaming; both by default.")]


@app.command()
def train(out: Out, methods: Methods = None, protocols: Protocols = None, quiet: Quiet = False) -> None:
    """Train baselines on the published shards, bucket by bucket; goes on where it was broken off.

    Example: benchwright train out --method cumulative-finetune --protocol iid
    """
    from . import api

    todo = api.job_of(out)
    if todo.benchmark.evaluate is None:
        raise ValueError(f"benchmark {todo.benchmark.name} has no baselines")
    tell: Callable[[str], None] = (lambda _: None) if quiet else (lambda line: print(line, file=sys.stderr, flush=True))
    todo.benchmark.evaluate(todo.config, out, methods=methods or (), protocols=protocols or ("iid", "streaming"), progress=tell)
    _print_scores(out)


@app.command("eval")
def evaluate(out: Out, as_json: AsJson = False) -> None:
    """Print the metrics of the baselines that were trained.

    Example: benchwright eval out
    """
    if as_json:
        from .clear_report import load_results

        print(json.dumps(load_results(out), indent=1))
        return
    _print_scores(out)


def _print_scores(out: str) -> None:
    from .clear_report import load_results

    results = load_results(out)
    if not results:
        raise FileNotFoundError(f"{out}: no baseline was trained; `benchwright train {out}` does it")
    for protocol, methods in results.items():
        metrics = list(next(iter(methods.values()))["mean"])
        print(f"\n{protocol:<38}" + "".join(f"{metric:>18}" for metric in metrics))
        for name, result in methods.items():
            print(f"{name:<38}" + "".join(_score(result, metric) for metric in metrics))


def _score(result: Any, metric: str) -> str:
    mean, std = result["mean"][metric], result["std"][metric]
    if mean is None:
        return f"{'-':>18}"
    return f"{100 * mean:>10.1f}" + (f" ± {100 * std:>4.1f} " if std is not None else " " * 8)


@app.command()
def report(out: Out) -> None:
    """Write the HTML report of a run and print its path.

    Example: benchwright report out
    """
    from . import api

    todo = api.job_of(out)
    if todo.benchmark.report is None:
        raise ValueError(f"benchmark {todo.benchmark.name} has no report")
    print(todo.benchmark.report(todo.config, out))


@app.command()
def demo(
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the album and the run.")] = "demo-out",
    scheduler: Scheduler = "threads",
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Make an album of dated photos, turn it into a benchmark, train baselines and write a report: all in a few minutes.

    Each step is one of the other commands, and is printed before it runs.
    """
    from .demo import run_demo

    run_demo(out, scheduler=scheduler, workers=workers, quiet=quiet)


def main() -> None:
    """Entry point: errors that a user can mend are one line."""
    sys.exit(_guarded(lambda: app(standalone_mode=False)))


_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer carries its own copy of click, or not, by version


def _guarded(call: Callable[[], Any]) -> int:
    try:
        code = call()
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except _UsageError as error:
        error.show()
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("\nStopped. What was made stays: give the same command again to go on.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:  # the command line's border: one line for people, the traceback on demand
        return _tell(error)


def _tell(error: Exception) -> int:
    if _DEBUG["on"]:
        traceback.print_exc()
    told = " ".join((str(error) or type(error).__name__).split())
    if not _DEBUG["on"] and not isinstance(error, ValueError | RuntimeError | OSError | KeyError):
        told = f"{type(error).__name__}: {told} (--debug shows where)"
    print(f"benchwright: {told}", file=sys.stderr)
    return 2 if _is_wrong_use(error) else 1


def _is_wrong_use(error: Exception) -> bool:
    from ..curation.flow import PlanError
    from .benchmark import UnknownBenchmark
    from .config import ConfigError

    return isinstance(error, PlanError | UnknownBenchmark | ConfigError)


def existing(path: str) -> Path:
    """A local path that is there. Raises ``FileNotFoundError`` with one clear line."""
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    return found


if __name__ == "__main__":
    main()
