"""Trainings in the processes of torchrun: the first runs the engine, and tells the others what to train with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..curation.keys import canonical, plain
from ..eval.protocols.stream_loop import Stream
from ..training.core import ranks
from ..training.core.learner import Learner
from .errors import WrongUse
from .experiments import Training, run_trainings, with_distinct_names
from .training_results import dataset_digest


class Leading:
    """The learner of the first process, as ``run_stream`` sees it: has the other processes train, learn and load the same."""

    def __init__(self, learner: Learner, here: ranks.Ranks, training: Mapping[str, Any]) -> None:
        self._learner, self._here = learner, here
        self._learned = 0
        here.tell({"train": training})

    @property
    def record(self) -> dict[str, Any]:
        """See ``Learner``."""
        return self._learner.record

    def learn(self, train: Any, validate: Sequence[Any], *, classes: int) -> None:
        """See ``Learner``."""
        self._here.tell({"learn": self._learned})
        self._learned += 1
        self._learner.learn(train, validate, classes=classes)

    def predict(self, samples: Any) -> Any:
        """See ``Learner``."""
        return self._learner.predict(samples)

    def save(self, path: Path) -> None:
        """See ``Learner``."""
        self._learner.save(path)

    def load(self, path: Path, seen: Sequence[Any]) -> None:
        """See ``Learner``."""
        self._learned = len(seen)
        self._here.tell({"load": len(seen)}, path.read_bytes())
        self._learner.load(path, seen)


Prepares = Callable[..., tuple[Learner, Stream]]
"""Returns the learner and the stream of a training, from the settings of its step."""


def train_together(
    trainings: Sequence[Training], out: str, prepare: Prepares, learns: Callable[..., Any], **options: Any
) -> bool:
    """Run ``experiments.run_trainings`` in all processes of torchrun.

    Args:
        trainings: the trainings, the same in every process.
        out: the run.
        prepare: see ``Prepares``.
        learns: the only learning step that supports several processes.
        options: options of ``run_trainings``.

    Returns:
        Whether this process is the first, which reports results.

    Raises:
        WrongUse: the trainings or options need a single process.
    """
    if options.get("scheduler", "sync") != "sync":
        raise WrongUse(f"--scheduler {options['scheduler']} under torchrun, which starts its own processes: remove it")
    if any(one.learn.function is not learns for one in trainings):
        raise WrongUse("trainings of this benchmark run in one process each: use --scheduler processes instead of torchrun")
    with ranks.joined() as here:
        if here.rank == 0:
            run_trainings(trainings, out, **options)
            here.tell({"end": True})
            return True
        _follow(
            here, {canonical(one.facts()): one for one in with_distinct_names(trainings, out)}, dataset_digest(out), prepare
        )
    return False


def _follow(here: ranks.Ranks, trainings: Mapping[str, Training], digest: str, prepare: Prepares) -> None:
    learner: Any = None
    stream: Any = None
    while True:
        command, content = here.hear()
        if "end" in command:
            return
        if "train" in command:
            one = trainings[canonical(command["train"])]
            settings = {name: plain(value) for name, value in one.learn.settings.items() if name not in ("folder", "track")}
            learner, stream = prepare(**{**settings, "training": one.facts(), "digest": digest})
        elif "load" in command:
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                learner.load(Path(file.name), [each.train for each in stream.positions[: command["load"]]])
        else:
            position = stream.positions[command["learn"]]
            try:
                learner.learn(position.train, list(position.validate), classes=len(position.classes))
            except ArithmeticError:
                continue  # the first process reports it
