"""Functions and classes by their names: ``package.module:attribute``, or ``path/to/file.py:attribute``."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import operator
import os
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any


class UnknownName(LookupError, ValueError):
    """A name that leads to no code. Says the name, and what is missing or wrong."""


def load(reference: str) -> Any:
    """What the name stands for. Code is imported, or its file run, where it has not been, or has changed since.

    Raises:
        UnknownName: where nothing of that name is there, or its module or file cannot be imported.
    """
    place, _, attribute = reference.rpartition(":")
    try:
        module = load_file(Path(place)) if place.endswith(".py") else _import(place)
    except UnknownName as error:
        raise UnknownName(f"{reference!r}: {error}") from error.__cause__
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError:
        raise UnknownName(f"{reference!r}: {place} has no {attribute!r}") from None


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnknownName(f"no module {error.name}") from error
    except (Exception, SystemExit) as error:  # whatever somebody's module does, it is told in one line
        raise UnknownName(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


# ------------------------------------------------------------------------------------------------------------- files


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """A file that was run, and the files beside it that it imported, each with the digest of its content."""

    module: ModuleType
    digests: dict[str, str]
    neighbours: tuple[str, ...]

    def fresh(self) -> bool:
        return all(_digest(path) == digest for path, digest in self.digests.items())


_loaded: dict[Path, _Loaded] = {}
_loading = threading.RLock()


def load_file(path: Path) -> ModuleType:
    """The module of a user's Python file, named as the file is. It may import the files beside it, and all of them are run
    again when one changed. Its functions travel to worker processes, which could not import them.

    Raises:
        UnknownName: where there is no such file, another module has its name, or running it raises: says the line.
    """
    path = Path(os.path.realpath(path))  # a link to itself is told as no file
    with _loading:
        known = _loaded.get(path)
        if known is not None and sys.modules.get(path.stem) is known.module and known.fresh():
            return known.module
        for name in known.neighbours if known is not None else ():
            sys.modules.pop(name, None)
        _loaded[path] = _run(path)
        return _loaded[path].module


def _run(path: Path) -> _Loaded:
    name = path.stem
    if not path.is_file():
        raise UnknownName(f"{path}: no such file")
    old = sys.modules.get(name)
    if old is not None and getattr(old, "__file__", None) != str(path):
        raise UnknownName(f"{path}: a module named {name!r} is loaded already: rename the file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownName(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # the files beside it, as for a script; last, so that they hide nothing
    before = set(sys.modules)
    sys.modules[name] = module
    digest = _digest(str(path))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file does, it is told in one line with its place
        del sys.modules[name]
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
        told = error.msg if isinstance(error, SyntaxError) else error
        raise UnknownName(f"{path}, line {line}: {type(error).__name__}: {told}") from error
    maybe = (set(sys.modules) - before) | _imported_by(path)
    beside = {each: file for each in maybe if (file := _file_beside(each, path.parent))}
    import cloudpickle

    # Workers cannot import a file that is on nobody's path: its functions travel with the tasks.
    for each in (module, *map(sys.modules.__getitem__, beside)):
        cloudpickle.register_pickle_by_value(each)
    return _Loaded(module, {str(path): digest, **{file: _digest(file) for file in beside.values()}}, tuple(sorted(beside)))


def _imported_by(path: Path) -> set[str]:
    """Modules that the file names in import statements."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {*names, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))} & sys.modules.keys()


def _file_beside(name: str, folder: Path) -> str:
    file = getattr(sys.modules[name], "__file__", None) or ""
    return file if file.endswith(".py") and Path(file).is_relative_to(folder) and "site-packages" not in file else ""


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
