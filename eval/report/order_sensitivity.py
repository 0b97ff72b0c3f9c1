"""Figures of order sensitivity: average accuracy against forgetting with its bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..metrics.order_sensitivity import forgetting_bound
from .blocks import Figure, Table, Value
from .figures import MARKERS, Theme, axes_style, drawn_figure, legend_beside, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def accuracy_forgetting_chart(points: Mapping[str, tuple[ArrayLike, ArrayLike]], *, tasks: int, caption: str = "") -> Figure:
    """AA against AF of every order, told apart by method, with the line that AF cannot pass; at most eight methods.

    Args:
        points: method -> AA and AF after the last task, (n,) each, one a order; AF as ``forgetting_from_best``.
        tasks: k of AA_k, for the bound ``1 - k/(k-1) AA + 1/(k-1)``.

    Raises:
        ValueError: no method or too many, shapes that do not pair, a value that is not finite.
    """
    values = {name: np.array(np.broadcast_arrays(*pair), dtype=np.float64) for name, pair in points.items()}
    wrong = [name for name, v in values.items() if v.ndim != 2 or not v.size or not np.isfinite(v).all()]
    if not 1 <= len(values) <= len(MARKERS) or wrong:
        shapes = {name: v.shape[1:] for name, v in values.items()}
        raise ValueError(f"points {shapes}: one to eight methods, (n,) finite AA and AF each")
    every = np.concatenate(list(values.values()), axis=1)

    def draw(axes: Axes, theme: Theme) -> None:
        low, high = min(-0.05, float(every[1].min()) - 0.03), max(1.0, float(every[1].max()) + 0.03)
        line = np.array([0.0, 1.0])
        bound = forgetting_bound(line, tasks)
        axes.fill_between(line, bound, np.maximum(bound, high), where=None, color=theme.empty, linewidth=0)
        axes.plot(line, bound, color=theme.faint, linewidth=1.3, linestyle=(0, (4, 2)), label="bound of Theorem 1")
        for (name, (average, lost)), colour, marker in zip(values.items(), theme.series, MARKERS, strict=False):
            axes.plot(average, lost, marker, color=colour, markersize=4, alpha=0.5, markeredgewidth=0)
            axes.plot(
                [average.mean()],
                [lost.mean()],
                marker,
                color=colour,
                markersize=9,
                markeredgecolor=theme.page,
                markeredgewidth=1.2,
                linestyle="",
                label=short_labels([name])[0],
                zorder=3,
            )
        axes.set_xlim(0, min(1.0, float(every[0].max()) + 0.08))
        axes.set_ylim(low, high)
        axes_style(axes, theme, f"average accuracy over {tasks} tasks, AA", "average forgetting, AF")
        legend_beside(axes, theme, title="mean over orders")

    means = {name: v.mean(axis=1) for name, v in values.items()}
    alt = f"Average accuracy and forgetting, one point a order, under the bound for {tasks} tasks; means: " + "; ".join(
        f"{name} AA {mean[0]:.3f}, AF {mean[1]:.3f}" for name, mean in means.items()
    )
    rows: list[Sequence[Value]] = [
        [name, v.shape[1], *(float(x) for one in v for x in (one.mean(), one.min(), one.max()))] for name, v in values.items()
    ]
    columns = ["method", "orders", "AA, mean", "least", "most", "AF, mean", "least", "most"]
    return drawn_figure(draw, (8.4, 4.6), alt, caption, Table(columns, rows))
