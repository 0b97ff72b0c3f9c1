"""Two-camera illuminant estimation (Abdelhamed et al., "Leveraging the Availability of Two Cameras for Illuminant Estimation"):
the illuminant is estimated from the colour transform between two cameras that see the same scene.

``published.toml`` is the radiometric set at its published size, ``table1.toml`` the authors' file of it, ``s20.toml`` raw
pairs, ``metadata.toml``, ``table3.toml`` and ``table4.toml`` the released numbers of such pairs, ``nus.toml`` quasi-real pairs,
``nus64.toml`` and ``table4_nus64.toml`` quasi-real pairs of thumbnails. All end with shards with the columns of
``datasets.two_camera.rows.TransformPairs``.
"""

from __future__ import annotations

from typing import Any

from ...curation.budget import Budget
from ...curation.flow import Flow, rows_of, step
from ...curation.keys import where
from ...datasets.two_camera.augment import Expanded, expand, relight
from ...datasets.two_camera.folds import assign_folds, assign_parts, mark_originals, released_parts
from ...datasets.two_camera.linear_pairs import LinearPair, check_pair
from ...datasets.two_camera.metadata import with_released_rows
from ...datasets.two_camera.pair_files import ListedPair
from ...datasets.two_camera.pictures import WithHomography, estimate_homographies, measure_pictures, photograph
from ...datasets.two_camera.quasi_real import MatchedPair, simulate
from ...datasets.two_camera.radiometric import Rendered, measure_drawn, pieces
from ...datasets.two_camera.rows import Augmented, Folded, MeasuredPair
from ...datasets.two_camera.samples import patch_sample, picture_sample, plain_sample
from ..benchmark import built_in, later
from ..config import ConfigError
from ..sources import SOURCES
from ..user_code import OwnSource, source_of
from . import card
from .config import (
    Augmentation,
    LitPictures,
    Metadata,
    QuasiReal,
    Radiometric,
    RadiometricFile,
    RawPairs,
    Rotating,
    TwoCameraConfig,
)


def plan(c: TwoCameraConfig, out: str) -> Flow:
    """The stages from spectra, raw files or metadata to shards. ``out`` is not used, since no stage waits for people."""
    match c.source:
        case Radiometric():
            flow, sample = _radiometric(c, c.source), step(patch_sample, columns=c.source.columns, patch_px=c.source.patch_px)
        case Metadata() | RadiometricFile():
            flow = _listed(c, "measured", MeasuredPair)
            sample = step(plain_sample)
        case RawPairs():
            flow, sample = _measured(c, _raw_pairs(c, c.source)), step(picture_sample)
        case QuasiReal():
            flow, sample = _measured(c, _quasi_real(c, c.source)), step(picture_sample)
        case LitPictures() | OwnSource():
            checking = step(check_pair, charts=c.augmentation is not None)
            checked = _listed(c, "listed", LinearPair).each(
                "photographed", checking, rows_per_part=1, max_rejects=_budget(c.source)
            )
            flow, sample = _measured(c, checked), step(picture_sample)
    flow = _with_folds(flow, c)
    if c.augmentation is None and isinstance(c.source, Metadata) and c.source.augmented:
        adding = step(with_released_rows, path=where(c.source.path), augmented=c.source.augmented)
        flow = flow.whole("augmented", adding, gives=Augmented, expands=True)
    elif c.augmentation is None:
        flow = flow.table("marked", step(mark_originals), gives=Augmented)
    elif isinstance(c.source, RawPairs | QuasiReal | LitPictures | OwnSource):
        flow = _relit(flow, c, c.augmentation)
    else:
        raise ConfigError(
            f"augmentation with source.kind = {c.source.kind!r}: re-illumination needs pictures with charts; networks may add "
            "rows by reilluminated = true"
        )
    return flow.shards("shards", sample, by=["fold"], max_samples=c.shards.max_samples)


def _radiometric(c: TwoCameraConfig, s: Radiometric) -> Flow:
    drawn = _listed(c, "drawn", Rendered, pieces=pieces)
    measure = step(measure_drawn, preset=c.transform.preset, max_condition=c.transform.max_condition)
    return drawn.table("measured", measure, gives=MeasuredPair)


def _listed(c: TwoCameraConfig, name: str, gives: type, **more: Any) -> Flow:
    return source_of(name, c.source, SOURCES["two_camera"], seed=c.seed, budget=_budget(c.source), gives=gives, **more)


def _budget(s: Any) -> Budget:
    return Budget(getattr(s, "max_rejects", 0), "source.max_rejects")


def _raw_pairs(c: TwoCameraConfig, s: RawPairs) -> Flow:
    root = where(s.root)
    read = step(
        photograph,
        root=root,
        factor=s.factor,
        demosaic=s.demosaic,
        saturated=s.saturated,
        chart=s.chart,
        corners_1=s.corners_1,
        corners_2=s.corners_2,
        least_agreement=s.least_agreement,
    )
    estimate = step(estimate_homographies, root=root, given=s.homographies, pairs=s.estimate_from)
    return (
        _listed(c, "listed", ListedPair, charts=s.charts if s.chart == "listed" else None)
        .whole("aligned", estimate, gives=WithHomography)
        .each("photographed", read, rows_per_part=1, max_rejects=_budget(s))
    )


def _quasi_real(c: TwoCameraConfig, s: QuasiReal) -> Flow:
    root = where(s.root)
    simulation = step(simulate, root=root, factor=s.factor, saturated=s.saturated, lights=s.lights)
    return _listed(c, "listed", MatchedPair).each("photographed", simulation, rows_per_part=1, max_rejects=_budget(s))


def _measured(c: TwoCameraConfig, flow: Flow) -> Flow:
    t = c.transform
    fitting = step(measure_pictures, preset=t.preset, max_condition=t.max_condition, darkest=t.darkest)
    return flow.each("measured", fitting, rows_per_part=4, max_rejects=flow.stage("listed").max_rejects)


def _with_folds(flow: Flow, c: TwoCameraConfig) -> Flow:
    if isinstance(c.folds, Rotating):
        return flow.whole("folded", step(assign_folds, folds=c.folds.count, seed=c.folds.seed), gives=Folded)
    if (c.folds.shares is None) == (c.folds.released is None):
        raise ConfigError("folds: set either shares or released")
    if c.folds.shares is not None:
        return flow.whole("folded", step(assign_parts, shares=c.folds.shares, seed=c.seed), gives=Folded)
    return flow.whole("folded", step(released_parts, path=where(c.folds.released or "")), gives=Folded)


def _relit(flow: Flow, c: TwoCameraConfig, given: Augmentation) -> Flow:
    if given.targets == "training_folds" and not isinstance(c.folds, Rotating):
        raise ConfigError('augmentation.targets = "training_folds" needs rotating folds: for fixed ones use "same_fold"')
    change = step(
        relight,
        charts=rows_of("folded"),
        count=given.count,
        targets=given.targets,
        preset=c.transform.preset,
        max_condition=c.transform.max_condition,
        darkest=c.transform.darkest,
        seed=c.seed,
    )
    return flow.each("relit", change, rows_per_part=1).whole("augmented", step(expand), gives=Expanded, expands=True)


BENCHMARK = built_in(
    "two_camera",
    TwoCameraConfig,
    plan,
    card.publish,
    export=later(f"{__package__}.exporting:export"),
    shown={
        **{name: f"fold_mean_{name}_deg" for name in ("mean", "median", "best_25", "worst_25", "q1", "q3")},
        "looked at the test": "looks_at_test",
        "lights of the test": "lights_of_test",
    },
)
