"""Aggregation of votes: the rules against a plain count in Python, and real votes of five workers an image."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation.qa.votes import (
    COUNTS,
    VOTES,
    Voted,
    aggregate_votes,
    count_votes,
    missing_votes,
    read_votes,
    write_votes,
)
from benchwright.curation.rows import Sifted, schema_of
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS: dict[str, list[str]] = {"exact": ["bus"], "extra": ["bus", "dress"], "wrong": ["dress"], "none": []}


class PartRows:
    """Rows in parts, as a store gives them."""

    def __init__(self, *parts: pa.Table) -> None:
        self.parts = parts

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        whole = pa.concat_tables(self.parts)
        return whole if columns is None else whole.select(list(columns))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        yield from (part if columns is None else part.select(list(columns)) for part in self.parts)


def votes_of(answers: dict[str, tuple[Sequence[Sequence[str]], Sequence[bool]]]) -> pa.Table:
    """key -> (label answers, sensitive answers) as a table of votes."""
    rows: list[dict[str, Any]] = []
    for key, (labels, sensitive) in answers.items():
        rows += [
            {"key": key, "form": "labels", "worker": f"w{i}", "labels": list(answer), "sensitive": None, "seconds": 5.0}
            for i, answer in enumerate(labels)
        ]
        rows += [
            {"key": key, "form": "sensitive", "worker": f"v{i}", "labels": None, "sensitive": yes, "seconds": None}
            for i, yes in enumerate(sensitive)
        ]
    return pa.Table.from_pylist(rows, schema=VOTES)


def images_of(keys: Sequence[str], concept: str = "bus") -> pa.Table:
    return pa.table({"key": list(keys), "concept": [concept] * len(keys)})


def judge(kinds: Sequence[str], yes: int = 0, *, concept: str = "bus", workers: int = 3, **rules: Any) -> str | None:
    labels = [KINDS[kind] for kind in kinds]
    votes = votes_of({"a": (labels, [i < yes for i in range(workers)])})
    table = aggregate_votes(images_of(["a"], concept), votes, background="BACKGROUND", workers=workers, **rules)
    return table["reason"][0].as_py()


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ("exact exact exact", None),
        ("exact exact none", None),
        ("exact exact extra", None),
        ("exact extra extra", "extra_class"),
        ("exact wrong wrong", "wrong_class"),
        ("exact none none", "none_of_the_above"),
        ("exact extra wrong", "no_majority"),
        ("exact exact", "missing_votes"),
    ],
)
def test_two_of_three_must_name_the_class_alone(kinds: str, reason: str | None) -> None:
    assert judge(kinds.split()) == reason


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [("none none none", None), ("none none wrong", None), ("none wrong extra", "has_class"), ("none none", "missing_votes")],
)
def test_background_needs_two_nones(kinds: str, reason: str | None) -> None:
    assert judge(kinds.split(), concept="BACKGROUND") == reason


def test_one_yes_drops_an_image_by_default_and_three_as_written() -> None:
    good = ["exact"] * 3
    assert [judge(good, yes) for yes in range(4)] == [None, "sensitive", "sensitive", "sensitive"]
    assert [judge(good, yes, sensitive="as_written") for yes in range(4)] == [None, None, None, "sensitive"]
    assert [judge(good, yes, sensitive=2) for yes in range(4)] == [None, None, "sensitive", "sensitive"]


def test_a_yes_counts_before_missing_votes() -> None:
    assert judge(["exact"], yes=1) == "sensitive"


def test_five_workers_and_extra_assignments() -> None:
    assert judge(["exact"] * 3 + ["none"] * 2, workers=5, majority=3) is None
    assert judge(["exact"] * 2 + ["none"] * 3, workers=5, majority=3) == "none_of_the_above"
    # Four answers where three were asked for: two of four is no majority, though it is "at least two".
    assert judge(["exact", "exact", "wrong", "wrong"]) == "no_majority"


@pytest.mark.parametrize("workers", [3, 5])
def test_the_draft_rule_equals_the_script_that_survives(workers: int) -> None:
    """All kinds of votes in all numbers, against the sort of the released draft written out here."""
    for kinds in itertools.combinations_with_replacement(KINDS, workers):
        counts = {kind: kinds.count(kind) for kind in ("none", "exact", "extra", "wrong")}
        first = sorted(counts, key=lambda kind: counts[kind], reverse=True)[0]
        reason = judge(kinds, workers=workers, majority=workers // 2 + 1, rule="draft")
        assert (reason is None) == (first == "exact"), kinds
        flagged = workers - counts["none"] > workers // 2
        reason = judge(kinds, workers=workers, majority=workers // 2 + 1, rule="draft", concept="BACKGROUND")
        assert (reason is not None) == flagged, kinds


def test_the_draft_rule_keeps_a_tie_of_three_that_the_paper_drops() -> None:
    assert judge(["exact", "extra", "wrong"], rule="draft") is None
    assert judge(["exact", "extra", "wrong"]) == "no_majority"
    assert judge(["exact", "none", "wrong"], rule="draft") == "no_majority"


answer = st.lists(st.sampled_from(["bus", "dress", "soccer"]), unique=True, max_size=3).map(sorted)
image = st.tuples(
    st.sampled_from(["bus", "dress", "BACKGROUND"]),
    st.lists(answer, max_size=5),
    st.lists(st.booleans(), max_size=5),
)


@settings(max_examples=200)
@given(st.lists(image, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_counts_equal_a_plain_count(drawn: list[tuple[str, list[list[str]], list[bool]]], shuffler: Any) -> None:
    images = pa.table({"key": [str(i) for i in range(len(drawn))], "concept": [concept for concept, _, _ in drawn]})
    votes = votes_of({str(i): (labels, yes) for i, (_, labels, yes) in enumerate(drawn)})
    order = list(range(votes.num_rows))
    shuffler.shuffle(order)
    table = aggregate_votes(images, votes.take(pa.array(order, pa.int64())), background="BACKGROUND").to_pylist()
    for row, (concept, labels, yes) in zip(table, drawn, strict=True):
        kinds: collections.Counter[str] = collections.Counter()
        for names in labels:
            hit = concept in names
            kinds["none" if not names else "wrong" if not hit else "exact" if len(names) == 1 else "extra"] += 1
        assert {name: row[name] for name in COUNTS} == {
            "votes_exact": kinds["exact"],
            "votes_extra": kinds["extra"],
            "votes_wrong": kinds["wrong"],
            "votes_none": kinds["none"],
            "votes_sensitive": sum(yes),
        }
        right = kinds["none"] if concept == "BACKGROUND" else kinds["exact"]
        complete = len(labels) >= 3 and len(yes) >= 3
        assert (row["reason"] is None) == (complete and not any(yes) and right >= 2 and 2 * right > len(labels))


def test_votes_on_other_keys_do_not_count() -> None:
    votes = votes_of({"gold": ([["dress"]] * 3, [True] * 3), "a": ([["bus"]] * 3, [False] * 3)})
    table = aggregate_votes(images_of(["a"]), votes, background="BACKGROUND")
    assert table["reason"].to_pylist() == [None]
    assert table["votes_sensitive"].to_pylist() == [0]


def test_the_stage_adds_counts_and_conserves_keys(tmp_path: Path) -> None:
    votes = votes_of(
        {
            "a": ([["bus"]] * 3, [False] * 3),
            "b": ([["dress"]] * 3, [False] * 3),
            "c": ([["bus"]] * 3, [True, False, False]),
            "e": ([["bus"]] * 3, [False] * 3),
        }
    )
    path = tmp_path / "votes.parquet"
    write_votes(votes, str(path))
    assert read_votes(str(path)).equals(votes)
    parts = [images_of(keys).append_column("score", pa.array([0.5] * len(keys))) for keys in (["a", "b"], ["c", "d", "e"])]
    out = list(count_votes(PartRows(*parts), votes=str(path), classes=["bus", "dress"], background="BACKGROUND"))
    kept, rejected = (pa.concat_tables(tables) for tables in zip(*out, strict=True))
    assert all(isinstance(part, Sifted) for part in out)
    assert kept.column_names == ["key", "concept", "score", *COUNTS]
    assert kept["key"].to_pylist() == ["a", "e"]
    assert kept.schema.field("votes_exact").equals(schema_of(Voted).field("votes_exact"))
    assert list(zip(rejected["key"].to_pylist(), rejected["reason"].to_pylist(), strict=True)) == [
        ("b", "wrong_class"),
        ("c", "sensitive"),
        ("d", "missing_votes"),
    ]
    assert rejected["detail"][0].as_py() == "exact 0, extra 0, wrong 3, none 0, sensitive 0 of 3 label and 3 sensitive votes"


def test_a_file_that_holds_no_votes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "votes.parquet"
    write_votes(votes_of({"a": ([["bus"]], [False])}), str(path))
    whole = path.read_bytes()
    for damaged in (b"", b"no Parquet at all", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"votes\.parquet: not a file of votes: \S"):
            read_votes(str(path))
    pq.write_table(pa.table({name: [1] for name in VOTES.names}), path)
    with pytest.raises(ValueError, match=r"votes\.parquet: not a file of votes: \S"):
        read_votes(str(path))


def test_votes_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "votes.parquet"
    votes = votes_of({"a": ([["bus"]], [False])})
    write_votes(votes, str(path))

    def break_off(table: pa.Table, file: Any, **_: Any) -> None:
        file.write(b"PAR1")
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", break_off)
    with pytest.raises(KeyboardInterrupt):
        write_votes(votes.slice(1), str(path))
    assert read_votes(str(path)).equals(votes)
    assert list(tmp_path.iterdir()) == [path]


def test_the_stage_refuses_a_class_that_nobody_named(tmp_path: Path) -> None:
    path = str(tmp_path / "votes.parquet")
    write_votes(votes_of({}), path)
    with pytest.raises(ValueError, match="concept 'bus' is neither one of the 1 classes nor 'BACKGROUND'"):
        list(count_votes(PartRows(images_of(["a"])), votes=path, classes=["dress"], background="BACKGROUND"))


def test_settings_that_make_no_sense_are_refused() -> None:
    senseless: list[dict[str, Any]] = [
        {"majority": 1},
        {"majority": 4},
        {"sensitive": 0},
        {"rule": "any"},
    ]
    for rules in senseless:
        with pytest.raises(ValueError, match=r"majority|sensitive|rule"):
            judge(["exact"] * 3, **rules)


def test_images_without_their_votes_are_listed() -> None:
    votes = votes_of({"a": ([["bus"]] * 3, [False] * 2), "b": ([["bus"]] * 3, [False] * 3)})
    assert missing_votes(["c", "a", "b"], votes).to_pylist() == [
        {"key": "c", "form": "labels", "num_votes": 0},
        {"key": "c", "form": "sensitive", "num_votes": 0},
        {"key": "a", "form": "sensitive", "num_votes": 2},
    ]


@pytest.mark.parametrize(("name", "images", "given", "guessed"), [("cifar10", 275, 221, 18), ("imagenet", 5440, 2524, 1428)])
def test_real_votes_of_five_workers(shared_data: Path, name: str, images: int, given: int, guessed: int) -> None:
    """Label errors found by confident learning, five workers an image: majorities for the given and the guessed
    label.
    """
    records = json.loads((shared_data / "crowd_votes" / f"{name}_mturk.json").read_text())
    answers = {"given": ["given"], "guessed": ["guessed"], "both": ["given", "guessed"], "neither": []}
    votes = votes_of(
        {str(r["id"]): ([answers[kind] for kind, n in r["mturk"].items() for _ in range(n)], [False] * 5) for r in records}
    )
    rules: dict[str, Any] = {"background": "BACKGROUND", "workers": 5, "majority": 3}
    for concept, expected in (("given", given), ("guessed", guessed)):
        table = aggregate_votes(images_of([str(r["id"]) for r in records], concept), votes, **rules)
        assert table.num_rows == images
        assert table["reason"].null_count == expected
        other = "guessed" if concept == "given" else "given"
        for row, record in zip(table.to_pylist(), records, strict=True):
            assert row["votes_exact"] == record["mturk"][concept]
            assert row["votes_wrong"] == record["mturk"][other]
            assert (row["votes_extra"], row["votes_none"]) == (record["mturk"]["both"], record["mturk"]["neither"])
    reasons = collections.Counter(table["reason"].to_pylist())
    assert reasons["wrong_class"] == given
