"""One table of several releases of a dataset: one row per sample, with its label in every release and the label used.

Source: Prijatelj et al., "Human Activity Recognition in an Open World", and its released code: outer merge of the lists over
the identity (youtube_id, time_start, time_end); ``label_recent_first`` is the label of the most recent release that has
one; six spellings are renamed, and only where the label comes from the oldest release (``get_label_recent_first.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow as pa

from ...curation.rows import REJECTS, Sifted
from ..kinetics.lists import SPLITS

if TYPE_CHECKING:
    from ...curation.store import Rows

IDENTITY = ("youtube_id", "time_start", "time_end")
_TIMES = IDENTITY[1:]
_OPTIONAL = ("feature_key", "group")
"""Columns of own lists that are kept."""

ROWS_AT_ONCE = 1 << 17

Normalisation = Literal["case", "spaces", "punctuation", "brackets"]


@functools.cache
def unified_row(releases: tuple[str, ...]) -> type:
    """Row dataclass of the columns that ``unify`` adds, for ``gives``; their names depend on the releases.

    ``key`` is the sample's uid (for own lists, characters that are invalid in sample names are percent-encoded:
    ``clip%2Emp4``); ``source_key`` is the listed row that represents it; ``label_<release>`` and ``split_<release>`` are None
    if a release does not contain the sample, or has no label for it; ``label_recent_first`` is the label used and
    ``label_release`` the release that it comes from. The other columns of the listed row (``release``, ``split``,
    ``label``, the identity) are kept: they are those of the first release and split that contain the sample.
    """
    if len(set(releases)) < len(releases):
        raise ValueError(f"releases {', '.join(releases)}: each may be named once")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [("key", str), ("source_key", str)]
    fields += [(f"{what}_{release}", str | None, field(default=None)) for what in ("label", "split") for release in releases]
    fields += [("label_recent_first", str, field(default="")), ("label_release", str, field(default=""))]
    return make_dataclass("Unified", fields, frozen=True)


_NO_TIME = -1
"""Replaces missing times while samples are joined by times; other times are milliseconds."""


def uid_of(youtube_id: pl.Expr, time_start: pl.Expr, time_end: pl.Expr) -> pl.Expr:
    """``<id>_<start, six digits>_<end, six digits>``, as files and features are named; only the id for samples without times.

    Args:
        youtube_id: id in any form.
        time_start: milliseconds, or ``_NO_TIME``. A time that is not a whole second has three decimals, ``000007.250``.
        time_end: milliseconds, or ``_NO_TIME``.
    """
    times = (_named(time) for time in (time_start, time_end))
    return pl.when(time_start == _NO_TIME).then(youtube_id).otherwise(pl.concat_str([youtube_id, *times], separator="_"))


def _named(time: pl.Expr) -> pl.Expr:
    whole = (time // 1000).cast(pl.String).str.zfill(6)
    decimals = (time % 1000).cast(pl.String).str.zfill(3)
    return pl.when(time % 1000 == 0).then(whole).otherwise(pl.concat_str([whole, decimals], separator="."))


def _seconds(time: pl.Expr, type_of: pl.DataType) -> pl.Expr:
    """Milliseconds converted to the listed type: whole seconds, or doubles; null for ``_NO_TIME``."""
    seconds = time / 1000 if type_of.is_float() else time // 1000
    return pl.when(time != _NO_TIME).then(seconds).cast(type_of)


_NOT_IN_NAMES = {char: f"%{ord(char):02X}" for char in ["%", ".", "/", "\\", *map(chr, range(32)), "\x7f"]}


def _member_name(key: pl.Expr) -> pl.Expr:
    """A key that can name a sample in a shard: invalid characters are percent-encoded, ``clip%2Emp4``."""
    return key.str.replace_many(_NOT_IN_NAMES)


def unify(
    rows: Rows,
    *,
    releases: Sequence[str],
    renames: Mapping[str, str],
    normalise: Sequence[Normalisation] = (),
    order: Literal["listed", "identity"] = "listed",
) -> Iterator[Sifted]:
    """Whole step (``expands``): merge the rows of lists into samples.

    Args:
        rows: columns of ``kinetics.lists.Listed``, or of ``own_lists.OwnListed``, whose times may be missing or fractional.
        releases: names, oldest first; every row must belong to one of them.
        renames: old spelling -> new one, for samples that only the oldest release labels (six in KOWL).
        normalise: differences between spellings to ignore; labels that differ only in these get the spelling of the most
            recent release that has one of them. KOWL does none of this: its labels keep case and punctuation. ``brackets``
            removes text in brackets, and so merges classes.
        order: order of the samples: ``listed``: by the first release, split and line that list them, as the authors' outer
            merge leaves them (pandas 1.5 does not sort it); ``identity``: by id and times.

    Yields:
        Columns of ``unified_row(releases)`` and those of the listed row. Rejected, with the sample's uid:

        * ``conflicting_labels``: all rows of a sample to which one release gives two labels;
        * ``duplicate_row``: a row of a sample that the same release lists earlier (or lists elsewhere with a label);
        * ``merged``: a row of a sample that is represented by a row of an earlier release or split;
        * ``unlabelled``: no release has a label (the test rows of Kinetics-700-2020).

    Raises:
        ValueError: a row belongs to a release that is not named, or a name occurs twice.
    """
    if len(set(releases)) != len(releases) or not releases:
        raise ValueError(f"releases {list(releases)}: expected one name or more, each once")
    listed, type_of = _listed(rows, releases)
    kept, rejects = _one_row_a_release(listed, len(releases))
    del listed
    samples, merged = _merged(kept, releases)
    del kept
    samples = _labelled(samples, releases, renames, normalise)
    unlabelled = samples.filter(pl.col("label_recent_first").is_null())
    samples = samples.filter(pl.col("label_recent_first").is_not_null())
    samples = samples.sort(IDENTITY) if order == "identity" else samples.sort("rank")
    rejects += [_rejects(merged, "merged"), _rejects(unlabelled, "unlabelled")]
    turned_away = pa.concat_tables(rejects)
    del merged, unlabelled, rejects
    for start in range(0, max(samples.height, 1), ROWS_AT_ONCE):
        piece = (
            samples.slice(start, ROWS_AT_ONCE)
            .drop("rank")
            .with_columns(
                pl.col("release", "split", *(f"split_{name}" for name in releases)).cast(pl.String),
                *(_seconds(pl.col(name), type_of).alias(name) for name in _TIMES),
                key=uid_of(*map(pl.col, IDENTITY)),
            )
        )
        if "feature_key" in piece.columns:
            piece = piece.with_columns(pl.col("feature_key").fill_null(pl.col("key")), key=_member_name(pl.col("key")))
        yield Sifted(piece.to_arrow(), turned_away if start == 0 else REJECTS.empty_table())


def _listed(rows: Rows, releases: Sequence[str]) -> tuple[pl.DataFrame, pl.DataType]:
    """All rows with ``rank``, their position in the order (release, split, line), ``age``, the index of the release, and times
    in milliseconds; and the type of the listed times.
    """
    names = ["key", "release", "split", "label", *IDENTITY, *(name for name in _OPTIONAL if name in rows.column_names)]
    listed = pl.DataFrame(pl.from_arrow(rows.table(names)))
    type_of = listed.schema["time_start"]
    if strange := sorted(set(listed["release"].unique()) - set(releases)):
        raise ValueError(f"release {strange[0]!r} is not among {', '.join(releases)}")
    ages = {name: age for age, name in enumerate(releases)}
    places = {name: place for place, name in enumerate(SPLITS)}
    listed = listed.with_columns(
        pl.col("release").cast(pl.Enum(list(releases))),
        pl.col("split").cast(pl.Enum(SPLITS)),
        (pl.col(*_TIMES) * 1000).round().cast(pl.Int32).fill_null(_NO_TIME),
        age=pl.col("release").replace_strict(ages, return_dtype=pl.UInt8),
        place=pl.col("split").replace_strict(places, return_dtype=pl.UInt8),
    )
    listed = listed.sort("age", "place", maintain_order=True)
    return listed.drop("place").with_columns(rank=pl.int_range(pl.len(), dtype=pl.UInt32)), type_of


def _one_row_a_release(listed: pl.DataFrame, releases: int) -> tuple[pl.DataFrame, list[pa.Table]]:
    """The rows that represent their samples in their releases, and the others as rejects."""
    kept: list[pl.DataFrame] = []
    rejects: list[pa.Table] = []
    for age in range(releases):
        mine = listed.filter(pl.col("age") == age)
        again = mine.filter(mine.select(IDENTITY).is_duplicated())
        if not again.height:
            kept.append(mine)
            continue
        labels = again.group_by(IDENTITY).agg(several=pl.col("label").drop_nulls().n_unique() > 1)
        again = again.join(labels, on=IDENTITY, how="left", maintain_order="left")
        rejects.append(_rejects(again.filter("several"), "conflicting_labels"))
        # A labelled row precedes one without a label: both a list and its unlabelled form may be provided.
        agreed = again.filter(~pl.col("several")).sort(pl.col("label").is_null(), "rank")
        first = agreed.unique(IDENTITY, keep="first", maintain_order=True)
        rejects.append(_rejects(agreed.join(first.select("rank"), on="rank", how="anti"), "duplicate_row"))
        kept.append(pl.concat([mine.join(again.select("rank"), on="rank", how="anti"), first.select(mine.columns)]))
    return pl.concat(kept), rejects


def _merged(kept: pl.DataFrame, releases: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per sample (the first), with columns for every release; and the other rows."""
    first = kept.sort("rank").unique(IDENTITY, keep="first", maintain_order=True)
    merged = kept.join(first.select("rank"), on="rank", how="anti")
    samples = first.drop("age").rename({"key": "source_key"})
    for age, release in enumerate(releases):
        mine = kept.filter(pl.col("age") == age).select(
            *IDENTITY, pl.col("label").alias(f"label_{release}"), pl.col("split").alias(f"split_{release}")
        )
        samples = samples.join(mine, on=IDENTITY, how="left")
    return samples, merged


def _labelled(
    samples: pl.DataFrame, releases: Sequence[str], renames: Mapping[str, str], normalise: Sequence[Normalisation]
) -> pl.DataFrame:
    names = [f"label_{release}" for release in reversed(releases)]
    oldest = pl.col(names[-1]).replace(renames) if renames else pl.col(names[-1])
    samples = samples.with_columns(
        label_recent_first=pl.coalesce(*names[:-1], oldest),
        label_release=pl.coalesce(
            *(pl.when(pl.col(name).is_not_null()).then(pl.lit(name.removeprefix("label_"))) for name in names)
        ),
    )
    if not normalise:
        return samples
    ages = {release: age for age, release in enumerate(releases)}
    used = samples.select("label_recent_first", "label_release").drop_nulls().unique()
    used = used.with_columns(
        age=pl.col("label_release").replace_strict(ages, return_dtype=pl.Int64),
        form=_form(pl.col("label_recent_first"), normalise),
    )
    spelt = used.sort(["age", "label_recent_first"], descending=[True, False]).unique("form", keep="first", maintain_order=True)
    pairs = used.join(spelt.select("form", spelling="label_recent_first"), on="form")
    return samples.with_columns(
        pl.col("label_recent_first").replace(dict(pairs.select("label_recent_first", "spelling").rows()))
    )


def _form(label: pl.Expr, normalise: Sequence[Normalisation]) -> pl.Expr:
    if unknown := sorted(set(normalise) - {"case", "spaces", "punctuation", "brackets"}):
        raise ValueError(f"normalisation {unknown[0]!r}: there are case, spaces, punctuation, brackets")
    if "brackets" in normalise:
        label = label.str.replace_all(r"\s*\([^)]*\)", "")
    if "punctuation" in normalise:
        label = label.str.replace_all(r"[^\w\s]", "")
    if "spaces" in normalise:
        label = label.str.replace_all(r"[\s_]+", " ").str.strip_chars()
    return label.str.to_lowercase() if "case" in normalise else label


def _rejects(rows: pl.DataFrame, reason: str) -> pa.Table:
    key = "key" if "key" in rows.columns else "source_key"
    table = rows.sort("rank").select(key=pl.col(key), reason=pl.lit(reason), detail=uid_of(*map(pl.col, IDENTITY)))
    return table.to_arrow().cast(REJECTS)
