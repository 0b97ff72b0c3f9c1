"""Images from tars, plain or WebDataset, compressed or not, read without extracting them to disk."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import typing
from collections.abc import Container, Iterator
from dataclasses import dataclass
from tarfile import TarInfo
from typing import Any, Literal

from ..bounded_reading import compression_by_name, decompressed
from ..rows import Blob, Reject, Rejected, is_text, printable
from ..tars import TAR_ERRORS, members
from .exif import read_exif
from .folder import Folder, is_outside, key_of, open_folder, walk
from .image_format import KNOWN_EXTENSIONS, normal_extension
from .image_sources import BYTES_PER_PIECE, FILES_PER_PIECE, MAX_BYTES, FoundImage, check_content, csv_dates, extension_of

_TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_SIDECARS = ("json", "txt", "cls")


def tar_pieces(
    *,
    root: str,
    form: Literal["plain", "webdataset"] = "plain",
    files_per_piece: int = FILES_PER_PIECE,
    bytes_per_piece: int = BYTES_PER_PIECE,
) -> Iterator[str]:
    """List the tars in a folder tree by the headers of their members, in pieces of consecutive members.

    In an uncompressed tar the bodies are skipped. A compressed tar is decompressed once here, and for each piece again up to
    the end of that piece: better leave tars of images uncompressed, or keep them below ``bytes_per_piece``.

    Args:
        root: local path or fsspec URL of a folder. Tars end in .tar, .tar.gz, .tgz, .tar.bz2 or .tar.xz.
        form: ``plain``: each member is a file. ``webdataset``: consecutive members whose names agree up to the first dot
            are one sample.
        files_per_piece: maximum number of samples in a piece.
        bytes_per_piece: maximum bytes in a piece, unless it is a single sample.

    Yields:
        JSON: ``tar``, ``offset`` of the piece's first header, ``samples`` (file, and the members by extension, each as its
        number from the first member of the piece) and ``rejects``. The rejects: those of ``folder_pieces``, ``not_a_tar`` for
        other files, ``not_an_image`` and ``several_images`` for samples, and ``truncated_tar`` for a tar that is cut off or
        damaged, lacks its end marker, or holds bytes other than members and zeros. Such a tar is listed as far as possible;
        the detail gives the number of bytes not read. Members after an end marker are read, as by ``tar --ignore-zeros``.
    """
    folder = open_folder(root)
    for at, entries in walk(folder):
        rejects: list[Rejected] = []
        for entry in entries:
            path = posixpath.join(at, entry.name)
            if entry.reason is not None:
                rejects.append(Rejected(f"./{printable(path)}", entry.reason, entry.detail))
            elif path.lower().endswith(_TAR_ENDINGS):
                yield from _list_tar(folder, path, form == "webdataset", files_per_piece, bytes_per_piece)
            else:
                rejects.append(Rejected(f"./{path}", "not_a_tar", f"does not end in {', '.join(_TAR_ENDINGS)}"))
        if rejects:
            yield json.dumps({"tar": "", "offset": 0, "samples": [], "rejects": rejects})


def read_tar(
    piece: str, *, root: str, source_name: str, require_date: bool = True, max_bytes: int = MAX_BYTES
) -> Iterator[FoundImage | Rejected]:
    """Read the photos of one piece of ``tar_pieces`` in one pass, one sample at a time in memory.

    The ``.json`` of a WebDataset sample (an object) may contain ``date_taken`` and ``date_uploaded``; its other fields become
    labels, as do ``.txt`` and ``.cls``. Without ``date_taken``, the date of capture comes from EXIF.

    Args:
        piece: JSON text from ``tar_pieces`` for the same ``root``.
        root: local path or fsspec URL of a folder.
        source_name: value of the column of that name.
        require_date: reject photos without a date of capture (``no_date``).
        max_bytes: larger members are rejected as ``too_large``.

    Yields:
        Images, keyed by the names of tar and member, and rejects: those of the listing, ``not_an_image``, ``too_large``,
        ``truncated``, ``bad_sidecar``, ``bad_date`` and ``no_date``.
    """
    listed = json.loads(piece)
    samples = listed["samples"]
    wanted = {place: (n, part) for n, sample in enumerate(samples) for part, place in sample["members"].items()}
    bodies: dict[str, bytes | None] = {}
    done, problem = 0, "the tar ends here"
    folder = open_folder(root)
    try:
        for place, body in _read_members(folder, listed["tar"], listed["offset"], wanted, max_bytes):
            number, part = wanted[place]
            bodies[part] = body
            if len(bodies) == len(samples[number]["members"]):
                done = number + 1
                yield _tar_image(samples[number], bodies, source_name, require_date)
                bodies = {}
            if done == len(samples):
                break  # the rest of the tar belongs to other pieces
    except TAR_ERRORS as error:
        folder.check_fault(error, listed["tar"])
        problem = f"{type(error).__name__}: {error}"
    for sample in samples[done:]:
        yield Rejected(sample["key"], "truncated", f"{sample['file']}: {problem}")
    yield from (Rejected(*reject) for reject in listed["rejects"])


def _read_members(
    folder: Folder, tar: str, offset: int, wanted: Container[int], max_bytes: int
) -> Iterator[tuple[int, bytes | None]]:
    """Yield (place, body) of the wanted members from ``offset`` on; None for a body that is too large."""
    if tar:
        with folder.open(tar) as stream, decompressed(stream, compression_by_name(tar)) as plain:
            plain.seek(offset)
            for place, member, archive in members(plain):
                if place in wanted:
                    body = archive.extractfile(member) if member.size <= max_bytes else None
                    yield place, None if body is None else body.read()


@dataclass(slots=True)
class _Sample:
    """Members that belong together: extension -> number of the member in the tar."""

    file: str
    offset: int
    first: int
    size: int = 0
    members: dict[str, int] = dataclasses.field(default_factory=dict)


def _list_tar(folder: Folder, tar: str, webdataset: bool, max_files: int, max_bytes: int) -> Iterator[str]:
    rejects: list[Rejected] = []
    samples: list[dict[str, Any]] = []
    keys: set[str] = set()
    size = offset = first = 0
    for sample in _list_samples(folder, tar, webdataset, rejects):
        listed = _listed(sample, tar, webdataset, keys)
        if isinstance(listed, Rejected):
            rejects.append(listed)
            continue
        if samples and (len(samples) == max_files or size + sample.size > max_bytes):
            yield json.dumps({"tar": tar, "offset": offset, "samples": samples, "rejects": rejects})
            samples, size = [], 0
            rejects.clear()  # in place: _list_samples adds to this list
        if not samples:
            offset, first = sample.offset, sample.first
        listed["members"] = {part: place - first for part, place in listed["members"].items()}
        samples.append(listed)
        size += sample.size
    if samples or rejects:
        yield json.dumps({"tar": tar if samples else "", "offset": offset, "samples": samples, "rejects": rejects})


def _listed(sample: _Sample, tar: str, webdataset: bool, keys: set[str]) -> dict[str, Any] | Rejected:
    """Entry of a sample in its piece: key, file, and the members to read as image and as metadata."""
    file, members = sample.file, {"image": next(iter(sample.members.values()))}
    if webdataset:
        images = [extension for extension in sample.members if normal_extension(extension) in KNOWN_EXTENSIONS]
        if len(images) != 1:
            reason = "several_images" if images else "not_an_image"
            return Rejected(f"./{file}", reason, f"the sample has the members {', '.join(sample.members)}")
        file = f"{file}.{images[0]}"
        said = {extension: sample.members[extension] for extension in _SIDECARS if extension in sample.members}
        members = {"image": sample.members[images[0]], **said}
    ending = next(ending for ending in _TAR_ENDINGS if tar.lower().endswith(ending))
    key = key_of(tar[: -len(ending)] + file[len(tar) :])
    if key in keys:
        return Rejected(f"./{file}", "duplicate_key", f"an earlier member has the key {key}")
    keys.add(key)
    return {"key": key, "file": file, "members": members}


def _list_samples(folder: Folder, tar: str, webdataset: bool, rejects: list[Rejected]) -> Iterator[_Sample]:
    """Group members to samples: one each, or for WebDataset by the name up to the first dot. Adds to ``rejects``."""
    sample: _Sample | None = None
    try:
        with folder.open(tar) as stream, decompressed(stream, compression_by_name(tar)) as plain:
            for place, member, _ in members(plain):
                reason = _member_reason(member)
                if reason is not None:
                    rejects.append(Rejected(f"./{tar}/{printable(member.name)}", reason, f"{member.size} bytes"))
                if reason is not None or member.isdir():
                    continue
                name = member.name.removeprefix("./")
                parent, base = posixpath.split(name)
                stem, _, extension = base.partition(".") if webdataset else (base, "", "")
                file = posixpath.join(tar, parent, stem)
                extension = extension.lower()
                if sample is None or sample.file != file or extension in sample.members:
                    if sample is not None:
                        yield sample
                    sample = _Sample(file, member.offset, place)
                sample.members[extension] = place
                sample.size += member.size
    except TAR_ERRORS as error:
        folder.check_fault(error, tar)
        rejects.append(Rejected(f"./{tar}", "truncated_tar", f"{type(error).__name__}: {error}"))
    if sample is not None:
        yield sample


def _member_reason(member: TarInfo) -> str | None:
    if is_outside(member.name):
        return "outside_folder"
    if not is_text(member.name):
        return "bad_name"
    if not (member.isfile() or member.isdir()):
        return "not_a_file"
    parts = member.name.removeprefix("./").split("/")
    hidden = any(part == "__MACOSX" or (part.startswith(".") and part != ".") for part in parts)
    return "hidden" if hidden and member.isfile() else None


def _tar_image(
    sample: dict[str, Any], bodies: dict[str, bytes | None], source_name: str, require_date: bool
) -> FoundImage | Rejected:
    file = sample["file"]
    try:
        image = bodies.pop("image")
        if image is None or None in bodies.values():
            raise Reject("too_large", f"{file}, or the sample's own metadata")
        extension = extension_of(file)
        if extension not in KNOWN_EXTENSIONS:
            check_content(image, file)
        texts = {part: body for part, body in bodies.items() if body is not None}
        labels = _sidecar_json(file, texts.pop("json", b"{}"))
        labels |= {part: body.decode("utf-8", "replace").strip() for part, body in texts.items()}
        written = [str(labels.pop(column, None) or "") for column in ("date_taken", "date_uploaded")]
        taken, uploaded, _ = csv_dates([*written, ""])
        taken = taken or read_exif(image).date_taken
        if taken is None and require_date:
            raise Reject("no_date", f"{file}: no date of capture")
        text = json.dumps(labels, sort_keys=True, ensure_ascii=False)
        if not is_text(text):
            raise Reject("bad_sidecar", f"{file}: its .json contains half a surrogate pair, which is not valid text")
        return FoundImage(sample["key"], Blob(image), extension, taken, uploaded, source_name, file, text)
    except Reject as reject:
        return Rejected(sample["key"], reject.reason, reject.detail)


def _sidecar_json(file: str, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Reject("bad_sidecar", f"{file}: its .json: {error}") from None
    if not isinstance(value, dict):
        raise Reject("bad_sidecar", f"{file}: its .json is a {type(value).__name__}, not an object")
    return typing.cast("dict[str, Any]", value)
