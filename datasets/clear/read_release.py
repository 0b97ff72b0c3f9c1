"""The source ``release``: images of a CLEAR release with their labels, buckets and splits; see ``published``."""

from __future__ import annotations

import datetime as dt
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...curation.bounded_reading import bounded
from ...curation.rows import Blob, Reject, Rejected, is_text, printable
from ...curation.stages.dates import parse_local, parse_utc
from ...curation.stages.folder import Folder, FolderEntry, is_outside, open_folder
from ...curation.stages.image_sources import BYTES_PER_PIECE, FILES_PER_PIECE, extension_of
from . import release_lists
from .release_lists import ListedImage, Part, PlaceInRelease
from .splits import SEEDS


@dataclass(frozen=True)
class Released(PlaceInRelease):
    """An image of a release, as its lists describe it.

    Attributes:
        date_taken: naive local time; None if it is not in the metadata.
        date_uploaded: naive UTC; None if it is not in the metadata.
        labels: JSON object of the metadata.
        iid_seed0: ``train`` or ``test`` in the split of seed 0, None if the release has no such split; and so on.
    """

    date_taken: dt.datetime | None
    date_uploaded: dt.datetime | None
    labels: str
    iid_seed0: str | None
    iid_seed1: str | None
    iid_seed2: str | None
    iid_seed3: str | None
    iid_seed4: str | None


@dataclass(frozen=True)
class ReleasedImage(Released):
    """A ``Released`` image with its file."""

    extension: str
    image: Blob


def release_pieces(
    *,
    root: str,
    images: bool = True,
    buckets: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
    test_share: float = 0.3,
    files_per_piece: int = FILES_PER_PIECE,
    bytes_per_piece: int = BYTES_PER_PIECE,
) -> Iterator[str]:
    """List the images of a release in pieces, in the order of the release's lists.

    Args:
        root: folder of the release, local or an fsspec URL.
        images: whether image files are needed; if not, only the lists must exist.
        buckets, classes: buckets and classes to include; all by default.
        test_share: test share in the name of the folder of the splits, ``testset_ratio_0.3``.
        files_per_piece: maximum number of files per piece.
        bytes_per_piece: maximum bytes per piece, unless it is a single file.

    Yields:
        JSON: ``rows`` (the fields of ``Released``) and ``rejects`` (key, reason, detail). The reasons: ``bad_line``,
        ``unknown_class``, ``outside_folder``, ``bucket_differs`` and ``class_differs`` (the path and the list disagree),
        ``class_not_taken``, ``duplicate_id``, ``in_train_and_test``, ``in_no_split``, ``not_in_filelist``,
        ``bad_metadata``, ``missing_file``, and for files that no list names those of ``release_lists.unlisted_files``.

    Raises:
        ValueError: the folder is not a release, or a list is missing or broken; the message names the file.
    """
    rows: list[dict[str, Any]] = []
    rejects: list[Rejected] = []
    total = 0
    for found in bounded(_listed(open_folder(root), images, buckets, classes, test_share), root):
        if isinstance(found, Rejected):
            rejects.append(found)
            continue
        row, size = found
        if rows and (len(rows) == files_per_piece or total + size > bytes_per_piece):
            yield json.dumps({"rows": rows, "rejects": rejects})
            rows, rejects, total = [], [], 0
        rows.append(row)
        total += size
    if rows or rejects:
        yield json.dumps({"rows": rows, "rejects": rejects})


def _listed(
    folder: Folder, images: bool, buckets: Sequence[int] | None, classes: Sequence[str] | None, test_share: float
) -> Iterator[tuple[dict[str, Any], int] | Rejected]:
    """Rows with the sizes of their files; and rejects."""
    parts, files = release_lists.release_parts(folder), release_lists.files_of(folder)
    names = {part.at: release_lists.buckets_of(part) for part in parts}
    known = sorted({number for each in names.values() for number in each})
    _check_known("buckets", buckets, known)
    _check_known("classes", classes, parts[0].names)
    taken = [number for number in known if buckets is None or number in buckets]
    keys: set[str] = set()
    named: set[str] = set()
    for part, bucket in ((part, names[part.at][number]) for number in taken for part in parts if number in names[part.at]):
        found = list(release_lists.lines_of(part, bucket))
        yield from (each for each in found if isinstance(each, Rejected))
        lines = [each for each in found if isinstance(each, ListedImage)]
        splits, lost = release_lists.splits_of(part, bucket, lines, release_lists.split_folders(part, files, test_share))
        yield from lost
        for line in lines:
            named.add(path := posixpath.join(part.at, line.path))
            try:
                row = _row(part, bucket, line, splits)
                if classes is not None and row["class_name"] not in classes:
                    raise Reject("class_not_taken", f"{row['class_name']} is not in source.classes")
                if row["key"] in keys:
                    raise Reject("duplicate_id", f"another image has the ID {release_lists.id_of(line.path)}")
                size = _size(files, path) if images else 0
            except Reject as reject:
                yield Rejected(f"./{printable(path)}", reject.reason, printable(reject.detail))
            else:
                keys.add(row["key"])
                yield row, size
    skipped = {each[number] for each in names.values() for number in each if number not in taken}
    yield from release_lists.unlisted_files(files, parts, named, skipped)


def _check_known(setting: str, chosen: Sequence[Any] | None, known: Sequence[Any]) -> None:
    if strange := [each for each in chosen or () if each not in known]:
        raise ValueError(f"source.{setting}: {strange[0]!r} is not in the release: there are {', '.join(map(str, known))}")


def _row(part: Part, bucket: str, line: ListedImage, splits: Mapping[int, Mapping[int, str]]) -> dict[str, Any]:
    """The fields of ``Released`` for a line of a list, with times as text. Raises ``Reject``."""
    if not line.path or not is_text(line.path):
        raise Reject("bad_line", f"{line.path} {line.label}: expected a path and the number of a class"[:200])
    if is_outside(line.path):
        raise Reject("outside_folder", line.path)
    if not line.label.isascii() or not line.label.isdigit() or len(line.label) > 9 or int(line.label) >= len(part.names):
        raise Reject("unknown_class", f"{line.label[:80]!r}: class_names.txt has {len(part.names)} names")
    label, (top, *inner) = int(line.label), line.path.split("/")
    if top == "labeled_images" and len(inner) == 3:
        for reason, said, wanted in (("bucket_differs", inner[0], bucket), ("class_differs", inner[1], part.names[label])):
            if said != wanted:
                raise Reject(reason, f"the path says {said}, the list {wanted}")
    parts = {seed: split.get(line.at, "none") for seed, split in splits.items()}
    for seed, reason in ((seed, _NO_PART[name]) for seed, name in parts.items() if name in _NO_PART):
        raise Reject(reason, f"split {seed}")
    return {
        "key": release_lists.key_of_id(release_lists.id_of(line.path)),
        "bucket": int(bucket),
        "label": label,
        "class_name": part.names[label],
        "listed_at": line.at,
        "part": part.at,
        "file": posixpath.join(part.at, line.path),
        "date_taken": str(line.metadata.get("DATE_TAKEN", "")),
        "date_uploaded": str(line.metadata.get("DATE_UPLOADED", "")),
        "labels": release_lists.other_metadata(line.metadata),
        **{f"iid_seed{seed}": parts.get(seed) for seed in SEEDS},
    }


_NO_PART = {"both": "in_train_and_test", "none": "in_no_split"}


def _size(files: Mapping[str, FolderEntry], path: str) -> int:
    entry = files.get(posixpath.normpath(path))
    if entry is None:
        raise Reject("missing_file", "a list names it, and it is not there")
    if entry.reason is not None:
        raise Reject(entry.reason, entry.detail)
    return entry.size


def read_release(piece: str, *, root: str, images: bool = True, max_bytes: int) -> Iterator[Released | Rejected]:
    """Photos in one piece of ``release_pieces``, with the labels, buckets and splits of the release's lists.

    Args:
        piece: one result of ``release_pieces`` with the same ``root``.
        root: folder of the release.
        images: whether to read the images; rows are then ``ReleasedImage``.
        max_bytes: larger files are rejected as ``too_large``.

    Yields:
        Rows, and the rejects in the piece; files that cannot be read are ``missing_file``, ``not_a_file``,
        ``outside_folder``, ``too_large`` or ``unreadable``.
    """
    folder, listed = open_folder(root), json.loads(piece)
    for fields in listed["rows"]:
        dates = {"date_taken": parse_local(fields["date_taken"]), "date_uploaded": parse_utc(fields["date_uploaded"])}
        row = fields | dates
        if not images:
            yield Released(**row)
            continue
        try:
            data = folder.read(row["file"], max_bytes=max_bytes)
            yield ReleasedImage(**row, extension=extension_of(row["file"]), image=Blob(data))
        except Reject as reject:
            yield Rejected(row["key"], reject.reason, reject.detail)
    yield from (Rejected(*reject) for reject in listed["rejects"])
