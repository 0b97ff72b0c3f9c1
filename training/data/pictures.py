"""Pictures as examples, with one label or a set of labels each: cropped and flipped for training, centred for evaluation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.encoders.preprocess import Crop, normalise, prepare
from ...curation.rng import uniform
from ...curation.stages.image_format import PILLOW_NAMES
from ...curation.ustar import ShardError
from ...datasets.reader.dataset import ShardDataset
from ...datasets.reader.decode import decode_image
from ...datasets.reader.index import DatasetIndex
from .examples import Draw, Labels, RowNumbers

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class PictureView:
    """How a picture is looked at.

    Attributes:
        side_px: side of the square input.
        resize_px: length to which the shorter side is scaled (bilinear) before the centre is cut out.
        augment: "crop_flip": that square, with ``pad_px`` black pixels around it, cut again and mirrored or not (CIFAR).
            "resized_crop_flip": 8 to 100 % of the picture at an aspect of 3/4 to 4/3, scaled to the square, mirrored or not
            (ImageNet). "none".
        mean, std: of red, green, blue, where white is 1.
        pad_px: see above.
    """

    side_px: int
    resize_px: int
    augment: Literal["crop_flip", "resized_crop_flip", "none"]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    pad_px: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.side_px <= self.resize_px or self.pad_px < 0:
            raise ValueError(f"side {self.side_px} px of {self.resize_px} px, padding {self.pad_px} px: 1 <= side <= resize")
        if self.augment not in ("crop_flip", "resized_crop_flip", "none"):
            raise ValueError(f"augment {self.augment!r}: 'crop_flip', 'resized_crop_flip' or 'none'")


def picture_view(values: Mapping[str, Any]) -> PictureView:
    """The view of a table of JSON values.

    Raises:
        ValueError: a value is out of range, missing or unknown.
    """
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        return PictureView(**given)
    except TypeError as error:
        raise ValueError(f"view {dict(values)}: {error}") from None


ReadPictures = Callable[[Sequence[int]], list[Pixels]]
"""Pictures of some rows of a store, uint8 RGB (height, width, 3) each."""


def shard_pictures(index: DatasetIndex) -> ReadPictures:
    """Pictures in shards: each sample has one member that is one.

    Reading raises ``ShardError`` for a sample without a picture, or with one that cannot be decoded.
    """
    dataset = ShardDataset(index, decode=dict.fromkeys(PILLOW_NAMES, decode_image))

    def read(rows: Sequence[int]) -> list[Pixels]:
        found: list[Pixels] = []
        for sample in dataset.__getitems__(rows):
            picture = next((value for name, value in sample.items() if name in PILLOW_NAMES), None)
            if picture is None:
                names = sorted(name for name in sample if name != "__key__")
                raise ShardError(f"{index.url}: sample {sample['__key__']!r} has no picture: its members are {names}")
            found.append(picture)
        return found

    return read


HELD_BYTES = 1 << 31
"""Room for squares that are kept: all of CIFAR or Tiny-ImageNet."""


class PictureCache:
    """Pictures looked at in one way.

    The first squares that evaluation cuts out are kept, up to ``held_bytes``: small pictures are decoded once in a process.
    """

    def __init__(self, read: ReadPictures, view: PictureView, *, held_bytes: int = HELD_BYTES) -> None:
        self.read, self.view = read, view
        self._held: dict[int, Pixels] = {}
        self._room = held_bytes // (3 * view.side_px**2)

    def squares(self, rows: Sequence[int]) -> list[Pixels]:
        """(3, side, side) uint8 each: the shorter side scaled, the centre cut out."""
        made: dict[int, Pixels] = {}
        if missing := [row for row in dict.fromkeys(rows) if row not in self._held]:
            crop = Crop(resize_px=self.view.resize_px, side_px=self.view.side_px, interpolation="bilinear")
            pictures = self.read(missing)
            made = {row: prepare(picture, crop) for row, picture in zip(missing, pictures, strict=True)}
            self._held |= dict(itertools.islice(made.items(), max(self._room - len(self._held), 0)))
        return [made[row] if row in made else self._held[row] for row in rows]


class PictureExamples:
    """Pictures as ``examples.Examples``; one picture may stand in several of them, under other labels.

    Args:
        album: the pictures.
        keys: of all rows of the store, unique.
        rows: (n,) which of them these are.
        labels: (n,) class indices, or (n, k) sets of them: -1 where a set has fewer than k, the first never -1.
    """

    def __init__(self, album: PictureCache, keys: Sequence[str], rows: RowNumbers, labels: Labels) -> None:
        if len(rows) != len(labels):
            raise ValueError(f"{len(rows)} pictures and labels {labels.shape}: one n is needed")
        self._album, self._all_keys, self._rows = album, keys, np.asarray(rows, dtype=np.int64)
        places: list[int] = self._rows.tolist()
        self.keys: list[str] = [keys[row] for row in places]
        self.labels = np.asarray(labels, dtype=np.int64)

    @property
    def sizes(self) -> RowNumbers:
        """1 each."""
        return np.ones(len(self.labels), dtype=np.int64)

    def take(self, rows: RowNumbers) -> PictureExamples:
        """See ``Examples``."""
        return PictureExamples(self._album, self._all_keys, self._rows[rows], self.labels[rows])

    def load(self, rows: Sequence[int], draw: Draw | None) -> Tensor:
        """(len(rows), 3, side, side) float32: augmented as the view says, or the centre where ``draw`` is None."""
        view, at = self._album.view, self._rows[np.asarray(rows, dtype=np.int64)].tolist()
        keys = [self.keys[row] for row in rows]
        if draw is None or view.augment == "none":
            seen = self._album.squares(at)
        elif view.augment == "crop_flip":
            seen = _cropped(self._album.squares(at), view, keys, draw)
        else:
            seen = _resized_crops(self._album.read(at), view, keys, draw)
        return normalise(seen, view.mean, view.std)


def _numbers(draw: Draw, what: str, keys: Sequence[str]) -> NDArray[np.float64]:
    """One number in [0, 1) a picture."""
    return uniform(draw.seed, f"picture {what}", [f"{draw.stage}\0{key}" for key in keys])


def _cropped(squares: Sequence[Pixels], view: PictureView, keys: Sequence[str], draw: Draw) -> list[Pixels]:
    side, pad = view.side_px, view.pad_px
    down, across = ((_numbers(draw, way, keys) * (2 * pad + 1)).astype(int) for way in ("down", "across"))
    mirrored = _numbers(draw, "flip", keys) < 0.5
    made: list[Pixels] = []
    for square, y, x, flip in zip(squares, down.tolist(), across.tolist(), mirrored.tolist(), strict=True):
        padded = np.zeros((3, side + 2 * pad, side + 2 * pad), dtype=np.uint8)
        padded[:, pad : pad + side, pad : pad + side] = square
        cut = padded[:, y : y + side, x : x + side]
        made.append(cut[:, :, ::-1] if flip else cut)
    return made


def _resized_crops(pictures: Sequence[Pixels], view: PictureView, keys: Sequence[str], draw: Draw) -> list[Pixels]:
    area, ratio, down, across, flip = (
        _numbers(draw, what, keys).tolist() for what in ("area", "ratio", "down", "across", "flip")
    )
    made: list[Pixels] = []
    for number, picture in enumerate(pictures):
        height, width = crop_size(picture.shape[0], picture.shape[1], area[number], ratio[number])
        top = int(down[number] * (picture.shape[0] - height + 1))
        left = int(across[number] * (picture.shape[1] - width + 1))
        cut = torch.from_numpy(np.ascontiguousarray(picture[top : top + height, left : left + width])).permute(2, 0, 1)[None]
        side = (view.side_px, view.side_px)
        scaled = torch.nn.functional.interpolate(cut, size=side, mode="bilinear", align_corners=False, antialias=True)[0]
        made.append(scaled.numpy()[:, :, ::-1] if flip[number] < 0.5 else scaled.numpy())
    return made


def crop_size(height: int, width: int, area: float, ratio: float) -> tuple[int, int]:
    """(height, width) in pixels of a crop of 8 to 100 % of the picture at an aspect of 3/4 to 4/3, log-uniform.

    A crop that does not fit is cut down to the picture; torchvision draws up to ten times and then takes the centre.

    Args:
        area, ratio: numbers in [0, 1) that choose.
    """
    share = 0.08 + 0.92 * area
    aspect = math.exp(math.log(3 / 4) + ratio * math.log((4 / 3) / (3 / 4)))
    wanted_width, wanted_height = math.sqrt(share * height * width * aspect), math.sqrt(share * height * width / aspect)
    return min(max(round(wanted_height), 1), height), min(max(round(wanted_width), 1), width)
