"""Splits and increments: first come first assigned, both presets, every rule of folds, and the orders of rows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.datasets.kowl.facts import facts
from benchwright.datasets.kowl.increments import (
    BLOCKS,
    Later,
    Plan,
    assign_increments,
    class_cuts,
    folds,
    increment_class_order,
    plan_increments,
    positions,
)
from benchwright.datasets.kowl.introsort import introsort_order
from benchwright.datasets.kowl.splits import Turn, assign_splits
from benchwright.datasets.kowl.tables import as_text, class_density, increment_table, published_table
from benchwright.datasets.roles import ROLES
from sklearn.model_selection import StratifiedKFold

from tests.datasets.kowl_rows import gathered, stored


def test_classes_an_increment_as_published() -> None:
    published = facts().increments
    for total, count, released, written in zip(
        facts().labels.novel, published.count, published.classes, published.classes_as_written, strict=True
    ):
        assert tuple(np.diff(class_cuts(total, count, "as_released"))) == released
        assert tuple(np.diff(class_cuts(total, count, "as_written"))) == written
    # ceil may leave nothing for the last increments, and floor nothing for the first.
    assert np.diff(class_cuts(6, 4, "as_released")).tolist() == [2, 2, 2, 0]
    assert np.diff(class_cuts(3, 4, "as_written")).tolist() == [0, 0, 0, 3]


def test_equal_counts_lie_as_the_sort_of_the_preset_leaves_them() -> None:
    counts = np.asarray([5, 2, 5, 2, 9])
    assert increment_class_order(counts, "rarest_first").tolist() == [1, 3, 0, 2, 4]
    assert increment_class_order(counts, "as_written").tolist() == [4, 0, 2, 1, 3]
    many = np.arange(17) * 5 % 7
    assert increment_class_order(many, "rarest_first").tolist() == np.argsort(many, kind="stable").tolist()
    assert increment_class_order(many, "as_released").tolist() == [0, 14, 7, 3, 10, 13, 6, 9, 16, 2, 5, 12, 1, 15, 8, 4, 11]


def median_of_three_killer(count: int) -> list[int]:
    """Values on which quicksort takes the worst cut again and again, so that heapsort takes over."""
    values, half = [0] * count, count // 2
    for i in range(1, half + 1):
        if i % 2:
            values[i - 1], values[i] = i, half + i
        values[half + i - 1] = 2 * i
    return [value // 5 for value in values]


@pytest.mark.parametrize(
    ("values", "digest"),
    [
        ([n * 5 % 7 for n in range(16)], "5312bf3e9d05fd27"),
        ([n * 37 % 11 for n in range(82)], "3cc2afb900a5532d"),
        ([n * 61 % 40 for n in range(227)], "3951b900ce9ec34c"),
        ([n % 3 for n in range(500)], "26e0f7a267f3581a"),
        (median_of_three_killer(400), "8ecb1c2e96a77f6c"),
    ],
    ids=["insertion", "82", "227", "500", "heapsort"],
)
def test_the_sort_of_the_released_code(values: list[int], digest: str) -> None:
    """Digests of what ``numpy.argsort`` of numpy 1.23.5 gives, on a processor with AVX-512."""
    found = introsort_order(values)
    assert np.asarray(values)[found].tolist() == sorted(values)
    assert hashlib.sha256(json.dumps(found.tolist()).encode()).hexdigest()[:16] == digest


def test_folds_are_those_of_scikit_learn() -> None:
    labels = np.repeat(np.arange(4), [7, 12, 5, 9])
    split = StratifiedKFold(5, shuffle=True, random_state=3).split(np.zeros(33), labels.astype(str))
    assert [f.tolist() for f in folds(labels, 5, 3)] == [places.tolist() for _, places in split]
    assert [f.tolist() for f in folds(labels[:0], 3, 0)] == [[], [], []]
    assert [len(f) for f in folds(labels, 1, 0)] == [33]


# ------------------------------------------------------------------------------------------------------------- splits


def samples(*splits: tuple[str | None, str | None]) -> pa.Table:
    old, new = (pa.array(list(column), pa.string()) for column in zip(*splits, strict=True))
    return pa.table({"key": [f"k{n}" for n in range(len(splits))], "split_old": old, "split_new": new})


TURNS = [
    Turn("old", "train", "train"),
    Turn("old", "test", "test"),
    Turn("new", "train", "train"),
    Turn("new", "validate", "test"),
]


def test_first_come_first_assigned(tmp_path: Path) -> None:
    table = samples(("train", "validate"), (None, "validate"), ("validate", "train"), ("test", "train"), (None, "test"))
    kept, rejects = gathered(assign_splits(stored(tmp_path, table.slice(0, 2), table.slice(2)), turns=TURNS, seed=0))
    found = {r["key"]: (r["taken_release"], r["taken_split"], r["role"]) for r in kept.to_pylist()}
    assert found == {
        "k0": ("old", "train", "train"),
        "k1": ("new", "validate", "test"),
        "k2": ("new", "train", "train"),
        "k3": ("old", "test", "test"),
    }
    assert rejects == [("k4", "in_no_turn", "")]


def test_a_share_can_be_held_out(tmp_path: Path) -> None:
    table = samples(*[(None, "train")] * 4000)
    rows = stored(tmp_path, table.slice(0, 1500), table.slice(1500))
    turns = [Turn("new", "train", "train", held_out=0.25)]
    kept, _ = gathered(assign_splits(rows, turns=turns, seed=0))
    again, _ = gathered(assign_splits(stored(tmp_path / "whole", table), turns=turns, seed=0))
    assert kept["role"].to_pylist() == again["role"].to_pylist()
    assert 900 < kept["role"].to_pylist().count("test") < 1100
    other, _ = gathered(assign_splits(rows, turns=turns, seed=1))
    assert other["role"].to_pylist() != kept["role"].to_pylist()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_turn_refuses_a_share(share: float) -> None:
    with pytest.raises(ValueError, match=f"release old: held_out is {share}: a share from 0 to below 1"):
        Turn("old", "train", "train", share)


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([Turn("old", "train", "dev")], "role 'dev'"),
        ([TURNS[0], TURNS[0]], "is listed twice"),
        ([Turn("newest", "train", "train")], "no release 'newest'"),
    ],
)
def test_turns_refuse(tmp_path: Path, turns: list[Turn], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(assign_splits(stored(tmp_path, samples(("train", None))), turns=turns, seed=0))


# --------------------------------------------------------------------------------------------------------- increments


def drawn(seed: int, classes: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three releases with classes of all sizes; some in val and test alone."""
    generator = np.random.default_rng(seed)
    label, role, release = [], [], []
    for age, (low, high) in enumerate([(0, 15), (5, 30), (10, classes)]):
        for number in range(low, high):
            for what in range(3):
                count = int(generator.choice([0, 1, 2, 3, 4, 5, 6, 9, 20]))
                label += [number] * count
                role += [what] * count
                release += [age] * count
    order = generator.permutation(len(label))
    return tuple(np.asarray(column)[order] for column in (label, role, release))


def by_hand(label, role, release, later, preset) -> dict[int, tuple[int, bool, str, int]]:
    """The released ``get_increments`` row by row, in plain Python: index -> (increment, novel, block, brought by)."""
    out = {}
    known = {int(label[i]) for i in range(len(label)) if release[i] == 0 and role[i] == 0}
    for i in range(len(label)):
        if release[i] == 0:
            strange = int(label[i]) not in known
            out[i] = (0, strange, "never_trained" if strange else "known", 0)
    base = 1
    for age, (count, seed) in enumerate(later, 1):
        rows = [[i for i in range(len(label)) if release[i] == age and role[i] == what] for what in range(3)]
        train = [int(label[i]) for i in rows[0]]
        new = sorted(set(train) - known)
        if preset == "as_released":
            new = [new[n] for n in introsort_order([train.count(c) for c in new])]
        else:
            new.sort(key=lambda c: (train.count(c) * (-1 if preset == "as_written" else 1), c))
        size = len(new) // count if preset == "as_written" else -(-len(new) // count)
        batches = [new[n * size : (n + 1) * size] if n < count - 1 else new[n * size :] for n in range(count)]

        def deal(some, parts, seed=seed):
            """Fold of each row of ``some``."""
            if parts == 1:
                return dict.fromkeys(some, 0)
            split = StratifiedKFold(parts, shuffle=True, random_state=seed).split(some, [str(label[i]) for i in some])
            return {some[place]: fold for fold, (_, places) in enumerate(split) for place in places}

        for mine in rows:
            sizes = {c: sum(int(label[i]) == c for i in mine) for c in set(map(int, label))}
            old = [i for i in mine if int(label[i]) in known]
            out |= {i: (base, False, "known_small", 0) for i in old if sizes[int(label[i])] <= count}
            dealt = [i for i in old if sizes[int(label[i])] > count]
            if dealt:
                out |= {i: (base + fold, False, "known", 0) for i, fold in deal(dealt, count).items()}
            never = [i for i in mine if int(label[i]) not in known and int(label[i]) not in new]
            if any(sizes[int(label[i])] >= count for i in never):
                out |= {i: (base + fold, True, "never_trained", 0) for i, fold in deal(never, count).items()}
            else:
                out |= dict.fromkeys(never, (base, True, "never_trained", 0))
            for n, batch in enumerate(batches):
                fresh = [i for i in mine if int(label[i]) in batch]
                out |= {i: (base + n, True, "novel_small", 0) for i in fresh if sizes[int(label[i])] < count - n}
                dealt = [i for i in fresh if sizes[int(label[i])] >= count - n]
                for i, fold in deal(dealt, count - n).items() if dealt else ():
                    out[i] = (base + n + fold, not fold, "persisted" if fold else "novel", base + n if fold else 0)
        known |= set(new)
        base += count
    return out


@pytest.mark.filterwarnings("ignore:The least populated class")
@pytest.mark.parametrize("preset", ["as_released", "rarest_first", "as_written"])
@pytest.mark.parametrize("seed", range(4))
def test_against_the_rules_row_by_row(seed: int, preset) -> None:
    label, role, release = drawn(seed)
    later = [(3, 0), (4, 1)] if seed % 2 else [(5, 0), (1, 1)]
    plan = plan_increments(label, role, release, later=later, preset=preset)
    expected = by_hand(label, role, release, later, preset)
    found = zip(
        plan.increment.tolist(), plan.novel.tolist(), (BLOCKS[b] for b in plan.block), plan.earlier.tolist(), strict=True
    )
    assert dict(enumerate(found)) == expected
    # An increment begins to know what training has brought by then, and no novel training row is known.
    first = {c: min(plan.increment[(label == c) & (role == 0)], default=99) for c in range(40)}
    trained = role == 0
    assert all(plan.novel[i] == (first[label[i]] == plan.increment[i] > 0) for i in np.flatnonzero(trained))


def hand_made() -> tuple[Plan, np.ndarray]:
    """One increment of test rows: known, small known, a small novel class, a fold, two persisted folds, one never trained."""
    block = np.asarray([5, 3, 1, 4, 5, 2, 1, 3, 0])
    earlier = np.asarray([2, 0, 0, 0, 1, 0, 0, 0, 0])
    novel = np.isin(block, [2, 3, 4])
    return Plan(np.full(9, 3), novel, block, earlier, ()), np.full(9, 2)


def test_the_released_order_of_rows() -> None:
    plan, role = hand_made()
    place = positions(plan, role, order="as_released", draws=lambda: np.empty(0), seed=0)
    # Small known classes, known, never trained, this increment's fold, its small classes, the folds of increments 1 and 2.
    assert np.argsort(place).tolist() == [8, 2, 6, 5, 1, 7, 3, 4, 0]


def test_increment_0_stands_in_the_order_of_the_lists() -> None:
    label = np.array([0, 7, 1, 0, 7, 1])  # class 7 is never trained
    role = np.array([2, 2, 2, 0, 2, 0])
    plan = plan_increments(label, role, np.zeros(6, int), later=[], preset="as_released")
    place = positions(plan, role, order="as_released", draws=lambda: np.empty(0), seed=0)
    assert place[role == 2].tolist() == [0, 1, 2, 3]
    assert plan.novel.tolist() == [False, True, False, False, True, False]


def test_shuffled_and_interleaved_orders() -> None:
    label, role, release = drawn(9)
    plan = plan_increments(label, role, release, later=[(5, 0), (5, 1)], preset="as_released")
    draws = np.random.default_rng(0).random(len(label))
    group = plan.increment * 3 + role
    for order in ("as_released", "shuffled", "interleaved"):
        place = positions(plan, role, order=order, draws=lambda: draws, seed=0)
        for number in np.unique(group):
            assert sorted(place[group == number]) == list(range((group == number).sum()))
        if order == "shuffled":
            mine = np.flatnonzero(group == group[0])
            assert mine[np.argsort(place[mine])].tolist() == mine[np.argsort(draws[mine])].tolist()
    with pytest.raises(ValueError, match="'sorted'"):
        positions(plan, role, order="sorted", draws=lambda: draws, seed=0)  # type: ignore[arg-type]


def test_interleaved_blocks_are_spread_evenly() -> None:
    block = np.repeat([1, 3], [90, 10])
    plan = Plan(np.ones(100, dtype=np.int64), block == 3, block, np.zeros(100, dtype=np.int64), ())
    for seed in range(5):
        place = positions(plan, np.zeros(100, dtype=np.int64), order="interleaved", draws=lambda: np.empty(0), seed=seed)
        assert np.diff(place[:90]).min() > 0  # a block keeps its own order
        assert np.diff(place[90:]).min() > 0
        assert set(np.diff(place[90:]).tolist()) <= {9, 10, 11}


def frame(seed: int) -> pa.Table:
    label, role, release = drawn(seed)
    return pa.table(
        {
            "key": [f"k{n:05d}" for n in range(len(label))],
            "label_recent_first": [f"class {n:02d}" for n in label],
            "role": [ROLES[n] for n in role],
            "taken_release": [("a", "b", "c")[n] for n in release],
            "extra": np.arange(len(label)),
        }
    )


LATER = [Later("b", 5, 0), Later("c", 5, 1)]


def test_the_step_gives_every_row_once_in_the_order_of_the_stream(tmp_path: Path) -> None:
    table = frame(1)
    rows = stored(tmp_path, table.slice(0, 100), table.slice(100))
    facts_ = {"first": "a", "later": LATER, "preset": "as_released", "order": "shuffled", "seed": 4}
    parts = list(assign_increments(rows, **facts_))
    assert all(len(set(zip(part["increment"].to_pylist(), part["role"].to_pylist(), strict=True))) == 1 for part in parts)
    found = pa.concat_tables(parts)
    order = [(r["increment"], ROLES.index(r["role"]), r["position"]) for r in found.to_pylist()]
    assert order == sorted(set(order))
    assert (
        found.sort_by("key")
        .select(table.column_names)
        .equals(table.sort_by("key").cast(found.select(table.column_names).schema))
    )
    whole = pa.concat_tables(assign_increments(stored(tmp_path / "whole", table), **facts_))
    assert whole.equals(found)


@pytest.mark.parametrize(
    ("facts_", "message"),
    [
        ({"preset": "as_is"}, "preset is 'as_is'"),
        ({"later": [Later("b", 0, 0), LATER[1]]}, "in 0 increments"),
        ({"later": LATER[:1]}, "release 'c' is not one of a, b"),
    ],
)
def test_increments_refuse(tmp_path: Path, facts_: dict, message: str) -> None:
    facts_ = {"first": "a", "later": LATER, "preset": "as_released", "order": "as_released", "seed": 0, **facts_}
    with pytest.raises(ValueError, match=message):
        list(assign_increments(stored(tmp_path, frame(1)), **facts_))


def test_tables(tmp_path: Path) -> None:
    rows = pa.concat_tables(
        assign_increments(stored(tmp_path, frame(2)), first="a", later=LATER, preset="as_released", order="as_released", seed=0)
    )
    table = increment_table(rows)
    plain = rows.to_pylist()
    for line in table.to_pylist():
        at = line["increment"]
        before = {r["label_recent_first"] for r in plain if r["role"] == "train" and r["increment"] < max(at, 1)}
        assert line["known_classes"] == len(before)
        for role in ROLES:
            mine = [r for r in plain if r["increment"] == at and r["role"] == role]
            fresh = [r["label_recent_first"] for r in mine if r["novel"]]
            assert (line[f"{role}_known"], line[f"{role}_novel"]) == (len(mine) - len(fresh), len(fresh))
            assert line[f"{role}_novel_classes"] == len(set(fresh))
            # Of train, novel is what was not known before; val and test have classes that are never trained as well.
            assert at == 0 or not before & set(fresh)
    one = published_table(table).to_pylist()
    assert one[0]["test_known"] == table["test_known"][0].as_py()
    assert one[4]["test_novel"] == table["test_novel"][4].as_py() + table["val_novel"][4].as_py()
    text = as_text(table).splitlines()
    assert len(text) == 12
    assert len(set(map(len, text))) == 1


def test_class_density(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "increment": [0, 0, 0, 0, 1],
            "role": ["train", "train", "train", "test", "train"],
            "novel": [False, False, False, True, True],
            "label_recent_first": ["b", "a", "b", "c", "c"],
        }
    )
    assert [tuple(row.values()) for row in class_density(rows).to_pylist()] == [
        (0, "train", 1, "b", 2, pytest.approx(2 / 3), False),
        (0, "train", 2, "a", 1, pytest.approx(1 / 3), False),
        (0, "test", 1, "c", 1, 1.0, True),
        (1, "train", 1, "c", 1, 1.0, True),
    ]
