"""Answers in the browser: their journal, who is asked what, and the votes that come of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation import journal
from benchwright.curation.flow import source, step
from benchwright.curation.lock import Busy
from benchwright.curation.png import stored_png
from benchwright.curation.qa.agreement import votes_kappa, worker_table
from benchwright.curation.qa.desk import Desk, NotPossible
from benchwright.curation.qa.imports import import_votes
from benchwright.curation.qa.mturk_results import hash_worker
from benchwright.curation.qa.options import Option
from benchwright.curation.qa.rounds import Round, ask
from benchwright.curation.qa.votes import ADJUDICATOR, VOTES, aggregate_votes, missing_votes, read_votes
from benchwright.curation.records import JOURNAL, Damaged
from benchwright.curation.rows import Blob
from benchwright.curation.run import run
from benchwright.curation.store import StoreError
from benchwright.curation.verify import verify

OPTIONS = (Option("computer", "laptop", "or a desktop"), Option("bus"))
ASKED = Round("tiles", OPTIONS, seed=3, background="BACKGROUND")
KEYS = [f"k{number:03d}" for number in range(60)]
PEOPLE = ("anna", "ben", "cleo", "dora", "emil")


@contextmanager
def desk_in(folder: Path, asked: Round = ASKED, **more: object) -> Iterator[Desk]:
    path = folder / JOURNAL
    with journal.writing(path, "busy") as written:
        yield Desk(asked, KEYS, journal=written, records=journal.read(path), salt="s", **more)  # type: ignore[arg-type]


def answer_all(desk: Desk, *names: str) -> None:
    for name in names:
        while ahead := desk.ahead(name, 1):
            desk.answer(name, ahead[0], ["bus"], False, 1.5)


# -------------------------------------------------------------------------------------------------------------- journal


def test_a_line_that_is_not_whole_is_dropped_and_an_edit_is_damage(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    with journal.writing(path, "busy") as written:
        for number in range(3):
            written.append({"n": number})
    whole = path.read_bytes()
    for torn in (whole[:-1], whole + b'{"n": 3, "se', whole + b"\0" * 100):
        path.write_bytes(torn)
        kept = [{"n": n} for n in range(2 if torn == whole[:-1] else 3)]
        assert journal.read(path) == kept
        with journal.writing(path, "busy") as written:
            written.append({"n": "next"})
        assert journal.read(path) == [*kept, {"n": "next"}]
    lines = whole.splitlines(keepends=True)
    for edited in (lines[1:], [lines[0], lines[2]], [lines[0], lines[1].replace(b"1", b"7", 1), lines[2]], [b"[]\n"], [b"\n"]):
        path.write_bytes(b"".join(edited))
        with pytest.raises(Damaged, match=r"answers.jsonl line \d does not match its seal"):
            journal.read(path)


def test_a_journal_has_one_writer_and_is_no_link(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    with (
        journal.writing(path, "somebody else writes"),
        pytest.raises(Busy, match="somebody else"),
        journal.writing(path, "somebody else writes"),
    ):
        pass
    assert path.stat().st_mode & 0o077 == 0
    (tmp_path / "link.jsonl").symlink_to(path)
    with pytest.raises(StoreError, match="symbolic link"), journal.writing(tmp_path / "link.jsonl", "busy"):
        pass


def test_what_cannot_be_written_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk_in(tmp_path) as desk:
        desk.invite("anna")
        (key,) = desk.ahead("anna", 1)

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(journal.os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                desk.answer("anna", key, ["bus"], False, None)
        assert (desk.done("anna"), len(journal.read(tmp_path / JOURNAL))) == (0, 1)
        desk.answer("anna", key, ["bus"], False, None)
    assert len(journal.read(tmp_path / JOURNAL)) == 2


# ------------------------------------------------------------------------------------------------------ order and share


def test_order_and_share_follow_from_seed_and_names(tmp_path: Path) -> None:
    ways: list[dict[str, list[str]]] = []
    for folder, names in (("a", PEOPLE), ("b", PEOPLE[::-1])):
        (tmp_path / folder).mkdir()
        with desk_in(tmp_path / folder) as desk:
            for name in names:
                desk.invite(name)
            ways.append({name: desk.ahead(name, 99) for name in PEOPLE})
            if folder == "a":
                answer_all(desk, "anna")
    assert ways[0] == ways[1]
    shares = [len(each) for each in ways[0].values()]
    assert sum(shares) == 3 * len(KEYS)
    assert min(shares) > 20
    assert ways[0]["anna"] != sorted(ways[0]["anna"])
    assert [key for key in ways[0]["anna"] if key in ways[0]["ben"]] != [
        key for key in ways[0]["ben"] if key in ways[0]["anna"]
    ]
    with desk_in(tmp_path / "a") as desk:
        assert {name: desk.ahead(name, 99) for name in PEOPLE} == {**ways[0], "anna": []}
    (tmp_path / "c").mkdir()
    with desk_in(tmp_path / "c", dataclasses.replace(ASKED, seed=4)) as desk:
        desk.invite("anna")
        assert set(desk.ahead("anna", 99)) == {*KEYS}
        assert [key for key in desk.ahead("anna", 99) if key in ways[0]["anna"]] != ways[0]["anna"]


def test_every_image_gets_its_votes_though_people_come_and_go(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        for name in ("anna", "ben", "cleo"):
            desk.invite(name)
        for key in desk.ahead("anna", 30):
            desk.answer("anna", key, ["bus"], False, None)
        desk.invite("dora")
        answer_all(desk, "dora")
        desk.remove("anna")
        desk.remove("ben", discard=True)
        answer_all(desk, "cleo")
        assert (0 < desk.complete() < len(KEYS), desk.left("ben"), desk.ahead("ben", 1)) == (True, 0, [])
        desk.invite("emil")
        answer_all(desk, "emil", "dora", "cleo")
        assert desk.complete() == len(KEYS)
        votes = [key for name, stands in desk.answers.stands.items() for key in stands]
        assert {votes.count(key) for key in KEYS} == {3}
        desk.invite("fay")
        with pytest.raises(NotPossible, match="others have answered"):
            desk.answer("fay", KEYS[0], ["bus"], False, None)
        with pytest.raises(NotPossible, match="no longer an annotator"):
            desk.answer("anna", KEYS[0], ["bus"], False, None)


def test_gold_questions_are_mixed_in_and_asked_once(tmp_path: Path) -> None:
    gold = [f"gold{number}" for number in range(5)]
    with desk_in(tmp_path, gold=gold, every=10) as desk:
        for name in ("anna", "ben"):
            desk.invite(name)
        lists = [desk.ahead(name, 99) for name in ("anna", "ben")]
        for asked in lists:
            places = [place for place, key in enumerate(asked) if key in gold]
            assert [place // 10 for place in places] == [0, 1, 2, 3, 4]
            assert {asked[place] for place in places} == {*gold}
        assert lists[0] != lists[1]
        for place, key in enumerate(lists[0]):  # what comes is what was foretold
            assert desk.ahead("anna", 3) == lists[0][place : place + 3]
            desk.answer("anna", key, [], False, None)
        assert not any(key in desk.id_of(key) for key in gold)
        assert desk.left("anna") == 0


def test_undo_later_and_an_answer_that_comes_twice(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        desk.invite("anna")
        first, second, third = desk.ahead("anna", 3)
        for _ in range(2):
            desk.answer("anna", first, ["bus"], False, 2.0)
        desk.put_off("anna", second)
        assert desk.ahead("anna", 1) == [third]
        assert desk.ahead("anna", 99)[-1] == second
        for _ in range(2):
            desk.undo("anna", first)
        assert (desk.last("anna"), desk.done("anna"), desk.ahead("anna", 1)) == (None, 0, [first])
        assert desk.answer_of("anna", first).labels == ["bus"]  # type: ignore[union-attr]
        desk.answer("anna", first, [], True, None)
    records = journal.read(tmp_path / JOURNAL)
    assert [("undone" in each, each.get("labels")) for each in records[1:]] == [(False, ["bus"]), (True, None), (False, [])]


def test_what_is_put_off_again_goes_behind_the_others(tmp_path: Path) -> None:
    with desk_in(tmp_path, gold=["gold"], every=2) as desk:
        desk.invite("anna")
        every = desk.ahead("anna", 99)
        for key in every:
            desk.put_off("anna", key)
        assert desk.ahead("anna", 99) == every, "the gold question, too"
        desk.put_off("anna", every[0])
        assert desk.ahead("anna", 99) == [*every[1:], every[0]]
        for key in every:
            desk.answer("anna", key, [], False, None)
        assert desk.ahead("anna", 99) == []


def test_a_gold_question_that_is_put_off_is_not_followed_by_another(tmp_path: Path) -> None:
    with desk_in(tmp_path, gold=["gold0", "gold1"], every=20) as desk:
        desk.invite("anna")
        before = desk.ahead("anna", 99)
        for key in before[: before.index(next(key for key in before if key in desk.gold))]:
            desk.answer("anna", key, [], False, None)
        gold, follows = desk.ahead("anna", 2)
        desk.put_off("anna", gold)
        assert desk.ahead("anna", 1) == [follows]


def test_names_links_and_endless_changes(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        for name, told in (("", "empty"), (" a", "white space"), ("a\nb", "control"), ("a" * 61, "60 characters")):
            with pytest.raises(NotPossible, match=told):
                desk.invite(name)
        desk.invite("anna")
        with pytest.raises(NotPossible, match="is already taken"):
            desk.invite("ANNA")
        token = desk.token("anna")
        assert (desk.bearer(token), desk.bearer(desk.token()), desk.bearer(token[:-1])) == ("anna", "", None)
        desk.remove("anna")
        assert desk.bearer(token) is None
        desk.invite("anna")
        assert desk.token("anna") != token, "a link that was taken back stays so"
        desk.answers.records["anna"] = 10_000
        with pytest.raises(NotPossible, match="too often"):
            desk.answer("anna", KEYS[0], [], False, None)


# ---------------------------------------------------------------------------------------------------------------- votes


@dataclasses.dataclass(frozen=True)
class Tile:
    key: str
    image: Blob
    concept: str


def tiles() -> Iterator[Tile]:
    for number, key in enumerate(KEYS[:6]):
        yield Tile(key, Blob(stored_png(np.full((20, 20), 40 * number, np.uint8))), ("laptop", "bus")[number % 2])


def waiting(out: Path) -> None:
    run(ask(source("tiles", step(tiles)), ASKED, str(out)), str(out), scheduler="sync", pipeline="tiles")


def give(out: Path, *records: dict[str, object]) -> str:
    with journal.writing(out / "qa" / JOURNAL, "busy") as written:
        for record in records:
            written.append(record)
    return str(out / "qa" / JOURNAL)


def said(name: str, key: str, labels: object, sensitive: object = False, seconds: object = 2.5) -> dict[str, object]:
    return {"by": name, "key": key, "labels": labels, "sensitive": sensitive, "seconds": seconds}


def test_an_import_takes_the_last_word_and_takes_back_what_was_withdrawn(tmp_path: Path) -> None:
    waiting(tmp_path)
    a, b, c = KEYS[:3]
    path = give(
        tmp_path, {"invited": "anna"}, said("anna", a, ["computer"]), said("anna", b, []), said("anna", c, ["bus"], True)
    )
    told = import_votes(ASKED, str(tmp_path), [path], salt="s")
    assert (told.added, told.votes, told.withdrawn, dict(told.rejects)) == (6, 6, 0, {})
    give(tmp_path, said("anna", a, ["bus", "computer"]), {"by": "anna", "key": b, "undone": True})
    told = import_votes(ASKED, str(tmp_path), [path], salt="s")
    assert (told.added, told.withdrawn, told.known, told.votes) == (1, 3, 3, 4)
    votes = read_votes(str(tmp_path / "qa/votes.parquet"))
    assert [(row["key"], row["labels"], row["sensitive"]) for row in votes.to_pylist()] == [
        (a, ["bus", "laptop"], None),
        (c, ["bus"], None),
        (a, None, False),
        (c, None, True),
    ]
    assert {*votes["worker"].to_pylist()} == {hash_worker("anna", "s")}
    give(tmp_path, {"removed": "anna", "discarded": True})
    assert import_votes(ASKED, str(tmp_path), [path], salt="s").votes == 0


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (said("anna", "stranger", []), "unknown_image"),
        (said("anna", KEYS[0], ["cat"]), "unknown_label"),
        (said("anna", KEYS[0], "bus"), "malformed_answer"),
        (said("anna", KEYS[0], {"a": 1}), "malformed_answer"),
        (said("anna", KEYS[0], [], "Yes"), "malformed_answer"),
        (said("anna", KEYS[0], None), "malformed_answer"),
        (said("", KEYS[0], None, None), "malformed_answer"),
        (said("anna", KEYS[0], ["bus", "None of the above"]), "none_with_others"),
    ],
)
def test_answers_of_strangers_are_rejected(tmp_path: Path, record: dict[str, object], reason: str) -> None:
    waiting(tmp_path)
    told = import_votes(ASKED, str(tmp_path), [give(tmp_path, record)], salt="s")
    assert (told.votes, dict(told.rejects)) == (0, {reason: 1})


def test_seconds_of_strangers_are_none(tmp_path: Path) -> None:
    waiting(tmp_path)
    strange = [said("anna", key, [], False, each) for key, each in zip(KEYS, (-1, 1e12, True, "x", 3), strict=False)]
    import_votes(ASKED, str(tmp_path), [give(tmp_path, *strange)], salt="s")
    votes = read_votes(str(tmp_path / "qa/votes.parquet"))
    assert votes["seconds"].to_pylist() == [None, None, None, None, 3.0] * 2


def test_what_is_no_journal_of_answers_is_told_so(tmp_path: Path) -> None:
    waiting(tmp_path)
    path = give(tmp_path, {"something": "else"})
    with pytest.raises(ValueError, match=r"not a journal of `benchwright qa serve`: record 1 is not an answer"):
        import_votes(ASKED, str(tmp_path), [path], salt="s")
    with pytest.raises(ValueError, match=r"or one \.jsonl"):
        import_votes(ASKED, str(tmp_path), [path, path], salt="s")


def test_a_journal_lies_in_a_run_and_an_edit_of_it_is_found(tmp_path: Path) -> None:
    waiting(tmp_path)
    path = Path(give(tmp_path, {"invited": "anna"}, said("anna", KEYS[0], ["bus"])))
    assert [each.place for each in verify(str(tmp_path)) if each.place.startswith("qa")] == []
    path.write_text(path.read_text().replace('"bus"', '"computer"'))
    assert [str(each) for each in verify(str(tmp_path)) if each.place.startswith("qa")] == [
        "qa/answers.jsonl: line 2 does not match its seal: it was damaged or edited, but the record says that it is complete"
    ]


# ------------------------------------------------------------------------------------------------------------ decisions


def vote(key: str, worker: str, labels: list[str] | None = None, sensitive: bool | None = None) -> tuple[object, ...]:
    return key, "labels" if sensitive is None else "sensitive", worker, labels, sensitive, None, None


def test_a_decision_stands_for_the_votes_and_is_no_vote() -> None:
    images = pa.table({"key": ["a", "b", "c"], "concept": ["bus", "bus", "bus"]})
    split = [["bus"], [], ["laptop"]]
    rows = [vote(key, f"w{n}", labels) for key in "abc" for n, labels in enumerate(split)]
    rows += [vote(key, f"w{n}", sensitive=n == 0) for key in "ab" for n in range(3)]
    decided = [vote("a", ADJUDICATOR, ["bus"]), vote("a", ADJUDICATOR, sensitive=False), vote("b", ADJUDICATOR, ["laptop"])]

    def table(some: list[tuple[object, ...]]) -> pa.Table:
        return pa.table([*map(list, zip(*some, strict=True))], schema=VOTES)

    people, both = table(rows), table([*rows, *decided])
    assert aggregate_votes(images, people, background="")["reason"].to_pylist() == ["sensitive", "sensitive", "missing_votes"]
    judged = aggregate_votes(images, both, background="")
    assert judged["reason"].to_pylist() == [None, "sensitive", "missing_votes"]
    assert judged.drop_columns("reason") == aggregate_votes(images, people, background="").drop_columns("reason")
    late = table([*rows, *decided, vote("c", ADJUDICATOR, ["laptop"]), vote("c", ADJUDICATOR, sensitive=False)])
    assert aggregate_votes(images, late, background="")["reason"].to_pylist()[2] == "wrong_class"
    assert missing_votes(["a", "b", "c"], late).num_rows == 0
    assert missing_votes(["a", "b", "c"], both).to_pylist() == [{"key": "c", "form": "sensitive", "num_votes": 0}]
    assert votes_kappa(both, form="labels") == votes_kappa(people, form="labels")
    assert worker_table(both) == worker_table(people)


def test_decisions_of_both_forms_come_together(tmp_path: Path) -> None:
    waiting(tmp_path)
    with desk_in(tmp_path / "qa") as desk:
        desk.decide(KEYS[0], ["bus"], None)
        desk.decide(KEYS[0], None, True)
        desk.decide(KEYS[1], [], None)
    told = import_votes(ASKED, str(tmp_path), [str(tmp_path / "qa" / JOURNAL)], salt="s")
    assert told.added == 3
    votes = read_votes(str(tmp_path / "qa/votes.parquet")).to_pylist()
    assert [(row["key"], row["labels"], row["sensitive"]) for row in votes] == [
        (KEYS[0], ["bus"], None),
        (KEYS[1], [], None),
        (KEYS[0], None, True),
    ]
    assert {row["worker"] for row in votes} == {ADJUDICATOR}
    assert json.loads((tmp_path / "qa" / JOURNAL).read_text().splitlines()[1])["labels"] == ["bus"]
