"""A benchmark with its settings, from a settings file or from an existing run."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import posixpath
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..curation.artifact import RunRecord, load_run, unfinished
from ..curation.budget import NoRows
from ..curation.code_loading import UnknownName
from ..curation.flow import Flow, PlanError
from ..curation.keys import MissingSource
from ..curation.part_writer import StepFailed
from ..curation.records import check_tree
from ..curation.registry import BUILT_IN, Entry
from ..curation.store import Store, StoreError
from ..curation.verify import DATASET
from .benchmark import Benchmark, UnknownBenchmark, find
from .catalogue import BENCHMARKS
from .config import ConfigError, SettingOverrides, brings_settings, checked, find_config, load, override
from .trusted_code import check_trusted, remember

if TYPE_CHECKING:
    from ..curation.qa.rounds import Round


LOGGER = logging.getLogger("benchwright")


@dataclasses.dataclass(frozen=True)
class Job:
    """A benchmark with its settings.

    Attributes:
        benchmark: what to run.
        config: its settings, checked.
        values: the settings as JSON-like values, for the record.
        overrides: the settings changed for this run only.
        used: the code that the settings name.

    >>> import benchwright as bw
    >>> todo = bw.job("words.py", overrides=["folder=texts"])
    >>> todo.benchmark.title, todo.config.min_words
    ('Text files and their words', 3)
    """

    benchmark: Benchmark
    config: Any
    values: Mapping[str, Any]
    overrides: Mapping[str, Any]
    used: tuple[Entry, ...] = ()

    def flow(self, out: str) -> Flow:
        """The plan for a run in ``out``. Raises ``PlanError`` if the benchmark does not return a plan."""
        flow: Any = self.benchmark.plan(self.config, out)
        if not isinstance(flow, Flow):
            raise PlanError(f"{self.benchmark.name}: its plan returned {type(flow).__name__}: it must return its Flow")
        return flow

    @contextlib.contextmanager
    def naming_settings(self) -> Iterator[None]:
        """Within the block, errors about missing sources and about settings name the setting."""
        try:
            yield
        except MissingSource as error:
            held = [name for name, value in _paths(self.values) if value == error.path] or [
                name for name, value in _paths(self.values) if value and error.path.startswith(f"{value.rstrip('/')}/")
            ]
            raise MissingSource(error.path, held[0] if held else "") from error
        except PlanError as error:
            held = [
                name for name, value in _paths(self.values) if name.endswith("device") and f"device = {value!r}" in str(error)
            ]
            error.args = (f"{error} {' or '.join(held)}" if held else str(error),)
            raise
        except (StepFailed, NoRows) as error:  # the usual result of a source of the wrong kind
            held = [name for name, value in _paths(self.values) if "/" in value and f"'{value.rstrip('/')}" in str(error)]
            error.args = (f"{error} ({' or '.join(held)})" if held else str(error),)
            raise

    def tell_kept(self) -> None:
        """Warn of settings in the file that the overrides do not change, see ``Benchmark.kept``."""
        for line in self.benchmark.kept(self.config, self.overrides):
            LOGGER.warning("%s", line)

    def code(self) -> dict[str, str]:
        """References of code that is not built in, for the record: the pipeline, and by kind what the settings name."""
        entry = self.benchmark.entry
        own = [entry] if entry is not None and entry.origin != BUILT_IN else []
        origins = {f"{each.kind} {each.name}": each.origin or each.reference for each in (*own, *self.used)}
        return {**({"pipeline": own[0].name} if own else {}), **origins}

    def rounds(self) -> dict[str, Round]:
        """Annotation rounds: name -> round. Raises ``PlanError`` if two share a name."""
        rounds = self.benchmark.rounds(self.config)
        named = {each.name: each for each in rounds}
        if len(named) < len(rounds) or (len(named) > 1 and "" in named):
            raise PlanError(f"{self.benchmark.name}: of {len(rounds)} rounds of questions each needs a name of its own")
        return named


def _paths(values: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text among the settings with its dotted name; items of a list are named by their number."""
    if isinstance(values, str):
        yield place, values
    elif isinstance(values, Mapping | list):
        for name, value in values.items() if isinstance(values, Mapping) else enumerate(values):
            yield from _paths(value, f"{place}.{name}" if place else str(name))


def job(name: str, *, config: str | None = None, overrides: SettingOverrides = ()) -> Job:
    """A benchmark with settings from a TOML file.

    Args:
        name: a benchmark: built in, of an installed package, ``module:NAME``, or ``FILE.py`` with a ``BENCHMARK``.
        config: a TOML file, or a preset of the benchmark (``tiny``). Default: the published settings, or for a Python file the
            TOML file next to it. Without a file, ``overrides`` must give all settings that have no defaults.
        overrides: ``a.b=value`` each, or a mapping of dotted names to values.

    Raises:
        UnknownBenchmark: no benchmark has that name.
        ConfigError: a setting is missing, unknown or invalid.

    >>> import benchwright as bw
    >>> todo = bw.job("clear", config="tiny", overrides=["source.count=300"])
    >>> todo.config.source.count, todo.overrides
    (300, {'source.count': 300})
    >>> bw.job("clear", config="tiny", overrides={"source.count": 300}).values == todo.values
    True
    >>> bw.job("clear", config="tiny", overrides=["source.number=300"])
    Traceback (most recent call last):
        ...
    benchwright.pipelines.config.ConfigError: --set source.number: there is no such setting; there are kind, count
    """
    benchmark = find(name)
    toml = find_config(benchmark.origin, config) if config or brings_settings(benchmark.origin) else None
    used: list[Entry] = []
    settings, values, given = load(benchmark.config, toml, overrides, benchmark=benchmark.origin, used=used)
    named = tuple(dict.fromkeys(used))
    remember([*named, *([benchmark.entry] if benchmark.entry else [])])
    return Job(benchmark, settings, values, given, named)


def job_of(out: str, *, pipeline: str | None = None, overrides: SettingOverrides = ()) -> Job:
    """The benchmark and settings of the run in ``out``, from its ``run.json``.

    Args:
        out: the run.
        pipeline: the name of its pipeline, such as a Python file; default: the recorded one. Code that the record names is
            executed only if it is built in, of an installed package, or named by the user before: see ``trusted_code``.
        overrides: see ``job``; settings of trainings, which must not change the dataset.

    Raises:
        ConfigError: an override is unknown or invalid, or would change the dataset.
        StoreError: ``out`` is not a run, or its settings are not those of the benchmark.
        LeavesRun: a link in a local folder leads out of it.
        NotNamed: the run names code that the user has not named.

    >>> job_of("out").config.seed
    0
    """
    if "://" not in out:
        check_tree(out)
    record = record_of(out)
    if pipeline is None:
        check_trusted([pipeline_of(record)], out)
    benchmark = find(pipeline or _name_of(record))
    if benchmark.name != record.pipeline:
        raise UnknownBenchmark(f"{out} was made by {record.pipeline!r}, and {pipeline} is {benchmark.name!r}")
    used: list[Entry] = []
    try:
        config = checked(benchmark.config, dict(record.config), f"{out}/run.json", used)
    except ConfigError as error:
        raise StoreError(str(error)) from None
    if pipeline is not None and benchmark.entry:
        remember([benchmark.entry])
    check_trusted(used, out)
    todo = Job(benchmark, config, record.config, record.overrides, tuple(dict.fromkeys(used)))
    return _overridden(todo, out, overrides) if overrides else todo


def _overridden(todo: Job, out: str, overrides: SettingOverrides) -> Job:
    values, used = copy.deepcopy(dict(todo.values)), list[Entry]()
    given = override(values, overrides)
    config = checked(todo.benchmark.config, values, f"{out}/run.json", used, given)
    other = dataclasses.replace(todo, config=config, values=values, overrides=given, used=tuple(dict.fromkeys(used)))
    if other.flow(out) != todo.flow(out):
        raise ConfigError(
            f"{', '.join(given)}: this would change the dataset, and `train` uses {out} unchanged: change it with "
            "`benchwright run`"
        )
    remember(used)
    return other


def _name_of(record: RunRecord) -> str:
    return record.code.get("pipeline", record.pipeline)


def pipeline_of(record: RunRecord) -> Entry:
    """The pipeline that a record names, not loaded. Raises ``UnknownBenchmark`` if there is none."""
    try:
        return BENCHMARKS.find(_name_of(record))
    except UnknownName as error:
        raise UnknownBenchmark(f"the run was made by {record.pipeline!r}: {error}; give --pipeline") from None


def allow(out: str) -> None:
    """Trust all code that the record of ``out`` names, as if the user had named it."""
    record = record_of(out)
    remember([pipeline_of(record)])
    used: list[Entry] = []
    with contextlib.suppress(ConfigError):  # job_of reports these errors
        checked(find(_name_of(record)).config, dict(record.config), f"{out}/run.json", used)
    remember(used)


def record_of(out: str) -> RunRecord:
    """``run.json`` of a run. Raises ``StoreError`` if it is missing or damaged.

    >>> record_of("out").pipeline
    'clear'
    """
    return load_run(Store(out))


def dataset_of(out: str) -> str:
    """Location of the published dataset, "" if the run has published none.

    >>> dataset_of("out"), dataset_of("unfinished")
    ('out/dataset', '')
    """
    return posixpath.join(out, DATASET) if Store(out).exists(posixpath.join(DATASET, "dataset.json")) else ""


def check_dataset(out: str) -> None:
    """Raises ``StoreError`` if the published dataset does not match the settings of the run."""
    record = record_of(out)
    if dataset_of(out) and (record.outdated or not record.published):
        raise StoreError(f"{out}: the last run did not finish: dataset/ belongs to the previous run; run again")


def check_finished(out: str) -> None:
    """Raises ``StoreError`` if the run is not finished, or the published dataset does not match its settings."""
    check_dataset(out)
    if why := unfinished(Store(out)):
        raise StoreError(f"{out}: {why}")
