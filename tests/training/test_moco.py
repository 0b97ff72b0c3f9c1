"""MoCo v2 against a plain reference: a step, the queue, the encoder that follows; and what pre-training promises."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.checkpoint import Checkpoint
from benchwright.training.moco.network import MoCo, SplitBatchNorm, encoder
from benchwright.training.moco.pretrain import Pretraining, PretrainingPictures
from benchwright.training.moco.settings import MocoSettings, moco_settings
from sklearn.linear_model import RidgeClassifier
from torch import Tensor, nn
from torch.nn import functional as F

SMALL: dict[str, Any] = {
    "backbone": "small_cnn",
    "width": 8,
    "dim": 16,
    "epochs": 3,
    "batch_size": 16,
    "queue": 64,
    "batch_norm_splits": 2,
    "view": {"side_px": 24, "blur_chance": 0.0},
}


def small(**changes: Any) -> MocoSettings:
    return moco_settings("moco_v2", {**SMALL, **changes})


def stripes(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Grey stripes of any direction and width, with noise, and which of six sectors the direction lies in."""
    draw = np.random.default_rng(0)
    made, turn = [], draw.uniform(0, np.pi, count)
    down, across = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    for angle in turn:
        phase = 2 * np.pi * (np.cos(angle) * across + np.sin(angle) * down) / draw.uniform(4, 8) + draw.uniform(0, 6)
        grey = 128 + 80 * np.sin(phase) + draw.normal(0, 20, (32, 32))
        made.append(np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2))
    return made, (turn / np.pi * 6).astype(int)


def pictures(count: int = 100) -> PretrainingPictures:
    found, _ = stripes(count)

    def read(rows: Sequence[int]) -> list[np.ndarray]:
        return [found[row] for row in rows]

    return PretrainingPictures(
        read, [f"p{n}" for n in range(count)], lambda epoch: np.random.default_rng(epoch).permutation(count)
    )


class Plain:
    """Algorithm 1 of He et al., line by line; keys are a list, of which the oldest go."""

    def __init__(self, moco: MoCo, *, rate: float, weight_decay: float) -> None:
        self.f_q, self.f_k = copy.deepcopy(moco.encoder_q), copy.deepcopy(moco.encoder_k)
        for module in (*self.f_q.modules(), *self.f_k.modules()):
            if isinstance(module, SplitBatchNorm):
                module.__class__ = nn.BatchNorm2d
        self.queue = collections.deque(moco.queue.T.clone(), maxlen=moco.queue.shape[1])
        self.optimiser = torch.optim.SGD(self.f_q.parameters(), rate, momentum=0.9, weight_decay=weight_decay)

    def step(self, x_q: Tensor, x_k: Tensor) -> tuple[Tensor, Tensor]:
        q = F.normalize(self.f_q(x_q))
        with torch.no_grad():
            for key, query in zip(self.f_k.parameters(), self.f_q.parameters(), strict=True):
                key.copy_(0.999 * key + 0.001 * query)
            k = F.normalize(self.f_k(x_k))
        rows = [torch.cat([(q[i] @ k[i])[None], torch.stack([q[i] @ old for old in self.queue])]) for i in range(len(q))]
        logits = torch.stack(rows) / 0.2
        loss = torch.stack([-row[0] + row.exp().sum().log() for row in logits]).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.queue.extend(k)
        return logits.detach(), loss.detach()


def test_steps_are_those_of_the_plain_algorithm_and_the_queue_goes_round() -> None:
    training = Pretraining(small(batch_norm_splits=1, batch_size=8, queue=32, learning_rate=0.5), seed=0)
    training.moco.train()
    plain = Plain(training.moco, rate=0.5, weight_decay=1e-4)
    draw = torch.Generator().manual_seed(0)
    for number in range(6):  # the queue has room for four batches
        first, second = torch.randn(2, 8, 3, 24, 24, generator=draw)
        plain_queue = torch.stack(list(plain.queue))
        logits, loss = plain.step(first, second)
        asked = copy.deepcopy(training.moco)
        mine, _ = asked(first, second, torch.arange(8))
        # Where the oldest key stands is ours to say: the same keys in the order of their age.
        at = int(training.moco.queue_ptr)
        assert torch.allclose(training.moco.queue.roll(-at, 1).T, plain_queue, atol=1e-6)
        assert torch.allclose(mine[:, :1], logits[:, :1], atol=1e-5)
        assert torch.allclose(mine[:, 1:].roll(-at, 1), logits[:, 1:], atol=1e-5)
        summed = training.step(first, second, str(number))
        assert float(summed[0]) / 8 == pytest.approx(float(loss), abs=1e-6)
        assert int(summed[1]) == int((logits.argmax(1) == 0).sum())
        assert int(training.moco.queue_ptr) == (number + 1) % 4 * 8
    pairs = [(training.moco.encoder_k, plain.f_k), (training.moco.encoder_q, plain.f_q)]
    for mine_net, plain_net in pairs:
        state = plain_net.state_dict()
        assert all(torch.allclose(value, state[name], atol=1e-6) for name, value in mine_net.state_dict().items())
    before = MoCo(small(batch_norm_splits=1), seed=0).encoder_k.state_dict()
    assert not torch.equal(before["fc.0.weight"], training.moco.encoder_k.state_dict()["fc.0.weight"])


def test_batch_norm_of_parts_is_that_of_as_many_devices() -> None:
    split, draw = SplitBatchNorm(5), torch.Generator().manual_seed(0)
    split.splits = 4
    x = torch.randn(12, 5, 3, 3, generator=draw) * torch.arange(1, 13).view(-1, 1, 1, 1)
    devices = [nn.BatchNorm2d(5) for _ in range(4)]
    made = split(x)
    for number, device in enumerate(devices):
        assert torch.allclose(made[number::4], device(x[number::4]), atol=1e-5)
    for name in ("running_mean", "running_var"):
        assert torch.allclose(getattr(split, name), torch.stack([getattr(d, name) for d in devices]).mean(0), atol=1e-5)
    whole = nn.BatchNorm2d(5)
    assert not torch.allclose(made, whole(x), atol=0.01)
    assert torch.equal(split.eval()(x), F.batch_norm(x, split.running_mean, split.running_var, split.weight, split.bias))


def test_keys_are_shuffled_among_parts_and_stand_by_their_queries() -> None:
    first, second = torch.randn(2, 16, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    for splits, same in ((1, True), (2, False)):
        plain, shuffled = (
            MoCo(small(batch_norm_splits=splits), seed=0)(first, second, each) for each in (torch.arange(16), order)
        )
        assert torch.allclose(plain[1], shuffled[1], atol=1e-5) == same
        nearest = (plain[1] @ shuffled[1].T).argmax(1)
        assert nearest.tolist() == list(range(16)), "a key is that of its own picture, whatever the order"


def test_the_queue_begins_with_unit_vectors_of_the_seed() -> None:
    made = [MoCo(small(), seed=seed).queue for seed in (0, 0, 1)]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert torch.allclose(made[0].norm(dim=0), torch.ones(64))
    assert made[0].shape == (16, 64)


def test_weights_and_names_are_those_of_the_released_form() -> None:
    network = encoder(moco_settings("moco_v2", {"backbone": "resnet50"}), torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert [shapes[f"fc.{at}.weight"] for at in (0, 2)] == [(2048, 2048), (128, 2048)]
    training = Pretraining(small(epochs=1), seed=0)
    training.learn(pictures())
    held = torch.load(io.BytesIO(training.released()), weights_only=True)
    assert (held["arch"], held["epoch"]) == ("small_cnn", 1)
    assert set(held) == {"arch", "epoch", "state_dict"}
    assert all(name.startswith("module.encoder_q.") for name in held["state_dict"])
    names = {name.removeprefix("module.encoder_q.") for name in held["state_dict"]}
    assert names == set(training.moco.encoder_q.state_dict())


def test_the_rate_falls_by_a_cosine_epoch_by_epoch() -> None:
    settings = moco_settings("moco_v2", {})
    rates = [settings.rate(epoch) for epoch in (0, 50, 100, 150, 199)]
    assert rates == pytest.approx([0.03, 0.0256066017, 0.015, 0.0043933983, 1.85e-6], abs=1e-8)
    seen: list[float] = []

    class Watched(Pretraining):
        def step(self, first: Tensor, second: Tensor, name: str) -> Tensor:
            seen.append(self.optimiser.param_groups[0]["lr"])
            return super().step(first, second, name)

    Watched(small(epochs=2), seed=0).learn(pictures())
    assert seen == pytest.approx([0.03] * 6 + [0.015] * 6)  # 100 pictures: 6 batches of 16, the rest is left out


def test_loss_falls_and_a_linear_probe_finds_what_random_weights_do_not_tell() -> None:
    found, which = stripes(400)
    view = {"side_px": 24, "blur_chance": 0.0, "flip_chance": 0.0, "crop_area": [0.5, 1.0]}
    training = Pretraining(
        small(epochs=12, batch_size=32, learning_rate=0.06, encoder_momentum=0.99, view=view), seed=0, workers=2
    )
    random = copy.deepcopy(training.moco.encoder_q)
    training.learn(pictures(400))
    losses, accuracies = training.progress.losses, training.progress.accuracies
    assert len(losses) == len(accuracies) == 12
    # In the first epoch the queue holds random vectors, which are easily told apart.
    assert losses[-1] < losses[1] - 0.5
    assert accuracies[-1] > accuracies[1] + 0.05

    def probe(network: nn.Module) -> float:
        network = copy.deepcopy(network).eval()
        network.fc = nn.Identity()
        with torch.no_grad():
            X = network(torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).float() / 255).numpy()
        return float(RidgeClassifier().fit(X[:150], which[:150]).score(X[150:], which[150:]))

    assert probe(training.moco.encoder_q) > probe(random) + 0.3  # 0.8 and 0.3 of six sectors


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def whole() -> Pretraining:
    """A training that nothing interrupted."""
    training = Pretraining(small(), seed=0)
    training.learn(pictures())
    return training


@pytest.mark.parametrize("steps", [1, 6, 8, 17])  # in an epoch, at its end, in the next one, at the last step
def test_a_training_that_is_interrupted_ends_in_the_same_bytes(tmp_path: Path, whole: Pretraining, steps: int) -> None:
    class Stopped(Pretraining):
        done = 0

        def step(self, first: Tensor, second: Tensor, name: str) -> Tensor:
            if self.done == steps:
                raise Interrupted
            self.done += 1
            return super().step(first, second, name)

    with pytest.raises(Interrupted):
        Stopped(small(), seed=0, workers=2).learn(pictures(), Checkpoint(tmp_path), checkpoint_s=0)
    again = Stopped(small(), seed=0)
    with pytest.raises(Interrupted) if steps < 9 else contextlib.nullcontext():
        again.learn(pictures(), Checkpoint(tmp_path), checkpoint_s=0)
    assert again.done == min(steps, 18 - steps), "it went on from where it was"
    last = Pretraining(small(), seed=0)
    last.learn(pictures(), Checkpoint(tmp_path), checkpoint_s=0)
    assert last.released() == whole.released()
    assert vars(last.progress) == vars(whole.progress)
    state = whole.moco.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in last.moco.state_dict().items())


def test_workers_change_nothing_and_seeds_do() -> None:
    made: list[bytes] = []
    for seed, workers in ((0, 0), (0, 3), (1, 0)):
        training = Pretraining(small(epochs=1), seed=seed, workers=workers)
        training.learn(pictures())
        made.append(training.released())
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_the_global_generators_are_neither_read_nor_moved() -> None:
    made: list[bytes] = []
    for number in (0, 1):
        torch.manual_seed(number)
        np.random.seed(number)
        before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
        training = Pretraining(small(epochs=1), seed=0)
        training.learn(pictures())
        made.append(training.released())
        assert torch.equal(torch.random.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()
    assert made[0] == made[1]


def test_a_loss_that_is_not_finite_ends_the_training() -> None:
    with pytest.raises(ArithmeticError, match="the loss is no longer finite in epoch 0, by step 6, at learning rate 1e"):
        Pretraining(small(learning_rate=1e30), seed=0).learn(pictures())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"queue": 100}, "queue = 100 is not a multiple of batch_size = 16.*set queue to 96"),
        ({"batch_norm_splits": 3}, "batch_norm_splits = 3: batch_size = 16 has to be a multiple of it"),
        ({"batch_norm_splits": 16}, "batch_norm_splits = 16: .*at least 2 pictures"),
        ({"backbone": "resnet51"}, "backbone = 'resnet51': there are resnet18"),
        ({"epochs": 0}, "epochs = 0: it should be at least 1"),
        ({"epochs": "many"}, "epochs = 'many': expected int"),
        ({"learning_rate": float("nan")}, "learning_rate = nan: expected float"),
        ({"temperature": 0}, "temperature 0.*positive"),
        ({"quue": 64}, "there is no quue: there are backbone"),
        ({"view": {"crop": 1}}, "there is no view.crop: there are side_px"),
        ({"view": 3}, "view = 3: expected a table"),
        ({"view": {"side_px": 6}}, r"view.side_px = 6: a blur of 2.0 pixels reaches 6 of them"),
        ({"view": {"crop_area": [0.5]}}, r"view.crop_area = \(0.5,\): expected \[float, float\]"),
        ({"view": {"crop_area": [0.9, 0.5]}}, r"view.crop_area = \[0.9, 0.5\]: expected two numbers above 0"),
        ({"view": {"hue": 0.6}}, "hue 0.6.*hue is at most 0.5"),
    ],
)
def test_settings_that_there_are_not(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        moco_settings("moco_v2", {**{name: value for name, value in SMALL.items() if name != "view"}, **changes})


@pytest.mark.parametrize("half", [False, True])
def test_on_a_gpu_convolutions_are_exact_whatever_ran_before(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFloat-32 only in half precision. A device "cuda" that runs nothing."""
    training = Pretraining(small(mixed_precision=half), seed=0)
    cudnn, found = torch.backends.cudnn, list[tuple[bool, bool, bool]]()

    def epoch(*_: object) -> None:
        found.append((cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32))
        training.progress = dataclasses.replace(training.progress, epoch=10**6, losses=[0.0], accuracies=[0.0])

    training.device, training._half = torch.device("cuda"), half
    monkeypatch.setattr(training, "_epoch", epoch)
    for before in (False, True):
        training.progress.epoch = 0
        with cudnn.flags(enabled=True, benchmark=True, allow_tf32=before):
            training.learn(pictures())
            assert cudnn.allow_tf32 == before
    assert found == [(True, False, half)] * 2


def test_on_a_gpu_in_half_precision(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device on this machine")
    made: list[bytes] = []
    for half in (False, True, True):
        training = Pretraining(small(mixed_precision=half), seed=0, device="cuda", workers=2)
        training.learn(pictures(), Checkpoint(tmp_path / str(len(made))), checkpoint_s=0)
        made.append(training.released())
        assert np.isfinite(training.progress.losses).all()
    assert made[0] != made[1] == made[2]
    on_cpu = Pretraining(small(epochs=1), seed=0)
    on_cpu.learn(pictures())
    on_gpu = Pretraining(small(epochs=1), seed=0, device="cuda")
    on_gpu.learn(pictures())
    assert on_gpu.progress.losses == pytest.approx(on_cpu.progress.losses, abs=0.05)
