"""Maps of the vectors of samples, and how the mean of each class moves over the domains."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..metrics.drift import cosine_distances, principal_plane
from .blocks import Block, Figure, Heat, Heats, Table, Text
from .figures import LIGHT, MARKERS, Theme, drawn_figure, legend_beside, line_chart, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = 24
"""Groups that a map distinguishes by colour and marker; smaller groups are drawn as one."""

CLASSES = 12
"""Number of classes that get a curve, in figures of six."""

_FEWEST = 20
"""Minimum number of samples for UMAP, which uses the 15 nearest neighbours of each."""

_FEW = 6
"""Number of domains named in a legend of shades."""


def map_figures(vectors: ArrayLike, kinds: Sequence[tuple[str, Sequence[str], ArrayLike, bool]], *, seed: int) -> list[Figure]:
    """Maps of the samples by principal components and, if it is installed, by UMAP: one picture for each colouring.

    Args:
        vectors: (n, d), n at least 3; all are plotted.
        kinds: what groups are, their names, the group of each vector, and whether the groups are ordered.
        seed: seed for UMAP.
    """
    points, shares = principal_plane(vectors)
    axes = [f"direction {at + 1}, {100 * share:.0f} % of the variance" for at, share in enumerate(shares)]
    planes = [("principal components", points, axes)]
    if len(points) >= _FEWEST and importlib.util.find_spec("umap") is not None:
        planes.append(("UMAP", _umap(np.asarray(vectors, dtype=np.float32), seed), ["", ""]))
    return [
        scatter_chart(
            places,
            groups,
            names,
            axes=(labels[0], labels[1]),
            group_axis=what,
            ordered=ordered,
            caption=f"{len(points):,} samples by {way}, coloured by {what}.",
        )
        for way, places, labels in planes
        for what, names, groups, ordered in kinds
    ]


def _umap(vectors: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    umap: Any = importlib.import_module("umap")  # of umap-learn, used only here

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = umap.UMAP(n_neighbors=15, random_state=seed, n_jobs=1)
        return np.asarray(made.fit_transform(vectors), dtype=np.float64)


def scatter_chart(
    points: ArrayLike,
    groups: ArrayLike,
    names: Sequence[str],
    *,
    axes: tuple[str, str],
    group_axis: str,
    ordered: bool = False,
    ticks: bool = False,
    caption: str = "",
) -> Figure:
    """Points in a plane, distinguished by group.

    Args:
        points: (n, 2).
        groups: (n,) index into ``names``.
        names: names of the groups.
        axes: labels of both axes.
        group_axis: what groups are.
        ordered: whether groups are ordered: colours then go from pale to deep instead of between hues.
        ticks: whether to print the numbers along the axes.
    """
    places, of = np.asarray(points, dtype=np.float64), np.asarray(groups, dtype=np.int64)
    if places.shape != (len(of), 2) or not len(of) or of.min() < 0 or of.max() >= len(names):
        raise ValueError(f"points {places.shape} of groups {of.shape} with {len(names)} names: (n, 2) and (n,), at least one")
    counts = np.bincount(of, minlength=len(names))
    shown = [int(at) for at in np.flatnonzero(counts)]
    styles = _shades(shown) if ordered else _hues(shown, counts)

    def draw(pair: Axes, theme: Theme) -> None:
        labelled = {shown[int(at)] for at in np.linspace(0, len(shown) - 1, min(len(shown), _FEW))} if ordered else {*shown}
        for at in shown:
            colour, marker, told = styles(at, theme)
            there = places[of == at]
            label = short_labels([names[at]])[0] if at in labelled and told else None
            pair.plot(there[:, 0], there[:, 1], marker, color=colour, markersize=3.6, alpha=0.75, mew=0, label=label)
        if any(not styles(at, theme)[2] for at in shown):
            pair.plot([], [], ".", color=theme.faint, label="others")
        pair.set_aspect("equal", adjustable="datalim")
        if not ticks:
            pair.set_xticks([])
            pair.set_yticks([])
        pair.set_xlabel(axes[0])
        pair.set_ylabel(axes[1])
        pair.spines[:].set_color(theme.grid)
        legend_beside(pair, theme, title=group_axis, ncols=1 if len(labelled) <= 16 else 2, markerscale=1.8)

    means = {at: places[of == at].mean(axis=0) for at in shown}
    alt = f"Map of {len(of):,} points by {group_axis}; where the mean of each lies: " + "; ".join(
        f"{names[at]} ({x:.2f}, {y:.2f})" for at, (x, y) in means.items()
    )
    rows = [[names[at], int(counts[at]), *means[at].tolist()] for at in shown]
    return drawn_figure(draw, (8.4, 4.6), alt, caption, Table([group_axis, "points", "mean, across", "mean, up"], rows))


Style = Callable[[int, Theme], tuple[Any, str, bool]]
"""Group -> its colour and marker, and whether the legend names it."""


def _shades(shown: Sequence[int]) -> Style:
    places = {at: place for place, at in enumerate(shown)}

    def style(at: int, theme: Theme) -> tuple[Any, str, bool]:
        # Not from the palest colour, in which points are invisible.
        return theme.shades(1)(0.25 + 0.75 * places[at] / max(len(places) - 1, 1)), "o", True

    return style


def _hues(shown: Sequence[int], counts: NDArray[np.int64]) -> Style:
    largest = sorted(shown, key=lambda at: (-counts[at], at))[: KINDS if len(shown) <= KINDS else KINDS - 1]
    places = {at: place for place, at in enumerate(sorted(largest))}
    hues = len(LIGHT.series)

    def style(at: int, theme: Theme) -> tuple[Any, str, bool]:
        if at not in places:
            return theme.faint, ".", False
        return theme.series[places[at] % hues], MARKERS[places[at] // hues], True

    return style


def drift_blocks(sums: ArrayLike, classes: Sequence[str], domains: Sequence[str], *, of: str) -> list[Block]:
    """Distances of each class's mean vector from its first domain, and between domains.

    Args:
        sums: (2, C, N, d): sums of the vectors of each class and domain, in two halves; zero where there are none.
        classes, domains: C and N names.
        of: what domains are.
    """
    halves = np.asarray(sums, dtype=np.float64)
    whole = halves.sum(axis=0)
    there = np.abs(whole).sum(axis=2) > 0
    if len(domains) < 2 or not (there.sum(axis=1) > 1).any():
        return []
    first = whole[np.arange(len(classes)), there.argmax(axis=1)]
    moved = cosine_distances(whole, first[:, None])
    apart = np.ma.masked_invalid(
        [[cosine_distances(whole[:, a], whole[:, b]) for b in range(len(domains))] for a in range(len(domains))]
    )
    between = apart.mean(axis=2).filled(np.nan)
    chance = np.ma.masked_invalid(cosine_distances(halves[0], halves[1]))
    lines = [f"Cosine distance between the mean vectors of a class in two {of}s: 0 where its pictures have not changed."]
    if chance.count():
        lines.append(
            f"Two random halves of one {of} have a mean distance of {chance.mean():.4f}. Whole {of}s are twice as large: "
            "chance alone explains about half of that distance between them."
        )
    top = float(np.nanmax(between))
    heat = Heat(f"Between {of}s, mean over classes", domains, domains, between.tolist())
    axes = of, of
    return [
        Text(lines),
        *_moves(moved, classes, domains, of),
        Heats([heat], (0.0, max(top, 1e-6)), *axes, unit="cosine distance", decimals=3),
    ]


def _moves(moved: NDArray[np.float64], classes: Sequence[str], domains: Sequence[str], of: str) -> list[Figure]:
    """Curves of the classes, or of those that move furthest if there are many."""
    most = np.nanmax(np.where(np.isnan(moved), 0, moved), axis=1)
    known = np.flatnonzero(~np.isnan(moved).all(axis=1)).tolist()
    kept = sorted(sorted(known, key=lambda at: (-most[at], at))[:CLASSES])
    limits = 0.0, max(1.08 * float(most.max()), 1e-6)
    left = f" The {len(kept)} of {len(known)} classes that move most." if len(kept) < len(known) else ""
    caption = f"Distance of each class's mean vector from that of its first {of}.{left}"
    return [
        line_chart(
            domains,
            {classes[at]: moved[at] for at in some},
            label_axis=of,
            value_axis="cosine distance",
            caption=caption,
            limits=limits,
        )
        for some in (kept[start : start + CLASSES // 2] for start in range(0, len(kept), CLASSES // 2))
    ]
