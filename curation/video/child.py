"""Work on video files in a child process, which can be killed: a decoder that hangs or crashes costs one row, not the run.

A child is started once and used again and again. It is asked, and answers, in JSON, payloads after it; what
comes from a video is never unpickled.

A row is rejected for what its file does, not for what the machine does (see ``child_processes.py``). A child that ended is
followed by a fresh one, which has the file alone, no other work of this process next to it: what it gives, counts. Two crashes
are the file's, and so is processor time above the limit, which the child counts itself and the kernel where the child cannot;
two deaths from outside, or no answer for a long time of wall clock, twice, stop the run.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, cast

from ..child_processes import Died, limit_cpu, memory_is_short, tried_twice
from ..rows import MachineFault, Reject
from .frame_plans import FramePlan
from .limits import VideoLimits, too_slow
from .work import WORK, FileFacts, FrameSettings

_VALUES = {"limits": VideoLimits, "plan": FramePlan, "settings": FrameSettings}
_QUESTIONS = 500
"""After so many a child is replaced: codecs and allocators keep a little with every file, 10 KB or so."""

_GRACE_S = 2.0
"""The child minds its processor time itself, between packets; the kernel ends it this much later where it does not."""

WALL_LIMIT_S = 1800.0
"""Seconds of wall clock after which a child that gives no answer is given up, if nothing else is said."""


def in_child(task: str, path: str, *, wall_limit_s: float = WALL_LIMIT_S, **arguments: Any) -> tuple[FileFacts, list[bytes]]:
    """Do the work ``work.WORK[task]`` in a child process.

    Args:
        task: its name.
        path: of the file.
        wall_limit_s: seconds of wall clock after which the child is given up. No row is rejected for it.
        arguments: of the work; ``limits`` among them.

    Raises:
        Reject: as the work does; also ``timed_out`` where the kernel had to end the child for its processor time, and
            ``decoder_died`` where it crashed, twice.
        MachineFault: nothing is known of the file: the child was killed from outside or was silent, twice, or lacked memory.
        RuntimeError: the work failed in any other way; the child's traceback is a note.
    """
    limits = cast(VideoLimits, arguments["limits"])
    plain = {name: dataclasses.asdict(value) if type(value) in _VALUES.values() else value for name, value in arguments.items()}
    question = {"task": task, "path": path, "arguments": plain}

    def ask(again: bool) -> tuple[FileFacts, list[bytes]]:
        with _turns.alone() if again else _turns.beside_others():
            return _asked(_Child() if again else _idle.take(), question, wall_limit_s)

    helps = "raise videos.wall_limit_s if the machine is that slow, or remove the file if it is always the same one"
    try:
        return tried_twice(ask, who=f"the process that reads {path}", silence_s=wall_limit_s, helps=helps)
    except Died as died:
        raise (too_slow(limits) if died.out_of_time else Reject("decoder_died", "the decoder crashes on it")) from None


def _asked(child: _Child, question: Mapping[str, Any], wall_limit_s: float) -> tuple[FileFacts, list[bytes]]:
    try:
        answer, payloads = child.ask(question, wall_limit_s)
    except BaseException:
        child.end()
        raise
    if "died" in answer:  # a program that the child called
        child.end()
        raise Died(answer["died"])
    _idle.give_back(child)
    if "reject" in answer:
        raise Reject(*answer["reject"])
    if "fault" in answer:
        raise MachineFault(f"{question['path']}: {answer['fault']}")
    if "lacks" in answer:
        raise ModuleNotFoundError(answer["error"], name=answer["lacks"])
    if "error" in answer:
        error = RuntimeError(f"{question['path']}: {answer['error']}")
        error.add_note(answer["traceback"])
        raise error
    return answer["facts"], payloads


class _Child:
    def __init__(self) -> None:
        self.asked = 0
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "benchwright.curation.video.child"]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        self._pipe = Connection(ours.detach())

    def ask(self, question: Mapping[str, Any], limit_s: float) -> tuple[dict[str, Any], list[bytes]]:
        self.asked += 1
        try:
            self._pipe.send_bytes(json.dumps(question).encode())
            if not self._pipe.poll(limit_s):
                raise Died(0)
            answer = json.loads(self._pipe.recv_bytes())
            return answer, [self._pipe.recv_bytes() for _ in range(answer.pop("payloads"))]
        except (EOFError, OSError):
            code = self._process.wait()
            if code < 0:
                raise Died(-code) from None
            raise RuntimeError(f"{sys.executable} -m {__name__} ended with {code}: is benchwright installed there?") from None

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class _Idle:
    """Children that wait for work. A process that was forked has none: its parent's are not its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._children: list[_Child] = []

    def take(self) -> _Child:
        while self._children:
            with contextlib.suppress(IndexError):  # another thread has taken it
                child = self._children.pop()
                if child.alive():
                    return child
                child.end()
        return _Child()

    def give_back(self, child: _Child) -> None:
        if child.asked >= _QUESTIONS:
            child.end()
        else:
            self._children.append(child)

    def end(self) -> None:
        while self._children:
            self._children.pop().end()


class _Turns:
    """Many work beside each other, or one alone. Who wants to be alone waits for those at work, and the others wait for it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._changed = threading.Condition()
        self._at_work = 0
        self._wanted_alone = 0

    @contextlib.contextmanager
    def beside_others(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._wanted_alone)
            self._at_work += 1
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._wanted_alone += 1
            self._changed.wait_for(lambda: not self._at_work)
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._wanted_alone -= 1
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()


_idle, _turns = _Idle(), _Turns()
atexit.register(_idle.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.forget)
    os.register_at_fork(after_in_child=_turns.forget)


def main() -> None:
    """Answer until the parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    pipe = Connection(os.dup(0))
    while True:
        try:
            question = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        given = question["arguments"]
        arguments: dict[str, Any] = {n: _VALUES[n](**v) if n in _VALUES and v is not None else v for n, v in given.items()}
        limit_cpu(arguments["limits"].cpu_limit_s + _GRACE_S)
        payloads: list[bytes] = []
        try:
            facts, payloads = WORK[question["task"]](question["path"], **arguments)
            answer = {"facts": facts}
        except Reject as reject:
            answer = {"reject": [reject.reason, reject.detail]}
        except Died as died:
            answer = {"died": died.number}
        except MachineFault as fault:
            answer = {"fault": str(fault)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            if isinstance(error, ModuleNotFoundError):
                answer["lacks"] = error.name or ""
            if isinstance(error, MemoryError) and memory_is_short():
                answer = {"fault": "memory is short: use fewer --workers, or more memory"}
        for data in (json.dumps({**answer, "payloads": len(payloads)}).encode(), *payloads):
            pipe.send_bytes(data)


if __name__ == "__main__":
    main()
