"""Decoding and its checks: every file, however hostile, gives pixels or a reject, and Pillow's word is the reference."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from benchwright.curation.flow import source, step
from benchwright.curation.rows import Blob, Reject
from benchwright.curation.run import run
from benchwright.curation.stages.decode import decode_rgb, read_header
from benchwright.curation.stages.image_format import sniff_extension
from benchwright.curation.stages.images import CheckedImage, StoredImage, check_image
from PIL import Image, ImageFile, ImageOps

FORMS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP")
EXTENSIONS = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "WEBP": "webp", "TIFF": "tif", "BMP": "bmp"}


def scene(width: int = 80, height: int = 60) -> Image.Image:
    """A picture with edges and slopes, different in every corner."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x // 8 + y // 8) % 2 * 200], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def encode(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def check(data: bytes, extension: str = "", **settings: object) -> CheckedImage:
    return check_image(StoredImage("k", extension, Blob(data)), **settings)  # type: ignore[arg-type]


def reason(data: bytes, extension: str = "", **settings: object) -> str:
    with pytest.raises(Reject) as caught:
        check(data, extension, **settings)
    return caught.value.reason


def oriented(data_form: str, orientation: int, image: Image.Image | None = None) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(image or scene(), data_form, exif=exif)


# ---------------------------------------------------------------------------------------------------------- pixels


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "LA", "1", "CMYK", "I;16"])
def test_pixels_are_pillows_in_every_format_and_mode(form: str, mode: str) -> None:
    grey = np.asarray(scene().convert("L")).astype(np.uint16) * 257
    image = Image.fromarray(grey) if mode == "I;16" else scene().convert(mode)
    try:
        data = encode(image, form)
    except (OSError, ValueError):
        pytest.skip(f"{form} has no {mode}")
    with Image.open(io.BytesIO(data)) as opened:
        reference = opened.convert("RGB") if opened.mode != "I;16" else scene().convert("L").convert("RGB")
        stored_mode = opened.mode
    pixels = decode_rgb(data)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, np.asarray(reference))
    checked = check(data, EXTENSIONS[form])
    assert (checked.width, checked.height) == (80, 60)
    assert checked.mode == stored_mode
    assert checked.extension == checked.declared_extension == EXTENSIONS[form]
    assert checked.image.read() == data


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(form: str, orientation: int) -> None:
    data = oriented(form, orientation)
    with Image.open(io.BytesIO(data)) as opened:
        reference = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    np.testing.assert_array_equal(decode_rgb(data), reference)
    checked = check(data)
    assert (checked.height, checked.width) == reference.shape[:2]
    assert checked.height == (80 if orientation >= 5 else 60)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("wanted", [1, 20, 33, 60, 119, 120, 121, 1000])
def test_scaled_decoding_leaves_enough_pixels(orientation: int, wanted: int) -> None:
    data = oriented("JPEG", orientation, scene(160, 120))
    height, width = decode_rgb(data, min_short_side_px=wanted).shape[:2]
    assert min(wanted, 120) <= min(height, width) <= 120
    assert (height > width) == (orientation == 6)
    if wanted <= 33:
        assert min(height, width) < 120
    # The smaller picture shows the same scene, and not a corner of it.
    small = np.asarray(Image.fromarray(decode_rgb(data, min_short_side_px=wanted)).resize((8, 8), Image.Resampling.BOX))
    full = np.asarray(Image.fromarray(decode_rgb(data)).resize((8, 8), Image.Resampling.BOX))
    assert np.abs(small.astype(int) - full).mean() < 8


def test_progressive_and_restart_markers_and_rgb_jpegs() -> None:
    for options in ({"progressive": True}, {"restart_marker_blocks": 3}, {"keep_rgb": True}, {"subsampling": 0}):
        data = encode(scene(), "JPEG", **options)
        with Image.open(io.BytesIO(data)) as opened:
            np.testing.assert_array_equal(decode_rgb(data), np.asarray(opened.convert("RGB")))


# ---------------------------------------------------------------------------------------------------------- rejects


def test_files_that_are_nothing() -> None:
    assert reason(b"") == "empty_file"
    for data in (b"\0", b"<html>", b"BM is how this text begins, and it goes on", b"GIF", b"RIFF\0\0\0\0WAVE", bytes(1000)):
        assert reason(data) == "not_an_image"
    for data, name in ((b"\0\0\0\x18ftypheic" + bytes(99), "heic"), (b"\0\0\0\x18ftypavif" + bytes(99), "avif")):
        assert sniff_extension(data) == name
        assert reason(data) == "unsupported_format"
    assert reason(b"8BPS\0\1" + bytes(99)) == "unsupported_format"
    # Formats of Pillow's that start other programs are not opened at all.
    assert reason(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n") == "not_an_image"


@pytest.mark.parametrize("form", FORMS)
def test_truncated_files_are_told_at_every_length(form: str) -> None:
    data = encode(scene(), form)
    reasons = set()
    for length in {1, 5, 30, len(data) // 3, len(data) // 2, len(data) * 9 // 10}:
        try:
            check(data[:length])
        except Reject as reject:
            reasons.add(reject.reason)
        else:
            pytest.fail(f"{form} cut at {length} of {len(data)} bytes passed")
    assert reasons <= {"truncated", "corrupt", "not_an_image"}
    assert reason(data[: len(data) // 2]) in ("truncated", "corrupt")


@pytest.mark.parametrize("progressive", [False, True])
def test_jpegs_that_lack_their_last_bytes_are_truncated(progressive: bool) -> None:
    data = encode(scene(), "JPEG", progressive=progressive)
    for cut in (1, 2, 3, 10, len(data) // 2):
        assert reason(data[:-cut]) == "truncated"
        with pytest.raises(Reject, match="truncated"):
            decode_rgb(data[:-cut])
        with pytest.raises(Reject, match="truncated"):
            decode_rgb(data[:-cut], min_short_side_px=20)


def test_bytes_after_a_picture_and_harmless_warnings_do_no_harm() -> None:
    data = encode(scene(), "JPEG")
    for odd in (
        data + b"a thumbnail or an advertisement" * 9,
        data[:-2] + b"\xff\xff" + data[-2:],
        data[:2] + b"\xff" + data[2:],
    ):
        np.testing.assert_array_equal(decode_rgb(odd), decode_rgb(data))
        assert check(odd).width == 80


@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_damaged_scan_data_are_corrupt(mode: str) -> None:
    whole = encode(scene(400, 300).convert(mode), "JPEG", quality=95)
    start = whole.index(b"\xff\xda") + 200
    for damage in (b"\xff\xd9" * 20, bytes(400)):  # an end in the middle; a block that a disk lost
        data = whole[:start] + damage + whole[start + len(damage) :]
        assert reason(data) in ("truncated", "corrupt")
        with pytest.raises(Reject, match=r"truncated|corrupt"):
            decode_rgb(data)


def test_a_subsampling_that_is_not_known_is_not_called_damage() -> None:
    data = bytearray(encode(scene(), "JPEG"))
    data[data.index(b"\xff\xc0") + 11] = 0x14
    assert reason(bytes(data)) == "unsupported_format"


def png_of_size(width: int, height: int) -> bytes:
    """A PNG that announces any size and holds a line."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(30_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def jpeg_of_size(width: int, height: int) -> bytes:
    data = bytearray(encode(scene(), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def test_bombs_are_refused_by_their_headers() -> None:
    gif = bytearray(encode(scene(), "GIF"))
    gif[6:10] = struct.pack("<HH", 60000, 60000)
    bmp = bytearray(encode(scene(), "BMP"))
    bmp[18:26] = struct.pack("<ii", 40000, 40000)
    for data in (png_of_size(50_000, 50_000), jpeg_of_size(65_000, 65_000), bytes(gif), bytes(bmp)):
        assert reason(data) == "too_many_pixels"
        with pytest.raises(Reject, match="too_many_pixels"):
            decode_rgb(data)
    whole = encode(scene(), "PNG")
    assert check(whole, max_pixels=80 * 60).width == 80
    assert reason(whole, max_pixels=80 * 60 - 1) == "too_many_pixels"
    with pytest.raises(ValueError, match="max_pixels=0"):
        check(whole, max_pixels=0)
    with pytest.raises(ValueError, match="Pillow's own limit"):
        check(whole, max_pixels=10**9)


def test_a_jpeg_of_thousands_of_scans_is_refused() -> None:
    data = encode(scene(), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    bomb = data[:last] + data[last:-2] * 2000 + data[-2:]
    assert len(bomb) < 2_000_000
    assert reason(bomb) == "too_many_scans"


def test_sizes_and_aspects() -> None:
    data = encode(scene(200, 100), "JPEG")
    assert check(data, min_edge_px=100, max_aspect=2.0).width == 200
    assert reason(data, min_edge_px=101) == "too_small"
    assert reason(data, max_aspect=1.99) == "aspect"
    assert reason(oriented("JPEG", 6, scene(200, 100)), max_aspect=1.99) == "aspect"


def test_the_length_of_a_file_is_limited_both_ways() -> None:
    data = encode(scene(), "PNG")
    check(data, min_bytes=len(data), max_bytes=len(data))
    assert reason(data, min_bytes=len(data) + 1) == "too_small_file"
    assert reason(data, max_bytes=len(data) - 1) == "too_large"
    assert reason(b"", min_bytes=10) == "empty_file"


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP"])
def test_animations(form: str) -> None:
    frames = [scene(), scene().transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    data = encode(frames[0], form, save_all=True, append_images=frames[1:], duration=50, lossless=True)
    assert reason(data) == "animated"
    assert check(data, allow_animated=True).width == 80
    with Image.open(io.BytesIO(data)) as opened:
        np.testing.assert_array_equal(decode_rgb(data), np.asarray(opened.convert("RGB")))


def test_pages_of_a_tiff_and_pictures_of_an_mpo_are_no_animation() -> None:
    for form in ("TIFF", "MPO"):
        data = encode(scene(), form, save_all=True, append_images=[scene()])
        assert check(data).extension == {"TIFF": "tif", "MPO": "jpg"}[form]


def test_mislabelled_files_get_their_true_extension() -> None:
    data = encode(scene(), "PNG")
    checked = check(data, ".JPEG")
    assert (checked.extension, checked.declared_extension) == ("png", "jpg")
    assert reason(data, "jpg", allow_mislabelled=False) == "mislabelled"
    for extension in ("png", "PNG", ""):
        assert check(data, extension, allow_mislabelled=False).extension == "png"
    assert check(encode(scene(), "JPEG"), "jpeg", allow_mislabelled=False).declared_extension == "jpg"


def test_pixels_without_a_known_range_are_refused() -> None:
    for mode in ("I", "F"):
        data = encode(scene().convert("L").convert(mode), "TIFF")
        assert reason(data) == "unsupported_format"
        with pytest.raises(Reject, match="unsupported_format"):
            decode_rgb(data)


# ---------------------------------------------------------------------------------------------------------- hostile files


def hostile(seed: int) -> Iterator[tuple[str, bytes]]:
    """Files of every format, cut, flipped, blanked, swapped and grown."""
    rng = random.Random(seed)
    images = [scene(), scene().convert("L"), scene().convert("P"), scene().convert("RGBA"), scene().convert("CMYK")]
    wholes = []
    for form in FORMS:
        for image in images:
            try:
                wholes.append(encode(image, form, **({"progressive": rng.random() < 0.5} if form == "JPEG" else {})))
            except (OSError, ValueError):  # the format has no such pixels
                continue
    wholes += [oriented(form, 6) for form in ("JPEG", "PNG", "WEBP", "TIFF")]
    wholes += [encode(scene(), "TIFF", compression=name) for name in ("tiff_lzw", "tiff_deflate", "packbits", "jpeg")]
    wholes += [encode(scene(), "GIF", save_all=True, append_images=[scene().rotate(90)], duration=9)]
    for whole in wholes:
        for kind in ("cut", "flip", "flips", "blank", "swap", "grow", "head"):
            data = bytearray(whole)
            at = rng.randrange(len(data))
            if kind == "cut":
                data = data[:at]
            elif kind == "flip":
                data[at] ^= 1 << rng.randrange(8)
            elif kind == "flips":
                for _ in range(20):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            elif kind == "blank":
                data[at : at + 40] = bytes(len(data[at : at + 40]))
            elif kind == "swap":
                data = data[at:] + data[:at] if at % 2 else data[:8] + data[at:]
            elif kind == "grow":
                data[at:at] = rng.randbytes(50)
            else:  # the headers, where sizes and offsets stand
                data[rng.randrange(min(64, len(data)))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            yield kind, bytes(data)


@pytest.mark.parametrize("seed", range(6))
def test_hostile_files_give_a_row_or_a_reject_and_nothing_else(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = {"row": 0, "reject": 0}
        for kind, data in hostile(seed):
            try:
                checked = check(data, allow_animated=True, max_pixels=20_000_000)
            except Reject:
                outcomes["reject"] += 1
                continue
            outcomes["row"] += 1
            # What passed the check decodes, in full and scaled, to the size that the check told.
            pixels = decode_rgb(data, max_pixels=20_000_000)
            assert pixels.shape == (checked.height, checked.width, 3), kind
            decode_rgb(data, min_short_side_px=16, max_pixels=20_000_000)
    assert min(outcomes.values()) > 20


def test_nothing_of_pillow_is_left_changed() -> None:
    before = (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters))
    files = [data for _, data in hostile(99)][:60]

    def outcome(data: bytes) -> str:
        try:
            return f"{decode_rgb(data, max_pixels=20_000_000).sum()}"
        except Reject as reject:
            return reject.reason

    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(outcome, files))
    assert threaded == [outcome(data) for data in files]
    assert (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters)) == before


def test_warnings_of_pillow_are_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    large = encode(Image.new("1", (9500, 9500)), "PNG")  # above Pillow's limit for a warning, below ours
    assert decode_rgb(large).shape == (9500, 9500, 3)
    palette = scene().convert("P")
    palette.info["transparency"] = bytes(range(256))
    assert check(encode(palette, "PNG", transparency=bytes(range(200)))).mode == "P"
    decode_rgb(encode(palette, "PNG", transparency=bytes(range(200))))
    assert not recwarn.list


def test_errors_that_pillow_logs_are_not_printed(tmp_path: Path) -> None:
    data = encode(scene(), "TIFF").replace(struct.pack("<HHIH", 277, 3, 1, 3), struct.pack("<HHIH", 277, 3, 1, 48))
    (tmp_path / "a.tif").write_bytes(data)
    code = "import sys; from benchwright.curation.stages.decode import decode_rgb; decode_rgb(open(sys.argv[1], 'rb').read())"
    done = subprocess.run([sys.executable, "-P", "-c", code, tmp_path / "a.tif"], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("benchwright.curation.rows.Reject: corrupt")
    assert "More samples per pixel" not in done.stderr


def test_header_and_scaled_check_agree_with_a_full_decode(shared_data: Path) -> None:
    files = sorted((shared_data / "photos" / "imagenet_samples").glob("*.jpg"))[:60]
    for file in files:
        data = file.read_bytes()
        header = read_header(data)
        height, width = simplejpeg.decode_jpeg(data, strict=False).shape[:2]
        assert {header.width, header.height} == {width, height}
        assert check(data, "jpg").mode in ("RGB", "L", "CMYK")


# ---------------------------------------------------------------------------------------------------------- the engine


def list_images(*, count: int) -> Iterator[StoredImage]:
    """Small pictures of which one in twenty is broken, each in one of several ways."""
    whole = encode(scene(), "JPEG")
    broken = [b"", whole[:-30], b"<html>", encode(scene(), "GIF", save_all=True, append_images=[scene().rotate(9)])]
    for n in range(count):
        yield StoredImage(f"{n:05}", "jpg", Blob(broken[n // 20 % len(broken)] if n % 20 == 7 else whole))


def test_a_run_accounts_for_one_broken_image_in_twenty(tmp_path: Path) -> None:
    flow = source("listed", step(list_images, count=800)).each("checked", step(check_image), max_rejects=0.05)
    result = run(flow, str(tmp_path), scheduler="threads", workers=2).artifacts[-1]
    assert result.rows == 760
    assert result.rejects == {"animated": 10, "empty_file": 10, "not_an_image": 10, "truncated": 10}
