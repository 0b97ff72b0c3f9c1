"""A model, a method and hyper-parameters put together: what a protocol runs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..methods.method import Method
from .buffers import Rows
from .loop import Hyper, fit, generator, one_thread, predict

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


class MakeModel(Protocol):
    """Makes a fresh model, its weights drawn from ``init`` alone."""

    def __call__(self, features: int, classes: int, *, init: torch.Generator) -> nn.Module: ...


class BufferLearner:
    """Learns domain after domain from the rows that its method chooses among those seen.

    The result is a function of the arguments and the arrays: no global generator is read or moved. On the CPU it does
    not depend on the number of cores (see ``loop.one_thread``). Between devices sums differ in their last bits.

    Args:
        make_model: for example ``models.linear.linear``.
        classes: number of classes; labels lie in [0, classes).
        hyper: of every domain's training; the optimiser is fresh for each domain.
        method: chooses rows and says where weights start from.
        seed: of weights, batches and buffer; there is no default.
        device: "cpu", "cuda", "cuda:1"; features are moved there once a domain.
    """

    def __init__(
        self, *, make_model: MakeModel, classes: int, hyper: Hyper, method: Method, seed: int, device: str = "cpu"
    ) -> None:
        if classes < 2:
            raise ValueError(f"{classes} classes: a classifier needs two at least")
        if method.teach is not None or method.exemplars is not None:
            raise ValueError(f"method {method.name!r} has a loss or a memory of its own: task_learner.TaskLearner runs it")
        self._make_model = make_model
        self._classes = classes
        self._hyper = hyper
        self._method = method
        self._seed = seed
        self._device = torch.device(device)
        self._seen: list[tuple[Features, Labels]] = []
        self._model: nn.Module | None = None
        self.buffer: Rows = np.empty(0, dtype=np.int64)
        self.losses: list[float] = []

    @property
    def model(self) -> nn.Module:
        """The model as it is now."""
        if self._model is None:
            raise RuntimeError("the learner has not learned yet: call learn() or load() first")
        return self._model

    def learn(self, X: Features, y: Labels) -> None:
        """Train on the next domain. ``X`` (n, d) float32 and ``y`` (n,) are kept by reference, not copied.

        Afterwards ``buffer`` holds the rows trained on and ``losses`` the mean training loss of each epoch (empty where
        the method skipped the domain).

        Raises:
            ValueError: a label outside [0, classes), or the first domain gives no row to train on.
        """
        if len(y) and (int(y.min()) < 0 or int(y.max()) >= self._classes):
            raise ValueError(f"labels {int(y.min())}..{int(y.max())} outside 0..{self._classes - 1}")
        self._seen.append((X, y))
        step = str(len(self._seen))
        rows = self._method.choose(self.buffer, [len(labels) for _, labels in self._seen], self._seed)
        self.losses = []
        if len(rows) == 0:
            if self._model is None:
                raise ValueError(f"method {self._method.name!r} chose no row of the first domain")
            return
        self.buffer = rows
        if self._model is None or self._method.start == "scratch":
            init = generator(self._seed, "init", step)
            self._model = self._make_model(X.shape[1], self._classes, init=init).to(self._device)
        features, labels = _gather(self._seen, rows)
        with one_thread():
            self.losses = fit(
                self._model,
                torch.from_numpy(features).to(self._device),
                torch.from_numpy(labels).to(self._device),
                self._hyper,
                generator(self._seed, "order", step),
            )

    def predict(self, X: Features) -> Labels:
        """Class indices (n,) int64 of ``X`` (n, d) float32."""
        # A copy: torch refuses to promise that it will not write to a read-only (memory-mapped) array.
        features = torch.from_numpy(X if X.flags.writeable else X.copy()).to(self._device)
        with one_thread():
            return predict(self.model, features).cpu().numpy()

    def save(self, path: Path) -> None:
        """Write a state dict with the buffer's row numbers; equal states give equal bytes."""
        state = {
            "buffer": torch.from_numpy(self.buffer),
            "domains": len(self._seen),
            "model": {name: value.cpu() for name, value in self.model.state_dict().items()},
        }
        # Through memory: written to a path, torch puts the file's name into the archive.
        memory = io.BytesIO()
        torch.save(state, memory)
        path.write_bytes(memory.getvalue())

    def load(self, path: Path, seen: Sequence[tuple[Features, Labels]]) -> None:
        """Take up the state of ``path``, which only tensors and numbers are read from; ``seen`` as given to ``learn``.

        Raises:
            ValueError: the state was saved after another number of domains.
        """
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["domains"] != len(seen) or not seen:
            raise ValueError(f"{path} was saved after {state['domains']} domains, and {len(seen)} are given")
        model = self._make_model(seen[0][0].shape[1], self._classes, init=torch.Generator())
        model.load_state_dict(state["model"])
        self._model = model.to(self._device)
        self._seen = list(seen)
        self.buffer = state["buffer"].numpy()


def _gather(seen: Sequence[tuple[Features, Labels]], rows: Rows) -> tuple[Features, Labels]:
    """The stream's ``rows`` in their order, as arrays of their own."""
    features = np.empty((len(rows), seen[0][0].shape[1]), dtype=np.float32)
    labels = np.empty(len(rows), dtype=np.int64)
    start = 0
    for X, y in seen:
        at = np.flatnonzero((rows >= start) & (rows < start + len(y)))
        features[at] = X[rows[at] - start]
        labels[at] = y[rows[at] - start]
        start += len(y)
    return features, labels
