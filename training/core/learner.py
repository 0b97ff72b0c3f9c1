"""A learner combines a model, a method and a memory; all protocols run learners."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ...curation.encoders.one_thread import exact
from ..data.examples import Examples, Joined, RowNumbers
from ..methods.finetune import present
from ..models.classifier import Classifier
from .batches import Means, outputs
from .build import Parts, classifier_of
from .criteria import predicted_sets
from .determinism import generator
from .exemplars import class_means, current_rows, nearest_means
from .lesson import Lesson, TensorState, Watch, frozen, ignore_values
from .memory import POLICIES, Candidates, Policy
from .ranks import Ranks, shared

View = Callable[[Examples], Examples]


@dataclasses.dataclass(frozen=True)
class SecondView:
    """Temporal consistency: a second view of each sample, with ``weight`` in [0, 1] of the classification loss."""

    view: View
    weight: float

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight {self.weight} of the second view: a share in [0, 1]")


class Learner:
    """Learns a sequence of tasks or domains, and predicts among all classes seen so far.

    The result is a function of the arguments and the samples: no global generator is used. On the CPU it does not depend on the
    number of cores. Between devices, sums differ in their last bits, and so may the selected epochs.

    Args:
        parts: see ``build.parts_of``.
        sample: shape of a sample.
        seed: seed for all random draws; there is no default.
        given: arguments of the model in addition to its settings.
        keep: how the memory stores a sample (a clip -> four of its frames); None: unchanged.
        second: for temporal consistency.
        weights: file of the model's weights, passed to it as ``weights``; None: random ones.
        device: "cpu", "cuda", "cuda:1".
        workers: threads that load batches ahead.
        ranks: the processes that train together, each with such a learner.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        sample: Sequence[int],
        seed: int,
        given: Mapping[str, Any] | None = None,
        keep: View | None = None,
        second: SecondView | None = None,
        weights: Path | None = None,
        device: str = "cpu",
        workers: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        settings = {**parts.model, **(given or {}), **({} if weights is None else {"weights": weights})}
        self._make_model = functools.partial(classifier_of, parts.make, tuple(sample), settings)
        self._method, self._memory, self._order = parts.method, parts.memory, parts.order
        self._keep, self._second = keep, second
        weight = 0.0 if second is None else second.weight
        self._means = Means(parts.criterion, parts.schedule, seed, torch.device(device), workers, weight, parts.sets, ranks)
        self._seen: list[Examples] = []
        self._state: TensorState = {}
        self._model: Classifier | None = None
        self._nearest: NDArray[np.float64] | None = None
        self.buffer: RowNumbers = np.empty(0, dtype=np.int64)
        self.record: dict[str, Any] = {}
        self.watch: Watch = ignore_values

    @property
    def model(self) -> Classifier:
        """The current model."""
        if self._model is None:
            raise RuntimeError("the learner is not trained yet: call learn() or load() first")
        return self._model

    def learn(self, train: Examples, validate: Sequence[Examples], *, classes: int) -> None:
        """Learn the next task or domain. Afterwards ``record`` has an entry per epoch, and the size of the memory.

        Args:
            train: training samples, kept by reference; labels in [seen, seen + classes), or in [0, seen + classes) if they are
                sets or no class is new.
            validate: validation sets, of all tasks so far or of this one; may be empty.
            classes: number of new classes; 0 for a further domain of the same classes.

        Raises:
            ValueError: a label is out of range, or the method chose no row of the first task.
        """
        known = self._model.classes if self._model is not None else 0
        labels, first = train.labels, known if classes and not self._means.sets else 0
        if not labels.size or labels.min() < (-1 if self._means.sets else first) or labels.max() >= known + classes:
            raise ValueError(
                f"task {len(self._seen)}: labels {np.unique(labels).tolist()[:20]} are not among "
                f"its classes {first}..{known + classes - 1}"
            )
        task = len(self._seen)
        teacher = frozen(self._model) if self._model is not None else None
        previous = self._seen[-1] if task else None
        self._seen.append(train)
        self._resolve(len(self._seen[0].labels))
        if self._method.remember == "before":
            self.buffer = self._remember(task, known, known + classes)
        rows = self._method.rule(self.buffer, [len(part.labels) for part in self._seen], seed=self._means.seed)
        if not len(rows) and self._model is None:
            raise ValueError(f"method {self._method.name!r} chose no row of the first task")
        model = self._grown(task, classes, anew=self._model is None or (self._method.start == "scratch" and len(rows) > 0))
        self._nearest = None
        self.record = {"epochs": [], "memory": self._statement()}
        if not len(rows):
            return
        chosen = Joined(self._parts(rows))
        starts = np.cumsum([0, *(len(part.labels) for part in self._seen[:-1])])
        new = rows >= starts[-1]
        lesson = Lesson(
            model=model,
            teacher=teacher,
            train=chosen,
            fresh=int(new.sum()),
            rows=np.concatenate([rows[new], rows[~new]]),
            starts=starts,
            capacity=None if self._memory is None else self._memory.number,
            second=None if self._second is None else Joined([self._second.view(part) for part in chosen.parts]),
            previous=previous,
            validate=[part for part in validate if len(part.labels)],
            state=self._state,
            task=task,
            old_classes=known,
            means=self._means,
            watch=self.watch,
            stored=functools.partial(self._stored, starts),
        )
        with self._exact():
            if self._method.teach is None:
                lesson.fit(lambda step: step.classification())
            else:
                self._method.teach(lesson)
            if self._method.exemplars is None:
                self.buffer = rows
            elif self._method.remember == "after":
                self.buffer = self._remember(task, known, self.model.classes)
        self.record = {"epochs": lesson.curve, "memory": self._statement()}

    def predict(self, samples: Examples) -> NDArray[Any]:
        """Return class indices (n,) int64, by the head or by the nearest mean of exemplars, depending on the method.

        If labels are sets: (n, classes so far) bool, the outputs whose sigmoid is above one half.
        """
        with self._exact():
            if self._means.sets:
                return predicted_sets(outputs(self.model, samples, self._means)).numpy()
            if self._method.predict == "head":
                return outputs(self.model, samples, self._means).argmax(1).numpy()
            if self._nearest is None:
                kept = self._kept(self.buffer)
                self._nearest = class_means(self._features(kept), kept.labels, self.model.classes)
            return nearest_means(self._features(samples), self._nearest)

    def save(self, path: Path) -> None:
        """Write weights, the method's tensors and the memory's row numbers; equal states give equal bytes."""
        state = {
            "buffer": torch.from_numpy(self.buffer),
            "groups": list(self.model.groups),
            "learned": len(self._seen),
            "model": {name: value.cpu() for name, value in self.model.state_dict().items()},
            "state": {name: self._state[name].cpu() for name in sorted(self._state)},
        }
        # Through memory: written to a path, torch puts the file's name into the archive.
        memory = io.BytesIO()
        torch.save(state, memory)
        path.write_bytes(memory.getvalue())

    def load(self, path: Path, seen: Sequence[Examples]) -> None:
        """Resume from the state in ``path``, of which only tensors and numbers are read; ``seen`` as passed to ``learn``.

        Raises:
            ValueError: the state was saved after a different number of tasks.
        """
        held = torch.load(path, map_location="cpu", weights_only=True)
        if held["learned"] != len(seen) or not seen:
            raise ValueError(f"{path} was saved after {held['learned']} tasks, and {len(seen)} are given")
        model = self._made(torch.Generator())
        for classes in held["groups"]:
            model.grow(classes, torch.Generator())
        model.load_state_dict(held["model"])
        self._model = model
        self._state = {name: value.to(self._means.device) for name, value in held["state"].items()}
        self._seen = list(seen)
        self._nearest = None
        self._resolve(len(seen[0].labels))
        self.buffer = held["buffer"].numpy()

    def _resolve(self, first: int) -> None:
        if self._memory is not None:
            self._memory = self._memory.resolved(first)

    def _grown(self, task: int, classes: int, *, anew: bool) -> Classifier:
        groups: tuple[int, ...] = ()
        if anew or self._model is None:
            groups = () if self._model is None else self._model.groups
            self._model = self._made(generator(self._means.seed, "init", str(task)))
        for group in (*groups, *([classes] if classes else [])):
            self._model.grow(group, generator(self._means.seed, "head", f"{task}/{len(self._model.groups)}"))
        return self._model

    def _exact(self) -> contextlib.AbstractContextManager[None]:
        return exact(self._means.device, half=self._means.schedule.mixed_precision)

    def _made(self, init: torch.Generator) -> Classifier:
        """A new model on the device, without outputs."""
        model = self._make_model(init).to(self._means.device)
        if self._means.device.type == "cuda":
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self._means.schedule.compile:
            backbone = model.backbone
            model.compiled = torch.compile(lambda x: backbone(x))  # a module of torch's own would not be compiled directly
        if self._means.ranks is not None:
            shared(model)
        return model

    def _parts(self, rows: RowNumbers) -> list[Examples]:
        """Rows of the newest task unchanged, then past rows as the memory stores them."""
        start = sum(len(part.labels) for part in self._seen[:-1])
        new, old = rows[rows >= start], rows[rows < start]
        parts: list[Examples] = [self._seen[-1].take(new - start)] if len(new) else []
        if not len(old):
            return parts
        return [*parts, self._kept(old)]

    def _kept(self, rows: RowNumbers) -> Examples:
        """Rows of the stream as the memory stores them: without exemplars, whole samples."""
        examples = Joined(self._seen).take(rows)
        if self._keep is None or self._method.exemplars is None:
            return examples
        return Joined([self._keep(part) for part in examples.parts])

    def _stored(self, starts: RowNumbers) -> dict[int, Examples]:
        """The memory by past domain or task, whose first rows are ``starts``; the last is that of the current one."""
        if self._method.exemplars is None:
            return {}
        positions = np.searchsorted(starts, self.buffer, side="right") - 1
        past = [position for position in range(len(starts) - 1) if (positions == position).any()]
        return {position: self._kept(self.buffer[positions == position]) for position in past}

    def _remember(self, task: int, known: int, classes: int) -> RowNumbers:
        """The memory after a task, by the method's policy; ``known``: classes before the task, ``classes``: including it."""
        stream, new = Joined(self._seen), current_rows([len(part.labels) for part in self._seen])
        policy, trained = self._method.exemplars, self._method.remember == "after"

        def evaluated(rows: RowNumbers, *, features: bool) -> NDArray[np.float64]:
            if not trained:
                raise ValueError(f"method {self._method.name!r}: its exemplars are chosen before the training, without a model")
            kept = self._kept(rows)
            return self._features(kept) if features else outputs(self.model, kept, self._means).double().numpy()

        candidates = Candidates(
            kept=self.buffer,
            new=new,
            labels=stream.labels,
            known=known,
            classes=classes,
            task=task,
            seed=self._means.seed,
            capacity=self._memory,
            share=self._method.share,
            order=self._order,
            samples=self._kept,
            features=functools.partial(evaluated, features=True),
            outputs=functools.partial(evaluated, features=False),
        )
        if isinstance(policy, str):
            return POLICIES[policy](candidates)
        chosen = np.asarray(cast(Policy, policy)(candidates), dtype=np.int64)
        try:
            candidates.check(chosen)
        except ValueError as error:
            raise ValueError(f"method {self._method.name!r}: {error}") from None
        return chosen

    def _statement(self) -> dict[str, int] | None:
        """Number of samples and parts in the memory; None for a method without a memory."""
        if self._method.exemplars is None and (self._method.rule is present or not self._method.has_memory):
            return None
        return {"samples": len(self.buffer), "parts": int(self._kept(self.buffer).sizes.sum()) if len(self.buffer) else 0}

    def _features(self, examples: Examples) -> NDArray[np.float64]:
        """(n, width) penultimate features in the evaluation view."""
        return outputs(self.model, examples, self._means, what=self.model.penultimate).double().numpy()
