"""What somebody is told who writes a benchmark of their own in one file, and makes the usual slips."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import benchwright
import pytest
from benchwright.pipelines.column_streams import stream_trainings
from benchwright.pipelines.config import adapter_of
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.jobs import job
from pydantic import ValidationError
from pydantic.dataclasses import dataclass

from tests.pipelines.conftest import Cli

NOTES = """
from collections.abc import Iterator
from dataclasses import dataclass

import benchwright as bw


@dataclass(frozen=True)
class Limits:
    least: int = 1


@dataclass(frozen=True)
class Config:
    root: str
    count: int
    keys: str = "n"
    limits: Limits = Limits()
    max_samples: int = 2


@dataclass(frozen=True)
class Note:
    key: str
    n: int


def read(*, count: int, keys: str) -> Iterator[Note]:
    for n in range(count):
        yield Note(keys if n in (1, 3) and keys != "n" else f"n{n}", n)


def check(row: Note, *, least: int) -> Note:
    if row.n < least:
        raise bw.Reject("too_small")
    return row


def sample(row: Note):
    return {"txt": str(row.n).encode()}


def plan(config, out):
    PLAN
    read_ = bw.source("read", bw.step(read, count=config.count, keys=config.keys), rows_per_part=3)
    checked = read_.each("checked", bw.step(check, least=config.limits.least), max_rejects=1)
    return checked.shards("shards", bw.step(sample), by=[], max_samples=config.max_samples)


BENCHMARK = bw.Benchmark("notes", "Notes", Config, plan, trainings=lambda config, *asked: [])
"""
COMPLETE = ("--set", "root=here", "--set", "count=5")


@pytest.fixture(scope="module")
def finished_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``notes.py`` and its finished run, ``out``. Only to be read."""
    folder = tmp_path_factory.mktemp("notes")
    (folder / "notes.py").write_text(NOTES.replace("    PLAN\n", ""))
    benchwright.run(job(str(folder / "notes.py"), overrides=["root=here", "count=5"]), str(folder / "out"), scheduler="sync")
    return folder


@pytest.fixture
def notes(finished_notes: Path, tmp_path: Path) -> Path:
    """A copy of it: the file."""
    shutil.copytree(finished_notes, tmp_path, dirs_exist_ok=True)
    return tmp_path / "notes.py"


def test_a_run_needs_no_toml_where_the_settings_are_complete(bw: Cli, notes: Path) -> None:
    told = bw("run", notes, *COMPLETE, "--out", notes.parent / "new", "-q")
    assert (told.code, told.err) == (0, "")
    assert f"digest {json.loads(bw('show', notes.parent / 'out', '--json').out)['digest']}" in told.out


def test_every_missing_setting_is_named(bw: Cli, notes: Path) -> None:
    run = ["run", notes, "--set", "limits.least=2", "--out", notes.parent / "new"]
    rule = "root, count: these settings are missing: give them in the file, or with --set root=... --set count=...\n"
    assert bw(*run) == (2, "", f"benchwright: notes.py (no notes.toml is next to it): {rule}")
    notes.with_suffix(".toml").write_text("")
    assert bw(*run) == (2, "", f"benchwright: notes.toml: {rule}")
    assert not (notes.parent / "new").exists()
    notes.with_suffix(".toml").unlink()
    assert "has no default settings: give --config FILE.toml" in bw("config", notes).err


@pytest.mark.parametrize(
    ("toml", "given", "says"),
    [
        (
            "",
            "cuont=4",
            "--set cuont: there is no such setting; there are root, count, keys, limits, max_samples; did you mean",
        ),
        ("", "limits.laest=4", "--set limits.laest: there is no such setting; there are least; did you mean 'least'?"),
        ("cuont = 4", "count=5", "notes.toml: cuont: there is no such setting; there are root, count, keys"),
        ("limits = {laest = 4}", "count=5", "notes.toml: limits.laest: there is no such setting; there are least"),
        ("", "count=many", "--set count = 'many': it should be a valid integer"),
        ("", "count=nan", "--set count = nan: it should be a finite number"),
        ("count = 3", "limits=3", "--set limits = 3: this is a table of settings"),
        ("count = 'many'", "root=there", "notes.toml: count = 'many': it should be a valid integer"),
        ("limits = {least = 'x'}", "limits.most=1", "--set limits.most: there is no such setting"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(bw: Cli, notes: Path, toml: str, given: str, says: str) -> None:
    notes.with_suffix(".toml").write_text(f"root = 'here'\n{toml}")
    told = bw("run", notes, "--set", given, "--out", notes.parent / "new")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert told.err.startswith(f"benchwright: {says}")


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    inner: Inner


def test_dataclasses_of_pydantic_that_say_nothing_refuse_unknown_names_too() -> None:
    for values in {"inner": {}, "outer": 3}, {"inner": {"sise": 3}}:
        with pytest.raises(ValidationError, match="unexpected_keyword_argument"):
            adapter_of(Outer).validate_python(values)
    assert adapter_of(Outer).validate_python({"inner": {"size": 3}}).inner.size == 3


def test_keys_that_stand_twice_are_told_with_their_stage_and_rows(bw: Cli, notes: Path) -> None:
    out = notes.parent / "out"
    told = bw("run", notes, *COMPLETE, "--set", "keys=same", "--out", out, "-q")
    assert told.code == 1
    assert told.err == (
        "benchwright: stage 'read': key 'same' is on rows 1 and 3, so the dataset is not published: give each row a "
        "unique key, or use take_first to reject repeated ones\n"
    )
    assert "dataset/ belongs to the previous run" in bw("train", out).err
    new = notes.parent / "new"
    assert bw("run", notes, *COMPLETE, "--set", "keys=same", "--out", new, "-q").code == 1
    shown, verified = bw("show", new), bw("verify", new)
    assert f"lacks     the dataset is not published: repeat `benchwright run {notes}:BENCHMARK ... --out {new}`" in shown.out
    assert (verified.code, verified.out) == (
        1,
        "dataset: not published, but the record says that every stage is finished: run again\n",
    )
    for command in ("train", "push"):
        assert (
            f"{new}: the dataset is not published: repeat `benchwright run"
            in bw(command, new, *["to"] * (command == "push")).err
        )


def test_a_dataset_of_earlier_code_is_not_the_one_of_the_run(bw: Cli, notes: Path) -> None:
    notes.write_text(notes.read_text().replace('keys != "n" else', 'keys == "n" else'))  # all settings are as before
    out = notes.parent / "out"
    assert "key 'n' is on rows 1 and 3" in bw("run", notes, *COMPLETE, "--out", out, "-q").err
    assert "the dataset is not published: repeat" in bw("show", out).out
    assert "dataset: not published" in bw("verify", out).out
    assert "the dataset is not published: repeat" in bw("train", out).err


def test_show_says_that_a_digest_is_of_the_run_before(bw: Cli, notes: Path) -> None:
    out = notes.parent / "out"
    shown = json.loads(bw("show", out, "--json").out)
    assert not {"stale", "lacks"} & shown.keys()
    notes.write_text(
        notes.read_text().replace("    if row.n < least:", "    if row.n > 2:\n        raise OSError\n    if row.n < least:")
    )
    assert bw("run", notes, *COMPLETE, "--out", out, "-q").code == 1
    assert f"digest    {shown['digest']}, stale: of an earlier run: stage 'checked' has not run yet" in bw("show", out).out
    assert json.loads(bw("show", out, "--json").out)["stale"] == "stage 'checked' has not run yet"
    notes.write_text(notes.read_text().replace("raise OSError", "return Note(row.key, 7)"))
    assert bw("run", notes, *COMPLETE, "--set", "max_samples=0", "--out", out, "-q").code == 1
    assert "stale: of an earlier run: stage 'placed' has not run yet" in bw("show", out).out


def test_readers_say_what_a_folder_is_that_has_no_index(bw: Cli, notes: Path) -> None:
    out, half = notes.parent / "out", notes.parent / "half"
    assert bw("run", notes, *COMPLETE, "--set", "limits.least=9", "--out", half, "-q").code == 1
    again = (
        f"the run is not finished: stage 'checked' has not run yet: repeat `benchwright run {notes}:BENCHMARK ... --out {half}`"
    )
    for read in (benchwright.open_dataset, benchwright.web_dataset):
        with pytest.raises(FileNotFoundError, match=f"no index.parquet here: did you mean {out}/dataset\\?$"):
            read(str(out))
        for place in half, half / "dataset":
            with pytest.raises(FileNotFoundError) as told:
                read(str(place))
            assert again in str(told.value)
        with pytest.raises(FileNotFoundError, match=r"no index.parquet here; DatasetIndex.scan"):
            read(str(notes.parent))
    assert again in bw("train", half).err


def test_a_plan_without_shards_publishes_nothing(bw: Cli, notes: Path) -> None:
    notes.write_text(notes.read_text().replace("return checked.shards(", "return checked\n    checked.shards("))
    new = notes.parent / "new"
    told = bw("run", notes, *COMPLETE, "--out", new, "-q")
    assert (told.code, told.err) == (0, "")
    assert "dataset in" not in told.out
    assert bw("verify", new).code == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("raise KeyError('colour')", "KeyError: colour (HERE)"),
        ("raise ValueError('no colour')", "no colour (HERE)"),
        ("bw.open_dataset('nowhere')", "nowhere: no index.parquet here; DatasetIndex.scan reads a folder of bare tars (HERE)"),
        ("return None", "notes: its plan returned NoneType: it must return its Flow"),
    ],
)
def test_an_error_of_a_plan_names_the_line(bw: Cli, notes: Path, line: str, says: str) -> None:
    notes.write_text(NOTES.replace("PLAN", line))
    number = notes.read_text().splitlines().index(f"    {line}") + 1
    told = bw("run", notes, *COMPLETE, "--out", notes.parent / "new")
    assert told.err == f"benchwright: {says.replace('HERE', f'{notes}, line {number}')}\n"


def test_an_error_within_a_call_of_ours_names_the_line_of_the_step(bw: Cli, notes: Path) -> None:
    line = "    bw.open_dataset('nowhere')"
    notes.write_text(notes.read_text().replace("    return {", f"{line}\n    return {{"))
    number = notes.read_text().splitlines().index(line) + 1
    told = bw("run", notes, *COMPLETE, "--out", notes.parent / "new", "-q")
    assert told.err.endswith(f"bare tars ({notes}, line {number})\n")


def test_a_missing_setting_of_a_method_is_told_with_how_it_is_given(bw: Cli, tiny: Path) -> None:
    columns: dict[str, Any] = {"domain": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    with pytest.raises(
        WrongUse, match=r"give it in the call of stream_trainings: method_settings={'lwf': {'strength': \.\.\.}}$"
    ):
        stream_trainings(str(tiny), ["lwf"], **columns)
    told = bw("train", tiny, "--method", "reservoir").err
    table = "baselines.method_settings.reservoir"
    assert told.endswith(f": give it with --set {table}.alpha=..., or in the file, as alpha = ... in [{table}]\n")
