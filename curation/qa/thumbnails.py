"""Images small enough to travel inside a form: JPEG thumbnails as ``data:`` URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping

from ..rows import Blob, Reject

Images = Mapping[str, bytes | Blob]
"""Key -> the bytes of an image file, in memory or referred to."""

_QUALITIES = (85, 75, 60, 45, 30)


def data_uri(images: Images, key: str, *, side_px: int, limit_bytes: int | None = None) -> str:
    """A JPEG thumbnail of image ``key`` whose longer side has at most ``side_px`` pixels; smaller images keep their
    size.

    Args:
        limit_bytes: longest URI allowed. The JPEG quality goes down from 85 to 30 to meet it.

    Raises:
        ValueError: where the image is missing or does not decode, or where the URI is too long even at quality 30.
    """
    from PIL import Image

    from ..stages.images import decode_rgb

    if side_px < 16:
        raise ValueError(f"thumbnail of {side_px} px: nobody could judge it; at least 16 px are needed")
    source = images.get(key)
    if source is None:
        raise ValueError(f"image {key!r}: there are no bytes for it")
    try:
        pixels = decode_rgb(source.read() if isinstance(source, Blob) else source, min_short_side_px=side_px)
    except Reject as reject:
        raise ValueError(f"image {key!r}: {reject.reason} {reject.detail}".rstrip()) from reject
    image = Image.fromarray(pixels)
    image.thumbnail((side_px, side_px), Image.Resampling.LANCZOS)
    size = 0
    for quality in _QUALITIES:
        data = io.BytesIO()
        image.save(data, format="JPEG", quality=quality)
        size = len("data:image/jpeg;base64,") + 4 * ((data.tell() + 2) // 3)
        if limit_bytes is None or size <= limit_bytes:
            return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode("ascii")
    raise ValueError(
        f"image {key!r}: its thumbnail of {side_px} px takes {size:,} bytes; MTurk leaves {limit_bytes:,} beside the "
        f"form (65,535 in all): make the thumbnails smaller, or give URLs"
    )
