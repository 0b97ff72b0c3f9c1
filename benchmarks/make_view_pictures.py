"""The pictures of ``docs/view.md``: pages of ``benchwright view`` in headless Chromium. It needs the packages of ``[dev]``, and
``chromium``; no test runs it.

    python -P benchmarks/make_view_pictures.py FOLDER
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchwright.pipelines import api

from tests.browser import launched, opened
from tests.pipelines.served import serving

TO = Path(__file__).resolve().parents[1] / "docs" / "images"
PAGES = {
    "view": ("clear", "/stage/chosen?column=bucket&is=ge&value=2&sort=-score&size=8"),
    "view-map": ("clear", "/stage/embedded?colour=bucket&size=4#map-title"),
    "view-row": ("skeleton", "/stage/shards/row?key=raise_left_arm-0019"),
    "view-plan": ("vclimb", "/"),
}
"""Name of the picture -> benchmark whose tiny run is shown, and the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the runs are made, or are already")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with launched() as browser, contextlib.chdir(folder):
        for name, (benchmark, place) in PAGES.items():
            out = Path(benchmark)  # as pages show it
            if not (out / "dataset").exists():
                api.run(api.job(benchmark, config="tiny"), str(out))
            with serving(out) as link, opened(browser, viewport={"width": 1280, "height": 1000}) as page:
                page.goto(link)
                page.goto(link.replace("/?token=a-token", place))
                page.wait_for_load_state("networkidle")
                page.screenshot(path=TO / f"{name}.png")
                print(TO / f"{name}.png", (TO / f"{name}.png").stat().st_size)


if __name__ == "__main__":
    main()
