"""Results of baselines in the folder of a run: those of the dataset that is published there."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..curation.store import Store
from ..curation.verify import DATASET
from ..eval.protocols.run import read_results

EVAL = "eval"
"""Where results of baselines lie in the folder of a run."""


def dataset_digest(out: str) -> str:
    """Content digest of the published dataset, "" where there is none. It goes into the identity of what is trained on it."""
    store, name = Store(out), posixpath.join(DATASET, "dataset.json")
    return store.read_json(name)["digest"] if store.exists(name) else ""


def current_results(out: str, pattern: str, *needed: str) -> list[tuple[Path, dict[str, Any]]]:
    """Path and content of every ``results.json`` of the published dataset, in the order of their paths.

    Args:
        out: the run.
        pattern: of the folders of baselines within ``eval/``.
        needed: keys that each must have.

    Raises:
        ValueError: where one is damaged.
    """
    digest = dataset_digest(out)
    found = [(path, read_results(path, *needed)) for path in sorted((Path(out) / EVAL).glob(f"{pattern}/results.json"))]
    return [(path, value) for path, value in found if _dataset_of(value) == digest]


def earlier_results(out: str) -> str:
    """What must be said where there are results of an earlier dataset; "" where there are none."""
    digest = dataset_digest(out)
    old = 0
    for path in (Path(out) / EVAL).rglob("results.json"):
        with contextlib.suppress(ValueError):  # damage is told by who reads them, and a pipeline of one's own may write others
            old += _dataset_of(read_results(path)) != digest
    count = "1 result of an earlier dataset is" if old == 1 else f"{old} results of an earlier dataset are"
    return f"{count} left out: `benchwright train {out}` trains anew" if old else ""


def _dataset_of(value: Mapping[str, Any]) -> str | None:
    identity = value["identity"]
    # The open-world loop holds what it was given as the identity of its predictor.
    return identity.get("dataset_digest") or identity.get("predictor", {}).get("dataset_digest")
