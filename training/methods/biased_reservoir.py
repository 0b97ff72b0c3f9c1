"""A buffer of one domain's size, filled by biased reservoir sampling (Lin et al., NeurIPS 2021, section 4)."""

from __future__ import annotations

import functools

from ..core.exemplars import Removal, biased_reservoir
from .method import Method, Start


def reservoir(*, alpha: float, start: Start = "finetune", removal: Removal = "as_released") -> Method:
    """Biased reservoir with the acceptance probability min(1, alpha k / i).

    Alpha 1 is Vitter's reservoir. The paper has alpha .5, 1, 2, 5; its code also .25.

    Args:
        alpha: see above; more than 1 favours the current domain.
        start: "scratch" draws new weights for each domain, "finetune" continues with the last ones.
        removal: see ``core.exemplars.biased_reservoir``.

    >>> method = reservoir(alpha=1.0)
    >>> kept = method.rule([], [4], seed=0)
    >>> kept, len(method.rule(kept, [4, 100], seed=0))  # the first domain sets the size
    (array([0, 1, 2, 3]), 4)
    """
    rule = functools.partial(biased_reservoir, alpha=alpha, dynamic=False, removal=removal)
    return Method("reservoir", rule, start)


def dynamic_reservoir(*, alpha: float, start: Start = "finetune", removal: Removal = "as_released") -> Method:
    """Biased reservoir whose alpha grows as alpha i / k, so that the acceptance probability is always min(1, alpha).

    The paper has alpha .25, .5, .75 and 1. At 1 every current row is accepted: with domains of equal size the buffer is the
    current domain.

    >>> kept = dynamic_reservoir(alpha=1.0).rule([0, 1, 2, 3], [4, 4], seed=0)
    >>> kept.tolist()
    [4, 5, 6, 7]
    """
    rule = functools.partial(biased_reservoir, alpha=alpha, dynamic=True, removal=removal)
    return Method("dynamic_reservoir", rule, start)
