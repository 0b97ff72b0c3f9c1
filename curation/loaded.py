"""Whether a process runs the code that a key was made from: keys are read from files, and a module stays as it was imported.

A notebook, or a worker of a cluster, that imported a file before it was edited would else make rows with the old code under
the key of the new.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

from .definitions import Module, read_module
from .flow import Stage
from .import_times import began
from .keys import codes_in
from .named import by_value
from .reach import Definitions, code_digest, digests_of, source_file
from .stale import definitions, named_in, names_file

_imported: dict[str, tuple[int, Module]] = {}
"""Module -> when it was imported, and its file as it was then, as far as it was looked at before an edit."""


def edited(code: Definitions) -> str:
    """The first of these definitions, or its file, of which this process holds what it was before an edit; "" for none."""
    for name, names in code.items():
        module, file = sys.modules.get(name), source_file(name)
        if module is None or file is None:
            continue
        try:
            facts = os.stat(file)
        except OSError:
            continue
        read, since = read_module(name, str(file), facts.st_mtime_ns), began(module.__name__)
        if read is None:
            continue
        if (facts.st_ctime_ns if os.name == "posix" else facts.st_mtime_ns) <= since:
            _imported[name] = (since, read)
            continue
        known = _imported.get(name)
        if known is None or known[0] != since:
            return f"{file} was edited after this process imported it"
        if changed := [each for each in sorted(names) if _told(known[1], each) != _told(read, each)]:
            what = f"{name}.{changed[0]}" if changed[0] not in ("", "*") else str(file)
            return f"{what} was edited after this process imported it"
    return ""


def in_no_file(stage: Stage) -> str:
    """The first function or class of a stage that was typed in, in a notebook or a shell, whose code no key can have; or ""."""
    for step in stage.steps:
        for code in (step.function, *(code for value in step.settings.values() for code in codes_in(value))):
            if getattr(code, "__module__", "") == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
                return str(code.__qualname__)
    return ""


def _told(module: Module, name: str) -> list[str]:
    if name == "":
        return [unit.digest for unit in module.units if unit.effect]
    return [unit.digest for unit in (module.units if name == "*" else module.names.get(name, ()))]


def to_check(stage: Stage) -> tuple[Definitions, Mapping[str, str]]:
    """What a worker elsewhere must have as it is here: the definitions that it imports, and the digests of files that are
    named in the settings. What travels with the task is none of it.
    """
    carried = by_value()
    code = {
        name: names for name, names in definitions(stage).items() if name not in carried and digests_of(name, names) == names
    }
    return code, {each: code_digest(each) for each in named_in(stage).values() if names_file(each)}


def differs(code: Definitions, files: Mapping[str, str]) -> str:
    """The first definition that this process has otherwise than ``to_check`` had it where the key was made; "" for none."""
    return edited(code) or next(_others(code, files), "")


def _others(code: Definitions, files: Mapping[str, str]) -> Iterator[str]:
    for name, names in code.items():
        here = digests_of(name, names)
        for each in sorted(names):
            if here.get(each) != names[each]:
                what = f"{name}.{each}" if each not in ("", "*") else name
                yield f"{what} differs here from the machine that started the run"
    for reference, digest in files.items():
        place = reference.rpartition(":")[0]
        if os.path.isfile(place) and code_digest(reference) != digest:
            yield f"{place} differs here from the machine that started the run"
