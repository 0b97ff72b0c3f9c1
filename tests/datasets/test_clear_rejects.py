"""Photos that CLEAR rejects by their dates or time buckets."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
from benchwright.datasets.clear.rejects import keep_labelled_buckets, keep_taken_before_upload


def test_capture_must_lie_strictly_before_upload() -> None:
    noon = dt.datetime(2010, 1, 1, 12)
    taken = [noon - dt.timedelta(microseconds=1), noon, noon + dt.timedelta(hours=1), None, noon]
    table = pa.table(
        {
            "key": ["before", "same", "after", "untaken", "kept"],
            "date_taken": pa.array(taken, pa.timestamp("us")),
            "date_uploaded": pa.array([noon, noon, noon, noon, None], pa.timestamp("us")),
        }
    )
    sifted = keep_taken_before_upload(table)
    assert sifted.kept["key"].to_pylist() == ["before", "untaken", "kept"]
    assert sifted.rejected["key"].to_pylist() == ["same", "after"]
    assert sifted.rejected["detail"][0].as_py().startswith("2010-01-01 12:00:00")


def test_buckets_before_the_first_labelled_one_go() -> None:
    sifted = keep_labelled_buckets(pa.table({"key": ["a", "b", "c"], "bucket": [0, 1, 2]}), first=1)
    assert sifted.kept["key"].to_pylist() == ["b", "c"]
    assert sifted.rejected["reason"].to_pylist() == ["bucket_not_labelled"]
