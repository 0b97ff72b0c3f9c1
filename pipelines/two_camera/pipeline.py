"""Two-camera illuminant estimation (Abdelhamed et al., "Leveraging the Availability of Two Cameras for Illuminant Estimation"):
the colour transform between two cameras that see one scene tells the light.

``published.toml`` is the radiometric set at its published size, ``s20.toml`` raw pairs,
``metadata.toml`` the released numbers of such pairs, ``nus.toml`` quasi-real pairs. All end in shards
with the columns of ``datasets.two_camera.rows.TransformPairs``.
"""

from __future__ import annotations

from ...curation.budget import Budget
from ...curation.flow import Flow, rows_of, source, step
from ...curation.keys import where
from ...datasets.two_camera.augment import Expanded, expand, relight
from ...datasets.two_camera.folds import assign_folds, assign_parts, mark_originals, released_parts
from ...datasets.two_camera.linear_pairs import check_pair
from ...datasets.two_camera.metadata import read_released_pairs
from ...datasets.two_camera.pictures import (
    ListedPair,
    WithHomography,
    estimate_homographies,
    list_pairs,
    measure_pictures,
    photograph,
)
from ...datasets.two_camera.quasi_real import MatchedPair, list_matches, simulate
from ...datasets.two_camera.radiometric import Rendered, draw_pairs, measure_drawn, pieces
from ...datasets.two_camera.rows import Augmented, Folded, MeasuredPair
from ...datasets.two_camera.samples import patch_sample, picture_sample, plain_sample
from ..benchmark import Benchmark, later
from ..catalogue import TITLES
from ..config import ConfigError
from ..own import OwnSource, own_source
from . import card
from .config import Metadata, QuasiReal, Radiometric, RawPairs, Rotating, TwoCameraConfig


def plan(c: TwoCameraConfig, out: str) -> Flow:
    """The stages from spectra, raw files or metadata to shards. ``out`` is not used: nothing is waited for."""
    match c.source:
        case Radiometric():
            flow, sample = _radiometric(c, c.source), step(patch_sample, columns=c.source.columns, patch_px=c.source.patch_px)
        case Metadata():
            reading = step(read_released_pairs, path=where(c.source.path), augmented=c.source.augmented)
            flow = source("measured", reading, gives=MeasuredPair, max_rejects=_budget(c.source))
            sample = step(plain_sample)
        case RawPairs():
            flow, sample = _measured(c, _raw_pairs(c.source)), step(picture_sample)
        case QuasiReal():
            flow, sample = _measured(c, _quasi_real(c.source)), step(picture_sample)
        case OwnSource():
            listed = own_source("listed", c.source, seed=c.seed)
            checking = step(check_pair, charts=c.augmentation is not None)
            checked = listed.each("photographed", checking, rows_per_part=1, max_rejects=_budget(c.source))
            flow, sample = _measured(c, checked), step(picture_sample)
    flow = _with_folds(flow, c)
    if c.augmentation is None:
        flow = flow.table("marked", step(mark_originals), gives=Augmented)
    elif isinstance(c.source, RawPairs | QuasiReal | OwnSource):
        flow = _relit(flow, c)
    else:
        raise ConfigError(
            f"augmentation with source.kind = {c.source.kind!r}: re-illumination needs pictures with charts; networks may add "
            "rows by reilluminated = true"
        )
    return flow.shards("shards", sample, by=["fold"], max_samples=c.shards.max_samples)


def _radiometric(c: TwoCameraConfig, s: Radiometric) -> Flow:
    drawing = step(
        draw_pairs,
        pairs=s.pairs,
        sensitivities=_maybe(s.sensitivities),
        cameras=s.cameras,
        reflectances=_maybe(s.reflectances),
        lights=_maybe(s.lights),
        without=s.without,
        surfaces=s.surfaces,
        step_nm=s.step_nm,
        seed=c.seed,
    )
    drawn = source("drawn", drawing, pieces=step(pieces, pairs=s.pairs), gives=Rendered)
    measure = step(measure_drawn, preset=c.transform.preset, max_condition=c.transform.max_condition)
    return drawn.table("measured", measure, gives=MeasuredPair)


def _budget(s: Metadata | RawPairs | QuasiReal | OwnSource) -> Budget:
    return Budget(s.max_rejects, "source.max_rejects")


def _maybe(path: str | None) -> str | None:
    return None if path is None else where(path)


def _raw_pairs(s: RawPairs) -> Flow:
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
    )
    estimate = step(estimate_homographies, root=root, given=s.homographies, pairs=s.estimate_from)
    return (
        source("listed", step(list_pairs, root=root, charts=s.charts), gives=ListedPair, max_rejects=_budget(s))
        .whole("aligned", estimate, gives=WithHomography)
        .each("photographed", read, rows_per_part=1, max_rejects=_budget(s))
    )


def _quasi_real(s: QuasiReal) -> Flow:
    root = where(s.root)
    listing = step(list_matches, root=root, main=s.main, second=s.second, charts=s.charts)
    simulation = step(simulate, root=root, factor=s.factor, saturated=s.saturated, lights=s.lights)
    listed = source("listed", listing, gives=MatchedPair, max_rejects=_budget(s))
    return listed.each("photographed", simulation, rows_per_part=1, max_rejects=_budget(s))


def _measured(c: TwoCameraConfig, flow: Flow) -> Flow:
    t = c.transform
    fitting = step(measure_pictures, preset=t.preset, max_condition=t.max_condition, darkest=t.darkest)
    return flow.each("measured", fitting, rows_per_part=4, max_rejects=flow.stage("listed").max_rejects)


def _with_folds(flow: Flow, c: TwoCameraConfig) -> Flow:
    if isinstance(c.folds, Rotating):
        return flow.whole("folded", step(assign_folds, folds=c.folds.count, seed=c.folds.seed), gives=Folded)
    if (c.folds.shares is None) == (c.folds.released is None):
        raise ConfigError("folds: give shares or released, one of the two")
    if c.folds.shares is not None:
        return flow.whole("folded", step(assign_parts, shares=c.folds.shares, seed=c.seed), gives=Folded)
    return flow.whole("folded", step(released_parts, path=where(c.folds.released or "")), gives=Folded)


def _relit(flow: Flow, c: TwoCameraConfig) -> Flow:
    given = c.augmentation
    if given is None:
        return flow
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


report = later(f"{__package__}.report:write_report")
trainings = later(f"{__package__}.baselines:trainings")

BENCHMARK = Benchmark(
    name="two_camera",
    title=TITLES["two_camera"],
    config=TwoCameraConfig,
    plan=plan,
    publish=card.publish,
    trainings=trainings,
    shown={
        **{name: f"fold_mean_{name}_deg" for name in ("mean", "median", "best_25", "worst_25", "q1", "q3")},
        "looked at the test": "looks_at_test",
        "lights of the test": "lights_of_test",
    },
    report=report,
)
