"""CSV files with the table of every plot of a page, for other programs."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping

from .blocks import Block, Cell, CellValue, Details, Figure, Report, Switch, Table


def figures_of(report: Report) -> dict[str, Figure]:
    """Figures with numbers by file name, which is the title of their section and their number in it.

    >>> from benchwright.eval.report.blocks import Section
    >>> from benchwright.eval.report.figures import bar_chart
    >>> bars = bar_chart(["2004", "2005"], [3, 5], label_axis="year", value_axis="photos")
    >>> found = figures_of(Report("Page", "", [Section("Time buckets", [bars])]))
    >>> print(csv_text(found["time-buckets-1.csv"]), end="")
    year,photos
    2004,3
    2005,5
    """
    found: dict[str, Figure] = {}
    counts: dict[str, int] = {}
    for section in report.sections:
        name = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-") or "section"
        for figure in _figures(section.blocks):
            counts[name] = counts.get(name, 0) + 1
            found[f"{name}-{counts[name]}.csv"] = figure
    return found


def _figures(blocks: Iterable[Block]) -> Iterator[Figure]:
    for block in blocks:
        match block:
            case Figure() if (block.points or block.data) is not None:
                yield block
            case Details():
                yield from _figures(block.blocks)
            case Switch():
                yield from _figures(inner for _, inner in block.options)
            case _:
                pass


def csv_text(figure: Figure) -> str:
    """The figure's numbers in full, with a header; missing values are empty. Raises ``ValueError`` if it has no table."""
    table = figure.points or figure.data
    if table is None:
        raise ValueError(f"figure {figure.caption!r} has no table")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(_lines(table))
    return text.getvalue()


def _lines(table: Table) -> Iterator[list[str | int | float | None]]:
    yield list(table.columns)
    for row in table.rows:
        yield [_plain(value) for value in row]


def _plain(value: CellValue) -> str | int | float | None:
    held = value.value if isinstance(value, Cell) else value
    return None if isinstance(held, float) and math.isnan(held) else held


def table_files(report: Report, folder: str) -> Mapping[int, str]:
    """Map the ``id`` of each figure to the file of its numbers."""
    return {id(figure): f"{folder}/{name}" for name, figure in figures_of(report).items()}
