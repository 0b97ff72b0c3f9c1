"""Bring two pictures of one scene onto one grid: homography between two fixed cameras, warping, downsampling by averages.

Coordinates are those of the raw pixels, pixel centres at integers, x to the right and y down. If the pixels of a picture are
``scale`` raw pixels wide, its pixel ``x`` is at ``scale * x + (scale - 1) / 2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from ..rows import Reject
from .raw import Linear

MIN_MATCHES = 20
"""Minimum number of inliers: with fewer, a homography (eight parameters) may be a coincidence."""

LEAST_AGREEMENT = 0.3
"""Default minimum ``agreement`` of a pair; `benchmarks/two_camera_agreement.py` measures matching and unrelated pairs."""

_CELLS, _CELL_BLUR, _FEWEST_CELLS = 64, 2.0, 64  # along the longer side; in cells
_AROUND = 0.9  # minimum share of the weights around a cell that lies on valid cells
_FAINT = 0.02  # share of the mean brightness that is added, so that noise in dark regions does not count as detail
_FEATURES = 4000
_RATIO = 0.75  # Lowe, "Distinctive image features from scale-invariant keypoints" (IJCV 2004), section 7.1, asks for 0.8
_STRIP_ROWS = 16  # rows of the result
_LEAST_DETAIL, _LEAST_PEAK = 4.0, 0.3  # grey levels; share of the correlation that lies around its peak
_CONFIDENCE, _MOST_TRIALS = 0.9999, 20_000


@dataclass(frozen=True)
class Homography:
    """Homography that maps raw pixels of the second camera to those of the first.

    Attributes:
        matrix: float64 (3, 3), last element 1; ``point_1 ~ matrix @ (x_2, y_2, 1)``.
        residual_px: root mean square distance between inliers and their mapped points, in raw pixels of the first camera.
        points: number of inliers.
        share: share of inliers among all points.
    """

    matrix: np.ndarray
    residual_px: float
    points: int
    share: float


@dataclass(frozen=True)
class AlignedPictures:
    """Two pictures on the grid of the first camera, downsampled by averages.

    Attributes:
        image_1: float32 (height, width, 3), linear raw RGB, 1 at full scale.
        image_2: the same scene in raw RGB of the second camera.
        valid: bool (height, width): visible to both cameras, without saturated raw values.
        factor: raw pixels of the first camera along the side of a pixel.
    """

    image_1: np.ndarray
    image_2: np.ndarray
    valid: np.ndarray
    factor: int


def scaled(matrix: np.ndarray, *, scale_2: float, scale_1: float) -> np.ndarray:
    """Convert a homography of raw pixels to one of pictures whose pixels are ``scale_2`` and ``scale_1`` raw pixels wide.

    >>> scaled(np.eye(3), scale_2=2, scale_1=4)
    array([[ 0.5 ,  0.  , -0.25],
           [ 0.  ,  0.5 , -0.25],
           [ 0.  ,  0.  ,  1.  ]])
    """

    def to_raw(scale: float) -> np.ndarray:
        return np.array([[scale, 0, (scale - 1) / 2], [0, scale, (scale - 1) / 2], [0, 0, 1]])

    return np.linalg.inv(to_raw(scale_1)) @ matrix @ to_raw(scale_2)


def mapped(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Apply a homography to points (n, 2): float64 (n, 2).

    >>> mapped(np.array([[1.0, 2.0]]), np.diag([2.0, 2.0, 1.0]))
    array([[2., 4.]])
    """
    ahead = np.column_stack([np.asarray(points, dtype=np.float64), np.ones(len(points))]) @ matrix.T
    return ahead[:, :2] / ahead[:, 2:]


def match_points(picture_1: Linear, picture_2: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Match points of two pictures, in raw pixels, float64 (n, 2) and (n, 2): SIFT, mutual nearest neighbours, ratio test.

    The order depends only on the pictures.
    """
    described = [_features(picture) for picture in (picture_1, picture_2)]
    if any(len(points) < 2 for points, _ in described):
        return np.empty((0, 2)), np.empty((0, 2))
    (points_1, words_1), (points_2, words_2) = described
    # SIFT descriptors are integers up to 255: sums of their products are exact in float32, in whatever order BLAS adds them.
    distance = (words_1**2).sum(axis=1)[:, None] + (words_2**2).sum(axis=1) - 2 * (words_1 @ words_2.T)
    nearest = np.argmin(distance, axis=1)
    best = distance[np.arange(len(nearest)), nearest]
    mutual = np.argmin(distance, axis=0)[nearest] == np.arange(len(nearest))
    distance[np.arange(len(nearest)), nearest] = np.inf
    keep = mutual & (best < _RATIO**2 * distance.min(axis=1))
    return points_1[keep], points_2[nearest[keep]]


def _features(picture: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Keypoints in raw pixels and their descriptors, float32 (n, 128); sorted, no point twice."""
    found, words = cv2.SIFT.create(nfeatures=_FEATURES).detectAndCompute(_tones(picture.rgb), None)
    if not found:
        return np.empty((0, 2)), np.empty((0, 128), dtype=np.float32)
    points = np.array([one.pt for one in found], dtype=np.float64)
    # OpenCV collects keypoints from several threads in any order; of a point with several orientations only one is kept.
    angles = np.array([one.angle for one in found])
    order = np.lexsort(np.column_stack([words[:, ::-1], angles, points[:, ::-1]]).T)
    points, words = points[order], words[order].astype(np.float32)
    fresh = np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))
    return points[fresh] * picture.scale + (picture.scale - 1) / 2, words[fresh]


def _tones(rgb: np.ndarray) -> np.ndarray:
    """Grey levels for a feature detector, uint8 (height, width): the green channel with stretched contrast and a gamma."""
    green = np.maximum(rgb[..., 1].astype(np.float32), 0)
    low, high = np.percentile(green[::4, ::4], [0.5, 99.5])
    return np.round(255 * np.clip((green - low) / max(float(high - low), 1e-9), 0, 1) ** (1 / 2.2)).astype(np.uint8)


def fit_homography(
    points_1: np.ndarray, points_2: np.ndarray, *, threshold_px: float, min_points: int = MIN_MATCHES
) -> Homography:
    """Fit a homography robustly (USAC with MAGSAC, Barath et al., CVPR 2020), then by least squares on its inliers.

    Args:
        points_1: raw pixels of the first camera (n, 2).
        points_2: the same points in the second camera.
        threshold_px: maximum distance of an inlier, in raw pixels of the first camera.
        min_points: minimum number of inliers; 4 determine a homography.

    Raises:
        Reject: ``too_few_matches`` or ``no_homography``.
    """
    if len(points_1) < min_points:
        raise Reject("too_few_matches", f"{len(points_1)} points, expected at least {min_points}")
    settings = cv2.UsacParams()
    settings.threshold, settings.confidence, settings.maxIterations = threshold_px, _CONFIDENCE, _MOST_TRIALS
    settings.randomGeneratorState, settings.isParallel = 0, False
    settings.score, settings.sampler = cv2.SCORE_METHOD_MAGSAC, cv2.SAMPLING_UNIFORM
    settings.loMethod, settings.loIterations, settings.loSampleSize = cv2.LOCAL_OPTIM_SIGMA, 10, 14
    matrix, _ = cv2.findHomography(points_2.astype(np.float64), points_1.astype(np.float64), settings)
    if matrix is None or not np.isfinite(matrix).all() or abs(np.linalg.det(matrix)) < 1e-9:
        raise Reject("no_homography", f"{len(points_1)} points, which fit no common homography")
    agree = np.zeros(len(points_1), dtype=bool)
    for _ in range(5):  # refit by least squares until the set of inliers does not change
        distance = np.linalg.norm(mapped(points_2, matrix) - points_1, axis=1)
        now = distance <= threshold_px
        if int(now.sum()) < min_points:
            raise Reject("too_few_matches", f"{int(now.sum())} of {len(points_1)} points agree, expected at least {min_points}")
        if np.array_equal(now, agree):
            break
        agree = now
        matrix, _ = cv2.findHomography(points_2[agree], points_1[agree], 0)
        if matrix is None:
            raise Reject("no_homography", f"{int(agree.sum())} points, which fit no common homography")
    distance = np.linalg.norm(mapped(points_2[agree], matrix) - points_1[agree], axis=1)
    residual = float(np.sqrt((distance**2).mean()))
    return Homography(matrix / matrix[2, 2], residual, int(agree.sum()), float(agree.mean()))


def tile_points(
    picture_1: Linear, picture_2: Linear, *, homography: np.ndarray, most_px: int = 128
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of tiles of the first picture, and their positions in the second, in raw pixels, float64 (n, 2) each.

    Features occur only where there is texture, whereas tiles cover the picture; phase correlation gives their shift to a
    fraction of a pixel (Foroosh et al., IEEE TIP 2002). Used to refine a homography.

    Args:
        picture_1: picture of the main camera.
        picture_2: picture of the other camera.
        homography: raw pixels of the second to those of the first (3, 3), accurate to a few pixels.
        most_px: maximum side of a tile in pixels of the first picture; smaller where ten would not fit side by side. Tiles
            without detail, or with a weak correlation peak, are left out.
    """
    height, width = picture_1.rgb.shape[:2]
    tile = min(most_px, max(32, width // 10))
    place = scaled(homography, scale_2=picture_2.scale, scale_1=picture_1.scale)
    tones_1 = _tones(picture_1.rgb).astype(np.float32)
    tones_2 = _tones(picture_2.rgb).astype(np.float32)
    tones_2 = cv2.warpPerspective(tones_2, place, (width, height), flags=cv2.INTER_CUBIC, borderValue=(-1, 0, 0, 0))
    window = cv2.createHanningWindow((tile, tile), cv2.CV_32F)
    found_1: list[tuple[float, float]] = []
    found_2: list[tuple[float, float]] = []
    for top in range(0, height - tile + 1, tile // 2):
        for left in range(0, width - tile + 1, tile // 2):
            one, two = (tones[top : top + tile, left : left + tile] for tones in (tones_1, tones_2))
            if two.min() < 0 or min(one.std(), two.std()) < _LEAST_DETAIL:
                continue
            (right, down), peak = cv2.phaseCorrelate(one - one.mean(), two - two.mean(), window)
            if peak >= _LEAST_PEAK and max(abs(right), abs(down)) < tile / 8:
                centre = (left + (tile - 1) / 2, top + (tile - 1) / 2)
                found_1.append(centre)
                found_2.append((centre[0] + right, centre[1] + down))
    if not found_1:
        return np.empty((0, 2)), np.empty((0, 2))
    centres = np.asarray(found_1) * picture_1.scale + (picture_1.scale - 1) / 2
    shifted = np.asarray(found_2) * picture_1.scale + (picture_1.scale - 1) / 2
    return centres, mapped(shifted, np.linalg.inv(homography))


def align(
    picture_1: Linear, picture_2: Linear, *, homography: np.ndarray, factor: int, excluded: Sequence[np.ndarray] = ()
) -> AlignedPictures:
    """Warp the second picture onto the grid of the first, and average both over squares of ``factor`` raw pixels.

    Args:
        picture_1: picture of the main camera.
        picture_2: picture of the other camera.
        homography: raw pixels of the second to those of the first (3, 3).
        factor: a multiple of the scale of the first picture; rows and columns beyond the last whole square are left out.
        excluded: polygons (n, 2) in raw pixels of the first camera to mark as not valid (the chart).

    Raises:
        Reject: ``too_small``: less than one whole square.
        ValueError: ``factor`` is not a multiple of the scale.
    """
    each = factor // picture_1.scale
    if factor < 1 or factor % picture_1.scale:
        raise ValueError(f"factor {factor}: expected a multiple of {picture_1.scale}, the raw pixels of a pixel")
    rows, columns = picture_1.rgb.shape[0] // each, picture_1.rgb.shape[1] // each
    if not rows or not columns:
        raise Reject("too_small", f"{picture_1.rgb.shape[1]}x{picture_1.rgb.shape[0]} pixels, squares of {each}")
    size = (columns * each, rows * each)
    place = scaled(homography, scale_2=picture_2.scale, scale_1=picture_1.scale)
    seen = cv2.warpPerspective(_good(picture_2), place, size, flags=cv2.INTER_LINEAR, borderValue=(0, 0, 0, 0))
    seen = np.minimum(seen, _good(picture_1)[: size[1], : size[0]])
    for polygon in excluded:
        corners = (np.asarray(polygon, dtype=np.float64) - (picture_1.scale - 1) / 2) / picture_1.scale
        cv2.fillPoly(seen, [np.round(corners).astype(np.int32)], (0, 0, 0, 0))

    def averaged(picture: np.ndarray) -> np.ndarray:
        return cv2.resize(picture, (columns, rows), interpolation=cv2.INTER_AREA)

    warped = np.empty((rows, columns, 3), dtype=picture_2.rgb.dtype)
    for top in range(0, rows, _STRIP_ROWS):  # strips stay in the processor's cache until they are averaged
        strip = warped[top : top + _STRIP_ROWS]
        up = np.array([[1, 0, 0], [0, 1, -top * each], [0, 0, 1]], dtype=np.float64)
        part = (size[0], len(strip) * each)
        seen_2 = cv2.warpPerspective(picture_2.rgb, up @ place, part, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        cv2.resize(seen_2, (columns, len(strip)), dst=strip, interpolation=cv2.INTER_AREA)
    images = [averaged(picture_1.rgb[: size[1], : size[0]]), warped]
    for place, picture in enumerate((picture_1, picture_2)):
        if picture.full_scale != 1:
            images[place] = images[place].astype(np.float32) / np.float32(picture.full_scale)
    return AlignedPictures(images[0], images[1], averaged(seen) == 255, factor)


def agreement(pictures: AlignedPictures) -> float:
    """How far two aligned pictures show the same detail, -1 to 1: 1 for the same scene, about 0 for unrelated pictures,
    whatever their colours and exposures.

    It is the correlation of log brightness over at most 64 cells along the longer side, after subtracting the local mean, so
    that a bright sky at the top alone does not count as agreement. NaN if there are too few valid cells, or no detail.

    >>> scene = np.random.default_rng(0).random((120, 160, 3)).astype(np.float32)
    >>> valid = np.ones((120, 160), dtype=bool)
    >>> round(agreement(AlignedPictures(scene, 0.3 * scene, valid, 1)), 2)
    1.0
    >>> abs(agreement(AlignedPictures(scene, scene[::-1], valid, 1))) < 0.1
    True
    """
    each = -(-max(pictures.valid.shape) // _CELLS)
    rows, columns = (side // each for side in pictures.valid.shape)
    whole = slice(0, rows * each), slice(0, columns * each)

    def cells(values: np.ndarray) -> np.ndarray:
        return cv2.resize(values.astype(np.float32)[whole], (columns, rows), interpolation=cv2.INTER_AREA)

    if not rows or not columns:
        return float("nan")
    share = cells(pictures.valid)
    keep = share > 0.5
    near = _around(keep.astype(np.float32))
    inside = keep & (near > _AROUND)  # at the edge of the valid area a mere gradient, such as vignetting, would be detail
    if inside.sum() < _FEWEST_CELLS:
        return float("nan")
    details: list[np.ndarray] = []
    for image in (pictures.image_1, pictures.image_2):
        mean = cells(image.mean(axis=2) * pictures.valid) / np.maximum(share, 1e-6)
        tones = np.log(np.maximum(mean, 0) + max(_FAINT * float(mean[keep].mean()), 1e-9)) * keep
        details.append((tones - _around(tones) / np.maximum(near, 1e-6))[inside])
    if min(float(detail.std()) for detail in details) < 1e-4:
        return float("nan")
    return float(np.corrcoef(details)[0, 1])


def _around(values: np.ndarray) -> np.ndarray:
    """Gaussian-weighted sum around each cell; cells beyond the borders count as 0."""
    return cv2.GaussianBlur(values, (0, 0), _CELL_BLUR, borderType=cv2.BORDER_CONSTANT)


def check_one_scene(pictures: AlignedPictures, *, least: float) -> None:
    """Raise ``Reject("not_one_scene")`` if the ``agreement`` of two pictures is below ``least``."""
    if (found := agreement(pictures)) < least:
        raise Reject("not_one_scene", f"their detail agrees by {found:.2f}, limit least_agreement = {least:g}")


def _good(picture: Linear) -> np.ndarray:
    return np.where(picture.saturated, np.uint8(0), np.uint8(255))
