"""``benchwright view`` in a real browser: it runs its own scripts alone, asks nobody else, and axe-core finds nothing bad."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import benchwright as bw
import numpy as np
import pyarrow.parquet as pq
import pytest
from benchwright.curation.png import stored_png
from benchwright.curation.run import run
from benchwright.pipelines.catalogue import TITLES
from benchwright.pipelines.view import maps
from PIL import Image
from playwright.sync_api import Browser, Page

from tests.browser import opened, serious
from tests.known_issues.test_hostile_names import HOSTILE
from tests.pipelines.served import serving
from tests.pipelines.view_steps import odd

ROOT = Path(__file__).resolve().parents[2]
ROW = "table.rows tbody th > a:last-child"
"""The link of a row, behind its pictures."""


def no_wider(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def filtered(page: Page, key: str) -> None:
    """Fill in the form for the row of one key."""
    form = page.locator("form.filter").filter(has=page.get_by_role("button", name="Show"))
    form.locator("[name=column]").last.select_option("key")
    form.locator("[name=value]").last.fill(key)
    form.get_by_role("button", name="Show").click()


def way(page: Page, title: str) -> list[str]:
    """Where a table of the page of a row leads, by stage."""
    table = page.locator("section.chapter").filter(has=page.get_by_role("heading", name=title, exact=True))
    return [link.get_attribute("href") or "" for link in table.locator("td a").all()]


def walked(page: Page, link: str) -> None:
    """Open a run, look for a row of its last stage, go back to its source, and forth again; on a phone, too."""
    page.goto(link)
    faults = serious(page)
    page.locator(".stages a").last.click()
    last = page.url
    faults += serious(page)
    key = page.locator(ROW).nth(1).inner_text()
    filtered(page, key)
    assert parse_qs(urlsplit(page.url).query)["value"][-1] == key
    assert page.locator(ROW).all_inner_texts() == [key]
    page.locator(ROW).click()
    assert page.get_by_role("heading", level=1).inner_text() == key
    faults += serious(page)
    source = way(page, "Where it comes from")[-1]
    page.goto(page.url.replace(urlsplit(page.url).path + "?" + urlsplit(page.url).query, source))
    assert page.get_by_text("Nothing before: the stage is a source.").is_visible()
    forth = [place for place in way(page, "What became of it") if urlsplit(last).path in place]
    assert f"{urlsplit(last).path}/row?key=" in forth[0]
    page.set_viewport_size({"width": 375, "height": 800})
    for place in (last, page.url):
        page.goto(place)
        assert no_wider(page), place
    assert faults == []


@pytest.mark.parametrize("name", sorted(TITLES))
def test_a_tiny_benchmark_is_looked_through(name: str, finished: Callable[[str], Path], browser: Browser) -> None:
    with serving(finished(name)) as link, opened(browser) as page:
        walked(page, link)


def test_the_pipeline_of_the_documentation_and_another_run_of_it(tmp_path: Path, browser: Browser) -> None:
    for name in ("words.py", "words.toml"):
        shutil.copy(ROOT / "docs/examples" / name, tmp_path)
    (tmp_path / "texts").mkdir()
    for name, text in {"one": "a rose is a rose", "two": "no two texts are the same", "short": "word"}.items():
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    with contextlib.chdir(tmp_path):
        for out, least in (("loose", 1), ("strict", 3)):
            bw.run(bw.job("words.py", overrides=[f"min_words={least}"]), out)
    with serving(tmp_path / "loose", tmp_path / "strict") as link, opened(browser) as page:
        walked(page, link)
        page.goto(link)
        assert page.get_by_text("No stage has vectors").is_visible()
        page.get_by_role("link", name="Compare").click()
        faults = serious(page)
        page.locator("table").get_by_role("link", name="counted").click()
        assert page.get_by_role("heading", name="only here").is_visible()
        assert [*faults, *serious(page)] == []


# -------------------------------------------------------------------------------------------------------------- vectors


def colours_of(page: Page, out: Path) -> list[str]:
    """What the first rows of a page are labelled."""
    table = pq.read_table(next(out.glob("stages/listed/part-00000.parquet")), columns=["key", "labels"])
    known = dict(zip(table["key"].to_pylist(), table["labels"].to_pylist(), strict=True))
    return [known[key] for key in page.locator(ROW).all_inner_texts()]


def test_rows_are_found_by_text_picture_row_and_line(finished: Callable[[str], Path], browser: Browser) -> None:
    out = finished("clear")
    with serving(out) as link, opened(browser) as page:
        page.goto(link.replace("/?", "/stage/embedded?size=5&"))
        page.get_by_text("864 points.").wait_for()
        assert serious(page) == []
        page.get_by_label("Rows like this text").fill("something red")
        page.get_by_role("button", name="Find").click()
        assert [label for label in colours_of(page, out) if '"red"' not in label] == []
        memory = io.BytesIO()
        Image.new("RGB", (20, 20), (20, 40, 220)).save(memory, "PNG")
        page.locator("[data-picture]").set_input_files({"name": "b.png", "mimeType": "image/png", "buffer": memory.getvalue()})
        page.wait_for_url("**picture=*")
        assert [label for label in colours_of(page, out) if '"blue"' not in label] == []
        page.locator(ROW).first.click()
        page.get_by_role("heading", name="Most like it").wait_for()
        key = page.get_by_role("heading", level=1).inner_text()
        page.get_by_role("link", name="As a table").click()
        assert page.locator(ROW).first.inner_text() == key
        assert page.locator("table.rows tbody tr").first.locator("td").first.inner_text() == "1"
        page.get_by_role("link", name="groups of near-duplicates").click()
        assert page.get_by_role("heading", level=2).count() > 0
        assert serious(page) == []


def test_a_line_around_points_is_an_address(finished: Callable[[str], Path], browser: Browser) -> None:
    out = finished("clear")
    with serving(out) as link, opened(browser) as page:
        page.goto(link.replace("/?", "/stage/embedded?colour=bucket&"))
        page.get_by_text("864 points.").wait_for()
        page.locator(".map canvas").scroll_into_view_if_needed()
        assert page.locator(".legend li").all_inner_texts() == ["0", "1", "2", "3"]
        box = page.locator(".map canvas").bounding_box()
        assert box is not None
        corners = [(0.02, 0.02), (0.5, 0.02), (0.5, 0.98), (0.02, 0.98)]
        for at, (x, y) in enumerate(corners):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            if at == 0:
                page.mouse.down()
        page.mouse.up()
        page.wait_for_url("**lasso=*")
        asked = parse_qs(urlsplit(page.url).query)
        assert asked["colour"] == ["bucket"]
        (drawn,) = [plane for plane in maps._planes._values.values() if len(plane.numbers) == 864]
        inside = maps.enclosed(drawn, asked["lasso"][0])
        assert 0 < len(inside) < 864
        page.get_by_text(f"{len(inside)} points.").wait_for()
        assert page.get_by_text(f"; {len(inside)} rows").first.is_visible()
        page.goto(page.url)  # the same once more: a link is a view
        assert page.get_by_text(f"; {len(inside)} rows").first.is_visible()


# -------------------------------------------------------------------------------------------------------------- hostile


def hostile_files(folder: Path) -> dict[str, bytes]:
    """What the attack campaign makes in place of pictures and videos, and pages that would do something if they were shown."""
    sys.path.append(str(ROOT / "benchmarks"))
    from attack.hostile_pictures import pictures, videos

    found: dict[str, bytes] = {}
    for made in (pictures("x", "PNG")(), videos("x")()):
        for told, put in made.items():
            if told not in ("text bomb", "bomb of 30,000 x 30,000", "megabytes of zeros behind"):  # seconds
                put(folder)
                found[told] = (folder / "x").read_bytes()
    page = b"<!doctype html><script>alert(1)</script><img src=http://127.0.0.1:9/x.png>"
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>"
    return {**found, "page": page, "svg": svg, "png and page": stored_png(np.zeros((4, 4, 3), np.uint8)) + page}


def test_hostile_names_and_files_are_shown_and_inert(tmp_path: Path, browser: Browser) -> None:
    evil = ['"><script>alert(1)</script>', "javascript:alert(1)", "../../etc/passwd", "{{ 7*7 }}", *HOSTILE]
    files = {**hostile_files(tmp_path), **dict.fromkeys(evil, b"<script>alert(1)</script>")}
    given = {name: data.hex() for name, data in files.items()}
    run(bw.source("odd", bw.step(odd, files=given)), str(tmp_path / "run"))
    with serving(tmp_path / "run") as link, opened(browser) as page:
        page.goto(link.replace("/?", "/stage/odd?size=200&histogram=all&"))
        page.wait_for_load_state("networkidle")
        shown = page.locator(ROW).all()
        assert len(shown) >= len(files)
        assert serious(page) == []
        page.goto(link.replace("/?", "/stage/odd?group=label&"))
        for key in (*evil, "page", "svg", "png and page", "playlist", "bomb of 12,000 x 12,000"):
            answer = page.goto(link.replace("/?token=a-token", f"/stage/odd/row?{urlencode({'key': key})}"))
            assert answer is not None
            assert answer.status == 200, key
        raw = page.request.get(link.replace("/?token=a-token", "/stage/odd/payload?key=page&name=file"))
        assert raw.headers["content-type"] == "application/octet-stream"
        assert raw.headers["content-disposition"].startswith("attachment")
