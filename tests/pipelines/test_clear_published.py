"""CLEAR's published figures stand beside results that are the paper's by what was recorded of them, and beside no others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchwright.curation.encoders.spec import Colours, OpenClip
from benchwright.curation.nested import flat
from benchwright.datasets.clear.facts import FEATURES, facts, published_tables
from benchwright.eval.report.blocks import Cell, Details, Table, Text
from benchwright.eval.results import RESULTS, Line
from benchwright.pipelines.clear.baselines import settings_of
from benchwright.pipelines.clear.config import ClearConfig
from benchwright.pipelines.clear.paper import (
    ROWS,
    coverage_table,
    data_differs,
    features_of,
    network_of,
    published_rows,
    why_not_the_papers,
    why_not_the_papers_offline,
)
from benchwright.pipelines.clear.training_sections import _compared, both_protocols, grouped
from benchwright.pipelines.jobs import job
from benchwright.training.baselines.clear import method_groups, paper_methods, paper_settings

from .conftest import Cli

PRESETS = {"linear": "linear", "mlp": "mlp", "resnet18": "resnet18"}


@pytest.fixture(scope="module")
def config() -> ClearConfig:
    return job("clear", config="tiny").config


@pytest.fixture
def known_features(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the digests of the paper's features were known."""
    digests = {name: f"digest of {name}" for name in FEATURES if name != "clip"}
    monkeypatch.setattr(facts().release, "feature_digests", digests)
    return


def known() -> Mapping[str, str]:
    return facts().release.feature_digests


def line_of(
    name: str, preset: str = "linear", protocol: str = "iid", features: str = "moco_b0", digest: str = "", **changes: Any
) -> Line:
    """What is recorded of a training by the paper's settings; ``digest``: of other features."""
    model, settings = paper_settings(preset)
    if features != "pixels":
        settings.pop("view", None)
    settings |= {"features": features, "features_digest": digest or f"digest of {features}"}
    recorded = flat({**settings, "method": paper_methods(preset).get(name, (name, {}))[1]}) | changes
    return Line(protocol, name, model, recorded, name, RESULTS.empty_table())


def test_a_report_shows_no_published_figure_beside_other_data(bw: Cli, copy: Path) -> None:
    assert bw("train", copy, "--method", "nap-finetune", "--protocol", "iid").code == 0
    page = Path(bw("report", copy).out.strip()).read_text()
    assert "Not a fair comparison: no digest of the paper&#39;s images and features is known" in page
    assert "the CLEAR paper" not in page
    assert "86.7" not in page.partition(">Baselines, iid protocol</h2>")[2].partition("</table>")[0]


def test_data_are_the_papers_by_digest_alone() -> None:
    assert data_differs("ab", "ab") == ""
    assert "are not those of the paper" in data_differs("ab", "cd")
    assert "no digest" in data_differs("", "")
    assert facts().release.dataset_digest == "", "nothing is known of the paper's images"
    assert not any(facts().release.feature_digests.values()), "nothing is known of the released features"


@pytest.mark.usefixtures("known_features")
@pytest.mark.parametrize("table", published_tables(), ids=lambda table: f"{table.name}, {table.network}")
def test_trainings_by_the_papers_settings_are_the_papers(table: Any) -> None:
    """Every cell of every table has its training, and what stands beside that training is the cell."""
    for cell in table.cells:
        preset = "linear_imagenet" if (cell.network, cell.features) == ("linear", "imagenet_rn50") else PRESETS[cell.network]
        line = line_of(cell.row, preset, cell.protocol, cell.features)
        if (cell.row, cell.network) == ("agem", "resnet18"):  # whose reference gradient we take in parts
            assert why_not_the_papers(line, cell.features, known()) == "settings of the paper were changed: method.at_once"
            continue
        assert why_not_the_papers(line, cell.features, known()) == ""
        rows = published_rows(cell.row, {(cell.protocol, cell.features): line}, lambda each: each.metric)
        [mine] = [row for row in rows if table.name.removeprefix("Table ") in row.source.replace(",", "").split()]
        found = mine.values[cell.metric]
        assert isinstance(found, Cell)
        assert found.value == cell.mean
        if mine.source.endswith(table.name):  # of tables that are named together the first one's deviation is shown
            assert found.note == f"± {cell.printed.partition('±')[2]}"
        assert mine.under == cell.row


@pytest.mark.usefixtures("known_features")
def test_trainings_by_other_settings_are_not() -> None:
    def why(*of: Any, features: str = "moco_b0", **more: Any) -> str:
        return why_not_the_papers(line_of(*of, features=features, **more), features, known())

    assert why("nap-finetune") == ""
    assert why("reservoir-alpha=0.25-finetune") == "the method is not in the paper's tables"
    assert why("nap-finetune", **{"schedule.epochs": 3}) == "settings of the paper were changed: schedule.epochs"
    assert why("reservoir-alpha=1.0-finetune", **{"method.alpha": 2.0}) == "settings of the paper were changed: method.alpha"
    assert why("nap-finetune", features="embedding") == "the paper has no figures of linear on embedding"
    assert why("ewc", "resnet18") == "the paper has no figures of resnet18 on MoCo-YFCC-B0"
    # One rate of learning is for the features of ImageNet's labels, and for no others.
    assert "schedule.learning_rate" in why("nap-finetune", features="imagenet_rn50")
    assert "schedule.learning_rate" in why("nap-finetune", "linear_imagenet")
    assert why("nap-finetune", digest="of other weights") == "the MoCo-YFCC-B0 features are not those of the paper"


def test_features_are_the_papers_by_digest_alone() -> None:
    assert (
        why_not_the_papers(line_of("nap-finetune"), "moco_b0", known())
        == "no digest of the paper's MoCo-YFCC-B0 features is known"
    )
    assert why_not_the_papers(line_of("nap-finetune", features="clip"), "clip", known()) == "", (
        "in the shards, which have a digest"
    )
    assert why_not_the_papers(line_of("ewc", "resnet18", features="pixels"), "pixels", known()) == ""


def test_what_a_training_records_of_pixels_is_compared(config: ClearConfig) -> None:
    pixels = dataclasses.replace(config.baselines, preset="resnet18", features="pixels", epochs=None, batch_size=None)
    pixels = dataclasses.replace(pixels, learning_rate=None, decay_after_epochs=None)
    model, settings = settings_of(dataclasses.replace(config, baselines=pixels))
    recorded = flat(json.loads(json.dumps({**settings, "method": paper_methods()["ewc"][1]})))
    line = Line("iid", "ewc", model, recorded, "ewc", RESULTS.empty_table())
    assert (network_of(line), features_of(line, config)) == ("resnet18", "pixels")
    assert why_not_the_papers(line, "pixels", known()) == ""
    other = dataclasses.replace(line, settings={**recorded, "view.side_px": 96})
    assert why_not_the_papers(other, "pixels", known()) == "settings of the paper were changed: view.side_px"


def test_vectors_of_retrieval_are_the_papers_clip_features_where_its_encoder_made_them(config: ClearConfig) -> None:
    line = line_of("nap-finetune", features="embedding")
    old = dataclasses.replace(line, settings={name: value for name, value in line.settings.items() if name != "features"})
    rn50 = dataclasses.replace(config, encoder=OpenClip(model="RN50", weights="openai"))
    other = dataclasses.replace(config, encoder=OpenClip(model="RN101", weights="openai"))
    assert isinstance(config.encoder, Colours)
    assert [features_of(line, each) for each in (config, rn50, other)] == ["embedding", "clip", "embedding"]
    assert features_of(old, rn50) == "clip"
    assert features_of(line_of("nap-finetune"), rn50) == "moco_b0"


def test_tables_that_say_the_same_are_named_together_and_others_apart() -> None:
    def found(name: str, protocol: str = "iid", features: str = "moco_b0") -> list[tuple[str, str]]:
        of = {(protocol, features): line_of(name, protocol=protocol, features=features)}
        return [(row.name, row.source) for row in published_rows(name, of, lambda cell: cell.metric)]

    assert found("nap-finetune") == [("Nap", "the CLEAR paper, Tables 4 and 6")]
    assert found("ewc") == [("EWC", "the CLEAR paper, Table 1")]
    name = "one bucket, alpha 1, fine-tuned"
    assert found("reservoir-alpha=1.0-finetune") == [
        (name, "the CLEAR paper, Table 1"),
        (name, "the CLEAR paper, Tables 2, 4 and 6"),
    ]
    assert [source for _, source in found("cumulative-finetune")] == ["the CLEAR paper, Table 4", "the CLEAR paper, Table 6"]
    assert found("cumulative-scratch", "streaming") == [("cumulative, from scratch", "the CLEAR paper, Tables 5 and 8")]
    assert found("cumulative-scratch", features="clip") == [("cumulative, from scratch", "the CLEAR paper, Table 6")]
    assert found("ewc", features="clip") == []


def test_every_row_of_the_tables_has_its_method() -> None:
    assert {name for names in method_groups().values() for name in names} == ROWS


def columns_of(table: Table, row: str, source: str) -> list[Any]:
    [found] = [each for each in table.rows if each[0] == row and each[1] == source]
    return [each.value if isinstance(each, Cell) else each for each in found[2:]]


@pytest.mark.usefixtures("known_features")
def test_the_table_of_both_protocols_has_the_form_of_table_1(config: ClearConfig) -> None:
    names = ["ewc", "dynamic_reservoir-alpha=1.0-finetune"]
    lines = [line_of(name, protocol=protocol) for protocol in ("iid", "streaming") for name in names]
    [section] = both_protocols(grouped(lines, config, [1, 2]), data="", known=known())
    table = section.blocks[1]
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["ewc", "EWC", names[1], "one bucket, alpha 1 i/k, fine-tuned"]
    of = "the CLEAR paper, Table 1"
    assert columns_of(table, "EWC", of) == [91.6, 90.6, 91.7, 91.7, 88.6, 91.1, 89.3]  # as the paper prints the row
    of = "the CLEAR paper, Tables 1, 2, 4, 5, 6 and 8"
    printed = columns_of(table, "one bucket, alpha 1 i/k, fine-tuned", of)
    assert printed == [91.6, 90.5, 91.7, 91.7, 88.5, 91.1, 89.2]
    assert both_protocols(grouped(lines[:2], config, [1, 2]), data="", known=known()) == []
    [other] = both_protocols(grouped(lines, config, [1, 2]), data="other images", known=known())
    assert "other images" in str(other.blocks[0])
    assert "CLEAR paper" not in str(other.blocks[1])


@pytest.mark.usefixtures("known_features")
def test_features_stand_side_by_side_in_the_form_of_table_6(config: ClearConfig) -> None:
    presets = {"clip": "linear", "imagenet_rn50": "linear_imagenet", "moco_b0": "linear"}
    lines = [line_of("nap-finetune", presets[name], features=name) for name in ("moco_b0", "clip", "imagenet_rn50")]
    changed = line_of("nap-finetune", features="byol_imagenet_rn50", **{"schedule.epochs": 3})
    found = grouped([*lines, changed], config, [1, 2])
    assert [group.features for group in found] == ["clip", "imagenet_rn50", "byol_imagenet_rn50", "moco_b0"]
    verdict, table, *_ = _compared(found, "", known())
    assert "Not for nap-finetune, iid, byol_imagenet_rn50: settings of the paper were changed: schedule.epochs." in str(verdict)
    assert isinstance(table, Table)
    assert table.caption.startswith("In the form of the paper's Table 6: ")
    assert "in-domain, byol_imagenet_rn50" not in table.columns, (
        "nothing of it may be shown, and its own results are empty here"
    )
    assert table.columns[2:5] == ["in-domain, clip", "in-domain, imagenet_rn50", "in-domain, moco_b0"]
    assert columns_of(table, "Nap", "the CLEAR paper, Tables 4 and 6") == [79.8, 93.3, 86.7, 79.4, 93.0, 86.1]
    # By both heads and under both protocols there are tables of their own.
    more = [*lines, line_of("nap-finetune", "mlp", features="clip")]
    assert [(group.network, group.features) for group in grouped(more, config, [1, 2])][-1] == ("mlp", "clip")
    sections = both_protocols(
        grouped([*lines, *(dataclasses.replace(x, protocol="streaming") for x in lines)], config, [1]), "", known()
    )
    assert [block.title for block in sections[0].blocks if isinstance(block, Details)] == [
        "linear, clip",
        "linear, imagenet_rn50",
        "linear, moco_b0",
    ]


def under_both(iid: Sequence[int], streaming: Sequence[int], config: ClearConfig) -> tuple[list[str], list[str]]:
    """Rows of the table of both protocols, and what is told below it, of ``er`` with these epochs and ``ewc`` with one."""
    lines = [
        line_of(name, protocol=protocol, **{"schedule.epochs": each})
        for protocol, epochs in (("iid", iid), ("streaming", streaming))
        for name, each in [*(("er", each) for each in epochs), ("ewc", epochs[0])]
    ]
    [section] = both_protocols(grouped(lines, config, [1, 2]), data="other", known=known())
    told = [text for block in section.blocks[2:] if isinstance(block, Text) for text in block.paragraphs]
    table = section.blocks[1]
    assert isinstance(table, Table)
    return [str(row[0]) for row in table.rows], told


def test_a_row_of_both_protocols_is_of_one_setting_or_the_columns_are_named(config: ClearConfig) -> None:
    assert under_both([10], [10], config) == (["ewc", "er"], [])
    rows, told = under_both([10], [20], config)
    assert (rows, told) == (
        ["ewc", "er"],
        ["Other differences between the columns:", "iid: schedule.epochs = 10", "streaming: schedule.epochs = 20"],
    )
    rows, told = under_both([10, 20], [10], config)
    assert rows == ["ewc", "er, schedule.epochs = 10", "er, schedule.epochs = 20"], "no row may be lost"
    assert told == ["Other differences between the rows:", "ewc: schedule.epochs = 10"]


def test_feature_sets_that_were_learned_by_other_settings_are_named(config: ClearConfig) -> None:
    presets = {"clip": "linear", "imagenet_rn50": "linear_imagenet"}
    lines = [line_of("nap-finetune", preset, features=name) for name, preset in presets.items()]
    found = [block for block in _compared(grouped(lines, config, [1, 2]), "other", known()) if isinstance(block, Text)]
    told = [text for block in found[1:] for text in block.paragraphs]
    assert told == [
        "Other differences between the columns:",
        "clip: schedule.learning_rate = 1.0; features_digest = digest of clip",
        "imagenet_rn50: schedule.learning_rate = 0.1; features_digest = digest of imagenet_rn50",
    ]


def test_trainings_of_one_method_that_differ_have_rows_of_their_own(config: ClearConfig) -> None:
    lines = [line_of("nap-finetune", **{"schedule.epochs": epochs}) for epochs in (3, 4)]
    [group] = grouped(lines, config, [1, 2])
    assert [line.label for line in group.lines] == [f"nap-finetune, schedule.epochs = {epochs}" for epochs in (3, 4)]
    assert [*group.runs] == [line.label for line in group.lines]


@pytest.mark.usefixtures("known_features")
def test_a_report_tells_which_cells_of_the_tables_a_run_has() -> None:
    lines = [(line_of("nap-finetune", protocol=protocol), "moco_b0") for protocol in ("iid", "streaming")]
    lines.append((line_of("ewc", **{"schedule.epochs": 3}), "moco_b0"))

    def counts(data: str) -> dict[str, Any]:
        table = coverage_table(lines, data, known())
        return {str(row[0]): tuple(row[4:7]) for row in table.rows if row[2] != "resnet18"}

    fair = counts("")
    assert fair["Table\u00a04"] == (95, 5, 5)
    assert fair["Table\u00a08"] == (95, 1, 1)
    assert fair["Table\u00a01"] == (63, 0, 0)
    assert counts("other images")["Table\u00a04"] == (95, 5, 0)


def test_a_training_on_all_buckets_at_once_is_compared_by_its_record() -> None:
    line = line_of("joint", "resnet18", "offline", "pixels")
    assert why_not_the_papers_offline(line) == ""
    assert why_not_the_papers_offline(line_of("joint", "linear", "offline")) == "the paper has a figure of resnet18 on pixels"
    other = line_of("joint", "resnet18", "offline", "pixels", **{"schedule.epochs": 7})
    assert why_not_the_papers_offline(other) == "settings of the paper were changed: schedule.epochs"
