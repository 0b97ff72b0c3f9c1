"""Keys change with what decides a result, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchwright.curation.keys import as_json, fingerprint, where


def digest_of(folder: Path, helper: str, step: str) -> str:
    """Code digest of ``step`` in a module beside a helper module, taken in a process of its own."""
    (folder / "my_helper.py").write_text(textwrap.dedent(helper))
    (folder / "my_steps.py").write_text(textwrap.dedent(step))
    code = "import sys; sys.path.insert(0, sys.argv[1]); import my_steps; from benchwright.curation.keys import code_digest; "
    code += "print(code_digest(my_steps.step), 'torch' in sys.modules, 'decimal_does_not_matter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    digest, torch, _ = done.stdout.split()
    assert torch == "False"
    return digest


HELPER = "def help(x):\n    return x + 1\n"
STEP = """
    import json
    def step(row):
        from my_helper import help
        from benchwright.curation.encoders.conse import ConseEncoder
        return help(row)
"""


def test_code_counts_and_comments_do_not(tmp_path: Path) -> None:
    base = digest_of(tmp_path, HELPER, STEP)
    assert digest_of(tmp_path, HELPER, STEP) == base
    assert digest_of(tmp_path, '"""Words."""\n\n\ndef help(x):\n    "More."\n    # a remark\n    return x + 1\n', STEP) == base
    assert digest_of(tmp_path, HELPER, STEP.replace("return help(row)", "return (help(\n            row))  # same")) == base
    assert digest_of(tmp_path, HELPER.replace("+ 1", "+ 2"), STEP) != base
    assert digest_of(tmp_path, HELPER, STEP.replace("help(row)", "help(row) or None")) != base


@dataclass(frozen=True)
class Setting:
    size: int
    names: tuple[str, ...]


def test_settings_become_json_or_are_refused() -> None:
    assert as_json("s", Setting(3, ("a", "b"))) == {"type": "Setting", "size": 3, "names": ["a", "b"]}
    with pytest.raises(TypeError, match="setting 'root' is a bare path"):
        as_json("root", Path("x"))
    with pytest.raises(TypeError, match="setting 'model' is"):
        as_json("model", object())


def test_fingerprints_see_content_of_files_and_listings_of_folders(tmp_path: Path) -> None:
    file, twin = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("one")
    twin.write_text("one")
    assert fingerprint(where(file)).content == fingerprint(where(twin)).content
    twin.write_text("two")
    assert fingerprint(where(file)).content != fingerprint(where(twin)).content
    before = fingerprint(str(tmp_path))
    (tmp_path / "c.txt").write_text("new")
    assert fingerprint(str(tmp_path)).content != before.content
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        fingerprint(str(tmp_path / "missing"))


def test_a_known_file_is_not_read_again_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    known: dict[str, tuple[str, str]] = {}
    first = fingerprint(str(file), known)
    known[str(file)] = (known[str(file)][0], "remembered")
    assert fingerprint(str(file), known).content == "remembered"
    file.write_text("other")
    assert fingerprint(str(file), known).content not in ("remembered", first.content)
