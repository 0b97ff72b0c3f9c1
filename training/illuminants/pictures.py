"""Input of all estimators: linear images with a mask, checked once, so that none has to handle holes or black pictures; in
memory, or in a file from which they are read block by block."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...curation.records import naming

PictureArrays = NDArray[np.float32]
Illuminants = NDArray[np.float64]
RowNumbers = NDArray[np.int64]

_PIXELS = 1_000_000
"""Pixels that are read at once."""


@dataclasses.dataclass(frozen=True)
class LinearPictures:
    """Checked images; made by ``LinearPictures.of``.

    Attributes:
        images: (n, h, w, 3) float32, linear, >= 0, finite. An unusable pixel has the colour of the nearest usable one, so that
            a mask's outline is not an edge.
        usable: (n, h, w) bool; each image has a usable pixel above 0.
        second: the same views by a second camera, (n, h, w, 3), with the same mask; None if there is one camera.

    >>> view = np.full((2, 2, 3), 0.5)
    >>> view[0, 0] = 1.0  # saturated: filled with the colour of the nearest usable pixel
    >>> pictures = LinearPictures.of(view, saturation=1.0)
    >>> len(pictures), int(pictures.usable.sum()), float(pictures.images.max())
    (1, 3, 0.5)
    """

    images: PictureArrays
    usable: NDArray[np.bool_]
    second: PictureArrays | None = None

    @classmethod
    def of(
        cls,
        images: ArrayLike,
        usable: ArrayLike | None = None,
        *,
        second: ArrayLike | None = None,
        saturation: float | None = None,
    ) -> LinearPictures:
        """Check images, and fill the pixels that are not usable.

        Args:
            images: (n, h, w, 3), or one image (h, w, 3), linear, black level subtracted; values below 0 (noise) become 0.
            usable: (n, h, w) or (h, w) bool, True where a pixel counts; None for all. Hidden pixels may hold anything, NaN too.
            second: images of the second camera, aligned, of the same shape.
            saturation: pixels with a channel at or above this value, in either camera, are not usable.

        Raises:
            ValueError: a shape is wrong; or an image, named by its number, has no usable pixel, is all black, or has a NaN or
                infinity in a usable pixel.

        >>> LinearPictures.of(np.zeros((1, 4, 4, 3)))
        Traceback (most recent call last):
            ...
        ValueError: image 0 is black: no usable pixel is above 0
        """
        views = [_four_axes(images, "images")] + ([] if second is None else [_four_axes(second, "second")])
        shape = views[0].shape
        if views[-1].shape != shape:
            raise ValueError(f"second of shape {views[-1].shape}: the second camera's images need the first's, {shape}")
        mask = np.ones(shape[:3], dtype=bool) if usable is None else np.array(usable, dtype=bool)
        mask = mask[None] if mask.ndim == 2 else mask
        if mask.shape != shape[:3]:
            raise ValueError(f"usable of shape {mask.shape}: images of shape {shape} need {shape[:3]}")
        if saturation is not None:
            for view in views:
                mask &= ~(view >= saturation).any(axis=3)
        _refuse(~np.any(mask, axis=(1, 2)), "has no usable pixel: all are masked or saturated")
        for view in views:
            finite = np.isfinite(view).all(axis=3)
            _refuse(np.any(~finite & mask, axis=(1, 2)), "has a usable pixel that is NaN or infinite")
            _fill(view, mask)
            np.maximum(view, 0, out=view)
            _refuse(~np.any(view > 0, axis=(1, 2, 3)), "is black: no usable pixel is above 0")
        return cls(views[0], mask, views[1] if len(views) == 2 else None)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: slice | NDArray[Any]) -> LinearPictures:
        return LinearPictures(self.images[rows], self.usable[rows], None if self.second is None else self.second[rows])

    def __add__(self, others: AnyPictures) -> LinearPictures:
        """Concatenate pictures of the same size. Both have a second camera, or neither."""
        second = None
        if self.second is not None and others.second is not None:
            second = np.concatenate([self.second, others.second])
        images = np.concatenate([self.images, others.images])
        return LinearPictures(images, np.concatenate([self.usable, others.usable]), second)

    def relit(self, first: NDArray[np.floating[Any]], second: NDArray[np.floating[Any]]) -> LinearPictures:
        """The same scenes under other lights: colours times one matrix per picture and camera, (n, 3, 3), clipped at 0.

        >>> view = LinearPictures.of(np.full((1, 2, 2, 3), 0.4))
        >>> view.relit(np.diag([0.5, 1.0, 2.0])[None], np.eye(3)[None]).images[0, 0, 0]
        array([0.2, 0.4, 0.8], dtype=float32)
        """

        def changed(view: PictureArrays, by: NDArray[np.floating[Any]]) -> PictureArrays:
            found = view.reshape(len(view), -1, 3) @ by.astype(np.float32)
            return np.maximum(found, 0, out=found).reshape(view.shape)

        other = None if self.second is None else changed(self.second, second)
        return LinearPictures(changed(self.images, first), self.usable, other)


class StoredPictures:
    """Pictures that are read when they are used. Rows of them are ``StoredPictures`` too; their arrays, those of
    ``LinearPictures``, are read whole and kept as long as this object: ``in_blocks`` holds only some at a time.

    Args:
        read: gives the pictures of rows (k,) int64, k > 0.
        rows: (n,) int64, the rows of these pictures.

    >>> views = LinearPictures.of(np.random.default_rng(0).random((3, 2, 2, 3)))
    >>> pictures = StoredPictures.of([views[:2], views[2:]])
    >>> len(pictures), bool((pictures[1:].images == views.images[1:]).all())
    (3, True)
    """

    def __init__(self, read: Callable[[RowNumbers], LinearPictures], rows: RowNumbers) -> None:
        self._read, self._rows = read, rows

    @classmethod
    def of(cls, blocks: Iterable[LinearPictures]) -> StoredPictures:
        """Write pictures of one size to a file in the system's temporary folder, which ends with this object.

        Raises:
            ValueError: no block, or blocks of different sizes.
        """
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed when dropped
        kinds: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        count = 0
        for block in blocks:
            arrays = [each for each in (block.images, block.usable, block.second) if each is not None]
            these = [(each.shape[1:], each.dtype) for each in arrays]
            if kinds and these != kinds:
                raise ValueError(f"pictures of {these[0][0]} after some of {kinds[0][0]}: all need one size")
            kinds = these
            flat = [np.ascontiguousarray(each).reshape(len(block), -1).view(np.uint8) for each in arrays]
            with naming(tempfile.gettempdir()):
                file.write(np.concatenate(flat, axis=1).data)
            count += len(block)
        with naming(tempfile.gettempdir()):
            file.flush()
        if not kinds:
            raise ValueError("no pictures")
        size = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in kinds)

        def read(rows: RowNumbers) -> LinearPictures:
            arrays = [np.empty((len(rows), *shape), dtype) for shape, dtype in kinds]
            for place, row in enumerate(rows.tolist()):
                # Threads may read at the same time.
                if os.preadv(file.fileno(), [each[place] for each in arrays], row * size) != size:
                    raise OSError(f"picture {row} is missing in the temporary file")
            return LinearPictures(*arrays)

        return cls(read, np.arange(count))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: slice | NDArray[Any]) -> StoredPictures:
        return StoredPictures(self._read, self._rows[rows])

    def __add__(self, others: AnyPictures) -> StoredPictures:
        """See ``LinearPictures``."""

        def read(rows: RowNumbers) -> LinearPictures:
            own = rows < len(self)
            if own.all():
                return self[rows].held
            if not own.any():
                return _held(others[rows - len(self)])
            order = np.argsort(~own, kind="stable")
            return (self[rows[own]].held + others[rows[~own] - len(self)])[np.argsort(order)]

        return StoredPictures(read, np.arange(len(self) + len(others)))

    def relit(self, first: NDArray[np.floating[Any]], second: NDArray[np.floating[Any]]) -> StoredPictures:
        """See ``LinearPictures``."""
        return self.changed(lambda pictures, rows: pictures.relit(first[rows], second[rows]))

    def changed(self, change: Callable[[LinearPictures, RowNumbers], LinearPictures]) -> StoredPictures:
        """Pictures that ``change`` makes of these when they are read; it gets their rows, too.

        >>> views = LinearPictures.of(np.full((3, 2, 2, 3), 0.5), second=np.ones((3, 2, 2, 3)))
        >>> swapped = StoredPictures.of([views]).changed(lambda some, _: LinearPictures(some.second, some.usable, some.images))
        >>> float(swapped[2:].images.max())
        1.0
        """
        return StoredPictures(lambda rows: change(self[rows].held, rows), np.arange(len(self)))

    @functools.cached_property
    def held(self) -> LinearPictures:
        """All of them, in memory."""
        return self._read(self._rows)

    @property
    def images(self) -> PictureArrays:
        """See ``LinearPictures``."""
        return self.held.images

    @property
    def usable(self) -> NDArray[np.bool_]:
        """See ``LinearPictures``."""
        return self.held.usable

    @property
    def second(self) -> PictureArrays | None:
        """See ``LinearPictures``."""
        return self.held.second


AnyPictures = LinearPictures | StoredPictures


def _held(pictures: AnyPictures) -> LinearPictures:
    return pictures if isinstance(pictures, LinearPictures) else pictures.held


def in_blocks(pictures: AnyPictures, size: int | None = None) -> Iterator[LinearPictures]:
    """Yield all pictures in order, ``size`` at once; default: as many as have a million pixels.

    >>> views = LinearPictures.of(np.ones((5, 2, 2, 3)))
    >>> [len(block) for block in in_blocks(StoredPictures.of([views]), 2)]
    [2, 2, 1]
    """
    size = size or max(1, _PIXELS // max(pictures[:1].usable.size, 1))
    for start in range(0, len(pictures), size):
        yield _held(pictures[start : start + size])


def unit(vectors: NDArray[Any]) -> Illuminants:
    """Rows of length 1, float64 (..., 3). Each is first divided by its largest component: huge and tiny rows lose no digits.

    Raises:
        ValueError: a row of zeros, or one that is not finite.

    >>> unit(np.array([[3.0, 0.0, 4.0]]))
    array([[0.6, 0. , 0.8]])
    >>> unit(np.zeros((1, 3)))
    Traceback (most recent call last):
        ...
    ValueError: an illuminant of zeros, NaN or infinity has no direction
    """
    rows = np.asarray(vectors, dtype=np.float64)
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    if not (np.isfinite(largest) & (largest > 0)).all():
        raise ValueError("an illuminant of zeros, NaN or infinity has no direction")
    rows = rows / largest
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _four_axes(images: ArrayLike, name: str) -> PictureArrays:
    """A float32 copy of shape (n, h, w, 3)."""
    array = np.array(images, dtype=np.float32)
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[3] != 3 or 0 in array.shape:
        raise ValueError(f"{name} of shape {np.shape(images)}: (n, h, w, 3) or (h, w, 3) is needed, with no axis of length 0")
    return array


def _refuse(refused: NDArray[np.bool_] | np.bool_, why: str) -> None:
    wrong = np.atleast_1d(refused)
    if wrong.any():
        raise ValueError(f"image {int(wrong.argmax())} {why}" + (f" (and {wrong.sum() - 1} more)" if wrong.sum() > 1 else ""))


def _fill(view: PictureArrays, mask: NDArray[np.bool_]) -> None:
    """Give each hidden pixel the colour of the nearest usable one."""
    holed = np.flatnonzero(~mask.all(axis=(1, 2)))
    if not len(holed):
        return
    from scipy import ndimage

    for i in holed:
        places = ndimage.distance_transform_edt(~mask[i], return_distances=False, return_indices=True)
        y, x = np.asarray(places)
        view[i] = view[i][y, x]
