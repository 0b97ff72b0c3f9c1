"""The report that every pipeline has without code of its own: what was rejected, what is published, what was measured."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.png import stored_png
from benchwright.curation.qa.options import Option
from benchwright.curation.qa.rounds import Round, ask
from benchwright.curation.qa.votes import VOTES, write_votes
from benchwright.curation.rows import Blob, Reject
from benchwright.curation.run import run
from benchwright.curation.shard_assignment import Placed, assign_shards
from benchwright.curation.store import StoreError
from benchwright.pipelines.report import write_default
from PIL import Image

from .pages import faults


@dataclasses.dataclass(frozen=True)
class Tile:
    key: str
    picture: Blob
    concept: str


@dataclasses.dataclass(frozen=True)
class Graded(Tile):
    grades: tuple[float, ...]


PNG = stored_png(np.full((20, 30), 90, dtype=np.uint8))
_LARGE = io.BytesIO()
Image.new("L", (6_000, 6_000)).save(_LARGE, "PNG")
HUGE = _LARGE.getvalue()
"""36 million pixels."""


def tiles() -> Iterator[Tile]:
    for number in range(40):
        broken = {3: PNG[:60], 5: b"no picture", 7: HUGE}
        yield Tile(f"t<{number:02d}>", Blob(broken.get(number, PNG)), "white")


def grade(row: Tile) -> Graded:
    number = int(row.key[2:4])
    if number % 2:
        raise Reject("odd", f"number <b>{number}</b>")
    if number < 6:
        raise Reject("sensitive" if number == 2 else "early", "")
    return Graded(row.key, row.picture, row.concept, tuple(number / 3 for _ in range(6)))


def members(row: Graded) -> Mapping[str, Any]:
    note = b"a line of text\n" * 20 if row.key < "t<20>" else b"\0\1"
    return {"png": row.picture.read(), "txt": note, "vector.npy": np.zeros((3, 2), np.float32), "json": {"grades": row.grades}}


def flow() -> Flow:
    graded = source("tiles", step(tiles)).each("graded", step(grade), max_rejects=None, rows_per_part=8)
    placed = graded.whole("placed", step(assign_shards, by=[], max_samples=10), gives=Placed)
    return placed.shards("shards", step(members))


def page_of(out: Path, **changes: Any) -> str:
    given: dict[str, Any] = {"shown": {}, "rounds": (), **changes}
    return Path(write_default("Tiles & more", str(out), **given)).read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Only its report may be written."""
    out = tmp_path_factory.mktemp("tiles")
    run(flow(), str(out), scheduler="sync", pipeline="tiles")
    return out


def test_rejected_rows_are_shown_by_reason_with_their_pictures(made: Path) -> None:
    page = page_of(made)
    assert faults(page) == []
    part = page[page.index(">Rejected rows</h2>") : page.index(">Samples</h2>")]
    rows = re.findall(r"<tr><th[^>]*>([^<]*)</th>\s*<td[^>]*>([^<]*)</td>\s*<td[^>]*>([^<]*)</td>", part)
    assert rows == [("graded", "odd", "20"), ("graded", "early", "2"), ("graded", "sensitive", "1")]
    assert "number &lt;b&gt;1&lt;/b&gt;" in part
    grids = re.findall(r"<h3>([^<]*) <small>(\d+)</small></h3>", part)
    assert grids == [("graded: odd", "3"), ("graded: early", "2")], "of the first six odd ones two are broken, and one is huge"
    assert "3 of them cannot be shown. Pictures rejected as sensitive are not shown." in part
    assert 'alt="t&lt;01&gt;"' in part
    assert not {f'alt="t&lt;0{number}&gt;"' for number in (2, 3, 5, 7)} & {*re.findall('alt="[^"]*"', part)}


def test_the_page_opens_with_pictures_and_the_plan(made: Path) -> None:
    summary = page_of(made)
    summary = summary[summary.index(">Summary</h2>") : summary.index(">Rejected rows</h2>")]
    assert "Samples, evenly spaced" in summary
    band = summary[summary.index('<ol class="band">') : summary.index("</ol>")]
    assert len(re.findall("<img ", band)) == 12
    assert summary.index("<dl") < summary.index('class="band"') < summary.index("Stages from top to bottom: tiles 40 rows;")


@dataclasses.dataclass(frozen=True)
class Dated(Tile):
    year: int


def dated() -> Iterator[Dated]:
    for number in range(12):
        yield Dated(f"t{number:02d}", Blob(PNG), "white", 2009 + number % 3)


def test_pictures_of_years_stand_under_them_and_disputed_ones_have_their_answers(tmp_path: Path) -> None:
    asked = Round("dated", [Option("white"), Option("black")], 0, image="picture")
    flow = ask(source("dated", step(dated)), asked, str(tmp_path))
    run(flow, str(tmp_path), scheduler="sync", pipeline="dated")
    answers = {
        "t01": ["white", "white", "black"],
        "t02": ["white"] * 3,
        "t04": ["black", "white", None],
        "t07": ["black", "white"],
    }
    votes = [
        {"key": key, "form": "labels", "worker": f"w{at}", "labels": [name] if name else [], "sensitive": None}
        for key, names in answers.items()
        for at, name in enumerate(names)
    ]
    votes.append({"key": "t07", "form": "sensitive", "worker": "w0", "labels": None, "sensitive": True})
    write_votes(pa.Table.from_pylist(votes, schema=VOTES), str(tmp_path / asked.votes_file))
    page = page_of(tmp_path, rounds=[asked])
    assert re.findall(r"<li><p>(year \d+)</p>", page) == ["year 2009", "year 2010", "year 2011"]
    part = page[page.index("Pictures with the least agreement between annotators") :].partition("</section>")[0]
    told = re.findall('<img [^>]*alt="([^"]*)"', part)
    assert told == ["1 black, 1 none of the above, 1 white (t04)", "2 white, 1 black (t01)"]
    assert part.count('class="caption whole"') == 2, "answers are not cut to the width of the picture"
    assert re.findall(r">(2,?0[01]\d)</td>", page), "the years are among the columns of the samples"
    assert "2,0" not in page
    assert faults(page) == []


def test_samples_are_evenly_spaced_with_pictures_columns_and_files(made: Path) -> None:
    part = page_of(made)
    part = part[part.index(">Samples</h2>") :]
    assert "12 of 17 rows, evenly spaced, of stage shards." in part
    assert ">Results</h2>" not in page_of(made), "nothing was trained"
    shown = re.findall(r'alt="t&lt;(\d\d)&gt;"', part)
    assert len(shown) == 12
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == ("06", "38")
    assert ">white<" in part
    assert ">2, 2, 2, 2, ... (6)<" in part
    assert "float32 (3, 2)" in part
    assert "a line of text a line of text" in part
    assert "2 bytes" in part
    assert "png, " in part


def test_the_same_run_gives_the_same_page(made: Path, tmp_path: Path) -> None:
    run(flow(), str(tmp_path), scheduler="threads", workers=2, pipeline="tiles")
    seconds = re.compile(r'<td class="number plain">\d+\.\d</td>')
    assert seconds.sub("", page_of(tmp_path)) == seconds.sub("", page_of(made))


def test_a_run_that_waits_for_people_has_a_report(tmp_path: Path) -> None:
    asked = Round("tiles", [Option("white")], 0, image="picture")
    run(ask(source("tiles", step(tiles)), asked, str(tmp_path)), str(tmp_path), scheduler="sync", pipeline="tiles")
    page = page_of(tmp_path, rounds=[asked])
    assert "The run is not finished: the next stage is voted." in page
    assert "12 of 40 rows, evenly spaced, of stage tiles." in page
    assert "voted not run yet" in page
    assert ">Votes</h2>" not in page
    shown = re.findall(r'<li style[^>]*>\s*<label[^>]*><input[^>]*><img [^>]*alt="([^"]*)"', page)
    assert len(shown) == 11, "one of the twelve is no picture"
    assert "t&lt;05&gt;" not in shown


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    run(flow(), str(tmp_path), scheduler="sync", pipeline="tiles")
    shard = next((tmp_path / "stages" / "shards").glob("*.tar"))
    shard.write_bytes(shard.read_bytes()[:700])
    with pytest.raises((StoreError, ValueError), match=shard.name):
        page_of(tmp_path)
