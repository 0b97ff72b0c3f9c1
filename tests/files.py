"""Files of runs and of the project: their digests, one changed bit, a copy of the package to be edited, scripts as modules."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMES = {"made.json", ".lock", ".fingerprints.json", ".witness"}
"""Files of a run that say when and where something was made: all others are the same in equal runs."""


def files_of(folder: Path) -> dict[str, str]:
    """Digest of every file that must be the same in equal runs, by its path in the folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in TIMES
    }


def flip_bit(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def copy_package(folder: Path) -> Path:
    """Copy the package into a folder, for processes that have this on their path; return the copy."""
    package = folder / "benchwright"
    for room in ("curation", "datasets", "training", "eval", "pipelines"):
        shutil.copytree(ROOT / room, package / room)  # with bytecode, which fits: copies are as old as what they are of
    shutil.copy(ROOT / "front_door" / "__init__.py", package)
    return package


def module_of(path: Path) -> Any:
    """The module in a file that is in no package, such as a script of ``benchmarks/``."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
