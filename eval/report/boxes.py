"""Box plots: the distribution of the values of any number of groups, one row per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .blocks import CellValue, Figure, Table
from .figures import Theme, axes_style, drawn_figure, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AT = (5, 25, 50, 75, 95)


def box_chart(groups: Mapping[str, ArrayLike], *, group_axis: str, value_axis: str, caption: str = "") -> Figure:
    """The values of each group: a box from the first to the third quartile with the median, whiskers from 5 to 95 per cent, and
    a dot at the mean. Groups are drawn from top to bottom in the order passed.

    Args:
        groups: name -> (n,) finite values, n at least 1 and different for each group.
        group_axis, value_axis: what groups and values are.

    Raises:
        ValueError: no group, or a group that has no values or a value that is not finite.

    >>> figure = box_chart({"gray world": [1.0, 4.0, 9.0]}, group_axis="method", value_axis="error, degrees")
    >>> figure.data.rows[0][:2], figure.data.columns[:3]
    (['gray world', 3], ['method', 'values', '5 %'])
    """
    values = {name: np.asarray(each, dtype=np.float64) for name, each in groups.items()}
    wrong = [name for name, each in values.items() if each.ndim != 1 or not len(each) or not np.isfinite(each).all()]
    if not values or wrong:
        raise ValueError(f"groups {wrong or 'of no name'}: (n,) finite values are needed, at least one")
    spread = {name: np.percentile(each, _AT) for name, each in values.items()}
    names = short_labels(list(values), 34)

    def draw(axes: Axes, theme: Theme) -> None:
        for row, (name, (least, first, middle, third, most)) in enumerate(spread.items()):
            axes.plot([least, most], [row, row], color=theme.faint, linewidth=1)
            axes.barh(row, third - first, left=first, height=0.56, color=theme.bar, linewidth=0)
            axes.plot([middle, middle], [row - 0.28, row + 0.28], color=theme.page, linewidth=1.8)
            axes.plot([values[name].mean()], [row], "o", color=theme.ink, markersize=3.6, markeredgewidth=0)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, None) if min(each[0] for each in spread.values()) >= 0 else None
        axes_style(axes, theme, value_axis, "")
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=theme.grid, linewidth=0.8)

    alt = f"Boxes of {value_axis} by {group_axis}, with median: " + "; ".join(
        f"{name} {each[2]:.2f}" for name, each in spread.items()
    )
    rows: list[Sequence[CellValue]] = [
        [name, len(values[name]), *each.tolist(), float(values[name].mean())] for name, each in spread.items()
    ]
    columns = [group_axis, "values", *(f"{at} %" for at in _AT), "mean"]
    return drawn_figure(draw, (8.4, 1.1 + 0.27 * len(values)), alt, caption, Table(columns, rows))
