"""Visual transforms of videos: changes by a camera or an editor that leave the activity recognisable (*nuisance novelty*).

Source: Prijatelj et al., "Human Activity Recognition in an Open World", JAIR 81 (2024), sections 4.3 and 5.4. Its experiments
name six kinds, and its README a seventh, perspective. All frames of a video share the same parameters; Gaussian noise of the
same strength is drawn separately for each frame. The final ranges are unpublished: those of ``visual_transforms.toml`` are
ours; that file also records the hints in the released code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal, cast, get_args

import numpy as np
from PIL import Image

from ..package_data import package_toml
from ..rng import rng

TransformKind = Literal[
    "colour_invert", "colour_jitter", "gaussian_blur", "gaussian_noise", "rotation", "vertical_flip", "perspective"
]
KINDS: tuple[TransformKind, ...] = get_args(TransformKind)
Parameters = Mapping[str, float | Sequence[float]]
Ranges = Mapping[str, Mapping[str, Sequence[float]]]
"""Kind -> parameter -> (lowest, highest), as in ``visual_transforms.toml``."""

OwnTransform = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""``transform(frames, draw)``: uint8 (n, height, width, 3) RGB of one video to the same shape; ``draw`` for random numbers."""

_STAGE = "visual_transforms"
_NAMES: Mapping[str, tuple[str, ...]] = {
    "colour_invert": (),
    "colour_jitter": ("brightness", "hue_turns"),
    "gaussian_blur": ("sigma_share",),
    "gaussian_noise": ("std_levels",),
    "rotation": ("angle_deg",),
    "vertical_flip": (),
    "perspective": ("shift_share",),
}


def our_ranges() -> Ranges:
    """The ranges of ``visual_transforms.toml``."""
    return package_toml(__package__, "visual_transforms.toml")


def transform_by(function: OwnTransform, frames: np.ndarray, seed: int, key: str) -> np.ndarray:
    """Apply a user's transform to the frames of a video. Raises ``ValueError`` if it changes shape or dtype.

    >>> def mirror(frames, draw):
    ...     return frames[:, :, ::-1]
    >>> transform_by(mirror, np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3), 0, "video7")[0, 0, :, 0]
    array([3, 0], dtype=uint8)
    """
    name = getattr(function, "__name__", str(function))
    made = np.asarray(function(frames.copy(), rng(seed, f"{_STAGE}.own", key)))
    if made.shape != frames.shape or made.dtype != np.uint8:
        raise ValueError(f"transform {name} gives {made.dtype} {made.shape} of uint8 {frames.shape}: it should keep both")
    return made


def choose_kind(kinds: Sequence[str], seed: int, key: str, own: Container[str] = ()) -> str:
    """Draw the kind of the video ``key`` uniformly. Raises ``ValueError`` if there is no kind, or an unknown one."""
    if unknown := [kind for kind in sorted(kinds) if kind not in KINDS and kind not in own]:
        raise ValueError(f"kind {unknown[0]!r}: one of {', '.join(KINDS)}")
    if not kinds:
        raise ValueError(f"no kind of transform: name some of {', '.join(KINDS)}")
    return kinds[int(rng(seed, f"{_STAGE}.kind", key).integers(len(kinds)))]


def transform_frames(
    frames: np.ndarray, kind: TransformKind, seed: int, key: str, *, ranges: Ranges | None = None
) -> np.ndarray:
    """Transform the frames of one video. The same arguments give the same bytes; frames keep their size.

    Args:
        frames: uint8 (n, height, width, 3) RGB. n may be 0.
        kind: see ``KINDS``.
        seed: seed of the parameters and the noise.
        key: key of the video.
        ranges: ranges of the parameters; None: those of ``our_ranges``.

    Raises:
        ValueError: an array of another shape or dtype, or an unknown kind.

    >>> frames = np.full((2, 4, 4, 3), 55, np.uint8)
    >>> transform_frames(frames, "colour_invert", 0, "video7")[0, 0, 0]
    array([200, 200, 200], dtype=uint8)
    >>> transform_frames(frames.astype(float), "colour_invert", 0, "video7")
    Traceback (most recent call last):
        ...
    ValueError: frames of video 'video7' are float64 (2, 4, 4, 3): expected uint8 (n, height, width, 3)
    """
    parameters = draw_parameters(kind, seed, key, our_ranges() if ranges is None else ranges)
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise ValueError(f"frames of video {key!r} are {frames.dtype} {frames.shape}: expected uint8 (n, height, width, 3)")
    done = [_transformed(frame, kind, parameters, seed, key, n) for n, frame in enumerate(frames)]
    return np.stack(done) if done else frames.copy()


def draw_parameters(kind: TransformKind, seed: int, key: str, ranges: Ranges) -> dict[str, float | list[float]]:
    """Draw the parameters of a video uniformly from the ranges; empty for a kind without parameters.

    ``brightness`` (factor), ``hue_turns``, ``sigma_share`` (of the shorter side), ``std_levels`` (of 255), ``angle_deg``
    (counter-clockwise), ``shift_share`` (of half a side: x and y of each corner, clockwise from the upper left), ``fill_rgb``.

    Raises:
        ValueError: an unknown kind, or missing or invalid ranges.
    """
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: one of {', '.join(KINDS)}")
    draw = rng(seed, f"{_STAGE}.{kind}", key)
    drawn: dict[str, float | list[float]] = {}
    for name in _NAMES[kind]:
        low, high = ranges.get(kind, {}).get(name, (1, 0))
        if not low <= high:
            raise ValueError(f"ranges of {kind}: {ranges.get(kind)} hold no {name!r} with a lowest and a highest value")
        drawn[name] = draw.uniform(low, high, 8).tolist() if kind == "perspective" else float(draw.uniform(low, high))
    if kind == "rotation":
        drawn["angle_deg"] = cast(float, drawn["angle_deg"]) * (1.0 if draw.integers(2) else -1.0)
    if kind in ("rotation", "perspective"):
        drawn["fill_rgb"] = [float(level) for level in draw.integers(0, 256, 3)]
    return drawn


def _transformed(frame: np.ndarray, kind: TransformKind, p: Parameters, seed: int, key: str, number: int) -> np.ndarray:
    match kind:
        case "colour_invert":
            return colour_invert(frame)
        case "vertical_flip":
            return vertical_flip(frame)
        case "colour_jitter":
            return colour_jitter(frame, cast(float, p["brightness"]), cast(float, p["hue_turns"]))
        case "gaussian_blur":
            return gaussian_blur(frame, cast(float, p["sigma_share"]) * min(frame.shape[:2]))
        case "gaussian_noise":
            draw = rng(seed, f"{_STAGE}.{kind}", f"{key}\0{number}")
            return gaussian_noise(frame, cast(float, p["std_levels"]), draw)
        case "rotation":
            return rotation(frame, cast(float, p["angle_deg"]), _colour(p))
        case "perspective":
            return perspective(frame, cast("Sequence[float]", p["shift_share"]), _colour(p))


def _levels(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _colour(p: Parameters) -> tuple[int, int, int]:
    red, green, blue = (int(level) for level in cast("Sequence[float]", p["fill_rgb"]))
    return red, green, blue


def colour_invert(frame: np.ndarray) -> np.ndarray:
    """Invert every level (255 minus the value): uint8 (height, width, 3) to the same.

    >>> colour_invert(np.full((1, 1, 3), 55, np.uint8))
    array([[[200, 200, 200]]], dtype=uint8)
    """
    return 255 - frame


def vertical_flip(frame: np.ndarray) -> np.ndarray:
    """Turn a frame upside down: uint8 (height, width, 3) to the same.

    >>> vertical_flip(np.array([[[1, 1, 1]], [[2, 2, 2]]], np.uint8))[:, 0, 0]
    array([2, 1], dtype=uint8)
    """
    return frame[::-1].copy()


def gaussian_noise(frame: np.ndarray, std_levels: float, draw: np.random.Generator) -> np.ndarray:
    """Add normally distributed noise to every level.

    Args:
        frame: uint8 (height, width, 3).
        std_levels: standard deviation, in levels of 255.
        draw: random generator of the noise.

    >>> noisy = gaussian_noise(np.full((32, 32, 3), 128, np.uint8), 10.0, np.random.default_rng(0))
    >>> noisy.dtype, bool(9 < noisy.std() < 11)
    (dtype('uint8'), True)
    """
    noise = draw.standard_normal(frame.shape, dtype=np.float32)
    return _levels(frame + noise * np.float32(std_levels))


def rotation(frame: np.ndarray, angle_deg: float, fill: tuple[int, int, int]) -> np.ndarray:
    """Rotate a frame about its centre; corners are filled with one colour.

    Args:
        frame: uint8 (height, width, 3) RGB.
        angle_deg: angle in degrees, counter-clockwise.
        fill: R, G, B of uncovered areas, 0 to 255.

    >>> frame = np.zeros((3, 3, 3), np.uint8)
    >>> frame[0, 0] = 255
    >>> rotation(frame, 90, fill=(0, 0, 0))[..., 0]
    array([[  0,   0,   0],
           [  0,   0,   0],
           [255,   0,   0]], dtype=uint8)
    """
    return np.asarray(Image.fromarray(frame).rotate(angle_deg, Image.Resampling.BILINEAR, fillcolor=fill))


def colour_jitter(frame: np.ndarray, brightness: float, hue_turns: float) -> np.ndarray:
    """Change brightness, then hue, the latter in Pillow's HSV of 8 bits per channel.

    Args:
        frame: uint8 (height, width, 3) RGB.
        brightness: factor of all levels.
        hue_turns: shift of the hue, in turns of the colour circle: 0.5 gives the opposite hue.

    >>> colour_jitter(np.full((1, 1, 3), 100, np.uint8), brightness=1.5, hue_turns=0.5)[0, 0]  # grey has no hue
    array([150, 150, 150], dtype=uint8)
    """
    bright = _levels(frame * np.float32(brightness))
    hsv = np.array(Image.fromarray(bright).convert("HSV"))
    hsv[..., 0] += np.uint8(round(hue_turns * 256) % 256)
    return np.asarray(Image.fromarray(hsv, mode="HSV").convert("RGB"))


def gaussian_blur(frame: np.ndarray, sigma_px: float) -> np.ndarray:
    """Gaussian blur of radius 3 sigma, along height and then width; the border is mirrored.

    Args:
        frame: uint8 (height, width, 3).
        sigma_px: standard deviation in pixels.

    >>> frame = np.zeros((5, 5, 3), np.uint8)
    >>> frame[2, 2] = 255
    >>> gaussian_blur(frame, sigma_px=0.7)[..., 0][2]
    array([ 1, 30, 83, 30,  1], dtype=uint8)
    """
    radius = max(1, math.ceil(3 * sigma_px))
    weights = [math.exp(-0.5 * (offset / sigma_px) ** 2) for offset in range(-radius, radius + 1)]
    values = frame.astype(np.float32)
    for axis in (0, 1):
        side = values.shape[axis]
        padded = np.pad(values, [(radius, radius) if axis == a else (0, 0) for a in range(3)], mode="symmetric")
        values = np.zeros_like(values)
        for tap, weight in enumerate(weights):
            values += np.take(padded, range(tap, tap + side), axis) * np.float32(weight / sum(weights))
    return _levels(values)


def perspective(frame: np.ndarray, shifts: Sequence[float], fill: tuple[int, int, int]) -> np.ndarray:
    """Move each corner inwards by a share of half a side, and warp the picture accordingly.

    Args:
        frame: uint8 (height, width, 3) RGB.
        shifts: eight shares: x and y of each corner, clockwise from the upper left.
        fill: R, G, B of uncovered areas, 0 to 255.

    >>> frame = np.full((8, 8, 3), 200, np.uint8)
    >>> perspective(frame, [0.5] * 8, fill=(0, 0, 0))[..., 0][4]  # all corners half-way to the middle
    array([  0,   0, 200, 200, 200, 200,   0,   0], dtype=uint8)
    """
    height, width = frame.shape[:2]
    ways = ((1, 1), (-1, 1), (-1, -1), (1, -1))  # inwards, from the upper left corner clockwise
    corners = ((0, 0), (1, 0), (1, 1), (0, 1))
    quad = [
        (cx + wx * shifts[2 * n] / 2, cy + wy * shifts[2 * n + 1] / 2)
        for n, ((cx, cy), (wx, wy)) in enumerate(zip(corners, ways, strict=True))
    ]
    a, b, c, d, e, f, g, h = _unit_square_to(quad)
    # Pillow expects the map from result to source, that is the inverse, here as the adjugate.
    adjugate = [
        [e - f * h, c * h - b, b * f - c * e],
        [f * g - d, a - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ]
    scaled = [[width * v for v in adjugate[0]], [height * v for v in adjugate[1]], adjugate[2]]
    whole = [v / scaled[2][2] for row in scaled for v in (row[0] / width, row[1] / height, row[2])]
    image = Image.fromarray(frame).transform(
        (width, height), Image.Transform.PERSPECTIVE, whole[:8], Image.Resampling.BILINEAR, fillcolor=fill
    )
    return np.asarray(image)


def _unit_square_to(quad: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Coefficients a to h of x' = (ax + by + c) / (gx + hy + 1), y' = (dx + ey + f) / (gx + hy + 1), which maps the corners
    (0, 0), (1, 0), (1, 1), (0, 1) to ``quad`` (Heckbert, "Fundamentals of Texture Mapping and Image Warping", 1989, 2.2.3).
    In closed form, since the last bits of a linear solver depend on the machine."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = quad
    dx1, dy1, dx2, dy2 = x1 - x2, y1 - y2, x3 - x2, y3 - y2
    sx, sy = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    determinant = dx1 * dy2 - dx2 * dy1
    g = (sx * dy2 - dx2 * sy) / determinant
    h = (dx1 * sy - sx * dy1) / determinant
    return x1 - x0 + g * x1, x3 - x0 + h * x3, x0, y1 - y0 + g * y1, y3 - y0 + h * y3, y0, g, h
