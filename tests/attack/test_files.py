"""Some hostile files for every parser, and that the attack finds what it looks for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("colour") is None:  # it takes a second to import, and the processes that need it do so
    pytest.skip("colour-science is not installed", allow_module_level=True)
from attack import counts, inputs, judged, mutations, parsers, valid
from attack.isolated import FAILURES, Case, Verdict, Worker
from attack.parser import Parser, Told
from benchwright.curation.rng import rng

CASES = inputs.cases(0, long=False)


@pytest.mark.parametrize("name", parsers.all_parsers())
def test_hostile_files_are_turned_away_in_words(name: str, worker: Worker, tmp_path: Path) -> None:
    found = {case: worker.judge(case) for case in CASES if case.parser == name}
    wrong = [f"{verdict.state}: {verdict.label}: {verdict.line}" for verdict in found.values() if verdict.state in FAILURES]
    assert wrong == []


def test_the_long_form_is_as_large_as_it_says() -> None:
    todo = inputs.cases(0, long=True)
    assert len(todo) >= 10_000
    assert len({case.parser for case in todo}) >= 20
    assert len(set(todo)) == len(todo)


def test_changes_depend_on_the_seed_alone(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        inputs.lay_out(Case("npz", len(inputs.specials_of("npz")), 5), tmp_path / folder)
    inputs.lay_out(Case("npz", len(inputs.specials_of("npz")), 6), tmp_path / "three")
    one, two, three = ((tmp_path / folder / "f.npz").read_bytes() for folder in ("one", "two", "three"))
    assert one == two
    assert one != three


@pytest.mark.parametrize("packed", ["zip", "gzip", "tar", "png"])
def test_changes_within_a_container_leave_it_readable_outside(packed: str) -> None:
    data = {
        "zip": valid.npz({"a": valid.features()}),
        "gzip": valid.zipped(valid.yfcc()),
        "tar": valid.tar({"a.jpg": b"x"}),
        "png": valid.picture("PNG"),
    }[packed]
    made = {mutations.changed(data, [], rng(number, "test"), packed=packed) for number in range(20)}
    assert len(made) > 10


def told_by(parser: Parser, folder: Path) -> Verdict:
    return inputs.judge(parser, folder, folder.parent / "out")


def test_a_leak_a_loss_and_an_address_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"1\n2\n3\n")

    def reads(told: Told | Exception) -> Parser:
        def read(place: Path, out: Path) -> Told:
            if isinstance(told, Exception):
                raise told
            return told

        return Parser("test", dict, "a.txt", read, count=counts.lines)

    assert told_by(reads(Told(3, {}, 3)), folder).state == "done"
    assert told_by(reads(Told(2, {"bad": 1}, 3)), folder).state == "done"
    assert told_by(reads(Told(2, {}, 2)), folder).state == "loss"
    assert told_by(reads(Told(3, {}, 3, ("stage",))), folder).state == "loss"
    assert told_by(reads(Told(3, {}, 3, (), ("<_io.BytesIO object at 0x7f0011223344>",))), folder).state == "unrepeatable"
    assert told_by(reads(Told(3, {}, 3, (), (f"{folder}/a.txt is bad",))), folder).state == "unrepeatable"
    assert told_by(reads(ValueError("a.txt: line 3 is bad")), folder).state == "refused"
    assert told_by(reads(ValueError("line 3 is bad")), folder).state == "unclear"
    assert told_by(reads(IndexError("a.txt: list index out of range")), folder).state == "traceback"
    assert told_by(reads(RuntimeError("a.txt: a library's own words")), folder).state == "traceback"


def test_tars_are_counted_behind_their_end_marks() -> None:
    one, two = valid.tar({"a.jpg": b"x", "b.jpg": b"y"}), valid.tar({"c.jpg": b"z"})
    assert counts.members(one + two) == 3
    assert counts.samples(valid.tar({"a.jpg": b"x", "a.json": b"{}"}) + two) == 2
    assert counts.members(valid.zipped(one) + valid.zipped(two)) == 3
    assert counts.members(valid.tar({"t.jpg": two})) == 1, "a tar within a tar is one file"


def test_an_error_is_judged_by_who_raised_it() -> None:
    assert not judged.is_leak(ValueError("told"))
    assert judged.is_leak(KeyError("a"))
    assert judged.is_leak(RecursionError("deep"))
    assert judged.is_leak(RuntimeError("raised here, which is no code of the project"))
