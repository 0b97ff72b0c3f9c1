"""Optimisers: the bits of torch's own, and a process that trains does not load torch's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from benchwright.training.core import schedule


def trained(kind: type[torch.optim.Optimizer], **settings: Any) -> list[torch.Tensor]:
    """Weights after steps of two optimisers, the second of which goes on from the record of the first."""
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(5, 3, generator=draw).requires_grad_(), torch.randn(3, generator=draw).requires_grad_()]
    record: dict[str, Any] = {}
    for _ in range(2):
        optimiser = kind(weights, lr=0.1, weight_decay=0.01, **settings)  # type: ignore[call-arg]
        if record:
            optimiser.load_state_dict(record)
        for _ in range(3):
            optimiser.zero_grad()
            (torch.randn(4, 5, generator=draw) @ weights[0] + weights[1]).square().mean().backward()
            optimiser.step()
        record = optimiser.state_dict()
    return weights


@pytest.mark.parametrize(
    ("name", "settings"), [("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("Adam", {}), ("Adam", {"fused": True})]
)
def test_steps_are_those_of_torch(name: str, settings: dict[str, Any]) -> None:
    ours, theirs = (trained(getattr(module, name), **settings) for module in (schedule, torch.optim))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert all(weight.requires_grad and weight.is_leaf for weight in ours)


def test_torchs_compiler_is_not_loaded() -> None:
    code = (
        "import sys, torch\n"
        "from benchwright.training.core.schedule import Schedule\n"
        "from benchwright.training.models.mlp import vector_net\n"
        "vector_net(4, 8, torch.Generator())\n"
        "known = dict(epochs=1, batch_size=1, drop_last=False, clip_norm=None, mixed_precision=False, select='none',\n"
        "             eval_every=1, first_best='nothing', learning_rate=0.1, momentum=0.9, weight_decay=0.1)\n"
        "for name in ('sgd', 'adagrad', 'adam'):\n"
        "    weight = torch.ones(2, requires_grad=True)\n"
        "    optimiser = Schedule(optimiser=name, **known).make([weight])\n"
        "    optimiser.zero_grad()\n"
        "    weight.sum().backward()\n"
        "    optimiser.step()\n"
        "import numpy as np\n"
        "from benchwright.training.illuminants.ffcc import fit_ffcc\n"
        "from benchwright.training.illuminants.pictures import LinearPictures\n"
        "grey = LinearPictures.of(np.ones((2, 4, 4, 3)))\n"
        "fit_ffcc(grey, np.ones((2, 3)), colours=-23, edges=-29, plausible=-26, weight=-2)\n"
        "print(sorted({'torch._dynamo', 'sympy'} & sys.modules.keys()))"
    )
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
