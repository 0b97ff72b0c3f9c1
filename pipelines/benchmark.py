"""A benchmark as a value: its settings, its plan, and the operations on its results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..curation.code_loading import UnknownName, load
from ..curation.flow import Flow
from ..curation.registry import Entry, load_entry
from ..curation.run import Run
from .catalogue import BENCHMARKS, TITLES
from .errors import WrongUse
from .publish import publish_plainly

if TYPE_CHECKING:
    from ..curation.qa.rounds import Round
    from .experiments import Training


class Publish(Protocol):
    """Write the dataset of a finished run into ``folder``, a path or fsspec URL. A second call writes the same bytes.

    >>> from benchwright.curation.store import Store
    >>> def publish(run: Run, config: Any, folder: str) -> None:
    ...     Store(folder).write("README.md", b"My dataset")
    >>> of_mine: Publish = publish
    """

    def __call__(self, run: Run, config: Any, folder: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A pipeline that ``benchwright run`` knows.

    Attributes:
        name: snake_case.
        title: one line.
        config: pydantic dataclass of its settings.
        plan: ``plan(config, out) -> Flow``.
        publish: writes the dataset of a finished run; by default its shards, with a minimal card.
        rounds: annotation rounds: ``rounds(config)``; see ``curation.qa.rounds``.
        asked: annotation rounds of trainings, whose folder holds the rows: ``asked(config, out)``.
        trainings: the baselines: ``trainings(config, out, methods, protocols) -> [Training]``; without methods or protocols,
            those of the settings.
        check: raises ``WrongUse`` if the settings of the baselines do not fit, before a run begins.
        kept: lines on settings in the file that still apply although ``given``, the overrides, seems to replace them.
        shown: metrics that ``eval`` prints: heading -> metric.
        tables: further tables of scores that ``eval`` prints: ``tables(config, out)``, protocol -> method -> values.
        doubts: lines on trained baselines whose settings do not suit the data: ``doubts(config, out)``; logged as warnings.
        report: writes the HTML report of a run and returns its path. ``find`` sets a default: see ``report.write_default``.
        joins: whether ``report`` takes ``beside``, other runs whose results are joined with the run's.
        early: protocol of a training -> function that publishes its training data as soon as possible, even while the run
            waits for annotators, so that training can start.
        release: writes a run in the layout of the benchmark's release: ``release(config, out, folder) -> images``; with an
            argument ``layout`` if there are several.
        export: trains a model on all data and writes it into a folder: ``export(config, out, folder, *, network,
            direction, average, progress) -> path``.
        entry: its registry entry, set by ``find``. Files of its settings are next to its module, see ``config.find_config``.

    >>> import benchwright as bw
    >>> from words import Config, plan
    >>> mine = bw.Benchmark("words", "Text files and their words", Config, plan)
    >>> mine.plan(Config(folder="texts", min_words=3, max_rejects=0.5, files_per_shard=4), "out").last
    'shards'
    """

    name: str
    title: str
    config: type
    plan: Callable[[Any, str], Flow]
    publish: Publish = publish_plainly
    rounds: Callable[[Any], Sequence[Round]] = lambda config: ()
    asked: Callable[[Any, str], Sequence[Round]] = lambda config, out: ()
    trainings: Callable[[Any, str, Sequence[str], Sequence[str]], Sequence[Training]] | None = None
    check: Callable[[Any], None] = lambda config: None
    kept: Callable[[Any, Mapping[str, Any]], Sequence[str]] = lambda config, given: ()
    shown: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    tables: Callable[[Any, str], Mapping[str, Any]] = lambda config, out: {}
    doubts: Callable[[Any, str], Sequence[str]] = lambda config, out: ()
    report: Callable[..., str] | None = None
    joins: bool = False
    release: Callable[..., int] | None = None
    export: Callable[..., Any] | None = None
    early: Mapping[str, Publish] = dataclasses.field(default_factory=dict[str, Publish])
    entry: Entry | None = None

    @property
    def origin(self) -> str:
        """The name under which it was found."""
        return self.entry.name if self.entry else self.name


def later(reference: str) -> Callable[..., Any]:
    """A lazy ``module:function``, imported when called: a plan needs neither torch nor matplotlib.

    >>> later("json:dumps")([1, 2])
    '[1, 2]'
    """
    return lambda *arguments, **more: load(reference)(*arguments, **more)


def built_in(name: str, config: type, plan: Callable[[Any, str], Flow], publish: Publish, **more: Any) -> Benchmark:
    """A benchmark of this package: ``baselines`` and ``report`` next to its plan make its trainings and its report.

    >>> from words import Config, plan
    >>> built_in("iirc", Config, plan, publish_plainly).title
    'IIRC: labels of two levels that are refined task by task'
    """
    package = f"{__package__}.{name}"
    beside = {
        "trainings": later(f"{package}.baselines:trainings"),
        "check": later(f"{package}.baselines:check_settings"),
        "report": later(f"{package}.report:write_report"),
    }
    return Benchmark(name, TITLES[name], config, plan, publish, **beside, **more)


class UnknownBenchmark(WrongUse):
    """A name that is not a benchmark; the message lists the known ones.

    >>> find("words.py:PLAN")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.benchmark.UnknownBenchmark: benchmark '...words.py:PLAN': ...words.py has no 'PLAN'
    """


def find(name: str) -> Benchmark:
    """The benchmark of that name: built in, offered by an installed package, or a user's ``module:NAME`` or ``FILE.py:NAME``;
    ``FILE.py`` means its ``BENCHMARK``.

    Raises:
        UnknownBenchmark: there is no such benchmark.

    >>> find("clear").title
    'CLEAR: time buckets of photos, retrieved concepts, crowd QA; iid and streaming protocols'
    >>> find("claer")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.benchmark.UnknownBenchmark: no benchmark 'claer': there are clear, iirc, ...; did you mean 'clear'?
    """
    try:
        entry = BENCHMARKS.find(name)
        benchmark = load_entry(entry, called=False)
    except UnknownName as error:
        raise UnknownBenchmark(str(error)) from error.__cause__
    if not isinstance(benchmark, Benchmark):
        place, _, attribute = entry.reference.rpartition(":")
        rule = f"{place} has no {attribute} of type benchwright.pipelines.benchmark.Benchmark"
        raise UnknownBenchmark(f"benchmark {name!r}: {rule}")
    return _with_report(dataclasses.replace(benchmark, entry=entry))


def _with_report(benchmark: Benchmark) -> Benchmark:
    # Not in ``Benchmark``: its code would then reach all code of reports, and so would the steps of every file that makes one.
    if benchmark.report is not None:
        return benchmark
    return dataclasses.replace(benchmark, report=functools.partial(_default_report, benchmark))


def _default_report(benchmark: Benchmark, config: Any, out: str) -> str:
    from .report import write_default

    return write_default(benchmark.title, out, shown=benchmark.shown, rounds=benchmark.rounds(config))
