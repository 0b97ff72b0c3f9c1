"""Batches of samples of different sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from PIL import Image

from ...curation.stages.image_format import PILLOW_NAMES


def picture(sample: Mapping[str, Any]) -> Any:
    """The only picture of a sample, in any format: the value of ``jpg``, ``png``, ``webp``, ...

    Raises:
        ValueError: the sample has no picture, or several.

    >>> picture({"__key__": "a", "png": "pixels", "label": 3})
    'pixels'
    """
    found = [name for name in sample if name in PILLOW_NAMES]
    if len(found) != 1:
        raise ValueError(f"sample {sample.get('__key__')!r} has {len(found)} pictures, {found}: expected one")
    return sample[found[0]]


@dataclasses.dataclass(frozen=True)
class Collate:
    """Combines samples into a batch: ``DataLoader(..., collate_fn=Collate())``, ``dataset.loader(collate_fn=Collate())``.

    A batch has the same names as its samples. Arrays of equal shape are stacked, numbers become an array, and everything else
    becomes a list: texts, bytes, arrays of different shapes, and values missing in some samples, as None. Pictures, arrays
    (height, width, 3) of uint8, can be resized or padded to one size.

    Args:
        pictures: "list": unchanged; "pad": padded with zeros, at the right and below, to the largest height and width of the
            batch; (height, width): resized bilinearly, with antialiasing.
        tensors: return torch tensors; otherwise numpy arrays, for jax, TensorFlow and others.

    Raises:
        ValueError: ``pictures`` is none of these.

    >>> small, large = np.zeros((2, 3, 3), np.uint8), np.ones((4, 2, 3), np.uint8)
    >>> samples = [{"__key__": "a", "png": small, "label": 1}, {"__key__": "b", "png": large, "label": 0}]
    >>> batch = Collate()(samples)
    >>> batch["label"], [each.shape for each in batch["png"]]
    (tensor([1, 0]), [torch.Size([2, 3, 3]), torch.Size([4, 2, 3])])
    >>> Collate("pad")(samples)["png"].shape, Collate((8, 8), tensors=False)(samples)["png"].shape
    (torch.Size([2, 4, 3, 3]), (2, 8, 8, 3))
    """

    pictures: Literal["list", "pad"] | tuple[int, int] = "list"
    tensors: bool = True

    def __post_init__(self) -> None:
        size = self.pictures if isinstance(self.pictures, tuple) else (1, 1) if self.pictures in ("list", "pad") else ()
        if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
            raise ValueError(f"pictures is {self.pictures!r}: expected 'list', 'pad' or (height, width) in pixels")

    def __call__(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        names = dict.fromkeys(name for sample in samples for name in sample)
        return {name: self._together([sample.get(name) for sample in samples]) for name in names}

    def _together(self, values: list[Any]) -> Any:
        if self.pictures != "list" and all(_is_picture(value) for value in values):
            values = self._of_one_size(values)
        if all(isinstance(value, np.ndarray) for value in values):
            if len({(value.shape, value.dtype) for value in values}) == 1:
                return self._given(np.stack(values))
            return [self._given(value) for value in values]
        if all(isinstance(value, bool | int | float | np.number) for value in values):
            return self._given(np.array(values))
        return values

    def _of_one_size(self, values: list[np.ndarray]) -> list[np.ndarray]:
        if isinstance(self.pictures, tuple):
            height, width = self.pictures
            return [np.asarray(Image.fromarray(value).resize((width, height), Image.Resampling.BILINEAR)) for value in values]
        height, width = (max(value.shape[axis] for value in values) for axis in (0, 1))
        return [np.pad(value, ((0, height - len(value)), (0, width - value.shape[1]), (0, 0))) for value in values]

    def _given(self, array: np.ndarray) -> Any:
        if not self.tensors or array.dtype.kind not in "biuf":
            return array
        import torch  # not needed where numpy arrays are wanted

        return torch.from_numpy(np.ascontiguousarray(array))


def _is_picture(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3
