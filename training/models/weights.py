"""Weights of a network, drawn from one generator."""

from __future__ import annotations

import torch
from torch import nn


def init_network(network: nn.Module, init: torch.Generator) -> nn.Module:
    """Draw all weights from ``init``, in the order of the modules: He's normal for convolutions (by fan-out) and linear
    layers (by fan-in), 1 and 0 for norms, 0 for biases. The global generator is neither read nor moved.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=init)
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=init)
        elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.reset_running_stats()
            nn.init.ones_(module.weight)
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d)) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return network
