"""Decisions by votes: count the votes per image, decide which images stay, and the stage that does so.

A vote is one answer of one person to one of two questions about one image (``VOTES``). CLEAR asks three people each
(Lin et al., "The CLEAR Benchmark", NeurIPS 2021 Datasets and Benchmarks, appendix on crowd-sourcing).
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..parquet_footer import bounded_batches, column_chunks, opened
from ..records import Damaged, check_file
from ..rows import REJECTS, Sifted, one_line
from ..stage_rows import Rows
from ..store import Store

VOTES = pa.schema(
    [
        ("key", pa.string()),
        ("form", pa.string()),
        ("worker", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("sensitive", pa.bool_()),
        ("seconds", pa.float64()),
        ("assignment", pa.string()),
    ]
)
"""Image key; ``labels`` or ``sensitive``; keyed hash of the worker; the classes chosen (sorted, [] = none of the above;
null on the sensitive form); Yes or No (null on the label form); seconds of work (null if unknown); keyed hash of the MTurk
assignment (null for none)."""

QuestionForm = Literal["labels", "sensitive"]

FORMS: tuple[QuestionForm, ...] = ("labels", "sensitive")
"""The two questions: which classes does the image show, and is it sensitive?"""

ADJUDICATOR = "adjudicator"
"""Worker of a requester's decision, which replaces all votes of its image and form. Unlike worker hashes not hexadecimal."""

MAX_VOTES = 1 << 24
"""Maximum number of votes in a file."""

_MAX_BYTES = 1 << 30
_MAX_LABELS = 1000

COUNTS = ("votes_exact", "votes_extra", "votes_wrong", "votes_none", "votes_sensitive")

_FORM_OF: dict[str, str] = {
    name: "num_sensitive" if name.endswith("sensitive") else "num_labels" for name in (*COUNTS, "num_labels", "num_sensitive")
}
"""Name of a count -> name of the number of answers on its form."""


@dataclass(frozen=True)
class Voted:
    """Columns that ``count_votes`` adds: label votes by kind (see ``aggregate_votes``) and Yes votes on the sensitive form."""

    key: str
    votes_exact: int
    votes_extra: int
    votes_wrong: int
    votes_none: int
    votes_sensitive: int


VoteRule = Literal["majority_exact", "draft"]
Sensitive = Literal["as_released", "as_written"]


def aggregate_votes(
    images: pa.Table,
    votes: pa.Table,
    *,
    background: str,
    workers: int = 3,
    majority: int = 2,
    sensitive: Sensitive | int = "as_released",
    rule: VoteRule = "majority_exact",
) -> pa.Table:
    """Count the votes of every image and decide whether it stays.

    A label vote is *exact* (only the class of the image), *extra* (its class and others), *wrong* (only others) or *none*
    (none of the above). An image of the background class has no exact votes: its right answer is none.

    Args:
        images: ``key``, ``concept`` (class, or the background class). Votes about other keys (gold questions) are
            ignored.
        votes: ``VOTES``. A decision (``ADJUDICATOR``) counts as if all ``workers`` had given this answer; the returned
            counts are those of the votes alone.
        workers: number of votes that an image needs on each form; with fewer it is rejected as ``missing_votes``.
        majority: number of exact votes (none votes for the background class) that keep an image; they must also be more
            than half.
        sensitive: number of Yes votes that drop an image: an integer, ``as_released`` (1) or ``as_written`` (all
            ``workers``).
        rule: ``majority_exact`` is the rule of the paper. ``draft`` is that of the surviving script: the most frequent kind
            of vote must be *exact*, ties going to the first of none, exact, extra, wrong, so that 1-1-1 of the last three
            stays; a background image is dropped if more than half of the votes choose a class.

    Returns:
        In the order of ``images``: ``key``, ``votes_exact``, ``votes_extra``, ``votes_wrong``, ``votes_none``,
        ``votes_sensitive`` (Yes answers), ``num_labels``, ``num_sensitive`` (answers on each form), all int64, and
        ``reason``: null if the image stays, otherwise the first that holds of ``sensitive``, ``missing_votes``,
        ``none_of_the_above``, ``wrong_class``, ``extra_class`` (by a majority), ``has_class`` (background only),
        ``no_majority``.
    """
    _check_settings(workers, majority)
    counts = _tally(images, people_of(votes), background)
    decided = _tally(images, votes.filter(pc.equal(votes["worker"], ADJUDICATOR)), background)
    judged = {name: np.where(decided[_FORM_OF[name]] > 0, workers * decided[name], counts[name]) for name in counts}
    is_background = pc.equal(images["concept"], background).to_numpy()
    reasons = _reasons(judged, is_background, workers, majority, _yes_votes(sensitive, workers), rule)
    return pa.table({"key": images["key"], **counts, "reason": reasons})


def count_votes(
    rows: Rows,
    *,
    votes: str,
    classes: Sequence[str],
    background: str,
    workers: int = 3,
    majority: int = 2,
    sensitive: Sensitive | int = "as_released",
    rule: VoteRule = "majority_exact",
    question: str = "concept",
) -> Iterator[Sifted]:
    """Add the columns of ``Voted`` and reject the images that the votes do not confirm. A ``whole`` step.

    The counts replace those of an earlier round of questions.

    Args:
        rows: rows with ``key`` and the column ``question``; all other columns are kept.
        votes: path of a Parquet file of ``VOTES``.
        classes: the class names; a row whose class is neither one of them nor ``background`` is an error.
        question: text column with the class that the image is believed to show.

    The other settings, and the reasons, are those of ``aggregate_votes``.
    """
    asked = rows.table(["key", question]).rename_columns(["key", "concept"])
    unknown = set(asked["concept"].unique().to_pylist()) - {*classes, background}
    if unknown:
        message = f"neither one of the {len(classes)} classes nor {background!r}"
        raise ValueError(f"{question} {min(map(str, unknown))!r} is {message}")
    judged = aggregate_votes(
        asked,
        read_votes(votes),
        background=background,
        workers=workers,
        majority=majority,
        sensitive=sensitive,
        rule=rule,
    )
    start = 0
    for part in rows.batches():
        verdicts = judged.slice(start, part.num_rows)
        start += part.num_rows
        part = part.drop_columns([name for name in COUNTS if name in part.column_names])
        for name in COUNTS:
            part = part.append_column(pa.field(name, pa.int64(), nullable=False), verdicts[name])
        yield Sifted(part.filter(verdicts["reason"].is_null()), _rejects(verdicts))


def missing_votes(keys: Sequence[str], votes: pa.Table, *, workers: int = 3, forms: Sequence[str] = FORMS) -> pa.Table:
    """List the images with fewer than ``workers`` votes on a form, and no decision: ``key``, ``form``, ``num_votes``, in the
    order of ``keys``.
    """
    asked, named = pa.array(keys, pa.string()), pa.array(forms, pa.string())
    key, form = _positions(votes["key"], asked), _positions(votes["form"], named)
    there = (key >= 0) & (form >= 0)
    places = key[there] * len(forms) + form[there]
    weights = np.where(pc.equal(votes["worker"], ADJUDICATOR).to_numpy()[there], workers, 1)
    counts = np.bincount(places, weights, minlength=len(asked) * len(forms)).astype(np.int64).reshape(len(asked), len(forms))
    # A key that occurs twice gets the counts of its first occurrence.
    counts = counts[_positions(asked, asked)]
    row, column = np.nonzero(counts < workers)
    return pa.table({"key": asked.take(row), "form": named.take(column), "num_votes": counts[row, column]})


def people_of(votes: pa.Table) -> pa.Table:
    """The votes without the requester's decisions."""
    return votes.filter(pc.not_equal(votes["worker"], ADJUDICATOR))


def read_votes(path: str) -> pa.Table:
    """Read the votes of a Parquet file (path or fsspec URL), as ``VOTES`` with the metadata of the file.

    Raises:
        ValueError: a column is missing or of another type, or the file is damaged; the message names the file.
    """
    try:
        if "://" not in path:
            check_file(Path(path))
    except Damaged as error:
        raise ValueError(f"{error}: put it back, or import all results again with --replace") from None
    with fsspec.open(path, "rb") as stream:
        file = cast("IO[bytes]", stream)
        try:
            with opened(file, "it") as held:
                names = held.schema_arrow.names
                if wrong := next((name for name in VOTES.names if names.count(name) != 1 and name != "assignment"), None):
                    raise ValueError(f"the column {wrong!r} is there {names.count(wrong)} times")
                if held.metadata.num_rows > MAX_VOTES:
                    raise ValueError(f"{held.metadata.num_rows:,} rows, and there are {MAX_VOTES:,} votes at most")
                _check_labels(file, held.metadata.num_rows)
                present = [name for name in VOTES.names if name in names]
                schema = pa.schema([held.schema_arrow.field(name) for name in present], held.schema_arrow.metadata)
                table = pa.Table.from_batches(bounded_batches(held, present, "its votes", max_bytes=_MAX_BYTES), schema)
            if "assignment" not in names:  # written by an earlier version
                table = table.append_column("assignment", pa.nulls(table.num_rows, pa.string()))
            votes = table.select(VOTES.names).cast(VOTES).replace_schema_metadata(table.schema.metadata)
            votes.validate(full=True)
            _check_votes(votes)
        except (pa.ArrowException, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path}: not a file of votes: {one_line(error, 300)}") from None
    return votes


def _check_labels(file: IO[bytes], votes: int) -> None:
    labels = sum(chunk.values for chunks in column_chunks(file) for chunk in chunks if chunk.column.startswith("labels."))
    if labels > _MAX_LABELS * votes:
        raise ValueError(f"{labels:,} labels in {votes:,} votes, {_MAX_LABELS:,} each at most are allowed")


def _check_votes(votes: pa.Table) -> None:
    for name in ("key", "form", "worker"):
        if votes[name].null_count:
            raise ValueError(f"{votes[name].null_count:,} rows have no {name}")
    if strange := sorted({*pc.unique(votes["form"]).to_pylist()} - {*FORMS}):
        raise ValueError(f"form {strange[0]!r:.60} is neither 'labels' nor 'sensitive'")
    for text in itertools.chain.from_iterable((votes.schema.metadata or {}).items()):
        text.decode()  # raises ValueError if it is not UTF-8
    if pc.list_flatten(votes["labels"].combine_chunks()).null_count:
        raise ValueError("a label is null")
    for form in FORMS:
        if votes.filter(pc.equal(votes["form"], form))[form].null_count:
            raise ValueError(f"a row of the form {form!r} has no answer in the column {form!r}")


def write_votes(votes: pa.Table, path: str) -> None:
    """Write ``VOTES`` and their metadata as Parquet (path or fsspec URL), in the given order, atomically."""
    folder, name = posixpath.split(path)
    with Store(folder or ".").writing(name) as file:
        pq.write_table(votes.cast(VOTES.with_metadata(votes.schema.metadata)), file, compression="zstd")


def _check_settings(workers: int, majority: int) -> None:
    if not 1 <= majority <= workers:
        raise ValueError(f"majority = {majority}: it must be between 1 and the number of workers, {workers}")
    if 2 * majority <= workers:
        raise ValueError(f"majority = {majority} of {workers} workers is not more than half")


def _yes_votes(sensitive: Sensitive | int, workers: int) -> int:
    if isinstance(sensitive, int) and not isinstance(sensitive, bool) and 1 <= sensitive <= workers:
        return sensitive
    if sensitive == "as_released":
        return 1
    if sensitive == "as_written":
        return workers
    raise ValueError(f"sensitive = {sensitive!r}: a number from 1 to {workers}, 'as_released' or 'as_written'")


def _tally(images: pa.Table, votes: pa.Table, background: str) -> dict[str, np.ndarray]:
    """Counts per image, in the order of ``images``. Arrow finds the rows and numpy counts: a join would copy the votes."""
    keys, concepts = images["key"].combine_chunks(), images["concept"].combine_chunks()
    if len(pc.unique(keys)) < len(keys):
        raise ValueError("images: a key occurs twice")
    votes = votes.select(["key", "form", "labels", "sensitive"]).combine_chunks()
    at = _positions(votes["key"], keys)
    names = pc.unique(concepts)
    concept = _positions(concepts, names)
    labels = votes["labels"].combine_chunks()
    chosen = pc.fill_null(pc.list_value_length(labels), -1).to_numpy(zero_copy_only=False)
    # For every chosen class: the row of its vote, and whether it is the class of the image.
    row = pc.list_parent_indices(labels).to_numpy()
    wanted = np.append(concept, -2)[at]
    has_class = np.zeros(len(at), bool)
    has_class[row[_positions(pc.list_flatten(labels), names) == wanted[row]]] = True
    is_label = pc.equal(votes["form"], "labels").to_numpy() & (chosen >= 0)
    yes = votes["sensitive"].fill_null(False).to_numpy()
    on_sensitive = pc.equal(votes["form"], "sensitive").to_numpy() & votes["sensitive"].is_valid().to_numpy()
    kinds = {
        "votes_exact": is_label & (chosen == 1) & has_class,
        "votes_extra": is_label & (chosen > 1) & has_class,
        "votes_wrong": is_label & (chosen > 0) & ~has_class,
        "votes_none": is_label & (chosen == 0),
        "votes_sensitive": on_sensitive & yes,
        "num_labels": is_label,
        "num_sensitive": on_sensitive,
    }
    return {name: np.bincount(at[mask & (at >= 0)], minlength=len(keys)) for name, mask in kinds.items()}


def _positions(values: pa.Array | pa.ChunkedArray, among: pa.Array) -> np.ndarray:
    """Index of each value in ``among``; -1 for values that are not in it."""
    found = pc.fill_null(pc.index_in(values, value_set=among), -1)
    return found.to_numpy() if isinstance(found, pa.ChunkedArray) else found.to_numpy(zero_copy_only=False)


def _reasons(
    counts: Mapping[str, np.ndarray], background: np.ndarray, workers: int, majority: int, sensitive_votes: int, rule: VoteRule
) -> pa.Array:
    exact, extra, wrong, none, sensitive = (counts[name] for name in COUNTS)
    total, answers = counts["num_labels"], counts["num_sensitive"]
    if rule == "majority_exact":
        right = np.where(background, none, exact)
        stays = (right >= majority) & (2 * right > total)
    elif rule == "draft":
        first = (exact > none) & (exact >= extra) & (exact >= wrong)
        stays = np.where(background, 2 * (total - none) <= total, first)
    else:
        raise ValueError(f"rule = {rule!r}: 'majority_exact' or 'draft'")
    # The first condition that holds decides; with reason None the image stays.
    found: list[tuple[np.ndarray, str | None]] = [
        (sensitive >= sensitive_votes, "sensitive"),
        ((total < workers) | (answers < workers), "missing_votes"),
        (stays, None),
        (background & (2 * (total - none) > total), "has_class"),
        (background, "no_majority"),
        (2 * none > total, "none_of_the_above"),
        (2 * wrong > total, "wrong_class"),
        (2 * extra > total, "extra_class"),
    ]
    reasons = pa.array([*(reason for _, reason in found), "no_majority"])
    return reasons.take(pa.array(np.select([holds for holds, _ in found], range(len(found)), len(found))))


def _rejects(judged: pa.Table) -> pa.Table:
    """The dropped images as ``REJECTS``, with their counts in the detail."""
    dropped = judged.filter(judged["reason"].is_valid())
    names = (*COUNTS, "num_labels", "num_sensitive")
    counts = ", ".join(f"{name.removeprefix('votes_')} {{}}" for name in COUNTS)
    text = f"{counts} of {{}} label and {{}} sensitive votes"
    details = [text.format(*row) for row in zip(*(dropped[name].to_pylist() for name in names), strict=True)]
    return pa.table([dropped["key"], dropped["reason"], pa.array(details, pa.string())], schema=REJECTS)
