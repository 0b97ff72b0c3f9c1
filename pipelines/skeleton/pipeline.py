"""Graphs of skeletons whose actions come in tasks: UCLA-CIL, NTU-CIL, and the user's own joints.

``published.toml`` is UCLA-CIL at its published size. Stage ``split`` has one row per sequence, in the order of the files, with
its tensor, role and task; ``orders`` has one row per class, with its place in every order of learning. If the source has only
names, there are no tensors, and the plan ends before the shards.
"""

from __future__ import annotations

from typing import Any

from ...curation.budget import Budget
from ...curation.flow import Flow, Step, join, rows_of, source, step
from ...curation.keys import where
from ...curation.rows import BLOB
from ...curation.shard_assignment import Placed, assign_shards
from ...curation.stages.unique_keys import take_first
from ...datasets.skeleton.arrays import read_arrays
from ...datasets.skeleton.bodies import PRESETS
from ...datasets.skeleton.facts import facts
from ...datasets.skeleton.files import read_sequence, tensor_of_joints, tensor_of_npy
from ...datasets.skeleton.layouts import Layout, built_in_layouts
from ...datasets.skeleton.nwucla import read_nwucla
from ...datasets.skeleton.orders import list_orders, orders_row, task_orders
from ...datasets.skeleton.rows import CompletedRow
from ...datasets.skeleton.samples import completed_sample, sample
from ...datasets.skeleton.splits import RoleAndTask, SelectedSequence, select_sequences, split
from ...datasets.skeleton.synthetic import ACTIONS, read_drawn
from ...datasets.skeleton.synthetic import LAYOUT as DRAWN_LAYOUT
from ..benchmark import built_in
from ..config import ConfigError
from ..sources import SOURCES
from ..user_code import OwnSource, source_of
from . import card
from .config import SkeletonConfig
from .joints import layout_for
from .order_scores import order_scores
from .source_config import (
    ArraySource,
    DrawnSource,
    FolderSource,
    NpzSource,
    NtuNamesSource,
    NtuSource,
    NwuclaSource,
    PysklSource,
    TableSource,
)

_ROWS_OF_ARRAYS = 512
_ROWS_WITH_JOINTS = 256


def plan(c: SkeletonConfig, out: str) -> Flow:
    """The stages from files to shards. ``out`` is not used, since no stage waits for people."""
    layout = layout_for(c)
    centre, joints = c.tensor.centre_joint, len(layout.joints)
    if centre is not None and not 0 <= centre < joints:
        raise ConfigError(f"tensor.centre_joint = {centre}: layout {layout.name} has the joints 0 to {joints - 1}")
    missing = getattr(c.source, "missing", None)
    choosing = step(
        select_sequences,
        classes=_classes(c),
        only={str(name): side for name, side in c.only.items()},
        missing=None if missing is None else where(missing),
        roles=None if c.split.roles is None else where(c.split.roles),
    )
    flow = _listed(c, layout).whole("unique", step(take_first), max_rejects=None)
    flow = _with_tensors(flow.whole("chosen", choosing, gives=SelectedSequence, max_rejects=None), c, layout)
    o = c.orders
    flow = flow.whole("split", _parted(c), gives=RoleAndTask)
    listing = step(
        list_orders, rows=rows_of(flow.last), tasks=o.tasks, of_tasks=o.task_orders, of_classes=o.classes, seed=c.seed
    )
    try:
        orders = source("orders", listing, gives=orders_row(len(task_orders(o.tasks, o.task_orders, seed=c.seed)), o.classes))
    except ValueError as error:
        raise ConfigError(f"orders: {error}") from None
    placing = step(assign_shards, by=["task", "role"], max_samples=c.shards.max_samples)
    flow = flow.whole("placed", placing, gives=Placed)
    sampling = step(completed_sample if c.tensor.completes else sample, layout=layout)
    return join(orders, flow if isinstance(c.source, NtuNamesSource) else flow.shards("shards", sampling))


def _parted(c: SkeletonConfig) -> Step:
    """The step that assigns every sequence its role."""
    s = c.split
    if s.rule == "shares" and not s.test:
        raise ConfigError("split.test = 0: with split.rule = 'shares' it must be above 0, or there is no test data")
    if not s.validates and "grid" in c.evaluation.experiments:
        raise ConfigError("split.val = 0: the experiment 'grid' chooses by what validates, see evaluation.experiments")
    if s.rule in ("performer", "camera") and not s.test_groups:
        raise ConfigError(f"split.test_groups is empty: with split.rule = {s.rule!r} it selects the test groups")
    if (s.rule == "list") != (s.roles is not None):
        raise ConfigError(f"split.roles = {s.roles!r} and split.rule = {s.rule!r}: roles need the rule 'list'")
    return step(
        split,
        rule=s.rule,
        val_share=s.val,
        test_share=s.test,
        classes_per_task=s.classes_per_task,
        val_groups=[str(each) for each in s.val_groups],
        test_groups=[str(each) for each in s.test_groups],
        roles=None if s.roles is None else where(s.roles),
    )


def _listed(c: SkeletonConfig, layout: Layout) -> Flow:
    s, most = c.source, 0 if isinstance(c.source, DrawnSource) else Budget(c.max_broken, "max_broken", ("hidden",))
    names = getattr(s, "names", None)
    given: dict[str, Any] = {"names": _published(names)} if isinstance(names, str) else {}
    if isinstance(s, TableSource):
        given |= {"layout": layout, "form": c.tensor, "leave_out": s.other_joints == "leave_out"}
    rows = _ROWS_WITH_JOINTS if isinstance(s, TableSource | NpzSource | PysklSource) else 65536
    return source_of("listed", s, SOURCES["skeleton"], seed=c.seed, budget=most, rows_per_part=rows, **given)


def _with_tensors(flow: Flow, c: SkeletonConfig, layout: Layout) -> Flow:
    s, form = c.source, c.tensor
    given: dict[str, Any] = {
        "gives": CompletedRow if form.completes else None,
        "max_rejects": Budget(c.max_broken, "max_broken"),
    }
    match s:
        case NtuNamesSource():
            return flow
        case NwuclaSource():
            reading = step(read_nwucla, root=where(s.root), layout=layout, form=form)
        case ArraySource():
            reading = step(read_arrays, root=where(s.root), layout=layout, form=form)
            return flow.each_batch("tensors", reading, **given, rows_per_part=_ROWS_OF_ARRAYS)
        case DrawnSource():
            if layout != built_in_layouts()[DRAWN_LAYOUT]:
                raise ConfigError(f"layout {layout.name!r}: synthetic sequences use the built-in layout {DRAWN_LAYOUT!r}")
            reading = step(read_drawn, layout=layout, form=form, noise_m=s.noise_m, seed=c.seed)
        case OwnSource() | TableSource() | NpzSource() | PysklSource():
            packed = any(field.name == "joints" and field.type.equals(BLOB) for field in flow.schemas()[flow.last])
            reading = step(tensor_of_npy if packed else tensor_of_joints, layout=layout, form=form)
        case NtuSource() | FolderSource():
            rule = PRESETS[c.bodies] if isinstance(c.bodies, str) else c.bodies
            more = isinstance(s, FolderSource) and s.other_joints == "leave_out"
            reading = step(read_sequence, root=where(s.root), layout=layout, form=form, bodies=rule, leave_out=more)
    return flow.each("tensors", reading, **given)


def _published(name: str) -> tuple[str, ...]:
    return facts().nwucla.classes if name == "nwucla" else facts().ntu.classes


def _classes(c: SkeletonConfig) -> list[str] | None:
    """Names of the classes to use, in the order of their labels; None: all, sorted by name."""
    if not isinstance(c.classes, int):
        return None if c.classes == "all" else c.classes
    s = c.source
    match s:
        case NwuclaSource():
            known = list(facts().nwucla.classes)
        case NtuSource() | NtuNamesSource():
            known = list(facts().ntu.classes)
        case DrawnSource():
            known = list(ACTIONS)
        case ArraySource() | NpzSource() | PysklSource():
            known = list(_published(s.names) if isinstance(s.names, str) else s.names or ())
        case FolderSource() | TableSource() | OwnSource():
            known = []
    if c.classes > len(known):
        order = f"{len(known)} have an order in a source of kind {s.kind!r}"
        raise ConfigError(f"classes = {c.classes}: {order}: name them, or set classes = 'all' for all, sorted by name")
    return known[: c.classes]


BENCHMARK = built_in(
    "skeleton",
    SkeletonConfig,
    plan,
    card.publish,
    shown={
        "AA": "aa@test",
        "AF from best": "af_from_best@test",
        "final - diagonal": "af_final_minus_diagonal@test",
        "AA, validation": "aa@val",
    },
    tables=order_scores,
)
