"""The browser of the tests sees what it is there for."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests import browser as our
from tests.browser import opened, serious

POLICY = "<meta http-equiv='content-security-policy' content='script-src none'><script>1</script>"


@pytest.mark.parametrize(
    ("told", "html"),
    [
        ("dialog: 1", "<script>alert(1)</script>"),
        ("here is a fault", "<script>throw new Error('here is a fault')</script>"),
        ("Content Security Policy", POLICY),
        ("asked for http://127.0.0.1:1/", "<img src=http://127.0.0.1:1/x.png>"),
        ("", "<p>nothing"),
    ],
)
def test_what_a_page_may_not_do_fails_its_test(browser: Browser, told: str, html: str) -> None:
    faults = ""
    try:
        with opened(browser) as page:
            page.route("http://127.0.0.1:2/", lambda route: route.fulfill(body=html, content_type="text/html"))
            page.goto("http://127.0.0.1:2/")
    except AssertionError as error:
        faults = str(error)
    assert told in faults
    assert bool(told) == bool(faults)


def test_axe_finds_a_picture_without_words(browser: Browser) -> None:
    with opened(browser) as page:
        page.set_content("<html lang=en><title>x</title><main><h1>x</h1><img src='data:,' alt='words'></main>")
        assert serious(page) == []
        page.set_content("<html lang=en><title>x</title><main><h1>x</h1><img src='data:,'></main>")
        assert "image-alt" in serious(page)[0]


def test_without_chromium_the_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(our, "chromium", lambda: "")
    with pytest.raises(pytest.skip.Exception, match="apt-get install"), our.launched():
        pass
