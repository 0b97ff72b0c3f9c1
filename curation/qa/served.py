"""Answers given in the browser (``benchwright qa serve``): format of their journal, and conversion to votes.

A record of the journal (``curation.journal``) is one of ``{"invited": name}``, ``{"removed": name, "discarded": bool}``,
``{"by": name, "key": image, "labels": [option, ...], "sensitive": bool, "seconds": number}`` and ``{"by": name, "key": image,
"undone": true}``. For each annotator and image the last record counts. If ``by`` is empty, the record is a decision of the
requester, on both forms or on one: the other is null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..journal import read
from ..rows import Reject
from .mturk_results import Votes, check_salt, clean, hash_worker, votes_of
from .options import Option, answers_to_classes, read_answer
from .votes import ADJUDICATOR, FORMS, VOTES


@dataclasses.dataclass(frozen=True)
class Answer:
    """Answer of one annotator, or of the requester, about one image.

    Attributes:
        labels: names of the options chosen, [] for none of the above; None if the label form was not answered.
        sensitive: answer on the sensitive form; None if it was not answered.
        seconds: time for which the question was shown, in seconds; None if unknown.
    """

    labels: Sequence[str] | None
    sensitive: bool | None
    seconds: float | None = None


class Answers:
    """State after all records of a journal.

    Attributes:
        invited: annotator -> number of the record of the invitation; without removed annotators.
        stands: annotator ("" is the requester) -> image -> valid answer, in the order of the answers.
        undone: annotator -> image -> answer that was undone.
        records: annotator -> number of answer records.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self.invited: dict[str, int] = {}
        self.stands: dict[str, dict[str, Answer]] = {}
        self.undone: dict[str, dict[str, Answer]] = {}
        self.records: dict[str, int] = {}
        self.length = 0
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add one record. Raises ``ValueError`` if it is invalid."""
        self.length += 1
        name, key = record.get("by"), record.get("key")
        if _is_name(record.get("invited")):
            self.invited[record["invited"]] = self.length
        elif _is_name(record.get("removed")):
            self._remove(record["removed"], discarded=record.get("discarded") is True)
        elif isinstance(name, str) and isinstance(key, str):
            self.records[name] = self.records.get(name, 0) + 1
            before = self.stands.setdefault(name, {}).pop(key, None)
            if record.get("undone") is not True:
                self.stands[name][key] = Answer(record.get("labels"), record.get("sensitive"), record.get("seconds"))
            elif before is not None:
                self.undone.setdefault(name, {})[key] = before
        else:
            raise ValueError(f"record {self.length} is not an answer: {str(dict(record))!a:.80}")

    def _remove(self, name: str, *, discarded: bool) -> None:
        self.invited.pop(name, None)
        if discarded:
            self.undone.setdefault(name, {}).update(self.stands.pop(name, {}))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def read_served(
    path: str,
    *,
    options: Sequence[Option],
    salt: str,
    keys: Mapping[str, Any] | None = None,
    earlier: pa.Table | None = None,
    forms: Sequence[str] = FORMS,
) -> Votes:
    """Read the votes of a journal of answers; each answer gives one vote per form.

    Args:
        path: path of the journal.
        options, salt, keys: as for ``label_studio.read_label_studio``; the worker is the name of the annotator.
        earlier: votes read before with the same salt. Votes whose answers have since been changed or undone are withdrawn.
        forms: the forms that are asked.

    Returns:
        The votes by annotator, and rejects: ``unknown_image``, ``unknown_label``, ``none_with_others``, ``malformed_answer``.

    Raises:
        ValueError: the file is not such a journal, or is damaged.
    """
    try:
        answers = Answers(read(Path(path)))
    except ValueError as error:
        message = str(error).removeprefix(f"{path} ")
        raise ValueError(f"{path}: not a journal of `benchwright qa serve`: {message}") from None
    return votes_in(answers, options=options, salt=salt, keys=keys, earlier=earlier, forms=forms)


def votes_in(
    answers: Answers,
    *,
    options: Sequence[Option],
    salt: str,
    keys: Mapping[str, Any] | None = None,
    earlier: pa.Table | None = None,
    forms: Sequence[str] = FORMS,
) -> Votes:
    """Convert answers to votes; see ``read_served``."""
    check_salt(salt)
    classes = answers_to_classes(options)
    before = {row[:3]: (number, row) for number, row in enumerate(_rows(earlier))}
    votes: list[tuple[Any, ...]] = []
    rejects: list[tuple[str, str, str]] = []
    withdrawn: set[int] = set()
    known = 0
    for name in sorted({*answers.stands, *answers.undone}):
        worker = hash_worker(name, salt) if name else ADJUDICATOR
        stands = answers.stands.get(name, {})
        for key in dict.fromkeys([*stands, *answers.undone.get(name, {})]):
            try:
                now = _votes(key, worker, stands[key], classes, keys, forms) if key in stands else []
            except Reject as refused:
                rejects.append((clean(key), refused.reason, f"{worker}: {refused.detail}"))
                continue
            earlier_ones = [before[key, form, worker] for form in FORMS if (key, form, worker) in before]
            same = [row for _, row in earlier_ones if row in now]
            known += len(same)
            withdrawn |= {number for number, row in earlier_ones if row not in same}
            votes += [row for row in now if row not in same]
    return votes_of(votes, rejects, withdrawn=withdrawn, known=known)


def _rows(votes: pa.Table | None) -> list[tuple[Any, ...]]:
    return [] if votes is None else list(zip(*(votes[name].to_pylist() for name in VOTES.names), strict=True))


def _votes(
    key: str,
    worker: str,
    answer: Answer,
    classes: Mapping[str, str],
    keys: Mapping[str, Any] | None,
    forms: Sequence[str],
) -> list[tuple[Any, ...]]:
    """The votes of an answer, as rows of ``VOTES``; raises ``Reject``."""
    if clean(key) != key or (keys is not None and key not in keys):
        raise Reject("unknown_image", f"{key!r:.60} was not asked about")
    missing = [form for form in forms if getattr(answer, form) is None]
    if missing and (worker != ADJUDICATOR or len(missing) == len(forms)):
        raise Reject("malformed_answer", "a form is not answered")
    if not isinstance(answer.sensitive, bool | None):
        raise Reject("malformed_answer", f"sensitive is {answer.sensitive!r:.80}, neither true nor false")
    given = answer.seconds
    seconds = float(given) if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < 1e9 else None
    votes: list[tuple[Any, ...]] = []
    if answer.labels is not None:
        votes.append((key, "labels", worker, read_answer(answer.labels, classes), None, seconds, None))
    if answer.sensitive is not None and "sensitive" in forms:
        votes.append((key, "sensitive", worker, None, answer.sensitive, seconds, None))
    return votes
