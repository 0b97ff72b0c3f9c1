"""CSV files with the numbers of every plot and of every matrix of a page, for other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping

from .blocks import Block, CellValue, Details, Figure, Heats, Report, Switch, Table, value_of


def figures_of(report: Report) -> dict[str, Figure | Heats]:
    """Figures with numbers, and matrices, by file name, which is the title of their section and their number in it.

    >>> from benchwright.eval.report.blocks import Section
    >>> from benchwright.eval.report.figures import bar_chart
    >>> bars = bar_chart(["2004", "2005"], [3, 5], label_axis="year", value_axis="photos")
    >>> found = figures_of(Report("Page", "", [Section("Time buckets", [bars])]))
    >>> print(csv_text(found["time-buckets-1.csv"]), end="")
    year,photos
    2004,3
    2005,5
    """
    found: dict[str, Figure | Heats] = {}
    counts: dict[str, int] = {}
    for section in report.sections:
        for figure in _figures(section.blocks):
            counts[section.anchor] = counts.get(section.anchor, 0) + 1
            found[f"{section.anchor}-{counts[section.anchor]}.csv"] = figure
    return found


def _figures(blocks: Iterable[Block]) -> Iterator[Figure | Heats]:
    for block in blocks:
        match block:
            case Figure() | Heats() if _numbers(block) is not None:
                yield block
            case Details():
                yield from _figures(block.blocks)
            case Switch():
                yield from _figures(inner for _, inner in block.options)
            case _:
                pass


def _numbers(figure: Figure | Heats) -> Table | None:
    if isinstance(figure, Figure):
        return figure.points or figure.data
    rows = [
        [heat.title, row, column, value]
        for heat in figure.heats
        for row, values in zip(heat.rows, heat.values, strict=True)
        for column, value in zip(heat.columns, values, strict=True)
    ]
    return Table(["matrix", figure.row_axis, figure.column_axis, figure.unit], rows)


def csv_text(figure: Figure | Heats) -> str:
    """The figure's numbers in full, with a header; missing values are empty. Raises ``ValueError`` if it has no table."""
    table = _numbers(figure)
    if table is None:
        raise ValueError("a figure that has no table")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(_lines(table))
    return text.getvalue()


def _lines(table: Table) -> Iterator[list[str | int | float | None]]:
    yield list(table.columns)
    for row in table.rows:
        yield [_plain(value) for value in row]


def _plain(value: CellValue) -> str | int | float | None:
    held = value_of(value)
    return None if isinstance(held, float) and math.isnan(held) else held


def table_files(report: Report, folder: str) -> Mapping[int, str]:
    """Map the ``id`` of each figure to the file of its numbers."""
    return {id(figure): f"{folder}/{name}" for name, figure in figures_of(report).items()}
