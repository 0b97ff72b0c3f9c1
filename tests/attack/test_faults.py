"""Kills, flipped bits and a full disk, on one small run."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest
from attack import flips, full_disk, kills
from benchwright.curation.rng import rng


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> kills.Whole:
    """A finished run, trained and reported."""
    return kills.undisturbed(kills.SHORT, tmp_path_factory.mktemp("whole"))


def test_killed_runs_end_in_the_same_bytes(whole: kills.Whole, tmp_path: Path) -> None:
    told: list[str] = []
    lane = kills.Lane(kills.SHORT, tmp_path / "out", rng(0, "kills"), told.append)
    lane.go(1, whole.digests, whole.seconds)
    assert told == []
    assert lane.counts["inputs"] >= 1
    assert lane.counts["done"] >= 1


def test_every_flipped_bit_is_named(whole: kills.Whole) -> None:
    told: list[str] = []
    counts = flips.flipped(0, 12, whole.out, "two_camera", told.append)
    assert told == []
    assert counts == Counter(inputs=12, done=12)


def test_a_full_disk_is_told_in_a_line_and_mended_by_room(whole: kills.Whole, tmp_path: Path) -> None:
    told: list[str] = []
    counts: Counter[str] = Counter()
    untrained = dataclasses.replace(kills.SHORT, arguments=kills.SHORT.arguments[:-1])  # trainings take half of the time
    wanted = {
        name: digest
        for name, digest in whole.digests.items()
        if not name.startswith(("experiments/", ".files.json", "report_tables/"))
    }
    size = sum((whole.out / name).stat().st_size for name in wanted)
    full_disk.one(untrained, size // 2, tmp_path / "small", wanted, counts, told.append)
    assert told == []
    assert counts == Counter(inputs=1, done=1)


def test_a_run_of_other_bytes_is_found(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(name.encode())
        (tmp_path / name / "made.json").write_text(name)
    assert kills.differing(kills.digests(tmp_path / "one"), kills.digests(tmp_path / "two")) == ["a"]


def test_the_attack_has_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["attack", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks/attack"), run_name="__main__")
    assert ended.value.code == 0
    assert "--long" in capsys.readouterr().out
