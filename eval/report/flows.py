"""Flow chart of renamed labels: bands from old names on the left to new names on the right, as wide as their counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .blocks import Figure, Table
from .figures import Theme, drawn_figure, legend_beside, short_labels

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes

_THICKEST = 1.8  # width of the largest flow, in lines of text
_THINNEST = 0.06
_ROW_IN = 0.19


class Change(NamedTuple):
    """Samples that change from one name to another; ``kind`` is the kind of change, and determines the colour."""

    old: str
    new: str
    kind: str
    samples: int


def flow_chart(
    changes: Sequence[Change], kinds: Sequence[str], *, old_axis: str, new_axis: str, value_axis: str, caption: str = ""
) -> Figure:
    """Bands between two columns of names.

    Args:
        changes: in order from the top on the left; names on the right are placed near the sources of their bands. About thirty.
        kinds: at most six, each with a fixed colour, whether it occurs or not.
        old_axis, new_axis, value_axis: what is on the left, on the right, and what is counted.

    Raises:
        ValueError: no change, a kind that is not listed, more than six kinds, or a count below 1.
    """
    if not changes or len(kinds) > 6 or any(each.kind not in kinds or each.samples < 1 for each in changes):
        raise ValueError(f"{len(changes)} changes of kinds {', '.join(kinds)}: one at least, each of six kinds and counts >= 1")
    scale = _THICKEST / max(each.samples for each in changes)
    thick = np.maximum([each.samples * scale for each in changes], _THINNEST)
    left = _stacked([each.old for each in changes], thick)
    middle = {new: np.average([left[0][n] for n in at], weights=thick[at]) for new, at in _places(changes).items()}
    order = sorted(range(len(changes)), key=lambda n: (middle[changes[n].new], changes[n].new, left[0][n]))
    right = _stacked([changes[n].new for n in order], thick[order])
    at_right = np.empty(len(changes))
    at_right[order] = right[0]
    height = max(left[2], right[2])

    def draw(axes: Axes, theme: Theme) -> None:
        from matplotlib.patches import Patch, PathPatch
        from matplotlib.path import Path

        colours = dict(zip(kinds, theme.series, strict=False))
        for n, change in enumerate(changes):
            (a, b), t = (left[0][n], at_right[n]), thick[n]
            points = [(0, a), (0.45, a), (0.55, b), (1, b), (1, b + t), (0.55, b + t), (0.45, a + t), (0, a + t), (0, a)]
            codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
            axes.add_patch(PathPatch(Path(points, codes), facecolor=colours[change.kind], alpha=0.7, linewidth=0))
        for x, side, names in ((-0.02, "right", left[1]), (1.02, "left", right[1])):
            for name, y in zip(short_labels([*names], 40), names.values(), strict=True):
                axes.text(x, y, name, ha=side, va="center", fontsize=8)
        for x, side, text in ((-0.02, "right", old_axis), (1.02, "left", new_axis)):
            axes.text(x, -1.2, text, ha=side, va="center", fontsize=9, color=theme.faint)
        axes.set_xlim(-0.75, 1.75)
        axes.set_ylim(height + 0.3, -1.8)
        axes.set_axis_off()
        there = [kind for kind in kinds if any(each.kind == kind for each in changes)]
        patches = [Patch(facecolor=colours[kind], alpha=0.7, label=kind) for kind in there]
        above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 6, "alignment": "center"}
        legend_beside(axes, theme, handles=patches, **above)

    text = "; ".join(f"{each.old} to {each.new} {each.samples:,} ({each.kind})" for each in changes[:12])
    more = f"; and {len(changes) - 12} more" if len(changes) > 12 else ""
    alt = f"Bands from {old_axis} to {new_axis}, {value_axis}: {text}{more}."
    table = Table([old_axis, new_axis, "kind", value_axis], [list(each) for each in changes])
    return drawn_figure(draw, (8.4, 0.8 + _ROW_IN * (height + 2)), alt, caption, table)


def _places(changes: Sequence[Change]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for n, change in enumerate(changes):
        found.setdefault(change.new, []).append(n)
    return found


def _stacked(names: Sequence[str], thick: np.ndarray) -> tuple[np.ndarray, dict[str, float], float]:
    """Upper edge of every band, middle of every name, and total height: names from top to bottom in order of first occurrence,
    each with its bands together and at least one line of text high."""
    top: np.ndarray = np.empty(len(names))
    middles: dict[str, float] = {}
    y = 0.0
    for name in dict.fromkeys(names):
        mine = [n for n, other in enumerate(names) if other == name]
        own = float(thick[mine].sum())
        at = y + max(0.0, 1.0 - own) / 2
        middles[name] = at + own / 2
        for n in mine:
            top[n] = at
            at += float(thick[n])
        y += max(own, 1.0) + 0.12
    return top, middles, y
