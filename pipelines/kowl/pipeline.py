"""KOWL-718 (Prijatelj et al., "Human Activity Recognition in an Open World"), and any dataset that was published in releases:
one label space over all of them, every sample used once, and increments that introduce the new classes step by step.

``published.toml`` has the published size. Stage ``increments`` has one row per sample by (increment, role, position); its
columns are those of ``unify.unified_row``, ``splits.Assigned`` and ``increments.Incremented``. With features the plan ends
with shards of one increment and role each; without features, it ends with that table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ...curation.budget import Budget
from ...curation.encoders.preprocess import Crop
from ...curation.flow import Flow, join, rows_of, source, step
from ...curation.keys import how, named, where
from ...curation.registry import BUILT_IN
from ...curation.stages.transforms import TRANSFORMS
from ...curation.stages.visual_transforms import our_ranges
from ...datasets.ava_kinetics.strata import Annotated, Stratified, action_types, add_strata, ava_lists, read_ava_list
from ...datasets.features.extract import Nuisance, extract_features
from ...datasets.features.files import FeatureFile
from ...datasets.features.frames import FrameClip, WithFrames, attach_clips, read_clips, shards_below
from ...datasets.features.rows import (
    StoredFeature,
    WithFeature,
    WithVector,
    attach_features,
    feature_pieces,
    read_stored_features,
)
from ...datasets.features.videos import NamedClip, Views, extract_videos, name_clips
from ...datasets.kinetics.inventory import Held, HeldMoment, keep_held, read_inventory
from ...datasets.kinetics.lists import Listed, kinetics_lists
from ...datasets.kowl.increments import Incremented, assign_increments
from ...datasets.kowl.own_lists import OwnListed, Split, draw_splits, listed_tables
from ...datasets.kowl.samples import sample
from ...datasets.kowl.splits import Assigned, assign_splits
from ...datasets.kowl.synthetic import (
    Centred,
    choose_centres,
    displace_features,
    draw_features,
    draw_lists,
    draw_missing,
    drawing,
)
from ...datasets.kowl.unify import unified_row, unify
from ...datasets.roles import ROLES
from ...datasets.videos.inventory import VideoFile, WithVideo, list_videos, match_videos
from ..benchmark import built_in, later
from ..config import ConfigError
from ..names import short
from ..sources import SOURCES
from ..user_code import OwnSource, own_source, source_of
from . import card
from .config import (
    AvaLists,
    DrawnFeatures,
    DrawnLists,
    ExtractedFeatures,
    FeatureSource,
    Inventory,
    KowlConfig,
    ListSource,
    StoredFeatures,
    TableSource,
    Transforms,
    VideoFeatures,
    setting_of,
    stage_apart,
)

_DRAWN_AT_ONCE = 4096
_CLIPS_AT_ONCE = 64


def plan(c: KowlConfig, out: str) -> Flow:
    """The stages from lists to shards. ``out`` is not used, since no stage waits for people."""
    flow = _unified(c)
    if isinstance(c.source, DrawnLists):
        gone = source(
            "video_list", step(draw_missing, drawing=drawing(c.source.drawing), seed=c.seed), gives=Held, may_be_empty=True
        )
        flow = _held(flow, gone, "with_video", "missing", "no_video")
    if c.videos is not None:
        flow = _held(flow, _inventory("videos", c.videos, c.source), "with_listed_video", c.videos.means, "no_video")
    videos = videos_of(c)
    if videos is not None:
        flow = _with_videos(flow, c, videos)
    if (frames := first_frame_features(c)) is not None:
        flow = _with_frames(flow, c, frames)
    if isinstance(c.features, StoredFeatures | DrawnFeatures):  # others are extracted once samples have their roles
        flow = _with_features(flow, c, c.features)
    flow = flow.whole("assigned", step(assign_splits, turns=c.turns, seed=c.seed), gives=Assigned, max_rejects=None).whole(
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
    placed = flow
    if isinstance(c.features, ExtractedFeatures | VideoFeatures):
        flow = _extracted(flow, c, c.features)
    if c.ava is not None:
        flow = _stratified(flow, c.ava)
    if c.features is None:
        if c.feature_sets:
            raise ConfigError(
                f"feature_sets.{next(iter(c.feature_sets))}: feature sets need a table [features], but there is none"
            )
        return flow
    shards = flow.shards("shards", step(sample), by=["increment", "role"], max_samples=c.shards.max_samples)
    return join(*apart(placed, c).values(), shards)


def apart(flow: Flow, c: KowlConfig) -> dict[tuple[str, str], Flow]:
    """Plans for the vectors next to the shards: of further feature sets, and of every set under each nuisance.

    Args:
        flow: plan up to the samples in their increments, before any features are extracted.
        c: the settings.
    """
    found: dict[tuple[str, str], Flow] = {}
    for number, (name, features) in enumerate(c.feature_sets.items(), 1):
        found[name, ""] = _set_apart(flow, c, features, name, number)
    for name, features in c.sets.items():
        for kind in features.nuisances:
            seen = found.get((name, ""), flow) if isinstance(features, DrawnFeatures) else flow
            found[name, kind] = _nuisance(seen, c, features, name, kind)
    return found


def _set_apart(flow: Flow, c: KowlConfig, features: FeatureSource, name: str, number: int) -> Flow:
    stage = stage_apart(name, "")
    if isinstance(features, ExtractedFeatures | VideoFeatures):
        return _extracted(flow, c, features, stage=stage)
    if isinstance(features, StoredFeatures):
        return _attached(flow, c, features, features.files, stage)
    return _with_drawn_features(flow, c, features, f"centred_{name}", stage, c.seed + number)


def _nuisance(flow: Flow, c: KowlConfig, features: FeatureSource, name: str, kind: str) -> Flow:
    stage = stage_apart(name, kind)
    if isinstance(features, StoredFeatures):
        return _attached(flow, c, features, features.nuisances[kind], stage)
    if isinstance(features, DrawnFeatures):
        displace = step(displace_features, kind=kind, strength=features.nuisances[kind], seed=c.seed)
        return flow.each_batch(stage, displace, rows_per_part=_DRAWN_AT_ONCE)
    return _extracted(flow, c, features, stage=stage, transforms=Transforms((kind,), 1.0, ROLES))


def _attached(flow: Flow, c: KowlConfig, features: StoredFeatures, files: Sequence[FeatureFile], stage: str) -> Flow:
    stored = _stored(f"stored_{stage}", c, features, files)
    attach = step(attach_features, features=rows_of(stored.last), uid=_named_by(c), column="vector")  # type: ignore[arg-type]
    return join(stored, flow).whole(stage, attach, gives=WithVector, max_rejects=_budget(c, features))


def _unified(c: KowlConfig) -> Flow:
    if isinstance(c.source, DrawnLists):
        listed = source("listed", step(draw_lists, drawing=drawing(c.source.drawing), seed=c.seed), gives=Listed)
    else:
        listed = _listed(c, c.source)
    merge = step(
        unify,
        releases=c.labels.releases,
        renames=c.labels.renames,
        normalise=c.labels.normalise,
        order=c.labels.order,
    )
    gives = unified_row(tuple(c.labels.releases))
    if isinstance(c.source, TableSource):
        shares = step(draw_splits, shares=c.source.without_split, renames=c.labels.renames, seed=c.seed)
        listed = listed.whole("split", shares, gives=Split)
    return listed.whole("unified", merge, gives=gives, expands=True, max_rejects=None)


def _listed(c: KowlConfig, s: ListSource | TableSource | OwnSource) -> Flow:
    if isinstance(s, OwnSource):
        return own_source("listed", s, seed=c.seed)
    own = isinstance(s, TableSource)
    labels = [] if own else [file.labels for file in s.files if file.labels is not None]
    return source_of(
        "listed",
        s,
        SOURCES["kowl"],
        seed=c.seed,
        budget=Budget(s.max_rejects, "source.max_rejects"),
        pieces=listed_tables if own else kinetics_lists,
        gives=OwnListed if own else Listed,
        root=where(s.root, only=[file.path for file in s.files] + labels),
    )


def _with_features(flow: Flow, c: KowlConfig, features: StoredFeatures | DrawnFeatures) -> Flow:
    if isinstance(features, DrawnFeatures):
        return _with_drawn_features(flow, c, features, "centred", "with_feature", c.seed)
    stored = _stored("stored_features", c, features, features.files)
    attach = step(attach_features, features=rows_of(stored.last), uid=_named_by(c))  # type: ignore[arg-type]
    return join(stored, flow).whole("with_feature", attach, gives=WithFeature, max_rejects=None)


def _with_drawn_features(flow: Flow, c: KowlConfig, features: DrawnFeatures, centred: str, stage: str, seed: int) -> Flow:
    first = c.labels.releases[0]
    splits = [turn.split for turn in c.turns if (turn.release, turn.role) == (first, "train")]
    centres = step(choose_centres, first=first, splits=splits, hidden=features.hidden, seed=c.seed)
    draw = step(draw_features, width=features.width, distance=features.distance, seed=seed)
    return flow.whole(centred, centres, gives=Centred).each_batch(stage, draw, rows_per_part=_DRAWN_AT_ONCE)


def _stored(name: str, c: KowlConfig, features: StoredFeatures, files: Sequence[FeatureFile]) -> Flow:
    only = [path for file in files for path in (file.path, file.ids) if path is not None]
    root = where(features.root, only=[] if "." in only else only)
    return source(
        name,
        step(read_stored_features, root=root, width=features.width, uid_pattern=features.uid_pattern),
        pieces=step(feature_pieces, root=root, files=files),
        gives=StoredFeature,
        max_rejects=_budget(c, features),
    )


def _budget(
    c: KowlConfig,
    features: StoredFeatures | ExtractedFeatures | VideoFeatures,
    limit: str = "max_rejects",
    expected: tuple[str, ...] = (),
) -> Budget:
    """A limit of a feature set, which the message names as it stands in the settings."""
    place = next(setting_of(name) for name, each in c.sets.items() if each is features)
    return Budget(getattr(features, limit), f"{place}.{limit}", expected)


def _named_by(c: KowlConfig) -> str:
    """Column with the name of a sample's feature."""
    return "feature_key" if isinstance(c.source, TableSource) else "key"


def _with_frames(flow: Flow, c: KowlConfig, features: ExtractedFeatures) -> Flow:
    """Reject samples without frames; frames are read from their shards once samples have their roles."""
    root = where(features.root)
    clips = source(
        "frames",
        step(read_clips, root=root, uid_pattern=features.uid_pattern),
        pieces=step(shards_below, root=root),
        gives=FrameClip,
        max_rejects=_budget(c, features),
    )
    attach = step(attach_clips, clips=rows_of(clips.last))  # type: ignore[arg-type]
    return join(clips, flow).whole("with_frames", attach, gives=WithFrames, max_rejects=None)


_F = TypeVar("_F", ExtractedFeatures, VideoFeatures)


def videos_of(c: KowlConfig) -> VideoFeatures | None:
    """The first features computed from videos; all features of this kind must use the same videos."""
    return _first_of(c, VideoFeatures, ("root", "names", "bare"))


def first_frame_features(c: KowlConfig) -> ExtractedFeatures | None:
    """The first features computed from shards of frames; all features of this kind must use the same shards."""
    return _first_of(c, ExtractedFeatures, ("root", "uid_pattern"))


def _first_of(c: KowlConfig, kind: type[_F], alike: Sequence[str]) -> _F | None:
    found = {setting_of(name): each for name, each in c.sets.items() if isinstance(each, kind)}
    if len({tuple(getattr(each, name) for name in alike) for each in found.values()}) > 1:
        of = next(iter(found.values())).kind
        raise ConfigError(f"{', '.join(found)}: {', '.join(alike)}: expected the same of all features of kind {of!r}")
    return next(iter(found.values()), None)


def _with_videos(flow: Flow, c: KowlConfig, features: VideoFeatures) -> Flow:
    """Reject samples without a video file."""
    budget = _budget(c, features, expected=("hidden", "not_a_video"))
    files = source("video_files", step(list_videos, root=where(features.root)), gives=VideoFile, max_rejects=budget)
    named = flow.table("named", step(name_clips), gives=NamedClip)
    match = step(match_videos, videos=rows_of("video_files"), names=features.names, bare=features.bare)  # type: ignore[arg-type]
    missing = _budget(c, features, "max_missing")
    return join(files, named).whole("with_video_file", match, gives=WithVideo, max_rejects=missing)


def _extracted(
    flow: Flow,
    c: KowlConfig,
    features: ExtractedFeatures | VideoFeatures,
    *,
    stage: str = "extracted",
    transforms: Transforms | None = None,
) -> Flow:
    chosen = transforms or features.transforms
    kinds = [TRANSFORMS.find(kind) for kind in chosen.kinds] if chosen else []
    own = {short(entry.name): named(entry.reference) for entry in kinds if entry.origin != BUILT_IN}
    names = tuple(short(entry.name) for entry in kinds)
    shared: dict[str, Any] = {
        "root": where(features.root),
        "backbone": features.backbone,
        "checkpoint": where(features.checkpoint) if features.checkpoint else "",
        "width": features.width,
        "nuisance": None if chosen is None else Nuisance(names, chosen.share, chosen.roles, chosen.from_increment),
        "ranges": our_ranges(),
        "seed": c.seed,
        "transforms": own,
        "device": how(features.device),
    }
    if isinstance(features, VideoFeatures):
        views = Views(**{name: getattr(features, name) for name in Views.__dataclass_fields__})
        extract = step(extract_videos, views=views, **shared)
    else:
        crop = Crop(features.resize_px, features.side_px, "bilinear")
        extract = step(extract_features, frames=features.frames, crop=crop, **shared)
    return flow.each_batch(stage, extract, max_rejects=_budget(c, features), rows_per_part=_CLIPS_AT_ONCE)


def _stratified(flow: Flow, ava: AvaLists) -> Flow:
    path = where(ava.path)
    annotated = source(
        "ava",
        step(read_ava_list, path=path),
        pieces=step(ava_lists, path=path),
        gives=Annotated,
        max_rejects=Budget(ava.max_rejects, "ava.max_rejects"),
    )
    add = step(add_strata, annotations=rows_of(annotated.last), types=action_types(), count=ava.actions)  # type: ignore[arg-type]
    return join(annotated, flow).whole("strata", add, gives=Stratified)


def _inventory(name: str, inventory: Inventory, lists: ListSource | TableSource | DrawnLists | OwnSource) -> Flow:
    budget = Budget(inventory.max_rejects, "videos.max_rejects", ("blank_line", "header"))
    nothing = inventory.means == "missing"
    fractions = isinstance(lists, TableSource)
    read = step(read_inventory, path=where(inventory.path), id_pattern=inventory.id_pattern, fractions=fractions)
    gives = HeldMoment if fractions else Held
    return source(name, read, gives=gives, max_rejects=budget, may_be_empty=nothing)


def _held(flow: Flow, inventory: Flow, name: str, means: str, reason: str) -> Flow:
    keep = step(keep_held, inventory=rows_of(inventory.last), means=means, reason=reason)  # type: ignore[arg-type]
    return join(inventory, flow).whole(name, keep, max_rejects=None)


BENCHMARK = built_in(
    "kowl",
    KowlConfig,
    plan,
    card.publish,
    asked=later(f"{__package__}.people:rounds_of"),
    doubts=later(f"{__package__}.baselines:doubts"),
    shown={
        "mcc pre": "pre.classification.predictor.mcc@test_set",
        "mcc post": "post.classification.predictor.mcc@test_set",
        "top-1 post": "post.classification.predictor.top1_accuracy@test_set",
        "detection mcc": "pre.detection.predictor.mcc@test_set",
        "mcc train": "start.mcc@train",
        "mcc val": "start.mcc@validate",
        "mcc test": "start.mcc@test",
        "recognition nmi": "pre.recognition.predictor.nmi_arithmetic@test_set",
    },
)
