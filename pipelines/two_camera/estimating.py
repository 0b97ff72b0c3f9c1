"""Estimate the light in a pair of ordinary pictures, without a chart, by an exported network, and correct the picture."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...curation.local_files import write_whole
from ...curation.rows import Reject
from ...curation.stages.alignment import align as aligned_pictures
from ...curation.stages.alignment import check_one_scene
from ...curation.stages.raw import SATURATED, Demosaic, Linear, read_linear, upright
from ...datasets.two_camera.pictures import check_pixels, homography_of
from ...datasets.two_camera.quasi_real import read_png
from ...datasets.two_camera.transforms import NUMBERS, checked_fit
from ...eval.report.blocks import ImageGrid, Report, Section, Table, Text, Thumb
from ...eval.report.html import render
from ..errors import WrongUse, unknown
from .exported_model import Model, Reading, load_model
from .looks import png, white_level

Align = Literal["training", "pair", "none"]

_BESIDE = 0.01  # share of the training range: without its chart, a training pair has a T that differs by about as much
_WIDE_PX, _BESIDE_PX = 640, 460


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimate for a pair of pictures.

    Attributes:
        light: R, G, B of the light in the camera ``camera``, G = 1.
        camera: "1" or "2", the camera in which the light is estimated.
        transform: T, row by row (9,), in the direction of the network.
        condition: condition number of the colours.
        valid_share: share of the pixels from which T was computed.
        homography: from raw pixels of the second camera to those of the first (9,); ``homography_from`` is its origin.
        outside: numbers of T outside the range of the training data, with that range.
        expected_deg: mean error in degrees of such networks on unseen pairs.
        page: path of the HTML page.
    """

    light: list[float]
    camera: str
    transform: list[float]
    condition: float
    valid_share: float
    homography: list[float]
    homography_from: str
    outside: dict[str, list[float]]
    expected_deg: float
    page: str

    @property
    def doubt(self) -> str:
        """A warning if numbers of T are outside the training range; "" if none is."""
        each = ", ".join(f"{name} {value:.4f} ({low:.4f} to {high:.4f})" for name, (value, low, high) in self.outside.items())
        count = f"{len(self.outside)} of the {len(NUMBERS)} numbers of T"
        return f"{count} are outside the training range, where the estimate is a guess: {each}" if each else ""


def estimate(
    model: str,
    first: str,
    second: str,
    folder: str,
    *,
    device: str | None = None,
    align: Align | None = None,
    least_agreement: float | None = None,
    factor: int | None = None,
    demosaic: Demosaic | None = None,
) -> Estimate:
    """Estimate the light in a pair of pictures, and write ``estimate.json``, ``before.png``, ``after.png`` and
    ``before_after.html`` into ``folder``.

    Args:
        model: folder written by `benchwright export`.
        first: raw file, or linear 16-bit PNG, of the first camera.
        second: raw file, or linear 16-bit PNG, of the same scene from the second camera.
        folder: output folder; files with these names are overwritten.
        device: device whose homography from the training is used; optional if there is only one.
        align: ``training``: use the training's homography (default if it had one); ``pair``: estimate one from this pair
            (default otherwise); ``none``: use none, for pictures already on the same pixel grid.
        least_agreement: minimum agreement of the details of both pictures, -1 to 1, to count as the same scene; None: that of
            the training. -1 accepts any two.
        factor: raw pixels of the first camera per pixel along each side, at least 1; with ``demosaic``, and only for a network
            that was not trained on raw pictures, and so does not define it.
        demosaic: see ``curation.stages.raw``.

    Raises:
        WrongUse: an unknown device; factor or demosaic missing for a network that was not trained on raw pictures, or given
            for one that was.
        ValueError: a picture that cannot be read or aligned, two of different scenes, or colours from which T cannot be fitted.
    """
    facts, network = load_model(model)
    reading = _reading(model, facts, factor, demosaic)
    pictures = [_read(path, reading) for path in (first, second)]
    try:
        matrix, place = _homography(reading, [picture for picture, _ in pictures], device, align)
        seen = aligned_pictures(pictures[0][0], pictures[1][0], homography=matrix, factor=reading.factor)
        check_one_scene(seen, least=reading.least_agreement if least_agreement is None else least_agreement)
        views, usable = (seen.image_1.astype(np.float64), seen.image_2.astype(np.float64)), seen.valid
        bright = np.minimum(*(view.sum(axis=2) for view in views)) > facts.transform.darkest
        keep = usable & bright
        check_pixels(int(keep.sum()))
        ordered = views if facts.direction == "1to2" else views[::-1]
        T, condition = checked_fit(
            *(np.clip(view[keep], 0, 1) for view in ordered),
            preset=facts.transform.preset,
            what="picture",
            max_condition=facts.transform.max_condition,
        )
    except Reject as reject:
        raise ValueError(f"{first} and {second}: {reject.reason}: {reject.detail}") from None
    ratios = network(T.reshape(1, 9).astype(np.float32))[0].astype(float)
    found = Estimate(
        light=[ratios[0], 1.0, ratios[1]],
        camera=facts.direction[0],
        transform=T.ravel().tolist(),
        condition=condition,
        valid_share=float(keep.mean()),
        homography=matrix.ravel().tolist(),
        homography_from=place,
        outside=_outside(facts, T.ravel()),
        expected_deg=facts.expected["mean"][0],
        page=str(Path(folder) / "before_after.html"),
    )
    _write(found, facts, upright(ordered[0], pictures[int(facts.direction[0]) - 1][1]), (first, second), folder)
    return found


_BY_HAND = "--factor (raw pixels along the side of a pixel, 6 for S20) and --demosaic (such as ahd)"


def _reading(model: str, facts: Model, factor: int | None, demosaic: Demosaic | None) -> Reading:
    """How to read pictures: as in the training, or, if it had no raw pictures, by ``factor`` and ``demosaic``."""
    if facts.reading is not None:
        if factor is not None or demosaic is not None:
            raise WrongUse(
                f"{model}: pictures are read as those of its training were, factor {facts.reading.factor} and demosaic "
                f"{facts.reading.demosaic}: leave out --factor and --demosaic"
            )
        return facts.reading
    if factor is None or demosaic is None:
        raise WrongUse(
            f"{model}: it was not trained on raw pictures (source {facts.source}): say how to read them, with {_BY_HAND}"
        )
    return Reading(factor, demosaic, SATURATED, {})


def _read(path: str, reading: Reading) -> tuple[Linear, int]:
    """A picture, and its EXIF orientation."""
    if os.path.exists(path) and not os.path.isfile(path):  # reading a named pipe would wait for ever
        raise ValueError(f"{path}: not a regular file{_WANTED}")
    data = Path(path).read_bytes()
    try:
        if path.lower().endswith(".png"):
            return read_png(data, black=0, white=65535, saturated=reading.saturated), 1
        picture, bayer = read_linear(data, method=reading.demosaic, saturated=reading.saturated)
        return picture, bayer.orientation
    except Reject as reject:
        wanted = "" if reject.reason not in ("not_raw", "not_16_bit_rgb") else _WANTED
        raise ValueError(f"{path}: {reject.reason}: {reject.detail}{wanted}") from None


_WANTED = ": expected a camera's raw file or a linear 16-bit PNG; JPEGs are already white-balanced"


def _homography(reading: Reading, pictures: list[Linear], device: str | None, align: Align | None) -> tuple[np.ndarray, str]:
    """The homography, and its origin in words."""
    known = reading.homographies
    if align == "none":
        return np.eye(3), "the user, align = none: the pictures are on the same grid"
    if align == "pair" or (align is None and not known):
        found = homography_of(lambda: [(pictures[0], pictures[1])])
        return found.matrix, f"this pair: {found.points} points, {found.residual_px:.2f} raw pixels apart"
    if not known:
        raise WrongUse("the training had no homography: leave out --align training")
    if device is None and len(known) > 1:
        raise WrongUse(f"the network knows the devices {', '.join(map(repr, known))}: name one with --device")
    if device is not None and device not in known:
        raise unknown("device", device, known)
    name = next(iter(known)) if device is None else device
    return np.reshape(known[name], (3, 3)), f"the training, device {name!r}" if name else "the training"


def _outside(facts: Model, T: np.ndarray) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value, low, high in zip(NUMBERS, T.tolist(), facts.low, facts.high, strict=True):
        beside = max(low - value, value - high)
        if beside > _BESIDE * (high - low):
            found[name] = [value, low, high]
    return found


def _write(found: Estimate, facts: Model, picture: np.ndarray, files: tuple[str, str], folder: str) -> None:
    after = picture / np.array(found.light)
    before_png, after_png = png(picture, white_level(picture), _WIDE_PX), png(after, white_level(after), _WIDE_PX)
    record: dict[str, Any] = {**dataclasses.asdict(found), "network": facts.network, "first": files[0], "second": files[1]}
    del record["page"]
    for name, data in (
        ("before.png", before_png),
        ("after.png", after_png),
        ("estimate.json", (json.dumps(record, indent=1) + "\n").encode()),
        ("before_after.html", render(_page(found, facts, (before_png, after_png), files)).encode()),
    ):
        write_whole(Path(folder) / name, data)


def _page(found: Estimate, facts: Model, pictures: tuple[bytes, bytes], files: tuple[str, str]) -> Report:
    light = ", ".join(f"{value:.3f}" for value in found.light)
    lines = [
        f"Illuminant in camera {found.camera}, raw R, G, B: {light}, by {facts.network}. Estimators with its settings have a "
        f"mean error of {found.expected_deg:.2f} degrees on unseen pairs.",
        f"T was computed from {found.valid_share:.0%} of the pixels; homography of {found.homography_from}.",
    ]
    thumbs = [Thumb(image, caption) for image, caption in zip(pictures, ("as the camera gave it", "corrected"), strict=True)]
    T = [[name, *row] for name, row in zip("RGB", np.reshape(found.transform, (3, 3)).tolist(), strict=True)]
    return Report(
        "The light in a pair of pictures",
        " and ".join(Path(file).name for file in files),
        [
            Section(
                "Before and after",
                [
                    Text(lines),
                    *([Text([f"{found.doubt}."], tone="note")] if found.doubt else []),
                    ImageGrid("Raw colours with the gamma of sRGB", thumbs, side_px=_BESIDE_PX),
                    Table(["T from", *"RGB"], T, decimals=4),
                ],
            )
        ],
    )
