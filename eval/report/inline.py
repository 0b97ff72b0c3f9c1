"""Matplotlib plots inlined in a page: plots share shapes, and colours follow the page, light or dark.

Only shapes are kept: elements and attributes that are not listed here, and comments, are dropped.
"""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from markupsafe import Markup, escape

from .figures import COLOUR, DARK, LIGHT, Theme

_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_DRAWN = ("svg", "g", "path", "use", "rect", "a")
_LINK = re.compile(r"(/[a-z][a-z0-9_]*)+\Z")
"""Link targets that a shape may have: a page on the same server."""
_KEPT = ("d", "x", "y", "width", "height", "style", "transform", "clip-path", "href")
_SERIES = re.compile(r"series-\d+\Z")


def variables(theme: Theme) -> str:
    """The colours of a theme as CSS declarations."""
    return "".join(f"--plot-{name}:{colour};" for name, colour in theme.plain().items())


_VARIABLES = {colour: f"var(--plot-{name})" for name, colour in LIGHT.plain().items()}


@dataclasses.dataclass
class Shapes:
    """Shapes shared by the plots of one page: markers, letters and clip frames, by an id that is derived from the content."""

    found: dict[str, Markup] = dataclasses.field(default_factory=dict[str, Markup])

    def plot(self, light: bytes, dark: bytes | None) -> list[tuple[str, Mapping[str, str], Markup]]:
        """A picture as (class, attributes, content): one for both kinds of page, or one for each."""
        if dark is None:
            return [("", *self._content(light, _VARIABLES))]
        return [("on-light", *self._content(light, {})), ("on-dark", *self._content(dark, {}))]

    def _content(self, picture: bytes, colours: Mapping[str, str]) -> tuple[Mapping[str, str], Markup]:
        root = ET.fromstring(picture)
        size = {name: f"{float(root.get(name, '0').removesuffix('pt')) * 4 / 3:.0f}" for name in ("width", "height")}
        return {"viewBox": root.get("viewBox", ""), **size}, Markup(self._inner(root, colours))

    # Plain strings of markup, with values escaped on insertion: there are thousands of elements.

    def _inner(self, element: ET.Element, colours: Mapping[str, str]) -> str:
        return "".join([self._element(child, colours) for child in element])

    def _element(self, element: ET.Element, colours: Mapping[str, str]) -> str:
        tag = element.tag.rpartition("}")[2]
        if tag == "defs":
            for shape in element:
                name, kind = shape.get("id", ""), shape.tag.rpartition("}")[2]
                if name and name not in self.found and kind in ("path", "clipPath"):
                    told, inner = _attributes(shape, {}), self._inner(shape, {})
                    self.found[name] = Markup(f'<{kind} id="{escape(name)}"{told}>{inner}</{kind}>')
            return ""
        if tag not in _DRAWN:
            return ""
        inner, told = self._inner(element, colours), _attributes(element, colours)
        own = element.get("id", "")
        told += f' class="{escape(own)}"' if _SERIES.match(own) else ""
        if tag == "a" and "href=" in told:  # its letters are shapes, which screen readers cannot read
            told += f' aria-label="{escape(_place(element))}"'
        if tag == "g" and not told:
            return inner
        return f"<{tag}{told}>{inner}</{tag}>" if inner else f"<{tag}{told}/>"


def _place(link: ET.Element) -> str:
    """The last part of a link's path."""
    return next((value for name, value in link.attrib.items() if name.rpartition("}")[2] == "href"), "").rpartition("/")[2]


def _attributes(element: ET.Element, colours: Mapping[str, str]) -> str:
    text = ""
    for key, value in element.attrib.items():
        name = key.rpartition("}")[2]
        if name not in _KEPT or (name == "href" and not (value.startswith("#") or _LINK.match(value))):
            continue
        if name == "d":
            value = " ".join(value.split())
        if name != "transform":
            value = _NUMBER.sub(_rounded, value)
        if name == "style":
            value = COLOUR.sub(lambda found: colours.get(found[0], found[0]), value)
        text += f' {name}="{escape(value)}"'
    return text


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").removesuffix(".")


def page_style() -> str:
    """CSS with the colours of plots on both kinds of page, and the rules by which a checkbox hides a curve."""
    hidden = ",".join(f".plot:has(.k{at}:not(:checked)) .series-{at}" for at in range(len(LIGHT.series)))
    return (
        f":root{{{variables(LIGHT)}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{variables(DARK)}}}}}\n"
        f"{hidden}{{display:none}}\n" + "".join(f".k{at}{{accent-color:var(--plot-s{at})}}" for at in range(len(LIGHT.series)))
    )
