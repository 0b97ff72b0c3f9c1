"""Install the wheel into fresh environments outside of the repository, the core and [all]; run examples and benchmarks there.

    python benchmarks/check_install.py              # both, a few minutes and 4 GB of disk
    python benchmarks/check_install.py --only core

Prints a table of packages, MB and seconds; exits 1 where something fails. Versions are those of constraints.txt.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = ("clear", "iirc", "kowl", "skeleton", "two_camera", "vclimb")
WITH_CORE = ("iirc", "skeleton")
EXAMPLES = ("shapes", "words")

COUNT = """
import importlib.metadata as m, os
held = {each.name.lower(): each for each in m.distributions()}
def size(name):
    return sum(os.path.getsize(p) for f in held[name].files or () if os.path.exists(p := held[name].locate_file(f)))
own = [name for name in held if name in ("pip", "setuptools")]  # what venv puts there itself
print(len(held) - len(own), sum(map(size, held.keys() - own)), sum(map(size, own)))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["core", "all"], help="one of the two environments")
    only = parser.parse_args().only
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="benchwright-install-") as scratch:
        folder = Path(scratch)
        wheel = build_wheel(folder)
        print(f"{'environment':<12} {'packages':>8} {'MB':>7} {'+ pip':>5} {'seconds':>8}")
        for name in [only] if only else ["core", "all"]:
            python = fresh_environment(folder / name, wheel, name)
            failed += [f"{name}: {what}" for what in trials(folder / name, python, name)]
            shutil.rmtree(folder / name)
    print(*failed, sep="\n", end="\n" if failed else "")
    print("FAILED" if failed else "OK: examples and benchmarks pass outside of the repository")
    return 1 if failed else 0


def build_wheel(folder: Path) -> Path:
    """The wheel of a copy of what git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / "clone" / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, folder / "clone"]
    subprocess.run(command, check=True, cwd=folder, env=environment(constrained=False))
    return next(folder.glob("*.whl"))


def environment(*, constrained: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.endswith("_CONSTRAINT")}
    return {**kept, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")} if constrained else kept


def fresh_environment(folder: Path, wheel: Path, name: str) -> Path:
    """A virtual environment with the wheel; prints what it holds."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    wanted = str(wheel) + ("" if name == "core" else f"[{name}]")
    begun = time.monotonic()
    command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wanted]
    subprocess.run(command, check=True, cwd=folder, env=environment(constrained=True))
    took = time.monotonic() - begun
    told = subprocess.run([python, "-c", COUNT], capture_output=True, check=True, text=True).stdout
    count, size, own = map(int, told.split())
    print(f"{name:<12} {count:>8} {size / 1e6:>7.0f} {own / 1e6:>5.0f} {took:>8.0f}", flush=True)
    return python


def trials(folder: Path, python: Path, name: str) -> list[str]:
    """Run what should run there, and what should miss a package; returns what went wrong."""
    work = folder / "work"
    shutil.copytree(ROOT / "docs/examples", work)
    (work / "texts").mkdir()
    for number in range(6):
        (work / f"texts/{number}.txt").write_text(f"one two three four {number} " * (number + 1))
    failed: list[str] = []
    for run in [f"{each}.py" for each in EXAMPLES] + [f"{each} --config tiny" for each in TINY]:
        wanted = 0 if name != "core" or run.partition(" ")[0] not in set(TINY) - {*WITH_CORE} else 2
        begun = time.monotonic()
        for command in (f"run {run} --out out -q", "report out", "verify out")[: 1 if wanted else None]:
            told = subprocess.run([python.with_name("benchwright"), *command.split()], capture_output=True, text=True, cwd=work)
            line = told.stderr.strip()
            if told.returncode != wanted or (wanted and "pip install 'benchwright[" not in line):
                failed.append(f"{command}: exit code {told.returncode}: {line[-300:]}")
                break
            if line:
                print(f"    {line}")
        print(f"  {run}: {time.monotonic() - begun:.1f} s", flush=True)
        shutil.rmtree(work / "out", ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
