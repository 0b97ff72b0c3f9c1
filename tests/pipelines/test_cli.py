"""Every command on the tiny CLEAR: what it prints, where, and its exit code; and what wrong use is answered with."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchwright.curation.qa.imports import own_salt
from benchwright.curation.records import json_text, sealed
from benchwright.pipelines import api
from benchwright.pipelines.catalogue import TITLES
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.config import load
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.two_camera.config import TwoCameraConfig
from PIL import Image

from tests.files import files_of, flip_bit
from tests.pipelines.conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

COMMANDS = [each.name or getattr(each.callback, "__name__", "") for each in cli.app.registered_commands]
STAGES = [stage.name for stage in api.job("clear", config="tiny").flow("out").ordered()]


def only_line(err: str) -> str:
    """Standard error, which has to be one line of ours and no traceback."""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("benchwright: ")
    assert len(lines[0]) < 400
    return lines[0]


# ---------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), ["qa"], ["qa", "export"], ["qa", "import"], []])
def test_help_of_every_command_has_an_example_that_names_real_options(bw: Cli, command: list[str]) -> None:
    told = bw(*command, "--help")
    assert told.code == 0
    assert told.err == ""
    assert f"Usage: benchwright {' '.join(command)}".strip() in told.out
    examples = re.findall(r"^ +benchwright (.+)$", told.out, re.MULTILINE)
    assert examples
    for example in examples:
        words = example.split(" | ")[0].split(" > ")[0].split()
        named = [word for word in words[:2] if not word.startswith("-")]
        page = bw(*(named if named[0] == "qa" else named[:1]), "--help").out
        assert all(word in page for word in words if word.startswith("--"))
    assert not re.search(r"[╭│\x1b]|completion\b.*<bool>", told.out)


def test_every_command_is_a_function_of_the_python_api_in_the_same_words() -> None:
    words = {"list": "list_benchmarks", "eval": "scores", "probe": "encoder_speeds"}
    commands = [*COMMANDS, "qa_export", "qa_import"]
    named = {words.get(name, name) for name in commands if name not in ("config", "demo")}
    assert named <= set(api.__all__)
    assert all(callable(getattr(api, name)) for name in named)


def test_baselines_report_and_release_in_python(copy: Path, tmp_path: Path) -> None:
    out, released = str(copy), tmp_path / "released"
    trained = api.train(out, methods=["nap-finetune"], protocols=["iid"])
    assert api.scores(out) == trained
    assert set(trained["iid"]) == {"nap-finetune"}
    assert "nap-finetune" in Path(api.report(out)).read_text()
    assert api.release(out, str(released)) == api.show(out)["stages"][-1]["rows"]
    with pytest.raises(WrongUse, match="no method 'x'"):
        api.train(out, methods=["x"])


def test_every_command_is_in_the_list_of_commands(bw: Cli) -> None:
    page = bw("--help").out
    promised = {"list", "plan", "run", "show", "verify", "compare", "rejects", "train", "eval", "report", "demo"}
    assert promised <= set(COMMANDS)
    assert re.findall(r"^  (\w+)  ", page.split("Commands:")[1], re.MULTILINE) == [*COMMANDS, "qa"]
    assert "..." not in page.split("Commands:")[1]


def test_without_arguments_the_help_is_told_as_wrong_use(bw: Cli) -> None:
    told = bw()
    assert told.code == 2
    assert "Commands:" in told.err + told.out


def test_help_and_version_import_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("torch", "faiss", "dask", "distributed", "matplotlib", "polars", "pyarrow", "numpy", "PIL", "rich")
    code = (
        "import sys; from benchwright.pipelines.cli import main as cli\n"
        "codes = [cli.call(words) for words in (['--help'], ['run', '--help'], ['qa', '--help'], ['--version'])]\n"
        f"print(codes, [name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert run.stderr.strip() == "[0, 0, 0, 0] []"
    assert re.search(r"^benchwright \d+\.\d+", run.stdout, re.MULTILINE)


def test_plans_import_no_pandas_and_that_of_clear_no_polars(tmp_path: Path) -> None:
    # Arrow imports pandas, where it is installed, with the first array that is made of Python's values.
    code = (
        "import sys; from benchwright.pipelines.cli import main as cli\n"
        f"for name in {sorted(TITLES)}:\n"
        "    assert cli.call(['plan', name, '--config', 'tiny', '--out', name]) == 0\n"
        "    print(name, {'pandas'} & sys.modules.keys(), name == 'clear' and 'polars' in sys.modules, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert run.stderr.splitlines() == [f"{name} set() False" for name in sorted(TITLES)]


# ---------------------------------------------------------------------------------------------------------------- reading


def test_list(bw: Cli) -> None:
    told = bw("list")
    assert told.code == 0
    assert re.search(r"^clear +\S", told.out)
    found = {row["name"]: row for row in json.loads(bw("list", "--json").out)}
    assert set(found["clear"]) == {"name", "title", "configs", "origin"}
    assert {"tiny", "demo"} <= set(found["clear"]["configs"])


def test_config_prints_a_file_that_runs(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(bw("config", "clear", "--config", "tiny").out)
    told = bw("plan", "clear", "--config", mine, "--out", tiny)
    assert told.out.splitlines()[0] == f"{len(STAGES)} of {len(STAGES)} stages are up to date"


def test_an_estimate_from_a_finished_run(bw: Cli, tiny: Path) -> None:
    arguments = ("plan", "clear", "--config", "tiny", "--out", tiny, "--estimate")
    told = bw(*arguments, "listed=9e6", "--estimate", "chosen=30_000")
    assert (told.code, told.err) == (0, "")
    assert re.search(r"^checked +9,000,000 +8,640,000 +\d", told.out, re.MULTILINE)
    assert re.search(r"^placed +30,000 +30,000 +\d", told.out, re.MULTILINE)
    assert re.search(r"^checked .*[MG]iB  +- ", told.out, re.MULTILINE)  # made in parts, by threads
    assert re.search(r"^bucketed .*[MG]iB\+ +- ", told.out, re.MULTILINE)  # takes all rows
    assert "\n+ at least" in told.out
    found = {each["stage"]: each for each in json.loads(bw(*arguments, "listed=9e6", "--json").out)}
    assert list(found) == STAGES
    assert (found["timed"]["rows_in"], found["listed"]["sample_rows"]) == (8_640_000, 900)
    assert [name for name in ("checked", "bucketed", "shards") if found[name]["peak_at_least"]] == ["bucketed"]
    assert {each["worker_peak_bytes"] for each in found.values()} == {0}
    for wrong in ("listed", "listed=", "listed=-1", "listed=1.5", "=3", "listed=nan"):
        assert bw(*arguments, wrong).code == 2
    assert "no stage 'nope' to estimate from: there are listed" in only_line(bw(*arguments, "nope=3").err)
    planned = json.loads(bw(*arguments[:-1], "--json").out)
    assert [each["stage"] for each in planned] == STAGES
    assert {each["why"] for each in planned} == {""}
    changed = bw(*arguments[:4], "--set", "images.min_bytes=11", *arguments[4:], "listed=9e6")
    assert (changed.code, changed.out) == (0, bw(*arguments, "listed=9e6").out)
    assert re.fullmatch(
        r".*stage 'checked' is stale: .*min_bytes = 11.*: the estimate is for what it was", only_line(changed.err)
    )


def test_show_as_json_has_exactly_the_promised_keys(bw: Cli, tiny: Path) -> None:
    told = bw("show", tiny, "--json")
    assert (told.code, told.err) == (0, "")
    shown = json.loads(told.out)
    assert set(shown) == {"pipeline", "digest", "stages", "provenance"}
    assert shown["pipeline"] == "clear"
    assert [stage["name"] for stage in shown["stages"]] == STAGES
    for stage in shown["stages"]:
        assert set(stage) == {"name", "rows", "rejects", "digest", "seconds", "bytes", "cost"}
        assert stage["bytes"] > 0
        assert isinstance(stage["rows"], int)
        assert isinstance(stage["rejects"], dict)
        assert re.fullmatch("[0-9a-f]{64}", stage["digest"])
        assert stage["seconds"] > 0
    assert shown["digest"] == shown["stages"][-1]["digest"]
    assert [link["stage"] for link in shown["provenance"]["chain"]] == STAGES


def test_show_for_people(bw: Cli, tiny: Path) -> None:
    told = bw("show", tiny)
    assert (told.code, told.err) == (0, "")
    assert re.search(r"^checked +864 +36 +\d+\.\d\d +\d+\.\d\d +[\d.]+ [MG]iB +\d+ KiB +[0-9a-f]{16}$", told.out, re.MULTILINE)
    assert re.search(r"^ +34 +truncated$", told.out, re.MULTILINE)
    assert "\x1b" not in told.out


def test_rejects(bw: Cli, tiny: Path) -> None:
    every = bw("rejects", tiny, "--stage", "checked").out.splitlines()
    assert len(every) == 36
    assert all(len(line.split("\t")) == 4 for line in every)
    assert bw("rejects", tiny, "--limit", 10**20).out == bw("rejects", tiny).out
    few = bw("rejects", tiny, "--stage", "checked", "--reason", "truncated", "--limit", 3, "--json").out.splitlines()
    assert [json.loads(line)["reason"] for line in few] == ["truncated"] * 3
    told = bw("rejects", tiny, "--reason", "truncate")
    assert told.code == 1
    assert "did you mean 'truncated'?" in only_line(told.err)
    told = bw("rejects", tiny, "--stage", "cheked")
    assert told.code == 1
    assert "did you mean 'checked'?" in only_line(told.err)


def test_plan_takes_a_damaged_record_for_none(bw: Cli, copy: Path) -> None:
    (copy / "stages/chosen/artifact.json").write_text('{"stage": "cho')
    told = bw("plan", "clear", "--config", "tiny", "--out", copy)
    assert (told.code, told.err) == (0, "")
    assert re.search(r"chosen .*not finished: 1 part there, reused if still valid", told.out)


@pytest.mark.parametrize("command", [["run", "clear", "--config", "tiny", "--out"], ["show"], ["verify"]])
def test_a_folder_whose_name_is_no_utf8_is_told_with_its_name(bw: Cli, tmp_path: Path, command: list[str]) -> None:
    told = bw(*command, f"{tmp_path}/o\udcff")
    assert told.code == 1
    assert f"{tmp_path}/o\\udcff: the name of a run's folder must be UTF-8" in only_line(told.err)
    assert list(tmp_path.iterdir()) == []


def test_compare_does_not_call_a_damaged_run_the_same(bw: Cli, tiny: Path, copy: Path) -> None:
    for path in (copy / "stages/chosen").glob("part-*.parquet"):
        path.write_bytes(path.read_bytes()[:100])
    told = bw("compare", tiny, copy)
    assert (told.code, told.out) == (1, "")
    assert "stages/chosen/part-00000.parquet is missing or has the wrong size" in only_line(told.err)


def test_a_former_name_of_a_method_is_the_method(bw: Cli, tiny: Path) -> None:
    todo = api.job("clear", config="tiny")
    found = todo.benchmark.trainings(todo.config, str(tiny), ("naive", "replay", "er", "bare"), ("iid",))
    assert list(dict.fromkeys(each.method for each in found)) == ["er", "finetune"]


def test_compare(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    assert bw("compare", tiny, tiny) == (0, "identical: their digests match\n", "")
    other = tmp_path / "other"
    changed = ["--set", "choice.per_class=10", "--set", "source.count=300", "--quiet"]
    assert bw("run", "clear", "--config", "tiny", "--out", other, *changed).code == 0
    told = bw("compare", tiny, other, "--stage", "checked")
    assert told.code == 1
    assert "checked: 864 rows against 288" in told.out
    assert bw("compare", tiny, tmp_path / "nothing").code == 1


def test_plan_and_dry_run_make_nothing_and_say_why(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    for command in (["plan"], ["run", "--dry-run"]):
        told = bw(*command, "clear", "--config", "tiny", "--out", tmp_path / "new")
        assert told.code == 0
        assert told.out.splitlines()[0] == f"0 of {len(STAGES)} stages are up to date"
        assert [line.split()[1] for line in told.out.splitlines()[1:]] == STAGES
        assert not (tmp_path / "new").exists()
    before = {path: path.stat().st_mtime_ns for path in tiny.rglob("*")}
    told = bw("plan", "clear", "--config", "tiny", "--out", tiny, "--set", "choice.per_class=10")
    assert "stale: setting per_class = 10, which was 20" in told.out
    assert "reused if chosen gives the same rows" in told.out
    assert before == {path: path.stat().st_mtime_ns for path in tiny.rglob("*")}


# ---------------------------------------------------------------------------------------------------------------- running


def test_a_second_run_uses_what_is_there(bw: Cli, tiny: Path) -> None:
    told = bw("run", "clear", "--config", "tiny", "--out", tiny)
    assert told.code == 0
    lines = told.err.splitlines()
    assert [line.split("] ")[1].split(":")[0] for line in lines] == STAGES
    assert all(line.endswith("reused") for line in lines)


def test_piped_output_is_one_plain_line_a_stage_even_where_simulated_annotators_answer(bw: Cli, tmp_path: Path) -> None:
    told = bw("run", "clear", "--config", "tiny", "--out", tmp_path / "out", "--set", "source.count=300")
    assert told.code == 0
    assert "\x1b" not in told.err
    stages = [line for line in told.err.splitlines() if line.startswith("[")]
    assert [line.split("] ")[1].split(":")[0] for line in stages] == STAGES
    cost = r"cpu \d+(\.\d)? s, memory \d+(\.\d)? [MG]iB, files \d+(\.\d)? [KM]iB"
    line = re.compile(rf"\[\d+/\d+\] \w+: [\d,]+ rows( of .*)?, \d+\.\d s(, [\d,]+ rows/s)?, {cost}")
    assert [each for each in stages if not line.fullmatch(each)] == []
    rest = [line for line in told.err.splitlines() if not line.startswith("[")]
    assert all(line.startswith("benchwright: warning: ") for line in rest)
    assert re.fullmatch(r"\S+: [\d,]+ rows, digest [0-9a-f]{64}, dataset in \S+/dataset\n", told.out)


def test_quiet_is_quiet(bw: Cli, tmp_path: Path) -> None:
    told = bw("run", "clear", "--config", "tiny", "--out", tmp_path / "out", "--set", "source.count=300", "-q")
    assert told.code == 0
    assert told.err == ""
    assert len(told.out.splitlines()) == 1


def test_rejects_over_budget_fail_and_say_where_to_look(bw: Cli, tmp_path: Path) -> None:
    told = bw("run", "clear", "--config", "tiny", "--out", tmp_path / "out", "-q", "--set", "images.max_rejects=3")
    assert told.code == 1
    line = only_line(told.err)
    assert "'checked' rejected" in line
    assert "max_rejects is 3" in line
    assert "benchwright rejects" in line


def test_questions_go_to_people_and_votes_come_back(bw: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = ["run", "clear", "--config", "tiny", "--out", out, "--set", "source.count=300", "--set", "qa.votes=imported"]
    told = bw(*run)
    assert told.code == 0
    assert "the run is waiting: " in told.out
    assert f"benchwright qa export {out}" in told.out
    assert told.err.splitlines()[-1].endswith("voted: waiting")
    assert "waits for" in bw("plan", *run[1:]).out
    exported = bw("qa", "export", out)
    assert exported.code == 0
    assert all(Path(path).is_file() for path in exported.out.splitlines())
    assert bw("qa", "export", out, "--tool", "label-studio", "--to", tmp_path / "studio").code == 0

    simulated = tmp_path / "simulated"
    assert bw(*run[:4], "--out", simulated, *run[6:8], "-q").code == 0
    results = sorted((simulated / "qa" / "simulated" / "results").glob("*.csv"))
    told = bw("qa", "import", out, *results, "--salt", "simulated-0")
    assert told.code == 0
    assert "Fleiss' kappa" in told.out
    assert bw(*run).code == 0
    assert bw("show", out).code == 0
    shards = [json.loads(bw("show", folder, "--json").out)["digest"] for folder in (out, simulated)]
    assert shards[0] == shards[1]


@pytest.fixture
def asked(bw: Cli, tmp_path: Path) -> tuple[Path, list[Path], list[Path]]:
    """A run that waits for votes, with results of the label form and of the sensitive form."""
    simulated, out = tmp_path / "simulated", tmp_path / "out"
    small = ["--set", "source.count=300", "-q"]
    assert bw("run", "clear", "--config", "tiny", "--out", simulated, *small).code == 0
    assert bw("run", "clear", "--config", "tiny", "--out", out, "--set", "qa.votes=imported", *small).code == 0
    results = simulated / "qa" / "simulated" / "results"
    return out, sorted(results.glob("*labels.csv")), sorted(results.glob("*sensitive.csv"))


def test_simulated_annotators_leave_what_people_were_asked(bw: Cli, asked: tuple[Path, list[Path], list[Path]]) -> None:
    out, _, _ = asked
    assert bw("qa", "export", out).code == 0
    exported = {path: path.read_bytes() for path in (out / "qa" / "export").rglob("*") if path.is_file()}
    assert exported
    assert bw("run", "clear", "--config", "tiny", "--out", out, "--set", "source.count=300", "-q").code == 0
    assert {path: path.read_bytes() for path in (out / "qa" / "export").rglob("*") if path.is_file()} == exported


def test_imports_of_votes_add_up(bw: Cli, asked: tuple[Path, list[Path], list[Path]]) -> None:
    out, labels, sensitive = asked
    votes = out / "qa" / "votes.parquet"

    def imported(*arguments: object) -> tuple[int, int]:
        told = bw("qa", "import", out, *arguments)
        assert told.code == 0, told.err
        found = re.match(r"(\d+) votes added, (\d+) in all\n", told.out)
        assert found, told.out
        return int(found[1]), int(found[2])

    count, _ = imported(*labels)
    assert imported(*sensitive) == (count, 2 * count)
    both = votes.read_bytes()
    assert imported(*labels) == (0, 2 * count)
    assert votes.read_bytes() == both
    added, there = imported(labels[0], "--replace")
    assert 0 < added == there < count
    imported(*sensitive, *labels, "--replace")
    assert votes.read_bytes() == both

    told = bw("qa", "import", out, *labels, "--salt", "another")
    assert told.code == 1
    assert "qa/votes.parquet: its worker ids were hashed with another salt" in only_line(told.err)
    assert votes.read_bytes() == both
    votes.write_bytes(both[:100])
    told = bw("qa", "import", out, *labels)
    assert told.code == 1
    assert "qa/votes.parquet is not what was written" in only_line(told.err)
    assert "--replace" in told.err
    (out / "qa" / ".files.json").unlink()  # as of a version that kept no records
    told = bw("qa", "import", out, *labels)
    assert told.code == 1
    assert "qa/votes.parquet: not a file of votes" in only_line(told.err)


def test_answers_that_are_turned_away_are_listed(bw: Cli, asked: tuple[Path, list[Path], list[Path]], tmp_path: Path) -> None:
    out, labels, _ = asked
    lines = labels[0].read_text().splitlines(keepends=True)
    odd = tmp_path / "=odd.csv"
    odd.write_text("".join([*lines[:2], lines[1], "one field\n"]))
    told = bw("qa", "import", out, odd)
    assert told.code == 0
    place = out / "qa" / "import.rejects.csv"
    assert f"Rejected, with file and line: {place}\n" in told.out
    with place.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["reason"] for row in rows] == ["duplicate_assignment", "wrong_field_count"]
    assert rows[0]["key"].startswith("drawn")
    assert [row["detail"].partition(": ")[0] for row in rows] == ["'=odd.csv line 3", "'=odd.csv line 4"]
    told = bw("qa", "import", out, labels[1])
    assert str(place) not in told.out
    assert place.read_text() == "key,reason,detail\n"


@pytest.mark.parametrize("salt", [b"", b"\n", b"\xff\xfe"])
def test_a_salt_that_is_none_is_named(bw: Cli, tiny: Path, tmp_path: Path, salt: bytes) -> None:
    out = tmp_path / "out"
    (out / "qa").mkdir(parents=True)
    shutil.copy(tiny / "run.json", out)
    (out / "qa" / "salt").write_bytes(salt)
    told = bw("qa", "import", out, tiny / "run.json")
    assert told.code == 1
    assert f"{out}/qa/salt: the salt is empty or no text" in only_line(told.err)


def test_a_salt_is_for_its_owner_alone(tmp_path: Path) -> None:
    salt = own_salt(str(tmp_path))
    assert re.fullmatch("[0-9a-f]{32}", salt)
    assert own_salt(str(tmp_path)) == salt
    assert [path.name for path in (tmp_path / "qa").iterdir()] == ["salt"]
    assert (tmp_path / "qa" / "salt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"class_name,file\nred\n", "line 2: 1 fields, the header has 2"),
        (b"class_name,file\nred,a.png\nred,\n", "line 3: file is '': it must be text, in UTF-8"),
        (b"class_name,file\nred,\xe4.png\n", r"line 2: file is '\udce4.png': it must be text, in UTF-8"),
        (b"class_name,file\nred,a\0.png\n", r"line 2: file is 'a\x00.png': it must be text, in UTF-8"),
        (b"class_name,file\nred,.\n", "line 2: file '.' not found next to the CSV"),
        (b"class_name,file\nred,b.png\n", "line 2: file 'b.png' not found next to the CSV"),
        (b"class_name,file\nred,../a.png\n", "line 2: file '../a.png' is outside the folder of the CSV"),
        (b"class_name,file\npink,a.png\n", "line 2: class_name 'pink' is not a class of the run"),
        (b'class_name,file\nred,"a.png\n', "gold.csv, line 2: unexpected end of data"),
        (b"class_name,url\nred,a.png\n", "gold questions need a header with the columns class_name, file"),
        (b"class_name,file,file\nred,a.png,a.png\n", "gold.csv: its header names 'file' twice"),
        (b"class_name,file\n", "no gold questions below the header"),
        (b"", "gold questions need a header"),
    ],
)
def test_gold_questions_that_are_none_are_named(bw: Cli, tiny: Path, tmp_path: Path, text: bytes, told: str) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    gold = tmp_path / "gold.csv"
    gold.write_bytes(text)
    answer = bw("qa", "export", tiny, "--to", tmp_path / "to", "--gold", gold, "--gold-per-batch", 1)
    assert answer.code == 1
    line = only_line(answer.err)
    assert str(gold) in line
    assert told in line


def test_gold_questions_as_a_spreadsheet_writes_them(bw: Cli, copy: Path, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    gold = tmp_path / "gold.csv"
    gold.write_bytes(b"\xef\xbb\xbfclass_name,file\r\nred,a.png\r\nBACKGROUND,a.png\r\n")
    told = bw("qa", "export", copy, "--to", tmp_path / "to", "--gold", gold, "--gold-per-batch", 2)
    assert told.code == 0, told.err
    key = json.loads((tmp_path / "to" / "private" / "gold_key.json").read_text())
    assert sorted(key["gold"].values()) == ["BACKGROUND", "red"]


def test_train_eval_and_report(bw: Cli, copy: Path) -> None:
    told = bw("eval", copy)
    assert told.code == 1
    assert f"benchwright train {copy}" in only_line(told.err)
    told = bw("train", copy, "--method", "nap-finetune", "--protocol", "iid", "--quiet")
    assert (told.code, told.err) == (0, "")
    assert re.search(r"^iid +\S+", told.out, re.MULTILINE)
    assert re.search(r"^nap-finetune +\d+\.\d", told.out, re.MULTILINE)
    assert bw("eval", copy).out == told.out
    assert set(json.loads(bw("eval", copy, "--json").out)["iid"]) == {"nap-finetune"}
    told = bw("report", copy)
    assert told.code == 0
    assert Path(told.out.strip()).read_text().lstrip().lower().startswith("<!doctype html>")
    assert bw("verify", copy).code == 0


@pytest.mark.parametrize(("rule", "rounded"), [("as_released", "down"), ("as_written", "down class by class")])
def test_an_empty_test_set_is_named(bw: Cli, copy: Path, rule: str, rounded: str) -> None:
    share = ["--set", "splits.test_share=0.001", "--set", f"splits.rule={rule}"]
    assert bw("run", "clear", "--config", "tiny", *share, "--out", copy, "-q").code == 0
    told = bw("train", copy, "--protocol", "iid", "-q")
    assert told.code == 2
    assert re.search(
        rf"the test set of bucket 1 is empty: splits\.test_share = 0\.001 of its \d+ images, rounded {rounded}, is none",
        only_line(told.err),
    )


def test_a_run_that_is_not_finished_is_told_in_one_line(bw: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert bw("run", "clear", "--config", "tiny", "--set", "images.min_edge_px=10000", "--out", out, "-q").code == 1
    for command in (["release", out, "--to", tmp_path / "to"], ["train", out]):
        told = bw(*command)
        assert told.code == 1
        assert "the run is not finished" in only_line(told.err)
    unfinished = [line for line in bw("verify", out).out.splitlines() if "not finished" in line]
    assert len(unfinished) == 1
    assert re.search(
        r"^\d+ stages, .*shards: not finished, but the record says that the run has them: run again$", unfinished[0]
    )


@pytest.mark.usefixtures("two_seeds")
def test_results_of_an_earlier_dataset_are_left_out(bw: Cli, copy: Path) -> None:
    train = ["train", copy, "--method", "nap-finetune", "--protocol", "iid"]
    assert bw(*train, "-q").code == 0
    assert bw("run", "clear", "--config", "tiny", "--set", "choice.per_class=5", "--out", copy, "-q").code == 0
    note = "benchwright: A stale result is not shown (iid nap-finetune: trained on another dataset): `benchwright train"
    told = bw("eval", copy)
    assert told.code == 1
    assert told.err.startswith(note)
    assert "all baselines are stale" in told.err.splitlines()[1]
    told = bw("report", copy)
    assert told.code == 0
    assert only_line(told.err).startswith(note)
    assert "nap-finetune" not in (copy / "report.html").read_text()
    told = bw(*train)
    assert told.code == 0
    assert "iid nap-finetune, seed 0: trained" in told.err
    assert bw(*train, "-q").err == bw("eval", copy).err == ""
    assert bw("run", "clear", "--config", "tiny", "--out", copy, "-q").code == 0  # those of the dataset before are still there
    assert bw("eval", copy).code == 0
    assert bw(*train).err.count("up to date") == 2


@pytest.mark.parametrize("name", ["artifact.json", "part-00000.parquet"])
@pytest.mark.parametrize("command", ["eval", "report"])
@pytest.mark.usefixtures("two_seeds")
def test_damaged_results_name_their_file(bw: Cli, copy: Path, name: str, command: str) -> None:
    assert bw("train", copy, "--method", "nap-finetune", "--protocol", "iid", "-q").code == 0
    place = next(copy.glob(f"experiments/stages/measured_*/*{name}"))
    place.write_bytes(b"{}")
    told = bw(command, copy)
    assert told.code == 1
    assert name in only_line(told.err)


def test_a_folder_that_another_benchmark_filled_is_refused(bw: Cli, copy: Path) -> None:
    before = files_of(copy)
    for command in (["run", "iirc"], ["run", "iirc", "--dry-run"], ["plan", "iirc"]):
        told = bw(*command, "--config", "tiny", "--out", copy)
        assert (told.code, told.out) == (2, "")
        assert only_line(told.err) == f"benchwright: {copy} was made by 'clear': choose another --out"
    assert files_of(copy) == before


def test_a_run_that_fails_leaves_the_dataset_of_the_one_before(bw: Cli, copy: Path) -> None:
    fails = ["run", "clear", "--config", "tiny", "--set", "source.count=901", "--set", "images.max_rejects=0", "--out", copy]
    again = ["run", "clear", "--config", "tiny", "--out", copy, "-q"]
    for _ in range(2):
        assert bw(*fails).code == 1
        assert "dataset" not in bw("verify", copy).out
        for command in (["train"], ["eval"], ["report"], ["release", "--to", copy / "new"]):
            told = bw(*command, copy)
            assert told.code == 1
            assert "the last run did not finish: dataset/ belongs to the previous run; run again" in only_line(told.err)
    assert bw(*again).code == 0
    assert bw("verify", copy).code == bw("report", copy).code == 0


def test_a_file_url_is_a_local_folder(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    told = bw("run", "clear", "--config", "tiny", "--out", f"file://{tmp_path}/out", "-q")
    assert told.code == 0
    assert bw("verify", f"file://{tmp_path}/out").code == 0
    assert files_of(tmp_path / "out") == files_of(tiny)


def test_a_run_in_memory_is_the_run_in_a_folder(bw: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bw("run", "clear", "--config", "tiny", "--out", "memory://cli/run", "-q").code == 0
    assert bw("verify", "memory://cli/run").code == 0
    assert bw("compare", "memory://cli/run", tiny).code == 0
    shown = [json.loads(bw("show", out, "--json").out) for out in ("memory://cli/run", tiny)]
    assert shown[0]["digest"] == shown[1]["digest"]
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------------------- wrong use

NEW = ["--config", "tiny", "--out", "new"]


def limits(start: str, end: str) -> str:
    return f'buckets.rule={{kind = "limits", limits = [{{start = "{start}", end = "{end}"}}]}}'


def on_pixels(weights: str) -> list[str]:
    settings = (f"weights={weights}", "model=backbone", "model_settings.name=torchvision/resnet18", "features=pixels")
    return [word for each in settings for word in ("--set", f"baselines.{each}")]


CLIP = "encoder={kind='open_clip', model='RN50', weights='openai'}"


def classes(*names: str) -> str:
    each = ", ".join(f'{{name = "{name}", prompts = ["red"]}}' for name in names)
    return f"classes=[{each}]"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rn"], "Did you mean 'run'?"),
        (["run", "cler", *NEW], "no benchmark 'cler': there are clear"),
        (["run", "cler", *NEW], "did you mean 'clear'?"),
        (["run", "../clear", *NEW], "no benchmark '../clear'"),
        (["run", ".", *NEW], "no benchmark '.'"),
        (["run", "", *NEW], "no benchmark ''"),
        (["run", "nothing.py", *NEW], "benchmark 'nothing.py': no such file"),
        (["run", "clear", "--config", "tiny"], "Missing option '--out'"),
        (["run", "clear", "--confg", "tiny"], "No such option: --confg"),
        (["run", "clear", *NEW, "--workers", "0"], "--workers"),
        (["run", "clear", *NEW, "--workers", "many"], "--workers"),
        (["run", "clear", *NEW, "--scheduler", "thread"], "did you mean 'threads'?"),
        (["run", "clear", "--config", "tny", "--out", "new"], "did you mean 'tiny'?"),
        (["run", "clear", "--config", "nothing.toml", "--out", "new"], "config 'nothing.toml': no such file"),
        (["run", "clear", *NEW, "--needs", "embedded"], "STAGE=RESOURCE, such as embedded=GPU, or embedded= if any worker"),
        (["run", "clear", *NEW, "--needs", "=GPU"], "'=GPU': STAGE=RESOURCE"),
        (["run", "clear", *NEW, "--needs", "nope=GPU"], "no stage 'nope' that could need a resource: there are listed, "),
        (["run", "clear", *NEW, "--set", "seed"], "write it as name=value"),
        (["run", "clear", *NEW, "--set", "=3"], "write it as name=value"),
        (["run", "clear", *NEW, "--set", "a..b=3"], "write it as name=value"),
        (["run", "clear", *NEW, "--set", "seed=abc"], "seed = 'abc': it should be a valid integer"),
        (["run", "clear", *NEW, "--set", "seed.more=1"], "seed is a value, not a table of settings"),
        (["run", "clear", *NEW, "--set", "retrieval.perclass=3"], "did you mean 'per_class'?"),
        (["run", "clear", *NEW, "--set", "source.cuont=3"], "source.cuont: there is no such setting; there are kind, count"),
        (["run", "clear", *NEW, "--set", "source.root=x"], 'root belongs to kind = "folder" or "tars"'),
        (
            ["run", "clear", *NEW, "--set", "source.kind=folder"],
            'count belongs to kind = "drawn": for another kind give the whole table',
        ),
        (["run", "clear", *NEW, "--set", "source.count=-3"], "source.count = -3"),
        (["run", "clear", *NEW, "--set", "choice.per_class=0"], "choice.per_class = 0"),
        (["run", "clear", *NEW, "--set", "images.max_rejects=nan"], "images.max_rejects = nan: it should be a finite number"),
        (["run", "clear", *NEW, "--set", "images.max_rejects=inf"], "images.max_rejects = inf: it should be a finite number"),
        (
            ["run", "clear", *NEW, "--set", "images.max_aspect=nan", "--dry-run"],
            "images.max_aspect = nan",
        ),
        (["run", "clear", *NEW, "--set", "images.max_aspect='NaN'"], "images.max_aspect = 'NaN': it should be greater than 0"),
        (["run", "clear", *NEW, "--set", "retrieval.background_share=inf"], "retrieval.background_share = inf"),
        (["run", "clear", *NEW, "--set", "retrieval.background_share='inf'"], "background_share is inf: a number from 0 to 1"),
        (["run", "vclimb", *NEW, "--set", "evaluation.settings.model.dropout=nan"], "evaluation.settings.model.dropout = nan"),
        (["run", "vclimb", *NEW, "--set", "split.untrim={}"], "split.untrim: a source of kind 'drawn' has no lengths"),
        (["run", "clear", *NEW, "--set", "images.max_rejects=-1"], "images.max_rejects = -1: it should be greater than or"),
        (["run", "clear", *NEW, "--set", "images.take_first=0"], "images.take_first = 0: it should be greater than or"),
        (["run", "clear", *NEW, "--set", "qa.workers=21"], "workers = 21: there are 20 simulated annotators"),
        (["run", "clear", *NEW, "--set", "qa.workers=5"], "majority = 2: it should be more than half of 5 workers"),
        (["run", "clear", *NEW, "--set", "qa.sensitive=9"], "sensitive = 9: it should be at most the number of workers, 3"),
        (["run", "clear", *NEW, "--set", "qa.sensitive=true"], "--set qa.sensitive = True: it should be"),
        (["run", "clear", *NEW, "--set", "qa.sensitive=0"], "--set qa.sensitive = 0: it should be"),
        (["run", "clear", *NEW, "--set", "qa.sensitive=1.5"], "--set qa.sensitive = 1.5: it should be"),
        (["run", "clear", *NEW, "--set", "qa.max_sensitive_score=7"], "qa.max_sensitive_score = 7: it should be less than"),
        (
            ["run", "clear", *NEW, "--set", "unlabelled.buckets=[1, 4]"],
            "there is no bucket 4: buckets.rule gives 4, numbered from 0",
        ),
        (
            ["run", "clear", *NEW, "--set", "features.a.weights=/dev/null"],
            "features.a.weights = '/dev/null': the file is empty",
        ),
        (
            ["run", "clear", *NEW, "-s", "encoder={kind='open_clip',model='RN50'}", "-s", "encoder_run.checkpoint=/dev/null"],
            "encoder_run.checkpoint = '/dev/null': the file is",
        ),
        (["run", "clear", *NEW, *on_pixels("/dev/null")], "baselines.weights = '/dev/null': the file is empty"),
        (
            ["run", "clear", *NEW, *on_pixels("hub://NOPE")],
            "'hub://NOPE': torchvision/resnet18 has no weights 'NOPE': there are",
        ),
        (
            ["run", "clear", *NEW, "--set", "encoder_run.device=cuda:99", "--set", CLIP],
            "stage 'embedded': device = 'cuda:99': this machine has none that torch can use; run it elsewhere, or change the "
            "setting encoder_run.device",
        ),
        (
            ["run", "clear", *NEW, "--set", "encoder_run.device=gpu", "--set", CLIP],
            "stage 'embedded': device = 'gpu': expected cpu, cuda or cuda:N; run it elsewhere, or change the setting "
            "encoder_run.device",
        ),
        (["probe", "NOPE"], "encoder NOPE: no such architecture in open_clip"),
        (["probe", "RN50", "--device", "cuda:99"], "device = 'cuda:99': this machine has none that torch can use"),
        (
            ["run", "clear", *NEW, "--set", "encoder_run.device=cuda", "--set", CLIP.replace("}", ", backend='onnxruntime'}")],
            "stage 'embedded': encoder.backend = 'onnxruntime' runs only on CPUs, but device = 'cuda': set the "
            "backend to 'torch', or change the setting encoder_run.device",
        ),
        (["run", "clear", *NEW, "--set", "images.max_pixels=-1"], "images.max_pixels = -1: it should be greater than"),
        (["run", "clear", *NEW, "--set", "images.max_pixels=999999999999"], "images.max_pixels = 999999999999: it should be"),
        (["run", "clear", *NEW, "--set", "buckets.rule={kind='limits', limits=[]}"], "buckets.rule.limits = []: "),
        (
            ["run", "clear", *NEW, "--set", limits("x", "2008-01-01")],
            "--set buckets.rule.limits.0.start = 'x': it should be a time such as 2007-04-09 03:27:17, without",
        ),
        (
            ["run", "clear", *NEW, "--set", limits("2007-01-01", "2008-01-01T00:00:00Z")],
            "buckets.rule.limits.0.end = '2008-01-01T00:00:00Z': it should be a time",
        ),
        (["run", "clear", *NEW, "--set", limits("2008-01-01", "2007-01-01")], "2007-01-01 00:00:00 run backwards"),
        (["run", "clear", *NEW, "--set", classes("red", "red")], "option 'red' for class 'red' repeats another"),
        (["run", "clear", *NEW, "--set", classes("BACKGROUND")], "is the background class 'BACKGROUND'"),
        (["run", "clear", *NEW, "--set", classes("None of the above")], "the form itself adds 'None of the above'"),
        (
            ["run", "clear", *NEW, "--set", classes("green", " red ")],
            "--set classes.1.name = ' red ': it must not be empty nor have white space around it",
        ),
        (["run", "clear", *NEW, "--set", classes("r\\ned")], r"classes.0.name = 'r\ned': it has a control character"),
        (["run", "clear", *NEW, "--set", classes("")], "classes.0.name = ''"),
        (["run", "clear", *NEW, "--set", "classes=[{name='red', prompts=['']}]"], "classes.0.prompts.0 = ''"),
        (["run", "clear", *NEW, "--set", "qa.errors.none=-1"], "qa.errors.none = -1: it should be greater than or"),
        (["run", "clear", *NEW, "--set", "qa.errors.none=0.95"], "none + extra + wrong = 1.02: it should be at most 1"),
        (["run", "clear", *NEW, "--set", "images=3"], "images = 3: this is a table of settings"),
        (
            ["run", "clear", *NEW, "--set", "source.kind='web'"],
            "source.kind = 'web': no source 'web': there are drawn, folder",
        ),
        (["run", "clear", *NEW, "--set", "retrieval.candidates=5"], "5 candidates for 40 rows a class"),
        (["run", "clear", "--out", "new"], "--set source.metadata=..."),
        (["qa", "export", "new", "--tool", "turk"], "mturk or label-studio"),
        (["qa", "import", "new"], "Missing argument 'RESULTS'"),
        (["rejects", "new", "--limit", "0"], "--limit"),
        (["show"], "Missing argument 'DIR'"),
        (["report", "memory://nowhere"], "in local folders only"),
        (["qa", "export", "memory://nowhere"], "--to FOLDER"),
        (["qa", "import", "memory://nowhere", "votes.csv"], "--salt TEXT"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    bw: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = bw(*arguments)
    assert answer.code == 2, answer
    assert told in only_line(answer.err)
    assert answer.out == ""
    assert list(tmp_path.iterdir()) == []


def test_settings_may_begin_with_a_mark_of_utf_8(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "tiny"\n', encoding="utf-8-sig")
    told = bw("plan", "clear", "--config", mine, "--out", tiny)
    assert told.out.splitlines()[0] == f"{len(STAGES)} of {len(STAGES)} stages are up to date", told.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed = ", "is not TOML: Invalid value (at end of document)"),
        ("\x00", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        ('extends = "mine.toml"', "extends itself"),
        ('extends = "tny"', "did you mean 'tiny'?"),
        ("extends = 3", "expected a preset or a file"),
        ('extends = "tiny"\nunset = "choice"', "mine.toml: unset = 'choice': expected a list of dotted names"),
        ('extends = "tiny"\nunset = ["choise"]', "unset 'choise': clear/tiny.toml has no 'choise'; did you mean 'choice'?"),
        ('extends = "tiny"\nunset = ["choice.per_class.x"]', "clear/tiny.toml has no 'x' there"),
        ('extends = "tiny"\nunset = ["source"]', "source: this setting is missing"),
        ('extends = "tiny"\nsed = 3', "sed: there is no such setting"),
        ('extends = "tiny"\n[source]\ncount = "many"', "source.count = 'many': it should be a valid integer"),
        ('extends = "tiny"\n[[classes]]\nname = "red"\nprompts = []', "classes.0.prompts = []"),
        ('extends = "tiny"\n[[classes]]\nname = "red"\npromts = ["red"]', "did you mean 'prompts'?"),
        (
            "seed = 1",
            "mine.toml: source, images, baselines: these settings are missing: give them in the file, or with --set source=",
        ),
    ],
)
def test_a_wrong_file_of_settings(bw: Cli, tmp_path: Path, text: str | bytes, told: str) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_bytes(text if isinstance(text, bytes) else text.encode())
    answer = bw("run", "clear", "--config", mine, "--out", tmp_path / "new")
    assert answer.code == 2
    assert told in only_line(answer.err)
    assert not (tmp_path / "new").exists()


def test_settings_that_extend_others_are_laid_over_them(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('extends = "tiny"\n[choice]\nper_class = 7\n[source]\ncount = 900\n')
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "base.toml"\n[choice]\nper_class = 10\n')
    told = bw("plan", "clear", "--config", mine, "--out", tiny)
    assert "setting per_class = 10, which was 20" in told.out
    assert told.out.startswith(f"{STAGES.index('chosen')} of {len(STAGES)} stages are up to date")
    mine.write_text(
        'extends = "tiny"\n[source]\nkind = "folder"\nroot = "photos"\n'
    )  # another kind: nothing of the old table stays
    told = bw("plan", "clear", "--config", mine, "--out", tmp_path / "new")
    assert told.code in (0, 1)
    assert "count" not in told.err


def test_settings_of_a_file_that_is_extended_can_be_taken_out(bw: Cli, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        'extends = "tiny"\n[evaluation.networks.other]\nhidden = [5]\npreset = "decayed"\nseeds = [0]\n'
    )
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'extends = "base.toml"\nunset = ["evaluation.networks.network-200", "evaluation.networks.other.hidden", "shards"]\n'
        "[evaluation.networks.other]\nparameters = 200\n[shards]\nmax_samples = 9\n"
    )
    found, _, _ = load(TwoCameraConfig, mine, benchmark="two_camera")
    assert list(found.evaluation.networks) == ["other"]
    assert (found.evaluation.networks["other"].parameters, found.evaluation.networks["other"].hidden) == (200, None)
    assert found.shards.max_samples == 9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "has no 'BENCHMARK'"),
        ("BENCHMARK = 'clear'", "has no BENCHMARK of type"),
        ("\n1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("x = (", "line 1: SyntaxError"),
        ("import nothing_of_that_name", "line 1: ModuleNotFoundError"),
        ("raise SystemExit(7)", "line 1: SystemExit: 7"),
    ],
)
def test_a_python_file_that_is_no_benchmark(bw: Cli, tmp_path: Path, text: str, told: str) -> None:
    mine = tmp_path / f"mine_{abs(hash(text))}.py"
    mine.write_text(text)
    answer = bw("run", mine, "--config", tmp_path / "x.toml", "--out", tmp_path / "new")
    assert answer.code == 2
    assert told in only_line(answer.err)
    (tmp_path / "folder.py").mkdir()
    assert bw("run", tmp_path / "folder.py", "--out", tmp_path / "new").code == 2


def test_a_file_that_hides_a_loaded_module_is_refused(bw: Cli, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("BENCHMARK = 1")
    answer = bw("run", tmp_path / "json.py", "--out", tmp_path / "new")
    assert answer.code == 2
    assert "rename the file" in only_line(answer.err)


# -------------------------------------------------------------------------------------------------------- bad folders


def test_folders_that_cannot_hold_a_run(bw: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out, rule in (("file", "file exists"), ("file/below", "not a directory")):
        told = bw("run", "clear", "--config", "tiny", "--out", tmp_path / out, "-q")
        assert told.code == 1
        assert only_line(told.err) == f"benchwright: {tmp_path / out}: {rule}"
    told = bw("run", "clear", "--config", "tiny", "--out", "/proc/none/of/this", "-q")  # nobody may write there, not even root
    assert told.code == 1
    assert "/proc/none" in only_line(told.err)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written_to(bw: Cli, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    told = bw("run", "clear", "--config", "tiny", "--out", tmp_path / "new", "-q")
    assert told.code == 1
    assert only_line(told.err) == f"benchwright: {tmp_path / 'new'}: permission denied"
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("command", ["show", "verify", "rejects", "train", "eval", "report", "qa export"])
def test_folders_that_hold_no_run(bw: Cli, tmp_path: Path, command: str) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        told = bw(*command.split(), folder)
        assert told.code == 1
        assert f"{folder} contains no run" in only_line(told.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pipeline": "clear"}', b"\xff"])
@pytest.mark.parametrize("command", ["show", "verify", "report"])
def test_a_damaged_record_of_a_run(bw: Cli, tmp_path: Path, text: str | bytes, command: str) -> None:
    (tmp_path / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    told = bw(command, tmp_path)
    assert told.code == 1
    assert "run.json" in only_line(told.err)


@pytest.mark.parametrize("text", ["[1]", "{}", "x"])
@pytest.mark.parametrize("command", ["show", "report"])
def test_a_damaged_record_of_how_a_stage_was_made(bw: Cli, copy: Path, text: str, command: str) -> None:
    (copy / "stages/checked/made.json").write_text(text)
    told = bw(command, copy)
    assert told.code == 1
    assert "stages/checked/made.json" in only_line(told.err)


def test_settings_of_a_record_that_do_not_fit_any_more(bw: Cli, copy: Path) -> None:
    record = json.loads((copy / "run.json").read_text())
    record["config"]["sed"] = 3
    del record["seal"]
    (copy / "run.json").write_bytes(json_text(sealed(record)))
    told = bw("report", copy)
    assert told.code == 1
    assert "run.json: sed: there is no such setting" in only_line(told.err)


def test_debug_shows_the_traceback_and_nothing_else_does(bw: Cli, tmp_path: Path) -> None:
    assert "Traceback" not in bw("show", tmp_path).err
    told = bw("--debug", "show", tmp_path)
    assert told.code == 1
    assert "Traceback" in told.err
    assert (
        told.err.splitlines()[-1]
        == f"benchwright: {tmp_path} contains no run: it has no run.json; `benchwright run ... --out` makes one"
    )


# ---------------------------------------------------------------------------------------------------------------- verify


def test_verify_of_an_untouched_run(bw: Cli, tiny: Path) -> None:
    assert bw("verify", tiny) == (0, f"{tiny}: OK: all files match their records\n", "")
    assert json.loads(bw("verify", tiny, "--json").out) == {"problems": []}


@pytest.mark.parametrize(
    "pattern",
    [
        "stages/listed/part-*.parquet",
        "stages/listed/part-*.blobs",
        "stages/embedded/part-*.npy",
        "stages/checked/*.rejects.parquet",
        "stages/shards/*.tar",
        "dataset/*.tar",
        "dataset/index.parquet",
        "dataset/README.md",
    ],
)
def test_verify_sees_one_changed_byte_and_one_lost_file(bw: Cli, copy: Path, pattern: str) -> None:
    path = sorted(copy.glob(pattern))[-1]
    flip_bit(path)
    told = bw("verify", copy)
    assert (told.code, told.err) == (1, "")
    assert str(path.relative_to(copy)) in told.out
    path.unlink()
    told = bw("verify", copy, "--json")
    assert told.code == 1
    assert [problem["found"] for problem in json.loads(told.out)["problems"]] == ["the file is missing"]


@pytest.mark.parametrize(
    "pattern",
    [
        "stages/listed/part-*.blobs",
        "stages/embedded/part-*.npy",
        "stages/split/part-*.parquet",
        "stages/shards/*.tar",
        "stages/asked/made.json",
        "stages/asked/artifact.json",
        "dataset/index.parquet",
        "dataset/dataset.json",
    ],
)
def test_what_verify_says_to_remove_mends_the_run(bw: Cli, copy: Path, pattern: str) -> None:
    for tar in copy.glob("dataset/*.tar"):  # as a run leaves them: a copy of a folder has no hard links
        tar.unlink()
        tar.hardlink_to(copy / "stages/shards" / tar.name)
    whole = files_of(copy)
    path = sorted(copy.glob(pattern))[-1]
    with path.open("r+b") as stream:
        stream.seek(path.stat().st_size // 2)
        stream.write(b"#?#?")
    told = bw("verify", copy)
    assert told.code == 1
    lines = told.out.splitlines()
    advice = next(number for number, line in enumerate(lines) if line.startswith("To repair it, remove these and run again"))
    for line in lines[advice + 1 :]:
        (copy / line.strip()).unlink()
    assert bw("run", "clear", "--config", "tiny", "--out", copy, "-q").code == 0
    assert bw("verify", copy).code == 0
    assert files_of(copy) == whole


def test_damaged_images_are_not_released(bw: Cli, copy: Path, tmp_path: Path) -> None:
    damaged = copy / "stages/listed/part-00000.blobs"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    told = bw("release", copy, "--to", tmp_path / "release")
    assert told.code == 1
    assert "stages/listed/part-00000.blobs is damaged" in only_line(told.err)
    assert "remove that file and run again" in told.err
    told = bw("run", "clear", "--config", "tiny", "--set", "shards.max_samples=49", "--out", copy, "-q")
    assert told.code == 1
    assert "stages/listed/part-00000.blobs is damaged" in only_line(told.err)
    damaged.unlink()
    assert bw("run", "clear", "--config", "tiny", "--out", copy, "-q").code == 0
    assert bw("release", copy, "--to", tmp_path / "again").code == 0


@pytest.mark.parametrize("name", ["stages/asked/notes.txt", "stages/asked/part-00099.parquet", "dataset/notes.txt"])
def test_verify_sees_a_file_too_many(bw: Cli, copy: Path, name: str) -> None:
    (copy / name).write_text("x")
    told = bw("verify", copy)
    assert told.code == 1
    assert name in told.out


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 5), ("digest", "0" * 64), ("key", "0" * 64), ("layout", "0" * 64), ("rejects", {}), ("stage", "other")],
)
def test_verify_sees_an_edited_record(bw: Cli, copy: Path, name: str, value: object) -> None:
    record = copy / "stages/retrieved/artifact.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {name: value}))
    told = bw("verify", copy)
    assert told.code == 1
    assert "retrieved" in told.out or "other" in told.out


def test_verify_sees_an_edited_recipe(bw: Cli, copy: Path) -> None:
    record = copy / "stages/chosen/artifact.json"
    content = json.loads(record.read_text())
    content["recipe"]["settings"]["seed"] = 1
    record.write_text(json.dumps(content))
    assert bw("verify", copy).code == 1


def test_verify_can_make_the_run_again(bw: Cli, copy: Path, tmp_path: Path) -> None:
    # Where the votes lie is no part of what is made: the new run finds those of the old one.
    told = bw("verify", copy, "--remake", tmp_path / "again")
    assert told.code == 0, told
