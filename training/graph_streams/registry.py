"""Methods on streams side by side, by name: see ``recipe.StreamMethod``. Others run one stream at a time."""

from __future__ import annotations

from collections.abc import Mapping

METHODS: Mapping[str, str] = {
    name: f"{__package__}.methods:{name}" for name in ("finetune", "joint", "ewc", "mas", "twp", "lwf", "gem", "er")
}
"""Name -> where the function is that makes the method."""

FORMER = {"bare": "finetune", "replay": "er"}
"""Names that were used before, and still can be read."""


def current_name(name: str) -> str:
    """A method's name as it is now."""
    return FORMER.get(name, name)
