"""Budgets of rejects: which reasons count, what is told, and that the rows can be looked at after the failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchwright.curation.budget import Budget, NoRows, TooManyRejects
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.run import run
from benchwright.pipelines import api


@dataclasses.dataclass(frozen=True)
class Named:
    key: str


def read_names(*, good: int, bad: int, background: int) -> Iterator[Named | Rejected]:
    yield from (Named(f"g{number}") for number in range(good))
    yield from (Rejected(f"b{number}", "bad_id", f"'x{number}' is no id") for number in range(bad))
    yield from (Rejected(f"n{number}", "background") for number in range(background))


def refuse(row: Named, *, most: int) -> Named:
    if int(row.key[1:]) >= most:
        raise Reject("bad_id", f"{row.key} is no id")
    return row


def listed(limit: float | None, *, good: int = 6, bad: int = 4, background: int = 30) -> Flow:
    return source(
        "listed",
        step(read_names, good=good, bad=bad, background=background),
        max_rejects=Budget(limit, "source.max_rejects", ("background",)),
    )


@pytest.mark.parametrize("limit", [4, 0.4, None])
def test_expected_reasons_do_not_count(tmp_path: Path, limit: float | None) -> None:
    done = run(listed(limit), str(tmp_path), scheduler="sync")
    assert dict(done.result.rejects) == {"background": 30, "bad_id": 4}


@pytest.mark.parametrize(("limit", "rule"), [(3, "3"), (0.39, "39.0% of 10")])
def test_what_falls_over_a_budget_names_all_that_one_needs(tmp_path: Path, limit: float, rule: str) -> None:
    out = tmp_path / "a run"
    with pytest.raises(TooManyRejects) as told:
        run(listed(limit), str(out), scheduler="sync")
    assert str(told.value) == (
        f"stage 'listed' rejected 4 rows, and max_rejects is {rule}: 4 bad_id, such as 'b0' ('x0' is no id); "
        f"`benchwright rejects '{out}' --stage listed --reason bad_id` shows them, and "
        "`--set source.max_rejects=0.4` allows them"
    )
    assert [row["key"] for row in api.rejects(str(out), stage="listed", reason="bad_id")] == ["b0", "b1", "b2", "b3"]
    assert run(listed(0.4), str(out), scheduler="sync").result.rows == 6  # what was advised is enough


def test_rows_of_a_stage_that_was_given_up_early_are_shown(tmp_path: Path) -> None:
    """A number of rows ends a stage before its last part: it has no record yet."""

    def flow(most: int) -> Flow:
        refusing = step(refuse, most=most)
        return listed(None, good=40).each("checked", refusing, max_rejects=Budget(3, "checked.max_rejects"), rows_per_part=4)

    with pytest.raises(TooManyRejects, match=r"'checked' rejected 4 rows, and max_rejects is 3: 4 bad_id, such as 'g8'"):
        run(flow(8), str(tmp_path), scheduler="sync")
    assert not (tmp_path / "stages/checked/artifact.json").exists()
    assert [row["key"] for row in api.rejects(str(tmp_path), stage="checked")] == ["g8", "g9", "g10", "g11"]
    # Those of other settings are gone as soon as another run begins the stage.
    with pytest.raises(TooManyRejects, match="such as 'g20'"):
        run(flow(20), str(tmp_path), scheduler="sync")
    assert [row["key"] for row in api.rejects(str(tmp_path), reason="bad_id", stage="checked")] == ["g20", "g21", "g22", "g23"]


def test_a_budget_is_no_part_of_the_key(tmp_path: Path) -> None:
    first = run(listed(None), str(tmp_path), scheduler="sync").result
    assert run(listed(0.5), str(tmp_path), scheduler="sync").result == first
    with pytest.raises(TooManyRejects):  # it is looked at for what is there, too
        run(listed(1), str(tmp_path), scheduler="sync")


@pytest.mark.parametrize(
    ("flow", "told"),
    [
        (listed(None, good=0, bad=0, background=0), "source stage 'listed' yielded no rows: check its settings"),
        (
            listed(None, good=0),
            r"'listed' rejected all 34 rows \(30 background, 4 bad_id\), such as 'n0'; `benchwright rejects",
        ),
        (
            listed(None).each("checked", step(refuse, most=0), max_rejects=6),
            r"'checked' rejected all 6 rows \(6 bad_id\), such as 'g0' \(g0 is no id\)",
        ),
    ],
)
def test_nothing_left_is_told_where_it_happens(tmp_path: Path, flow: Flow, told: str) -> None:
    with pytest.raises(NoRows, match=told):
        run(flow, str(tmp_path), scheduler="sync")
