"""Image towers of CLIP-like models: in torch, or on CPUs in ONNX Runtime or OpenVINO.

Each computes the vectors of a block of images, of constant size, on one thread: the same block gives the same bytes, whatever
else the machine does. Vectors of different backends differ in the last bits, with cosines of 0.9999 or more.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rows import one_line
from .spec import OpenClip

if TYPE_CHECKING:
    import torch

ImageTower = Callable[["torch.Tensor"], np.ndarray]
"""Maps normalised pixels on the model's device, float32 (block, 3, side, side), to vectors, float32 (block, width).
Thread-safe."""

_OPSET = 17


def image_tower(spec: OpenClip, model: Any, side_px: int) -> ImageTower:
    """Image tower in ``spec.backend``, of an open_clip model that takes squares of ``side_px``.

    Raises:
        ValueError: the model cannot be exported.
    """
    if spec.backend == "torch":
        return _in_torch(model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "images.onnx")  # a file, since weights above 2 GiB are written next to it
        _export(spec, model, side_px, file)
        tower = _in_onnxruntime(str(file)) if spec.backend == "onnxruntime" else _in_openvino(str(file), spec.precision)
    model.visual = None  # frees half a gigabyte that is no longer used
    return tower


def _in_torch(model: Any) -> ImageTower:
    import torch

    model.visual.to(memory_format=torch.channels_last)  # makes convolutions a quarter faster
    dtype = next(model.visual.parameters()).dtype

    def vectors(pixels: torch.Tensor) -> np.ndarray:
        given = pixels.to(dtype=dtype, memory_format=torch.channels_last)
        with torch.inference_mode():
            return model.encode_image(given).float().cpu().numpy()

    return vectors


def _in_onnxruntime(file: str) -> ImageTower:
    """The weights are laid out for the CPU once; torch does this in every pass."""
    session = one_thread_session(file)
    return lambda pixels: session.run(None, {"pixels": pixels.numpy()})[0]


def _in_openvino(file: str, precision: str) -> ImageTower:
    """A stream of one thread for each processor; each calling thread has a request of its own, which takes a free stream."""
    import openvino

    count = os.cpu_count() or 1
    hints = {
        "INFERENCE_NUM_THREADS": count,
        "NUM_STREAMS": count,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        "ENABLE_CPU_PINNING": False,  # the threads of several processes would be pinned to the same cores
    }
    network = openvino.Core().compile_model(file, "CPU", hints)
    held = threading.local()

    def vectors(pixels: torch.Tensor) -> np.ndarray:
        if not hasattr(held, "request"):
            held.request = network.create_infer_request()
        return held.request.infer([pixels.numpy()])[0]

    return vectors


def _export(spec: OpenClip, model: Any, side_px: int, file: Path) -> None:
    """Write the graph of ``encode_image`` for blocks of images as ONNX. Raises ``ValueError`` if it cannot be."""
    import torch

    importlib.import_module("onnx")  # torch needs it; if it were missing, the error below would blame the model

    class Images(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.model.encode_image(pixels)

    # For trainable weights, torch uses the plain implementation of attention, which can be exported. No gradient is computed.
    model.visual.requires_grad_(True)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.enable_grad():
            warnings.simplefilter("ignore")  # that this exporter is deprecated, and that sizes are constants, as intended
            torch.onnx.export(
                Images(),
                (torch.zeros(spec.block, 3, side_px, side_px),),
                str(file),
                opset_version=_OPSET,
                input_names=["pixels"],
                dynamo=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        message = one_line(error)
        rule = f"not supported by encoder.backend = {spec.backend!r}, use 'torch'"
        raise ValueError(f"encoder {spec.model}: {rule}: {message}") from None
    finally:
        model.visual.requires_grad_(False)


def one_thread_session(model: str | bytes) -> Any:
    """ONNX Runtime session of a model (path or bytes) that runs on the calling thread."""
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
