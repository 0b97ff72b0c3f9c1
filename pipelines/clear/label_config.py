"""Settings of CLEAR's classes, and of the people who confirm them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ...curation.qa.options import Option, text_rule
from ...curation.qa.rounds import POOL, ErrorRates
from ..settings_type import settings_type

Chance = Annotated[float, Field(ge=0, le=1)]


def _shown(text: str) -> str:
    if text and (rule := text_rule(text)):
        raise ValueError(rule)
    return text


ShownText = Annotated[str, AfterValidator(_shown)]
"""Text shown to annotators, or ""."""


@settings_type
class Class:
    """A class: its name, its prompts, and the option that annotators read.

    Attributes:
        name: name in labels and lists.
        prompts: texts that retrieve its images.
        option: text of the annotators' option; by default the name.
        hint: added in brackets on the form.
    """

    name: Annotated[ShownText, Field(min_length=1)]
    prompts: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    option: ShownText = ""
    hint: ShownText = ""

    def as_option(self) -> Option:
        """The option that annotators choose for it."""
        return Option(self.option or self.name, self.name if self.option else "", self.hint)


@settings_type
class Rates(ErrorRates):
    """Probabilities of wrong answers of simulated annotators; the first three are mutually exclusive.

    Attributes:
        none: probability of "None of the above" instead of the class.
        extra: probability of a second class in addition to the right one.
        wrong: probability of another class.
        sensitive: probability of a Yes to the question about sensitive content.
    """

    none: Chance = 0.05
    extra: Chance = 0.04
    wrong: Chance = 0.03
    sensitive: Chance = 0.0

    def __post_init__(self) -> None:
        if self.none + self.extra + self.wrong > 1:
            raise ValueError(f"none + extra + wrong = {self.none + self.extra + self.wrong:g}: it should be at most 1")


@settings_type
class Qa:
    """Annotators.

    Attributes:
        votes: ``imported`` from people, ``simulated`` from the column ``truth``, or ``none``.
        workers: annotators per image.
        majority: votes that an image needs for its class.
        sensitive: number of Yes votes that drop an image: a number, ``as_released`` (one) or ``as_written`` (all).
        rule: ``majority_exact``, or ``draft``, the rule of the authors' draft script.
        max_sensitive_score: images that the packaged model scores above this (0 to 1) are not shown to annotators.
        truth: column of the true classes, for simulated annotators.
        errors: probabilities of their wrong answers.
    """

    votes: Literal["imported", "simulated", "none"]
    workers: Annotated[int, Field(ge=1)] = 3
    majority: Annotated[int, Field(ge=1)] = 2
    sensitive: Literal["as_released", "as_written"] | Annotated[int, Field(strict=True, ge=1)] = "as_released"
    rule: Literal["majority_exact", "draft"] = "majority_exact"
    max_sensitive_score: Chance | None = None
    truth: str = "true_class"
    errors: Rates = Field(default_factory=Rates)

    def __post_init__(self) -> None:
        if self.votes == "simulated" and self.workers > POOL:
            raise ValueError(f"workers = {self.workers}: there are {POOL} simulated annotators")
        if self.votes != "none" and not self.workers < 2 * self.majority <= 2 * self.workers:
            raise ValueError(f"majority = {self.majority}: it should be more than half of {self.workers} workers, and no more")
        if isinstance(self.sensitive, int) and self.sensitive > self.workers:
            raise ValueError(f"sensitive = {self.sensitive}: it should be at most the number of workers, {self.workers}")
