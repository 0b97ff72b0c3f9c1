"""What an editable install hides: a package or a data file that is missing from the wheel."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import yaml

from tests.wheels import tracked_files

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
FRONT = SETUPTOOLS["package-dir"]["benchwright"]
ROOMS = sorted(folder for folder in SETUPTOOLS["package-dir"].values() if folder != FRONT)

IMPORT_ALL = """
import importlib, json, sys
wheel, names, paths = json.load(sys.stdin)
sys.path[:] = [wheel, *paths, *(path for path in sys.path if path)]
elsewhere = []
for name in names:
    module = importlib.import_module(name)
    if not str(module.__file__).startswith(wheel):
        elsewhere.append([name, module.__file__])
print(json.dumps(elsewhere))
"""


def declared() -> set[str]:
    """Names of the distributions that the project asks for, extras included."""
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    lines = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    return {normal(re.match(r"[A-Za-z0-9._-]+", line)[0]) for line in lines} - {"benchwright"}


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages_in_the_tree() -> list[str]:
    inits = (path for room in ROOMS for path in (ROOT / room).rglob("__init__.py"))
    return ["benchwright", *sorted("benchwright." + ".".join(path.parent.relative_to(ROOT).parts) for path in inits)]


def test_both_distributions_pass_twine_check(wheel):
    files = sorted(map(str, wheel.parent.glob("dist/*")))
    assert [Path(file).suffix for file in files] == [".whl", ".gz"]
    told = subprocess.run([sys.executable, "-P", "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("PASSED") == 2


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = PYPROJECT["project"]
    assert (cited["title"], cited["version"], cited["license"]) == (project["name"], project["version"], project["license"])
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert cited["authors"]
    assert "LICENSE" in project["license-files"]


def test_every_folder_with_an_init_is_listed():
    assert SETUPTOOLS["packages"] == packages_in_the_tree()


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_every_data_file_in_a_room_is_in_the_wheel(wheel):
    data = [name for name in tracked_files() if name.split("/")[0] in ROOMS and not name.endswith(".py")]
    assert data
    assert [name for name in data if not (wheel / "benchwright" / name).is_file()] == []


def test_the_globs_take_data_files_and_nothing_compiled():
    patterns = SETUPTOOLS["package-data"]["*"]
    assert not any(fnmatch.fnmatch(name, pattern) for pattern in patterns for name in ("a.pyc", "a.so", "a.pkl"))


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel):
    tops = {path.name for path in wheel.iterdir()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"benchwright"}
    assert sorted(path.name for path in (wheel / "benchwright").iterdir()) == sorted(["__init__.py", *ROOMS])
    assert (wheel / "benchwright" / "__init__.py").read_bytes() == (ROOT / FRONT / "__init__.py").read_bytes()


def test_every_module_is_imported_from_the_wheel(wheel):
    """In a Python without ``site``: .pth files, and so the editable install, do not exist for it."""
    modules = sorted(
        ".".join(path.relative_to(wheel).with_suffix("").parts).removesuffix(".__init__")
        for path in (wheel / "benchwright").rglob("*.py")
    )
    libraries = list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-S", "-P", "-c", IMPORT_ALL],
        input=json.dumps([str(wheel), modules, libraries]),
        capture_output=True,
        text=True,
        cwd=wheel.parent,
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},  # the wheel's folder is shared
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


def test_the_console_script_leads_to_a_function(wheel):
    ((name, target),) = PYPROJECT["project"]["scripts"].items()
    module, function = target.split(":")
    file = wheel.joinpath(*module.split(".")).with_suffix(".py")
    assert name == "benchwright"
    assert re.search(rf"^def {function}\(", file.read_text("utf-8"), re.M)


def test_constraints_pin_what_every_machine_can_install():
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert sorted(pins) == list(pins)
    assert pins["torch"] == "2.13.0"
    assert pins["torchvision"] == "0.28.0"
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][A-Za-z0-9.]*", line)] == []


def test_constraints_cover_all_that_is_declared():
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line}
    assert declared() - pinned == set()


def test_the_version_is_in_the_metadata():
    assert importlib.metadata.version("benchwright") == PYPROJECT["project"]["version"]


def test_every_library_that_is_imported_is_declared():
    """Also what comes along with another package: that one may drop it."""
    known = declared()
    distributions = importlib.metadata.packages_distributions()
    missing = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            for top in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"benchwright"}:
                owners = {normal(name) for name in distributions.get(top, [top])}
                if not owners & known:
                    missing.add(f"{path.relative_to(ROOT)} imports {top}")
    assert sorted(missing) == []
