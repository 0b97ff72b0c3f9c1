"""Figures for labels of two levels: the tree of a hierarchy, and which labels are predicted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .blocks import Figure, Table
from .figures import Theme, drawn_figure, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW_IN, _COLUMN_IN = 0.16, 2.9
"""Height of a leaf and width of a column of the tree, in inches."""
_NAMED_LEAVES = 300  # with more leaves than this, leaves are counted instead of named


def tree_figure(groups: Mapping[str, Sequence[str]], lone: Sequence[str], *, caption: str = "") -> Figure:
    """A forest of two levels: each superclass with lines to its subclasses, in up to four columns; then the lone subclasses.

    Args:
        groups: superclass -> subclasses.
        lone: subclasses without a superclass.
    """
    leaves = sum(map(len, groups.values())) + len(lone)
    if not leaves:
        raise ValueError("a hierarchy without a class: there is nothing to draw")
    blocks = [(name, list(inner)) for name, inner in groups.items()] + ([("", list(lone))] if lone else [])
    if leaves > _NAMED_LEAVES:
        blocks = [(name, [f"{len(inner)} subclasses" if name else f"{len(inner)} lone subclasses"]) for name, inner in blocks]
    columns = _packed(blocks)
    rows = max(sum(len(inner) + 1 for _, inner in column) for column in columns)

    def draw(axes: Axes, theme: Theme) -> None:
        for at, column in enumerate(columns):
            row = 0.0
            for name, inner in column:
                _block(axes, theme, at, row, name, inner)
                row += len(inner) + 1
        axes.set_xlim(0, len(columns))
        axes.set_ylim(rows - 0.5, -0.7)
        axes.set_axis_off()

    alt = (
        f"Tree of {len(groups)} superclasses with {leaves - len(lone)} subclasses, and {len(lone)} lone subclasses: "
        + "; ".join(f"{name} has {len(inner)}" for name, inner in list(groups.items())[:20])
        + ("; and more." if len(groups) > 20 else ".")
    )
    listed = [[name, len(inner), ", ".join(inner)] for name, inner in groups.items()]
    table = Table(["superclass", "subclasses", "names"], [*listed, *([["none", len(lone), ", ".join(lone)]] if lone else [])])
    return drawn_figure(draw, (_COLUMN_IN * len(columns), max(1.0, _ROW_IN * rows)), alt, caption, table)


def _packed(blocks: Sequence[tuple[str, list[str]]]) -> list[list[tuple[str, list[str]]]]:
    """Blocks in up to four columns of about equal height, in their order."""
    total = sum(len(inner) + 1 for _, inner in blocks)
    height = max(18.0, total / 4)
    columns: list[list[tuple[str, list[str]]]] = [[]]
    filled = 0
    for name, inner in blocks:
        if filled and filled + (len(inner) + 1) / 2 > height and len(columns) < 4:
            columns.append([])
            filled = 0
        columns[-1].append((name, inner))
        filled += len(inner) + 1
    return columns


def _block(axes: Axes, theme: Theme, column: int, row: float, name: str, inner: Sequence[str]) -> None:
    middle, stem = row + (len(inner) - 1) / 2, column + 0.5
    if name:
        axes.text(column, middle, short_labels([name], 22)[0], va="center", ha="left", fontsize=7.5, fontweight="bold")
        axes.plot([stem, stem], [row, row + len(inner) - 1], color=theme.bar, linewidth=1)
        axes.plot([column + 0.46, stem], [middle, middle], color=theme.bar, linewidth=1)
    for number, leaf in enumerate(inner):
        if name:
            axes.plot([stem, stem + 0.04], [row + number, row + number], color=theme.bar, linewidth=1)
        axes.text(stem + 0.06, row + number, short_labels([leaf], 24)[0], va="center", ha="left", fontsize=7)


def confusion_figure(
    matrices: Mapping[str, ArrayLike], labels: Sequence[str], *, breaks: Sequence[int] = (), caption: str = ""
) -> Figure:
    """Matrices side by side: for samples with the row's label, the share for which the column's label is predicted.

    Args:
        matrices: title -> (n, n) shares in [0, 1], NaN for labels without a sample.
        labels: n names.
        breaks: indices before which a line separates labels of different tasks.
    """
    values = {title: np.asarray(matrix, dtype=np.float64) for title, matrix in matrices.items()}
    if not values or any(matrix.shape != (len(labels), len(labels)) for matrix in values.values()):
        shapes = {title: matrix.shape for title, matrix in values.items()}
        raise ValueError(f"matrices {shapes} for {len(labels)} labels: at least one, each (n, n)")
    size, names = len(labels), short_labels(labels, 18)

    def draw(axes: Axes, theme: Theme) -> None:
        ramp = theme.shades()
        for at, (title, matrix) in enumerate(values.items()):
            left = at * (size + 1.5)
            axes.pcolormesh(left + np.arange(size + 1), np.arange(size + 1), matrix, cmap=ramp, vmin=0, vmax=1)
            axes.text(left + size / 2, -0.6, title, ha="center", va="bottom", fontsize=8.5)
            for place in breaks:
                axes.plot([left, left + size], [place, place], color=theme.faint, linewidth=0.6)
                axes.plot([left + place, left + place], [0, size], color=theme.faint, linewidth=0.6)
            for place, name in enumerate(names):
                axes.text(left + place + 0.5, size + 0.3, name, rotation=90, ha="center", va="top", fontsize=6)
        axes.set_yticks(np.arange(size) + 0.5, names)
        axes.tick_params(axis="y", length=0, labelsize=6)
        axes.set_xticks([])
        axes.set_xlim(0, len(values) * (size + 1.5) - 1.5)
        axes.set_ylim(size + max(map(len, names)) * 0.45, -2)
        axes.set_aspect("equal")
        axes.spines[:].set_visible(False)

    side = max(1.6, 0.145 * size)
    right = "; ".join(f"{title}: on the diagonal {np.nanmean(np.diagonal(matrix)):.0%}" for title, matrix in values.items())
    alt = f"Which of {size} labels are predicted for samples of each. {right} in the mean."
    headings = ["label", *(f"{title}, own label" for title in values)]
    own = [np.diagonal(matrix).tolist() for matrix in values.values()]
    table = Table(headings, [[name, *shares] for name, *shares in zip(labels, *own, strict=True)])
    return drawn_figure(draw, (1.1 + (side + 0.25) * len(values), side + 1.4), alt, caption, table)
