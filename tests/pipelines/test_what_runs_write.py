"""Everything that a run writes is recorded, and nothing is written through a link that leaves the run."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchwright.curation.store import StoreError
from benchwright.curation.verify import verify
from benchwright.pipelines.clear import baselines
from benchwright.pipelines.cli import main as cli

from tests.conftest import without_pictures

from .conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

SEALED = ("run.json", "artifact.json", "made.json", "code.json", "dataset.json", ".files.json")
"""Records: damage in one hides what it tells of other files."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of few pictures with results of two seeds and a report, in which nothing is amiss. Only to be read."""
    out = tmp_path_factory.mktemp("trained") / "run"
    assert cli.call(["run", "clear", "--config", "tiny", "--set", "source.count=300", "--out", str(out), "--quiet"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "SEEDS", (0, 1))  # the records of each of five would be the same in kind
        assert cli.call(["train", str(out), "--method", "cumulative-finetune", "--protocol", "iid", "--quiet"]) == 0
        without_pictures(patch)
        assert cli.call(["report", str(out)]) == 0
    assert cli.call(["verify", str(out)]) == 0
    return out


@pytest.fixture
def mine(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "mine"))


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def names_all(bw: Cli, out: Path, flipped: list[Path]) -> None:
    told = bw("verify", out)
    assert told.code == 1
    assert "Traceback" not in told.err
    said = told.out + told.err
    assert [str(path) for path in flipped if str(path.relative_to(out)) not in said] == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["", *SEALED])
def test_verify_names_every_file_with_a_flipped_bit(name: str, seed: int, mine: Path, bw: Cli) -> None:
    files = sorted(path for path in mine.rglob("*") if path.is_file() and path.stat().st_size)
    flipped = [path for path in files if (path.name == name if name else path.name not in SEALED)]
    assert flipped
    if not name:
        assert {path.relative_to(mine).parts[0] for path in flipped} >= {
            "stages",
            "dataset",
            "experiments",
            "qa",
            "report.html",
        }
    rng = random.Random(seed)
    if name == "run.json":  # without it nothing is known of a run, nor of those within it: one after the other
        for path in flipped:
            whole = path.read_bytes()
            flip(path, rng)
            names_all(bw, mine, [path])
            path.write_bytes(whole)
        return
    for path in flipped:
        flip(path, rng)
    names_all(bw, mine, flipped)


@pytest.mark.parametrize("pipeline", ["iirc", "skeleton", "two_camera", "vclimb"])
def test_flipped_bits_of_other_benchmarks_are_named(
    pipeline: str, finished: Callable[[str], Path], tmp_path: Path, bw: Cli
) -> None:
    out = Path(shutil.copytree(finished(pipeline), tmp_path / "out"))
    assert bw("report", out).code == 0
    assert bw("verify", out).code == 0
    flipped = sorted(path for path in out.rglob("*") if path.is_file() and path.stat().st_size and path.name not in SEALED)
    for path in flipped:
        flip(path, random.Random(str(path.relative_to(out))))
    names_all(bw, out, flipped)


def test_verify_names_what_nobody_recorded_what_is_gone_and_links(mine: Path, bw: Cli) -> None:
    (mine / "experiments" / "notes.txt").write_text("mine")
    (mine / ".lock").write_text("x")
    (mine / "stages" / "stray").write_text("x")
    values = next(mine.glob("experiments/stages/measured_*/*.parquet"))
    values.unlink()
    (mine / "link").symlink_to(mine / "experiments")
    (mine / "qa" / ".tmp-1-killed").write_text("half")
    told = bw("verify", mine)
    assert told.code == 1
    for text in (
        "experiments: notes.txt: the file exists, but the record says nothing of it",
        ".lock: 1 bytes, but the record says that it is empty",
        "stages/stray: the file exists",
        f"{values.relative_to(mine)}: ",
        "link: it is a link",
    ):
        assert text in told.out
    assert "killed" not in told.out


def test_verify_names_every_record_that_is_gone(mine: Path) -> None:
    """One after another; of how the code was, of the files of a folder, votes that a stage read among them."""
    records = [path for path in sorted(mine.rglob("*.json")) if path.name in SEALED]
    assert {path.parent.name for path in records if path.name == ".files.json"} >= {"qa"}
    for path in records:
        data = path.read_bytes()
        path.unlink()
        try:
            told = [str(problem) for problem in verify(str(mine))]
        except StoreError as error:
            told = [str(error)]
        assert told, path
        path.write_bytes(data)
    assert verify(str(mine)) == []


def test_an_edited_score_is_named_and_made_again(mine: Path, bw: Cli) -> None:
    path = next(mine.glob("experiments/stages/measured_*/*.parquet"))
    data = path.read_bytes()
    table = pq.read_table(path)
    better = pc.if_else(pc.equal(table["metric"], "next_domain"), 0.99, table["value"])
    pq.write_table(table.set_column(table.column_names.index("value"), "value", better), path)
    told = bw("verify", mine)
    assert told.code == 1
    assert str(path.relative_to(mine)) in told.out
    (path.parent / "artifact.json").unlink()
    path.unlink()
    assert bw("train", mine, "--method", "cumulative-finetune", "--protocol", "iid").code == 0
    assert path.read_bytes() == data
    assert bw("verify", mine).code == 0


def test_a_report_heals_its_record(mine: Path, bw: Cli) -> None:
    flip(mine / ".files.json", random.Random(0))
    flip(mine / "report.html", random.Random(0))
    assert bw("verify", mine).code == 1
    assert bw("report", mine).code == 0
    assert bw("verify", mine).code == 0


@pytest.mark.parametrize("name", ["report.html", "experiments", "qa", "experiments/stages", "experiments/run.json", "dataset"])
@pytest.mark.parametrize(
    "command",
    [["report"], ["train", "--method", "cumulative-finetune"], ["qa", "export"], ["run", "clear", "--config", "tiny", "--out"]],
    ids=["report", "train", "export", "run"],
)
def test_nothing_is_written_through_a_link(name: str, command: list[str], mine: Path, tmp_path: Path, bw: Cli) -> None:
    there, victim = mine / name, tmp_path / "victim"
    shutil.move(there, victim)
    there.symlink_to(victim)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and victim in [path, *path.parents]}
    told = bw(*command, mine)
    assert told.code == 1
    assert len(told.err.splitlines()) == 1
    assert "link" in told.err
    assert str(there) in told.err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and victim in [path, *path.parents]}
    assert after == before


def test_a_hard_link_keeps_what_it_had(mine: Path, tmp_path: Path, bw: Cli) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (mine / "report.html").unlink()
    os.link(victim, mine / "report.html")
    assert bw("report", mine).code == 0
    assert victim.read_text() == "mine"
    assert (mine / "report.html").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["report.html", "run.json", ".lock", "experiments/run.json", "qa/salt"])
def test_a_pipe_is_not_waited_for(name: str, mine: Path, bw: Cli) -> None:
    (mine / name).unlink(missing_ok=True)
    os.mkfifo(mine / name)
    for command in (["report"], ["eval"], ["run", "clear", "--config", "tiny", "--out"], ["verify"]):
        told = bw(*command, mine)
        assert told.code == 1
        assert name in told.out + told.err
        assert len(told.err.splitlines()) <= 1
