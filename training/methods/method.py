"""Definition of a method: the rows it trains on, how it trains on them, what it stores, and how it predicts classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from ..core.exemplars import RowNumbers, check_share
from ..core.memory import POLICIES, Policy

Start = Literal["scratch", "finetune"]
Remember = Literal["after", "before"]
Predict = Literal["head", "nearest_mean"]
LabelKind = Literal["one", "sets"]
Classes = Literal["new", "same"]
Head = Literal["any", "cosine"]
PaperForm = Literal["as_written", "as_released"]
Learners = Literal["one", "streams"]

MemoryRule = Callable[..., RowNumbers]
"""``rule(buffer, sizes, *, seed)``: the rows of the stream that the model trains on next.

``buffer`` holds the stored rows (empty at first), ``sizes`` the number of rows of each domain or task so far, the current one
last. If no row is returned, model and buffer do not change. Without ``exemplars``, the returned rows are stored.
"""

Teach = Callable[[Any], None]
"""``teach(lesson)``: train the model of a lesson on its rows. Methods differ in the loss that they pass to ``lesson.fit``.

``lesson`` is a ``core.lesson.Lesson`` or ``graph_streams.parallel_streams.Streams``, which share the members that methods use.
"""


@dataclasses.dataclass(frozen=True)
class Method:
    """A continual-learning method.

    Attributes:
        name: name in results.
        rule: selects the rows to train on.
        start: "scratch" draws new weights for each domain or task, "finetune" continues with the last ones.
        settings: settings it was made with, JSON values, as ``registry.made`` records them, with defaults.
        teach: trains the model; None: with the classification loss alone.
        exemplars: the policy that selects rows for a memory: a name of ``core.memory.POLICIES``, or a function;
            None: no memory.
        has_memory: without ``exemplars``, whether the rows that ``rule`` returns are a memory, whose size results state. False
            for rules that choose among all samples of the stream, such as all of them.
        remember: whether exemplars are selected "after" the training, or "before" it, so that ``rule`` receives current ones
            too (GDumb trains on its memory alone).
        predict: by the largest output of the "head", or by the "nearest_mean" of the exemplars' features (iCaRL).
        labels: labels of a sample that it can learn: "one" class, or "sets" of classes.
        classes: streams that it can learn: each position adds "new" classes (tasks), or has the "same" ones (domains).
        head: head that the model needs: "any", or "cosine" if cosines are compared, see ``core.build.parts_of``.
        share: fraction of a task's rows in its memory, if ``exemplars`` is "share".
        learners: learners that can run it: "one" model (``core.learner``), or parallel "streams" (``graph_streams``).
        any_order: the result depends on the set of tasks, not on their order.
        attention: it needs the attention over a graph's edges, see ``graph_streams.nets.attends``.
        together: its losses are means over a batch's rows, plus penalties on weights, so that several processes can share a
            batch, see ``core.ranks``.

    >>> from benchwright.training.methods.finetune import present
    >>> mine = Method("mine", present, "finetune")
    >>> mine.rule(buffer=[], sizes=[3, 2], seed=0)  # rows of the stream that the model trains on next
    array([3, 4])
    >>> Method("mine", present, "again")
    Traceback (most recent call last):
        ...
    ValueError: method 'mine': start 'again': one of scratch, finetune
    """

    name: str
    rule: MemoryRule
    start: Start
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    teach: Teach | None = None
    exemplars: str | Policy | None = None
    predict: Predict = "head"
    labels: tuple[LabelKind, ...] = ("one", "sets")
    classes: tuple[Classes, ...] = ("new", "same")
    head: Head = "any"
    share: float = 0.0
    learners: tuple[Learners, ...] = ("one",)
    any_order: bool = False
    attention: bool = False
    remember: Remember = "after"
    together: bool = False
    has_memory: bool = True

    def __post_init__(self) -> None:
        for what, value, words in (
            ("start", self.start, get_args(Start)),
            ("exemplars", None if callable(self.exemplars) else self.exemplars, (None, *POLICIES)),
            ("predict", self.predict, get_args(Predict)),
            ("remember", self.remember, get_args(Remember)),
        ):
            if value not in words:
                raise ValueError(f"method {self.name!r}: {what} {value!r}: one of {', '.join(map(str, words))}")
        if self.remember == "before" and self.exemplars in (None, "herding"):
            raise ValueError(f"method {self.name!r}: exemplars {self.exemplars!r} cannot be chosen before the training")
        if self.predict == "nearest_mean" and self.exemplars is None:
            raise ValueError(f"method {self.name!r}: the nearest mean of exemplars needs exemplars")
        if self.exemplars == "share":
            check_share(self.share)

    def check_fits(self, *, labels: LabelKind, classes: Classes) -> None:
        """Raise ``ValueError`` if the method cannot learn a stream of such labels and classes with one model.

        >>> from benchwright.training.methods.icarl import icarl
        >>> icarl().check_fits(labels="sets", classes="new")
        Traceback (most recent call last):
            ...
        ValueError: method 'icarl' needs one class per sample, but samples here have sets of labels
        """
        if "one" not in self.learners:
            given = ", ".join(f"{name} = {value!r}" for name, value in self.settings.items())
            raise ValueError(
                f"method {self.name!r} trains only on batched graph streams" + (f", with {given}" if given else "")
            )
        if labels not in self.labels or (labels == "sets" and self.predict == "nearest_mean"):
            raise ValueError(f"method {self.name!r} needs one class per sample, but samples here have sets of labels")
        if classes not in self.classes:
            what = "the same classes in every domain" if classes == "same" else "new classes in every task"
            raise ValueError(f"method {self.name!r} does not fit a stream with {what}")
