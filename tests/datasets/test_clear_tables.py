"""The tables of CLEAR's paper: every cell as printed, and what tables that share cells say of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from benchwright.curation.package_data import package_toml
from benchwright.datasets.clear.facts import FEATURES, PublishedCell, facts, published_tables
from benchwright.training.baselines.clear import method_groups, paper_methods

CELLS = [cell for table in published_tables() for cell in table.cells]
Place = tuple[str, str, str, str, str]


def by_place() -> dict[Place, list[PublishedCell]]:
    places: dict[Place, list[PublishedCell]] = defaultdict(list)
    for cell in CELLS:
        places[cell.protocol, cell.network, cell.features, cell.row, cell.metric].append(cell)
    return places


def test_every_table_is_whole() -> None:
    sizes = {"Table 1": 2 * 9 * 7, "Table 2": 8 * 7, "Table 4": 19 * 5, "Table 5": 19 * 2}
    assert Counter(cell.table for cell in CELLS) == sizes | {"Table 6": 190, "Table 7": 190, "Table 8": 95, "Table 9": 95}
    assert {cell.features for cell in CELLS} == {*FEATURES, "pixels"}
    assert all(60 < cell.mean < 96 and 0 <= cell.std <= 6 for cell in CELLS)
    assert facts().offline.accuracy == 81.1


def test_rows_are_our_methods() -> None:
    group = {"Table 1": "table1", "Table 2": "table2"}
    for table in published_tables():
        rows = list(dict.fromkeys(cell.row for cell in table.cells))
        assert rows == method_groups()[group.get(table.name, "table6")]
    for cell in CELLS:
        method, settings = paper_methods()[cell.row]
        assert method == cell.method
        assert settings.get("alpha") == cell.alpha
        assert settings.get("start", cell.start) == cell.start


def test_tables_that_share_cells_agree_but_for_the_known_ones() -> None:
    known = {
        (each["protocol"], each["row"], metric)
        for each in package_toml("benchwright.datasets.clear", "tables.toml")["disagree"]
        for metric in each["metrics"]
    }
    shared = {place: cells for place, cells in by_place().items() if len(cells) > 1}
    differ = {place for place, cells in shared.items() if len({cell.mean for cell in cells}) > 1}
    assert {(protocol, row, metric) for protocol, _, _, row, metric in differ} == known
    assert {(network, features) for _, network, features, _, _ in shared} == {("linear", "moco_b0")}
    assert len(shared) == 19 * 3 + 8 * 4  # In and Next of Tables 4 and 5 in 6 and 8; what Table 2 has beside them
    for place, cells in shared.items():
        exact = {cell.std for cell in cells if cell.table not in ("Table 6", "Table 7")}
        assert len(exact) == 1 or (place[0], place[3], place[4]) in known


def test_table_2_is_the_finetune_rows_of_tables_4_and_5() -> None:
    places = by_place()
    for cell in next(table for table in published_tables() if table.name == "Table 2").cells:
        place = (cell.protocol, cell.network, cell.features, cell.row, cell.metric)
        [other] = [each for each in places[place] if each.table in ("Table 4", "Table 5")]
        assert (other.mean, other.std) == (cell.mean, cell.std)


def test_acc_is_the_mean_of_the_triangle() -> None:
    """Of ten buckets Acc is of 10 cells of the diagonal and 45 below it; EWC's ResNet-18 alone is printed otherwise."""
    found = {(cell.table, cell.network, cell.row, cell.metric): cell.mean for cell in CELLS if cell.protocol == "iid"}
    odd = set()
    for table, network, row, metric in found:
        if metric == "acc":
            diagonal, below = (found[table, network, row, name] for name in ("in_domain", "bwt"))
            if abs((2 * diagonal + 9 * below) / 11 - found[table, network, row, "acc"]) > 0.1001:
                odd.add((table, network, row))
    assert odd == {("Table 1", "resnet18", "ewc")}
    notes = {(table.name, table.network): table.note for table in published_tables()}
    assert "EWC" in notes["Table 1", "resnet18"]
    assert "89.1" in notes["Table 2", "linear"]


def test_every_table_says_whether_it_can_be_run_and_what_lacks() -> None:
    for table in published_tables():
        assert table.can_run.startswith("train --method table")
        assert table.was_run
        assert "YFCC100M" in table.lacks


# ---------------------------------------------------------------------------------------------------------- as printed

PRINTED = {"From Scratch": "scratch", "Finetuning": "finetune"}
BY_ITSELF = {"EWC": "ewc", "SI": "si", "LwF": "lwf", "CWR": "cwr", "GDumb": "gdumb", "ER": "er", "AGEM": "agem"}


def printed_row(head: list[str]) -> str:
    """Our name of a row by the columns before its first number."""
    if len(head) == 1:  # Table 2
        return reservoir(head[0].strip("$").replace(r"\alpha = ", "")) + "-finetune"
    if head[0] in ("ResNet18", "Linear") and head[1] in ("-", "YFCC-B0"):  # Table 1
        sampling = {"Reservoir": "reservoir", "Biased Reservoir": "dynamic_reservoir"}
        name = head[3].partition(" [")[0]
        return BY_ITSELF.get(name) or f"{sampling[head[2]]}-alpha=1.0-finetune"
    _, buffer, method, alpha = head
    if method == "Nap":
        return "nap-finetune"
    return f"{'cumulative' if buffer == 'Cumulative' else reservoir(alpha)}-{PRINTED[method]}"


def reservoir(alpha: str) -> str:
    dynamic = re.fullmatch(r"([\d.]+) \* i/k", alpha)
    return f"dynamic_reservoir-alpha={float(dynamic[1])}" if dynamic else f"reservoir-alpha={float(alpha)}"


def test_every_cell_is_as_the_paper_prints_it(shared_data: Path) -> None:
    paper = shared_data.parent / "papers" / "clear.txt"
    if not paper.is_file():
        pytest.skip("../shared/papers/clear.txt is not there")
    printed: dict[str, list[tuple[str, list[tuple[float, float]]]]] = defaultdict(list)
    rows: list[tuple[str, list[tuple[float, float]]]] = []
    for line in paper.read_text().splitlines():
        cells = [(float(a), float(b)) for a, b in re.findall(r"([\d.]+)% *(?:±|\$\\pm\$) *([\d.]+)%", line)]
        if cells and "\t" in line:
            rows.append((printed_row([each for each in line.split("\t") if "%" not in each]), cells))
        elif caption := re.match(r"(?:\*\*)?(Table \d+):", line):
            printed[caption[1]] += rows
            rows = []
    ours: dict[str, list[tuple[str, list[tuple[float, float]]]]] = defaultdict(list)
    for table in published_tables():
        for row in dict.fromkeys(cell.row for cell in table.cells):
            ours[table.name].append((row, [(cell.mean, cell.std) for cell in table.cells if cell.row == row]))
    assert ours == {name: found for name, found in printed.items() if found}
