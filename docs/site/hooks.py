"""The pages that are made from the code, beside those that lie in docs/. See ``hooks`` in mkdocs.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import reference
import settings
from benchwright.pipelines.catalogue import TITLES
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from notebook import as_markdown

ROOT = reference.ROOT
ROOMS = ("curation", "datasets", "training", "eval", "pipelines")


def on_startup(**_: Any) -> None:
    """Links by which mkdocstrings finds the folders as one package, as pyright does (see ``lint`` in the Makefile)."""
    package = ROOT / ".types" / "benchwright"
    package.mkdir(parents=True, exist_ok=True)
    for name, target in {**{room: room for room in ROOMS}, "__init__.py": "front_door/__init__.py"}.items():
        if not (package / name).is_symlink():
            (package / name).symlink_to(Path("../..") / target)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """The pages that are made."""
    made = {f"settings/{name}.md": settings.settings_page(name) for name in TITLES}
    made |= {"presets.md": settings.presets_page(), "command_line.md": reference.command_line_page()}
    made |= dict(reference.api_pages())
    elsewhere = dict(reference.from_the_repository())
    pages = {file.resolve(): page for page, file in elsewhere.items()}
    for page, file in elsewhere.items():
        made[page] = reference.rewritten(file.read_text("utf-8"), file, pages, page)
    for notebook in sorted(Path(config.docs_dir).glob("*.ipynb")):
        made[f"{notebook.stem}.md"] = as_markdown(notebook)
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Links out of docs/ lead to the pages that show what is there."""
    if page.file.generated_by:
        return markdown
    pages = {file.resolve(): place for place, file in reference.from_the_repository()}
    file = Path(page.file.abs_src_path or "")
    return reference.rewritten(markdown, file, pages, page.file.src_uri, stays=Path(config.docs_dir))
