"""Fleiss' kappa against published tables and other libraries' figures; the table of workers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.qa.agreement import votes_kappa, worker_table
from benchwright.curation.qa.votes import VOTES

# Fleiss (1971), table 1: 30 patients, six psychiatrists each, five diagnoses.
FLEISS_1971 = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
# The worked example of Wikipedia's article "Fleiss' kappa": ten subjects, fourteen raters, five categories.
WORKED = [
    *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
    *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
]


def kappa_of(counts: Any) -> float:
    """Of votes in which so many people (items, categories) give an item an answer."""
    rows = [
        {"key": f"{item:03}", "form": "labels", "worker": f"{category} {number}", "labels": [f"class {category}"]}
        for item, row in enumerate(counts)
        for category, count in enumerate(row)
        for number in range(count)
    ]
    return votes_kappa(pa.Table.from_pylist(rows, schema=VOTES), form="labels")


def test_the_table_of_fleiss_1971() -> None:
    counts = np.array([[int(digit) for digit in patient] for patient in FLEISS_1971.split()])
    assert counts.sum(axis=0).tolist() == [26, 26, 30, 55, 43]
    assert round(kappa_of(counts), 3) == 0.430


def test_a_worked_example() -> None:
    assert round(kappa_of(np.array(WORKED)), 3) == 0.210


def test_unequal_numbers_of_raters() -> None:
    """0.02694 is what irrCAC's Fleiss coefficient gives for this table (one item with one rating, one with none)."""
    counts = np.random.default_rng(0).multinomial(5, [0.5, 0.2, 0.2, 0.1], 40)
    counts[3], counts[7], counts[9] = [1, 0, 0, 0], [0, 0, 0, 0], [2, 1, 0, 0]
    assert round(kappa_of(counts), 5) == 0.02694


def test_bounds_and_undefined_cases() -> None:
    assert kappa_of(np.array([[3, 0], [0, 3]])) == 1.0
    assert kappa_of(np.array([[1, 1], [1, 1]])) == -1.0
    assert math.isnan(kappa_of(np.array([[3, 0], [3, 0]])))
    assert math.isnan(kappa_of(np.array([[1, 0], [0, 1]])))
    assert math.isnan(kappa_of(np.zeros((4, 2), dtype=int)))


# statsmodels 0.15's fleiss_kappa gives these for the same tables.
@pytest.mark.parametrize(("name", "kappa"), [("cifar10", 0.1443948845), ("imagenet", 0.4117634886)])
def test_real_votes(shared_data: Path, name: str, kappa: float) -> None:
    records = json.loads((shared_data / "crowd_votes" / f"{name}_mturk.json").read_text())
    kinds = {"given": ["given"], "guessed": ["guessed"], "both": ["given", "guessed"], "neither": []}
    counts = np.array([[record["mturk"][kind] for kind in kinds] for record in records])
    assert kappa_of(counts) == pytest.approx(kappa, abs=1e-9)
    rows = [
        {"key": str(record["id"]), "form": "labels", "worker": str(i), "labels": labels}
        for record in records
        for kind, labels in kinds.items()
        for i in range(record["mturk"][kind])
    ]
    assert votes_kappa(pa.Table.from_pylist(rows, schema=VOTES), form="labels") == pytest.approx(kappa, abs=1e-9)


def vote(worker: str, key: str, answer: list[str] | bool, seconds: float = 10.0) -> dict[str, Any]:
    labels, sensitive = (None, answer) if isinstance(answer, bool) else (answer, None)
    form = "sensitive" if labels is None else "labels"
    return {"key": key, "form": form, "worker": worker, "labels": labels, "sensitive": sensitive, "seconds": seconds}


def test_the_table_of_workers() -> None:
    rows = [vote(worker, f"i{n}", ["bus"]) for n in range(12) for worker in ("good", "fair")]
    rows += [vote("bad", f"i{n}", ["dress"] if n else ["bus"], seconds=1.0) for n in range(12)]
    rows += [vote("good", "g1", []), vote("bad", "g1", ["bus"]), vote("good", "i0", True), vote("good", "i1", False)]
    rows += [vote("lone", "only", ["bus"])]
    table = worker_table(
        pa.Table.from_pylist(rows, schema=VOTES), gold={"g1": "BACKGROUND", "i0": "bus"}, background="BACKGROUND"
    )
    workers = {row["worker"]: row for row in table.to_pylist()}
    assert table["worker"].to_pylist() == ["bad", "good", "fair", "lone"]
    assert workers["good"]["agreement"] == 1.0
    assert workers["good"]["gold_accuracy"] == 1.0
    assert workers["good"]["yes_rate"] == 0.5
    assert workers["good"]["num_sensitive"] == 2
    assert workers["bad"]["agreement"] == pytest.approx(1 / 12)
    assert (workers["bad"]["num_gold"], workers["bad"]["gold_accuracy"]) == (2, 0.5)
    assert workers["bad"]["median_seconds"] == 1.0
    assert workers["bad"]["flags"] == ["low_agreement", "fast"]
    assert workers["fair"]["flags"] == []
    assert workers["fair"]["yes_rate"] is None
    # Nobody else has seen the lone worker's image: there is no majority to agree with.
    assert workers["lone"]["agreement"] is None


def test_few_votes_are_not_flagged_and_low_gold_is() -> None:
    rows = [vote("w", f"g{n}", ["dress"]) for n in range(10)]
    gold = {f"g{n}": "bus" for n in range(10)}
    assert worker_table(pa.Table.from_pylist(rows, schema=VOTES), gold=gold)["flags"].to_pylist() == [["low_gold"]]
    assert worker_table(pa.Table.from_pylist(rows[:9], schema=VOTES), gold=gold)["flags"].to_pylist() == [[]]


def test_yes_and_no_have_their_own_kappa() -> None:
    rows = [
        vote(f"w{i}", key, yes)
        for key, answers in (("a", "YYY"), ("b", "NNN"))
        for i, yes in enumerate(a == "Y" for a in answers)
    ]
    table = pa.Table.from_pylist(rows, schema=VOTES)
    assert votes_kappa(table, form="sensitive") == 1.0
    assert math.isnan(votes_kappa(table, form="labels"))
