"""Detectors of what is to be blurred, by name."""

from __future__ import annotations

from typing import Any

from ..keys import named
from ..registry import Registry, check_arguments, load_entry

DETECTORS = Registry("detector", {"centerface": "benchwright.curation.stages.centerface:centerface"})


def detector(name: str, **settings: Any) -> Any:
    """The setting ``detector`` of ``blur``: what a name stands for. Its code counts in the key of the stage.

    Args:
        name: ``centerface``, what a package offers, or ``path/to/file.py:NAME`` or ``module:NAME`` of your own.
        settings: further keyword arguments that it is called with.

    Raises:
        UnknownName: where it stands for nothing.
        ValueError: where it has no such argument.

    >>> detector("centrefold")
    Traceback (most recent call last):
        ...
    benchwright.curation.code_loading.UnknownName: no detector 'centrefold': there are centerface, or name your own as ...
    >>> detector("centerface", side_px=640).settings
    {'side_px': 640}
    """
    entry = DETECTORS.find(name)
    check_arguments(load_entry(entry), settings, partial=True)
    return named(entry.reference, **settings)
