"""The JSON schemas of the settings, by a validator of its own."""

from __future__ import annotations

import functools
import json
import tomllib
from typing import Any

import jsonschema
import pytest
from benchwright.pipelines.benchmark import find
from benchwright.pipelines.catalogue import TITLES
from benchwright.pipelines.config import find_config, read_text, variants
from benchwright.pipelines.schema import json_schema

from .conftest import Cli

PACKAGED = [(name, each) for name in sorted(TITLES) for each in variants(name)]


@functools.cache
def validator(name: str) -> Any:
    schema = json_schema(find(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(("name", "variant"), PACKAGED)
def test_every_packaged_file_of_settings_fits(name: str, variant: str) -> None:
    values = tomllib.loads(read_text(find_config(name, variant)))
    assert [error.message for error in validator(name).iter_errors(values)] == []


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("clear", {"sed": 1}, "'sed' was unexpected"),
        ("clear", {"images": {"min_edge": 3}}, "'min_edge' was unexpected"),
        ("clear", {"images": {"min_edge_px": 0}}, "0 is less than the minimum of 1"),
        ("iirc", {"seed": "one"}, "'one' is not of type 'integer'"),
        ("clear", {"source": {"kind": "folder", "rot": "photos"}}, "is not valid under any of the given schemas"),
    ],
)
def test_slips_are_marked(name: str, values: dict[str, Any], told: str) -> None:
    errors = [error.message for error in validator(name).iter_errors(values)]
    assert len(errors) == 1
    assert told in errors[0]


def test_a_file_that_extends_another_holds_what_it_changes() -> None:
    assert validator("clear").is_valid({"extends": "tiny", "choice": {"per_class": 3}})


def test_the_command_prints_it(bw: Cli) -> None:
    told = bw("schema", "kowl")
    assert told.code == 0
    assert json.loads(told.out) == json_schema(find("kowl"))
    assert bw("schema", "kowel").err.count("\n") == 1
