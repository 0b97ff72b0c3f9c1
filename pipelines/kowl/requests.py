"""Labels from people instead of the lists: the samples that a predictor requests, increment by increment, and the answers.

A training ``by people`` is a chain of stages: ``asked_..._1``, the samples of increment 1 that the predictor wants labelled, in
its order and within its budget; ``answered_..._1``, the label that most annotators chose for each; ``asked_..._2``, from a
predictor trained on these; and so on up to ``learned_...``, the training itself. It waits at the first increment with missing
answers.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ...curation.qa.votes import read_votes
from ...curation.rows import Blob, Rejected
from ...curation.stage_rows import Rows
from ..errors import WrongUse


@dataclass(frozen=True)
class Asked:
    """A sample for which a label is requested.

    Attributes:
        increment: increment whose training sample it is.
        place: position in the order of the requests, from 0.
        concept: always "": annotators are shown no class.
        url: where it can be seen; "" if there is a picture.
    """

    key: str
    increment: int
    place: int
    concept: str
    url: str


@dataclass(frozen=True)
class AskedPicture(Asked):
    """The same with a picture of some of its frames: see ``clips.contact_sheet``."""

    image: Blob


@dataclass(frozen=True)
class Answered:
    """A sample, and the class that most annotators chose."""

    key: str
    increment: int
    label: str


def majority_labels(
    *, asked: Rows, votes: str, workers: int, majority: int, earlier: Rows | None = None
) -> Iterator[Answered | Rejected]:
    """Source step: for each sample the label that at least ``majority`` and more than half of the annotators chose, after the
    labels of earlier increments.

    Rejected as ``missing_votes``, ``none_of_the_above`` or ``no_majority``: these samples stay unlabelled.

    Args:
        asked: rows of ``Asked``.
        votes: file of their votes; mark it with ``where``.
        workers: annotators per sample.
        majority: see above.
        earlier: rows of ``Answered`` from earlier increments.
    """
    for row in [] if earlier is None else earlier.table().to_pylist():
        yield Answered(row["key"], row["increment"], row["label"])
    said: dict[str, list[tuple[str, ...]]] = {}
    for row in read_votes(votes).to_pylist():
        if row["form"] == "labels":
            said.setdefault(row["key"], []).append(tuple(row["labels"]))
    for row in asked.table(["key", "increment"]).to_pylist():
        answers = said.get(row["key"], [])
        chosen, count = Counter(answers).most_common(1)[0] if answers else ((), 0)
        text = "; ".join(f"{number} x {', '.join(label) or 'none'}" for label, number in sorted(Counter(answers).items()))
        if len(answers) < workers:
            yield Rejected(row["key"], "missing_votes", f"{len(answers)} of {workers}: {text}")
        elif count < majority or 2 * count <= len(answers) or len(chosen) > 1:
            yield Rejected(row["key"], "no_majority", text)
        elif not chosen:
            yield Rejected(row["key"], "none_of_the_above", text)
        else:
            yield Answered(row["key"], row["increment"], chosen[0])


def check_address(address: str, known: list[str]) -> None:
    """Raise ``WrongUse`` if an address names a column that samples do not have."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(address) if name is not None]
    except ValueError as error:
        raise WrongUse(f"evaluation.people.address = {address!r}: {error}: put columns in braces, as in {{key}}") from None
    if strange := [name for name in names if name not in known]:
        raise WrongUse(f"evaluation.people.address: samples have no column {strange[0]!r}: there are {', '.join(known)}")
    if not address.startswith(("http://", "https://")):
        raise WrongUse(f"evaluation.people.address = {address!r}: it must begin with http:// or https://")
