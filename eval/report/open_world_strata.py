"""Sections of an open-world report about strata of its samples, from the table of ``protocols.strata``.

The paper's ablations (Prijatelj et al., JAIR 81, 2024) show the classification task, cumulative, after feedback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from .blocks import Block, Details, Section, Table, Text, Value
from .open_world import Shown, measure_curves

_CURVES = 6
_SIZES = ("SM", "AVG", "LG")
_MEASURES = {"mcc": "MCC", "top1_accuracy": "top-1", "nmi_arithmetic": "NMI"}


def strata_section(
    strata: pa.Table, title: str, about: Sequence[str], stratifications: Mapping[str, str], *, note: str = ""
) -> Section | None:
    """Measures by stratum: a table and, for each predictor at its highest feedback, curves.

    Args:
        strata: columns of ``protocols.open_world_measures.COLUMNS``; one task and one split.
        title, about: of the section.
        stratifications: those that are shown, in this order: name -> heading.
        note: printed first where it is given.

    Returns:
        None where the table has none of them.
    """
    frame = pl.DataFrame(pl.from_arrow(strata))
    blocks: list[Block] = []
    for name, heading in stratifications.items():
        mine = frame.filter(pl.col("stratification") == name)
        if mine.height:
            blocks.append(_table(mine, heading))
            blocks += _curves(mine, heading)
    if not blocks:
        return None
    first: list[Block] = [Text([note], tone="note")] if note else []
    return Section(title, [*first, Text(about), *blocks])


def _order(name: str) -> tuple[int, float, str]:
    """Numbers and thirds by size, then names, what is not annotated last."""
    if name.isdigit():
        return 0, float(name), ""
    return (1, _SIZES.index(name), "") if name in _SIZES else (3 if name == "N/A" else 2, 0, name)


def _table(frame: pl.DataFrame, heading: str) -> Table:
    """Sums over all increments, before and after feedback."""
    sums = frame.filter(pl.col("cumulative"), pl.col("measure").is_in(list(_MEASURES)))
    key = ["stratum", "predictor", "feedback"]
    last = sums.filter(pl.col("increment") == pl.col("increment").max().over(*key, "phase"))
    rows: list[Sequence[Value]] = []
    parts = last.partition_by(key, as_dict=True)
    for stratum, predictor, feedback in sorted(parts, key=lambda k: (_order(str(k[0])), str(k[1]), float(k[2]))):
        mine = parts[stratum, predictor, feedback]
        of = {(phase, measure): value for phase, measure, value in mine.select("phase", "measure", "value").rows()}
        samples = dict(mine.select("phase", "n").rows())
        values = [of.get((phase, measure)) for phase in ("pre", "post") for measure in _MEASURES]
        rows.append([str(stratum), str(predictor), f"{feedback:g}", samples.get("post"), *values])
    columns = [f"{short} {when}" for when in ("before", "after") for short in _MEASURES.values()]
    return Table(["stratum", "predictor", "feedback", "samples", *columns], rows, f"{heading}: sums over all increments")


def _curves(frame: pl.DataFrame, heading: str) -> list[Block]:
    """MCC of the strata that have most samples, cumulative, after feedback."""
    sizes = frame.group_by("stratum").agg(pl.col("n").max()).sort("n", "stratum", descending=[True, False])
    largest = sorted(sizes["stratum"].head(_CURVES).to_list(), key=_order)
    if len(largest) < 2:
        return []
    feedback = float(frame["feedback"].max())  # pyright: ignore[reportArgumentType]
    splits = frame["split"].unique().to_list()
    shown = Shown(str(frame["task"][0]), splits[0], ("post",), cumulative=True)
    figures: list[Block] = []
    for predictor in sorted(frame["predictor"].unique().to_list()):
        of = (pl.col("predictor") == predictor) & (pl.col("feedback") == feedback)
        curves = {stratum: of & (pl.col("stratum") == stratum) for stratum in largest}
        figure = measure_curves(frame.to_arrow(), "mcc", shown, curves, of=f"{predictor}, feedback {feedback:g}")
        figures += [] if figure is None else [figure]
    return [Details(f"{heading}: curves", figures, opened=True)] if figures else []
