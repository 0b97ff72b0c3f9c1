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
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from benchwright.pipelines import api
from benchwright.pipelines.catalogue import TITLES
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.listing import REGISTRIES
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOT_RUN = "# not run by the tests: "
FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)[^)]*\)")
RUN_OF_TINY = re.compile(r"benchwright run (?P<benchmark>\w+) --config tiny --out (?P<out>\S+)(?: -q| --quiet)?(?: +#.*)?$")
COMMAND = re.compile(r"^(?:\S+=\S+ )*(?:torchrun .*--no-python )?benchwright (.*?)(?: {2,}#.*)?$", re.MULTILINE)

ELSEWHERE = {
    "datasets/clear/README.md": "tests/pipelines/test_feature_sets.py",
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


CARDS = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.glob("datasets/*/README.md"))}
PAGES = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))} | {
    name: ROOT / name for name in ("README.md", "CONTRIBUTING.md", *CARDS)
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


@pytest.mark.usefixtures("folder", "blank_figures", "capfd")
@pytest.mark.parametrize("name", RUN_HERE)
def test_snippets_run(name: str, finished: Callable[[str], Path]) -> None:
    """A run of the tiny configuration is one that is there already: the command finds all of it up to date."""
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
                if tiny := RUN_OF_TINY.match(line):
                    shutil.copytree(finished(tiny["benchmark"]), tiny["out"])
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


def test_the_notes_of_the_readme(folder: Path) -> None:
    (notes,) = (block for block in blocks(PAGES["README.md"]) if block.title == "notes.py")
    Path("notes.py").write_text(notes.text)
    Path("notes.toml").write_text('folder = "elsewhere"\n')
    Path("my-notes").mkdir()
    for name, text in {"long": "a note of many words", "short": "none"}.items():
        Path("my-notes", f"{name}.txt").write_text(text)
    run_line("benchwright run notes.py --set folder=my-notes --out notes -q")
    assert pq.read_table("notes/dataset/index.parquet").column("key").to_pylist() == ["long"]


def test_the_photos_of_the_readme(folder: Path) -> None:
    (settings,) = (block for block in blocks(PAGES["README.md"]) if block.title == "photos.toml")
    Path("photos.toml").write_text(settings.text)
    Path("my-photos").mkdir()
    for number in range(4):
        exif = Image.Exif()
        exif.get_ifd(0x8769)[36867] = f"{2019 + number % 2}:06:01 12:00:0{number}"
        pixels = np.random.default_rng(number).integers(0, 255, (6, 6, 3), np.uint8)
        Image.fromarray(pixels).resize((64, 64)).save(f"my-photos/{number}.jpg", exif=exif)
    run_line("benchwright run clear --config photos.toml --out out -q")
    index = pq.read_table("out/dataset/index.parquet")
    assert index.num_rows == 4
    assert sorted(index.column("bucket").to_pylist()) == [0, 0, 1, 1]


def test_the_places_of_changes_are_there() -> None:
    table = PAGES["README.md"].read_text("utf-8").partition("## Where things are")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    places = [re.sub("NAME|BENCHMARK", "*", each) for row in rows for each in re.findall(r"`([\w./*]+/[\w./*]*)`", row)]
    assert len(rows) > 20
    assert [place for place in places if not [*ROOT.glob(place.rstrip("/"))]] == []


def test_what_is_not_run_is_marked_and_counted() -> None:
    """Whoever adds one changes this table, and says why in the block's first line."""
    counted = {name: sum(block.marked for block in blocks(page)) for name, page in PAGES.items()}
    assert {name: number for name, number in counted.items() if number} == {
        "CONTRIBUTING.md": 1,
        "README.md": 1,
        "blurring.md": 2,
        "datasets/skeleton/README.md": 1,
        "index.md": 1,
        "install.md": 1,
        "scale.md": 2,
        "pipelines.md": 4,
        "reading.md": 5,
        "tables.md": 6,
        "tutorials/annotating.md": 1,
        "tutorials/cluster.md": 5,
        "tutorials/open_world.md": 1,
        "view.md": 1,
    }


def test_every_page_with_a_test_of_its_own_is_there() -> None:
    for name, test in ELSEWHERE.items():
        assert name in PAGES
        assert Path(name).name in (ROOT / test).read_text("utf-8")


WITH_COMMANDS = PAGES | {"REPRODUCED.md": ROOT / "REPRODUCED.md"}
IN_A_SENTENCE = re.compile(r"`benchwright ([^`]*)`")


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_every_command_parses(name: str) -> None:
    """Also those that are not run, and those in sentences: no command or option that is named there is gone."""
    command, page = typer.main.get_command(cli.app), WITH_COMMANDS[name]
    lines = [line for block in blocks(page) if block.language in ("bash", "") for line in COMMAND.findall(block.text)]
    for line in lines:
        for each in line.split("; benchwright "):
            with contextlib.suppress(typer.Exit):
                parse(command, shlex.split(each, comments=True))
    for sentence in IN_A_SENTENCE.findall(FENCE.sub("", page.read_text("utf-8"))):
        words = shlex.split(sentence.partition(" > ")[0])
        if "COMMAND" not in words:
            try:
                parse(command, words)
            except Exception as error:
                if not str(error).startswith("Missing parameter"):  # a sentence may name a command alone
                    raise


def parse(command: Any, words: list[str]) -> None:
    """Parse as the command line does. A group may be none of click's: Typer has a copy of click from 0.26 on."""
    context = command.make_context(command.name, list(words))
    if hasattr(command, "resolve_command"):
        name, each, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert each is not None, name
        parse(each, rest)


@pytest.mark.parametrize("line", ["train out --confg tiny", "trian out", "run"])
def test_a_command_that_is_gone_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing"):
        parse(typer.main.get_command(cli.app), line.split())


def test_examples_of_settings_are_toml() -> None:
    for page in PAGES.values():
        for block in blocks(page):
            if block.language == "toml":
                tomllib.loads(block.text)


def test_links_lead_to_files() -> None:
    """Those out of the site's folder, of which the site makes plain text; mkdocs checks those within it."""
    others = [ROOT / "REPRODUCED.md", ROOT / "CHANGELOG.md"]
    links = [(page, target) for page in [*PAGES.values(), *others] for target in LINK.findall(page.read_text("utf-8"))]
    places = [(page.parent / target).resolve() for page, target in links]
    lost = [place for place in places if not place.exists() and not (place.is_relative_to(DOCS) and place.suffix == ".md")]
    assert len(places) > 100
    assert lost == []


SETTINGS_SHOWN = [name for name, page in CARDS.items() if any(block.language == "toml" for block in blocks(page))]


@pytest.mark.parametrize("name", SETTINGS_SHOWN)
def test_settings_that_a_card_shows_are_settings(name: str, tmp_path: Path) -> None:
    """Those of sources that several benchmarks share are of the one that is named in ``SHARED``."""
    card = Path(name).parent.name
    for block in blocks(CARDS[name]):
        if block.language == "toml":
            text = block.text if "extends" in block.text else f'extends = "tiny"\n{block.text}'
            (tmp_path / "own.toml").write_text(text)
            api.job(SHARED.get(card, card), config=str(tmp_path / "own.toml"))


SHARED = {"videos": "vclimb"}


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
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.setenv("https_proxy", "http://127.0.0.1:1")
        patch.setenv("http_proxy", "http://127.0.0.1:1")
        patch.chdir(ROOT)
        config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


def test_the_site_fetches_nothing(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    loaded = r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//|<link\b[^>]*\bhref=["'](?:https?:)?//"""
    assert [page.name for page in pages if re.search(loaded, page.read_text("utf-8"))] == []


def test_every_block_of_the_site_is_shown_as_one(site: Path) -> None:
    """A fence that the site does not understand is shown as text, and so is every one after it."""
    pages = sorted(site.rglob("*.html"))
    assert [str(page.relative_to(site)) for page in pages if "```" in page.read_text("utf-8")] == []


def test_links_of_the_table_of_names_are_resolved(site: Path) -> None:
    names = (site / "api" / "index.html").read_text("utf-8")
    assert re.findall(r"\[<code>bw\.\w+</code>\]", names) == []
    assert len(re.findall(r"<a\b[^>]*><code>bw\.\w+</code>", names)) > 25


def test_every_kind_is_named(site: Path) -> None:
    commands = (site / "command_line.html").read_text("utf-8")
    extending = (DOCS / "extending.md").read_text("utf-8")
    assert [kind for kind in REGISTRIES if f"{kind}," not in commands and f"{kind}. Columns" not in commands] == []
    assert [kind for kind in REGISTRIES if f"`{kind}`" not in extending and f"list {kind}`" not in extending] == []


@pytest.mark.parametrize("name", TITLES)
def test_every_setting_has_a_meaning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    from settings import settings_page

    rows = [line for line in settings_page(name).splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    assert [row for row in rows if row.endswith("|  |")] == []


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
