"""Names of code: built in, provided by an installed package, or written out as ``module:attribute``.

Wherever settings, the command line or Python name a benchmark, an encoder, a method, a model, ..., three forms work: a built-in
name; a name that an installed package provides by an entry point of the group ``benchwright.<kind>s``; and
``package.module:attribute`` or ``path/to/file.py:attribute``. Importing a module registers nothing, and looking up a name
imports nothing.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib.metadata
import inspect
import math
import numbers
import operator
import os
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from annotated_types import Interval

from .code_loading import UnknownName, load
from .name_lookups import imports_of
from .reachable_code import source_file

_P = ParamSpec("_P")
_T = TypeVar("_T")

BUILT_IN = "built-in"

_WRITTEN_OUT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FITS = re.compile(r"^\s*Fits: (.+?)\.?$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Entry:
    """The code that a name refers to.

    Attributes:
        kind: as in ``Registry``.
        name: the name as written in settings; for a file, with the absolute path.
        reference: ``package.module:attribute`` or ``/path/to/file.py:attribute``.
        origin: ``built-in``, the package and version that provides it, or "" if the name itself gives the location of the code.
        hidden: provided by a package, but not reachable by this name, because a built-in entry has the same name.
        fits: what it can be used for, if its docstring does not say so.
    """

    kind: str
    name: str
    reference: str
    origin: str
    hidden: bool = False
    fits: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Registry:
    """All names of one kind.

    Attributes:
        kind: the kind in the singular, such as ``method``.
        builtin: name -> ``package.module:attribute``.
        fits: built-in name -> what it can be used for, if its docstring does not say so.
        attribute: attribute to look up in a file or module that is named without one.
        former: former name that is still accepted -> built-in name.
    """

    kind: str
    builtin: Mapping[str, str]
    fits: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    attribute: str = ""
    former: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def group(self) -> str:
        """Name of the entry point group by which packages provide further names."""
        return f"benchwright.{self.kind}s"

    def only(self, *names: str) -> Registry:
        """The registry restricted to these built-in names."""
        return dataclasses.replace(self, builtin={name: self.builtin[name] for name in names})

    def entries(self) -> Iterator[Entry]:
        """All built-in entries, then those that installed packages provide."""
        for name in self.builtin:
            yield self._builtin(name)
        yield from self._offered()

    def present(self, name: str) -> str:
        """The current name for a former one; any other name unchanged."""
        return self.former.get(name, name)

    def find(self, name: str) -> Entry:
        """Look up a name in one of the three forms. Nothing is imported.

        Raises:
            UnknownName: the name or the file does not exist, or several packages provide the name.
        """
        name = self.present(name)
        if name in self.builtin:
            return self._builtin(name)
        offered = [entry for entry in self._offered() if entry.name == name]
        if len(offered) > 1:
            packages = " and ".join(entry.origin for entry in offered)
            raise UnknownName(f"{self.kind} {name!r} is offered by {packages}: name it as module:attribute")
        return offered[0] if offered else self._written_out(name)

    def _builtin(self, name: str) -> Entry:
        return Entry(self.kind, name, self.builtin[name], BUILT_IN, fits=self.fits.get(name, ""))

    def _offered(self) -> Iterator[Entry]:
        points = [each for each in _entry_points(self.group) if each.pattern.match(each.value)]
        for point in sorted(points, key=lambda each: (each.name, each.value)):
            package = f"{point.dist.name} {point.dist.version}" if point.dist else point.module
            reference = f"{point.module}:{point.attr or self.attribute}"
            yield Entry(self.kind, point.name, reference, package, hidden=point.name in self.builtin)

    def _written_out(self, name: str) -> Entry:
        place, colon, attribute = name.rpartition(":")
        if not colon and self.attribute and name.endswith(".py"):
            place, attribute = name, self.attribute
        if place and _WRITTEN_OUT.fullmatch(attribute):
            if place.endswith(".py"):
                path = Path(os.path.realpath(place))
                if not path.is_file():
                    raise UnknownName(f"{self.kind} {place!r}: no such file")
                return Entry(self.kind, f"{path}:{attribute}", f"{path}:{attribute}", "")
            if _WRITTEN_OUT.fullmatch(place):
                return Entry(self.kind, name, name, "")
        known = sorted({entry.name for entry in self.entries()})
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        own = f"path/to/file.py:{self.attribute or 'NAME'}"
        if not known:
            raise UnknownName(f"no {self.kind} {name!r}: name your own as {own} or module:NAME")
        raise UnknownName(
            f"no {self.kind} {name!r}: there are {', '.join(known)}, or name your own as {own} or module:NAME"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )


def _entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return _of_path(tuple(map(_as_it_is, sys.path))).get(group, ())


def _as_it_is(folder: str) -> tuple[str, int]:
    """Absolute path and modification time (ns) of a folder; the time changes when packages are installed or removed."""
    try:
        return os.path.abspath(folder), os.stat(folder or ".").st_mtime_ns
    except OSError:
        return folder, 0


@functools.lru_cache(maxsize=1)
def _of_path(_path: tuple[tuple[str, int], ...]) -> dict[str, tuple[importlib.metadata.EntryPoint, ...]]:
    """Entry points of all packages by group. Cached: this reads a file of each package, and a run asks a hundred times."""
    points = importlib.metadata.entry_points()
    return {group: tuple(points.select(group=group)) for group in points.groups if group.startswith("benchwright.")}


# Functions, not methods: methods would make the code that they reach part of the key of everything with a registry or an entry.


def load_name(registry: Registry, name: str) -> Any:
    """Load the function or class that a name refers to. Raises ``UnknownName`` if there is none."""
    return load_entry(registry.find(name))


def load_entry(entry: Entry, *, called: bool = True) -> Any:
    """Load the function or class of an entry, or its value if not ``called``. Raises ``UnknownName``: see ``load``."""
    try:
        return load(entry.reference, called=called)
    except UnknownName as error:
        raise UnknownName(f"{entry.kind} {error}") from error.__cause__


def file_of(entry: Entry) -> Path | None:
    """The file that contains the entry's code; None if there is none."""
    place = entry.reference.rpartition(":")[0]
    return Path(place) if place.endswith(".py") else source_file(place)


def described(entry: Entry) -> tuple[str, str]:
    """What the entry can be used for, and the first paragraph of its docstring as one line. The code is read, not run."""
    place, _, attribute = entry.reference.rpartition(":")
    text = _docstring(file_of(entry), place, attribute)
    fits = _FITS.search(text)
    first = " ".join(text.partition("\n\n")[0].split())
    return entry.fits or (fits[1] if fits else ""), "" if first.startswith("Fits:") else first


def _docstring(file: Path | None, module: str, attribute: str, depth: int = 0) -> str:
    """Docstring of a function or class; for a value, the ``title`` in its constructor call, or its module's docstring."""
    tree = _parsed(str(file)) if file is not None else None
    if tree is None:
        return ""
    first = attribute.partition(".")[0]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == first:
            return inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        if isinstance(node, ast.Assign | ast.AnnAssign) and first in _targets(node):
            return _title(node.value) or inspect.cleandoc(ast.get_docstring(tree, clean=False) or "")
        if isinstance(node, ast.ImportFrom) and depth < 4 and not module.endswith(".py"):
            for name, target in imports_of(node, module if file and file.name == "__init__.py" else module.rpartition(".")[0]):
                if name == first and target.name:
                    return _docstring(source_file(target.module), target.module, target.name, depth + 1)
    return ""


@functools.lru_cache(maxsize=256)
def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _title(value: ast.expr | None) -> str:
    keywords = value.keywords if isinstance(value, ast.Call) else []
    titles = [each.value for each in keywords if each.arg == "title"]
    return next((str(each.value) for each in titles if isinstance(each, ast.Constant)), "")


def check_arguments(
    function: Callable[..., Any], settings: Mapping[str, Any], *, given: Iterable[str] = (), partial: bool = False
) -> None:
    """Raise ``ValueError`` if a function does not take one of the settings, or a required one is missing.

    The message names the first such setting, and all settings that the function takes.

    Args:
        function: the function.
        settings: keyword arguments for the function.
        given: names of arguments that are passed in addition to the settings.
        partial: whether further settings may be passed later, so that none counts as missing.

    >>> def ewc(*, strength: float, online: bool = False): ...
    >>> check_arguments(ewc, {"strength": 3.0})
    >>> check_arguments(ewc, {"strenght": 3.0})
    Traceback (most recent call last):
        ...
    ValueError: strenght = 3.0: there is no such setting: there are strength, online; did you mean 'strength'?
    >>> check_arguments(ewc, {})
    Traceback (most recent call last):
        ...
    ValueError: strength is missing: there are strength, online
    """
    given = set(given)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in given]
    named = [each for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    available = f"there are {', '.join(each.name for each in named)}" if named else "there are none"
    known = {each.name for each in named}
    unknown = [name for name in settings if name not in known]
    if unknown and not any(each.kind == each.VAR_KEYWORD for each in parameters):
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.6)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        value = reprlib.repr(settings[unknown[0]])
        raise ValueError(f"{unknown[0]} = {value}: there is no such setting: {available}{meant}")
    if missing := [each.name for each in named if each.default is each.empty and each.name not in settings and not partial]:
        raise ValueError(f"{missing[0]} is missing: {available}")


def check_values(function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if one of the settings does not fit the annotation of its argument, or of the field of a dataclass.

    Checked are ``Literal``, ``int``, ``float``, ``bool``, ``str``, ``None``, tuples, unions of these, and ``Annotated`` with an
    ``annotated_types.Interval``, such as ``Interval(ge=1, le=9)``: numbers are finite, a whole number is also a float, and a
    list also a tuple. Every value fits any other annotation, and a default its argument.

    >>> def lwf(*, strength: float, form: Literal["as_written", "as_released"] = "as_written"): ...
    >>> check_values(lwf, {"strength": 3, "form": "as_released"})
    >>> check_values(lwf, {"strength": 3, "form": "as_relaesed"})
    Traceback (most recent call last):
        ...
    ValueError: form = 'as_relaesed': expected 'as_written' or 'as_released'
    """
    called: Callable[..., Any] = function
    if not inspect.isroutine(function):
        called = function.__init__ if inspect.isclass(function) else type(function).__call__
    try:
        hints, parameters = typing.get_type_hints(called, include_extras=True), inspect.signature(called).parameters
    except Exception:  # no function, or annotations that only a type checker can read: they may raise anything
        return
    for name, value in settings.items():
        hint, default = hints.get(name, Any), parameters[name].default if name in parameters else inspect.Parameter.empty
        if not _fits(value, hint) and not (type(value) is type(default) and value == default):
            raise ValueError(f"{name} = {reprlib.repr(value)}: expected {_shown(hint)}")


def checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function: ``check_values`` precedes each call.

    >>> @checked
    ... def lwf(*, form: Literal["as_written", "as_released"] = "as_written"): ...
    >>> lwf(form="as_relaesed")
    Traceback (most recent call last):
        ...
    ValueError: form = 'as_relaesed': expected 'as_written' or 'as_released'
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        check_values(function, inspect.signature(function).bind_partial(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    return call


def _fits(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _fits(value, args[0]) and all(_within(value, each) for each in args[1:] if isinstance(each, Interval))
    if origin is Literal:
        return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in args)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in args)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        kinds = args[:1] * len(value) if args[1:] == (...,) else args
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if hint in (int, float):
        whole = isinstance(value, numbers.Integral)
        if whole or hint is int:
            return whole and not isinstance(value, bool)
        return isinstance(value, numbers.Real) and math.isfinite(value)
    return hint not in (bool, str, type(None)) or isinstance(value, hint)


_RULES = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def _limits(interval: Interval) -> list[tuple[str, Any]]:
    limits = zip(_RULES, (interval.gt, interval.ge, interval.lt, interval.le), strict=True)
    return [(rule, limit) for rule, limit in limits if limit is not None]


def _in_words(interval: Interval) -> str:
    limits = _limits(interval)
    whole = f"from {interval.ge} to {interval.le}" if [rule for rule, _ in limits] == [">=", "<="] else ""
    return whole or " and ".join(f"{rule} {limit}" for rule, limit in limits)


def _within(value: Any, interval: Interval) -> bool:
    return all(_RULES[rule](value, limit) for rule, limit in _limits(interval))


def _shown(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        limits = [f" {_in_words(each)}" for each in args[1:] if isinstance(each, Interval)]
        return "".join([_shown(args[0]), *limits])
    if origin is tuple:
        return f"[{', '.join('...' if each is ... else _shown(each) for each in args)}]"
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_shown, args))
    names = {bool: "true or false", type(None): "None"}
    return names.get(hint) or getattr(hint, "__name__", str(hint))
