"""Eight exact frames of a video: ours beside PyAV in sequence, torchcodec, decord, OpenCV and ffmpeg's select filter.

The videos are made here of FFmpeg's test pictures with noise: clips of 10 to 30 seconds, 640x360, in H.264 (B-frames), HEVC,
VP9 and AV1, with a key frame every 250 or every 12 frames; and a film of 10 minutes of each, as an untrimmed video is. Every
contender decodes the frames that vCLIMB's rule chooses, scales them to a short side of 224 pixels and gives RGB; that they are
the frames asked for is checked against a full decode. All run on one thread; the ratio is the median over rounds of the ratio
inside a round, contender after contender on the same clip, by processor time (of children too) and by the wall clock. ``ours``
is the decoder in this process, as the others are; what the step of a pipeline takes on the same videos, to JPEGs and in a child
process, is told after it.

    python benchmarks/bench_frames.py [--quick] [--rounds 3] [--kinds h264 hevc vp9 av1 film] [--peers PyAV torchcodec]
        [--folder CLIPS] [--clips 10000]

torchcodec, decord and OpenCV are measured where they are installed: pip install torchcodec==0.13.0 decord
opencv-python-headless. torchcodec is measured twice: frames are scaled by torch, or by its own decoder.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import av
import ffmpeg
import numpy as np
import psutil
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.video.decoders import ffmpeg_binary, pyav_frames
from benchwright.curation.video.frame_plans import FramePlan, choose_frames, uniform_frames
from benchwright.curation.video.frames import Clip, sample_frames
from benchwright.curation.video.index import read_index
from benchwright.curation.video.limits import CpuBudget, VideoLimits
from benchwright.curation.video.pixels import Orientation, RgbConverter, scaled_size
from benchwright.curation.video.work import FrameSettings

LIMITS = VideoLimits()
SIDE_PX = 224
EIGHT = FramePlan("uniform", n=8)
Contender = Callable[[Path, int], list[np.ndarray]]


CODECS = {
    "h264": ("libx264", ["-preset", "veryfast", "-bf", "3"]),
    "hevc": ("libx265", ["-preset", "superfast", "-x265-params", "log-level=error"]),
    "vp9": ("libvpx-vp9", ["-deadline", "realtime", "-cpu-used", "8", "-b:v", "1M"]),
    "av1": ("libsvtav1", ["-preset", "12"]),
}
KINDS = (*CODECS, "film")
FILM_S = 600


def make_videos(folder: Path, kinds: list[str], count: int) -> dict[str, list[Path]]:
    """By a title: ``count`` clips, or one film, for each codec and distance between key frames."""
    made: dict[str, list[Path]] = {}
    each = [(kind, False) for kind in kinds if kind != "film"] + [(kind, True) for kind in CODECS if "film" in kinds]
    for kind, film in each:
        codec, options = CODECS[kind]
        for gop in (250, 12):
            title = f"film {kind}" if film else kind
            paths = made.setdefault(f"{title}, a key frame every {gop}", [])
            for number in range(1 if film else count):
                seconds = FILM_S if film else 10 + 20 * number // max(1, count - 1)
                picture = "testsrc2" if film or number % 2 else "mandelbrot"
                rate = "25" if number % 4 < 2 else "30000/1001"
                source = f"{picture}=size=640x360:rate={rate},noise=alls=8:allf=t:all_seed={number}"
                path = folder / f"{title.replace(' ', '-')}-gop{gop}-{number:02d}-{seconds}s.mp4"
                paths.append(path)
                if not path.exists():
                    encode = ["-c:v", codec, "-pix_fmt", "yuv420p", "-g", str(gop), *options, "-f", "mp4", f"{path}.part"]
                    given = ["-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", source, "-t", str(seconds)]
                    command = [ffmpeg_binary(), *given, *encode]
                    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=1800, stderr=subprocess.DEVNULL)
                    Path(f"{path}.part").rename(path)
    return made


def ours(path: Path, _frames: int) -> list[np.ndarray]:
    budget = CpuBudget(LIMITS)
    index = read_index(str(path), budget=budget)
    converter = RgbConverter(index, SIDE_PX)
    wanted, _ = choose_frames(EIGHT, index.times_s, fps=index.fps)
    frames = pyav_frames(index, wanted, budget=budget)
    found = {at: converter.rgb(frame, Orientation()) for at, frame in frames}
    return [found[at] for at in wanted]


def by_pyav_in_sequence(path: Path, frames: int) -> list[np.ndarray]:
    wanted, found = uniform_frames(frames, 8).tolist(), []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        size = scaled_size(stream.codec_context.width, stream.codec_context.height, SIDE_PX)
        for number, frame in enumerate(container.decode(stream)):
            if number in wanted:
                found.append(frame.reformat(*size, format="rgb24").to_ndarray())
                if len(found) == 8:
                    break
    return found


def by_select(path: Path, frames: int) -> list[np.ndarray]:
    wanted = uniform_frames(frames, 8).tolist()
    width, height = 398, 224
    chosen = ffmpeg.input(str(path), threads=1).filter("select", "+".join(f"eq(n,{at})" for at in wanted))
    sent = chosen.filter("scale", width, height).output("pipe:", format="rawvideo", pix_fmt="rgb24", fps_mode="passthrough")
    command = ffmpeg.compile(sent.global_args("-nostdin", "-v", "error"), cmd=ffmpeg_binary())
    raw = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=600).stdout
    return list(np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3))


def by_torchcodec(path: Path, frames: int) -> list[np.ndarray]:
    from torch.nn.functional import interpolate
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(str(path), num_ffmpeg_threads=1, seek_mode="exact")
    batch = decoder.get_frames_at(uniform_frames(frames, 8).tolist()).data
    size = scaled_size(batch.shape[-1], batch.shape[-2], SIDE_PX)[::-1]
    return list(interpolate(batch, size, mode="bilinear", antialias=True).permute(0, 2, 3, 1).numpy())


def by_torchcodec_that_scales(path: Path, frames: int) -> list[np.ndarray]:
    from torchcodec.decoders import VideoDecoder
    from torchcodec.transforms import Resize

    with av.open(str(path)) as container:
        context = container.streams.video[0].codec_context
        size = scaled_size(context.width, context.height, SIDE_PX)[::-1]
    decoder = VideoDecoder(str(path), num_ffmpeg_threads=1, seek_mode="exact", transforms=[Resize(size)])
    return list(decoder.get_frames_at(uniform_frames(frames, 8).tolist()).data.permute(0, 2, 3, 1).numpy())


def by_decord(path: Path, frames: int) -> list[np.ndarray]:
    from decord import VideoReader, cpu

    with av.open(str(path)) as container:
        context = container.streams.video[0].codec_context
        width, height = scaled_size(context.width, context.height, SIDE_PX)
    reader = VideoReader(str(path), ctx=cpu(0), width=width, height=height, num_threads=1)
    return list(reader.get_batch(uniform_frames(frames, 8).tolist()).asnumpy())


def opencv_frames(path: Path, frames: int, seek: bool) -> list[np.ndarray]:
    import cv2

    cv2.setNumThreads(1)
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    found: list[np.ndarray] = []
    at = 0
    for wanted in uniform_frames(frames, 8).tolist():
        if seek:
            video.set(cv2.CAP_PROP_POS_FRAMES, wanted)
        else:
            while at < wanted:
                video.grab()
                at += 1
        picture = video.read()[1]
        at += 1
        size = scaled_size(picture.shape[1], picture.shape[0], SIDE_PX)
        found.append(cv2.cvtColor(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2RGB))
    video.release()
    return found


def by_opencv_seeking(path: Path, frames: int) -> list[np.ndarray]:
    return opencv_frames(path, frames, True)


def by_opencv_in_sequence(path: Path, frames: int) -> list[np.ndarray]:
    return opencv_frames(path, frames, False)


def contenders(peers: list[str]) -> dict[str, Contender]:
    """By name; of other people's those whose name begins with one of ``peers``, or all."""
    found: dict[str, Contender] = {"ours": ours, "PyAV in sequence": by_pyav_in_sequence, "ffmpeg, select": by_select}
    try:
        import torch
        import torchcodec.decoders

        torch.set_num_threads(1)
        ensure_torchvision()  # which torchcodec imports to scale
        found[f"torchcodec {torchcodec.__version__}, exact"] = by_torchcodec
        found[f"torchcodec {torchcodec.__version__}, it scales"] = by_torchcodec_that_scales
    except (ImportError, OSError, RuntimeError) as error:
        print(f"torchcodec is left out: {str(error).splitlines()[0]}")
    try:
        import decord

        found[f"decord {decord.__version__}"] = by_decord
    except (ImportError, OSError) as error:
        print(f"decord is left out: {error}")
    try:
        import cv2

        found[f"OpenCV {cv2.__version__}, in sequence"] = by_opencv_in_sequence
        found[f"OpenCV {cv2.__version__}, seeking"] = by_opencv_seeking
    except ImportError as error:
        print(f"OpenCV is left out: {error}")
    return {name: each for name, each in found.items() if not peers or name.startswith(("ours", *peers))}


def processor_s() -> float:
    """CPU seconds of this process and its children, of those that are alive too."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    alive = [child.cpu_times() for child in psutil.Process().children()]
    return sum(each.ru_utime + each.ru_stime for each in used) + sum(each.user + each.system for each in alive)


def full_decode(path: Path) -> np.ndarray:
    """Every eighth row and column of every frame by a sequential decode, in the size and colours of ``ours``."""
    index = read_index(str(path), budget=CpuBudget(LIMITS))
    converter = RgbConverter(index, SIDE_PX)
    with av.open(str(path)) as container:
        return np.stack([converter.rgb(frame, Orientation())[::8, ::8] for frame in container.decode(video=0)])


def check(paths: list[Path], names: dict[str, Contender]) -> tuple[dict[Path, int], dict[str, Contender]]:
    """Frames of each clip, and the contenders that read them all; prints how many of its eight frames each has right.

    Ours must be equal; of the others, which scale otherwise, the full decode's nearest frame must be the one asked for.
    """
    counts: dict[Path, int] = {}
    right = dict.fromkeys(names, 0)
    able = dict(names)
    for path in paths:
        truth = full_decode(path)
        counts[path] = len(truth)
        wanted = uniform_frames(len(truth), 8)
        for name, contender in list(able.items()):
            try:
                frames = contender(path, len(truth))
            except Exception as error:  # of other people's libraries, whatever it is
                print(f"  {name} is left out: {type(error).__name__}: {str(error).strip().splitlines()[0][:90]}")
                able.pop(name, None)
                continue
            for at, frame in zip(wanted, frames, strict=True):
                small = frame[::8, ::8].astype(np.int16)
                distance = np.array([np.abs(small - one).mean() for one in truth])
                right[name] += int(distance.argmin()) == at and (name != "ours" or distance[at] == 0)
    for name in able:
        print(f"  {name:34}{right[name]} of {8 * len(paths)} frames are those asked for")
    return counts, able


def compare(title: str, counts: dict[Path, int], names: Mapping[str, Callable[[Path, int], object]], rounds: int) -> None:
    used: dict[str, list[float]] = {name: [] for name in names}
    took: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        cpu, wall = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        for path, frames in counts.items():
            for name, contender in list(names.items())[:: 1 if number % 2 == 0 else -1]:
                begin, before = time.perf_counter(), processor_s()
                contender(path, frames)
                cpu[name] += processor_s() - before
                wall[name] += time.perf_counter() - begin
        for name in names:
            used[name].append(cpu[name])
            took[name].append(wall[name])
    print(f"\n{title}\n  {'':34}{'CPU ms a clip':>14}{'clips/s':>9}{'ours is, by CPU':>17}{'by the clock':>14}")
    for name in names:
        ratios = [
            statistics.median(theirs / own for theirs, own in zip(measured[name], measured["ours"], strict=True))
            for measured in (used, took)
        ]
        times = ["", ""] if name == "ours" else [f"{ratio:.2f}x" for ratio in ratios]
        per_clip, rate = 1000 * statistics.median(used[name]) / len(counts), len(counts) / statistics.median(took[name])
        print(f"  {name:34}{per_clip:14.1f}{rate:9.2f}{times[0]:>17}{times[1]:>14}")


def as_step(path: str) -> int:
    """The work of the step ``sample_frames``, to JPEGs, in a child process of this one."""
    whole = Path(path)
    row = Clip(whole.stem, whole.name, None, None)
    return len(sample_frames(row, root=str(whole.parent), plan=EIGHT, settings=FrameSettings(SIDE_PX, 90)).frame_sizes)


def two_processes(paths: list[Path], rounds: int) -> None:
    names, ratios = [str(path) for path in paths], []
    with ProcessPoolExecutor(1) as one, ProcessPoolExecutor(2) as two:
        for pool in (one, two):
            list(pool.map(as_step, names[:2]))
        for _ in range(rounds):
            seconds: list[float] = []
            for pool in (one, two):
                begin = time.perf_counter()
                list(pool.map(as_step, names))
                seconds.append(time.perf_counter() - begin)
            ratios.append(seconds[0] / seconds[1])
    rounded = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"\ntwo processes are {statistics.median(ratios):.2f} times as fast as one, to JPEGs, by the clock ({rounded})")


def memory(paths: list[Path], clips: int) -> None:
    """Resident set of a process, and of the one that decodes for it, while it works through ``clips`` clips."""
    status = Path("/proc/self/status")
    if not status.exists():
        print("memory is measured on Linux only")
        return
    print(f"\nmemory over {clips} clips, to JPEGs: clips, MB of this process, MB of its child")
    for number in range(clips):
        as_step(str(paths[number % len(paths)]))
        if number in {0, 9, clips - 1} or number % max(1, clips // 10) == clips // 30:
            child_mb = max(map(resident_mb, children()), default=0.0)  # none where one has just been replaced
            print(f"  {number + 1:7}{resident_mb('self'):8.1f}{child_mb:8.1f}", flush=True)


def children() -> list[str]:
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def resident_mb(process: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=20, help="clips of each codec and distance between key frames")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what to measure (default: all)")
    parser.add_argument("--peers", nargs="+", default=[], help="beginnings of their names (default: all)")
    parser.add_argument("--quick", action="store_true", help="2 clips of each kind of H.264, 1 round")
    parser.add_argument("--folder", type=Path, help="where clips are, or are made and kept (default: a temporary folder)")
    parser.add_argument("--clips", type=int, default=0, help="only watch the memory over so many clips, with short ones")
    given = parser.parse_args()
    kinds, count, rounds = (["h264"], 2, 1) if given.quick else (list(given.kinds), given.count, given.rounds)
    if given.clips:
        kinds = ["h264"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        videos = make_videos(folder, kinds, count)
        short = [path for title, paths in videos.items() if not title.startswith("film") for path in paths]
        if given.clips:
            memory([path for path in short if "gop12-" in path.name], given.clips)
            return
        names = contenders(given.peers)
        print(f"{sys.version.split()[0]}, av {av.__version__}, {ffmpeg_binary()}")
        for title, paths in videos.items():
            print(f"\n{title}: {len(paths)} videos")
            counts, able = check(paths, names)
            compare("8 frames of a video", counts, able, rounds)
            as_step(str(paths[0]))  # which starts the child process
            step = {"ours": ours, "ours, as a pipeline's step": lambda path, _: as_step(str(path))}
            compare("8 frames of a video, and the step that also makes JPEGs", counts, step, rounds)
        if short:
            two_processes(short, rounds)
            memory(short, 2 * len(short))


if __name__ == "__main__":
    main()
