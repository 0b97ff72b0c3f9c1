"""Pre-training loop: batches of two views, steps, checkpoints; the result is a file in the released form."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...curation.checkpoint import Checkpoint
from ...curation.encoders.one_thread import exact, one_thread
from ..core.batches import ahead
from ..core.determinism import generator
from ..core.schedule import SGD
from ..data.pictures import ReadPictures
from .network import MoCo
from .settings import MocoSettings
from .views import Pixels, coloured, crops, draw_views

_CHECK_STEPS = 100
"""Steps between two checks that the loss is finite."""
_CHUNK_NUMBERS = 1 << 18
"""Number of values of views that are coloured together on the CPU: few enough for its caches."""

EpochOrder = Callable[[int], NDArray[np.int64]]
"""``order(epoch)``: rows in the order of an epoch."""


@dataclass(frozen=True)
class PretrainingPictures:
    """Pictures to train on.

    Attributes:
        read: reads pictures of some rows.
        keys: keys of all rows.
        order: see ``EpochOrder``.
    """

    read: ReadPictures
    keys: Sequence[str]
    order: EpochOrder


@dataclass
class PretrainingProgress:
    """Progress of a training: ``step`` steps of ``epoch``, and the measurements.

    Attributes:
        loss, right: loss and right answers, summed over the pictures of the epoch so far.
        losses, accuracies: means of each finished epoch. Accuracy is the share of queries whose own key scores highest.
    """

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    right: float = 0.0
    losses: list[float] = field(default_factory=list[float])
    accuracies: list[float] = field(default_factory=list[float])


class Pretraining:
    """MoCo pre-training: the result depends only on the settings, the seed, and the pictures with their keys.

    On the CPU it does not depend on the number of cores or workers, or on interruptions; on CUDA, deterministic convolutions
    are used. Training runs on one device; with ``batch_norm_splits`` it computes what several devices, as in the paper, would.

    Args:
        settings: see ``MocoSettings``.
        seed: seed of all random draws.
        device: "cpu", "cuda:0", ...
        workers: threads that load batches ahead.
    """

    def __init__(self, settings: MocoSettings, *, seed: int, device: str = "cpu", workers: int = 0) -> None:
        self.settings, self.seed, self.workers = settings, seed, workers
        self.device = torch.device(device)
        self.moco = MoCo(settings, seed=seed).to(self.device)
        self.optimiser = SGD(
            self.moco.encoder_q.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self._half = settings.mixed_precision and self.device.type == "cuda"
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=self._half)
        self.progress = PretrainingProgress()

    def learn(
        self,
        pictures: PretrainingPictures,
        checkpoint: Checkpoint | None = None,
        *,
        checkpoint_s: float = math.inf,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Train to the last epoch, from the checkpoint if there is one.

        Args:
            pictures: at least ``batch_size``.
            checkpoint: to resume from, and to write every ``checkpoint_s`` seconds.
            checkpoint_s: see above; does not affect the result.
            tell: called with one line per epoch.

        Raises:
            ArithmeticError: the loss is no longer finite.
        """
        if checkpoint is not None and checkpoint.state is not None:
            self.load(checkpoint.state)
        with exact(self.device, half=self._half):
            while self.progress.epoch < self.settings.epochs:
                self._epoch(pictures, checkpoint, checkpoint_s)
                at = self.progress
                tell(f"epoch {at.epoch} of {self.settings.epochs}: loss {at.losses[-1]:.4f}, right {at.accuracies[-1]:.1%}")

    def _epoch(self, pictures: PretrainingPictures, checkpoint: Checkpoint | None, checkpoint_s: float) -> None:
        at, size = self.progress, self.settings.batch_size
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate(at.epoch)
        order = pictures.order(at.epoch)
        steps = len(order) // size
        sums = torch.tensor([at.loss, at.right], dtype=torch.float64, device=self.device)
        rows = (order[step * size : (step + 1) * size] for step in range(at.step, steps))
        saved = time.monotonic()
        for first, second in ahead(lambda each: self.views(pictures, each, at.epoch), rows, self.workers):
            sums += self.step(first, second, f"{at.epoch}/{at.step}")
            at.step += 1
            if at.step % _CHECK_STEPS == 0 or at.step == steps:
                self._check(float(sums[0]))
            if checkpoint is not None and time.monotonic() - saved >= checkpoint_s and at.step < steps:
                at.loss, at.right = sums.tolist()
                checkpoint.commit(self.save)
                saved = time.monotonic()
        at.losses.append(float(sums[0]) / (steps * size))
        at.accuracies.append(float(sums[1]) / (steps * size))
        at.epoch, at.step, at.loss, at.right = at.epoch + 1, 0, 0.0, 0.0
        if checkpoint is not None and time.monotonic() - saved >= checkpoint_s:
            checkpoint.commit(self.save)

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise ArithmeticError(
                f"the loss is no longer finite in epoch {self.progress.epoch}, by step {self.progress.step}, at learning rate "
                f"{self.settings.rate(self.progress.epoch):g}"
            )

    def views(self, pictures: PretrainingPictures, rows: NDArray[np.int64], epoch: int) -> tuple[Tensor, Tensor]:
        """Both views of some pictures, (b, 3, side, side) float32 on the device."""
        at: list[int] = rows.tolist()
        keys, found = [pictures.keys[row] for row in at], pictures.read(at)
        with one_thread():  # this one may be a worker
            return self._view(found, keys, epoch, 0), self._view(found, keys, epoch, 1)

    def _view(self, found: Sequence[Pixels], keys: Sequence[str], epoch: int, number: int) -> Tensor:
        view = self.settings.view
        draws = draw_views(view, seed=self.seed, epoch=epoch, keys=keys, number=number)
        cuts = crops(found, draws, view)
        if self.device.type != "cpu":
            return coloured(cuts.to(self.device), draws, view)
        some = max(_CHUNK_NUMBERS // cuts[0].numel(), 1)
        parts = [slice(at, at + some) for at in range(0, len(cuts), some)]
        return torch.cat([coloured(cuts[part], draws[part], view) for part in parts])

    def step(self, first: Tensor, second: Tensor, name: str) -> Tensor:
        """Run one step of the optimiser. Returns the loss and the right answers, summed over the batch, float64.

        Args:
            first, second: views.
            name: name of the step, which determines the shuffling of keys.
        """
        self.moco.train()
        b = len(first)
        order = torch.arange(b)
        if self.settings.batch_norm_splits > 1:
            order = torch.randperm(b, generator=generator(self.seed, "moco shuffle", name))
        with torch.autocast(self.device.type, dtype=torch.float16, enabled=self._half):
            logits, keys = self.moco(first, second, order.to(self.device))
        loss = F.cross_entropy(logits, torch.zeros(b, dtype=torch.int64, device=self.device))
        self.optimiser.zero_grad()
        self._scaler.scale(loss).backward()
        self._scaler.step(self.optimiser)
        self._scaler.update()
        self.moco.enqueue(keys)
        right = (logits.detach().argmax(1) == 0).sum()
        return torch.stack([loss.detach().double() * b, right.double()])

    def save(self, path: Path) -> None:
        """Write the state from which ``load`` resumes."""
        state = {
            "moco": self.moco.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
            "progress": vars(self.progress),
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        """Resume from the state in ``path``, of which only tensors and numbers are read."""
        held: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
        self.moco.load_state_dict(held["moco"])
        self.optimiser.load_state_dict(held["optimiser"])
        if held["scaler"]:
            self._scaler.load_state_dict(held["scaler"])
        self.progress = PretrainingProgress(**held["progress"])

    def released(self) -> bytes:
        """The query encoder with its head in the form of the released checkpoints, under ``module.encoder_q.``."""
        weights = {f"module.encoder_q.{name}": value.cpu() for name, value in self.moco.encoder_q.state_dict().items()}
        memory = io.BytesIO()
        torch.save({"epoch": self.progress.epoch, "arch": self.settings.backbone, "state_dict": weights}, memory)
        return memory.getvalue()
