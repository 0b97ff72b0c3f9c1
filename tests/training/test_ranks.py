"""Two processes that train a model together: the same result as one, to rounding, by every method of CLEAR's Table 1."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.training.baselines.clear import groups, paper_methods, paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.core.ranks import Ranks, joined
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods.registry import method
from benchwright.training.models.picture_net import picture_net
from torch import Tensor

NAMES = groups()["table1"]
SIZES = (24, 25, 21)
"""Rows of the buckets: batches of 8 leave nothing, one row for two processes, and five."""


def bucket(number: int) -> ArrayExamples:
    draw = np.random.default_rng(number)
    y = np.arange(SIZES[number]) % 3
    X = draw.normal(size=(len(y), 3, 12, 12)) + np.eye(3)[y][:, :, None, None]
    return ArrayExamples(X.astype(np.float32), y, [f"{number}-{row}" for row in range(len(y))])


def learned(name: str, ranks: Ranks | None) -> tuple[dict[str, Tensor], list[Any]]:
    """Weights and statistics after three buckets, and the losses on the way."""
    _, settings = paper_settings("small_resnet")
    changes = {"epochs": 2, "batch_size": 8, "learning_rate": 0.02, "select": "none"}
    own, values = paper_methods()[name]
    settings = {**settings, "method": values, "schedule": {**settings["schedule"], **changes}}
    parts = parts_of(settings, lambda **given: method(own, **given), picture_net, labels="one", classes="same")
    learner = Learner(parts, sample=(3, 12, 12), seed=0, ranks=ranks)
    losses: list[Any] = []
    for number in range(len(SIZES)):
        learner.learn(bucket(number), [], classes=0 if number else 3)
        losses += [each["loss"] for each in learner.record["epochs"]]
    return {key: value.clone() for key, value in learner.model.state_dict().items()}, losses


def as_a_process(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    with joined() as here:
        found = {name: learned(name, here) for name in NAMES}
        if rank == 0:
            here.tell({"done": 2}, b"content")
        else:
            assert here.hear() == ({"done": 2}, b"content")
    torch.save(found, Path(folder) / f"{rank}.pt")


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, str(port), str(folder)]
    started = [subprocess.Popen([*command, str(rank)]) for rank in range(2)]
    assert [one.wait() for one in started] == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_learn_what_one_learns(name: str, by_two: list[Any]) -> None:
    weights, losses = learned(name, None)
    for theirs, told in (each[name] for each in by_two):
        assert told == pytest.approx(losses, rel=1e-4)
        for key, value in weights.items():
            torch.testing.assert_close(theirs[key], value, rtol=1e-3, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")
    first, second = (each[name][0] for each in by_two)
    assert all(torch.equal(first[key], second[key]) for key in weights), "both have the same bits"


if __name__ == "__main__":
    as_a_process(int(sys.argv[3]), int(sys.argv[1]), sys.argv[2])
