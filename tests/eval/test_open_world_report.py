"""Figures and sections of an open-world report: the numbers of the tidy table, at the places where the paper draws them."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from benchwright.datasets.kowl.tables import class_density as density_of
from benchwright.eval.protocols.open_world.loop import Increment, Setting, SplitSamples, run_open_world
from benchwright.eval.protocols.open_world.measures import tidy as tidy_of
from benchwright.eval.report import html
from benchwright.eval.report.blocks import Details, Figure, Report, Section, Table
from benchwright.eval.report.figures import line_chart, rank_chart
from benchwright.eval.report.open_world import (
    _STRATA_MEASURES,
    MEASURES,
    REACTION,
    Shown,
    density_figure,
    density_section,
    measure_curves,
    measure_figure,
    open_world_sections,
    strata_section,
    stratum_figures,
)

from tests.eval.open_worlds import results_of, rows_of

PLACES = (0.5, 1.0, 1.5, 2.0, 2.5)


class Nearest:
    """Nearest class mean; calls unknown what is farther than ``reach`` from all of them."""

    def __init__(self, reach: float) -> None:
        self.reach = reach

    def fit(self, experience, validation):
        X = np.concatenate([X for _, X, _ in experience])
        y = np.concatenate([y for _, _, y in experience])
        self.classes = np.unique(y[y >= 0])
        self.means = np.stack([X[y == one].mean(axis=0) for one in self.classes])

    def predict(self, uid, X):
        off = np.linalg.norm(X[:, None] - self.means, axis=2)
        near = np.where(off.min(axis=1) > self.reach, 0, 1 + off.argmin(axis=1))
        return np.concatenate([[-1], self.classes]), np.eye(1 + len(self.classes), dtype=np.float32)[near]

    def request(self, uid, X):
        return list(uid)

    def state(self):
        return {"classes": self.classes, "means": self.means}

    def restore(self, state, experience):
        self.classes, self.means = state["classes"], state["means"]


def world() -> list[Increment]:
    draw = np.random.default_rng(0)

    def samples(name: str, labels: list[int]) -> SplitSamples:
        y = np.repeat(np.array(labels, np.int64), 6)
        X = 8 * np.eye(6, dtype=np.float32)[y] + draw.normal(size=(len(y), 6)).astype(np.float32)
        return SplitSamples(np.array([f"{name}{n}" for n in range(len(y))], np.str_), X, y)

    known = ([0, 1], [0, 1, 2], [0, 1, 2, 3])
    return [
        Increment(str(t), *(samples(f"{t}{split}", labels) for split in ("train", "validate", "test")))
        for t, labels in enumerate(known)
    ]


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Two predictors, two feedback amounts, three increments."""
    tables = []
    for name, reach in (("near", 5.0), ("far", 50.0)):
        for feedback in (0.0, 1.0):
            out = tmp_path_factory.mktemp(f"{name}-{feedback}")
            rows = rows_of(run_open_world(Nearest(reach), world(), list("abcdef"), setting=Setting(feedback), folder=out))
            tables.append(results_of(rows, feedback=feedback, method=name))
    return tidy_of(pa.concat_tables(tables))


def numbers(figure: Figure | None) -> dict[str, list[float]]:
    assert figure is not None
    assert figure.data is not None
    return {name: [row[at] for row in figure.data.rows] for at, name in enumerate(figure.data.columns)}


def of(tidy: pa.Table, **wanted: object) -> list[float]:
    """Values of the rows that have these, in the order of ``at``."""
    frame = pl.DataFrame(pl.from_arrow(tidy)).filter(*(pl.col(name) == value for name, value in wanted.items()))
    return frame.sort("at")["value"].to_list()


def test_points_stand_at_t_before_feedback_and_half_a_step_later_after_it(tidy):
    figure = measure_figure(tidy, "mcc", Shown("classification", "test"), feedback=1.0)
    shown = numbers(figure)
    assert shown["increment"] == [f"{place:g}" for place in PLACES]
    for name in ("near", "far"):
        rows = {"predictor": name, "feedback": 1.0, "measure": "mcc", "task": "classification", "split": "test"}
        assert shown[name] == of(tidy, **rows, cumulative=False, novel_to="predictor")
    assert shown["near"] == [1] * 5  # classes far apart: all are told, and what is new is called unknown
    assert shown["far"][1] < 1


def test_curves_by_feedback_are_the_runs_of_one_predictor(tidy):
    shown = numbers(measure_figure(tidy, "mcc", Shown("none", "test_set", cumulative=True), predictor="near"))
    assert list(shown) == ["increment", "feedback 0", "feedback 1"]
    assert shown["feedback 0"][-1] < shown["feedback 1"][-1]
    rows = {"predictor": "near", "feedback": 0.0, "measure": "mcc", "task": "none", "split": "test_set"}
    assert shown["feedback 0"] == of(tidy, **rows, cumulative=True, from_start=False)


def test_reaction_time_is_of_the_evaluators_novelty_before_feedback(tidy):
    shown = numbers(measure_figure(tidy, REACTION, Shown("detection", "test", ("pre",), novel_to="evaluator"), feedback=1.0))
    assert shown == {"increment": ["1", "2"], "far": [1, 1], "near": [0, 0]}


def test_what_the_table_lacks_is_no_figure(tidy):
    assert measure_figure(tidy, "mcc", Shown("classification", "nowhere"), feedback=1.0) is None
    assert measure_figure(tidy, "no such measure", Shown("classification", "test"), feedback=1.0) is None


def test_runs_that_are_not_told_apart_are_an_error(tidy):
    with pytest.raises(ValueError, match=r"curve 'all' has more than one mcc at 0\.5"):
        measure_curves(tidy, "mcc", Shown("classification", "test"), {"all": pl.lit(True)}, of="everything")


def test_a_predictor_keeps_its_colour_where_another_is_missing(tidy):
    frame = pl.DataFrame(pl.from_arrow(tidy))
    part = frame.filter((pl.col("predictor") == "near") | (pl.col("feedback") == 0)).to_arrow()
    both = measure_figure(tidy, "mcc", Shown("classification", "test"), feedback=1.0)
    one = measure_figure(part, "mcc", Shown("classification", "test"), feedback=1.0)
    assert both is not None
    assert one is not None
    assert list(numbers(one)) == ["increment", "near"]
    first, second = b"#1b6ca8", b"#c2571a"  # of the light theme
    assert first in both.light
    assert second in both.light
    assert first not in one.light
    assert second in one.light


def test_hollow_points_are_filled_with_the_page(tidy):
    both = measure_figure(tidy, "mcc", Shown("classification", "test"), feedback=1.0)
    after = measure_figure(tidy, "mcc", Shown("classification", "test", ("post",)), feedback=1.0)
    assert both is not None
    assert after is not None
    assert both.light.count(b"fill: #ffffff") > 0
    assert after.light.count(b"fill: #ffffff") == 0
    assert "before feedback" in both.caption
    assert "Measured after feedback" in after.caption


def samples_table() -> pa.Table:
    rows = [(t, role, label, t > 0 and label == "c") for t in (0, 1) for role in ("train", "test") for label in "aaab"]
    rows += [(1, "train", "c", True)] * 2
    columns = dict(zip(("increment", "role", "label_recent_first", "novel"), zip(*rows, strict=True), strict=True))
    return pa.table({name: list(values) for name, values in columns.items()})


def test_class_density_draws_the_counts_of_the_table():
    density = density_of(samples_table())
    figure = density_figure(density)
    assert figure is not None
    assert figure.data is not None
    # increment, classes, samples, least, quartiles, most
    assert figure.data.rows == [["0", 2, 4, 1, 1.5, 2, 2.5, 3], ["1", 3, 6, 1, 1.5, 2, 2.5, 3]]
    new = density_figure(density, novel=True)
    assert new is not None
    assert new.data is not None
    assert [row[:3] for row in new.data.rows] == [["1", 1, 2]]
    assert density_figure(density, role="val") is None


def blocks_of(section: Section) -> list[object]:
    found: list[object] = []
    for block in section.blocks:
        found += [block, *block.blocks] if isinstance(block, Details) else [block]
    return found


@pytest.fixture(scope="module")
def sections(tidy: pa.Table) -> list[Section]:
    return [density_section(density_of(samples_table())), *open_world_sections(tidy)]


def test_same_table_same_bytes(tidy):
    first, again = (measure_figure(tidy, "mcc", Shown("classification", "test"), feedback=1.0) for _ in range(2))
    assert first == again


def test_sections_hold_every_task_and_a_page_can_be_made(sections):
    assert [section.title for section in sections] == [
        "Class density", "Classification", "Unmapped classes", "Novelty detection", "Novelty recognition",
        "Novelty reaction time", "Over all increments",
    ]  # fmt: skip
    assert all(any(isinstance(block, Figure) for block in blocks_of(section)) for section in sections[:-1])
    page = html.render(Report("Open world", "", sections))

    class Images(HTMLParser):
        alts: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "svg" and ("role", "img") in attrs:
                self.alts.append(dict(attrs).get("aria-label") or "")

    Images().feed(page)
    assert len(Images.alts) > 20
    panels = [b for section in sections for b in section.blocks if isinstance(b, Details) and b.title == "Training samples"]
    assert len(panels) == 5  # of every figure
    figures = [figure for figure in panels[0].blocks if isinstance(figure, Figure)]
    assert all("train" in figure.caption for figure in figures)
    # Accuracy, MCC and NMI of training samples, too: the paper's Figure 8.
    assert [figure.caption.partition(",")[0].lower() for figure in figures] == [name.lower() for name in MEASURES.values()]
    assert all(Images.alts)


def test_tables_of_sections_print_the_sums(tidy, sections):
    titled = {section.title: section for section in sections}
    table = next(block for block in titled["Over all increments"].blocks if isinstance(block, Table))
    assert [row[:4] for row in table.rows] == [
        [p, f, "classification", when] for when in ("after", "before") for p in ("far", "near") for f in "01"
    ]
    assert {row[4] for row in table.rows} == {2 * 6 * (3 + 4)}  # the same samples before and after
    rows = {"split": "test_set", "task": "none", "measure": "mcc", "feedback": 1.0, "predictor": "near", "phase": "post"}
    frame = pl.DataFrame(pl.from_arrow(tidy)).filter(*(pl.col(name) == value for name, value in rows.items()))
    assert frame.filter("from_start").sort("at")["n"].to_list() == [12, 12 + 36, 12 + 36 + 48]  # of increment 0 test alone
    each, folded = (block.blocks[0] for block in titled["Over all increments"].blocks if isinstance(block, Details))
    assert isinstance(each, Table)
    assert isinstance(folded, Table)
    assert [row[:3] for row in each.rows[:3]] == [["far", "0", str(increment)] for increment in range(3)]
    assert each.rows[0][3] is None  # increment 0 is not measured before feedback
    row = next(row for row in folded.rows if row[:4] == ["near", "1", "none", "after"])
    rows = {"predictor": "near", "feedback": 1.0, "phase": "post", "task": "none", "split": "test_set", "increment": 2}
    assert row[5] == of(tidy, **rows, measure="mcc", cumulative=True, from_start=False)[0]
    times = next(block for block in titled["Novelty reaction time"].blocks if isinstance(block, Table))
    assert [row[0] for row in times.rows] == ["far", "far", "near", "near"]
    assert list(times.rows[0][2:]) == [1.0] * 8
    assert times.columns[2:4] == [
        "up to the last novel sample, any detection, detected sample counted",
        "up to the last novel sample, any detection, detected sample not counted",
    ]


def test_all_predictors_and_amounts_are_in_one_plot(tidy, sections):
    titled = {section.title: section for section in sections}
    for title, name in (("Classification", "classification"), ("Unmapped classes", "none")):
        figures = [block for block in titled[title].blocks if isinstance(block, Figure)]
        assert [list(numbers(figure))[1:] for figure in figures] == [["0 % far", "100 % far", "0 % near", "100 % near"]]
        rows = {"predictor": "far", "feedback": 1.0, "measure": "mcc", "task": name, "split": "test_set", "cumulative": False}
        assert numbers(figures[0])["100 % far"] == of(tidy, **rows, novel_to="" if name == "none" else "predictor")


def test_strata_are_drawn_as_in_figure_12(tidy):
    """Accuracy, MCC and NMI by stratum, of sums from increment 0 on after feedback, with all predictors and amounts."""
    rows = pl.DataFrame(pl.from_arrow(tidy)).filter(
        pl.col("split") == "test_set", pl.col("task") == "classification", pl.col("novel_to") == "predictor"
    )
    half = pl.when(pl.col("stratum") == "1").then(0.5).otherwise(1.0)
    strata = pl.concat(
        [rows.with_columns(stratification=pl.lit("actions"), stratum=pl.lit(name)) for name in ("N/A", "10", "1")]
    )
    strata = strata.with_columns(value=pl.col("value") * half)
    section = strata_section(strata.to_arrow(), "Content", ["about"], {"actions": "By number", "area": "By size"})
    assert section is not None
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    assert len(figures) == len(_STRATA_MEASURES) == 3
    for figure, measure in zip(figures, ("top1_accuracy", "mcc", "nmi_arithmetic"), strict=True):
        shown = numbers(figure)
        assert list(shown) == ["stratum", "0 % far", "100 % far", "0 % near", "100 % near"]
        assert shown["stratum"] == ["1", "10", "N/A"]
        for predictor in ("far", "near"):
            for feedback in (0.0, 1.0):
                [value] = rows.filter(
                    pl.col("from_start"), pl.col("increment") == 2, pl.col("measure") == measure,
                    pl.col("predictor") == predictor, pl.col("feedback") == feedback,
                )["value"]  # fmt: skip
                assert shown[f"{100 * feedback:g} % {predictor}"] == pytest.approx([value / 2, value, value])
    table, later = next(block for block in section.blocks if isinstance(block, Table)), blocks_of(section)[-1]
    assert isinstance(later, Table)
    assert [row[:4] for row in table.rows[:2]] == [["1", "far", "0", 96], ["1", "far", "1", 96]]
    assert {row[3] for row in later.rows} == {84}
    assert strata_section(strata.to_arrow(), "Content", ["about"], {"area": "By size"}) is None
    # Figure 12 does not name its split: training samples follow, apart.
    both = pl.concat([strata, strata.with_columns(split=pl.lit("train"), value=pl.col("value") / 2)])
    section = strata_section(both.to_arrow(), "Content", ["about"], {"actions": "By number"})
    assert section is not None
    training = section.blocks[-1]
    assert isinstance(training, Details)
    assert training.title == "Training samples"
    of_training = next(block for block in training.blocks if isinstance(block, Figure))
    assert numbers(of_training)["0 % far"] == pytest.approx([value / 2 for value in numbers(figures[0])["0 % far"]])
    assert "training samples" in of_training.caption


@pytest.mark.usefixtures("blank_figures")
def test_one_run_alone_makes_sections(tidy):
    frame = pl.DataFrame(pl.from_arrow(tidy)).filter((pl.col("predictor") == "near") & (pl.col("feedback") == 1))
    frame = frame.filter(pl.col("split").is_in(["train", "validate"]))
    assert len(open_world_sections(frame.to_arrow())) == 6


@pytest.mark.usefixtures("blank_figures")
def test_more_predictors_than_a_figure_has_curves_are_drawn_in_several(tidy):
    frame = pl.DataFrame(pl.from_arrow(tidy)).filter((pl.col("predictor") == "near") & (pl.col("feedback") == 1))
    many = pl.concat([frame.with_columns(predictor=pl.lit(f"p{number:02}")) for number in range(11)])
    titled = {section.title: section for section in open_world_sections(many.to_arrow())}
    figures = [block for block in titled["Novelty recognition"].blocks if isinstance(block, Figure)]
    assert [list(numbers(figure))[1:] for figure in figures] == [
        [f"p{number:02}" for number in some] for some in (range(8), range(8, 11))
    ]


def test_wrong_tables_are_told(tidy):
    with pytest.raises(ValueError, match="column 'predictor'"):
        open_world_sections(tidy.drop_columns(["predictor"]))
    with pytest.raises(ValueError, match="a tidy table with rows"):
        open_world_sections(tidy.slice(0, 0))


def test_charts_refuse_what_they_cannot_show():
    with pytest.raises(ValueError, match="one to twelve"):
        line_chart([0, 1], {}, label_axis="x", value_axis="y")
    with pytest.raises(ValueError, match="of the shape of the places"):
        line_chart([0, 1], {"a": [1]}, label_axis="x", value_axis="y")
    with pytest.raises(ValueError, match="only NaN"):
        line_chart([0, 1], {"a": [np.nan, np.nan]}, label_axis="x", value_axis="y")
    for counts in ([], [0, 1], [[1, 2]]):
        with pytest.raises(ValueError, match="counts above 0"):
            rank_chart({"a": counts}, rank_axis="classes", value_axis="samples", group_axis="increment")


def test_curves_over_strata_fill_as_many_figures_as_they_need():
    curves = {f"classifier {at}": [0.5, None, -0.2] for at in range(9)}
    figures = stratum_figures("abc", {**curves, "lost": [None] * 3}, axis="stratum", said="MCC", caption="c")
    assert [figure.data.columns for figure in figures] == [["stratum", *curves][:9], ["stratum", "classifier 8"]]
