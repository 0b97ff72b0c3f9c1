"""CLEAR (Lin, Shi, Pathak and Ramanan, "The CLEAR Benchmark", NeurIPS 2021 Datasets and Benchmarks), and any benchmark made
the same way: dated photos are divided into time buckets, prompts retrieve concepts in each, annotators confirm them, and the
confirmed images become shards with iid and streaming protocols.

``published.toml`` has the published size. A TOML file with other classes, prompts, buckets and sizes makes another benchmark,
without further code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from ...curation.budget import Budget
from ...curation.encoders.spec import EncoderSpec
from ...curation.flow import Flow, Step, join, rows_of, source, step
from ...curation.keys import how, where
from ...curation.qa.rounds import ask
from ...curation.qa.sensitive import screen_sensitive
from ...curation.shard_assignment import Placed
from ...curation.stages.buckets import (
    Bucketed,
    BucketLimits,
    assign_buckets_by_limits,
    assign_calendar_buckets,
    assign_equal_count_buckets,
)
from ...curation.stages.choose import Labelled, choose, class_order
from ...curation.stages.embed import embed_images, embed_images_half
from ...curation.stages.fetch_settings import FetchLimits
from ...curation.stages.image_sources import FoundImage, drop_duplicate_content, folder_pieces, read_image
from ...curation.stages.images import check_image
from ...curation.stages.retrieve import Concept, Retrieved, retrieve
from ...curation.stages.tar_sources import tar_pieces
from ...curation.stages.unique_keys import take_first
from ...datasets.clear.facts import published_limits
from ...datasets.clear.labelled import LabelledImage, label_rows
from ...datasets.clear.read_release import Released, ReleasedImage, release_pieces
from ...datasets.clear.rejects import keep_labelled_buckets, keep_taken_before_upload
from ...datasets.clear.release_features import keep_with_vectors, read_places, read_vectors
from ...datasets.clear.release_lists import ELSEWHERE, PlaceInRelease
from ...datasets.clear.samples import place, sample, sample_both, sample_image, sample_labels
from ...datasets.clear.splits import IidSplits, Streamed, assign_iid_splits, order_stream
from ...datasets.yfcc100m.fields import row_schema
from ...datasets.yfcc100m.metadata import pieces as metadata_pieces
from ..benchmark import built_in, later
from ..blurring import with_blurring
from ..feature_sets import check_learned, stage_of, with_features
from ..near_duplicates import with_near_duplicates
from ..sources import SOURCES
from ..user_code import OwnEncoder, encoder_of, source_of, weights_of
from . import card, release
from .bucket_config import Buckets, CalendarBuckets, EqualCountBuckets, PublishedBuckets
from .config import ClearConfig, LabelRecipe
from .qa_rounds import rounds
from .source_config import FolderSource, LabelledSource, ReleaseSource, TarSource, YfccSource
from .unlabelled import PRETRAIN, publish_unlabelled, with_unlabelled


def plan(c: ClearConfig, out: str) -> Flow:
    """The stages from sources to shards. ``out`` is the folder where ``qa import`` stores the votes."""
    if c.baselines.features is not None:
        check_learned("baselines.features", c.baselines.features, c.feature_names)
    if isinstance(c.source, ReleaseSource):
        flow = _embedded(_released(c, c.source), c)
    elif c.recipe is None:
        flow = _chosen_of_labelled(_distinct(_embedded(_dated(c), c), c), c)
    else:
        flow = _chosen(_distinct(_embedded(_dated(c), c), c), c, c.recipe, out)
    by_list = isinstance(c.source, ReleaseSource)
    placed = step(place, max_samples=c.shards.max_samples, **({"within": "listed_at"} if by_list else {}))
    flow = flow.whole("placed", placed, gives=Placed)
    if c.splits is None:
        flow = flow.whole("split", step(order_stream), gives=Streamed)
    else:
        splits = step(assign_iid_splits, rule=c.splits.rule, test_share=c.splits.test_share)
        flow = flow.whole("split", splits, gives=IidSplits)
    if isinstance(c.source, ReleaseSource):
        flow = _with_released(flow, c, c.source)
    flow = with_features(flow, c.features, of="placed", device=c.encoder_run.device, rows_per_part=c.rows_per_part)
    return flow.shards("shards", step(_sample(c)))


def _sample(c: ClearConfig) -> Callable[..., dict[str, Any]]:
    if c.recipe is not None:
        return sample
    if isinstance(c.source, ReleaseSource) and not c.source.images:
        return sample_labels
    return sample_both if c.vectors else sample_image


def _dated(c: ClearConfig) -> Flow:
    """Images that decode, in their time buckets."""
    flow = _images(c).each("checked", _check(c), max_rejects=_budget(c), rows_per_part=c.rows_per_part)
    if not isinstance(c.source, YfccSource):  # its lines are checked as they are read
        flow = flow.table("timed", step(keep_taken_before_upload), max_rejects=_budget(c))
    if c.images.drop_duplicates:
        flow = flow.whole("distinct", step(drop_duplicate_content), max_rejects=None)
    flow = flow.whole("first", step(take_first, n=c.images.take_first), max_rejects=None)
    given: dict[str, Any] = {"max_pixels": c.images.max_pixels, "rows_per_part": c.rows_per_part}
    flow = with_blurring(flow, c.blurring, max_rejects=_budget(c), **given)
    return with_unlabelled(_buckets(flow, cast("Buckets", c.buckets)), c)


def _released(c: ClearConfig, s: ReleaseSource) -> Flow:
    """Rows of a release as its lists have them, if they have vectors of every type that the settings name."""
    gives = ReleasedImage if s.images else Released
    given: dict[str, Any] = {"max_bytes": c.images.max_bytes, "gives": gives, "pieces": release_pieces}
    flow = source_of("listed", s, SOURCES["clear"], seed=c.seed, budget=_budget(c, *ELSEWHERE), **given)
    if s.images:
        flow = flow.each("checked", _check(c), max_rejects=_budget(c), rows_per_part=c.rows_per_part)
    if s.features:
        kept = step(keep_with_vectors, root=where(s.root), features=s.features)
        flow = flow.each_batch("with_features", kept, max_rejects=_budget(c), rows_per_part=c.rows_per_part)
    return flow


def _with_released(flow: Flow, c: ClearConfig, s: ReleaseSource) -> Flow:
    """The plan with a stage for each feature set of the release; its last stage stays the last."""
    places = source("listed_images", step(read_places, rows=rows_of("placed")), gives=PlaceInRelease, may_be_empty=True)
    branches: list[Flow] = []
    for name in s.features:
        read = step(read_vectors, root=where(s.root), features=name)
        branches.append(places.each_batch(stage_of(name), read, rows_per_part=c.rows_per_part))
    return join(flow, *branches).after(flow.last)


def _embedded(flow: Flow, c: ClearConfig) -> Flow:
    """The images with the vectors of an encoder, if there is one."""
    if c.encoder is None:
        return flow
    embed = embed_images if c.encoder_run.stored == "float32" else embed_images_half
    encode = step(embed, encoder=encoder_of(c.encoder), checkpoint=_weights(c, c.encoder), device=how(c.encoder_run.device))
    return flow.each_batch("embedded", encode, max_rejects=_budget(c), rows_per_part=c.rows_per_part)


def _distinct(flow: Flow, c: ClearConfig) -> Flow:
    by = cast("Buckets", c.buckets).by
    return with_near_duplicates(
        flow, c.near_duplicates, order_by=by, device=c.encoder_run.device, rows_per_part=c.rows_per_part
    )


def _weights(c: ClearConfig, encoder: EncoderSpec | OwnEncoder) -> str:
    return weights_of(encoder, "encoder_run.checkpoint", c.encoder_run.checkpoint)


def _of_labelled_buckets(flow: Flow, c: ClearConfig) -> Flow:
    first = cast("Buckets", c.buckets).first_labelled
    return flow.table("asked", step(keep_labelled_buckets, first=first), max_rejects=None) if first else flow


def _chosen_of_labelled(flow: Flow, c: ClearConfig) -> Flow:
    """The images of a source with labels, labelled and chosen."""
    background = cast("LabelledSource", c.source).background
    given: dict[str, Any] = {}
    if c.choice is not None:
        given = {"per_class": c.choice.per_class, "on_shortage": c.choice.on_shortage, "seed": c.seed}
    chosen = step(label_rows, background=background, **given)
    return _of_labelled_buckets(flow, c).whole("chosen", chosen, gives=Labelled, max_rejects=None)


def _chosen(flow: Flow, c: ClearConfig, recipe: LabelRecipe, out: str) -> Flow:
    """Images that are retrieved, confirmed and chosen."""
    names, background = [each.name for each in recipe.classes], recipe.retrieval.background
    flow = flow.whole(
        "retrieved",
        step(
            retrieve,
            concepts=[Concept(each.name, tuple(each.prompts)) for each in recipe.classes],
            encoder=encoder_of(recipe.encoder, texts=True),
            rule=recipe.retrieval,
            checkpoint=_weights(c, recipe.encoder),
            device=how(c.encoder_run.device),
        ),
        gives=Retrieved,
        max_rejects=None,
    )
    flow, qa = _of_labelled_buckets(flow, c), recipe.qa
    if qa.max_sensitive_score is not None:
        screen = step(screen_sensitive, threshold=qa.max_sensitive_score)
        flow = flow.each_batch("screened", screen, max_rejects=None, rows_per_part=c.rows_per_part)
    if qa.votes != "none":
        (asked,) = rounds(c)
        flow = ask(flow, asked, out, majority=qa.majority, sensitive=qa.sensitive, rule=qa.rule)
    chosen = step(
        choose,
        classes=class_order(names, background),
        per_class=recipe.choice.per_class,
        method=recipe.choice.method,
        seed=c.seed,
        background=background,
        on_shortage=recipe.choice.on_shortage,
    )
    return flow.whole("chosen", chosen, gives=Labelled, max_rejects=None)


def _budget(c: ClearConfig, *expected: str) -> Budget:
    return Budget(c.images.max_rejects, "images.max_rejects", expected)


def _images(c: ClearConfig) -> Flow:
    s, expected = c.source, ()
    given: dict[str, Any] = {"max_bytes": c.images.max_bytes, "classes": [each.name for each in c.classes or ()]}
    if isinstance(s, LabelledSource):
        dates = {"dates_csv": where(s.csv), "columns": {"file": s.path_column, "date_taken": s.date_column}} if s.csv else {}
        given |= {**dates, "source_name": s.name, "gives": LabelledImage, "pieces": folder_pieces}
        expected = ("hidden",)
    elif isinstance(s, FolderSource | TarSource):
        given |= {"source_name": s.name, "gives": FoundImage, "pieces": folder_pieces if s.kind == "folder" else tar_pieces}
        expected = ("hidden",)
    elif isinstance(s, YfccSource):
        given |= {"path": where(s.metadata), "gives": row_schema(s.extra), "pieces": metadata_pieces}
        expected = ("not_a_photo", "licence_not_wanted")
    listed = source_of("listed", s, SOURCES["clear"], seed=c.seed, budget=_budget(c, *expected), **given)
    return _fetched(listed, c, s) if isinstance(s, YfccSource) else listed


def _fetched(listed: Flow, c: ClearConfig, s: YfccSource) -> Flow:
    if s.images_root:
        read = step(read_image, root=where(s.images_root), path=s.images_path, max_bytes=c.images.max_bytes)
        return listed.each("fetched", read, max_rejects=_budget(c), rows_per_part=c.rows_per_part)
    from ...curation.stages.fetch import fetch_images  # loads aiohttp

    limits = FetchLimits(min_bytes=c.images.min_bytes, max_bytes=c.images.max_bytes, **dataclasses.asdict(s.limits))
    fetch = step(fetch_images, limits=limits, pace=how(s.pace))
    return listed.each_batch("fetched", fetch, max_rejects=_budget(c), rows_per_part=c.rows_per_part)


def _check(c: ClearConfig) -> Step:
    return step(
        check_image,
        min_bytes=c.images.min_bytes,
        max_bytes=c.images.max_bytes,
        max_pixels=c.images.max_pixels,
        min_edge_px=c.images.min_edge_px,
        max_aspect=c.images.max_aspect,
    )


def _buckets(flow: Flow, b: Buckets) -> Flow:
    if isinstance(b.rule, EqualCountBuckets):
        cut = step(assign_equal_count_buckets, by=b.by, buckets=b.rule.count)
    elif isinstance(b.rule, CalendarBuckets):
        cut = step(assign_calendar_buckets, by=b.by, period=b.rule.period)
    else:
        given = published_limits() if isinstance(b.rule, PublishedBuckets) else b.rule.limits
        limits = [BucketLimits(limit.start, limit.end) for limit in given]
        cut = step(assign_buckets_by_limits, by=b.by, limits=limits)
    return flow.whole("bucketed", cut, gives=Bucketed, max_rejects=None)


BENCHMARK = built_in(
    "clear",
    ClearConfig,
    plan,
    card.publish,
    rounds=rounds,
    kept=later("benchwright.pipelines.clear.preset_overrides:kept_settings"),
    shown={
        "in-domain": "in_domain",
        "next-domain": "next_domain",
        "acc": "acc",
        "bwt": "bwt",
        "fwt": "fwt",
        "accuracy": "accuracy",  # only of the protocol offline
    },
    release=release.write_release_layout,
    early={PRETRAIN: publish_unlabelled},
)
