"""Functions and classes by their names, when their code was loaded, and which lines of it are the user's own.

A name is ``package.module:attribute``, or ``path/to/file.py:attribute``.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import operator
import os
import re
import sys
import sysconfig
import threading
import time
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
    except (Exception, SystemExit) as error:  # whatever somebody's module does, it is reported in one line
        raise UnknownName(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


# ------------------------------------------------------------------------------------------------------------- files


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """A file that was run.

    Attributes:
        module: its own.
        names: module name -> that module and those of the files next to it that it imported.
        digests: path of each of these files -> digest of its content.
    """

    module: ModuleType
    names: dict[str, ModuleType]
    digests: dict[str, str]

    def fresh(self) -> bool:
        whole = sys.modules.get(self.module.__name__) is self.module
        return whole and all(_digest(path) == digest for path, digest in self.digests.items())


_loaded: dict[Path, _Loaded] = {}
_loading = threading.RLock()

FOLDERS: list[str] = []
"""Folders of users' files, that of the last one first."""


def module_of(what: Any) -> str:
    """Name of the module of a function or class, for records: of a user's file it is the name of the file."""
    return what.__module__.partition(_APART)[0]


def by_value() -> set[str]:
    """Names of the modules, as ``module_of`` has them, whose code travels with what refers to it."""
    import cloudpickle

    return {"__main__", *(name.partition(_APART)[0] for name in cloudpickle.list_registry_pickle_by_value())}


_APART = "@"
"""Stands, in the name of a module that a user's file is loaded as, before what tells it from files of one name elsewhere."""


def load_file(path: Path) -> ModuleType:
    """The module of a user's Python file. It may import the files next to it, and all of them are run again when one changed.
    Its functions travel to worker processes, which could not import them.

    Files of one name in several folders are modules of their own; what they import by name is what is next to them.

    Raises:
        UnknownName: where there is no such file, a module that is none of the user's has its name, or running it raises: says
            the line.
    """
    path = Path(os.path.realpath(path))  # a link to itself is told as no file
    with _loading:
        known = _loaded.get(path)
        if known is None or not known.fresh():
            for name in known.names if known is not None else ():
                sys.modules.pop(name, None)
            known = _loaded[path] = _run(path)
        _go_to(path.parent)
        sys.modules.update(known.names)
        return known.module


def _go_to(folder: Path) -> None:
    """Let files in a folder be imported by name, as for a script: before those of other users' files, and behind all else, so
    that they hide nothing."""
    sys.path[:] = [each for each in sys.path if each not in FOLDERS]
    FOLDERS[:] = [str(folder), *(each for each in FOLDERS if each != str(folder))]
    sys.path += FOLDERS


def _run(path: Path) -> _Loaded:
    if not path.is_file():
        raise UnknownName(f"{path}: no such file")
    for place, other in _loaded.items():
        for name, module in other.names.items() if place.parent != path.parent else ():
            top = path.parent / name.partition(".")[0]
            if (top.is_dir() or top.with_suffix(".py").is_file()) and sys.modules.get(name) is module:
                del sys.modules[name]
    old = sys.modules.get(path.stem)
    if old is not None and getattr(old, "__file__", None) != str(path):
        raise UnknownName(f"{path}: a module named {path.stem!r} is loaded already: rename the file")
    spec = importlib.util.spec_from_file_location(f"{path.stem}{_APART}{_digest_of(str(path).encode())[:12]}", path)
    if spec is None or spec.loader is None:
        raise UnknownName(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    _go_to(path.parent)
    before = set(sys.modules)
    sys.modules[module.__name__] = sys.modules[path.stem] = module
    note(module.__name__)
    digest = _digest(str(path))
    # Bytecode goes by a file's size and second, which an edit may leave as they are.
    before_it, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file does, it is reported in one line with its place
        del sys.modules[module.__name__], sys.modules[path.stem]
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
        told = error.msg if isinstance(error, SyntaxError) else error
        raise UnknownName(f"{path}, line {line}: {type(error).__name__}: {told}") from error
    finally:
        sys.dont_write_bytecode = before_it
    maybe = (set(sys.modules) - before) | _imported_by(path)
    beside = {each: file for each in maybe if (file := _file_beside(each, path.parent))}
    names = {path.stem: module, **{each: sys.modules[each] for each in sorted(beside)}}
    import cloudpickle

    # Workers cannot import a file that is on nobody's path: its functions travel with the tasks.
    for each in names.values():
        cloudpickle.register_pickle_by_value(each)
    return _Loaded(module, names, {str(path): digest, **{file: _digest(file) for file in beside.values()}})


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
        return _digest_of(Path(path).read_bytes())
    except OSError:
        return ""


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_FIRST = time.time_ns()
_began: dict[str, int] = {}


class _Clock:
    """Stands before all finders, and finds nothing: it notes what is looked for, and when."""

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        _began[fullname] = time.time_ns()


def watch() -> None:
    """Note from now on when imports begin."""
    if not any(isinstance(each, _Clock) for each in sys.meta_path):
        sys.meta_path.insert(0, _Clock())  # type: ignore[arg-type]  # it has the one method that is called


def note(name: str) -> None:
    """A module of that name is loaded now, by other means than an import statement."""
    _began[name] = time.time_ns()


def began(name: str) -> int:
    """When a module that is loaded began to be, ns since the epoch; at the latest, where it was loaded before ``watch``."""
    return _began.get(name, _FIRST)


_OURS = ("curation", "datasets", "eval", "front_door", "pipelines", "training")


@functools.cache
def _not_own() -> tuple[str, ...]:
    root = Path(__file__).resolve().parents[1]
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(f"{path}/" for path in [*(root / name for name in _OURS), *libraries])


def own_line(error: BaseException) -> str:
    """`` (FILE, line N)`` of the user's code in the traceback of an error, "" if there is none.

    >>> own_line(ValueError("raised nowhere"))
    ''
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not str(Path(frame.filename).resolve()).startswith(_not_own())]
    own = [frame for frame in own if not re.search(r"/(site|dist)-packages/|/bin/benchwright$", frame.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
