"""How docstrings are read for the site: examples as code, and one line for each of several names that are told together."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*\n?(?:(?!\n)(?!>>> ).*\n?|>>> .*\n?)*", re.MULTILINE)
_NAMES = re.compile(r"^( {4})((?:\w+, )+\w+)(: .*(?:\n {8}.*)*)", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts examples into code blocks."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)


def readable(text: str) -> str:
    """A docstring whose examples are fenced, and whose ``a, b: meaning`` are two lines."""
    apart = _NAMES.sub(lambda m: "\n".join(f"{m[1]}{name}{m[3]}" for name in m[2].split(", ")), text)
    return _EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", apart)
