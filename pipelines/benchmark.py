"""A benchmark as a value: its settings, its plan, and what is done with what the plan makes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ..curation.flow import Flow
from ..curation.run import Run
from .catalogue import TITLES
from .errors import WrongUse, did_you_mean
from .publish import publish_plainly

if TYPE_CHECKING:
    from ..curation.qa.rounds import Round


class Publish(Protocol):
    """Write what a finished run gives to its users into ``folder``; called again, it leaves the same bytes."""

    def __call__(self, run: Run, config: Any, folder: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A pipeline that ``benchwright run`` knows.

    Attributes:
        name: snake_case; ``<name>.toml`` holds its published settings.
        title: one line.
        config: pydantic dataclass of its settings.
        plan: ``plan(config, out) -> Flow``.
        publish: what is written beside the stages when the plan is done; by default its shards, with a card that has no prose.
        rounds: what people are asked, by ``rounds(config)``; see ``curation.qa.rounds``.
        evaluate: train and evaluate baselines on the shards: ``evaluate(config, out, methods=, protocols=, progress=)``;
            no method or no protocol named: those of the settings.
        scores: results of the baselines that were run, by ``scores(config, out)``: protocol -> method -> what ``eval`` prints.
            Only what is of the dataset, the settings and the code as they are now.
        stale: the other results, by ``stale(config, out)``: folder within the run -> why.
        report: write the HTML report of a run and return its path. A benchmark that has none is given the default one by
            ``find``: see ``report.write_default``.
        release: write a run in the folders in which the benchmark is released: ``release(config, out, folder) -> images``.
    """

    name: str
    title: str
    config: type
    plan: Callable[[Any, str], Flow]
    publish: Publish = publish_plainly
    rounds: Callable[[Any], Sequence[Round]] = lambda config: ()
    evaluate: Callable[..., Any] | None = None
    scores: Callable[[Any, str], Any] = lambda config, out: {}
    stale: Callable[[Any, str], Mapping[str, str]] = lambda config, out: {}
    report: Callable[[Any, str], str] | None = None
    release: Callable[[Any, str, str], int] | None = None


class UnknownBenchmark(WrongUse):
    """A name that stands for no benchmark. Says which there are."""


def find(name: str) -> Benchmark:
    """The benchmark of that name, or the ``BENCHMARK`` of a user's own Python file.

    Raises:
        UnknownBenchmark: where there is none.
    """
    if name in TITLES:
        return _with_report(importlib.import_module(f"{__package__}.{name}.pipeline").BENCHMARK)
    if name.endswith(".py"):
        return _with_report(_from_file(Path(name)))
    raise UnknownBenchmark(
        f"no benchmark {name!r}: there are {', '.join(TITLES)}, or name a Python file that has a BENCHMARK"
        f"{did_you_mean(name, TITLES)}"
    )


def _with_report(benchmark: Benchmark) -> Benchmark:
    # Not done by ``Benchmark``, which would reach all code of reports, and so would the steps of every file that makes one.
    if benchmark.report is not None:
        return benchmark
    return dataclasses.replace(benchmark, report=functools.partial(_default_report, benchmark))


def _default_report(benchmark: Benchmark, config: Any, out: str) -> str:
    from .report import write_default

    scores, rounds = benchmark.scores(config, out), benchmark.rounds(config)
    return write_default(benchmark.title, out, scores=scores, rounds=rounds)


def _from_file(path: Path) -> Benchmark:
    if not path.is_file():
        raise UnknownBenchmark(f"benchmark {str(path)!r}: no such file")
    path = path.resolve()
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) != str(path):
        raise UnknownBenchmark(f"benchmark {str(path)!r}: a module named {name!r} is loaded already: rename the file")
    module = _load(name, path)
    # Worker processes cannot import a file that is on nobody's path: its functions travel with the tasks.
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    benchmark = getattr(module, "BENCHMARK", None)
    if not isinstance(benchmark, Benchmark):
        raise UnknownBenchmark(f"benchmark {str(path)!r} has no BENCHMARK of type benchwright.pipelines.benchmark.Benchmark")
    return benchmark


def _load(name: str, path: Path) -> ModuleType:
    """Run the file as the module ``name``, anew where it was run before: it may have changed since."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownBenchmark(f"benchmark {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # the files beside it, as for a script; last, so that they hide nothing
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file does, it is told in one line with its place
        del sys.modules[name]
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
        told = error.msg if isinstance(error, SyntaxError) else error
        raise UnknownBenchmark(f"benchmark {str(path)!r}, line {line}: {type(error).__name__}: {told}") from error
    return module
