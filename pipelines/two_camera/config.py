"""Settings of the two-camera pipeline. What the paper fixes has no default here: it stands in ``two_camera*.toml``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...eval.metrics.registry import METRICS
from ...training.illuminants.registry import ESTIMATORS, candidates
from ...training.two_camera.shapes import ActivationName
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf, known_keys
from ..own import OwnSource
from ..sources import SOURCES

_STRICT = ConfigDict(extra="forbid")
Corners = Annotated[list[float], Field(min_length=8, max_length=8)]
Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, config=_STRICT)
class Radiometric:
    """Pairs drawn from spectra; see ``datasets/two_camera/radiometric.py``. Spectra that are not given are colour-science's."""

    kind: Literal["radiometric"]
    pairs: Annotated[int, Field(ge=1)]
    cameras: Annotated[list[str], Field(min_length=2, max_length=2)]
    without: list[str]
    surfaces: Annotated[int, Field(ge=3)]
    step_nm: Annotated[int, Field(ge=1)]
    columns: Annotated[int, Field(ge=1)]
    patch_px: Annotated[int, Field(ge=0)]
    sensitivities: Location | None = None
    reflectances: Location | None = None
    lights: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class RawPairs:
    """Raw files of two fixed cameras, by default in the layout of S20; see ``datasets/two_camera/pictures.py``.

    ``names`` says how the files of the first and of the second camera are named within ``root``: ``["main/{pair}.*",
    "wide/{pair}.*"]`` are two folders with files of equal names. ``pairs`` is a CSV file in ``root`` in its place, with the
    columns ``file_1``, ``file_2`` and, where there are several, ``device``. ``homographies`` gives those of devices by their
    folder ("" where there is none); the others are estimated from ``estimate_from`` pairs each.
    """

    kind: Literal["raw_pairs"]
    root: Location
    factor: Annotated[int, Field(ge=1)]
    demosaic: Literal["bin2", "bilinear", "ahd", "vng", "ppg", "dcb", "dht"]
    chart: Literal["listed", "fixed", "found"]
    max_rejects: Rejects
    names: Annotated[list[str], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: ["{pair}_CAM_0.*", "{pair}_CAM_1.*"]
    )
    pairs: str | None = None
    charts: str | None = None
    corners_1: Corners | None = None
    corners_2: Corners | None = None
    saturated: Share = 0.98
    estimate_from: Annotated[int, Field(ge=1)] = 8
    homographies: dict[str, Annotated[list[float], Field(min_length=9, max_length=9)]] = Field(
        default_factory=dict[str, list[float]]
    )


@dataclass(frozen=True, config=_STRICT)
class QuasiReal:
    """Pictures of one camera, and what a second would have seen; see ``datasets/two_camera/quasi_real.py``."""

    kind: Literal["quasi_real"]
    root: Location
    main: str
    second: str
    factor: Annotated[int, Field(ge=1)]
    lights: Literal["listed", "chart"]
    max_rejects: Rejects
    charts: str | None = None
    saturated: Share = 0.98


@dataclass(frozen=True, config=_STRICT)
class Metadata:
    """Released lights and transforms without pictures; see ``datasets/two_camera/metadata.py``."""

    kind: Literal["metadata"]
    path: Location
    max_rejects: Rejects
    augmented: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class Transform:
    """How T is fitted: see ``datasets/two_camera/transforms.py``, and ``darkest`` in ``measure_pictures``.

    ``weighted`` is ours and the default: dark pixels count as little as their noise lets them.
    """

    preset: Literal["weighted", "as_released", "as_written"] = "weighted"
    max_condition: Annotated[float, Field(gt=1)] = 1e4
    darkest: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True, config=_STRICT)
class Rotating:
    """Folds that are tested in turn: a permutation of numpy's legacy generator, cut into ``count`` parts."""

    kind: Literal["rotating"]
    count: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]


@dataclass(frozen=True, config=_STRICT)
class Fixed:
    """Training, validation and test: shares of all pairs, or the released file of parts."""

    kind: Literal["fixed"]
    shares: Annotated[list[Share], Field(min_length=3, max_length=3)] | None = None
    released: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class Augmentation:
    """Every picture under the lights of ``count`` others; see ``datasets/two_camera/augment.py``."""

    count: Annotated[int, Field(ge=1)]
    targets: Literal["any", "same_fold"]


@dataclass(frozen=True, config=_STRICT)
class NetworkTraining:
    """One row of the tables: networks of one shape.

    Attributes:
        parameters: of the paper's networks, with hidden layers of nine units: 90 a layer and 20. For other shapes ``hidden``.
        hidden: units of each hidden layer, in place of ``parameters``.
        activation: of the hidden units; ``relu`` in the paper.
        preset: table of ``training/two_camera/two_camera.toml``.
        seeds: a run each; all are trained side by side.
        settings: changes to the preset.
        reilluminated: whether rows are added that ``training.two_camera.reillumination`` makes of transforms alone.
        measured_times: how often a measured row counts.
        taught_by: another network of the settings, trained on the same rows: the average of its seeds is learned instead of the
            measured lights, by ``training.two_camera.distilled``; ``preset`` is one with a decay.
        taught_rows: re-illuminated rows that each seed then learns from.
        lights_of_test: keep training rows re-lit with the illuminant of a test pair, as the release does; results say so.
    """

    preset: str
    seeds: Annotated[list[int], Field(min_length=1)]
    parameters: Annotated[int, Field(ge=110)] | None = None
    hidden: Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1)] | None = None
    activation: ActivationName = "relu"
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    reilluminated: bool = False
    measured_times: Annotated[int, Field(ge=1)] = 1
    taught_by: str | None = None
    taught_rows: Annotated[int, Field(ge=0)] = 1400
    lights_of_test: bool = False


@dataclass(frozen=True, config=_STRICT)
class Evaluation:
    """What is trained and tested.

    Attributes:
        direction: ``1to2`` estimates the light in the first camera from T to the second, or on the first camera's pictures;
            ``2to1`` that in the second; ``both`` does both.
        baselines: ``linear_regression``, names of ``training/illuminants/baselines.toml``, which need pictures, and references
            of your own (``path/to/file.py:name``): see docs/illuminants.md.
        networks: by the name that tables show.
        longest_px: pictures are averaged down to at most this before baselines see them.
        method_settings: of baselines by name, of your own without the folders of the file: on pictures the values that each
            setting may have, else the settings.
        metrics: further ones: functions that take ``Estimates`` of ``eval.protocols.cross_validation`` and give a number, or
            numbers by name.
    """

    direction: Literal["1to2", "2to1", "both"]
    baselines: list[Annotated[str, OneOf(ESTIMATORS.only("linear_regression"), tuple(candidates()))]]
    networks: dict[str, NetworkTraining]
    longest_px: Annotated[int, Field(ge=8)] = 256
    method_settings: Annotated[dict[str, dict[str, Any]], AfterValidator(known_keys(ESTIMATORS, candidates()))] = Field(
        default_factory=dict[str, dict[str, Any]]
    )
    metrics: list[Annotated[str, OneOf(METRICS.only())]] = Field(default_factory=list[str])


@dataclass(frozen=True, config=_STRICT)
class TwoCameraConfig:
    """All settings. ``compare_with``: data set whose published table stands beside ours."""

    seed: int
    source: Annotated[Radiometric | RawPairs | QuasiReal | Metadata | OwnSource, ByKind(SOURCES["two_camera"])]
    folds: Annotated[Rotating | Fixed, Field(discriminator="kind")]
    shards: ShardSizes
    evaluation: Evaluation
    transform: Transform = Transform()
    augmentation: Augmentation | None = None
    compare_with: Literal["radiometric", "nus", "s20"] | None = None
