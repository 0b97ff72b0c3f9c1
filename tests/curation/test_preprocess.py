"""The fast way from a file to an encoder's input, against the transforms that it replaces."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from benchwright.curation.encoders.preprocess import Crop, normalise, prepare
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.rows import Reject
from PIL import Image

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
PHOTOS = [Path(sklearn.__file__).parent / "datasets" / "images" / name for name in ("china.jpg", "flower.jpg")]


def encoded(pixels: np.ndarray, file_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, file_format, **options)
    return buffer.getvalue()


def photo(height: int = 427, width: int = 640) -> np.ndarray:
    return np.asarray(Image.open(PHOTOS[0]).resize((width, height)))


def by_open_clip(data: bytes, **options: object) -> np.ndarray:
    ensure_torchvision()
    from open_clip import image_transform

    return image_transform(224, is_train=False, mean=MEAN, std=STD, **options)(Image.open(io.BytesIO(data))).numpy()


def levels(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Distance in grey levels, 0 to 255, of two normalised inputs."""
    return np.abs(mine - theirs) * 255 * np.array(STD)[:, None, None]


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_photos_are_within_a_hundredth_of_a_level_of_open_clips_transform(path: Path) -> None:
    data = path.read_bytes()
    apart = levels(normalise([prepare(data, Crop(224, 224))], MEAN, STD)[0].numpy(), by_open_clip(data))
    assert apart.mean() <= 0.01
    assert apart.max() <= 2.01


@pytest.mark.parametrize(("height", "width"), [(300, 401), (401, 300), (224, 224), (225, 227), (120, 91), (90, 1100)])
@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_sizes_and_crops_fall_as_torchvisions_do(height: int, width: int, mode: str) -> None:
    data = encoded(photo(height, width), "PNG")
    mine = normalise([prepare(data, Crop(224, 224, squash=mode == "squash"))], MEAN, STD)[0].numpy()
    # One pixel of shift would be several levels. Where the two sides shrink unequally, Pillow 13 may scale the columns first:
    # what is rounded in between then differs.
    assert levels(mine, by_open_clip(data, resize_mode=mode)).mean() <= (0.02 if mode == "shortest" else 0.25)


def test_resize_above_the_crop_matches_torchvision() -> None:
    ensure_torchvision()
    from torchvision import transforms

    both = transforms.Compose(
        [transforms.Resize(256, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224), transforms.PILToTensor()]
    )
    theirs = both(Image.fromarray(photo())).numpy().astype(int)
    assert np.abs(prepare(photo(), Crop(256, 224)).astype(int) - theirs).mean() <= 0.01


def test_scaled_decode_is_near_and_not_the_default() -> None:
    data = encoded(photo(1800, 2400), "JPEG", quality=92)
    full, scaled = prepare(data, Crop(224, 224)), prepare(data, Crop(224, 224, scaled_decode=True))
    apart = np.abs(full.astype(int) - scaled.astype(int)).mean()
    assert 0 < apart < 1
    assert levels(normalise([full], MEAN, STD)[0].numpy(), by_open_clip(data)).mean() <= 0.01


def test_files_are_turned_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by 90 degrees clockwise for display
    data = encoded(np.rot90(photo()), "PNG", exif=turned.tobytes())
    np.testing.assert_array_equal(prepare(data, Crop(224, 224)), prepare(photo(), Crop(224, 224)))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_other_pixel_types_become_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(photo()).convert(mode).save(buffer, "TIFF" if mode == "CMYK" else "PNG")
    pixels = prepare(buffer.getvalue(), Crop(224, 224))
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == np.uint8
    assert pixels.std() > 20


def test_strips_are_turned_away_before_they_fill_the_memory() -> None:
    with pytest.raises(Reject) as caught:
        prepare(encoded(np.zeros((20_000, 1, 3), np.uint8), "PNG"), Crop(224, 224))
    assert caught.value.reason == "too_elongated"


def test_normalise_matches_totensor_and_normalize() -> None:
    ensure_torchvision()
    from torchvision.transforms import functional

    pixels = prepare(photo(), Crop(224, 224))
    theirs = functional.normalize(torch.from_numpy(pixels).float() / 255, MEAN, STD)
    torch.testing.assert_close(normalise([pixels], MEAN, STD)[0], theirs, rtol=0, atol=2e-6)
