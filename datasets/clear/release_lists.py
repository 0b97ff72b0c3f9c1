"""A release of CLEAR in a folder: its lists are read and never recomputed.

Two layouts, both described and published by the authors, are distinguished by their files:

* ``class_names.txt`` at the top (CLEAR-10 of the paper, CLEAR-100 of 2022, and what ``benchwright release`` writes): the lists
  of ``training_folder`` are read; without them, ``labeled_metadata.json``. See ``release.py`` for the files.
* ``train/class_names.txt``, ``test/class_names.txt`` (CLEAR-10 and CLEAR-100 of July 2022): ``labeled_metadata.json`` of each
  is read; the images of ``test`` are the test set of every seed.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...curation.bounded_reading import MAX_BYTES, parse_json
from ...curation.rows import Reject, Rejected, is_text, printable
from ...curation.stages.folder import Folder, FolderEntry, is_outside, open_folder, safe_key, walk
from .splits import SEEDS

ELSEWHERE = "bucket_not_taken", "class_not_taken", "unlabelled", "hidden", "not_in_layout"
"""Reasons of rejects that are not errors of the release: images that were not requested, and files without a labelled image."""

_KEY = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,78}[A-Za-z0-9_])?\Z")
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,8})\Z")
_OF_LAYOUT = re.compile(
    r"(class_names\.txt|(labeled_metadata|all_metadata|concept_group_dict|clip_result)\.json"
    r"|labeled_metadata/[^/]+/[^/]+\.json|all_metadata/[^/]+\.json|(training_folder|features)/.+)\Z"
)


@dataclass(frozen=True)
class Part:
    """The folder that holds lists and images: the release itself, or its ``train`` or ``test``.

    Attributes:
        folder: folder of the release.
        at: "", "train" or "test".
        names: names of the classes, in the order of their labels.
    """

    folder: Folder
    at: str
    names: tuple[str, ...]

    def text(self, name: str) -> str | None:
        """Content of a text file, or None if it does not exist."""
        return read_text(self.folder, posixpath.join(self.at, name))

    def lines(self, name: str) -> list[str] | None:
        """Lines of a text file that are not empty, or None if it does not exist."""
        text = self.text(name)
        return None if text is None else [line for line in text.splitlines() if line.strip()]

    def json(self, name: str, kind: type) -> Any:
        """Value of a JSON file, a list or an object as ``kind`` says; None if the file does not exist."""
        text, place = self.text(name), posixpath.join(self.at, name)
        if text is None:
            return None
        value = parse_json(text.encode(), place)
        if not isinstance(value, kind):
            raise ValueError(f"{place} holds {type(value).__name__}, expected {kind.__name__}")
        return value


@dataclass(frozen=True)
class PlaceInRelease:
    """Where an image is in its release.

    Attributes:
        key: key for the image's ID, see ``key_of_id``.
        bucket: bucket number in the release.
        label: index of the class in ``class_names.txt``.
        class_name: the class.
        listed_at: place in its bucket's list, from 0.
        part: "", or "train" or "test" of a release in two parts.
        file: path in the release.
    """

    key: str
    bucket: int
    label: int
    class_name: str
    listed_at: int
    part: str
    file: str


@dataclass(frozen=True)
class ListedImage:
    """A line of a list: an image with its label and metadata.

    Attributes:
        at: number of the line in its bucket's list.
        path: path of the image in its part of the release.
        label: label as written.
        metadata: metadata of the image; empty if there are none.
    """

    at: int
    path: str
    label: str
    metadata: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The line as lists have it, with a single blank."""
        return f"{self.path} {self.label}".strip()


def _fields(line: str) -> tuple[str, str]:
    path, _, label = line.strip().rpartition(" ")
    return path.strip(), label


def read_text(folder: Folder, name: str) -> str | None:
    """Content of a text file of a folder, or None if it does not exist. Raises ``ValueError`` if it cannot be read."""
    try:
        return folder.read(name, max_bytes=MAX_BYTES).decode("utf-8-sig")
    except Reject as reject:
        if reject.reason == "missing_file":
            return None
        raise ValueError(f"{name}: {reject.reason}: {reject.detail}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: byte {error.start} of it is not UTF-8") from None


def release_parts(folder: Folder) -> list[Part]:
    """The release itself, or its train and test parts.

    Raises:
        ValueError: ``class_names.txt`` does not exist, or differs between train and test.
    """
    found = [Part(folder, at, names) for at in ("", "train", "test") if (names := _class_names(folder, at))]
    if not found:
        raise ValueError(
            f"{folder.root}: neither class_names.txt nor train/class_names.txt found: source.root must be the folder of a "
            "release"
        )
    if found[0].at == "":
        return found[:1]
    if len({part.names for part in found}) > 1:
        raise ValueError(f"{folder.root}: train/class_names.txt and test/class_names.txt name other classes")
    return found


def class_names(root: str) -> tuple[str, ...]:
    """Class names of a release in the order of the labels. Raises as ``release_parts`` does."""
    return release_parts(open_folder(root))[0].names


def _class_names(folder: Folder, at: str) -> tuple[str, ...]:
    text = read_text(folder, place := posixpath.join(at, "class_names.txt"))
    names = [] if text is None else [line.strip() for line in text.strip().splitlines()]
    if text is not None and (not all(names) or not names or len(set(names)) < len(names)):
        raise ValueError(f"{place}: expected one name a line, each once")
    return tuple(names)


def buckets_of(part: Part) -> dict[int, str]:
    """Bucket numbers and names in order, from ``bucket_indices.json`` or else ``labeled_metadata.json``."""
    place = "training_folder/bucket_indices.json"
    names = part.json(place, list)
    if names is None:
        place = "labeled_metadata.json"
        names = part.json(place, dict)
    if names is None:
        message = f"neither training_folder/bucket_indices.json nor {place} found"
        raise ValueError(f"{posixpath.join(part.folder.root, part.at)}: {message}: one of them names the buckets")
    found: dict[int, str] = {}
    for name in map(str, names):
        if not _NUMBER.match(name) or int(name) in found:
            raise ValueError(
                f"{posixpath.join(part.at, place)}: bucket {name[:40]!r}: expected whole numbers from 0, each once"
            )
        found[int(name)] = name
    return dict(sorted(found.items()))


def lines_of(part: Part, bucket: str) -> Iterator[ListedImage | Rejected]:
    """The labelled images of a bucket, from ``training_folder/filelists`` or else ``labeled_metadata``."""
    place = f"training_folder/filelists/{bucket}/all.txt"
    lines, metadata = part.lines(place), dict(_metadata(part, bucket))
    if lines is None:
        if part.text("training_folder/bucket_indices.json") is not None:
            raise ValueError(
                f"{posixpath.join(part.at, place)} not found, although bucket_indices.json lists the bucket: list the "
                "buckets to use in source.buckets"
            )
        yield from _by_metadata(part, metadata)
        return
    for at, line in enumerate(lines):
        path, label = _fields(line)
        name = part.names[int(label)] if _NUMBER.match(label) and int(label) < len(part.names) else ""
        yield ListedImage(at, path, label, metadata.get(name, {}).get(id_of(path), {}))


def _by_metadata(part: Part, metadata: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[ListedImage | Rejected]:
    at = 0
    for name in [*part.names, *(name for name in metadata if name not in part.names)]:
        for identity, values in metadata.get(name, {}).items():
            path, label = values.get("IMG_PATH"), str(part.names.index(name)) if name in part.names else name
            if isinstance(path, str):
                yield ListedImage(at, path, label, values)
            else:
                yield Rejected(f"./{printable(identity)}", "bad_metadata", f"{name}: IMG_PATH is {path!r:.40}")
            at += 1


def _metadata(part: Part, bucket: str) -> Iterator[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """Class -> ID -> metadata for one bucket."""
    index = part.json("labeled_metadata.json", dict)
    usual = {name: f"labeled_metadata/{bucket}/{name}.json" for name in part.names}
    places = usual if index is None else index.get(bucket, {})
    for name, place in cast("dict[Any, Any]", places).items() if isinstance(places, dict) else ():
        if not isinstance(place, str) or is_outside(place):
            raise ValueError(f"labeled_metadata.json: the file of bucket {bucket}, class {name!r} is {place!r:.80}")
        values = part.json(place, dict)
        if values is None and index is not None:
            raise ValueError(f"{posixpath.join(part.at, place)} is not there, and labeled_metadata.json names it")
        if not all(isinstance(value, dict) for value in (values or {}).values()):
            raise ValueError(f"{posixpath.join(part.at, place)}: expected an object for each ID")
        yield name, values or {}


def splits_of(
    part: Part, bucket: str, lines: Sequence[ListedImage], folders: Mapping[int, str]
) -> tuple[dict[int, dict[int, str]], list[Rejected]]:
    """Seed -> line number -> ``train``, ``test`` or ``both``; and rejects for lines of a split that the bucket's list lacks."""
    at = {line.line: line.at for line in lines}
    if part.at:  # one test set for all seeds
        return {seed: dict.fromkeys(at.values(), part.at) for seed in SEEDS}, []
    splits: dict[int, dict[int, str]] = {}
    rejects: list[Rejected] = []
    for seed, folder in folders.items():
        found = splits[seed] = {}
        for name in ("train", "test"):
            place = f"{folder}/{bucket}/{name}"
            chosen, numbers = part.lines(f"{place}.txt"), part.json(f"{place}_indices.json", list)
            texts = None if numbers is None else [_line(lines, number, f"{place}_indices.json") for number in numbers]
            chosen = texts if chosen is None else [" ".join(_fields(line)).strip() for line in chosen]
            if chosen is None:
                raise ValueError(f"{place}.txt is not there: a split names the train and test images of every bucket")
            if texts is not None and chosen != texts:
                raise ValueError(f"{place}.txt and {name}_indices.json name other images")
            for line in chosen:
                if line in at:
                    found[at[line]] = "both" if at[line] in found and found[at[line]] != name else name
                else:
                    rejects.append(Rejected(f"./{printable(line)[:200]}", "not_in_filelist", f"{place}.txt names it"))
    return splits, rejects


def _line(lines: Sequence[ListedImage], number: Any, place: str) -> str:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(lines):
        raise ValueError(f"{place}: {number!r:.40} is not a line number: {len(lines)} images are listed")
    return lines[number].line


def split_folders(part: Part, files: Mapping[str, FolderEntry], test_share: float) -> dict[int, str]:
    """Seed -> folder of its split; empty if the release has no splits.

    Raises:
        ValueError: the release has splits for other test shares only.
    """
    found = {match[1]: match[2] for name in files if (match := re.match(r"training_folder/(testset_ratio_([^/]+))/", name))}
    wanted = f"testset_ratio_{test_share}"
    if part.at or not found:
        return {}
    if wanted not in found:
        available = f"{', '.join(sorted(found))} is: set source.test_share = {min(found.values())}"
        raise ValueError(f"training_folder/{wanted} not found, {available}")
    folders = {seed: f"training_folder/{wanted}/split_{seed}" for seed in SEEDS}
    return {seed: at for seed, at in folders.items() if any(name.startswith(f"{at}/") for name in files)}


def files_of(folder: Folder) -> dict[str, FolderEntry]:
    """Every file of the release by path."""
    return {posixpath.join(at, entry.name): entry for at, entries in walk(folder) for entry in entries}


def unlisted_files(
    files: Mapping[str, FolderEntry], parts: Sequence[Part], named: set[str], skipped: set[str]
) -> Iterator[Rejected]:
    """A reject for every file that no list names, except for the files of the layout itself.

    Args:
        files: files of the release.
        parts: parts of the release.
        named: paths that the lists name.
        skipped: names of the buckets whose lists were not read.
    """
    for path, entry in files.items():
        if path in named:
            continue
        top, _, rest = path.partition("/")
        inner, shown = rest if top in [part.at for part in parts] else path, f"./{printable(path)}"
        if entry.reason is not None:
            yield Rejected(shown, entry.reason, entry.detail)
        elif inner.startswith("labeled_images/"):
            other = inner.split("/")[1] in skipped
            text = "its bucket is not in source.buckets" if other else "no list names it"
            yield Rejected(shown, "bucket_not_taken" if other else "not_listed", text)
        elif inner.startswith("all_images/"):
            yield Rejected(shown, "unlabelled", "one of all images")
        elif not _OF_LAYOUT.match(inner):
            yield Rejected(shown, "not_in_layout", "a release has no such file")


def id_of(path: str) -> str:
    """ID of an image: its file name without the extension."""
    return posixpath.splitext(posixpath.basename(path))[0]


def key_of_id(name: str) -> str:
    """Key of an image for its ID: the ID itself if it is valid as the name of a shard's member."""
    return name if _KEY.match(name) else safe_key(name)


def other_metadata(metadata: Mapping[str, Any]) -> str:
    """The metadata as JSON, without the paths on the authors' disk and in the release. Raises ``Reject``."""
    known = {name: value for name, value in metadata.items() if name not in ("IMG_PATH", "IMG_DIR")}
    try:
        text = json.dumps(known, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise Reject("bad_metadata", str(error)) from None
    if not is_text(text):
        raise Reject("bad_metadata", "half of a surrogate pair, which is not valid text")
    return text
