"""vCLIMB (Villa et al., CVPR 2022), and any collection of labelled videos: classes that come in tasks, frames as shards.

``published.toml`` is UCF101 at its published size; there are presets for ActivityNet and Kinetics, and for user videos.
Roles given by a list are in the stage ``split`` for every clip of the whole list; missing and unusable clips are rejected after
it, so that the split is the same for everyone. Drawn roles are drawn among usable clips. In both cases the stage ``usable``
reports which class lost which role, before frames are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...curation.budget import Budget
from ...curation.flow import Flow, join, rows_of, source, step
from ...curation.keys import how, where
from ...curation.stages.picture_hash import hash_clip
from ...curation.stages.unique_keys import take_first
from ...curation.video.frame_plans import FramePlan
from ...curation.video.frames import FrameSettings, probe_clip, sample_frames
from ...curation.video.limits import VideoLimits
from ...datasets.kinetics.inventory import KineticsClip, as_clips
from ...datasets.kinetics.lists import Listed, kinetics_lists
from ...datasets.vclimb.samples import PlacedClip, place, sample
from ...datasets.vclimb.splits import (
    Cut,
    InRole,
    InTask,
    RoleRule,
    Untrimmed,
    assign_clip_roles,
    assign_tasks,
    check_roles,
    cut_segments,
    untrim,
)
from ...datasets.vclimb.synthetic import probe_drawn, sample_drawn
from ...datasets.videos.frame_folders import list_frame_folders, probe_frame_folder, sample_frame_folder
from ...datasets.videos.inventory import VideoFile, WithVideo, list_videos, match_videos
from ..benchmark import built_in
from ..config import ConfigError
from ..near_duplicates import with_near_duplicates
from ..sources import SOURCES
from ..user_code import source_of
from . import card
from .config import ActivityNetSource, DrawnVideos, KineticsSource, SplitFileSource, TspSource, VclimbConfig, VideoFolder

_NO_VIDEOS = ("hidden", "not_a_video", "not_a_frame")
"""Reject reasons of files that are not expected to be videos."""


def plan(c: VclimbConfig, out: str) -> Flow:
    """The stages from lists to shards. ``out`` is not used, since no stage waits for people."""
    flow, split = _listed(c).whole("unique", step(take_first), max_rejects=None), ""
    if not isinstance(c.split.roles, str):
        # Where a video is cut depends on its length, so that the videos are probed first.
        flow = _probed(_with_video(flow, c), c, None)
        flow = flow.whole("cut", step(cut_segments, roles=c.split.roles), gives=Cut, expands=True)
        flow = _split(_untrimmed(flow, c), c, "listed")
    elif isinstance(c.source, SplitFileSource) or c.split.roles == "listed":
        flow = _split(_untrimmed(flow, c), c, "listed")
        split = flow.last
        flow = _probed(_with_video(flow, c), c, _frame_plan(c))
    else:
        flow = _probed(_with_video(_untrimmed(flow, c), c), c, _frame_plan(c))
        flow = _split(flow, c, c.split.roles)
    needed = [role for role in c.evaluation.roles if role != "none"]
    check = step(check_roles, split=rows_of(split or flow.last), roles=needed, on_lost_role=c.split.on_lost_role)
    placed = step(place, usable=rows_of("usable"), max_samples=c.shards.max_samples, seed=c.seed)
    flow = _sampled(flow.whole("usable", check), c)
    flow = with_near_duplicates(flow, c.near_duplicates, hashing=step(hash_clip), split="role", rows_per_part=c.rows_per_part)
    return flow.whole("placed", placed, gives=PlacedClip).shards("shards", step(sample))


_NOT_COUNTED = {"activitynet": ("no_annotation",), "activitynet_csv": ("background",), "kinetics": ("repeated_clip",)}
"""Kind of source -> its expected reject reasons."""


def _listed(c: VclimbConfig) -> Flow:
    s, kinds = c.source, SOURCES["vclimb"]
    budget = _lines_of(c, *_NOT_COUNTED.get(s.kind, ()))
    if isinstance(s, KineticsSource):
        lines = source_of("lines", s, kinds, seed=c.seed, budget=_lines_of(c), pieces=kinetics_lists, gives=Listed)
        return lines.whole("listed", step(as_clips), gives=KineticsClip, expands=True, max_rejects=budget)
    given: dict[str, Any] = {"tasks": c.split.tasks}
    if isinstance(s, VideoFolder):
        given = {"root": where(_root(c)), "form": c.videos.form}
    return source_of("listed", s, kinds, seed=c.seed, budget=budget, **given)


def _lines_of(c: VclimbConfig, *expected: str) -> Budget:
    s = c.source
    if isinstance(s, VideoFolder):
        return Budget(c.videos.max_rejects, "videos.max_rejects", _NO_VIDEOS)
    return Budget(getattr(s, "max_rejects", 0), "source.max_rejects", expected)


def _root(c: VclimbConfig) -> str:
    if c.videos.root is None:
        raise ConfigError("videos.root: this setting is missing: give the folder of videos with --set videos.root=FOLDER")
    return c.videos.root


def _untrimmed(flow: Flow, c: VclimbConfig) -> Flow:
    rule = c.split.untrim
    if rule is None:
        return flow
    # Other sources would lose every clip, since it is unknown how much of a video its segments cover.
    if not isinstance(c.source, SplitFileSource | ActivityNetSource | TspSource):
        raise ConfigError(
            f"split.untrim: a source of kind {c.source.kind!r} has no lengths of whole videos: remove it"
            + (", and times of whole videos empty" if c.source.kind == "csv" else "")
        )
    whole = step(untrim, min_coverage=rule.min_coverage, several_labels=rule.several_labels)
    budget = Budget(rule.max_rejects, "split.untrim.max_rejects", ("same_video",))
    return flow.whole("untrimmed", whole, gives=Untrimmed, expands=True, max_rejects=budget)


def _split(flow: Flow, c: VclimbConfig, roles: RoleRule) -> Flow:
    s = c.split
    if isinstance(c.source, SplitFileSource):
        return flow
    parted = step(assign_clip_roles, rule=roles, train_share=s.train_share, val_share=s.val_share, seed=c.seed)
    tasks = step(assign_tasks, tasks=s.tasks, order=s.order, classes=s.classes, seed=c.seed)
    flow = flow.whole("roles", parted, gives=InRole, max_rejects=_lines_of(c))
    return flow.whole("split", tasks, gives=InTask, max_rejects=None)


def _with_video(flow: Flow, c: VclimbConfig) -> Flow:
    if isinstance(c.source, DrawnVideos):
        return flow
    listing = step(list_videos if c.videos.form == "files" else list_frame_folders, root=where(_root(c)))
    budget = Budget(c.videos.max_rejects, "videos.max_rejects", _NO_VIDEOS)
    files = source("videos", listing, gives=VideoFile, max_rejects=budget)
    match = step(match_videos, videos=rows_of("videos"), names=c.videos.names, bare=c.videos.bare)  # type: ignore[arg-type]
    missing = Budget(c.videos.max_missing, "videos.max_missing")
    return join(files, flow).whole("matched", match, gives=WithVideo, max_rejects=missing)


def _probed(flow: Flow, c: VclimbConfig, chosen: FramePlan | None) -> Flow:
    """Probe the videos; with a plan, clips from which it cannot choose frames are rejected here."""
    probe, _, given = _reader(c)
    return flow.each("probed", step(probe, plan=chosen, **given), max_rejects=_broken(c), rows_per_part=c.rows_per_part)


def _broken(c: VclimbConfig) -> Budget:
    return Budget(c.videos.max_broken, "videos.max_broken")


def _frame_plan(c: VclimbConfig) -> FramePlan:
    f = c.frames
    return FramePlan(f.kind, f.n, f.fps, f.min_frames, c.seed if f.kind == "segments" else None)


def _reader(c: VclimbConfig) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    """The functions that probe a video and that sample its frames, and the settings of both."""
    v = c.videos
    if isinstance(c.source, DrawnVideos):
        return probe_drawn, sample_drawn, {}
    if v.fps is not None:
        return probe_frame_folder, sample_frame_folder, {"root": where(_root(c)), "fps": v.fps}
    limits = {"limits": VideoLimits(cpu_limit_s=v.cpu_limit_s), "wall_limit_s": how(v.wall_limit_s)}
    return probe_clip, sample_frames, {"root": where(_root(c)), "stream": v.stream, **limits}


def _sampled(flow: Flow, c: VclimbConfig) -> Flow:
    f, (_, sample_of, given) = c.frames, _reader(c)
    settings = FrameSettings(f.short_side_px, f.jpeg_quality, f.decoder)
    made = step(sample_of, plan=_frame_plan(c), settings=settings, **given)
    return flow.each("sampled", made, max_rejects=_broken(c), rows_per_part=c.rows_per_part)


SHOWN = {
    "acc": "acc_class_weighted",
    "bwf": "bwf_class_weighted",
    "acc unweighted": "acc_unweighted",
    "bwf unweighted": "bwf_unweighted",
}
"""Metrics that ``eval`` prints: heading -> metric."""

BENCHMARK = built_in(
    "vclimb",
    VclimbConfig,
    plan,
    card.publish,
    shown=SHOWN,
    joins=True,
)
