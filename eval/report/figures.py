"""Plots as SVG, each drawn for light and for dark pages, with alt text that states the numbers.

Only matplotlib's object interface is used: no window system, no global figure. Dates and versions are left out of the
files and ids are salted with a constant, so that the same numbers give the same bytes (on one version of matplotlib).
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...curation.package_data import package_toml
from ...curation.rows import visible
from .blocks import Figure, Table

if TYPE_CHECKING:  # matplotlib takes a second to import: only callers that draw import it
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours of one kind of page, from ``themes.toml``. ``ramp`` goes from low to high; the colours of ``series`` also differ
    in lightness."""

    page: str
    ink: str
    faint: str
    grid: str
    bar: str
    empty: str
    ramp: tuple[str, ...]
    series: tuple[str, ...]

    def plain(self) -> dict[str, str]:
        """Name -> colour, without the ramp."""
        single = {name: getattr(self, name) for name in ("page", "ink", "faint", "grid", "bar", "empty")}
        return {**single, **{f"s{at}": hue for at, hue in enumerate(self.series)}}

    def shades(self, first: int = 0) -> Colormap:
        """The ramp as a colour map, starting at its colour number ``first``."""
        from matplotlib.colors import LinearSegmentedColormap

        return LinearSegmentedColormap.from_list("ramp", self.ramp[first:]).with_extremes(bad=self.empty)


def _theme(name: str) -> Theme:
    table: dict[str, Any] = package_toml(__package__, "themes.toml")[name]
    table.update(ramp=tuple(table["ramp"]), series=tuple(table["series"]))
    return Theme(**table)


LIGHT, DARK = _theme("light"), _theme("dark")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
MARKERS = "osD^vPX*<>hp"
_DASHES = ("-", (0, (4, 2.5)), (0, (1.2, 1.6)), (0, (7, 2.5, 1.2, 2.5)))
_PERCENT = (0.0, 100.0)


def common_scale(matrices: Sequence[ArrayLike]) -> tuple[float, float]:
    """Values of the palest and the deepest colour for several matrices: their extremes, rounded outwards to steps of 5 %."""
    values = np.concatenate([np.ravel(np.asarray(matrix, dtype=np.float64)) for matrix in matrices])
    # A share such as 0.35 may differ from its step by a rounding error.
    low, high = float(np.nanmin(values)) * 20 + 1e-9, float(np.nanmax(values)) * 20 - 1e-9
    pale, deep = math.floor(low), math.ceil(high)
    if pale == deep:  # a single value, on a step: stay within 0 and 100 %
        pale, deep = (pale - 1, pale) if pale > 0 else (pale, pale + 1)
    return pale / 20, deep / 20


def bar_chart(labels: Sequence[str], values: Sequence[float], *, label_axis: str, value_axis: str, caption: str = "") -> Figure:
    """Bars from zero, each labelled with its value; values are counts or other numbers >= 0."""
    heights = np.asarray(values, dtype=np.float64)
    if heights.shape != (len(labels),) or not len(labels):
        raise ValueError(f"{len(labels)} labels for values {heights.shape}: one each, and at least one")

    def draw(axes: Axes, theme: Theme) -> None:
        bars = axes.bar(range(len(labels)), heights, color=theme.bar, width=0.72)
        axes.bar_label(bars, [_short(value) for value in heights], padding=2, fontsize=8, color=theme.faint)
        axes.set_xticks(range(len(labels)), short_labels(labels))
        if any(len(label) > 8 for label in labels):
            axes.tick_params(axis="x", rotation=30)
            for tick in axes.get_xticklabels():
                tick.set_horizontalalignment("right")
                tick.set_rotation_mode("anchor")
        axes_style(axes, theme, label_axis, value_axis)
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        axes.margins(y=0.12)
        # One bar or two would fill the plot: draw them as wide as if there were five.
        beside = max(0.0, 5 - len(labels)) / 2
        axes.set_xlim(-0.5 - beside, len(labels) - 0.5 + beside)

    alt = f"Bars of {value_axis} by {label_axis}: " + "; ".join(
        f"{label} {_short(value)}" for label, value in zip(labels, heights, strict=True)
    )
    table = Table([label_axis, value_axis], list(zip(labels, [_integral(v) for v in heights], strict=True)))
    return drawn_figure(draw, (max(4.0, min(10.0, 1.2 + 0.62 * len(labels))), 3.0), alt, caption, table)


def line_chart(
    places: Sequence[str] | Sequence[float] | NDArray[Any],
    series: Mapping[str, ArrayLike],
    *,
    label_axis: str,
    value_axis: str,
    caption: str = "",
    spread: Mapping[str, ArrayLike] | None = None,
    shares: bool = False,
    hollow: ArrayLike | None = None,
    limits: tuple[float, float] | None = None,
    legend_title: str = "",
) -> Figure:
    """Curves over the same places, distinguished by colour, marker, width and dashes; at most twelve. Gaps are bridged.

    Args:
        places: (n,) labels along the axis in order, or numbers, ascending.
        series: name -> (n,) values, NaN if there is none. A series without values is not drawn but keeps its colour, so that
            a name has the same colour in neighbouring figures.
        spread: name -> (n,) half-widths of a band around the curve, such as a standard deviation.
        shares: whether the values are shares in [0, 1]: they are drawn in percent, and bands are clipped to 0 and 100.
        hollow: (n,) bool, whether the point is drawn hollow, such as for one of two alternating kinds of measurement.
        limits: limits of the value axis; None: automatic.
        legend_title: what the curves have in common.
    """
    times = 100.0 if shares else 1.0
    value_axis = f"{value_axis}, percent" if shares else value_axis
    curves = {name: times * np.asarray(values, dtype=np.float64) for name, values in series.items()}
    named = all(isinstance(place, str) for place in places)
    x = np.arange(len(places)) if named else np.asarray(places, dtype=np.float64)
    empty = np.zeros(x.shape, dtype=bool) if hollow is None else np.asarray(hollow, dtype=bool)
    if not 1 <= len(curves) <= len(MARKERS) or any(curve.shape != x.shape for curve in [*curves.values(), empty]):
        shapes = {name: curve.shape for name, curve in curves.items()}
        raise ValueError(f"curves {shapes} over places {x.shape}: one to twelve, each of the shape of the places")
    known = {name: ~np.isnan(curve) for name, curve in curves.items()}
    drawn = {name: curve for name, curve in curves.items() if known[name].any()}
    if not drawn:
        raise ValueError("curves of only NaN show nothing")
    widths = {name: times * np.asarray(values, dtype=np.float64) for name, values in (spread or {}).items()}
    ends = _PERCENT if shares else (-math.inf, math.inf)
    labels = [str(place) if named else f"{place:g}" for place in places]

    def draw(axes: Axes, theme: Theme) -> None:
        for at, (name, colour) in enumerate(zip(curves, theme.series, strict=False)):
            if name not in drawn:
                continue
            there, stroke = known[name], _stroke(at, len(curves))
            stroke["gid"] = f"series-{at}"
            axes.plot(x[there], drawn[name][there], color=colour, label=short_labels([name])[0], **stroke)
            holes: dict[str, Any] = {**stroke, "color": theme.page, "markeredgecolor": colour, "linestyle": ""}
            axes.plot(x[there & empty], drawn[name][there & empty], **holes)
            if name in widths:
                low, high = (np.clip(drawn[name] + way * widths[name], *ends) for way in (-1, 1))
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, gid=stroke["gid"])
        if named:
            axes.set_xticks(x, short_labels(labels))
        else:
            axes.set_xticks(np.unique(np.floor(x)))
        if limits is not None:
            axes.set_ylim(*limits)
        axes_style(axes, theme, label_axis, value_axis)
        legend_beside(axes, theme, title=legend_title or None)

    alt = f"Curves of {value_axis} by {label_axis}: " + "; ".join(_range(name, curve) for name, curve in drawn.items())
    rows = [[label, *(float(curve[at]) for curve in drawn.values())] for at, label in enumerate(labels)]
    table = Table([label_axis, *drawn], rows, "Percent" if shares else "", decimals=1 if shares else 3)
    figure = drawn_figure(draw, (8.4, 3.4), alt, caption, table)
    shown = {at: name for at, name in enumerate(curves) if name in drawn}
    return dataclasses.replace(figure, series=shown) if len(shown) > 1 else figure


def _stroke(at: int, count: int) -> dict[str, Any]:
    """Line and marker of curve ``at`` of ``count``: later curves, drawn on top, are thinner and dashed, so that curves that
    coincide all remain visible."""
    below = (count - 1 - at) / max(count - 1, 1)
    dashes = _DASHES[at % len(_DASHES)]
    return {"marker": MARKERS[at], "markersize": 3.6 + 2.6 * below, "linewidth": 1.4 + 1.5 * below, "linestyle": dashes}


def rank_chart(
    groups: Mapping[str, ArrayLike], *, rank_axis: str, value_axis: str, group_axis: str, caption: str = ""
) -> Figure:
    """Counts of each group from its highest to its lowest on a logarithmic axis: how evenly they are distributed.

    Args:
        groups: name -> (n,) counts > 0, in any order, n may differ; drawn from pale to deep in the order passed.
        rank_axis, value_axis, group_axis: what ranks, counts and groups are.
    """
    curves = {name: np.sort(np.asarray(counts, dtype=np.float64))[::-1] for name, counts in groups.items()}
    if not curves or any(curve.ndim != 1 or not len(curve) or curve.min() <= 0 for curve in curves.values()):
        raise ValueError(
            f"groups { ({name: curve.shape for name, curve in curves.items()}) }: (n,) counts above 0, n at least 1"
        )

    def draw(axes: Axes, theme: Theme) -> None:
        from matplotlib.ticker import MaxNLocator

        ramp = theme.shades(1)
        for at, (name, curve) in enumerate(curves.items()):
            colour = ramp(0.2 + 0.8 * at / max(len(curves) - 1, 1))  # the palest is too faint for a line
            marker = "o" if len(curve) == 1 else ""
            axes.plot(
                np.arange(1, len(curve) + 1), curve, color=colour, linewidth=1.8, label=short_labels([name])[0], marker=marker
            )
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes_style(axes, theme, rank_axis, value_axis)
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        # Within a decade or two matplotlib labels minor ticks as well, in mathtext, which is off here.
        axes.yaxis.set_minor_formatter(lambda value, _: _short(value) if f"{value:.0e}"[0] in "25" else "")
        axes.tick_params(which="minor", left=False)
        legend_beside(axes, theme, title=group_axis, fontsize=8)

    spread = {name: np.percentile(curve, [0, 25, 50, 75, 100]) for name, curve in curves.items()}
    alt = f"Curves of {value_axis} by {rank_axis}, one a {group_axis}, with median: " + "; ".join(
        f"{name} {_short(quartiles[2])} over {len(curves[name])}" for name, quartiles in spread.items()
    )
    rows = [[name, len(curves[name]), int(curves[name].sum()), *quartiles.tolist()] for name, quartiles in spread.items()]
    columns = [group_axis, rank_axis.split(",")[0], value_axis, "least", "lower quartile", "median", "upper quartile", "most"]
    return drawn_figure(draw, (8.4, 3.6), alt, caption, Table(columns, rows, decimals=1))


def _range(name: str, curve: NDArray[np.float64]) -> str:
    there = curve[~np.isnan(curve)]
    return f"{name} from {there[0]:.3g} to {there[-1]:.3g}"


def _short(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def short_labels(labels: Sequence[str], most: int = 28) -> list[str]:
    """Labels cut to ``most`` characters, so that a long one does not leave the plot without room."""
    return [label if len(label) <= most else label[: most - 1] + "…" for label in labels]


def _integral(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def axes_style(axes: Axes, theme: Theme, x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def legend_beside(axes: Axes, theme: Theme, **options: Any) -> None:
    """Add a legend to the right of the plot, or where ``options`` put it."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "fontsize": 8.5, "alignment": "left"}
    legend = axes.legend(**{**place, "frameon": False, **options})
    for text in [*legend.get_texts(), legend.get_title()]:
        text.set_color(theme.ink)


def drawn_figure(
    draw: Callable[[Axes, Theme], None], size_in: tuple[float, float], alt: str, caption: str, data: Table
) -> Figure:
    """A figure drawn by ``draw``; ``size_in`` is (width, height) in inches.

    It is drawn again for dark pages only if it has colours beyond the theme's plain ones, such as those of a ramp:
    drawing takes most of a report's time.
    """
    light = _svg(draw, LIGHT, size_in)
    plain = {*COLOUR.findall(light.decode())} <= {*LIGHT.plain().values()}
    return Figure(light, alt, caption, dark=None if plain else _svg(draw, DARK, size_in), data=data, drawn=True)


def _svg(draw: Callable[[Axes, Theme], None], theme: Theme, size_in: tuple[float, float]) -> bytes:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    style: Any = {
        **matplotlib.rcParamsDefault,  # the user's own style file must not change the output
        "axes.edgecolor": theme.faint,
        "axes.facecolor": "none",
        "axes.labelcolor": theme.faint,
        "axes.labelsize": 9,
        "figure.facecolor": "none",
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
        "svg.fonttype": "path",
        "svg.hashsalt": "benchwright",
        "text.color": theme.ink,
        "text.parse_math": False,  # labels are data: a dollar sign is a dollar sign
        "xtick.color": theme.ink,
        "xtick.labelsize": 8.5,
        "ytick.color": theme.ink,
        "ytick.labelsize": 8.5,
    }
    memory = io.BytesIO()
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")  # labels may be in a script that the font lacks: boxes are drawn
        canvas = Canvas(figsize=size_in, layout="constrained")
        page = FigureCanvasSVG(canvas)
        draw(canvas.add_subplot(), theme)
        # Not ``savefig``, which first traverses the whole picture once more.
        page.print_svg(memory, metadata={"Date": None, "Creator": None})
    return visible(memory.getvalue().decode()).encode()  # labels are in comments, too
