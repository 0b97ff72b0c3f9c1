"""Which trainings of an IIRC run match the paper's, by their records."""

from __future__ import annotations

from ...curation.nested import flat
from ...datasets.iirc.facts import facts
from ...eval.report.trainings import changed_settings
from ...eval.results import Line
from ...training.baselines.iirc import ours, paper_methods, paper_settings


def published_set(labels: int, tasks: int) -> str:
    """The paper's data set with so many labels and tasks in each configuration: a name of ``facts().sets``; "" for none.

    >>> published_set(333, 10), published_set(1_083, 35), published_set(19, 5)
    ('imagenet_lite', 'imagenet_full', '')
    """
    return next((name for name, fact in facts().sets.items() if (fact.labels, fact.tasks) == (labels, tasks)), "")


def departure(line: Line, published: str = "") -> str:
    """Why a line was not trained as in the paper, by its record; "" if it was, as far as the released code tells.

    Args:
        line: line of the table of results.
        published: which of the paper's data sets the run has, see ``published_set``; "" for another.
    """
    if line.method not in paper_methods():
        return "not a method of the paper"
    for dataset in ("cifar100", "imagenet"):
        if not changed_settings(line, [_settings(line, dataset)], apart=_apart(line, dataset)):
            return ours(line.method, dataset=dataset) or ours(line.method, dataset=published)
    return "settings changed from the paper's"


def _settings(line: Line, dataset: str) -> dict[str, object]:
    found = flat(paper_settings(line.method, dataset=dataset)[1])
    # Section 2.3: always incomplete information, but for joint and incremental joint training (section 5).
    return {**found, "data.labels": "incomplete" if found["data.samples"] == "task" else "complete"}


def _apart(line: Line, dataset: str) -> tuple[str, ...]:
    """Settings that may differ: roles, and for experience replay the buffers of Appendix E."""
    ablation = line.method == "er" and line.settings.get("memory.size") in facts().training["memory_ablations"][dataset]
    return ("data.roles", "memory.size") if ablation else ("data.roles",)
