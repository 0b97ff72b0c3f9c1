"""A backbone and one linear head that grows: new classes add outputs, and all classes compete."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Dropout with masks from ``generator``, on the CPU, so that all devices use the same ones; no generator: no dropout.

    Raises ``ValueError`` unless the share is in [0, 1).

    >>> dropout = Dropout(0.5)
    >>> dropout.generator = torch.Generator().manual_seed(0)
    >>> sorted(set(dropout(torch.ones(100)).tolist()))  # what stays is scaled up
    [0.0, 2.0]
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"dropout {share}: a share in [0, 1)")
        self.share = share
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``dropped`` in training, else ``x``."""
        return dropped(x, self.share, self.generator if self.training else None)


def dropped(x: Tensor, share: float, generator: torch.Generator | None) -> Tensor:
    """Zero each number with probability ``share`` and divide the others by 1 - ``share``; no generator: return ``x``.

    >>> dropped(torch.ones(3), 0.5, None)
    tensor([1., 1., 1.])
    >>> set(dropped(torch.ones(100), 0.5, torch.Generator().manual_seed(0)).tolist()) == {0.0, 2.0}
    True
    """
    if share == 0 or generator is None:
        return x
    mask = torch.empty(x.shape).bernoulli_(1 - share, generator=generator)
    return x * mask.to(x.device) / (1 - share)


class Classifier(nn.Module):
    """Logits of all classes seen so far.

    If the backbone returns several vectors per sample (TSN's segments), the logits are averaged over them, and the penultimate
    vector is their mean.

    Args:
        backbone: (b, ...) -> (b, width) or (b, segments, width).
        width: length of a feature vector.
        dropout: rate before the head.
        head_std: weights of new outputs are N(0, head_std) and biases 0, as in TSN; None: uniform in +-1/sqrt(width).
        eta: None: the head is linear. Else logits are eta cos(weight, feature), without biases (LUCIR's head); the learned
            eta starts at 1 and is "kept" from task to task, or "reset" to 1 at each task (IIRC's iCaRL-norm).

    Raises:
        ValueError: ``eta`` or ``dropout`` is out of its range.

    >>> classifier = Classifier(nn.Identity(), 4)
    >>> classifier.grow(2, torch.Generator().manual_seed(0))
    >>> classifier.grow(3, torch.Generator().manual_seed(1))
    >>> classifier(torch.zeros(7, 4)).shape, classifier.groups
    (torch.Size([7, 5]), (2, 3))
    """

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        *,
        dropout: float = 0.0,
        head_std: float | None = None,
        eta: Literal["kept", "reset"] | None = None,
    ) -> None:
        if eta not in (None, "kept", "reset"):
            raise ValueError(f"eta {eta!r}: None, 'kept' or 'reset'")
        super().__init__()
        self.backbone = backbone
        self.dropout = Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(0, width))
        self.bias = nn.Parameter(torch.empty(0), requires_grad=eta is None)
        self.eta = None if eta is None else nn.Parameter(torch.ones(()))
        # One pair per group of classes that were learned together: BiC's correction; other methods leave 1 and 0.
        self.alpha = nn.Parameter(torch.empty(0), requires_grad=False)
        self.beta = nn.Parameter(torch.empty(0), requires_grad=False)
        self.groups: tuple[int, ...] = ()
        self.compiled: Callable[[Tensor], Tensor] | None = None
        """The backbone compiled by ``torch.compile``, used in its place."""
        self._head_std = head_std
        self._reset_eta = eta == "reset"

    @property
    def classes(self) -> int:
        """Number of outputs."""
        return len(self.bias)

    def grow(self, classes: int, init: torch.Generator) -> None:
        """Add outputs for ``classes`` new classes, drawn from ``init`` alone; the old ones stay as they are.

        Raises ``ValueError`` for fewer than one class.

        >>> classifier = Classifier(nn.Identity(), 4)
        >>> classifier.grow(2, torch.Generator().manual_seed(0))
        >>> old = classifier.weight.detach().clone()
        >>> classifier.grow(1, torch.Generator().manual_seed(1))
        >>> torch.equal(classifier.weight[:2], old)
        True
        """
        if classes < 1:
            raise ValueError(f"{classes} new classes: at least one")
        width = self.weight.shape[1]
        weight, bias = torch.empty(classes, width), torch.zeros(classes)
        if self._head_std is None:
            bound = 1 / math.sqrt(width)
            weight.uniform_(-bound, bound, generator=init)
            bias.uniform_(-bound, bound, generator=init)
        else:
            weight.normal_(0, self._head_std, generator=init)
        for name, values in (("weight", weight), ("bias", bias), ("alpha", torch.ones(1)), ("beta", torch.zeros(1))):
            old = cast(nn.Parameter, getattr(self, name))
            grown = torch.cat([old.detach(), values.to(old.device)])
            setattr(self, name, nn.Parameter(grown, requires_grad=old.requires_grad))
        self.groups = (*self.groups, classes)
        if self.eta is not None:
            with torch.no_grad():
                self.bias.zero_()
                if self._reset_eta:
                    self.eta.fill_(1.0)

    def penultimate(self, x: Tensor) -> Tensor:
        """(b, width): input of the head without dropout, averaged over segments."""
        features = self.embed(x)
        return features.mean(1) if features.ndim == 3 else features

    def embed(self, x: Tensor) -> Tensor:
        """(b, width) or (b, segments, width): output of the backbone."""
        return self.backbone(x) if self.compiled is None else self.compiled(x)

    def forward(self, x: Tensor) -> Tensor:
        """(b, classes) logits, corrected per group."""
        return self.head(self.embed(x))

    def head(self, embedded: Tensor) -> Tensor:
        """(b, classes) logits for an output of ``embed``."""
        seen = self.dropout(embedded)
        if self.eta is None:
            logits = nn.functional.linear(seen, self.weight, self.bias)
        else:
            unit = nn.functional.normalize
            logits = self.eta * nn.functional.linear(unit(seen, dim=-1), unit(self.weight, dim=1))
        if logits.ndim == 3:
            logits = logits.mean(1)
        if len(self.groups) == 1:
            return logits * self.alpha + self.beta
        repeats, size = torch.tensor(self.groups, device=logits.device), self.classes
        alpha, beta = (pair.repeat_interleave(repeats, output_size=size) for pair in (self.alpha, self.beta))
        return logits * alpha + beta
