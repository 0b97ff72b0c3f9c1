"""torch's optimisers without its compiler, which they load when the first of them is made: a second and more of every process
that trains. Where ``compile`` is set the model alone is compiled."""

from __future__ import annotations

import inspect
from typing import TypeVar, cast

import torch

Kind = TypeVar("Kind", bound=torch.optim.Optimizer)

_WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
"""Methods besides ``step`` that torch hides from its compiler, and loads it for that."""


def _plain(kind: type[Kind]) -> type[Kind]:
    """The kind with the same methods as they are written."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return cast(type[Kind], type(kind.__name__, (kind,), methods))


SGD = _plain(torch.optim.SGD)
Adagrad = _plain(torch.optim.Adagrad)
Adam = _plain(torch.optim.Adam)
