"""Load a model's weights from a file that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from ...datasets.features.headless import load_weights


def load_file(network: nn.Module, path: Path, name: str, left_out: Sequence[str]) -> None:
    """Load the weights of a file, in a form that ``datasets.features.checkpoints`` reads, into a network.

    Args:
        network: network without its last layer.
        path: the file.
        name: name of the network, for errors.
        left_out: names of the last layer, which is ignored in the file, and of other layers that are left out.

    Raises:
        ValueError: the file cannot be read, is damaged or holds another network.
    """
    try:
        load_weights(network, name, left_out, str(path))
    except FileNotFoundError:
        raise ValueError(f"{path}: No such file or directory") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        message = str(error).removeprefix(f"weights {path}: ")
        raise ValueError(f"{path} does not contain the weights of {name}: {message}") from error
