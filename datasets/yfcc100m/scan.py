"""Split, check and copy lines of the metadata in one compiled pass.

Nearly all lines of the metadata are ASCII, have all their columns, and write ids and times in one form. The pass handles only
this form, and leaves all lines that it is not sure of to the rules of ``fields``. Other threads can run during a pass.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.compiled import Passes
from .fields import NEEDED
from .lines import LINES_AT_ONCE, MAX_LINE_BYTES

_COPIED = 32  # bytes that are copied at a time, possibly beyond the end of a text


def _load() -> ModuleType:
    from . import scan_passes

    return scan_passes


_passes = Passes(f"{__package__}.scan_passes", _load)


@dataclasses.dataclass(frozen=True)
class LinesOfKind:
    """Lines of one kind.

    Attributes:
        index: int64 of shape (n,), increasing: numbers of the lines.
        spans: int64 of shape (n, 2): position of the first byte of each line, and of its end.
        texts: columns of text.
    """

    index: NDArray[np.int64]
    spans: NDArray[np.int64]
    texts: list[pa.StringArray]


@dataclasses.dataclass(frozen=True)
class Scanned:
    """Scanned lines.

    Attributes:
        photos: lines that are photos with two usable times, in the forms ``2006-02-28 20:33:06.0`` and ``1141158786``, and with
            one of the requested licences; with the columns ``given``.
        taken: capture times of the photos.
        uploaded: upload times of the photos.
        others: other lines in the expected form; with the columns ``names``.
        unclear: lines with too few or too many columns, with a byte that is not ASCII, with a control character up to 13 other
            than tabs and line end, or longer than ``MAX_LINE_BYTES``; without columns.
        lines: number of lines of all kinds.
        size: bytes of these lines.
    """

    photos: LinesOfKind
    taken: pa.Array
    uploaded: pa.Array
    others: LinesOfKind
    unclear: LinesOfKind
    lines: int
    size: int


class Scanner:
    """Scans blocks of lines; must not be used by two threads at a time. Several scans of one thread may take turns.

    Args:
        layout: names of the tab-separated columns that a line must have.
        names: names of columns: ``NEEDED``, optionally followed by others.
        given: columns of photos to return, at most as many as ``names``.
        licences: licences that a photo may have; None: any.
    """

    def __init__(
        self, layout: Sequence[str], names: Sequence[str], given: Sequence[str], licences: Sequence[str] | None
    ) -> None:
        if tuple(names[: len(NEEDED)]) != NEEDED or len(given) > len(names):
            raise ValueError(f"columns {', '.join(names)}, and {', '.join(given)} of photos: {', '.join(NEEDED)} come first")
        self._columns, self._most = len(layout), len(names)
        self._wanted = np.zeros((2, len(names)), dtype=np.int64)
        self._wanted[0, : len(given)] = [layout.index(name) for name in given]
        self._wanted[1] = [layout.index(name) for name in names]
        self._chosen = np.array([len(given), len(names), 0], dtype=np.int64)
        words = [name.encode() for name in licences or () if name]
        self._words = np.frombuffer(b"".join(words) or b" ", dtype=np.uint8)
        self._word_ends = np.cumsum([len(word) for word in words] or [0])
        self._word_count = -1 if licences is None else len(words)
        self._begins = np.empty(len(layout) + 1, dtype=np.int64)
        self._counts = np.empty(3, dtype=np.int64)
        self._times = np.empty((LINES_AT_ONCE, 2), dtype=np.int64)
        self._index = np.empty((3, LINES_AT_ONCE), dtype=np.int64)
        self._spans = np.empty((3, LINES_AT_ONCE, 2), dtype=np.int64)
        self._ends = np.empty((2, len(names), LINES_AT_ONCE + 1), dtype=np.int32)
        self._text = np.empty((2, len(names), 0), dtype=np.uint8)

    def __call__(self, data: bytes | memoryview) -> Iterator[Scanned]:
        """Lines of ``data``, at most ``LINES_AT_ONCE`` at a time.

        Raises:
            ValueError: the last line has no newline, or the data are 2 GiB or larger.
        """
        if data[-1:] not in (b"", b"\n") or len(data) >= 1 << 31:
            message = f"{len(data):,} bytes that end with {bytes(data[-1:])!r}"
            raise ValueError(f"{message}: expected less than 2 GiB, ending with a newline")
        # Any column may be nearly as large as the data. Memory that is not written takes no space; it is Arrow's, since numpy's
        # comes in pages of 2 MB.
        if self._text.shape[2] < len(data) + _COPIED:
            shape = (2, self._most, len(data) + _COPIED)
            self._text = np.frombuffer(pa.allocate_buffer(math.prod(shape)), dtype=np.uint8).reshape(shape)
        view = np.frombuffer(data, dtype=np.uint8)
        while len(view):
            size = _passes.sift(
                *(view, len(view), self._columns, MAX_LINE_BYTES, self._wanted, self._chosen, self._most),
                *(self._words, self._word_ends, self._word_count, self._begins, self._counts, self._times),
                *(self._index, self._spans, self._text, self._text.shape[2], self._ends, LINES_AT_ONCE),
            )
            # Copied, because the next lines overwrite these buffers.
            times = self._times[: self._counts[0]].T.copy()
            taken, uploaded = (pa.array(column).cast(pa.timestamp("us")) for column in times)
            photos, others, unclear = map(self._kind, range(3))
            yield Scanned(photos, taken, uploaded, others, unclear, int(self._counts.sum()), size)
            view = view[size:]

    def _kind(self, kind: int) -> LinesOfKind:
        count, chosen = int(self._counts[kind]), int(self._chosen[kind])
        texts = list[pa.StringArray]()
        for text, ends in zip(self._text[kind, :chosen], self._ends[kind, :chosen], strict=True) if chosen else ():
            texts.append(pa.StringArray.from_buffers(count, _kept(ends[: count + 1]), _kept(text[: ends[count]])))
        return LinesOfKind(self._index[kind, :count].copy(), self._spans[kind, :count].copy(), texts)


_own = threading.local()


def scanner(layout: Sequence[str], names: Sequence[str], given: Sequence[str], licences: Sequence[str] | None) -> Scanner:
    """The scanner of this thread, see ``Scanner``. It is kept for the next file or piece: the system clears the memory of a new
    one, which takes a quarter of the time of a scan.
    """
    wanted = tuple(layout), tuple(names), tuple(given), None if licences is None else tuple(licences)
    if getattr(_own, "wanted", None) != wanted:
        _own.scanner, _own.wanted = Scanner(*wanted), wanted
    return _own.scanner


def _kept(array: NDArray[Any]) -> pa.Buffer:
    """A copy in Arrow's memory, which is reused when freed, while numpy requests memory from the system each time."""
    buffer = pa.allocate_buffer(array.nbytes)
    np.frombuffer(buffer, dtype=array.dtype)[:] = array
    return buffer
