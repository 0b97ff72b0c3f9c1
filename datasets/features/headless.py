"""Image and video networks of torchvision or timm without their last layer, by name, and loading of their weights."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from ...curation.encoders.torchvision_compat import ensure_torchvision
from .checkpoints import Wanted, read_checkpoint, weights_of

LIBRARIES = ("timm", "torchvision")


def check_network(library: str, name: str, *, clips: bool = False) -> None:
    """Raise ValueError if a library has no network of this name for images or, with ``clips``, for images or clips."""
    if library == "timm":
        known = timm_models().list_models()
    else:
        models = torchvision_models()
        known = models.list_models(module=models) + (clip_networks() if clips else [])
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        message = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{library} has no network {name!r} for images{' or clips' if clips else ''}{message}")


def clip_networks() -> list[str]:
    """Names of torchvision's networks that take a whole clip."""
    models = torchvision_models()
    return models.list_models(module=models.video)


def headless(library: str, name: str, *, clips: bool = False) -> tuple[Any, tuple[str, ...]]:
    """A network without its last layer, and the names of this layer and of other layers that are left out.

    The library draws its weights from torch's global generator.

    Raises:
        ValueError: the network does not exist (see ``check_network``), or has no last linear layer.
    """
    check_network(library, name, clips=clips)
    return _of_timm(name) if library == "timm" else _of_torchvision(name)


def load_weights(
    network: Any,
    name: str,
    left_out: Sequence[str],
    place: str,
    prefix: str | None = None,
    rename: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    """Load the weights of a file into a network; the file has any form that ``checkpoints`` can read.

    Args:
        network, left_out: results of ``headless``.
        name: name of the network, for errors.
        place: path or URL of the file.
        prefix: prefix of the names of the weights in the file; None: detected.
        rename: converts the names of a release to those of the network.

    Raises:
        ValueError: the file does not hold the weights.
        FileNotFoundError: the file does not exist.
    """
    last, *beside = left_out or ("",)
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    wanted = Wanted(name, shapes, last, [child for child, _ in network.named_children()])
    held = read_checkpoint(place) if rename is None else rename(read_checkpoint(place))
    held = {key: value for key, value in held.items() if not any(f".{part}." in f".{key}" for part in beside)}
    network.load_state_dict(weights_of(held, wanted, place, prefix), strict=False)  # only counters may be missing


def torchvision_models() -> Any:
    """The package ``torchvision.models``."""
    ensure_torchvision()
    return importlib.import_module("torchvision.models")


def timm_models() -> Any:
    """The package ``timm``. Raises ValueError if it is not installed."""
    ensure_torchvision()
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError:
        raise ValueError("the package timm is not installed: pip install timm") from None


def _of_timm(name: str) -> tuple[Any, tuple[str, ...]]:
    network: Any = timm_models().create_model(name, pretrained=False, num_classes=0)
    heads = network.pretrained_cfg.get("classifier") or "head"
    return network, (heads,) if isinstance(heads, str) else tuple(heads)


def _of_torchvision(name: str) -> tuple[Any, tuple[str, ...]]:
    import torch

    given = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    network: Any = torchvision_models().get_model(name, weights=None, **given)
    beside = [part for part in ("aux1", "aux2", "AuxLogits") if getattr(network, part, None) is not None]
    for part in beside:  # outputs that exist only for training
        setattr(network, part, None)
    last = [path for path, part in network.named_modules() if isinstance(part, torch.nn.Linear)]
    if not last:
        raise ValueError(f"torchvision/{name} has no last linear layer, and so no features: name another, such as one of timm")
    owner, _, attribute = last[-1].rpartition(".")
    setattr(network.get_submodule(owner), attribute, torch.nn.Identity())
    return network, (last[-1], *beside)
