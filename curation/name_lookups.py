"""The names that a piece of code looks up and binds, read from its syntax tree without running it."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import NamedTuple

Chain = tuple[str, ...]
"""A dotted name: ``np.linalg.norm`` is ``("np", "linalg", "norm")``."""

MUTATORS = frozenset(
    {*dir(dict)} - {*dir(MappingProxyType)}
    | {*dir(list)} - {*dir(tuple)}
    | {*dir(set)} - {*dir(frozenset)}
    | {"register", "appendleft"}
) - {"copy", "fromkeys"}
"""Methods that change the object that they are called on."""

PLAIN_DECORATORS = frozenset(
    [
        "abstractmethod",
        "asynccontextmanager",
        "cache",
        "cached_property",
        "classmethod",
        "contextmanager",
        "final",
        "lru_cache",
        "overload",
        "override",
        "property",
        "setter",
        "staticmethod",
        "wraps",
    ]
)
"""Decorators that do not look at annotations."""

_PLACES = ("getLogger", "files", "Path", "dirname", "abspath", "realpath")
"""Functions to which ``__name__`` is passed as a name for messages, or ``__file__`` to find a folder of data."""

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][\w.]*\Z|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SIGNS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop)


class Import(NamedTuple):
    """``from module import name``; ``import module`` where ``name`` is empty."""

    module: str
    name: str = ""


@dataclasses.dataclass
class Uses:
    """What a piece of code looks up.

    Attributes:
        chains: dotted names that begin with a global or a builtin.
        inner: imports inside functions, with the rest of the dotted name; None for the import itself.
        references: strings that may name a module (``package.module``) or something in one (``package.module:attribute``).
        loaded: modules whose names are passed to ``importlib.import_module``.
        packages: packages of which any module may be loaded, as by ``import_module(f"{__package__}.{name}")``.
        dynamic: whether it looks up names of its own module that the code does not show, as by ``globals()``.
        writes: whether it changes a global name.
    """

    chains: set[Chain] = dataclasses.field(default_factory=set[Chain])
    inner: set[tuple[Import, Chain | None]] = dataclasses.field(default_factory=set[tuple[Import, "Chain | None"]])
    references: set[str] = dataclasses.field(default_factory=set[str])
    loaded: set[str] = dataclasses.field(default_factory=set[str])
    packages: set[str] = dataclasses.field(default_factory=set[str])
    dynamic: bool = False
    writes: bool = False


def imports_of(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    """The names that an import binds, including ``*``, each with its target."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname is None and "." in alias.name:
                yield alias.name.partition(".")[0], Import(alias.name.partition(".")[0])
            yield alias.asname or alias.name, Import(alias.name)
        return
    base = node.module or ""
    if node.level:
        try:
            base = importlib.util.resolve_name("." * node.level + base, package) if package else base
        except ImportError:
            return
    if base and base != "__future__":
        for alias in node.names:
            yield alias.asname or alias.name, Import(base, "" if alias.name == "*" else alias.name)


def children_of(node: ast.AST) -> list[ast.AST]:
    """As ``ast.iter_child_nodes``, but without operators and in half the time."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, _SIGNS):
            found.append(value)
    return found


def annotations_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    """Annotations of a function's arguments and return value."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    found = [each.annotation for each in every if each is not None] + [node.returns]
    return [each for each in found if each is not None]


def root_of(node: ast.expr) -> str | None:
    """The name at the start of an expression such as ``a.b[c].d()``; None if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _dotted(node: ast.expr) -> tuple[ast.expr, Chain]:
    """The start of an expression such as ``a.b.c``, and the names behind it."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return node, tuple(reversed(names))


@dataclasses.dataclass
class _Names:
    """What code binds in its own scope: names, imports, and the names that it declares ``global`` or ``nonlocal``."""

    names: set[str] = dataclasses.field(default_factory=set[str])
    imports: list[ast.Import | ast.ImportFrom] = dataclasses.field(default_factory=list[ast.Import | ast.ImportFrom])
    declared: set[str] = dataclasses.field(default_factory=set[str])
    outer: set[str] = dataclasses.field(default_factory=set[str])


def bound_by(nodes: Iterable[ast.AST]) -> _Names:
    """What code binds, except in functions, classes and comprehensions inside it."""
    found = _Names()
    pending = list(nodes)
    while pending:
        match node := pending.pop():
            case ast.Name():
                if not isinstance(node.ctx, ast.Load):
                    found.names.add(node.id)
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.names.add(node.name)
                continue
            case ast.Constant() | ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():  # only := binds names outside of them
                found.names |= {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}
                continue
            case ast.Import() | ast.ImportFrom():
                found.imports.append(node)
            case ast.Global():
                found.declared.update(node.names)
            case ast.Nonlocal():
                found.outer.update(node.names)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.names.add(name)
            case ast.MatchMapping(rest=str(name)):
                found.names.add(name)
            case _:
                pass
        pending.extend(children_of(node))
    return found


@dataclasses.dataclass(frozen=True)
class _Scope:
    """Names in the scope of a function: those that it binds, the targets of its imports, and those declared ``global``."""

    names: frozenset[str]
    imports: dict[str, list[Import]]
    declared: frozenset[str]


class Reader:
    """Collects what code in a package looks up. In case of doubt it reports too much, never too little."""

    def __init__(self, package: str) -> None:
        self.uses = Uses()
        self._package = package

    def visit(self, node: ast.AST, scopes: tuple[_Scope, ...]) -> None:
        """Read a node and everything inside it; ``scopes`` are those of the functions around it, the outermost first."""
        match node:
            case ast.Name():
                self._look_up((node.id,), scopes)
            case ast.Attribute():
                self._attribute(node, scopes)
            case ast.Subscript():
                self._written(node, scopes)
                self._children(node, scopes)
            case ast.Call():
                self._call(node, scopes)
            case ast.Constant():
                if isinstance(node.value, str) and _REFERENCE.match(node.value):
                    self.uses.references.add(node.value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node, scopes)
            case ast.ClassDef():
                self._class(node, scopes)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self.visit(node.generators[0].iter, scopes)  # the first iterable is evaluated in the enclosing scope
                names = frozenset(bound_by([each.target for each in node.generators]).names)
                self._children(node, (*scopes, _Scope(names, {}, frozenset())))
            case ast.Import() | ast.ImportFrom():
                for _, target in imports_of(node, self._package):
                    self.uses.inner.add((target, None))
            case ast.AnnAssign():
                for child in (node.target, node.value):
                    if child is not None:
                        self.visit(child, scopes)
            case _:
                self._children(node, scopes)

    def _children(self, node: ast.AST, scopes: tuple[_Scope, ...]) -> None:
        for child in children_of(node):
            self.visit(child, scopes)

    def annotation(self, node: ast.expr, scopes: tuple[_Scope, ...]) -> None:
        """Read an annotation, including those written as strings."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                try:
                    self.visit(ast.parse(inner.value, mode="eval"), scopes)
                except SyntaxError:  # the text of a Literal
                    continue
        self.visit(node, scopes)

    def _look_up(self, chain: Chain, scopes: tuple[_Scope, ...]) -> None:
        for scope in reversed(scopes):
            if chain[0] in scope.declared:
                break
            if chain[0] in scope.names or chain[0] in scope.imports:
                for target in scope.imports.get(chain[0], ()):
                    self.uses.inner.add((target, chain[1:]))
                return
        self.uses.chains.add(chain)
        if chain[0] in ("globals", "eval", "exec", "__name__", "__file__", "__spec__") or chain[:2] == ("sys", "modules"):
            self.uses.dynamic = True

    def _attribute(self, node: ast.Attribute, scopes: tuple[_Scope, ...]) -> None:
        self._written(node, scopes)
        inner, names = _dotted(node)
        if isinstance(inner, ast.Name):
            self._look_up((inner.id, *names), scopes)
        else:
            self.visit(inner, scopes)

    def _is_global(self, name: str | None, scopes: tuple[_Scope, ...]) -> bool:
        if name is None or not scopes:  # outside functions, a file changes its names only once, on import
            return False
        for scope in reversed(scopes):
            if name in scope.declared:
                return True
            if name in scope.names:
                return False
        return True

    def _written(self, node: ast.Attribute | ast.Subscript, scopes: tuple[_Scope, ...]) -> None:
        if not isinstance(node.ctx, ast.Load):
            root = root_of(node)
            self.uses.writes |= root == "cls" or self._is_global(root, scopes)

    def _call(self, node: ast.Call, scopes: tuple[_Scope, ...]) -> None:
        function, name = node.func, ""
        if isinstance(function, ast.Attribute):
            name, root = function.attr, root_of(function)
            self.uses.writes |= name in MUTATORS and (root == "cls" or self._is_global(root, scopes))
        elif isinstance(function, ast.Name):
            name = function.id
        if name == "setattr" and node.args and self._is_global(root_of(node.args[0]), scopes):
            self.uses.writes = True
        if name in ("vars", "locals", "dir") and not node.args:
            self.uses.dynamic = True
        if name in ("import_module", "__import__") and (node.args or node.keywords):
            self._import_module(node)
        if name in _PLACES and len(node.args) == 1 and ast.unparse(node.args[0]) in ("__name__", "__file__"):
            self.visit(function, scopes)
            return
        self._children(node, scopes)

    def _import_module(self, node: ast.Call) -> None:
        """Read a call that loads a module by name: a literal, any module of a package that the name begins with, or unknown."""
        named = node.args[0] if node.args else node.keywords[0].value
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            text = named.value
            if text.startswith(".") and self._package:
                try:
                    text = importlib.util.resolve_name(text, self._package)
                except ImportError:
                    return
            self.uses.loaded.add(text)
            return
        self.uses.dynamic = True
        start = named.left if isinstance(named, ast.BinOp) else named.values[0] if isinstance(named, ast.JoinedStr) else named
        while isinstance(start, ast.BinOp):
            start = start.left
        if isinstance(start, ast.FormattedValue):
            start = start.value
        if isinstance(start, ast.Constant) and isinstance(start.value, str):
            relative = start.value.startswith(".")
            text = self._package if relative else start.value.rpartition(".")[0]
            self.uses.packages.add(text)
        elif isinstance(start, ast.Name) and start.id in ("__package__", "__name__"):
            self.uses.packages.add(self._package)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scopes: tuple[_Scope, ...]) -> None:
        arguments = node.args
        outside = [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        if isinstance(node, FUNCTIONS):
            outside += node.decorator_list
            if any(_last_name(each) not in PLAIN_DECORATORS for each in node.decorator_list):
                for annotation in annotations_of(node):  # decorators such as functools.singledispatch or pydantic's use them
                    self.annotation(annotation, scopes)
        for each in outside:
            self.visit(each, scopes)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        scope = _scope_of(body, [each.arg for each in every if each is not None], self._package)
        # A name that is declared global is bound in the module, though no top-level statement shows it.
        self.uses.writes |= bool(scope.declared)
        for each in body:
            self.visit(each, (*scopes, scope))

    def _class(self, node: ast.ClassDef, scopes: tuple[_Scope, ...]) -> None:
        # Names bound in the class body do not hide globals: a look-up may come before they are bound.
        for each in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self.visit(each, scopes)
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                self.annotation(each.annotation, scopes)  # for example, a field of a row
            if isinstance(each, ast.Import | ast.ImportFrom):
                self.uses.inner.update((target, ()) for _, target in imports_of(each, self._package))
            self.visit(each, scopes)


def uses_of_deep(node: ast.AST, package: str) -> Uses:
    """What code looks up that is nested too deeply for ``Reader``: too much, since its scopes are not told apart."""
    uses = Uses(dynamic=True, writes=True)
    for each in ast.walk(node):
        match each:
            case ast.Name() | ast.Attribute():
                inner, names = _dotted(each)
                if isinstance(inner, ast.Name):
                    uses.chains.add((inner.id, *names))
            case ast.Import() | ast.ImportFrom():
                uses.inner.update((target, None) for _, target in imports_of(each, package))
            case ast.Constant(value=str(text)) if _REFERENCE.match(text):
                uses.references.add(text)
            case _:
                pass
    return uses


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _scope_of(body: list[ast.AST], arguments: list[str], package: str) -> _Scope:
    bound = bound_by(body)
    imports: dict[str, list[Import]] = {}
    for node in bound.imports:
        for name, target in imports_of(node, package):
            imports.setdefault(name, []).append(target)
    return _Scope(frozenset([*arguments, *bound.names]) - bound.declared - bound.outer, imports, frozenset(bound.declared))
