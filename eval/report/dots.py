"""Dots on lines: shares of several series, compared for each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .blocks import Figure, Table
from .figures import MARKERS, Theme, axes_style, drawn_figure, legend_beside, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def dot_chart(
    labels: Sequence[str],
    series: Mapping[str, ArrayLike],
    *,
    label_axis: str,
    value_axis: str,
    published: Mapping[str, ArrayLike] | None = None,
    caption: str = "",
) -> Figure:
    """Shares as dots, one line per label, joined from lowest to highest: the accuracy of a class under two orders, for example.

    Args:
        labels: labels of the lines, from top to bottom.
        series: name -> (n,) shares in [0, 1], one per line, NaN if there is none; at most twelve series.
        label_axis, value_axis: what lines and shares are.
        published: name of a series -> (n,) published shares, drawn as vertical strokes.

    Raises:
        ValueError: no line, no series or more than twelve, other shapes, only NaN, or a published name that is not a series.
    """
    values = {name: np.asarray(one, dtype=np.float64) for name, one in series.items()}
    papers = {name: np.asarray(one, dtype=np.float64) for name, one in (published or {}).items()}
    stacked = [*values.values(), *papers.values()]
    fits = labels and 1 <= len(values) <= len(MARKERS) and all(one.shape == (len(labels),) for one in stacked)
    if not fits or not set(papers) <= set(values):
        shapes = {name: one.shape for name, one in [*values.items(), *papers.items()]}
        raise ValueError(f"dots {shapes} for {len(labels)} labels: one to twelve series, with a value a label")
    if all(np.isnan(one).all() for one in values.values()):
        raise ValueError("dots of only NaN show nothing")
    both, places = np.array(list(values.values())), np.arange(len(labels))
    there = ~np.isnan(both).all(0)

    def draw(axes: Axes, theme: Theme) -> None:
        low, high = np.nanmin(both[:, there], axis=0), np.nanmax(both[:, there], axis=0)
        axes.hlines(places[there], 100 * low, 100 * high, color=theme.grid, linewidth=4, zorder=1)
        for at, (name, one) in enumerate(values.items()):
            colour, marker = theme.series[at % len(theme.series)], MARKERS[at]
            size, label = 7.5 - 1.5 * min(at, 2), short_labels([name], 40)[0]
            axes.plot(100 * one, places, marker, color=colour, markersize=size, label=label, zorder=3)
            if name in papers:
                label = f"{name}, published"
                axes.plot(
                    100 * papers[name], places, "|", color=colour, markersize=14, markeredgewidth=2, label=label, zorder=2
                )
        axes.set_yticks(places, short_labels(labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(-3, 103)
        axes_style(axes, theme, f"{value_axis}, percent", label_axis)
        axes.grid(axis="x", color=theme.grid, linewidth=0.8)
        axes.grid(visible=False, axis="y")
        legend_beside(axes, theme)

    columns = [label_axis, *values, *(f"{name}, published" for name in papers)]
    rows = [[label, *(100 * float(one[at]) for one in stacked)] for at, label in enumerate(labels)]
    alt = f"{value_axis} by {label_axis} in percent, {' and '.join(values)}: " + "; ".join(
        f"{label} {' and '.join('none' if np.isnan(one[at]) else f'{100 * one[at]:.1f}' for one in values.values())}"
        for at, label in enumerate(labels)
    )
    size_in = (8.4, 1.2 + 0.34 * len(labels))
    return drawn_figure(draw, size_in, alt, caption, Table(columns, rows, "Percent", decimals=1))
