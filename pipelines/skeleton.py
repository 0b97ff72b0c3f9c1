"""Graphs of skeletons whose actions come in tasks: UCLA-CIL, NTU-CIL, and anyone's own joints.

``skeleton.toml`` is UCLA-CIL at its published size. The stage ``split`` has one row a sequence, in the order of the files, with
its tensor, role and task; ``orders`` one row a class, with its place in every order of learning.
"""

from __future__ import annotations

from ..curation.flow import Flow, join, rows_of, source, step
from ..curation.keys import where
from ..curation.stages.first import take_first
from ..datasets.skeleton.layouts import Layout, packaged
from ..datasets.skeleton.nwucla import list_nwucla, read_nwucla
from ..datasets.skeleton.orders import list_orders, orders_row, task_orders
from ..datasets.skeleton.samples import Placed, place, sample
from ..datasets.skeleton.splits import Chosen, Split, choose, split
from . import skeleton_publish, skeleton_results, skeleton_runs
from .benchmark import Benchmark
from .config import ConfigError
from .skeleton_config import PackagedLayout, SkeletonConfig


def plan(c: SkeletonConfig, out: str) -> Flow:
    """The stages from files to shards. ``out`` is not used: nothing is waited for."""
    layout = layout_for(c)
    root = where(c.source.root)
    flow = source("listed", step(list_nwucla, root=root), max_rejects=c.max_broken)
    flow = flow.whole("unique", step(take_first), max_rejects=None).whole(
        "chosen",
        step(choose, classes=c.classes, only={str(name): side for name, side in c.only.items()}),
        gives=Chosen,
        max_rejects=None,
    )
    flow = flow.each("tensors", step(read_nwucla, root=root, layout=layout, form=c.tensor), max_rejects=c.max_broken)
    s = c.split
    parted = step(split, rule=s.rule, val_share=s.val, test_share=s.test, classes_per_task=s.classes_per_task)
    flow = flow.whole("split", parted, gives=Split)
    listing = step(list_orders, rows=rows_of("split"), tasks=c.orders.tasks, n=c.orders.classes, seed=c.seed)  # type: ignore[arg-type]
    orders = source("orders", listing, gives=orders_row(len(task_orders(c.orders.tasks)), c.orders.classes))
    flow = flow.whole("placed", step(place, max_samples=c.shards.max_samples), gives=Placed)
    return join(orders, flow.shards("shards", step(sample, layout=layout)))


def layout_for(c: SkeletonConfig) -> Layout:
    """The layout of the settings. Raises ``ConfigError`` where it is none."""
    told = c.layout
    if isinstance(told, PackagedLayout):
        return packaged()[told.name]
    try:
        return Layout(told.name, tuple(told.joints), tuple(told.edges), told.centre)
    except ValueError as error:
        raise ConfigError(f"layout: {error}") from None


BENCHMARK = Benchmark(
    name="skeleton",
    title="Skeleton graphs whose actions come in tasks: order and architecture sensitivity",
    config=SkeletonConfig,
    plan=plan,
    publish=skeleton_publish.publish,
    evaluate=skeleton_runs.evaluate,
    scores=skeleton_results.scores,
    report=skeleton_runs.report,
)
