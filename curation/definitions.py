"""The definitions of a Python file and the names that each of them looks up, read from the file's text without running it.

A definition is a global name with every statement at the top level of the file that binds it (``def``, ``class``, assignments,
also inside ``if`` and ``try``) or changes it (``TABLE["x"] = f``, ``TABLE.update(...)``, ``@TABLE.add``). Other statements that
do something are *effects*: they count wherever the file is imported.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import name_lookups
from .name_lookups import (
    FUNCTIONS,
    PLAIN_DECORATORS,
    Chain,
    Import,
    Reader,
    Uses,
    annotations_of,
    bound_by,
    children_of,
    imports_of,
    root_of,
    uses_of_deep,
)
from .user_cache import cached, keep

_BODIES = (*FUNCTIONS, ast.Lambda)
_GLOBAL = re.compile(rb"(?:^|[;:])[ \t\f]*global[\s\\]", re.MULTILINE)
"""Where a statement may begin: texts have the word too, and to look through a file for the statement takes a while."""


@dataclasses.dataclass(frozen=True, eq=False)
class Unit:
    """A statement at the top level of a file.

    Attributes:
        digest: SHA-256 of the statement's code without docstrings, and of the targets of the imported names in it.
        uses: everything that the statement's code looks up, on import or when it is called.
        annotations: what the annotations of a function look up; empty for other statements.
        called_on_import: dotted names of what it calls while the file is imported: decorators, base classes, and functions.
        changes_on_import: those among them that are methods that may change their object, such as ``TABLE.register``.
        needed: imports inside it, except those in ``try`` and ``if`` statements.
        effect: whether it does something besides defining, and so counts wherever the file is imported.
        is_code: whether it defines a function or a class.
    """

    digest: str
    uses: Uses
    annotations: Uses
    called_on_import: frozenset[Chain]
    changes_on_import: frozenset[Chain]
    needed: tuple[Import, ...]
    effect: bool
    is_code: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Module:
    """What a Python file defines.

    Attributes:
        name: name of the module.
        units: its top-level statements except imports.
        names: global name -> the statements that bind or change it, in order.
        imports: global name -> what it is imported from.
        stars: modules of ``from module import *``.
        imported: modules that are imported when the file is.
    """

    name: str
    units: Sequence[Unit]
    names: Mapping[str, Sequence[Unit]]
    imports: Mapping[str, Sequence[Import]]
    stars: Sequence[str]
    imported: Sequence[str]


@functools.lru_cache(maxsize=4096)
def read_module(name: str, path: str, _mtime_ns: int) -> Module | None:
    """The definitions of a file, read again only when it changes; None if this interpreter cannot parse it.

    What was read of the modules of packages is kept in the user's cache folder: for hundreds of files, reading takes a second.
    """
    text = Path(path).read_bytes()
    package = name if os.path.basename(path) == "__init__.py" else name.rpartition(".")[0]
    if not package or not name.replace(".", "").isidentifier():  # such as the path of a file
        return _read(name, package, text)
    key = hashlib.sha256(b"\0".join([_recipe(), name.encode(), package.encode(), text])).hexdigest()
    if (known := cached("definitions", name, key)) is not None:
        return _unpacked(name, json.loads(known))
    if (read := _read(name, package, text)) is not None:
        keep("definitions", name, key, _packed(read))
    return read


def _read(name: str, package: str, text: bytes) -> Module | None:
    try:
        return _Reading(name, package, text).module()
    except (SyntaxError, ValueError):
        return None


class _Statement:
    """A top-level statement while its file is read.

    Attributes:
        node: its syntax tree.
        calls: expressions that it calls while the file is imported.
        changes: global names that it may change without binding them.
        sets: the names in ``changes`` that it changes in any case.
        effect: whether it does something else.
    """

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.calls: list[ast.expr] = []
        self.changes: set[str] = set()
        self.sets: set[str] = set()
        self.effect = False

    def unit(self, package: str, imports: Mapping[str, Sequence[Import]], text: Sequence[bytes]) -> Unit:
        """What was read; ``text`` are the lines of the file."""
        try:
            uses, tree = _uses([self.node], package), repr(_tree(self.node))
        except RecursionError:  # an expression of hundreds of terms
            uses = uses_of_deep(self.node, package)
            first = min([self.node.lineno, *(each.lineno for each in getattr(self.node, "decorator_list", ()))])
            tree = repr(list(text[first - 1 : self.node.end_lineno]))
        names = sorted({chain[0] for chain in uses.chains} & imports.keys())
        lines = [f"{name}={target.module}:{target.name}" for name in names for target in imports[name]]
        annotations = Reader(package)
        if isinstance(self.node, FUNCTIONS):
            for annotation in annotations_of(self.node):
                annotations.annotation(annotation, ())
        return Unit(
            digest=hashlib.sha256(f"({tree}, {lines!r})".encode("utf-8", "surrogatepass")).hexdigest(),
            uses=uses,
            annotations=annotations.uses,
            called_on_import=frozenset(_uses(self.calls, package).chains),
            changes_on_import=frozenset(_uses(filter(_is_change, self.calls), package).chains),
            needed=tuple(target for each in _needed(self.node) for _, target in imports_of(each, package)),
            effect=self.effect,
            is_code=isinstance(self.node, (*FUNCTIONS, ast.ClassDef)),
        )


def _uses(nodes: Iterable[ast.AST], package: str) -> Uses:
    reader = Reader(package)
    for node in nodes:
        reader.visit(node, ())
    return reader.uses


class _Reading:
    """A file while it is read."""

    def __init__(self, name: str, package: str, text: bytes) -> None:
        self._name, self._package, self._text = name, package, text.splitlines()
        self._statements: list[_Statement] = []
        self._names: dict[str, list[_Statement]] = {}
        self._imports: dict[str, list[Import]] = {}
        self._stars: list[str] = []
        self._imported: list[str] = []
        for node in _what_runs(ast.parse(text).body):
            self._add(node)
        if b"global" in text and _GLOBAL.search(text):
            self._add_globals()
        if name == "benchwright":
            self._add_offered()
        for statement in self._statements:
            for each in statement.changes & self._names.keys():
                self._names[each].append(statement)
            # A statement that changes an imported name belongs to no definition of this file.
            statement.effect |= bool(statement.sets - self._names.keys())

    def module(self) -> Module:
        units = {statement: statement.unit(self._package, self._imports, self._text) for statement in self._statements}
        places = {statement: place for place, statement in enumerate(units)}
        names = {
            name: [units[each] for each in sorted(set(found), key=places.__getitem__)] for name, found in self._names.items()
        }
        return Module(self._name, list(units.values()), names, self._imports, self._stars, self._imported)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._add_import(node)
            return
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        statement = _Statement(node)
        self._statements.append(statement)
        for name in bound_by([node]).names:
            self._names.setdefault(name, []).append(statement)
        for inner in _statements_on_import(node):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                self._add_import(inner)
            else:
                statement.sets |= (sets := set(_set(inner)))
                statement.changes |= sets
                does = isinstance(inner, ast.Expr) and not isinstance(inner.value, ast.Constant)
                statement.effect |= isinstance(inner, ast.Assert | ast.Raise) or (does and not sets)
        statement.calls = list(_called_on_import(node))
        statement.changes |= {root for each in statement.calls if _is_change(each) and (root := root_of(each))}
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            # It starts the program; names that it binds count where they are looked up.
            statement.effect, statement.calls = False, []

    def _add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, target in imports_of(node, self._package):
            self._imported += [target.module, *([f"{target.module}.{target.name}"] if target.name else [])]
            if name == "*":
                self._stars.append(target.module)
            else:
                self._imports.setdefault(name, []).append(target)

    def _add_offered(self) -> None:
        """Add the names that ``benchwright`` imports lazily, on first use."""
        for statement in self._names.get("_PLACES", ()):
            if isinstance(statement.node, ast.Assign):
                for place, names in ast.literal_eval(statement.node.value).items():
                    for name in names:
                        self._imports.setdefault(name, []).append(Import(f"{self._name}.{place}", name))

    def _add_globals(self) -> None:
        for statement in self._statements:
            for node in ast.walk(statement.node):
                for name in node.names if isinstance(node, ast.Global) else ():
                    self._names.setdefault(name, []).append(statement)


# -------------------------------------------------------------------------------------------------------- in the cache


@functools.cache
def _recipe() -> bytes:
    """What determines the definitions besides the text of the file: this code, and the version of Python, which parses it."""
    own = [Path(__file__).read_bytes(), Path(name_lookups.__file__).read_bytes()]
    return hashlib.sha256(b"\0".join([*own, sys.version.encode()])).digest()


def _packed(module: Module) -> bytes:
    places = {unit: place for place, unit in enumerate(module.units)}
    names = {name: [places[unit] for unit in units] for name, units in module.names.items()}
    facts = {
        "units": module.units,
        "names": names,
        "imports": module.imports,
        "stars": module.stars,
        "imported": module.imported,
    }
    return json.dumps(facts, default=lambda each: list(each) if isinstance(each, set | frozenset) else vars(each)).encode()


def _unpacked(name: str, facts: Mapping[str, Any]) -> Module:
    units = [_unit(each) for each in facts["units"]]
    names = {each: [units[place] for place in places] for each, places in facts["names"].items()}
    imports = {each: [Import(*target) for target in found] for each, found in facts["imports"].items()}
    return Module(name, units, names, imports, facts["stars"], facts["imported"])


def _unit(facts: Mapping[str, Any]) -> Unit:
    return Unit(
        digest=facts["digest"],
        uses=_used(facts["uses"]),
        annotations=_used(facts["annotations"]),
        called_on_import=frozenset(map(tuple, facts["called_on_import"])),
        changes_on_import=frozenset(map(tuple, facts["changes_on_import"])),
        needed=tuple(Import(*each) for each in facts["needed"]),
        effect=facts["effect"],
        is_code=facts["is_code"],
    )


def _used(facts: Mapping[str, Any]) -> Uses:
    return Uses(
        chains=set(map(tuple, facts["chains"])),
        inner={(Import(*target), None if rest is None else tuple(rest)) for target, rest in facts["inner"]},
        references=set(facts["references"]),
        loaded=set(facts["loaded"]),
        packages=set(facts["packages"]),
        dynamic=facts["dynamic"],
        writes=facts["writes"],
    )


# -------------------------------------------------------------------------------------------------------- statements


def _what_runs(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run, without those under ``if TYPE_CHECKING``."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _what_runs(node.orelse)
        else:
            yield node


def _statements_on_import(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statement and the statements inside it that run on import, except those in functions and classes."""
    yield node
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _statements_on_import(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for inner in child.body:
                yield from _statements_on_import(inner)


def _set(node: ast.stmt) -> Iterator[str]:
    """Names that the statement changes without binding them: ``X[...] = ``, ``X.attribute = ``, ``X.update(...)``."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign() | ast.Delete():
            targets = list(node.targets)
        case ast.AugAssign() | ast.AnnAssign():
            targets = [node.target]
        case ast.Expr(value=ast.Call(func=ast.Attribute() as function)):
            yield from [root] if (root := root_of(function)) else []
        case _:
            pass
    for target in [inner for each in targets for inner in ast.walk(each)]:
        if isinstance(target, ast.Subscript | ast.Attribute) and not isinstance(target.ctx, ast.Load):
            yield from [root] if (root := root_of(target)) else []


def _is_change(function: ast.expr) -> bool:
    """Whether a call on import may change the object that it is made on: any method except those in ``PLAIN_DECORATORS``."""
    function = function.func if isinstance(function, ast.Call) else function
    return isinstance(function, ast.Attribute) and function.attr not in PLAIN_DECORATORS


def _called_on_import(node: ast.stmt) -> Iterator[ast.expr]:
    """Expressions that are called on import: decorators, base classes, and the functions of calls."""
    if isinstance(node, FUNCTIONS):
        yield from node.decorator_list
    elif isinstance(node, ast.ClassDef):
        yield from [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        for inner in node.body:
            yield from _called_on_import(inner)
    else:
        yield from (each.func for each in _expressions(node) if isinstance(each, ast.Call))


def _expressions(node: ast.AST) -> list[ast.AST]:
    """All nodes inside the statement except functions and lambdas."""
    found = [child for child in children_of(node) if not isinstance(child, _BODIES)]
    for each in found:
        found.extend(child for child in children_of(each) if not isinstance(child, _BODIES))
    return found


def _tree(node: Any) -> Any:
    """Code as nested tuples, without docstrings, other bare string expressions, and empty fields."""
    if isinstance(node, list):
        return [_tree(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _tree(value)) for name in node._fields if (value := getattr(node, name, None)) or value not in (None, [])]
    return type(node).__name__, fields


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _needed(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements inside a node, except those in ``try`` and ``if`` statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not isinstance(child, ast.Try | ast.If | ast.expr):
            yield from _needed(child)
