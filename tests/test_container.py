"""The Dockerfile: its steps as ``benchmarks/check_container.py`` reads them, and what each would run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.files import ROOT, module_of


@pytest.fixture(scope="module")
def check() -> Any:
    """The script, as a module."""
    return module_of(ROOT / "benchmarks/check_container.py")


@pytest.fixture(scope="module")
def steps(check: Any) -> list[Any]:
    return list(check.read_steps((ROOT / "Dockerfile").read_text()))


def test_it_does_what_make_demo_does(check: Any, steps: list[Any]) -> None:
    state = check.State()
    for step in steps:
        state.take(step, {"EXTRAS": "tables"})
    made = subprocess.run(["make", "-n", "demo", "OUT=/out"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert " ".join(state.command) in made.replace("'", "")
    assert (state.args["TORCH"], state.args["EXTRAS"]) == ("cpu", "tables")
    assert state.env["PATH"].startswith("/opt/benchwright/bin:")
    assert state.env["PIP_CONSTRAINT"] == "/src/constraints.txt"


def test_every_line_is_shell_and_names_files_that_are_copied(steps: list[Any]) -> None:
    ran = [step.rest for step in steps if step.keyword == "RUN"]
    for line in ran:
        subprocess.run(["sh", "-n", "-c", line], check=True)
    assert any("install_torch.py" in line for line in ran)
    for name in ("install_torch.py", "constraints.txt", "pyproject.toml"):
        assert (ROOT / name).is_file()
        assert name not in (ROOT / ".dockerignore").read_text().split()
    order = [step.keyword for step in steps]
    assert order.index("COPY") < next(at for at, step in enumerate(steps) if "pip wheel" in step.rest)


@pytest.mark.parametrize(("asked", "code", "told"), [("cpu", 0, "cpu"), ("cuda", 0, "default"), ("gpu", 1, "cpu or cuda")])
def test_the_build_of_torch_is_an_argument(steps: list[Any], tmp_path: Path, asked: str, code: int, told: str) -> None:
    [line] = [step.rest for step in steps if "install_torch.py" in step.rest]
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho $TORCH\n")
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH": asked}
    done = subprocess.run(["sh", "-c", line.replace("cd /src", f"cd {ROOT}")], env=env, capture_output=True, text=True)
    assert done.returncode == code
    assert told in done.stdout + done.stderr


def test_continued_lines_are_one_step(check: Any) -> None:
    text = '# a note\nFROM debian\n\nRUN one && \\\n    two\nENV A=1 B="x y"\nCMD ["a", "b c"]\n'
    found, state = list(check.read_steps(text)), check.State()
    for step in found:
        state.take(step, {})
    assert [step.keyword for step in found] == ["FROM", "RUN", "ENV", "CMD"]
    assert found[1].rest.split() == ["one", "&&", "two"]
    assert (state.env, state.command) == ({"A": "1", "B": "x y"}, ["a", "b c"])
    with pytest.raises(SystemExit, match="ONBUILD is not understood"):
        state.take(check.Step("ONBUILD", ""), {})
