"""Streams of tasks that were learned in many orders, and what their order did: from rows of results to measures.

A row is a stream after one of its tasks; see ``Stream`` for its columns. PROTOCOLS.md 5.5.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..metrics.class_incremental import final_accuracy
from ..metrics.order_sensitivity import (
    OrderDifference,
    final_minus_diagonal,
    forgetting_bound,
    forgetting_from_best,
    order_difference,
    task_accuracy_matrix,
)

IDENTITY = ("method", "settings", "architecture", "width", "depth", "kind", "order_index", "repeat")
"""Columns that name a stream."""


@dataclass(frozen=True, eq=False)
class Stream:
    """One order, learned to its end.

    Attributes:
        method, settings, architecture, width, depth, kind, order_index, repeat: as in the rows.
        tasks: classes of each task, in the order learned.
        matrix: (N, N) accuracy by task on the test sequences, rows after each task; NaN above the diagonal.
        val_matrix: likewise, on those that validate.
        final: class -> accuracy at the end, on the test sequences.
    """

    method: str
    settings: str
    architecture: str
    width: int
    depth: int
    kind: str
    order_index: int
    repeat: int
    tasks: tuple[tuple[int, ...], ...]
    matrix: NDArray[np.float64]
    val_matrix: NDArray[np.float64]
    final: Mapping[int, float]

    def measures(self) -> dict[str, float]:
        """``aa``, ``af_from_best``, ``af_final_minus_diagonal``, ``bound`` (a_kk = 1), ``bound_own`` (its a_kk), ``val_aa``."""
        average, tasks = final_accuracy(self.matrix), len(self.tasks)
        nothing = float("nan")
        return {
            "aa": average,
            "af_from_best": forgetting_from_best(self.matrix),
            "af_final_minus_diagonal": final_minus_diagonal(self.matrix),
            "bound": float(forgetting_bound(average, tasks)) if tasks > 1 else nothing,
            "bound_own": float(forgetting_bound(average, tasks, self.matrix[-1, -1])) if tasks > 1 else nothing,
            "val_aa": final_accuracy(self.val_matrix),
        }


def streams(results: pa.Table) -> list[Stream]:
    """The streams of a table of results, in its order.

    Args:
        results: columns ``IDENTITY``, ``k``, ``classes``, ``sizes``, ``class_accuracy``, ``val_class_accuracy``.

    Raises:
        ValueError: a stream of which a task is missing or stands twice.
    """
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in results.to_pylist():
        found.setdefault(tuple(row[name] for name in IDENTITY), []).append(row)
    return [_stream(identity, sorted(rows, key=lambda row: row["k"])) for identity, rows in found.items()]


def _stream(identity: tuple[Any, ...], rows: Sequence[Mapping[str, Any]]) -> Stream:
    learned = [row["k"] for row in rows]
    if learned != list(range(1, len(rows) + 1)):
        raise ValueError(
            f"stream {dict(zip(IDENTITY, identity, strict=True))}: results after {learned} tasks: 1, 2, ... each once"
        )
    last = rows[-1]
    ends = np.cumsum([0, *last["sizes"]]).tolist()
    return Stream(
        *identity,
        tasks=tuple(tuple(last["classes"][a:b]) for a, b in itertools.pairwise(ends)),
        matrix=task_accuracy_matrix([row["class_accuracy"] for row in rows], last["sizes"]),
        val_matrix=task_accuracy_matrix([row["val_class_accuracy"] for row in rows], last["sizes"]),
        final=dict(zip(last["classes"], last["class_accuracy"], strict=True)),
    )


def measures(found: Iterable[Stream]) -> pa.Table:
    """One row a stream: ``IDENTITY`` and ``Stream.measures``."""
    return pa.Table.from_pylist([{**{name: getattr(one, name) for name in IDENTITY}, **one.measures()} for one in found])


def task_differences(found: Sequence[Stream]) -> tuple[list[tuple[int, ...]], OrderDifference] | None:
    """OPD by task over the task orders of one method; tasks are named by their classes. None without one."""
    mine = [one for one in found if one.kind == "task_order"]
    return _differences(mine, {_key(one): _by_task(one) for one in mine})


def class_differences(found: Sequence[Stream]) -> tuple[list[tuple[int, ...]], OrderDifference] | None:
    """OPD by class over the task orders and the class orders of one method together, as the paper has it."""
    mine = [one for one in found if one.kind in ("task_order", "class_order")]
    return _differences(mine, {_key(one): {(each,): value for each, value in one.final.items()} for one in mine})


def orders_in(found: Iterable[Stream]) -> dict[str, int]:
    """Kind -> number of orders."""
    pairs = {(one.kind, one.order_index) for one in found}
    return {kind: sum(each == kind for each, _ in pairs) for kind in sorted({kind for kind, _ in pairs})}


def _key(one: Stream) -> tuple[int, str, int]:
    return one.repeat, one.kind, one.order_index


def _by_task(one: Stream) -> dict[tuple[int, ...], float]:
    return {tuple(sorted(task)): float(np.mean([one.final[each] for each in task])) for task in one.tasks}


def _differences(
    found: Sequence[Stream], final: Mapping[tuple[int, str, int], Mapping[tuple[int, ...], float]]
) -> tuple[list[tuple[int, ...]], OrderDifference] | None:
    """Over the orders that any repeat has, of the repeats that have them all."""
    if not final:
        return None
    if len(final) < len(found):
        raise ValueError("streams of several methods or settings: order differences are of one")
    orders = sorted({(kind, index) for _, kind, index in final})
    repeats = sorted({repeat for repeat, _, _ in final})
    whole = [repeat for repeat in repeats if all((repeat, *order) in final for order in orders)]
    if not whole:
        return None
    names = sorted(next(iter(final.values())))
    values = [[[final[repeat, *order][name] for name in names] for order in orders] for repeat in whole]
    return names, order_difference(values)
