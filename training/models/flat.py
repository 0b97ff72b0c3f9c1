"""Many networks of one shape along a stream axis: all parameters of a network are one row of one tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Init = Literal["glorot", "identities", "linear", "normal", "ones", "zeros"]
_ROW = 64  # floats: a multiple of every processor's vector registers
_ALIGNED = 4  # floats


@dataclasses.dataclass(frozen=True)
class Piece:
    """Shape and initialisation of a parameter.

    "glorot" is Glorot uniform over the first two axes; "linear" is uniform in +-1/sqrt(``fan_in``), torch's default for weights
    and biases of linear layers and convolutions; "normal" has the standard deviation ``scale``; "ones" are multiplied by
    ``scale``; "identities" are identity matrices over the last two axes.
    """

    shape: tuple[int, ...]
    init: Init
    fan_in: int = 1
    scale: float = 1.0


class Pieces:
    """Positions of the pieces in a row.

    Each piece begins at a multiple of 16 bytes, which products and convolutions on GPUs need. Rows are padded to a multiple of
    the vector registers: fused optimisers round differently in the remainder, and a stream's results must not depend on other
    streams. Gaps are zeros.
    """

    def __init__(self, pieces: Mapping[str, Piece]) -> None:
        self.pieces = dict(pieces)
        self._places: list[tuple[str, int, int, tuple[int, ...]]] = []
        end = 0
        for name, piece in pieces.items():
            start, end = end, end + math.prod(piece.shape)
            self._places.append((name, start, end, piece.shape))
            end += -end % _ALIGNED
        self.size = end + -end % _ROW

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """(R, size) -> views by name, each (R, *shape)."""
        return {name: flat[:, start:stop].view(-1, *shape) for name, start, stop, shape in self._places}

    def arrays(self, flat: Tensor) -> dict[str, NDArray[Any]]:
        """(R, size) on the CPU -> arrays by name, each (R, *shape), which share its memory."""
        held = flat.detach().numpy()
        return {name: held[:, start:stop].reshape(-1, *shape) for name, start, stop, shape in self._places}

    def draw(self, init: torch.Generator) -> Tensor:
        """Draw a row, (size,) float32, in the order of the pieces, from ``init`` alone."""
        flat = torch.zeros(1, self.size)
        for name, view in self.views(flat).items():
            piece = self.pieces[name]
            if piece.init == "ones":
                view.fill_(piece.scale)
            elif piece.init == "identities":
                view.copy_(torch.eye(piece.shape[-1]).expand(view.shape))
            elif piece.init == "normal":
                view.copy_(torch.empty(view.shape).normal_(0, piece.scale, generator=init))
            elif piece.init != "zeros":
                fan = piece.fan_in if piece.init == "linear" else sum(piece.shape[:2]) / 6
                view.copy_(torch.empty(view.shape).uniform_(-1, 1, generator=init) / math.sqrt(fan))
        return flat[0]


class FlatNetwork:
    """Base class of networks along a stream axis, whose parameters and statistics are rows of pieces."""

    parameters: Pieces
    statistics: Pieces

    def draw(self, init: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return (P,) parameters, drawn from ``init`` alone, and (S,) statistics."""
        return self.parameters.draw(init), self.statistics.draw(torch.Generator())


class GraphBackbone(nn.Module):
    """A single stream of a network, without its output layer.

    Args:
        along_streams: classes -> network over a stream axis with ``features``, see ``graph_streams.parallel_streams.GraphNet``.
        width: length of a feature vector.
        init: generator for the weights.

    Attributes:
        along_streams: see above; computes parallel streams.
        width: see above.
    """

    def __init__(self, along_streams: Callable[[int], Any], width: int, init: torch.Generator) -> None:
        super().__init__()
        self.along_streams, self.width = along_streams, width
        self._net = along_streams(1)
        weights, statistics = self._net.draw(init)
        self.weights = nn.Parameter(weights[None])
        self.register_buffer("statistics", statistics[None])

    def forward(self, x: Tensor) -> Tensor:
        """Samples as the network takes them -> (n, width)."""
        return self._net.features(self.weights, self.statistics, self._net.inputs(x), training=self.training)[0]
