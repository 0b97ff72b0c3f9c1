"""Learning step of two-camera trainings, and the rows and pictures that it reads from the shards."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.rows import Sifted
from ...datasets.reader.index import DatasetIndex
from ...datasets.reader.samples import Samples
from ...datasets.two_camera.augment import Changes, changes_in
from ...datasets.two_camera.folds import no_pictures
from ...datasets.two_camera.rows import TransformPairs, as_pairs
from ...datasets.two_camera.samples import IMAGES, VALID
from ...eval.protocols.cross_validation import (
    ESTIMATES,
    Direction,
    Estimator,
    NotFitted,
    PairExamples,
    estimate_folds,
    examples,
)
from ...training.illuminants.pictures import LinearPictures, StoredPictures
from ...training.two_camera.reillumination import reilluminated
from ..experiments import LOGGER, rejected_training, training_text
from ..training_results import NOT_FITTED

_BLOCK = 64  # pictures checked at once


def learn_folds(
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    estimator: Callable[..., Estimator],
    rows: Callable[[str, str, Direction], PairExamples],
    pictures: Callable[..., tuple[StoredPictures, Mapping[str, int]]] | None,
    changes: Callable[..., Changes] | None,
    folder: str,
) -> Iterator[pa.Table | Sifted]:
    """Source step: train and test an estimator on every fold.

    Args:
        training: facts, see ``experiments.Training``; its settings are those of ``baselines.settings_of``.
        digest: content digest of the dataset.
        dataset: folder of the dataset.
        estimator: makes the estimator from its settings.
        rows: ``dataset_rows``, ``measured_rows`` or ``with_reilluminated_rows``.
        pictures: ``pictures_of``; None for an estimator that needs none.
        changes: ``changes_of``; None for an estimator that learns only from measured pairs.
        folder: folder for checkpoints, for estimators that write them.
    """
    settings = training["settings"]
    made = estimator(**settings["estimator"])
    if hasattr(made, "progress"):
        made.progress = lambda line: LOGGER.info("%s: %s", training_text(training), line)  # type: ignore[attr-defined]
    if hasattr(made, "folder"):
        made.folder = Path(folder)  # type: ignore[attr-defined]
    if changes is not None:
        made.relit_pictures = settings["relit_pictures"]  # type: ignore[attr-defined]

    def pictures_by(keys: NDArray[np.str_], lights: NDArray[np.str_] | None = None) -> StoredPictures:
        if pictures is None:
            return no_pictures(keys)
        seen, at = pictures(dataset, digest, settings["longest_px"])
        mine = seen[np.asarray([at[key] for key in keys.tolist()], dtype=np.int64)]
        if lights is not None and changes is not None:
            matrices, of = changes(dataset, digest)
            rows = np.asarray([of[pair] for pair in zip(keys.tolist(), lights.tolist(), strict=True)], dtype=np.int64)
            mine = mine.relit(*matrices[:, rows])
        return mine if settings["direction"] == "1to2" else mine.changed(_swapped)

    try:
        yield from estimate_folds(
            made,
            rows(dataset, digest, settings["direction"]),
            parts=training["protocol"],
            lights_of_test=settings["lights_of_test"],
            relit_rows=settings.get("relit_rows"),
            pictures=pictures_by,
        )
    except ArithmeticError as error:
        yield rejected_training(ESTIMATES, error)
    except NotFitted as error:
        yield rejected_training(ESTIMATES, error, NOT_FITTED)


def _swapped(pictures: LinearPictures, rows: NDArray[np.int64]) -> LinearPictures:
    return pictures if pictures.second is None else LinearPictures(pictures.second, pictures.usable, pictures.images)


@functools.lru_cache(maxsize=2)
def dataset_rows(dataset: str, digest: str, direction: Direction) -> PairExamples:
    """All rows of the dataset; ``digest`` identifies the content."""
    return examples(read_pairs(dataset), direction=direction)


@functools.lru_cache(maxsize=2)
def measured_rows(dataset: str, digest: str, direction: Direction) -> PairExamples:
    """The measured rows of the dataset, without re-illuminated ones."""
    pairs = read_pairs(dataset)
    return examples(pairs.take(pairs.original), direction=direction)


@functools.lru_cache(maxsize=2)
def with_reilluminated_rows(dataset: str, digest: str, direction: Direction) -> PairExamples:
    """The measured rows of the dataset, and those that ``training.two_camera.reillumination`` computes from them."""
    pairs = read_pairs(dataset)
    return examples(reilluminated(pairs.take(pairs.original)), direction=direction)


def read_pairs(url: str) -> TransformPairs:
    """All rows of a published dataset, in the order of its index."""
    return as_pairs(DatasetIndex.open(url).table)


@functools.lru_cache(maxsize=1)
def changes_of(dataset: str, digest: str) -> Changes:
    """How re-illuminated rows change the pictures of their pairs; ``digest`` identifies the content."""
    return changes_in(DatasetIndex.open(dataset, where={"original": False}).table)


@functools.lru_cache(maxsize=1)
def pictures_of(dataset: str, digest: str, longest_px: int | None) -> tuple[StoredPictures, Mapping[str, int]]:
    """The pictures of all measured pairs in the order of the index, and the row of each key.

    Args:
        dataset: folder of the dataset.
        digest: identifies the content: trainings in one process share the pictures.
        longest_px: see ``averaged``.
    """
    return _stored(dataset, longest_px, (*IMAGES, VALID))


@functools.lru_cache(maxsize=1)
def patches_of(dataset: str, digest: str, longest_px: int | None) -> tuple[StoredPictures, Mapping[str, int]]:
    """``pictures_of`` for patches of computed colours, which have no mask."""
    return _stored(dataset, longest_px, IMAGES)


def _stored(dataset: str, longest_px: int | None, names: Sequence[str]) -> tuple[StoredPictures, Mapping[str, int]]:
    index = DatasetIndex.open(dataset, where={"original": True})
    at = {key: row for row, key in enumerate(index.table["key"].to_pylist())}
    return StoredPictures.of(_checked(_reduced(index, longest_px, names))), at


def _checked(pairs: Iterator[tuple[Any, ...]]) -> Iterator[LinearPictures]:
    """The pictures of pairs, ``_BLOCK`` at once."""
    shapes: set[tuple[int, ...]] = set()
    while some := list(itertools.islice(pairs, _BLOCK)):
        keys, first, second, *masks = zip(*some, strict=True)
        if len(shapes := shapes | {view.shape for view in first}) > 1:
            raise ValueError(f"pictures of the shapes {sorted(shapes)}: baselines need one shape")
        usable = np.stack(masks[0]) == 1 if masks else None
        try:
            yield LinearPictures.of(np.stack(first), usable, second=np.stack(second))
        except ValueError as error:
            raise ValueError(f"pairs {keys[0]} (image 0) to {keys[-1]}: {error}") from None


def _reduced(index: DatasetIndex, longest_px: int | None, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Key and reduced members, the two pictures and the mask if there is one, of each pair."""
    for sample in Samples(index, extensions=names).read(np.arange(len(index))):
        views = [averaged(sample[name], longest_px) for name in names]
        if VALID in names and not (views[2] == 1).any():
            reduced = "" if longest_px is None else f"averaged down to evaluation.longest_px = {longest_px}, "
            rule = f"{reduced}no pixel is wholly valid"
            raise ValueError(f"pair {sample['__key__']}: {rule}")
        yield sample["__key__"], *views


def averaged(picture: np.ndarray, longest_px: int | None) -> np.ndarray:
    """Average a picture (h, w[, 3]) over squares so that no side exceeds ``longest_px`` (None: unchanged), as float32; integers
    become shares of their largest value. A mask is 1 where the whole square is valid."""
    scale = 1.0 if picture.dtype == np.bool_ else 1 / np.iinfo(picture.dtype).max
    each = 1 if longest_px is None else -(-max(picture.shape[:2]) // longest_px)
    height, width = picture.shape[0] // each, picture.shape[1] // each
    squares = picture[: height * each, : width * each].reshape(height, each, width, each, *picture.shape[2:])
    return (squares.mean(axis=(1, 3), dtype=np.float64) * scale).astype(np.float32)
