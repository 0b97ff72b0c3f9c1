"""Work on video files in a child process that can be killed: a decoder that hangs or crashes costs one row, not the run.

A child process is reused for many files. Requests and answers are JSON, followed by binary payloads; data from a video are
never unpickled.

A row is rejected for faults of its file, not of the machine (see ``child_processes.py``). If a child dies, the file is tried
again in a new one, with no other child at work, and that result counts. A second crash is a fault of the file, and so is
processor time above the limit, measured by the child itself and, if it cannot, by the kernel. A child that is killed from
outside, or gives no answer within the wall-clock limit, twice, stops the run.
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
"""Number of requests after which a child is replaced: codecs and allocators leak some 10 KB per file."""

_GRACE_S = 2.0
"""The child checks its processor time between packets; if it fails to stop, the kernel ends it this many seconds later."""

WALL_LIMIT_S = 1800.0
"""Default wall-clock limit in seconds for an answer of a child."""


def in_child(task: str, path: str, *, wall_limit_s: float = WALL_LIMIT_S, **arguments: Any) -> tuple[FileFacts, list[bytes]]:
    """Run ``work.WORK[task]`` in a child process.

    Args:
        task: name of the work.
        path: path of the file.
        wall_limit_s: wall-clock limit in seconds for the answer. No row is rejected for exceeding it.
        arguments: arguments of the work, which must include ``limits``.

    Raises:
        Reject: as the work does; also ``timed_out`` if the kernel ended the child for its processor time, and
            ``decoder_died`` if it crashed twice.
        MachineFault: the child was killed from outside or gave no answer, twice, or lacked memory; says nothing about the file.
        RuntimeError: the work failed in any other way; the child's traceback is attached as a note.
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
    if "died" in answer:  # a program that the child ran
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
    """Idle child processes. A forked process starts with none, since those of its parent are not its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._children: list[_Child] = []

    def take(self) -> _Child:
        while self._children:
            with contextlib.suppress(IndexError):  # another thread has taken the last one
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
    """Lock for many tasks in parallel or one alone. A task to run alone waits for those at work; later ones wait for it."""

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
    """Answer requests until the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
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
