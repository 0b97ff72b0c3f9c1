"""The released metadata of real pairs: lights and transforms without the pictures.

Source: the released data (SamsungLabs/two-camera-white-balance). The release has one ``.npy`` file per pair, which holds a
pickled dict with the keys of ``FIELDS``; only plain values and arrays are read. Lists of such dicts and JSON can be read too.
The augmented set has 99 re-illuminated rows after each pair, in the order of the files' names (``data_loader.py`` there).
"""

from __future__ import annotations

import functools
import io
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import fsspec
import numpy as np
import pyarrow as pa

from ...curation.bounded_reading import parse_json
from ...curation.npy import read_npy_head
from ...curation.pickles import MAX_BYTES, load_plain
from ...curation.rows import Reject, Rejected, is_text, with_column
from ...curation.stage_rows import Rows
from .rows import MeasuredPair, numbers
from .transforms import checked_light, checked_matrix

FIELDS = (
    "image_name_1",
    "image_name_2",
    "wb_gt_1",
    "wb_gt_2",
    "transform_image_1to2",
    "transform_image_2to1",
    "transform_chart_1to2",
    "transform_chart_2to1",
)
"""Keys of a pair that are read; those of the chart are optional."""

_SUFFIX = re.compile(r"_CAM_[0-9]+\Z")

_Entry = tuple[str, Callable[[], Any]]
"""Name of a pair's file or row, and a function that reads it, or raises ``Reject``."""


def read_released_pairs(*, path: str, augmented: int = 0) -> Iterator[MeasuredPair | Rejected]:
    """Source step: the measured pairs in a folder of ``.npy`` files, one per pair as released, or in one ``.npy`` or ``.json``.

    Args:
        path: local path or fsspec URL. Files of a folder are read in the order of their names.
        augmented: number of rows derived from each measured row that follow it (99 in the released augmented set), which are
            left to ``with_released_rows``.

    Yields:
        Pairs in order; their key is the name of the first picture without ``_CAM_0``. Rejects: ``unreadable``,
        ``missing_field``, ``bad_name`` (not valid text), ``bad_numbers``, ``different_pair``, ``duplicate_key``; also for a
        pair with a derived row that is ``unreadable`` or has a ``missing_field`` or ``bad_numbers``, which the detail names.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: a file does not hold a list of pairs, is larger than 256 MiB, or refers to code; or the number of rows is
            not a multiple of ``augmented + 1``. In a folder such a file is rejected instead.
    """
    seen: set[str] = set()
    for (named, read), *others in _groups(path, augmented):
        try:
            pair = _pair(read())
            if pair.key in seen:
                raise Reject("duplicate_key", f"{pair.key!r} came before")
            seen.add(pair.key)
            _copies(others)
            yield pair
        except Reject as reject:
            yield Rejected(named, reject.reason, reject.detail)


def with_released_rows(rows: Rows, *, path: str, augmented: int) -> Iterator[pa.Table]:
    """Whole step (``expands``): every pair of ``read_released_pairs``, followed by its re-illuminated rows in the release.

    The release does not name the pair whose light such a row has: it is taken as the other pair with the nearest lights, by the
    sum of the angles in both cameras.

    Args:
        rows: the pairs, with folds.
        path, augmented: see ``read_released_pairs``.

    Yields:
        Columns of ``rows.Augmented``; the copies' keys are ``<pair>-as-<other>-<number>``, and they have the fold of the pair.

    Raises:
        ValueError: a re-illuminated row cannot be read any more.
    """
    table = rows.table()
    keys = table["key"].to_pylist()
    rest = {key: row for row, key in enumerate(keys)}
    known = [_unit(numbers(table[f"gt_{n}"], 3)) for n in (1, 2)]
    for (_, read), *others in _groups(path, augmented):
        try:
            row = rest.pop(_pair(read()).key)
        except (Reject, KeyError):  # rejected by the source
            continue
        try:
            copies = _copies(others)
        except Reject as reject:
            raise ValueError(f"{path}: {reject.detail}: changed since the source was read") from None
        cosines = np.stack([_unit([copy[f"gt_{n}"] for copy in copies]) @ known[n - 1].T for n in (1, 2)])
        angles = np.arccos(np.clip(cosines, -1, 1)).sum(axis=0)
        angles[:, row] = np.inf
        lights = [keys[nearest] for nearest in np.argmin(angles, axis=1)]
        found = table.take([row] * (len(copies) + 1))
        for name in copies[0]:
            own = table[name].slice(row, 1).combine_chunks()
            made = pa.array([copy[name] for copy in copies], own.type)
            found = with_column(found, name, pa.concat_arrays([own, made]))
        key = keys[row]
        found = with_column(
            found, "key", pa.array([key, *(f"{key}-as-{other}-{more}" for more, other in enumerate(lights, 1))])
        )
        found = with_column(found, "source_key", pa.array([key] * found.num_rows))
        found = with_column(found, "target_key", pa.array(["", *lights]))
        yield with_column(found, "original", pa.array([True] + [False] * len(copies)))


def _copies(others: Sequence[_Entry]) -> list[dict[str, list[float] | None]]:
    """The numbers of the rows derived from a measured row; ``Reject`` with the name of one that is bad."""
    found: list[dict[str, list[float] | None]] = []
    for name, read in others:
        try:
            found.append(_numbers(read()))
        except Reject as reject:
            raise Reject(reject.reason, f"{name}: {reject.detail}") from None
    return found


def _unit(lights: Any) -> np.ndarray:
    values = np.asarray(lights, dtype=np.float64)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def _groups(path: str, augmented: int) -> Iterator[list[_Entry]]:
    """The entries of each measured row in the file or folder: itself and the rows derived from it."""
    fs, place = fsspec.core.url_to_fs(path)
    if fs.isdir(place):
        names = sorted(name for name in fs.ls(place, detail=False) if name.endswith(".npy"))
        entries: list[_Entry] = [(posixpath.basename(name), functools.partial(_in_folder, fs, name)) for name in names]
    elif fs.isfile(place):
        entries = [(f"row-{number}", lambda pair=pair: pair) for number, pair in enumerate(_entries(fs, place), 1)]
    else:
        raise FileNotFoundError(f"metadata {path} is not there")
    if not entries or len(entries) % (augmented + 1):
        raise ValueError(f"{path}: {len(entries)} rows are not groups of one pair and {augmented} augmented ones")
    for number in range(0, len(entries), augmented + 1):
        yield entries[number : number + augmented + 1]


def _in_folder(fs: Any, place: str) -> Any:
    try:
        entries = _entries(fs, place)
    except ValueError as error:
        raise Reject("unreadable", str(error)) from None
    if len(entries) != 1:
        raise Reject("unreadable", f"{len(entries)} pairs in a file of a folder, expected one")
    return entries[0]


def _entries(fs: Any, place: str) -> Sequence[Any]:
    """All pairs of one file, unchecked."""
    with fs.open(place, "rb") as stream:
        data = cast(bytes, stream.read(MAX_BYTES + 1))
    if len(data) > MAX_BYTES:
        raise ValueError(f"{place}: {fs.size(place)} bytes, limit {MAX_BYTES}")
    if place.endswith(".json"):
        try:
            found = parse_json(data)
        except ValueError as error:
            raise ValueError(f"{place} is not JSON: {error}") from None
    else:
        found = _npy(data, place)
    if isinstance(found, Mapping):
        return [found]
    if not isinstance(found, list):
        raise ValueError(f"{place}: expected a list of pairs, found {type(found).__name__}")
    return [item if isinstance(item, Mapping) else {} for item in cast("list[Any]", found)]


def _npy(data: bytes, path: str) -> Any:
    """The object array of an .npy file, as a list or as its only object."""
    stream = io.BytesIO(data)
    try:
        _, _, dtype, begin = read_npy_head(stream)
        if not dtype.hasobject:
            raise ValueError(f"an array of {dtype}, expected pairs")
        stream.seek(begin)
        found = load_plain(stream.read(), objects=True)
    except ValueError as error:
        raise ValueError(f"{path} is not metadata of pairs: {error}") from None
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{path} is not metadata of pairs: no array in it")
    return found.item() if found.ndim == 0 else found.ravel().tolist()


def _pair(entry: Any) -> MeasuredPair:
    fields = cast("Mapping[str, Any]", entry)
    if missing := [name for name in FIELDS[:6] if name not in fields]:
        raise Reject("missing_field", missing[0])
    for name in FIELDS[:2]:
        if not is_text(str(fields[name])):
            text = str(fields[name])[:80]
            raise Reject("bad_name", f"{name} {text!r} contains half a surrogate pair, which is not valid text")
    one, two = (_SUFFIX.sub("", str(fields[name])) for name in FIELDS[:2])
    if one != two:
        raise Reject("different_pair", f"{fields['image_name_1']} with {fields['image_name_2']}")
    read: dict[str, Any] = _numbers(fields)
    return MeasuredPair(key=re.sub(r"[^A-Za-z0-9_-]", "_", one), name=one, **read, condition_1=None, condition_2=None)


def _numbers(entry: Any) -> dict[str, list[float] | None]:
    """The lights and transforms of an entry, by the names of our columns."""
    fields = cast("Mapping[str, Any]", entry)
    if missing := [name for name in FIELDS[2:6] if fields.get(name) is None]:
        raise Reject("missing_field", missing[0])
    matrices = {name: checked_matrix(fields[name], name) for name in FIELDS[4:] if fields.get(name) is not None}
    return {
        "gt_1": checked_light(fields["wb_gt_1"], "wb_gt_1"),
        "gt_2": checked_light(fields["wb_gt_2"], "wb_gt_2"),
        "transform_1to2": matrices["transform_image_1to2"],
        "transform_2to1": matrices["transform_image_2to1"],
        "transform_chart_1to2": matrices.get("transform_chart_1to2"),
        "transform_chart_2to1": matrices.get("transform_chart_2to1"),
    }
