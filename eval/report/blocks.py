"""The parts of a report: plain values that contain no HTML.

A report is a list of sections, and a section a list of blocks. Callers compose blocks; only ``html.py`` decides how they look.
All text is shown literally: markup in it is escaped.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

Tone = Literal["plain", "good", "note", "bad"]


@dataclasses.dataclass(frozen=True)
class Text:
    """Paragraphs of prose; with a tone other than plain, a highlighted box."""

    paragraphs: Sequence[str]
    tone: Tone = "plain"

    def __post_init__(self) -> None:
        if isinstance(self.paragraphs, str):  # its letters would be the paragraphs
            raise TypeError(f"paragraphs {self.paragraphs!r}: expected a list of them")


@dataclasses.dataclass(frozen=True)
class Card:
    """One figure at the top: its label, its value, and a line below. Numbers are printed with thousands separators."""

    label: str
    value: str | int | float
    note: str = ""
    tone: Tone = "plain"


@dataclasses.dataclass(frozen=True)
class Cards:
    """Cards side by side."""

    cards: Sequence[Card]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A table cell with formatting besides its value.

    Attributes:
        value: see ``Table``.
        code: whether to print it in a monospaced font (digests, keys).
        href: an http or https address to link to; anything else is shown unlinked.
        tone: coloured as good or bad.
        note: small print after the value.
        title: shown when hovering: the full text of a shortened value, for example.
    """

    value: str | int | float | None
    code: bool = False
    href: str = ""
    tone: Tone = "plain"
    note: str = ""
    title: str = ""


CellValue = str | int | float | None | Cell


def value_of(cell: CellValue) -> str | int | float | None:
    """The value of a cell, without its formatting."""
    return cell.value if isinstance(cell, Cell) else cell


@dataclasses.dataclass(frozen=True)
class Table:
    """A table whose first column names the row.

    Attributes:
        columns: headings.
        rows: one value per column. Integers are printed with thousands separators, floats with ``decimals`` places, NaN and
            None as a dash. A column that holds only numbers (or dashes) is right-aligned.
        caption: what the table shows; printed above it.
        decimals: places of floats.
        total: a last row, separated by a line; or None.
        as_found: whether to print numbers without thousands separators, since they are data such as years.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[CellValue]]
    caption: str = ""
    decimals: int = 3
    total: Sequence[CellValue] | None = None
    as_found: bool = False

    def __post_init__(self) -> None:
        all_rows: list[Sequence[CellValue]] = [*self.rows, *([] if self.total is None else [self.total])]
        for at, row in enumerate(all_rows):
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.caption!r}, row {at}: {len(row)} values for {len(self.columns)} columns")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with a description in words.

    Attributes:
        light: bytes of an SVG, PNG, JPEG or WebP.
        alt: what the picture shows, for readers who cannot see it; never empty.
        caption: printed below.
        dark: the same picture for dark pages, or None; of a plot None where the page can change its colours.
        data: the numbers behind it, shown on demand.
        points: all of them, for files, where ``data`` sums them up.
        drawn: both pictures are plots of ``figures.drawn_figure``, which become parts of the page.
        series: number -> name of a curve that the reader may leave out: the groups ``series-0`` and so on of a plot.
        fits: a plot that is made smaller on a narrow page, where others are scrolled.
    """

    light: bytes
    alt: str
    caption: str = ""
    dark: bytes | None = None
    data: Table | None = None
    points: Table | None = None
    drawn: bool = False
    series: Mapping[int, str] = dataclasses.field(default_factory=dict[int, str])
    fits: bool = False

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError(f"figure {self.caption!r} has no alt text: describe what it shows")


@dataclasses.dataclass(frozen=True)
class Thumb:
    """A picture in a grid: encoded bytes of any size, a caption, and a score (a cosine, for example) if it has one."""

    image: bytes
    caption: str
    score: float | None = None


@dataclasses.dataclass(frozen=True)
class ImageGrid:
    """Thumbnails under a heading. An empty grid is described in words.

    Attributes:
        title: the heading.
        thumbs: the pictures.
        side_px: longer side of a picture.
        whole: whether captions may take several lines; otherwise they are cut to the width of the picture.
    """

    title: str
    thumbs: Sequence[Thumb]
    side_px: int = 96
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class Sheet:
    """Pictures in rows and columns: how each row changes from column to column.

    Attributes:
        columns: heading and small print of each column.
        rows: name of a row, and a picture per column, None if it is missing.
        caption: printed above it.
        side_px: longer side of a picture.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[Thumb | None]]]
    caption: str = ""
    side_px: int = 72

    def __post_init__(self) -> None:
        for name, thumbs in self.rows:
            if len(thumbs) != len(self.columns):
                raise ValueError(f"sheet {self.caption!r}, row {name!r}: {len(thumbs)} places for {len(self.columns)} columns")


@dataclasses.dataclass(frozen=True)
class Heat:
    """A small matrix whose cells are coloured by their values.

    Attributes:
        title: printed above it.
        rows, columns: labels.
        values: for each row label a row of numbers, NaN if there is none.
        framed: whether the cells of the diagonal, for what was learned last, are framed.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    framed: bool = False

    def __post_init__(self) -> None:
        if [len(row) for row in self.values] != [len(self.columns)] * len(self.rows):
            shape = f"{len(self.values)} rows of {sorted({len(row) for row in self.values})}"
            raise ValueError(f"heat {self.title!r}: {shape} for {len(self.rows)} x {len(self.columns)} labels")


@dataclasses.dataclass(frozen=True)
class Heats:
    """Matrices with one colour scale, side by side where they fit: a page can hold many.

    Attributes:
        heats: in order.
        scale: values of the palest and the deepest colour, which hold between them all values.
        row_axis, column_axis: what rows and columns are.
        unit: unit of the numbers, for the description.
        decimals: printed decimal places.
    """

    heats: Sequence[Heat]
    scale: tuple[float, float]
    row_axis: str
    column_axis: str
    unit: str
    decimals: int = 1

    def __post_init__(self) -> None:
        values = [value for heat in self.heats for row in heat.values for value in row if not math.isnan(value)]
        (pale, deep), low, high = self.scale, min(values, default=self.scale[0]), max(values, default=self.scale[1])
        if not pale - 1e-6 <= low <= high <= deep + 1e-6:
            raise ValueError(f"values from {low:g} to {high:g} leave the scale {pale:g} to {deep:g}")


@dataclasses.dataclass(frozen=True)
class Band:
    """Pictures over time, tasks or another order, for a first look: headings with some pictures below each.

    Attributes:
        groups: heading and pictures, in their order.
        caption: printed above them.
        side_px: longer side of a picture.
    """

    groups: Sequence[tuple[str, Sequence[Thumb]]]
    caption: str
    side_px: int = 120


@dataclasses.dataclass(frozen=True)
class Album:
    """Grids of pictures that the reader filters: by class, by bucket, by reason.

    Attributes:
        facets: names of the filters.
        grids: a value for each facet, and the pictures.
    """

    facets: Sequence[str]
    grids: Sequence[tuple[Sequence[str], ImageGrid]]


@dataclasses.dataclass(frozen=True)
class Switch:
    """Blocks of which one is visible at a time, such as those of several methods. In print all are visible.

    Attributes:
        title: what the reader chooses.
        options: name and block.
    """

    title: str
    options: Sequence[tuple[str, Block]]


@dataclasses.dataclass(frozen=True)
class Details:
    """Blocks that are hidden until the reader opens them (all are open in print)."""

    title: str
    blocks: Sequence[Block]
    opened: bool = False


Block = Text | Cards | Table | Figure | ImageGrid | Band | Album | Sheet | Heats | Switch | Details


@dataclasses.dataclass(frozen=True)
class Section:
    """A chapter, listed in the table of contents."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """The title in lower case with hyphens, as in addresses and names of files."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


@dataclasses.dataclass(frozen=True)
class Report:
    """A page: title, a line below it, sections, and a footer line."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    foot: str = ""
