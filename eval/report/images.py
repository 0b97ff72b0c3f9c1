"""Thumbnails and contact sheets from encoded images."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from PIL import Image, ImageDraw, ImageFont, ImageOps

from ...curation.stages.decode import PILLOW_ERRORS
from ...curation.stages.image_format import PILLOW_NAMES


def thumbnail(image: bytes, side_px: int, *, where: str = "image") -> Image.Image:
    """Upright RGB copy of an encoded image, its longer side ``side_px`` at most. Never scaled up.

    Transparent pixels are shown on mid grey.

    Raises:
        ValueError: the bytes are no image that can be read; ``where`` says which.
    """
    try:
        with Image.open(io.BytesIO(image), formats=[*PILLOW_NAMES.values()]) as opened:
            opened.draft("RGB", (2 * side_px, 2 * side_px))  # a JPEG decodes at the next larger eighth: far less to do
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


def small(image: bytes, side_px: int, *, where: str = "image") -> bytes:
    """JPEG of ``thumbnail``, which a page can hold by the hundred."""
    return encode(thumbnail(image, side_px, where=where), quality=70)


def encode(image: Image.Image, form: Literal["jpeg", "png"] = "jpeg", quality: int = 80) -> bytes:
    """Bytes without metadata: equal pixels give equal bytes, on one version of Pillow."""
    memory = io.BytesIO()
    if form == "jpeg":
        image.save(memory, "JPEG", quality=quality, optimize=True, subsampling="4:2:0")
    else:
        image.save(memory, "PNG", optimize=True)
    return memory.getvalue()


def contact_sheet(
    images: Sequence[bytes],
    captions: Sequence[str],
    *,
    columns: int,
    thumb_px: int,
    form: Literal["jpeg", "png"] = "jpeg",
) -> bytes:
    """One picture of many, row by row, each centred in a square over its caption.

    Args:
        images: encoded images of any size and orientation.
        captions: a line each, cut with an ellipsis where it is too long for its square.
        columns: squares a row; fewer images than that make a narrower sheet.
        thumb_px: side of a square, 16 at least.

    Returns:
        JPEG or PNG bytes, on a white ground.

    Raises:
        ValueError: no image, not one caption an image, an image that cannot be read, or a size that makes no sheet.
    """
    if not images or len(images) != len(captions):
        raise ValueError(f"{len(images)} images with {len(captions)} captions: one each, and at least one")
    if columns < 1 or thumb_px < 16:
        raise ValueError(f"columns {columns}, thumb_px {thumb_px}: at least 1 and 16")
    gap, text_px = max(4, thumb_px // 16), max(9, min(14, thumb_px // 9))
    columns = min(columns, len(images))
    lines = -(-len(images) // columns)
    cell_w, cell_h = thumb_px + gap, thumb_px + text_px + 2 * gap
    sheet = Image.new("RGB", (gap + columns * cell_w, gap + lines * cell_h), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(text_px)
    for at, (data, caption) in enumerate(zip(images, captions, strict=True)):
        left, top = gap + at % columns * cell_w, gap + at // columns * cell_h
        draw.rectangle((left, top, left + thumb_px - 1, top + thumb_px - 1), fill="#eef0f2")
        small = thumbnail(data, thumb_px, where=f"image {at} ({caption})")
        sheet.paste(small, (left + (thumb_px - small.width) // 2, top + (thumb_px - small.height) // 2))
        line = _fitted(" ".join(caption.split()), font, draw, thumb_px)
        draw.text((left, top + thumb_px + gap // 2), line, fill="#24292f", font=font)
    return encode(sheet, form, quality=85)


def _fitted(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, draw: ImageDraw.ImageDraw, width_px: int) -> str:
    if draw.textlength(text, font=font) <= width_px:
        return text
    while text and draw.textlength(text + "…", font=font) > width_px:
        text = text[:-1]
    return text.rstrip() + "…"
