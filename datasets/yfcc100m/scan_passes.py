"""The compiled passes of ``scan``: the work for every byte, line or field.

Arrays are passed as addresses; ``scan`` explains their content and calls these functions. Machine code is cached by the text of
this file, so nothing of the project is imported here.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_TAB, _NEWLINE, _RETURN, _PRINTABLE = 9, 10, 13, 14
_WORD, _COPY = 64, 32  # bytes that are looked at, and copied, at a time
_BYTES, _I32, _I64 = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.int64))
_N = types.int64


_helper: Any = numba.njit(error_model="numpy")
_intrinsic: Any = intrinsic  # the result takes two arguments fewer than the decorated function


def _pass(*arguments: Any) -> Any:
    return numba.cfunc(_N(*arguments), error_model="numpy")


# ------------------------------------------------------------------------------------------------------ vectors of bytes


def _vector(builder: Any, start: Any, at: Any, count: int) -> Any:
    return builder.bitcast(builder.gep(start, [at]), ir.VectorType(ir.IntType(8), count).as_pointer())


@_intrinsic
def _not_printable(typing: Any, data: Any, at: Any) -> Any:
    """64 bits for the 64 bytes from ``at`` on: 1 for a control character up to 13 and for a byte that is not ASCII."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = builder.load(_vector(builder, args[0], args[1], _WORD), align=1)
        # As a signed number a byte that is not ASCII is below 0.
        limit = ir.Constant(word.type, [ir.Constant(ir.IntType(8), _PRINTABLE)] * _WORD)
        return builder.bitcast(builder.icmp_signed("<", word, limit), ir.IntType(_WORD))

    return types.uint64(data, types.int64), generate


@_intrinsic
def _lowest(typing: Any, bits: Any) -> Any:
    """Number of the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@_intrinsic
def _copy(typing: Any, out: Any, to: Any, data: Any, at: Any) -> Any:
    """Copy 32 bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = builder.load(_vector(builder, args[2], args[3], _COPY), align=1)
        builder.store(given, _vector(builder, args[0], args[1], _COPY), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64), generate


# ----------------------------------------------------------------------------------------------------------------- passes


@_helper
def _number(data: Any, at: int, digits: int) -> Any:
    """The whole number in some bytes, -1 if they are not all digits."""
    number = 0
    for k in range(at, at + digits):
        digit = np.int64(data[k]) - 48
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
    return number


@_helper
def _tenths(data: Any, at: int) -> int:
    """Tenths of seconds since the year 0 for 21 bytes like ``2006-02-28 20:33:06.0``, -1 if they are not such a time."""
    if data[at + 4] != 45 or data[at + 7] != 45 or data[at + 10] != 32:  # - - and a space
        return -1
    if data[at + 13] != 58 or data[at + 16] != 58 or data[at + 19] != 46:  # : : .
        return -1
    year, month, day = _number(data, at, 4), _number(data, at + 5, 2), _number(data, at + 8, 2)
    hour, minute, second = _number(data, at + 11, 2), _number(data, at + 14, 2), _number(data, at + 17, 2)
    tenth = _number(data, at + 20, 1)
    if year < 1 or month < 1 or month > 12 or day < 1 or min(hour, minute, second, tenth) < 0:
        return -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 28 + leap if month == 2 else 30 + (month + month // 8) % 2
    if day > days or hour > 23 or minute > 59 or second > 59:
        return -1
    # Years counted from March have the leap day at the end.
    years, months = year - (month < 3), (month + 9) % 12
    date = years * 365 + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 1
    return (((date * 24 + hour) * 60 + minute) * 60 + second) * 10 + tenth


_EPOCH = 719_468 * 86_400 * 10  # tenths of seconds from the first of March of the year 0 to 1970


@_helper
def _is_photo(data: Any, begins: Any, wanted: Any, most: int, times: Any, row: int) -> bool:
    """Whether a line is a photo with two usable times, which are stored in ``times`` in microseconds."""
    key, when, stamp, url, marker = wanted[most], wanted[most + 1], wanted[most + 2], wanted[most + 3], wanted[most + 6]
    at, digits = begins[key], begins[key + 1] - 1 - begins[key]
    if digits < 1 or digits > 18 or data[at] == 48 or _number(data, at, digits) < 0:
        return False
    if begins[marker + 1] - 1 - begins[marker] != 1 or data[begins[marker]] != 48 or begins[url] + 1 == begins[url + 1]:
        return False
    if begins[when + 1] - 1 - begins[when] != 21 or begins[stamp + 1] - 1 - begins[stamp] != 10 or data[begins[stamp]] == 48:
        return False
    seconds, tenths = _number(data, begins[stamp], 10), _tenths(data, begins[when])
    times[2 * row], times[2 * row + 1] = (tenths - _EPOCH) * 100_000, seconds * 1_000_000
    return seconds >= 0 and tenths >= 0 and tenths - _EPOCH < seconds * 10


@_helper
def _among(data: Any, start: int, size: int, words: Any, ends: Any, count: int) -> bool:
    """Whether some bytes are one of ``words``."""
    first = 0
    for word in range(count):
        same = ends[word] - first == size
        for k in range(size if same else 0):
            same = same and words[first + k] == data[start + k]
        if same:
            return True
        first = ends[word]
    return False


@_pass(*(_BYTES, _N, _N, _N), *(_I64, _I64, _N), *(_BYTES, _I64, _N), *(_I64, _I64, _I64), *(_I64, _I64, _BYTES, _N, _I32, _N))
def sift(
    data: Any,
    size: int,
    columns: int,
    longest: int,
    wanted: Any,
    chosen: Any,
    most: int,
    words: Any,
    word_ends: Any,
    word_count: int,
    begins: Any,
    counts: Any,
    times: Any,
    index: Any,
    spans: Any,
    text: Any,
    room: int,
    ends: Any,
    lines: int,
) -> int:
    """Fill ``counts``, ``times``, ``index``, ``spans``, ``text`` and ``ends``; return the number of bytes of the lines."""
    line = tabs = short = start = 0
    clean = True
    for kind in range(3):
        counts[kind] = 0
    for slot in range(2 * most):
        ends[slot * (lines + 1)] = 0
    for at in range(0, size, _WORD):
        if at + _WORD <= size:
            found = _not_printable(data, at)
        else:
            found = np.uint64(0)
            for k in range(size - at):
                if data[at + k] < _PRINTABLE or data[at + k] > 127:
                    found |= np.uint64(1) << np.uint64(k)
        while found:
            place = at + _lowest(found)
            found &= found - np.uint64(1)
            byte = data[place]
            if byte == _TAB:
                tabs += 1
                if tabs < columns:
                    begins[tabs] = place + 1
            elif byte == _NEWLINE:
                begins[0], begins[columns] = start, place + 1 - short
                kind = 2
                if clean and tabs == columns - 1 and place + 1 - start <= longest:
                    kind = 1
                    licence = wanted[most + 4]
                    first = begins[licence]
                    if _is_photo(data, begins, wanted, most, times, counts[0]) and (
                        word_count < 0 or _among(data, first, begins[licence + 1] - 1 - first, words, word_ends, word_count)
                    ):
                        kind = 0
                row = counts[kind]
                for n in range(chosen[kind]):
                    slot = kind * most + n
                    column = wanted[slot]
                    first, end = begins[column], begins[column + 1] - 1
                    offset = slot * (lines + 1) + row
                    to = slot * room + ends[offset]
                    if end + _COPY <= size:
                        for k in range(0, end - first, _COPY):
                            _copy(text, to + k, data, first + k)
                    else:
                        for k in range(end - first):
                            text[to + k] = data[first + k]
                    ends[offset + 1] = ends[offset] + end - first
                index[kind * lines + row] = line
                spans[2 * (kind * lines + row)], spans[2 * (kind * lines + row) + 1] = start, place + 1
                counts[kind] = row + 1
                line += 1
                start = place + 1
                tabs = short = 0
                clean = True
                if line == lines:
                    return start
            elif byte == _RETURN and data[place + 1] == _NEWLINE:
                short = 1
            else:
                clean = False
    return start
