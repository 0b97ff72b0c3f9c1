"""Costs of finished trainings, and estimates of their costs on a larger dataset."""

from __future__ import annotations

import dataclasses
import posixpath

from ..curation.artifact import load_made
from ..curation.cost import CostEstimate, busy_seconds, peaks_of, start_of
from ..curation.store import Store
from .training_results import FOLDER, dataset_digest, finished_trainings


def training_costs(out: str, samples: int) -> dict[str, CostEstimate]:
    """Costs of the finished trainings on the published dataset, which has ``samples`` samples: by protocol and method, summed
    over seeds and settings.
    """
    store = Store(posixpath.join(out, FOLDER))
    trained = finished_trainings(out)
    dataset = dataset_digest(out) if trained else ""
    found: dict[str, CostEstimate] = {}
    for one in trained:
        name = f"{one.facts['protocol']} {one.facts['method']}"
        for artifact in (one.learned, *one.measured.values()) if one.dataset == dataset else ():
            made = load_made(store, artifact.stage)
            if (cost := made.get("cost")) is None:
                continue
            # The parts that an interrupted run left are reused: extrapolate from the measured parts.
            whole = artifact.rows_in / cost["rows"] if cost["rows"] else 1.0
            before = found.get(name) or CostEstimate(name, samples, 0, 0.0, 0.0, 0.0, 0, 0, 0, False, samples, True)
            found[name] = dataclasses.replace(
                before,
                rows=before.rows + (artifact.rows if artifact is one.learned else 0),
                seconds=before.seconds + made["seconds"] * whole,
                cpu_seconds=before.cpu_seconds + cost["cpu_seconds"] * whole,
                gpu_seconds=before.gpu_seconds + (busy_seconds(made) * whole if cost.get("gpu") else 0.0),
                bytes=before.bytes + sum(file["size"] for file in artifact.files().values()),
                peak_bytes=max(before.peak_bytes, cost["peak_bytes"]),
                worker_peak_bytes=max(before.worker_peak_bytes, cost.get("worker_peak_bytes", 0)),
            )
    return found


def training_estimates(out: str, samples: int, *, of: int, smaller: str = "", fewer: int = 0) -> list[CostEstimate]:
    """Estimate the costs of the finished trainings of a sample run on a larger dataset.

    Time and bytes are assumed proportional to the number of samples, besides the start-up time, which can be separated with a
    smaller sample run; without one, the memory is a lower bound. The number of epochs stays the same.

    Args:
        out: the sample run.
        samples: number of samples of the larger dataset.
        of: number of samples of the sample run's dataset.
        smaller: a smaller sample run with the same trainings.
        fewer: number of samples of the smaller run's dataset.

    >>> [(each.stage, each.rows_in) for each in training_estimates("out", 100_000, of=210)]
    [('iid nap-finetune', 100000), ('streaming nap-finetune', 100000)]
    """
    less = training_costs(smaller, fewer) if smaller and 0 < fewer < of else {}
    factor, found = samples / max(1, of), list[CostEstimate]()
    for name, each in training_costs(out, of).items():
        other = less.get(name)
        pairs = zip(_times(each), _times(other), strict=True) if other else []
        starts = [start_of(more, few, rows=of, fewer=fewer) for more, few in pairs] or [0.0, 0.0, 0.0]
        seconds, cpu, gpu = (
            start + factor * max(0.0, spent - start) for start, spent in zip(starts, _times(each), strict=True)
        )
        peaks, at_least = _peaks(each), False
        if factor > 1:
            peaks, at_least = peaks_of(peaks, _peaks(other or each), rows=of, fewer=fewer, factor=factor)
        found.append(
            dataclasses.replace(
                each,
                rows_in=samples,
                seconds=seconds,
                cpu_seconds=cpu,
                gpu_seconds=gpu,
                bytes=round(factor * each.bytes),
                peak_bytes=peaks[0],
                worker_peak_bytes=peaks[1],
                peak_at_least=at_least,
                rough=other is None,
            )
        )
    return found


def _times(each: CostEstimate) -> tuple[float, float, float]:
    return each.seconds, each.cpu_seconds, each.gpu_seconds


def _peaks(each: CostEstimate) -> tuple[int, int]:
    return each.peak_bytes, each.worker_peak_bytes
