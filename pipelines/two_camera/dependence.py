"""Report section on whether T depends on the light, that is, whether networks on T have anything to learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...datasets.two_camera.rows import TransformPairs
from ...datasets.two_camera.transforms import NUMBERS
from ...eval.metrics.light_dependence import ENOUGH, light_dependence
from ...eval.report.blocks import Block, Section, Text
from ...eval.report.figures import line_chart


def few_pairs(pairs: int) -> str:
    """A caveat if T seems not to depend on the illuminant; "" if there are enough pairs to be sure."""
    return "" if pairs >= ENOUGH else f" With {pairs} pairs, below {ENOUGH}, a dependence is sometimes missed."


def light_section(pairs: TransformPairs, ways: Sequence[str]) -> Section:
    """The section for measured pairs; ``ways`` are the directions that are estimated."""
    blocks: list[Block] = []
    for way in ways:
        first, _, second = way.partition("to")
        try:
            found = light_dependence(getattr(pairs, f"transform_{way}"), getattr(pairs, f"gt_{first}"))
        except ValueError as error:
            blocks.append(Text([f"From camera {first} to {second}: {error}."], tone="note"))
            continue
        best = int(found.explained.argmax())
        of_chance = f"illuminants shuffled among the pairs explain as much in {100 * found.chance:.1f} % of trials"
        if found.depends:
            text = (
                f"T from camera {first} to {second} depends on the illuminant, which explains "
                f"{100 * found.explained[best]:.0f} % of the variance of its element {NUMBERS[best]}, the highest share of all "
                f"elements ({of_chance})."
            )
        else:
            text = (
                f"T from camera {first} to {second} does not depend on the illuminant, as far as these {len(pairs)} pairs "
                f"show: the illuminant changes none of its elements by more than {100 * found.moved:.2f} % of the largest; "
                f"{of_chance}. Networks and regression on T have nothing to learn from these cameras: if they score well "
                "nevertheless, they use traces of noise and clipping in T, which other exposures do not have. This is the case "
                "for cameras with the same sensor, and if the sensitivities of one are linear combinations of the other's."
                f"{few_pairs(len(pairs))}"
            )
        blocks.append(Text([text], tone="plain" if found.depends else "note"))
        blocks.append(
            line_chart(
                NUMBERS,
                {"over the pairs": found.spread, "residual, given the illuminant": found.left},
                label_axis="element of T, from a channel of one camera to one of the other",
                value_axis="standard deviation",
                caption=f"How far the illuminant explains T, camera {first} to {second}. Where the curves coincide, T carries "
                "no information on the illuminant.",
                limits=(0.0, 1.05 * float(np.maximum(found.spread, found.left).max()) or 1.0),
            )
        )
    return Section("T and the illuminant", blocks)
