"""Parts at the scheduler of a dask.distributed cluster, only so many at a time, and what its workers are sent to make them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .code_changes import differs, to_check
from .parcels import Parcels
from .part_writer import of_machine
from .parts import Made, ask_again, make_parts_apart
from .reachable_code import Definitions
from .requirements import resources_of
from .stage_maker import StageJob
from .tasks import PartTask

_Resources = tuple[tuple[str, float], ...]
"""Names of resources, and how much is needed of each."""


class PartsAtScheduler:
    """The parts of jobs that are at a scheduler: only so many at a time, in order.

    Attributes:
        jobs: all jobs.
        numbers: futures of the parts at the scheduler -> numbers of their jobs.
        last: number of the last job that is not cancelled.
    """

    def __init__(self, jobs: Sequence[StageJob]) -> None:
        self.jobs, self.last = [*jobs], len(jobs) - 1
        self.numbers: dict[Any, int] = {}
        self._client: Any = None
        self._call = _opener()
        self._parcels = Parcels((job.task for job in jobs), lambda task: (_make_at_worker, task, *to_check(task.stage)))
        self._resources = {name: (*resources_of(task.stage).items(),) for name, task in self._parcels.first.items()}
        self._there = collections.Counter[_Resources]()
        self._ahead = collections.defaultdict[_Resources, collections.deque[int]](collections.deque)
        for number in range(len(jobs)):
            self._ahead[self._needed(number)].append(number)

    def _needed(self, number: int) -> _Resources:
        return self._resources[self.jobs[number].task.stage.name]

    def move_to(self, client: Any) -> None:
        """Submit from now on by this client, also what has not ended at the scheduler of the client before.

        Workers that outlive that scheduler go on with the parts that they have, and are refused when they write them.
        """
        moved, self._client = self._client is not None, client
        for number in sorted(self.numbers.values(), reverse=True):
            if number <= self.last:
                self._ahead[self._needed(number)].appendleft(number)
        self.numbers.clear()
        self._there.clear()
        left = sorted(itertools.chain(*self._ahead.values()))
        if moved:
            for number, task in zip(left, ask_again(self.jobs[number].task for number in left), strict=True):
                self.jobs[number] = dataclasses.replace(self.jobs[number], task=task)

    def fill(self, window: int) -> list[Any]:
        """Submit the next jobs until ``window`` with the same needs are at the scheduler; returns their futures.

        With the same needs, since jobs that wait for a worker with their resources must not delay the others.
        """
        futures: list[Any] = []
        for needed, ahead in self._ahead.items():
            if (room := min(window - self._there[needed], len(ahead))) > 0:
                self._client.sync(asyncio.sleep, 0)  # sends what was released before, so that it does not count as well
                futures += self.submit([*itertools.islice(ahead, room)])
                for _ in range(room):  # not before, so that none is lost where the connection is
                    ahead.popleft()
        return futures

    def submit(self, numbers: Sequence[int], workers: Sequence[str] | None = None) -> list[Any]:
        """Submit jobs that need the same resources, to these workers only unless None; returns their futures."""
        needed = self._needed(numbers[0])
        shared, own = zip(*(self._parcels.of(self.jobs[number].task) for number in numbers), strict=True)
        futures = self._client.map(
            self._call,
            [pickle.loads] * len(numbers),
            shared,  # which is sent to the scheduler once
            [pickle.dumps(each) for each in own],
            # A large group of keys would wait at the scheduler, while workers get those that are submitted later, one by one.
            key=[f"part-{uuid.uuid4().hex}" for _ in numbers],
            workers=workers,
            resources=dict(needed) or None,
            pure=False,
        )
        self.numbers.update(zip(futures, numbers, strict=True))
        self._there[needed] += len(numbers)
        return futures

    def release(self, future: Any) -> None:
        self._there[self._needed(self.numbers.pop(future))] -= 1
        future.release()

    def cancel_after(self, number: int) -> None:
        """Cancel the parts after a job, and submit none of them any more."""
        self.last = min(self.last, number)
        for ahead in self._ahead.values():
            while ahead and ahead[-1] > number:
                ahead.pop()
        with contextlib.suppress(OSError, *connection_lost()):  # a lost scheduler makes none of them
            self._client.cancel([future for future, at in self.numbers.items() if at > number and not future.cancelled()])


def connection_lost() -> tuple[type[Exception], ...]:
    """What a client raises that has lost its connection, by which its futures are cancelled."""
    from distributed import CancelledError
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError

    return CancelledError, CommClosedError, ClosedClientError


class AtWorker(Exception):
    """A part failed because of the machine of ``worker``."""

    def __init__(self, worker: str, cause: Exception) -> None:
        super().__init__(worker, cause)
        self.worker, self.cause = worker, cause


def _make_at_worker(
    worker: str, own: Mapping[str, Any], task: PartTask, code: Definitions, files: Mapping[str, str]
) -> Made | str:
    """``make_parts_apart`` on a cluster worker, of a task with its ``own`` attributes.

    Returns a message if the worker's code differs: see ``code_changes.to_check``.
    """
    if message := differs(code, files):
        return f"worker {worker}: {message}: update it there, and restart the worker"
    try:
        return make_parts_apart(dataclasses.replace(task, **own), elsewhere=True)
    except Exception as error:  # any exception, since this is the boundary between processes
        if not of_machine(error):
            raise
        failed = error
    raise AtWorker(worker, failed)  # outside the handler, so that it has no context, which would be pickled too


def _opener() -> Callable[[Callable[[bytes], Any], bytes, bytes], Any]:
    """Function that unpacks and runs a task of ``Parcels`` on a cluster worker; it returns a message if unpacking fails.

    The run would wait forever for a task that a worker cannot unpickle, so this function can be unpickled without importing
    benchwright.
    """

    def make(read: Callable[[bytes], Any], packed: bytes, own: bytes) -> Any:
        from distributed import get_worker

        worker: str = get_worker().address
        try:
            (call, *arguments), attributes = read(packed), read(own)
        except ModuleNotFoundError as error:
            return f"worker {worker} has no module {error.name!r}: install there what is installed here"
        except Exception as error:
            text = " ".join(str(error).split())
            why = f"{type(error).__name__}: {text}"
            return f"worker {worker} cannot unpickle its task: {why}: install there what is installed here"
        return call(worker, attributes, *arguments)

    return make
