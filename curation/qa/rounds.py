"""Rounds of questions to people: the rows asked about, the export of questions, and the location of the votes.

A pipeline that waits for people describes each round with a ``Round`` and calls ``ask`` on its plan, which adds the stage that
counts the votes. Answers are imported by ``imports``; SIMULATED answers are made by ``simulated.answer``.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ..artifact import load_artifact
from ..flow import Flow, PlanError, step
from ..keys import WhereOfRows, as_json, canonical, sha256, where, where_of_rows
from ..records import check_file
from ..rows import Blob, is_blob, is_text, printable
from ..run import lock
from ..stage_rows import Rows
from ..store import Store, StoreError
from .label_studio import export_tasks
from .mturk import Gold, Medium, export_batches, web_address
from .mturk_results import clean, csv_records
from .options import Option
from .votes import FORMS, QuestionForm, Sensitive, Voted, VoteRule, count_votes, missing_votes, read_votes

FOLDER = "qa"
"""Subfolder of a run with the files of its rounds and the salt of the worker hashes."""

SIMULATED = "votes-SIMULATED-"
"""Prefix of the names of files of simulated votes."""

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_TAKEN = ("export", "salt", "simulated")
"""Names in ``qa/`` that are used by the files of the unnamed round."""


POOL = 20
"""Default number of simulated workers."""


@dataclasses.dataclass(frozen=True)
class ErrorRates:
    """Probabilities, each in [0, 1], that one simulated answer is wrong. Those of the label form are exclusive: their sum is
    at most 1.

    Args:
        none: "None of the above" for an image of a class.
        extra: the right class and another one (for a background image: a class).
        wrong: another class.
        sensitive: Yes for an image that is not sensitive, or No for one that is (independent of the others).

    >>> ErrorRates(none=0.5, wrong=0.6)
    Traceback (most recent call last):
        ...
    ValueError: ErrorRates(none=0.5, extra=0.04, wrong=0.6, sensitive=0.0): rates are not negative, and those of the ...
    """

    none: float = 0.05
    extra: float = 0.04
    wrong: float = 0.03
    sensitive: float = 0.0

    def __post_init__(self) -> None:
        if min(dataclasses.astuple(self)) < 0 or self.none + self.extra + self.wrong > 1 or self.sensitive > 1:
            raise ValueError(f"{self}: rates are not negative, and those of the label form add up to at most 1")


@dataclasses.dataclass(frozen=True)
class Simulated:
    """Settings of SIMULATED annotators, for demonstrations and tests.

    Attributes:
        truth: source of the right class of an image (null: none of the above): a text column of the rows, or a key of the
            JSON objects in their column ``labels``, as image sources provide it.
        errors: probabilities of wrong answers.

    >>> Simulated("concept").errors  # chances of wrong answers
    ErrorRates(none=0.05, extra=0.04, wrong=0.03, sensitive=0.0)
    """

    truth: str
    errors: ErrorRates = dataclasses.field(default_factory=ErrorRates)


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of questions about the rows of a stage: which classes does the image show, and is it sensitive?

    Attributes:
        stage: the stage whose rows are asked about, one question each.
        options: the classes to choose from, in the order in which annotators see them.
        seed: seed for the choice and positions of gold questions, and for simulated answers.
        name: snake_case; "" if the pipeline has no other round. The files of an unnamed round are in ``qa/``, those of a named
            round in ``qa/<name>/``.
        workers: number of votes that an image needs on each form.
        background: the class whose right answer is "None of the above"; "" for none.
        question: text column with the class that an image is believed to show.
        image: column of the encoded images; "" if the rows have only addresses.
        address: column of the image addresses, for ``qa export --urls``.
        medium: type of the addresses: an image, a video file, or a page that annotators open next to the form.
        forms: the forms to ask, a subset of ``votes.FORMS``.
        thumbnail_px: longest side of the images shown to annotators.
        group: integer column that divides the rows into batches; "" puts all into one.
        instructions: plain text above the question.
        simulated: simulated annotators; None if people answer.
        prompt: the question about the classes, in one line; "" for CLEAR's.

    >>> asked = Round("drawn", [Option("disc"), Option("square")], seed=0, name="shape")
    >>> asked.votes_file
    'qa/shape/votes.parquet'
    >>> Round("drawn", [Option("disc"), Option("square")], seed=0, name="Which shape?")
    Traceback (most recent call last):
        ...
    benchwright.curation.flow.PlanError: round of questions 'Which shape?': its name must be snake_case, ...
    """

    stage: str
    options: Sequence[Option]
    seed: int
    name: str = ""
    workers: int = 3
    background: str = ""
    question: str = "concept"
    image: str = "image"
    address: str = "url"
    medium: Medium = "image"
    forms: Sequence[QuestionForm] = FORMS
    thumbnail_px: int = 320
    group: str = ""
    instructions: str = ""
    simulated: Simulated | None = None
    prompt: str = ""

    def __post_init__(self) -> None:
        if self.name and (not _NAME.match(self.name) or self.name in _TAKEN):
            raise PlanError(f"round of questions {self.name!r}: its name must be snake_case, and none of {', '.join(_TAKEN)}")

    @property
    def folder(self) -> str:
        """Folder of the round's files, relative to the folder of a run."""
        return posixpath.join(FOLDER, self.name) if self.name else FOLDER

    @property
    def votes_file(self) -> str:
        """File of people's votes, relative to the folder of a run."""
        return posixpath.join(self.folder, "votes.parquet")

    @property
    def title(self) -> str:
        """Name of the round in messages."""
        return f"round of questions {self.name!r}" if self.name else "the round of questions"


def ask(
    flow: Flow,
    asked: Round,
    out: str,
    *,
    majority: int = 2,
    sensitive: Sensitive | int = "as_released",
    rule: VoteRule = "majority_exact",
) -> Flow:
    """Add to a plan the stage that waits for the votes of a round and counts them: ``voted``, or ``voted_<name>``.

    Args:
        flow: a plan that ends with the stage whose rows are asked about.
        asked: the round.
        out: folder of the run.
        majority, sensitive, rule: which images stay, see ``votes.aggregate_votes``.

    Raises:
        PlanError: the plan ends with another stage, or that stage lacks columns that the round names.

    >>> import benchwright as bw
    >>> import shapes
    >>> drawn = bw.source("drawn", bw.step(shapes.draw, count=4), max_rejects=None)
    >>> flow = ask(drawn, Round("drawn", [Option("disc"), Option("square")], seed=0), "shapes")
    >>> flow.last
    'voted'
    >>> flow.stage("voted").waits
    'ask the annotators in the browser (`benchwright qa serve shapes`); or export the questions (...), ... and run again'
    """
    if flow.last != asked.stage:
        raise PlanError(f"{asked.title} is about stage {asked.stage!r}, and its votes are counted after {flow.last!r}")
    _check_columns(asked, flow.schemas()[asked.stage])
    counted = step(
        count_votes,
        votes=votes_place(asked, out),
        classes=[each.stands_for for each in asked.options],
        background=asked.background,
        workers=asked.workers,
        majority=majority,
        sensitive=sensitive,
        rule=rule,
        question=asked.question,
    )
    which = f" --round {asked.name}" if asked.name else ""
    serve, export = f"`benchwright qa serve {out}{which}`", f"`benchwright qa export {out}{which}`"
    return flow.whole(
        f"voted_{asked.name}" if asked.name else "voted",
        counted,
        gives=Voted,
        max_rejects=None,
        waits=f"ask the annotators in the browser ({serve}); or export the questions ({export}), import the answers "
        f"(`benchwright qa import {out} RESULTS...{which}`), and run again",
    )


def votes_place(asked: Round, out: str) -> str:
    """File of the votes of a round, as a setting of a step. People's votes are always in the same file.

    The file name of simulated votes depends on everything that determines them: the settings and the rows asked about.

    >>> options = [Option("disc"), Option("square")]
    >>> votes_place(Round("drawn", options, seed=0), "shapes")
    'shapes/qa/votes.parquet'
    >>> votes_place(Round("drawn", options, seed=0, simulated=Simulated("concept")), "shapes")
    'shapes/qa/votes-SIMULATED-...parquet'
    """
    simulated = asked.simulated
    if simulated is None:
        return where(posixpath.join(out, asked.votes_file))
    settings = [asked.seed, asked.workers, simulated.truth, simulated.errors, asked.options, asked.background]
    name = f"{SIMULATED}{sha256(canonical(as_json('qa', settings)))[:16]}.parquet"
    return where_of_rows(posixpath.join(out, asked.folder, name))


def votes_of(asked: Round, out: str) -> pa.Table | None:
    """The votes that a run counts in a round, as ``votes.VOTES``; None if there are none yet.

    Raises:
        ValueError: the file of votes is damaged or lacks a column.

    >>> import benchwright as bw
    >>> import shapes
    >>> done = bw.run(bw.job("shapes.py"), "voted")
    >>> votes_of(shapes.ASKED, "voted").num_rows  # of 3 workers on 2 forms, on each of 50 shapes
    300
    >>> votes_of(shapes.ASKED, "elsewhere") is None
    True
    """
    place = votes_place(asked, out)
    if isinstance(place, WhereOfRows):
        artifact = load_artifact(Store(out), asked.stage)
        place = place.of(artifact.digest) if artifact else ""
    return read_votes(place) if Path(place).is_file() else None


def unanswered(asked: Round, out: str) -> dict[str, int]:
    """Key -> number of missing answers, for every row with too few answers on the label form. Raises as ``asked_rows`` and
    ``votes_of``.

    >>> import shapes
    >>> from benchwright.curation.flow import source
    >>> from benchwright.curation.run import run
    >>> done = run(source("drawn", step(shapes.draw, count=4), max_rejects=None), "shapes", scheduler="sync")
    >>> asked = Round("drawn", [Option("disc"), Option("square")], seed=0)
    >>> unanswered(asked, "shapes")  # nobody has answered yet
    {'0001': 3, '0002': 3, '0003': 3}
    """
    _, rows = asked_rows(asked, out)
    keys, votes = rows.table(["key"])["key"].to_pylist(), votes_of(asked, out)
    if votes is None:
        return dict.fromkeys(keys, asked.workers)
    short = missing_votes(keys, votes, workers=asked.workers, forms=("labels",))
    return {row["key"]: asked.workers - row["num_votes"] for row in short.to_pylist()}


def asked_rows(asked: Round, out: str) -> tuple[Store, Rows]:
    """Return the store of a run and the rows that annotators are asked about.

    Raises:
        StoreError: the run has not made the rows yet.
        PlanError: the rows lack columns that the round names.

    >>> import shapes
    >>> from benchwright.curation.flow import source
    >>> from benchwright.curation.run import run
    >>> done = run(source("drawn", step(shapes.draw, count=4), max_rejects=None), "shapes", scheduler="sync")
    >>> asked = Round("drawn", [Option("disc"), Option("square")], seed=0)
    >>> store, rows = asked_rows(asked, "shapes")
    >>> rows.table(["key", "concept"]).to_pylist()[0]
    {'key': '0001', 'concept': 'square'}
    """
    store = Store(out)
    artifact = load_artifact(store, asked.stage)
    if artifact is None:
        raise StoreError(
            f"{out}: there are no rows of stage {asked.stage!r} to ask annotators about yet: run the pipeline first"
        )
    rows = artifact.rows_view(store)
    _check_columns(asked, rows.schema)
    return store, rows


def _check_columns(asked: Round, schema: pa.Schema) -> None:
    rules = {
        "question": (pa.types.is_string, "text"),
        **({"image": (lambda kind: is_blob(pa.field("image", kind)), "encoded images (Blob)")} if asked.image else {}),
        **({"group": (pa.types.is_integer, "whole numbers")} if asked.group else {}),
    }
    for setting, (holds, what) in rules.items():
        column = getattr(asked, setting)
        if column not in schema.names:
            raise PlanError(
                f"{asked.title}: {setting} = {column!r}: stage {asked.stage!r} has no such column: there are "
                f"{', '.join(schema.names)}"
            )
        if not holds(schema.field(column).type):
            found = schema.field(column).type
            raise PlanError(f"{asked.title}: {setting} = {column!r}: expected a column of {what}, but it contains {found}")


def export_questions(
    asked: Round,
    out: str,
    folder: str,
    *,
    tool: Literal["mturk", "label-studio"] = "mturk",
    batch_size: int | None = None,
    thumbnails: bool = True,
    gold: str | None = None,
    gold_per_batch: int = 5,
) -> list[Path]:
    """Write the forms and batches for the annotators of a round.

    Args:
        asked: the round.
        out: folder of the run.
        folder: output folder.
        tool: annotation tool: MTurk or Label Studio.
        batch_size: maximum number of images per batch; default: one batch per group.
        thumbnails: put images into the batches instead of their addresses.
        gold: CSV file of gold questions (MTurk only): ``class_name`` and ``file``, a path relative to the CSV, or ``url`` if
            addresses are sent. The right answers are written to ``private/``, which is not for upload, and to the folder of
            the run, where the import reads them.
        gold_per_batch: number of gold questions per batch.

    Returns:
        The files to upload.

    Raises:
        ValueError: the rows have no addresses to send, an address is not http or https, or a gold question is invalid.
        StoreError: the run has not made the rows yet.
        PlanError: the rows lack columns that the round names.

    >>> import shapes
    >>> from benchwright.curation.flow import source
    >>> from benchwright.curation.run import run
    >>> done = run(source("drawn", step(shapes.draw, count=4), max_rejects=None), "shapes", scheduler="sync")
    >>> asked = Round("drawn", [Option("disc"), Option("square")], seed=0)
    >>> [path.name for path in export_questions(asked, "shapes", "to_upload", batch_size=2)]  # 3 images
    ['labels.html', 'sensitive.html', 'batch00000.csv', 'batch00001.csv']
    """
    store, rows = asked_rows(asked, out)
    thumbnails = thumbnails and bool(asked.image)
    if not thumbnails and asked.address not in rows.column_names:
        raise ValueError(f"{out}: its images have no addresses: leave out --urls to send thumbnails")
    table = _questions(asked, rows, addresses=not thumbnails)
    images = images_of(asked, rows) if thumbnails else None
    options, background = asked.options, asked.background
    texts: dict[str, Any] = {"instructions": asked.instructions, "prompt": asked.prompt}
    medium = asked.medium if images is None else "image"
    how: dict[str, Any] = {"medium": medium, "forms": asked.forms, "thumbnail_px": asked.thumbnail_px}
    if tool == "label-studio":
        return list(export_tasks(table, folder, options=options, background=background, images=images, **texts, **how))
    classes = {*(each.stands_for for each in options), background}
    written = export_batches(
        table,
        folder,
        options=options,
        background=background,
        seed=asked.seed,
        batch_size=batch_size,
        images=images,
        gold=None if gold is None else gold_questions(gold, gold_per_batch, classes, thumbnails=thumbnails),
        **texts,
        **how,
    )
    if written.gold:
        add_to_gold_key(store, asked.folder, written.gold)
    return [*written.forms, *written.batches]


def _questions(asked: Round, rows: Rows, *, addresses: bool) -> pa.Table:
    """The columns of a batch, with the names that ``export_batches`` expects."""
    names = {"key": "key", "bucket": asked.group, "concept": asked.question, **({"url": asked.address} if addresses else {})}
    table = rows.table([*dict.fromkeys(name for name in names.values() if name)])
    one = pa.array([0] * table.num_rows, pa.int64())
    return pa.table({name: table[column] if column else one for name, column in names.items()})


def images_of(asked: Round, rows: Rows) -> dict[str, Blob]:
    """Key -> image of the rows that are asked about.

    >>> import shapes
    >>> from benchwright.curation.flow import source
    >>> from benchwright.curation.run import run
    >>> done = run(source("drawn", step(shapes.draw, count=4), max_rejects=None), "shapes", scheduler="sync")
    >>> asked = Round("drawn", [Option("disc"), Option("square")], seed=0)
    >>> {key: image.size for key, image in images_of(asked, asked_rows(asked, "shapes")[1]).items()}
    {'0001': 4228, '0002': 4228, '0003': 4228}
    """
    return dict(zip(rows.table(["key"])["key"].to_pylist(), rows.blobs(asked.image), strict=True))


def addresses_of(asked: Round, rows: Rows) -> dict[str, str]:
    """Key -> address of the rows that are asked about. Raises ``ValueError`` for an address that is not http or https.

    >>> rows = Rows.of(pa.table({"key": ["a"], "link": ["https://example.org/a.jpg"]}))
    >>> addresses_of(Round("drawn", [Option("disc"), Option("square")], seed=0, address="link"), rows)
    {'a': 'https://example.org/a.jpg'}
    """
    table = rows.table(["key", asked.address]).to_pydict()
    return {key: web_address(key, url) for key, url in zip(table["key"], table[asked.address], strict=True)}


def questions_of(asked: Round, rows: Rows) -> dict[str, str]:
    """Key -> the class that the image is believed to show, of the rows that are asked about.

    >>> rows = Rows.of(pa.table({"key": ["a", "b"], "concept": ["disc", "square"]}))
    >>> questions_of(Round("drawn", [Option("disc"), Option("square")], seed=0), rows)
    {'a': 'disc', 'b': 'square'}
    """
    table = rows.table(["key", asked.question])
    return dict(zip(table["key"].to_pylist(), table[asked.question].to_pylist(), strict=True))


BUSY = "another import or run is in progress in {}: wait for it, and import again"

_KEY = "gold_key.json"
"""File of a round with the right answers to all exported gold questions."""


def gold_questions(path: str, per_batch: int, classes: Collection[str], *, thumbnails: bool) -> Gold:
    """Read gold questions from a CSV file, see ``export_questions``. Raises ``ValueError`` for the first invalid line."""
    place = "file" if thumbnails else "url"
    folder = Path(os.path.realpath(path)).parent
    asked: dict[str, tuple[str, bytes]] = {}
    for line, row in _lines(path, ("class_name", place), classes):
        name, where_from = row["class_name"], f"{path} line {line}"
        what = _file(folder, row[place], where_from).read_bytes() if thumbnails else row[place].encode()
        # The key depends on the content: answers may still arrive when another file of gold questions is in use.
        key = f"gold{sha256(name.encode() + bytes(1) + what)[:16]}"
        if key in asked:
            raise ValueError(f"{where_from}: this question appears twice")
        asked[key] = name, what
    if not asked:
        raise ValueError(f"{path}: no gold questions below the header")
    table = pa.table({"key": list(asked), "concept": [name for name, _ in asked.values()]})
    if thumbnails:
        return Gold(table, per_batch, {key: what for key, (_, what) in asked.items()})
    return Gold(table.append_column("url", pa.array([what.decode() for _, what in asked.values()])), per_batch)


def _lines(path: str, needed: Sequence[str], classes: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and fields of each gold question. Raises ``ValueError`` for the first invalid line."""

    def check_header(path: Path, header: list[str]) -> None:
        if not {*needed} <= {*header}:
            raise ValueError(f"{path}: gold questions need a header with the columns {', '.join(needed)}")

    for line, header, fields in csv_records(Path(path), check_header):
        if len(fields) != len(header):
            raise ValueError(f"{path} line {line}: {len(fields)} fields, the header has {len(header)}")
        row = dict(zip(header, fields, strict=True))
        for name in needed:
            if not row[name].strip() or clean(row[name]) != row[name]:
                raise ValueError(f"{path} line {line}: {name} is {row[name]!a:.60}: it must be text, in UTF-8")
        if row["class_name"] not in classes:
            raise ValueError(f"{path} line {line}: class_name {row['class_name']!r:.60} is not a class of the run")
        yield line, row


def _file(folder: Path, name: str, place: str) -> Path:
    file = Path(os.path.realpath(folder / name))
    if not file.is_relative_to(folder):
        raise ValueError(f"{place}: file {name!r} is outside the folder of the CSV")
    if not file.is_file():
        raise ValueError(f"{place}: file {name!r} not found next to the CSV")
    return file


def gold_key(store: Store, folder: str) -> dict[str, str]:
    """Key -> right class of all gold questions that a round has exported; empty if there were none. Raises ``ValueError`` or
    ``StoreError`` if the file is damaged."""
    name = posixpath.join(folder, _KEY)
    if store.local:
        check_file(store.local / name)
    gold = store.read_json(name) if store.exists(name) else {}
    place = posixpath.join(store.url, name)
    if not isinstance(gold, dict):
        raise ValueError(f"{place}: not a gold key: it is not an object")
    for key, right in gold.items():
        if not (isinstance(right, str) and is_text(key) and is_text(right)):
            raise ValueError(f"{place}: not a gold key: the class of question {printable(key)!r:.60} is no text")
    return gold


def add_to_gold_key(store: Store, folder: str, placed: Mapping[str, str]) -> None:
    """Add gold questions to the file of right answers. Those of earlier exports stay: their answers may still arrive."""
    name = posixpath.join(folder, _KEY)
    with lock(store, BUSY):
        store.write_json(name, {**gold_key(store, folder), **placed})
        if store.local:
            (store.local / name).chmod(0o600)
