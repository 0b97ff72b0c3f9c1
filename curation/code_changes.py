"""Which code changed: since a stage was made, said to people in one line, and since this process imported it.

The keys decide what is made. They are read from files, and a module stays as it was imported: a notebook, or a worker of a
cluster, that imported a file before it was edited would else make rows with the old code under the key of the new.
"""

from __future__ import annotations

import os
import reprlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .artifact import Artifact, load_code
from .code_loading import began, by_value
from .definitions import Module, read_module
from .flow import Stage, StageRef
from .keys import How, Named, Where, WhereOfRows, as_json, codes_in
from .reachable_code import Definitions, code_digest, digests_of, one_look, reached, source_file
from .store import Store

_TOLD = 3
"""Definitions that are named one by one."""


def definitions(stage: Stage, *, files: bool = True) -> dict[str, dict[str, str]]:
    """Module -> definition -> short digest: all code that the stage reaches, that of functions among its settings included.

    Args:
        stage: which.
        files: with that of files that the settings name, which are loaded anew when they changed.
    """
    found: dict[str, dict[str, str]] = {}
    for step in stage.steps:
        named = [code for value in step.settings.values() for code in codes_in(value) if files or not names_file(code)]
        for code in (step.code(), *map(reached, named)):
            _add(found, code.definitions)
    return found


def names_file(code: Any) -> bool:
    """Whether it is the name of something in a file, see ``keys.named``."""
    return isinstance(code, str) and code.rpartition(":")[0].endswith(".py")


def codes(stage: Stage) -> dict[str, str]:
    """Digests of the code of a stage: of its steps, and of the functions among its settings."""
    settings = {name: as_setting(name, value) for step in stage.steps for name, value in step.all_settings().items()}
    recipe: dict[str, Any] = {"code": stage.step.code().digest, "settings": settings}
    if stage.pieces:
        recipe["pieces"] = {"code": stage.pieces.code().digest, "settings": {}}
    return codes_of(recipe)


def codes_of(recipe: Mapping[str, Any]) -> dict[str, str]:
    """As ``codes``, of a recipe."""
    pieces = recipe.get("pieces", {})
    found = {"step": recipe["code"], **({"pieces": str(pieces.get("code"))} if pieces else {})}
    settings = {**recipe["settings"], **pieces.get("settings", {})}
    return {**found, **{f"setting {name}": code for name, code in _codes_of_settings(settings)}}


def as_setting(name: str, value: Any) -> Any:
    """A setting as a recipe has it; None if only its source or input counts."""
    return None if isinstance(value, How | Where | StageRef) else as_json(name, value)


def without_code(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without the digests of code: what may not differ where something is kept that earlier code made."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(item) for name, item in value.items() if name != "code"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return plain({name: value for name, value in recipe.items() if name not in ("layouts", "named", "within")})


def change(stage: Stage, old: Artifact, store: Store) -> str:
    """The first difference between a stage and the recipe of its artifact, as far as the plan alone tells; "" for none."""
    recipe = old.recipe
    if stage.step.name != recipe["step"]:
        return f"step {stage.step.name}, which was {recipe['step']}"
    for name, value in stage.step.all_settings().items():
        new = as_setting(name, value)
        was = recipe["settings"].get(name)
        if isinstance(value, How) or (new is None and value is not None):
            continue
        if name not in recipe["settings"]:
            return f"setting {name} is new"
        if new != was and without_code({name: new}) != without_code({name: was}):
            return f"setting {name} = {reprlib.repr(new)}, which was {reprlib.repr(was)}"
    if codes(stage) == (old.kept["code"] if old.kept else codes_of(recipe)):
        return ""
    return changed_definitions(load_code(store, stage.name), definitions(stage)) or f"the code of {stage.step.name} changed"


def named_in(stage: Stage) -> dict[str, str]:
    """Settings that name code -> their references; of a file, with its path."""
    settings = [(name, value) for step in stage.steps for name, value in step.all_settings().items()]
    named = [(name, code) for name, value in settings for code in codes_in(value) if isinstance(code, Named)]
    return {f"{name} {number}": str(code) for number, (name, code) in enumerate(named)}


def recipe_change(artifact: Artifact, store: Store, known: dict[str, Definitions]) -> str:
    """What changed in the code of a stage since it was made, or kept, told without its plan; "" for nothing.

    Args:
        artifact: of the stage.
        store: where it lies.
        known: references -> what they reach, filled as they are looked up.
    """
    recipe, old = artifact.recipe, artifact.kept.get("definitions") or load_code(store, artifact.stage)
    if not old:
        return "the code that computed it is not recorded"
    steps = [recipe["step"], *([recipe["pieces"]["step"]] if recipe.get("pieces") else [])]
    references = [":".join(name.rsplit(".", 1)) for name in steps] + sorted(recipe.get("named", {}).values())
    now: dict[str, dict[str, str]] = {}
    try:
        for reference in references:
            _add(now, _reached(reference, known))
        for module, names in old.items():  # classes of settings are reached from nowhere else
            for name in names:
                if name not in ("", "*") and name not in now.get(module, {}):
                    _add(now, _reached(f"{module}:{name}", known))
    except LookupError as error:
        return str(error)
    return changed_definitions(old, now)


def _reached(reference: str, known: dict[str, Definitions]) -> Definitions:
    if reference not in known:
        known[reference] = reached(reference).definitions
    return known[reference]


def _add(found: dict[str, dict[str, str]], more: Definitions) -> None:
    for module, names in more.items():
        found.setdefault(module, {}).update(names)


def _codes_of_settings(settings: Any, *place: str) -> Iterator[tuple[str, str]]:
    """Dotted name and digest of every function or class among the settings, as a recipe has them."""
    if isinstance(settings, Mapping) and {"code", "of"} <= settings.keys():
        yield ".".join(place), str(settings["code"])
    elif isinstance(settings, Mapping | list):
        items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
        for name, value in items:
            yield from _codes_of_settings(value, *place, str(name))


def changed_definitions(old: Definitions, new: Definitions) -> str:
    """Which definitions changed, were added or removed: a few of them, and how many more; "" if nothing is known."""
    if not old:
        return ""
    lines = [*_differences(old, new)]
    more = f" and {len(lines) - _TOLD} more" if len(lines) > _TOLD else ""
    return ", ".join(lines[:_TOLD]) + more


def _differences(old: Definitions, new: Definitions) -> Iterator[str]:
    """What changed first: what was added or removed often follows from it."""
    before, after = ({(m, n): digest for m, names in each.items() for n, digest in names.items()} for each in (old, new))
    for places, verb in (
        ([at for at in after if at in before and after[at] != before[at]], "changed"),
        ([at for at in after if at not in before], "is reached now"),
        ([at for at in before if at not in after], "is no longer reached"),
    ):
        yield from (f"{_name(*place)} {verb}" for place in sorted(places, key=lambda at: (at[1] in ("", "*"), at)))


def _name(module: str, name: str) -> str:
    if name == "":
        return f"what {module} does on import"
    return f"something in {module}" if name == "*" else f"{module}.{name}"


def change_of_sources(recipe: Mapping[str, Any], old: Artifact) -> str:
    """The first difference that the sources and inputs make; ``recipe`` is the one of now."""
    for name, digest in recipe["inputs"].items():
        if old.recipe["inputs"].get(name) != digest:
            return f"its input {name} has different rows"
    for now, was in ((recipe, old.recipe), (recipe.get("pieces", {}), old.recipe.get("pieces", {}))):
        for name, value in now.get("settings", {}).items():
            if isinstance(value, Mapping) and "content" in value and value != was.get("settings", {}).get(name):
                return _source_changed(name)
    if recipe["columns"] != old.recipe.get("columns"):
        return "its columns changed"
    return "" if recipe["format"] == old.recipe.get("format") else "it was computed by another version of benchwright"


def changed_source(stage: Stage, old: Artifact) -> str:
    """The first source of a stage whose content is another than when it was made, told without its plan; "" for none."""
    for step, was in zip(stage.steps, (old.recipe, old.recipe.get("pieces", {})), strict=False):
        for name, value in step.all_settings().items():
            known = isinstance(value, Where) and not isinstance(value, WhereOfRows)  # whose place is not known before its rows
            if known and {"content": value.fingerprint().content} != was.get("settings", {}).get(name):
                return _source_changed(name)
    return ""


def _source_changed(name: str) -> str:
    return f"its source {name} changed"


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


@one_look()
def to_check(stage: Stage) -> tuple[Definitions, Mapping[str, str]]:
    """What a worker elsewhere must have as it is here: the definitions that it imports, and the digests of files that are
    named in the settings. What travels with the task is none of it.
    """
    carried = by_value()
    code = {
        name: names for name, names in definitions(stage).items() if name not in carried and digests_of(name, names) == names
    }
    return code, {each: code_digest(each) for each in named_in(stage).values() if names_file(each)}


@one_look()
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
