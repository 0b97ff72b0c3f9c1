"""How child processes end that read files which can crash their reader: what is reported of the file, and what of the machine.

A result may depend on a file, never on how busy the machine was. So a signal that a reader raises itself is a property of the
file, once a second process has confirmed it; a signal from outside, as the kernel's when memory is short, is none. Time that a
file may take is processor time, which the kernel counts; wall clock only says that something is wrong with the machine.
"""

from __future__ import annotations

import mmap
import resource
import signal
from collections.abc import Callable
from typing import TypeVar

from .rows import MachineFault

T = TypeVar("T")

CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS})
"""Signals that a program raises itself, by what it does."""

_ENDINGS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
"""Signals by which somebody ends a run: nothing is tried again after them."""

_ONE_ALLOCATION = 1 << 31
"""No single piece of memory that FFmpeg or numpy asks for at an honest file is larger."""


class Died(Exception):
    """A child process was ended by a signal, or was silent for too long (``number`` is 0)."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def crash(self) -> bool:
        """Whether it raised the signal itself."""
        return self.number in CRASHES

    @property
    def out_of_time(self) -> bool:
        """Whether its own limit of processor time ended it."""
        return self.number == signal.SIGXCPU


def tried_twice(ask: Callable[[bool], T], *, who: str, silence_s: float, helps: str) -> T:
    """What ``ask`` gives, if need be at a second try: ``ask`` is told whether this is one, which must run apart from all else.

    Args:
        ask: raises ``Died``.
        who: the child, for people.
        silence_s: wall clock after which it is given up, for people.
        helps: what to do where it is silent.

    Raises:
        Died: it crashed, or ran out of processor time, twice: so it does with this file.
        MachineFault: it was ended from outside or was silent twice, or somebody ends the run.
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
                raise MachineFault(_told(died.number, who, silence_s, helps)) from None


def _told(number: int, who: str, silence_s: float, helps: str) -> str:
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
    """Let the kernel end this process by SIGXCPU when it has used that much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard < 0 else min(soft, hard), hard))


def memory_is_short() -> bool:
    """Whether this process, without any limit of its own, is refused memory that no honest file exceeds: a failed allocation
    is then no fault of the file."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        mmap.mmap(-1, _ONE_ALLOCATION).close()
    except (OSError, MemoryError):
        return True
    return False
