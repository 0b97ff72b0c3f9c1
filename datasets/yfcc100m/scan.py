"""Lines of the metadata, cut and checked and copied by one compiled pass.

Nearly all lines of the metadata are ASCII, have all their columns, and write ids and times in one way. The pass knows that way
alone, and leaves whatever it is not sure of to the rules of ``fields``. Other threads run next to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.compiled import Passes
from .fields import NEEDED
from .lines import LINES_AT_ONCE, MAX_LINE_BYTES

_COPIED = 32  # bytes that are copied at a time, perhaps beyond the end of a text


def _load() -> ModuleType:
    from . import scan_passes

    return scan_passes


_passes = Passes(f"{__package__}.scan_passes", _load)


@dataclasses.dataclass(frozen=True)
class LinesOfKind:
    """Lines of one kind.

    Attributes:
        index: int64 of shape (n,), increasing: which of the lines they are.
        spans: int64 of shape (n, 2): first byte of each, and its end.
        texts: columns of text.
    """

    index: NDArray[np.int64]
    spans: NDArray[np.int64]
    texts: list[pa.StringArray]


@dataclasses.dataclass(frozen=True)
class Scanned:
    """Some lines.

    Attributes:
        photos: lines that are photos with two usable times, written like ``2006-02-28 20:33:06.0`` and ``1141158786``, and with
            one of the licences asked for; with the columns ``given``.
        taken: their capture times.
        uploaded: their upload times.
        others: other lines that are clean; with the columns ``names``.
        unclear: lines of too few or too many columns, with a byte that is not ASCII, with a control character up to 13 other
            than their tabs and their end, or longer than ``MAX_LINE_BYTES``; with no columns.
        lines: how many there are of all kinds.
        size: bytes that they take up.
    """

    photos: LinesOfKind
    taken: pa.Array
    uploaded: pa.Array
    others: LinesOfKind
    unclear: LinesOfKind
    lines: int
    size: int


class Scanner:
    """Scans blocks of lines; not to be used by two threads at a time.

    Args:
        layout: names of the tab-separated columns that a line must have.
        names: of columns: ``NEEDED``, and perhaps more after them.
        given: columns, at most as many, that are wanted of photos.
        licences: which of them a photo may have; any where it is None.
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
            ValueError: where the last line lacks its newline, or there are 2 GiB and more.
        """
        if data[-1:] not in (b"", b"\n") or len(data) >= 1 << 31:
            message = f"{len(data):,} bytes that end with {bytes(data[-1:])!r}"
            raise ValueError(f"{message}: expected less than 2 GiB, ending with a newline")
        # Any column may be nearly all of the data; what is not filled takes no memory.
        if self._text.shape[2] < len(data) + _COPIED:
            self._text = np.empty((2, self._most, len(data) + _COPIED), dtype=np.uint8)
        view = np.frombuffer(data, dtype=np.uint8)
        while len(view):
            size = _passes.sift(
                *(view, len(view), self._columns, MAX_LINE_BYTES, self._wanted, self._chosen, self._most),
                *(self._words, self._word_ends, self._word_count, self._begins, self._counts, self._times),
                *(self._index, self._spans, self._text, self._text.shape[2], self._ends, LINES_AT_ONCE),
            )
            # A copy, for the next lines take the place of these.
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


def _kept(array: NDArray[Any]) -> pa.Buffer:
    """A copy in the memory of Arrow, which uses again what was freed, where numpy's is fetched from the system each time."""
    buffer = pa.allocate_buffer(array.nbytes)
    np.frombuffer(buffer, dtype=array.dtype)[:] = array
    return buffer
