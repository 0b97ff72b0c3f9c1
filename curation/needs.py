"""Which packages stages will import, told before a run makes anything: read from the text of their code, which is not run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator

from .definitions import Module, read_module
from .extras import EXTRAS, NeedsPackage, how_to_get, missing
from .flow import Stage
from .keys import codes_in
from .lookups import imports_of
from .named import UnknownName
from .reach import Reached, reached, source_file

_NODES = (ast.Import, ast.ImportFrom)


def check_packages(stages: Iterable[Stage]) -> None:
    """Raise ``NeedsPackage`` for the first stage that will import a package of ``EXTRAS`` that is not installed.

    What its function, and functions and classes among its settings, import themselves counts, and what is imported with that.
    Of the functions that these call nothing is said: they may need a package for one kind of file alone.
    """
    if not any(map(missing, EXTRAS)):
        return
    for stage in stages:
        for module, names, code in _codes(stage):
            for importer, package in _imports(module, names & code.definitions.get(module, {}).keys()):
                if missing(package):
                    raise NeedsPackage(f"stage {stage.name!r} {how_to_get(package, importer)}")


def _codes(stage: Stage) -> Iterator[tuple[str, set[str], Reached]]:
    """Module of each function and class of a stage, the names in it that are looked at, and the code that it reaches."""
    for step in stage.steps:
        yield step.function.__module__, {step.function.__qualname__.partition(".")[0]}, step.code()
        for value in step.settings.values():
            for code in codes_in(value):
                name = code if isinstance(code, str) else f"{code.__module__}:{code.__qualname__}"
                place, _, attribute = name.rpartition(":")
                yield place, {attribute.partition(".")[0]}, reached(code)


def _imports(name: str, definitions: set[str]) -> Iterator[tuple[str, str]]:
    """(importing module, top-level package) of all that is imported with a module, and in the bodies of some definitions."""
    waiting, seen = [name], {name}
    while waiting:
        importer = waiting.pop()
        module = _read(importer)
        if module is None:
            continue
        imported = [*module.imported, *(_inner(module, definitions) if importer == name else ())]
        for each in imported:
            top = each.partition(".")[0]
            yield importer, top
            if top == "benchwright" and each not in seen:
                seen.add(each)
                waiting.append(each)


def _inner(module: Module, definitions: set[str]) -> Iterator[str]:
    for name in sorted(definitions):
        for unit in module.names.get(name, ()):
            for node in _needed(unit.node):
                for _, target in imports_of(node, module.package):
                    yield from (target.module, *([f"{target.module}.{target.name}"] if target.name else ()))


def _needed(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements inside, but for those that are tried, or only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _NODES):
            yield child
        elif not isinstance(child, ast.Try | ast.If):
            yield from _needed(child)


def _read(name: str) -> Module | None:
    try:
        file = source_file(name)
        return read_module(name, str(file), os.stat(file).st_mtime_ns) if file else None
    except (UnknownName, OSError):
        return None
