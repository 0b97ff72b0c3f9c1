"""Write CLEAR in the folder layout of its release, for CLEAR-10 and for your own CLEAR.

::

    class_names.txt                                          one name per line, in the order of the labels
    labeled_images/<bucket>/<class>/<ID>.<extension>
    labeled_metadata/<bucket>/<class>.json                   {ID: {"ID": ..., "DATE_TAKEN": ..., "IMG_PATH": ...}}
    labeled_metadata.json                                    {bucket: {class: path of the file above}}
    all_metadata/<bucket>_metadata.json                      {ID: {...}}, labelled or not
    training_folder/bucket_indices.json                      ["1", "2", ...]
    training_folder/filelists/<bucket>/all.txt               lines "path label"
    training_folder/testset_ratio_0.3/split_<seed>/<bucket>/{train,test}.txt and {train,test}_indices.json
    training_folder/features/<type>/<bucket>/all.pth         torch.save of (tensor (n, d), list of n labels)

Avalanche's ``CLEAR(data_name="clear10_neurips2021")`` reads it. For a single split, as CLEAR-10 and CLEAR-100 are published
since July 2022, ``CLEAR(data_name="clear10")`` reads ``train`` and ``test`` (``write_train_test``)::

    <part>/class_names.txt, labeled_images/..., labeled_metadata/..., labeled_metadata.json     as above
    <part>/features/<type>/features.json                     {bucket: {class: path of the file below}}
    <part>/features/<type>/<bucket>/<class>.pth              torch.save of {ID: tensor (d,)}

Every file is written atomically, and the same rows give the same bytes. To repair an interrupted write, run it again; files of
other rows are not removed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...curation.local_files import write_whole, writing
from ...curation.rows import Blob
from .splits import SEEDS, released_permutation

_NAME = re.compile(r"\w[\w.+@-]*\Z")
_EXTENSION = re.compile(r"[A-Za-z0-9]{1,8}\Z")
_LONGEST_NAME = 200

YFCC_NAMES = {
    "key": "ID",
    "url": "DOWNLOAD_URL",
    "extension": "EXT",
    "licence": "LICENSE_NAME",
    "uploaded_unix": "DATE_UPLOADED",
}
"""Columns whose names in the metadata files, those of YFCC100M, are not just our names in capitals."""


@dataclasses.dataclass(frozen=True)
class WrittenRelease:
    """Number of images written, in total and per bucket."""

    images: int
    per_bucket: Mapping[int, int]


def write_release(
    folder: str | Path,
    items: Iterable[tuple[Mapping[str, Any], bytes]],
    *,
    class_names: Sequence[str],
    seeds: Sequence[int] = SEEDS,
    test_share: float = 0.3,
) -> WrittenRelease:
    """Write the labelled images, their metadata and the lists of the protocols.

    Args:
        folder: local folder, created if it does not exist.
        items: rows and image bytes, ordered by bucket and class; one image is held at a time. A row has ``key``, ``bucket``,
            ``class_name``, ``extension`` and ``iid_seed<n>`` (``train`` or ``test``); its other plain values go into the
            metadata, payloads do not.
        class_names: class names in the order of the labels.
        seeds: splits to list.
        test_share: test share in the name of the folder of the splits.

    Returns:
        Counts.

    Raises:
        ValueError: rows out of order, an unknown class, a key twice in a class, or a key, class name or extension that
            cannot be a file name.
    """
    root = Path(folder)
    counts: dict[int, int] = {}
    for bucket, rows in _write_images(root, items, class_names, seeds):
        counts[bucket] = len(rows)
        _write_lists(root / "training_folder", bucket, rows, seeds, test_share)
    write_json(root / "training_folder" / "bucket_indices.json", [str(bucket) for bucket in counts])
    return WrittenRelease(sum(counts.values()), counts)


def write_train_test(
    folder: str | Path,
    items: Callable[[str], Iterable[tuple[Mapping[str, Any], bytes]]],
    *,
    class_names: Sequence[str],
    vectors: Mapping[str, np.ndarray] | None = None,
    places: Mapping[str, np.ndarray] | None = None,
) -> WrittenRelease:
    """Write the images of one split in two folders, ``train`` and ``test``.

    Args:
        folder: as for ``write_release``.
        items: part -> its rows and image bytes, as for ``write_release``; split columns are ignored.
        class_names: class names in the order of the labels.
        vectors: type of features -> (n, d) numbers.
        places: part -> indices of the vectors of its rows, in the order of the rows.

    Returns:
        Counts of both parts together.

    Raises:
        ValueError: as for ``write_release``, or a key is in both parts.
    """
    counts: dict[int, int] = {}
    seen: set[str] = set()
    for part in ("train", "test"):
        root = Path(folder) / part
        indices: dict[str, dict[str, dict[str, str]]] = {name: {} for name in vectors or {}}
        start = 0
        for bucket, rows in _write_images(root, items(part), class_names, ()):
            counts[bucket] = counts.get(bucket, 0) + len(rows)
            if again := seen.intersection(keys := [Path(row.path).stem for row in rows]):
                raise ValueError(f"{min(again)!r} is among the training images and among the test images")
            seen.update(keys)
            labelled = [(key, row.label) for key, row in zip(keys, rows, strict=True)]
            for name, found in (vectors or {}).items():
                mine = found[(places or {})[part][start : start + len(rows)]]
                indices[name][str(bucket)] = _write_of_classes(root, name, bucket, class_names, labelled, mine)
            start += len(rows)
        for name, index in indices.items():
            write_json(root / "features" / name / "features.json", index)
    return WrittenRelease(sum(counts.values()), dict(sorted(counts.items())))


def _write_of_classes(
    root: Path, feature_type: str, bucket: int, class_names: Sequence[str], keys: Sequence[tuple[str, int]], found: np.ndarray
) -> dict[str, str]:
    """Write the features of a bucket, a file per class; return class -> path."""
    import torch

    places = {name: f"features/{checked_name('feature type', feature_type)}/{bucket}/{name}.pth" for name in class_names}
    for label, place in enumerate(places.values()):
        rows = [(key, at) for at, (key, of) in enumerate(keys) if of == label]
        held = {key: torch.from_numpy(np.array(found[at], dtype=np.float32)) for key, at in rows}
        with writing(root / place) as stream:
            torch.save(held, stream)
    return places


def _write_images(
    root: Path, items: Iterable[Item], class_names: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[int, list[_Listed]]]:
    """Write class names, images and metadata; yield the listed images of each bucket as soon as they are written."""
    labels = {checked_name("class name", name): label for label, name in enumerate(class_names)}
    if len(labels) < len(class_names):
        raise ValueError(f"class names {', '.join(class_names)}: one appears twice")
    write_text(root / "class_names.txt", "\n".join(class_names))
    index: dict[str, dict[str, str]] = {}
    for bucket, group in itertools.groupby(_in_order(items, labels), key=lambda item: item[0]["bucket"]):
        index[str(bucket)] = {name: _metadata_path(bucket, name) for name in class_names}
        yield bucket, _write_bucket(root, bucket, group, labels, seeds)
    write_json(root / "labeled_metadata.json", index)


@dataclasses.dataclass(frozen=True)
class _Listed:
    """An image in the lists: its path, its label, and its part in each split."""

    path: str
    label: int
    parts: tuple[str, ...]


Item = tuple[Mapping[str, Any], bytes]


def _in_order(items: Iterable[Item], labels: Mapping[str, int]) -> Iterator[Item]:
    last = (-1, -1)
    for row, data in items:
        if row["class_name"] not in labels:
            raise ValueError(f"class {row['class_name']!r} of {row['key']!r} is not among {', '.join(labels)}")
        place = (checked_bucket(row["bucket"]), labels[row["class_name"]])
        if place < last:
            raise ValueError(
                f"{row['key']!r} (bucket {place[0]}, label {place[1]}) comes after {last}: order by bucket and class"
            )
        last = place
        yield row, data


def _write_bucket(
    root: Path, bucket: int, items: Iterable[Item], labels: Mapping[str, int], seeds: Sequence[int]
) -> list[_Listed]:
    listed: list[_Listed] = []
    missing = dict.fromkeys(labels)
    for name, group in itertools.groupby(items, key=lambda item: item[0]["class_name"]):
        metadata: dict[str, dict[str, Any]] = {}
        for row, data in group:
            key, extension = checked_name("key", row["key"]), checked_extension(row["extension"], row["key"])
            if key in metadata:
                raise ValueError(f"key {key!r} appears twice in bucket {bucket}, class {name!r}")
            path = f"labeled_images/{bucket}/{name}/{key}.{extension}"
            write_whole(root / path, data, sync=False)
            metadata[key] = yfcc_metadata(row) | {"IMG_PATH": path}
            listed.append(_Listed(path, labels[name], tuple(_part(row, seed) for seed in seeds)))
        write_json(root / _metadata_path(bucket, name), metadata)
        del missing[name]
    for name in missing:  # readers look for every class in every bucket
        write_json(root / _metadata_path(bucket, name), {})
    return listed


def _metadata_path(bucket: int, name: str) -> str:
    return f"labeled_metadata/{bucket}/{name}.json"


def _part(row: Mapping[str, Any], seed: int) -> str:
    part = row.get(f"iid_seed{seed}")
    if part not in ("train", "test"):
        raise ValueError(f"iid_seed{seed} of {row['key']!r} is {part!r}: expected 'train' or 'test'")
    return part


def _write_lists(folder: Path, bucket: int, rows: Sequence[_Listed], seeds: Sequence[int], test_share: float) -> None:
    lines = [f"{row.path} {row.label}" for row in rows]
    write_text(folder / "filelists" / str(bucket) / "all.txt", "\n".join(lines))
    for place, seed in enumerate(seeds):
        # The released lists are in the order of the permutation that made them; for other rules the order has no meaning.
        order = released_permutation(len(rows), seed).tolist()
        target = folder / f"testset_ratio_{test_share}" / f"split_{seed}" / str(bucket)
        for part in ("train", "test"):
            chosen = [number for number in order if rows[number].parts[place] == part]
            write_text(target / f"{part}.txt", "\n".join(lines[number] for number in chosen))
            write_json(target / f"{part}_indices.json", chosen)


def write_feature_file(folder: str | Path, feature_type: str, bucket: int, features: np.ndarray, labels: Sequence[int]) -> Path:
    """Write the stored features of a bucket in the form that ``torch.load(path, weights_only=True)`` reads.

    Args:
        folder: the release's folder.
        feature_type: name, such as ``moco_b0``.
        bucket: number of the bucket.
        features: (n, d) float32, in the order of ``filelists/<bucket>/all.txt``.
        labels: n class labels.

    Returns:
        Path of the file.
    """
    import torch

    if features.ndim != 2 or len(features) != len(labels):
        raise ValueError(f"features of shape {features.shape} for {len(labels)} labels in bucket {bucket}")
    path = features_folder(folder, feature_type) / str(checked_bucket(bucket)) / "all.pth"
    tensor = torch.from_numpy(np.array(features, dtype=np.float32, order="C"))
    with writing(path) as stream:
        torch.save((tensor, [int(label) for label in labels]), stream)
    return path


def features_folder(folder: str | Path, feature_type: str) -> Path:
    """Folder of stored features in a release."""
    return Path(folder) / "training_folder" / "features" / checked_name("feature type", feature_type)


def write_all_metadata(folder: str | Path, rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Write the metadata of all images, labelled or not, bucket by bucket; one row is held at a time.

    Args:
        folder: the release's folder.
        rows: ordered by bucket, with ``key`` and ``bucket``; keys are unique.

    Returns:
        Number of rows per bucket.
    """
    counts: dict[int, int] = {}
    for bucket, group in itertools.groupby(rows, key=lambda row: row["bucket"]):
        if bucket in counts or (counts and bucket < max(counts)):
            raise ValueError(f"bucket {bucket} comes after bucket {max(counts)}: order by bucket")
        counts[bucket] = 0
        with writing(Path(folder) / "all_metadata" / f"{checked_bucket(bucket)}_metadata.json") as stream:
            for row in group:
                start = "{\n" if counts[bucket] == 0 else ",\n"
                stream.write(f"{start}{_json(str(row['key']))}: {_json(yfcc_metadata(row))}".encode())
                counts[bucket] += 1
            stream.write(b"\n}")
    return counts


def yfcc_metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's plain values under YFCC100M's column names, with times in YFCC's format, without payloads and splits."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, (Blob, bytes, np.ndarray)) or name.startswith("iid_seed"):
            continue
        if name == "date_uploaded" and "uploaded_unix" in row:
            continue
        out[YFCC_NAMES.get(name, name.upper())] = _yfcc_time(value) if isinstance(value, dt.datetime) else value
    return out


def _yfcc_time(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 100000}"


def checked_name(what: str, text: str) -> str:
    """Return ``text`` if it can be one part of a path and one word of a list; else raise ``ValueError``."""
    if not isinstance(text, str) or not _NAME.match(text) or ".." in text or len(text.encode()) > _LONGEST_NAME:
        raise ValueError(
            f"{what} {text!r} cannot be a file name here: letters, digits and _ . + @ - are, not beginning with a dot, "
            f"without blanks, at most {_LONGEST_NAME} bytes"
        )
    return text


def checked_extension(text: str, key: str) -> str:
    """Return ``text`` if it is a file extension without its dot; else raise ``ValueError``."""
    if not isinstance(text, str) or not _EXTENSION.match(text):
        raise ValueError(f"extension {text!r} of {key!r}: expected 1 to 8 letters and digits")
    return text


def checked_bucket(bucket: int) -> int:
    """Return ``bucket`` if it is a number from 0; else raise ``ValueError``."""
    if isinstance(bucket, bool) or not isinstance(bucket, int) or bucket < 0:
        raise ValueError(f"bucket {bucket!r}: expected a whole number from 0")
    return bucket


# ---------------------------------------------------------------------------------------------------------------- files


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text without a newline after the last line (Avalanche splits ``class_names.txt`` at newlines)."""
    write_whole(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON. Raises ``TypeError`` for a value that JSON cannot represent, ``ValueError`` for NaN."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
