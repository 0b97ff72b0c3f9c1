"""Result CSVs of Amazon Mechanical Turk, as downloaded by the requester, to one table of votes.

A row is an assignment. Rows that are no vote become rejects with a reason; only a file that is no result file of these
forms, or that cannot be read as CSV at all, is an error. Worker ids are hashed with a salt at the door: they name
people.
"""

from __future__ import annotations

import collections
import csv
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..rows import REJECTS
from ..streams import MAX_BAD_ROWS, check_columns, text_lines
from .mturk import unguard_formula
from .options import Option, answers_to_classes, read_labels
from .votes import VOTES

LABELS_COLUMN = "Answer.taskAnswers"
SENSITIVE_COLUMN = "Answer.image-contains.label"
_FORMS = {"labels": LABELS_COLUMN, "sensitive": SENSITIVE_COLUMN}
NEEDED = ("AssignmentId", "WorkerId", "AssignmentStatus", "Input.ID", "Input.query")

_ANSWER_LIMIT = 20_000
"""Longest answer that is parsed, in characters: the form's own answers have some hundred."""


class Votes(NamedTuple):
    """What an import gives.

    Attributes:
        votes: ``votes.VOTES``.
        rejects: what was rejected: ``key`` (the image, "" where it cannot be told), ``reason``, and ``detail`` (file,
            line, what was seen).
        withdrawn: row numbers of the earlier votes whose assignments count no longer.
        gold_again: answers of a worker to a gold question that the worker had answered before: one of them counts.
    """

    votes: pa.Table
    rejects: pa.Table
    withdrawn: Collection[int] = ()
    gold_again: int = 0


class _Refused(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


def read_mturk_results(
    paths: Sequence[str],
    *,
    options: Sequence[Option],
    salt: str,
    queries: Mapping[str, str] | None = None,
    statuses: Collection[str] = ("Approved", "Submitted"),
    earlier: pa.Table | None = None,
    gold: Collection[str] = (),
) -> Votes:
    """Read result files of the label form, of the sensitive form or of both, any number of batches, in the order given.

    Args:
        paths: CSV files. Where a vote occurs twice, the first one counts; of the status of an assignment, the last one does,
            so that a vote is withdrawn whose assignment is turned down later.
        options: the choices of the label form as exported: answers are turned into their classes.
        salt: secret text mixed into the workers' hashes: the same worker has the same hash in all files read with one
            salt, and the ids cannot be found again by hashing a list of known ids.
        queries: image key -> class, for all images asked about, gold questions included. None takes whatever comes.
        statuses: values of ``AssignmentStatus`` that count; ``Rejected`` work does not by default.
        earlier: votes read before with the same salt; where one of them occurs again, it counts as a repeated one.
        gold: keys of gold questions. Several batches may ask a worker the same one.

    Returns:
        The votes in file order, what came of earlier ones, and the rejects: ``bad_encoding``, ``wrong_field_count``,
        ``assignment_not_counted`` (by status, or marked in the column ``Reject``), ``no_image``, ``unknown_image``,
        ``query_mismatch``, ``empty_answer``, ``answer_too_long``, ``malformed_answer``, ``unknown_label``,
        ``none_with_others``, ``no_worker``, ``duplicate_assignment``, ``duplicate_worker``.

    Raises:
        ValueError: naming file and line, for a file without the needed columns or with one twice, or that is no CSV, or for
            more rejects than ``MAX_BAD_ROWS``.
    """
    if not paths:
        raise ValueError("no result files to read")
    if not salt:
        raise ValueError("the salt of the worker hashes is empty: the ids could be found by hashing known ones")
    earlier = VOTES.empty_table() if earlier is None else earlier
    reader = _Reader(answers_to_classes(options), salt, queries, frozenset(statuses), earlier, frozenset(gold))
    rejects: dict[str, list[str]] = {name: [] for name in REJECTS.names}
    for path in paths:
        for line, header, fields in csv_records(Path(path), _check_header):
            row = dict(zip(header, fields, strict=False))
            key = unguard_formula(clean(row.get("Input.ID", "")))
            try:
                reader.read(key, row, header, fields)
            except _Refused as refused:
                if len(rejects["key"]) == MAX_BAD_ROWS:
                    told = f"more than {MAX_BAD_ROWS:,} rows are no votes, the last one for {refused.reason} ({refused.detail})"
                    raise ValueError(f"{path} line {line}: {told}: is it another file than was meant?") from None
                for name, value in zip(REJECTS.names, (key, refused.reason, f"{clean(Path(path).name)} line {line}: "
                                                       f"{refused.detail}"), strict=True):  # fmt: skip
                    rejects[name].append(value)
    columns = zip(*reader.added.values(), strict=True) if reader.added else [[] for _ in VOTES.names]
    votes = pa.table(dict(zip(VOTES.names, map(list, columns), strict=True)), schema=VOTES)
    return Votes(votes, pa.table(rejects, schema=REJECTS), reader.withdrawn, reader.gold_again)


def hash_worker(worker: str, salt: str) -> str:
    """Sixteen hexadecimal digits for a worker id: BLAKE2b keyed with the salt (RFC 7693)."""
    key = hashlib.blake2b(salt.encode("utf-8", "surrogateescape"), digest_size=32).digest()
    return hashlib.blake2b(worker.encode("utf-8", "surrogateescape"), digest_size=8, key=key).hexdigest()


def voters(votes: pa.Table | None, *columns: str) -> set[tuple[str, ...]]:
    """Who has voted on what: the values of these columns, a tuple a vote."""
    return set() if votes is None else set(zip(*(votes[name].to_pylist() for name in columns), strict=True))


class _Reader:
    """Turns rows into votes, and remembers who has voted on what.

    Attributes:
        added: the votes by their numbers, which go on from those of the earlier votes.
        withdrawn: numbers of the earlier votes that count no longer.
        gold_again: answers to gold questions that came again.
    """

    def __init__(
        self,
        classes: Mapping[str, str],
        salt: str,
        queries: Mapping[str, str] | None,
        statuses: frozenset[str],
        earlier: pa.Table,
        gold: frozenset[str],
    ) -> None:
        self.added: dict[int, tuple[Any, ...]] = {}
        self.withdrawn: set[int] = set()
        self.gold_again = 0
        self._classes = classes
        self._salt = salt
        self._queries = queries
        self._statuses = statuses
        self._gold = gold
        self._assignments: set[tuple[str, str]] = set()
        who = (earlier[name].to_pylist() for name in ("worker", "key", "form"))
        # Who voted on what -> the vote's number and its assignment.
        self._voted: dict[tuple[str, str, str], tuple[int, str | None]] = {
            voter: (number, assignment)
            for number, (voter, assignment) in enumerate(
                zip(zip(*who, strict=True), earlier["assignment"].to_pylist(), strict=True)
            )
        }
        self._next = earlier.num_rows
        self._hashes: dict[str, str] = {}

    def read(self, key: str, row: Mapping[str, str], header: list[str], fields: list[str]) -> None:
        if len(fields) != len(header):
            raise _Refused("wrong_field_count", f"{len(fields)} fields, the header has {len(header)}")
        if not _is_text("".join(fields)):
            raise _Refused("bad_encoding", "bytes that are not UTF-8")
        self._check_status(key, row)
        self._check_image(key, row)
        if not row["WorkerId"].strip():
            raise _Refused("no_worker", "WorkerId is empty")
        self._add(key, row, dict(self._answers(row)))

    def _check_status(self, key: str, row: Mapping[str, str]) -> None:
        status = row["AssignmentStatus"].strip()
        told = ""
        if status not in self._statuses:
            told = f"AssignmentStatus is {_shown(status)}"
        elif row.get("Reject", "").strip() and "Rejected" not in self._statuses:
            told = "marked in the column Reject"
        if told:
            raise _Refused("assignment_not_counted", told + ("; its vote is withdrawn" if self._withdraw(key, row) else ""))

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
            raise _Refused("no_image", "Input.ID is empty")
        if self._queries is None:
            return
        if key not in self._queries:
            raise _Refused("unknown_image", f"Input.ID {_shown(key)} was not asked about")
        query = unguard_formula(row["Input.query"])
        if query != self._queries[key]:
            raise _Refused("query_mismatch", f"Input.query is {_shown(query)}, the run says {self._queries[key]!r}")

    def _answers(self, row: Mapping[str, str]) -> Iterable[tuple[str, list[str] | bool]]:
        labels, sensitive = row.get(LABELS_COLUMN, "").strip(), row.get(SENSITIVE_COLUMN, "").strip()
        if not labels and not sensitive:
            raise _Refused("empty_answer", "no answer was given")
        if labels:
            yield "labels", self._labels(labels)
        if sensitive:
            if sensitive not in ("Yes", "No"):
                raise _Refused("malformed_answer", f"{SENSITIVE_COLUMN} is {_shown(sensitive)}, not Yes or No")
            yield "sensitive", sensitive == "Yes"

    def _labels(self, text: str) -> list[str]:
        if len(text) > _ANSWER_LIMIT:
            raise _Refused("answer_too_long", f"{len(text):,} characters; {_ANSWER_LIMIT:,} are read")
        try:
            labels = json.loads(text)[0]["image"]["labels"]
        except (ValueError, RecursionError, LookupError, TypeError):
            raise _Refused("malformed_answer", f'not [{{"image": {{"labels": [...]}}}}]: {_shown(text)}') from None
        try:
            return read_labels(labels, self._classes)
        except ValueError as error:
            reason, detail = error.args
            raise _Refused(reason, detail) from None

    def _add(self, key: str, row: Mapping[str, str], answers: dict[str, list[str] | bool]) -> None:
        worker = self._worker(row)
        if key in self._gold:  # a question for one and the same worker in several batches
            again = [form for form in answers if (worker, key, form) in self._voted]
            self.gold_again += len(again)
            answers = {form: answer for form, answer in answers.items() if form not in again}
        assignment = row["AssignmentId"].strip()
        for form in answers:
            if assignment and (assignment, form) in self._assignments:
                raise _Refused("duplicate_assignment", "this assignment was read before; is a file given twice?")
            if (worker, key, form) in self._voted:
                raise _Refused("duplicate_worker", f"worker {worker} has answered the {form} form for this image before")
        for form, answer in answers.items():
            self._assignments.add((assignment, form))
            hashed = self._assignment(row)
            self._voted[worker, key, form] = self._next, hashed
            labels, sensitive = (None, answer) if isinstance(answer, bool) else (answer, None)
            seconds = _seconds(row.get("WorkTimeInSeconds", ""))
            self.added[self._next] = key, form, worker, labels, sensitive, seconds, hashed
            self._next += 1

    def _worker(self, row: Mapping[str, str]) -> str:
        worker = row["WorkerId"].strip()
        return self._hashes.get(worker) or self._hashes.setdefault(worker, hash_worker(worker, self._salt))

    def _assignment(self, row: Mapping[str, str]) -> str | None:
        assignment = row["AssignmentId"].strip()
        return hash_worker(assignment, self._salt) if assignment else None


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


def _is_text(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _seconds(text: str) -> float | None:
    return float(text) if text.strip().isascii() and text.strip().isdigit() and len(text) < 12 else None


def clean(text: str) -> str:
    """The text with question marks for what Arrow and files cannot hold: halves of characters, and NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _shown(text: str) -> str:
    """Text of a stranger in a message: quoted, escaped, cut."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")
