"""Answers that a worker can choose, and the class that each answer stands for."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence

from ..rows import Reject

NONE_OF_THE_ABOVE = "None of the above"

LABELS_PROMPT = f"Select one or more elements in this image. Or select '{NONE_OF_THE_ABOVE}'."
SENSITIVE_PROMPT = "Does this image contain sensitive content (e.g., pornography, abuse, hate speech, etc.)?"
"""Default questions of the two forms, for rounds without their own."""

YES, NO = "Yes", "No"
SENSITIVE_ANSWERS = {YES: True, NO: False}
"""Answer of the sensitive form -> whether the image is sensitive."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One choice of the label form.

    Args:
        name: the word that the worker reads and that the answer contains, such as ``computer``.
        class_name: the class in the table that it stands for, such as ``laptop``; "" means the same as ``name``.
        hint: text in brackets after the name, such as ``laptop/tablet/desktop/keyboard/etc.``.

    >>> Option("computer", class_name="laptop", hint="or a desktop").shown
    'computer (or a desktop)'
    """

    name: str
    class_name: str = ""
    hint: str = ""

    @property
    def stands_for(self) -> str:
        """The class of the images for which this is the right answer."""
        return self.class_name or self.name

    @property
    def shown(self) -> str:
        """Text that the worker reads: the name with its hint in brackets."""
        return f"{self.name} ({self.hint})" if self.hint else self.name


def check_options(options: Sequence[Option], *, background: str) -> None:
    """Raise ``ValueError`` if an answer would be ambiguous or could not be shown.

    Two options may not share a name, a shown text or a class; no option may be called "None of the above" or stand for the
    background class; names must be non-empty, without control characters and without white space around them.

    >>> check_options([Option("disc"), Option("square", class_name="disc")], background="")
    Traceback (most recent call last):
        ...
    ValueError: option 'square' for class 'disc' repeats another: an answer would be ambiguous
    """
    if not options:
        raise ValueError("the label form has no options: at least one class is needed")
    texts: set[str] = set()
    classes: set[str] = set()
    for option in options:
        check_text(option.name, "option name")
        check_text(option.stands_for, "class name")
        check_text(option.shown, "option text")
        if option.stands_for == background:
            raise ValueError(f"option {option.name!r} is the background class {background!r}: it has no option")
        if NONE_OF_THE_ABOVE in (option.name, option.shown):
            raise ValueError(f"option {option.name!r}: the form itself adds {NONE_OF_THE_ABOVE!r}")
        if texts & {option.name, option.shown} or option.stands_for in classes:
            raise ValueError(
                f"option {option.name!r} for class {option.stands_for!r} repeats another: an answer would be ambiguous"
            )
        texts |= {option.name, option.shown}
        classes.add(option.stands_for)


def check_text(text: str, what: str) -> None:
    """Raise ``ValueError`` for text that violates ``text_rule``.

    >>> check_text(" disc", "option")
    Traceback (most recent call last):
        ...
    ValueError: option ' disc': it must not be empty nor have white space around it
    """
    if rule := text_rule(text):
        raise ValueError(f"{what} {text!r}: {rule}")


def text_rule(text: str) -> str:
    """Describe the fault of text that is empty, has white space around it or contains control characters; "" for valid text.

    >>> text_rule("disc"), text_rule(" disc")
    ('', 'it must not be empty nor have white space around it')
    """
    if not text or text != text.strip():
        return "it must not be empty nor have white space around it"
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text):
        return "it has a control character"
    return ""


def answers_to_classes(options: Sequence[Option]) -> dict[str, str]:
    """Answer -> class. An answer is the name alone or the name with its hint, since forms of both kinds exist.

    >>> answers_to_classes([Option("computer", class_name="laptop", hint="or a desktop")])
    {'computer': 'laptop', 'computer (or a desktop)': 'laptop'}
    """
    return {text: option.stands_for for option in options for text in (option.name, option.shown)}


def classes_to_answers(options: Sequence[Option]) -> Mapping[str, str]:
    """Class -> name of its option.

    >>> classes_to_answers([Option("computer", class_name="laptop")])
    {'laptop': 'computer'}
    """
    return {option.stands_for: option.name for option in options}


def read_answer(answers: object, classes: Mapping[str, str]) -> list[str]:
    """Return the classes of one answer, sorted and without repetition; [] is none of the above.

    Args:
        answers: value that the form returned: a list of names, or [] or ``["None of the above"]``.
        classes: answer -> class, from ``answers_to_classes``.

    Raises:
        Reject: ``malformed_answer`` (not a list of strings), ``unknown_label`` (a name that is not an option),
            ``none_with_others`` ("None of the above" together with a class).

    >>> classes = answers_to_classes([Option("computer", class_name="laptop"), Option("bus")])
    >>> read_answer(["computer", "bus"], classes)
    ['bus', 'laptop']
    >>> read_answer(["None of the above"], classes)
    []
    """
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise Reject("malformed_answer", f"labels are not a list of names: {answers!r:.80}")
    unknown = [answer for answer in answers if answer not in classes and answer != NONE_OF_THE_ABOVE]
    if unknown:
        raise Reject("unknown_label", f"{unknown[0]!r:.80} is not an option of the form")
    labels = sorted({classes[answer] for answer in answers if answer != NONE_OF_THE_ABOVE})
    if labels and NONE_OF_THE_ABOVE in answers:
        raise Reject("none_with_others", f"none of the above, and also {labels!r:.80}")
    return labels
