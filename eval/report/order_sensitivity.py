"""Figures of order sensitivity: average accuracy against forgetting, with the bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..metrics.order_sensitivity import forgetting_bound
from .blocks import CellValue, Figure, Table
from .figures import MARKERS, Theme, axes_style, drawn_figure, legend_beside, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Mapping[str, tuple[ArrayLike, ArrayLike]]


def accuracy_forgetting_chart(kinds: Mapping[str, Points], *, tasks: int, caption: str = "") -> Figure:
    """AA against AF of every order, distinguished by method, with the upper bound of AF; any number of methods.

    Args:
        kinds: one or two kinds of orders; points of the second are hollow. Each is: method -> AA and AF after the last task,
            (n,) each, one per order; AF as in ``forgetting_from_best``.
        tasks: k of AA_k, for the bound ``1 - k/(k-1) AA + 1/(k-1)``.

    Raises:
        ValueError: no method, a third kind, shapes that do not pair, a value that is not finite.
    """
    values = {kind: {name: _pair(*pair) for name, pair in points.items()} for kind, points in kinds.items()}
    names = list(dict.fromkeys(name for points in values.values() for name in points))
    all_of = [(kind, name, found) for kind, points in values.items() for name, found in points.items()]
    wrong = [name for _, name, v in all_of if v.ndim != 2 or not v.size or not np.isfinite(v).all()]
    if not names or wrong or len(values) > 2:
        shapes = {name: v.shape[1:] for _, name, v in all_of}
        raise ValueError(f"points {shapes} of kinds {list(values)}: one kind or two, (n,) finite AA and AF each")
    every = np.concatenate([v for _, _, v in all_of], axis=1)

    def draw(axes: Axes, theme: Theme) -> None:
        low, high = min(-0.05, float(every[1].min()) - 0.03), max(1.0, float(every[1].max()) + 0.03)
        line = np.array([0.0, 1.0])
        bound = forgetting_bound(line, tasks)
        axes.fill_between(line, bound, np.maximum(bound, high), where=None, color=theme.empty, linewidth=0)
        axes.plot(line, bound, color=theme.faint, linewidth=1.3, linestyle=(0, (4, 2)), label="bound of Theorem 1")
        told = set[str]()
        for at, points in enumerate(values.values()):
            for name, (average, lost) in points.items():
                label = None if name in told else short_labels([name])[0]
                told.add(name)
                _scatter(axes, theme, names.index(name), label, average, lost, at == 1)
        axes.set_xlim(0, min(1.0, float(every[0].max()) + 0.08))
        axes.set_ylim(low, high)
        axes_style(axes, theme, f"average accuracy over {tasks} tasks, AA", "average forgetting, AF")
        legend_beside(axes, theme, title="mean over orders" if len(values) == 1 else "means; hollow: " + list(values)[1])

    several = len(values) > 1
    alt = f"Average accuracy and forgetting, one point an order, under the bound for {tasks} tasks; means: " + "; ".join(
        f"{name}{f', {kind},' if several else ''} AA {v[0].mean():.3f}, AF {v[1].mean():.3f}" for kind, name, v in all_of
    )
    rows: list[Sequence[CellValue]] = [
        [name, kind, v.shape[1], *(float(x) for one in v for x in (one.mean(), one.min(), one.max()))]
        for kind, name, v in all_of
    ]
    columns = ["method", "orders of", "orders", "AA, mean", "least", "most", "AF, mean", "least", "most"]
    points: list[Sequence[CellValue]] = [
        [name, kind, at, *map(float, pair)] for kind, name, v in all_of for at, pair in enumerate(v.T)
    ]
    figure = drawn_figure(draw, (8.4, max(4.6, 0.26 * len(names) + 0.8)), alt, caption, Table(columns, rows))
    return dataclasses.replace(figure, points=Table(["method", "orders of", "order", "AA", "AF"], points))


def _pair(average: ArrayLike, lost: ArrayLike) -> NDArray[np.float64]:
    return np.array(np.broadcast_arrays(average, lost), dtype=np.float64)


def _scatter(
    axes: Axes, theme: Theme, at: int, label: str | None, x: NDArray[np.float64], y: NDArray[np.float64], hollow: bool
) -> None:
    """Plot a method's points, and a larger one at their mean. From the ninth method on, colours repeat with other markers."""
    colours = len(theme.series)
    colour, marker = theme.series[at % colours], MARKERS[(at + at // colours) % len(MARKERS)]
    filled: dict[str, Any] = {"color": colour, "linestyle": ""}
    if hollow:
        filled |= {"markerfacecolor": "none", "markeredgecolor": colour}
    axes.plot(x, y, marker, **filled, markersize=4, alpha=0.5, markeredgewidth=0.8 if hollow else 0)
    edge: dict[str, Any] = {} if hollow else {"markeredgecolor": theme.page}
    axes.plot([x.mean()], [y.mean()], marker, **filled, **edge, markersize=9, markeredgewidth=1.4, label=label, zorder=3)
