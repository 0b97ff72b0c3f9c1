"""Look at reports as people do: pictures of each page by width and colours, and what axe-core finds in it.

It needs Chromium, node, and a folder in which ``npm install axe-core puppeteer-core`` was run; it is no part of the tests.

    NODE_PATH=FOLDER/node_modules python benchmarks/look_at_reports.py --to shots out/report.html ...

Prints a line a finding: the page, its width and colours, how bad it is, the rule and the first place. Exits 1 if one is serious
or critical, if a page is wider than its window, or if it asks for anything from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTHS = (1400, 375)
COLOURS = ("light", "dark")
SEVERE = ("serious", "critical", "too wide", "fetched")

LOOK = """
const { chromium, pages, widths, colours, to } = JSON.parse(process.argv[2]);
const puppeteer = require('puppeteer-core');
const axe = require('fs').readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ['--no-sandbox'] });
  const found = [];
  for (const [name, file] of pages) for (const width of widths) for (const scheme of colours) {
    const page = await browser.newPage();
    await page.setBypassCSP(true);  // for axe, which is put into the page
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.setViewport({ width, height: 900, isMobile: width < 600 });
    const at = { page: name, width, scheme };
    const inside = r => /^(file|data):/.test(r.url());
    page.on('request', r => inside(r) || found.push({ ...at, impact: 'fetched', rule: r.url(), where: '' }));
    await page.goto('file://' + file, { waitUntil: 'load' });
    const wide = await page.evaluate(() => {
      const room = document.documentElement.clientWidth, all = [...document.querySelectorAll('body *')];
      const clipped = e => e.closest('.scroll, picture') || getComputedStyle(e).position === 'absolute';
      const widest = all.find(e => e.getBoundingClientRect().right > room + 1 && !clipped(e));
      return document.documentElement.scrollWidth > window.innerWidth || document.documentElement.scrollWidth > room
        ? (widest ? widest.outerHTML.slice(0, 160) : 'the page') : '';
    });
    if (wide) found.push({ ...at, impact: 'too wide', rule: 'scrolls sideways', where: wide });
    await page.screenshot({ path: `${to}/${name}-${width}-${scheme}.png`, fullPage: true });
    await page.evaluate(() => document.querySelectorAll('details').forEach(each => { each.open = true; }));
    await page.evaluate(axe);
    for (const one of (await page.evaluate(() => axe.run({ resultTypes: ['violations'] }))).violations)
      found.push({ ...at, impact: one.impact, rule: `${one.id} (${one.nodes.length})`, where: one.nodes[0].html.slice(0, 99) });
    await page.close();
  }
  await browser.close();
  console.log(JSON.stringify(found));
})().catch(error => { console.error(String(error)); process.exit(1); });
"""


def look(pages: Sequence[tuple[str, Path]], to: Path) -> list[dict[str, Any]]:
    """What is found in pages, by name; their pictures are written into a folder."""
    chromium, node = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("node")
    if chromium is None or node is None or "NODE_PATH" not in os.environ:
        raise SystemExit("needs chromium and node on the path, and NODE_PATH with axe-core and puppeteer-core")
    to.mkdir(parents=True, exist_ok=True)
    script = to / "look.cjs"
    script.write_text(LOOK)
    shown = [(name, str(path.resolve())) for name, path in pages]
    asked = {"chromium": chromium, "pages": shown, "widths": WIDTHS, "colours": COLOURS, "to": str(to.resolve())}
    told = subprocess.run([node, str(script), json.dumps(asked)], check=True, stdout=subprocess.PIPE, text=True).stdout
    script.unlink()
    return json.loads(told)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("pages", nargs="+", type=Path)
    reader.add_argument("--to", type=Path, default=Path("shots"))
    given = reader.parse_args()
    found = look([(path.resolve().parent.name, path) for path in given.pages], given.to)
    for one in found:
        print("  ".join(str(one[name]) for name in ("page", "width", "scheme", "impact", "rule", "where")))
    print(f"{len(given.pages)} pages, {len(found)} findings; pictures in {given.to}")
    sys.exit(any(one["impact"] in SEVERE for one in found))


if __name__ == "__main__":
    main()
