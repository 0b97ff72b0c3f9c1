"""Make torchvision importable with a build of torch for which its extension cannot be loaded."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any


@functools.cache
def ensure_torchvision() -> Any:
    """Make ``import torchvision`` and so ``import open_clip`` work; call it before any such import, in every process.

    torchvision's wheels on PyPI are linked to CUDA. With a CPU build of torch their extension cannot be loaded, and the
    import fails with "operator torchvision::nms does not exist" (pytorch/vision#9077), though nothing here uses such an
    operator. If the extension loads, or the operators are already defined, nothing is done.

    Returns:
        The ``torch.library.Library`` with the definitions, which exist as long as it does; None if nothing was done.
    """
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _defined("nms"):
        return None
    for extension in sorted(Path(spec.origin).parent.glob("_C*")):
        try:
            torch.ops.load_library(str(extension))
        except OSError:
            continue
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        if not _defined(operator):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def _defined(operator: str) -> bool:
    import torch

    return hasattr(torch.ops.torchvision, operator)
