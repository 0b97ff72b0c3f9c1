"""The documents: their snippets run as they stand, the site is built, and every message that is explained is one of the code.

Of a page in ``docs/`` the snippets run from top to bottom in an empty folder: ``python`` and ``bash`` blocks are executed, and
a block with a title is written to a file of that name. A block that cannot run here says so in its first line (``NOT_RUN``).
Pages whose snippets a test of their own takes apart are in ``ELSEWHERE``; their commands are parsed, as those of every page.
"""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import typer
from benchwright.pipelines.cli import main as cli

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOT_RUN = "# not run by the tests: "
FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\S+=\S+ )*(?:torchrun .*--no-python )?benchwright (.*?)(?: {2,}#.*)?$", re.MULTILINE)

ELSEWHERE = {
    "extending.md": "tests/test_extending.py",
    "illuminants.md": "tests/pipelines/test_two_camera.py",
    "near_duplicates.md": "tests/pipelines/test_docs.py",
    "reading.md": "tests/datasets/test_reading_page.py",
    "trainings.md": "tests/pipelines/test_docs.py",
    "tutorials/two_cameras.md": "tests/pipelines/test_two_camera_export.py",
}
SHOWN_ONLY = {"text", "pycon", "json", ""}
"""Languages of blocks that show what is printed."""


class Block(NamedTuple):
    language: str
    title: str | None
    text: str

    @property
    def marked(self) -> bool:
        return self.text.startswith(NOT_RUN)


PAGES = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))} | {
    name: ROOT / name for name in ("README.md", "CONTRIBUTING.md")
}


def blocks(page: Path) -> list[Block]:
    return [Block(m["language"], m["title"], m["text"]) for m in FENCE.finditer(page.read_text("utf-8"))]


# -------------------------------------------------------------------------------------------------------- snippets


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, with the examples that documents name beside it."""
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    logging.getLogger("benchwright").setLevel(logging.WARNING)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


RUN_HERE = [
    name
    for name, page in PAGES.items()
    if name not in ELSEWHERE and any(b.language in ("python", "bash") for b in blocks(page))
]


@pytest.mark.parametrize("name", RUN_HERE)
def test_snippets_run(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(PAGES[name]):
        if block.marked:
            continue
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, name, "exec"), names)
        elif block.language == "bash":
            for line in block.text.splitlines():
                run_line(line)
        else:
            assert block.language in SHOWN_ONLY, f"a {block.language} block without a title: what should be done with it?"


def run_line(line: str) -> None:
    """A command, which must end well; or comments, an empty line."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    assert words[0] == "benchwright", f"{line}: this test runs benchwright alone; mark the block with {NOT_RUN!r}"
    wanted = int(found[1]) if (found := re.search(r"# exits (\d)", line)) else 0
    assert cli.call(words[1:]) == wanted, line


def test_what_is_not_run_is_marked_and_counted() -> None:
    """Whoever adds one changes this table, and says why in the block's first line."""
    counted = {name: sum(block.marked for block in blocks(page)) for name, page in PAGES.items()}
    assert {name: number for name, number in counted.items() if number} == {
        "CONTRIBUTING.md": 1,
        "README.md": 1,
        "blurring.md": 2,
        "index.md": 1,
        "pipelines.md": 4,
        "reading.md": 5,
        "tables.md": 6,
        "tutorials/cluster.md": 3,
    }


def test_every_page_with_a_test_of_its_own_is_there() -> None:
    for name, test in ELSEWHERE.items():
        assert name in PAGES
        assert Path(name).name in (ROOT / test).read_text("utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_every_command_parses(name: str) -> None:
    """Also those that are not run: no command or option that is named there is gone."""
    command = typer.main.get_command(cli.app)
    for block in blocks(PAGES[name]):
        for line in COMMAND.findall(block.text) if block.language == "bash" else ():
            for each in line.split("; benchwright "):
                words = shlex.split(each, comments=True)
                with contextlib.suppress(click.exceptions.Exit):
                    parse(command, words)


def parse(command: click.Command, words: list[str]) -> None:
    context = command.make_context(command.name, list(words))
    if isinstance(command, click.Group):
        name, each, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert each is not None, name
        parse(each, rest)


def test_examples_of_settings_are_toml() -> None:
    for page in PAGES.values():
        for block in blocks(page):
            if block.language == "toml":
                tomllib.loads(block.text)


# --------------------------------------------------------------------------------------------------------- messages

ELLIPSIS = "…"


def messages() -> set[str]:
    """All texts of the code, with an ellipsis in place of what is filled in."""
    found = set()
    for room in ("curation", "datasets", "training", "eval", "pipelines"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else ELLIPSIS for part in node.values]
                    found.add("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


def test_every_message_that_is_explained_is_one_of_the_code() -> None:
    explained = re.findall(r"^### `(.+)`$", (DOCS / "troubleshooting.md").read_text("utf-8"), re.MULTILINE)
    assert len(explained) > 15
    known = messages()
    assert [text for text in explained if not any(text in each for each in known)] == []


# ---------------------------------------------------------------------------------------------- notebook and site


def test_the_notebook_gives_what_it_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    from notebook import executed

    cells = json.loads((DOCS / "first_run.ipynb").read_text("utf-8"))["cells"]
    shown = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    made = executed(cells)
    assert len(made) > 4
    for outputs in [*shown, *made]:
        for output in outputs:
            if "image/png" in output.get("data", {}):  # the same figure, whatever fonts a machine has
                output["data"]["image/png"] = "a picture"
    assert made == shown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error and every way out of the machine closed."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "https_proxy": "http://127.0.0.1:1",
        "http_proxy": "http://127.0.0.1:1",
    }
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_fetches_nothing(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    loaded = r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//|<link\b[^>]*\bhref=["'](?:https?:)?//"""
    assert [page.name for page in pages if re.search(loaded, page.read_text("utf-8"))] == []


def test_the_site_has_every_setting_preset_and_command(site: Path) -> None:
    settings = (site / "settings" / "clear.html").read_text("utf-8")
    assert all(
        f"<code>{name}</code>" in settings for name in ("max_aspect", "first_labelled", "allow_private_hosts", "per_class")
    )
    presets = (site / "presets.html").read_text("utf-8")
    files = list((ROOT / "pipelines").glob("*/*.toml"))
    assert [path.stem for path in files if f"{path.parent.name}: {path.stem}" not in presets] == []
    commands = (site / "command_line.html").read_text("utf-8")
    assert all(f'id="{name}"' in commands for name in ("run", "qa-import", "push", "schema"))
