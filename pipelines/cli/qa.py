"""The commands ``benchwright qa ...``: questions for annotators, and their answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exits import warn_of_host
from .options import Host, Out, Pipeline, RoundName, TrustCode, trust

if TYPE_CHECKING:
    from ...curation.qa.imports import Imported

qa = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Ask annotators: in the browser, or with other tools.

    \b
    Examples:
      benchwright qa serve out --annotator ann --annotator ben
      benchwright qa export out
      benchwright qa import out results/*.csv
    """,
)

TOOLS = ("mturk", "label-studio")
_WORST = 5
"""Most workers named after an import, those with the most wrong gold answers; the report lists all."""


def _tool(value: str) -> str:
    if value not in TOOLS:
        raise typer.BadParameter(f"{value!r}: {' or '.join(TOOLS)}")
    return value


@qa.command("export")
def qa_export(
    out: Out,
    folder: Annotated[str | None, typer.Option("--to", metavar="FOLDER", help="Output folder; default: DIR/qa/export.")] = None,
    tool: Annotated[
        str, typer.Option(metavar="TOOL", help="mturk, or label-studio.", callback=_tool, autocompletion=lambda: list(TOOLS))
    ] = "mturk",
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum images per batch. Default: one batch per group (bucket).")
    ] = None,
    urls: Annotated[bool, typer.Option("--urls", help="Send image URLs instead of thumbnails.")] = False,
    gold: Annotated[
        str | None, typer.Option(metavar="GOLD.csv", help="Questions with known answers: columns file or url, class_name.")
    ] = None,
    gold_per_batch: Annotated[int, typer.Option(metavar="N", min=1, help="Gold questions per batch.")] = 5,
    round: RoundName = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
) -> None:
    """Export the questions for annotators.

    Two HTML forms and the batches as CSV (MTurk), or a Label Studio project.

    \b
    Examples:
      benchwright qa export out --batch-size 200 --gold gold.csv
      benchwright qa export out --tool label-studio --to project
    """
    from .. import api

    trust(out, trust_code)
    kind: Any = tool
    written = api.qa_export(
        out,
        folder,
        tool=kind,
        batch_size=batch_size,
        thumbnails=not urls,
        gold=gold,
        gold_per_batch=gold_per_batch,
        round=round,
        pipeline=pipeline,
    )
    for path in written:
        print(path)


@qa.command("import")
def qa_import(
    out: Out,
    results: Annotated[
        list[str],
        typer.Argument(metavar="RESULTS", help="Result files: MTurk's .csv, Label Studio's .json, or answers.jsonl of serve."),
    ],
    salt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Secret salt for the hashes of worker ids; default: stored in DIR/qa/salt."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Discard the votes of earlier imports.")] = False,
    round: RoundName = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
) -> None:
    """Import the answers of annotators.

    Adds the votes to those of earlier imports, where the run looks for them. A repeated answer (same image, worker and form)
    counts once, and one whose assignment was rejected since is taken back. What is rejected is listed in
    DIR/qa/import.rejects.csv.

    \b
    Examples:
      benchwright qa import out results/*.csv
      benchwright qa import out label-studio-export.json
      benchwright qa import out results/*.csv --replace
    """
    from .. import api

    trust(out, trust_code)
    done = api.qa_import(out, results, salt=salt, replace=replace, round=round, pipeline=pipeline)
    _tell(done)


@qa.command("serve")
def qa_serve(
    out: Out,
    annotator: Annotated[
        list[str] | None,
        typer.Option("--annotator", "-a", metavar="NAME", help="Invite an annotator of this name; repeatable."),
    ] = None,
    gold: Annotated[
        str | None, typer.Option(metavar="GOLD.csv", help="Questions with known answers: columns file, class_name.")
    ] = None,
    gold_every: Annotated[int, typer.Option(metavar="N", min=2, help="One in N questions is a gold question.")] = 20,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 for any free one.")] = 8471,
    round: RoundName = None,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
) -> None:
    """Ask annotators in the browser.

    Prints a link for you, a shared link, and one for each annotator. An answer is in DIR/qa/answers.jsonl before the next
    question is shown; if the server is killed, repeat the command to continue. Annotators' links stay valid as long as
    the port is the same. Ctrl-C stops the server and imports the answers.

    \b
    Examples:
      benchwright qa serve out --annotator ann --annotator ben
      benchwright qa serve out --gold gold.csv --gold-every 10
      benchwright qa serve out --host 0.0.0.0 --port 9000
    """
    from .. import api

    trust(out, trust_code)
    warn_of_host(host, "can answer in the name of its annotator")
    done = api.qa_serve(
        out,
        annotators=annotator or (),
        gold=gold,
        gold_every=gold_every,
        host=host,
        port=port,
        round=round,
        pipeline=pipeline,
        tell=lambda name, link: print(f"{name}: {link}", flush=True),
    )
    if done is not None:
        _tell(done)


def _tell(done: Imported) -> None:
    """Print the result of an import."""
    from .text import printed_kappa

    print(f"{done.added} votes added, {done.votes} in all")
    if done.withdrawn:
        print(f"{done.withdrawn} votes of earlier imports taken back: their assignments no longer count")
    if done.gold.num_rows:
        gold = done.gold.to_pylist()
        right, asked = (sum(each[name] for each in gold) for name in ("gold_right", "num_gold"))
        print(f"{right} of {asked} gold questions answered correctly")
        for worst in [each for each in gold if each["gold_accuracy"] < 1][:_WORST]:
            print(f"  worker {worst['worker']}: {worst['gold_right']} of {worst['num_gold']}")
    if done.gold_again:
        print(f"{done.gold_again} repeated answers to gold questions: only a worker's first answer counts")
    if done.known:
        new = done.added or done.withdrawn or done.rejects
        print(f"{done.known} answers had already been imported{'' if new else ': nothing new'}")
    for reason, count in done.rejects.items():
        print(f"{count} rejected: {reason}")
    if done.rejects:
        print(f"Rejected, with file and line: {done.rejects_file}")
    for form, kappa in done.kappas.items():
        print(f"Fleiss' kappa, form {form}: {printed_kappa(kappa)}")
    for count in done.missing["form"].value_counts().to_pylist():
        print(f"{count['counts']} images still need votes on form {count['values']}")
    again = "Train" if "experiments" in Path(done.votes_file).parts else "Run"
    print(f"{again} again to continue: the pipeline finds the votes in {done.votes_file}")
