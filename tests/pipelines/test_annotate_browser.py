"""``benchwright qa serve`` in a real browser: by mouse, by keys, on a phone, without a script, and while the server is away."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchwright.curation import journal
from benchwright.curation.records import JOURNAL
from playwright.sync_api import Browser, Page, expect

from tests.browser import opened, serious
from tests.pipelines.annotating import Server

expect.set_options(timeout=60_000)  # on a busy machine, as everything else in a browser


@pytest.fixture(scope="module")
def out(shapes_waiting: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(shapes_waiting, tmp_path_factory.mktemp("served") / "out"))


@pytest.fixture(scope="module")
def server(out: Path) -> Iterator[Server]:
    served = Server(out)
    served.start()
    yield served
    served.kill()


def given(out: Path, name: str) -> list[tuple[object, object]]:
    """What stands of an annotator."""
    records = [each for each in journal.read(out / "qa" / JOURNAL) if each.get("by") == name]
    last = {each["key"]: each for each in records}
    return [(each["labels"], each["sensitive"]) for each in last.values() if "undone" not in each]


def at(page: Page, number: int) -> None:
    expect(page.get_by_role("heading", name=re.compile(rf"^Question {number}$"))).to_be_focused()


def test_by_mouse_and_by_keys_and_back(browser: Browser, server: Server, out: Path) -> None:
    with opened(browser) as page:
        page.goto(server.links["anna"])
        assert "token" not in page.url
        assert serious(page) == []
        box = page.get_by_role("img", name="The picture to judge").bounding_box()
        assert box is not None
        assert box["width"] * box["height"] > 0.4 * 1280 * 900
        page.get_by_text("square", exact=True).click()
        page.get_by_role("radio", name="No").check()
        page.get_by_role("button", name="Next").click()
        at(page, 2)
        for key in ("1", "y", " "):
            page.keyboard.press(key)
        at(page, 3)
        assert given(out, "anna") == [(["square"], False), (["disc"], True)]
        page.keyboard.press("u")
        at(page, 2)
        expect(page.get_by_role("checkbox", name="disc")).to_be_checked()
        page.keyboard.press("0")
        expect(page.get_by_role("checkbox", name="disc")).not_to_be_checked()
        page.get_by_role("radio", name="No").click()  # by pointer: the space bar means "next" all the same
        page.keyboard.press(" ")
        at(page, 3)
        assert given(out, "anna") == [(["square"], False), ([], False)]
        page.keyboard.press(" ")
        expect(page.get_by_role("alert")).to_have_text("Choose an answer.")
        page.get_by_label("Keys").uncheck()
        page.keyboard.press("1")
        expect(page.get_by_role("checkbox", name="disc")).not_to_be_checked()
        page.get_by_role("checkbox", name="disc").focus()
        page.keyboard.press(" ")  # a control that has the focus is worked as everywhere
        expect(page.get_by_role("checkbox", name="disc")).to_be_checked()


def test_on_a_phone(browser: Browser, server: Server) -> None:
    with opened(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
        page.goto(server.links["ben"])
        assert serious(page) == []
        targets = [page.locator(".option, .judge button, header button").nth(number).bounding_box() for number in range(8)]
        assert all(
            box is not None and box["height"] >= 40 and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in targets
        )
        assert page.locator("html").evaluate("html => html.scrollWidth") <= 390
        page.get_by_text("disc", exact=True).tap()
        page.get_by_text("No", exact=True).tap()
        page.get_by_role("button", name="Next").tap()
        expect(page.get_by_text("1 of 200")).to_be_visible()


def test_without_a_script(browser: Browser, server: Server) -> None:
    with opened(browser, java_script_enabled=False) as page:
        page.goto(server.links["cleo"])
        page.get_by_role("checkbox", name="None of the above").check()
        page.get_by_role("radio", name="No").check()
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_text("1 of 200")).to_be_visible()
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_text("0 of 200")).to_be_visible()
        expect(page.get_by_role("checkbox", name="None of the above")).to_be_checked()


def test_the_pages_of_the_requester_and_of_guests(browser: Browser, server: Server) -> None:
    with opened(browser) as page:
        for place in ("requester", "join"):
            page.goto(server.links[place])
            assert serious(page) == []
        page.get_by_label("Your name").fill("dora")
        page.get_by_role("button", name="Begin").click()
        page.get_by_role("heading", name="Question 1").wait_for()
        page.goto(server.links["requester"])  # in the same browser: one is both
        expect(page.get_by_role("rowheader", name="dora")).to_be_visible()
        page.goto(page.url.rstrip("/") + "/decide")
        assert serious(page) == []


def test_a_question_that_is_gone_is_told_and_left(browser: Browser, server: Server) -> None:
    def go() -> None:
        with opened(browser) as page:
            page.goto(server.links["ben"])
            page.locator(".answer [name=id]").evaluate("field => { field.value = 'of a stage that was made again' }")
            for key in ("1", "n", " "):
                page.keyboard.press(key)
            expect(page.get_by_role("alert")).to_have_text("this question is no longer open")
            page.get_by_role("link", name="Go on").click()
            page.get_by_role("heading", name="Question").wait_for()

    with pytest.raises(AssertionError) as told:
        go()
    assert str(told.value) == "Failed to load resource: the server responded with a status of 400 (Bad Request)"


def test_an_answer_waits_for_a_server_that_was_killed(browser: Browser, server: Server, out: Path) -> None:
    def go() -> None:
        with opened(browser) as page:
            page.goto(server.links["cleo"])
            page.keyboard.press("2")
            page.keyboard.press("n")
            server.kill()
            page.keyboard.press(" ")
            expect(page.get_by_text("Not saved yet")).to_be_visible()
            server.start()
            at(page, 2)

    with pytest.raises(AssertionError) as told:
        go()
    assert {*str(told.value).split("; ")} == {"Failed to load resource: net::ERR_CONNECTION_REFUSED"}
    assert given(out, "cleo")[-1] == (["square"], False)
