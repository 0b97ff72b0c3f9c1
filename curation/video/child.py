"""Work on video files in a child process, which can be killed: a decoder that hangs or crashes costs one row, not the run.

A child is started once and used again and again. It is asked, and answers, in JSON behind its length, payloads after it; what
comes from a video is never unpickled.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import IO, Any, cast

from ..rows import Reject
from .limits import Limits
from .plans import FramePlan
from .work import WORK, Found, FrameSettings

_VALUES = {"limits": Limits, "plan": FramePlan, "settings": FrameSettings}
_QUESTIONS = 500
"""After so many a child is replaced: codecs and allocators keep a little with every file, 10 KB or so."""

_FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that say nothing of the video, but that somebody ends the run: no row may be turned away for them."""

_GRACE_S = 2.0
"""The child minds the time limit itself, between packets; it is killed this much later where it does not."""


def in_child(task: str, path: str, **arguments: Any) -> Found:
    """Do the work ``work.WORK[task]`` in a child process.

    Args:
        task: its name.
        path: of the file.
        arguments: of the work; ``limits`` among them.

    Raises:
        Reject: as the work does; also ``timed_out`` where the child had to be killed and ``decoder_died`` where it crashed.
        RuntimeError: the work failed in any other way: the child's traceback, or the signal with which it was stopped.
    """
    limits = cast(Limits, arguments["limits"])
    plain = {name: dataclasses.asdict(value) if name in _VALUES else value for name, value in arguments.items()}
    child = _idle.take()
    try:
        answer, payloads = child.ask({"task": task, "path": path, "arguments": plain}, limits.time_limit_s + _GRACE_S)
    except BaseException:
        child.end()
        raise
    _idle.give_back(child)
    if "reject" in answer:
        raise Reject(*answer["reject"])
    if "error" in answer:
        raise RuntimeError(f"{path}: {answer['error']}")
    return Found(answer["facts"], payloads)


class _Child:
    def __init__(self) -> None:
        self.asked = 0
        command = [sys.executable, "-P", "-m", "benchwright.curation.video.child"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=True
        )

    def ask(self, question: Mapping[str, Any], limit_s: float) -> tuple[dict[str, Any], list[bytes]]:
        self.asked += 1
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(limit_s, kill)
        timer.daemon = True
        timer.start()
        try:
            _send(cast("IO[bytes]", self._process.stdin), question, [])
            return _receive(cast("IO[bytes]", self._process.stdout))
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            if late.is_set():
                raise Reject("timed_out", f"killed after {limit_s:g} s") from None
            if -code in _FROM_OUTSIDE:
                raise RuntimeError(f"the process that reads videos was stopped by {signal.Signals(-code).name}") from None
            if code < 0:
                raise Reject("decoder_died", signal.Signals(-code).name) from None
            raise RuntimeError(f"{sys.executable} -m {__name__} ended with {code}: is benchwright installed there?") from None
        finally:
            timer.cancel()

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            cast("IO[bytes]", pipe).close()


class _Idle:
    """Children that wait for work. A process that was forked has none: its parent's are not its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: list[_Child] = []

    def take(self) -> _Child:
        with self._lock:
            while self._children:
                child = self._children.pop()
                if child.alive():
                    return child
                child.end()
        return _Child()

    def give_back(self, child: _Child) -> None:
        if child.asked >= _QUESTIONS:
            child.end()
            return
        with self._lock:
            self._children.append(child)

    def end(self) -> None:
        with self._lock:
            while self._children:
                self._children.pop().end()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._children = []


_idle = _Idle()
atexit.register(_idle.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.forget)


def _send(pipe: IO[bytes], head: Mapping[str, Any], payloads: list[bytes]) -> None:
    text = json.dumps({**head, "sizes": [len(payload) for payload in payloads]}).encode()
    pipe.write(b"".join([len(text).to_bytes(8, "big"), text, *payloads]))
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    head = json.loads(_exactly(pipe, int.from_bytes(_exactly(pipe, 8), "big")))
    return head, [_exactly(pipe, size) for size in head.pop("sizes")]


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _limit_cpu(seconds: float) -> None:
    """Let the kernel end this process where nobody else would: its parent was killed while it hangs."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(used.ru_utime + used.ru_stime + seconds + 60)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard < 0 else min(soft, hard), hard))


def main() -> None:
    """Answer until the parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    while True:
        try:
            question, _ = _receive(questions)
        except EOFError:
            return
        given = question["arguments"]
        arguments: dict[str, Any] = {n: _VALUES[n](**value) if n in _VALUES else value for n, value in given.items()}
        _limit_cpu(arguments["limits"].time_limit_s)
        payloads: list[bytes] = []
        try:
            found = WORK[question["task"]](question["path"], **arguments)
            answer, payloads = {"facts": found.facts}, found.payloads
        except Reject as reject:
            answer = {"reject": [reject.reason, reject.detail]}
        except Exception:
            answer = {"error": traceback.format_exc()}
        _send(answers, answer, payloads)


if __name__ == "__main__":
    main()
