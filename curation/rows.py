"""The data passed between stages: rows, the payloads that rows refer to, and the two ways to reject a row.

A row is a frozen dataclass with a unique ``key`` (``stages/unique_keys.py`` rejects repeated ones) and one field per column.
Plain fields are ``str``, ``int``, ``float``, ``bool``, ``bytes``, ``datetime``, lists and tuples of these, and any of them
``| None``. Two kinds of field hold payloads, which are stored outside the table and referred to by their digest:

* ``Blob``: bytes such as a JPEG, packed one after another in the part's ``.blobs`` file;
* ``Annotated[np.ndarray, Shape(...)]``: an array of fixed shape and dtype, stacked in the part's ``.npy`` file, which is
  memory-mapped when read.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import hashlib
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*\Z")
"""Pattern of stage names and reject reasons."""

REJECTS = pa.schema([("key", pa.string()), ("reason", pa.string()), ("detail", pa.string())])
"""Columns of every table of rejects: the row's key, a fixed snake_case reason, and what was seen."""

BLOB = pa.struct([("sha256", pa.string()), ("size", pa.int64()), ("file", pa.string()), ("offset", pa.int64())])
ARRAY = pa.struct([("sha256", pa.string()), ("file", pa.string()), ("row", pa.int64())])


class Reject(Exception):
    """Reject the row, with a countable reason and a human-readable detail.

    Args:
        reason: snake_case words, fixed in the code (``too_small``), never built from data.
        detail: the value and the rule that it violates.

    >>> import benchwright as bw
    >>> def checked(width: int) -> int:
    ...     if width < 64:
    ...         raise bw.Reject("too_small", f"{width} pixels, 64 wanted")
    ...     return width
    >>> checked(8)
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: too_small: 8 pixels, 64 wanted
    >>> bw.Reject("Too small!")
    Traceback (most recent call last):
        ...
    ValueError: reject reason 'Too small!' is not snake_case
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        check_reason(reason)
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class MachineFault(RuntimeError):
    """Processing of a row was stopped by the machine or from outside. The row is not rejected for this; the run stops.

    The message is reported as it is: what happened, and what helps.

    >>> raise MachineFault("the GPU is out of memory: lower batch_size")
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.MachineFault: the GPU is out of memory: lower batch_size
    """


def check_reason(reason: str) -> None:
    """Raise ``ValueError`` unless ``reason`` is snake_case."""
    if not SNAKE_CASE.match(reason):
        raise ValueError(f"reject reason {reason!r} is not snake_case")


class Rejected(NamedTuple):
    """A reject as a value, for a source or a batch step that yields some rows and rejects others.

    Attributes:
        key: key of the row.
        reason: snake_case words, fixed in the code.
        detail: the value and the rule that it violates.

    >>> import benchwright as bw
    >>> bw.Rejected("photo7", "no_date", "photo7.png")
    Rejected(key='photo7', reason='no_date', detail='photo7.png')
    """

    key: str
    reason: str
    detail: str = ""


def is_text(name: str) -> bool:
    """Whether the text has no lone surrogates, so that it can be encoded as UTF-8.

    Lone surrogates come from file names that are not UTF-8 (``surrogateescape``), and from JSON escapes such as ``\\ud800``.

    >>> import os
    >>> is_text("Zürich.jpg"), is_text(os.fsdecode(b"Z\\xfcrich.jpg"))  # the second name is Latin-1
    (True, False)
    """
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def printable(text: str) -> str:
    """The text with lone surrogates escaped, so that it can be stored and printed.

    >>> print(printable("Z\\udcfcrich.jpg"))
    Z\\udcfcrich.jpg
    """
    return text.encode("utf-8", "backslashreplace").decode()


_UNSEEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def visible(text: str) -> str:
    """The text with control characters, which terminals obey and XML forbids, and bidirectional controls as escapes."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(error: BaseException, most: int | None = 200) -> str:
    """The text of an error in one line of at most ``most`` characters; the name of its type if it has none.

    >>> one_line(ValueError("it ends\\n  early")), one_line(EOFError())
    ('it ends early', 'EOFError')
    """
    return " ".join(str(error).split())[:most] or type(error).__name__


_ADDRESS = re.compile(r"(<[^<>]* at )0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """The text without the memory addresses in Python's object representations, which differ in every run."""
    return _ADDRESS.sub(r"\1...", text) if " at 0x" in text else text


class Sifted(NamedTuple):
    """Return value of a ``table`` or ``whole`` step that rejects rows: the kept rows, and a table of ``REJECTS``.

    >>> sift(pa.table({"key": ["a", "b"]}), {"too_small": [False, True]}).rejected.to_pylist()
    [{'key': 'b', 'reason': 'too_small', 'detail': ''}]
    """

    kept: pa.Table
    rejected: pa.Table


def sift(
    table: pa.Table, rules: Mapping[str, Any], *, detail: str | pa.Array | pa.ChunkedArray | None = None, key: str = "key"
) -> Sifted:
    """Split ``table`` by rules; the first rule that a row breaks is the reason for its rejection.

    Args:
        table: the rows.
        rules: reason -> boolean array or mask, True where the rule is *broken*.
        detail: name of a column whose value is written as the detail, or the details of all rows, null for none.
        key: name of the column with the keys of the rejects.

    Returns:
        The rows that break no rule, and the other rows as rejects, both in the order of ``table``.

    >>> table = pa.table({"key": ["a", "b", "c"], "width": [640, 8, 0]})
    >>> kept, rejected = sift(table, {"empty": [False, False, True], "too_small": [False, True, True]}, detail="width")
    >>> kept["key"].to_pylist()
    ['a']
    >>> rejected.to_pylist()
    [{'key': 'b', 'reason': 'too_small', 'detail': '8'}, {'key': 'c', 'reason': 'empty', 'detail': '0'}]
    """
    reasons = np.full(table.num_rows, -1, dtype=np.int64)
    for index, (reason, broken) in enumerate(rules.items()):
        check_reason(reason)
        mask = np.asarray(broken, dtype=bool)
        reasons[(reasons < 0) & mask] = index
    dropped = np.flatnonzero(reasons >= 0)
    names = pa.array(list(rules), pa.string())
    given = table[detail] if isinstance(detail, str) else detail
    details = pa.nulls(len(dropped), pa.string()) if given is None else given.take(dropped).cast(pa.string())
    rejected = pa.table(
        {
            "key": table[key].take(dropped),
            "reason": names.take(pa.array(reasons[dropped])),
            "detail": details.fill_null(""),
        },
        schema=REJECTS,
    )
    return Sifted(table.filter(pa.array(reasons < 0)), rejected)


def with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """``table`` with ``column`` as its last column; an existing column of that name is removed.

    >>> with_column(pa.table({"key": ["a", "b"], "task": [0, 0]}), "task", pa.array([3, 4])).to_pylist()
    [{'key': 'a', 'task': 3}, {'key': 'b', 'task': 4}]
    """
    kept = table.drop_columns([name]) if name in table.column_names else table
    return kept.append_column(name, column)


class Blob:
    """Bytes of a payload, either in memory (created by a step) or by reference (stored by a stage).

    Args:
        data: the bytes; None with ``ref`` and ``fetch`` if they are in a store.

    Raises:
        ValueError: neither bytes nor a reference, or a reference without ``fetch``.

    >>> import benchwright as bw
    >>> payload = bw.Blob(b"a rose is a rose")
    >>> payload
    Blob(16 bytes, sha256 82da1ad07463)
    >>> payload.size, payload.read()
    (16, b'a rose is a rose')
    """

    __slots__ = ("_data", "_fetch", "ref")

    def __init__(
        self,
        data: bytes | None = None,
        *,
        ref: Mapping[str, Any] | None = None,
        fetch: Callable[[Mapping[str, Any]], bytes] | None = None,
    ) -> None:
        if data is None and (ref is None or fetch is None):
            raise ValueError("a Blob needs its bytes, or a reference and how to fetch it")
        self._data = data
        self._fetch = fetch
        self.ref: Mapping[str, Any] | None = ref

    def read(self) -> bytes:
        """The bytes. A reference is read again at each call, so a table of blobs never holds its payloads."""
        if self._data is not None:
            return self._data
        assert_fetch = typing.cast("Callable[[Mapping[str, Any]], bytes]", self._fetch)
        return assert_fetch(typing.cast("Mapping[str, Any]", self.ref))

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self._data) if self._data is not None else int(typing.cast("Mapping[str, Any]", self.ref)["size"])

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes, 64 hexadecimal digits."""
        if self._data is not None:
            return hashlib.sha256(self._data).hexdigest()
        return str(typing.cast("Mapping[str, Any]", self.ref)["sha256"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Blob({self.size} bytes, sha256 {self.sha256[:12]})"


@dataclasses.dataclass(frozen=True)
class Shape:
    """Annotation of an array column: ``Annotated[np.ndarray, Shape((512,), "float32")]``.

    A dimension of -1 may have any size, such as the width of an encoder, but all rows must agree.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Pose:
    ...     key: str
    ...     joints: typing.Annotated[np.ndarray, Shape((20, 3), "float32")]  # metres
    >>> schema_of(Pose).field("joints").metadata
    {b'shape': b'20,3', b'dtype': b'float32'}
    """

    shape: tuple[int, ...]
    dtype: str = "float32"


_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.datetime: pa.timestamp("us"),
    Blob: BLOB,
}


@functools.cache
def schema_of(row_type: type | pa.Schema) -> pa.Schema:
    """Arrow schema of a row dataclass, or the schema itself.

    Array columns carry ``shape`` and ``dtype`` in their field metadata.

    Raises:
        TypeError: ``row_type`` is neither, has no ``key``, or has a field that a column cannot hold.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Photo:
    ...     key: str
    ...     taken: int | None
    >>> schema_of(Photo)
    key: string not null
    taken: int64
    >>> schema_of(dataclasses.make_dataclass("Clip", [("key", str), ("day", dt.date)]))
    Traceback (most recent call last):
        ...
    TypeError: Clip.day: a column cannot hold date; it may hold str, int, float, bool, bytes, datetime, Blob, ...
    """
    if isinstance(row_type, pa.Schema):
        if "key" not in row_type.names:
            raise TypeError(f"columns {', '.join(row_type.names)}: no 'key' among them: every row is named by one")
        return row_type
    if not (isinstance(row_type, type) and dataclasses.is_dataclass(row_type)):
        raise TypeError(f"{row_type!r} is not a row: rows are frozen dataclasses")
    hints = typing.get_type_hints(row_type, include_extras=True)
    fields = [_field(row_type, field.name, hints[field.name]) for field in dataclasses.fields(row_type)]
    if "key" not in hints:
        raise TypeError(f"{row_type.__name__} has no field 'key': every row is named by one")
    return pa.schema(fields)


def _field(owner: type, name: str, hint: Any) -> pa.Field:
    nullable = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not types.NoneType]
        nullable = len(members) < len(typing.get_args(hint))
        if len(members) != 1:
            raise TypeError(f"{owner.__name__}.{name}: {hint} has more than one type for a column")
        hint = members[0]
    if typing.get_origin(hint) is typing.Annotated:
        base, *extras = typing.get_args(hint)
        shape = next((extra for extra in extras if isinstance(extra, Shape)), None)
        if shape is not None:
            metadata = {"shape": ",".join(map(str, shape.shape)), "dtype": shape.dtype}
            return pa.field(name, ARRAY, nullable=nullable, metadata=metadata)
        hint = base
    return pa.field(name, _arrow_type(owner, name, hint), nullable=nullable)


def _arrow_type(owner: type, name: str, hint: Any) -> pa.DataType:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if typing.get_origin(hint) in (list, tuple):
        return pa.list_(_arrow_type(owner, name, typing.get_args(hint)[0]))
    kinds = f"{', '.join(each.__name__ for each in _SCALARS)}, lists of these, and Annotated[np.ndarray, Shape(...)]"
    raise TypeError(f"{owner.__name__}.{name}: a column cannot hold {_shown(hint)}; it may hold {kinds}")


def _shown(hint: Any) -> str:
    return str(hint) if typing.get_origin(hint) else getattr(hint, "__name__", str(hint))


def is_blob(field: pa.Field) -> bool:
    """Whether the column holds references to byte payloads."""
    return field.type.equals(BLOB)


def is_array(field: pa.Field) -> bool:
    """Whether the column holds references to arrays."""
    return field.type.equals(ARRAY)


def string_bytes(array: pa.Array) -> Any:
    """Concatenated bytes of all values of a string or binary array."""
    _, offsets, data = array.buffers()
    if data is None:
        return b""
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    bounds = np.frombuffer(offsets, dtype=width)[array.offset : array.offset + len(array) + 1]
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]
