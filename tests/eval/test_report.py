"""The report page: text stays text, nothing is fetched, equal input gives equal bytes, and pictures are what they should be."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from benchwright.eval.report import html, trainings
from benchwright.eval.report.blocks import (
    Album,
    Band,
    Card,
    Cards,
    Cell,
    Details,
    Figure,
    Heat,
    Heats,
    ImageGrid,
    Report,
    Section,
    Sheet,
    Switch,
    Table,
    Text,
    Thumb,
)
from benchwright.eval.report.figure_csv import csv_text, figures_of
from benchwright.eval.report.figures import COLOUR, DARK, LIGHT, bar_chart, common_scale, line_chart, rank_chart
from benchwright.eval.report.images import thumbnail
from benchwright.eval.report.inline import Shapes
from benchwright.eval.report.maps import scatter_chart
from benchwright.eval.report.plan_chart import PlanStage, pipeline_section
from benchwright.eval.report.sections import Provenance, contact_section, counts_table, folded, provenance_section
from benchwright.eval.report.trainings import (
    PublishedRow,
    changed_settings,
    changes_text,
    comparable,
    lines_table,
    method_curves,
    metric_blocks,
    percent_heats,
    position_curves,
    position_heats,
    settings_details,
)
from benchwright.eval.results import RESULTS, Line, lines
from PIL import Image

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"' & {{ 7 * 7 }} {% raw %}"


def jpeg(width: int = 60, height: int = 40, colour: str = "red", **save: object) -> bytes:
    memory = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(memory, "JPEG", **save)
    return memory.getvalue()


class Tags(HTMLParser):
    """All tags with their attributes, and the text outside tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "source", "link", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def everything(text: str = "plain") -> Report:
    """A report with every kind of block, with ``text`` wherever text can stand."""
    table = Table([text, "n"], [[text, 1], [Cell(text, code=True, href=text, note=text), math.nan]], text, total=[text, None])
    blocks = [
        Text([text], tone="note"),
        Cards([Card(text, text, text), Card(text, 1234567)]),
        table,
        rank_chart({text: [3, 1], "b": [2]}, rank_axis=text, value_axis=text, group_axis=text, caption=text),
        bar_chart([text, "b"], [3, 4.5], label_axis=text, value_axis=text, caption=text),
        line_chart([text, "b"], {text: [1, 2]}, label_axis=text, value_axis=text, spread={text: [0.1, 0.2]}),
        scatter_chart([[0, 1], [1, 0]], [0, 1], [text, "b"], axes=(text, text), group_axis=text, caption=text),
        Sheet([(text, text)], [(text, [Thumb(jpeg(), text)]), (text, [None])], text),
        Heats([Heat(text, [text], [text, "b"], [[0.5, math.nan]], framed=True)], (0, 1), text, text, text),
        Details(text, [ImageGrid(text, [Thumb(jpeg(), text, 0.25)]), ImageGrid(text, [])]),
        Band([(text, [Thumb(jpeg(), text)]), ("", [])], text),
        Album([text, "part"], [([text, "x"], ImageGrid(text, [Thumb(jpeg(), text)])), ([text, "y"], ImageGrid(text, []))]),
        Switch(text, [(text, Text([text])), ("b", Details(text, [Text([text])]))]),
    ]
    return Report(text, text, [Section(text, blocks), Section(text, [])], foot=text)


def test_hostile_text_is_shown_and_never_obeyed():
    page = html.render(everything(HOSTILE))
    parsed = Tags(page)
    assert parsed.open == []
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "base", "form"}
    for tag, attributes in parsed.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert tag != "img" or (attributes["src"] or "").startswith("data:image/")
        assert tag != "a" or (attributes["href"] or "").startswith("#")  # no link is made of such an address
    assert "{{ 7 * 7 }}" in "".join(parsed.words)
    assert "".join(parsed.words).count("<script>alert(1)</script>") > 10


@pytest.mark.parametrize("href", ["javascript:alert(1)", "data:text/html,x", "//evil.example/x", " https://x", "file:///etc"])
def test_only_web_addresses_become_links(href: str):
    page = html.render(Report("r", "", [Section("s", [Table(["a"], [[Cell("x", href=href)]])])]))
    assert 'rel="noreferrer' not in page
    good = html.render(Report("r", "", [Section("s", [Table(["a"], [[Cell("x", href="https://example.org/a?b=1&c")]])])]))
    assert '<a href="https://example.org/a?b=1&amp;c" rel="noreferrer noopener">x</a>' in good


def test_nothing_is_fetched_from_anywhere():
    parsed = Tags(html.render(everything()))
    for tag, attributes in parsed.tags:
        for name in ("src", "srcset"):
            assert name not in attributes or (attributes[name] or "").startswith("data:image/"), (tag, attributes)
    policy = [a["content"] for tag, a in parsed.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policy) == 1
    assert "default-src 'none'" in (policy[0] or "")
    style = (Path(html.__file__).parent / "report.css").read_text()
    assert "@import" not in style
    assert "url(" not in style


def test_plots_are_parts_of_the_page_and_share_their_shapes():
    curves = [line_chart(["1", "2"], {"one": [1, 2], "two": [2, 1]}, label_axis=x, value_axis="y") for x in ("first", "fist")]
    ranks = rank_chart({"a": [3, 1], "b": [2, 2]}, rank_axis="x", value_axis="y", group_axis="z")
    page = html.render(Report("r", "", [Section("s", [*curves, ranks])]))
    plots = re.findall(r'<svg class="([^"]*)" role="img" aria-label="([^"]*)"', page)
    assert plots == [("", curves[0].alt), ("", curves[1].alt), ("on-light", ranks.alt), ("on-dark", ranks.alt)]
    assert "base64" not in page
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    used = {one or other for one, other in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)}
    assert used <= {*ids}
    assert any(name.startswith("DejaVuSans") for name in used)
    assert "var(--plot-s1)" in page.partition("</style>")[2]
    assert LIGHT.ink not in page.partition("</style>")[2].partition("on-light")[0]
    for curve in curves:
        assert curve.series == {0: "one", 1: "two"}
    assert page.count('class="series-1"') >= 2
    assert [label.strip() for label in re.findall(r'class="k\d" checked> ([^<]*)</label>', page)] == ["one", "two"] * 2
    assert len(page) < 60_000


def test_what_a_plot_holds_beside_shapes_stays_outside():
    hostile = (
        b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 1 1" onload="x()">'
        b'<script>x()</script><!-- --><a xlink:href="https://x"/><use xlink:href="https://x"/><image href="data:,"/>'
        b'<path onclick="x()" d="M 0 0" style="fill: red"/><defs><path id="p&quot;&gt;" d="M 1 1"/></defs></svg>'
    )
    page = html.render(Report("r", "", [Section("s", [Figure(hostile, "a plot", drawn=True)])]))
    drawn = page[page.index('<svg class=""') : page.index("</svg>")]
    assert 'd="M 0 0"' in drawn
    assert not re.search("script|onclick|onload|https|image ", drawn.partition(">")[2])
    assert 'id="p&#34;&gt;"' in page


def test_choices_hide_the_rest_and_are_all_shown_without_css():
    grids = [([name, part], ImageGrid(f"{name} {part}", [Thumb(jpeg(), "t")])) for name in ("cat", "dog") for part in "12"]
    page = html.render(Report("r", "", [Section("s", [Album(["class", "bucket"], grids)])]))
    assert re.findall(r'<section class="grid" data-f0="(\d)" data-f1="(\d)">', page) == [(a, b) for a in "01" for b in "01"]
    assert ".album:has(.f0[value='1']:checked) .grid:not([data-f0='1'])" in page
    assert re.findall(r"> ([^<]+)</label>", page) == ["cat", "dog", "all", "1", "2", "all"]
    assert page.count(" checked>") == 2
    assert "<script" not in page
    alone = html.render(Report("r", "", [Section("s", [Text(["x"])])]))
    assert ".album:has" not in alone


def test_same_report_same_bytes():
    assert html.render(everything()) == html.render(everything())
    svg = rank_chart({"a": [3, 1], "b": [2, 2]}, rank_axis="x", value_axis="y", group_axis="z").light
    assert b"dc:date" not in svg
    assert b"Matplotlib" not in svg.split(b"<svg")[1]


def test_style_file_of_the_user_changes_no_byte():
    import matplotlib

    expected = bar_chart(["a"], [1], label_axis="x", value_axis="y")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        assert bar_chart(["a"], [1], label_axis="x", value_axis="y") == expected


def test_page_is_accessible_in_its_structure():
    parsed = Tags(html.render(everything()))
    assert all(attributes.get("alt") for tag, attributes in parsed.tags if tag == "img")
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in parsed.tags if tag == "th")
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [(a["href"] or "")[1:] for tag, a in parsed.tags if tag == "a"]
    assert set(targets) <= set(ids)
    assert {"plain", "plain-2"} <= set(ids)  # two sections of one title
    assert ("html", {"lang": "en"}) in parsed.tags


def _luminance(colour: str) -> float:
    rgb = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_colours_have_the_contrast_that_wcag_asks_for():
    style = (Path(html.__file__).parent / "report.css").read_text()
    themes = re.findall(r":root \{(.*?)\}", style, re.S)
    assert len(themes) == 2
    for theme in themes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", theme))
        pairs = [(text, ground) for text in ("ink", "faint", "link") for ground in ("page", "panel")]
        pairs += [(tone, f"{tone}-ground") for tone in ("good", "note", "bad")] + [(t, "page") for t in ("good", "note", "bad")]
        for text, ground in pairs:
            low, high = sorted((_luminance(colours[text]), _luminance(colours[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_values_are_printed_as_people_read_them():
    table = Table(["name", "n", "x"], [["a", 1234567, 0.12345], ["b", None, math.nan], ["c", -3, 2.0]], decimals=2)
    page = html.render(Report("r", "", [Section("s", [table])]))
    for shown in ("1,234,567", "0.12<", ">–<", "-3", "2.00"):
        assert shown in page
    assert page.count('class="number plain"') == 6
    with pytest.raises(ValueError, match=r"row 0: 1 values for 2 columns"):
        Table(["a", "b"], [["x"]])


def test_report_of_a_demo_stays_below_five_megabytes():
    draw = np.random.default_rng(0)
    photos = []
    for _ in range(40):
        memory = io.BytesIO()
        smooth = Image.fromarray(draw.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize(
            (640, 480), Image.Resampling.BICUBIC
        )
        smooth.save(memory, "JPEG", quality=90)
        photos.append(memory.getvalue())
    names = [f"class {c}" for c in range(11)]
    thumbs = {
        n: {f"bucket {b}": [Thumb(photos[(8 * b + i) % 40], "photo", 0.3) for i in range(8)] for b in range(10)} for n in names
    }
    assert len(html.render(Report("demo", "", [contact_section(thumbs, title="Sheets", intro="")])).encode()) < 5 * 2**20


def test_thumbnails_are_upright_small_and_never_enlarged():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to see it upright
    turned = thumbnail(jpeg(400, 200, exif=exif.tobytes()), 50)
    assert turned.size == (25, 50)
    assert thumbnail(jpeg(20, 10), 50).size == (20, 10)
    glass = io.BytesIO()
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(glass, "PNG")
    assert thumbnail(glass.getvalue(), 8).getpixel((4, 4)) == (128, 128, 128)
    with pytest.raises(ValueError, match=r"grid 'g', image 1 \(broken\): 3 bytes"):
        html.render(Report("r", "", [Section("s", [ImageGrid("g", [Thumb(jpeg(), "fine"), Thumb(b"abc", "broken")])])]))


def test_long_labels_of_a_matrix_are_whole():
    rows = ["pick up with one hand + pick up with two hands", "drop trash + walk around"]
    columns = ["finetune, model = gcn", "finetune, model = st_gcn"]
    heats = percent_heats([Heat("t", rows, columns, np.eye(2).tolist())], "task", "method", unit="percent")
    page = html.render(Report("r", "", [Section("s", [heats])]))
    assert "Rows: task; columns: method; percent, from 0.0 <i></i> to 100.0</p>" in page
    assert re.findall('<th scope="row">([^<]*)</th>', page) == rows
    assert re.findall('<th scope="col">([^<]*)</th>', page) == columns


def test_figures_tell_their_numbers_in_words_and_in_a_table():
    figure = bar_chart(["a", "b"], [3, 4.5], label_axis="bucket", value_axis="images")
    assert figure.alt == "Bars of images by bucket: a 3; b 4.5"
    assert figure.data == Table(["bucket", "images"], [("a", 3), ("b", 4.5)])
    assert figure.light.startswith(b"<?xml")
    assert figure.dark is None
    with pytest.raises(ValueError, match="one to twelve"):
        line_chart(["a"], {}, label_axis="", value_axis="")
    with pytest.raises(TypeError, match="'one paragraph': expected a list of them"):
        Text("one paragraph")
    with pytest.raises(ValueError, match="no alt text"):
        Figure(b"<svg/>", "  ")
    with pytest.raises(ValueError, match="SVG, PNG, JPEG or WebP"):
        html.render(Report("r", "", [Section("s", [Figure(b"GIF89a", "a picture")])]))


def test_matrices_of_a_kind_share_a_scale_and_are_in_percent():
    scale = common_scale([[[0.91, math.nan]], [[0.88]]])
    assert scale == (0.85, 0.95)
    assert common_scale([[0.35, 0.7]]) == (0.35, 0.7)
    assert common_scale([[1.0, 1.0]]) == (0.95, 1.0)
    assert common_scale([[0.0]]) == (0.0, 0.05)
    heats = percent_heats([Heat("t", ["r"], ["a", "b"], [[0.9, math.nan]])], "x", "y", unit="percent", scale=scale)
    assert heats.scale == (85, 95)
    assert heats.heats[0].values[0][0] == 90.0
    assert heats.decimals == 1
    with pytest.raises(ValueError, match="leave the scale"):
        percent_heats([Heat("t", ["r"], ["a"], [[0.8]])], "x", "y", unit="percent", scale=scale)


def test_shares_are_drawn_in_percent_and_bands_end_at_0_and_100():
    def drawn(half: float) -> Figure:
        series, spread = {"a": [0.5, 0.5]}, {"a": [half, half]}
        return line_chart(["1", "2"], series, label_axis="x", value_axis="accuracy", spread=spread, shares=True)

    assert drawn(0.5) == drawn(0.9) != drawn(0.4)
    assert drawn(0.5).alt == "Curves of accuracy, percent by x: a from 50 to 50"
    assert drawn(0.5).data == Table(["x", "a"], [["1", 50.0], ["2", 50.0]], "Percent", decimals=1)


def test_curves_that_lie_on_each_other_are_both_seen():
    figure = line_chart(["1", "2"], {"a": [1, 2], "b": [1, 2]}, label_axis="x", value_axis="y")
    style = r"fill: none; stroke(?:-dasharray: ([\d., ]+); stroke-dashoffset: 0; stroke)?: (#\w+); stroke-width: ([\d.]+)"
    lines = re.findall(style, figure.light.decode())
    below, above = (next((float(w), bool(dashes)) for dashes, c, w in lines if c == one) for one in LIGHT.series[:2])
    assert below[0] > above[0]
    assert (below[1], above[1]) == (False, True)


def test_dark_pictures_have_the_colours_of_dark_pages():
    bars = bar_chart(["a"], [1], label_axis="x", value_axis="y")
    ranks = rank_chart({"a": [3, 1], "b": [2, 2]}, rank_axis="x", value_axis="y", group_axis="z")
    curves = line_chart(["1", "2"], {"a": [1, 2]}, label_axis="x", value_axis="y")
    for figure in (bars, curves):  # one picture, whose colours the page changes
        [(_, _, content)] = Shapes().plot(figure.light, figure.dark)
        assert figure.dark is None
        assert LIGHT.ink.encode() in figure.light
        assert "var(--plot-ink)" in content
        assert not COLOUR.search(content)
    assert ranks.dark is not None
    assert LIGHT.ink.encode() in ranks.light
    assert LIGHT.ink.encode() not in ranks.dark
    assert DARK.ink.encode() in ranks.dark
    assert ranks.light.count(b"<path") == ranks.dark.count(b"<path")


def test_dollars_in_labels_are_dollars():
    assert line_chart(["$\\frac$"], {"$": [1]}, label_axis="a", value_axis="b").light
    assert bar_chart(["$x^2$"], [1], label_axis="a", value_axis="b").light.count(b"<?xml") == 1
    assert bar_chart(["$\\frac$"], [1], label_axis="a", value_axis="b").light  # as mathematics this would raise


def test_pipeline_says_whether_its_rows_add_up():
    first = PlanStage("a", "source", rows=10, rejects={"torn": 2}, seconds=0.5, digest="ab" * 32)
    good = pipeline_section([first, PlanStage("b", "each", rows_in=10, rows=7, rejects={"dark": 3}), PlanStage("c")])
    verdict, table = good.blocks
    assert isinstance(verdict, Text)
    assert verdict.tone == "good"
    assert isinstance(table, Table)
    assert table.rows[1][2:6] == [10, 7, 3, "dark 3"]
    bad = pipeline_section([PlanStage("b", "each", rows_in=10, rows=7, rejects={"dark": 2})]).blocks[0]
    assert isinstance(bad, Text)
    assert bad.tone == "bad"
    assert "b: 10 rows in, 7 out, 2 rejected" in bad.paragraphs


def test_counts_have_their_sums():
    table = counts_table([[1, 2], [3, 4]], ["bus", "dress"], ["1", "2"], what="class", caption="c")
    assert table.rows == [["bus", 1, 2, 3], ["dress", 3, 4, 7]]
    assert table.total == ["all", 4, 6, 10]
    with pytest.raises(ValueError, match="for 2 rows and 1 columns"):
        counts_table([[1, 2], [3, 4]], ["bus", "dress"], ["1"], what="class", caption="c")


def results_of(*trainings: dict[str, Any]) -> list[Line]:
    """Lines of trainings under one protocol, each with an accuracy and a metric of somebody's own."""
    rows = []
    for number, one in enumerate(trainings):
        facts = {"benchmark": "b", "dataset": "d", "experiment": str(number), "protocol": "tasks", "model": "linear", "seed": 0}
        facts |= {"method": "er", "position": None, "tested": "", "stratum": "", "order": 0, **one}
        facts["settings"] = json.dumps(facts["settings"], sort_keys=True)
        rows += [{"metric": "acc", **facts, "split": "test", "value": one.get("value", 0.5)}]
        rows += [{**facts, "metric": "held", "split": "", "value": 12.5}]
    return lines(pa.Table.from_pylist(rows, schema=RESULTS))


def test_what_was_measured_is_a_row_a_line_with_its_deviation_and_the_papers_below():
    found = results_of({"settings": {}, "value": 0.5}, {"settings": {}, "seed": 1, "value": 0.6})
    paper = PublishedRow("naive", "Table 6", {"Acc": 87.7})
    table, own = metric_blocks(found, {"Acc": "acc@test", "BWF": "bwf"}, published=[paper])
    assert isinstance(table, Table)
    assert table.columns == ["method", "from", "Acc"], "nothing has the other metric"
    assert table.rows == [["er", "this run", Cell(55.0, note="± 7.1")], ["naive", "Table 6", 87.7]]
    assert isinstance(own, Table)
    assert own.rows == [["er", Cell(12.5, note="± 0.0000")]]
    for metrics, columns in (({"Acc": "acc", "mine": "held"}, ["Acc", "mine"]), ({}, ["held"])):
        (only,) = metric_blocks(found, metrics)  # each metric once
        assert isinstance(only, Table)
        assert only.columns == ["method", *columns]


def test_joint_training_is_a_point_at_the_last_task_where_that_is_asked():
    """IIRC's Figures 3 and 4: joint training has a value only where everything was learned."""
    values = {"er": [0.5, 0.25, 0.125], "joint": [0.75]}
    rows = [
        {
            **dict.fromkeys(RESULTS.names),
            "protocol": "all",
            "method": name,
            "model": "net",
            "settings": "{}",
            "order": 0,
            "seed": 0,
        }
        | {"metric": "acc", "position": at, "tested": "", "split": "test", "stratum": "", "value": value}
        for name, those in values.items()
        for at, value in enumerate(those, 1)
    ]
    found = lines(pa.Table.from_pylist(rows, schema=RESULTS))

    def names(line: Line) -> list[str]:
        return [str(at) for at in range(len(values[line.method]))]

    (figure,) = position_curves(found, "acc", names, value_axis="acc", caption="after each task", ends=True)
    assert isinstance(figure, Figure)
    assert figure.data is not None
    assert figure.data.columns == ["task", "er", "joint"]
    assert [row[1] for row in figure.data.rows] == [50, 25, 12.5]
    assert [row[2] for row in figure.data.rows[-1:]] == [75]
    assert all(math.isnan(row[2]) for row in figure.data.rows[:-1])
    (figure,) = position_curves(found, "acc", names, value_axis="acc", caption="after each task")
    assert isinstance(figure, Figure)
    assert figure.data is not None
    assert figure.data.columns == ["task", "er"]
    assert position_curves(found[1:], "acc", names, value_axis="acc", caption="nothing to compare", ends=True) == []


def test_metrics_in_degrees_are_told_as_degrees():
    found = results_of({"settings": {}, "value": 3.25})
    table = metric_blocks(found, {"mean": "mean_deg"}, "folds")[0]
    assert isinstance(table, Table)
    assert (table.caption, table.decimals) == ("folds: degrees, ± one standard deviation", 2)
    degrees = results_of({"settings": {}, "value": 3.25, "metric": "mean_deg"})
    assert metric_blocks(degrees, {"mean": "mean_deg"})[0].rows == [["er", Cell(3.25)]]


SETTING = [
    ("method", {"settings": {"method": {"alpha": 1}}}, {"settings": {"method": {"alpha": 2}}}),
    ("model", {"settings": {}, "model": "linear"}, {"settings": {}, "model": "mlp"}),
    ("model without settings", {"settings": {"model": {}}}, {"settings": {"model": {}}, "model": "mlp"}),
    ("stream", {"settings": {"data": {"labels": "complete"}}}, {"settings": {"data": {"labels": "incomplete"}}}),
    ("features", {"settings": {"data": {"vectors": "ab12"}}}, {"settings": {"data": {}}}),
]


@pytest.mark.parametrize(("what", "one", "other"), SETTING, ids=[each[0] for each in SETTING])
@pytest.mark.parametrize("methods", [("er", "er"), ("er", "lwf")], ids=["same method", "two methods"])
def test_lines_name_every_setting_in_which_they_differ(what: str, one: dict, other: dict, methods: tuple[str, str]):
    found = results_of({**one, "method": methods[0]}, {**other, "method": methods[1]})
    assert len({line.label for line in found}) == 2
    blocks = metric_blocks(found, {"Acc": "acc"})
    [details] = [block for block in blocks if isinstance(block, Details)]
    [table] = details.blocks
    assert isinstance(table, Table)
    assert table.columns == ["setting", *(line.label for line in found)]
    [row] = table.rows
    assert row[0] in ("method.alpha", "model", "data.labels", "data.vectors")
    assert len({*row[1:]}) == 2
    assert settings_details(found[:1]) == []
    # What labels leave out is told in the open, but for what is a method's own, or what the other has not.
    told = [block for block in blocks if isinstance(block, Text)]
    in_labels = methods == ("er", "er")
    assert bool(told) == (not in_labels and what in ("model", "model without settings", "stream")), told


def test_a_table_names_settings_in_which_lines_of_different_methods_differ():
    """The model and digests, too: two networks stood in one table, and nothing said so."""
    one, other = ({"schedule": {"epochs": epochs}, "weights": digit * 64} for epochs, digit in ((20, "a"), (5, "b")))
    own = {"method": {"strength": 0.4}}
    er, ewc = results_of({"settings": one, "model": "gcn"}, {"method": "ewc", "settings": other | own, "model": "st_gcn"})
    assert [er.label, ewc.label] == ["er", "ewc"]
    assert er.apart == {"model": "gcn", "schedule.epochs": 20, "weights": "a" * 64}
    [text] = [block for block in settings_details([er, ewc]) if isinstance(block, Text)]
    assert text.paragraphs[1:] == [
        f"er: model = gcn; schedule.epochs = 20; weights = {'a' * 12}",
        f"ewc: model = st_gcn; schedule.epochs = 5; weights = {'b' * 12}",
    ]
    alike = results_of({"settings": one}, {"method": "ewc", "settings": one | own})
    assert not any(line.apart for line in alike), "a method's own settings are in its name"


def test_estimators_name_what_they_are_made_of_only_where_they_are_of_one_kind():
    def found(*models: str) -> list[dict[str, Any]]:
        settings = [{"estimator": {"hyper": {"epochs": epochs}}} for epochs in (100, 200)]
        trainings = zip(("small", "large"), models, settings, strict=True)
        return [dict(line.apart) for line in results_of(*({"method": m, "model": n, "settings": s} for m, n, s in trainings))]

    assert found("network", "network") == [{"estimator.hyper.epochs": 100}, {"estimator.hyper.epochs": 200}]
    assert found("gray_edge", "network") == [{}, {}]


def test_labels_have_as_few_settings_as_tell_lines_apart_and_what_was_learned_first():
    vectors = {"settings": {"features": "clip", "schedule": {"epochs": 100, "rate": 1.0}}, "model": "linear"}
    slower = {"settings": {"features": "clip", "schedule": {"epochs": 100, "rate": 0.1}}, "model": "linear"}
    view = {"mean": [0.485, 0.456, 0.406], "side_px": 224}
    pixels = {"settings": {"features": "pixels", "schedule": {"epochs": 70, "rate": 0.01}, "view": view}, "model": "pictures"}
    found = results_of(vectors, slower, pixels, {**pixels, "method": "lwf"})
    assert [line.label for line in found] == [
        "er, features = clip, schedule.rate = 1.0",
        "er, features = clip, schedule.rate = 0.1",
        "er, features = pixels, schedule.rate = 0.01",
        "lwf, features = pixels",
    ]
    assert found[2].apart == {"schedule.epochs": 70, "view.mean": view["mean"], "view.side_px": 224, "model": "pictures"}
    assert found[3].apart == {"schedule.epochs": 70, "schedule.rate": 0.01, "model": "pictures"}
    orders = [{"settings": {"order": [*range(50), last]}} for last in (1, 2)]
    assert len({line.label for line in results_of(*orders)}) == 2, "long values are shortened where that tells them apart"


def test_published_figures_stand_beside_lines_that_are_the_papers_by_their_record():
    fair, other = results_of({"settings": {"a": 1, "b": 2}}, {"settings": {"a": 1, "b": 3}})
    paper = {"a": 1, "b": 2}

    def why(line: Line) -> str:
        return ", ".join(changed_settings(line, [{"a": 7, "b": 7}, paper]))

    assert (why(fair), why(other)) == ("", "b")
    assert changed_settings(other, [paper], apart=["b"]) == []
    found, told = comparable([fair, other], "", why, "all of it")
    assert found == [fair]
    assert told == Text(["Fair comparison: all of it. Not for er, b = 3: b."], tone="good")
    alike = dataclasses.replace(fair, label=other.label)  # as labels of lines of two protocols may be
    assert comparable([alike, other], "", why, "all of it")[0] == [alike]
    assert changes_text(other, [paper]) == "settings of the paper were changed: b"
    assert changes_text(fair, [paper]) == changes_text(other, [paper], apart=["b"]) == ""
    none, told = comparable([fair, other], "other photos", why, "all of it")
    assert none == []
    assert told == Text(["Not a fair comparison: other photos; the paper's figures are not shown."], tone="note")


def test_matrices_and_curves_for_both_protocols_and_any_number_of_domains():
    draw = np.random.default_rng(0)
    whole = draw.random((5, 4, 4))
    future = np.where(np.triu(np.ones((4, 4), bool), 1), whole, np.nan)
    same, following = method_curves({"nap": whole, "er": whole / 2}, list("abcd"), of="bucket")
    assert (same.data.columns, following.data.columns) == (["trained up to bucket", "nap", "er"],) * 2
    assert "tested on the same bucket" in same.caption
    assert "band" in same.caption
    assert [row[1] for row in same.data.rows] == pytest.approx(100 * np.diagonal(whole.mean(0)))
    assert [row[2] for row in following.data.rows][:3] == pytest.approx(50 * np.diagonal(whole.mean(0), 1))
    assert math.isnan(following.data.rows[3][1])
    [only] = method_curves({"nap": future}, list("abcd"), of="bucket")
    assert "tested on the next bucket" in only.caption
    assert method_curves({"nap": whole[:1, :1, :1]}, ["a"], of="bucket") == []
    many = method_curves({f"m{at}": whole for at in range(19)}, list("abcd"), of="bucket")
    assert [[name for name, _ in each.options] for each in many] == [["1 to 7", "8 to 13", "14 to 19"]] * 2
    assert [len(figure.data.columns) - 1 for _, figure in many[0].options] == [7, 6, 6]


def test_limits_of_curves_hold_their_bands(monkeypatch):
    limits = []
    chart = trainings.line_chart
    monkeypatch.setattr(trainings, "line_chart", lambda *a, **more: limits.append(more["limits"]) or chart(*a, **more))
    two = np.broadcast_to(np.array([0.4, 0.6])[:, None, None], (2, 3, 3))  # 50 +- 14.1
    method_curves({"nap": two}, list("abc"), of="bucket")
    assert limits == [pytest.approx((34, 66))] * 2
    limits.clear()
    method_curves({"nap": two[:1]}, list("abc"), of="bucket")  # one run has no band
    assert limits == [pytest.approx((34, 41))] * 2


def test_matrices_as_tables_have_one_scale_of_colours():
    whole = np.array([[[0.5, 0.9], [0.7, 1.0]], [[0.7, 0.9], [0.7, 1.0]]])
    future = np.array([[[math.nan, 0.5], [math.nan, math.nan]]])
    lines = {"nap <b>": whole, "er": future, "lost": np.full((1, 2, 2), math.nan)}
    names = ["2009", "2010"]
    heats, told = position_heats({label: (names, runs) for label, runs in lines.items()}, of="bucket")
    assert told == Text(["lost: not tested on a later bucket, since there is none."])
    assert [(heat.title, heat.framed) for heat in heats.heats] == [("nap <b>: mean of 2 runs", True), ("er: 1 run", False)]
    assert heats.scale == (50, 100)
    assert position_heats({"nap <b>": (names, whole)}, of="bucket", scale=(0.25, 1.0))[0].scale == (25, 100)
    assert position_heats({"lost": (["0"], [[[math.nan]]])}, of="bucket") == [told]
    page = html.render(Report("r", "", [Section("s", [heats])]))
    cells = re.findall(r'<td style="--v:(\d+)%" class="([ df]*)">([^<]*)</td>', page)
    assert cells == [
        ("20", " f", "60.0"),
        ("80", "d", "90.0"),
        ("40", "", "70.0"),
        ("100", "d f", "100.0"),
        ("0", "", "50.0"),
    ]
    assert page.count("<td></td>") == 2 + 3  # corners, and what was not tested
    assert "nap &lt;b&gt;" in page
    assert page.count("; framed: what was learned last</p>") == 1
    [unframed, _] = position_heats({"er": (names, future), "lost": (names, lines["lost"])}, of="bucket")
    assert "framed:" not in html.render(Report("r", "", [Section("s", [unframed])]))  # what was learned last is not tested
    assert '<th scope="row">2010</th>' in page
    with pytest.raises(ValueError, match="1 rows of \\[1\\] for 1 x 2 labels"):
        Heat("t", ["a"], ["a", "b"], [[1.0]])


def test_parts_stand_below_their_names_where_there_are_several():
    one, other = Text(["one"]), Text(["other"])
    assert folded({}) == []
    assert folded({"a": [one, other]}) == [one, other]
    assert folded({"a": [one], "b": [], "c": [other]}) == [Details("a", [one], opened=True), Details("c", [other])]


def test_numbers_of_matrices_are_a_file_of_rows():
    two = {"nap": (["0", "1"], [[[0.5, math.nan], [0.25, 1.0]]]), "er": (["0"], [[[0.75]]])}  # of different sizes
    report = Report("r", "", [Section("Results", [Details("d", position_heats(two, of="task"))])])
    assert csv_text(figures_of(report)["results-1.csv"]).splitlines() == [
        "matrix,trained up to task,tested on task,accuracy in percent",
        "nap: 1 run,0,0,50.0",
        "nap: 1 run,0,1,",
        "nap: 1 run,1,0,25.0",
        "nap: 1 run,1,1,100.0",
        "er: 1 run,0,0,75.0",
    ]
    assert "; the numbers as a file: numbers/results-1.csv</p>" in html.render(report, "numbers")
    assert "as a file" not in html.render(report)


def test_numbers_in_coloured_cells_can_be_read():
    """WCAG contrast of at least 4.5 at every depth of the colours, which are mixed in OKLab, on light and on dark pages."""
    css = (files("benchwright.eval.report") / "report.css").read_text()
    pairs = zip(*(re.findall(rf"--{name}: (#\w+)", css) for name in ("pale", "deep", "on-pale", "on-deep")), strict=True)
    template = (files("benchwright.eval.report") / "blocks.html").read_text()
    [limit] = re.findall(r"if deep > (\d+)", template)
    to_cone = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    to_cone = np.array([*to_cone, [0.0883024619, 0.2817188376, 0.6299787005]])

    def linear(colour: str) -> np.ndarray:
        parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)

    def luminance(light: np.ndarray) -> float:
        return float(np.clip(light, 0, 1) @ [0.2126, 0.7152, 0.0722])

    themes = list(pairs)
    assert len(themes) == 2
    for pale, deep, on_pale, on_deep in themes:
        ends = [np.cbrt(to_cone @ linear(colour)) for colour in (pale, deep)]  # a mix in OKLab is one of cube roots of cones
        for depth in range(101):
            mixed = np.linalg.inv(to_cone) @ (ends[0] * (1 - depth / 100) + ends[1] * depth / 100) ** 3
            ink = luminance(linear(on_deep if depth > int(limit) else on_pale))
            low, high = sorted([luminance(mixed), ink])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (pale, depth)


def test_sheets_of_pictures_by_column():
    shown = Thumb(jpeg(40, 20), 'a "key"')
    sheet = Sheet([("2009", ""), ("3", "2008-01-01\n2009-01-01")], [("cat", [shown, None])], "drawn", side_px=10)
    page = html.render(Report("r", "", [Section("s", [sheet])]))
    assert 'width="10" height="5" alt="a &#34;key&#34;"' in page
    assert '<th scope="col">3<small>2008-01-01\n2009-01-01</small></th>' in page
    assert "<td>–</td>" in page
    with pytest.raises(ValueError, match="row 'cat': 1 places for 2 columns"):
        Sheet(sheet.columns, [("cat", [None])], "drawn")


class Named(NamedTuple):
    label: str


def test_published_rows_stand_below_their_own():
    lines = [Named(name) for name in ("nap", "er")]
    papers = [PublishedRow("ER", "Table 1", {"acc": 92.2}, "er"), PublishedRow("Nap", "Table 4", {"acc": 87.7}, "nap")]
    table = lines_table(lines, {"acc": lambda line: 1.0}, "x", published=[*papers, PublishedRow("SI", "Table 1", {"acc": 9.0})])
    assert [row[0] for row in table.rows] == ["nap", "Nap", "er", "ER", "SI"]


def test_provenance_has_the_whole_digest_of_its_sources():
    page = html.render(Report("r", "", [provenance_section([Provenance("yfcc", "CC BY", "ab" * 32)])]))
    assert "ab" * 32 in page
    assert f">{'ab' * 6}</code>" in page


def test_provenance_has_no_column_that_says_nothing():
    [table] = provenance_section([Provenance("votes", "", what="answers"), Provenance("root", "CC BY")]).blocks
    assert isinstance(table, Table)
    assert table.columns == ["source", "what it is", "licence"]
    assert table.rows == [["votes", "answers", None], ["root", None, "CC BY"]]
