"""Inspection of a run's folder: its stages, stages kept from earlier code, rejects, and differences between two runs."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..curation.artifact import load_artifact, load_made, load_run, stale_stage, unfinished
from ..curation.part_writer import folder
from ..curation.store import Store, StoreError
from ..curation.verify import Difference, nested_runs
from .errors import did_you_mean


def show(out: str) -> dict[str, Any]:
    """Describe the run in ``out``: ``pipeline``, ``digest`` (of the final artifact; None if there is none), ``stale`` (if the
    final artifact is of an earlier run: why), ``lacks`` (if the run is not finished: what is missing), ``stages`` (``name``,
    ``rows``, ``rejects`` by reason, ``digest``, ``seconds``, ``bytes`` of its files, ``cost``: see ``Meter.cost``, and ``kept``
    if earlier code made it), ``kept`` (if earlier code made stages of nested runs, such as trainings: as ``kept_stages``) and
    ``provenance``.

    Raises:
        StoreError: ``out`` does not hold a run, or a record is damaged.

    >>> import benchwright as bw
    >>> [(stage["name"], stage["rows"], stage["rejects"]) for stage in bw.show("out")["stages"]][:2]
    [('listed', 900, {}), ('checked', 864, {'not_an_image': 2, 'truncated': 34})]
    """
    store = Store(out)
    record = load_run(store)
    stages: list[dict[str, Any]] = []
    chain: list[dict[str, Any]] = []
    artifacts = {name: load_artifact(store, name) for name in record.stages}
    for name, artifact in artifacts.items():
        if artifact is None:
            continue
        made = load_made(store, name)
        stages.append(
            {
                "name": name,
                "rows": artifact.rows,
                "rejects": dict(artifact.rejects),
                "digest": artifact.digest,
                "seconds": made.get("seconds"),
                "bytes": sum(facts["size"] for facts in artifact.files().values()),
                **({"cost": made["cost"]} if "cost" in made else {}),
                **({"kept": _kept_facts(artifact.kept)} if artifact.kept else {}),
            }
        )
        recipe = artifact.recipe
        chain.append(
            {
                "stage": name,
                "key": artifact.key,
                "step": recipe["step"],
                "code": recipe["code"],
                "settings": recipe["settings"],
                "inputs": recipe["inputs"],
                "made_at": made.get("made_at"),
                "versions": made.get("versions"),
            }
        )
    result = artifacts[record.result]
    stale = stale_stage(artifacts) or ("the last run did not finish" if record.outdated else "")
    lacks, kept = unfinished(store), _kept_within(store)
    return {
        "pipeline": record.pipeline,
        "digest": result.digest if result else None,
        **({"stale": stale} if stale and result else {}),
        **({"lacks": lacks} if lacks else {}),
        "stages": stages,
        **({"kept": kept} if kept else {}),
        "provenance": {"config": dict(record.config), "overrides": dict(record.overrides), "chain": chain},
    }


def kept_stages(out: str) -> dict[str, dict[str, Any]]:
    """Stages that are reused although their code has changed: name -> ``kept`` of ``curation.artifact.Artifact``.

    Stages of nested runs, such as trainings, are included, as ``experiments/learned_...``. Stages whose records are missing or
    damaged are left out.

    >>> kept_stages("out")
    {}
    """
    store = Store(out)
    found: dict[str, dict[str, Any]] = {}
    for name in load_run(store).stages:
        with contextlib.suppress(StoreError):
            if (artifact := load_artifact(store, name)) is not None and artifact.kept:
                found[name] = _kept_facts(artifact.kept)
    return {**found, **_kept_within(store)}


def _kept_within(store: Store) -> dict[str, dict[str, Any]]:
    """``kept_stages`` of the runs nested in a run."""
    found: dict[str, dict[str, Any]] = {}
    for inner in nested_runs(store):
        with contextlib.suppress(StoreError):
            stages = kept_stages(posixpath.join(store.url, inner))
            found |= {posixpath.join(inner, name): kept for name, kept in stages.items()}
    return found


def _kept_facts(kept: Mapping[str, Any]) -> dict[str, Any]:
    """``kept`` without the definitions, of which there are hundreds."""
    return {name: value for name, value in kept.items() if name != "definitions"}


def rejects(out: str, *, stage: str | None = None, reason: str | None = None) -> Iterator[dict[str, str]]:
    """Rejected rows, in order: ``stage``, ``key``, ``reason``, ``detail``; also those of failed stages.

    Args:
        out: the run.
        stage: only this stage.
        reason: only this reason.

    Raises:
        StoreError: ``out`` does not hold a run, the run has no such stage, or no row was rejected for that reason.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("words.py", overrides=["min_words=3"]), "rejecting")
    >>> list(bw.rejects("rejecting"))
    [{'stage': 'counted', 'key': 'short', 'reason': 'too_short', 'detail': '1 words'}]
    >>> list(bw.rejects("rejecting", reason="too_small"))
    Traceback (most recent call last):
        ...
    benchwright.curation.store.StoreError: no row of rejecting was rejected for 'too_small': there are too_short
    """
    store = Store(out)
    record = load_run(store)
    if stage is not None and stage not in record.stages:
        available = ", ".join(record.stages)
        raise StoreError(f"no stage {stage!r} in {out}: there are {available}{did_you_mean(stage, record.stages)}")
    names = [stage] if stage else record.stages
    files = {name: _reject_files(store, name) for name in names}
    if reason is not None:
        _check_reason(store, files, reason, out)
    for name in names:
        for file in files[name]:
            for row in store.read_parquet(file).to_pylist():
                if reason is None or row["reason"] == reason:
                    yield {"stage": name, **row}


def _reject_files(store: Store, stage: str) -> list[str]:
    """Names of the files with a stage's rejects; for an unfinished stage, those of the parts written so far."""
    if (artifact := load_artifact(store, stage)) is not None:
        return artifact.reject_files()
    return [posixpath.join(folder(stage), name) for name in store.list(folder(stage)) if name.endswith(".rejects.parquet")]


def _check_reason(store: Store, files: Mapping[str, Sequence[str]], reason: str, out: str) -> None:
    tables = (store.read_parquet(file, ["reason"])["reason"] for each in files.values() for file in each)
    known = sorted({str(name) for column in tables for name in column.unique().to_pylist()})
    if reason not in known:
        message = f": there are {', '.join(known)}{did_you_mean(reason, known)}" if known else ": none was rejected"
        raise StoreError(f"no row of {out} was rejected for {reason!r}{message}")


def describe_differences(differences: Sequence[Difference]) -> list[str]:
    r"""Describe the differences between two runs, one per line.

    >>> import benchwright as bw
    >>> for name, least in (("loose", 1), ("strict", 3)):
    ...     done = bw.run(bw.job("words.py", overrides=[f"min_words={least}"]), name)
    >>> print("\n".join(describe_differences(bw.compare("loose", "strict", stage="counted"))))
    counted: 3 rows against 2
      only in the first: 1 rows, such as short
    """
    lines: list[str] = []
    for each in differences:
        if each.same:
            continue
        if each.only_in:
            lines.append(f"{each.stage}: only in the {each.only_in} run")
            continue
        lines.append(f"{each.stage}: {each.rows[0]} rows against {each.rows[1]}")
        for label, keys in (("only in the first", each.only_first), ("only in the second", each.only_second)):
            if keys:
                lines.append(f"  {label}: {len(keys)} rows, such as {', '.join(keys[:3])}")
        lines += [f"  {name} differs: {len(keys)} rows, such as {', '.join(keys[:3])}" for name, keys in each.changed.items()]
        if each.columns:
            lines.append(f"  columns in one of them: {', '.join(each.columns)}")
        if each.moved:
            lines.append("  the common rows are in a different order")
    return lines
