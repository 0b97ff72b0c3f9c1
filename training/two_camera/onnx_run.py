"""Run a network of ``onnx_file`` by onnxruntime, without torch."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .shapes import INPUTS, RATIOS

INPUT, OUTPUT = "transform", "ratios"

Float32Array = NDArray[np.float32]


class OnnxNetwork:
    """A network written by ``onnx_bytes``, ready to run on one thread.

    Raises:
        ValueError: the bytes are not such a network.
    """

    def __init__(self, data: bytes) -> None:
        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session: Any = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class per error code, and no base class
            raise ValueError(f"{len(data)} bytes are not an ONNX network: {error}") from None
        ends = self._session.get_inputs(), self._session.get_outputs()
        shapes = [[(each.name, each.shape[-1]) for each in of] for of in ends]
        if shapes != [[(INPUT, INPUTS)], [(OUTPUT, RATIOS)]]:
            raise ValueError(f"expected an ONNX network from {INPUT} (n, {INPUTS}) to {OUTPUT} (n, {RATIOS}), found {shapes}")

    def __call__(self, X: Float32Array) -> Float32Array:
        """Ratios (n, 2) of row-major transforms (n, 9)."""
        return self._session.run([OUTPUT], {INPUT: X})[0]

    def latency_us(self, X: Float32Array, calls: int = 2000) -> dict[str, float]:
        """Median and 95 % quantile of the latency of one estimate in microseconds, one transform per call."""
        rows = [X[at % len(X)][None] for at in range(calls)]
        for row in rows[:50]:
            self(row)
        taken = np.empty(calls)
        for at, row in enumerate(rows):
            start = time.perf_counter_ns()
            self(row)
            taken[at] = time.perf_counter_ns() - start
        return {"median": float(np.median(taken)) / 1000, "quantile_95": float(np.quantile(taken, 0.95)) / 1000}
