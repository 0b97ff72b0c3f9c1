"""WebDataset shards: a writer whose bytes depend only on the samples, and readers of samples.

A shard is a plain USTAR archive (``ustar.py``). A sample is a run of adjacent members ``<key>.<extension>``, sorted by
name; the key ends at the first dot, as in webdataset. The archive is identical, byte for byte, to what ``tarfile`` would write
for the same members, on every machine and in every run.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .local_files import writing
from .npy import npy_bytes
from .ustar import BLOCK, RECORD, Member, ShardError, iter_members, member_header, padded

MemberValue = bytes | Mapping[str, Any] | np.ndarray
"""Value from which a member can be made: see ``encode_member``."""

_KEY = re.compile(r"[^./\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+\Z")
_EXTENSION = re.compile(r"[a-z0-9](?:[a-z0-9_+-]*[a-z0-9+-])?(?:\.[a-z0-9](?:[a-z0-9_+-]*[a-z0-9+-])?)*\Z")
_PADS = tuple(bytes(count) for count in range(BLOCK))
_FLUSH = 1 << 20


class SampleSpan(NamedTuple):
    """Location of a sample in its shard.

    ``offset`` is the byte of the sample's first header, and ``size`` extends to the end of its last member's padding: both are
    multiples of 512, and these bytes suffice to read the sample. ``members`` are its extensions, in order.
    """

    key: str
    offset: int
    size: int
    members: tuple[str, ...]


def row_values(row: Any, *, but: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a row by name, for a member ``json``, except those in ``but``, which have separate members."""
    return {name: value for name, value in vars(row).items() if name not in but}


def encode_member(extension: str, value: MemberValue) -> bytes:
    """Bytes of one member.

    Args:
        extension: lower-case words joined by dots (``jpg``, ``embedding.npy``). A mapping needs one that ends in
            ``json``, an array one that ends in ``npy``.
        value: bytes, kept as they are; a mapping, written as JSON with sorted keys, no spaces and UTF-8; an array of
            any shape and a plain dtype, written as .npy 1.0, C order, little-endian.

    Raises:
        TypeError: the value is of another type, or a JSON key is not a string.
        ValueError: the extension does not suit the value, or the JSON would contain NaN or an infinity.
    """
    if isinstance(value, bytes):
        return value
    kind = extension.rpartition(".")[2]
    if isinstance(value, np.ndarray):
        if kind != "npy":
            raise ValueError(f"extension {extension!r} of an array must end in 'npy'")
        if value.dtype.hasobject:
            raise TypeError(f"member {extension!r}: an array of dtype {value.dtype} cannot be written without pickle")
        return npy_bytes(np.asarray(value, dtype=value.dtype.newbyteorder("<")))
    if isinstance(value, Mapping):
        if kind != "json":
            raise ValueError(f"extension {extension!r} of a mapping must end in 'json'")
        return _canonical_json(extension, value)
    raise TypeError(f"member {extension!r} is {type(value).__name__}: bytes, a mapping or a numpy array are written")


def _canonical_json(extension: str, value: Mapping[str, Any]) -> bytes:
    def plain(item: Any) -> Any:
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, np.ndarray):
            return item.tolist()
        raise TypeError(f"member {extension!r}: {type(item).__name__} {item!r} is not JSON")

    _check_json_keys(extension, value)
    try:
        text = json.dumps(
            dict(value), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain
        )
    except ValueError as error:
        raise ValueError(f"member {extension!r}: {error}; JSON has no NaN and no infinity") from error
    return text.encode()


_SCALAR = (str, int, float)


def _check_json_keys(extension: str, value: Any) -> None:
    # json.dumps turns 1 into "1", so {1: a, "1": b} would be written with a repeated key.
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"member {extension!r}: JSON key {key!r} is {type(key).__name__}, it must be str")
            if not isinstance(item, _SCALAR):
                _check_json_keys(extension, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if not isinstance(item, _SCALAR):
                _check_json_keys(extension, item)


def check_key(key: str) -> None:
    """Raise ``ValueError`` if ``key`` is empty or contains ``.``, ``/``, a backslash, a control character or a surrogate."""
    if not _KEY.match(key):
        raise ValueError(f"key {key!r} cannot name a sample: it must not be empty nor hold . / \\ or control characters")


def check_extension(extension: str) -> None:
    """Raise ``ValueError`` unless ``extension`` consists of parts of lower-case letters, digits, ``_ + -``, joined by dots.

    Each part begins with a letter or digit and does not end with ``_``: webdataset skips members such as ``__meta__``, and it
    converts extensions to lower case.
    """
    if not _EXTENSION.match(extension):
        raise ValueError(f"extension {extension!r} is not a-z, 0-9, _ + - in parts joined by dots")


def write_shard(out: BinaryIO, samples: Iterable[tuple[str, Mapping[str, MemberValue]]]) -> list[SampleSpan]:
    """Write a whole shard, sample by sample in the order of ``samples``, with memory for one sample and about 1 MiB.

    Args:
        out: a binary stream, which receives the whole archive and is neither flushed nor closed.
        samples: (key, {extension: value}); values as for ``encode_member``.

    Returns:
        One span per sample, in the same order.

    Raises:
        ValueError: a key or extension is invalid, a key occurs twice, a sample has no member, or a name or size is too large.
            ``out`` then contains an incomplete archive: write to a temporary file.
    """
    spans: list[SampleSpan] = []
    seen: set[str] = set()
    orders: dict[tuple[str, ...], tuple[str, ...]] = {}
    pending: list[bytes] = []
    position = flushed = 0
    for key, members in samples:
        check_key(key)
        if key in seen:
            first = [span.key for span in spans].index(key)
            raise ValueError(f"key {key!r} occurs twice in the shard, first as sample {first}")
        seen.add(key)
        given = tuple(members)
        order = orders.get(given) or orders.setdefault(given, _member_order(key, given))
        begin = position
        for extension in order:
            data = encode_member(extension, members[extension])
            pad = _PADS[-len(data) % BLOCK]
            pending += (member_header(f"{key}.{extension}", len(data)), data, pad)
            position += BLOCK + len(data) + len(pad)
        spans.append(SampleSpan(key, begin, position - begin, order))
        if position - flushed >= _FLUSH:
            out.write(b"".join(pending))
            pending.clear()
            flushed = position
    end = position + 2 * BLOCK
    pending.append(bytes(2 * BLOCK + -end % RECORD))
    out.write(b"".join(pending))
    return spans


def _member_order(key: str, members: tuple[str, ...]) -> tuple[str, ...]:
    if not members:
        raise ValueError(f"sample {key!r} has no member")
    for extension in members:
        check_extension(extension)
    return tuple(sorted(members))


def write_shard_file(path: str | Path, samples: Iterable[tuple[str, Mapping[str, MemberValue]]]) -> list[SampleSpan]:
    """``write_shard`` into a local file that appears whole or not at all."""
    with writing(path) as out:
        return write_shard(out, samples)


def split_name(name: str) -> tuple[str, str] | None:
    """Key and extension by webdataset's rule: the key ends at the first dot of the last path component.

    None if the name has no such dot (``Makefile``, ``.hidden``): webdataset skips these members, and so do readers here.
    """
    folder, slash, leaf = name.rpartition("/")
    stem, dot, extension = leaf.partition(".")
    return (folder + slash + stem, extension.lower()) if stem and dot else None


def scan_shard(tar: bytes | mmap.mmap, *, place: str) -> list[SampleSpan]:
    """Spans of all samples of a whole shard, in order, without reading the payloads. Shards of other writers are accepted.

    Raises:
        ShardError: as ``iter_members``; also if the members of a key are not adjacent, or a member occurs twice.
    """
    spans: list[SampleSpan] = []
    for key, members in samples_in(tar, place=place):
        last = list(members.values())[-1]
        offset = next(iter(members.values())).offset
        spans.append(SampleSpan(key, offset, last.data + padded(last.size) - offset, tuple(members)))
    return spans


def samples_in(tar: bytes | mmap.mmap, *, place: str) -> Iterator[tuple[str, dict[str, Member]]]:
    """Keys of all samples of a whole shard, in order, each with its members by extension.

    Raises:
        ShardError: as ``scan_shard``.
    """
    seen: set[str] = set()
    last, members = "", dict[str, Member]()
    for member in iter_members(tar, place=place):
        split = split_name(member.name)
        if split is None:
            continue
        key, extension = split
        if key == last and extension not in members:
            members[extension] = member
            continue
        if key in seen:
            rule = f"member {member.name!r} occurs twice, or apart from the rest of its sample"
            raise ShardError(f"{place}, byte {member.offset}: {rule}")
        if members:
            yield last, members
        seen.add(key)
        last, members = key, {extension: member}
    if members:
        yield last, members


def members_sha256(members: Mapping[str, bytes]) -> str:
    """SHA-256 over the extensions, sizes and bytes of a sample's members, in the order of the extensions."""
    digest = hashlib.sha256()
    for extension, data in sorted(members.items()):
        digest.update(f"{extension}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def read_sample(span: bytes, key: str, *, place: str, base: int) -> dict[str, bytes]:
    """Members of one sample, extension -> bytes, from the bytes of its span.

    Args:
        span: the ``size`` bytes at ``SampleSpan.offset``.
        key: key of the sample in the index; another key in the span is an error.
        place: name or path of the shard, for errors.
        base: offset of the span in the shard, for errors.

    Raises:
        ShardError: as ``iter_members``; also if the index and the shard disagree.
    """
    members: dict[str, bytes] = {}
    for member in iter_members(span, place=place, base=base, whole=False):
        split = split_name(member.name)
        if split is None:
            continue
        if split[0] != key or split[1] in members:
            rule = f"member {member.name!r} is where the index has sample {key!r}"
            raise ShardError(f"{place}, byte {base + member.offset}: {rule}")
        members[split[1]] = span[member.data : member.data + member.size]
    if not members:
        raise ShardError(f"{place}, byte {base}: no member of sample {key!r} where the index has it")
    return members
