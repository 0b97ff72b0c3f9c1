"""Batches of samples, loaded ahead, and a model's outputs for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ...curation.threads import in_threads
from ..data.examples import Draw, Examples, RowNumbers
from .criteria import Criterion
from .ranks import Ranks
from .schedule import Schedule

T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Means:
    """How a learner computes; independent of the method.

    Attributes:
        criterion: the classification loss.
        schedule: schedule of the training.
        seed: seed for all random draws.
        device: device of the model.
        workers: threads that load batches ahead; 0 loads them one by one. Affects only the speed.
        second_weight: weight in [0, 1] of a sample's second view in the classification loss (temporal consistency); 0 without
            second views.
        sets: samples have sets of labels: sets are predicted, and the validation score is pw-JS instead of accuracy.
        ranks: the processes that train the model together; None: a single process.
    """

    criterion: Criterion
    schedule: Schedule
    seed: int
    device: torch.device
    workers: int = 0
    second_weight: float = 0.0
    sets: bool = False
    ranks: Ranks | None = None


@dataclasses.dataclass(frozen=True)
class Batch:
    """A loaded batch of a lesson's rows.

    Attributes:
        rows: (b,) int64 row numbers in ``lesson.train``.
        x: (b, ...) inputs.
        second: (b, ...) second views of the inputs, or None.
        targets: (b,) int64 class indices, or (b, k) sets of them, padded with -1.
        whole: number of rows in the batch over all processes that share it; None if it is not shared.
    """

    rows: Tensor
    x: Tensor
    second: Tensor | None
    targets: Tensor
    whole: int | None = None


def batches(
    examples: Examples,
    order: Sequence[int] | RowNumbers,
    draw: Draw | None,
    means: Means,
    *,
    second: Examples | None = None,
    size: int | None = None,
    shared: bool = False,
) -> Iterator[Batch]:
    """Yield ``examples`` in ``order`` as batches on the device; the last may be smaller.

    Args:
        draw: see ``Examples.load``.
        second: the second views of the same samples.
        size: batch size; the schedule's by default.
        shared: split each batch over the processes that train together; else each process gets all of it.
    """
    ranks = means.ranks if shared else None

    def load(rows: list[int]) -> Batch:
        whole = None if ranks is None else len(rows)
        rows = rows if ranks is None else list(ranks.stretch(rows))
        again = None if second is None else moved(second.load(rows, draw), means.device)
        targets = torch.from_numpy(examples.labels[rows])
        x = moved(examples.load(rows, draw), means.device)
        return Batch(torch.tensor(rows), x, again, moved(targets, means.device), whole)

    at: list[int] = np.asarray(order, dtype=np.int64).tolist()
    size = size or means.schedule.batch_size
    return ahead(load, (at[start : start + size] for start in range(0, len(at), size)), means.workers)


def moved(values: Tensor, device: torch.device) -> Tensor:
    """Move to the device; for a GPU asynchronously through pinned memory, with images in channels-last order."""
    if device.type != "cuda":
        return values.to(device)
    found = values.pin_memory().to(device, non_blocking=True)
    return found.contiguous(memory_format=torch.channels_last) if found.ndim == 4 else found


@torch.no_grad()
def outputs(
    model: nn.Module,
    examples: Examples,
    means: Means,
    *,
    draw: Draw | None = None,
    what: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return the output of ``model`` for each sample, in evaluation mode, as float32 on the CPU, in the order of ``examples``.

    Args:
        draw: None for the evaluation view.
        what: the part of the model to call, such as ``model.penultimate``; the whole model by default.
    """
    model.eval()
    call = what or model
    order = np.arange(len(examples.labels))
    return torch.cat([call(batch.x).float().cpu() for batch in batches(examples, order, draw, means)])


def ahead(load: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yield ``load(item)`` for each item in order; ``workers`` threads load up to two items each ahead of the consumer."""
    return in_threads(load, zip(items), workers, most=2 * workers) if workers else map(load, items)
