"""What a report says of pre-training on images without labels."""

from __future__ import annotations

from collections.abc import Sequence

from ...eval.report.blocks import Section, Table, Text, Value
from ...eval.results import Line
from .unlabelled import PRETRAIN


def pretraining_sections(lines: Sequence[Line]) -> list[Section]:
    """Loss and accuracy of the last epoch of each pre-training; nothing where there is none."""
    rows: list[Sequence[Value]] = []
    for line in lines:
        if line.protocol != PRETRAIN:
            continue
        for at, (_, seed) in enumerate(line.runs):
            epochs = int(line.settings["epochs"])
            last = [float(line.values(name, at=epochs)[at]) for name in ("contrastive_loss", "instance_accuracy")]
            rows.append([line.label, line.rows["model"][0].as_py(), seed, epochs, *last])
    if not rows:
        return []
    told = (
        "Encoders that learned from images without labels, which are published beside the dataset. Right: how often a query's "
        "own key scores highest among those of the queue, in the last epoch."
    )
    headings = ["method", "backbone", "seed", "epochs", "loss", "right"]
    return [Section("Pre-training on images without labels", [Text([told]), Table(headings, rows)])]
