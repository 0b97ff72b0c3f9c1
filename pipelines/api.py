"""What the command line does, as functions of the same names (``plan``, ``run``, ``show``, ``verify``, ``compare``, ...)."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from ..curation import run as engine
from ..curation.artifact import Artifact, load_artifact, load_run
from ..curation.flow import Flow, Stage
from ..curation.part_writer import folder
from ..curation.store import Store, StoreError
from ..curation.verify import DATASET, Difference, Problem, compare, verify
from .benchmark import Benchmark, find
from .config import ConfigError, find_config, load

__all__ = ["Job", "compare", "job", "job_of", "plan", "rejects", "remake", "run", "show", "verify"]


@dataclasses.dataclass(frozen=True)
class Job:
    """A benchmark with its settings.

    Attributes:
        benchmark: what to run.
        config: its settings, checked.
        values: the settings as JSON-like values, for the record.
        overrides: those given for this run alone.
    """

    benchmark: Benchmark
    config: Any
    values: Mapping[str, Any]
    overrides: Mapping[str, Any]

    def flow(self, out: str) -> Flow:
        """The plan for a run in ``out``."""
        return self.benchmark.plan(self.config, out)


def job(name: str, *, config: str | None = None, overrides: Iterable[str] = ()) -> Job:
    """A benchmark with settings from a TOML file.

    Args:
        name: of a packaged benchmark, or the path of a Python file that has a ``BENCHMARK``.
        config: a TOML file, or the name of a packaged variant (``tiny``); the published settings by default.
        overrides: ``a.b=value`` each.
    """
    benchmark = find(name)
    if config is None and name.endswith(".py"):
        raise ConfigError(f"benchmark {name}: say with which settings, --config FILE.toml")
    settings, values, given = load(benchmark.config, find_config(benchmark.name, config), overrides)
    return Job(benchmark, settings, values, given)


def job_of(out: str) -> Job:
    """The benchmark and settings that filled ``out``, from its ``run.json``."""
    record = load_run(Store(out))
    benchmark = find(record.pipeline)
    return Job(benchmark, TypeAdapter(benchmark.config).validate_python(dict(record.config)), record.config, record.overrides)


def plan(todo: Job, out: str) -> list[tuple[Stage, Artifact | None]]:
    """Every stage in order, with its artifact where a run would use it as it is. Makes nothing."""
    return engine.status(todo.flow(out), out)


def run(
    todo: Job,
    out: str,
    *,
    scheduler: str = "threads",
    workers: int | None = None,
    on_progress: Callable[[engine.Progress], None] = lambda _: None,
) -> engine.Run:
    """Make what is not there yet, answer where the settings say so, and publish.

    Returns:
        The run; its ``waiting`` says what a person has to do where it could not reach its end.
    """
    waited = ""
    while True:
        done = engine.run(
            todo.flow(out),
            out,
            scheduler=scheduler,
            workers=workers,
            pipeline=todo.benchmark.name,
            config=todo.values,
            overrides=todo.overrides,
            on_progress=on_progress,
        )
        if not done.waiting:
            todo.benchmark.publish(done, todo.config, posixpath.join(out, DATASET))
            return done
        if done.waiting == waited or not todo.benchmark.answer(done, todo.config, out):
            return done
        waited = done.waiting


def remake(out: str, scratch: str, **how_to_run: Any) -> list[Problem]:
    """Make the run of ``out`` again in ``scratch``, and say where its files differ."""
    from ..curation.verify import remake as remake_flow

    return remake_flow(job_of(out).flow(out), out, scratch, **how_to_run)


def show(out: str) -> dict[str, Any]:
    """What ``out`` holds: ``pipeline``, ``digest`` (of the final artifact; None where the run has not reached it),
    ``stages`` (``name``, ``rows``, ``rejects`` by reason, ``digest``, ``seconds``) and ``provenance``.
    """
    store = Store(out)
    record = load_run(store)
    stages: list[dict[str, Any]] = []
    chain: list[dict[str, Any]] = []
    for name in record.stages:
        artifact = load_artifact(store, name)
        if artifact is None:
            continue
        made = _made(store, name)
        stages.append(
            {
                "name": name,
                "rows": artifact.rows,
                "rejects": dict(artifact.rejects),
                "digest": artifact.digest,
                "seconds": made.get("seconds"),
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
    result = load_artifact(store, record.result)
    return {
        "pipeline": record.pipeline,
        "digest": result.digest if result else None,
        "stages": stages,
        "provenance": {"config": dict(record.config), "overrides": dict(record.overrides), "chain": chain},
    }


def _made(store: Store, stage: str) -> dict[str, Any]:
    name = posixpath.join(folder(stage), "made.json")
    return store.read_json(name) if store.exists(name) else {}


def rejects(out: str, *, stage: str | None = None, reason: str | None = None) -> Iterator[dict[str, str]]:
    """Rows that were turned away, in order: ``stage``, ``key``, ``reason``, ``detail``.

    Raises:
        StoreError: where the run has no such stage.
    """
    store = Store(out)
    record = load_run(store)
    if stage is not None and stage not in record.stages:
        raise StoreError(f"no stage {stage!r} in {out}: there are {', '.join(record.stages)}")
    for name in [stage] if stage else record.stages:
        artifact = load_artifact(store, name)
        for file in artifact.reject_files() if artifact else []:
            for row in store.read_parquet(file).to_pylist():
                if reason is None or row["reason"] == reason:
                    yield {"stage": name, **row}


def describe(differences: Sequence[Difference]) -> list[str]:
    """One line for every way in which two runs differ."""
    lines: list[str] = []
    for each in differences:
        if each.same:
            continue
        lines.append(f"{each.stage}: {each.rows[0]} rows against {each.rows[1]}")
        for label, keys in (("only in the first", each.only_first), ("only in the second", each.only_second)):
            if keys:
                lines.append(f"  {label}: {len(keys)} rows, such as {', '.join(keys[:3])}")
        lines += [f"  {name} differs: {len(keys)} rows, such as {', '.join(keys[:3])}" for name, keys in each.changed.items()]
        if each.columns:
            lines.append(f"  columns in one of them: {', '.join(each.columns)}")
        if each.moved:
            lines.append("  the common rows stand in another order")
    return lines
