"""Read result CSVs of Amazon Mechanical Turk, as downloaded by the requester, to one table of votes.

A row is an assignment. Rows that are not valid votes become rejects with a reason; an error is raised only for a file that
is not a result file of these forms, or cannot be read as CSV. Worker ids, which identify people, are hashed with a salt as
they are read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..bounded_reading import check_bad_rows, text_lines
from ..csv_files import check_header, csv_fields
from ..rows import REJECTS, Reject, Rejected, is_text
from .mturk import unguard_formula
from .options import SENSITIVE_ANSWERS, Option, answers_to_classes, read_answer
from .votes import VOTES

LABELS_COLUMN = "Answer.taskAnswers"
SENSITIVE_COLUMN = "Answer.image-contains.label"
ANSWER_COLUMNS = {"labels": LABELS_COLUMN, "sensitive": SENSITIVE_COLUMN}
"""Form -> column of its answers."""

NEEDED = ("AssignmentId", "WorkerId", "AssignmentStatus", "Input.ID", "Input.query")

_COUNTED = ("Approved", "Submitted")
"""Values of ``AssignmentStatus`` of assignments that count."""

_ANSWER_LIMIT = 20_000
"""Maximum length of an answer, in characters; answers of the form have a few hundred."""


class Votes(NamedTuple):
    """Votes read from results.

    Attributes:
        votes: the new votes, ``votes.VOTES``.
        rejects: rejected answers: ``key`` (the image, "" if unknown), ``reason``, and ``detail`` (file, line, cause).
        withdrawn: row numbers of the earlier votes that no longer count.
        gold_again: number of answers to gold questions that the same worker had answered before; only the first counts.
        known: number of answers that are among the earlier votes.
    """

    votes: pa.Table
    rejects: pa.Table
    withdrawn: Collection[int] = ()
    gold_again: int = 0
    known: int = 0


def votes_of(added: Collection[tuple[Any, ...]], rejects: Collection[tuple[str, str, str]], **more: Any) -> Votes:
    """Build ``Votes`` from rows with the columns of ``VOTES`` and of ``REJECTS``; ``more`` are its other attributes."""
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
    """Read result files of the label form, of the sensitive form or of both, any number of batches, in the given order.

    Args:
        paths: CSV files. If a vote occurs twice, the first one counts. The last status of an assignment counts: if it is
            rejected later, its vote is withdrawn.
        options: the choices of the label form as exported; answers are mapped to their classes.
        salt: secret text for the worker hashes: a worker has the same hash in all files read with the same salt, and
            the ids cannot be recovered by hashing a list of known ids.
        queries: image key -> class, for all images asked about, including gold questions. None accepts any image.
        earlier: votes read before with the same salt; the same answer of the same assignment again counts as known, another
            answer of the same worker is rejected as ``duplicate_worker``.
        gold: keys of gold questions, which a worker may be asked in several batches.

    Returns:
        The votes in file order, changes to earlier votes, and the rejects: ``bad_encoding``, ``wrong_field_count``,
        ``assignment_not_counted`` (neither approved nor submitted, or marked in the column ``Reject``), ``no_image``,
        ``unknown_image``, ``query_mismatch``, ``empty_answer``, ``answer_too_long``, ``malformed_answer``, ``unknown_label``,
        ``none_with_others``, ``no_worker``, ``duplicate_assignment``, ``duplicate_worker``.

    Raises:
        ValueError: a file that is not CSV, lacks a needed column or has a column twice, or more rejects than
            ``MAX_BAD_ROWS``; the message names file and line.
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
                check_bad_rows(len(rejects) + 1, Rejected(f"line {line}", refused.reason, refused.detail), path)
                rejects.append((key, refused.reason, f"{clean(Path(path).name)} line {line}: {refused.detail}"))
    return votes_of(
        reader.added.values(), rejects, withdrawn=reader.withdrawn, gold_again=reader.gold_again, known=reader.known
    )


def check_salt(salt: str) -> None:
    """Raise ``ValueError`` if the salt is empty."""
    if not salt:
        raise ValueError("the salt of the worker hashes is empty: the ids could be found by hashing known ones")


def hash_worker(worker: str, salt: str) -> str:
    """Sixteen hexadecimal digits for a worker id: BLAKE2b keyed with the salt (RFC 7693)."""
    key = hashlib.blake2b(salt.encode("utf-8", "surrogateescape"), digest_size=32).digest()
    return hashlib.blake2b(worker.encode("utf-8", "surrogateescape"), digest_size=8, key=key).hexdigest()


@dataclasses.dataclass
class _Reader:
    """Converts rows to votes, and keeps track of who has voted on which image.

    Attributes:
        added: number -> new vote; numbers continue after those of the earlier votes.
        withdrawn: numbers of the earlier votes that no longer count.
        gold_again: number of repeated answers to gold questions.
        known: number of answers that are among the earlier votes.
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
        # (worker, image, form) -> number and assignment of the vote.
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
        """Withdraw earlier votes of a row's assignment; return whether there were any."""
        assignment = self._assignment(row)
        withdrawn = False
        for form, column in ANSWER_COLUMNS.items():
            voter = (self._worker(row), key, form)
            # The worker may have voted on the image in another assignment; the assignment of old votes may be unknown (None).
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
            if sensitive not in SENSITIVE_ANSWERS:
                wanted = " or ".join(SENSITIVE_ANSWERS)
                raise Reject("malformed_answer", f"{SENSITIVE_COLUMN} is {_shown(sensitive)}, not {wanted}")
            yield "sensitive", SENSITIVE_ANSWERS[sensitive]

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
        if key in self.gold:  # several batches may ask a worker the same gold question
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
        """Whether the answer of this assignment is among the earlier votes."""
        number, before = self._voted.get(voter, (self._first, None))
        return number < self._first and before is not None and before == assignment

    def _worker(self, row: Mapping[str, str]) -> str:
        return self._hash_again(row["WorkerId"].strip())

    def _assignment(self, row: Mapping[str, str]) -> str | None:
        assignment = row["AssignmentId"].strip()
        return self._hash(assignment) if assignment else None


def csv_records(path: Path, check: Callable[[Path, list[str]], None]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield line number, header and fields of every row after the header; bytes that are not UTF-8 become surrogates.

    Raises:
        ValueError: the file is not CSV (the message names file and line), has a column twice, or an error of ``check``.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv_fields(text_lines(file, str(path)), str(path))
        _, header = next(rows, (0, []))
        check_header(header, str(path))
        check(path, header)
        yield from ((line, header, fields) for line, fields in rows if fields)


def _check_header(path: Path, header: list[str]) -> None:
    missing = [name for name in NEEDED if name not in header]
    if missing or not {LABELS_COLUMN, SENSITIVE_COLUMN} & set(header):
        lacks = ", ".join(missing + ([] if {LABELS_COLUMN, SENSITIVE_COLUMN} & set(header) else
                                     [f"{LABELS_COLUMN} or {SENSITIVE_COLUMN}"]))  # fmt: skip
        answers = ", ".join(_shown(name) for name in header if name.startswith("Answer."))[:200] or "none"
        raise ValueError(f"{path}: not a result file of these forms: it lacks {lacks} (its answer columns: {answers})")


def _seconds(text: str) -> float | None:
    return float(text) if text.strip().isascii() and text.strip().isdigit() and len(text) < 12 else None


def clean(text: str) -> str:
    """Replace characters that Arrow and files cannot hold, lone surrogates and NUL, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _shown(text: str) -> str:
    """Untrusted text for a message: quoted, escaped, truncated."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")
