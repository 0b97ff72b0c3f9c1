"""Which trainings of an IIRC run match the paper's, by their records."""

from __future__ import annotations

from ...curation.nested import flat
from ...eval.report.trainings import (
    changed_settings,
)
from ...eval.results import Line
from ...training.baselines.iirc import paper_methods, paper_settings


def as_published(line: Line) -> bool:
    """Whether a line was trained with the paper's settings, by its record."""
    if line.method not in paper_methods():
        return False
    papers = [flat(paper_settings(line.method, dataset=dataset)[1]) for dataset in ("cifar100", "imagenet")]
    return not changed_settings(line, papers, apart=("data.labels", "data.roles"))
