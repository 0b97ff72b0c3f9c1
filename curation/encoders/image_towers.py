"""Image towers of CLIP-like models: in torch, or on CPUs in ONNX Runtime.

Both compute the vectors of a block of images, of constant size, on the calling thread: the same block gives the same bytes,
whatever else the machine does. The two differ in the last bits, with cosines of 0.9999 or more.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import tempfile
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
    return _in_torch(model) if spec.backend == "torch" else _in_onnxruntime(spec, model, side_px)


def _in_torch(model: Any) -> ImageTower:
    import torch

    model.visual.to(memory_format=torch.channels_last)  # makes convolutions a quarter faster
    dtype = next(model.visual.parameters()).dtype

    def vectors(pixels: torch.Tensor) -> np.ndarray:
        given = pixels.to(dtype=dtype, memory_format=torch.channels_last)
        with torch.inference_mode():
            return model.encode_image(given).float().cpu().numpy()

    return vectors


def _in_onnxruntime(spec: OpenClip, model: Any, side_px: int) -> ImageTower:
    """The graph of ``encode_image``. The weights are laid out for the CPU once; torch does this in every pass."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "images.onnx")  # a file, since weights above 2 GiB are written next to it
        export(spec, model, torch.zeros(spec.block, 3, side_px, side_px), file)
        session = one_thread_session(str(file))
    model.visual = None  # frees half a gigabyte that is no longer used

    def vectors(pixels: torch.Tensor) -> np.ndarray:
        return session.run(None, {"pixels": pixels.numpy()})[0]

    return vectors


def export(spec: OpenClip, model: Any, example: torch.Tensor, file: Path) -> None:
    """Write the graph of ``encode_image`` for images like ``example`` as ONNX. Raises ``ValueError`` if it cannot be."""
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
            torch.onnx.export(Images(), (example,), str(file), opset_version=_OPSET, input_names=["pixels"], dynamo=False)
    except torch.onnx.errors.OnnxExporterError as error:
        message = one_line(error)
        rule = "not supported by encoder.backend = 'onnxruntime', use 'torch'"
        raise ValueError(f"encoder {spec.model}: {rule}: {message}") from None
    finally:
        model.visual.requires_grad_(False)


def one_thread_session(model: str | bytes) -> Any:
    """ONNX Runtime session of a model (path or bytes) that runs on the calling thread."""
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
