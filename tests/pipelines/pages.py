"""What is wrong with a page by its structure, as far as it is seen without a browser; and the rows of its tables."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = ("meta", "img", "source", "link", "br", "input")
LARGEST = 3_000_000
"""Bytes of the page of a tiny run."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.landmarks: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told, shown = dict(attrs), f"<{tag}> at line {self.getpos()[0]}"
        scrolled = any("scroll" in (one.get("class") or "").split() for _, one in self.open)
        self.ids += [told["id"] or ""] if "id" in told else []
        self.targets += [value[1:] for name in ("href", "xlink:href") if (value := told.get(name) or "").startswith("#")]
        if tag in ("nav", "main") or told.get("role") == "region":
            self.landmarks.append((tag, told.get("aria-label")))
        if tag == "img" and not told.get("alt"):
            self.faults.append(f"{shown} has no alt text")
        if (
            tag == "svg"
            and told.get("aria-hidden") != "true"
            and not (told.get("role") in ("img", "group") and told.get("aria-label"))
        ):
            self.faults.append(f"{shown} has no label")
        if (
            tag == "input"
            and told.get("type") != "hidden"
            and not (told.get("aria-label") or any(name == "label" for name, _ in self.open))
        ):
            self.faults.append(f"{shown} has no label")
        if tag == "table" and not scrolled:
            self.faults.append(f"{shown} may be wider than a phone, and does not scroll by itself")
        if "scroll" in (told.get("class") or "").split() and told.get("tabindex") != "0":
            self.faults.append(f"{shown} scrolls, and keys do not reach it")
        if tag in ("div", "section", "p", "main", "table", "ul", "figure") and "width" in (told.get("style") or ""):
            self.faults.append(f"{shown} has a fixed width")
        if tag in ("script", "iframe", "object", "embed"):
            self.faults.append(f"{shown} has no place in a report")
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append(int(tag[1:]))
        if tag not in VOID:
            self.open.append((tag, told))

    def handle_endtag(self, tag: str) -> None:
        opened = self.open.pop()[0] if self.open else "nothing"
        if opened != tag:
            self.faults.append(f"</{tag}> at line {self.getpos()[0]} closes <{opened}>")


def faults(page: str) -> list[str]:
    """Headings that leave out a level, landmarks twice, pictures without words, what a phone has no room for, and size."""
    reader = _Reader()
    reader.feed(page)
    found = [*reader.faults, *(f"<{tag}> is not closed" for tag, _ in reader.open)]
    if reader.headings[:1] != [1] or reader.headings.count(1) != 1:
        found.append(f"headings begin {reader.headings[:3]}, and not with the only <h1>")
    levels = zip(reader.headings, reader.headings[1:], strict=False)
    found += [f"<h{after}> follows <h{before}>" for before, after in levels if after > before + 1]
    found += [f"landmark {one} is there twice" for one in dict.fromkeys(reader.landmarks) if reader.landmarks.count(one) > 1]
    found += [f"<{tag}> is missing" for tag in ("nav", "main") if tag not in dict(reader.landmarks)]
    found += [f"id {one!r} is there twice" for one in dict.fromkeys(reader.ids) if reader.ids.count(one) > 1]
    found += [f"#{one} leads nowhere" for one in {*reader.targets} - {*reader.ids}]
    size = len(page.encode())
    return [*found, *([f"{size:,} bytes"] if size > LARGEST else [])]


def rows_of_page(page: str, name: str) -> list[list[str]]:
    """The cells of the rows of this name that hold something."""
    found = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)]
    return [[cell for cell in cells[1:] if cell not in ("", "–")] for cells in found if cells and cells[0] == name]
