"""Pictures as examples, with one label or a set of labels each: random crops for training, the centre for evaluation."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.encoders.one_thread import one_thread
from ...curation.encoders.preprocess import Crop, cut_centre, cut_window, normalise, prepare, scaled
from ...curation.registry import check_arguments, check_values
from ...curation.rng import uniform
from ...curation.rows import Reject
from ...curation.stages.image_format import PILLOW_NAMES
from ...curation.ustar import ShardError
from ...datasets.reader.dataset import ShardDataset
from ...datasets.reader.decode import decode_image
from ...datasets.reader.index import DatasetIndex
from .examples import Draw, Labels, RowNumbers

Pixels = NDArray[np.uint8]


Augment = Literal["crop_flip", "window_flip", "resized_crop_flip", "none"]
Resize = Literal["as_released", "as_written"]

_LARGEST_PX = 4096


@dataclass(frozen=True)
class PictureView:
    """How a picture is scaled, cropped and augmented.

    Attributes:
        side_px: side of the square input.
        resize_px: length to which a side of the picture is scaled (bilinear) before the centre crop.
        augment: "crop_flip": a random crop of the centre square, padded with ``pad_px`` black pixels (CIFAR). "window_flip": a
            random square of the scaled picture (CLEAR). "resized_crop_flip": 8 to 100 % of the picture's area at an aspect
            ratio of 3/4 to 4/3, scaled to the square (ImageNet). Each is mirrored with probability 1/2. "none".
        mean, std: mean and standard deviation of red, green, blue, where white is 1.
        pad_px: see above.
        resize: the side that is scaled: "as_released": the shorter side, as in torchvision's Resize. "as_written": the longer
            one, as in CLEAR's paper; the rest of the square is black.
        scaled_decode: large JPEGs are decoded at a smaller scale, with sides at least twice ``resize_px``: up to four times as
            fast, and 0.3 grey levels apart.
    """

    side_px: int
    resize_px: int
    augment: Augment
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    pad_px: int = 4
    resize: Resize = "as_released"
    scaled_decode: bool = False

    def __post_init__(self) -> None:
        check_values(PictureView, vars(self))
        sizes = {"side_px": self.side_px, "resize_px": self.resize_px, "pad_px": self.pad_px}
        if strange := [name for name, size in sizes.items() if not 0 <= size <= _LARGEST_PX]:
            raise ValueError(f"{strange[0]} = {sizes[strange[0]]}: a number of pixels, {_LARGEST_PX} at most")
        least = 1 if self.resize == "as_written" else self.side_px
        if self.side_px < 1 or self.resize_px < least:
            raise ValueError(f"side {self.side_px} px of {self.resize_px} px, padding {self.pad_px} px: 1 <= side <= resize")
        if not min(self.std) > 0:
            raise ValueError(f"std {self.std}: above 0")
        if self.scaled_decode and self.augment == "resized_crop_flip":
            raise ValueError("scaled_decode is not for augment 'resized_crop_flip', which scales small parts of a picture up")
        if self.resize == "as_written" and self.augment in ("crop_flip", "resized_crop_flip"):
            raise ValueError(f"resize 'as_written' with augment {self.augment!r}: it works only with 'window_flip' and 'none'")


def picture_view(values: Mapping[str, Any]) -> PictureView:
    """Return the view for a table of JSON values.

    Raises:
        ValueError: a value is out of range, missing or unknown.
    """
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    check_arguments(PictureView, given)
    return PictureView(**given)


ReadPictures = Callable[[Sequence[int]], list[Pixels]]
"""``read(rows)``: pictures of some rows of a store, uint8 RGB (height, width, 3) each."""


def shard_pictures(index: DatasetIndex, *, min_side_px: int = 0) -> ReadPictures:
    """Return a reader for pictures in shards, where each sample has one picture.

    Reading raises ``ShardError`` for a sample without a picture, or with one that cannot be decoded.

    Args:
        index: the samples.
        min_side_px: minimum side for scaled decoding of JPEGs, see ``decode_image``.
    """
    decode = functools.partial(decode_image, min_side_px=min_side_px)
    dataset = ShardDataset(index, decode=dict.fromkeys(PILLOW_NAMES, decode))

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


def album_of(index: DatasetIndex, view: PictureView) -> PictureCache:
    """The pictures of a dataset in one view."""
    return PictureCache(shard_pictures(index, min_side_px=2 * view.resize_px if view.scaled_decode else 0), view)


HELD_BYTES = 1 << 31
"""Size of the cache: enough for all of CIFAR or Tiny-ImageNet."""


class PictureCache:
    """Pictures in one view, with a cache.

    Pictures are cached before they are cropped at random, the first ones up to ``held_bytes`` in total, so that small pictures
    are decoded once per process. Thread-safe.
    """

    def __init__(self, read: ReadPictures, view: PictureView, *, held_bytes: int = HELD_BYTES) -> None:
        self.read, self.view = read, view
        self._held: dict[tuple[str, int], Pixels] = {}
        self._room = held_bytes
        self._lock = threading.Lock()

    def squares(self, rows: Sequence[int]) -> list[Pixels]:
        """(3, side, side) uint8 each: scaled, and cropped to the centre."""
        view = self.view
        if view.augment == "window_flip" or view.resize == "as_written":  # cropped from the same pictures as in training
            return [cut_centre(whole, view.side_px) for whole in self.scaled(rows)]
        crop = Crop(resize_px=view.resize_px, side_px=view.side_px, interpolation="bilinear")
        return self._kept("square", rows, lambda picture: prepare(picture, crop))

    def scaled(self, rows: Sequence[int]) -> list[Pixels]:
        """(3, h, w) uint8 each: the whole picture, scaled according to ``PictureView.resize``."""
        edge = "shorter" if self.view.resize == "as_released" else "longer"
        return self._kept("scaled", rows, lambda picture: scaled(picture, self.view.resize_px, edge=edge))

    def stored(self, rows: Sequence[int]) -> list[Pixels]:
        """(h, w, 3) uint8 each: as decoded."""
        return self._kept("stored", rows, lambda picture: picture)

    def _kept(self, what: str, rows: Sequence[int], make: Callable[[Pixels], Pixels]) -> list[Pixels]:
        found = {row: self._held[what, row] for row in rows if (what, row) in self._held}
        if missing := [row for row in dict.fromkeys(rows) if row not in found]:
            for row, picture in zip(missing, self.read(missing), strict=True):
                try:
                    found[row] = make(picture)
                except Reject as error:
                    raise ShardError(f"row {row} of the index: the picture cannot be used for training: {error}") from None
            with self._lock:
                for row in missing:
                    if (what, row) not in self._held and found[row].nbytes <= self._room:
                        self._held[what, row] = found[row]
                        self._room -= found[row].nbytes
        return [found[row] for row in rows]


class PictureExamples:
    """Pictures as ``examples.Examples``; a picture may be in several of them, with different labels.

    Args:
        album: the pictures.
        keys: unique keys of all rows of the store.
        rows: (n,) row numbers in the store.
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
        """(len(rows), 3, side, side) float32: augmented according to the view, or the centre if ``draw`` is None."""
        with one_thread():  # for threads that load batches ahead: several run at once
            return self._load(rows, draw)

    def _load(self, rows: Sequence[int], draw: Draw | None) -> Tensor:
        view, at = self._album.view, self._rows[np.asarray(rows, dtype=np.int64)].tolist()
        keys = [self.keys[row] for row in rows]
        if draw is None or view.augment == "none":
            seen = self._album.squares(at)
        elif view.augment == "crop_flip":
            seen = _cropped(self._album.squares(at), view, keys, draw)
        elif view.augment == "window_flip":
            seen = _windows(self._album.scaled(at), view, keys, draw)
        else:
            seen = _resized_crops(self._album.stored(at), view, keys, draw)
        return normalise(seen, view.mean, view.std)


def _numbers(draw: Draw, what: str, keys: Sequence[str]) -> NDArray[np.float64]:
    """One number in [0, 1) per picture."""
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


def _windows(pictures: Sequence[Pixels], view: PictureView, keys: Sequence[str], draw: Draw) -> list[Pixels]:
    down, across, flip = (_numbers(draw, what, keys).tolist() for what in ("down", "across", "flip"))
    cuts = (cut_window(one, view.side_px, y, x) for one, y, x in zip(pictures, down, across, strict=True))
    return [cut[:, :, ::-1] if number < 0.5 else cut for cut, number in zip(cuts, flip, strict=True)]


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
        area, ratio: numbers in [0, 1) that determine area and aspect ratio.
    """
    share = 0.08 + 0.92 * area
    aspect = math.exp(math.log(3 / 4) + ratio * math.log((4 / 3) / (3 / 4)))
    wanted_width, wanted_height = math.sqrt(share * height * width * aspect), math.sqrt(share * height * width / aspect)
    return min(max(round(wanted_height), 1), height), min(max(round(wanted_width), 1), width)
