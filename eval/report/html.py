"""Render blocks to one self-contained HTML page, which loads no script, font or address.

Its content security policy enforces this: only inline style and inline images are allowed. The same report gives the same
bytes.
"""

from __future__ import annotations

import base64
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ...curation.package_data import package_text
from ...curation.rows import visible
from .blocks import Album, Block, Cell, CellValue, Details, Heats, Report, Switch, Table, Thumb, value_of
from .figure_csv import table_files
from .images import encode, enlarged, thumbnail
from .inline import Shapes, page_style

_TINY_PX = 48
"""Pictures up to this size are enlarged so that single pixels are visible."""

_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp", b"<?xml": "svg+xml", b"<svg": "svg+xml"}


def render(report: Report, tables: str = "") -> str:
    """The page as one string, with images as data URIs.

    Args:
        report: the report to render.
        tables: folder of the CSV files of its plots, see ``figure_csv.figures_of``; "" if they are not written.

    Raises:
        ValueError: a picture is not SVG, PNG, JPEG or WebP, or a thumbnail cannot be read.
    """
    most = _most_choices(block for section in report.sections for block in section.blocks)
    files_of = table_files(report, tables) if tables else {}
    return filled(
        package_text(__package__, "report.html"),
        file_of=lambda figure: files_of.get(id(figure), ""),
        report=report,
        sections=list(zip(_anchors(report), report.sections, strict=True)),
        style=style(most),
    )


def style(most: int) -> Markup:
    """The style sheet of a page; ``most`` is the largest number of options in any of its choices."""
    return Markup("\n".join([package_text(__package__, "report.css"), page_style(), _choices(most)]))  # all trusted


def filled(template: str, **values: Any) -> str:
    """Fill a template that may use the macros of ``blocks.html``, which render blocks; text is escaped."""
    shapes = Shapes()
    given: dict[str, Any] = {
        "block_kind": lambda block: type(block).__name__,
        "cell_of": _cell_of,
        "printed": _printed,
        "align": _alignment,
        "linkable": lambda href: re.match(r"https?://", href) is not None,
        "picture": _picture,
        "shown": _shown,
        "depth": _depth,
        "file_of": lambda figure: "",
        "plot": lambda figure: shapes.plot(figure.light, figure.dark),
        "shapes": lambda: Markup("\n").join(shapes.found.values()),  # of all plots: rendered last
        "number": itertools.count(1).__next__,
        "runs_of": _runs_of,
        "values_of": _values_of,
        "places_in": _places_in,
    }
    return _compiled(template).render({**given, **values})


@functools.cache
def _compiled(template: str) -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalized
    )
    return environment.from_string(package_text(__package__, "blocks.html") + template)


def _choices(most: int) -> str:
    """CSS rules by which the reader's choice hides the other options; everything is shown where a browser lacks ``:has``."""
    grids = [f".album:has(.f{f}[value='{n}']:checked) .grid:not([data-f{f}='{n}'])" for f in range(2) for n in range(most)]
    options = [f".switch:has(.o[value='{n}']:checked)>.option:not([data-o='{n}'])" for n in range(most)]
    return f"@media screen{{{','.join([*grids, *options])}{{display:none}}}}" if most else ""


def _most_choices(blocks: Iterable[Block]) -> int:
    """The largest number of options in any choice."""
    most = 0
    for block in blocks:
        if isinstance(block, Album):
            most = max([most, *map(len, _values_of(block))])
        elif isinstance(block, Switch):
            most = max(most, len(block.options), _most_choices(inner for _, inner in block.options))
        elif isinstance(block, Details):
            most = max(most, _most_choices(block.blocks))
    return most


def _values_of(album: Album) -> list[list[str]]:
    """Distinct values of each facet, in order of first occurrence."""
    return [list(dict.fromkeys(values)) for values in zip(*(values for values, _ in album.grids), strict=True)]


def _places_in(album: Album, values: Sequence[str]) -> list[int]:
    return [known.index(value) for known, value in zip(_values_of(album), values, strict=True)]


def _runs_of(blocks: Sequence[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Consecutive blocks of the same kind, which may be placed side by side."""
    for kind, some in itertools.groupby(blocks, key=lambda block: type(block).__name__):
        yield kind, list(some)


def _finalized(value: Any) -> Any:
    return visible(value) if type(value) is str else value  # but not Markup, which is trusted


def _anchors(report: Report) -> list[str]:
    """An id per section: its anchor, numbered where two would be equal."""
    taken: dict[str, int] = {}
    anchors: list[str] = []
    for section in report.sections:
        name = section.anchor
        taken[name] = taken.get(name, 0) + 1
        anchors.append(name if taken[name] == 1 else f"{name}-{taken[name]}")
    return anchors


def _picture(data: bytes) -> str:
    for magic, kind in _KINDS.items():
        if data.startswith(magic):
            return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    raise ValueError(f"a picture begins with {data[:8]!r}: SVG, PNG, JPEG or WebP is needed")


def _shown(thumb: Thumb, side_px: int, where: str) -> Mapping[str, Any]:
    """Attributes of a thumbnail on the page; ``where`` names its place in errors."""
    held = thumbnail(thumb.image, enlarged(side_px), where=f"{where} ({thumb.caption})")
    shown = max(1, *held.size) / min(max(held.size), side_px)
    width, height = (max(1, round(side / shown)) for side in held.size)
    return {
        "src": _picture(encode(held, quality=70)),
        "width": width,
        "height": height,
        "tiny": max(held.size) <= _TINY_PX,
        "of": thumb,
    }


def _depth(block: Heats, value: float) -> int | None:
    """Depth of a cell's colour, from 0 to 100; None if there is no value."""
    pale, deep = block.scale
    return None if math.isnan(value) else round(100 * min(max((value - pale) / max(deep - pale, 1e-9), 0.0), 1.0))


def _cell_of(value: CellValue) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def _printed(value: str | int | float | None, decimals: int = 3, *, as_found: bool = False) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    apart = "" if as_found else ","
    if isinstance(value, int):
        return f"{value:{apart}}"
    return f"{value:{apart}.{decimals}f}" if isinstance(value, float) else value


def _alignment(table: Table, column: int) -> str:
    """ "number" if all values of the column are numbers or missing, and at least one is present."""
    values = [value_of(row[column]) for row in table.rows]
    there = [value for value in values if value is not None]
    return "number" if there and all(isinstance(value, int | float) for value in there) else "text"
