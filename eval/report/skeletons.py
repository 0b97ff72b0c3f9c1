"""Pictures of skeleton sequences: stick figures drawn from the input tensors of the networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .blocks import CellValue, Figure, Table
from .figures import Theme, drawn_figure, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIGURES = 9  # per row, fewer if a sequence is shorter
_FIGURE_IN = 0.72  # inches along the side of a stick figure's place


def skeleton_chart(sequences: Mapping[str, ArrayLike], edges: Sequence[tuple[int, int]], *, caption: str = "") -> Figure:
    """A row of stick figures per sequence, at frames evenly spaced from first to last.

    Args:
        sequences: name -> (C, T, V) coordinates of one body: first to the right, second up. Each row is scaled separately.
        edges: pairs of joints, numbered from 0.

    Raises:
        ValueError: no sequence, or one that is not (C, T, V) with finite values and at least two coordinates.
    """
    bodies = {name: np.asarray(x, dtype=np.float64) for name, x in sequences.items()}
    for name, x in bodies.items():
        if x.ndim != 3 or len(x) < 2 or not x.size or not np.isfinite(x).all():
            raise ValueError(f"sequence {name!r} {x.shape}: finite (C, T, V) with C of 2 or more")
    if not bodies:
        raise ValueError("no sequence to draw")
    shown = {name: np.unique(np.linspace(0, x.shape[1] - 1, _FIGURES).astype(np.int64)) for name, x in bodies.items()}
    labels = short_labels(list(bodies))
    labels_in = 0.08 * max(map(len, labels))
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)

    def draw(axes: Axes, theme: Theme) -> None:
        from matplotlib.collections import LineCollection

        ramp = theme.shades(1)
        for row, (name, x) in enumerate(bodies.items()):
            drawn = x[:2, shown[name]]
            middle = (drawn.max((1, 2)) + drawn.min((1, 2))) / 2
            span = max(float((drawn.max((1, 2)) - drawn.min((1, 2))).max()), 1e-9)
            placed = (drawn - middle[:, None, None]) / span * 0.86
            for column in range(len(shown[name])):
                joints = placed[:, column] + np.array([[column], [-row]])
                colour = ramp(0.25 + 0.7 * column / (_FIGURES - 1))
                axes.add_collection(LineCollection(list(joints.T[pairs]), colors=[colour], linewidths=1.5, capstyle="round"))
                axes.plot(*joints, "o", color=colour, markersize=1.9, markeredgewidth=0)
            # Not a tick label: the layout leaves these too little room next to axes of equal scales.
            axes.text(-0.65, -row, labels[row], ha="right", va="center", fontsize=8.5)
        axes.set_xlim(-0.7 - labels_in / _FIGURE_IN, _FIGURES - 0.4)
        axes.set_ylim(0.5 - len(bodies), 0.5)
        axes.set_aspect("equal")
        axes.set_axis_off()

    alt = f"Stick figures of {len(bodies)} sequences, {_FIGURES} frames each from first to last: {', '.join(bodies)}."
    rows: list[Sequence[CellValue]] = [
        [name, x.shape[1], x.shape[2], ", ".join(map(str, shown[name].tolist()))] for name, x in bodies.items()
    ]
    size_in = (labels_in + _FIGURE_IN * (_FIGURES + 0.3), _FIGURE_IN * (len(bodies) + 0.2))
    return drawn_figure(draw, size_in, alt, caption, Table(["sequence", "frames", "joints", "drawn"], rows))
