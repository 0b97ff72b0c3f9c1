"""What a baseline is: a rule that chooses rows, and where the model starts from."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ..buffers import Rows

Rule = Callable[..., Rows]
"""``rule(buffer, sizes, *, seed, **settings)``: the rows of the stream that the model trains on next.

``buffer`` is what the rule chose before (empty at the first domain), ``sizes`` the rows of each domain so far, the
current one last. No row at all leaves the model and the buffer as they are.
"""


@dataclasses.dataclass(frozen=True)
class Method:
    """A baseline.

    Attributes:
        name: what results call it.
        rule: chooses rows.
        start: "scratch" draws new weights for each domain, "finetune" goes on with the last ones.
        settings: the rule's keywords, JSON values.
    """

    name: str
    rule: Rule
    start: Literal["scratch", "finetune"]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.start not in ("scratch", "finetune"):
            raise ValueError(f"method {self.name!r}: start {self.start!r} is neither 'scratch' nor 'finetune'")
        try:
            inspect.signature(self.rule).bind((), (), seed=0, **self.settings)
        except TypeError as error:  # said now, rather than when the first domain is loaded
            raise ValueError(f"method {self.name!r}, settings {dict(self.settings)}: {error}") from error

    def choose(self, buffer: Rows, sizes: Sequence[int], seed: int) -> Rows:
        """The rule, with the method's settings."""
        return self.rule(buffer, sizes, seed=seed, **self.settings)
