"""The child process that reads videos: what its death, its silence and its processor time mean for a row and for the run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
from benchwright.curation.artifact import Artifact
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.rows import MachineFault, Reject
from benchwright.curation.run import run
from benchwright.curation.video import child, decoders
from benchwright.curation.video.frame_plans import FramePlan
from benchwright.curation.video.frames import Clip, probe_clip, sample_frames
from benchwright.curation.video.limits import VideoLimits
from benchwright.curation.video.work import FrameSettings

from tests.curation.clips import read_clip

cloudpickle.register_pickle_by_value(sys.modules[__name__])

EIGHT = FramePlan("uniform", n=8)
ROW = Clip("a", "0.y4m", None, None)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve videos of twenty frames."""
    folder = tmp_path_factory.mktemp("videos")
    for number in range(12):
        noise = np.random.default_rng(number).integers(0, 255, (20, 3 * 48 * 36), dtype=np.uint8)
        frames = b"".join(b"FRAME\n" + frame.tobytes() for frame in noise)
        (folder / f"{number}.y4m").write_bytes(b"YUV4MPEG2 W48 H36 F25:1 Ip A1:1 C444\n" + frames)
    return folder


@pytest.fixture(autouse=True)
def no_idle_children() -> None:
    child._idle.end()


def hit(monkeypatch: pytest.MonkeyPatch, number: int, when) -> list[int]:
    """Send children a signal while they work, of those questions that ``when`` picks by the child and how many came before."""
    asked: list[int] = []
    ask = child._Child.ask

    def struck(self, question, limit_s):
        asked.append(self._process.pid)
        if when(self, len(asked)):
            os.kill(self._process.pid, signal.SIGSTOP)
            os.kill(self._process.pid, number)
            if number == signal.SIGSTOP:
                limit_s = 0.5  # it will not answer, however long is waited
            else:
                os.kill(self._process.pid, signal.SIGCONT)
        return ask(self, question, limit_s)

    monkeypatch.setattr(child._Child, "ask", struck)
    return asked


def list_clips(*, count: int) -> list[Clip]:
    return [Clip(f"clip{number}", f"{number}.y4m", None, None) for number in range(count)]


def plan(videos: Path):
    sampled = step(sample_frames, root=where(videos), plan=EIGHT)
    return source("listed", step(list_clips, count=8)).each("sampled", sampled, max_rejects=0, rows_per_part=2)


@pytest.fixture(scope="module")
def undisturbed(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return run(plan(videos), str(tmp_path_factory.mktemp("calm")), scheduler="sync").result


@pytest.mark.parametrize(
    ("number", "scheduler"), [(signal.SIGKILL, "sync"), (signal.SIGKILL, "threads"), (signal.SIGSEGV, "threads")]
)
def test_children_that_are_killed_again_and_again_change_no_byte(
    videos: Path, undisturbed: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, scheduler: str
) -> None:
    # A fresh child is let be: it may be at a second try.
    asked = hit(monkeypatch, number, lambda one, _: one.asked > 0)
    result = run(plan(videos), str(tmp_path / "killed"), scheduler=scheduler, workers=3).result
    assert (result.digest, result.rows, dict(result.rejects)) == (undisturbed.digest, 8, {})
    assert len(set(asked)) > 3


def test_a_child_killed_twice_from_outside_stops_the_run_in_one_line(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = hit(monkeypatch, signal.SIGKILL, lambda *_: True)
    with pytest.raises(StepFailed) as told:
        run(plan(videos), str(tmp_path), scheduler="sync")
    assert len(asked) == 2
    assert str(told.value).startswith("stage 'sampled', row 'clip0': the process that reads ")
    assert "killed from outside by SIGKILL, twice" in str(told.value)
    assert "--workers" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("number", "reason", "detail"),
    [
        (signal.SIGSEGV, "decoder_died", "the decoder crashes on it"),
        (signal.SIGABRT, "decoder_died", "the decoder crashes on it"),
        (signal.SIGXCPU, "timed_out", "more than 600 s of processor time"),
    ],
)
def test_a_crash_is_the_files_once_a_fresh_child_has_confirmed_it(
    videos: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str, detail: str
) -> None:
    asked = hit(monkeypatch, number, lambda *_: True)
    with pytest.raises(Reject) as told:
        read_clip(ROW, root=str(videos), plan=EIGHT)
    assert (told.value.reason, told.value.detail) == (reason, detail)
    assert len(set(asked)) == 2


def test_a_crash_after_a_kill_needs_a_second_crash(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = read_clip(ROW, root=str(videos), plan=EIGHT)
    numbers = iter([signal.SIGKILL, signal.SIGBUS])
    ask = child._Child.ask

    def struck(self, question, limit_s):
        if number := next(numbers, None):
            os.kill(self._process.pid, number)
        return ask(self, question, limit_s)

    monkeypatch.setattr(child._Child, "ask", struck)
    assert read_clip(ROW, root=str(videos), plan=EIGHT) == calm


def test_silence_is_no_fault_of_the_file(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = read_clip(ROW, root=str(videos), plan=EIGHT)
    asked = hit(monkeypatch, signal.SIGSTOP, lambda one, _: one.asked > 0)
    assert read_clip(ROW, root=str(videos), plan=EIGHT) == calm
    assert len(set(asked)) == 2
    monkeypatch.undo()
    hit(monkeypatch, signal.SIGSTOP, lambda *_: True)
    with pytest.raises(MachineFault, match=r"did not answer within 0\.5 s of wall clock, twice.*videos\.wall_limit_s"):
        read_clip(ROW, root=str(videos), plan=EIGHT, wall_limit_s=0.5)


def test_a_run_that_is_ended_turns_no_row_away(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hit(monkeypatch, signal.SIGTERM, lambda *_: True)
    with pytest.raises(MachineFault, match="stopped by SIGTERM"):
        read_clip(ROW, root=str(videos), plan=EIGHT)
    assert len(asked) == 1
    monkeypatch.undo()
    assert len(read_clip(ROW, root=str(videos), plan=EIGHT).jpegs) == 8


def test_a_child_that_died_while_it_waited_is_replaced(videos: Path) -> None:
    assert len(read_clip(ROW, root=str(videos), plan=EIGHT).jpegs) == 8
    (held,) = child._idle._children
    os.kill(held._process.pid, signal.SIGKILL)
    held._process.wait()
    assert len(read_clip(ROW, root=str(videos), plan=EIGHT).jpegs) == 8


def test_the_second_try_has_the_process_to_itself(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one file is tried again nothing else is at work, and what waited goes on behind it."""
    at_work, together, lock = [0], list[int](), threading.Lock()
    ask = child._Child.ask
    seen: dict[str, int] = {}

    def watched(self, question, limit_s):
        with lock:
            tries = seen[question["path"]] = seen.get(question["path"], 0) + 1
            at_work[0] += 1
            if tries == 2:
                together.append(at_work[0])
        try:
            if tries == 1 and question["path"].endswith(("3.y4m", "5.y4m")):
                os.kill(self._process.pid, signal.SIGKILL)
            elif tries == 1:
                time.sleep(0.05)
            return ask(self, question, limit_s)
        finally:
            with lock:
                if tries == 2:
                    together.append(at_work[0])
                at_work[0] -= 1

    monkeypatch.setattr(child._Child, "ask", watched)
    rows = [Clip(str(number), f"{number}.y4m", None, None) for number in range(12)]
    threads = [threading.Thread(target=read_clip, args=(row,), kwargs={"root": str(videos), "plan": EIGHT}) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1, 1, 1, 1]
    assert len(seen) == 12


def test_processor_time_limits_a_file_and_wall_clock_does_not(videos: Path) -> None:
    with pytest.raises(Reject, match=r"timed_out.*more than 1e-06 s of processor time"):
        probe_clip(Clip("a", "0.y4m", None, None), root=str(videos), limits=VideoLimits(cpu_limit_s=1e-6))
    burning = "from benchwright.curation.child_processes import limit_cpu\nlimit_cpu(0.2)\nwhile True: pass"
    assert subprocess.run([sys.executable, "-P", "-c", burning], check=False).returncode == -signal.SIGXCPU
    # Asleep for longer than the limit: no processor time.
    script = (
        "import time; from benchwright.curation.video.limits import CpuBudget, VideoLimits\n"
        "budget = CpuBudget(VideoLimits(cpu_limit_s=0.5)); time.sleep(1); print(budget.left_s() > 0)"
    )
    told = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "True\n"


def fake_ffmpeg(folder: Path, first: str) -> None:
    """An ffmpeg command that does something else at its first call."""
    real = decoders.ffmpeg_binary()
    command = folder / "ffmpeg"
    command.write_text(f'#!/bin/sh\nif mkdir "{folder}/called" 2>/dev/null; then {first}; fi\nexec "{real}" "$@"\n')
    command.chmod(0o755)


@pytest.fixture(scope="module")
def by_ffmpeg(videos: Path) -> SimpleNamespace:
    """What the ffmpeg command gives."""
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'dev': it brings an ffmpeg command")
    return read_clip(ROW, root=str(videos), plan=EIGHT, settings=FrameSettings(decoder="ffmpeg"))


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("kill -KILL $$", ""),
        ("kill -SEGV $$", ""),
        ("echo 'Exiting normally, received signal 15.' >&2; exit 255", "stopped by SIGTERM"),
        ("echo \"Unrecognized option 'fps_mode'.\" >&2; exit 1", "version 5.1 or later"),
    ],
)
def test_an_ffmpeg_command_that_is_killed_turns_no_row_away(
    videos: Path, by_ffmpeg: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, told: str
) -> None:
    settings = FrameSettings(decoder="ffmpeg")
    fake_ffmpeg(tmp_path, first)
    child._idle.end()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if told:
        with pytest.raises(RuntimeError, match=told) as error:
            read_clip(ROW, root=str(videos), plan=EIGHT, settings=settings)
        assert "Traceback" not in str(error.value)
    assert read_clip(ROW, root=str(videos), plan=EIGHT, settings=settings) == by_ffmpeg
    assert (tmp_path / "called").is_dir()
    child._idle.end()  # whose PATH is another one


def test_an_ffmpeg_command_that_burns_time_is_ended(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\nwhile :; do :; done\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    settings, limits = FrameSettings(decoder="ffmpeg"), VideoLimits(cpu_limit_s=1)
    with pytest.raises(Reject, match=r"timed_out.*more than 1 s of processor time"):
        read_clip(ROW, root=str(videos), plan=EIGHT, settings=settings, limits=limits)
    child._idle.end()


def test_what_the_system_refuses_is_no_fault_of_the_file(videos: Path) -> None:
    """No file may be opened any more, and no memory had."""
    script = (
        "import os, resource, sys, av\n"
        "from benchwright.curation.video.index import read_index\n"
        "from benchwright.curation.video.limits import CpuBudget, VideoLimits\n"
        "from benchwright.curation.rows import MachineFault\n"
        "import av.error, numpy\n"
        "def look(path): return read_index(path, budget=CpuBudget(VideoLimits()))\n"
        "look(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: look(sys.argv[1])\n"
        "except MachineFault as fault: print(fault)\n"
    )
    told = subprocess.run(
        [sys.executable, "-P", "-c", script, str(videos / "0.y4m")], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("Too many open files")


def test_memory_that_is_refused_is_told_from_a_file_that_claims_too_much() -> None:
    script = (
        "import resource, sys\nfrom benchwright.curation.child_processes import memory_is_short\n"
        "hard = int(sys.argv[1])\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, hard))\nprint(memory_is_short())"
    )
    for hard, short in ((1 << 30, "True\n"), (resource.RLIM_INFINITY, "False\n")):
        told = subprocess.run([sys.executable, "-P", "-c", script, str(hard)], capture_output=True, text=True, check=True)
        assert told.stdout == short
