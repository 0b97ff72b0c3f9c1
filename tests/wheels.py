"""The wheel of the working tree, for tests of what is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def tracked_files() -> list[str]:
    """Files that git knows, relative to the root: what a clean clone holds."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no git checkout: what a clean clone holds cannot be told")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def unpack_wheel(folder: Path) -> None:
    """Unpack the wheel into ``unpacked``; it and what it is built from, the source distribution, are in ``dist``."""
    for name in tracked_files():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / "clone" / name)
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", folder / "dist"]
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_CONSTRAINT")}
    built = subprocess.run([*map(str, command), str(folder / "clone")], capture_output=True, text=True, cwd=folder, env=clean)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("dist/*.whl")
    zipfile.ZipFile(path).extractall(folder / "unpacked")
