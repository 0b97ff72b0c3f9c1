"""verify and compare see every kind of damage and difference, and nothing where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.records import json_text, sealed
from benchwright.curation.run import run
from benchwright.curation.store import StoreError
from benchwright.curation.verify import compare, made_again, verify

from tests.curation import steps
from tests.curation.test_run import numbers, numbers_flow

__all__ = ["numbers"]


@pytest.fixture
def out(numbers: Path, tmp_path: Path) -> Path:
    run(numbers_flow(numbers, bad="7"), str(tmp_path / "out"), scheduler="sync")
    return tmp_path / "out"


def test_an_untouched_run_has_no_problem(out: Path) -> None:
    assert verify(str(out)) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("stages/drawn/part-00001.blobs", "SHA-256"),
        ("stages/drawn/part-00002.vector.npy", "SHA-256"),
        ("stages/ordered/part-00000.parquet", "SHA-256"),
        ("stages/shards/s01.tar", "SHA-256"),
        ("stages/listed/part-00000.rejects.parquet", "SHA-256"),
    ],
)
def test_one_changed_byte_is_found(out: Path, name: str, found: str) -> None:
    data = bytearray((out / name).read_bytes())
    data[len(data) // 2] ^= 1
    (out / name).write_bytes(bytes(data))
    problems = verify(str(out))
    assert [p.place for p in problems] == [name]
    assert problems[0].found.startswith(found)


@pytest.mark.parametrize("name", ["code.json", "made.json"])
def test_a_record_that_is_gone_is_named_and_written_again(numbers: Path, out: Path, name: str) -> None:
    before = (out / "stages/drawn/code.json").read_bytes()
    (out / "stages/drawn" / name).unlink()
    problems = verify(str(out))
    assert problems
    assert all("drawn" in problem.place for problem in problems)
    for problem in problems:
        (out / problem.remove).unlink(missing_ok=True)
    run(numbers_flow(numbers, bad="7"), str(out), scheduler="sync")
    assert verify(str(out)) == []
    assert (out / "stages/drawn/code.json").read_bytes() == before


def test_missing_extra_and_short_files_are_found(out: Path) -> None:
    (out / "stages/drawn/part-00000.blobs").unlink()
    (out / "stages/drawn/stray.txt").write_text("?")
    (out / "stages/shards/s00.tar").write_bytes(b"")
    text = [str(problem) for problem in verify(str(out))]
    assert len(text) == 3
    assert "part-00000.blobs: the file is missing" in text[0]
    assert "stray.txt: the file exists, but the record says nothing of it" in text[1]
    assert "s00.tar: 0 bytes" in text[2]


def test_the_text_of_a_record_is_that_of_the_standard_library() -> None:
    deep = {"b": [[], {}, [1, [2.5, -0.0, 1e300]], {"x": (True, None)}], "a": {'é\u2028"\\\n': "ü\x00"}, "": float("inf")}
    for value in (deep, [deep, deep], {3: deep, 1: []}, {}, [], "text", 7, None):
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
        assert json_text(value) == (text + "\n").encode()


def edit(path: Path, *, seal: bool, **changes: object) -> None:
    """Change a record; with ``seal``, as somebody would who knows how records are sealed."""
    record = {name: value for name, value in json.loads(path.read_text()).items() if name != "seal"}
    record.update(changes)
    path.write_bytes(json_text(sealed(record) if seal else {**record, "seal": "0" * 64}))


@pytest.mark.parametrize("change", [{"digest": "0" * 64}, {"rows_in": 5}, {"kind": "table"}, {"rejects": {}}, {"parts": "x"}])
def test_an_edited_record_does_not_fit_its_seal(out: Path, change: dict[str, object]) -> None:
    edit(out / "stages/drawn/artifact.json", seal=False, **change)
    assert "stages/drawn/artifact.json does not match its seal" in str(verify(str(out))[0])
    edit(out / "run.json", seal=False, result="listed")
    with pytest.raises(StoreError, match=r"run.json does not match its seal"):
        verify(str(out))


def test_a_record_that_was_sealed_again_still_tells(out: Path) -> None:
    path = out / "stages/drawn/artifact.json"
    whole = path.read_text()
    edit(path, seal=True, digest="0" * 64, rejects={"has_bad_digit": 3})
    text = " ".join(str(problem) for problem in verify(str(out)))
    assert "record says 000000000000" in text
    assert "stage ordered: input drawn has digest 000000000000" in text
    assert "{'has_bad_digit': 4}, but the record says {'has_bad_digit': 3}" in text
    path.write_text(whole)
    edit(path, seal=True, recipe={**json.loads(whole)["recipe"], "code": "other"})
    assert any("another digest" in str(problem) for problem in verify(str(out)))
    path.write_text("{")
    assert any("is not JSON" in str(problem) for problem in verify(str(out)))


def test_strays_and_times_are_looked_at(out: Path) -> None:
    (out / "stages/drawn/sub").mkdir()
    (out / "stages/listed/made.json").unlink()
    text = [str(problem) for problem in verify(str(out))]
    assert "made.json is missing" in text[0]
    assert "stages/drawn/sub: the folder exists, but the record says nothing of it" in text[1]


def test_the_folder_of_a_stage_that_left_the_plan_is_found(out: Path) -> None:
    (out / "stages" / "older").mkdir()
    assert [(one.place, one.found) for one in verify(str(out))] == [("stages/older", "the folder exists")]


def test_a_source_within_the_run_is_checked(numbers: Path, tmp_path: Path) -> None:
    votes = tmp_path / "out" / "votes.txt"
    votes.parent.mkdir()
    votes.write_text("x")
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    run(listed.whole("voted", step(steps.with_votes, votes=where(votes))), str(tmp_path / "out"), scheduler="sync")
    assert verify(str(tmp_path / "out")) == []
    votes.write_text("y")
    assert "votes.txt: its content is" in str(verify(str(tmp_path / "out"))[0])
    votes.unlink()
    assert "votes.txt: the file is missing" in str(verify(str(tmp_path / "out"))[0])


def test_a_folder_without_a_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="contains no run"):
        verify(str(tmp_path))


def test_remake_gives_the_same_files(numbers: Path, out: Path, tmp_path: Path) -> None:
    assert made_again(numbers_flow(numbers, bad="7"), str(out), str(tmp_path / "again"), scheduler="sync") == []
    problems = made_again(numbers_flow(numbers, bad="7", factor=8), str(out), str(tmp_path / "third"), scheduler="sync")
    assert [p.place for p in problems] == ["stage drawn", "stage ordered", "stage shards"]


def test_compare_names_rows_and_columns(numbers: Path, out: Path, tmp_path: Path) -> None:
    assert all(difference.same for difference in compare(str(out), str(out)))
    run(numbers_flow(numbers, bad="8", factor=4), str(tmp_path / "b"), scheduler="sync")
    listed, drawn, ordered, _ = compare(str(out), str(tmp_path / "b"))
    assert listed.same
    assert drawn.only_first == ["line9", "line19", "line29", "line39"]
    assert drawn.only_second == ["line8", "line18", "line28", "line38"]
    assert set(drawn.changed) == {"value", "vector"}
    assert not drawn.moved
    assert not ordered.same
    with pytest.raises(StoreError, match="not in both runs"):
        compare(str(out), str(tmp_path / "b"), stage="nothing")


def test_compare_names_the_stages_that_one_run_alone_has(numbers: Path, out: Path, tmp_path: Path) -> None:
    flow = numbers_flow(numbers, bad="7")
    run(Flow(flow.stages[:2]), str(tmp_path / "short"), scheduler="sync")
    for one, other, which in ((out, tmp_path / "short", "first"), (tmp_path / "short", out, "second")):
        found = {each.stage: (each.same, each.only_in) for each in compare(str(one), str(other))}
        assert found == {"listed": (True, ""), "drawn": (True, ""), "ordered": (False, which), "shards": (False, which)}
