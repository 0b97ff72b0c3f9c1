"""The pages of ``benchwright qa serve``."""

from __future__ import annotations

import dataclasses
import hmac
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...curation.package_data import package_text
from ...curation.qa.desk import Desk
from ...curation.qa.options import LABELS_PROMPT, NO, NONE_OF_THE_ABOVE, SENSITIVE_PROMPT, YES
from ...curation.qa.served import Answer, Answers
from ...eval.report.blocks import Block, Card, Cards, Cell, CellValue, Section, Table, Text
from ...eval.report.html import filled

_KEYS = "123456789abcdefghijkmopqrstvwxz"
"""Keys of the options in order; Yes and No, undo and later have other keys."""


def visitor(desk: Desk, given: str, token: str) -> tuple[str, str] | None:
    """Role and name of the holder of a token: the requester, an annotator, or a guest who may become an annotator."""
    if hmac.compare_digest(given.encode(), token.encode()):
        return "requester", ""
    name = desk.bearer(given)
    return None if name is None else ("annotator", name) if name else ("guest", "")


def links(desk: Desk, address: str, token: str = "") -> Iterator[tuple[str, str]]:
    """Names and links for all visitors: the requester (if a token is passed), everybody, and each annotator."""
    if token:
        yield "requester", f"{address}/?token={token}"
    yield "join", f"{address}/join?token={desk.token()}"
    for name in [*desk.answers.invited]:
        yield name, f"{address}/question?token={desk.token(name)}"


def _filled(kind: str, title: str, **more: Any) -> str:
    values: dict[str, Any] = {"kind": kind, "title": title, "linkable": lambda href: False, "problem": ""}
    values |= {"none_of_the_above": NONE_OF_THE_ABOVE, "sensitive_prompt": SENSITIVE_PROMPT}
    return filled(package_text(__package__, "frame.html") + package_text(__package__, "annotate.html"), **{**values, **more})


def error_page(why: str) -> str:
    """An error page of one line."""
    return _filled("error", "This is not possible", subtitle="", live=False, sections=[], problem=why[:1500])


def join_page(name: str, problem: str) -> str:
    """The page where people with the link for everybody enter a name."""
    return _filled("join", "Help to judge pictures", name=name, problem=problem)


# ------------------------------------------------------------------------------------------------------------ annotators


def question_page(
    desk: Desk,
    name: str,
    key: str,
    ahead: Sequence[str],
    *,
    address: Callable[[str], str],
    chosen: Sequence[str] = (),
    nothing: bool = False,
    sensitive: bool | None = None,
    problem: str = "",
    note: str = "",
) -> str:
    """One question for one annotator.

    Args:
        desk: desk of the round.
        name: name of the annotator.
        key: key of the image; "" if none is left.
        ahead: keys of the next images, whose pictures are fetched now.
        address: image key -> URL of what is opened to judge the image; "" if its picture is shown.
        chosen, nothing, sensitive: what is ticked; by default the annotator's earlier answer for this image.
        problem: what is wrong with the submitted answer.
        note: another message for the annotator.
    """
    before = desk.answer_of(name, key) if key and not problem else None
    if before is not None:
        chosen, sensitive = before.labels or (), before.sensitive
        nothing = before.labels is not None and not before.labels
    done, left, last = desk.done(name), desk.left(name), desk.last(name)
    return _filled(
        "question",
        f"Question {done + 1}" if key else "Done",
        name=name,
        question=desk.id_of(key) if key else "",
        last=desk.id_of(last) if last else "",
        ahead=[f"/picture?id={desk.id_of(each)}" for each in ahead if not address(each)],
        done=done,
        total=done + left,
        note=note,
        problem=problem,
        **_asked(desk, address(key)),
        chosen=chosen,
        nothing=nothing,
        sensitive=sensitive,
    )


def _asked(desk: Desk, address: str) -> dict[str, Any]:
    asked = desk.asked
    options = [
        {"name": each.name, "hint": each.hint, "key": _KEYS[number] if number < len(_KEYS) else ""}
        for number, each in enumerate(asked.options)
    ]
    texts = {"instructions": asked.instructions, "prompt": asked.prompt or LABELS_PROMPT}
    return {**texts, "options": options, "asks": asked.forms, "address": address, "medium": asked.medium}


# ------------------------------------------------------------------------------------------------------------- requester


@dataclasses.dataclass(frozen=True)
class Found:
    """Statistics of the answers.

    Attributes:
        length: length of the journal.
        kappas: Fleiss' kappa by form.
        workers: annotator -> row of the table of workers; empty where they have not answered.
        to_decide: number of images on which annotators disagree and the requester has not decided.
    """

    length: int
    kappas: Mapping[str, float]
    workers: Mapping[str, Mapping[str, Any]]
    to_decide: int


def overview_page(desk: Desk, found: Found, *, address: str, going: str, journal: str, problem: str) -> str:
    """Progress and agreement of the annotators, and the actions of the requester.

    Args:
        desk: desk of the round.
        found: statistics of the answers.
        address: address of the server.
        going: status of the run.
        journal: file of the answers.
        problem: why the requester's action failed.
    """
    answers = desk.snapshot()
    complete, total = desk.complete(), len(desk.keys)
    cards = [
        Card("images with all votes", f"{complete:,} of {total:,}", f"{desk.asked.workers} votes each"),
        Card("answers", sum(len(each) for name, each in answers.stands.items() if name)),
        *(
            Card(f"kappa, {form}", "–" if math.isnan(kappa) else kappa, "Fleiss' so far")
            for form, kappa in found.kappas.items()
        ),
        Card("disagreements to decide", found.to_decide, tone="note" if found.to_decide else "plain"),
    ]
    lines = [_line(desk, name, row, answers) for name, row in found.workers.items()]
    headings = ["annotator", "answered", "left", "agreement", "gold right", "gold asked", "median seconds", "flags"]
    of_people: Block = Table(headings, lines, decimals=2) if lines else Text(["No annotators invited yet."])
    missing = total - complete
    lack = (
        f"{missing:,} images still lack votes: a run rejects them as missing_votes."
        if missing
        else "All images have their votes."
    )
    finish = f"{lack} The answers are in {journal}; `benchwright qa import` reads that file, too."
    return _filled(
        "overview",
        f"Questions of stage {desk.asked.stage}",
        subtitle=f"Round {desk.asked.name}" if desk.asked.name else "",
        live=True,
        sections=[Section("Progress", [Cards(cards)]), Section("Annotators", [of_people])],
        join=next(link for _, link in links(desk, address)),
        links=[{"name": name, "href": link} for name, link in links(desk, address)][1:],
        to_decide=found.to_decide,
        finish=finish,
        going=going,
        problem=problem,
    )


def _line(desk: Desk, name: str, worker: Mapping[str, Any], answers: Answers) -> list[CellValue]:
    there = name in answers.invited
    return [
        Cell(name, note="" if there else "removed"),
        desk.done(name),
        desk.left(name) if there else None,
        worker.get("agreement"),
        worker.get("gold_right", 0),
        worker.get("num_gold", 0),
        worker.get("median_seconds"),
        ", ".join(worker.get("flags", [])) or None,
    ]


def disagreements(desk: Desk, answers: Answers) -> dict[str, list[str]]:
    """Image -> forms on which its annotators disagree and the requester has not decided; images without a majority come first.

    Only for images that have all their votes.
    """
    given: dict[str, list[Answer]] = {key: [] for key in desk.keys}
    for name, stands in answers.stands.items():
        for key, answer in stands.items() if name else ():
            if key in given:
                given[key].append(answer)
    found: list[tuple[bool, str, list[str]]] = []
    for key, some in given.items():
        if len(some) < desk.asked.workers:
            continue
        decided = answers.stands.get("", {}).get(key, Answer(None, None))
        answers_of: dict[str, list[Any]] = {
            "labels": [tuple(sorted(each.labels or ())) for each in some],
            "sensitive": [each.sensitive for each in some],
        }
        forms = [form for form in desk.asked.forms if len({*answers_of[form]}) > 1 and getattr(decided, form) is None]
        if forms:
            settled = all(2 * max(answers_of[form].count(each) for each in answers_of[form]) > len(some) for form in forms)
            found.append((settled, key, forms))
    return {key: forms for _, key, forms in sorted(found, key=lambda each: each[0])}


def decide_page(desk: Desk, *, address: Callable[[str], str], key: str = "", after: str = "", problem: str = "") -> str:
    """A disagreement: the answers of the annotators, and a form for the requester's decision.

    Args:
        desk: desk of the round.
        address: as for ``question_page``.
        key: key of the image; by default the first disagreement.
        after: key of an image; the disagreement after it is shown instead.
        problem: what is wrong with the submitted decision.
    """
    answers = desk.snapshot()
    found = disagreements(desk, answers)
    keys = [*found]
    at = keys.index(after) + 1 if after in found else 0
    key = key if key in found else keys[at] if at < len(keys) else ""
    given = [
        {
            "name": name,
            "labels": ", ".join(stands[key].labels or ()) or NONE_OF_THE_ABOVE,
            "sensitive": YES if stands[key].sensitive else NO,
        }
        for name, stands in answers.stands.items()
        if name and key in stands
    ]
    return _filled(
        "decide",
        "Decide" if key else "Nothing to decide",
        question=desk.id_of(key) if key else "",
        after=bool(key) and key != keys[-1],
        count=len(keys),
        forms=found.get(key, []),
        given=given,
        problem=problem,
        **_asked(desk, address(key)),
    )
