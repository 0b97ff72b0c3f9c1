"""One line of ours, and none of the libraries'."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.artifact import RunRecord
from benchwright.curation.store import Store
from benchwright.pipelines import api
from benchwright.pipelines.cli import exits as border
from PIL import Image

from .conftest import Cli


@pytest.mark.parametrize("name", ["clear", "kowl", "vclimb", "two_camera", "iirc", "skeleton"])
def test_a_report_after_a_failure_in_the_first_stage_is_one_line(name: str, tmp_path: Path, bw: Cli) -> None:
    out = str(tmp_path / "out")
    todo = api.job(name, config="tiny")
    flow = todo.flow(out)
    RunRecord(name, todo.values, {}, tuple(stage.name for stage in flow.ordered()), flow.last).save(Store(out))
    told = bw("report", out)
    assert told == (1, "", f"benchwright: {out}: no stage of the run is finished, so there is nothing to report: run again\n")


def damaged_tiff() -> bytes:
    held = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(
        held, "TIFF", compression="tiff_lzw"
    )
    data = bytearray(held.getvalue())
    data[20:2000:7] = bytes(byte ^ 0x55 for byte in data[20:2000:7])
    return bytes(data)


DECODES = """
import sys
from benchwright.curation.rows import Reject
from benchwright.curation.stages.decode import decode_rgb
from benchwright.pipelines.cli import exits

with exits.libraries_silenced(debug="--debug" in sys.argv):
    try:
        decode_rgb(open(sys.argv[1], "rb").read())
    except Reject as reject:
        print("ours:", reject.reason, file=sys.stderr)
print("after", file=sys.stderr)
"""


def test_libtiff_prints_nothing_beside_our_lines(tmp_path: Path) -> None:
    (tmp_path / "bad.tif").write_bytes(damaged_tiff())
    command = [sys.executable, "-P", "-c", DECODES, str(tmp_path / "bad.tif")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert told.splitlines() == ["ours: corrupt", "after"]
    assert len(subprocess.run([*command, "--debug"], check=True, capture_output=True, text=True).stderr.splitlines()) > 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that cannot be read")
def test_an_error_of_the_system_names_its_file() -> None:
    """An address that is not there: an error of input and output, which says no name."""
    with pytest.raises(OSError, match="/proc/self/mem") as raised:
        Store("/proc/self").read("mem", 0, 1)
    assert border.error_line(raised.value) == "/proc/self/mem: input/output error"


MISSING = {
    "vclimb": (["--config", "segments", "--set", "videos.root=UCF-101"], "UCF-101", "videos.root"),
    "clear": (["--set", "source.metadata=yfcc"], "yfcc", "source.metadata"),
    "iirc": ([], "cifar-100-python.tar.gz", "source.root"),
    "kowl": ([], "kinetics_lists", "source.root"),
    "skeleton": (["--config", "ntu"], "nturgb+d_skeletons", "source.root"),
    "two_camera": (["--config", "nus"], "nus", "source.root"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_source_names_the_setting_that_holds_it(name: str, tmp_path: Path, bw: Cli) -> None:
    given, path, setting = MISSING[name]
    told = bw("run", name, *given, "--out", tmp_path / "out", "-q")
    line = f"source {path!r}: no such file or folder ({setting}): give it in the settings file, or with --set {setting}=PATH"
    assert told == (1, "", f"benchwright: {line}\n")


OWN = """
from dataclasses import dataclass
import benchwright as bw

@dataclass(frozen=True)
class Config:
    mode: str

@dataclass(frozen=True)
class Row:
    key: str
    file: str

def listed(*, mode: str):
    yield Row("a", "one.txt")
    yield Row("a" if mode == "twice" else "b", "two.txt")

def named(row: Row, *, mode: str) -> Row:
    return Row(row.key, row.fiel if mode == "name" else row.file)

def sample(row: Row):
    return {"txt": row.file}

def plan(config: Config, out: str) -> bw.Flow:
    each = bw.source("listed", bw.step(listed, mode=config.mode), gives=Row).each("named", bw.step(named, mode=config.mode))
    return each.shards("shards", bw.step(sample), by=[], max_samples=10 if config.mode != "plan" else limit)

BENCHMARK = bw.Benchmark("own", "Own", Config, plan)
"""


@pytest.mark.parametrize(("mode", "line"), [("name", "return Row(row.key, row.fiel"), ("plan", "return each.shards(")])
def test_an_error_in_code_of_ones_own_gives_file_and_line(mode: str, line: str, tmp_path: Path, bw: Cli) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(f'mode = "{mode}"')
    told = bw("run", tmp_path / "own.py", "--out", tmp_path / "out", "-q")
    number = next(at for at, text in enumerate(OWN.splitlines(), 1) if line in text)
    assert told.code == 1
    assert told.err.endswith(f"({tmp_path}/own.py, line {number})\n")
    assert told.err.count("\n") == 1


def test_a_repeated_key_is_told_with_both_of_its_rows(tmp_path: Path, bw: Cli) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text('mode = "twice"')
    told = bw("run", tmp_path / "own.py", "--out", tmp_path / "out", "-q")
    assert "shard 'data-00000': key 'a' is on rows 0 and 1 of stage 'placed', of file 'one.txt' and 'two.txt': " in told.err
    assert "take_first" in told.err


def test_settings_that_are_none_of_the_benchmarks(tmp_path: Path, bw: Cli) -> None:
    out = tmp_path / "out"
    assert "there are own, scaled, tiny; clear has one of that name" in bw("run", "kowl", "--config", "demo", "--out", out).err
    told = bw("run", "kowl", "--config", tmp_path, "--out", out)
    assert told.err == f"benchwright: config '{tmp_path}' cannot be read: Is a directory\n"
    assert told.code == 2


@pytest.mark.parametrize("command", ["train", "eval", "report", "show", "verify"])
def test_a_folder_without_a_run_says_what_makes_one(command: str, tmp_path: Path, bw: Cli) -> None:
    told = bw(command, tmp_path)
    assert told.err.endswith("it has no run.json; `benchwright run ... --out` makes one\n")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_source_of_the_wrong_sort_names_its_setting(what: str, tmp_path: Path, bw: Cli) -> None:
    place = tmp_path / "in"
    place.write_bytes(b"") if what == "file" else place.mkdir()
    told = bw("run", "vclimb", "--config", "segments", "--set", f"videos.root={place}", "--out", tmp_path / "out", "-q")
    assert told.code == 1
    assert told.err.endswith(" (videos.root)\n")
    assert str(place) in told.err
