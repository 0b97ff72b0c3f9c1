"""The definitions of a Python file and the names that each of them looks up, read from its text: nothing is run.

A definition is a global name with every statement at the top level of the file that binds it (``def``, ``class``, assignments,
also inside ``if`` and ``try``) or changes it (``TABLE["x"] = f``, ``TABLE.update(...)``, ``@TABLE.add``). Other statements that
do something are *effects*: they count wherever the file is imported.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

Chain = tuple[str, ...]
"""A dotted name: ``np.linalg.norm`` is ``("np", "linalg", "norm")``."""

MUTATORS = frozenset(
    {*dir(dict)} - {*dir(MappingProxyType)}
    | {*dir(list)} - {*dir(tuple)}
    | {*dir(set)} - {*dir(frozenset)}
    | {"register", "appendleft"}
) - {"copy", "fromkeys"}
"""Methods that change what they are called on."""

_PLAIN_DECORATORS = frozenset(
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
"""Calls that take ``__name__`` as a name for people, or ``__file__`` to find a folder of data."""

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][\w.]*\Z|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BODIES = (*_FUNCTIONS, ast.Lambda)
_SIGNS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop)


@dataclasses.dataclass(frozen=True)
class Import:
    """``from module import name``; ``import module`` where ``name`` is empty."""

    module: str
    name: str = ""


@dataclasses.dataclass
class Uses:
    """What a piece of code looks up.

    Attributes:
        chains: dotted names that begin with a global or a builtin.
        inner: imports inside functions, with the rest of the dotted name; None for the import alone.
        references: text that may name a module (``package.module``) or something in one (``package.module:attribute``).
        loaded: modules that ``importlib.import_module`` is given by name.
        packages: packages of whose modules any may be loaded, as by ``import_module(f"{__package__}.{name}")``.
        dynamic: whether it looks up names of its own module that the text does not tell, as by ``globals()``.
        writes: whether it changes a global name.
    """

    chains: set[Chain] = dataclasses.field(default_factory=set[Chain])
    inner: set[tuple[Import, Chain | None]] = dataclasses.field(default_factory=set[tuple[Import, "Chain | None"]])
    references: set[str] = dataclasses.field(default_factory=set[str])
    loaded: set[str] = dataclasses.field(default_factory=set[str])
    packages: set[str] = dataclasses.field(default_factory=set[str])
    dynamic: bool = False
    writes: bool = False


class Unit:
    """A statement at the top level of a file.

    Attributes:
        node: the statement, without docstrings.
        calls: what it calls while the file is imported: decorators, bases, and functions.
        changes: global names that it may change without binding them.
        sets: those among them that it surely changes.
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
        """All that its code looks up, now or when it is called."""
        reader = _Reader(self.module)
        reader.visit(self.node, ())
        return reader.uses

    @functools.cached_property
    def called_on_import(self) -> frozenset[Chain]:
        """Dotted names of ``calls``."""
        return self._chains(self.calls)

    @functools.cached_property
    def changes_on_import(self) -> frozenset[Chain]:
        """Methods that may change what they are called on, such as ``TABLE.register``, among those."""
        return self._chains(each for each in self.calls if _is_change(each))

    def _chains(self, expressions: Iterable[ast.expr]) -> frozenset[Chain]:
        reader = _Reader(self.module)
        for each in expressions:
            reader.visit(each, ())
        return frozenset(reader.uses.chains)

    @functools.cached_property
    def digest(self) -> str:
        """Of its code, and of what the imported names in it stand for."""
        names = sorted({chain[0] for chain in self.uses.chains} & self.module.imports.keys())
        told = [f"{name}={target.module}:{target.name}" for name in names for target in self.module.imports[name]]
        return hashlib.sha256(repr((_told(self.node), told)).encode("utf-8", "surrogatepass")).hexdigest()

    def annotations(self) -> Uses:
        """What the annotations of a function look up, and the defaults of its arguments."""
        reader = _Reader(self.module)
        if isinstance(self.node, _FUNCTIONS):
            for annotation in _annotations(self.node):
                reader.annotation(annotation, ())
        return reader.uses


class Module:
    """A file.

    Attributes:
        name: of the module.
        units: its statements, but for imports.
        names: global name -> the statements that bind or change it, in order.
        imports: global name -> what it is imported from.
        stars: modules of ``from module import *``.
        imported: modules that are imported with the file.
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
        if b"global " in text:
            self._add_globals()
        if name == "benchwright":
            self._add_offered()
        for unit in self.units:
            for name in unit.changes & self.names.keys():
                self.names[name].append(unit)
            # What changes something imported is no part of a definition here.
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
        for name in _bound([node]).names:
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
        unit.changes |= {root for each in unit.calls if _is_change(each) and (root := _root(each))}
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            unit.effect, unit.calls = False, []  # it starts what is the program; what it binds counts where it is looked up

    def _add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, target in imports_of(node, self.package):
            self.imported += [target.module, *([f"{target.module}.{target.name}"] if target.name else [])]
            if name == "*":
                self.stars.append(target.module)
            else:
                self.imports.setdefault(name, []).append(target)

    def _add_offered(self) -> None:
        """Names that the front door imports when they are first used."""
        for unit in self.names.get("_PLACES", ()):
            if isinstance(unit.node, ast.Assign):
                for name, place in ast.literal_eval(unit.node.value).items():
                    self.imports.setdefault(name, []).append(Import(f"{self.name}.{place}", name))

    def _add_globals(self) -> None:
        for unit in self.units:
            for node in ast.walk(unit.node):
                for name in node.names if isinstance(node, ast.Global) else ():
                    self.names.setdefault(name, []).append(unit)


@functools.lru_cache(maxsize=4096)
def read_module(name: str, path: str, _mtime_ns: int) -> Module | None:
    """The definitions of a file; None where it is no Python that this interpreter reads. Read once until it changes."""
    try:
        return Module(name, Path(path))
    except (SyntaxError, ValueError):
        return None


def imports_of(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    """The names that an import binds, ``*`` among them, each with what it stands for."""
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


# -------------------------------------------------------------------------------------------------------- statements


def _what_runs(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements without what only a type checker sees."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _what_runs(node.orelse)
        else:
            yield node


def _statements_on_import(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statement and those inside it that run when the file is imported; not those of functions and classes."""
    yield node
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _statements_on_import(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for inner in child.body:
                yield from _statements_on_import(inner)


def _set(node: ast.stmt) -> Iterator[str]:
    """Names of what the statement surely changes without binding it: ``X[...] = ``, ``X.attribute = ``, ``X.update(...)``."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign() | ast.Delete():
            targets = list(node.targets)
        case ast.AugAssign() | ast.AnnAssign():
            targets = [node.target]
        case ast.Expr(value=ast.Call(func=ast.Attribute() as function)):
            yield from [root] if (root := _root(function)) else []
        case _:
            pass
    for target in [inner for each in targets for inner in ast.walk(each)]:
        if isinstance(target, ast.Subscript | ast.Attribute) and not isinstance(target.ctx, ast.Load):
            yield from [root] if (root := _root(target)) else []


def _is_change(function: ast.expr) -> bool:
    """Whether what is called on import may change what it is called on: any method as a decorator, others by their names."""
    function = function.func if isinstance(function, ast.Call) else function
    return isinstance(function, ast.Attribute) and function.attr not in _PLAIN_DECORATORS


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _called_on_import(node: ast.stmt) -> Iterator[ast.expr]:
    """Decorators, bases, and the functions of calls."""
    if isinstance(node, _FUNCTIONS):
        yield from node.decorator_list
    elif isinstance(node, ast.ClassDef):
        yield from [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        for inner in node.body:
            yield from _called_on_import(inner)
    else:
        yield from (each.func for each in _expressions(node) if isinstance(each, ast.Call))


def _expressions(node: ast.AST) -> list[ast.AST]:
    """All inside the statement but the bodies of functions."""
    found = [child for child in _children(node) if not isinstance(child, _BODIES)]
    for each in found:
        found.extend(child for child in _children(each) if not isinstance(child, _BODIES))
    return found


def _children(node: ast.AST) -> list[ast.AST]:
    """As ``ast.iter_child_nodes``, which takes twice the time, without operators."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, _SIGNS):
            found.append(value)
    return found


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    found = [each.annotation for each in every if each is not None] + [node.returns]
    return [each for each in found if each is not None]


def _told(node: Any) -> Any:
    """Code as nested tuples, without docstrings, other text that stands alone, and what is empty."""
    if isinstance(node, list):
        return [_told(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _told(value)) for name in node._fields if (value := getattr(node, name, None)) or value not in (None, [])]
    return type(node).__name__, fields


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# -------------------------------------------------------------------------------------------------------------- names


@dataclasses.dataclass
class _Names:
    """What code binds in its own scope: names, imports, and names that it declares to be of another scope."""

    names: set[str] = dataclasses.field(default_factory=set[str])
    imports: list[ast.Import | ast.ImportFrom] = dataclasses.field(default_factory=list[ast.Import | ast.ImportFrom])
    declared: set[str] = dataclasses.field(default_factory=set[str])
    outer: set[str] = dataclasses.field(default_factory=set[str])


def _bound(nodes: Iterable[ast.AST]) -> _Names:
    """What code binds; not what functions, classes and comprehensions inside it do."""
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
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():  # only := binds a name out of them
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
        pending.extend(_children(node))
    return found


@dataclasses.dataclass(frozen=True)
class _Scope:
    """Names of a function: those that it binds, and what those of its own imports stand for."""

    names: frozenset[str]
    imports: dict[str, list[Import]]
    declared: frozenset[str]


class _Reader:
    """Collects what code looks up. Where it cannot tell it says more, never less."""

    def __init__(self, module: Module) -> None:
        self.uses = Uses()
        self._module = module

    def visit(self, node: ast.AST, scopes: tuple[_Scope, ...]) -> None:
        """Read a node and all inside it; ``scopes`` are the functions around it, the outermost first."""
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
                self.visit(node.generators[0].iter, scopes)  # the first is looked up outside
                names = frozenset(_bound([each.target for each in node.generators]).names)
                self._children(node, (*scopes, _Scope(names, {}, frozenset())))
            case ast.Import() | ast.ImportFrom():
                for _, target in imports_of(node, self._module.package):
                    self.uses.inner.add((target, None))
            case ast.AnnAssign():
                for child in (node.target, node.value):
                    if child is not None:
                        self.visit(child, scopes)
            case _:
                self._children(node, scopes)

    def _children(self, node: ast.AST, scopes: tuple[_Scope, ...]) -> None:
        for child in _children(node):
            self.visit(child, scopes)

    def annotation(self, node: ast.expr, scopes: tuple[_Scope, ...]) -> None:
        """Read an annotation, also one that is written as text."""
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
        names: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self._look_up((inner.id, *reversed(names)), scopes)
        else:
            self.visit(inner, scopes)

    def _is_global(self, name: str | None, scopes: tuple[_Scope, ...]) -> bool:
        if name is None or not scopes:  # outside of functions a file changes its names once, when it is imported
            return False
        for scope in reversed(scopes):
            if name in scope.declared:
                return True
            if name in scope.names:
                return False
        return True

    def _written(self, node: ast.Attribute | ast.Subscript, scopes: tuple[_Scope, ...]) -> None:
        if not isinstance(node.ctx, ast.Load):
            root = _root(node)
            self.uses.writes |= root == "cls" or self._is_global(root, scopes)

    def _call(self, node: ast.Call, scopes: tuple[_Scope, ...]) -> None:
        function, name = node.func, ""
        if isinstance(function, ast.Attribute):
            name, root = function.attr, _root(function)
            self.uses.writes |= name in MUTATORS and (root == "cls" or self._is_global(root, scopes))
        elif isinstance(function, ast.Name):
            name = function.id
        if name == "setattr" and node.args and self._is_global(_root(node.args[0]), scopes):
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
        """A module that is loaded by name: that of a literal, any of a package where the text begins with it, or unknown."""
        named = node.args[0] if node.args else node.keywords[0].value
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            text = named.value
            if text.startswith(".") and self._module.package:
                try:
                    text = importlib.util.resolve_name(text, self._module.package)
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
            text = self._module.package if relative else start.value.rpartition(".")[0]
            self.uses.packages.add(text)
        elif isinstance(start, ast.Name) and start.id in ("__package__", "__name__"):
            self.uses.packages.add(self._module.package)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scopes: tuple[_Scope, ...]) -> None:
        arguments = node.args
        outside = [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        if isinstance(node, _FUNCTIONS):
            outside += node.decorator_list
            if any(_last_name(each) not in _PLAIN_DECORATORS for each in node.decorator_list):
                for annotation in _annotations(node):  # such as of functools.singledispatch, or pydantic
                    self.annotation(annotation, scopes)
        for each in outside:
            self.visit(each, scopes)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        scope = _scope_of(body, [each.arg for each in every if each is not None], self._module.package)
        # What is declared global is bound there, at no place that the file's own statements tell.
        self.uses.writes |= bool(scope.declared)
        for each in body:
            self.visit(each, (*scopes, scope))

    def _class(self, node: ast.ClassDef, scopes: tuple[_Scope, ...]) -> None:
        # Names of the class's own body hide no global: a look-up there may come before they are bound.
        for each in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self.visit(each, scopes)
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                self.annotation(each.annotation, scopes)  # a field of a row, say
            if isinstance(each, ast.Import | ast.ImportFrom):
                self.uses.inner.update((target, ()) for _, target in imports_of(each, self._module.package))
            self.visit(each, scopes)


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _scope_of(body: list[ast.AST], arguments: list[str], package: str) -> _Scope:
    bound = _bound(body)
    imports: dict[str, list[Import]] = {}
    for node in bound.imports:
        for name, target in imports_of(node, package):
            imports.setdefault(name, []).append(target)
    return _Scope(frozenset([*arguments, *bound.names]) - bound.declared - bound.outer, imports, frozenset(bound.declared))


def is_function(node: ast.stmt) -> bool:
    """Whether the statement defines a function or a class."""
    return isinstance(node, (*_FUNCTIONS, ast.ClassDef))
