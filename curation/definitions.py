"""The definitions of a Python file and the names that each of them looks up, read from the file's text without running it.

A definition is a global name with every statement at the top level of the file that binds it (``def``, ``class``, assignments,
also inside ``if`` and ``try``) or changes it (``TABLE["x"] = f``, ``TABLE.update(...)``, ``@TABLE.add``). Other statements that
do something are *effects*: they count wherever the file is imported.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
)

_BODIES = (*FUNCTIONS, ast.Lambda)
_GLOBAL = re.compile(rb"(?:^|[;:])[ \t\f]*global[\s\\]", re.MULTILINE)
"""Where a statement may begin: texts have the word too, and to look through a file for the statement takes a while."""


class Unit:
    """A statement at the top level of a file.

    Attributes:
        node: the statement, without docstrings.
        calls: expressions that it calls while the file is imported: decorators, base classes, and functions.
        changes: global names that it may change without binding them.
        sets: the names in ``changes`` that it changes in any case.
        effect: whether it does something else, and so counts wherever the file is imported.
    """

    def __init__(self, module: Module, node: ast.stmt) -> None:
        self.module, self.node = module, node
        self.calls: list[ast.expr] = []
        self.changes: set[str] = set()
        self.sets: set[str] = set()
        self.effect = False

    @functools.cached_property
    def uses(self) -> Uses:
        """Everything that the statement's code looks up, on import or when it is called."""
        reader = Reader(self.module.package)
        reader.visit(self.node, ())
        return reader.uses

    @functools.cached_property
    def called_on_import(self) -> frozenset[Chain]:
        """Dotted names of ``calls``."""
        return self._chains(self.calls)

    @functools.cached_property
    def changes_on_import(self) -> frozenset[Chain]:
        """Dotted names of the methods in ``calls`` that may change their object, such as ``TABLE.register``."""
        return self._chains(each for each in self.calls if _is_change(each))

    def _chains(self, expressions: Iterable[ast.expr]) -> frozenset[Chain]:
        reader = Reader(self.module.package)
        for each in expressions:
            reader.visit(each, ())
        return frozenset(reader.uses.chains)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the statement's code and of the targets of the imported names in it."""
        names = sorted({chain[0] for chain in self.uses.chains} & self.module.imports.keys())
        lines = [f"{name}={target.module}:{target.name}" for name in names for target in self.module.imports[name]]
        return hashlib.sha256(repr((_tree(self.node), lines)).encode("utf-8", "surrogatepass")).hexdigest()

    def annotations(self) -> Uses:
        """What the annotations of a function look up; empty for other statements."""
        reader = Reader(self.module.package)
        if isinstance(self.node, FUNCTIONS):
            for annotation in annotations_of(self.node):
                reader.annotation(annotation, ())
        return reader.uses


class Module:
    """A Python file.

    Attributes:
        name: name of the module.
        units: its top-level statements except imports.
        names: global name -> the statements that bind or change it, in order.
        imports: global name -> what it is imported from.
        stars: modules of ``from module import *``.
        imported: modules that are imported when the file is.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        text = path.read_bytes()
        self.units: list[Unit] = []
        self.names: dict[str, list[Unit]] = {}
        self.imports: dict[str, list[Import]] = {}
        self.stars: list[str] = []
        self.imported: list[str] = []
        for node in _what_runs(ast.parse(text).body):
            self._add(node)
        if b"global" in text and _GLOBAL.search(text):
            self._add_globals()
        if name == "benchwright":
            self._add_offered()
        for unit in self.units:
            for name in unit.changes & self.names.keys():
                self.names[name].append(unit)
            # A statement that changes an imported name belongs to no definition of this file.
            unit.effect |= bool(unit.sets - self.names.keys())
        for name, units in self.names.items():
            self.names[name] = sorted(set(units), key=self.units.index) if len(units) > 1 else units

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._add_import(node)
            return
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        unit = Unit(self, node)
        self.units.append(unit)
        for name in bound_by([node]).names:
            self.names.setdefault(name, []).append(unit)
        for inner in _statements_on_import(node):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                self._add_import(inner)
            else:
                unit.sets |= (sets := set(_set(inner)))
                unit.changes |= sets
                does = isinstance(inner, ast.Expr) and not isinstance(inner.value, ast.Constant)
                unit.effect |= isinstance(inner, ast.Assert | ast.Raise) or (does and not sets)
        unit.calls = list(_called_on_import(node))
        unit.changes |= {root for each in unit.calls if _is_change(each) and (root := root_of(each))}
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            unit.effect, unit.calls = False, []  # it starts the program; names that it binds count where they are looked up

    def _add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, target in imports_of(node, self.package):
            self.imported += [target.module, *([f"{target.module}.{target.name}"] if target.name else [])]
            if name == "*":
                self.stars.append(target.module)
            else:
                self.imports.setdefault(name, []).append(target)

    def _add_offered(self) -> None:
        """Add the names that ``benchwright`` imports lazily, on first use."""
        for unit in self.names.get("_PLACES", ()):
            if isinstance(unit.node, ast.Assign):
                for place, names in ast.literal_eval(unit.node.value).items():
                    for name in names:
                        self.imports.setdefault(name, []).append(Import(f"{self.name}.{place}", name))

    def _add_globals(self) -> None:
        for unit in self.units:
            for node in ast.walk(unit.node):
                for name in node.names if isinstance(node, ast.Global) else ():
                    self.names.setdefault(name, []).append(unit)


@functools.lru_cache(maxsize=4096)
def read_module(name: str, path: str, _mtime_ns: int) -> Module | None:
    """The definitions of a file, read again only when it changes; None if this interpreter cannot parse it."""
    try:
        return Module(name, Path(path))
    except (SyntaxError, ValueError):
        return None


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


def is_function(node: ast.stmt) -> bool:
    """Whether the statement defines a function or a class."""
    return isinstance(node, (*FUNCTIONS, ast.ClassDef))
