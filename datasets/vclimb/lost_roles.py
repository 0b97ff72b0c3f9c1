"""Which classes lost all clips of a role: said before frames are decoded, since training stops for it after all decoding."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from ...curation.store import Rows

OnLostRole = Literal["keep", "error"]
"""What to do about a class that lost all clips of a role: continue without them, after a warning that names it, or stop."""

_AT_MOST = 5
_LOGGER = logging.getLogger("benchwright")


def check_roles(rows: Rows, *, split: Rows, roles: Sequence[str], on_lost_role: OnLostRole) -> pa.Table:
    """Whole step: the rows as they are, once it is said which class lost which role, and which task has no clip of one.

    Args:
        rows: clips that can be used, with ``label``, ``role`` and ``task``.
        split: all clips of the split.
        roles: that training and evaluation need.
        on_lost_role: what to do where a class lost one of them; that another is lost is no more than a warning.

    Raises:
        ValueError: a class lost a role that is needed, and ``on_lost_role`` is ``error``.
    """
    table = rows.table()
    lost = lost_roles(split.table(["label", "role"]), table)
    needed = [one for one in lost if one[1] in roles]
    if needed and on_lost_role == "error":
        raise ValueError(
            f"{_told(needed)}: give the videos that are missing or broken (`benchwright rejects OUT` lists them), or go on "
            'without them with split.on_lost_role="keep"'
        )
    if lost:
        _LOGGER.warning("%s; the run continues without them", _told(lost))
    for task, lacking in _tasks_without(table, roles):
        _LOGGER.warning(
            "task %d has no clip with role %s, which evaluation.roles names: training will stop there. Change "
            "evaluation.roles, or how roles are given (split.roles, split.train_share, split.val_share)",
            task,
            " and none with role ".join(map(repr, lacking)),
        )
    return table


def tell_lost_roles(before: pa.Table, after: pa.Table) -> None:
    """Warn where decoding took all clips of a role from a class."""
    if lost := lost_roles(before, after):
        _LOGGER.warning("their frames cannot be decoded: %s; the run continues without them", _told(lost))


def lost_roles(split: pa.Table, left: pa.Table) -> list[tuple[str, str, int]]:
    """Class, role, and how many clips it had of it, wherever ``left`` has none any more; by class and role."""
    pair = ["label", "role"]
    had = pl.DataFrame(pl.from_arrow(split.select(pair))).group_by(pair).len()
    has = pl.DataFrame(pl.from_arrow(left.select(pair))).unique()
    return had.join(has, on=pair, how="anti").sort(pair).rows()


def _told(lost: Sequence[tuple[str, str, int]]) -> str:
    told = [f"class {label!r} lost all its clips with role {role!r} ({count})" for label, role, count in lost]
    return ", ".join(told[:_AT_MOST]) + (f", and {len(told) - _AT_MOST} more" if len(told) > _AT_MOST else "")


def _tasks_without(clips: pa.Table, roles: Sequence[str]) -> list[tuple[int, list[str]]]:
    frame = pl.DataFrame(pl.from_arrow(clips.select(["task", "role"])))
    there = frame.group_by("task").agg(pl.col("role").unique()).sort("task").rows()
    lacking = [(task, [role for role in dict.fromkeys(roles) if role not in found]) for task, found in there]
    return [one for one in lacking if one[1]]
