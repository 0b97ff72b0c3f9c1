"""Votes as they come in: several imports at once, gold questions, and work that is rejected after it was counted."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.curation.qa.rounds import gold_key
from benchwright.curation.qa.simulated import simulate_results
from benchwright.curation.qa.votes import VOTES, read_votes, write_votes
from benchwright.curation.run import lock
from benchwright.curation.store import Store
from benchwright.pipelines import api
from benchwright.pipelines.clear.qa_rounds import rounds
from benchwright.pipelines.cli import main as cli
from PIL import Image

from tests.pipelines.conftest import Cli
from tests.pipelines.forked import forked

pytestmark = pytest.mark.usefixtures("blank_figures")

SALT = ["--salt", "simulated-0"]


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A run that waits for votes, and results of both forms. Only to be read."""
    folder = tmp_path_factory.mktemp("waiting")
    run = ["run", "clear", "--config", "tiny", "--set", "source.count=300", "-q", "--out"]
    assert cli.call([*run, str(folder / "simulated")]) == 0
    assert cli.call([*run, str(folder / "out"), "--set", "qa.votes=imported"]) == 0
    return folder / "out", sorted((folder / "simulated" / "qa" / "simulated" / "results").glob("*.csv"))


@pytest.fixture
def asked(waiting: tuple[Path, list[Path]], tmp_path: Path) -> tuple[Path, list[Path]]:
    """A copy of that run, and the results."""
    return Path(shutil.copytree(waiting[0], tmp_path / "out")), waiting[1]


def votes_of(out: Path) -> pa.Table:
    return read_votes(str(out / "qa" / "votes.parquet"))


def changed(results: Path, into: Path, status: str, *, share: int = 1, ending: str = "") -> Path:
    """Results in which the first of every ``share`` assignments has another status, and an ending to its id."""
    with results.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows[::share]:
        row["AssignmentStatus"] = status
        row["AssignmentId"] += ending
    into.mkdir(exist_ok=True)
    with (into / results.name).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return into / results.name


def test_results_that_were_imported_before_are_no_rejects(bw: Cli, asked: tuple[Path, list[Path]]) -> None:
    out, results = asked
    assert bw("qa", "import", out, results[0], *SALT).code == 0
    count, before = votes_of(out).num_rows, (out / "qa" / "votes.parquet").read_bytes()
    told = bw("qa", "import", out, results[0], *SALT)
    assert told.code == 0
    assert told.out.startswith(f"0 votes added, {count} in all\n{count} answers had already been imported: nothing new\n")
    assert "rejected" not in told.out
    assert (out / "qa" / "votes.parquet").read_bytes() == before
    told = bw("qa", "import", out, results[0], results[1], *SALT)
    assert f"{count} answers had already been imported\n" in told.out
    assert votes_of(out).num_rows > count


# --------------------------------------------------------------------------------------------------------- at the same time


def test_an_import_waits_for_no_other_and_loses_no_vote(bw: Cli, asked: tuple[Path, list[Path]]) -> None:
    out, results = asked
    assert bw("qa", "import", out, results[0], *SALT).code == 0
    before = (out / "qa" / "votes.parquet").read_bytes()
    with lock(Store(str(out))):
        told = bw("qa", "import", out, results[1], *SALT)
        assert told.code == 1
        assert told.err == f"benchwright: another import or run is in progress in {out}: wait for it, and import again\n"
        assert bw("qa", "import", out, results[1]).err == told.err, "the salt is not made twice"
    assert (out / "qa" / "votes.parquet").read_bytes() == before
    assert not (out / "qa" / "salt").exists()


def test_imports_at_once_keep_what_each_of_them_added(asked: tuple[Path, list[Path]], tmp_path: Path) -> None:
    out, results = asked
    files = [(tmp_path / f"{number}.out", tmp_path / f"{number}.err") for number in range(len(results))]
    at_work = [forked("qa", "import", out, file, out=said, err=err) for file, (said, err) in zip(results, files, strict=True)]
    for process in at_work:
        process.join(120)
    told = [(said.read_text(), err.read_text(), process.exitcode) for process, (said, err) in zip(at_work, files, strict=True)]
    assert all(code == 0 or "is in progress in" in err for _, err, code in told), told
    assert any(code == 0 for _, _, code in told)
    assert votes_of(out).num_rows == sum(int(text.split()[0]) for text, _, code in told if code == 0)


# ------------------------------------------------------------------------------------------------------------ gold questions


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """Three gold questions."""
    lines = ["class_name,file"]
    for number, name in enumerate(("red", "blue", "BACKGROUND")):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"{number}.png")
        lines.append(f"{name},{number}.png")
    (tmp_path / "gold.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "gold.csv"


def answers(out: Path, batch: Path, into: Path, *, gold_is: str | None = None) -> list[str]:
    """Three workers answer a batch, on both forms; all gold questions alike where ``gold_is`` is given."""
    config = api.job_of(str(out)).config
    truth = {key: name if gold_is is None else gold_is for key, name in gold_key(Store(str(out)), "qa").items()}
    with batch.open(newline="") as stream:
        truth = {row["ID"]: row["query"] for row in csv.DictReader(stream)} | truth
    table = pa.table({"key": list(truth), "true_class": list(truth.values())})
    options = rounds(config)[0].options
    return simulate_results([str(batch)], table, str(into / batch.stem), options=options, seed=0, workers=3, pool=3)


def test_gold_questions_are_known_wherever_they_were_exported_to(
    bw: Cli, asked: tuple[Path, list[Path]], gold: Path, tmp_path: Path
) -> None:
    out, _ = asked
    to = tmp_path / "to"
    assert bw("qa", "export", out, "--to", to, "--gold", gold, "--gold-per-batch", 3).code == 0
    assert (out / "qa" / "gold_key.json").stat().st_mode & 0o077 == 0
    batches = sorted((to / "upload").glob("*.csv"))
    assert len(batches) == 3
    # A later export without gold questions, or with others, leaves the key of those that are out.
    assert bw("qa", "export", out, "--to", to).code == 0
    Image.new("RGB", (32, 32), "white").save(gold.parent / "0.png")
    assert bw("qa", "export", out, "--gold", gold, "--gold-per-batch", 3).code == 0
    assert len(json.loads((out / "qa" / "gold_key.json").read_text())) == 4


def test_workers_answers_to_gold_questions_are_told(
    bw: Cli, asked: tuple[Path, list[Path]], gold: Path, tmp_path: Path
) -> None:
    out, _ = asked
    assert bw("qa", "export", out, "--to", tmp_path / "to", "--gold", gold, "--gold-per-batch", 3).code == 0
    first, *others = sorted((tmp_path / "to" / "upload").glob("*.csv"))
    told = bw("qa", "import", out, *answers(out, first, tmp_path, gold_is="green"))
    assert told.code == 0, told.err
    assert "rejected" not in told.out
    lines = told.out.splitlines()
    assert "0 of 9 gold questions answered correctly" in lines
    workers = sorted({*votes_of(out)["worker"].to_pylist()})
    assert sorted(line for line in lines if line.startswith("  worker")) == [f"  worker {each}: 0 of 3" for each in workers]
    # The same workers see the same questions in the other batches: they are no rejects, and their first answer counts.
    for batch in others:
        told = bw("qa", "import", out, *answers(out, batch, tmp_path))
        assert "rejected" not in told.out
        assert "0 of 9 gold questions answered correctly" in told.out
        assert "18 repeated answers to gold questions: only a worker's first answer counts" in told.out
    assert bw("report", out).code == 0
    report = (out / "report.html").read_text()
    for worker in workers:
        row = report[report.index(worker) :].partition("</tr>")[0]
        assert re.findall(r">([^<]*)</t[dh]>", row)[3:5] == ["3", "0"]


def test_a_gold_question_that_stands_twice_is_named(
    bw: Cli, asked: tuple[Path, list[Path]], gold: Path, tmp_path: Path
) -> None:
    gold.write_text("class_name,file\nred,0.png\nred,0.png\n")
    told = bw("qa", "export", asked[0], "--to", tmp_path / "to", "--gold", gold, "--gold-per-batch", 1)
    assert told.code == 1
    assert "gold.csv line 3: this question appears twice" in told.err


# ------------------------------------------------------------------------------------------------- work that is rejected later


def test_votes_of_work_that_is_rejected_later_are_taken_back(bw: Cli, asked: tuple[Path, list[Path]], tmp_path: Path) -> None:
    out, results = asked
    assert bw("qa", "import", out, *results, *SALT).code == 0
    whole = votes_of(out)
    later = [changed(each, tmp_path / "later", "Rejected", share=2) for each in results]
    told = bw("qa", "import", out, *later, *SALT)
    half = sum((len(each.read_text().splitlines())) // 2 for each in later)
    assert told.code == 0
    assert told.out.startswith(f"0 votes added, {whole.num_rows - half} in all\n{half} votes of earlier imports taken back")
    assert votes_of(out).num_rows == whole.num_rows - half
    # Paid after all: the votes are those of the beginning, in their order.
    told = bw("qa", "import", out, *results, *SALT)
    assert told.out.startswith(f"{half} votes added, {whole.num_rows} in all\n")
    assert votes_of(out).equals(whole, check_metadata=True)


def test_another_assignment_of_the_same_worker_takes_nothing_back(
    bw: Cli, asked: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    out, results = asked
    assert bw("qa", "import", out, results[0], *SALT).code == 0
    count = votes_of(out).num_rows
    other = changed(results[0], tmp_path / "other", "Rejected", ending="-of another batch")
    told = bw("qa", "import", out, other, *SALT)
    assert told.out.startswith(f"0 votes added, {count} in all\n{count} rejected: assignment_not_counted\n")


def test_votes_of_a_version_that_kept_no_assignments_are_read(bw: Cli, asked: tuple[Path, list[Path]], tmp_path: Path) -> None:
    out, results = asked
    assert bw("qa", "import", out, results[0], *SALT).code == 0
    votes = votes_of(out)
    place = out / "qa" / "votes.parquet"
    unknown = votes.set_column(votes.num_columns - 1, VOTES.field("assignment"), pa.nulls(votes.num_rows, pa.string()))
    write_votes(unknown.replace_schema_metadata(votes.schema.metadata), str(place))
    told = bw("qa", "import", out, changed(results[0], tmp_path / "later", "Rejected"), *SALT)
    assert f"{votes.num_rows} votes of earlier imports taken back" in told.out
