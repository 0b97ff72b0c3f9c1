"""Files of NTU's format written from joints, and plain readers of it, for the tests of skeletons."""

from __future__ import annotations

import numpy as np


def skeleton_text(frames: list[list[tuple[int, np.ndarray]]], *, newline: str = "\r\n") -> bytes:
    """A ``.skeleton`` file: for each frame the bodies as (identity, joints (V, 3))."""
    lines = [str(len(frames))]
    for bodies in frames:
        lines.append(str(len(bodies)))
        for identity, joints in bodies:
            lines.append(f"{identity} 0 1 1 0 1 0 0.1290396 -0.09823757 2")
            lines.append(str(len(joints)))
            lines += [f"{x:.7g} {y:.7g} {z:.7g} 277.4 191.8 1036.2 519.1 -0.2 0.05 0.97 -0.05 2" for x, y, z in joints]
    return (newline.join(lines) + newline).encode()


def one_body(joints: np.ndarray, identity: int = 72057594037931101) -> bytes:
    """A file of one body in every frame, joints (T, V, 3)."""
    return skeleton_text([[(identity, frame)] for frame in joints])


def read_plainly(data: bytes) -> list[list[tuple[str, np.ndarray]]]:
    """What a file says, line by line: for each frame (identity, joints) of its bodies."""
    lines = iter(data.decode().splitlines())
    frames: list[list[tuple[str, np.ndarray]]] = []
    for _ in range(int(next(lines))):
        bodies: list[tuple[str, np.ndarray]] = []
        for _ in range(int(next(lines))):
            identity = next(lines).split()[0]
            joints = [[float(word) for word in next(lines).split()[:3]] for _ in range(int(next(lines)))]
            bodies.append((identity, np.asarray(joints)))
        frames.append(bodies)
    return frames
