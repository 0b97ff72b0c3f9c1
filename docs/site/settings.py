"""Pages of settings and presets, made from the types of the settings and from the packaged TOML files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from benchwright.pipelines.benchmark import find
from benchwright.pipelines.catalogue import TITLES
from benchwright.pipelines.schema import json_schema
from pydantic import TypeAdapter

Node = Mapping[str, Any]


def settings_page(name: str) -> str:
    """Every setting of a benchmark: its type, its default, and what it means."""
    benchmark = find(name)
    raw = TypeAdapter(benchmark.config).json_schema()  # which settings a file must have is told here alone
    shown = json_schema(benchmark)
    tables = {"": shown, **shown["$defs"]}
    lines = [
        f"# Settings of {name}",
        "",
        f"{shown.get('description', '')} Made from `benchwright.pipelines.{name}.config`. `benchwright config {name}` "
        f"prints a file with all that are required, and `benchwright schema {name}` a JSON schema for editors.",
    ]
    for table in _in_order(shown):
        required = (raw if table == "" else raw["$defs"][table]).get("required", [])
        lines += ["", f"## {table or 'The file'}", ""]
        if table and (text := tables[table].get("description")):
            lines += [text, ""]
        lines += ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(key, each, key in required) for key, each in tables[table]["properties"].items()]
    return re.sub(r"`*docs/(\w+)\.md`*", r"[\1](../\1.md)", "\n".join(lines) + "\n")


def _row(name: str, node: Node, required: bool) -> str:
    default = json.dumps(node["default"]) if node.get("default") is not None else ""
    meaning = node.get("description", "chooses this table" if name == "kind" else "")
    cells = (f"`{name}`", _type(node), "required" if required else f"`{default}`" if default else "", meaning)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _in_order(schema: Node) -> list[str]:
    """The tables as the settings lead to them; "" is the file itself."""
    order, left = [""], _references(schema["properties"])
    while left:
        name, *left = left
        if name not in order and "properties" in schema["$defs"][name]:
            order.append(name)
            left = _references(schema["$defs"][name]["properties"]) + left
    return order


def _references(node: Any) -> list[str]:
    if isinstance(node, Mapping):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [each for key, value in node.items() if key != "discriminator" for each in _references(value)]
    return [each for value in node for each in _references(value)] if isinstance(node, list) else []


def _type(node: Node) -> str:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name == "JsonValue":
            return "any value"
        return f"[{name}](#{name.lower()})"
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_type(each) for each in node["anyOf"] if each.get("type") != "null"))
    if "enum" in node or "const" in node:
        return ", ".join(
            f'`"{each}"`' if isinstance(each, str) else f"`{each}`" for each in node.get("enum", [node.get("const")])
        )
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}" if isinstance(node.get("items"), Mapping) else _fixed(node)
    if node.get("type") == "object":
        values = node.get("additionalProperties")
        return f"table of {_type(values)}" if isinstance(values, Mapping) and values else "table"
    plain = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    return plain.get(node.get("type", ""), "any value") + "".join(_bounds(node))


def _fixed(node: Node) -> str:
    return "list of " + ", ".join(_type(each) for each in node["prefixItems"]) if "prefixItems" in node else "list"


def _bounds(node: Node) -> Iterator[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {node[key]:,}" for key, sign in signs.items() if key in node]
    if limits:
        yield ", " + ", ".join(limits)


def presets_page() -> str:
    """Every packaged settings file, with the comment that explains it."""
    lines = [
        "# Presets",
        "",
        "For `benchwright run BENCHMARK --config NAME`; without `--config` it is `published`. A file of yours "
        'starts from one by `extends = "NAME"`, and `benchwright config BENCHMARK --config NAME` prints it.',
        "",
    ]
    for benchmark, title in TITLES.items():
        lines += [f"## {benchmark}", "", f"{title}.", ""]
        for name, text in packaged(benchmark):
            lines += [f"### {benchmark}: {name}", "", explained(text), "", f'??? note "{name}.toml"', "", "    ```toml"]
            lines += [f"    {line}" if line else "" for line in text.rstrip().splitlines()] + ["    ```", ""]
    return "\n".join(lines)


def packaged(benchmark: str) -> list[tuple[str, str]]:
    """Name and text of the settings files of a benchmark, its published size first."""
    folder = files("benchwright.pipelines") / benchmark
    found = [(path.name[:-5], path.read_text("utf-8")) for path in folder.iterdir() if path.name.endswith(".toml")]
    return sorted(found, key=lambda each: (each[0] != "published", each[0]))


def explained(text: str) -> str:
    """The comment with which a file begins, as prose; what is indented in it stays as it is."""
    comment = re.match(r"(?:#.*\n)+", text)
    if comment is None:
        raise ValueError("a packaged settings file should begin with a comment that says what it is for")
    prose, code = [], []
    for line in comment[0].splitlines():
        (code if line.startswith("#     ") else prose).append(line.removeprefix("#").strip())
    fence = ["", "```", *code, "```"] if code else []
    return "\n".join([" ".join(prose).strip(), *fence])
