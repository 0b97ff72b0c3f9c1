"""A linear classifier on stored features, and weight initialisation from a single generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeVar

import torch
from torch import nn

from .classifier import Classifier

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def affine(inputs: int, outputs: int, init: torch.Generator) -> nn.Linear:
    """An affine layer with torch's default initialisation, uniform in +-1/sqrt(inputs), drawn from ``init`` alone.

    >>> affine(4, 2, torch.Generator().manual_seed(0)).weight.abs().max().item() <= 0.5
    True
    """
    # Made without values first: the constructor would draw from the global generator.
    layer = allocated(nn.Linear(inputs, outputs, device="meta"))
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=init)
        layer.bias.uniform_(-bound, bound, generator=init)
    return layer


def allocated(network: AnyModule) -> AnyModule:
    """A network that was made on the device "meta", in memory that is still to be filled.

    As by ``to_empty``, which imports sympy for it: a third of a second in each process.
    """
    for module in network.modules():
        for name, value in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(torch.empty(value.shape, dtype=value.dtype), value.requires_grad))
        for name, value in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(value.shape, dtype=value.dtype))
    return network


def linear(init: torch.Generator, *, sample: Sequence[int]) -> Classifier:
    """A linear head on all numbers of a sample, float32. CLEAR's linear baseline (section 5).

    Args:
        init: unused: weights are drawn when outputs are added.
        sample: (d,) of a vector, or (channels, times) of a signal.

    >>> classifier = linear(torch.Generator(), sample=(4,))
    >>> classifier.grow(3, torch.Generator())
    >>> classifier(torch.zeros(1, 4)).shape
    torch.Size([1, 3])
    """
    return Classifier(nn.Sequential(*flat(sample)), math.prod(sample))


def flat(sample: Sequence[int]) -> list[nn.Module]:
    """The layers that make a vector of a sample: none if it is one."""
    return [nn.Flatten()] if len(sample) > 1 else []


def init_network(network: nn.Module, init: torch.Generator, *, fan: Literal["fan_in", "fan_out"] = "fan_out") -> nn.Module:
    """Draw all weights from ``init``, in the order of the modules: He's normal for convolutions (by ``fan``) and linear
    layers (by fan-in), 1 and 0 for norms, 0 for biases. The global generator is neither read nor moved.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=fan, nonlinearity="relu", generator=init)
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=init)
        elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.reset_running_stats()
            nn.init.ones_(module.weight)
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d)) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return network
