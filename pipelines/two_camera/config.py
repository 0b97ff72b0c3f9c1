"""Settings of the two-camera pipeline. Values that the paper fixes have no default: see ``published.toml`` and its variants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ...datasets.two_camera.transforms import TransformPreset
from ...eval.metrics.registry import METRICS
from ...training.illuminants.registry import ESTIMATORS, candidates
from ...training.two_camera.shapes import ActivationName
from ..config import Digest, Location, Rejects, ShardSizes
from ..names import ByKind, OneOf, known_keys
from ..settings_type import settings_type
from ..sources import SOURCES
from ..user_code import OwnSource

Corners = Annotated[list[float], Field(min_length=8, max_length=8)]
Share = Annotated[float, Field(gt=0, le=1)]


@settings_type
class Radiometric:
    """Pairs computed from spectra; see ``datasets/two_camera/radiometric.py``. Spectra not given are those of colour-science.

    Attributes:
        pairs: number of pairs.
        cameras: names of the main and the second camera, as in the file of sensitivities.
        without: names of lights to exclude.
        surfaces: surfaces in each picture, drawn without repetition; at most the number of reflectances.
        step_nm: step of the common grid of wavelengths, nanometres.
        columns: patches per row of a picture; must divide ``surfaces``.
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
    patch_px: Annotated[int, Field(ge=0, le=1024)]
    sensitivities: Location | None = None
    reflectances: Location | None = None
    lights: Location | None = None


@settings_type
class RawPairs:
    """Raw files of two fixed cameras, by default in the layout of S20; see ``datasets/two_camera/pictures.py``.

    Attributes:
        root: folder of the raw files; folders in it are further devices.
        factor: downsampling factor, in raw pixels per pixel of the result along each side (6 in the paper).
        demosaic: demosaicing algorithm; ``bin2``, the fastest, averages 2 x 2 raw pixels instead.
        chart: position of the colour chart: ``listed`` in ``charts``, ``fixed`` by ``corners_1``, or ``found`` in each picture.
        max_rejects: maximum number of rejected pairs, or a share below 1.
        names: patterns of the file names of the first and second camera in ``root``; ``["main/{pair}.*", "wide/{pair}.*"]``
            are two folders with files of equal names.
        pairs: CSV file in ``root`` that replaces ``names``, with columns ``file_1``, ``file_2`` and, for several devices,
            ``device``.
        charts: for ``listed``: CSV file in ``root`` with the chart's corners in each picture.
        corners_1: for ``fixed``: centres of the chart's corner patches (dark skin, bluish green, black, white) in the first
            camera, alternating x and y, raw pixels.
        corners_2: the same centres in the second camera; None: computed from the homography.
        saturated: values at or above this share of full scale count as saturated.
        estimate_from: number of pairs of a device from which its homography is estimated.
        homographies: device -> homography from raw pixels of the second camera to those of the first, 3 x 3, row by row; a
            device is named by its folder, or "" without one. The others are estimated.
        least_agreement: minimum correlation of the details of the two aligned pictures, -1 to 1; a pair below it does not show
            the same scene, and is rejected. -1: none is.
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


@settings_type
class QuasiReal:
    """Pictures of one camera, and the simulated view of a second; see ``datasets/two_camera/quasi_real.py``.

    Attributes:
        root: folder with a folder for each camera, in the layout of NUS.
        main: name of the main camera.
        second: name of the second camera.
        factor: downsampling factor, in pixels per pixel of the result along each side.
        lights: source of the ground truth: ``listed`` in the cameras' ``.mat`` files, or measured on the ``chart``.
        max_rejects: maximum number of rejected pairs, or a share below 1.
        charts: CSV file in ``root`` with the chart's corners in each picture; None: they are detected.
        saturated: values at or above this share of full scale count as saturated.
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


@settings_type
class LitPictures:
    """Small linear pictures with their illuminants, and the view of a second camera, simulated from the sensitivities of both;
    see ``datasets/two_camera/lit_pictures.py``.

    Attributes:
        pictures: folder of ``.npz`` files with ``pictures``, ``lights`` and ``names``.
        sensitivities: folder of the cameras' spectral sensitivities.
        sensors: camera -> its file in that folder.
        main: main camera; its pictures are those named ``<main>_<number>``.
        second: the simulated camera.
        without: lights of colour-science to exclude.
        max_rejects: maximum number of rejected pictures, or a share below 1.
        saturated: values at or above this share of full scale count as saturated.
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


@settings_type
class Metadata:
    """Released lights and transforms without pictures; see ``datasets/two_camera/metadata.py``.

    Attributes:
        path: folder of ``.npy`` files, one per pair, or a single ``.npy`` or ``.json`` file of all pairs.
        max_rejects: maximum number of rejected pairs, or a share below 1.
        augmented: number of re-illuminated rows after each pair (99 in the released augmented set), which trainings use as
            those of ``augmentation``; some have the light of a test pair (``lights_of_test``).
    """

    kind: Literal["metadata"]
    path: Location
    max_rejects: Rejects
    augmented: Annotated[int, Field(ge=0)] = 0


@settings_type
class RadiometricFile:
    """The authors' radiometric set, lights and transforms alone; see ``datasets/two_camera/radiometric_file.py``.

    Attributes:
        path: its ``.mat`` file.
        max_rejects: maximum number of rejected pairs, or a share below 1.
    """

    kind: Literal["radiometric_file"]
    path: Location
    max_rejects: Rejects


@settings_type
class Transform:
    """How T is fitted: see ``datasets/two_camera/transforms.py``.

    Attributes:
        preset: ``as_written``: on raw values; ``as_released``: on chromaticities; ``weighted`` (ours): on chromaticities,
            with pixels weighted by their noise, so that dark ones count less.
        max_condition: pairs are rejected if the condition number of their colours is above this.
        darkest: pixels whose R + G + B is at or below this share of full scale in either camera are ignored.
    """

    preset: TransformPreset = "weighted"
    max_condition: Annotated[float, Field(gt=1)] = 1e4
    darkest: Annotated[float, Field(ge=0)] = 0.0


@settings_type
class Rotating:
    """Folds for cross-validation: a permutation by numpy's legacy generator, cut into parts of equal size.

    Attributes:
        count: number of folds.
        seed: seed of the permutation; 999 yields the published folds.
    """

    kind: Literal["rotating"]
    count: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]


@settings_type
class Fixed:
    """Training, validation and test set: shares of all pairs, or the released file; exactly one of the two.

    Attributes:
        shares: shares of the training, validation and test set, drawn from the seed; they sum to 1.
        released: the released ``.mat`` file of the sets.
    """

    kind: Literal["fixed"]
    shares: Annotated[list[Share], Field(min_length=3, max_length=3)] | None = None
    released: Location | None = None


@settings_type
class Augmentation:
    """Re-illumination of every picture with the illuminants of others; see ``datasets/two_camera/augment.py``.

    Attributes:
        count: number of other pictures whose illuminants are applied to each picture; all if there are fewer. 0: none.
        targets: ``any`` other picture, as in the release, of which trainings leave out those with the light of a test picture;
            those of the ``training_folds``, so that ``count`` are left for every test fold; or those of the ``same_fold``.
    """

    count: Annotated[int, Field(ge=0)]
    targets: Literal["any", "training_folds", "same_fold"]


def _or_off(given: Augmentation | None) -> Augmentation | None:
    return None if given is None or not given.count else given


@settings_type
class NetworkTraining:
    """One row of the tables: networks of one shape.

    Attributes:
        parameters: number of parameters of a network of the paper, whose hidden layers have nine units: 90 for each layer, plus
            20. For other shapes, set ``hidden``.
        hidden: units of each hidden layer, instead of ``parameters``.
        activation: activation of the hidden units; ``relu`` in the paper.
        preset: table of ``training/two_camera/two_camera.toml``.
        seeds: seeds, one run for each; all are trained together.
        settings: changes to the preset.
        augmented: whether to train on the re-illuminated rows of the dataset, if it has any.
        reilluminated: whether to add rows that ``training.two_camera.reillumination`` computes from the transforms only.
        measured_times: weight of a measured row.
        taught_by: name of another network of the settings, trained on the same rows, for distillation: the average over its
            seeds replaces the measured illuminants as the target; ``preset`` must have a decay. See
            ``training.two_camera.networks.distilled``.
        taught_rows: with ``taught_by``: number of re-illuminated rows that each seed trains on.
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


@settings_type
class Evaluation:
    """What is trained and tested.

    Attributes:
        direction: ``1to2`` estimates the illuminant in the first camera from the transform to the second, or from the first
            camera's pictures; ``2to1`` the one in the second; ``both`` does both.
        baselines: ``linear_regression``, names of ``training/illuminants/baselines.toml``, which need pictures, and your own
            references (``path/to/file.py:name``): see docs/illuminants.md.
        networks: networks, by the name shown in tables.
        longest_px: maximum length of a picture's longer side for baselines, pixels; larger pictures are averaged down. None:
            baselines see the pictures of the dataset, which are already down-sampled by ``source.factor``. A process keeps
            them in a temporary file, 25 bytes of each pixel.
        relit_pictures: number of re-illuminated copies, made by ``augmentation``, of each training picture for baselines that
            are trained; they are made when they are read.
        reilluminated: whether baselines on transforms (``linear_regression`` and your own) also learn from rows that
            ``training.two_camera.reillumination`` computes from the transforms only.
        lights_of_test: whether baselines keep training rows re-lit with the illuminant of a test pair; results say so.
        method_settings: baseline -> its settings; for baselines on pictures, setting -> list of values to choose from. Name
            your own baselines without the folders of their file.
        metrics: further metrics: functions of ``Estimates`` of ``eval.protocols.cross_validation`` that return a number, or
            numbers by name.
    """

    direction: Literal["1to2", "2to1", "both"]
    baselines: list[Annotated[str, OneOf(ESTIMATORS.only("linear_regression"), tuple(candidates()))]]
    networks: dict[str, NetworkTraining]
    longest_px: Annotated[int, Field(ge=8)] | None = None
    relit_pictures: Annotated[int, Field(ge=0)] = 0
    reilluminated: bool = False
    lights_of_test: bool = False
    method_settings: Annotated[dict[str, dict[str, Any]], AfterValidator(known_keys(ESTIMATORS, candidates()))] = Field(
        default_factory=dict[str, dict[str, Any]]
    )
    metrics: list[Annotated[str, OneOf(METRICS.only())]] = Field(default_factory=list[str])


@settings_type
class TwoCameraConfig:
    """All settings.

    Attributes:
        seed: seed of generated pairs, shares and re-illumination; rotating folds have their own seed.
        source: source of the pairs; ``kind`` selects one of these tables.
        folds: training and test pairs.
        shards: sizes of shards.
        evaluation: what is trained and tested.
        transform: how the colour transform between the cameras is fitted.
        augmentation: re-illuminated copies of pictures with charts; None: none are made.
        compare_with: dataset whose published table is shown next to the results; None: none.
        published: digests of stages, stating that their rows are the paper's: ``folded`` for the pairs and folds (those of the
            released S20 metadata are known), ``augmented`` for released re-illuminated rows. The paper's figures are then shown
            next to a run with these digests, which reports print.
    """

    seed: int
    source: Annotated[
        Radiometric | RadiometricFile | RawPairs | QuasiReal | LitPictures | Metadata | OwnSource, ByKind(SOURCES["two_camera"])
    ]
    folds: Annotated[Rotating | Fixed, Field(discriminator="kind")]
    shards: ShardSizes
    evaluation: Evaluation
    transform: Transform = Transform()
    augmentation: Annotated[Augmentation | None, AfterValidator(_or_off)] = None
    compare_with: Literal["radiometric", "nus", "s20"] | None = None
    published: dict[Literal["folded", "augmented"], Digest] = Field(default_factory=dict[Literal["folded", "augmented"], str])

    @property
    def pictured(self) -> bool:
        """Whether the dataset has pictures."""
        s = self.source
        return not isinstance(s, Metadata | RadiometricFile) and not (isinstance(s, Radiometric) and s.patch_px == 0)
