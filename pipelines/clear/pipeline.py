"""CLEAR (Lin, Shi, Pathak and Ramanan, "The CLEAR Benchmark", NeurIPS 2021 Datasets and Benchmarks), and any benchmark made
the same way: photos with dates become time buckets, prompts retrieve concepts in each, annotators confirm them, and what
they confirm becomes shards with iid and streaming protocols.

``published.toml`` is the published size. A TOML file of one's own with other classes, prompts, buckets and sizes makes another
benchmark; nothing else is needed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...curation.budget import Budget
from ...curation.flow import Flow, Step, step
from ...curation.keys import how, where
from ...curation.qa.rounds import Round, Simulated, ask
from ...curation.qa.sensitive import screen_sensitive
from ...curation.shards import Placed
from ...curation.stages.buckets import (
    Bucketed,
    BucketLimits,
    assign_buckets_by_limits,
    assign_calendar_buckets,
    assign_equal_count_buckets,
)
from ...curation.stages.choose import Labelled, choose, class_order
from ...curation.stages.embed import embed_images, embed_images_half
from ...curation.stages.fetch import FetchLimits, fetch_images
from ...curation.stages.image_sources import FoundImage, drop_duplicate_content, folder_pieces, read_image
from ...curation.stages.images import check_image
from ...curation.stages.retrieve import Concept, Retrieved, retrieve
from ...curation.stages.tar_sources import tar_pieces
from ...curation.stages.unique_keys import take_first
from ...datasets.clear.facts import published_limits
from ...datasets.clear.samples import keep_labelled_buckets, keep_taken_before_upload, place, sample
from ...datasets.clear.splits import IidSplits, assign_iid_splits
from ...datasets.yfcc100m.fields import row_schema
from ...datasets.yfcc100m.metadata import pieces as metadata_pieces
from ..benchmark import built_in
from ..feature_sets import check_learned, with_features
from ..own import encoder_of, source_of
from ..sources import SOURCES
from . import card, release
from .config import (
    CalendarBuckets,
    ClearConfig,
    EqualCountBuckets,
    FolderSource,
    PublishedBuckets,
    TarSource,
    YfccSource,
)
from .unlabelled import PRETRAIN, publish_unlabelled, with_unlabelled


def plan(c: ClearConfig, out: str) -> Flow:
    """The stages from sources to shards. ``out`` is where ``qa import`` leaves the votes."""
    if c.baselines.features is not None:
        check_learned("baselines.features", c.baselines.features, c.features)
    flow = _images(c).each("checked", _check(c), max_rejects=_budget(c), rows_per_part=c.rows_per_part)
    if not isinstance(c.source, YfccSource):  # whose lines are checked as they are read
        flow = flow.table("timed", step(keep_taken_before_upload), max_rejects=_budget(c))
    if c.images.drop_duplicates:
        flow = flow.whole("distinct", step(drop_duplicate_content), max_rejects=None)
    flow = flow.whole("first", step(take_first, n=c.images.take_first), max_rejects=None)
    flow = with_unlabelled(_buckets(flow, c), c)
    checkpoint = where(c.encoder_run.checkpoint) if c.encoder_run.checkpoint else ""
    device, encoder = how(c.encoder_run.device), encoder_of(c.encoder)
    embed = embed_images if c.encoder_run.stored == "float32" else embed_images_half
    flow = flow.each_batch(
        "embedded",
        step(embed, encoder=encoder, checkpoint=checkpoint, device=device),
        max_rejects=_budget(c),
        rows_per_part=c.rows_per_part,
    ).whole(
        "retrieved",
        step(
            retrieve,
            concepts=[Concept(each.name, tuple(each.prompts)) for each in c.classes],
            encoder=encoder,
            rule=c.retrieval,
            checkpoint=checkpoint,
            device=device,
        ),
        gives=Retrieved,
        max_rejects=None,
    )
    if c.buckets.first_labelled:
        labelled = step(keep_labelled_buckets, first=c.buckets.first_labelled)
        flow = flow.table("asked", labelled, max_rejects=None)
    if c.qa.max_sensitive_score is not None:
        screen = step(screen_sensitive, threshold=c.qa.max_sensitive_score)
        flow = flow.each_batch("screened", screen, max_rejects=None, rows_per_part=c.rows_per_part)
    if c.qa.votes != "none":
        qa = c.qa
        (asked,) = rounds(c)
        flow = ask(flow, asked, out, majority=qa.majority, sensitive=qa.sensitive, rule=qa.rule)
    names = [each.name for each in c.classes]
    flow = (
        flow.whole(
            "chosen",
            step(
                choose,
                classes=class_order(names, c.retrieval.background),
                per_class=c.choice.per_class,
                method=c.choice.method,
                seed=c.seed,
                background=c.retrieval.background,
                on_shortage=c.choice.on_shortage,
            ),
            gives=Labelled,
            max_rejects=None,
        )
        .whole("placed", step(place, max_samples=c.shards.max_samples), gives=Placed)
        .whole(
            "split",
            step(assign_iid_splits, rule=c.splits.rule, test_share=c.splits.test_share),
            gives=IidSplits,
        )
    )
    flow = with_features(flow, c.features, of="placed", device=c.encoder_run.device, rows_per_part=c.rows_per_part)
    return flow.shards("shards", step(sample))


def rounds(c: ClearConfig) -> list[Round]:
    """The only round of questions: about the images that are retrieved and looked at, a batch a bucket.

    With ``qa.votes = "none"``, too: annotators may be asked before their votes are counted.
    """
    qa = c.qa
    retrieved = "asked" if c.buckets.first_labelled else "retrieved"
    only = Round(
        stage=retrieved if qa.max_sensitive_score is None else "screened",
        options=[each.as_option() for each in c.classes],
        seed=c.seed,
        workers=qa.workers,
        background=c.retrieval.background,
        group="bucket",
        simulated=Simulated(qa.truth, qa.errors) if qa.votes == "simulated" else None,
    )
    return [only]


def _budget(c: ClearConfig, *expected: str) -> Budget:
    return Budget(c.images.max_rejects, "images.max_rejects", expected)


def _images(c: ClearConfig) -> Flow:
    s, expected = c.source, ()
    given: dict[str, Any] = {"max_bytes": c.images.max_bytes, "classes": [each.name for each in c.classes]}
    if isinstance(s, FolderSource | TarSource):
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


def _buckets(flow: Flow, c: ClearConfig) -> Flow:
    b = c.buckets
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
    shown={
        "in-domain": "in_domain",
        "next-domain": "next_domain",
        "acc": "acc",
        "bwt": "bwt",
        "fwt": "fwt",
        "accuracy": "accuracy",  # of the protocol offline alone
    },
    release=release.write_release_layout,
    early={PRETRAIN: publish_unlabelled},
)
