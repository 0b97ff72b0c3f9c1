"""The released metadata of real pairs: lights and transforms without the pictures.

Source: the released data (SamsungLabs/two-camera-white-balance). The release has one ``.npy`` file per pair, which holds a
pickled dict with the keys of ``FIELDS``; only plain values and arrays are read. Lists of such dicts and JSON can be read too.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import fsspec
import numpy as np

from ...curation.bounded_reading import parse_json
from ...curation.npy import read_npy_head
from ...curation.pickles import MAX_BYTES, load_plain
from ...curation.rows import Reject, Rejected, is_text
from .rows import MeasuredPair
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


def read_released_pairs(*, path: str, augmented: int = 0) -> Iterator[MeasuredPair | Rejected]:
    """Source step: the measured pairs in a folder of ``.npy`` files, one per pair as released, or in one ``.npy`` or ``.json``.

    Args:
        path: local path or fsspec URL. Files of a folder are read in the order of their names.
        augmented: number of rows derived from each measured row that follow it (99 in the released augmented set): skipped.

    Yields:
        Pairs in order; their key is the name of the first picture without ``_CAM_0``. Rejects: ``unreadable``,
        ``missing_field``, ``bad_name`` (not valid text), ``bad_numbers``, ``different_pair``, ``duplicate_key``.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: a file does not hold a list of pairs, is larger than 256 MiB, or refers to code; or the number of rows is
            not a multiple of ``augmented + 1``. In a folder such a file is rejected instead.
    """
    fs, place = fsspec.core.url_to_fs(path)
    if fs.isdir(place):
        names = sorted(name for name in fs.ls(place, detail=False) if name.endswith(".npy"))
        entries: Sequence[Any] = names
    elif fs.isfile(place):
        entries = _entries(fs, place)
    else:
        raise FileNotFoundError(f"metadata {path} is not there")
    if not entries or len(entries) % (augmented + 1):
        raise ValueError(f"{path}: {len(entries)} rows are not groups of one pair and {augmented} augmented ones")
    seen: set[str] = set()
    for number in range(0, len(entries), augmented + 1):
        entry = entries[number]
        named = posixpath.basename(entry) if isinstance(entry, str) else f"row-{number + 1}"
        try:
            pair = _pair(_in_folder(fs, entry) if isinstance(entry, str) else entry)
            if pair.key in seen:
                raise Reject("duplicate_key", f"{pair.key!r} came before")
            seen.add(pair.key)
            yield pair
        except Reject as reject:
            yield Rejected(named, reject.reason, reject.detail)


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
    if fs.size(place) > MAX_BYTES:
        raise ValueError(f"{place}: {fs.size(place)} bytes, limit {MAX_BYTES}")
    data = cast(bytes, fs.cat_file(place))
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
    matrices = {name: checked_matrix(fields[name], name) for name in FIELDS[4:] if fields.get(name) is not None}
    return MeasuredPair(
        key=re.sub(r"[^A-Za-z0-9_-]", "_", one),
        name=one,
        gt_1=checked_light(fields["wb_gt_1"], "wb_gt_1"),
        gt_2=checked_light(fields["wb_gt_2"], "wb_gt_2"),
        transform_1to2=matrices["transform_image_1to2"],
        transform_2to1=matrices["transform_image_2to1"],
        transform_chart_1to2=matrices.get("transform_chart_1to2"),
        transform_chart_2to1=matrices.get("transform_chart_2to1"),
        condition_1=None,
        condition_2=None,
    )
