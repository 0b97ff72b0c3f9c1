"""Networks on graphs: any module along a stream axis."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ..core.build import classifier_of, network_of
from ..models.classifier import Classifier
from ..models.flat import Piece, Pieces
from ..models.parts import EachPart
from .parallel_streams import GraphNet
from .recipe import GraphData

Graph = Literal["adjacency", "partitions"]


def graph_of(make: Callable[..., Any]) -> Graph:
    """Name of the keyword by which a network takes the graph; it also determines the form of the samples.

    ``adjacency``: (V, V) with self-loops, and node vectors (V, F); ``partitions``: ST-GCN's (3, V, V), and tensors (C, T, V).
    For several bodies see ``core.build.network_of``.
    """
    return "partitions" if "partitions" in inspect.signature(make).parameters else "adjacency"


def attends(network: nn.Module) -> bool:
    """Whether a network has attention over edges: a ``gcn``, an ``st_gcn``, or a module whose ``topology(x)`` is its norm."""
    backbone = network.backbone if isinstance(network, Classifier) else network
    inner = backbone.network if isinstance(backbone, EachPart) else backbone
    return hasattr(inner, "along_streams") or callable(getattr(inner, "topology", None))


def net_of(make: Callable[..., Any], settings: Mapping[str, Any], data: GraphData, device: torch.device) -> GraphNet:
    """A network for a dataset: the fast form if the module of ``make`` has ``along_streams``, else a ``ModuleNet``."""
    graph = {graph_of(make): torch.from_numpy(data.operators).to(device)}
    sample = tuple(data.x.shape[1:])
    along = getattr(network_of(make, sample, {**graph, **settings}, torch.Generator()), "along_streams", None)
    if along is not None:
        return along(data.classes)
    return ModuleNet(functools.partial(classifier_of, make, sample, {**graph, **settings}), data.classes, device)


class ModuleNet:
    """Streams of one module, computed one after the other; the caller holds parameters and statistics as rows.

    Args:
        make: makes a model without outputs, with weights drawn from the generator alone.
        classes: number of outputs.
        device: device of the module.
    """

    def __init__(self, make: Callable[[torch.Generator], Classifier], classes: int, device: torch.device) -> None:
        self._make, self._classes = make, classes
        self._module = self._make_module(torch.Generator()).to(device)
        learned = {name: value for name, value in self._module.named_parameters() if value.requires_grad}
        moved = {name: value for name, value in self._module.named_buffers() if value.is_floating_point()}
        self._parameters, self._statistics = (
            Pieces({name: Piece(tuple(value.shape), "zeros") for name, value in each.items()}) for each in (learned, moved)
        )

    def draw(self, init: torch.Generator) -> tuple[Tensor, Tensor]:
        """See ``GraphNet``."""
        state = self._make_module(init).state_dict()
        rows: list[Tensor] = []
        for pieces in (self._parameters, self._statistics):
            rows.append(torch.zeros(1, pieces.size))
            for name, view in pieces.views(rows[-1]).items():
                view.copy_(state[name][None])
        return rows[0][0], rows[1][0]

    def inputs(self, x: Tensor) -> Tensor:
        """Return the samples unchanged."""
        return x

    def logits(self, flat: Tensor, statistics: Tensor, inputs: Tensor, *, training: bool, twice: bool = False) -> Tensor:
        """See ``GraphNet``."""
        self._module.train(training)
        parts = self._parameters.views(flat), self._statistics.views(statistics)
        rows = [{name: value[r] for views in parts for name, value in views.items()} for r in range(len(flat))]
        return torch.stack([torch.func.functional_call(self._module, row, (inputs,)) for row in rows])

    def topology(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """(R,) result of the module's own ``topology`` for the batch. Raises ValueError if it has none."""
        module = self._module.train()
        if not attends(module.backbone):
            raise ValueError(
                "this network has no topology(x), the norm of its attention over the edges, which the method needs"
            )
        own = {name: value for name, value in self._parameters.views(flat).items() if name.startswith("backbone.")}
        rows = [{name: value[r] for name, value in own.items()} for r in range(len(flat))]
        return torch.stack([torch.func.functional_call(_Topology(module.backbone), row, (inputs,)) for row in rows])

    def _make_module(self, init: torch.Generator) -> Classifier:
        module = self._make(init)
        module.grow(self._classes, init)
        return module


class _Topology(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        return cast("Callable[[Tensor], Tensor]", self.backbone.topology)(x)
