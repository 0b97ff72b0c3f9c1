"""Load functions and classes by name; when their code was loaded; and which lines of a traceback are the user's own.

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
    """No code has this name. The message says the name, and what is missing or wrong."""


def load(reference: str, *, called: bool = True) -> Any:
    """Load the object that a name refers to. A module is imported; a file is run, again if it has changed.

    Args:
        reference: the name.
        called: whether the object will be called.

    Raises:
        UnknownName: the name does not exist, its module or file cannot be imported, or the object cannot be called.
    """
    place, _, attribute = reference.rpartition(":")
    try:
        module = load_file(Path(place)) if place.endswith(".py") else _import(place)
    except UnknownName as error:
        raise UnknownName(f"{reference!r}: {error}") from error.__cause__
    try:
        found = operator.attrgetter(attribute)(module)
    except AttributeError:
        raise UnknownName(f"{reference!r}: {place} has no {attribute!r}") from None
    if called and not callable(found):
        raise UnknownName(f"{reference!r}: it is of type {type(found).__name__}: expected a function or a class")
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnknownName(f"no module {error.name}") from error
    except (Exception, SystemExit) as error:  # whatever a user's module raises is reported in one line
        raise UnknownName(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


# ------------------------------------------------------------------------------------------------------------- files


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """A user's file that was run.

    Attributes:
        module: the module of the file.
        names: module name -> module, for the file and the neighbouring files that it imported.
        digests: path of each of these files -> SHA-256 of its content.
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
"""Folders of users' files, the most recently used first."""


def module_of(what: Any) -> str:
    """Name of the module of a function or class, for records; for a user's file, the name of the file without ``.py``."""
    return what.__module__.partition(_APART)[0]


def by_value() -> set[str]:
    """Names, as in ``module_of``, of the modules that are pickled by value, so that their code is sent with the tasks."""
    import cloudpickle

    return {"__main__", *(name.partition(_APART)[0] for name in cloudpickle.list_registry_pickle_by_value())}


_APART = "@"
"""Separator in the module name of a user's file, before a digest that distinguishes files of the same name."""


def load_file(path: Path) -> ModuleType:
    """Load a user's Python file as a module. Its functions are pickled by value, since worker processes cannot import them.

    The file may import files next to it; if one of them has changed, all are run again. Files of the same name in several
    folders are separate modules, and each imports the files in its own folder.

    Raises:
        UnknownName: the file does not exist, another loaded module has its name, or running it raises; in this case the message
            says the line.
    """
    path = Path(os.path.realpath(path))  # a link to itself is reported as a missing file
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
    """Let files in a folder be imported by name, as for a script.

    The folder comes before those of other user files, but after all other entries of ``sys.path``, so that it hides no module.
    """
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
    # Cached bytecode is identified by the file's size and its time in seconds, which may be the same after an edit.
    before_it, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file raises is reported in one line with its place
        del sys.modules[module.__name__], sys.modules[path.stem]
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
        message = error.msg if isinstance(error, SyntaxError) else error
        raise UnknownName(f"{path}, line {line}: {type(error).__name__}: {message}") from error
    finally:
        sys.dont_write_bytecode = before_it
    maybe = (set(sys.modules) - before) | _imported_by(path)
    beside = {each: file for each in maybe if (file := _file_beside(each, path.parent))}
    names = {path.stem: module, **{each: sys.modules[each] for each in sorted(beside)}}
    import cloudpickle

    # Workers cannot import a file that is not on their path, so its functions are sent with the tasks.
    for each in names.values():
        cloudpickle.register_pickle_by_value(each)
    return _Loaded(module, names, {str(path): digest, **{file: _digest(file) for file in beside.values()}})


def _imported_by(path: Path) -> set[str]:
    """Loaded modules that the file names in import statements."""
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
    """A finder ahead of all others that finds nothing, but records when each module is looked up."""

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        _began[fullname] = time.time_ns()


def watch() -> None:
    """Record from now on when imports begin."""
    if not any(isinstance(each, _Clock) for each in sys.meta_path):
        sys.meta_path.insert(0, _Clock())  # type: ignore[arg-type]  # it has the one method that is called


def note(name: str) -> None:
    """Record that a module of this name is loaded now, by other means than an import statement."""
    _began[name] = time.time_ns()


def began(name: str) -> int:
    """When the import of a loaded module began, in ns since the epoch; the import time of this module if before ``watch``."""
    return _began.get(name, _FIRST)


_OURS = ("curation", "datasets", "eval", "front_door", "pipelines", "training")


@functools.cache
def _not_own() -> tuple[str, ...]:
    root = Path(__file__).resolve().parents[1]
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(f"{path}/" for path in [*(root / name for name in _OURS), *libraries])


def own_line(error: BaseException) -> str:
    """`` (FILE, line N)`` of the last line of the user's code in the traceback of an error; "" if there is none.

    >>> own_line(ValueError("raised nowhere"))
    ''
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not str(Path(frame.filename).resolve()).startswith(_not_own())]
    own = [frame for frame in own if not re.search(r"/(site|dist)-packages/|/bin/benchwright$", frame.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
