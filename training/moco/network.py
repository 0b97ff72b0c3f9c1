"""MoCo's two encoders and its queue (He et al., "Momentum Contrast", CVPR 2020; v2: Chen et al., 2020).

Only torch is used, not lightly (1.6.0): its memory bank is not part of a state dict, so that a resumed training starts with
random keys, and is drawn from the global generator, as its transforms draw from numpy's; and it requires pytorch-lightning,
torchmetrics, hydra-core and omegaconf.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import swa_utils

from ..core.determinism import generator
from ..models.linear import affine
from ..models.resnet import RESNETS, resnet
from ..models.small_cnn import small_cnn
from .settings import MocoSettings


class SplitBatchNorm(nn.BatchNorm2d):
    """Batch norm that normalises parts of a batch separately in training: row r belongs to part r mod ``splits``.

    So one device computes what ``splits`` devices do. Running statistics are averaged over the parts.
    """

    splits = 1

    def forward(self, input: Tensor) -> Tensor:
        """(b, c, h, w) -> (b, c, h, w)."""
        mean, var, parts = self.running_mean, self.running_var, self.splits
        if not self.training or parts == 1 or mean is None or var is None:
            return super().forward(input)
        b, c, h, w = input.shape
        means, variances = mean.repeat(parts), var.repeat(parts)
        weight, bias = self.weight.repeat(parts), self.bias.repeat(parts)
        stacked = input.reshape(b // parts, parts * c, h, w)
        made = F.batch_norm(stacked, means, variances, weight, bias, True, self.momentum or 0.0, self.eps)
        with torch.no_grad():
            mean.copy_(means.view(parts, c).mean(0))
            var.copy_(variances.view(parts, c).mean(0))
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
        return made.reshape(b, c, h, w)


def encoder(settings: MocoSettings, init: torch.Generator) -> nn.Module:
    """The backbone with the head of v2 as its ``fc``: linear, ReLU, linear. All weights come from ``init``."""
    if settings.backbone in RESNETS:
        network, width = resnet(settings.backbone, init, None)
    else:
        network, width = small_cnn(settings.width, init)
    network.fc = nn.Sequential(affine(width, width, init), nn.ReLU(), affine(width, settings.dim, init))
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SplitBatchNorm
            module.splits = settings.batch_norm_splits  # type: ignore[assignment]
    return network


class MoCo(nn.Module):
    """The query encoder that is trained, the key encoder that follows it, and the queue of keys.

    Names in its state dict are those of the released code: ``encoder_q``, ``encoder_k``, ``queue``, ``queue_ptr``.

    Args:
        settings: see ``MocoSettings``.
        seed: seed for the weights and the initial keys of the queue.

    >>> from benchwright.training.moco.settings import moco_settings
    >>> small = {"backbone": "small_cnn", "width": 4, "dim": 8, "batch_size": 4, "queue": 16, "batch_norm_splits": 2}
    >>> moco = MoCo(moco_settings("moco_v2", small), seed=0)
    >>> views = torch.rand(2, 4, 3, 16, 16)
    >>> logits, keys = moco(views[0], views[1], torch.arange(4))
    >>> logits.shape  # the right key is the first
    torch.Size([4, 17])
    >>> moco.enqueue(keys)
    >>> int(moco.queue_ptr)
    4
    """

    queue: Tensor
    queue_ptr: Tensor

    def __init__(self, settings: MocoSettings, *, seed: int) -> None:
        super().__init__()
        self._settings = settings
        self.encoder_q = encoder(settings, generator(seed, "moco init"))
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        drawn = torch.randn(settings.dim, settings.queue, generator=generator(seed, "moco queue"))
        self.register_buffer("queue", F.normalize(drawn, dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.int64))

    @torch.no_grad()
    def follow(self) -> None:
        """Move the key encoder's weights towards those of the query encoder; batch norm has its own statistics in each."""
        move = swa_utils.get_ema_multi_avg_fn(self._settings.encoder_momentum)
        move([*self.encoder_k.parameters()], [*self.encoder_q.parameters()], 0)

    def forward(self, queries: Tensor, keys: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of a step, and its keys, which ``enqueue`` takes once the gradient is computed.

        Args:
            queries: (b, 3, side, side) first views.
            keys: (b, 3, side, side) second views.
            order: permutation of b in which keys pass through their encoder, so that batch norm leaks nothing about pairs.

        Returns:
            Logits (b, 1 + queue) float32, of which the first is the right one; and keys (b, dim).
        """
        # Only encoders run in half precision.
        q = F.normalize(self.encoder_q(queries).float(), dim=1)
        with torch.no_grad():
            self.follow()
            shuffled = F.normalize(self.encoder_k(keys[order]).float(), dim=1)
            k = torch.empty_like(shuffled)
            k[order] = shuffled
        with torch.autocast(queries.device.type, enabled=False):
            positive = (q * k).sum(1, keepdim=True)
            logits = torch.cat([positive, q @ self.queue], dim=1) / self._settings.temperature
        return logits, k

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Replace the oldest keys of the queue by those of a step."""
        at = int(self.queue_ptr)
        self.queue[:, at : at + len(keys)] = keys.T
        self.queue_ptr[0] = (at + len(keys)) % self.queue.shape[1]
