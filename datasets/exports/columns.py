"""Members of samples as columns of a table, with the features of Hugging Face's ``datasets`` that describe them."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ...curation.npy import MAX_HEAD_BYTES, read_npy_head
from ...curation.shards import samples_in
from ...curation.stages.image_format import PILLOW_NAMES
from ...curation.ustar import ShardError
from ..reader.decode import decode_npy
from ..reader.index import ShardFiles

ColumnKind = Literal["image", "images", "audio", "array", "ragged", "text", "bytes"]
Feature = dict[str, Any]
"""A feature of ``datasets`` in the JSON form of ``Features``."""

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
"""How ``datasets`` stores pictures and sound."""

SOUNDS = ("aac", "flac", "m4a", "mp3", "oga", "ogg", "opus", "wav")
"""Extensions of sound files."""

_FRAME = re.compile(r"\d+\.(\w+)")


@dataclasses.dataclass(frozen=True)
class MemberColumn:
    """A column that holds members of the samples.

    Attributes:
        name: name of the column.
        member: name that ``column_of`` derives from the member's extension.
        kind: "image", "images" and "audio" keep the bytes of files in any format; an "array" has the same shape in all samples,
            and a "ragged" one has several shapes, which are in a column ``<name>_shape``.
        dtype: dtype of arrays.
        shape: shape of an "array".
    """

    name: str
    member: str
    kind: ColumnKind
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()

    def fields(self) -> list[pa.Field]:
        """Arrow fields of the column, and of its shapes if it is ragged."""
        if self.kind in ("image", "audio"):
            return [pa.field(self.name, FILE)]
        if self.kind == "images":
            return [pa.field(self.name, pa.list_(FILE))]
        if self.dtype is None:
            return [pa.field(self.name, pa.string() if self.kind == "text" else pa.binary())]
        value: pa.DataType = pa.from_numpy_dtype(self.dtype)
        if self.kind == "ragged":
            return [pa.field(self.name, pa.list_(value)), pa.field(f"{self.name}_shape", pa.list_(pa.int64()))]
        for _ in range(max(len(self.shape), 1)):
            value = pa.list_(value)
        return [pa.field(self.name, value)]

    def features(self) -> dict[str, Feature]:
        """Features by column name."""
        if self.kind in ("image", "audio"):
            return {self.name: {"_type": self.kind.capitalize()}}
        if self.kind == "images":
            return {self.name: {"feature": {"_type": "Image"}, "_type": "List"}}
        if self.kind == "array" and len(self.shape) > 1:
            many = {"shape": list(self.shape), "dtype": str(self.dtype), "_type": f"Array{len(self.shape)}D"}
            return {self.name: many}
        return {field.name: feature_of(field.type) for field in self.fields()}

    def values(self, samples: Sequence[Mapping[str, bytes]], keys: Sequence[str]) -> list[pa.Array]:
        """The column of some samples, and the column of shapes if it is ragged."""
        found: list[Any] = []
        for key, members in zip(keys, samples, strict=True):
            mine = {extension: data for extension, data in members.items() if column_of(extension)[0] == self.member}
            files = [{"bytes": bytes(mine[each]), "path": f"{key}.{each}"} for each in sorted(mine)]
            if self.kind == "images":
                found.append(files)
            elif not mine:
                found.append(None)
            elif self.kind in ("image", "audio"):
                found.append(files[0])
            else:
                (data,) = mine.values()
                found.append(decode_npy(data) if self.dtype is not None else data)
        first, *more = self.fields()
        if self.dtype is None:
            texts = [each and bytes(each).decode() for each in found] if self.kind == "text" else found
            return [pa.array(texts, first.type)]
        if more:
            shapes = [None if each is None else list(each.shape) for each in found]
            return [_lists(found, (-1,), first.type), pa.array(shapes, more[0].type)]
        return [_lists(found, self.shape, first.type)]


def _lists(arrays: Sequence[np.ndarray | None], shape: tuple[int, ...], kind: pa.DataType) -> pa.Array:
    """Arrays as nested lists, without creating a Python object per value."""
    there = [np.ravel(each) for each in arrays if each is not None]
    flat = np.concatenate(there) if there else np.empty(0)
    if len(shape) > 1:
        leaf: pa.Array = pa.array(flat)
        for side in reversed(shape[1:]):
            leaf = pa.ListArray.from_arrays(np.arange(0, len(leaf) + 1, side, dtype=np.int32), leaf)
        lengths = [None if each is None else shape[0] for each in arrays]
    else:
        leaf, lengths = pa.array(flat, kind.value_type), [None if each is None else each.size for each in arrays]
    ends = np.cumsum([0, *(length or 0 for length in lengths)]).astype(np.int32)
    absent = pa.array([length is None for length in lengths])
    return pa.ListArray.from_arrays(pa.array(ends), leaf, mask=absent if absent.true_count else None).cast(kind)


def column_of(extension: str) -> tuple[str, ColumnKind]:
    """Name and kind of the column for a member with this extension.

    >>> [column_of(each) for each in ("webp", "0003.jpg", "embedding.npy", "json", "dng")]
    [('image', 'image'), ('images', 'images'), ('embedding', 'array'), ('json', 'text'), ('dng', 'bytes')]
    >>> column_of("flac"), column_of("voice.flac")
    (('flac', 'audio'), ('voice_flac', 'audio'))
    """
    frame = _FRAME.fullmatch(extension)
    if extension in PILLOW_NAMES:
        return "image", "image"
    if frame and frame[1] in PILLOW_NAMES:
        return "images", "images"
    name = extension.removesuffix(".npy").replace(".", "_")
    if extension.rpartition(".")[2] in SOUNDS:
        return name, "audio"
    return name, "array" if extension.endswith(".npy") else "text" if extension in ("json", "txt") else "bytes"


def pictures_in(members: Collection[str]) -> list[str]:
    """Extensions of the pictures of a sample, in frame order."""
    return sorted(each for each in members if column_of(each)[1] in ("image", "images"))


def member_columns(url: str, shards: Iterable[str], *, taken: Collection[str]) -> list[MemberColumn]:
    """The columns for the members of all samples, by name. Of the payloads, only the heads of arrays are read.

    Args:
        url: folder or URL of the dataset.
        shards: names of the shards.
        taken: names of other columns; a member's column with one of these names is renamed ``member_<name>``.

    Raises:
        ShardError: a shard is missing or broken, a member is not an array though its extension says so, or a sample has two
            members for one column, such as two pictures.
    """
    files, kinds = ShardFiles(url), dict[str, ColumnKind]()
    heads: dict[str, set[tuple[np.dtype[Any], tuple[int, ...]]]] = {}
    for shard in shards:
        place = files.place(shard)
        with files.mapped(shard) as tar:
            for key, members in samples_in(tar, place=place):
                columns = [column_of(extension)[0] for extension in members]
                if twice := [name for name in set(columns) if name != "images" and columns.count(name) > 1]:
                    raise ShardError(
                        f"{place}, byte {next(iter(members.values())).offset}: sample {key!r} has the members "
                        f"{list(members)}, two of which would become its {twice[0]!r}"
                    )
                kinds.update(map(column_of, members))
                for extension, member in members.items():
                    if extension.endswith(".npy"):
                        data = tar[member.data : member.data + min(member.size, MAX_HEAD_BYTES)]
                        heads.setdefault(column_of(extension)[0], set()).add(_head(data, place, key))
    named = [(f"member_{member}" if member in taken else member, member) for member in sorted(kinds)]
    return [
        _array_column(name, member, heads[member]) if member in heads else MemberColumn(name, member, kinds[member])
        for name, member in named
    ]


def _head(data: bytes, place: str, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        shape, _, dtype, _ = read_npy_head(io.BytesIO(data))
    except ValueError as error:
        raise ShardError(f"{place}: sample {key!r}: {error}") from error
    return dtype, shape


def _array_column(name: str, member: str, heads: set[tuple[np.dtype[Any], tuple[int, ...]]]) -> MemberColumn:
    dtype = np.result_type(*(dtype for dtype, _ in heads))
    shapes = {shape for _, shape in heads}
    if len(shapes) == 1 and len(*shapes) in range(1, 6):
        return MemberColumn(name, member, "array", dtype, *shapes)
    return MemberColumn(name, member, "ragged", dtype)


_NAMES = {"double": "float64", "float": "float32", "halffloat": "float16"}


def feature_of(kind: pa.DataType) -> Feature:
    """The feature for a column of plain values or of lists of them."""
    if pa.types.is_list(kind):
        return {"feature": feature_of(kind.value_type), "_type": "List"}
    return {"dtype": _NAMES.get(str(kind), str(kind)), "_type": "Value"}
