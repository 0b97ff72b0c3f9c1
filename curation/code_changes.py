"""Which code changed since a stage was made, in one line for messages, and since this process imported it.

Keys are computed from files, but a module stays as it was imported. Without these checks, a notebook or a cluster worker that
imported a file before an edit would make rows with the old code under the key of the new code.
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
"""Maximum number of definitions that a message names."""


def definitions(stage: Stage, *, files: bool = True) -> dict[str, dict[str, str]]:
    """Module -> definition -> short digest of all code that the stage reaches, including that of functions among its settings.

    Args:
        stage: the stage.
        files: whether to include the code of files that the settings name; these are reloaded when they change.
    """
    found: dict[str, dict[str, str]] = {}
    for step in stage.steps:
        named = [code for value in step.settings.values() for code in codes_in(value) if files or not names_file(code)]
        for code in (step.code(), *map(reached, named)):
            _add(found, code.definitions)
    return found


def names_file(code: Any) -> bool:
    """Whether ``code`` is the name of something in a file, see ``keys.named``."""
    return isinstance(code, str) and code.rpartition(":")[0].endswith(".py")


def codes(stage: Stage) -> dict[str, str]:
    """Digests of the code of a stage's steps and of the functions and classes among its settings."""
    settings = {name: as_setting(name, value) for step in stage.steps for name, value in step.all_settings().items()}
    recipe: dict[str, Any] = {"code": stage.step.code().digest, "settings": settings}
    if stage.pieces:
        recipe["pieces"] = {"code": stage.pieces.code().digest, "settings": {}}
    return codes_of(recipe)


def codes_of(recipe: Mapping[str, Any]) -> dict[str, str]:
    """As ``codes``, but from a recipe."""
    pieces = recipe.get("pieces", {})
    found = {"step": recipe["code"], **({"pieces": str(pieces.get("code"))} if pieces else {})}
    settings = {**recipe["settings"], **pieces.get("settings", {})}
    return {**found, **{f"setting {name}": code for name, code in _codes_of_settings(settings)}}


def as_setting(name: str, value: Any) -> Any:
    """A setting as it appears in a recipe; None for ``How``, sources and inputs."""
    return None if isinstance(value, How | Where | StageRef) else as_json(name, value)


def without_code(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without the digests of code: the part that must be the same to keep an artifact that earlier code made."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(item) for name, item in value.items() if name != "code"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return plain({name: value for name, value in recipe.items() if name not in ("layouts", "named", "within")})


def change(stage: Stage, old: Artifact, store: Store) -> str:
    """The first difference between a stage and its artifact's recipe that the plan shows, without its sources; "" for none."""
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
    """References of all code that the settings name, by setting and number; for files, with their paths."""
    settings = [(name, value) for step in stage.steps for name, value in step.all_settings().items()]
    named = [(name, code) for name, value in settings for code in codes_in(value) if isinstance(code, Named)]
    return {f"{name} {number}": str(code) for number, (name, code) in enumerate(named)}


def recipe_change(artifact: Artifact, store: Store, known: dict[str, Definitions]) -> str:
    """What changed in the code of a stage since it was made or kept, determined without its plan; "" for nothing.

    Args:
        artifact: artifact of the stage.
        store: store of the run.
        known: cache: reference -> definitions that it reaches.
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
        for module, names in old.items():  # classes of settings are not reached from the steps
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
    """Dotted name and digest of every function or class among the settings of a recipe."""
    if isinstance(settings, Mapping) and {"code", "of"} <= settings.keys():
        yield ".".join(place), str(settings["code"])
    elif isinstance(settings, Mapping | list):
        items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
        for name, value in items:
            yield from _codes_of_settings(value, *place, str(name))


def changed_definitions(old: Definitions, new: Definitions) -> str:
    """Message on definitions that were changed, added or removed: the first few and the number of others; "" if ``old`` is
    empty or nothing differs.
    """
    if not old:
        return ""
    lines = [*_differences(old, new)]
    more = f" and {len(lines) - _TOLD} more" if len(lines) > _TOLD else ""
    return ", ".join(lines[:_TOLD]) + more


def _differences(old: Definitions, new: Definitions) -> Iterator[str]:
    """Yield the changed definitions first: additions and removals often follow from them."""
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
    """The first difference in sources, inputs, columns or format; ``recipe`` is the current recipe. "" for none."""
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
    """Message on the first source of a stage whose content changed since the stage was made; "" for none."""
    for step, was in zip(stage.steps, (old.recipe, old.recipe.get("pieces", {})), strict=False):
        for name, value in step.all_settings().items():
            known = isinstance(value, Where) and not isinstance(value, WhereOfRows)  # its path depends on rows
            if known and {"content": value.fingerprint().content} != was.get("settings", {}).get(name):
                return _source_changed(name)
    return ""


def _source_changed(name: str) -> str:
    return f"its source {name} changed"


_imported: dict[str, tuple[int, Module]] = {}
"""Module -> when it was imported, and its file's definitions at that time, if ``edited`` read them before an edit."""


def edited(code: Definitions) -> str:
    """Message on the first of these definitions, or its file, that was edited after this process imported it; "" for none."""
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
        if changed := [each for each in sorted(names) if _digests_of(known[1], each) != _digests_of(read, each)]:
            what = f"{name}.{changed[0]}" if changed[0] not in ("", "*") else str(file)
            return f"{what} was edited after this process imported it"
    return ""


def in_no_file(stage: Stage) -> str:
    """The first function or class of a stage that was defined in a notebook or shell, so that no key covers its code; or ""."""
    for step in stage.steps:
        for code in (step.function, *(code for value in step.settings.values() for code in codes_in(value))):
            if getattr(code, "__module__", "") == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
                return str(code.__qualname__)
    return ""


def _digests_of(module: Module, name: str) -> list[str]:
    if name == "":
        return [unit.digest for unit in module.units if unit.effect]
    return [unit.digest for unit in (module.units if name == "*" else module.names.get(name, ()))]


@one_look()
def to_check(stage: Stage) -> tuple[Definitions, Mapping[str, str]]:
    """Code that must be the same on a worker's machine: the definitions that it imports, and digests of files that the settings
    name. Code that is sent with the task is excluded.
    """
    carried = by_value()
    code = {
        name: names for name, names in definitions(stage).items() if name not in carried and digests_of(name, names) == names
    }
    return code, {each: code_digest(each) for each in named_in(stage).values() if names_file(each)}


@one_look()
def differs(code: Definitions, files: Mapping[str, str]) -> str:
    """Message on the first definition or file that differs here from ``to_check`` on the machine of the run; "" for none."""
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
