"""A benchmark with its settings: of a settings file, or of a run that is there."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from ..curation.artifact import RunRecord, load_artifact, load_run
from ..curation.flow import Flow, PlanError
from ..curation.records import check_tree
from ..curation.store import Store, StoreError
from ..curation.verify import DATASET
from .benchmark import Benchmark, UnknownBenchmark, find
from .catalogue import TITLES
from .config import ConfigError, checked, find_config, load

if TYPE_CHECKING:
    from ..curation.qa.rounds import Round


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

    def rounds(self) -> dict[str, Round]:
        """What people are asked: name -> round. Raises ``PlanError`` where two have one name."""
        rounds = self.benchmark.rounds(self.config)
        named = {each.name: each for each in rounds}
        if len(named) < len(rounds) or (len(named) > 1 and "" in named):
            raise PlanError(f"{self.benchmark.name}: of {len(rounds)} rounds of questions each needs a name of its own")
        return named


def job(name: str, *, config: str | None = None, overrides: Iterable[str] = ()) -> Job:
    """A benchmark with settings from a TOML file.

    Args:
        name: of a packaged benchmark, or the path of a Python file that has a ``BENCHMARK``.
        config: a TOML file, or the name of a packaged variant (``tiny``). By default the published settings, or for a
            Python file the TOML file beside it.
        overrides: ``a.b=value`` each.
    """
    benchmark = find(name)
    toml = settings_file(benchmark, name, config)
    settings, values, given = load(benchmark.config, toml, overrides, benchmark=benchmark.name)
    return Job(benchmark, settings, values, given)


def settings_file(benchmark: Benchmark, name: str, config: str | None = None) -> Traversable:
    """The TOML file that ``job`` reads for the benchmark found by ``name``. Raises ``ConfigError`` where there is none."""
    if config is None and name.endswith(".py"):
        config = name.removesuffix(".py") + ".toml"
    return find_config(benchmark.name, config)


def job_of(out: str, *, pipeline: str | None = None) -> Job:
    """The benchmark and settings that filled ``out``, from its ``run.json``.

    Args:
        out: the run.
        pipeline: the Python file of its pipeline, where it is a user's own. A run does not name it, for what lies in a
            folder is data, and no code is run because data says so.

    Raises:
        StoreError: where ``out`` holds no run, or its settings are not those of the benchmark.
        LeavesRun: where something in a local folder leads out of it.
    """
    if "://" not in out:
        check_tree(out)
    record = record_of(out)
    if pipeline is None and record.pipeline not in TITLES:
        raise UnknownBenchmark(f"{out} was made by {record.pipeline!r}, a pipeline of your own: give --pipeline FILE.py")
    benchmark = find(pipeline or record.pipeline)
    if benchmark.name != record.pipeline:
        raise UnknownBenchmark(f"{out} was made by {record.pipeline!r}, and {pipeline} is {benchmark.name!r}")
    try:
        config = checked(benchmark.config, dict(record.config), f"{out}/run.json")
    except ConfigError as error:
        raise StoreError(str(error)) from None
    return Job(benchmark, config, record.config, record.overrides)


def record_of(out: str) -> RunRecord:
    """``run.json`` of a run. Raises ``StoreError`` where there is none, or it is damaged."""
    return load_run(Store(out))


def dataset_of(out: str) -> str:
    """Place of the published dataset, "" where the run has published none."""
    return posixpath.join(out, DATASET) if Store(out).exists(posixpath.join(DATASET, "dataset.json")) else ""


def check_dataset(out: str) -> None:
    """Raises ``StoreError`` where the published dataset is not what the settings of the run made."""
    record = record_of(out)
    if dataset_of(out) and (record.outdated or not record.published):
        raise StoreError(f"{out}: the last run did not finish: dataset/ is of the run before; run again")


def check_finished(out: str) -> None:
    """Raises ``StoreError`` where the run has not reached its end, or the published dataset is not what its settings made."""
    check_dataset(out)
    if load_artifact(Store(out), record_of(out).result) is None:
        raise StoreError(f"{out}: the run has not reached its end: run again")
