"""All kinds of files that are attacked."""

from __future__ import annotations

import functools

from . import commands, parsers_arrays, parsers_lists, parsers_pictures, parsers_release, server
from .parser import Parser


@functools.cache
def all_parsers() -> dict[str, Parser]:
    """Every parser by its name."""
    rooms = (parsers_pictures, parsers_arrays, parsers_lists, parsers_release, commands, server)
    return {parser.name: parser for room in rooms for parser in room.parsers()}
