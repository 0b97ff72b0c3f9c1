"""What an estimate by each network costs, as the report has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...eval.report.blocks import Block, Table
from ...eval.results import Line
from ...training.two_camera.shapes import NetworkShape, chosen_shape


def shape_in(settings: Mapping[str, Any]) -> NetworkShape | None:
    """Of a network, by the settings of its training; None for what is none."""
    names = ("parameters", "hidden", "activation")
    given = {name: settings[f"estimator.{name}"] for name in names if f"estimator.{name}" in settings}
    return chosen_shape(**given) if given else None


def cost_blocks(lines: Sequence[Line]) -> list[Block]:
    """A table of the networks among the lines of a report; nothing if there is none."""
    shapes = {line.method: shape_in(line.settings) for line in lines if line.model in ("network", "distilled")}
    rows = [[name, str(shape), shape.parameters, shape.operations] for name, shape in shapes.items() if shape is not None]
    caption = (
        "Cost of an estimate when T is known; each multiplication comes with an addition. benchwright export measures the time "
        "of an estimate"
    )
    return [Table(["network", "layers", "parameters", "multiplications"], rows, caption)] if rows else []
