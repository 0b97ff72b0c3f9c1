"""The drawing of a plan: every stage is in it, in words and in the picture, for light and for dark pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from benchwright.eval.report.plan_chart import PlanStage, plan_chart

STAGES = (
    PlanStage("listed", "source", "read_files", (), 1200, {}),
    PlanStage("checked", "each", "check", ("listed",), 1000, {"truncated": 150, "tiny": 30, "odd": 15, "far": 5}),
    PlanStage("split", "whole", "split", ("checked", "listed"), 1000, {}),
    PlanStage("shards"),
)


def test_words_and_numbers_of_a_plan() -> None:
    figure = plan_chart(STAGES, caption="as wide as rows")
    assert figure.alt == (
        "Stages from top to bottom: listed 1,200 rows; "
        "checked 1,000 rows, 200 rejected: truncated 150, tiny 30, odd 15, ...; split 1,000 rows; shards not run yet."
    )
    assert figure.data is not None
    assert [list(row) for row in figure.data.rows][1:] == [
        ["checked", "each", "check", "listed", 1000, 200],
        ["split", "whole", "split", "checked, listed", 1000, 0],
        ["shards", "", "", "", None, 0],
    ]


def test_a_plan_is_drawn_for_both_kinds_of_page_and_always_alike() -> None:
    figure = plan_chart(STAGES)
    assert figure.dark is None
    assert ET.fromstring(figure.light).tag.endswith("svg")
    assert plan_chart(STAGES).light == figure.light


def test_room_on_the_left_is_for_second_inputs_alone() -> None:
    """The boxes of a plan without them begin at the left."""

    def paths(stages: tuple[PlanStage, ...]) -> int:
        return plan_chart(stages).light.count(b"<path")

    plain = (*STAGES[:2], PlanStage("split", "whole", "split", ("checked",), 1000, {}), STAGES[3])
    assert paths(STAGES) == paths(plain) + 1


def test_what_is_rejected_stays_within_the_picture() -> None:
    """On a phone, too: the picture is made smaller there, and not cut."""
    long = {"none_of_the_above_and_not_sure": 1_234_567, "taken_not_before_upload": 22, "conflicting_labels": 3, "tiny": 1}
    figure = plan_chart([STAGES[0], PlanStage("checked", "each", "check", ("listed",), 1000, long), STAGES[2]])
    root = ET.fromstring(figure.light)
    width = float(root.attrib["width"].removesuffix("pt"))
    assert figure.fits
    assert width < 450
    ends = [
        float(placed[1])
        + float(placed[2]) * max([float(x) for x in re.findall(r"translate\(([\d.]+)", ET.tostring(text).decode())[1:]])
        for text in root.iter("{http://www.w3.org/2000/svg}g")
        if (placed := re.match(r"translate\(([\d.]+) [\d.]+\) scale\(([\d.]+)", text.get("transform", "")))
    ]
    assert len(ends) > 10
    assert max(ends) < width - 4


def test_a_plan_of_nothing_but_stages_to_come() -> None:
    assert plan_chart([PlanStage("a$b")]).alt.endswith("a$b not run yet.")
    assert plan_chart([PlanStage("empty", "source", "f", (), 0, {"odd": 1})]).alt.endswith("empty 0 rows, 1 rejected: odd 1.")
