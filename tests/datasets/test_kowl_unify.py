"""One table over the releases: labels, renames, what is rejected and why; and what labels become."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.datasets.kowl import unify as unify_module
from benchwright.datasets.kowl.tables import transition_counts, transitions
from benchwright.datasets.kowl.unify import unified_row, unify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.datasets.kowl_rows import gathered, stored

RELEASES = ("r4", "r6", "r7")
SPLITS = ("train", "validate", "test")


def listed(*rows: tuple) -> pa.Table:
    """Rows of (release, split, label, id[, start])."""
    full = [(*row, 0)[:5] for row in rows]
    columns = [list(column) for column in zip(*full, strict=True)]
    names = ["release", "split", "label", "youtube_id", "time_start"]
    kinds = [pa.string()] * 4 + [pa.int64()]
    table = pa.table({name: pa.array(v, kind) for name, v, kind in zip(names, columns, kinds, strict=True)})
    table = table.append_column("time_end", pa.array([start + 10 for start in columns[4]]))
    return table.add_column(0, "key", pa.array([f"row{n}" for n in range(len(full))]))


def unified(folder: Path, *rows: tuple, **facts) -> tuple[dict[str, dict], dict[str, str]]:
    """Samples by uid, and reasons by key."""
    given_facts = {"releases": RELEASES, "renames": {}, **facts}
    table, rejects = gathered(unify(stored(folder, listed(*rows)), **given_facts))
    return {row["key"]: row for row in table.to_pylist()}, {key: reason for key, reason, _ in rejects}


def test_the_most_recent_label_counts(tmp_path: Path) -> None:
    samples, rejects = unified(
        tmp_path,
        ("r7", "train", "c", "a"),
        ("r4", "train", "a", "a"),
        ("r6", "validate", "b", "a"),
        ("r6", "train", "b", "b"),
        ("r4", "test", "a", "b", 3),
        ("r7", "test", None, "b"),
    )
    a = samples.pop("a_000000_000010")
    assert (a["label_recent_first"], a["label_release"]) == ("c", "r7")
    assert [a[f"label_{r}"] for r in RELEASES] == ["a", "b", "c"]
    assert [a[f"split_{r}"] for r in RELEASES] == ["train", "validate", "train"]
    assert (a["source_key"], a["release"], a["split"], a["label"]) == ("row1", "r4", "train", "a")
    assert {uid: (row["label_recent_first"], row["split_r7"]) for uid, row in samples.items()} == {
        "b_000000_000010": ("b", "test"),
        "b_000003_000013": ("a", None),
    }
    assert rejects == {"row0": "merged", "row2": "merged", "row5": "merged"}


def test_only_labels_of_the_oldest_release_are_renamed(tmp_path: Path) -> None:
    rows = [("r4", "train", "making bed", "a"), ("r4", "train", "making bed", "b"), ("r6", "train", "making bed", "b")]
    samples, _ = unified(tmp_path, *rows, renames={"making bed": "making the bed"})
    assert [row["label_recent_first"] for row in samples.values()] == ["making the bed", "making bed"]
    assert [row["label_r4"] for row in samples.values()] == ["making bed", "making bed"]


def test_rows_that_cannot_stand(tmp_path: Path) -> None:
    samples, rejects = unified(
        tmp_path,
        ("r4", "train", "x", "twice"),
        ("r4", "train", "x", "twice"),
        ("r4", "test", "x", "twice"),
        ("r4", "train", "x", "conflict"),
        ("r4", "validate", "y", "conflict"),
        ("r6", "train", "y", "conflict"),
        ("r6", "test", None, "both-forms"),
        ("r6", "test", "z", "both-forms"),
        ("r7", "test", None, "nobody-knows"),
        ("r6", "test", None, "nobody-knows"),
    )
    assert rejects == {
        "row1": "duplicate_row",
        "row2": "duplicate_row",
        "row3": "conflicting_labels",
        "row4": "conflicting_labels",
        "row6": "duplicate_row",
        "row8": "merged",
        "row9": "unlabelled",
    }
    # What another release says of a sample on which one contradicts itself still stands.
    assert {row["source_key"]: row["label_recent_first"] for row in samples.values()} == {"row0": "x", "row5": "y", "row7": "z"}


def test_orders(tmp_path: Path) -> None:
    rows = [("r6", "train", "x", "a"), ("r4", "test", "x", "b"), ("r4", "train", "x", "d"), ("r4", "train", "x", "c")]
    assert list(unified(tmp_path / "1", *rows)[0]) == [f"{i}_000000_000010" for i in "dcba"]
    assert list(unified(tmp_path / "2", *rows, order="identity")[0]) == [f"{i}_000000_000010" for i in "abcd"]


@pytest.mark.parametrize(
    ("normalise", "labels"),
    [
        ([], ["throwing ball (not in game)", "Throwing-ball", "throwing  ball", "throwing ball"]),
        (["case"], ["throwing ball (not in game)", "Throwing-ball", "throwing  ball", "throwing ball"]),
        (["spaces"], ["throwing ball (not in game)", "Throwing-ball", "throwing ball", "throwing ball"]),
        (["brackets", "spaces"], ["throwing ball", "Throwing-ball", "throwing ball", "throwing ball"]),
    ],
)
def test_normalisation_takes_the_most_recent_spelling(tmp_path: Path, normalise: list, labels: list[str]) -> None:
    rows = [
        ("r4", "train", "throwing ball (not in game)", "a"),
        ("r4", "train", "Throwing-ball", "b"),
        ("r6", "train", "throwing  ball", "c"),
        ("r7", "train", "throwing ball", "d"),
    ]
    samples, _ = unified(tmp_path, *rows, normalise=normalise)
    assert [row["label_recent_first"] for row in samples.values()] == labels


def test_case_and_punctuation(tmp_path: Path) -> None:
    rows = [("r4", "train", "Tai-Chi", "a"), ("r6", "train", "taichi", "b")]
    assert {r["label_recent_first"] for r in unified(tmp_path / "1", *rows, normalise=["case", "punctuation"])[0].values()} == {
        "taichi"
    }
    assert len({r["label_recent_first"] for r in unified(tmp_path / "2", *rows, normalise=["case"])[0].values()}) == 2


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'r9' is not among r4, r6, r7"):
        unified(tmp_path, ("r9", "train", "x", "a"))
    with pytest.raises(ValueError, match="each once"):
        unified(tmp_path, ("r4", "train", "x", "a"), releases=["r4", "r4"])
    with pytest.raises(ValueError, match="'stem'"):
        unified(tmp_path, ("r4", "train", "x", "a"), normalise=["stem"])


def test_columns_are_named_by_the_releases() -> None:
    assert list(unified_row(("old", "new")).__dataclass_fields__) == [
        "key", "source_key", "label_old", "label_new", "split_old", "split_new", "label_recent_first", "label_release",
    ]  # fmt: skip
    assert unified_row(RELEASES) is unified_row(RELEASES)


row = st.tuples(
    st.sampled_from(RELEASES),
    st.sampled_from(SPLITS),
    st.sampled_from(["x", "y", None]),
    st.sampled_from("abcd"),
    st.sampled_from([0, 5]),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(row, min_size=1, max_size=25), at_once=st.sampled_from([1, 3, 100]), held=st.sampled_from([4, 1000]))
def test_against_a_plain_reading(tmp_path_factory, rows: list[tuple], at_once: int, held: int) -> None:
    samples, rejects = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unify_module, "ROWS_AT_ONCE", at_once)
        patch.setattr(unify_module, "HELD_ROWS", held)
        patch.setattr(unify_module, "_DRAWN", 1)
        samples, rejects = unified(tmp_path_factory.mktemp("rows"), *rows)
    order = sorted(range(len(rows)), key=lambda n: (RELEASES.index(rows[n][0]), SPLITS.index(rows[n][1]), n))
    standing: dict[tuple, dict[str, int]] = {}
    reasons: dict[str, str] = {}
    for n in order:
        release, _, _, *identity = rows[n]
        mine = [m for m in order if rows[m][0] == release and list(rows[m][3:]) == identity]
        labels = {rows[m][2] for m in mine} - {None}
        first = min(mine, key=lambda m: (rows[m][2] is None, order.index(m)))
        if len(labels) > 1:
            reasons[f"row{n}"] = "conflicting_labels"
        elif n != first:
            reasons[f"row{n}"] = "duplicate_row"
        else:
            standing.setdefault(tuple(identity), {})[release] = n
    found = {}
    for identity, places in standing.items():
        chosen, *others = sorted(places.values(), key=order.index)
        reasons |= {f"row{n}": "merged" for n in others}
        label = next((rows[places[r]][2] for r in reversed(RELEASES) if r in places and rows[places[r]][2]), None)
        if label is None:
            reasons[f"row{chosen}"] = "unlabelled"
        else:
            uid = f"{identity[0]}_{identity[1]:06d}_{identity[1] + 10:06d}"
            found[uid] = (f"row{chosen}", label, [r if r in places else None for r in RELEASES])
    assert rejects == reasons
    assert found == {
        uid: (s["source_key"], s["label_recent_first"], [r if s[f"split_{r}"] else None for r in RELEASES])
        for uid, s in samples.items()
    }
    assert [s["source_key"] for s in samples.values()] == [
        f"row{n}" for n in order if f"row{n}" in {f[0] for f in found.values()}
    ]


def pairs(**counts: int) -> pa.Table:
    """Samples labelled ``x`` in the old and ``y`` in the new release, for every ``x_y=count``; ``_`` alone is no label."""
    both = [tuple(name.split("_")) for name, count in counts.items() for _ in range(count)]
    old, new = ([label or None for label in column] for column in zip(*both, strict=True))
    return pa.table({"label_old": pa.array(old, pa.string()), "label_new": pa.array(new, pa.string())})


@pytest.mark.parametrize(
    ("counts", "kinds"),
    [
        ({"a_a": 3}, {"aa": "kept"}),
        ({"a_b": 3}, {"ab": "renamed"}),
        ({"a_b": 3, "a_c": 2}, {"ab": "split", "ac": "split"}),  # hugging: not baby, and baby
        ({"a_a": 3, "a_c": 2}, {"aa": "kept", "ac": "split"}),
        ({"a_c": 3, "b_c": 2}, {"ac": "merged", "bc": "merged"}),
        ({"a_b": 3, "b_b": 9}, {"ab": "merged", "bb": "kept"}),
        ({"a_b": 1, "a_a": 9, "b_b": 9}, {"ab": "moved", "aa": "kept", "bb": "kept"}),
        # A stray sample of a class that stays is no part of another class's renaming.
        ({"a_b": 9, "c_b": 1, "c_c": 9}, {"ab": "renamed", "cb": "moved", "cc": "kept"}),
        ({"a_b": 9, "a_c": 1, "c_c": 9}, {"ab": "renamed", "ac": "moved", "cc": "kept"}),
        # A class that left only for the release's shared samples still stands where others have its name.
        ({"a_b": 2, "_a": 1, "b_b": 1}, {"ab": "moved", "bb": "kept"}),
    ],
)
def test_what_becomes_of_a_label(counts: dict[str, int], kinds: dict[str, str]) -> None:
    edges = transitions(pairs(**counts), ["old", "new"])
    assert {row["from_label"] + row["to_label"]: row["kind"] for row in edges.to_pylist()} == kinds
    shared = {name.replace("_", ""): count for name, count in counts.items() if not name.startswith("_")}
    assert {row["from_label"] + row["to_label"]: row["samples"] for row in edges.to_pylist()} == shared


def test_numbers_for_a_picture() -> None:
    edges = transitions(pairs(a_a=3, b_b=2, c_d=4, e_d=1), ["old", "new"])
    assert [tuple(row.values()) for row in transition_counts(edges).to_pylist()] == [
        ("old", "new", "kept", 2, 2, 5),
        ("old", "new", "merged", 2, 1, 5),
    ]
    assert transitions(pairs(a_a=1), ["old"]).num_rows == 0
