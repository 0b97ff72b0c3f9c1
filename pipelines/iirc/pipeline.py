"""IIRC (Abdelsalam et al., CVPR 2021), and any pictures of classes with superclasses: labels that are refined task by task.

``published.toml`` is IIRC-CIFAR at its published size; variants are there for IIRC-ImageNet, the class-incremental comparison,
Tiny-ImageNet, and pictures that are drawn. The stage ``assigned`` has one row a picture: its role, its classes, under which of
them it is given, and in which task of every configuration each of them comes. All set-ups are views of that table.
"""

from __future__ import annotations

from ...curation.budget import Budget
from ...curation.flow import Flow, source, step
from ...curation.keys import where
from ...curation.shards import Placed
from ...curation.stages.embed import embed_images
from ...curation.stages.images import check_image
from ...curation.stages.unique_keys import take_first
from ...datasets.class_images.cifar import read_archive
from ...datasets.class_images.folders import image_pieces, read_class_images
from ...datasets.iirc.assign import Proposal, assign, assigned_row
from ...datasets.iirc.hierarchy import Hierarchy
from ...datasets.iirc.samples import place, sample
from ...datasets.iirc.synthetic import draw_class_images, drawn_hierarchy
from ...datasets.iirc.tasks import DrawnTasks
from ..benchmark import Benchmark, later
from ..catalogue import TITLES
from ..config import ConfigError
from ..own import OwnSource, encoder_of, own_source
from . import card
from .config import (
    CifarSource,
    DrawnHierarchy,
    DrawnSource,
    IircConfig,
    ImageSource,
    ProposedHierarchy,
    TasksDrawn,
)
from .vectors import EMBEDDED


def plan(c: IircConfig, out: str) -> Flow:
    """The stages from pictures to shards. ``out`` is not used: nothing is waited for."""
    h, t = c.hierarchy, c.tasks
    assigning = step(
        assign,
        hierarchy=_drawn_hierarchy(c) if isinstance(h, DrawnHierarchy) else where(h.path),
        form="parents" if isinstance(h, ProposedHierarchy) else "two_levels",
        proposal=Proposal(h.min_subclasses, h.max_subclasses) if isinstance(h, ProposedHierarchy) else None,
        setup=c.setup,
        shares=c.shares,
        tasks=DrawnTasks(t.first, t.later, c.seed) if isinstance(t, TasksDrawn) else where(t.path),
        configurations=t.configurations,
        only_found=h.kind == "file" and h.only_found,
        min_subclasses=h.min_subclasses if h.kind == "file" else 1,
    )
    flow = (
        _found(c)
        .whole("unique", step(take_first), max_rejects=None)
        .each("checked", step(check_image), max_rejects=Budget(c.max_broken, "max_broken"))
    )
    if c.vectors is not None:
        flow = flow.each_batch(EMBEDDED, step(embed_images, encoder=encoder_of(c.vectors)))
    outside = Budget(c.max_outside, "max_outside")
    return (
        flow.whole("assigned", assigning, gives=assigned_row(tuple(t.configurations)), max_rejects=outside)
        .whole("placed", step(place, max_samples=c.shards.max_samples), gives=Placed)
        .shards("shards", step(sample))
    )


def _found(c: IircConfig) -> Flow:
    s = c.source
    match s:
        case CifarSource():
            return source("found", step(read_archive, root=where(s.root)), rows_per_part=2_500)
        case ImageSource():
            root = where(s.root)
            reading = step(
                read_class_images,
                root=root,
                form=s.kind,
                splits=s.splits,
                classes=None if s.classes is None else where(s.classes),
            )
            budget = Budget(s.max_rejects, "source.max_rejects", ("hidden",))
            return source("found", reading, pieces=step(image_pieces, root=root, form=s.kind), max_rejects=budget)
        case DrawnSource():
            drawing = step(
                draw_class_images,
                shapes=s.shapes,
                colours=s.colours,
                lone=s.lone,
                train_per_class=s.train_per_class,
                test_per_class=s.test_per_class,
                broken=s.broken,
                seed=c.seed,
            )
            return source("found", drawing)
        case OwnSource():
            return own_source("found", s, seed=c.seed)


def _drawn_hierarchy(c: IircConfig) -> Hierarchy:
    if not isinstance(c.source, DrawnSource):
        raise ConfigError(f"hierarchy.kind = 'drawn' belongs to a drawn source, and this one is {c.source.kind!r}")
    try:
        return drawn_hierarchy(shapes=c.source.shapes, colours=c.source.colours, lone=c.source.lone)
    except ValueError as error:
        raise ConfigError(f"source: {error}") from None


report = later(f"{__package__}.report:write_report")
trainings = later(f"{__package__}.baselines:trainings")

BENCHMARK = Benchmark(
    name="iirc",
    title=TITLES["iirc"],
    config=IircConfig,
    plan=plan,
    publish=card.publish,
    trainings=trainings,
    shown={"pw-JS": "pw_js", "JS": "js", "exact match": "exact_match", "recall": "recall"},
    report=report,
)
