"""The compiled passes of ``scan``: what is done for every byte, line or field.

Arrays come as addresses; what they hold and who calls these functions is said in ``scan``. Machine code is kept by the text of
this file, so nothing of the project is imported here.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

_TAB, _NEWLINE, _RETURN, _PRINTABLE = 9, 10, 13, 14
_WORD, _COPY = 64, 32  # bytes that are looked at, and copied, at a time
_BYTES, _I32, _I64 = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.int64))
_N = types.int64


_inlined: Any = numba.njit(inline="always", error_model="numpy")
_intrinsic: Any = intrinsic  # what it makes takes two arguments less than what it is given


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


@_pass(_BYTES, _N)
def newlines(data: Any, size: int) -> int:
    """How many there are."""
    count = 0
    for k in range(size):
        count += data[k] == _NEWLINE
    return count


@_pass(_BYTES, _N, _N, _I64, _N, _N, _I64, _I32, _I64, _N)
def fields(
    data: Any,
    size: int,
    columns: int,
    wanted: Any,
    chosen: int,
    longest: int,
    begins: Any,
    bounds: Any,
    starts: Any,
    lines: int,
) -> int:
    """Fill ``bounds`` and ``starts``; ``begins`` has room for a line's fields and one more."""
    table = carray(bounds, (lines, chosen, 2))
    line = tabs = short = start = 0
    clean = True
    starts[0] = 0
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
                clean = clean and tabs == columns - 1 and place + 1 - start <= longest
                for n in range(chosen):
                    table[line, n, 0] = begins[wanted[n]] if clean else -1
                    table[line, n, 1] = begins[wanted[n] + 1] - 1 if clean else -1
                line += 1
                starts[line] = start = place + 1
                tabs = short = 0
                clean = True
            elif byte == _RETURN and data[place + 1] == _NEWLINE:
                short = 1
            else:
                clean = False
    return line


@_inlined
def _number(data: Any, at: int, digits: int) -> Any:
    """The whole number in some bytes, -1 where they are not all digits."""
    number = 0
    for k in range(at, at + digits):
        digit = np.int64(data[k]) - 48
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
    return number


@_inlined
def _tenths(data: Any, at: int) -> int:
    """Tenths of seconds from the year 0 on in 21 bytes like ``2006-02-28 20:33:06.0``, -1 where they are no such time."""
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
    # Years that begin with March have their odd day at the end.
    years, months = year - (month < 3), (month + 9) % 12
    date = years * 365 + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 1
    return (((date * 24 + hour) * 60 + minute) * 60 + second) * 10 + tenth


_EPOCH = 719_468 * 86_400 * 10  # tenths of seconds from the first of March of the year 0 to 1970


@_pass(_BYTES, _I32, _N, _N, _BYTES, _I64, _I64)
def photos(data: Any, bounds: Any, lines: int, chosen: int, found: Any, taken: Any, uploaded: Any) -> int:
    """Fill ``found`` for all lines, and the times of those that are found; how many they are."""
    table = carray(bounds, (lines, chosen, 2))
    count = 0
    for line in range(lines):
        found[line] = 0
        key, key_end = table[line, 0, 0], table[line, 0, 1]
        when, when_end = table[line, 1, 0], table[line, 1, 1]
        stamp, stamp_end = table[line, 2, 0], table[line, 2, 1]
        url, url_end = table[line, 3, 0], table[line, 3, 1]
        marker, marker_end = table[line, 6, 0], table[line, 6, 1]
        if key < 0 or key_end == key or key_end - key > 18 or data[key] == 48 or _number(data, key, key_end - key) < 0:
            continue
        if marker_end - marker != 1 or data[marker] != 48 or url == url_end:
            continue
        if when_end - when != 21 or stamp_end - stamp != 10 or data[stamp] == 48:
            continue
        seconds, tenths = _number(data, stamp, 10), _tenths(data, when)
        if seconds < 0 or tenths < 0 or tenths - _EPOCH >= seconds * 10:
            continue
        found[line] = 1
        taken[count], uploaded[count] = (tenths - _EPOCH) * 100_000, seconds * 1_000_000
        count += 1
    return count


@_pass(_I32, _N, _N, _BYTES, _I64, _N, _I64, _I64)
def sizes(bounds: Any, lines: int, chosen: int, named: Any, columns: Any, count: int, total: Any, first: Any) -> int:
    """Fill ``total`` with the bytes of each column's text, and ``first`` with where to put them; how many lines are named."""
    table = carray(bounds, (lines, chosen, 2))
    rows = 0
    for n in range(count):
        total[n] = 0
    for line in range(lines):
        if named[line]:
            for n in range(count):
                total[n] += table[line, columns[n], 1] - table[line, columns[n], 0]
            rows += 1
    first[0] = 0
    for n in range(count):
        # The copy of a column's last text runs beyond its end, and not into the next column.
        first[n + 1] = first[n] + total[n] + _COPY
    return rows


@_pass(_BYTES, _N, _I32, _N, _N, _BYTES, _I64, _N, _I64, _BYTES, _I32, _N)
def texts(
    data: Any,
    size: int,
    bounds: Any,
    lines: int,
    chosen: int,
    named: Any,
    columns: Any,
    count: int,
    first: Any,
    text: Any,
    offsets: Any,
    rows: int,
) -> int:
    """Copy the text of columns, each from its ``first`` byte on, and fill its ``offsets`` (count, rows + 1)."""
    table, ends = carray(bounds, (lines, chosen, 2)), carray(offsets, (count, rows + 1))
    row = 0
    for n in range(count):
        ends[n, 0] = 0
    for line in range(lines):
        if named[line]:
            for n in range(count):
                at, end = table[line, columns[n], 0], table[line, columns[n], 1]
                to = first[n] + ends[n, row]
                if end + _COPY <= size:
                    for k in range(0, end - at, _COPY):
                        _copy(text, to + k, data, at + k)
                else:
                    for k in range(end - at):
                        text[to + k] = data[at + k]
                ends[n, row + 1] = ends[n, row] + end - at
            row += 1
    return row
