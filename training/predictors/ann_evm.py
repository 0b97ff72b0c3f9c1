"""An EVM on the hidden-layer features of an ANN: the row "ANN 1 + EVM" of KOWL's Table 3."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ann import Ann, AnnSetting
from .evm import Evm, EvmSetting
from .paper import paper_settings
from .predictor import Features, Labels, Probabilities, Seen, Uids


@dataclasses.dataclass(frozen=True)
class AnnEvmSetting:
    """Hyper-parameters of both; missing ones are those of ``ann`` and ``evm`` in ``kowl.toml``."""

    ann: Mapping[str, Any]
    evm: Mapping[str, Any]

    def parts(self) -> tuple[AnnSetting, EvmSetting]:
        """The complete settings of both."""
        paper = paper_settings()
        return AnnSetting(**{**paper["ann"], **self.ann}), EvmSetting(**{**paper["evm"], **self.evm})

    def __post_init__(self) -> None:
        self.parts()


class AnnEvm:
    """The ANN learns as it does alone; when its hidden layer changes, the EVM is refitted on all rows, held in memory.

    Args:
        setting: hyper-parameters.
        seed, device: seed and device of both.

    >>> from benchwright.training.predictors.registry import new_predictor
    >>> ann = {"hidden": 16, "epochs": 50, "learning_rate": 0.01}
    >>> ann_evm = new_predictor(AnnEvm, {"ann": ann, "evm": {"tail_size": 5}}, seed=0)
    >>> X, y = np.repeat(10 * np.eye(2, dtype=np.float32), 20, axis=0), np.repeat([0, 1], 20)
    >>> X += np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    >>> uid = np.array([f"clip{n}" for n in range(40)])
    >>> ann_evm.fit([(uid, X, y)], (uid, X, y))
    >>> labels, shares = ann_evm.predict(uid, X)
    >>> float((labels[1:][shares[:, 1:].argmax(axis=1)] == y).mean())  # the first column is "unknown"
    1.0
    """

    def __init__(self, *, setting: AnnEvmSetting, seed: int, device: str = "cpu") -> None:
        self._settings = setting.parts()
        self._seed, self._device = seed, device
        self._ann = Ann(setting=self._settings[0], seed=seed, device=device)
        self._evm = self._fresh()
        self._fits = 0

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Fit the ANN and, if it has learned, the EVM."""
        self._ann.fit(experience, validation)
        if self._ann.fits > self._fits:
            self._fits, self._evm = self._ann.fits, self._fresh()
            self._evm.fit([(uid, self._ann.hidden(X), y) for uid, X, y in experience], validation)

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Return the EVM's prediction."""
        return self._evm.predict(uid, self._ann.hidden(X))

    def request(self, uid: Uids, X: Features) -> list[str]:
        """Return the EVM's request."""
        return self._evm.request(uid, self._ann.hidden(X))

    def state(self) -> dict[str, NDArray[Any]]:
        """The states of both."""
        parts = {"ann": self._ann.state(), "evm": self._evm.state()}
        return {f"{name}_{key}": value for name, state in parts.items() for key, value in state.items()}

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Resume from a result of ``state``."""
        parts = {
            name: {key.removeprefix(f"{name}_"): np.array(value) for key, value in state.items() if key.startswith(f"{name}_")}
            for name in ("ann", "evm")
        }
        self._ann.restore(parts["ann"], experience)
        self._evm = self._fresh()
        self._evm.restore(parts["evm"], experience)
        self._fits = self._ann.fits

    def _fresh(self) -> Evm:
        return Evm(setting=self._settings[1], seed=self._seed, device=self._device)
