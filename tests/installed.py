"""Throw-away packages with entry points, as pip leaves them: a folder on the path with a ``.dist-info`` in it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from benchwright.curation import reachable_code

Install = Callable[[str, str, Mapping[str, str], Mapping[str, str]], Path]
"""``install(name, version, {path: text}, {group: entry points})``: the folder of the package, which is on the path now."""


def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(name: str, version: str, files: Mapping[str, str], offers: Mapping[str, str]) -> Path:
        folder = tmp_path / name
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text("".join(f"[{group}]\n{points}\n" for group, points in offers.items()))
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            top = path.partition("/")[0].removesuffix(".py")
            for module in [each for each in sys.modules if each.partition(".")[0] == top]:
                monkeypatch.delitem(sys.modules, module)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)  # for worker processes
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a test may edit a file twice within a second
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        importlib.invalidate_caches()
        reachable_code._found_file.cache_clear()  # of an earlier test's package of that name, whose folder is gone
        return folder

    return install
