"""The settings of a benchmark as a JSON schema, for completion and checks in an editor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from .benchmark import Benchmark, find
from .config import adapter_of


def schema(name: str) -> dict[str, Any]:
    """The JSON schema of the benchmark with that name, see ``json_schema``.

    Raises:
        UnknownBenchmark: there is no such benchmark.

    >>> schema("kowl")["title"][:8]
    'KOWL-718'
    """
    return json_schema(find(name))


def json_schema(benchmark: Benchmark) -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a settings file.

    No setting is required, since a file that ``extends`` another contains only its changes; ``plan`` reports missing settings.
    Descriptions come from the docstrings.

    >>> from benchwright.pipelines.benchmark import find
    >>> made = json_schema(find("clear"))
    >>> made["$defs"]["ShardSizes"]["properties"]["max_samples"]["minimum"]
    1
    >>> made["$defs"]["Baselines"]["properties"]["preset"]["description"]
    'hyper-parameters and model of the paper.'
    """
    made = cast("dict[str, Any]", _eased(adapter_of(benchmark.config).json_schema()))
    extends = {"type": "string", "description": "a packaged variant, or another file: for settings that are not in this file"}
    unset = {"type": "array", "items": {"type": "string"}, "description": "dotted names that are taken out of what is extended"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": benchmark.title,
        **made,
        "properties": {"extends": extends, "unset": unset, **made["properties"]},
    }


def _eased(node: Any) -> Any:
    """The schema without required settings, and with descriptions from the docstrings."""
    if isinstance(node, list):
        return [_eased(each) for each in cast("list[Any]", node)]
    if not isinstance(node, Mapping):
        return node
    table = cast("Mapping[str, Any]", node)
    found = {
        name: {key: _eased(each) for key, each in value.items()} if name in ("properties", "$defs") else _eased(value)
        for name, value in table.items()
        if name not in ("required", "title")
    }
    if "oneOf" in found:  # tables distinguished by ``kind``: without it, several may fit
        found["anyOf"] = found.pop("oneOf")
    text = table.get("description")
    if isinstance(text, str) and "properties" in found:
        summary, meanings = _described(text)
        found["description"] = summary
        for name in meanings.keys() & found["properties"].keys():
            found["properties"][name] = {**found["properties"][name], "description": meanings[name]}
    return found


def _plain(meaning: str) -> str:
    """The text in terms of a settings file, which has no None."""
    return re.sub(r"\bNone\b(?! of)", "not given", " ".join(meaning.split()))


def _described(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the text before its list of attributes, and the meaning of each attribute."""
    summary, _, listed = text.partition("\n\nAttributes:\n")
    meanings: dict[str, str] = {}
    for names, meaning in re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", listed, re.MULTILINE):
        meanings |= dict.fromkeys(names.split(", "), _plain(meaning))
    return " ".join(summary.split()), meanings
