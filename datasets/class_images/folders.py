"""Pictures in class folders or in tars, including the layouts of ImageNet and Tiny-ImageNet.

The class of a file is determined by its path: the folder that contains it (except for ``images``), or else the tar.

* ``train/n01440764/n01440764_18.JPEG`` and ``val/n01440764/...``: ImageNet, sorted into folders; any folder of class folders.
* ``train/n01440764.tar/n01440764_18.JPEG``: the tars that ILSVRC2012_img_train.tar holds.
* ``train/n01443537/images/n01443537_0.JPEG``: Tiny-ImageNet.
* ``val/images/val_0.JPEG``, ``val/ILSVRC2012_img_val.tar/ILSVRC2012_val_00000001.JPEG``: with a list of classes.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ...curation.bounded_reading import utf8_lines
from ...curation.rows import Blob, Rejected, printable
from ...curation.stages.folder import FolderEntry, folders_in, open_folder, walk
from ...curation.stages.image_format import KNOWN_EXTENSIONS
from ...curation.stages.image_sources import FoundImage, extension_of, folder_pieces, read_folder
from ...curation.stages.tar_sources import read_tar, tar_pieces


@dataclass(frozen=True)
class ClassImage:
    """A picture, not yet decoded.

    Attributes:
        key: key of the file; letters, digits, ``_`` and ``-``.
        image: the unchanged bytes of the file; for sources without files a lossless PNG.
        extension: extension of the file name, lower case; "" if it has none.
        split: ``train``, ``test``, or "" if the source has no splits.
        class_name: the finest class.
        file: path within the source. It determines the order of the samples within a class.
    """

    key: str
    image: Blob
    extension: str
    split: str
    class_name: str
    file: str


PicturesForm = Literal["folders", "tars"]

_TAR = re.compile(r"\.(tar|tgz|tar\.(gz|bz2|xz))\Z", re.IGNORECASE)
_FIELD = re.compile(r"[,\s]+")


def image_pieces(*, root: str, form: PicturesForm) -> Iterator[str]:
    """Pieces of ``curation.stages.image_sources.folder_pieces`` or ``tar_pieces``."""
    yield from folder_pieces(root=root) if form == "folders" else tar_pieces(root=root)


def read_class_images(
    piece: str,
    *,
    root: str,
    form: PicturesForm,
    splits: Mapping[str, Literal["train", "test"]],
    classes: str | None = None,
    max_bytes: int = 100_000_000,
) -> Iterator[ClassImage | Rejected]:
    """Source step: the pictures of one piece, with unchanged bytes.

    Rejected: as for ``read_folder`` or ``read_tar``, ``no_split`` (the topmost folder is not in ``splits``) and ``no_class``.

    Args:
        piece: one of ``image_pieces`` with the same ``root`` and ``form``.
        root: local path or fsspec URL.
        splits: topmost folder -> role; empty: the source has no splits.
        classes: list of classes for files whose path does not contain the class; see ``read_class_list``. It has priority over
            the path.
        max_bytes: larger files are rejected.
    """
    listed = {} if classes is None else read_class_list(classes)
    read = functools.partial(read_folder, exif=False) if form == "folders" else read_tar
    for found in read(piece, root=root, source_name="", require_date=False, max_bytes=max_bytes):
        yield found if isinstance(found, Rejected) else _placed(found, splits, listed)


def _placed(found: FoundImage, splits: Mapping[str, str], listed: Mapping[str, str]) -> ClassImage | Rejected:
    folders = found.file.split("/")[:-1]
    split = ""
    if splits:
        top = folders[0] if folders else ""
        if top not in splits:
            return Rejected(found.key, "no_split", f"{printable(found.file)}: {top!r} is not one of {', '.join(splits)}")
        split = splits[top]
    name = listed.get(posixpath.splitext(posixpath.basename(found.file))[0]) or _class_of(folders[1:] if splits else folders)
    if not name:
        return Rejected(found.key, "no_class", f"{printable(found.file)}: it is not in a class folder, and not in a list")
    return ClassImage(found.key, found.image, found.extension, split, name, found.file)


def missing_folders(root: str, names: Iterable[str]) -> list[str]:
    """Classes without a folder of their name in the first three levels; none if the source is not local, since it would have
    to be listed over the network. Folders below those of the classes, which hold the pictures, are not listed.

    >>> from pathlib import Path
    >>> for name in ("animal/cat", "animal/dog"):
    ...     Path("pictures", name).mkdir(parents=True)
    >>> missing_folders("pictures", ["cat", "cow"])
    ['cow']
    """
    left, places = list(names) if open_folder(root).local else [], [root]
    for _ in range(3):
        if not left:
            break
        places = [posixpath.join(place, name) for place in places for name in folders_in(open_folder(place))]
        found = set(map(posixpath.basename, places))
        left = [name for name in left if name not in found]
    return left


def picture_folders(root: str, splits: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Split, class and path of every folder of a local source that holds pictures, recognised by extension; none if the
    folder is not local.

    >>> from pathlib import Path
    >>> for name in ("animal/cat", "house"):
    ...     Path("pictures", name).mkdir(parents=True, exist_ok=True)
    ...     Path("pictures", name, "1.jpg").touch()
    >>> list(picture_folders("pictures", {}))
    [('', 'cat', 'animal/cat'), ('', 'house', 'house')]
    """
    folder = open_folder(root)
    for at, entries in walk(folder, sizes=False) if folder.local else ():
        first, _, rest = at.partition("/")
        name = _class_of((rest if splits else at).split("/"))
        if name and (not splits or first in splits) and any(_is_picture(entry) for entry in entries):
            yield splits.get(first, ""), name, at


def _is_picture(entry: FolderEntry) -> bool:
    return entry.reason is None and extension_of(entry.name) in KNOWN_EXTENSIONS


def _class_of(folders: list[str]) -> str:
    inner = folders[:-1] if folders and folders[-1] == "images" else folders
    return _TAR.sub("", inner[-1]) if inner else ""


@functools.lru_cache(maxsize=4)
def read_class_list(path: str) -> Mapping[str, str]:
    """File name without extension -> class.

    Args:
        path: text with a file and its class per line, separated by a comma, a tab or spaces; further fields are ignored.
            Tiny-ImageNet's ``val_annotations.txt`` and Kaggle's ``LOC_val_solution.csv`` have this form; a header is skipped.

    Raises:
        ValueError: a line has no class, or a file has two; the message names the line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(utf8_lines(path, f"list of classes {path!r}"), 1):
        fields = _FIELD.split(line.strip(), maxsplit=2)
        if not line.strip() or (number == 1 and fields[0].lower() in ("imageid", "file", "image")):
            continue
        if len(fields) < 2 or not fields[1]:
            raise ValueError(f"list of classes {path!r}, line {number}: {line[:80]!r} is not a file and its class")
        stem = posixpath.splitext(posixpath.basename(fields[0]))[0]
        if found.setdefault(stem, fields[1]) != fields[1]:
            raise ValueError(f"list of classes {path!r}, line {number}: {stem!r} is {found[stem]!r} and {fields[1]!r}")
    return found
