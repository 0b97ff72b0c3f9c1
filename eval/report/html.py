"""Blocks to one HTML page that needs nothing else: no script, no font, no address is fetched.

The page says so itself: its content security policy forbids all but inline style and images within it. The same report gives
the same bytes.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ...curation.rows import visible
from .blocks import Cell, Heats, Report, Table, Thumb, Value
from .images import encode, thumbnail

_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp", b"<?xml": "svg+xml", b"<svg": "svg+xml"}


def render(report: Report) -> str:
    """The page as one string, images inside it as data URIs.

    Raises:
        ValueError: a picture is neither SVG, PNG, JPEG nor WebP, or a thumbnail cannot be read.
    """
    source = files(__package__ or "")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalized
    )
    template = environment.from_string((source / "report.html").read_text(encoding="utf-8"))
    return template.render(
        report=report,
        sections=list(zip(_anchors(report), report.sections, strict=True)),
        style=Markup((source / "report.css").read_text(encoding="utf-8")),  # ours, from this package
        block_kind=lambda block: type(block).__name__,
        cell_of=_cell_of,
        printed=_printed,
        align=_alignment,
        linkable=lambda href: re.match(r"https?://", href) is not None,
        picture=_picture,
        shown=_shown,
        depth=_depth,
    )


def _finalized(value: Any) -> Any:
    return visible(value) if type(value) is str else value  # and not Markup, which is ours


def _anchors(report: Report) -> list[str]:
    """An id a section: its title in lower case with hyphens, numbered where two would be equal."""
    taken: dict[str, int] = {}
    anchors: list[str] = []
    for section in report.sections:
        name = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-") or "section"
        taken[name] = taken.get(name, 0) + 1
        anchors.append(name if taken[name] == 1 else f"{name}-{taken[name]}")
    return anchors


def _picture(data: bytes) -> str:
    for magic, kind in _KINDS.items():
        if data.startswith(magic):
            return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    raise ValueError(f"a picture begins with {data[:8]!r}: SVG, PNG, JPEG or WebP is needed")


def _shown(thumb: Thumb, side_px: int, where: str) -> Mapping[str, Any]:
    """A thumbnail as the page has it; ``where`` names its place in errors."""
    small = thumbnail(thumb.image, side_px, where=f"{where} ({thumb.caption})")
    return {"src": _picture(encode(small)), "width": small.width, "height": small.height, "of": thumb}


def _depth(block: Heats, value: float) -> int | None:
    """How deep the colour of a cell is, from 0 to 100; None where there is no value."""
    pale, deep = block.scale
    return None if math.isnan(value) else round(100 * min(max((value - pale) / max(deep - pale, 1e-9), 0.0), 1.0))


def _cell_of(value: Value) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def _printed(value: str | int | float | None, decimals: int = 3) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{decimals}f}" if isinstance(value, float) else value


def _alignment(table: Table, column: int) -> str:
    """ "number" where all values of the column are numbers or missing, and one is there."""
    values = [_cell_of(row[column]).value for row in table.rows]
    there = [value for value in values if value is not None]
    return "number" if there and all(isinstance(value, int | float) for value in there) else "text"
