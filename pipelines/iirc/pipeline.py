"""IIRC (Abdelsalam et al., CVPR 2021), and any pictures of classes with superclasses: labels that are refined task by task.

``published.toml`` is IIRC-CIFAR at its published size; there are presets for IIRC-ImageNet, the class-incremental set-up of the
authors' package, Tiny-ImageNet, and generated pictures. The stage ``assigned`` has one row per picture: its role, its classes,
under which of them it is given, and the task of each in every configuration. All set-ups are views of that table.
"""

from __future__ import annotations

from typing import Any

from ...curation.budget import Budget
from ...curation.flow import Flow, step
from ...curation.keys import where
from ...curation.stages.embed import embed_images
from ...curation.stages.images import check_image
from ...curation.stages.unique_keys import take_first
from ...datasets.class_images.folders import image_pieces
from ...datasets.iirc.assign import Proposal, assign, assigned_row
from ...datasets.iirc.hierarchy import Hierarchy
from ...datasets.iirc.samples import sample
from ...datasets.iirc.synthetic import drawn_hierarchy
from ..benchmark import built_in
from ..config import ConfigError
from ..near_duplicates import with_near_duplicates
from ..sources import SOURCES
from ..user_code import encoder_of, source_of
from . import card
from .config import (
    CifarSource,
    DrawnHierarchy,
    DrawnSource,
    FolderHierarchy,
    HierarchyFile,
    IircConfig,
    ImageSource,
    ProposedHierarchy,
    TasksDrawn,
)
from .vectors import EMBEDDED


def plan(c: IircConfig, out: str) -> Flow:
    """The stages from pictures to shards. ``out`` is not used, since no stage waits for people."""
    h, t = c.hierarchy, c.tasks
    assigning = step(
        assign,
        hierarchy=_hierarchy(c),
        form="parents" if isinstance(h, ProposedHierarchy) else "two_levels",
        proposal=Proposal(h.min_subclasses, h.max_subclasses) if isinstance(h, ProposedHierarchy) else None,
        setup=c.setup,
        shares=c.shares,
        tasks=t.drawn_tasks(c.seed) if isinstance(t, TasksDrawn) else where(t.path),
        configurations=t.configurations,
        only_found=isinstance(h, FolderHierarchy) or (isinstance(h, HierarchyFile) and h.only_found),
        min_subclasses=h.min_subclasses if isinstance(h, HierarchyFile | FolderHierarchy) else 1,
        **({"seed": c.seed} if c.shares.order == "drawn" else {}),
    )
    flow = (
        _found(c)
        .whole("unique", step(take_first), max_rejects=None)
        .each("checked", step(check_image), max_rejects=Budget(c.max_broken, "max_broken"))
    )
    if c.vectors is not None:
        flow = flow.each_batch(EMBEDDED, step(embed_images, encoder=encoder_of(c.vectors, at="vectors")))
    outside = Budget(c.max_outside, "max_outside")
    flow = flow.whole("assigned", assigning, gives=assigned_row(tuple(t.configurations)), max_rejects=outside)
    flow = with_near_duplicates(flow, c.near_duplicates, split="role")
    return flow.shards("shards", step(sample), by=["role", "part"], max_samples=c.shards.max_samples)


def _found(c: IircConfig) -> Flow:
    s, kinds = c.source, SOURCES["iirc"]
    if isinstance(s, ImageSource):
        budget = Budget(s.max_rejects, "source.max_rejects", ("hidden",))
        return source_of("found", s, kinds, seed=c.seed, budget=budget, pieces=image_pieces, form=s.kind)
    few: dict[str, Any] = {"rows_per_part": 2_500} if isinstance(s, CifarSource) else {}
    return source_of("found", s, kinds, seed=c.seed, **few)


def _hierarchy(c: IircConfig) -> Any:
    """A hierarchy, the location of its file, or None for the hierarchy of the pictures' folders."""
    if isinstance(c.hierarchy, DrawnHierarchy):
        return _drawn_hierarchy(c)
    if isinstance(c.hierarchy, FolderHierarchy):
        if c.source.kind not in ("folders", "tars"):
            raise ConfigError(f"hierarchy.kind = 'folders' belongs to a source of folders, and this one is {c.source.kind!r}")
        return None
    return where(c.hierarchy.path)


def _drawn_hierarchy(c: IircConfig) -> Hierarchy:
    if not isinstance(c.source, DrawnSource):
        raise ConfigError(f"hierarchy.kind = 'drawn' needs a generated source, but this one is {c.source.kind!r}")
    try:
        return drawn_hierarchy(shapes=c.source.shapes, colours=c.source.colours, lone=c.source.lone)
    except ValueError as error:
        raise ConfigError(f"source: {error}") from None


BENCHMARK = built_in(
    "iirc",
    IircConfig,
    plan,
    card.publish,
    shown={"pw-JS": "pw_js", "JS": "js", "exact match": "exact_match", "recall": "recall"},
)
