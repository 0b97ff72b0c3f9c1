"""One table of several releases of a dataset: one row per sample, with its label in every release and the label used.

Source: Prijatelj et al., "Human Activity Recognition in an Open World", and its released code: outer merge of the lists over
the identity (youtube_id, time_start, time_end); ``label_recent_first`` is the label of the most recent release that has
one; six spellings are renamed, and only where the label comes from the oldest release (``get_label_recent_first.py``).
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.rows import REJECTS, Sifted
from ...curation.stages.spill import Sorter, SpilledBatches, of_at_least
from ..kinetics.lists import SPLITS

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

IDENTITY = ("youtube_id", "time_start", "time_end")
_TIMES = IDENTITY[1:]
_OPTIONAL = ("feature_key", "group")
"""Columns of own lists that are kept."""

ROWS_AT_ONCE = 1 << 17
"""Maximum number of rows of a table in the output."""

HELD_ROWS = 1 << 21
"""Maximum number of listed rows merged at once in memory. If there are more, ranges of ids are merged one after another."""

_DRAWN = 64
"""Number of ids sampled for each range to find its limits."""

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


def _seconds(time: pl.Expr, *, floating: bool) -> pl.Expr:
    """Milliseconds converted to the listed type: doubles, or whole seconds; null for ``_NO_TIME``."""
    return pl.when(time != _NO_TIME).then(time / 1000 if floating else (time // 1000).cast(pl.Int64))


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
    last = 2 * len(releases)  # rejects come by release and reason, then those that were merged, then the unlabelled
    found, lost = (Sorter(ROWS_AT_ONCE) for _ in range(2))
    used: set[tuple[str, str]] = set()
    merged_before = 0
    for listed in _ranges(rows, releases):
        kept, rejects = _one_row_a_release(listed, len(releases))
        samples, merged = _merged(kept, releases)
        samples = _labelled(samples, releases, renames)
        unlabelled = samples.filter(pl.col("label_recent_first").is_null())
        samples = samples.filter(pl.col("label_recent_first").is_not_null())
        for kind, table, reason in (*rejects, (last, merged, "merged"), (last + 1, unlabelled, "unlabelled")):
            lost.add(_rejects(table, reason), table["rank"].cast(pl.Int64).to_numpy() + kind * rows.num_rows)
        used |= set(samples.select("label_recent_first", "label_release").unique().rows())
        if order == "identity":
            samples = samples.sort(IDENTITY).with_columns(rank=pl.int_range(pl.len()) + merged_before)
            merged_before += samples.height
        found.add(samples.drop("rank").to_arrow(), samples["rank"].cast(pl.Int64).to_numpy())
    finish = functools.partial(
        _output_table,
        releases=releases,
        spellings=_spellings(used, releases, normalise),
        times=rows.schema.field("time_start").type,
    )
    finished = map(finish, found.tables())
    first = next(finished)
    for some_samples, some_rejects in itertools.zip_longest(itertools.chain([first], finished), lost.tables()):
        yield Sifted(
            first.slice(0, 0) if some_samples is None else some_samples,
            REJECTS.empty_table() if some_rejects is None else some_rejects,
        )


def _output_table(table: pa.Table, releases: Sequence[str], spellings: Mapping[str, str], times: pa.DataType) -> pa.Table:
    """Samples with the columns of the output."""
    splits = [f"split_{release}" for release in releases]
    samples = pl.DataFrame(pl.from_arrow(table))
    samples = samples.with_columns(
        pl.col("age").replace_strict(dict(enumerate(releases)), return_dtype=pl.String).alias("release"),
        pl.col("place", *splits).replace_strict(dict(enumerate(SPLITS)), return_dtype=pl.String),
        *(_seconds(pl.col(name), floating=pa.types.is_floating(times)).alias(name) for name in _TIMES),
        pl.col("label_recent_first").replace(spellings),
        key=uid_of(*map(pl.col, IDENTITY)),
    )
    samples = samples.drop("age").rename({"place": "split"})
    if "feature_key" in samples.columns:
        samples = samples.with_columns(pl.col("feature_key").fill_null(pl.col("key")), key=_member_name(pl.col("key")))
    return samples.to_arrow()


def _ranges(rows: Rows, releases: Sequence[str]) -> Iterator[pl.DataFrame]:
    """All listed rows, in tables that hold all rows of their ids; ids ascend from table to table."""
    if rows.num_rows <= HELD_ROWS:
        yield pl.concat(_numbered(rows, releases))
        return
    limits = _limits(rows)
    spilled: SpilledBatches | None = None
    for table in _numbered(rows, releases):
        spilled = spilled or SpilledBatches(table.to_arrow().schema)
        ranges = limits.search_sorted(table["youtube_id"], side="right")
        batch = table.select(pl.all().sort_by(ranges, maintain_order=True)).to_arrow().combine_chunks().to_batches()[0]
        spilled.add(batch, np.searchsorted(ranges.sort().to_numpy(), np.arange(len(limits) + 2)))
    for number in range(len(limits) + 1):
        if spilled and (found := spilled.take(number)).num_rows:
            yield pl.DataFrame(pl.from_arrow(found))


def _limits(rows: Rows) -> pl.Series:
    """Ids that divide the rows into ranges of about a quarter of ``HELD_ROWS``."""
    draw = np.random.default_rng(0)
    every = max(HELD_ROWS // 4 // _DRAWN, 1)
    drawn: list[str] = []
    for table in rows.batches(["youtube_id"]):
        at = np.arange(int(draw.integers(every)), table.num_rows, every)
        drawn += table["youtube_id"].take(pa.array(at)).to_pylist()
    return pl.Series(drawn, dtype=pl.String).sort().gather_every(_DRAWN, _DRAWN).unique(maintain_order=True)


def _numbered(rows: Rows, releases: Sequence[str]) -> Iterator[pl.DataFrame]:
    """All rows in tables, with times in milliseconds and the columns ``age`` (index of the release), ``place`` (index of the
    split) and ``rank``, the position of the row in the order (release, split, line).
    """
    ages, places = {name: age for age, name in enumerate(releases)}, {name: place for place, name in enumerate(SPLITS)}
    counts = collections.Counter[tuple[str, str]]()
    for table in rows.batches(["release", "split"]):
        for release, split, count in pl.DataFrame(pl.from_arrow(table)).group_by("release", "split").len().iter_rows():
            counts[release, split] += count
    if strange := sorted({release for release, _ in counts} - set(releases)):
        raise ValueError(f"release {strange[0]!r} is not among {', '.join(releases)}")
    ordered = [counts[release, split] for release in releases for split in SPLITS]
    starts = np.concatenate([[0], np.cumsum(ordered)[:-1]])
    names = ["key", "release", "split", "label", *IDENTITY, *(name for name in _OPTIONAL if name in rows.column_names)]
    schema = pa.schema([rows.schema.field(name).remove_metadata() for name in names])
    tables: Iterable[pa.Table] = (table for _, table in of_at_least(1 << 16, rows.batches(names), schema))
    for table in tables if rows.num_rows else [schema.empty_table()]:
        frame = pl.DataFrame(pl.from_arrow(table)).with_columns(
            (pl.col(*_TIMES) * 1000).round().cast(pl.Int32).fill_null(_NO_TIME),
            age=pl.col("release").replace_strict(ages, return_dtype=pl.UInt8),
            place=pl.col("split").replace_strict(places, return_dtype=pl.UInt8),
        )
        turn = (frame["age"].cast(pl.Int64) * len(SPLITS) + frame["place"]).to_numpy()
        before = frame.select(pl.int_range(pl.len()).over("age", "place")).to_series().to_numpy()
        yield frame.drop("release", "split").with_columns(rank=pl.Series(starts[turn] + before, dtype=pl.UInt32))
        starts = starts + np.bincount(turn, minlength=len(starts))


def _one_row_a_release(listed: pl.DataFrame, releases: int) -> tuple[pl.DataFrame, list[tuple[int, pl.DataFrame, str]]]:
    """The rows that represent their samples in their releases, and the others: number of the kind, rows, reason."""
    kept: list[pl.DataFrame] = []
    rejects: list[tuple[int, pl.DataFrame, str]] = []
    for age in range(releases):
        mine = listed.filter(pl.col("age") == age)
        again = mine.filter(mine.select(IDENTITY).is_duplicated())
        if not again.height:
            kept.append(mine)
            continue
        labels = again.group_by(IDENTITY).agg(several=pl.col("label").drop_nulls().n_unique() > 1)
        again = again.join(labels, on=IDENTITY, how="left", maintain_order="left")
        rejects.append((2 * age, again.filter("several"), "conflicting_labels"))
        # A labelled row precedes one without a label: both a list and its unlabelled form may be provided.
        agreed = again.filter(~pl.col("several")).sort(pl.col("label").is_null(), "rank")
        first = agreed.unique(IDENTITY, keep="first", maintain_order=True)
        rejects.append((2 * age + 1, agreed.join(first.select("rank"), on="rank", how="anti"), "duplicate_row"))
        kept.append(pl.concat([mine.join(again.select("rank"), on="rank", how="anti"), first.select(mine.columns)]))
    return pl.concat(kept), rejects


def _merged(kept: pl.DataFrame, releases: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per sample (the first), with columns for every release; and the other rows."""
    first = kept.sort("rank").unique(IDENTITY, keep="first", maintain_order=True)
    merged = kept.join(first.select("rank"), on="rank", how="anti")
    samples = first.rename({"key": "source_key"})
    for age, release in enumerate(releases):
        mine = kept.filter(pl.col("age") == age).select(
            *IDENTITY, pl.col("label").alias(f"label_{release}"), pl.col("place").alias(f"split_{release}")
        )
        samples = samples.join(mine, on=IDENTITY, how="left")
    return samples, merged


def _labelled(samples: pl.DataFrame, releases: Sequence[str], renames: Mapping[str, str]) -> pl.DataFrame:
    names = [f"label_{release}" for release in reversed(releases)]
    oldest = pl.col(names[-1]).replace(renames) if renames else pl.col(names[-1])
    return samples.with_columns(
        label_recent_first=pl.coalesce(*names[:-1], oldest),
        label_release=pl.coalesce(
            *(pl.when(pl.col(name).is_not_null()).then(pl.lit(name.removeprefix("label_"))) for name in names)
        ),
    )


def _spellings(used: set[tuple[str, str]], releases: Sequence[str], normalise: Sequence[Normalisation]) -> dict[str, str]:
    """Label -> its spelling in the most recent release that has one of the same form; ``used`` are (label, release)."""
    if not normalise:
        return {}
    ages = {release: age for age, release in enumerate(releases)}
    labels = pl.DataFrame(sorted(used), schema={"label": pl.String, "release": pl.String}, orient="row").with_columns(
        age=pl.col("release").replace_strict(ages, return_dtype=pl.Int64), form=_form(pl.col("label"), normalise)
    )
    spelt = labels.sort(["age", "label"], descending=[True, False]).unique("form", keep="first", maintain_order=True)
    return dict(labels.join(spelt.select("form", spelling="label"), on="form").select("label", "spelling").rows())


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
    table = rows.select(key=pl.col(key), reason=pl.lit(reason), detail=uid_of(*map(pl.col, IDENTITY)))
    return table.to_arrow().cast(REJECTS)
