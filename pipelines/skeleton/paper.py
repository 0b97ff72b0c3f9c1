"""Which trainings of a skeleton run match the paper's, by their records, and what its Table 2 prints for them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ...curation.artifact import load_artifact
from ...curation.keys import sha256
from ...curation.nested import flat
from ...curation.store import Store
from ...datasets.skeleton.facts import facts, table_2
from ...eval.report.blocks import Cell
from ...eval.report.trainings import PublishedRow, changes_text
from ...eval.results import Line
from ..config import find_config, load
from .config import SkeletonConfig, training_settings
from .series import By, OverOrders, Series

_OF_THE_DATA = ("source.kind", "classes", "only", "bodies", "layout", "tensor", "split", "orders.tasks")


def data_differs(config: SkeletonConfig, out: str, values: Mapping[str, Any]) -> str:
    """Why the data of a run differ from those of the paper that ``evaluation.paper`` names; "" if they do not.

    Args:
        config: settings that the run recorded.
        out: the run.
        values: the recorded settings as JSON-like values.
    """
    if config.evaluation.paper is None:
        return "evaluation.paper is not set"
    _, wanted, _ = _paper_settings(config.evaluation.paper)
    ours, theirs = flat(values), flat(wanted)
    for part in _OF_THE_DATA:
        for name in dict.fromkeys([*ours, *theirs]):
            if (name == part or name.startswith(f"{part}.")) and ours.get(name) != theirs.get(name):
                return f"{name} = {ours.get(name)!r} instead of {theirs.get(name)!r}"
    wanted_rows = facts().nwucla.sequences if config.evaluation.paper == "ucla" else facts().ntu_cil.sequences
    store = Store(out)
    shards = load_artifact(store, "shards")
    rows = 0 if shards is None else shards.rows
    if rows != wanted_rows:
        return f"it has {rows:,} sequences instead of {wanted_rows:,}"
    return _order_differs(store, ours.get("source.lists")) if config.evaluation.paper == "ucla" else ""


def _order_differs(store: Store, lists: str | None) -> str:
    """Why the recorded sequences of an N-UCLA run are not in the order of CTR-GCN's lists; "" if they are.

    Table 2 was reproduced only in that order, which determines the test set.
    """
    split = load_artifact(store, "split")
    keys = [] if split is None else split.rows_view(store).table(["key", "position"]).sort_by("position")["key"].to_pylist()
    if sha256("\n".join(keys)) == facts().nwucla.lists_sha256:
        return ""
    if lists is None:
        return "source.lists is not set, so sequences are ordered by name, which changes the test set"
    return f"source.lists = {lists!r}: the sequences are not in the order of CTR-GCN's lists, which changes the test set"


@functools.cache
def _paper_settings(paper: str | None) -> tuple[SkeletonConfig, dict[str, Any], dict[str, Any]]:
    return load(SkeletonConfig, find_config("skeleton", None if paper == "ucla" else "ntu"), benchmark="skeleton")


_ORDERS: Mapping[By, int] = {"task": 120, "class": 220}
"""Numbers of orders in Table 2: all of five tasks; and these with 100 of the classes."""


def why_not_the_papers(config: SkeletonConfig, one: Series, over: OverOrders, by: By) -> str:
    """Why differences over the orders of a series do not match Table 2, by the records of its trainings; "" if they do."""
    if one.method not in table_2_of(config, by):
        return "the method is not in Table 2"
    if over.orders != _ORDERS[by]:
        return f"these are {over.orders} orders, and Table 2 covers {_ORDERS[by]}"
    e, repeats = _paper_settings(config.evaluation.paper)[0].evaluation, len(over.difference.aopd)
    if repeats < e.repeats:
        return f"Table 2 is the mean over {e.repeats} repeats, and {repeats} of these have every order"
    if one.settings.get("draws") != e.draws:
        return "the orders of a repeat share initial weights and memories: the paper's are independent, draws = 'per_order'"
    return next((why for line in one.lines if (why := why_not_its_training(config, line))), "")


def why_not_its_training(config: SkeletonConfig, line: Line, *, of_grid: bool = False) -> str:
    """Why a training differs from the paper's, by its record; "" if it does not.

    Args:
        config: settings of the run, which name the paper.
        line: line of the training.
        of_grid: whether to ignore settings of the method, which a grid varies.
    """
    e = _paper_settings(config.evaluation.paper)[0].evaluation
    if line.model != e.network.architecture:
        return f"the model is {line.model}"
    wanted = flat(training_settings(e, line.method, {}, e.network.width, e.network.depth))
    tried = [name for name in {**wanted, **line.settings} if of_grid and name.startswith("method")]
    return changes_text(line, [wanted], apart=("orders", "seed", "draws", "task_orders", *tried))


def published(config: SkeletonConfig, lines: Sequence[Series], by: By) -> list[PublishedRow]:
    """The rows of Table 2 for these series."""
    rows: list[PublishedRow] = []
    for one in lines:
        figures = {
            name: Cell(100 * mean, note=f"± {100 * std:.2f}" if std else "")
            for name, (mean, std) in table_2_of(config, by)[one.method].items()
        }
        rows.append(PublishedRow(one.method, "Table 2", figures))
    return rows


def table_2_of(config: SkeletonConfig, by: By) -> dict[str, dict[str, tuple[float, float]]]:
    """Method -> AOPD and MOPD as shares, with their deviations."""
    found = table_2(by, config.evaluation.paper or "ucla")
    return {
        method: {"AOPD": (one.aopd_percent / 100, one.aopd_std_percent / 100)}
        | {"MOPD": (one.mopd_percent / 100, one.mopd_std_percent / 100)}
        for method, one in found.items()
    }
