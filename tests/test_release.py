"""A change since the last release that alters a digest cannot be released without its line under **Data** in CHANGELOG.md.

``tests/golden/released.json`` has the golden digests of the last release. When you release, write them anew:
``python tests/test_release.py``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
RELEASED = GOLDEN / "released.json"

Digests = Mapping[str, Mapping[str, str]]
"""Configuration -> stage -> digest."""


def golden() -> dict[str, dict[str, str]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.tiny.json"))}


def told_of_data(changelog: str) -> str:
    """What stands under **Data** of the newest section, the one that is released next."""
    newest = re.split(r"^## ", changelog, flags=re.MULTILINE)[1]
    found = re.search(r"^### Data\n(.*?)(?=^### |\Z)", newest, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def untold(now: Digests, released: Digests, data: str) -> list[str]:
    """Digests that differ from those of the release, and are not named: of each configuration the last stage that changed.

    A line names a digest by its first eight characters or more; of a configuration that is gone, its name.
    """
    missing = [f"{name} is gone" for name in released if name not in now and name not in data]
    for name, stages in now.items():
        changed = [stage for stage, digest in stages.items() if released.get(name, {}).get(stage) != digest]
        if name in released and changed and stages[changed[-1]][:8] not in data:
            missing.append(f"{name}: {changed[-1]} {stages[changed[-1]][:8]}")
    return missing


def test_every_digest_that_changed_since_the_release_is_told_under_data() -> None:
    told = told_of_data((ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert told
    missing = untold(golden(), json.loads(RELEASED.read_text())["digests"], told)
    assert missing == [], (
        "add a line under **Data** of CHANGELOG.md that names each digest, why it changed, and what that means for scores"
    )


NOW = {"a.tiny": {"read": "1" * 64, "shards": "2" * 64}}
CHANGES = """# Changelog

## [2] - unreleased

### Data

- {}

### Added

## [1]

### Data

- b.tiny; 11111111 and 22222222 in a.tiny
"""


@pytest.mark.parametrize(
    ("released", "line", "missing"),
    [
        (NOW, "nothing", []),
        ({"a.tiny": {"read": "1" * 64, "shards": "3" * 64}}, "nothing of it", ["a.tiny: shards 22222222"]),
        ({"a.tiny": {"read": "1" * 64, "shards": "3" * 64}}, "a.tiny: `2222222222`, because", []),
        ({"a.tiny": {"shards": "2" * 64}}, "a stage more", ["a.tiny: read 11111111"]),
        ({**NOW, "b.tiny": {}}, "an older section names it", ["b.tiny is gone"]),
        ({}, "a new benchmark changes no digest", []),
    ],
)
def test_what_is_demanded(released: Digests, line: str, missing: list[str]) -> None:
    assert untold(NOW, released, told_of_data(CHANGES.format(line))) == missing


if __name__ == "__main__":
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    RELEASED.write_text(json.dumps({"release": version, "digests": golden()}, indent=1) + "\n")
