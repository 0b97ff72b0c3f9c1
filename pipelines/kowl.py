"""KOWL-718 (Prijatelj et al., "Human Activity Recognition in an Open World"), and any data set that has come in releases: one
label space over all of them, every sample used once, and increments that bring the new classes bit by bit.

``kowl.toml`` is the published size. The result of the plan has one row a sample in the order (increment, role, position); the
columns are those of ``unify.unified_row``, ``splits.Assigned`` and ``increments.Incremented``.
"""

from __future__ import annotations

from ..curation.flow import Flow, join, rows_of, source, step
from ..curation.keys import where
from ..datasets.kinetics.inventory import Held, keep_held, read_inventory
from ..datasets.kinetics.lists import Listed, pieces, read_list
from ..datasets.kowl.drawn import draw_lists, draw_missing, drawing
from ..datasets.kowl.increments import Incremented, assign_increments
from ..datasets.kowl.splits import Assigned, assign_splits
from ..datasets.kowl.unify import unified_row, unify
from .kowl_config import DrawnLists, Inventory, KowlConfig


def plan(c: KowlConfig, out: str) -> Flow:
    """The stages from lists to increments. ``out`` is not used: nothing is waited for."""
    flow = _unified(c)
    if isinstance(c.source, DrawnLists):
        gone = source("video_list", step(draw_missing, drawing=drawing(c.source.drawing), seed=c.seed), gives=Held)
        flow = _held(flow, gone, "with_video", "missing", "no_video")
    if c.videos is not None:
        flow = _held(flow, _inventory("videos", c.videos), "with_listed_video", c.videos.means, "no_video")
    if c.features is not None:
        flow = _held(flow, _inventory("features", c.features), "with_feature", c.features.means, "no_feature")
    return flow.whole("assigned", step(assign_splits, turns=c.turns, seed=c.seed), gives=Assigned, max_rejects=None).whole(
        "increments",
        step(
            assign_increments,
            first=c.labels.releases[0],
            later=c.increments.later,
            preset=c.increments.preset,
            order=c.increments.order,
            seed=c.seed,
        ),
        gives=Incremented,
    )


def _unified(c: KowlConfig) -> Flow:
    if isinstance(c.source, DrawnLists):
        listed = source("listed", step(draw_lists, drawing=drawing(c.source.drawing), seed=c.seed), gives=Listed)
    else:
        root = where(c.source.root)
        listed = source(
            "listed",
            step(read_list, root=root, id_pattern=c.source.id_pattern),
            pieces=step(pieces, root=root, files=c.source.files),
            gives=Listed,
            max_rejects=c.source.max_rejects,
        )
    merge = step(
        unify,
        releases=c.labels.releases,
        renames=c.labels.renames,
        normalise=c.labels.normalise,
        order=c.labels.order,
    )
    gives = unified_row(tuple(c.labels.releases))
    return listed.whole("unified", merge, gives=gives, expands=True, max_rejects=None)


def _inventory(name: str, inventory: Inventory) -> Flow:
    return source(name, step(read_inventory, path=where(inventory.path)), gives=Held, max_rejects=None)


def _held(flow: Flow, inventory: Flow, name: str, means: str, reason: str) -> Flow:
    keep = step(keep_held, inventory=rows_of(inventory.last), means=means, reason=reason)  # type: ignore[arg-type]
    return join(inventory, flow).whole(name, keep, max_rejects=None)
