"""Kills, flipped bits and a full disk, on one small run."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from attack import flips, full_disk, kills
from benchwright.curation.rng import rng

SMALL = kills.Command(
    "two_camera",
    ("run", "two_camera", "--config", "tiny", "--set", "source.pairs=60", "--set", "evaluation.networks={}", "--train"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A finished run, trained and reported, and its digests."""
    out = tmp_path_factory.mktemp("whole") / "out"
    process = kills.begin(SMALL.arguments, out, "threads")
    _, told = process.communicate()
    assert process.returncode == 0, told
    return out, kills.digests(out)


def test_killed_runs_end_in_the_same_bytes(whole: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    told: list[str] = []
    lane = kills.Lane(SMALL, tmp_path / "out", rng(0, "kills"), told.append)
    lane.go(3, whole[1], 3.0)
    assert told == []
    assert lane.counts["inputs"] >= 3
    assert lane.counts["done"] >= 1


def test_every_flipped_bit_is_named(whole: tuple[Path, dict[str, str]]) -> None:
    told: list[str] = []
    counts = flips.flipped(0, 24, whole[0], "two_camera", told.append)
    assert told == []
    assert counts == Counter(inputs=24, done=24)


def test_a_full_disk_is_told_in_a_line_and_mended_by_room(whole: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    told: list[str] = []
    counts: Counter[str] = Counter()
    size = sum(path.stat().st_size for path in whole[0].rglob("*") if path.is_file())
    full_disk.one(SMALL, size // 2, tmp_path / "small", whole[1], counts, told.append)
    assert told == []
    assert counts == Counter(inputs=1, done=1)


def test_a_run_of_other_bytes_is_found(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(name.encode())
        (tmp_path / name / "made.json").write_text(name)
    assert kills.differing(kills.digests(tmp_path / "one"), kills.digests(tmp_path / "two")) == ["a"]


def test_the_attack_has_help() -> None:
    command = Path(__file__).resolve().parents[2] / "benchmarks/attack"
    told = subprocess.run([__import__("sys").executable, str(command), "--help"], capture_output=True, text=True)
    assert told.returncode == 0
    assert "--long" in told.stdout
