"""``make bench`` runs every script of ``benchmarks/`` with ``--quick`` and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def arguments(source: str) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Each argument of a script's command line, and how it is declared."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield ast.literal_eval(node.args[0]), {each.arg or "": each.value for each in node.keywords}


@pytest.mark.parametrize("script", sorted(FOLDER.glob("bench_*.py")), ids=lambda path: path.stem)
def test_a_script_needs_nothing_but_quick(script: Path) -> None:
    declared = dict(arguments(script.read_text("utf-8")))
    assert "--quick" in declared
    for name, given in declared.items():
        optional = name.startswith("-") or ast.literal_eval(given.get("nargs", ast.Constant(None))) in ("?", "*")
        assert optional, f"{name} has to be given"
        assert "required" not in given
