"""Which definitions code reaches, transitively, through the first-party modules that it imports: the code that a key covers.

Determined from the text of the files (``definitions``) without importing them, since third-party packages may be broken or slow
to import. If the text does not show what is looked up, as when a module is passed on as a value, the whole module counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from .code_loading import FOLDERS, UnknownName, module_of
from .definitions import Module, Unit, read_module
from .name_lookups import Chain, Import, Uses

Node = tuple[str, str]
"""A definition: module and global name; ``*`` for the whole module, "" for its effects on import."""

Definitions = Mapping[str, Mapping[str, str]]
"""Module -> global name -> the start of the digest of that definition."""

_SHORT = 12
"""Number of digits of a definition's shortened digest."""


@dataclasses.dataclass(frozen=True)
class Reached:
    """The code that something reaches.

    Attributes:
        digest: SHA-256 of all of it.
        definitions: all definitions by name; ``*`` stands for the whole module, "" for its effects on import.
    """

    digest: str
    definitions: Definitions

    def with_others(self, others: Iterable[Reached]) -> Reached:
        """This code combined with others. Others that reach nothing new still change the digest."""
        others = list(others)
        if not others:
            return self
        definitions = {name: dict(found) for name, found in self.definitions.items()}
        for other in others:
            for name, found in other.definitions.items():
                definitions.setdefault(name, {}).update(found)
        digests = [self.digest, *(other.digest for other in others)]
        return Reached(hashlib.sha256("\n".join(digests).encode()).hexdigest(), definitions)


_looked_at: ContextVar[set[_Code] | None] = ContextVar("_looked_at", default=None)


@contextlib.contextmanager
def one_look() -> Iterator[None]:
    """Within the block, check each file for changes only once, since there are hundreds; later edits are noticed afterwards."""
    token = _looked_at.set(set())
    try:
        yield
    finally:
        _looked_at.reset(token)


def reached(what: Callable[..., object] | type | str) -> Reached:
    """The definitions that a function or class reaches: functions, classes, and other global names with all that sets them.

    Comments, docstrings and layout do not count. First-party modules are those of ``benchwright``, of the top-level package of
    ``what``, and, for a module outside any package, its neighbours in the same folder; other code is ignored.

    Args:
        what: a function or class at the top level of a module, or its name: ``package.module:attribute``, or
            ``path/to/file.py:attribute``. Names are resolved without importing the code.

    Raises:
        LookupError: a name does not exist.
    """
    if isinstance(what, str):
        return _named(what)
    function: Any = inspect.unwrap(what)
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    path = Path(file) if file is not None and file.endswith(".py") else None
    return _from(module_of(function), path, function.__qualname__.partition(".")[0])


def code_digest(what: Callable[..., object] | type | str) -> str:
    """Digest of the code that a function or class reaches: see ``reached``."""
    return reached(what).digest


def digests_of(module: str, names: Iterable[str]) -> dict[str, str]:
    """Definition -> the start of its digest, as in ``Reached.definitions``; empty if the module does not exist."""
    path = source_file(module)
    if path is None:
        return {}
    code = _code_of(_home(module, path), module, path)
    return {name: code.digest((module, name))[:_SHORT] for name in names}


def _named(reference: str) -> Reached:
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute:
        raise UnknownName(f"{reference!r} names no code: write package.module:attribute or path/to/file.py:attribute")
    if place.endswith(".py"):
        path: Path | None = Path(os.path.realpath(place))
        name = Path(place).stem
        if not os.path.isfile(place):
            raise UnknownName(f"{reference!r}: no such file")
    else:
        name, path = place, source_file(place)
    name_in_it = attribute.partition(".")[0]
    if path is None:
        raise UnknownName(f"{reference!r}: no module of Python code is called {place}")
    code = _code_of(_home(name, path), name, path)
    if not code.member(name, (name_in_it,)) - {(name, "*")}:
        raise UnknownName(f"{reference!r}: {place} has no {name_in_it!r}")
    return _from(name, path, name_in_it)


def _from(name: str, path: Path | None, attribute: str) -> Reached:
    if path is None:
        return Reached(hashlib.sha256().hexdigest(), {})
    code = _code_of(_home(name, path), name, path)
    if (name, attribute) not in code.known:
        with _uncollected():
            code.known[name, attribute] = _gathered(code, name, attribute)
    return code.known[name, attribute]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector, which would spend a third of the time on syntax trees that all stay in use."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _gathered(code: _Code, name: str, attribute: str) -> Reached:
    start = code.member(name, (attribute,)) or {(name, "*")}
    found: dict[str, dict[str, str]] = {}
    lines: list[str] = []
    for node in sorted(code.closure(start, annotated=True)):
        if digest := code.digest(node):
            found.setdefault(node[0], {})[node[1]] = digest[:_SHORT]
            # The name of the own module is left out: for a script, or a module loaded from a file, it has no meaning.
            lines.append(f"{'' if node[0] == name else node[0]}\0{node[1]}\0{digest}\n")
    return Reached(hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(), found)


# ------------------------------------------------------------------------------------------------------------- files

_Home = tuple[str, str]
"""Top-level package of a module, and its folder if it belongs to no package, otherwise ""."""


def _home(name: str, path: Path) -> _Home:
    return name.partition(".")[0], "" if "." in name or path.name == "__init__.py" else str(path.parent)


def source_file(name: str) -> Path | None:
    """The file of a module, found without running it or its parents; None if there is no Python file of that module."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None:
        return Path(loaded) if loaded.endswith(".py") else None
    return _found_file(name)


@functools.cache
def _found_file(name: str) -> Path | None:
    parts = name.split(".")
    # A namespace package has no code, so the finders can look up its packages without running anything.
    known = ".".join(parts[:2]) if parts[0] == "benchwright" else parts[0]
    try:
        spec = importlib.util.find_spec(known)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    for part in parts[known.count(".") + 1 :]:
        if path.name != "__init__.py":
            return None
        inner = path.parent / part / "__init__.py"
        path = inner if inner.is_file() else path.parent / f"{part}.py"
    return path if path.suffix == ".py" and path.is_file() else None


@functools.lru_cache(maxsize=64)
def _new_code(home: _Home, name: str, path: Path) -> list[_Code]:
    return [_Code(home, name, path)]


def _code_of(home: _Home, name: str, path: Path) -> _Code:
    """The graph of the code around a module, cached until one of its files changes."""
    # All modules of a package share a graph; a module outside any package has its own, since others may have the same name.
    kept = _new_code(home, *((name, path) if home[1] else ("", Path())))
    seen = _looked_at.get()
    if seen is None or kept[0] not in seen:
        if not kept[0].fresh():
            kept[0] = _Code(home, *((name, path) if home[1] else ("", Path())))
        if seen is not None:
            seen.add(kept[0])
    return kept[0]


# -------------------------------------------------------------------------------------------------------------- graph


class _Code:
    """First-party modules as a graph of definitions, as seen from one home."""

    def __init__(self, home: _Home, name: str, path: Path) -> None:
        self._home, self._own = home, (name, path)
        self.known: dict[tuple[str, str], Reached] = {}
        """Cache: module and name -> what is reached from there, valid as long as no file changes."""
        self._modules: dict[str, Module | None] = {}
        self._times: dict[str, int] = {}
        self._edges: dict[Node, set[Node]] = {}
        self._digests: dict[Node, str] = {}
        self._writers: dict[Node, bool] = {}
        self._effects: dict[str, list[Unit]] = {}

    def fresh(self) -> bool:
        """Whether no file has changed since it was read."""
        try:
            return all(os.stat(path).st_mtime_ns == time for path, time in self._times.items())
        except OSError:
            return False

    def module(self, name: str) -> Module | None:
        """A first-party module; None for other modules, and for those without a file."""
        if name not in self._modules:
            path = self._path(name) if self._first_party(name) else None
            self._modules[name] = None
            if path is not None:
                time = self._times[str(path)] = path.stat().st_mtime_ns
                self._modules[name] = read_module(name, str(path), time)
        return self._modules[name]

    def _path(self, name: str) -> Path | None:
        if name == self._own[0]:
            return self._own[1]
        path = source_file(name)
        if self._home[1] and (path is None or any(path.is_relative_to(folder) for folder in FOLDERS)):
            # A neighbour may not be on sys.path, or have the same name as a neighbour of another file.
            stem = os.path.join(self._home[1], *name.split("."))
            path = next((Path(each) for each in (f"{stem}.py", f"{stem}/__init__.py") if os.path.isfile(each)), path)
        return path

    def _first_party(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in ("benchwright", self._home[0]):
            return True
        beside = os.path.join(self._home[1], top) if self._home[1] else ""
        return bool(beside) and (os.path.isfile(f"{beside}.py") or os.path.isdir(beside))

    # ------------------------------------------------------------------------------------------------ names

    def member(self, module: str, chain: Chain, seen: frozenset[Node] = frozenset()) -> set[Node]:
        """What a dotted name within a module refers to: definitions, a whole module, or nothing that is first-party."""
        if not self._first_party(module):
            return set()
        read = self.module(module)
        if not chain:
            return {(module, "*")} if read else set()
        if read and (found := self.look_up(read, chain, seen)):
            return found
        inner = f"{module}.{chain[0]}"
        if self.module(inner) is not None:
            return {(inner, ""), *self.member(inner, chain[1:], seen)}
        if read is None:  # a namespace package, or a module without Python code
            return self.member(inner, chain[1:], seen) if len(chain) > 1 else set()
        # A name that the file does not bind: it comes from __getattr__, or was set from outside.
        return {(module, "" if chain[0].startswith("__") else "*")}

    def look_up(self, module: Module, chain: Chain, seen: frozenset[Node] = frozenset()) -> set[Node]:
        """What a dotted name in the code of a module refers to."""
        node = (module.name, chain[0])
        if node in seen:
            return set()
        found = {node} if chain[0] in module.names else set[Node]()
        for target in module.imports.get(chain[0], ()):
            found |= self._imported(target, chain[1:], seen | {node})
        if not found and chain[0] not in module.imports:
            found = {(star, "*") for star in module.stars if self.module(star) and not hasattr(_BUILTINS, chain[0])}
        return found

    def _imported(self, target: Import, rest: Chain, seen: frozenset[Node] = frozenset()) -> set[Node]:
        return self.member(target.module, (target.name, *rest) if target.name else rest, seen)

    def _only_imported(self, target: Import) -> set[Node]:
        """What an import statement reaches by itself, even if the imported names are not used."""
        inner = f"{target.module}.{target.name}" if target.name else target.module
        modules = {(name, "") for name in (target.module, inner) if self.module(name) is not None}
        read = self.module(target.module)
        if target.name and read and (target.name in read.names or target.name in read.imports):
            found = self.look_up(read, (target.name,))
            modules |= {node for node in found if node[1] != "*"}
        return modules

    # ------------------------------------------------------------------------------------------------ edges

    def _units(self, node: Node) -> Sequence[Unit]:
        module = self.module(node[0])
        if module is None:
            return []
        if node[1] == "":
            return self.effects(module)
        return module.units if node[1] == "*" else module.names.get(node[1], [])

    def digest(self, node: Node) -> str:
        """Digest of the code of a definition; "" if there is no code."""
        if node not in self._digests:
            units = self._units(node)
            together = "\n".join(unit.digest for unit in units)
            self._digests[node] = hashlib.sha256(together.encode()).hexdigest() if units else ""
        return self._digests[node]

    def edges(self, node: Node) -> set[Node]:
        """The definitions that the code of a definition looks up."""
        if node not in self._edges:
            module = self.module(node[0])
            found: set[Node] = set()
            if module is not None:
                for unit in self._units(node):
                    found |= self._used(module, unit.uses)
                if node[1] == "":
                    found |= self._brought(module)
                else:
                    found.add((module.name, ""))
                if node[1] == "*":
                    found |= {(star, "*") for star in module.stars if self.module(star)}
                    targets = [(name, target) for name, each in module.imports.items() for target in each]
                    found |= {other for name, _ in targets for other in self.look_up(module, (name,)) if other[1] != "*"}
            self._edges[node] = found - {node}
        return self._edges[node]

    def _brought(self, module: Module) -> set[Node]:
        """The first-party modules that importing a module imports."""
        parts = module.name.split(".")
        parents = [".".join(parts[:end]) for end in range(1, len(parts))]
        return {(name, "") for name in (*parents, *module.imported) if self._first_party(name) and self.module(name)}

    def _used(self, module: Module, uses: Uses) -> set[Node]:
        found: set[Node] = set()
        for chain in uses.chains:
            found |= self.look_up(module, chain)
        for target, rest in uses.inner:
            found |= self._only_imported(target) if rest is None else self._imported(target, rest)
        for reference in uses.references:
            place, _, attribute = reference.partition(":")
            if self._first_party(place) and self.module(place) is not None:
                found |= self.member(place, tuple(attribute.split(".")) if attribute else ())
        found |= {(name, "*") for name in uses.loaded if self.module(name) is not None}
        for package in uses.packages:
            found |= {(name, "*") for name in self._modules_of(package)}
        if uses.dynamic:
            found.add((module.name, "*"))
        return found

    def _modules_of(self, package: str) -> Iterator[str]:
        read = self._path(package) if self._first_party(package) else None
        if read is not None and read.name == "__init__.py":
            for path in sorted(read.parent.rglob("*.py")):
                inside = path.relative_to(read.parent).with_suffix("").parts
                inside = inside[:-1] if inside[-1] == "__init__" else inside
                if self.module(name := ".".join([package, *inside])) is not None:
                    yield name

    def effects(self, module: Module) -> list[Unit]:
        """The effects of a module on import: statements that are not definitions, and definitions that register themselves
        elsewhere, such as in a table of another module.
        """
        if module.name not in self._effects:
            self._effects[module.name] = []  # ends the recursion for circular imports
            self._effects[module.name] = [unit for unit in module.units if unit.effect or self._registers(module, unit)]
        return self._effects[module.name]

    def _registers(self, module: Module, unit: Unit) -> bool:
        for chain in unit.changes_on_import:
            found = self.look_up(module, chain)
            if any(name != module.name and not self._is_code((name, each)) for name, each in found if each):
                return True
        return any(self._writes(node) for chain in unit.called_on_import for node in self.look_up(module, chain) if node[1])

    def _is_code(self, node: Node) -> bool:
        return all(unit.is_code for unit in self._units(node))

    def _writes(self, node: Node) -> bool:
        """Whether code changes global names when it is called."""
        if node not in self._writers:
            self._writers[node] = any(
                unit.uses.writes for each in self.closure({node}, on_import=False) for unit in self._units(each)
            )
        return self._writers[node]

    def closure(self, start: set[Node], *, annotated: bool = False, on_import: bool = True) -> set[Node]:
        """Everything that is reached from ``start``.

        Args:
            start: definitions to start from.
            annotated: whether to include what the annotations of functions in ``start`` look up.
            on_import: whether to include the effects of imported modules.
        """
        pending = set(start)
        if annotated:
            for name, definition in start:
                module = self.module(name)
                if module is not None:
                    for unit in module.names.get(definition, ()):
                        pending |= self._used(module, unit.annotations)
        found: set[Node] = set()
        while pending:
            node = pending.pop()
            found.add(node)
            edges = self.edges(node) if on_import else {each for each in self.edges(node) if each[1]}
            pending |= edges - found
        return found


_BUILTINS = sys.modules["builtins"]
