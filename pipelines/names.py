"""Settings that name code: see ``curation.registry``. Names are looked up when settings are read, without loading the code."""

from __future__ import annotations

import contextlib
import filecmp
import itertools
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..curation.code_loading import UnknownName
from ..curation.registry import BUILT_IN, Entry, Registry
from .errors import WrongUse, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class OneOf:
    """Marks a text as a name of a registry: ``method: Annotated[str, OneOf(METHODS)]``.

    The value is the name; for code in a file, with the whole path. In a TOML file, a relative path is relative to the file.

    Attributes:
        registry: registry for the lookup.
        also: other names that the benchmark accepts, such as those of a paper's tables.
        suffix: optional suffix of names, such as ``+tc``.

    >>> from benchwright.training.models.registry import MODELS
    >>> from pydantic import TypeAdapter
    >>> TypeAdapter(typing.Annotated[str, OneOf(MODELS)]).validate_python("mlp")
    'mlp'
    """

    registry: Registry
    also: tuple[str, ...] = ()
    suffix: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str, info: Any) -> str:
        if value in self.also:
            return value
        plain = value.removesuffix(self.suffix)
        if self.also and ":" not in plain:
            own = "or your own path/to/file.py:NAME or module:NAME"
            reference_of(self.registry, plain, [*self.also, *self.registry.builtin], own)  # its error lists the others, too
        return _found(self.registry, plain, info).name + value[len(plain) :]


def known_keys(registry: Registry, also: Iterable[str] = (), suffix: str = "") -> Callable[[Mapping[str, T]], Mapping[str, T]]:
    """Check for a table of settings by name: of a registry, or in ``also``; code in a file may be named without a folder."""
    others = tuple(also)

    def checked(settings: Mapping[str, T]) -> Mapping[str, T]:
        for name in (each.removesuffix(suffix) for each in settings):
            if ":" not in name and name not in others:
                reference_of(registry, name, [*others, *registry.builtin])
        return settings

    return checked


@dataclass(frozen=True)
class ByKind:
    """Marks a union of tables, distinguished by ``kind``: ``Annotated[A | B | Own, ByKind(REGISTRY)]``. The last is for user
    code: it has ``kind: str``, and is used if no other table has that kind.
    """

    registry: Registry

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        *known, own = typing.get_args(source)
        kinds = {kind: each for each in known for kind in typing.get_args(typing.get_type_hints(each)["kind"])}
        registry = self.registry.only(*kinds)

        def named(values: Any, info: Any) -> Any:
            if not isinstance(values, Mapping):
                return values
            given = typing.cast("Mapping[str, Any]", values)
            return {**given, "kind": _found(registry, str(given["kind"]), info).name}

        def kind(values: Any) -> str | None:
            table = typing.cast("Mapping[str, Any]", values) if isinstance(values, Mapping) else {}
            given = table.get("kind", getattr(values, "kind", None))
            return None if not isinstance(given, str) else given if given in kinds else OF_ONES_OWN

        choices = {kind: handler.generate_schema(each) for kind, each in kinds.items()}
        choices[OF_ONES_OWN] = core_schema.with_info_before_validator_function(named, handler.generate_schema(own))
        return core_schema.tagged_union_schema(choices, discriminator=kind)


OF_ONES_OWN = "of one's own"
"""Stands for the last table of such a union in the location of an error."""


def _found(registry: Registry, name: str, info: Any) -> Entry:
    entry = registry.find(name)
    if info.context is not None and entry.origin != BUILT_IN:
        typing.cast("list[Entry]", info.context).append(entry)
    return entry


def reference_of(registry: Registry, name: str, known: Iterable[str], *more: str) -> str:
    """Reference of the code that a name stands for. Raises ``WrongUse`` if there is none, with the ``known`` names, those of
    installed packages, and what ``more`` says.
    """
    listed = f"`benchwright list {registry.kind}s`, or name your own as path/to/file.py:NAME or module:NAME"
    try:
        return registry.find(name).reference
    except UnknownName as error:
        offered = [entry.name for entry in registry.entries() if entry.origin != BUILT_IN]
        there = ":" in name or name in {*registry.builtin, *offered}  # by itself, or of several packages
        raise (
            WrongUse(str(error)) if there else unknown(registry.kind, name, [*known, *offered, *more], listed=listed)
        ) from None


def beside(name: str, base: Path) -> str:
    """A name of code in a file, with its path relative to ``base``; any other name unchanged."""
    place, colon, attribute = name.rpartition(":")
    return f"{base / place}:{attribute}" if colon and place.endswith(".py") and not Path(place).is_absolute() else name


def short(name: str) -> str:
    """A name for tables: code in a file is named without its folders, which differ between machines.

    >>> short("/home/me/mine.py:calm"), short("reservoir")
    ('mine.py:calm', 'reservoir')
    """
    place, colon, attribute = name.rpartition(":")
    return f"{Path(place).name}:{attribute}" if colon and place.endswith(".py") else name


def file_reference(name: str, references: Iterable[str]) -> str:
    """The one of these references that is code in a file and has this name, with or without folders; "" if there is none.

    >>> file_reference("mine.py:calm", ["package.er:er", "/home/me/mine.py:calm"]), file_reference("er", ["package.er:er"])
    ('/home/me/mine.py:calm', '')
    """
    if not name.rpartition(":")[0].endswith(".py"):
        return ""
    return next((each for each in references if each.startswith("/") and short(each) == short(name)), "")


def name_apart(reference: str, known: Mapping[str, str]) -> str:
    """A name for code in a file, with as few of its folders as distinguish it from code in other files.

    Args:
        reference: ``/path/to/file.py:attribute``.
        known: references that have names already -> their names, which stay. A file that no longer exists has been moved, and
            one of the same content is a copy: its name is used again.

    >>> name_apart("/dev/b/mine.py:calm", {})
    'mine.py:calm'
    """
    if reference in known:
        return known[reference]
    place, _, attribute = reference.rpartition(":")
    parts = Path(place).parts[1:]
    for count in range(1, len(parts)):
        name = f"{Path(*parts[-count:])}:{attribute}"
        if all(_is_copy(place, other.rpartition(":")[0]) for other, taken in known.items() if taken == name):
            return name
    return reference


def _is_copy(file: str, of: str) -> bool:
    """Whether a file is a copy of another, or the other does not exist any longer."""
    with contextlib.suppress(OSError):
        return filecmp.cmp(file, of, shallow=False)
    return True


def settings_for(name: str, tables: Mapping[str, T], default: T, present: Callable[[str], str] = str) -> T:
    """What tables by name have for ``name``. A key may be a former name, or a file name with or without its folder; of several
    keys with the same file name, the one whose folders fit.

    Raises:
        WrongUse: several keys fit equally.

    >>> settings_for("/home/me/mine.py:calm", {"mine/mine.py:calm": {"strength": 0.2}}, {})
    {'strength': 0.2}
    >>> settings_for("/home/b/mine.py:calm", {"a/mine.py:calm": {"strength": 0.2}, "b/mine.py:calm": {"strength": 0.1}}, {})
    {'strength': 0.1}
    """
    if name in tables:
        return tables[name]
    alike = [key for key in tables if short(present(key)) == short(name)]
    fit = {key: _folders_alike(key, name) for key in alike}
    best = [key for key in alike if fit[key] == max(fit.values())]
    best = [key for key in best if key == short(key)] or best
    if len(best) > 1:
        raise WrongUse(f"settings of {best[0]!r} and of {best[1]!r} both fit {name!r}: name the file there with its whole path")
    return tables[best[0]] if best else default


def _folders_alike(one: str, other: str) -> int:
    """In how many folders above the file two names agree."""
    pairs = zip(*(reversed(Path(name.rpartition(":")[0]).parts[:-1]) for name in (one, other)), strict=False)
    return len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])


def quoted(name: str) -> str:
    """A name as a part of a dotted name in TOML.

    >>> quoted("ewc"), quoted("reservoir-alpha=1.0-finetune")
    ('ewc', '"reservoir-alpha=1.0-finetune"')
    """
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else f'"{name}"'
