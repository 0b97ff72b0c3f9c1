"""The text of NTU RGB+D's ``.skeleton`` files (Shahroudy et al., CVPR 2016).

A file is: the number of frames; for each frame the number of bodies; for each body a line that begins with its identity, the
number of joints, and a line per joint: x, y, z in metres, and nine more values (positions in the pictures, orientation, state).

Only x, y, z are read. The start and end of these three words are located for all lines at once, and Arrow converts them to
numbers without copying them. The values are the same as those of Python's ``float``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.rows import Reject

MAX_LINES = 1 << 22
"""Maximum number of lines of a file; the longest in the dataset has about 20,000."""

AXES = 3
_NEWLINE, _SPACE = ord("\n"), ord(" ")
_NUMBER = r"^-?\d+(\.\d*)?([eE][+-]?\d+)?$"
_WIDTHS = (40, 1000)  # bytes within which the first three numbers of a line end: nearly always, and at most


@dataclass(frozen=True)
class ParsedBodies:
    """The bodies of a file, one block per body and frame, in the order of the file.

    Attributes:
        frames: number of frames of the file, including those without a body.
        joints: (n, V, 3) float64, metres.
        frame: (n,) int64, frame of the block.
        place: (n,) int64, position of the block within its frame.
        body: (n,) int64, number of its body by first appearance.
    """

    frames: int
    joints: NDArray[np.float64]
    frame: NDArray[np.int64]
    place: NDArray[np.int64]
    body: NDArray[np.int64]


def parse_skeleton(data: bytes, *, joints: int) -> ParsedBodies:
    """Parse a file. Time and memory are bounded by its size, whatever numbers it claims.

    Args:
        data: the file.
        joints: number of joints that every body must have.

    Raises:
        Reject: ``empty``; ``not_text``: a NUL, or bytes beyond ASCII; ``no_frames``; ``bad_count``: a line that should be a
            count is not a number; ``truncated``: fewer lines than the counts require; ``trailing_lines``: more;
            ``wrong_joint_count``; ``not_a_number``; ``not_finite``; ``too_large``: more than ``MAX_LINES``.
    """
    if not data.strip():
        raise Reject("empty", f"{len(data)} bytes")
    if not data.isascii() or b"\0" in data:
        raise Reject("not_text", f"begins with {data[:12]!r}")
    if (count := data.count(b"\n")) > MAX_LINES:
        raise Reject("too_large", f"{count} lines: {MAX_LINES} at most")
    lines = _Lines(data)
    frames, blocks = _blocks(lines, joints)
    found = np.asarray(blocks, dtype=np.int64).reshape(-1, 4)
    xyz = _first_three(lines, (found[:, :1] + np.arange(joints)).ravel())
    return ParsedBodies(frames, xyz.reshape(-1, joints, AXES), found[:, 1], found[:, 2], found[:, 3])


class _Lines:
    """Access to the lines of a file, without splitting it.

    Attributes:
        data: the file; it ends with a newline.
        ends: (lines,) int64, positions of the newlines.
        count: number of lines.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data if data.endswith(b"\n") else data + b"\n"
        self.ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == _NEWLINE)
        self._ends: list[int] = [*self.ends.tolist(), -1]  # line 0 begins after place -1
        self.count = len(self.ends)

    def __getitem__(self, line: int) -> bytes:
        return self.data[self._ends[line - 1] + 1 : self._ends[line]]

    def number(self, line: int, what: str) -> int:
        """The count in a line."""
        if line >= self.count:
            raise Reject("truncated", f"{self.count} lines: a number of {what} should follow")
        text = self[line].rstrip()
        if not text.isdigit() or len(text) > 9:
            raise Reject("bad_count", f"line {line + 1}: {text[:20]!r} is not a number of {what}")
        return int(text)


def _blocks(lines: _Lines, joints: int) -> tuple[int, list[tuple[int, int, int, int]]]:
    """Follow the counts; return the number of frames, and (first line of its joints, frame, place, body) of each block."""
    blocks: list[tuple[int, int, int, int]] = []
    bodies: dict[bytes, int] = {}
    frames, at = lines.number(0, "frames"), 1
    if not frames:
        raise Reject("no_frames", "0 frames: expected at least 1")
    for frame in range(frames):
        count = lines.number(at, "bodies")
        at += 1
        for place in range(count):
            if (found := lines.number(at + 1, "joints")) != joints:
                raise Reject("wrong_joint_count", f"line {at + 2}: {found} joints, expected {joints}")
            # The identity has more digits than a double can hold, so it is compared as text.
            identity = lines[at].partition(b" ")[0]
            blocks.append((at + 2, frame, place, bodies.setdefault(identity, len(bodies))))
            at += 2 + joints
        if at > lines.count:
            raise Reject("truncated", f"{lines.count} lines: frame {frame} of {frames} goes on")
    if any(lines[line].strip() for line in range(at, lines.count)):
        raise Reject("trailing_lines", f"{lines.count} lines: the {frames} frames end after {at}")
    return frames, blocks


def _first_three(text: _Lines, lines: NDArray[np.int64]) -> NDArray[np.float64]:
    """The first three numbers of ``lines``, (n, 3); line 0 must not be among them. Raises ``Reject``."""
    starts, ends = text.ends[lines - 1] + 1, text.ends[lines]
    stops = starts[:, None] + _three_blanks(text.data, starts)
    # A line that is too short ends before its third number does.
    wrong = stops[:, -1] > ends
    if wrong.any():
        raise _not_numbers(text, int(lines[wrong.argmax()]))
    # A string array over the file's own bytes: every second string is the text between two numbers, and null.
    offsets = np.stack([np.column_stack([starts, stops[:, :-1] + 1]), stops], axis=-1).ravel()
    count = max(len(offsets) - 1, 0)
    valid = pa.py_buffer(b"\x55" * (count // 8 + 1))
    words = pa.Array.from_buffers(
        pa.large_string(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(text.data)], null_count=count // 2
    )
    try:
        numbers = words.cast(pa.float64())
    except pa.ArrowInvalid:
        numbers = pc.if_else(pc.match_substring_regex(words, _NUMBER), 0.0, None)
    values = numbers.to_numpy(zero_copy_only=False)[::2].reshape(-1, AXES)
    wrong = ~np.isfinite(values).all(1)  # words that are not numbers are null, which becomes NaN
    if wrong.any():
        raise _not_numbers(text, int(lines[wrong.argmax()]))
    return values


def _three_blanks(data: bytes, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets from each of the ascending starts to the first three blanks after it, (n, 3); far too large for shorter lines."""
    found = np.empty((len(starts), AXES), dtype=np.int64)
    for width in _WIDTHS if len(starts) else ():
        if starts[-1] + width > len(data):  # the last line is short: copy only in this case
            data += b"_" * width
        buffer = np.frombuffer(data, dtype=np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(buffer, width)[starts]
        blanks = np.append(np.flatnonzero(windows <= _SPACE), [windows.size + len(data)] * AXES)
        firsts = np.arange(len(starts)) * width
        found = blanks[np.searchsorted(blanks, firsts)[:, None] + np.arange(AXES)] - firsts[:, None]
        if (found[:, -1] < width).all():
            break
    return found


def _not_numbers(text: _Lines, line: int) -> Reject:
    words = text[line].split()[:AXES]
    message = f"line {line + 1}: {text[line][:60]!r} does not begin with {AXES} finite numbers"
    try:
        finite = len(words) < AXES or all(np.isfinite([float(word) for word in words]))
    except ValueError:
        finite = True
    return Reject("not_a_number" if finite else "not_finite", message)
