"""The paper's Tables 1 and 2 and the numbers of its Figure 3, for any table of increments."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from .splits import ROLES


def increment_table(samples: pa.Table) -> pa.Table:
    """Table 2 of the paper: classes and samples of every increment, by role.

    Args:
        samples: with columns ``increment``, ``role``, ``novel``, ``label_recent_first``.

    Returns:
        One row an increment, int64: ``increment``; ``known_classes``, those trained before it (in increment 0, those trained in
        it); ``novel_classes``, those that it brings to training; and for each role ``<role>_known``, ``<role>_novel``
        (samples) and ``<role>_novel_classes``, which also counts classes that are never trained.
    """
    names = ["increment", "role", "novel", "label_recent_first"]
    frame = pl.DataFrame(pl.from_arrow(samples.select(names)))
    trained = frame.filter(pl.col("role") == "train").group_by("label_recent_first").agg(pl.col("increment").min())
    count = int(frame["increment"].max() or 0) + 1 if frame.height else 0  # pyright: ignore[reportArgumentType]
    first = np.bincount(trained["increment"].to_numpy(), minlength=count)
    known = np.concatenate([first[:1], np.cumsum(first)[:-1]])
    columns: dict[str, np.ndarray] = {"increment": np.arange(count), "known_classes": known}
    columns["novel_classes"] = np.concatenate([np.zeros(min(count, 1), dtype=np.int64), first[1:]])
    for role in ROLES:
        mine = frame.filter(pl.col("role") == role)
        for novel, name in ((False, "known"), (True, "novel")):
            some = mine.filter(pl.col("novel") == novel)
            columns[f"{role}_{name}"] = np.bincount(some["increment"].to_numpy(), minlength=count)
        labels = mine.filter("novel").group_by("increment").agg(classes=pl.col("label_recent_first").n_unique())
        classes = np.zeros(count, dtype=np.int64)
        classes[labels["increment"].to_numpy()] = labels["classes"].to_numpy()
        columns[f"{role}_novel_classes"] = classes
    return pa.table({name: pa.array(column.astype(np.int64)) for name, column in columns.items()})


def published_table(table: pa.Table) -> pa.Table:
    """Table 1 of the paper from ``increment_table``: val and test of every increment but the first counted together as test.

    Increment 0 shows its test samples alone, as the paper does.
    """
    later = table["increment"].to_numpy() > 0
    names = ["increment", "known_classes", "novel_classes", "train_known", "train_novel"]
    merged = {
        f"test_{kind}": table[f"test_{kind}"].to_numpy() + later * table[f"val_{kind}"].to_numpy()
        for kind in ("known", "novel")
    }
    return pa.table({name: table[name] for name in names} | {name: pa.array(column) for name, column in merged.items()})


def class_density(samples: pa.Table) -> pa.Table:
    """Numbers of Figure 3: how many samples each class has in each increment and role.

    Args:
        samples: as for ``increment_table``.

    Returns:
        ``increment``, ``role``, ``rank`` (from 1, the most frequent class of the increment and role first, equal counts in the
        order of names), ``label``, ``samples``, ``share`` (of the increment and role, 0 to 1), ``novel``.
    """
    names = ["increment", "role", "novel", "label_recent_first"]
    frame = pl.DataFrame(pl.from_arrow(samples.select(names))).with_columns(pl.col("role").cast(pl.Enum(ROLES)))
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
    """A table of numbers for a terminal: one row a line, right-aligned, thousands apart."""
    rows = [[name.replace("_", " ") for name in table.column_names]]
    rows += [[f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()] for row in table.to_pylist()]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows) + "\n"
