"""CLEAR's report: buckets by their dates, samples by time, and nothing that is not so of a run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.rng import uniform
from benchwright.eval.report.blocks import Figure, Heats, Sheet, Table
from benchwright.pipelines.clear.bucket_names import Bucket, time_buckets
from benchwright.pipelines.clear.config import ClearConfig
from benchwright.pipelines.clear.report import _bucket_section, _class_section, _contacts, _prompts_section, _samples, _vectors
from benchwright.pipelines.clear.training_sections import results_sections
from benchwright.pipelines.jobs import job
from benchwright.pipelines.report import ReportedRun
from PIL import Image

from .conftest import Cli
from .pages import faults

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (30, 60, 200)}
SETTINGS = """extends = "photos"
source.root = "photos"
buckets.rule = { kind = "calendar", period = "PERIOD" }
encoder.kind = "colours"
retrieval.candidates = 6
retrieval.per_class = 4
choice.per_class = 4
baselines.epochs = 2
baselines.methods = ["finetune", "er"]
classes = [{ name = "red", prompts = ["red"] }, { name = "green", prompts = ["green"] }, { name = "blue", prompts = ["blue"] }]
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos that have the time of capture in their EXIF, and no other."""
    folder = tmp_path_factory.mktemp("calendar")
    (folder / "photos").mkdir()
    for year in (2009, 2010, 2012):
        for number in range(24):
            image = Image.new("RGB", (48, 48), (15 * (year - 2004) + number,) * 3)
            image.paste([*COLOURS.values()][number % 3], (12, 12, 36, 36))
            exif = Image.Exif()
            exif.get_ifd(0x8769)[0x9003] = f"{year}:0{3 + number % 2}:02 10:00:{number:02d}"
            image.save(folder / "photos" / f"{year}-{number:02d}.jpg", exif=exif)
    return folder


def page_of(bw: Cli, folder: Path, period: str, *train: str) -> str:
    (folder / "own.toml").write_text(SETTINGS.replace("PERIOD", period))
    out = folder / period
    told = bw("run", "clear", "--config", folder / "own.toml", "--out", out, "--quiet", *train)
    assert told.code == 0, told.err
    assert bw("report", out).code == 0
    return (out / "report.html").read_text()


def section(page: str, title: str) -> str:
    return page.partition(f">{title}</h2>")[2].partition("<section id=")[0]


def headings(table: str) -> list[str]:
    return re.findall(r'<th scope="col"[^>]*>([^<]*)', table.partition("</thead>")[0])


@pytest.mark.usefixtures("two_seeds", "blank_figures")
def test_calendar_buckets_go_by_their_dates_everywhere(bw: Cli, photos: Path) -> None:
    page = page_of(bw, photos, "year", "--train")
    years = ["2009", "2010", "2012"]
    limits = section(page, "Time buckets").partition("Limits of the buckets by date_taken")[2]
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in limits.split("<tr>")[2:]]
    assert rows[0] == ["2009", "0", "2009-03-02 10:00:00", "2009-04-02 10:00:23", "24"]
    assert [row[0] for row in rows] == years
    assert "None" not in section(page, "Time buckets")
    assert headings(section(page, "Concepts")) == ["concept", *years, "all"]
    assert headings(section(page, "Samples by time")) == years
    assert re.findall(r"<h3>[^<]*, (\S+) <small>", section(page, "Contact sheets"))[:3] == years
    assert "where the mean of each lies: 2009 (" in section(page, "Map of the vectors")
    assert headings(section(page, "Drift").partition('class="heat"')[2]) == years
    for title in ("Baselines, iid protocol", "Baselines, streaming protocol"):
        trained = section(page, title)
        assert headings(trained.partition('class="heat"')[2]) == years
        assert re.findall(r'<th scope="row" class="text plain">(20\d\d)</th>', trained)[:3] == years, "numbers of a curve"


def test_months_are_named_as_well(bw: Cli, photos: Path) -> None:
    page = page_of(bw, photos, "month")
    assert headings(section(page, "Concepts"))[1:3] == ["2009-03", "2009-04"]


@pytest.mark.usefixtures("blank_figures")
def test_nobody_is_said_to_have_confirmed_what_nobody_has_seen(bw: Cli, photos: Path, copy: Path) -> None:
    page = page_of(bw, photos, "year")
    assert not re.search("confirm|annotat|worker", page.partition(">Tables of the paper</h2>")[0].lower())
    assert "Votes" not in re.findall(r"<h2[^>]*>([^<]*)", page)
    assert bw("report", copy).code == 0
    assert "confirmed by annotators" in (copy / "report.html").read_text()


@pytest.mark.usefixtures("blank_figures")
def test_a_run_that_waits_says_for_what(bw: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert bw("run", "clear", "--config", "tiny", "--set", "qa.votes=imported", "--out", out, "--quiet").code == 0
    assert bw("report", out).code == 0
    summary = section((out / "report.html").read_text(), "Summary")
    assert "The run is not finished: the next stage is voted." in summary
    assert f"It is waiting: ask the annotators in the browser (`benchwright qa serve {out}`)" in summary


@pytest.fixture(scope="module")
def config() -> ClearConfig:
    return job("clear", config="tiny").config


def only(run: ReportedRun, *stages: str) -> ReportedRun:
    return dataclasses.replace(run, made={name: made for name, made in run.made.items() if name in stages})


def test_stages_that_a_plan_has_not_leave_out_their_sections(tiny: Path, config: ClearConfig) -> None:
    """As of a source that brings buckets and labels: nothing is cut, retrieved, asked or chosen."""
    run = only(ReportedRun.of(str(tiny)), "listed", "placed", "split")
    by, buckets = time_buckets(run)
    assert (by, [bucket.number for bucket in buckets]) == ("date_uploaded", [1, 2, 3])  # of the times that the rows have
    assert sum(bucket.images for bucket in buckets) == run.made["placed"].rows
    nothing = only(run, "split")
    assert (time_buckets(nothing), _bucket_section(config, "", [])) == (("", []), [])
    [concepts] = _class_section(run, config, buckets)
    [counts] = concepts.blocks
    assert isinstance(counts, Table)
    assert counts.caption == "Images in the benchmark, by bucket"
    assert list(counts.columns) == ["concept", "2010\u20132011", "2012\u20132013", "2014\u20132015", "all"]
    assert counts.total is not None
    assert counts.total[-1] == 210
    [samples] = _samples(run, config, buckets)
    assert isinstance(samples.blocks[0], Sheet)
    assert samples.blocks[0].columns == [(bucket.name, bucket.days) for bucket in buckets]
    assert _contacts(run, config, buckets) == []
    assert [each.title for each in _vectors(run, config, buckets)] == ["Map of the vectors", "Drift"]
    empty = only(run, "listed")
    assert [
        *_class_section(empty, config, []),
        *_samples(empty, config, []),
        *_contacts(empty, config, []),
        *_vectors(empty, config, []),
        *results_sections(empty, config, []),
    ] == []


def test_prompts_and_options_are_those_of_the_settings_and_the_papers_beside_its_own(config: ClearConfig) -> None:
    """Tables 2 and 3 of the supplement."""
    [section] = _prompts_section(job("clear", config="published", overrides=["source.metadata=x"]).config)
    [table] = section.blocks
    assert isinstance(table, Table)
    assert len(table.rows) == 11
    rows = {row[0]: list(row) for row in table.rows}
    assert rows["laptop"] == [
        "laptop",
        "laptop",
        "computer (laptop/tablet/desktop/keyboard/etc.)",
        "Product",
        "laptop, desktop, tablet, mouse, keyboard",
    ]
    assert rows["sweater"][3:] == ["Fashion", "sweater, hoodies, sweatshirt"]
    assert rows["BACKGROUND"] == ["BACKGROUND", "", "None of the above", "", ""]
    [own] = _prompts_section(config)
    assert isinstance(own.blocks[0], Table)
    assert list(own.blocks[0].columns) == ["concept", "prompts", "option of annotators"]


def test_limits_stand_beside_the_published_ones_of_as_many_photos_alone(config: ClearConfig) -> None:
    """Table 1 of the supplement."""
    published = job("clear", config="published", overrides=["source.metadata=x"]).config
    drawn = [Bucket(n, str(n), str(n), "a", "b", 713_637 if n < 4 else 713_636) for n in range(11)]
    for c, buckets, beside in (
        (published, drawn, True),
        (published, [*drawn[:-1], dataclasses.replace(drawn[-1], images=7)], False),
        (dataclasses.replace(config, buckets=published.buckets), drawn, False),
    ):
        [_, limits] = _bucket_section(c, "uploaded_unix", buckets)[0].blocks
        assert isinstance(limits, Table)
        assert ("first, published" in limits.columns) == beside
        assert ("2007-04-09 03:27:17" in limits.rows[0]) == beside


def test_samples_are_drawn_by_key_and_seed(tiny: Path, config: ClearConfig) -> None:
    run = ReportedRun.of(str(tiny))
    _, buckets = time_buckets(run)
    [found] = _samples(run, config, buckets)
    classes, background = found.blocks
    assert isinstance(classes, Sheet)
    assert isinstance(background, Sheet)
    assert [name for name, _ in classes.rows] == ["red", "green", "blue"]
    assert [name for name, _ in background.rows] == ["BACKGROUND\u00a01", "BACKGROUND\u00a02", "BACKGROUND\u00a03"]
    assert [name for name, _ in classes.columns] == ["2010\u20132011", "2012\u20132013", "2013\u20132016"]
    assert classes.columns[0][1] == "2010-01-04\n2011-12-29"
    rows = run.rows("chosen")
    assert rows is not None
    table = rows.table(["key", "concept", "bucket"]).to_pylist()
    for name, thumbs in classes.rows:
        for bucket, thumb in enumerate(thumbs, 1):
            keys = sorted(row["key"] for row in table if (row["concept"], row["bucket"]) == (name, bucket))
            assert thumb is not None
            assert thumb.caption == keys[int(np.argmin(uniform(0, "sample_sheet", keys)))]
    [other] = _samples(run, dataclasses.replace(config, seed=1), buckets)
    assert isinstance(other.blocks[0], Sheet)
    assert [[thumb and thumb.caption for thumb in row] for _, row in other.blocks[0].rows] != [
        [thumb and thumb.caption for thumb in row] for _, row in classes.rows
    ]


def test_the_map_and_the_drift_are_of_the_stored_vectors(tiny: Path, config: ClearConfig) -> None:
    run = ReportedRun.of(str(tiny))
    _, buckets = time_buckets(run)
    _, drift = _vectors(run, config, buckets)
    curves, heats = (next(block for block in drift.blocks if isinstance(block, kind)) for kind in (Figure, Heats))
    rows = run.rows("chosen")
    assert rows is not None
    table = rows.table(["concept", "bucket"])
    vectors = np.concatenate([*rows.arrays("embedding")]).astype(float)

    def mean(name: str, bucket: int) -> np.ndarray:
        of = (np.array(table["concept"].to_pylist()) == name) & (table["bucket"].to_numpy() == bucket)
        return vectors[of].mean(axis=0)

    def apart(name: str, first: int, second: int) -> float:
        a, b = mean(name, first), mean(name, second)
        return float(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    names = ["red", "green", "blue", "BACKGROUND"]
    assert isinstance(curves, Figure)
    assert curves.data is not None
    assert list(curves.data.columns) == ["bucket", *names]
    assert list(curves.data.rows[2][1:]) == pytest.approx([apart(name, 1, 3) for name in names])
    assert isinstance(heats, Heats)
    assert heats.heats[0].values[1][2] == pytest.approx(np.mean([apart(name, 2, 3) for name in names]))


@pytest.mark.usefixtures("two_seeds")
def test_a_trained_tiny_run_has_a_small_page_with_curves_and_matrices_of_all_methods(bw: Cli, copy: Path) -> None:
    assert bw("train", copy).code == 0
    assert bw("report", copy).code == 0
    page = (copy / "report.html").read_text()
    assert faults(page) == []
    iid = section(page, "Baselines, iid protocol")
    methods = ["nap-finetune", "cumulative-finetune", "reservoir-alpha=1.0-finetune"]
    assert re.findall(r'<p class="label">([^<]*)</p>', iid) == [f"{method}: mean of 2 runs" for method in methods]
    curves = ["nap-finetune", "cumulative-finetune", "alpha 1.0, finetune"]
    for tested in ("same", "next"):
        caption = f"Accuracy after each bucket, tested on the {tested} bucket; band: one standard deviation over runs."
        assert headings(iid.partition(caption)[2]) == ["trained up to bucket", *curves]
    assert iid.count("<figcaption>Accuracy after each bucket") == 2
    assert re.findall(r"from ([\d.]+) <i></i> to ([\d.]+)", iid) == re.findall(
        r"from ([\d.]+) <i></i> to ([\d.]+)", section(page, "Baselines, streaming protocol")
    ), "one scale of colours"
    told = bw("eval", copy, "--json")
    assert told.code == 0
    assert section(page, "Tables of the paper").count("<tr>") == 1 + 9
