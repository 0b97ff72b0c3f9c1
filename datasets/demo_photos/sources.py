"""Find the photographs and clips inside the installed wheels, and decode them. Nothing is imported from those packages."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import tomllib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

LONGEST_SIDE_PX = 1000
"""Larger pictures are halved until they are no longer than this: the album's photos are 500 pixels wide at most."""


class AlbumError(Exception):
    """The album cannot be made; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One photograph or clip: the columns of ``sources.toml``, which explains them."""

    name: str
    distribution: str
    file: str
    true_class: str
    weight: float
    focus: Sequence[float]
    licence: str
    frames: Sequence[int] | None = None

    def path(self) -> Path:
        """Where the file lies on this machine. Raises ``AlbumError`` with what to install."""
        try:
            distribution = importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            raise AlbumError(
                f"the demo's photo {self.name!r} is inside the package {self.distribution}, "
                "which is not installed: pip install benchwright[demo]"
            ) from None
        path = Path(str(distribution.locate_file(self.file)))
        if not path.is_file():
            raise AlbumError(
                f"{self.distribution} {distribution.version} has no {self.file}: take the version in constraints.txt"
            )
        return path


def sources() -> list[Source]:
    """All sources, in the order of ``sources.toml``."""
    table = tomllib.loads((Path(__file__).parent / "sources.toml").read_text("utf-8"))
    return [Source(**record) for record in table["source"]]


def load(source: Source) -> list[Image.Image]:
    """The photograph as one RGB image, or the frames of a clip in order, first and last included."""
    if source.frames is None:
        with Image.open(source.path()) as image:
            return [_halved(image.convert("RGB"))]
    first, last = source.frames
    return _frames(source.path(), first, last)


def _frames(path: Path, first: int, last: int) -> list[Image.Image]:
    import av

    images: list[Image.Image] = []
    with av.open(str(path)) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index > last:
                break
            if index >= first:
                images.append(_halved(frame.to_image()))
    if len(images) != last - first + 1:
        raise AlbumError(f"{path} has {first + len(images)} frames, and the album needs frame {last}")
    return images


def _halved(image: Image.Image) -> Image.Image:
    while max(image.size) > LONGEST_SIDE_PX:
        image = image.reduce(2)
    return image
