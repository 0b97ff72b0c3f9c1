"""Near-duplicates in a report: groups with their pictures, and groups that span splits."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ..curation.artifact import Artifact
from ..curation.stage_rows import Rows
from ..curation.stages.near_duplicates import REASON, kept_key
from ..curation.store import Store
from ..eval.report.blocks import Block, CellValue, ImageGrid, Section, Table, Text
from .samples import pictures_of

_GROUPS, _MEMBERS = 12, 8
"""Most groups with pictures, and most pictures of each."""
_SIDE_PX = 96


def near_duplicates_sections(store: Store, made: Mapping[str, Artifact]) -> list[Section]:
    """Groups of near-duplicates with their pictures, or keys if there are none, for every stage that found some.

    Args:
        store: the run.
        made: its finished stages, by name.
    """
    found: list[Section] = []
    for artifact in made.values():
        source = made.get(next(iter(artifact.recipe["inputs"]), ""))
        if source is None or "duplicate_group" not in artifact.rows_view(store).column_names:
            continue
        if "duplicate_group" not in source.rows_view(store).column_names:
            found.append(_section(store, artifact, made, source.rows_view(store)))
    return found


def _section(store: Store, artifact: Artifact, made: Mapping[str, Artifact], before: Rows) -> Section:
    groups, dropped = _groups(store, artifact)
    rule = artifact.recipe["settings"].get("rule", {})
    splits = _splits(before, rule.get("split") or "", groups)
    across = [name for name, keys in groups.items() if len({splits.get(key) for key in keys}) > 1] if splits else []
    size = {name: len(keys) for name, keys in groups.items()}
    line: list[CellValue] = [artifact.rows + len(dropped), len(groups), sum(size.values()), len(dropped)]
    headings = ["rows", "groups", "rows in groups", "rejected"]
    blocks: list[Block] = [
        Table([*headings, *["groups across splits"] * bool(splits)], [[*line, *[len(across)] * bool(splits)]])
    ]
    if splits:
        pairs = collections.Counter(" and ".join(sorted({splits.get(key, "?") for key in groups[name]})) for name in across)
        message = "; ".join(f"{pair}: {count:,}" for pair, count in sorted(pairs.items()))
        text = f"Groups with rows in several splits, a leak: {message}." if across else "No group spans several splits."
        blocks.append(Text([text], tone="note" if across else "good"))
    first = sorted(groups, key=lambda name: (name not in across, -size[name], name))[:_GROUPS]
    if first:
        shown = [(name, [name, *sorted(groups[name] - {name})][:_MEMBERS]) for name in first]
        thumbs, _ = pictures_of(store, artifact, made, [key for _, keys in shown for key in keys])
        by_key = {thumb.caption: thumb for thumb in thumbs}
        blocks.append(Text([_caption(len(first), len(groups), bool(across))]))
        titles = {name: name + (f" ({_several(splits, groups[name])})" if splits else "") for name in first}
        if not thumbs:  # such as sound
            lines = [[titles[name], size[name], ", ".join(keys[1:])] for name, keys in shown]
            blocks.append(Table(["group", "rows", f"the others, {_MEMBERS - 1} at most"], lines))
        for name, keys in shown * bool(thumbs):
            title = titles[name] + (f", {_MEMBERS} of {size[name]:,} rows" if size[name] > _MEMBERS else "")
            blocks.append(ImageGrid(title, [by_key[key] for key in keys if key in by_key], _SIDE_PX))
    return Section("Near-duplicates", blocks)


def _caption(shown: int, groups: int, leaks: bool) -> str:
    order = "those across splits first, then the largest" if leaks else "the largest first"
    return f"{'All' if shown == groups else f'{shown} of {groups:,}'} groups, {order}, named after their smallest key."


def _several(splits: Mapping[str, str], keys: Collection[str]) -> str:
    return ", ".join(sorted({splits.get(key, "?") for key in keys}))


def _groups(store: Store, artifact: Artifact) -> tuple[dict[str, set[str]], list[str]]:
    """Group -> the keys of its rows; and the keys of rejected rows."""
    groups: dict[str, set[str]] = {}
    group_of: dict[str, str] = {}
    for table in artifact.rows_view(store).batches(["key", "duplicate_group"]):
        table = table.filter(table["duplicate_group"].is_valid())
        group_of |= dict(zip(table["key"].to_pylist(), table["duplicate_group"].to_pylist(), strict=True))
    for key, name in group_of.items():
        groups.setdefault(name, set()).add(key)
    dropped: list[str] = []
    for file in artifact.reject_files():
        table = store.read_parquet(file)
        for row in table.filter(pc.equal(table["reason"], REASON)).to_pylist():
            groups[group_of[kept_key(row["detail"])]].add(row["key"])
            dropped.append(row["key"])
    return groups, dropped


def _splits(before: Rows, column: str, groups: Mapping[str, set[str]]) -> dict[str, str]:
    """The split of each row of a group; empty if the stage has no splits."""
    if column not in before.column_names:
        return {}
    wanted = pa.array(sorted(set[str]().union(*groups.values())), pa.string())
    found: dict[str, str] = {}
    for table in before.batches(["key", column]):
        mine = table.filter(pc.is_in(table["key"], value_set=wanted))
        found |= {key: str(value) for key, value in zip(mine["key"].to_pylist(), mine[column].to_pylist(), strict=True)}
    return found
