"""Tasks as workers in other processes are sent them: what those of a stage share is pickled once, the rest for each."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .tasks import PartTask


class Parcels:
    """Tasks of stages, pickled with the code of a user's file, which workers cannot import.

    Attributes:
        first: stage -> the first of its tasks.
    """

    def __init__(self, tasks: Iterable[PartTask], shared: Callable[[PartTask], Any]) -> None:
        """``shared``: what is sent with each task of a stage, given the first one."""
        self.first: dict[str, PartTask] = {}
        for task in tasks:
            self.first.setdefault(task.stage.name, task)
        self._shared = {name: packed(shared(task)) for name, task in self.first.items()}

    def of(self, task: PartTask) -> tuple[bytes, dict[str, Any]]:
        """What a task shares with those of its stage, one object for all of them, and the attributes that are its own.

        To pickle all of a task takes several times as long as to pickle these.
        """
        first = vars(self.first[task.stage.name])
        return self._shared[task.stage.name], {name: value for name, value in vars(task).items() if value is not first[name]}


class Sent:
    """A task that is pickled when its turn comes, and unpickled as ``PartTask``."""

    def __init__(self, parcels: Parcels, task: PartTask) -> None:
        self._parcels, self._task = parcels, task

    def __reduce__(self) -> Any:
        return _opened, self._parcels.of(self._task)


def _opened(shared: bytes, own: Mapping[str, Any]) -> PartTask:
    return dataclasses.replace(_first(shared), **own)


_first = functools.lru_cache(maxsize=1)(pickle.loads)
"""Unpickles the first task of a stage once in each process, since the tasks of a stage follow each other."""


def packed(value: Any) -> bytes:
    """Pickled by cloudpickle, which takes longer than pickle, and takes the code of a user's file along."""
    import cloudpickle

    return cloudpickle.dumps(value)
