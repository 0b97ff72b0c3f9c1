"""Tasks one after another: growing heads, memories, the choice of epochs, and states from which training resumes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.registry import load_name
from benchwright.datasets.vclimb.facts import facts
from benchwright.training.baselines.vclimb import paper_methods, paper_settings, present_name
from benchwright.training.core.batches import ahead
from benchwright.training.core.build import Parts, parts_of
from benchwright.training.core.capacity import Capacity
from benchwright.training.core.criteria import CRITERIA, cross_entropy
from benchwright.training.core.exemplars import class_means, given, herding, nearest_means, shuffled
from benchwright.training.core.learner import Learner, SecondView
from benchwright.training.core.lesson import Lesson
from benchwright.training.core.memory import Candidates
from benchwright.training.core.schedule import Schedule
from benchwright.training.data.examples import ArrayExamples, Draw, Joined, RowNumbers
from benchwright.training.methods import gem
from benchwright.training.methods.registry import METHODS, method
from benchwright.training.models.classifier import Classifier
from benchwright.training.models.linear import affine
from benchwright.training.models.tsn import check_tsn, tsn
from torch import nn

PLAN = Schedule(
    optimiser="sgd",
    learning_rate=0.05,
    momentum=0.9,
    weight_decay=1e-4,
    epochs=6,
    batch_size=16,
    drop_last=True,
    clip_norm=20.0,
    mixed_precision=True,
    select="validation",
    eval_every=2,
    first_best="nothing",
)
CLIP = (8, 3, 32, 32)
SETTINGS: dict[str, dict[str, Any]] = {
    "der": {"alpha": 0.1, "beta": 1.0},
    "ewc": {"strength": 1.0},
    "si": {"strength": 1.0},
    "mas": {"strength": 1.0},
    "lwf": {"strength": 1.0, "temperature": 2.0},
    "reservoir": {"alpha": 1.0},
    "dynamic_reservoir": {"alpha": 1.0},
}
GRAPHS = ["twp"]
"""Methods that streams of graphs alone learn by."""
ONE_MODEL = sorted(set(METHODS.builtin) - set(GRAPHS))


def examples(lo: int, hi: int, role: str, per_class: int = 20) -> ArrayExamples:
    """Gaussian classes lo..hi-1 in eight dimensions."""
    centres = np.random.default_rng(0).normal(size=(20, 8)) * 2.5
    draw = np.random.default_rng([lo, *role.encode()])
    y = np.repeat(np.arange(lo, hi), per_class)
    X = (centres[y] + draw.normal(size=(len(y), 8))).astype(np.float32)
    return ArrayExamples(X, y, [f"{role}{lo}-{row}" for row in range(len(y))])


def small(init: torch.Generator, *, sample: tuple[int, ...] = (8,), dropout: float = 0.3, **head: Any) -> Classifier:
    return Classifier(nn.Sequential(affine(8, 16, init), nn.BatchNorm1d(16), nn.ReLU()), 16, dropout=dropout, **head)


def a_learner(name: str = "er", capacity: int = 12, criterion: str = "cross_entropy", **changes: Any) -> Learner:
    plan = dataclasses.replace(PLAN, **changes.pop("plan", {}))
    chosen = method(name, **{**SETTINGS.get(name, {}), **changes.pop("settings", {})})
    chosen = dataclasses.replace(chosen, exemplars=changes.pop("exemplars", chosen.exemplars))
    memory, order = changes.pop("memory", Capacity(capacity)), changes.pop("order", {})
    head = changes.pop("head", {"eta": "kept"} if name == "lucir" else {})
    return Learner(Parts(chosen, plan, CRITERIA[criterion], small, head, memory, order), sample=(8,), seed=0, **changes)


def learn(learner: Learner, tasks: int, start: int = 0) -> Learner:
    for task in range(start, tasks):
        validate = [examples(2 * t, 2 * t + 2, "val", 5) for t in range(task + 1)]
        learner.learn(examples(2 * task, 2 * task + 2, "train"), validate, classes=2)
    return learner


# --- model


def test_new_classes_add_outputs_and_leave_the_old_ones():
    model = Classifier(nn.Identity(), 4, head_std=0.001)
    model.grow(3, torch.Generator().manual_seed(0))
    first = model.weight.detach().clone()
    model.grow(400, torch.Generator().manual_seed(1))
    assert (model.classes, model.groups, model.weight.shape) == (403, (3, 400), (403, 4))
    assert torch.equal(model.weight[:3], first)
    assert float(model.weight.detach()[3:].std()) == pytest.approx(0.001, rel=0.1)
    assert not model.bias.any()
    assert model.weight.requires_grad
    assert not model.alpha.requires_grad
    with pytest.raises(ValueError, match="0 new classes"):
        model.grow(0, torch.Generator())


def test_consensus_is_the_mean_of_the_segments_logits():
    model = Classifier(nn.Identity(), 4)
    model.grow(3, torch.Generator().manual_seed(0))
    x = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1))
    expected = torch.stack([nn.functional.linear(x[:, s], model.weight, model.bias) for s in range(8)]).mean(0)
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model.penultimate(x), x.mean(1))


@pytest.mark.parametrize("backbone", ["resnet18", "small_cnn"])
def test_tsn_is_a_function_of_its_generator(backbone: str):
    state = torch.get_rng_state()
    one, two, other = (
        tsn(torch.Generator().manual_seed(s), sample=CLIP, backbone=backbone, dropout=0.5, head_std=0.001) for s in (1, 1, 2)
    )
    assert torch.equal(state, torch.get_rng_state())
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b)
        assert torch.isfinite(a).all()
    assert any(not torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    one.grow(5, torch.Generator())
    assert one(torch.zeros(2, 8, 3, 32, 32)).shape == (2, 5)
    assert one.penultimate(torch.zeros(2, 8, 3, 32, 32)).shape == (2, {"resnet18": 512, "small_cnn": 64}[backbone])


def test_resnet_takes_torchvisions_weights_and_refuses_others(tmp_path: Path):
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision.models import resnet18

    theirs = resnet18(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    make = functools.partial(tsn, sample=CLIP, backbone="resnet18", dropout=0.0, head_std=None)
    ours = make(torch.Generator(), weights=tmp_path / "w.pth").eval()
    theirs.fc = nn.Identity()
    x = torch.randn(2, 1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours.penultimate(x), theirs(x[:, 0]))
    held = {f"module.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"state_dict": held}, tmp_path / "wrapped.pth")
    wrapped = make(torch.Generator(), weights=tmp_path / "wrapped.pth").eval()
    assert torch.equal(wrapped.penultimate(x), ours.penultimate(x))
    with pytest.raises(ValueError, match="No such file"):
        make(torch.Generator(), weights=tmp_path / "none.pth")
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="does not contain the weights of resnet18"):
        make(torch.Generator(), weights=tmp_path / "other.pth")
    with pytest.raises(ValueError, match="no backbone is called 'vgg'"):
        tsn(torch.Generator(), sample=CLIP, backbone="vgg", dropout=0.0, head_std=None)
    with pytest.raises(ValueError, match="random ones"):
        check_tsn("small_cnn", tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"samples of shape \(5,\): tsn takes clips"):
        tsn(torch.Generator(), sample=(5,), backbone="small_cnn", dropout=0.0, head_std=None)


# --- memory


def plain_herding(features: np.ndarray, count: int) -> list[int]:
    """iCaRL's algorithm 4, written as it reads."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    mu, chosen = unit.mean(0), []
    for k in range(1, count + 1):
        left = [i for i in range(len(unit)) if i not in chosen]
        chosen.append(min(left, key=lambda i: np.linalg.norm(mu - (unit[i] + sum(unit[j] for j in chosen)) / k)))
    return chosen


def test_herding_is_greedy():
    for seed in range(10):
        features = np.random.default_rng(seed).normal(size=(25, 6)) + 1
        assert herding(features, 12).tolist() == plain_herding(features, 12)
    # Of (1, 0), (0, 1) and the diagonal, the diagonal is the nearest to the mean; then the first of two equals.
    assert herding(np.array([[1.0, 0], [0, 1], [2, 2]]), 9).tolist() == [2, 0, 1]


def test_means_of_exemplars_by_hand():
    features = np.array([[3.0, 0], [0, 2], [0, -1], [0, -5]])
    means = class_means(features, np.array([0, 0, 1, 1]), 2)
    np.testing.assert_allclose(means, [[2**-0.5, 2**-0.5], [0, -1]])
    assert nearest_means(np.array([[9.0, -1], [1, -9]]), means).tolist() == [0, 1]
    with pytest.raises(ValueError, match="class 2 has no exemplar"):
        class_means(features, np.array([0, 0, 1, 1]), 3)


def test_quotas_of_the_paper():
    """vCLIMB, Table 1 and released code: UCF101 in ten tasks, 183 clips a class after the first, 20 at the end."""
    room = Capacity(facts().datasets["ucf101"].memory_videos)
    sizes = [11] + [10] * 9
    quotas = [room.quota(int(seen)) for seen in np.cumsum(sizes)]
    assert (quotas[0], quotas[-1]) == (183, 20)
    for name in facts().datasets:
        capacity = paper_settings("icarl", dataset=name, preset="as_released")["memory"]["size"]
        assert capacity == facts().datasets[name].memory_videos
        held = Capacity(capacity).quota(facts().datasets[name].classes) * facts().datasets[name].classes
        for frames, stated in facts().memory[name].frames_in_paper.items() if name in facts().memory else ():
            assert held * frames == stated  # every clip of the capacity is used at the end, in all four
    with pytest.raises(ValueError, match="no room for 3 classes"):
        Capacity(2).quota(3)


def test_a_memory_may_be_counted_in_frames():
    room = Capacity(40, "parts")
    assert room.cut(np.array([5, 7, 9]), np.array([4, 4, 4]), classes=4).tolist() == [5, 7]  # ten frames a class
    assert room.cut(np.array([5, 7, 9]), np.array([10, 1, 1]), classes=4).tolist() == [5]
    assert room.cut(np.array([5]), np.array([11]), classes=4).tolist() == []
    assert Capacity(8).cut(np.array([5, 7, 9]), np.array([10, 1, 1]), classes=4).tolist() == [5, 7]


class Framed(ArrayExamples):
    """Samples of seven parts each."""

    @property
    def sizes(self) -> RowNumbers:
        return np.full(len(self.labels), 7)

    def take(self, rows: RowNumbers) -> Framed:
        return Framed(self.X[rows], self.labels[rows], [self.keys[row] for row in rows.tolist()])


def test_frames_in_memory_stay_under_the_capacity():
    learner = a_learner(memory=Capacity(90, "parts"))
    for task in range(3):
        plain = examples(2 * task, 2 * task + 2, "train")
        learner.learn(Framed(plain.X, plain.labels, plain.keys), [], classes=2)
        each = 90 // (2 * task + 2) // 7
        assert learner.record["memory"] == {"samples": each * (2 * task + 2), "parts": 7 * each * (2 * task + 2)}


def test_a_buffer_that_is_trained_on_holds_whole_samples():
    learner = a_learner("reservoir", keep=lambda part: part.take(np.arange(0)))
    plain = examples(0, 2, "train")
    learner.learn(Framed(plain.X, plain.labels, plain.keys), [], classes=2)
    assert learner.record["memory"] == {"samples": 40, "parts": 7 * 40}


def test_old_lists_are_cut_and_herded_ones_keep_their_order():
    learner = learn(a_learner("icarl"), 1)
    first = learner.buffer.copy()
    learn(learner, 3, start=1)
    labels = np.repeat(np.arange(6), 20)
    assert [int((labels[learner.buffer] == c).sum()) for c in range(6)] == [2] * 6
    for c in range(2):
        assert learner.buffer[labels[learner.buffer] == c].tolist() == first[labels[first] == c][:2].tolist()


def test_quirk_replay_shuffles_old_lists_too():
    learner = learn(a_learner("er"), 1)
    first = learner.buffer.copy()
    learn(learner, 2, start=1)
    labels = np.repeat(np.arange(4), 20)
    for c in range(2):
        before, now = first[labels[first] == c], learner.buffer[labels[learner.buffer] == c]
        assert now.tolist() == shuffled(before, seed=0, key=f"1/{c}")[:3].tolist()
        assert set(now) < set(before)
    assert any(learner.buffer[labels[learner.buffer] == c].tolist() != first[labels[first] == c][:3].tolist() for c in range(2))


def test_given_exemplars_are_those_of_the_list_in_its_order():
    assert given(np.array([4, 5, 6]), ["a", "b", "c"], {"c": 0, "x": 1, "a": 2}).tolist() == [6, 4]
    order = {key: rank for rank, key in enumerate(["train0-30", "train0-3", "train0-1", "train0-29"])}
    learner = a_learner(memory=Capacity(2), order=order, exemplars="given")
    learn(learner, 1)
    assert learner.buffer.tolist() == [3, 30]
    settings = paper_settings("icarl", dataset="ucf101", preset="as_released")
    settings["memory"] |= {"choice": "given", "keys": ["b", "a"]}
    made = parts_of(settings, load_name(METHODS, "icarl"), tsn, labels="one", classes="new")
    assert made.method.exemplars == "given"
    assert made.order == {"b": 0, "a": 1}


def test_naive_replay_that_differs_from_icarl_in_its_selection_alone_can_be_trained():
    """The supplement of vCLIMB, 1.1, names no other difference, so that such a replay distils, too."""
    settings = paper_settings("icarl", dataset="ucf101", preset="as_written")
    settings["memory"]["choice"] = "random"
    made = parts_of(settings, load_name(METHODS, "icarl"), tsn, labels="one", classes="new").method
    naive, icarl = method("er", predict="nearest_mean"), method("icarl")
    assert (made.exemplars, made.predict, made.teach.func) == (naive.exemplars, naive.predict, icarl.teach.func)


def test_a_memory_policy_of_ones_own():
    """The rows of highest loss of each class, as the model sees them after its training."""
    asked: list[Candidates] = []

    def hardest(c: Candidates) -> RowNumbers:
        asked.append(c)

        def ranked(rows: RowNumbers) -> RowNumbers:
            losses = nn.functional.cross_entropy(
                torch.from_numpy(c.outputs(rows)), torch.from_numpy(c.labels[rows]), reduction="none"
            )
            return rows[np.argsort(-losses.numpy(), kind="stable")]

        return c.by_class(ranked)

    learner = learn(a_learner(memory=Capacity(8), exemplars=hardest), 2)
    assert [(c.task, c.known, c.classes, len(c.kept), len(c.new)) for c in asked] == [(0, 0, 2, 0, 40), (1, 2, 4, 8, 40)]
    labels = asked[1].labels[learner.buffer]
    assert np.bincount(labels).tolist() == [2, 2, 2, 2]
    for label in (2, 3):
        rows = asked[1].new[asked[1].labels[asked[1].new] == label]
        scores = asked[1].outputs(rows)
        losses = np.logaddexp.reduce(scores, axis=1) - scores[:, label]
        assert set(learner.buffer[labels == label]) == set(rows[np.argsort(-losses, kind="stable")[:2]])
    assert asked[1].features(asked[1].new).shape == (40, 16)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            lambda c: np.array([c.new[-1] + 7]),
            "its memory policy keeps row 46, which is neither in the memory nor new",
        ),
        (lambda c: c.new[[3, 3]], "method 'er': its memory policy keeps row 3 twice"),
        (lambda c: c.new, "method 'er': its memory policy keeps 40 samples, and the memory holds 8"),
    ],
)
def test_what_a_memory_policy_may_keep(policy: Callable[[Candidates], RowNumbers], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn(a_learner(memory=Capacity(8), exemplars=policy), 1)


@pytest.mark.parametrize(
    ("name", "policy"), [("er", "random"), ("er", "reservoir"), ("gdumb", "greedy"), ("gdumb", "balanced_reservoir")]
)
def test_a_size_per_class_is_that_of_every_memory_policy(name: str, policy: str) -> None:
    learner = learn(a_learner(name, memory=Capacity(3, per_class=True), exemplars=policy), 2)
    assert len(learner.buffer) == 3 * 4


@pytest.mark.parametrize(
    ("name", "own", "memory", "message"),
    [
        ("gdumb", {}, {"unit": "parts"}, "memory policy 'greedy' counts samples: memory.unit is 'parts': set it to 'samples'"),
        (
            "agem",
            {"memory": "each_position"},
            {"per_class": True},
            "memory policy 'each_position' stores memory.size samples of every domain or task: memory.per_class is true",
        ),
    ],
)
def test_a_memory_policy_refuses_what_it_cannot_count(
    name: str, own: dict[str, Any], memory: dict[str, Any], message: str
) -> None:
    settings = {**paper_settings("icarl", dataset="ucf101", preset="as_released"), "method": own}
    settings["memory"] = {"size": 8, **memory}
    with pytest.raises(ValueError, match=message):
        parts_of(settings, load_name(METHODS, name), tsn, labels="one", classes="new")


def test_exemplars_chosen_before_the_training_cannot_use_the_model() -> None:
    learner = a_learner("gdumb", memory=Capacity(8), exemplars=lambda c: c.new[c.outputs(c.new).argmax(0)])
    with pytest.raises(ValueError, match="method 'gdumb': its exemplars are chosen before the training, without a model"):
        learn(learner, 1)


@pytest.mark.parametrize(("name", "own"), [("twp", {"beta": 0.5}), ("gem", {"forward": "task"})])
def test_methods_of_graph_streams_are_refused(name: str, own: dict[str, Any]):
    settings = {**paper_settings("icarl", dataset="ucf101", preset="as_released"), "method": own}
    (given,) = (f"{setting} = {value!r}" for setting, value in own.items())
    with pytest.raises(ValueError, match=f"method '{name}' trains only on batched graph streams, with .*{given}"):
        parts_of(settings, load_name(METHODS, name), tsn, labels="one", classes="new")


def test_a_share_of_each_task_is_kept_beside_those_before():
    learner = learn(a_learner(settings={"fraction": 0.2}, memory=None), 1)
    first = learner.buffer.copy()
    assert len(first) == int(0.2 * 40)
    assert first.tolist() == sorted(set(first.tolist()))
    learn(learner, 3, start=1)
    assert learner.buffer[:8].tolist() == first.tolist()
    assert np.bincount(learner.buffer // 40).tolist() == [8, 8, 8]
    assert learner.record["memory"] == {"samples": 24, "parts": 24}


def test_gem_gets_the_memory_of_each_past_task(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[int, list[str]]] = []

    def noted(lesson: Lesson, strength: float, now: bool) -> None:
        asked.append({position: [*memory.keys] for position, memory in lesson.stored().items()})
        assert sorted(lesson.train.keys) == sorted(examples(2 * lesson.task, 2 * lesson.task + 2, "train").keys)
        lesson.fit(lambda step: step.classification())

    monkeypatch.setattr(gem, "_teach_one", noted)
    learner = learn(a_learner("gem", settings={"fraction": 0.2}, memory=None), 3)
    kept = [examples(2 * row, 2 * row + 2, "train").keys for row in range(2)]
    assert [{position: len(keys) for position, keys in each.items()} for each in asked] == [{}, {0: 8}, {0: 8, 1: 8}]
    assert all(set(keys) < set(kept[position]) for position, keys in asked[2].items())
    assert asked[1][0] == asked[2][0]
    assert learner.record["memory"] == {"samples": 24, "parts": 24}


def test_gem_holds_the_loss_of_past_tasks_down():
    means: list[float] = []
    for name, settings in (("finetune", {}), ("gem", {"classes": "now"})):
        learner = learn(a_learner(name, settings=settings, plan={"select": "none"}), 3)
        tests = [examples(2 * task, 2 * task + 2, "test") for task in range(2)]
        means.append(float(np.mean([(learner.predict(each) == each.labels).mean() for each in tests])))
    assert means[1] > means[0] + 0.1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mas", {"omega": "square", "data": "new"}),
        ("mas", {"omega": "square", "data": "learned"}),
        ("lwf", {"heads": "task", "by_task": True}),
    ],
)
def test_cglbs_readings_learn_with_one_model_too(name: str, settings: dict[str, Any]):
    weights = [learn(a_learner(name, settings=own, plan={"select": "none"}), 3).model.weight for own in (settings, {})]
    assert weights[0].isfinite().all()
    assert not torch.equal(*weights)


def test_mas_squares_the_gradient_of_a_cosine_heads_scale_too():
    """The scale has no rows; from the third task on, its importance is averaged with the earlier one."""
    learner = learn(a_learner("mas", settings={"omega": "square"}, head={"eta": "kept"}, plan={"select": "none"}), 3)
    assert learner.model.weight.isfinite().all()
    assert learner._state["0000/importance/eta"].ndim == 0


# --- training


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
@pytest.mark.parametrize("name", ONE_MODEL)
def test_every_method_learns_with_every_criterion_and_moves_no_global_generator(name: str, criterion: str):
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    capacity = 60 if name == "gdumb" else 12  # all that GDumb learns from
    learner = learn(a_learner(name, capacity, criterion), 2)
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])  # type: ignore[index]
    # Nap learns the first task alone, and a reservoir a part of each.
    test = Joined([examples(lo, lo + 2, "test") for lo in {"nap": [0], "reservoir": [0, 2]}.get(name, [2])])
    assert (learner.predict(test) == test.labels).mean() > 0.5
    assert learner.model.groups == (2, 2)
    again = learn(a_learner(name, capacity, criterion), 2)
    for a, b in zip(learner.model.state_dict().values(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    np.testing.assert_array_equal(learner.buffer, again.buffer)


@pytest.mark.parametrize("name", ONE_MODEL)
def test_a_loaded_learner_goes_on_as_the_one_that_was_saved(name: str, tmp_path: Path):
    whole = learn(a_learner(name), 2)
    whole.save(tmp_path / "two.pt")
    seen = [examples(2 * t, 2 * t + 2, "train") for t in range(2)]
    other = a_learner(name)
    other.load(tmp_path / "two.pt", seen)
    test = Joined([examples(2 * t, 2 * t + 2, "test") for t in range(2)])
    np.testing.assert_array_equal(whole.predict(test), other.predict(test))
    for learner in (whole, other):
        learn(learner, 3, start=2)
        learner.save(tmp_path / f"{learner is whole}.pt")
    assert (tmp_path / "True.pt").read_bytes() == (tmp_path / "False.pt").read_bytes()
    with pytest.raises(ValueError, match="after 2 tasks, and 1 are given"):
        other.load(tmp_path / "two.pt", seen[:1])


def test_workers_and_threads_change_nothing():
    before, states = torch.get_num_threads(), []
    try:
        for workers, threads in ((0, 1), (3, 2)):
            torch.set_num_threads(threads)
            states.append(learn(a_learner("icarl", workers=workers), 2).model.state_dict())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in states), strict=True))
    assert list(ahead(lambda x: x * x, range(20), 3)) == [x * x for x in range(20)]


def test_memory_beats_none_and_everything_beats_memory():
    test = Joined([examples(2 * t, 2 * t + 2, "test") for t in range(4)])
    plan = {"epochs": 8, "select": "none"}
    found = {
        name: float((learn(a_learner(name, capacity=24, plan=plan), 4).predict(test) == test.labels).mean())
        for name in ("finetune", "er", "icarl", "joint")
    }
    assert found["finetune"] < 0.5 < found["er"]
    assert found["er"] - 0.05 < found["icarl"] < found["joint"] + 0.05


def test_the_epoch_with_the_best_validation_accuracy_is_kept():
    learner = learn(a_learner("finetune", plan={"epochs": 7, "learning_rate": 0.5}), 2)
    seen = {entry["epoch"]: entry["validation_accuracy"] for entry in learner.record["epochs"]}
    assert [epoch for epoch, value in seen.items() if value is not None] == [1, 3, 5, 6]  # every second one, and the last
    both = Joined([examples(2 * t, 2 * t + 2, "val", 5) for t in range(2)])
    assert (learner.predict(both) == both.labels).mean() == max(value for value in seen.values() if value is not None)


def test_without_selection_the_last_epoch_stays():
    none = learn(a_learner("finetune", plan={"select": "none"}), 2)
    assert all(entry["validation_accuracy"] is None for entry in none.record["epochs"])
    plain = a_learner("finetune")  # no validation set at all: nothing can be selected
    for task in range(2):
        plain.learn(examples(2 * task, 2 * task + 2, "train"), [], classes=2)
    assert torch.equal(none.model.weight, plain.model.weight)


def test_quirk_the_accuracy_before_training_counts_as_the_first_best():
    """As released for EWC and MAS: where no epoch beats it, the last epoch's weights stay."""
    plan = {"learning_rate": 1e-9, "momentum": 0.0, "weight_decay": 0.0}
    first = learn(a_learner("finetune", plan={**plan, "first_best": "before_training"}), 1)
    last = learn(a_learner("finetune", plan={**plan, "select": "none"}), 1)
    kept = learn(a_learner("finetune", plan=plan), 1)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, last.model.state_dict()[name])
    looks = {e["epoch"]: e["validation_accuracy"] for e in kept.record["epochs"] if e["validation_accuracy"] is not None}
    best = max(looks, key=lambda epoch: (looks[epoch], -epoch))  # otherwise one of the looks is the best, the first of equals
    assert best < 5
    counts = [m.state_dict()["backbone.1.num_batches_tracked"].item() for m in (first.model, kept.model)]
    assert counts == [12, 2 * (best + 1)]  # two batches an epoch


def test_the_last_incomplete_batch_is_dropped():
    counts = []
    for drop_last, size in ((True, 16), (False, 16), (True, 64)):
        plan = {"drop_last": drop_last, "batch_size": size, "epochs": 1, "select": "none"}
        learner = learn(a_learner("finetune", plan=plan), 1)
        counts.append(learner.model.state_dict()["backbone.1.num_batches_tracked"].item())
    assert counts == [2, 3, 1]  # 40 rows; a lone batch is never dropped


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adagrad", torch.optim.Adagrad), ("adam", torch.optim.Adam)]
)
def test_optimisers_of_code_and_paper(name: Any, kind: type):
    made = dataclasses.replace(PLAN, optimiser=name).make([nn.Parameter(torch.zeros(1))])
    assert type(made).__base__ is kind
    assert made.param_groups[0]["lr"] == 0.05
    assert made.param_groups[0]["weight_decay"] == 1e-4
    assert made.param_groups[0].get("momentum", 0.0) == (0.9 if name == "sgd" else 0.0)


def test_gradients_are_clipped_to_the_norm():
    plan = {"clip_norm": 1e-3, "momentum": 0.0, "weight_decay": 0.0, "epochs": 1, "batch_size": 64, "select": "none"}
    learner = a_learner("finetune", plan={**plan, "learning_rate": 1.0})
    learner.learn(examples(0, 2, "train"), [], classes=2)
    start = a_learner("finetune")._grown(0, 2, anew=True)
    pairs = zip(learner.model.parameters(), start.parameters(), strict=True)
    moved = float(torch.stack([(a - b).detach().square().sum() for a, b in pairs]).sum().sqrt())
    assert moved == pytest.approx(1e-3, rel=1e-3)


def test_a_second_view_of_the_same_samples_changes_what_is_learned():
    shifted = lambda part: ArrayExamples(part.load(range(len(part.labels)), None).numpy() + 1, part.labels, part.keys)  # noqa: E731
    plain, with_view = (
        learn(a_learner("icarl", second=second, plan={"select": "none"}), 2) for second in (None, SecondView(shifted, 0.5))
    )
    assert not torch.equal(plain.model.weight, with_view.model.weight)
    # Batch norm's statistics see both passes.
    seen = [m.model.state_dict()["backbone.1.num_batches_tracked"].item() for m in (plain, with_view)]
    assert seen[1] == 2 * seen[0]
    zero = learn(a_learner("icarl", second=SecondView(shifted, 0.0), plan={"select": "none"}), 2)
    assert torch.equal(plain.model.weight, zero.model.weight)
    with pytest.raises(ValueError, match="weight 2"):
        SecondView(shifted, 2)


def test_what_cannot_be_learned_is_refused():
    learner = learn(a_learner(), 1)
    with pytest.raises(ValueError, match=r"task 1: labels \[4, 5\] are not among its classes 2..3"):
        learner.learn(examples(4, 6, "train"), [], classes=2)
    with pytest.raises(ValueError, match="need the size of a memory"):
        a_learner("icarl", memory=None)
    with pytest.raises(RuntimeError, match="is not trained yet"):
        a_learner().model  # noqa: B018
    with pytest.raises(ArithmeticError, match="training loss is"):
        a_learner().learn(ArrayExamples(np.full((20, 8), np.nan, np.float32), [0, 1] * 10), [], classes=2)
    for change in ({"epochs": 0}, {"optimiser": "lion"}, {"select": "test"}, {"learning_rate": 0.0}, {"clip_norm": 0.0}):
        with pytest.raises(ValueError, match=str(next(iter(change)))):
            dataclasses.replace(PLAN, **change)  # type: ignore[arg-type]


# --- settings of the paper


def test_presets_of_code_and_paper():
    """SGD or Adagrad in vCLIMB's released code, Adam in the paper (section 4); 50 epochs with a memory, 20 without."""
    for name in paper_methods():
        code, paper = (paper_settings(name, dataset="ucf101", preset=p)["schedule"] for p in ("as_released", "as_written"))
        with_memory = name in ("er", "icarl", "bic", "finetune", "joint")
        assert (code["optimiser"], code["epochs"]) == (("sgd", 50) if with_memory else ("adagrad", 20))
        assert (code["learning_rate"], code["weight_decay"], code["clip_norm"]) == (1e-3, 1e-4, 20.0)
        assert (paper["optimiser"], paper["learning_rate"]) == ("adam", 1e-3)
    for preset, kinetics in ("as_released", (3e3, 30)), ("as_written", (5e2, 20)):  # the released configuration; section 4
        wanted = {"ucf101": (3e3, 20), "kinetics400": kinetics, "activitynet_trim": (3e5, 20), "activitynet_untrim": (3e5, 20)}
        found = {dataset: paper_settings("ewc", dataset=dataset, preset=preset) for dataset in wanted}
        assert {d: (one["method"]["strength"], one["schedule"]["epochs"]) for d, one in found.items()} == wanted
    assert paper_settings("mas", dataset="ucf101", preset="as_released")["method"]["strength"] == 3e5
    assert paper_settings("er", dataset="ucf101", preset="as_released")["method"]["predict"] == "head"
    assert paper_settings("er", dataset="ucf101", preset="as_written")["method"]["predict"] == "nearest_mean"
    assert paper_settings("bic", dataset="ucf101", preset="as_released")["method"] == {"share": 0.9, "temperature": 2.0}
    with pytest.raises(TypeError, match="preset"):  # neither is the default
        paper_settings("er", dataset="ucf101")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no method 'gem'"):
        paper_settings("gem", dataset="ucf101", preset="as_released")
    with pytest.raises(ValueError, match="data set 'ucf102'"):
        paper_settings("er", dataset="ucf102", preset="as_released")


@pytest.mark.parametrize("preset", ["as_released", "as_written"])
@pytest.mark.parametrize("name", ["icarl", "mas"])
def test_settings_of_the_paper_in_full(preset: str, name: str):
    """vCLIMB, section 4, and its released code."""
    found = paper_settings(name, dataset="ucf101", preset=preset)  # type: ignore[arg-type]
    assert found["model"] == {"backbone": "resnet34", "dropout": 0.5, "head_std": 0.001, "width": 16}
    assert found["view"] == {
        "segments": 8,
        "side_px": 224,
        "scales": [1.0, 0.875, 0.75, 0.66],
        "flip": 0.5,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "sampling": "segments",
        "stride": 1,
    }
    targets = "as_released" if preset == "as_released" else "all_rows"
    assert found["method"] == {"icarl": {"targets": targets, "predict": "nearest_mean"}, "mas": {"strength": 3e5}}[name]
    by_method = {
        ("as_released", "icarl"): ("sgd", 0.9, 1e-4, 50, 50, "nothing"),
        ("as_released", "mas"): ("adagrad", 0.0, 1e-4, 20, 64, "before_training"),
        ("as_written", "icarl"): ("adam", 0.0, 0.0, 50, 50, "nothing"),
        ("as_written", "mas"): ("adam", 0.0, 0.0, 20, 64, "nothing"),
    }
    names = ("optimiser", "momentum", "weight_decay", "epochs", "batch_size", "first_best")
    assert found["schedule"] == {
        "learning_rate": 1e-3,
        "drop_last": True,
        "clip_norm": 20.0,
        "mixed_precision": True,
        "select": "validation",
        "eval_every": 2,
        **dict(zip(names, by_method[preset, name], strict=True)),
    }
    assert found["memory"] == {"size": 2020, "unit": "samples", "choice": "method", "keys": [], "frames": "all"}


def test_consistency_goes_on_top_of_any_method_and_means_what_the_paper_says():
    for preset in ("as_written", "as_released"):
        plain, top = (paper_settings(name, dataset="ucf101", frames=4, preset=preset) for name in ("icarl", "icarl+tc"))
        assert plain["consistency"] is None
        assert top["consistency"] == {"frames": 4, "weight": 0.5, "variant": preset}
        assert {**top, "consistency": None} == plain
    mixed = paper_settings("icarl+tc", dataset="ucf101", frames=4, preset="as_released", variant="as_written")
    assert mixed["consistency"]["variant"] == "as_written"
    assert (top["view"]["segments"], top["view"]["side_px"], top["view"]["flip"]) == (8, 224, 0.5)


def test_names_of_before_are_read_as_those_of_today():
    assert [present_name(name) for name in ("naive", "naive+tc", "replay", "er", "own.py:naive")] == [
        "er", "er+tc", "er", "er", "own.py:naive"
    ]  # fmt: skip
    assert paper_settings("naive+tc", dataset="ucf101", preset="as_released") == paper_settings(
        "er+tc", dataset="ucf101", preset="as_released"
    )


def test_all_baselines_can_be_made():
    for name in paper_methods():
        settings = paper_settings(name + "+tc", dataset="ucf101", frames=8, preset="as_released")
        parts = parts_of(settings, load_name(METHODS, name), tsn, labels="one", classes="new")
        assert isinstance(Learner(parts, sample=CLIP, seed=0), Learner)
    for table, says in (
        ({"model": {**settings["model"], "depth": 3}}, "depth"),
        ({"criterion": "hinge"}, "criterion 'hinge'"),
        ({"schedule": {**settings["schedule"], "rate": 1}}, "rate"),
        ({"memory": {**settings["memory"], "capacity": 1}}, "capacity"),
    ):
        with pytest.raises(ValueError, match=says):
            parts_of({**settings, **table}, load_name(METHODS, name), tsn, labels="one", classes="new")


# --- examples


def test_joined_parts_load_in_the_order_asked_for():
    a, b = examples(0, 1, "a", 3), examples(1, 2, "b", 2)
    both = Joined([a, Joined([b, a.take(np.empty(0, np.int64))])])
    assert len(both.parts) == 2
    assert both.labels.tolist() == [0, 0, 0, 1, 1]
    got = both.load([4, 0, 3], Draw(0, ""))
    assert torch.equal(got, torch.cat([b.load([1], None), a.load([0], None), b.load([0], None)]))
    taken = both.take(np.array([4, 3, 0, 3]))
    assert taken.keys == ["b1-1", "b1-0", "a0-0", "b1-0"]
    with pytest.raises(ValueError, match="no samples"):
        Joined([])


def test_arrays_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="float32 and one n are needed"):
        ArrayExamples(np.zeros((2, 3)), [0, 1])  # type: ignore[arg-type]
    assert cross_entropy(torch.zeros(1, 2), torch.tensor([0])) == pytest.approx(np.log(2))
