"""The paper's Tables 1 and 2 and the numbers of its Figure 3, for any table of increments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ..kinetics.lists import ID
from ..roles import ROLES

NEEDED = ("increment", "role", "novel", "label_recent_first")
"""Columns of samples from which the tables of increments are computed."""


def increment_table(samples: pa.Table) -> pa.Table:
    """Table 2 of the paper: classes and samples of every increment, by role.

    Args:
        samples: table with the columns ``NEEDED``.

    Returns:
        One row per increment, int64: ``increment``; ``known_classes``, trained before it (for increment 0, trained in it);
        ``novel_classes``, introduced by it to training; and for each role ``<role>_known``, ``<role>_novel`` (samples),
        ``<role>_known_classes``, which is ``known_classes``, or 0 if the role has no samples, and ``<role>_novel_classes``,
        those with samples in the role, which also counts classes that are never trained.

    >>> samples = pa.table(
    ...     {
    ...         "increment": [0, 0, 1, 1, 1],
    ...         "role": ["train", "test", "train", "val", "test"],
    ...         "novel": [False, False, True, True, False],
    ...         "label_recent_first": ["diving", "diving", "juggling", "juggling", "diving"],
    ...     }
    ... )
    >>> increment_table(samples).select(["increment", "known_classes", "novel_classes", "val_novel"]).to_pylist()[1]
    {'increment': 1, 'known_classes': 1, 'novel_classes': 1, 'val_novel': 1}
    """
    frame = pl.DataFrame(pl.from_arrow(samples.select(NEEDED)))
    trained = frame.filter(pl.col("role") == "train").group_by("label_recent_first").agg(pl.col("increment").min())
    count = int(frame["increment"].max() or 0) + 1 if frame.height else 0  # pyright: ignore[reportArgumentType]
    first = _by_increment(trained, count)
    known = np.concatenate([first[:1], np.cumsum(first)[:-1]])
    columns: dict[str, np.ndarray] = {"increment": np.arange(count), "known_classes": known}
    columns["novel_classes"] = np.concatenate([np.zeros(min(count, 1), dtype=np.int64), first[1:]])
    for role in ROLES:
        mine = frame.filter(pl.col("role") == role)
        old, new = mine.filter(~pl.col("novel")), mine.filter("novel")
        columns |= {
            f"{role}_known_classes": known * (_by_increment(mine, count) > 0),
            f"{role}_known": _by_increment(old, count),
            f"{role}_novel_classes": _by_increment(new.unique(["increment", "label_recent_first"]), count),
            f"{role}_novel": _by_increment(new, count),
        }
    return pa.table({name: pa.array(column.astype(np.int64)) for name, column in columns.items()})


def _by_increment(frame: pl.DataFrame, count: int) -> np.ndarray:
    """Rows of each of ``count`` increments."""
    return np.bincount(frame["increment"].to_numpy(), minlength=count)


def published_table(table: pa.Table) -> pa.Table:
    """Table 1 of the paper from ``increment_table``: val and test of every increment but the first counted together as test.

    Increment 0 shows only its test samples, as in the paper.

    >>> counts = {"known_classes": [1, 1], "novel_classes": [0, 1], "train_known": [8, 0], "train_novel": [0, 5]}
    >>> counts |= {"val_known": [2, 2], "val_novel": [0, 1], "test_known": [4, 3], "test_novel": [0, 6]}
    >>> published_table(pa.table({"increment": [0, 1], **counts})).select(["test_known", "test_novel"]).to_pylist()
    [{'test_known': 4, 'test_novel': 0}, {'test_known': 5, 'test_novel': 7}]
    """
    later = table["increment"].to_numpy() > 0
    names = ["increment", "known_classes", "novel_classes", "train_known", "train_novel"]
    merged = {
        f"test_{kind}": table[f"test_{kind}"].to_numpy() + later * table[f"val_{kind}"].to_numpy()
        for kind in ("known", "novel")
    }
    return pa.table({name: table[name] for name in names} | {name: pa.array(column) for name, column in merged.items()})


def class_density(samples: pa.Table) -> pa.Table:
    """Numbers of Figure 3: samples of each class in each increment and role.

    Args:
        samples: as for ``increment_table``.

    Returns:
        ``increment``, ``role``, ``rank`` (from 1, the most frequent class of the increment and role first, equal counts in the
        order of names), ``label``, ``samples``, ``share`` (of the increment and role, 0 to 1), ``novel``.

    >>> samples = {"increment": [0] * 4, "role": ["train"] * 4, "novel": [False] * 4}
    >>> table = class_density(pa.table({**samples, "label_recent_first": ["diving", "juggling", "juggling", "juggling"]}))
    >>> table.select(["rank", "label", "samples", "share"]).to_pylist()[0]
    {'rank': 1, 'label': 'juggling', 'samples': 3, 'share': 0.75}
    """
    frame = pl.DataFrame(pl.from_arrow(samples.select(NEEDED))).with_columns(pl.col("role").cast(pl.Enum(ROLES)))
    group = ["increment", "role"]
    counted = frame.group_by(*group, label="label_recent_first").agg(
        samples=pl.len().cast(pl.Int64), novel=pl.col("novel").any()
    )
    counted = counted.sort([*group, "samples", "label"], descending=[False, False, True, False]).with_columns(
        pl.col("role").cast(pl.String),
        rank=(pl.int_range(pl.len()) + 1).over(group),
        share=pl.col("samples") / pl.col("samples").sum().over(group),
    )
    return counted.select("increment", "role", "rank", "label", "samples", "share", "novel").to_arrow()


def as_text(table: pa.Table) -> str:
    """A table of numbers for a terminal: one row per line, right-aligned, thousands apart.

    >>> print(as_text(pa.table({"increment": [0, 1], "train_known": [1234, 56]})), end="")
    increment  train known
            0        1,234
            1           56
    """
    rows = [[name.replace("_", " ") for name in table.column_names]]
    rows += [[f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()] for row in table.to_pylist()]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows) + "\n"


class Recordings(NamedTuple):
    """Recordings that train shares with val and test.

    Attributes:
        clips: number of clips.
        unknown: number of clips whose recording is unknown.
        tested: number of val and test clips with a known recording.
        shared: number of these whose recording also has training clips.

    >>> print(Recordings(clips=40, unknown=0, tested=10, shared=3).summary())
    3 of 10 val and test clips are of a recording that also has clips in train.
    """

    clips: int
    unknown: int
    tested: int
    shared: int

    def summary(self) -> str:
        """The numbers in one or two sentences."""
        if self.shared:
            text = f"{self.shared:,} of {self.tested:,} val and test clips are of a recording that also has clips in train."
        elif self.unknown < self.clips:
            text = f"No {'known ' if self.unknown else ''}recording is in both train and val or test."
        else:
            text = "Whether train shares recordings with val and test is not known."
        if not self.unknown:
            return text
        why = "their lists have neither times in a video nor a group"
        return f"{text} Of {self.unknown:,} of {self.clips:,} clips the recording is unknown: {why} (source.columns.group)."


def recordings(samples: pa.Table, *, youtube: bool = True) -> Recordings:
    """Count clips of val and test that share a recording with train.

    A recording is the value in the column ``group``; else the video of a clip with times, or with a YouTube id. An id of any
    other form, without times, identifies only the clip.

    Args:
        samples: columns ``youtube_id``, ``time_start``, ``role``, and ``group`` if there is one.
        youtube: whether ids of 11 characters are YouTube ids rather than other ids.

    >>> ids, times = ["abcdefghijk", "abcdefghijk", "clip 1", "clip 2"], [0, 10, None, None]
    >>> found = recordings(pa.table({"youtube_id": ids, "time_start": times, "role": ["train", "test", "train", "test"]}))
    >>> found
    Recordings(clips=4, unknown=2, tested=1, shared=1)
    >>> print(found.summary()[:76])
    1 of 1 val and test clips are of a recording that also has clips in train. O
    """
    names = ["youtube_id", "time_start", "role", *(name for name in ("group",) if name in samples.column_names)]
    frame = pl.DataFrame(pl.from_arrow(samples.select(names)))
    group = pl.col("group") if "group" in names else pl.lit(None, pl.String)
    video = pl.col("time_start").is_not_null() | (pl.lit(youtube) & pl.col("youtube_id").str.contains(f"^{ID}$"))
    frame = frame.select(
        train=pl.col("role") == "train",
        of=pl.coalesce("group:" + group, pl.when(video).then("video:" + pl.col("youtube_id"))),
    )
    known = frame.drop_nulls("of")
    tested = known.filter(~pl.col("train"))
    shared = tested.join(known.filter("train"), on="of", how="semi")
    return Recordings(frame.height, frame.height - known.height, tested.height, shared.height)


KINDS = ("kept", "renamed", "split", "merged", "moved")
"""Kinds of changes of a label; see ``transitions``."""


def transitions(samples: pa.Table, releases: Sequence[str]) -> pa.Table:
    """Count the labels of the same samples in a release and the next.

    A name belongs to a release if any of its samples has it. With *x* the earlier and *y* the later label, *y* is *x*'s main
    successor if most samples of *x* that change go to *y*, and *x* is *y*'s main origin if most samples of *y* that
    change come from *x* (for equal counts, the first name). Then

    * ``kept``: *x* is *y*;
    * ``renamed``: *x* is gone, *y* is new, each is the other's main, *x* is the main origin of no other new name and *y*
      the main successor of no other name that is gone;
    * ``split``: *y* is new and *x* its main origin, but *x* stays, or has other new names as well;
    * ``merged``: *x* is gone and *y* its main successor, but *y* is old, or absorbs other names as well;
    * ``moved``: all others: samples with another label, while the classes remain.

    The paper names no rule; this one is ours.

    Args:
        samples: table with columns ``label_<release>``, None if a release has no label.
        releases: names, oldest first.

    Returns:
        ``from_release``, ``to_release``, ``from_label``, ``to_label``, ``samples`` (int64), ``kind``; by pair of releases, then
        by kind in the order of ``KINDS``, descending counts and names.

    >>> table = pa.table({"label_old": ["juggling", "juggling", "diving"], "label_new": ["juggling balls"] * 2 + ["diving"]})
    >>> [(row["from_label"], row["to_label"], row["kind"]) for row in transitions(table, ["old", "new"]).to_pylist()]
    [('diving', 'diving', 'kept'), ('juggling', 'juggling balls', 'renamed')]
    """
    frame = pl.DataFrame(pl.from_arrow(samples.select([f"label_{release}" for release in releases])))
    edges = [_pair(frame, *pair) for pair in itertools.pairwise(releases)]
    return pl.concat(edges).to_arrow() if edges else _empty().to_arrow()


def transition_counts(edges: pa.Table) -> pa.Table:
    """Summary of ``transitions`` for a picture: for each pair of releases and kind, the numbers of old and new labels.

    Returns:
        ``from_release``, ``to_release``, ``kind``, and int64 ``from_labels``, ``to_labels``, ``samples``.

    >>> table = pa.table({"label_old": ["juggling", "juggling", "diving"], "label_new": ["juggling balls"] * 2 + ["diving"]})
    >>> transition_counts(transitions(table, ["old", "new"])).select(["kind", "from_labels", "samples"]).to_pylist()
    [{'kind': 'kept', 'from_labels': 1, 'samples': 1}, {'kind': 'renamed', 'from_labels': 1, 'samples': 2}]
    """
    frame = pl.DataFrame(pl.from_arrow(edges))
    counted = frame.group_by("from_release", "to_release", "kind", maintain_order=True).agg(
        from_labels=pl.col("from_label").n_unique().cast(pl.Int64),
        to_labels=pl.col("to_label").n_unique().cast(pl.Int64),
        samples=pl.col("samples").sum(),
    )
    return counted.to_arrow()


def _pair(frame: pl.DataFrame, old: str, new: str) -> pl.DataFrame:
    before, after = f"label_{old}", f"label_{new}"
    old_names, new_names = frame[before].drop_nulls().unique(), frame[after].drop_nulls().unique()
    edges = (
        frame.filter(pl.col(before).is_not_null() & pl.col(after).is_not_null())
        .group_by(from_label=pl.col(before), to_label=pl.col(after))
        .agg(samples=pl.len().cast(pl.Int64))
    )
    changed = edges.filter(pl.col("from_label") != pl.col("to_label")).sort(
        ["samples", "from_label", "to_label"], descending=[True, False, False]
    )
    changed = changed.with_columns(
        gone=~pl.col("from_label").is_in(new_names.implode()),
        fresh=~pl.col("to_label").is_in(old_names.implode()),
        goes=pl.int_range(pl.len()).over("from_label") == 0,
        comes=pl.int_range(pl.len()).over("to_label") == 0,
    ).with_columns(goes=pl.col("goes") & pl.col("gone"), comes=pl.col("comes") & pl.col("fresh"))
    taken_in = pl.col("goes").sum().over("to_label")
    given_off = pl.col("comes").sum().over("from_label")
    one = pl.col("goes") & pl.col("comes") & (given_off == 1)
    kind = (
        pl.when(one & (taken_in == 1))
        .then(pl.lit("renamed"))
        .when(one)
        .then(pl.lit("merged"))
        .when("comes")
        .then(pl.lit("split"))
        .when("goes")
        .then(pl.lit("merged"))
        .otherwise(pl.lit("moved"))
    )
    kept = edges.filter(pl.col("from_label") == pl.col("to_label")).with_columns(kind=pl.lit("kept"))
    found = pl.concat([kept, changed.with_columns(kind=kind).select(kept.columns)])
    found = found.with_columns(from_release=pl.lit(old), to_release=pl.lit(new), place=pl.col("kind").cast(pl.Enum(KINDS)))
    found = found.sort(["place", "samples", "from_label", "to_label"], descending=[False, True, False, False])
    return found.select(_empty().columns)


def _empty() -> pl.DataFrame:
    text = dict.fromkeys(("from_release", "to_release", "from_label", "to_label"), pl.String)
    return pl.DataFrame(schema={**text, "samples": pl.Int64, "kind": pl.String})
