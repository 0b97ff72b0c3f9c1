"""Packages that only some stages and commands need, and which extra of ``pip install`` brings them.

Nothing is imported here but the standard library: what is missing can be told whatever is missing.
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
"""Top-level module -> the extra that brings it, the smallest where several do."""

_ELSEWHERE = {
    ("benchwright.curation.encoders.", "torch"): "encoders",
    ("benchwright.datasets.features.", "torch"): "encoders",
    ("benchwright.datasets.spectra.", "scipy"): "colour",
    ("benchwright.training.", "sklearn"): "train",
}
"""Start of the name of the module that imports, and what it imports -> the extra that brings all that is needed there."""


class NeedsPackage(RuntimeError):
    """A package is not installed that a stage or a command needs: says the extra that brings it."""


def lacking(error: BaseException | None) -> str:
    """Which package an error, or what led to it, misses, and how to get it; "" if none of ``EXTRAS`` is missing.

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
    """The line for a module of ``EXTRAS`` that the module ``importer`` imports."""
    extra = next((extra for (start, name), extra in _ELSEWHERE.items() if name == package and importer.startswith(start)), "")
    return f"needs the package {package}: pip install 'benchwright[{extra or EXTRAS[package]}]'"


def missing(package: str) -> bool:
    """Whether a module of ``EXTRAS`` is not installed."""
    return package in EXTRAS and importlib.util.find_spec(package) is None


@functools.cache
def can_compile() -> bool:
    """Whether numba is installed; where it is not, that is told once, and plain passes do the work of compiled ones."""
    there = not missing("numba") and not missing("llvmlite")
    if not there:
        text = "numba is not installed, and plain passes in place of compiled ones are several times slower"
        logging.getLogger("benchwright").warning("%s: pip install 'benchwright[%s]'", text, EXTRAS["numba"])
    return there


def _importers(error: ModuleNotFoundError) -> Iterator[str]:
    """Names of our modules through which the import went, the last one first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = (str(frame.f_globals.get("__name__", "")) for frame in reversed(frames))
    return (name for name in names if name.startswith("benchwright."))
