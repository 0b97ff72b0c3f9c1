"""Two processes that train a model together: the same result as one, to rounding, by every method of CLEAR's Table 1."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.training.baselines.clear import method_groups, paper_methods, paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.core.ranks import Ranks, check_ranks, joined, shared
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods.registry import method
from benchwright.training.models.classifier import Classifier
from benchwright.training.models.mlp import mlp
from benchwright.training.models.picture_net import picture_net
from torch import Tensor, nn

NAMES = method_groups()["table1"]
SIZES = (16, 17, 13)
"""Rows of the buckets: batches of 8 leave nothing, one row for two processes, and five."""


def bucket(number: int, *, flat: bool = False) -> ArrayExamples:
    draw = np.random.default_rng(number)
    y = np.arange(SIZES[number]) % 3
    X = draw.normal(size=(len(y), 3, 12, 12)) + np.eye(3)[y][:, :, None, None]
    X = X.reshape(len(X), -1) if flat else X
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
    # Forked from a server that has torch: both would import it for longer than they learn.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    begin = f"import runpy; runpy.run_path({__file__!r})['as_a_process'](rank, {port}, {str(folder)!r})"
    started = [context.Process(target=exec, args=(begin, {"rank": rank})) for rank in range(2)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert [one.exitcode for one in started] == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def test_methods_and_models_of_one_process_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(name: str, settings: dict[str, Any], **schedule: Any) -> Any:
        _, shared_settings = paper_settings("small_resnet")
        schedule = {**shared_settings["schedule"], **schedule}
        values = {**shared_settings, "method": settings, "schedule": schedule}
        return parts_of(values, lambda **given: method(name, **given), picture_net, labels="one", classes="same")

    der = parts("der", {"alpha": 0.5, "beta": 0.5})
    check_ranks(der)  # one process may do all
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(ValueError, match="the loss of method 'der' is not a mean over rows: train it without torchrun"):
        check_ranks(der)
    with pytest.raises(ValueError, match="compile under torchrun"):
        check_ranks(parts("finetune", {}, compile=True))
    check_ranks(parts("finetune", {}))
    with pytest.raises(ValueError, match="a model with SyncBatchNorm cannot be trained by several processes"):
        shared(nn.SyncBatchNorm(4))
    with pytest.raises(ValueError, match="a model with Dropout"):
        shared(Classifier(nn.Identity(), 4, dropout=0.5))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_learns_the_same_to_rounding() -> None:
    """By LwF, whose old model is a copy, and must not be the compiled one."""
    import torch._dynamo.utils  # a second, which the two processes need not spend
    import torch._inductor.config

    found: list[list[float]] = []
    for compiled in (False, True):
        _, settings = paper_settings("mlp")  # compiled in a quarter of the time of a network of convolutions
        schedule = {**settings["schedule"], "epochs": 1, "batch_size": SIZES[0], "drop_last": True, "compile": compiled}
        values = {**settings, "method": {"strength": 1.0, "temperature": 1.0}, "schedule": schedule}
        parts = parts_of(values, lambda **given: method("lwf", **given), mlp, labels="one", classes="same")
        learner = Learner(parts, sample=(3 * 12 * 12,), seed=0)
        # Trials of the processor's instructions and a header for many programs take longer to compile than the model.
        with torch._inductor.config.patch({"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}):
            for number in range(2):
                learner.learn(bucket(number, flat=True), [], classes=0 if number else 3)
                found.append([each["loss"] for each in learner.record["epochs"]])
    assert found[2:] == [pytest.approx(each, rel=1e-4) for each in found[:2]]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_learn_what_one_learns(name: str, by_two: list[Any]) -> None:
    weights, losses = learned(name, None)
    for theirs, told in (each[name] for each in by_two):
        assert told == pytest.approx(losses, rel=1e-4)
        for key, value in weights.items():
            torch.testing.assert_close(theirs[key], value, rtol=1e-3, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")
    first, second = (each[name][0] for each in by_two)
    assert all(torch.equal(first[key], second[key]) for key in weights), "both have the same bits"
