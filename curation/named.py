"""Functions and classes by their names: ``package.module:attribute``, or ``path/to/file.py:attribute``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import operator
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load(reference: str) -> Any:
    """What the name stands for. A file is run once, as a module of its own name, and may import those beside it.

    Raises:
        LookupError: where nothing of that name is there.
    """
    place, _, attribute = reference.rpartition(":")
    try:
        module = _from_file(Path(os.path.realpath(place))) if place.endswith(".py") else importlib.import_module(place)
        return operator.attrgetter(attribute)(module)
    except ModuleNotFoundError as error:
        raise LookupError(f"{reference!r}: no module {error.name}") from error
    except AttributeError:
        raise LookupError(f"{reference!r}: {place} has no {attribute!r}") from None


@functools.cache
def _from_file(path: Path) -> ModuleType:
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if loaded is not None or spec is None or spec.loader is None or not path.is_file():
        told = f"a module named {name!r} is loaded already: rename the file" if loaded is not None else "no such file"
        raise LookupError(f"{str(path)!r}: {told}")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that what lies beside it hides nothing
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
