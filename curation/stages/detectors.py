"""Registry of the detectors that ``blur`` can use."""

from __future__ import annotations

from typing import Any

from ..keys import named
from ..registry import Registry, check_arguments, load_entry

DETECTORS = Registry("detector", {"centerface": "benchwright.curation.stages.centerface:centerface"})


def detector(name: str, **settings: Any) -> Any:
    """Return a detector by name, for the setting ``detector`` of ``blur``. Its code counts in the key of the stage.

    Args:
        name: ``centerface``, a detector registered by a package, or your own as ``path/to/file.py:NAME`` or ``module:NAME``.
        settings: further keyword arguments of the detector.

    Raises:
        UnknownName: no detector has this name.
        ValueError: the detector has no such argument.

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
