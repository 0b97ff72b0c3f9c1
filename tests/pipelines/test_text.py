"""Tables and words that commands print."""

from __future__ import annotations

import io
import math
import sys

import pytest
from benchwright.pipelines.cli.text import line_teller, printed_kappa, score_lines


def result(unit: str = "", **figures: tuple[float | None, float | None]) -> dict[str, object]:
    mean, std = ({name: figure[part] for name, figure in figures.items()} for part in (0, 1))
    return {"mean": mean, "std": std, **({"unit": unit} if unit else {})}


def test_scores_stand_under_their_headings():
    methods = {"a": result(acc=(0.5, 0.012), loss=(1, None)), "a longer name": result(acc=(0.061, 0.1), loss=(None, None))}
    lines = score_lines({"iid": methods, "one": {"b": result(acc=(0.25, None), a_long_metric=(1, None))}})
    assert lines == [
        "iid                     acc    loss",
        "a               50.0 ±  1.2   100.0",
        "a longer name    6.1 ± 10.0       -",
        "",
        "one              acc   a_long_metric",
        "b               25.0           100.0",
    ]
    assert not [line for line in lines if line != line.rstrip()]
    assert len({len(line) for line in lines[:3]}) == 1


def test_degrees_have_two_places():
    found = {"fixed": {"net": result("degrees", mean=(3.351, 0.04)), "grey": result("degrees", mean=(12.0, None))}}
    assert score_lines(found) == ["fixed           mean", "net      3.35 ± 0.04", "grey    12.00"]


def test_a_metric_beyond_shares_is_no_percentage():
    found = {"tasks": {"er": result(acc=(0.5, None), seconds=(3.2, 0.1)), "net": result(acc=(None, None), seconds=(0.4, 0.1))}}
    assert score_lines(found) == ["tasks    acc       seconds", "er      50.0   3.20 ± 0.10", "net        -   0.40 ± 0.10"]


PIXELS = {"model": "pictures", "view.mean": [0.485, 0.456], "view.side_px": 224, "decay": None}
SEVERAL = {
    "iid": {
        "er, features = clip": result(acc=(0.5, 0.01)) | {"apart": {"model": "linear"}},
        "er, features = pixels": result(acc=(0.6, 0.01)) | {"apart": PIXELS},
        "lwf, features = clip": result(acc=(0.7, 0.01)) | {"apart": {"model": "mlp"}},
    }
}


def test_settings_of_a_name_stand_below_it_where_a_line_would_be_too_long():
    below = ["", "Other differences:", "er, features = clip: model = linear"]
    below += [
        "features = pixels: model = pictures; view.mean = [0.485, 0.456]; view.side_px = 224",
        "lwf, features = clip: model = mlp",
    ]
    assert score_lines(SEVERAL, 100) == [
        "iid                            acc",
        "er, features = clip     50.0 ± 1.0",
        "er, features = pixels   60.0 ± 1.0",
        "lwf, features = clip    70.0 ± 1.0",
        *below,
    ]
    narrow = score_lines(SEVERAL, 33)
    assert narrow[:3] == ["iid          acc", "er    50.0 ± 1.0", "  features = clip"]
    assert narrow[-5:-1] == [
        "er, features = clip: model = linear",
        "features = pixels: model = pictures;",
        "  view.mean = [0.485, 0.456];",
        "  view.side_px = 224",
    ]


def test_tables_that_differ_in_other_settings_are_told_apart():
    def methods(*epochs: int) -> dict[str, object]:
        return {name: result(acc=(0.5, None)) | {"apart": {"epochs": n}} for name, n in zip(("er", "ewc"), epochs, strict=True)}

    same = score_lines({"iid": methods(20, 5), "streaming": methods(20, 5)})
    assert same[-3:] == ["Other differences:", "er: epochs = 20", "ewc: epochs = 5"]
    found = score_lines({"iid": methods(20, 5), "streaming": methods(5, 20), "offline": {"joint": result(acc=(0.5, None))}})
    assert found[found.index("Other differences, iid:") :] == [
        "Other differences, iid:",
        "er: epochs = 20",
        "ewc: epochs = 5",
        "Other differences, streaming:",
        "er: epochs = 5",
        "ewc: epochs = 20",
    ]


def test_no_score_is_no_line():
    assert score_lines({}) == []


def test_an_undefined_kappa_is_said_in_words():
    assert printed_kappa(0.61803) == "0.618"
    assert printed_kappa(math.nan) == "undefined: all answers are the same"


def test_a_line_of_progress_is_written_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in several threads tell their lines at once: one wrote its line between another's text and its end."""
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    line_teller(quiet=False)("er, seed 0: trained")
    assert written == ["er, seed 0: trained\n"]
