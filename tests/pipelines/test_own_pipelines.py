"""What users bring themselves: a pipeline in a Python file, and a CLEAR in a TOML file."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from benchwright.pipelines import api
from PIL import Image

from tests.files import files_of
from tests.pipelines.conftest import Cli

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(11):
        (folder / f"text{number:02d}.txt").write_text(f"the {'word ' * (number + 1)} and the end")
    (folder / "short.txt").write_text("too short")
    return folder


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_the_example_of_a_pipeline_of_ones_own(bw: Cli, texts: Path, tmp_path: Path, scheduler: str) -> None:
    words = EXAMPLES / "words.py"
    run = ["run", words, "--config", EXAMPLES / "words.toml", "--set", f"folder={texts}", "--scheduler"]
    out = tmp_path / "out"
    told = bw(*run, scheduler, "--workers", 2, "--out", out)
    assert told.code == 0, told.err
    assert bw("verify", out).code == 0
    shown = json.loads(bw("show", out, "--json").out)
    assert shown["pipeline"] == "words"
    assert [(stage["rows"], stage["rejects"]) for stage in shown["stages"]][1] == (11, {"too_short": 1})
    with tarfile.open(out / "dataset" / "words-00000.tar") as tar:
        assert [member.name for member in tar][:2] == ["text00.json", "text00.txt"]
        stream = tar.extractfile("text03.json")
        assert stream is not None
        assert json.load(stream) == {"commonest": "word", "words": 8}
    assert bw(*run, "sync", "--out", tmp_path / "sync").code == 0
    assert files_of(out) == files_of(tmp_path / "sync")


def test_what_earlier_code_made_is_told_and_can_be_kept(bw: Cli, texts: Path, tmp_path: Path) -> None:
    words, out = tmp_path / "changing_words.py", tmp_path / "out"
    text = (EXAMPLES / "words.py").read_text()
    words.write_text(text)
    arguments = [words, "--config", EXAMPLES / "words.toml", "--set", f"folder={texts}", "--out", out]
    assert bw("run", *arguments, "-q").code == 0
    digest = json.loads(bw("show", out, "--json").out)["digest"]

    changed = "changing_words.count_words changed"
    words.write_text(
        text.replace("len(words), collections", "len(words) + 1, collections").replace("-{number //", "{number //")
    )
    told = bw("plan", *arguments)
    assert told.out.count("stale: ") == 2, told.out
    assert f"stale: {changed}\n" in told.out
    assert "stale: changing_words.place changed\n" in told.out
    told = bw("run", *arguments, "--keep-stale", "counted", "--keep-stale", "placed")
    assert told.code == 0, told.err
    assert "stale" not in told.err
    assert json.loads(bw("show", out, "--json").out)["digest"] == digest
    assert bw("show", out).out.count(f"kept: made by earlier code; {changed}") == 1
    assert "up to date, 11 rows, kept: made by earlier code" in bw("plan", *arguments).out
    told = bw("verify", out)
    assert told.code == 0
    assert f"stage counted: kept: made by earlier code; {changed}" in told.out
    assert json.loads(bw("verify", out, "--json").out)["kept"].keys() == {"counted", "placed"}

    words.write_text(text.replace("len(words), collections", "len(words) + 2, collections"))
    told = bw("run", *arguments)
    assert f"[2/4] counted: stale: {changed}\n" in told.err
    assert json.loads(bw("show", out, "--json").out)["digest"] != digest
    assert bw("verify", out).out == f"{out}: OK: all files match their records\n"


def test_settings_of_a_pipeline_of_ones_own_are_those_beside_it(bw: Cli) -> None:
    told = bw("config", EXAMPLES / "words.py")
    assert (told.code, told.out) == (0, (EXAMPLES / "words.toml").read_text())


def test_a_run_records_its_pipeline_for_the_commands_after_it(bw: Cli, texts: Path, tmp_path: Path) -> None:
    words, out = EXAMPLES / "words.py", tmp_path / "out"
    assert bw("run", words, "--set", f"folder={texts}", "--out", out, "-q").code == 0  # words.toml lies beside it
    assert bw("verify", out, "--remake", tmp_path / "again").code == 0
    assert bw("verify", out, "--remake", tmp_path / "once_more", "--pipeline", words).code == 0
    assert bw("report", out).out == f"{out}/report.html\n"
    assert "words has no baselines" in bw("train", out).err
    assert "words has no baselines" in bw("train", out, "--pipeline", words).err
    told = bw("eval", out)
    assert (told.code, "benchmark words has no baselines: its Benchmark has no `trainings` function\n" in told.err) == (2, True)
    assert "asks no annotators" in bw("qa", "export", out).err


# ---------------------------------------------------------------------------------------------- a benchmark in one file


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """The example of 40 lines, outside of the package."""
    for name in ("shapes.py", "shapes.toml"):
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    assert len((tmp_path / "shapes.py").read_text().splitlines()) <= 40
    return tmp_path / "shapes.py"


def test_a_benchmark_in_one_file_has_questions_a_report_and_verify(bw: Cli, shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert bw("run", shapes, "--out", out, "-q").code == 0
    rows = {stage["name"]: stage for stage in json.loads(bw("show", out, "--json").out)["stages"]}
    assert rows["drawn"]["rejects"] == {"too_small": 10}
    assert 0 < sum(rows["voted"]["rejects"].values()) < 10
    with tarfile.open(out / "dataset" / "disc-00000.tar") as tar:
        assert {member.name.partition(".")[2] for member in tar} == {"json", "png"}
    told = bw("qa", "export", out, "--pipeline", shapes)
    assert told.code == 0, told.err
    assert [Path(line).name for line in told.out.splitlines()] == ["labels.html", "sensitive.html", "bucket00.csv"]
    assert bw("report", out, "--pipeline", shapes).out == f"{out}/report.html\n"
    page = (out / "report.html").read_text()
    for title in ("Summary", "Pipeline", "Rejected rows", "Samples", "Votes", "Provenance"):
        assert f">{title}</h2>" in page
    assert "These annotators are SIMULATED" in page
    assert "10 rejected: too_small 10" in page
    assert bw("verify", out).code == 0
    simulated = sorted((out / "qa" / "simulated" / "results").glob("*.csv"))
    told = bw("qa", "import", out, *simulated, "--pipeline", shapes)
    assert told.out.startswith("300 votes added, 300 in all\n"), told.err
    assert f"the pipeline finds the votes in {out}/qa/votes.parquet" in told.out


def test_a_pipeline_of_several_rounds_is_told_which(bw: Cli, shapes: Path, tmp_path: Path) -> None:
    text = shapes.read_text().replace('"square")], 0,', '"square")], 0, name="form",')
    text = text.replace("def draw", 'AGAIN = rounds.Round("voted_form", ASKED.options, 0, name="again")\n\n\ndef draw')
    text = text.replace("    return voted", "    voted = rounds.ask(voted, AGAIN, out)\n    return voted").replace(
        "[ASKED])", "[ASKED, AGAIN])"
    )
    shapes = shapes.rename(tmp_path / "two_rounds.py")
    shapes.write_text(text)
    (tmp_path / "shapes.toml").rename(tmp_path / "two_rounds.toml")
    out = tmp_path / "out"
    told = bw("run", shapes, "--out", out, "-q")
    assert f"`benchwright qa export {out} --round again`" in told.out
    own = ["--pipeline", shapes]
    for words, error in (
        ([], "this pipeline has several rounds of questions: set --round to one of form, again"),
        (["--round", "agian"], "no round of questions 'agian': form, again; did you mean 'again'?"),
    ):
        told = bw("qa", "export", out, *words, *own)
        assert (told.code, told.err) == (2, f"benchwright: {out}: {error}\n")
    told = bw("qa", "export", out, "--round", "again", *own)
    assert told.out.splitlines()[-1] == f"{out}/qa/again/export/upload/bucket00.csv"
    results = sorted((out / "qa" / "form" / "simulated" / "results").glob("*.csv"))
    told = bw("qa", "import", out, *results, "--round", "again", *own)
    assert told.code == 0, told.err
    assert "rejected: " in told.out, "answers about images that the first round rejected"
    assert (out / "qa" / "again" / "votes.parquet").is_file()
    assert (out / "qa" / "salt").is_file()
    assert bw("run", shapes, "--out", out, "-q").code == 0
    assert bw("verify", out).code == 0
    assert bw("report", out, *own).code == 0
    assert ">Votes: form</h2>" in (out / "report.html").read_text()
    assert ">Votes: again</h2>" in (out / "report.html").read_text()
    named_alike = text.replace('name="again"', 'name="form"')
    shapes.write_text(named_alike)
    told = bw("run", shapes, "--out", tmp_path / "new", "-q")
    error = "shapes: of 2 rounds of questions each needs a name of its own"
    assert (told.code, told.err) == (2, f"benchwright: {error}\n")


def test_a_run_that_turns_every_row_away_is_one_line(bw: Cli, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = ["--set", "min_words=99", "--set", "max_rejects=12"]
    told = bw("run", EXAMPLES / "words.py", "--set", f"folder={texts}", *few, "--out", out, "-q")
    assert told.code == 1
    assert told.err.count("\n") == 1
    assert "rejected all 12 rows (12 too_short)" in told.err
    assert not (out / "dataset").exists()


def test_settings_of_ones_own_are_checked_as_strictly(bw: Cli, tmp_path: Path) -> None:
    for setting, told in (("min_wrds=3", "did you mean 'min_words'?"), ("min_words=few", "it should be a valid integer")):
        answer = bw("run", EXAMPLES / "words.py", "--set", setting, "--out", tmp_path / "out")
        assert answer.code == 2
        assert told in answer.err


def test_a_plan_that_does_not_hold_together_is_wrong_use(bw: Cli, texts: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken_words.py"
    text = (EXAMPLES / "words.py").read_text().replace("gives=Placed)", "gives=Text)")
    broken.write_text(text)
    run = ["run", broken, "--config", EXAMPLES / "words.toml", "--set", f"folder={texts}", "--out", tmp_path / "out"]
    told = bw(*run)
    assert told.code == 2
    assert len(told.err.splitlines()) == 1
    assert "'shard'" in told.err
    assert not (tmp_path / "out").exists()


def test_a_step_that_raises_names_stage_row_and_error(bw: Cli, texts: Path, tmp_path: Path) -> None:
    broken = tmp_path / "raising_words.py"
    broken.write_text((EXAMPLES / "words.py").read_text().replace("if len(words) < min_words:", "if 1 / (len(words) - 5):"))
    run = ["run", broken, "--config", EXAMPLES / "words.toml", "--set", f"folder={texts}", "--out", tmp_path / "out", "-q"]
    told = bw(*run)
    assert told.code == 1
    line = next(at for at, text in enumerate(broken.read_text().splitlines(), 1) if "1 / (len(words) - 5)" in text)
    place = f"({broken}, line {line})"
    assert told.err == f"benchwright: stage 'counted', row 'text00': ZeroDivisionError: division by zero {place}\n"
    assert "line" in bw("--debug", *run).err


# ---------------------------------------------------------------------------------------------------- a CLEAR of one's own

COLOURS = {"red": (210, 30, 30), "green": (30, 150, 40), "blue": (30, 60, 210)}

MINE = """
extends = "photos"

[source]
root = "photos"

[buckets.rule]
kind = "calendar"
period = "year"

[encoder]
kind = "colours"

[retrieval]
candidates = 30
per_class = 8

[choice]
per_class = 5

[[classes]]
name = "red"
prompts = ["something red"]

[[classes]]
name = "green"
prompts = ["something green", "a green thing"]

[[classes]]
name = "blue"
prompts = ["something blue"]
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """JPEG files in three colours and three years, dated by EXIF; and one without a date, and one that is broken."""
    draw = np.random.default_rng(3)
    for number in range(90):
        colour = list(COLOURS)[number % 3]
        pixels = np.clip(np.asarray(COLOURS[colour]) + draw.integers(-20, 20, (24, 24, 3)), 0, 255).astype(np.uint8)
        year = 2011 + number // 30
        folder = tmp_path / "photos" / str(year)
        folder.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0x9003] = f"{year}:{number % 12 + 1:02d}:14 12:00:{number % 60:02d}"
        Image.fromarray(pixels).save(folder / f"{colour}{number:02d}.jpg", exif=exif)
    Image.fromarray(np.zeros((24, 24, 3), np.uint8)).save(tmp_path / "photos" / "undated.jpg")
    (tmp_path / "photos" / "broken.jpg").write_bytes((tmp_path / "photos/2011/red00.jpg").read_bytes()[:700])
    return tmp_path / "photos"


def test_a_clear_from_a_folder_of_dated_photos_and_a_few_lines_of_settings(bw: Cli, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    out = tmp_path / "out"
    told = bw("run", "clear", "--config", tmp_path / "mine.toml", "--out", out, "-q")
    assert told.code == 0, told.err
    shown = json.loads(bw("show", out, "--json").out)
    rows = {stage["name"]: stage for stage in shown["stages"]}
    assert rows["listed"]["rejects"] == {"no_date": 1} or sum(rows["listed"]["rejects"].values()) == 2
    assert rows["bucketed"]["rows"] == 90
    assert rows["shards"]["rows"] == 3 * 3 * 5
    seen: dict[tuple[int, str], int] = {}
    for shard in sorted((out / "dataset").glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    stream = tar.extractfile(member)
                    assert stream is not None
                    sample = json.load(stream)
                    assert sample["class_name"] in member.name
                    place = (sample["bucket"], sample["class_name"])
                    seen[place] = seen.get(place, 0) + 1
    assert seen == {(bucket, colour): 5 for bucket in range(3) for colour in COLOURS}
    assert bw("verify", out).code == 0
    told = bw("train", out, "-q", "--protocol", "iid", "--method", "nap-finetune")
    assert told.code == 0, told.err
    assert Path(bw("report", out).out.strip()).is_file()


def test_the_example_of_a_clear_of_ones_own_is_whole(bw: Cli, photos: Path, tmp_path: Path) -> None:
    told = bw(
        "plan", "clear", "--config", EXAMPLES / "photos.toml", "--set", f"source.root={photos}", "--out", tmp_path / "out"
    )
    assert told.code == 0, told.err
    assert "fold" in told.out


def test_results_of_a_form_of_ones_own_are_left_alone(bw: Cli, texts: Path, tmp_path: Path) -> None:
    words, out = EXAMPLES / "words.py", tmp_path / "out"
    assert bw("run", words, "--set", f"folder={texts}", "--out", out, "-q").code == 0
    (out / "eval").mkdir()
    for own in '{"accuracy": 1}', "1", "no JSON":
        (out / "eval" / "results.json").write_text(own)
        assert api.stale(str(out), pipeline=str(words)) == {}


RELEASED = """

import dataclasses


def write(config, out, folder):
    Path(folder).mkdir()
    return 7


BENCHMARK = dataclasses.replace(BENCHMARK, release=write)
"""


def test_a_release_of_ones_own_has_one_layout(bw: Cli, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((EXAMPLES / "words.py").read_text() + RELEASED)
    given = [tmp_path / "mine.py", "--config", EXAMPLES / "words.toml", "--set", f"folder={texts}"]
    assert bw("run", *given, "--out", tmp_path / "out").code == 0
    told = bw("release", tmp_path / "out", "--to", tmp_path / "no", "--layout", "train_test", "--trust-code")
    assert (told.code, told.err) == (2, "benchwright: benchmark words has one release layout: leave --layout out\n")
    assert not (tmp_path / "no").exists()
    assert bw("release", tmp_path / "out", "--to", tmp_path / "new", "--trust-code").out == f"7 images in {tmp_path / 'new'}\n"
