"""Packages that only some stages and commands need, and the extras of ``pip install`` that provide them.

Only the standard library is imported here, so that any missing package can be reported.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import traceback
from collections.abc import Iterator

EXTRAS = {
    "av": "video",
    "colour": "colour",
    "cv2": "images",
    "dask": "cluster",
    "distributed": "cluster",
    "duckdb": "view",
    "faiss": "encoders",
    "ffmpeg": "video",
    "gcsfs": "gcs",
    "huggingface_hub": "hub",
    "llvmlite": "compiled",
    "numba": "compiled",
    "onnx": "export",
    "onnxruntime": "export",
    "open_clip": "encoders",
    "openvino": "openvino",
    "polars": "tables",
    "pytorchvideo": "backbones",
    "rawpy": "images",
    "s3fs": "s3",
    "safetensors": "train",
    "scipy": "train",
    "sklearn": "video",
    "starlette": "view",
    "timm": "train",
    "torch": "train",
    "torchvision": "train",
    "transformers": "backbones",
    "uvicorn": "view",
    "webdataset": "train",
}
"""Top-level module -> the extra that provides it, the smallest one if several do."""

_ELSEWHERE = {
    ("benchwright.curation.encoders.", "torch"): "encoders",
    ("benchwright.datasets.features.", "torch"): "encoders",
    ("benchwright.datasets.spectra.", "scipy"): "colour",
    ("benchwright.training.", "sklearn"): "train",
}
"""Prefix of the importing module's name, and the imported module -> the extra that provides all that is needed there."""


class NeedsPackage(RuntimeError):
    """A package that a stage or command needs is not installed. The message names the extra that provides it."""


def lacking(error: BaseException | None) -> str:
    """Message on the missing package that caused an error, and how to install it; "" if none of ``EXTRAS`` is missing.

    >>> lacking(ModuleNotFoundError("No module named 'polars'", name="polars.series"))
    "needs the package polars: pip install 'benchwright[tables]'"
    """
    while error is not None:
        if isinstance(error, NeedsPackage):
            return str(error)
        if isinstance(error, ModuleNotFoundError) and (top := (error.name or "").partition(".")[0]) in EXTRAS:
            return how_to_get(top, next(_importers(error), ""))
        error = error.__cause__ or error.__context__
    return ""


def how_to_get(package: str, importer: str = "") -> str:
    """Message on how to install a module of ``EXTRAS`` that the module ``importer`` imports."""
    extra = next((extra for (start, name), extra in _ELSEWHERE.items() if name == package and importer.startswith(start)), "")
    return f"needs the package {package}: pip install 'benchwright[{extra or EXTRAS[package]}]'"


def missing(package: str) -> bool:
    """Whether a module of ``EXTRAS`` is not installed."""
    return package in EXTRAS and importlib.util.find_spec(package) is None


@functools.cache
def can_compile() -> bool:
    """Whether numba and llvmlite are installed; if not, warns once, and the caller uses slower, uncompiled code."""
    there = not missing("numba") and not missing("llvmlite")
    if not there:
        text = "numba is not installed, and plain passes in place of compiled ones are several times slower"
        logging.getLogger("benchwright").warning("%s: pip install 'benchwright[%s]'", text, EXTRAS["numba"])
    return there


def _importers(error: ModuleNotFoundError) -> Iterator[str]:
    """Names of the benchwright modules in the error's traceback, the innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = (str(frame.f_globals.get("__name__", "")) for frame in reversed(frames))
    return (name for name in names if name.startswith("benchwright."))
