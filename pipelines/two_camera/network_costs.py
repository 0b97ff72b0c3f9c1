"""Cost of an estimate by each network, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...eval.report.blocks import Block, Table
from ...eval.results import Line
from ...training.two_camera.shapes import NetworkShape, chosen_shape


def shape_in(settings: Mapping[str, Any]) -> NetworkShape | None:
    """Shape of a network, from the settings of its training; None if it is not a network."""
    names = ("parameters", "hidden", "activation")
    given = {name: settings[f"estimator.{name}"] for name in names if f"estimator.{name}" in settings}
    return chosen_shape(**given) if given else None


def cost_blocks(lines: Sequence[Line]) -> list[Block]:
    """A table of the networks among the lines of a report; empty if there are none."""
    shapes = {line.method: shape_in(line.settings) for line in lines if line.model in ("network", "distilled")}
    rows = [[name, str(shape), shape.parameters, shape.operations] for name, shape in shapes.items() if shape is not None]
    caption = (
        "Cost of an estimate when T is known; each multiplication comes with an addition. benchwright export measures the time "
        "of an estimate"
    )
    return [Table(["network", "layers", "parameters", "multiplications"], rows, caption)] if rows else []
