"""Clips as examples: some frames of each clip, with TSN's augmentation for training and a centre crop for evaluation.

The augmentation is that of Wang et al., "Temporal segment networks", ECCV 2016, as set in vCLIMB's released code.

A clip consists of its stored frames. *Narrowing* selects some of them, without changing pixels: those that an episodic memory
keeps, or those of the second view in temporal consistency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.encoders.preprocess import Crop, normalise, prepare
from ...curation.registry import check_values
from ...curation.rng import rng
from ...curation.shards import read_sample
from ...curation.ustar import BLOCK, ShardError, padded
from ...curation.video.frame_plans import dense_frames, memory_frames, segment_frames, uniform_frames
from ...datasets.reader.decode import decode_image
from ...datasets.reader.index import DatasetIndex, ShardFiles
from .examples import Draw, Examples, Labels, RowNumbers

Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class ClipView:
    """How frames of a clip are sampled and cropped.

    Attributes:
        segments: number of frames for the model.
        side_px: side of the square input.
        scales: crop sides for multi-scale cropping, as fractions of the frame's shorter side; the two sides of a crop are at
            most one place apart in this list.
        flip: probability in [0, 1] that a clip is mirrored.
        mean, std: mean and standard deviation of red, green, blue, where white is 1.
        sampling: "segments" (TSN): one frame from each of ``segments`` equal parts, at random in training. "dense": frames
            ``stride`` apart, from a random start in training and in the middle of the clip otherwise.
        stride: stride of dense sampling.
    """

    segments: int
    side_px: int
    scales: tuple[float, ...]
    flip: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    sampling: Literal["segments", "dense"] = "segments"
    stride: int = 1

    def __post_init__(self) -> None:
        check_values(ClipView, vars(self))
        if self.segments < 1 or self.side_px < 1 or not self.scales:
            raise ValueError(f"{self.segments} segments, side {self.side_px} px, scales {self.scales}: at least one each")
        if not all(0 < scale <= 1 for scale in self.scales) or not 0 <= self.flip <= 1:
            raise ValueError(f"scales {self.scales} in (0, 1], flip {self.flip} in [0, 1]")
        if self.stride < 1:
            raise ValueError(f"stride {self.stride}: at least 1")

    def frames(self, n_frames: int, draws: np.random.Generator | None) -> NDArray[np.int64]:
        """(segments,) frame numbers in a clip of ``n_frames``, ascending; without ``draws`` those of evaluation."""
        if self.sampling == "dense":
            return dense_frames(n_frames, self.segments, self.stride, draws)
        return uniform_frames(n_frames, self.segments) if draws is None else segment_frames(n_frames, self.segments, draws)


def evaluation_view(frames: Sequence[Frame], view: ClipView) -> Tensor:
    """Scale the shorter side to 256 / 224 of the input's and crop the centre: (segments, 3, side, side) float32."""
    crop = Crop(resize_px=view.side_px * 256 // 224, side_px=view.side_px, interpolation="bilinear")
    return normalise([prepare(frame, crop) for frame in frames], view.mean, view.std)


def training_view(frames: Sequence[Frame], view: ClipView, draws: np.random.Generator) -> Tensor:
    """One crop and one flip for all frames of a clip, drawn from ``draws``: (segments, 3, side, side) float32."""
    height, width = frames[0].shape[:2]
    left, top, crop_width, crop_height = draw_crop(height, width, view, draws)
    pixels = np.stack([frame[top : top + crop_height, left : left + crop_width] for frame in frames])
    if draws.random() < view.flip:
        pixels = pixels[:, :, ::-1]
    cut = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2)
    side = (view.side_px, view.side_px)
    if cut.shape[2:] != side:
        cut = torch.nn.functional.interpolate(cut, size=side, mode="bilinear", align_corners=False, antialias=True)
    return normalise(list(cut.numpy()), view.mean, view.std)


def draw_crop(height: int, width: int, view: ClipView, draws: np.random.Generator) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a crop, in pixels: TSN's group multi-scale crop.

    Each side is a scale times the shorter side, rounded down, and set to the input's side if within 3 px of it; the two sides
    are at most one place apart in the list of scales. The corner is one of 13 on a grid that divides the remaining room into
    quarters.
    """
    sides = [int(min(height, width) * scale) for scale in view.scales]
    sides = [
        view.side_px if abs(side - view.side_px) < 3 and view.side_px <= min(height, width) else max(side, 1) for side in sides
    ]
    pairs = [(w, h) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= 1]
    crop_width, crop_height = pairs[int(draws.integers(len(pairs)))]
    step_x, step_y = (width - crop_width) // 4, (height - crop_height) // 4
    x, y = _CORNERS[int(draws.integers(len(_CORNERS)))]
    return x * step_x, y * step_y, crop_width, crop_height


# Corners, centre, middles of the sides, and the middles of the four quarters, in quarters of the room.
_CORNERS = (
    *((x, y) for y in (0, 2, 4) for x in (0, 2, 4)),
    *((x, y) for y in (1, 3) for x in (1, 3)),
)


Narrowing = tuple[Literal["uniform", "first", "again"], int | None]
"""uniform: n evenly spaced frames, or all of a clip with at most n. first: a mistake of the released code, the first n frames
of a clip, and a blank for a clip with at most n. again: all frames, drawn a second time."""


ReadFrames = Callable[[int, Sequence[int]], list[Frame]]
"""``read(row, places)``: the frames of a clip at ascending places; uint8 RGB (height, width, 3) each."""


class ShardFrames:
    """Clips in shards: a sample begins with its frames, ``0000.jpg``, ``0001.jpg``, ... Only requested frames are read.

    Args:
        index: has the column ``frame_sizes``, bytes of every frame, which determine the offsets in the sample.
    """

    def __init__(self, index: DatasetIndex) -> None:
        index.check()
        self._files = ShardFiles(index.url)
        columns = index.table.select(["key", "shard", "offset"]).to_pydict()
        self._places: list[tuple[str, str, int]] = list(zip(*columns.values(), strict=True))
        self.counts: RowNumbers = pc.list_value_length(index.table["frame_sizes"]).to_numpy().astype(np.int64)
        self._sizes: RowNumbers = pc.list_flatten(index.table["frame_sizes"]).to_numpy()
        self._ends: RowNumbers = np.cumsum(self.counts)
        self._index = index

    def read(self, row: int, places: Sequence[int]) -> list[Frame]:
        """See ``ReadFrames``.

        Raises:
            ShardError: the sample has fewer frames, a member does not match the index, or a frame cannot be decoded.
        """
        key, shard, offset = self._places[row]
        place, end = self._files.place(shard), int(self._ends[row])
        sizes = self._sizes[end - int(self.counts[row]) : end]
        spans = BLOCK + padded(sizes)
        starts = offset + np.cumsum(spans) - spans
        wanted = sorted(set(places))
        if wanted[-1] >= len(spans):
            raise ShardError(f"{place}: sample {key!r} has {len(spans)} frames, but number {wanted[-1]} is requested")
        ranges = [(shard, int(starts[at]), int(spans[at])) for at in wanted]
        found: dict[int, Frame] = {}
        for at, span in zip(wanted, self._files.read(ranges), strict=True):
            name, data = next(iter(read_sample(span, key, place=place, base=int(starts[at])).items()))
            if len(data) != sizes[at]:
                raise ShardError(f"{place}: member {key}.{name} has {len(data)} bytes, and the index says {sizes[at]}")
            try:
                found[at] = decode_image(data)
            except ValueError as error:
                raise ShardError(f"{place}: member {key}.{name} cannot be decoded: {error}") from error
        return [found[at] for at in places]


class Clips:
    """Clips as ``examples.Examples``.

    Args:
        read: reads frames.
        keys: unique keys of all clips.
        labels: (n,) class indices in the order of learning.
        frames: (n,) number of stored frames of each clip, at least 1.
        view: how frames are sampled and cropped.
        rows: which of the clips are included; all by default.
        narrowings: see ``Narrowing``; applied one after the other.
    """

    def __init__(
        self,
        read: ReadFrames,
        keys: Sequence[str],
        labels: Labels,
        frames: RowNumbers,
        view: ClipView,
        *,
        rows: RowNumbers | None = None,
        narrowings: tuple[Narrowing, ...] = (),
    ) -> None:
        if len(frames) and int(frames.min()) < 1:
            raise ValueError(f"clip {keys[int(frames.argmin())]!r} has {int(frames.min())} frames: at least one is needed")
        self._all = (read, keys, np.asarray(labels, dtype=np.int64), np.asarray(frames, dtype=np.int64), view)
        self._rows = np.arange(len(keys)) if rows is None else rows
        self._narrowings = narrowings
        self.keys = [keys[row] for row in self._rows.tolist()]
        self.labels = self._all[2][self._rows]

    @property
    def sizes(self) -> RowNumbers:
        """Number of frames of each clip, after narrowing."""
        frames = self._all[3][self._rows]
        for kind, n in self._narrowings:
            if kind == "first" and n is not None:
                frames = np.where(frames > n, n, 0)
            elif n is not None:
                frames = np.minimum(frames, n)
        return frames

    def take(self, rows: RowNumbers) -> Clips:
        """See ``Examples``."""
        return Clips(*self._all, rows=self._rows[rows], narrowings=self._narrowings)

    def narrowed(self, how: Narrowing) -> Clips:
        """The same clips with fewer frames, see ``Narrowing``."""
        return Clips(*self._all, rows=self._rows, narrowings=(*self._narrowings, how))

    def places(self, row: int) -> RowNumbers | None:
        """Stored frames of clip ``row`` that remain after narrowing; None for a blank."""
        left = np.arange(int(self._all[3][self._rows[row]]))
        for kind, n in self._narrowings:
            if n is None:
                continue
            if kind == "first":
                if len(left) <= n:
                    return None
                left = left[:n]
            else:
                left = left[memory_frames(len(left), n)]
        return left

    def load(self, rows: Sequence[int], draw: Draw | None) -> Tensor:
        """(len(rows), segments, 3, side, side) float32: TSN's draw of frames, crop and flip, or its evaluation view."""
        return torch.stack([self._clip(row, draw) for row in rows])

    def _clip(self, row: int, draw: Draw | None) -> Tensor:
        read, _, _, _, view = self._all
        left = self.places(row)
        if left is None:
            return torch.zeros(view.segments, 3, view.side_px, view.side_px)
        if draw is None:
            chosen = left[view.frames(len(left), None)]
            return evaluation_view(read(int(self._rows[row]), chosen.tolist()), view)
        # A second view of a clip in one batch must not repeat the draws of the first.
        what = "".join(kind[0] for kind, _ in self._narrowings)
        draws = rng(draw.seed, f"clip {what}", f"{draw.stage}\0{self.keys[row]}")
        chosen = left[view.frames(len(left), draws)]
        return training_view(read(int(self._rows[row]), chosen.tolist()), view, draws)


def shard_clips(index: DatasetIndex, view: ClipView) -> Clips:
    """The clips of a published dataset whose index has the columns ``class_index`` and ``frame_sizes``."""
    columns = index.table
    missing = [name for name in ("class_index", "frame_sizes") if name not in columns.column_names]
    if missing:
        raise ValueError(f"{index.url}: the index has no column {missing[0]!r}: these are not clips for training")
    store = ShardFrames(index)
    return Clips(store.read, columns["key"].to_pylist(), columns["class_index"].to_numpy(), store.counts, view)


def for_memory(examples: Examples, frames: int | None) -> Clips:
    """Clips as a memory stores them: ``frames`` evenly spaced ones of each; all of a shorter clip, or if ``frames`` is None."""
    return _clips(examples).narrowed(("uniform", frames))


def consistent(examples: Examples, frames: int | None, variant: Literal["as_written", "as_released"]) -> Clips:
    """The second view of temporal consistency, x_d (vCLIMB, section 3.2).

    Args:
        frames: n, or None for ALL: a second draw from all frames.
        variant: "as_written": x_d is drawn from the clip's n uniform frames. "as_released": a mistake of the released code:
            indices are drawn for n frames but read from the whole clip, so that x_d is in its first n frames; a clip of at most
            n frames, like all in the memory, becomes a blank that keeps its label.
    """
    if variant not in ("as_written", "as_released"):
        raise ValueError(f"temporal consistency {variant!r}: 'as_written' or 'as_released'")
    if frames is None:
        return _clips(examples).narrowed(("again", None))
    return _clips(examples).narrowed(("uniform" if variant == "as_written" else "first", frames))


def _clips(examples: Examples) -> Clips:
    if not isinstance(examples, Clips):
        raise TypeError(f"{type(examples).__name__} has no frames: clips are needed")
    return examples
