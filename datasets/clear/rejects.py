"""Photos that CLEAR rejects by their dates or time buckets."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import Sifted, sift


def keep_taken_before_upload(table: pa.Table) -> Sifted:
    """Reject rows that were captured at or after their upload: ``taken_not_before_upload``.

    As in the released code, the camera's local time is compared with the upload's UTC without conversion. Rows without one of
    the two times are kept.

    >>> import datetime as dt
    >>> taken, uploaded = [dt.datetime(2007, 5, day) for day in (1, 3)], [dt.datetime(2007, 5, 2)] * 2
    >>> kept, rejected = keep_taken_before_upload(pa.table({"key": ["a", "b"], "date_taken": taken, "date_uploaded": uploaded}))
    >>> kept["key"].to_pylist(), rejected["reason"].to_pylist()
    (['a'], ['taken_not_before_upload'])
    """
    late = pc.greater_equal(table["date_taken"], table["date_uploaded"]).fill_null(False)
    return sift(table, {"taken_not_before_upload": late}, detail="date_taken")


def keep_labelled_buckets(table: pa.Table, *, first: int) -> Sifted:
    """Reject the rows of buckets before ``first``, which CLEAR reserves for pre-training: ``bucket_not_labelled``.

    >>> keep_labelled_buckets(pa.table({"key": ["a", "b"], "bucket": [0, 1]}), first=1).rejected["key"].to_pylist()
    ['a']
    """
    return sift(table, {"bucket_not_labelled": pc.less(table["bucket"], first)})
