"""Result CSVs of Amazon Mechanical Turk, as downloaded by the requester, to one table of votes.

A row is an assignment. Rows that are no vote become rejects with a reason; only a file that is not a result file of these
forms, or that cannot be read as CSV at all, is an error. Worker ids are hashed with a salt at the door: they name
people.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..bounded_reading import MAX_BAD_ROWS, check_columns, text_lines
from ..rows import REJECTS, Reject, is_text
from .mturk import unguard_formula
from .options import Option, answers_to_classes, read_answer
from .votes import VOTES

LABELS_COLUMN = "Answer.taskAnswers"
SENSITIVE_COLUMN = "Answer.image-contains.label"
_FORMS = {"labels": LABELS_COLUMN, "sensitive": SENSITIVE_COLUMN}
NEEDED = ("AssignmentId", "WorkerId", "AssignmentStatus", "Input.ID", "Input.query")

_COUNTED = ("Approved", "Submitted")
"""Values of ``AssignmentStatus`` of work that counts."""

_ANSWER_LIMIT = 20_000
"""Longest answer that is parsed, in characters: the form's own answers have some hundred."""


class Votes(NamedTuple):
    """What an import gives.

    Attributes:
        votes: ``votes.VOTES``.
        rejects: what was rejected: ``key`` (the image, "" if it cannot be told), ``reason``, and ``detail`` (file,
            line, what was seen).
        withdrawn: row numbers of the earlier votes whose assignments count no longer.
        gold_again: answers of a worker to a gold question that the worker had answered before: one of them counts.
        known: answers that an earlier import brought, which come again.
    """

    votes: pa.Table
    rejects: pa.Table
    withdrawn: Collection[int] = ()
    gold_again: int = 0
    known: int = 0


def votes_of(added: Collection[tuple[Any, ...]], rejects: Collection[tuple[str, str, str]], **more: Any) -> Votes:
    """``Votes`` of rows in the order of the columns of ``VOTES`` and of ``REJECTS``; ``more`` is what else there is to say."""
    tables = (
        pa.table([*map(list, zip(*rows, strict=True))] if rows else [[]] * len(schema), schema=schema)
        for rows, schema in ((added, VOTES), (rejects, REJECTS))
    )
    return Votes(*tables, **more)


def read_mturk_results(
    paths: Sequence[str],
    *,
    options: Sequence[Option],
    salt: str,
    queries: Mapping[str, str] | None = None,
    earlier: pa.Table | None = None,
    gold: Collection[str] = (),
) -> Votes:
    """Read result files of the label form, of the sensitive form or of both, any number of batches, in the order given.

    Args:
        paths: CSV files. Where a vote occurs twice, the first one counts; of the status of an assignment, the last one does,
            so that a vote is withdrawn whose assignment is rejected later.
        options: the choices of the label form as exported: answers are turned into their classes.
        salt: secret text mixed into the workers' hashes: the same worker has the same hash in all files read with one
            salt, and the ids cannot be found again by hashing a list of known ids.
        queries: image key -> class, for all images asked about, gold questions included. None takes whatever comes.
        earlier: votes read before with the same salt; an answer of theirs that comes again, in the same assignment, is known,
            and another one of the same worker a repeated one.
        gold: keys of gold questions. Several batches may ask a worker the same one.

    Returns:
        The votes in file order, what came of earlier ones, and the rejects: ``bad_encoding``, ``wrong_field_count``,
        ``assignment_not_counted`` (neither approved nor submitted, or marked in the column ``Reject``), ``no_image``,
        ``unknown_image``,
        ``query_mismatch``, ``empty_answer``, ``answer_too_long``, ``malformed_answer``, ``unknown_label``,
        ``none_with_others``, ``no_worker``, ``duplicate_assignment``, ``duplicate_worker``.

    Raises:
        ValueError: naming file and line, for a file without the needed columns or with one twice, or that is no CSV, or for
            more rejects than ``MAX_BAD_ROWS``.
    """
    if not paths:
        raise ValueError("no result files to read")
    check_salt(salt)
    earlier = VOTES.empty_table() if earlier is None else earlier
    reader = _Reader(answers_to_classes(options), salt, queries, frozenset(gold), earlier)
    rejects: list[tuple[str, str, str]] = []
    for path in paths:
        for line, header, fields in csv_records(Path(path), _check_header):
            row = dict(zip(header, fields, strict=False))
            key = unguard_formula(clean(row.get("Input.ID", "")))
            try:
                reader.read(key, row, header, fields)
            except Reject as refused:
                if len(rejects) == MAX_BAD_ROWS:
                    raise ValueError(
                        f"{path} line {line}: more than {MAX_BAD_ROWS:,} rows are not votes, the last one for "
                        f"{refused.reason} ({refused.detail}): is this the right file?"
                    ) from None
                rejects.append((key, refused.reason, f"{clean(Path(path).name)} line {line}: {refused.detail}"))
    return votes_of(
        reader.added.values(), rejects, withdrawn=reader.withdrawn, gold_again=reader.gold_again, known=reader.known
    )


def check_salt(salt: str) -> None:
    """Raise ``ValueError`` if there is none."""
    if not salt:
        raise ValueError("the salt of the worker hashes is empty: the ids could be found by hashing known ones")


def hash_worker(worker: str, salt: str) -> str:
    """Sixteen hexadecimal digits for a worker id: BLAKE2b keyed with the salt (RFC 7693)."""
    key = hashlib.blake2b(salt.encode("utf-8", "surrogateescape"), digest_size=32).digest()
    return hashlib.blake2b(worker.encode("utf-8", "surrogateescape"), digest_size=8, key=key).hexdigest()


@dataclasses.dataclass
class _Reader:
    """Turns rows into votes, and remembers who has voted on what.

    Attributes:
        added: the votes by their numbers, which continue from those of the earlier votes.
        withdrawn: numbers of the earlier votes that count no longer.
        gold_again: answers to gold questions that came again.
        known: answers of earlier votes that came again.
    """

    classes: Mapping[str, str]
    salt: str
    queries: Mapping[str, str] | None
    gold: frozenset[str]
    earlier: dataclasses.InitVar[pa.Table]
    added: dict[int, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    withdrawn: set[int] = dataclasses.field(default_factory=set)
    gold_again: int = 0
    known: int = 0
    _assignments: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    def __post_init__(self, earlier: pa.Table) -> None:
        # Who voted on what -> the vote's number and its assignment.
        self._voted: dict[tuple[str, str, str], tuple[int, str | None]] = {}
        columns = (earlier[name].to_pylist() for name in ("worker", "key", "form", "assignment"))
        for number, (worker, key, form, assignment) in enumerate(zip(*columns, strict=True)):
            self._voted[worker, key, form] = number, assignment
        self._next = self._first = earlier.num_rows
        self._hash = functools.partial(hash_worker, salt=self.salt)
        self._hash_again = functools.cache(self._hash)

    def read(self, key: str, row: Mapping[str, str], header: list[str], fields: list[str]) -> None:
        if len(fields) != len(header):
            raise Reject("wrong_field_count", f"{len(fields)} fields, the header has {len(header)}")
        if not is_text("".join(fields)):
            raise Reject("bad_encoding", "bytes that are not UTF-8")
        self._check_status(key, row)
        self._check_image(key, row)
        if not row["WorkerId"].strip():
            raise Reject("no_worker", "WorkerId is empty")
        self._add(key, row, dict(self._answers(row)))

    def _check_status(self, key: str, row: Mapping[str, str]) -> None:
        status = row["AssignmentStatus"].strip()
        message = "marked in the column Reject" if row.get("Reject", "").strip() else ""
        if status not in _COUNTED:
            message = f"AssignmentStatus is {_shown(status)}"
        if message:
            raise Reject("assignment_not_counted", message + ("; its vote is withdrawn" if self._withdraw(key, row) else ""))

    def _withdraw(self, key: str, row: Mapping[str, str]) -> bool:
        """Take back what the assignment of a row voted before; whether there was a vote."""
        assignment = self._assignment(row)
        withdrawn = False
        for form, column in _FORMS.items():
            voter = (self._worker(row), key, form)
            # The same worker may have voted on the image in another assignment; of old votes the assignment is not known.
            if column not in row or voter not in self._voted or self._voted[voter][1] not in (assignment, None):
                continue
            number, _ = self._voted.pop(voter)
            self._assignments.discard((row["AssignmentId"].strip(), form))
            if self.added.pop(number, None) is None:
                self.withdrawn.add(number)
            withdrawn = True
        return withdrawn

    def _check_image(self, key: str, row: Mapping[str, str]) -> None:
        if not key:
            raise Reject("no_image", "Input.ID is empty")
        if self.queries is None:
            return
        if key not in self.queries:
            raise Reject("unknown_image", f"Input.ID {_shown(key)} was not asked about")
        query = unguard_formula(row["Input.query"])
        if query != self.queries[key]:
            raise Reject("query_mismatch", f"Input.query is {_shown(query)}, the run says {self.queries[key]!r}")

    def _answers(self, row: Mapping[str, str]) -> Iterable[tuple[str, list[str] | bool]]:
        labels, sensitive = row.get(LABELS_COLUMN, "").strip(), row.get(SENSITIVE_COLUMN, "").strip()
        if not labels and not sensitive:
            raise Reject("empty_answer", "no answer was given")
        if labels:
            yield "labels", self._labels(labels)
        if sensitive:
            if sensitive not in ("Yes", "No"):
                raise Reject("malformed_answer", f"{SENSITIVE_COLUMN} is {_shown(sensitive)}, not Yes or No")
            yield "sensitive", sensitive == "Yes"

    def _labels(self, text: str) -> list[str]:
        if len(text) > _ANSWER_LIMIT:
            raise Reject("answer_too_long", f"{len(text):,} characters; {_ANSWER_LIMIT:,} are read")
        try:
            labels = json.loads(text)[0]["image"]["labels"]
        except (ValueError, RecursionError, LookupError, TypeError):
            raise Reject("malformed_answer", f'not [{{"image": {{"labels": [...]}}}}]: {_shown(text)}') from None
        return read_answer(labels, self.classes)

    def _add(self, key: str, row: Mapping[str, str], answers: dict[str, list[str] | bool]) -> None:
        worker = self._worker(row)
        if key in self.gold:  # a question for one and the same worker in several batches
            again = [form for form in answers if (worker, key, form) in self._voted]
            self.gold_again += len(again)
            answers = {form: answer for form, answer in answers.items() if form not in again}
        assignment, hashed = row["AssignmentId"].strip(), self._assignment(row)
        again = [form for form in answers if self._is_known((worker, key, form), hashed)]
        self.known += len(again)
        answers = {form: answer for form, answer in answers.items() if form not in again}
        for form in answers:
            if assignment and (assignment, form) in self._assignments:
                raise Reject("duplicate_assignment", "this assignment was read before; is a file given twice?")
            if (worker, key, form) in self._voted:
                raise Reject("duplicate_worker", f"worker {worker} has answered the {form} form for this image before")
        for form, answer in answers.items():
            self._assignments.add((assignment, form))
            self._voted[worker, key, form] = self._next, hashed
            labels, sensitive = (None, answer) if isinstance(answer, bool) else (answer, None)
            seconds = _seconds(row.get("WorkTimeInSeconds", ""))
            self.added[self._next] = key, form, worker, labels, sensitive, seconds, hashed
            self._next += 1

    def _is_known(self, voter: tuple[str, str, str], assignment: str | None) -> bool:
        """Whether an earlier import brought the answer of this assignment."""
        number, before = self._voted.get(voter, (self._first, None))
        return number < self._first and before is not None and before == assignment

    def _worker(self, row: Mapping[str, str]) -> str:
        return self._hash_again(row["WorkerId"].strip())

    def _assignment(self, row: Mapping[str, str]) -> str | None:
        assignment = row["AssignmentId"].strip()
        return self._hash(assignment) if assignment else None


def csv_records(path: Path, check_header: Callable[[Path, list[str]], None]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Line number, header and fields of every row after the header; bytes that are not UTF-8 come as surrogates.

    Raises:
        ValueError: naming file and line, for what is no CSV; and what ``check_header`` raises.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(text_lines(file, str(path)), strict=True)
        try:
            header = next(rows, [])
            check_columns(header, str(path))
            check_header(path, header)
            for fields in rows:
                if fields:
                    yield rows.line_num, header, fields
        except csv.Error as error:
            raise ValueError(f"{path} line {rows.line_num}: not readable as CSV: {error}") from None


def _check_header(path: Path, header: list[str]) -> None:
    twice = sorted(name for name, count in collections.Counter(header).items() if count > 1)
    if twice:
        raise ValueError(f"{path}: the column {_shown(twice[0])} occurs twice in the header")
    missing = [name for name in NEEDED if name not in header]
    if missing or not {LABELS_COLUMN, SENSITIVE_COLUMN} & set(header):
        lacks = ", ".join(missing + ([] if {LABELS_COLUMN, SENSITIVE_COLUMN} & set(header) else
                                     [f"{LABELS_COLUMN} or {SENSITIVE_COLUMN}"]))  # fmt: skip
        answers = ", ".join(_shown(name) for name in header if name.startswith("Answer."))[:200] or "none"
        raise ValueError(f"{path}: not a result file of these forms: it lacks {lacks} (its answer columns: {answers})")


def _seconds(text: str) -> float | None:
    return float(text) if text.strip().isascii() and text.strip().isdigit() and len(text) < 12 else None


def clean(text: str) -> str:
    """The text with question marks for what Arrow and files cannot hold: halves of characters, and NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _shown(text: str) -> str:
    """Text of a stranger in a message: quoted, escaped, cut."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")
