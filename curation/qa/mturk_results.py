"""Result CSVs of Amazon Mechanical Turk, as downloaded by the requester, to one table of votes.

A row is an assignment. Rows that are no vote become rejects with a reason; only a file that is no result file of these
forms, or that cannot be read as CSV at all, is an error. Worker ids are hashed with a salt at the door: they name
people.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..rows import REJECTS
from .mturk import unguard_formula
from .options import Option, answers_to_classes, read_labels
from .votes import VOTES

LABELS_COLUMN = "Answer.taskAnswers"
SENSITIVE_COLUMN = "Answer.image-contains.label"
NEEDED = ("AssignmentId", "WorkerId", "AssignmentStatus", "Input.ID", "Input.query")

_ANSWER_LIMIT = 20_000
"""Longest answer that is parsed, in characters: the form's own answers have some hundred."""


class Votes(NamedTuple):
    """What an import gives: the votes (``votes.VOTES``), and what was turned away.

    ``rejects`` has ``key`` (the image, "" where it cannot be told), ``reason``, and ``detail`` (file, line, what was
    seen).
    """

    votes: pa.Table
    rejects: pa.Table


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
) -> Votes:
    """Read result files of the label form, of the sensitive form or of both, any number of batches, in the order given.

    Args:
        paths: CSV files. Where a vote occurs twice, the first one counts.
        options: the choices of the label form as exported: answers are turned into their classes.
        salt: secret text mixed into the workers' hashes: the same worker has the same hash in all files read with one
            salt, and the ids cannot be found again by hashing a list of known ids.
        queries: image key -> class, for all images asked about, gold questions included. None takes whatever comes.
        statuses: values of ``AssignmentStatus`` that count; ``Rejected`` work does not by default.
        earlier: votes read before with the same salt; where one of them occurs again, it counts as a repeated one.

    Returns:
        The votes in file order, and the rejects: ``bad_encoding``, ``wrong_field_count``, ``assignment_not_counted``
        (by status, or marked in the column ``Reject``), ``no_image``, ``unknown_image``, ``query_mismatch``,
        ``empty_answer``, ``answer_too_long``, ``malformed_answer``, ``unknown_label``, ``none_with_others``,
        ``no_worker``, ``duplicate_assignment``, ``duplicate_worker``.

    Raises:
        ValueError: naming file and line, for a file without the needed columns or with one twice, or that is no CSV.
    """
    if not paths:
        raise ValueError("no result files to read")
    if not salt:
        raise ValueError("the salt of the worker hashes is empty: the ids could be found by hashing known ones")
    reader = _Reader(answers_to_classes(options), salt, queries, frozenset(statuses), voters(earlier, "worker", "key", "form"))
    columns: dict[str, list[Any]] = {name: [] for name in VOTES.names}
    rejects: dict[str, list[str]] = {name: [] for name in REJECTS.names}
    for path in paths:
        for line, header, fields in csv_records(Path(path), _check_header):
            row = dict(zip(header, fields, strict=False))
            key = unguard_formula(clean(row.get("Input.ID", "")))
            try:
                votes = reader.votes(key, row, header, fields)
            except _Refused as refused:
                for name, value in zip(REJECTS.names, (key, refused.reason, f"{clean(Path(path).name)} line {line}: "
                                                       f"{refused.detail}"), strict=True):  # fmt: skip
                    rejects[name].append(value)
                continue
            for vote in votes:
                for name, value in zip(VOTES.names, vote, strict=True):
                    columns[name].append(value)
    return Votes(pa.table(columns, schema=VOTES), pa.table(rejects, schema=REJECTS))


def hash_worker(worker: str, salt: str) -> str:
    """Sixteen hexadecimal digits for a worker id: BLAKE2b keyed with the salt (RFC 7693)."""
    key = hashlib.blake2b(salt.encode("utf-8", "surrogateescape"), digest_size=32).digest()
    return hashlib.blake2b(worker.encode("utf-8", "surrogateescape"), digest_size=8, key=key).hexdigest()


def voters(votes: pa.Table | None, *columns: str) -> set[tuple[str, ...]]:
    """Who has voted on what: the values of these columns, a tuple a vote."""
    return set() if votes is None else set(zip(*(votes[name].to_pylist() for name in columns), strict=True))


class _Reader:
    """Turns rows into votes, and remembers who has voted on what."""

    def __init__(
        self,
        classes: Mapping[str, str],
        salt: str,
        queries: Mapping[str, str] | None,
        statuses: frozenset[str],
        voted: set[tuple[str, ...]],
    ) -> None:
        self._classes = classes
        self._salt = salt
        self._queries = queries
        self._statuses = statuses
        self._assignments: set[tuple[str, str]] = set()
        self._voted = voted
        self._hashes: dict[str, str] = {}

    def votes(self, key: str, row: Mapping[str, str], header: list[str], fields: list[str]) -> list[tuple[Any, ...]]:
        if len(fields) != len(header):
            raise _Refused("wrong_field_count", f"{len(fields)} fields, the header has {len(header)}")
        if not _is_text("".join(fields)):
            raise _Refused("bad_encoding", "bytes that are not UTF-8")
        self._check_status(row)
        self._check_image(key, row)
        worker = row["WorkerId"].strip()
        if not worker:
            raise _Refused("no_worker", "WorkerId is empty")
        answers = list(self._answers(row))
        return [self._vote(key, worker, row, form, answer) for form, answer in answers]

    def _check_status(self, row: Mapping[str, str]) -> None:
        status = row["AssignmentStatus"].strip()
        if status not in self._statuses:
            raise _Refused("assignment_not_counted", f"AssignmentStatus is {_shown(status)}")
        if row.get("Reject", "").strip() and "Rejected" not in self._statuses:
            raise _Refused("assignment_not_counted", "marked in the column Reject")

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

    def _vote(self, key: str, worker: str, row: Mapping[str, str], form: str, answer: list[str] | bool) -> tuple[Any, ...]:
        assignment = (row["AssignmentId"].strip(), form)
        if assignment[0] and assignment in self._assignments:
            raise _Refused("duplicate_assignment", "this assignment was read before; is a file given twice?")
        hashed = self._hashes.get(worker) or self._hashes.setdefault(worker, hash_worker(worker, self._salt))
        if (hashed, key, form) in self._voted:
            raise _Refused("duplicate_worker", f"worker {hashed} has answered the {form} form for this image before")
        self._assignments.add(assignment)
        self._voted.add((hashed, key, form))
        labels, sensitive = (None, answer) if isinstance(answer, bool) else (answer, None)
        return key, form, hashed, labels, sensitive, _seconds(row.get("WorkTimeInSeconds", ""))


def csv_records(path: Path, check_header: Callable[[Path, list[str]], None]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Line number, header and fields of every row after the header; bytes that are not UTF-8 come as surrogates.

    Raises:
        ValueError: naming file and line, for what is no CSV; and what ``check_header`` raises.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(file, strict=True)
        try:
            header = next(rows, [])
            check_header(path, header)
            for fields in rows:
                if fields:
                    yield rows.line_num, header, fields
        except csv.Error as error:
            raise ValueError(f"{path} line {rows.line_num}: not readable as CSV: {error}") from None


def _check_header(path: Path, header: list[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
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
