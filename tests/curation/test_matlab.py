"""MATLAB files: what is read of them, and damaged ones, at which scipy's reader can crash."""

from __future__ import annotations

import io
import os
import signal
import subprocess

import numpy as np
import pytest
import scipy.io
from benchwright.curation import matlab
from benchwright.curation.matlab import read_mat
from benchwright.curation.rows import MachineFault


def written(*, compressed: bool = False) -> bytes:
    cells = np.empty((1, 3), dtype=object)
    for number in range(3):
        cells[0, number] = np.arange(number + 1)
    names = np.empty((2, 1), dtype=object)
    names[:, 0] = ["first", "second"]
    out = io.BytesIO()
    scipy.io.savemat(
        out, {"parts": cells, "names": names, "level": 12.5, "inner": {"a": 1}, "text": "t"}, do_compression=compressed
    )
    return out.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_and_cells(compressed: bool) -> None:
    found = read_mat(written(compressed=compressed), ["parts", "level", "names", "text"])
    assert list(found) == ["parts", "level", "names", "text"]
    assert [part.ravel().tolist() for part in found["parts"]] == [[0], [0, 1], [0, 1, 2]]
    assert found["level"][0].tolist() == [[12.5]]
    assert [name.ravel().tolist() for name in found["names"]] == [["first"], ["second"]]
    assert found["text"][0].tolist() == ["t"]


@pytest.mark.parametrize(
    ("data", "names", "told"),
    [
        (written(), ["gone"], "no variable 'gone'"),
        (written(), ["inner"], "variable 'inner' holds .*: expected numbers or text"),
        (b"", ["level"], "not a MATLAB file with level"),
        (b"0,1,2\n" * 100, ["level"], "not a MATLAB file with level"),
        (written(compressed=True)[:-40], ["text"], "not a MATLAB file with text"),
        (b"MATLAB 7.3 MAT-file" + bytes(105) + b"\x00\x02IM" + bytes(500), ["level"], "not a MATLAB file with level"),
    ],
)
def test_what_cannot_be_read_is_said(data: bytes, names: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_mat(data, names)


def test_a_crash_of_the_reader_is_an_error_of_the_file() -> None:
    data = bytearray(written())
    data[292] = 18  # the class of the first cell's array: one that there is not, at which scipy 1.17 falls over
    with pytest.raises(ValueError, match="no MATLAB file"):
        read_mat(bytes(data), ["parts"])


def send(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """The next children get these signals as they begin, none where it is 0."""
    left, begun = list(numbers), list[int]()
    run = subprocess.Popen.__init__

    def begin(self, *arguments, **settings):
        run(self, *arguments, **settings)
        begun.append(self.pid)
        if left and (number := left.pop(0)):
            os.kill(self.pid, number)

    monkeypatch.setattr(subprocess.Popen, "__init__", begin)
    return begun


def test_a_reader_that_is_killed_is_tried_again_and_says_nothing_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = send(monkeypatch, signal.SIGKILL)
    assert read_mat(written(), ["level"])["level"][0].tolist() == [[12.5]]
    assert len(begun) == 2
    monkeypatch.undo()
    send(monkeypatch, signal.SIGKILL, signal.SIGKILL)
    with pytest.raises(MachineFault, match="killed from outside by SIGKILL, twice"):
        read_mat(written(), ["level"])


def test_a_reader_that_is_silent_says_nothing_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab, "_WALL_LIMIT_S", 0.5)
    send(monkeypatch, signal.SIGSTOP, signal.SIGSTOP)
    with pytest.raises(MachineFault, match=r"did not answer within 0\.5 s of wall clock, twice"):
        read_mat(written(), ["level"])


def test_a_reader_that_takes_too_long_says_so_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, signal.SIGXCPU, signal.SIGXCPU)
    with pytest.raises(ValueError, match="takes more than 60 s of processor time"):
        read_mat(written(), ["level"])
