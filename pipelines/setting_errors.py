"""Explanations of invalid settings for users who write TOML, and the dataclass that a table of settings is read into."""

from __future__ import annotations

import dataclasses
import reprlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import ValidationError

from .errors import did_you_mean
from .names import OF_ONES_OWN


def explained(config_type: type, values: Any, error: ValidationError) -> tuple[list[str], str]:
    """The place of the first invalid setting; and a message with its name, its value and the rule, for users who write TOML."""
    # A misspelt name comes first: it may be the setting that is reported as missing.
    found = sorted(error.errors(), key=lambda each: each["type"] != "unexpected_keyword_argument")
    place, input_ = _place(values, found[0]["loc"]), found[0]["input"]
    if found[0]["loc"][-1:] == (OF_ONES_OWN,):  # the name of its kind is looked up before its settings are checked
        place, input_ = [*place, "kind"], input_["kind"]
    if found[0]["type"] == "missing":
        missing = [".".join(_place(values, each["loc"])) for each in found if each["type"] == "missing"]
        return place, _missing(list(dict.fromkeys(missing)))
    here = [each for each in found if each["loc"] == found[0]["loc"] or _place(values, each["loc"]) == place]
    rules = " or ".join(dict.fromkeys(_rule(config_type, values, each) for each in here))
    more = f" (and {len(found) - len(here)} more)" if len(found) > len(here) else ""
    shown = "" if found[0]["type"] in _WITHOUT_VALUE else f" = {reprlib.repr(input_)}"
    return place, f"{'.'.join(place) or 'the settings'}{shown}: {rules}{more}"


def _missing(names: Sequence[str]) -> str:
    which, them = ("this setting is", "it") if len(names) == 1 else ("these settings are", "them")
    options = " ".join(f"--set {name}=..." for name in names)
    return f"{', '.join(names)}: {which} missing: give {them} in the file, or with {options}"


_WITHOUT_VALUE = ("unexpected_keyword_argument", "union_tag_invalid", "union_tag_not_found")


def _rule(config_type: type, values: Any, error: Any) -> str:
    kind, place = error["type"], _place(values, error["loc"])
    if kind == "unexpected_keyword_argument":
        return f"there is no such setting{_known(config_type, values, place)}"
    if kind == "union_tag_not_found":
        return f"it needs the setting {error['ctx']['discriminator'].removesuffix('()')}, which selects its kind"
    if kind == "union_tag_invalid":
        return f"{error['ctx']['discriminator']} is {error['ctx']['tag']!r}: one of {error['ctx']['expected_tags']}"
    if kind in ("dataclass_type", "model_attributes_type"):
        return "this is a table of settings, not a value"
    text = error["msg"].removeprefix("Value error, ")
    return text.replace("Input should be", "it should be").replace(", unable to parse string as an integer", "")


def _place(values: Any, location: tuple[Any, ...]) -> list[str]:
    """The path of a setting: pydantic's location without the names of kinds and types in it."""
    place: list[str] = []
    at = values
    for index, part in enumerate(location):
        if part == OF_ONES_OWN:
            continue
        if isinstance(at, Mapping):
            if part not in at and index < len(location) - 1:
                continue
            at = typing.cast("Mapping[Any, Any]", at).get(part)
        elif isinstance(at, list) and isinstance(part, int):
            at = dict(enumerate(typing.cast("list[Any]", at))).get(part)  # it may be too short
        else:
            continue
        place.append(str(part))
    return place


def _known(config_type: type, values: Any, place: Sequence[str]) -> str:
    """Known names, for the message about an unknown one, and the nearest of them."""
    owner, at, by_name = config_type, values, False
    others: list[type] = []
    for part in place[:-1]:
        if part.isdigit():
            at = at[int(part)]
            continue
        at = at[part]
        if by_name:  # this part is the name of a table, chosen by the user
            by_name = False
            continue
        hint = typing.get_type_hints(owner).get(part)
        others = dataclasses_in(hint)
        owner, by_name = next((each for each in others if is_of(each, at)), None), is_by_name(hint)
        if owner is None:
            return ""
    names = [field.name for field in dataclasses.fields(owner)]
    known = f"; there are {', '.join(names)}{did_you_mean(place[-1], names)}"
    if not (kinds := _kinds_with(place[-1], others)):
        return known
    table = ".".join(place[:-1])
    whole = f"for another kind give the whole table, {table} = {{kind = ...}}"
    return f"{known}; {place[-1]} belongs to kind = {' or '.join(kinds)}: {whole}"


def _kinds_with(name: str, tables: Sequence[type]) -> list[str]:
    """The kinds, of those of a union, whose table has this setting."""
    having = [each for each in tables if name in {field.name for field in dataclasses.fields(each)}]
    kinds = [kind for each in having for kind in typing.get_args(typing.get_type_hints(each).get("kind"))]
    return [f'"{kind}"' for kind in kinds if isinstance(kind, str)]


def setting_from(origin: str, place: Sequence[str], given: Iterable[str]) -> str:
    """Where the setting that an error is about comes from: ``origin``, an option, or, for a table, possibly both."""
    split = {name: name.split(".") for name in given}
    if any(place[: len(parts)] == parts for parts in split.values()):
        return "--set"
    within = [name for name, parts in split.items() if parts[: len(place)] == list(place)]
    return f"{origin}{', ' if within else ''}{', '.join(f'--set {name}' for name in within)}:"


def is_of(owner: type, values: Any) -> bool:
    """Whether a table belongs to this dataclass of a union, going by its ``kind``."""
    if not isinstance(values, Mapping) or "kind" not in values:
        return True
    hint = typing.get_type_hints(owner).get("kind")
    return hint is str or values["kind"] in typing.get_args(hint)  # the table for user code, always last, accepts any kind


def dataclasses_in(hint: Any) -> list[type]:
    """The dataclasses in a type: the alternatives of a union, the items of a list or table."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [found for argument in typing.get_args(hint) for found in dataclasses_in(argument)]


def is_by_name(hint: Any) -> bool:
    """Whether a setting is a table of tables with names chosen by the user."""
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    return typing.get_origin(plain) is dict and bool(dataclasses_in(plain))
