"""What goes to Mechanical Turk: batches, forms (driven in a real browser where there is one), thumbnails, gold
questions.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.qa import mturk
from benchwright.curation.qa.mturk import (
    FIELD_LIMIT_BYTES,
    Gold,
    export_batches,
    guard_formula,
    render_form,
    unguard_formula,
)
from benchwright.curation.qa.options import Option, answers_to_classes, check_options
from benchwright.curation.qa.rounds import gold_key
from benchwright.curation.records import check_records
from benchwright.curation.rows import Blob
from benchwright.curation.store import Store, StoreError
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.browser import chromium

OPTIONS = [
    Option("computer", "laptop", "laptop/tablet/desktop/keyboard/etc."),
    Option("camera", hint="digital/film/etc."),
    Option("bus"),
]
HOSTILE = [
    Option("<script>alert(1)</script>", "evil"),
    Option('"><img src=x onerror=alert(1)>', "quote"),
    Option("${ID} {{ 7*7 }} {% raw %}", "template"),
    Option("'); alert(1); //", "script"),
    Option("naïve 日本 \U0001f600", "unicode"),
]


def table_of(n: int = 7, **columns: Any) -> pa.Table:
    data: dict[str, Any] = {
        "key": [f"{1000 + i}" for i in range(n)],
        "bucket": [1 + i % 2 for i in range(n)],
        "concept": [["laptop", "bus", "BACKGROUND"][i % 3] for i in range(n)],
        "url": [f"https://example.org/{i}.jpg" for i in range(n)],
    }
    return pa.table(data | columns)


def export(folder: Path, table: pa.Table | None = None, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"options": OPTIONS, "background": "BACKGROUND", "seed": 1}
    return export_batches(table_of() if table is None else table, str(folder), **(defaults | settings))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def jpeg(width: int, height: int, *, noise: int | None = None) -> bytes:
    pixels = np.full((height, width, 3), 90, np.uint8)
    if noise is not None:
        pixels = np.random.default_rng(noise).integers(0, 256, pixels.shape, dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG", quality=95)
    return data.getvalue()


def test_one_batch_a_bucket_with_the_columns_of_clear(tmp_path: Path) -> None:
    out = export(tmp_path / "x")
    assert [path.name for path in out.batches] == ["bucket01.csv", "bucket02.csv"]
    assert [path.name for path in out.forms] == ["labels.html", "sensitive.html"]
    assert out.batches[0].read_bytes().startswith(b"image_url,ID,bucket_index,query\r\n")
    assert read(out.batches[0])[0] == {
        "image_url": "https://example.org/0.jpg",
        "ID": "1000",
        "bucket_index": "1",
        "query": "laptop",
    }
    assert sorted(row["ID"] for path in out.batches for row in read(path)) == table_of()["key"].to_pylist()
    assert out.gold == {}
    assert not (tmp_path / "x" / "private").exists()


def test_batches_by_size(tmp_path: Path) -> None:
    out = export(tmp_path, batch_size=3)
    assert [len(read(path)) for path in out.batches] == [3, 3, 1]


def test_the_same_export_has_the_same_bytes_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    gold = Gold(table_of(5, key=[f"g{i}" for i in range(5)]), per_batch=2)
    for name in ("a", "b"):
        export(tmp_path / name, gold=gold, batch_size=3)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 7
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()
    export(tmp_path / "a")
    left = sorted(path.name for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert left == ["bucket01.csv", "bucket02.csv", "export.json", "labels.html", "sensitive.html"]


def test_an_export_that_was_killed_is_no_problem_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default it is in the folder of the run, and `verify` named each file that the kill had left."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mturk, "_replace", killed)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            export(tmp_path / "qa" / "export")
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    assert list(check_records(tmp_path, {})) == []
    out = export(tmp_path / "qa" / "export")
    assert [path.name for path in (tmp_path / "qa").iterdir()] == ["export"]
    assert all(path.is_file() for path in out.batches)


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="it contains files that are not an earlier export"):
        export(tmp_path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{}", "not the record of an export: it has no object 'upload'"),
        ("[]", "not the record of an export: it has no object 'upload'"),
        ('{"upload": ["labels.html"]}', "not the record of an export: it has no object 'upload'"),
        ('{"upload": {', "not readable as JSON: JSONDecodeError"),
        ("\xff", "not readable as JSON: "),
    ],
)
def test_a_damaged_record_of_an_earlier_export_is_named(tmp_path: Path, record: str, message: str) -> None:
    export(tmp_path)
    (tmp_path / "export.json").write_text(record, encoding="latin-1")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=rf"export\.json: {message}"):
        export(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_record_of_an_earlier_export_removes_files_alone(tmp_path: Path) -> None:
    export(tmp_path)
    (tmp_path / "export.json").write_text('{"upload": {"": 1, "..": 2, "\\u0000": 3, "labels.html": 4}}')
    export(tmp_path)
    assert (tmp_path / "upload" / "labels.html").is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("\xff", "is not JSON"), ("[]", "not a gold key: it is not an object")],
)
def test_a_damaged_gold_key_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gold_key.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises((ValueError, StoreError), match=rf"gold_key\.json:? {message}"):
        gold_key(Store(str(tmp_path)), "")


def test_gold_questions_are_mixed_in_and_named_in_the_private_key_alone(tmp_path: Path) -> None:
    gold = Gold(table_of(5, key=[f"{900 + i}" for i in range(5)]), per_batch=2)
    out = export(tmp_path, gold=gold, batch_size=4)
    private = tmp_path / "private" / "gold_key.json"
    key = json.loads(private.read_text())["gold"]
    assert key == out.gold
    assert len(key) == 4
    assert set(key) <= set(gold.table["key"].to_pylist())
    truth = dict(zip(gold.table["key"].to_pylist(), gold.table["concept"].to_pylist(), strict=True))
    assert key == {name: truth[name] for name in key}
    for path in out.batches:
        rows = read(path)
        assert sum(row["ID"] in key for row in rows) == 2
        # Nothing but the key tells them apart: same columns, the bucket of their neighbours.
        assert set(rows[0]) == {"image_url", "ID", "bucket_index", "query"}
    assert private.stat().st_mode & 0o077 == 0
    upload = "".join(path.read_text() for path in (tmp_path / "upload").iterdir()) + (tmp_path / "export.json").read_text()
    assert "gold" not in upload
    others = [row["ID"] for path in out.batches for row in read(path) if row["ID"] not in key]
    assert others == table_of()["key"].to_pylist()
    moved = export(tmp_path / "other", gold=gold, batch_size=4, seed=2)
    assert [read(path) for path in moved.batches] != [read(path) for path in out.batches]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": ["javascript:alert(1)"]}, r"image 'k': 'javascript:alert\(1\)' is not an http\(s\) URL"),
        ({"url": [None]}, "None is not an http"),
        ({"concept": ["zebra"]}, "class 'zebra' has no option in the label form"),
        ({"key": ["a\nb"]}, r"key 'a\\nb': it has a control character"),
        ({"key": ["cat \U0001f600"]}, "no characters beyond U\\+FFFF"),
        ({"bucket": [-1]}, "image 'k': bucket -1"),
    ],
)
def test_rows_that_cannot_be_sent_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row: dict[str, Any] = {"key": ["k"], "bucket": [0], "concept": ["bus"], "url": ["https://example.org/a.jpg"]}
    with pytest.raises(ValueError, match=message):
        export(tmp_path, pa.table(row | change))


def test_missing_columns_and_repeated_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="images: no column 'url'; there are key, bucket, concept"):
        export(tmp_path, table_of().drop(["url"]))
    with pytest.raises(ValueError, match="images: the table has no rows"):
        export(tmp_path, table_of(0))
    with pytest.raises(ValueError, match="a key occurs twice"):
        export(tmp_path, pa.concat_tables([table_of(), table_of()]))
    with pytest.raises(ValueError, match="gold question '1000' is also an image of the run"):
        export(tmp_path, gold=Gold(table_of(1), per_batch=1))


def test_urls_and_formulas_are_disarmed(tmp_path: Path) -> None:
    url = "https://example.org/\"><script>${x}é 1'.jpg?a=1&b=%20"
    table = pa.table({"key": ["=HYPERLINK(1)", "-1"], "bucket": [0, 0], "concept": ["bus"] * 2, "url": [url] * 2})
    rows = read(export(tmp_path, table).batches[0])
    assert rows[0]["image_url"] == "https://example.org/%22%3E%3Cscript%3E%24%7Bx%7D%C3%A9%201%27.jpg?a=1&b=%20"
    assert [row["ID"] for row in rows] == ["'=HYPERLINK(1)", "'-1"]
    assert [unguard_formula(row["ID"]) for row in rows] == ["=HYPERLINK(1)", "-1"]


@given(st.text(alphabet="'=+-@a", max_size=6))
def test_the_guard_is_undone_for_any_text(text: str) -> None:
    assert unguard_formula(guard_formula(text)) == text
    assert not guard_formula(text).startswith(("=", "+", "-", "@"))


def test_thumbnails_travel_in_the_csv(tmp_path: Path) -> None:
    table = table_of(3).drop(["url"])
    images = {"1000": jpeg(800, 400), "1001": Blob(jpeg(30, 60)), "1002": jpeg(50, 50)}
    rows = [row for path in export(tmp_path, table, images=images, thumbnail_px=100).batches for row in read(path)]
    sizes: dict[str, tuple[int, int]] = {}
    for row in rows:
        head, _, data = row["image_url"].partition(",")
        assert head == "data:image/jpeg;base64"
        sizes[row["ID"]] = Image.open(io.BytesIO(base64.b64decode(data, validate=True))).size
    assert sizes == {"1000": (100, 50), "1001": (30, 60), "1002": (50, 50)}


def test_thumbnails_keep_to_the_limit_of_a_question(tmp_path: Path) -> None:
    table = table_of(1).drop(["url"])
    out = export(tmp_path / "a", table, images={"1000": jpeg(400, 400, noise=3)}, thumbnail_px=320)
    address = read(out.batches[0])[0]["image_url"]
    form = out.forms[0].read_bytes()
    assert 30_000 < len(address) <= FIELD_LIMIT_BYTES - len(form)
    assert len(form.replace(b"${image_url}", address.encode())) <= FIELD_LIMIT_BYTES
    message = r"image '1000': its thumbnail of 900 px takes [\d,]+ bytes; MTurk leaves [\d,]+ beside the form"
    with pytest.raises(ValueError, match=message):
        export(tmp_path / "b", table, images={"1000": jpeg(900, 900, noise=3)}, thumbnail_px=900)


def test_images_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    table = table_of(1).drop(["url"])
    with pytest.raises(ValueError, match="image '1000': there are no bytes for it"):
        export(tmp_path, table, images={})
    with pytest.raises(ValueError, match="image '1000': not_an_image"):
        export(tmp_path / "new", table, images={"1000": b"no picture at all"})
    assert not list(tmp_path.iterdir())


def test_options_that_are_ambiguous_are_refused() -> None:
    for options, message in (
        ([], "no options"),
        ([Option("bus"), Option("bus", "coach")], "repeats another"),
        ([Option("bus", "x"), Option("coach", "x")], "repeats another"),
        ([Option("bus"), Option("bus (red)", "y"), Option("bus", "z", "red")], "repeats another"),
        ([Option("None of the above", "x")], "the form itself adds"),
        ([Option("nothing", "BACKGROUND")], "background class"),
        ([Option(" bus")], "white space"),
        ([Option("b\0us")], "control character"),
    ):
        with pytest.raises(ValueError, match=message):
            check_options(options, background="BACKGROUND")


def test_an_answer_may_be_the_text_that_workers_see() -> None:
    shown = "computer (laptop/tablet/desktop/keyboard/etc.)"
    assert OPTIONS[0].shown == shown
    # An answer may carry either form.
    assert answers_to_classes(OPTIONS[:1]) == {"computer": "laptop", shown: "laptop"}


def test_hostile_names_stay_text() -> None:
    form = render_form("labels", HOSTILE, instructions="<b>${query}</b>").decode("ascii")
    assert form.count("<script>") == 1
    assert form.count("<img") == 1
    # MTurk fills in ${...}: the image is the only place where it may.
    assert re.findall(r"\$\{\w*\}", form) == ["${image_url}"]
    values = [html.unescape(value) for value in re.findall(r'class="option" value="([^"]*)"', form)]
    assert values == [option.name for option in HOSTILE]


DRIVER = """
<script>
window.addEventListener("load", function () {
  var form = document.getElementById("submitButton").form, log = [];
  form.addEventListener("submit", function (event) {
    log.push(event.defaultPrevented ? document.getElementById("problem").textContent : "sent");
    event.preventDefault();
  });
  function state() {
    return Array.prototype.map.call(form.querySelectorAll("input.option, #none"), function (b) { return +b.checked;
    }).join("");
  }
  function click(i) { form.querySelectorAll("input.option, #none, input[type=radio]")[i].click(); log.push(state()); }
  function submit() { document.getElementById("submitButton").click(); }
  STEPS
  log.push(Array.from(new FormData(form).entries()));
  document.documentElement.innerHTML = "<body><pre id=log></pre></body>";
  document.getElementById("log").textContent = JSON.stringify(log);
});
</script>
"""


def drive(tmp_path: Path, page: bytes, steps: str, query: str = "?assignmentId=A1") -> list[Any]:
    """Open the form in headless Chromium, run ``steps`` on it, and return what they logged and what would be sent."""
    if not (browser := chromium()):
        pytest.skip("no Chromium on this machine: the form's JavaScript is not driven")
    path = tmp_path / "form.html"
    pixel = b"data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    path.write_bytes(page.replace(b"${image_url}", pixel) + DRIVER.replace("STEPS", steps).encode())
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [*command, "--dump-dom", f"file://{path}{query}"], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<pre id="log">(.*?)</pre>', done.stdout, re.S)
    assert found is not None, done.stdout[:2000] + done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


def test_none_of_the_above_excludes_the_others_in_a_browser(tmp_path: Path) -> None:
    steps = "submit(); click(0); click(2); click(3); submit(); click(1); submit();"
    log = drive(tmp_path, render_form("labels", OPTIONS), steps)
    assert log[:-1] == ["Please choose an answer first.", "1000", "1010", "0001", "sent", "0100", "sent"]
    sent = dict(log[-1])
    assert sent == {"taskAnswers": '[{"image":{"labels":["camera"]}}]', "assignmentId": "A1"}


def test_none_alone_is_an_answer_in_a_browser(tmp_path: Path) -> None:
    log = drive(tmp_path, render_form("labels", OPTIONS), "click(3); submit();")
    assert log[:2] == ["0001", "sent"]
    assert json.loads(dict(log[-1])["taskAnswers"]) == [{"image": {"labels": []}}]


def test_hostile_names_come_back_as_they_are_in_a_browser(tmp_path: Path) -> None:
    log = drive(tmp_path, render_form("labels", HOSTILE), "for (var i = 0; i < 5; i++) { click(i); } submit();")
    assert json.loads(dict(log[-1])["taskAnswers"]) == [{"image": {"labels": [option.name for option in HOSTILE]}}]


def test_a_preview_cannot_be_sent_in_a_browser(tmp_path: Path) -> None:
    query = "?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE"
    log = drive(tmp_path, render_form("labels", OPTIONS), "click(0); submit();", query)
    assert log[1] == "This is a preview: accept the HIT to answer."


def test_the_form_works_inside_the_layout_editors_own_form(tmp_path: Path) -> None:
    page = b'<form id="outer"><input name="assignmentId" value="B2">' + render_form("labels", OPTIONS) + b"</form>"
    log = drive(tmp_path, page, "log.push(form.id); click(2); submit();", query="")
    assert log[:3] == ["outer", "0010", "sent"]
    assert sorted(dict(log[-1])) == ["assignmentId", "taskAnswers"]
    assert len(log[-1]) == 2


def test_the_sensitive_form_in_a_browser(tmp_path: Path) -> None:
    log = drive(tmp_path, render_form("sensitive", OPTIONS), "submit(); click(0); click(1); submit();")
    assert (log[0], log[3]) == ("Please choose an answer first.", "sent")
    assert dict(log[-1]) == {"image-contains.label": "No", "assignmentId": "A1"}
