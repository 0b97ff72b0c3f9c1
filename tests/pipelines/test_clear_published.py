"""CLEAR's published figures stand beside results that are the paper's by what was recorded of them, and beside no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchwright.datasets.clear.facts import facts
from benchwright.eval.report.blocks import Table
from benchwright.eval.results import RESULTS, Line, flat
from benchwright.pipelines.clear.report import PUBLISHED, _both_protocols, data_differs, published, why_not_the_papers
from benchwright.training.baselines.clear import groups, paper_methods, paper_settings

from .conftest import Cli


def line_of(name: str, preset: str = "linear", protocol: str = "iid", **changes: Any) -> Line:
    """What is recorded of a training by the paper's settings."""
    model, settings = paper_settings(preset)
    recorded = flat({**settings, "method": paper_methods().get(name, (name, {}))[1]}) | changes
    return Line(protocol, name, model, recorded, name, RESULTS.empty_table())


def test_a_report_shows_no_published_figure_beside_other_data(bw: Cli, copy: Path) -> None:
    assert bw("train", copy, "--method", "nap-finetune", "--protocol", "iid").code == 0
    page = Path(bw("report", copy).out.strip()).read_text()
    assert "No fair comparison: no digest of the paper&#39;s images and features is known" in page
    assert "the CLEAR paper" not in page
    assert "86.7" not in page.partition(">Baselines, iid protocol</h2>")[2].partition("</table>")[0]


def test_data_are_the_papers_by_digest_alone() -> None:
    assert data_differs("ab", "ab") == ""
    assert "are not those of the paper" in data_differs("ab", "cd")
    assert "no digest" in data_differs("", "")
    assert facts().release.dataset_digest == "", "nothing is known of the released features"


@pytest.mark.parametrize("name", PUBLISHED)
def test_trainings_by_the_papers_settings_are_the_papers(name: str) -> None:
    assert why_not_the_papers(line_of(name)) == ""
    rows = published([line_of(name)], "iid")
    assert len(rows) == len(PUBLISHED[name])
    for row in rows:
        assert set(row.values) == {"in-domain", "next-domain", "acc", "bwt", "fwt"}
        assert None not in row.values.values()


def test_trainings_by_other_settings_are_not() -> None:
    assert why_not_the_papers(line_of("nap-finetune", "mlp")) == "the model is mlp"
    assert why_not_the_papers(line_of("reservoir-alpha=0.25-finetune")) == "no method of the paper's tables"
    changed = line_of("nap-finetune", **{"schedule.epochs": 3})
    assert why_not_the_papers(changed) == "settings of the paper were changed: schedule.epochs"
    alpha = line_of("reservoir-alpha=1.0-finetune", **{"method.alpha": 2.0})
    assert why_not_the_papers(alpha) == "settings of the paper were changed: method.alpha"


def test_the_papers_rows_are_found_by_method_and_protocol() -> None:
    [nap] = published([line_of("nap-finetune")], "iid")
    assert (nap.name, nap.source, nap.values["in-domain"], nap.values["fwt"]) == ("nap", "the CLEAR paper, text", 86.7, 85.4)
    first, second = published([line_of("nap-finetune"), line_of("reservoir-alpha=1.0-finetune")], "streaming")
    assert (first.source, first.values["next-domain"], first.values["fwt"]) == ("the CLEAR paper, Table 1", 89.4, 88.0)
    assert (second.name, second.values["next-domain"], second.values["fwt"]) == ("alpha 1", 89.5, 88.1)


def test_every_row_of_tables_1_and_2_has_its_method() -> None:
    for group, table in (("table1", "Table 1"), ("table2", "Table 2")):
        lines = [line_of(name) for name in groups()[group]]
        found = [row.name for row in published(lines, "iid") if row.source == f"the CLEAR paper, {table}"]
        printed = [f.method for f in facts().published if f.table == table and f.model.startswith("linear on YFCC-B0")]
        assert found == list(dict.fromkeys(printed))


def test_the_table_of_both_protocols_has_the_form_of_table_1() -> None:
    names = ["ewc", "dynamic_reservoir-alpha=1.0-finetune"]
    lines = {protocol: [line_of(name, protocol=protocol) for name in names] for protocol in ("iid", "streaming")}
    [section] = _both_protocols(lines, data="")
    table = section.blocks[1]
    assert isinstance(table, Table)
    printed = {row[0]: row[2:] for row in table.rows if row[1] == "the CLEAR paper, Table 1"}
    assert printed["EWC"] == [91.6, 90.6, 91.7, 91.7, 88.6, 91.1, 89.3]  # as the paper prints the row
    assert printed["biased reservoir, fine-tuned"] == [91.6, 90.5, 91.7, 91.7, 88.5, 91.1, 89.2]
    assert _both_protocols({"iid": lines["iid"]}, data="") == []
    [other] = _both_protocols(lines, data="other images")
    assert "other images" in str(other.blocks[0])
    assert not any(row[1] for row in other.blocks[1].rows if len(row) > 1 and "paper" in str(row[1]))  # type: ignore[union-attr]
