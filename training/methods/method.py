"""What a baseline is: the rows that it trains on, how it trains on them, what it keeps, and how it tells classes apart."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..core.buffers import Rows

if TYPE_CHECKING:
    from ..core.lesson import Lesson

Rule = Callable[..., Rows]
"""``rule(buffer, sizes, *, seed, **settings)``: the rows of the stream that the model trains on next.

``buffer`` is what is kept (empty at first), ``sizes`` the rows of each domain or task so far, the current one last. No row
at all leaves the model and the buffer as they are. Without ``exemplars`` the chosen rows are what is kept.
"""

Teach = Callable[["Lesson"], None]
"""``teach(lesson)``: train the model of a lesson on its rows. Methods differ in the loss that they give to ``lesson.fit``."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A baseline.

    Attributes:
        name: what results call it.
        rule: chooses rows.
        start: "scratch" draws new weights for each domain or task, "finetune" goes on with the last ones.
        settings: JSON values: the keywords of the rule, or what ``teach`` was bound to.
        teach: trains; None: by the classification loss alone, which is all that ``learner.BufferLearner`` can do.
        exemplars: how rows are chosen for a memory of limited size after each task; None: there is no such memory.
        predict: by the largest output of the head, or by the nearest mean of the exemplars' features (iCaRL).
    """

    name: str
    rule: Rule
    start: Literal["scratch", "finetune"]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    teach: Teach | None = None
    exemplars: Literal["random", "herding", "given"] | None = None
    predict: Literal["head", "nearest_mean"] = "head"

    def __post_init__(self) -> None:
        if self.start not in ("scratch", "finetune"):
            raise ValueError(f"method {self.name!r}: start {self.start!r} is neither 'scratch' nor 'finetune'")
        if self.exemplars not in (None, "random", "herding", "given") or self.predict not in ("head", "nearest_mean"):
            raise ValueError(f"method {self.name!r}: exemplars {self.exemplars!r}, predict {self.predict!r}: no such words")
        if self.predict == "nearest_mean" and self.exemplars is None:
            raise ValueError(f"method {self.name!r}: the nearest mean of exemplars needs exemplars")
        if self.teach is not None:
            return
        try:
            inspect.signature(self.rule).bind((), (), seed=0, **self.settings)
        except TypeError as error:  # said now, rather than when the first domain is loaded
            raise ValueError(f"method {self.name!r}, settings {dict(self.settings)}: {error}") from error

    def choose(self, buffer: Rows, sizes: Sequence[int], seed: int) -> Rows:
        """The rule, with the method's settings."""
        return self.rule(buffer, sizes, seed=seed, **({} if self.teach else self.settings))
