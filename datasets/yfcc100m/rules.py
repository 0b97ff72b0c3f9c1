"""The rules that make a row of YFCC100M's metadata a photo with two usable times."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import REJECTS, with_column

_ID = r"^[1-9][0-9]{0,17}$"
_TAKEN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_SECONDS = r"^[1-9][0-9]{0,9}$"
_MICROSECONDS = pa.timestamp("us")
_FIRST = np.datetime64("0001-01-01", "us")
_SHOWN = 80
"""Maximum number of characters of a value that a reject shows."""


def judged(
    rest: pa.Table, *, file: str, unit: str, licences: Sequence[str] | None, schema: pa.Schema
) -> tuple[np.ndarray, pa.Table, pa.Table]:
    """Apply the rules to rows.

    Args:
        rest: as in ``fields.Parsed.rest``.
        file, unit: as in ``fields.Place``; they name the rows without a valid id.
        licences: names of licences to keep; None for all.
        schema: schema of the kept rows: ``fields.row_schema``.

    Returns:
        ``index`` of the kept rows, int64 of shape (kept,); the kept rows; and the rejects.
    """
    rows = rest.combine_chunks()
    for field in rows.schema:
        if pa.types.is_string(field.type):
            rows = with_column(rows, field.name, _without_empty(rows[field.name]))
    rows = with_column(rows, "id_fits", pc.fill_null(pc.match_substring_regex(rows["id"], _ID), False))
    rows = with_column(with_column(rows, "taken", _taken(rows["date_taken"])), "uploaded", _uploaded(rows["date_uploaded"]))
    kept = _good(rows, licences)
    late = rows.filter(kept)
    return late["index"].to_numpy(), _rows(late, schema), _rejects(rows.filter(pc.invert(kept)), file, unit, licences)


def decoded(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A URL-encoded column of text, decoded. Decoded bytes that are not UTF-8 become U+FFFD: a garbled title is no reason to
    reject a photo.
    """
    texts = pc.fill_null(rows[name], "").combine_chunks()
    escaped = pc.match_substring(texts, "%")
    unquoted = [urllib.parse.unquote_plus(text, errors="replace") for text in texts.filter(escaped).to_pylist()]
    plain = pc.replace_substring(texts, "+", " ")
    return pa.chunked_array([pc.replace_with_mask(plain, escaped, pa.array(unquoted, pa.string()))])


def _without_empty(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _matching(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """The texts that match, null for others."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))


def _taken(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = _matching(texts, _TAKEN)
    whole = pc.utf8_slice_codeunits(texts, 0, 19)
    leap = pc.ends_with(whole, ":60")  # a leap second is the second after :59
    whole = pc.if_else(leap, pc.utf8_replace_slice(whole, 17, 19, "59"), whole)
    seconds = pc.strptime(whole, "%Y-%m-%d %H:%M:%S", "s", error_is_null=True)
    # strptime takes the 30th of February for the 2nd of March.
    seconds = pc.if_else(pc.equal(seconds.cast(pa.string()), whole), seconds, pa.scalar(None, seconds.type))
    seconds = pc.add(seconds.cast(pa.int64()), leap.cast(pa.int64()))
    fraction = pc.utf8_rpad(pc.utf8_slice_codeunits(texts, 20), 6, "0").cast(pa.int64())
    return pc.add(pc.multiply(seconds, 1_000_000), fraction).cast(_MICROSECONDS)


def _uploaded(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.multiply(_matching(texts, _SECONDS).cast(pa.int64()), 1_000_000).cast(_MICROSECONDS)


def _good(rows: pa.Table, licences: Sequence[str] | None) -> pa.ChunkedArray:
    rules = [
        rows["id_fits"],
        pc.equal(rows["marker"], "0"),
        pc.less(rows["taken"], rows["uploaded"]),
        pc.greater_equal(rows["taken"], _FIRST),
        rows["url"].is_valid(),
    ]
    if licences is not None:
        rules.append(pc.is_in(rows["licence"], pa.array(licences, pa.string()), skip_nulls=True))
    return pc.fill_null(functools.reduce(pc.and_, rules), False)


def _rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    origin = {"key": "id", "date_taken": "taken", "date_uploaded": "uploaded", "uploaded_unix": "date_uploaded"}
    columns = [rows[origin.get(name, name)] for name in schema.names]
    return pa.table([pc.fill_null(each, "") if pa.types.is_string(each.type) else each for each in columns], schema=schema)


def _rejects(rows: pa.Table, file: str, unit: str, licences: Sequence[str] | None) -> pa.Table:
    taken, uploaded, marker = rows["taken"], rows["uploaded"], rows["marker"]

    def null(name: str) -> pa.ChunkedArray:
        return pc.or_kleene(rows[name].is_null(), pc.equal(pc.utf8_lower(rows[name]), "null"))

    def seen(name: str, rule: str) -> pa.ChunkedArray:
        return _joined(f"{name} '", pc.utf8_slice_codeunits(pc.fill_null(rows[name], ""), 0, _SHOWN), f"' {rule}")

    early = pc.or_kleene(taken.is_null(), pc.less(taken, _FIRST))
    before = _joined("date_taken ", rows["date_taken"], " is not before date_uploaded ", uploaded.cast(pa.string()))
    rules = {
        "bad_id": (pc.invert(rows["id_fits"]), seen("id", "is not a positive whole number of at most 18 digits")),
        "bad_marker": (pc.invert(pc.is_in(marker, pa.array(["0", "1"]))), seen("marker", "is not 0 or 1")),
        "not_a_photo": (pc.not_equal(marker, "0"), seen("marker", "is not 0: a video")),
        "null_date_taken": (null("date_taken"), seen("date_taken", "is not a time")),
        "bad_date_taken": (early, seen("date_taken", "is not like 2006-02-28 20:33:06.0")),
        "null_date_uploaded": (null("date_uploaded"), seen("date_uploaded", "is not a time")),
        "bad_date_uploaded": (uploaded.is_null(), seen("date_uploaded", "is not seconds since 1970")),
        "taken_not_before_upload": (pc.greater_equal(taken, uploaded), before),
        "no_url": (rows["url"].is_null(), pa.scalar("url is empty")),
        "licence_not_wanted": (pa.scalar(licences is not None), seen("licence", "is not among those requested")),
    }
    first = pc.make_struct(*(rule for rule, _ in rules.values()), field_names=list(rules))
    reason = pc.case_when(first, *(pa.scalar(name) for name in rules))
    detail = pc.case_when(first, *(what for _, what in rules.values()))
    place = rows["place"].cast(pa.string())
    key = pc.if_else(rows["id_fits"], rows["id"], _joined(f"{file}:", place))
    detail = pc.if_else(rows["id_fits"], detail, _joined(f"{unit} ", place, ": ", detail))
    return pa.table([key, reason, detail], schema=REJECTS)


def _joined(*texts: pa.ChunkedArray | str) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*texts, "")
