"""A benchmark as a value: its settings, its plan, and what is done with what the plan makes."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ..curation.flow import Flow
from ..curation.run import Run

NAMES = {"clear": "benchwright.pipelines.clear"}
"""Name of a packaged benchmark -> the module that holds its ``BENCHMARK``."""


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
        publish: what is written beside the stages when the plan is done.
        answer: called where the run waits: answers for the person where the settings say so (simulated votes), and
            returns whether it did.
        evaluate: train and evaluate baselines on the shards: ``evaluate(config, out, methods=, protocols=, progress=)``.
        report: write the HTML report of a run and return its path.
    """

    name: str
    title: str
    config: type
    plan: Callable[[Any, str], Flow]
    publish: Publish
    answer: Callable[[Run, Any, str], bool] = lambda run, config, out: False
    evaluate: Callable[..., Any] | None = None
    report: Callable[[Any, str], str] | None = None


class UnknownBenchmark(ValueError):
    """A name that stands for no benchmark. Says which there are."""


def find(name: str) -> Benchmark:
    """The benchmark of that name, or the ``BENCHMARK`` of a user's own Python file.

    Raises:
        UnknownBenchmark: where there is none.
    """
    if name in NAMES:
        return importlib.import_module(NAMES[name]).BENCHMARK
    if name.endswith(".py"):
        return _from_file(Path(name))
    raise UnknownBenchmark(f"no benchmark {name!r}: there are {', '.join(NAMES)}, or name a Python file that has a BENCHMARK")


def _from_file(path: Path) -> Benchmark:
    if not path.is_file():
        raise UnknownBenchmark(f"benchmark {str(path)!r}: no such file")
    name = path.stem
    if name in sys.modules:
        raise UnknownBenchmark(f"benchmark {str(path)!r}: a module named {name!r} is loaded already: rename the file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownBenchmark(f"benchmark {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    # Worker processes cannot import a file that is on nobody's path: its functions travel with the tasks.
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    benchmark = getattr(module, "BENCHMARK", None)
    if not isinstance(benchmark, Benchmark):
        raise UnknownBenchmark(f"benchmark {str(path)!r} has no BENCHMARK of type benchwright.pipelines.benchmark.Benchmark")
    return benchmark
