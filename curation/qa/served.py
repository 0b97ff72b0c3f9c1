"""Answers given in the browser (``benchwright qa serve``): what their journal says, and the votes in it.

A record of the journal (``curation.journal``) is one of ``{"invited": name}``, ``{"removed": name, "discarded": bool}``,
``{"by": name, "key": image, "labels": [option, ...], "sensitive": bool, "seconds": number}`` and ``{"by": name, "key": image,
"undone": true}``. The last one counts of an annotator and an image. Where ``by`` is empty the requester has decided, of both
forms or of one: the other is null.
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
    """What one annotator, or the requester, says of one image.

    Attributes:
        labels: names of the options chosen, [] for none of the above; None if the label form was not answered.
        sensitive: None if the sensitive form was not answered.
        seconds: how long the question was shown; None if that is not known.
    """

    labels: Sequence[str] | None
    sensitive: bool | None
    seconds: float | None = None


class Answers:
    """What stands after the records of a journal.

    Attributes:
        invited: annotator -> number of the record of the invitation; those who were removed are not there.
        stands: annotator ("" is the requester) -> image -> answer, in the order in which they were given.
        undone: annotator -> image -> answer that was taken back.
        records: annotator -> how many records there are of them.
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
        """Take one more record in. Raises ``ValueError`` for what is none."""
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
    """Votes of a journal of answers; each answer gives a vote on each form.

    Args:
        path: of the journal.
        options, salt, keys: as for ``label_studio.read_label_studio``; the worker is the annotator's name.
        earlier: votes read before with the same salt. Those of answers that were changed or taken back since are withdrawn.
        forms: those that are asked.

    Returns:
        The votes by annotator, and rejects: ``unknown_image``, ``unknown_label``, ``none_with_others``, ``malformed_answer``.

    Raises:
        ValueError: for a file that is no such journal, or is damaged.
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
    """The votes of answers; see ``read_served``."""
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
