"""Workers of a dask.distributed cluster: its scheduler lost and found, lost workers, retries, and what the run waits for."""

from __future__ import annotations

import bisect
import contextlib
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

from .flow import Stage
from .part_writer import StepFailed
from .parts import Made
from .parts_at_scheduler import AtWorker, PartsAtScheduler, connection_lost
from .requirements import resources_of
from .rows import one_line
from .stage_maker import StageJob
from .workers import begin_run, finish, stages_of

_LOGGER = logging.getLogger("benchwright")

_SILENCE = 2.0
"""Seconds without a finished part after which to check whether any worker is available."""

_NO_WORKER = 10.0
"""Seconds without a finished part until no worker being connected is told: an adaptive cluster takes some to start one."""

_TELL_AT = (1, 3, 10, 30, 100, 300, 1000)
"""Numbers of workers lost at one part at which to warn."""

_ANSWER = 5.0
"""Timeout in seconds for an answer of the scheduler of a cluster."""

_PAUSE = 0.5
"""Seconds between two tries to connect to a scheduler that does not answer."""

_TRIES = 3
"""Maximum number of tries of a part that fails because of the machine of a cluster worker; each on another one if possible."""

_WINDOW = 256
"""Number of parts that are at the scheduler of a cluster at a time: each costs it memory, and time whenever it is looked at."""

_PER_THREAD = 4
"""The same per thread of the cluster, if that is more."""


class SchedulerGone(ConnectionError):
    """The scheduler of a cluster was lost, or does not answer: the same command may succeed later."""


class ClusterWorkers:
    """Runs jobs on the workers of the scheduler at an address. The connection is kept for all stages."""

    may_outlive = True
    """Whether workers may continue after the run has ended: these are not its child processes."""

    def __init__(self, address: str, wait_s: float) -> None:
        """``wait_s``: how long to wait for an answer of the scheduler, at first or after it was lost."""
        self._address, self._wait_s = address, wait_s
        self._client: Any = None

    def __enter__(self) -> ClusterWorkers:
        begin_run()
        logging.getLogger("distributed.client").addFilter(_not_told)
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()
        logging.getLogger("distributed.client").removeFilter(_not_told)

    def run(self, jobs: Sequence[StageJob]) -> None:
        """See ``Workers.run``."""
        if not jobs:
            return
        from distributed import KilledWorker

        parts = PartsAtScheduler(jobs)
        try:
            if self._client is None:
                self._connect()
            finish(jobs, self._as_they_end(parts), parts.cancel_after)
        except KilledWorker as error:
            why = "workers died while computing its parts, perhaps because they ran out of memory"
            raise StepFailed(f"{stages_of(jobs)}: {why}: {error}") from error
        finally:
            if self._client is not None and self._client.status == "running":
                parts.cancel_after(-1)

    def _connect(self, gone: SchedulerGone | None = None) -> None:
        """Connect to the scheduler, after it was ``gone`` to the next one at its address.

        Raises ``SchedulerGone`` if none answers in the time that the run waits for it.
        """
        self._disconnect()
        until = time.monotonic() + self._wait_s
        if gone is None:
            try:
                self._client = _connected(self._address, _ANSWER)
                return
            except SchedulerGone as error:
                gone = error
        if self._wait_s:
            _LOGGER.warning("the scheduler at %s does not answer: waiting up to %g s for it", self._address, self._wait_s)
        while (left := until - time.monotonic()) > 0:
            try:
                self._client = _connected(self._address, min(_ANSWER, left))
                return
            except SchedulerGone:
                time.sleep(min(_PAUSE, left))
        raise gone

    def _disconnect(self) -> None:
        if self._client is not None:
            log = logging.getLogger("distributed.client")
            log.disabled = self._client.status != "running"  # a lost scheduler is reported in one line instead of forty
            self._client.close()
            log.disabled = False
            self._client = None

    def _workers(self) -> dict[str, dict[str, Any]]:
        """The scheduler's information on each worker, by address."""
        return self._client.scheduler_info(n_workers=-1)["workers"]

    def _idle(self, stages: Iterable[Stage], waited: float) -> str:
        """Why no worker can make parts of these stages; "" if one may be doing so, or may be starting."""
        workers = self._workers().values()
        if not workers:
            return "" if waited < _NO_WORKER else f"no worker is connected to {self._address}: the run waits until one is"
        if all(worker["status"] == "paused" for worker in workers):
            text = "each is close to its memory limit, and starts no new part until memory is freed"
            return f"every worker of {self._address} is paused: {text}: give the workers more memory, or fewer threads"
        for stage in stages:
            needed = resources_of(stage)
            if not any(_offers(worker, needed) for worker in workers):
                text = ",".join(f"{name}={amount:.15g}" for name, amount in needed.items())
                begin = f"start one with `dask worker {self._address} --resources {text}`"
                what = text.removesuffix("=1")
                return f"stage {stage.name!r} waits for a worker of {self._address} that offers {what!r}: {begin}"
        return ""

    def _window(self) -> int:
        """Number of parts that may be at the scheduler."""
        return max(_WINDOW, _PER_THREAD * sum(worker["nthreads"] for worker in self._workers().values()))

    def _as_they_end(self, parts: PartsAtScheduler) -> Iterator[tuple[int, Future[Made]]]:
        """Yield the numbers and outcomes of the jobs as they end, those that a lost scheduler had at the next one."""
        failed, lost = dict[int, list[str]](), dict[int, int]()
        fruitless = 0  # connections in a row that broke without an outcome, though the scheduler was there
        while True:
            parts.move_to(self._client)
            try:
                for outcome in self._until_lost(parts, failed, lost):
                    yield outcome
                    fruitless = 0
                return
            except Exception as error:  # a client that is closed meanwhile raises all kinds
                there = self._client.status == "running"
                if there and not isinstance(error, connection_lost()):
                    raise
                place = f"the scheduler at {self._address} is gone"
                gone = SchedulerGone(f"{place}; finished parts are kept: run again when it is back")
                fruitless += there
                if fruitless == _TRIES:
                    raise gone from None
            self._connect(gone)

    def _until_lost(
        self, parts: PartsAtScheduler, failed: dict[int, list[str]], lost: dict[int, int]
    ) -> Iterator[tuple[int, Future[Made]]]:
        """Submit the jobs, and yield their numbers and outcomes as they end; warn once if nothing ends for want of a worker.

        A part that failed because of a machine is submitted again. Futures are released once their outcomes are yielded:
        otherwise the scheduler would recompute a part if the worker that made it is lost.
        """
        from distributed import as_completed
        from distributed.comm import CommClosedError

        jobs = parts.jobs
        ending = as_completed(loop=self._client.loop)
        heard = looked = time.monotonic()
        warned, window, counted = False, _WINDOW, -math.inf
        while True:
            if self._client.status != "running":
                raise CommClosedError
            if (now := time.monotonic()) - counted > _SILENCE:
                counted = now
                with contextlib.suppress(OSError):
                    window = self._window()
            ending.update(parts.fill(window))
            if ending.is_empty():
                return
            if batch := ending.next_batch(block=False):
                ended: list[tuple[int, Any]] = []
                for future in batch:
                    if (again := self._tried_again(parts, future, failed)) is None:
                        ended.append((parts.numbers[future], future))
                    else:
                        ending.add(again)
                self._count_retries(jobs, ended, lost)
                gathered = self._gathered([future for _, future in ended if future.status == "finished"])
                for number, future in ended:
                    if future.cancelled() and number <= parts.last:  # not by this run
                        raise CommClosedError
                    yield number, _outcome(future, gathered, jobs[number])
                    parts.release(future)
                heard, warned = time.monotonic(), False
                continue
            with ending.thread_condition:
                ending.thread_condition.wait(0.1)
            if (now := time.monotonic()) - looked > _SILENCE:
                looked = now
                with contextlib.suppress(OSError):  # if the scheduler is lost, the futures end anyway
                    self._look_for_losses(jobs, parts.numbers, lost)
                    if now - heard > _SILENCE:
                        self._let_anywhere([future.key for future, number in parts.numbers.items() if number in failed])
                        left = (jobs[n].task.stage for future, n in parts.numbers.items() if future.status == "pending")
                        if not warned and (message := self._idle(left, now - heard)):
                            _LOGGER.warning("%s", message)
                            warned = True

    def _gathered(self, futures: list[Any]) -> dict[Any, Made | str]:
        """The results of futures that have ended, by one request instead of one each; none if that fails."""
        with contextlib.suppress(Exception):  # whatever it is, the future itself raises it
            return dict(zip(futures, self._client.gather(futures), strict=True))
        return {}

    def _tried_again(self, parts: PartsAtScheduler, future: Any, failed: dict[int, list[str]]) -> Any:
        """The future of a retry if the part failed because of a machine, on another worker if possible; otherwise None.

        ``failed`` are the addresses of the workers that have failed at each part so far; the current worker is added.
        """
        error = future.exception() if future.status == "error" else None
        if not isinstance(error, AtWorker) or len(failed.get(number := parts.numbers[future], ())) + 1 == _TRIES:
            return None
        failed.setdefault(number, []).append(error.worker)
        _LOGGER.warning("%s: retrying the part (retry %d of %d)", error.cause, len(failed[number]), _TRIES - 1)
        job = parts.jobs[number]
        job.meter.retries += 1
        others: list[str] = []
        with contextlib.suppress(OSError):  # a lost scheduler ends the futures
            needed = resources_of(job.task.stage)
            able = [address for address, worker in self._workers().items() if _offers(worker, needed)]
            others = [address for address in able if address not in failed[number]]
        # Not with allow_other_workers: if these workers are gone, the scheduler would ignore the required resource.
        again = parts.submit([number], others or None)[0]
        parts.release(future)
        return again

    def _let_anywhere(self, keys: Sequence[str]) -> None:
        """Allow parts to be retried on any worker if the workers that were chosen for them are gone or paused."""

        def lift(dask_scheduler: Any) -> None:
            stuck = {task.key: None for task in dask_scheduler.unrunnable if task.key in keys}
            dask_scheduler.set_restrictions(stuck)
            dask_scheduler.transitions(dict.fromkeys(stuck, "processing"), "tried-anywhere")

        if keys:
            self._client.run_on_scheduler(lift)

    def _look_for_losses(self, jobs: Sequence[StageJob], numbers: Mapping[Any, int], told: dict[int, int]) -> None:
        """Warn if workers are lost again and again at a part, of which the run would hear only when the scheduler gives up."""

        def lost(dask_scheduler: Any) -> dict[str, int]:
            return {task.key: task.suspicious for task in dask_scheduler.tasks.values() if task.suspicious}

        if times := self._client.run_on_scheduler(lost):
            _tell_losses(jobs, {n: times[future.key] for future, n in numbers.items() if future.key in times}, told)

    def _count_retries(self, jobs: Sequence[StageJob], ended: Sequence[tuple[int, Any]], told: dict[int, int]) -> None:
        """Count how often a worker was lost while it made a part, which the scheduler knows until the future is released."""
        keys = [future.key for _, future in ended]

        def lost(dask_scheduler: Any) -> list[int]:
            return [dask_scheduler.tasks[key].suspicious if key in dask_scheduler.tasks else 0 for key in keys]

        with contextlib.suppress(OSError):  # a lost scheduler ends the futures
            times = dict(zip((number for number, _ in ended), self._client.run_on_scheduler(lost), strict=True))
            for number, losses in times.items():
                jobs[number].meter.retries += losses
            _tell_losses(jobs, times, told)


def _offers(worker: Mapping[str, Any], needed: Mapping[str, float]) -> bool:
    """Whether a worker, as the scheduler describes it, offers these resources."""
    return all(worker["resources"].get(name, 0) >= amount for name, amount in needed.items())


def _not_told(record: logging.LogRecord) -> bool:
    """Whether a message of dask's client is not one that the run gives in its own words."""
    return not record.getMessage().startswith("Failed to reconnect to scheduler")


def _tell_losses(jobs: Sequence[StageJob], times: Mapping[int, int], told: dict[int, int]) -> None:
    """Warn of the job at which most workers were lost, if any was lost as often as ``_TELL_AT`` says since it was ``told``.

    One warning at a time, since all that waits at a lost worker counts as lost with it.
    """
    fresh = {n: lost for n, lost in times.items() if bisect.bisect(_TELL_AT, lost) > bisect.bisect(_TELL_AT, told.get(n, 0))}
    told.update(fresh)
    if fresh:
        number = max(fresh, key=lambda n: (fresh[n], -n))
        place = f"stage {jobs[number].task.stage.name!r}, part {jobs[number].task.number}"
        remedy = "give each worker more (--memory-limit of dask worker, memory_gib of benchwright cluster), or fewer threads"
        why = f"workers lost that had this part: {fresh[number]}, probably for lack of memory"
        _LOGGER.warning("%s: %s: %s", place, why, remedy)


def _connected(address: str, timeout_s: float) -> Any:
    """A client of the scheduler.

    Raises ``SchedulerGone`` if none answers within ``timeout_s``, and ``ValueError`` for an invalid address.
    """
    from distributed import Client
    from distributed.core import connect
    from distributed.security import Security
    from distributed.utils import LoopRunner, sync

    secured: dict[str, Any] = Security().get_connection_args("client")

    async def greet() -> None:
        await (await connect(address, timeout=timeout_s, **secured)).close()

    runner = LoopRunner()
    runner.start()
    try:
        # A client would wait forever for the greeting of a server of another kind.
        sync(cast(Any, runner.loop), greet, callback_timeout=2 * timeout_s)
        return Client(address, timeout=_ANSWER, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:  # also for an invalid address, and tls:// without certificates
        kind = SchedulerGone if isinstance(error, OSError) else ValueError
        raise kind(f"scheduler {address!r} does not answer: {one_line(error, None)}") from error
    finally:
        runner.stop()


def _outcome(future: Any, gathered: Mapping[Any, Made | str], job: StageJob) -> Future[Made]:
    """What a future of the cluster ended with, as that of a pool of this machine."""
    outcome = Future[Made]()
    if future.cancelled():
        outcome.cancel()
        return outcome
    try:
        made = gathered[future] if future in gathered else future.result()
        if isinstance(made, str):
            raise StepFailed(f"stage {job.task.stage.name!r}: {made}")
        outcome.set_result(made)
    except AtWorker as error:
        outcome.set_exception(error.cause)
    except Exception as error:  # as a pool does
        if isinstance(error, connection_lost()):
            raise
        outcome.set_exception(error)
    return outcome
