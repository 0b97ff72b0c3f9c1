"""Rows of Kinetics' lists as clips: a step between ``lists.read_list`` and what uses the videos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from ...curation.rows import Sifted, schema_of, sift, with_column
from ..videos.rows import ListedClip

if TYPE_CHECKING:
    from ...curation.store import Rows

_ROLES = {"train": "train", "validate": "val", "test": "test"}


@dataclass(frozen=True)
class KineticsClip(ListedClip):
    """A ``ListedClip`` and ``source_key``, the key of the row of its list."""

    source_key: str


def as_clips(rows: Rows) -> Iterator[Sifted]:
    """Whole step (``expands``): columns of ``lists.Listed``, and those of ``videos.rows.ListedClip``.

    Keys are ``<id>_<start>_<end>`` with six digits each, as downloaders name clips. Rejected: ``no_label``, and
    ``repeated_clip`` for a clip that came before, in any list.
    """
    frame = pl.DataFrame(pl.from_arrow(rows.table()))
    digits = [pl.col(name).cast(pl.String).str.zfill(6) for name in ("time_start", "time_end")]
    clips = frame.with_columns(
        key=pl.concat_str("youtube_id", *digits, separator="_"),
        name="youtube_id",
        label=pl.col("label").fill_null(""),
        role=pl.col("split").replace_strict(_ROLES),
        group="youtube_id",
        t_start=pl.col("time_start").cast(pl.Float64),
        t_end=pl.col("time_end").cast(pl.Float64),
        video_s=pl.lit(None, pl.Float64),
        listed="key",
        source_key="key",
    )
    again = ~clips["key"].is_first_distinct()
    table: pa.Table = clips.to_arrow()
    for field in schema_of(KineticsClip):
        table = with_column(table, field.name, table[field.name].cast(field.type))
    # Rejects go by the row's own key: two clips of one key could not be told apart in a table of them.
    named = with_column(table.append_column("clip", table["key"]), "key", table["source_key"])
    kept, rejected = sift(named, {"no_label": clips["label"] == "", "repeated_clip": again}, detail="clip")
    yield Sifted(with_column(kept, "key", kept["clip"]).drop_columns(["clip"]), rejected)
