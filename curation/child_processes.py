"""Child processes that read files which can crash their reader: which failures are due to the file, and which to the machine.

A result may depend on a file, never on how busy the machine was. So a signal that a reader raises itself is a property of the
file, once a second process has confirmed it; a signal from outside, such as the kernel's when memory is short, is not. The time
limit for a file is in processor time, which the kernel counts; wall-clock time only shows that the machine has a problem.
"""

from __future__ import annotations

import functools
import mmap
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, TypeVar

from .rows import MachineFault

T = TypeVar("T")

CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS})
"""Signals that a program causes itself."""

_ENDINGS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
"""Signals by which somebody ends a run: nothing is retried after them."""

_ONE_ALLOCATION = 1 << 31
"""Bytes: FFmpeg and numpy make no larger single allocation for a valid file."""


class Died(Exception):
    """A child process was ended by a signal, or was silent for too long (``number`` is 0)."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def crash(self) -> bool:
        """Whether the process caused the signal itself."""
        return self.number in CRASHES

    @property
    def out_of_time(self) -> bool:
        """Whether the process exceeded its limit of processor time."""
        return self.number == signal.SIGXCPU


def tried_twice(ask: Callable[[bool], T], *, who: str, silence_s: float, helps: str) -> T:
    """Return the result of ``ask``, which is retried once if the child process died.

    Args:
        ask: function that may raise ``Died``; its argument is whether this is a retry, which must run on its own.
        who: description of the child, for messages.
        silence_s: wall-clock time limit in seconds, for messages.
        helps: advice for a child that does not answer, for messages.

    Raises:
        Died: the child crashed or ran out of processor time twice, so that the file is the cause.
        MachineFault: the child was killed from outside or did not answer, twice, or somebody ended the run.
    """
    own = others = 0
    while True:
        try:
            return ask(own + others > 0)
        except Died as died:
            own += died.crash or died.out_of_time
            others += not (died.crash or died.out_of_time)
            if own == 2:
                raise
            if others == 2 or died.number in _ENDINGS:
                raise MachineFault(_fault_message(died.number, who, silence_s, helps)) from None


def _fault_message(number: int, who: str, silence_s: float, helps: str) -> str:
    stays = "finished work is kept, and the next run retries the row"
    if number in _ENDINGS:
        return f"{who} was stopped by {signal.Signals(number).name}; {stays}"
    if not number:
        return f"{who} did not answer within {silence_s:g} s of wall clock, twice, the second time on its own; {stays}: {helps}"
    return (
        f"{who} was killed from outside by {signal.Signals(number).name}, twice, the second time alone, as a system does that "
        f"runs out of memory; {stays}: use fewer --workers, or more memory"
    )


def limit_cpu(seconds: float) -> None:
    """Make the kernel end this process by SIGXCPU after ``seconds`` more of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, _cpu_limits(used.ru_utime + used.ru_stime + seconds))


def _cpu_limits(seconds: float) -> tuple[int, int]:
    """Soft and hard limit: ``seconds`` of processor time, rounded up, or less if this process may set no more."""
    soft, hard = int(seconds) + 1, resource.getrlimit(resource.RLIMIT_CPU)[1]
    return soft if hard < 0 else min(soft, hard), hard


def begun_with_limit(command: Sequence[str], seconds: float, *, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Begin a command whose output is piped, and which the kernel ends by SIGXCPU after ``seconds`` of processor time.

    On Linux the limit is set from outside right after the start, so that this process is not copied for it: a copy takes the
    longer the more memory it has. Elsewhere the copy sets it, so that this process should have only one thread.
    """
    begin = functools.partial(subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
    if not hasattr(resource, "prlimit"):
        return begin(preexec_fn=functools.partial(limit_cpu, seconds))
    process = begin()
    try:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, _cpu_limits(seconds))
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def memory_is_short() -> bool:
    """Lift this process's own memory limit, and return whether memory that suffices for any valid file is still refused.

    If so, a failed allocation is not due to the file.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        mmap.mmap(-1, _ONE_ALLOCATION).close()
    except (OSError, MemoryError):
        return True
    return False
