"""Processes that train one model together: each takes a part of every batch, and all make the same step.

Gradients are those of the whole batch, since each process weights its loss by its share of the rows; batch norm computes its
moments over the rows of all processes. The result equals that of a single process, except for the order of summation.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import datetime as dt
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from ...curation.rows import one_line

if TYPE_CHECKING:
    from .build import Parts

T = TypeVar("T")

_MEETING = dt.timedelta(minutes=5)
_STEP = dt.timedelta(minutes=30)
_PATIENCE = dt.timedelta(days=7)
"""Timeout of other processes while the first one tests, writes and measures; torchrun ends all of them if one fails."""

_broadcasters: list[dist.ProcessGroup] = []
"""The process group in which the first process broadcasts."""


def count() -> int:
    """Number of processes that torchrun started together; 1 without torchrun."""
    number = os.environ.get("WORLD_SIZE", "1")
    return int(number) if number.isdecimal() and "MASTER_ADDR" in os.environ else 1


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Rank of this process among those that train together.

    Attributes:
        rank: number of this process.
        size: number of processes.
    """

    rank: int
    size: int

    def stretch(self, rows: Sequence[T]) -> Sequence[T]:
        """The rows of a batch that this process takes: all rows if there are fewer than processes.

        >>> [Ranks(rank, 3).stretch(range(7)) for rank in range(3)]
        [range(0, 2), range(2, 4), range(4, 7)]
        """
        n = len(rows)
        return rows if n < self.size else rows[n * self.rank // self.size : n * (self.rank + 1) // self.size]

    def share(self, whole: int) -> float:
        """The weight of this process in the mean over ``whole`` rows.

        >>> Ranks(2, 3).share(7), Ranks(0, 3).share(2)
        (0.42857142857142855, 0.3333333333333333)
        """
        return 1 / self.size if whole < self.size else len(self.stretch(range(whole))) / whole

    @contextlib.contextmanager
    def together(self, mine: int, whole: int) -> Iterator[None]:
        """Within the block, batch norms of ``shared`` models compute moments over ``whole`` rows, ``mine`` of them here."""
        token = _batch.set((self.share(whole), whole / mine))
        try:
            yield
        finally:
            _batch.reset(token)

    def add(self, value: Tensor) -> Tensor:
        """Sum over all processes, in place."""
        dist.all_reduce(value)
        return value

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum the gradients over all processes."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients:
            return
        total = self.add(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, total.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def tell(self, message: Mapping[str, Any], content: bytes = b"") -> None:
        """Broadcast a message from the first process to all others, which call ``hear``."""
        head = json.dumps(message).encode()
        dist.broadcast(torch.tensor([len(head), len(content)]), 0, group=_broadcasters[-1])
        dist.broadcast(torch.frombuffer(bytearray(head + content), dtype=torch.uint8), 0, group=_broadcasters[-1])

    def hear(self) -> tuple[dict[str, Any], bytes]:
        """Receive a message that the first process broadcasts with ``tell``."""
        sizes = torch.zeros(2, dtype=torch.int64)
        dist.broadcast(sizes, 0, group=_broadcasters[-1])
        head, content = sizes.tolist()
        held = torch.empty(head + content, dtype=torch.uint8)
        dist.broadcast(held, 0, group=_broadcasters[-1])
        data = held.numpy().tobytes()
        return json.loads(data[:head]), data[head:]


def check_ranks(parts: Parts) -> None:
    """Raise ValueError if several processes cannot train together with these settings."""
    if count() == 1:
        return
    if parts.method.teach is not None and not parts.method.together:
        raise ValueError(f"the loss of method {parts.method.name!r} is not a mean over rows: train it without torchrun")
    if parts.schedule.compile:
        raise ValueError("compile under torchrun: a compiled model does not share batches: leave one of them out")


def present() -> Ranks | None:
    """Rank of this process while it trains with others; else None."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else None


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """Connect to the other processes; within the block ``present`` returns this process's rank.

    Raises:
        ConnectionError: the processes cannot connect.
    """
    # Messages are in CPU memory; gradients are on the model's device.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local_device())
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=_MEETING))
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_STEP)
    except (RuntimeError, ValueError) as error:
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise ConnectionError(
            f"torchrun's processes do not meet at {place}: {one_line(error)}: see --standalone, --master-port"
        ) from error
    _broadcasters.append(dist.new_group(backend="gloo", timeout=_PATIENCE))  # pyright: ignore[reportArgumentType]
    yield Ranks(dist.get_rank(), dist.get_world_size())
    _broadcasters.clear()
    dist.destroy_process_group()  # not after an error: others may wait for an answer that does not come


def local_device() -> str:
    """The GPU of this process on its machine."""
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % max(torch.cuda.device_count(), 1)}"


# -------------------------------------------------------------------------------------------------------------- batch norm

_batch: contextvars.ContextVar[tuple[float, float] | None] = contextvars.ContextVar(
    "a batch that processes share", default=None
)
"""The weight of this process in the mean, and the ratio of all rows to its own rows."""


class _Sum(torch.autograd.Function):
    """Sum over processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


class _Shared(_BatchNorm):
    def forward(self, input: Tensor) -> Tensor:
        found = _batch.get()
        if found is None or not self.training:
            return super().forward(input)
        share, times = found
        over = [axis for axis in range(input.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(input.ndim)]
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        mean: Tensor = _Sum.apply(share * x.mean(over))  # type: ignore[assignment]
        centred = x - mean.view(shape)
        variance: Tensor = _Sum.apply(share * centred.square().mean(over))  # type: ignore[assignment]
        self._move(mean.detach(), variance.detach(), times * input.numel() / input.shape[1])
        made = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            made = made * self.weight.view(shape) + self.bias.view(shape)
        return made.to(input.dtype)

    @torch.no_grad()
    def _move(self, mean: Tensor, variance: Tensor, numbers: float) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance * (numbers / max(numbers - 1, 1)), momentum)


class _Shared1d(_Shared, nn.BatchNorm1d):
    pass


class _Shared2d(_Shared, nn.BatchNorm2d):
    pass


class _Shared3d(_Shared, nn.BatchNorm3d):
    pass


_KINDS: dict[type, type] = {nn.BatchNorm1d: _Shared1d, nn.BatchNorm2d: _Shared2d, nn.BatchNorm3d: _Shared3d}


def shared(model: nn.Module) -> nn.Module:
    """Return the model, with its batch norms changed in place so that they take part in ``Ranks.together``.

    Raises:
        ValueError: a layer would give a different result than in a single process.
    """
    for part in model.modules():
        kind = type(part)
        if kind in _KINDS:
            part.__class__ = _KINDS[kind]
        elif (isinstance(part, _BatchNorm) and not isinstance(part, _Shared)) or getattr(part, "share", 0):
            raise ValueError(f"a model with {kind.__name__} cannot be trained by several processes together: train it by one")
    return model
