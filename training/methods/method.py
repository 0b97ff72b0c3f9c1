"""What a baseline is: the rows that it trains on, how it trains on them, what it keeps, and how it distinguishes classes."""

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
Learners = Literal["one", "streams"]

MemoryRule = Callable[..., RowNumbers]
"""``rule(buffer, sizes, *, seed)``: the rows of the stream that the model trains on next.

``buffer`` is what is kept (empty at first), ``sizes`` the rows of each domain or task so far, the current one last. No row
at all leaves the model and the buffer as they are. Without ``exemplars`` the chosen rows are what is kept.
"""

Teach = Callable[[Any], None]
"""``teach(lesson)``: train the model of a lesson on its rows. Methods differ in the loss that they give to ``lesson.fit``.

``lesson`` is a ``core.lesson.Lesson`` or ``graph_streams.parallel_streams.Streams``, which share the members that methods use.
"""


@dataclasses.dataclass(frozen=True)
class Method:
    """A baseline.

    Attributes:
        name: what results call it.
        rule: chooses rows.
        start: "scratch" draws new weights for each domain or task, "finetune" continues with the last ones.
        settings: JSON values: what it was made with.
        teach: trains; None: by the classification loss alone.
        exemplars: the policy that chooses rows for a memory: a name of ``core.memory.POLICIES``, or a function;
            None: there is no memory.
        remember: whether they are chosen "after" the training, or "before" it, so that ``rule`` has those of the present too
            (GDumb trains on its memory alone).
        predict: by the largest output of the head, or by the nearest mean of the exemplars' features (iCaRL).
        labels: which labels of a sample it can learn: one class, or a set of them.
        classes: what a position of a stream may bring: "new" classes (tasks), or the "same" ones (domains).
        head: of the model: "any", or "cosine" where cosines are compared, see ``core.build.parts_of``.
        share: of a task's rows in its memory, where exemplars are a share.
        learners: who can teach by it: "one" model learns (``core.learner``), "streams" learn side by side (``graph_streams``).
        any_order: what it has learned depends on the set of tasks, and not on their order.
        attention: it needs the attention over a graph's edges, see ``graph_streams.nets.attends``.
        together: its losses are means over a batch's rows, and penalties on weights, so that several processes may share a
            batch, see ``core.ranks``.

    >>> from benchwright.training.methods.finetune import present
    >>> mine = Method("mine", present, "finetune", {"strength": 0.1})
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
        """Raise ``ValueError`` if it cannot learn such a stream with one model.

        >>> from benchwright.training.methods.icarl import icarl
        >>> icarl().check_fits(labels="sets", classes="new")
        Traceback (most recent call last):
            ...
        ValueError: method 'icarl' needs one class per sample, but samples here have sets of labels
        """
        if "one" not in self.learners:
            raise ValueError(f"method {self.name!r} trains only on batched graph streams")
        if labels not in self.labels or (labels == "sets" and self.predict == "nearest_mean"):
            raise ValueError(f"method {self.name!r} needs one class per sample, but samples here have sets of labels")
        if classes not in self.classes:
            what = "the same classes in every domain" if classes == "same" else "new classes in every task"
            raise ValueError(f"method {self.name!r} does not fit a stream with {what}")
