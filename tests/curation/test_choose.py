"""The final choice against a slow rendering in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.rng import uniform
from benchwright.curation.run import run
from benchwright.curation.stage_rows import Rows
from benchwright.curation.stages.choose import Labelled, choose, class_order

CLASSES = ("BACKGROUND", "bus", "camera")


@dataclass(frozen=True)
class Clean:
    key: str
    bucket: int
    concept: str
    score: float


def clean(*, each: int, seed: int, skip: int = 0) -> Iterator[Clean]:
    """Rows in no order, with scores that tie often; ``skip`` rows fewer of class bus in bucket 1."""
    rng = np.random.default_rng(seed)
    rows = [(b, c) for b in range(2) for c in CLASSES for _ in range(each - (skip if (b, c) == (1, "bus") else 0))]
    for number, place in enumerate(rng.permutation(len(rows)).tolist()):
        bucket, concept = rows[place]
        score = float(rng.integers(0, 9)) / 10 * (-1 if concept == "BACKGROUND" else 1)
        yield Clean(f"k{number * 7919 % 10007:05d}", bucket, concept, score)


def plan(*, method: str, per_class: int = 5, each: int = 20, skip: int = 0, on_shortage: str = "error", seed: int = 3) -> Flow:
    settings = {"classes": CLASSES, "per_class": per_class, "method": method, "seed": seed, "on_shortage": on_shortage}
    return source("clean", step(clean, each=each, seed=1, skip=skip)).whole(
        "chosen", step(choose, background="BACKGROUND", **settings), gives=Labelled, max_rejects=None
    )


def chosen(out: Path, **settings: object) -> tuple[Rows, list[dict[str, object]], dict[str, int]]:
    done = run(plan(**settings), str(out), scheduler="sync")  # type: ignore[arg-type]
    return done.rows("clean"), done.rows().table().to_pylist(), dict(done.result.rejects)


def test_top_score_takes_the_best_and_of_the_background_the_most_negative(tmp_path: Path) -> None:
    before, after, rejects = chosen(tmp_path, method="top_score")
    expected: list[str] = []
    for bucket in range(2):
        for name in CLASSES:
            mine = [r for r in before.table().to_pylist() if (r["bucket"], r["concept"]) == (bucket, name)]
            sign = 1 if name == "BACKGROUND" else -1
            expected += [r["key"] for r in sorted(mine, key=lambda r: (sign * r["score"], r["key"]))[:5]]
    assert sorted(row["key"] for row in after) == sorted(expected)
    assert rejects == {"not_chosen": 90}


def test_random_draws_by_key(tmp_path: Path) -> None:
    before, after, _ = chosen(tmp_path / "a", method="random")
    rows = before.table().to_pylist()
    draws = dict(zip([r["key"] for r in rows], uniform(3, "choose", [r["key"] for r in rows]), strict=True))
    for bucket in range(2):
        for name in CLASSES:
            mine = [r["key"] for r in rows if (r["bucket"], r["concept"]) == (bucket, name)]
            found = {r["key"] for r in after if (r["bucket"], r["concept"]) == (bucket, name)}
            assert found == set(sorted(mine, key=draws.__getitem__)[:5])
    _, other, _ = chosen(tmp_path / "b", method="random", seed=4)
    assert {r["key"] for r in other} != {r["key"] for r in after}


def test_the_order_stays_and_labels_are_added(tmp_path: Path) -> None:
    before, after, _ = chosen(tmp_path, method="random")
    keys = before.table(["key"])["key"].to_pylist()
    assert [r["key"] for r in after] == [k for k in keys if k in {r["key"] for r in after}]
    assert all(CLASSES[r["label"]] == r["class_name"] == r["concept"] for r in after)


def test_a_shortage_stops_or_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="choose: too few rows: bucket 1 'bus' 3 of 5"):
        chosen(tmp_path / "a", method="random", skip=17)
    _, after, _ = chosen(tmp_path / "b", method="random", skip=17, on_shortage="keep")
    assert len(after) == 28
    assert "bucket 1 'bus' 3 of 5" in caplog.text
    caplog.clear()
    assert chosen(tmp_path / "d", method="random", skip=17, on_shortage="quiet")[1] == after
    assert caplog.text == ""
    with pytest.raises(RuntimeError, match="bucket 1 'bus' 0 of 5"):
        chosen(tmp_path / "c", method="top_score", skip=20)


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    rows = run(source("clean", step(clean, each=2, seed=1)), str(tmp_path), scheduler="sync").rows()
    with pytest.raises(ValueError, match="concept 'camera' is not among the classes bus"):
        list(choose(rows, classes=("bus", "BACKGROUND"), per_class=1, method="random", seed=0))
    with pytest.raises(ValueError, match="method is 'best'"):
        list(choose(rows, classes=CLASSES, per_class=1, method="best", seed=0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per_class 0"):
        list(choose(rows, classes=CLASSES, per_class=0, method="random", seed=0))


def test_class_order_is_alphabetical_with_the_background_first() -> None:
    assert class_order(["soccer", "bus", "BACKGROUND"], "BACKGROUND") == ("BACKGROUND", "bus", "soccer")
    assert class_order(["soccer", "bus"]) == ("bus", "soccer")
