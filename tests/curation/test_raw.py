"""Raw files: bit-exact mosaics, levels, patterns, demosaicing, and files that are rejected."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import rawpy
from benchwright.curation.rows import Reject
from benchwright.curation.stages import raw
from benchwright.curation.stages.raw import Bayer, as_uint16, demosaic, read_bayer, read_linear, upright

from tests.curation.phone_pairs import phone


def levels(bits=16, height=64, width=96):
    return np.random.default_rng(0).integers(0, 1 << bits, (height, width)).astype(np.uint16)


@pytest.mark.parametrize(("bits", "white"), [(16, 65535), (16, 60000), (12, 4095), (10, 1023)])
def test_a_dng_reads_back_bit_for_bit(bits, white):
    mosaic = levels(bits)
    bayer = read_bayer(phone.write_dng(mosaic, bits=bits, white=white))
    assert bayer.mosaic.dtype == np.uint16
    assert np.array_equal(bayer.mosaic, mosaic)
    assert bayer.white.tolist() == [[white] * 2] * 2


@pytest.mark.parametrize("pattern", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_pattern_levels_neutral_and_orientation_are_those_of_the_file(pattern):
    data = phone.write_dng(levels(), pattern=pattern, black=(64, 65, 66, 67), neutral=(0.5, 1, 0.625), orientation=6)
    bayer = read_bayer(data)
    assert (bayer.pattern, bayer.orientation) == (pattern, 6)
    assert bayer.black.tolist() == [[64, 65], [66, 67]]
    assert bayer.as_shot_neutral == pytest.approx([0.5, 1, 0.625], abs=1e-4)


def test_binning_is_arithmetic_on_the_sites():
    mosaic = np.array([[100, 210, 164, 1023], [220, 400, 64, 64]], dtype=np.uint16)
    bayer = Bayer(mosaic, "RGGB", np.array([[64.0, 70], [80, 64]]), np.full((2, 2), 1023.0), None, 1)
    linear = demosaic(bayer, method="bin2", saturated=0.98)
    red = 0.75 * 36 / 959 + 0.25 * 100 / 959
    green_1, green_2 = (210 - 70) / (1023 - 70), 0.75 * (220 - 80) / (1023 - 80) + 0.25 * (64 - 80) / (1023 - 80)
    assert linear.rgb[0, 0] == pytest.approx([red, (green_1 + green_2) / 2, 336 / 959], rel=1e-6)
    assert linear.saturated.tolist() == [[True, True]], "a neighbour counts"
    assert linear.scale == 2


def test_binned_channels_are_brought_to_the_middle_of_their_sites():
    across = np.broadcast_to(np.arange(64) * 100, (64, 64)).astype(np.uint16)
    for mosaic in (across, across.T.copy()):
        rgb = demosaic(read_bayer(phone.write_dng(mosaic)), method="bin2").rgb * 65535
        expected = np.arange(32) * 200 + 50
        shown = rgb if mosaic is across else rgb.swapaxes(0, 1)
        assert shown[1:-1, 1:-1] == pytest.approx(np.broadcast_to(expected[1:-1, None], (30, 30, 3)), abs=0.1)


@pytest.mark.parametrize("pattern", ["RGGB", "BGGR", "GRBG", "GBRG"])
@pytest.mark.parametrize("method", ["bin2", "bilinear", "ahd"])
def test_every_demosaicing_gives_a_flat_field_its_colour(pattern, method):
    colour = {"R": 0.3, "G": 0.7, "B": 0.2}
    mosaic = np.empty((64, 64), dtype=np.uint16)
    for place, letter in enumerate(pattern):
        mosaic[place // 2 :: 2, place % 2 :: 2] = round(1024 + colour[letter] * (16383 - 1024))
    data = phone.write_dng(mosaic, pattern=pattern, black=(1024,) * 4, white=16383)
    linear, _ = read_linear(data, method=method)
    inner = linear.rgb[8:-8, 8:-8].reshape(-1, 3) / linear.full_scale
    assert inner == pytest.approx(np.tile([0.3, 0.7, 0.2], (len(inner), 1)), abs=2e-4)
    assert linear.rgb.dtype == (np.float32 if method == "bin2" else np.uint16)
    assert linear.scale == (2 if method == "bin2" else 1)
    assert not linear.saturated.any()


def test_values_below_black_stay_below_black_where_nothing_is_interpolated():
    mosaic = np.full((64, 64), 1000, dtype=np.uint16)
    linear, _ = read_linear(phone.write_dng(mosaic, black=(1024,) * 4, white=16383))
    assert linear.rgb == pytest.approx(np.full((32, 32, 3), -24 / 15359), abs=1e-7)
    assert as_uint16(linear.rgb).max() == 0


def test_a_real_raw_file_gives_what_rawpy_gives(shared_data):
    path = shared_data / "raw" / "RAW_KODAK_DC50.KDC"
    linear, bayer = read_linear(path.read_bytes())
    with rawpy.imread(str(path)) as raw:
        assert np.array_equal(bayer.mosaic, raw.raw_image_visible)
        letters = "".join("RGBG"[index] for index in raw.raw_pattern.ravel())
        assert (bayer.pattern, bayer.white[0, 0]) == (letters, raw.white_level)
    assert linear.rgb.shape == (256, 384, 3)
    assert bayer.as_shot_neutral is None, "the file says 1, 1, 1: it does not know"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"no raw file", "truncated"),
        (bytes(50_000), "not_raw"),
        (cv2.imencode(".png", np.zeros((32, 32, 3), np.uint8))[1].tobytes(), "not_raw"),
    ],
)
def test_files_that_are_no_raw_files_are_turned_away(data, reason):
    with pytest.raises(Reject) as caught:
        read_bayer(data)
    assert caught.value.reason == reason


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_a_file_that_breaks_off_is_turned_away(share):
    data = phone.write_dng(levels())
    with pytest.raises(Reject) as caught:
        read_bayer(data[: int(len(data) * share)])
    assert caught.value.reason in ("truncated", "corrupt")


def test_a_file_over_the_limit_is_turned_away_by_its_size():
    with pytest.raises(Reject, match="96x64 pixels, limit 6143"):
        read_bayer(phone.write_dng(levels()), max_pixels=6143)


def test_a_file_without_bayer_data_is_turned_away():
    data = phone.write_dng(levels())
    # PhotometricInterpretation, tag 262, from a colour filter array (32803) to linear raw (34892): a grey picture.
    grey = data.replace(b"\x06\x01\x03\x00\x01\x00\x00\x00\x23\x80", b"\x06\x01\x03\x00\x01\x00\x00\x00\x4c\x88")
    assert grey != data
    with pytest.raises(Reject, match="no_bayer"):
        read_bayer(grey)


def test_pictures_are_brought_upright_as_pillow_does():
    from PIL import Image

    picture = np.arange(24, dtype=np.uint8).reshape(4, 6)
    turns = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_270, 8: Image.Transpose.ROTATE_90}
    for orientation, turn in turns.items():
        assert np.array_equal(upright(picture, orientation), np.asarray(Image.fromarray(picture).transpose(turn)))
    assert np.array_equal(upright(picture, 1), picture)


@pytest.mark.parametrize("strip", [1, 3, 64])
def test_a_picture_binned_in_strips_is_that_binned_at_once(monkeypatch, strip):
    bayer = read_bayer(phone.write_dng(levels(12, height=150), bits=12, white=4095, black=(64, 65, 66, 67)))
    monkeypatch.setattr(raw, "_STRIP_ROWS", 1000)
    whole = demosaic(bayer, method="bin2", saturated=0.9)
    monkeypatch.setattr(raw, "_STRIP_ROWS", strip)
    found = demosaic(bayer, method="bin2", saturated=0.9)
    assert np.array_equal(found.rgb, whole.rgb)
    assert np.array_equal(found.saturated, whole.saturated)
