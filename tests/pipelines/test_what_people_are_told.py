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
