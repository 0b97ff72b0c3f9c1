"""Read pickles of plain values without running any code in them.

The opcodes are checked first: those that import, call or build objects, numbers that claim memory, and anything beyond plain
values are refused before a byte is loaded; the loader itself finds no classes either. Optionally, arrays of numbers, or of such
values, are read as well: numpy's names in the pickle are resolved to stand-ins that accept only a shape, a dtype, and bytes or
a list.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import reprlib
from collections.abc import Collection
from typing import IO, Any, cast

import numpy as np

MAX_BYTES = 1 << 28
"""Default of the size in bytes above which files are refused."""

MAX_VALUES = 1 << 24
"""Maximum number of values, counted once per reference: ten nested lists of ten references each are ten billion values."""

# fmt: off
_PLAIN = frozenset({
    "PROTO", "FRAME", "MARK", "STOP", "POP", "POP_MARK", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST",
    "APPEND", "APPENDS", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "MEMOIZE",
})
_NUMBERS = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "NONE", "NEWTRUE", "NEWFALSE", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3", "EMPTY_TUPLE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
})
# fmt: on
_FRACTIONS = frozenset({"FLOAT", "BINFLOAT"})
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_GETS = ("GET", "BINGET", "LONG_BINGET")
_TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
_CORES = ("numpy.core.multiarray", "numpy._core.multiarray")
_DTYPES = frozenset({"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"})
_OBJECT = "O8"
_DAMAGE = (pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError)


class UnsafePickle(ValueError):
    """A pickle contains anything but plain values, or is damaged. The message says what and where."""


def load_plain(data: bytes | IO[bytes], *, arrays: bool = False, objects: bool = False, max_bytes: int = MAX_BYTES) -> Any:
    """Load a pickle of strings, lists and dicts, nested at will.

    Args:
        data: all bytes, or a seekable file, which is not copied into memory.
        arrays: whether to accept integers, booleans, None, tuples, bytes and arrays of numbers as well. Strings of Python 2 are
            then returned as bytes.
        objects: whether to accept, in addition, floats, numpy scalars and object arrays of any of these values.
        max_bytes: larger pickles are refused.

    Raises:
        UnsafePickle: the pickle contains anything else (raised before loading), more than ``max_bytes`` or ``MAX_VALUES``, a
            value that contains itself, or bytes after its end; or it is damaged.
    """
    size = len(data) if isinstance(data, bytes) else data.seek(0, io.SEEK_END)
    stream = io.BytesIO(data) if isinstance(data, bytes) else _Bounded(data, size)
    if size > max_bytes:
        raise UnsafePickle(f"{size} bytes, at most {max_bytes} are read")
    try:
        stream.seek(0)
        _check_opcodes(stream, size, arrays, objects)
        stream.seek(0)
        found = _with_arrays(_ArrayUnpickler(stream, objects).load(), {}) if arrays or objects else _Unpickler(stream).load()
        _check_count(found)
        return found
    except UnsafePickle:
        raise
    except _DAMAGE as error:
        raise UnsafePickle(f"damaged: {type(error).__name__}: {str(error)[:120]}") from None
    except (MemoryError, RecursionError, OverflowError) as error:
        raise UnsafePickle(f"claims too much: {type(error).__name__}") from None


class _Bounded:
    """A file that limits reads to its size: for an opcode that claims gigabytes, a plain file would allocate them first; bytes
    in memory do not."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._size = stream, size

    def seek(self, place: int) -> int:
        return self._stream.seek(place)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int) -> bytes:
        return self._stream.read(min(size, self._size - self._stream.tell()))

    def readline(self) -> bytes:
        return self._stream.readline()

    def readinto(self, buffer: Any) -> int:
        return self._stream.readinto(buffer)  # type: ignore[attr-defined]


def _check_opcodes(data: io.BytesIO | _Bounded, size: int, arrays: bool, objects: bool) -> None:
    safe, allowed = _PLAIN, "texts, lists and tables"
    if arrays or objects:
        safe, allowed = safe | _NUMBERS, "plain values and arrays"
    if objects:
        safe |= _FRACTIONS
    sizes = _TupleSizes()
    for number, (opcode, argument, place) in enumerate(pickletools.genops(cast("IO[bytes]", data))):
        if opcode.name not in safe:
            raise UnsafePickle(f"{opcode.name} at byte {place}: only {allowed} are read")
        # The loader allocates a memo of twice that number of entries: four bytes could claim 64 GB.
        if opcode.name in _PUTS and int(argument or 0) > number:
            raise UnsafePickle(f"{opcode.name} {argument} at byte {place}: beyond the {number} values before it")
        if (arrays or objects) and sizes.after(opcode, argument) > MAX_VALUES:
            raise UnsafePickle(f"{opcode.name} at byte {place}: tuples within tuples, more than {MAX_VALUES:,} values in all")
    if left := size - data.tell():
        raise UnsafePickle(f"{left} bytes after its end, which would not be read")


class _TupleSizes:
    """Counts the values in each tuple, including nested tuples: the loader hashes all of them if the tuple is a key."""

    def __init__(self) -> None:
        self._stack: list[int] = []
        self._marks: list[int] = []
        self._memo: dict[int, int] = {}

    def after(self, opcode: Any, argument: Any) -> int:
        """Size of the value on top of the loader's stack after an opcode: 1 if it is not a tuple, 0 if the stack is empty."""
        name, stack = opcode.name, self._stack
        if name == "MARK":
            self._marks.append(len(stack))
        elif name == "POP" and self._marks and self._marks[-1] == len(stack):
            self._marks.pop()
        elif name == "MEMOIZE" or name in _PUTS:
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in _GETS:
            stack.append(self._memo[int(argument)])
        else:
            before = opcode.stack_before
            marked = pickletools.markobject in before
            begin = self._marks.pop() if marked else len(stack) - len(before)
            size = 1 + sum(stack[begin:]) if name in _TUPLES else 1
            del stack[begin - (before.index(pickletools.markobject) if marked else 0) :]
            stack.extend([size] * len(opcode.stack_after))
        return stack[-1] if stack else 0


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise UnsafePickle(f"names {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafePickle("names an object outside the file")


# --------------------------------------------------------------------------------------------------------------- arrays


class _StandIn:
    """Stand-in for a numpy function or class: calling it returns an ``_Array`` or a ``_Dtype``. It has no settable attributes.

    The stand-in for ``_codecs.encode`` returns bytes.
    """

    __slots__ = ("_dtypes", "_name")

    def __init__(self, name: str, dtypes: frozenset[str] = _DTYPES) -> None:
        self._name, self._dtypes = name, dtypes

    def __call__(self, *arguments: Any) -> Any:
        if self._name == "_reconstruct":
            return _Array()
        if self._name == "dtype" and arguments and _text(arguments[0]) in self._dtypes:
            return _Dtype(_text(arguments[0]))
        if self._name == "scalar" and len(arguments) == 2:
            number = _Array()
            number.__setstate__((1, (), arguments[0], False, arguments[1]))
            return number
        if self._name == "encode" and len(arguments) == 2 and isinstance(arguments[0], str):
            return arguments[0].encode("latin-1")  # bytes as written by Python 3 in protocol 2
        raise UnsafePickle(f"calls {self._name} with {reprlib.repr(arguments)[:80]}")

    def __setstate__(self, state: Any) -> None:
        raise UnsafePickle(f"changes {self._name}")


class _Dtype:
    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        order = _text(state[1]) if isinstance(state, tuple) and len(cast("tuple[Any, ...]", state)) > 1 else ""
        if order not in ("<", ">", "|", "="):
            raise UnsafePickle(f"dtype {self.code} in the byte order {order!r}")
        if any(part is not None for part in state[2:5]):
            raise UnsafePickle(f"dtype {self.code} with fields")
        self.code = order + self.code[-2:]


class _Array:
    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
            raise UnsafePickle("an array without shape or dtype")
        sizes = cast("tuple[Any, ...]", shape)
        if not all(isinstance(side, int) and 0 <= side < 1 << 63 for side in sizes) or len(sizes) > 16:
            raise UnsafePickle(f"an array of shape {reprlib.repr(sizes)[:80]}")
        flat = _flat(data, dtype.code)
        if math.prod(sizes) != len(flat):
            raise UnsafePickle(
                f"an array of {sizes} {flat.dtype} in {len(data)} {'values' if flat.dtype.hasobject else 'bytes'}"
            )
        self.values = flat.reshape(sizes, order="F" if fortran else "C")


def _flat(data: Any, code: str) -> np.ndarray:
    """The values of an array, flattened."""
    if code[-2:] == _OBJECT and isinstance(data, list):
        values = cast("list[Any]", data)
        return np.fromiter(values, object, len(values))
    if code[-2:] == _OBJECT or not isinstance(data, bytes):
        raise UnsafePickle("an array that is not of numbers")
    return np.frombuffer(data, dtype=np.dtype(code))


class _ArrayUnpickler(_Unpickler):
    def __init__(self, stream: io.BytesIO | _Bounded, objects: bool) -> None:
        super().__init__(stream, encoding="bytes")
        self._objects = objects

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name in _CORES and (global_name == "_reconstruct" or (self._objects and global_name == "scalar")):
            return _StandIn(global_name)
        if module_name == "numpy" and global_name in ("ndarray", "dtype"):
            return _StandIn(global_name, _DTYPES | {_OBJECT} if self._objects else _DTYPES)
        if (module_name, global_name) == ("_codecs", "encode"):
            return _StandIn("encode")
        return super().find_class(module_name, global_name)


def _text(value: Any) -> str:
    """A string of Python 2 or 3; for other values, a short representation, since a full one might take forever."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else reprlib.repr(value)


_OPEN = object()


def _with_arrays(value: Any, done: dict[int, Any]) -> Any:
    """The value with stand-ins replaced by arrays. ``done`` caches the result by value, since values may be shared."""
    if not _is_odd(value):
        return value
    if id(value) in done:
        if done[id(value)] is _OPEN:
            raise UnsafePickle("a value that contains itself")
        return done[id(value)]
    done[id(value)] = _OPEN
    done[id(value)] = found = _rebuilt(value, done)
    return found


def _rebuilt(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, _Array):
        if value.values is None:
            raise UnsafePickle("an array without values")
        if value.values.dtype.hasobject:
            held = [_with_arrays(item, done) for item in value.values.ravel().tolist()]
            return np.fromiter(held, object, len(held)).reshape(value.values.shape)
        return value.values if value.values.shape else value.values[()]
    if isinstance(value, (_StandIn, _Dtype)):
        raise UnsafePickle("a dtype or function as a value")
    if isinstance(value, dict):
        return {key: _with_arrays(item, done) for key, item in cast("dict[Any, Any]", value).items()}
    items = cast("list[Any]", value)
    return type(items)(_with_arrays(item, done) for item in items) if any(map(_is_odd, items)) else items


def _is_odd(value: Any) -> bool:
    return isinstance(value, (_Array, _StandIn, _Dtype, dict, list, tuple))


def _check_count(value: Any) -> None:
    """Raise ``UnsafePickle`` if there are too many values, counted once per reference."""
    counts: dict[int, int] = {}
    begun: set[int] = set()
    todo = [value]
    while todo:
        held = _held(todo[-1])
        place = id(todo[-1])
        if held is None or place in counts:
            todo.pop()
        elif place in begun:
            todo.pop()
            counts[place] = 1 + sum(counts.get(id(item), 1) for item in held)
            if counts[place] > MAX_VALUES:
                raise UnsafePickle(f"more than {MAX_VALUES:,} values, where each counts as often as it is named")
        else:
            begun.add(place)
            within = [item for item in held if id(item) not in counts and _held(item) is not None]
            if any(id(item) in begun for item in within):
                raise UnsafePickle("a value that contains itself")
            todo += within


def _held(value: Any) -> Collection[Any] | None:
    """The values that a value contains; None if it is not a container."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    if isinstance(value, (list, tuple)):
        return cast("list[Any]", value)
    return value.ravel().tolist() if isinstance(value, np.ndarray) and value.dtype.hasobject else None
