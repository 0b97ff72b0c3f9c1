"""The examples of docs/reading.md run as they stand, each by itself, in one folder with a finished run of the tiny CLEAR."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/reading.md"
EXAMPLES = re.findall(r"```python\n(?:# not run by the tests: needs (.*?)\n)?(.*?)```", PAGE.read_text(), re.DOTALL)

RUN = """
import importlib.util, json, sys, traceback
told = []
for needs, code in json.loads(sys.argv[1]):
    if needs and (" " in needs or importlib.util.find_spec(needs) is None):
        told.append(f"needs {needs}")
        continue
    try:
        exec(compile(code, "reading.md", "exec"), {"__name__": "reading"})
        told.append("")
    except BaseException:
        told.append(traceback.format_exc())
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of each example: nothing, what it needs, or its traceback."""
    folder = tmp_path_factory.mktemp("reading")
    (folder / "out").symlink_to(tiny("clear"))
    command = [sys.executable, "-P", "-c", RUN, json.dumps(EXAMPLES)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder, env={"HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, told: list[str]) -> None:
    if told[number].startswith("needs "):
        assert EXAMPLES[number][0]
        pytest.skip(told[number])
    assert told[number] == ""
