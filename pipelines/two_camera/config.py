"""Settings of the two-camera pipeline. What the paper fixes has no default here: see ``published.toml`` and its variants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...eval.metrics.registry import METRICS
from ...training.illuminants.registry import ESTIMATORS, candidates
from ...training.two_camera.shapes import ActivationName
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf, known_keys
from ..sources import SOURCES
from ..user_code import OwnSource

_STRICT = ConfigDict(extra="forbid")
Corners = Annotated[list[float], Field(min_length=8, max_length=8)]
Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, config=_STRICT)
class Radiometric:
    """Pairs drawn from spectra; see ``datasets/two_camera/radiometric.py``. Spectra that are not given are colour-science's.

    Attributes:
        pairs: number of pairs.
        cameras: names of the main camera and of the second, as the file of sensitivities has them.
        without: names of lights to exclude.
        surfaces: in each picture, drawn without repetition; at most as many as there are reflectances.
        step_nm: step of the common grid of wavelengths, nanometres.
        columns: patches side by side in a picture; it divides ``surfaces``.
        patch_px: side of a patch, pixels; 0 writes no pictures.
        sensitivities: file of the cameras' spectral sensitivities.
        reflectances: file of the surfaces' spectra.
        lights: file of the lights' spectra.
    """

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

    Attributes:
        root: folder of the raw files; folders in it are further devices.
        factor: raw pixels along the side of a pixel of the result (6 in the paper).
        demosaic: how colours are interpolated; ``bin2`` averages 2 x 2 raw pixels instead, and is the fastest.
        chart: where the colour chart is: ``listed`` in ``charts``, ``fixed`` by ``corners_1``, or ``found`` in each picture.
        max_rejects: pairs that may be rejected, or a share below 1.
        names: how the files of the first and of the second camera are named within ``root``; ``["main/{pair}.*",
            "wide/{pair}.*"]`` are two folders with files of equal names.
        pairs: CSV file in ``root`` in place of ``names``, with the columns ``file_1``, ``file_2`` and, where there are several,
            ``device``.
        charts: CSV file in ``root`` with the chart's corners in each picture, for ``listed``.
        corners_1: centres of the chart's corner patches (dark skin, bluish green, black, white) in the first camera, x and y
            in turn, raw pixels; for ``fixed``.
        corners_2: the same in the second camera; None: where the homography puts them.
        saturated: share of full scale from which a value counts as saturated.
        estimate_from: pairs of a device from which its homography is estimated.
        homographies: device -> raw pixels of the second camera to those of the first, 3 x 3 row by row; a device is named by
            its folder, "" where there is none. The others are estimated.
        least_agreement: of the detail of both pictures once they are aligned, 1 for the same; a pair below it does not show one
            scene, and is rejected. -1 rejects none.
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
    least_agreement: Annotated[float, Field(ge=-1, le=1)] = 0.3


@dataclass(frozen=True, config=_STRICT)
class QuasiReal:
    """Pictures of one camera, and what a second would have seen; see ``datasets/two_camera/quasi_real.py``.

    Attributes:
        root: folder with a folder for each camera, in the layout of NUS.
        main: name of the main camera.
        second: name of the second camera.
        factor: pixels along the side of a pixel of the result.
        lights: where the ground truth comes from: ``listed`` in the cameras' ``.mat`` files, or measured on the ``chart``.
        max_rejects: pairs that may be rejected, or a share below 1.
        charts: CSV file in ``root`` with the chart's corners in each picture; None: they are found.
        saturated: share of full scale from which a value counts as saturated.
    """

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
class LitPictures:
    """Small linear pictures with their lights, and what a second camera would have seen, by the sensitivities of both; see
    ``datasets/two_camera/lit_pictures.py``.

    Attributes:
        pictures: folder of ``.npz`` files with ``pictures``, ``lights`` and ``names``.
        sensitivities: folder of the cameras' sensitivities.
        sensors: camera -> its file in that folder.
        main: camera whose pictures are taken: those named ``<main>_<number>``.
        second: camera that they are simulated for.
        without: lights of colour-science that no picture is given.
        max_rejects: pictures that may be rejected, or a share below 1.
        saturated: share of full scale from which a value counts as saturated.
    """

    kind: Literal["lit_pictures"]
    pictures: Location
    sensitivities: Location
    sensors: dict[str, str]
    main: str
    second: str
    without: list[str]
    max_rejects: Rejects
    saturated: Share = 0.98


@dataclass(frozen=True, config=_STRICT)
class Metadata:
    """Released lights and transforms without pictures; see ``datasets/two_camera/metadata.py``.

    Attributes:
        path: folder of ``.npy`` files, one a pair, or one ``.npy`` or ``.json`` file of all.
        max_rejects: pairs that may be rejected, or a share below 1.
        augmented: rows made from a pair that follow it in the file, and are left out (99 in the released augmented set).
    """

    kind: Literal["metadata"]
    path: Location
    max_rejects: Rejects
    augmented: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class Transform:
    """How T is fitted: see ``datasets/two_camera/transforms.py``.

    Attributes:
        preset: ``as_written``: on raw values; ``as_released``: on chromaticities; ``weighted``: on chromaticities, where dark
            pixels count less, by their noise, which is ours.
        max_condition: pairs are rejected whose colours have a condition number above this.
        darkest: pixels whose R + G + B is at or below this share of full scale in either camera are left out.
    """

    preset: Literal["weighted", "as_released", "as_written"] = "weighted"
    max_condition: Annotated[float, Field(gt=1)] = 1e4
    darkest: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True, config=_STRICT)
class Rotating:
    """Folds that are tested in turn: a permutation of numpy's legacy generator, cut into parts.

    Attributes:
        count: number of folds.
        seed: seed of the permutation; 999 yields the published folds.
    """

    kind: Literal["rotating"]
    count: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]


@dataclass(frozen=True, config=_STRICT)
class Fixed:
    """Training, validation and test: shares of all pairs, or the released file of parts; one of the two is given.

    Attributes:
        shares: of training, validation and test, drawn from the seed; they sum to 1.
        released: the released ``.mat`` file of parts.
    """

    kind: Literal["fixed"]
    shares: Annotated[list[Share], Field(min_length=3, max_length=3)] | None = None
    released: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class Augmentation:
    """Every picture under the lights of others; see ``datasets/two_camera/augment.py``.

    Attributes:
        count: other pictures whose light each is given; all where there are fewer. 0: none is re-illuminated.
        targets: ``any`` other picture, as in the paper, or those of the ``same_fold``: no light of a test is then trained on.
    """

    count: Annotated[int, Field(ge=0)]
    targets: Literal["any", "same_fold"]


def _or_off(given: Augmentation | None) -> Augmentation | None:
    return None if given is None or not given.count else given


@dataclass(frozen=True, config=_STRICT)
class NetworkTraining:
    """One row of the tables: networks of one shape.

    Attributes:
        parameters: of the paper's networks, with hidden layers of nine units: 90 a layer and 20. For other shapes ``hidden``.
        hidden: units of each hidden layer, in place of ``parameters``.
        activation: activation of the hidden units; ``relu`` in the paper.
        preset: table of ``training/two_camera/two_camera.toml``.
        seeds: a run each; all are trained side by side.
        settings: changes to the preset.
        augmented: whether the re-illuminated rows of the dataset are learned from, where it has any.
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
    augmented: bool = True
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
        networks: networks by the name shown in tables.
        longest_px: pictures are averaged down to at most this before baselines see them.
        relit_pictures: pictures under other lights, of those that ``augmentation`` makes, that baselines with something to
            learn are given beside each training picture. The paper's 99 take 6 GB a thousand pictures of 256 x 256.
        method_settings: of baselines by name, of your own without the folders of the file: on pictures the values that each
            setting may have, else the settings.
        metrics: further ones: functions that take ``Estimates`` of ``eval.protocols.cross_validation`` and give a number, or
            numbers by name.
    """

    direction: Literal["1to2", "2to1", "both"]
    baselines: list[Annotated[str, OneOf(ESTIMATORS.only("linear_regression"), tuple(candidates()))]]
    networks: dict[str, NetworkTraining]
    longest_px: Annotated[int, Field(ge=8)] = 256
    relit_pictures: Annotated[int, Field(ge=0)] = 0
    method_settings: Annotated[dict[str, dict[str, Any]], AfterValidator(known_keys(ESTIMATORS, candidates()))] = Field(
        default_factory=dict[str, dict[str, Any]]
    )
    metrics: list[Annotated[str, OneOf(METRICS.only())]] = Field(default_factory=list[str])


@dataclass(frozen=True, config=_STRICT)
class TwoCameraConfig:
    """All settings.

    Attributes:
        seed: draws pairs, shares and re-illumination; rotating folds have a seed of their own.
        source: source of the pairs; ``kind`` selects one of these tables.
        folds: training and test pairs.
        shards: sizes of shards.
        evaluation: what is trained and tested.
        transform: how the colour transform between the cameras is fitted.
        augmentation: re-illuminated copies of pictures with charts; None: none are made.
        compare_with: dataset whose published table is shown next to ours; None: none.
    """

    seed: int
    source: Annotated[Radiometric | RawPairs | QuasiReal | LitPictures | Metadata | OwnSource, ByKind(SOURCES["two_camera"])]
    folds: Annotated[Rotating | Fixed, Field(discriminator="kind")]
    shards: ShardSizes
    evaluation: Evaluation
    transform: Transform = Transform()
    augmentation: Annotated[Augmentation | None, AfterValidator(_or_off)] = None
    compare_with: Literal["radiometric", "nus", "s20"] | None = None
