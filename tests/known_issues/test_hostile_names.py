"""Names of classes and files are anyone's: cards, reports and terminals show them, and obey none of them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from benchwright.curation.artifact import RunRecord
from benchwright.curation.publish import escaped
from benchwright.curation.rows import visible
from benchwright.curation.store import Store
from benchwright.eval.report.figures import bar_chart

from tests.pipelines.conftest import Cli, bw

__all__ = ["bw"]

HOSTILE = ("\x1b[31mred\x07", "a\u202eb <script>x", "\u6f22\u5b57 $\\frac{$", "--> & |`c`")
SEEN = (b"\x1b", b"\x07", "\u202e".encode())


def test_names_of_classes_in_cards_and_reports(tmp_path: Path, bw: Cli) -> None:
    for number, name in enumerate(HOSTILE):
        (tmp_path / "in" / name).mkdir(parents=True)
        for each in range(6):
            joints = np.random.default_rng([number, each]).normal(size=(8, 20, 3)).astype(np.float32)
            np.save(tmp_path / "in" / name / f"{each}.npy", joints)
    out = tmp_path / "out"
    classes = f"classes={json.dumps(HOSTILE, ensure_ascii=True)}"
    few = ["--set", classes, "--set", "split.classes_per_task=2", "--set", "orders.tasks=2"]
    source = ["--set", f"source={{kind='folders',root='{tmp_path}/in'}}"]
    assert bw("run", "skeleton", "--config", "tiny", *source, *few, "--out", str(out), "--quiet")[0] == 0
    assert bw("report", str(out)) == (0, f"{out}/report.html\n", "")
    for page in ("report.html", "dataset/README.md"):
        shown = (out / page).read_bytes()
        assert [mark for mark in SEEN if mark in shown] == []
        assert b"<script>x" not in shown.replace(b"\\<", b"")
        assert b"\\x1b" in shown.replace(b"\\\\", b"\\")


def test_pictures_of_labels_that_xml_forbids() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = bar_chart(HOSTILE, [0.1, 0.2, 0.3, 0.4], label_axis="class", value_axis="share")
    ElementTree.fromstring(picture.light)
    assert picture.dark is None


def test_what_is_visible_stays() -> None:
    plain = "na\u00efve \u6f22\u5b57\u3000\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469 \u00a0 tab\t line\n"
    assert visible(plain) == plain
    assert visible("\x1b[0m\u202e\ud800") == "\\x1b[0m\\u202e\\ud800"


def test_a_card_is_not_as_long_as_the_names_in_it() -> None:
    assert escaped("L" * 10_000_000) == "L" * 199 + "…"
    assert escaped("L" * 200) == "L" * 200


@pytest.mark.parametrize("command", ["show", "verify"])
def test_lines_of_commands(tmp_path: Path, bw: Cli, command: str) -> None:
    stages = ("listed", "shards")
    RunRecord("clear", {}, {"encoder": "\x1b[2J"}, stages, "shards").save(Store(str(tmp_path)))
    (tmp_path / "qa").mkdir()
    (tmp_path / "qa/\x1b[2J").touch()
    code, told, errors = bw(command, tmp_path)
    assert (code, errors) == (int(command == "verify"), "")
    assert "\x1b" not in told
    assert "\\x1b[2J" in told
