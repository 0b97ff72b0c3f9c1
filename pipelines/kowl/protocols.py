"""Names of the protocols of KOWL trainings: ``feedback 0.5``, ``feedback 0.1 by people``, ``feedback scores``, ``start``."""

from __future__ import annotations

from ...eval.protocols.open_world.measures import PROTOCOL
from ..errors import WrongUse

START = "start"
"""Protocol of the paper's Table 3: the starting release alone, with its own labels."""

BY_PEOPLE = " by people"
"""Suffix of protocols in which labels come from people instead of the lists."""

SCORES = f"{PROTOCOL}scores"
"""Protocol in which predictors get no labels, but scores of their predictions for the training samples."""


def protocol_of(amount: float, *, people: bool = False) -> str:
    """``feedback 1``, ``feedback 0.5``; the amount keeps all its digits.

    >>> protocol_of(0.5), protocol_of(1, people=True)
    ('feedback 0.5', 'feedback 1 by people')
    """
    return f"{PROTOCOL}{int(amount) if amount in (0, 1) else repr(amount)}{BY_PEOPLE if people else ''}"


def feedback_of(protocol: str) -> tuple[float, bool]:
    """The share of labels that a protocol gives, and whether it gives scores.

    >>> feedback_of("feedback 0.5 by people"), feedback_of(SCORES)
    ((0.5, False), (0.0, True))
    """
    return (0.0, True) if protocol == SCORES else (float(protocol.removeprefix(PROTOCOL).removesuffix(BY_PEOPLE)), False)


def read_protocol(text: str) -> str:
    """The protocol for a user's text: ``0.5``, ``feedback-0.5``, ``people-0.5``, ``scores``, ``start``, or its full name.

    >>> read_protocol("0.5"), read_protocol("people-0.1"), read_protocol("scores")
    ('feedback 0.5', 'feedback 0.1 by people', 'feedback scores')
    """
    if text in (START, SCORES, SCORES.removeprefix(PROTOCOL)):
        return START if text == START else SCORES
    people = text.endswith(BY_PEOPLE) or text.startswith("people")
    plain = text.removesuffix(BY_PEOPLE).removeprefix("people").removeprefix("feedback").strip(" -")
    try:
        amount = float(plain)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1:
        wanted = f"expected a share of labels from 0 to 1, such as 0.5 or people-0.1, or 'scores', or {START!r}"
        raise WrongUse(f"no protocol {text!r}: {wanted}")
    return protocol_of(amount, people=people)
