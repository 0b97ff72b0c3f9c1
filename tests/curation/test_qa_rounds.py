"""Rounds of questions in any plan: what they need of it, their files, several side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.flow import Flow, PlanError, source, step
from benchwright.curation.png import stored_png
from benchwright.curation.qa.imports import import_votes
from benchwright.curation.qa.options import Option
from benchwright.curation.qa.rounds import ErrorRates, Round, Simulated, ask, export_questions, gold_key, votes_of, votes_place
from benchwright.curation.qa.simulated import answer
from benchwright.curation.rows import Blob
from benchwright.curation.run import Run, run
from benchwright.curation.store import Store, StoreError
from benchwright.curation.verify import verify

OPTIONS = (Option("black"), Option("white"))
SURE = ErrorRates(0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Tile:
    key: str
    picture: Blob
    believed: str
    shade: str
    size: str
    part: int


def tiles() -> Iterator[Tile]:
    for number in range(12):
        shade = ("black", "white")[number % 2]
        pixels = np.full((20, 20), 255 * (number % 2), dtype=np.uint8)
        believed = shade if number else "white"
        yield Tile(f"t{number:02d}", Blob(stored_png(pixels)), believed, shade, ("large", "small")[number % 3 > 0], number // 6)


def shades(**changes: object) -> Round:
    of = Round("tiles", OPTIONS, seed=1, question="believed", image="picture", simulated=Simulated("shade", SURE))
    return dataclasses.replace(of, **changes)  # type: ignore[arg-type]


def go(flow: Flow, out: Path, *rounds: Round) -> Run:
    """Run, and let simulated annotators answer as long as they do."""
    while True:
        done = run(flow, str(out), scheduler="sync", pipeline="tiles")
        if not done.waiting or not any(answer(done, each, str(out)) for each in rounds):
            return done


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    done = go(ask(source("tiles", step(tiles)), shades(), str(tmp_path)), tmp_path, shades())
    assert not done.waiting
    table = done.rows().table(["key", "votes_exact", "believed"])
    assert table.num_rows == 11
    assert "t00" not in table["key"].to_pylist(), "a black tile that was believed to be white"
    assert done.result.rejects == {"wrong_class": 1}
    assert not verify(str(tmp_path))


def test_people_answer_a_round_that_is_not_simulated(tmp_path: Path) -> None:
    simulated, asked = tmp_path / "simulated", shades(simulated=None, group="part")
    go(ask(source("tiles", step(tiles)), shades(), str(simulated)), simulated, shades())
    out = str(tmp_path / "out")
    flow = ask(source("tiles", step(tiles)), asked, out)
    done = go(flow, Path(out), asked)
    assert done.waiting == (
        f"ask the annotators in the browser (`benchwright qa serve {out}`); or export the questions "
        f"(`benchwright qa export {out}`), import the answers (`benchwright qa import {out} RESULTS...`), and run again"
    )
    names = [path.name for path in export_questions(asked, out, f"{out}/qa/export")]
    assert names == ["labels.html", "sensitive.html", "bucket00.csv", "bucket01.csv"]
    results = [str(path) for path in sorted((simulated / "qa/simulated/results").glob("*.csv"))]
    told = import_votes(asked, out, results, salt="s")
    assert (told.votes, told.missing.num_rows, told.votes_file) == (72, 0, f"{out}/qa/votes.parquet")
    assert go(flow, Path(out), asked).result.rows == 11
    assert not verify(out)


def test_instructions_and_questions_of_ones_own_are_on_the_forms_of_both_tools(tmp_path: Path) -> None:
    asked = shades(instructions="Is it <dark>?", prompt="How <bright>?")
    run(source("tiles", step(tiles)), str(tmp_path / "out"), scheduler="sync")
    for tool, file in (("mturk", "upload/labels.html"), ("label-studio", "config.xml")):
        export_questions(asked, str(tmp_path / "out"), str(tmp_path / tool), tool=tool)  # type: ignore[arg-type]
        text = (tmp_path / tool / file).read_text()
        assert "Is it &lt;dark&gt;?" in text
        assert "How &lt;bright&gt;?" in text
        assert "Select one or more" not in text


# ------------------------------------------------------------------------------------------------------- several rounds


@pytest.fixture
def two() -> tuple[Round, Round]:
    """Two rounds, the second about what the first confirmed, and about another column."""
    sizes = Round(
        "voted_shade",
        (Option("large"), Option("small")),
        seed=2,
        name="size",
        question="size",
        image="picture",
        simulated=Simulated("size", SURE),
    )
    return shades(name="shade"), sizes


def plan_of(two: tuple[Round, Round], out: Path) -> Flow:
    return ask(ask(source("tiles", step(tiles)), two[0], str(out)), two[1], str(out))


def test_two_rounds_in_one_plan(tmp_path: Path, two: tuple[Round, Round]) -> None:
    done = go(plan_of(two, tmp_path), tmp_path, *two)
    assert not done.waiting
    assert [one.stage for one in done.artifacts] == ["tiles", "voted_shade", "voted_size"]
    assert done.result.rows == 11
    assert done.rows().schema.names.count("votes_exact") == 1
    for each in two:
        folder = tmp_path / "qa" / each.name
        assert len(list(folder.glob("votes-SIMULATED-*.parquet"))) == 1
        votes = votes_of(each, str(tmp_path))
        assert votes is not None
        assert votes.num_rows == 2 * 3 * (12 if each is two[0] else 11)
    assert not verify(str(tmp_path))
    assert [one.digest for one in go(plan_of(two, tmp_path / "b"), tmp_path / "b", *two).artifacts] == [
        one.digest for one in done.artifacts
    ]


def test_a_round_is_asked_of_people_after_another_was_simulated(tmp_path: Path, two: tuple[Round, Round]) -> None:
    people = dataclasses.replace(two[1], simulated=None)
    done = go(plan_of((two[0], people), tmp_path), tmp_path, two[0], people)
    assert f"`benchwright qa export {tmp_path} --round size`" in done.waiting
    assert f"`benchwright qa import {tmp_path} RESULTS... --round size`" in done.waiting
    export_questions(people, str(tmp_path), str(tmp_path / "qa/size/export"))
    assert gold_key(Store(str(tmp_path)), "qa/size") == {}
    assert votes_place(people, str(tmp_path)) == str(tmp_path / "qa/size/votes.parquet")


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stage": "others"}, "the round of questions is about stage 'others', and its votes are counted after 'tiles'"),
        ({"question": "label"}, "question = 'label': stage 'tiles' has no such column: there are key, picture, believed"),
        ({"question": "part"}, "question = 'part': expected a column of text, but it contains int64"),
        ({"image": "shade"}, r"image = 'shade': expected a column of encoded images \(Blob\), but it contains string"),
        ({"group": "shade", "name": "x"}, "round of questions 'x': group = 'shade': expected a column of whole numbers"),
    ],
)
def test_a_round_that_does_not_fit_its_plan(tmp_path: Path, changes: dict[str, str], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        ask(source("tiles", step(tiles)), shades(**changes), str(tmp_path))


@pytest.mark.parametrize("name", ["Two", "a b", "../up", "export", "salt", "simulated"])
def test_names_of_rounds_are_names_of_folders(name: str) -> None:
    with pytest.raises(PlanError, match=f"round of questions {name!r}: its name must be snake_case"):
        shades(name=name)


def test_questions_before_there_are_rows(tmp_path: Path) -> None:
    run(source("others", step(tiles)), str(tmp_path), scheduler="sync")
    with pytest.raises(StoreError, match="no rows of stage 'tiles' to ask annotators about yet: run the pipeline first"):
        export_questions(shades(), str(tmp_path), str(tmp_path / "to"))


@pytest.mark.parametrize(
    ("truth", "told"),
    [("colour", "neither a column 'colour' nor labels"), ("part", r"key 't00': its label 'part' is 0: the name of a class")],
)
def test_simulated_annotators_need_the_right_classes(tmp_path: Path, truth: str, told: str) -> None:
    asked = shades(simulated=Simulated(truth))
    with pytest.raises(ValueError, match=told):
        go(ask(source("tiles", step(tiles)), asked, str(tmp_path)), tmp_path, asked)
