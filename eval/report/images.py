"""Thumbnails and contact sheets from encoded images."""

from __future__ import annotations

import io

from PIL import Image, ImageOps

from ...curation.stages.decode import PILLOW_ERRORS
from ...curation.stages.image_format import PILLOW_NAMES


def thumbnail(image: bytes, side_px: int, *, where: str = "image") -> Image.Image:
    """Upright RGB copy of an encoded image, its longer side at most ``side_px``. Never scaled up.

    Transparent pixels are shown on mid grey.

    Raises:
        ValueError: the bytes cannot be read as an image; the message starts with ``where``.
    """
    try:
        with Image.open(io.BytesIO(image), formats=[*PILLOW_NAMES.values()]) as opened:
            opened.draft("RGB", (2 * side_px, 2 * side_px))  # a JPEG decodes at the next larger eighth: much faster
            upright = ImageOps.exif_transpose(opened)
            if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
                backed = Image.new("RGBA", upright.size, (128, 128, 128, 255))
                backed.alpha_composite(upright.convert("RGBA"))
                upright = backed
            small = upright.convert("RGB")
            small.thumbnail((side_px, side_px), Image.Resampling.BICUBIC)
            return small
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as error:
        raise ValueError(f"{where}: {len(image)} bytes that cannot be shown as an image: {error}") from error


def enlarged(side_px: int) -> int:
    """Longer side of a thumbnail as stored in a page, larger than shown so that enlarging it shows detail."""
    return 3 * side_px // 2


def small(image: bytes, side_px: int, *, where: str = "image") -> bytes:
    """JPEG of ``thumbnail``, small enough for a page to hold hundreds."""
    return encode(thumbnail(image, side_px, where=where), quality=70)


def encode(image: Image.Image, quality: int = 80) -> bytes:
    """JPEG without metadata: equal pixels give equal bytes, on one version of Pillow."""
    memory = io.BytesIO()
    image.save(memory, "JPEG", quality=quality, optimize=True, subsampling="4:2:0")
    return memory.getvalue()
