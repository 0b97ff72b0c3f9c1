"""A perceptron that calls a sample unknown if its largest softmax is below a threshold.

Source: Prijatelj et al., "Human Activity Recognition in an Open World", JAIR 81 (2024), section 5.1 and appendix C.2.2: Linear,
Dropout, LeakyReLU, Linear with one output more than there are known classes; Adam; one epoch per increment over the whole
experience; the output layer is redrawn whenever classes are added (``as_released``). Dropout is 0.5 in the text
(``as_written``) and 0.75 in the released configurations. The released configurations have the threshold commented out; this
follows the text: the quantile of the largest softmax over increment 0's validation rows of known classes that gives 10 % error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray
from torch import nn

from ...curation.encoders.one_thread import one_thread
from ...curation.registry import check_values
from ..core.determinism import generator
from ..core.schedule import Adam
from ..models.classifier import dropped
from ..models.linear import affine, allocated
from ..models.registry import WIDEST
from .predictor import (
    UNKNOWN,
    UNLABELLED,
    Features,
    Labels,
    Probabilities,
    Request,
    Seen,
    Uids,
    gather,
    in_order_of,
    labelled_rows,
    set_unknown,
)

_BLOCK = 4096


@dataclasses.dataclass(frozen=True)
class AnnSetting:
    """Hyper-parameters; ``kowl.toml`` holds the paper's.

    Attributes:
        hidden: width of the hidden layer; 0: that of the features, as in the text.
        dropout: share of hidden units dropped while training.
        epochs, batch_size, learning_rate: training with Adam, a new optimiser in each increment (our choice).
        least_steps: minimum number of batches per epoch, for which batches are made smaller (ours; the paper's data have more).
        validation_error: share of increment 0's validation rows of known classes that the threshold rejects; 0: no threshold,
            as in the released configurations.
        threshold_when: "first_fit" keeps increment 0's threshold; "each_fit" computes it again on the same rows (the paper
            leaves it open).
        request: "random" (as released) or "uncertain_first".
    """

    hidden: Annotated[int, Interval(ge=0, le=WIDEST)]
    dropout: float
    epochs: int
    batch_size: int
    least_steps: int
    learning_rate: float
    validation_error: float
    threshold_when: Literal["first_fit", "each_fit"]
    request: Request

    def __post_init__(self) -> None:
        check_values(AnnSetting, vars(self))
        if min(self.epochs, self.batch_size, self.least_steps) < 1 or not self.learning_rate > 0:
            raise ValueError(f"{self}: epochs, batch_size, least_steps and learning_rate must be positive")
        if not 0 <= self.dropout < 1 or not 0 <= self.validation_error <= 1:
            raise ValueError(f"dropout {self.dropout}, validation_error {self.validation_error}: in [0, 1) and [0, 1]")


class Ann:
    """ANN: a network with one hidden layer; a sample is unknown if its largest probability is low.

    Without a new label (feedback 0) it is not fitted again.

    Args:
        setting: hyper-parameters.
        seed: seed for weights, batches, dropout and requests.
        device: "cpu", "cuda"; dropout is drawn on the CPU, so that all devices use the same masks.

    >>> from benchwright.training.predictors.paper import paper_settings
    >>> from benchwright.training.predictors.registry import new_predictor
    >>> ann = new_predictor(Ann, {**paper_settings()["ann"], "hidden": 16, "epochs": 200, "learning_rate": 0.01}, seed=0)
    >>> X, y = np.repeat(10 * np.eye(2, dtype=np.float32), 20, axis=0), np.repeat([0, 1], 20)
    >>> uid = np.array([f"clip{n}" for n in range(40)])
    >>> ann.fit([(uid, X, y)], (uid, X, y))
    >>> labels, shares = ann.predict(uid, X)
    >>> float((labels[1:][shares[:, 1:].argmax(axis=1)] == y).mean())  # the first column is "unknown"
    1.0
    """

    def __init__(self, *, setting: AnnSetting, seed: int, device: str = "cpu") -> None:
        self._setting = setting
        self._seed = seed
        self._device = torch.device(device)
        self._classes: Labels = np.empty(0, dtype=np.int64)
        self.fits = 0  # increments learned
        self.threshold = 0.0  # largest softmax below which a sample is called unknown
        self._hidden: nn.Linear | None = None
        self._output: nn.Linear | None = None

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Train one increment on all labelled rows, unless the newest increment has no label."""
        rows, y = labelled_rows(experience, learned=self.fits > 0)
        if self.fits and not (experience[-1][2] != UNLABELLED).any():
            return
        self._grow(np.union1d(self._classes, y), experience[0][1].shape[1])
        target = torch.from_numpy(1 + np.searchsorted(self._classes, y))
        hidden, output = self._layers()
        optimiser = Adam([*hidden.parameters(), *output.parameters()], lr=self._setting.learning_rate, fused=True)
        order = generator(self._seed, "order", str(self.fits))
        batch_size = min(self._setting.batch_size, max(1, len(rows) // self._setting.least_steps))
        with one_thread():
            for _ in range(self._setting.epochs):
                for batch in torch.randperm(len(rows), generator=order).split(batch_size):
                    X = torch.from_numpy(gather(experience, rows[batch.numpy()])).to(self._device)
                    loss = nn.functional.cross_entropy(self._logits(X, order), target[batch].to(self._device))
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
            self.fits += 1
            if self.fits == 1 or self._setting.threshold_when == "each_fit":
                self.threshold = self._find_threshold(validation)
        if not all(bool(torch.isfinite(p).all()) for p in (*hidden.parameters(), *output.parameters())):
            raise ArithmeticError(f"weights are not finite after fit {self.fits}: features hold non-finite or huge values")

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Columns: "unknown", the known classes. Below the threshold "unknown" becomes the largest, see ``set_unknown``."""
        probabilities = self._softmax(X)
        set_unknown(probabilities, probabilities[:, 1:].max(axis=1) < self.threshold)
        return np.concatenate([[UNKNOWN], self._classes]).astype(np.int64), probabilities

    def request(self, uid: Uids, X: Features) -> list[str]:
        """Return uids in random order, or by ascending largest probability."""
        return in_order_of(self._setting.request, uid, X, seed=self._seed, predict=self.predict)

    def take_scores(self, uid: Uids, X: Features, scores: Mapping[str, float]) -> None:
        """Set the threshold so that it rejects as many rows as are of new classes according to the detection scores (ours)."""
        likely = self._softmax(X)[:, 1:].max(axis=1)
        said = int((likely < self.threshold).sum())
        novel = novel_rows(len(X), said, scores["detection.top1_accuracy"], scores["detection.mcc"])
        self.threshold = float(np.quantile(likely, novel / len(X)))

    def state(self) -> dict[str, NDArray[Any]]:
        """Weights, classes, threshold and the number of fits, on which later draws depend."""
        hidden, output = self._layers()
        weights = {f"hidden_{name}": value for name, value in hidden.state_dict().items()}
        weights |= {f"output_{name}": value for name, value in output.state_dict().items()}
        return {
            "classes": self._classes,
            "fits": np.array(self.fits),
            "threshold": np.array(self.threshold),
            **{name: value.cpu().numpy() for name, value in weights.items()},
        }

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Resume from a result of ``state``."""
        self._classes, self.fits, self.threshold = state["classes"], int(state["fits"]), float(state["threshold"])
        self._hidden, self._output = (
            _layer(state[f"{name}_weight"], state[f"{name}_bias"]).to(self._device) for name in ("hidden", "output")
        )

    def _layers(self) -> tuple[nn.Linear, nn.Linear]:
        if self._hidden is None or self._output is None:
            raise RuntimeError("the predictor is not fitted yet: call fit() or restore() first")
        return self._hidden, self._output

    def _grow(self, classes: Labels, features: int) -> None:
        """Redraw the output layer where classes were added, and the hidden one at the start."""
        if len(classes) == len(self._classes):
            return
        init = generator(self._seed, "init", str(self.fits))
        if self._hidden is None:
            self._hidden = affine(features, self._setting.hidden or features, init).to(self._device)
        self._output = affine(self._hidden.out_features, 1 + len(classes), init).to(self._device)
        self._classes = classes

    def hidden(self, X: Features) -> Features:
        """Output of the hidden layer for features, (n, hidden)."""
        layer = self._layers()[0]
        return self._in_blocks(X, lambda block: nn.functional.leaky_relu(layer(block)), layer.out_features)

    def _logits(self, X: torch.Tensor, masks: torch.Generator | None = None) -> torch.Tensor:
        hidden, output = self._layers()
        return output(nn.functional.leaky_relu(dropped(hidden(X), self._setting.dropout, masks)))

    def _softmax(self, X: Features) -> Probabilities:
        return self._in_blocks(X, lambda block: self._logits(block).softmax(1), 1 + len(self._classes))

    @torch.no_grad()
    def _in_blocks(self, X: Features, function: Callable[[torch.Tensor], torch.Tensor], width: int) -> NDArray[np.float32]:
        """A function of rows, (n, width), computed block by block."""
        found = np.empty((len(X), width), dtype=np.float32)
        with one_thread():
            for start in range(0, len(X), _BLOCK):
                block = torch.from_numpy(np.array(X[start : start + _BLOCK])).to(self._device)
                found[start : start + len(block)] = function(block).cpu().numpy()
        return found

    def _find_threshold(self, validation: Seen) -> float:
        if not self._setting.validation_error:
            return 0.0
        _, X, y = validation
        there = np.isin(y, self._classes)
        if not there.any():
            raise ValueError("increment 0 has no validation row of a known class: the threshold is found on these")
        return float(np.quantile(self._softmax(X[there])[:, 1:].max(axis=1), self._setting.validation_error))


def novel_rows(rows: int, said: int, accuracy: float, mcc: float) -> int:
    """Number of rows of new classes among ``rows``, if ``said`` rows were called new with this accuracy and correlation.

    >>> novel_rows(10, 3, 0.8, 0.52)  # two of the three are, and one more
    3
    >>> novel_rows(10, 0, 0.6, 0.0)  # nothing was called new: what is wrong is
    4
    """
    novel = np.arange(rows + 1)
    right = (accuracy * rows - rows + said + novel) / 2  # called new, and new
    spread = np.sqrt(said * (rows - said) * novel * (rows - novel))
    found = np.divide(right * rows - said * novel, spread, out=np.zeros(rows + 1), where=spread > 0)
    possible = (np.abs(right - np.rint(right)) < 0.25) & (right > -0.25) & (right < np.minimum(said, novel) + 0.25)
    return int(np.argmin(np.where(possible, np.abs(found - mcc), np.inf)))


def _layer(weight: NDArray[Any], bias: NDArray[Any]) -> nn.Linear:
    layer = allocated(nn.Linear(weight.shape[1], weight.shape[0], device="meta"))
    layer.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
    return layer
