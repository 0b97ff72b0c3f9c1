"""What a GPU changes: every part that has a setting ``device``, on a GPU and on processors, by rate and by result.

Each section runs in a process of its own, the same work on both devices, warmed up; on the processor a smaller piece of it on
one thread, as a worker process has it, if not said otherwise. Weights and data are drawn, which changes no time.

    python benchmarks/bench_gpu.py [--quick] [--only embed features retrieve near trainings moco graphs frames]

``--quick`` is for a look at whether all sections run; without a GPU only the processor's column is filled.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blake3 import blake3

CUDA = torch.cuda.is_available()
DEVICES = ("cpu", "cuda") if CUDA else ("cpu",)


def rate(call: Callable[[], Any], count: int, *, rounds: int) -> float:
    """``count`` over the median time of a call, after one to warm up."""
    times: list[float] = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        call()
        if CUDA:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return count / sorted(times[1:])[rounds // 2]


def told(what: str, cpu: float, gpu: float, unit: str, result: str = "") -> None:
    """Print a line: the rates, their ratio, and how the results differ."""
    there = f"{gpu:12,.1f}{gpu / cpu:9.1f}x" if gpu else f"{'-':>12}{'':10}"
    print(f"  {what:44}{cpu:12,.1f}{there}  {unit:14}{result}", flush=True)


def least_cosine(left: np.ndarray, right: np.ndarray) -> float:
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return float(((left * right).sum(1) / lengths).min())


def squares(count: int, side: int = 224) -> list[np.ndarray]:
    """Smooth noise, uint8 (3, side, side)."""
    drawn = np.random.default_rng(0).random((count, 3, 8, 8)).astype(np.float32)
    grown = torch.nn.functional.interpolate(torch.from_numpy(drawn), (side, side), mode="bicubic")
    return list((grown.clamp(0, 1) * 255).byte().numpy())


def embed(quick: bool) -> None:
    """CLIPs of open_clip from prepared squares to vectors, and whole pictures through the stage's function."""
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    import open_clip
    from bench_preprocess import photos
    from benchwright.curation.encoders.loading import load_encoder
    from benchwright.curation.encoders.spec import OpenClip
    from benchwright.curation.rows import Blob
    from benchwright.curation.stages.embed import Embedded, Pictured, embed_images

    some = squares(64 if quick else 1024)
    few = some[:8]
    with tempfile.TemporaryDirectory() as folder:
        for model in ("ViT-B-32", "RN50"):
            torch.manual_seed(0)
            path = str(Path(folder, f"{model}.pt"))
            torch.save(open_clip.create_model(model).state_dict(), path)
            cpu = load_encoder(OpenClip(model, block=len(few)), checkpoint=path)
            truth = cpu.encode_prepared(few)
            slow = rate(lambda cpu=cpu: cpu.encode_prepared(few), len(few), rounds=1)
            for precision, block in itertools.product(("float32", "bf16"), (32, 256)):
                if not CUDA:
                    told(model, slow, 0, "images/s")
                    break
                gpu = load_encoder(OpenClip(model, precision=precision, block=block), checkpoint=path, device="cuda")
                fast = rate(lambda gpu=gpu: gpu.encode_prepared(some), len(some), rounds=1)
                one, other, part = gpu.encode_prepared(some), gpu.encode_prepared(some), gpu.encode_prepared(some[3:40])
                same = (one == other).all() and (one[3:40] == part).all()
                result = (
                    f"cosine {least_cosine(truth, one[: len(few)]):.7f}, {'same' if same else 'OTHER'} bytes by run and batch"
                )
                told(f"{model}, {precision}, blocks of {block}", slow, fast, "images/s", result)
        files = photos(32)
        rows = [Pictured(f"{at}", Blob(files[at % len(files)])) for at in range(128 if quick else 4096)]
        spec = OpenClip("ViT-B-32")
        given: dict[str, Any] = {"encoder": spec, "checkpoint": str(Path(folder, "ViT-B-32.pt"))}
        threads = os.cpu_count() or 1
        load_encoder(spec, checkpoint=given["checkpoint"])
        slow = rate(lambda: embed_images(rows[:32], **given), 32, rounds=1)
        if CUDA:
            many = {"device": "cuda", "batch_size": 64, "threads": threads}
            fast = rate(lambda: embed_images(rows, **given, **many), len(rows), rounds=1)
            found = embed_images(rows[:1], **given, **many)
            assert isinstance(found[0], Embedded)
            told(f"photos to ViT-B-32's vectors, {threads} threads", slow, fast, "images/s", "processor: one thread")


def features(quick: bool) -> None:
    """CLEAR's features: a ResNet-50 without its last layer."""
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
    from benchwright.datasets.features.networks import network

    ensure_torchvision()
    from torchvision.models import resnet50

    some = squares(32 if quick else 1024)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "resnet50.pth"))
        torch.manual_seed(0)
        torch.save(resnet50().state_dict(), path)
        cpu = network(checkpoint=path, device="cpu", model="resnet50")
        truth = cpu.encode_prepared(some[:16])
        slow = rate(lambda: cpu.encode_prepared(some[:16]), 16, rounds=1)
        if not CUDA:
            return told("ResNet-50", slow, 0, "images/s")
        gpu = network(checkpoint=path, device="cuda", model="resnet50", block=64)
        fast = rate(lambda: gpu.encode_prepared(some), len(some), rounds=3)
        one, other = gpu.encode_prepared(some), gpu.encode_prepared(some)
        same = "same" if (one == other).all() else "OTHER"
        told("ResNet-50, blocks of 64", slow, fast, "images/s", f"cosine {least_cosine(truth, one[:16]):.7f}, {same} bytes")


def unit(count: int, width: int, seed: int, kind: type) -> np.ndarray:
    """Vectors of length 1 around some centres."""
    draw = np.random.default_rng(seed)
    found = np.empty((count, width), kind)
    centres = draw.standard_normal((64, width), dtype=np.float32)
    for start in range(0, count, 1 << 16):
        part = draw.standard_normal((min(1 << 16, count - start), width), dtype=np.float32)
        part += centres[draw.integers(0, 64, len(part))]
        found[start : start + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
    return found


def retrieve(quick: bool) -> None:
    """The best rows for each prompt, exactly: nominated by faiss on the GPU, and by matrix products."""
    from benchwright.curation.stages.nominate import gpu_knn
    from benchwright.curation.stages.topk import TopK

    count = 20_000 if quick else 1_000_000
    vectors, queries = unit(count, 512, 0, np.float16), unit(33, 512, 1, np.float32)

    def found(knn: Any) -> tuple[np.ndarray, np.ndarray]:
        top = TopK(queries, 600, knn)
        for start in range(0, count, 1 << 16):
            top.add(vectors[start : start + (1 << 16)], np.arange(start, min(start + (1 << 16), count)))
        scores, ids, _ = top.result()
        return scores, ids

    slow = rate(lambda: found(None), count, rounds=1)
    knn = gpu_knn()
    if knn is None:
        return told(f"600 of {count:,} for 33 prompts", slow, 0, "rows/s")
    fast = rate(lambda: found(knn), count, rounds=1)
    same = all((one == other).all() for one, other in zip(found(None), found(knn), strict=True))
    told(f"600 of {count:,} for 33 prompts", slow, fast, "rows/s", f"{'equal' if same else 'NOT EQUAL'}; processor: all cores")


def near(quick: bool) -> None:
    """Pairs of near vectors."""
    from benchwright.curation.stages.near_vectors import VectorSearch, vector_pairs
    from benchwright.curation.stages.unit_vectors import Stacked

    count = 5_000 if quick else 100_000
    plain = unit(count, 512, 0, np.float32)
    plain[1::50] = plain[::50][: len(plain[1::50])] + np.random.default_rng(2).normal(0, 0.005, (len(plain[1::50]), 512))
    stacked, rows, keys = Stacked([plain.astype(np.float16)]), np.arange(count), [str(at) for at in range(count)]
    for kind in ("flat", "ivf"):
        pairs: dict[str, set[tuple[int, int]]] = {}
        seconds: dict[str, float] = {}
        for device in DEVICES:
            begin = time.perf_counter()
            search = VectorSearch(kind=kind)  # type: ignore[arg-type]
            found = list(vector_pairs(stacked, rows, keys, 0.95, search, device=device))
            seconds[device] = time.perf_counter() - begin
            pairs[device] = {(int(a), int(b)) for part in found for a, b in zip(part.left, part.right, strict=True)}
        same = "equal" if pairs["cpu"] == pairs[DEVICES[-1]] else f"{len(pairs['cpu'] ^ pairs[DEVICES[-1]])} of them differ"
        gpu = count / seconds["cuda"] if CUDA else 0
        told(
            f"{kind}, {count:,} vectors", count / seconds["cpu"], gpu, "rows/s", f"{len(pairs['cpu'])} pairs, {same}; all cores"
        )


def learned(model: str, settings: dict[str, Any], examples: Any, classes: int, **given: Any) -> Any:
    from benchwright.curation.registry import load_name
    from benchwright.training.core.build import parts_of
    from benchwright.training.core.learner import Learner
    from benchwright.training.methods.finetune import finetune
    from benchwright.training.models.registry import MODELS

    parts = parts_of(settings | {"method": {}}, finetune, load_name(MODELS, model), labels="one", classes="same")
    learner = Learner(parts, sample=examples.shape, seed=0, **given)
    learner.learn(examples, [], classes=classes)
    return learner


def trainings(quick: bool) -> None:
    """A learner's epochs with the published networks: pictures (CLEAR), clips (vCLIMB)."""
    from benchwright.training.baselines import clear, vclimb
    from benchwright.training.data.examples import ArrayExamples

    class Shaped(ArrayExamples):
        shape: tuple[int, ...]

    def examples(count: int, shape: tuple[int, ...]) -> Shaped:
        draw = np.random.default_rng(0)
        found = Shaped(draw.standard_normal((count, *shape), dtype=np.float32), draw.integers(0, 11, count))
        found.shape = shape
        return found

    def epochs(name: str, settings: dict[str, Any], shape: tuple[int, ...], count: int, many: int, how: dict[str, Any]) -> Any:
        """The weights after so many epochs, and the seconds."""
        changes = {"epochs": many, "batch_size": min(64, count), "mixed_precision": how["half"]}
        given = {**settings, "schedule": {**settings["schedule"], **changes}}
        shown, begin = examples(count, shape), time.perf_counter()
        learner = learned(name, given, shown, 11, device=how["device"])
        return {key: value.float().cpu() for key, value in learner.model.state_dict().items()}, time.perf_counter() - begin

    network, own = clear.paper_settings("resnet18")
    clips = vclimb.paper_settings("finetune", dataset="ucf101", preset="as_released")
    cases: list[tuple[str, str, dict[str, Any], tuple[int, ...], int, int]] = [
        ("ResNet-18, 224 px", network, own, (3, 224, 224), 8, 2048),
        ("TSN of ResNet-34, 8 frames of 224 px", "tsn", clips, (8, 3, 224, 224), 2, 256),
    ]
    for title, name, settings, shape, few, many in cases:

        def speed(count: int, how: dict[str, Any], case: Any = (name, settings, shape)) -> float:
            """Samples a second, without what a learner's start takes."""
            return 2 * count / (epochs(*case, count, 3, how)[1] - epochs(*case, count, 1, how)[1])

        plain = {"device": "cpu", "half": False}
        slow = speed(few, plain)
        if not CUDA:
            told(title, slow, 0, "samples/s")
            continue
        at_cpu = epochs(name, settings, shape, few, 1, plain)[0]
        at_gpu, again = (epochs(name, settings, shape, few, 1, plain | {"device": "cuda"})[0] for _ in range(2))
        same = "same" if all(torch.equal(at_gpu[key], again[key]) for key in at_gpu) else "OTHER"
        apart = max(float((at_cpu[key] - at_gpu[key]).abs().max()) for key in at_cpu)
        for half in (False, True):
            fast = speed(32 if quick else many, {"device": "cuda", "half": half})
            result = "" if half else f"a step: weights within {apart:.1e}, {same} bytes by run"
            told(f"{title}, {'float16' if half else 'float32'}", slow, fast, "samples/s", result)


def moco(quick: bool) -> None:
    """MoCo v2 at its published settings: a step, and the views."""
    from benchwright.training.moco.pretrain import Pretraining
    from benchwright.training.moco.settings import moco_settings

    small: dict[str, Any] = {"batch_size": 8, "queue": 64, "batch_norm_splits": 1}
    views = torch.from_numpy(np.stack(squares(256 if CUDA else 8))).float() / 255
    cpu = Pretraining(moco_settings("moco_v2", small), seed=0)
    slow = rate(lambda: cpu.step(views[:8], views[:8], "a"), 8, rounds=1)
    if not CUDA:
        return told("ResNet-50", slow, 0, "images/s")
    on_gpu = views.cuda()
    for half in (False, True):
        gpu = Pretraining(moco_settings("moco_v2", {"mixed_precision": half}), seed=0, device="cuda")
        fast = rate(lambda gpu=gpu: gpu.step(on_gpu, on_gpu, "a"), 256, rounds=2 if quick else 10)
        told(
            f"ResNet-50, batches of 256, {'float16' if half else 'float32'}", slow, fast, "images/s", "processor: batches of 8"
        )


def graphs(quick: bool) -> None:
    """Skeleton streams: GCN of N-UCLA's size, alone and many at once, and ST-GCN of NTU's."""
    from bench_graph_streams import drawn
    from benchwright.training.graph_streams.learn import learn_next
    from benchwright.training.graph_streams.recipe import GraphData, Recipe, full_batches
    from benchwright.training.methods.registry import method
    from benchwright.training.models.gcn.network import gcn
    from benchwright.training.models.st_gcn import st_gcn

    def epochs_a_second(data: GraphData, make: Any, device: str, streams: int, batch: int = 0) -> tuple[float, Any]:
        """Epochs of all streams a second, and the learned streams."""
        epochs = 20 if quick else 100 if batch == 0 else 2
        schedule = full_batches(epochs=epochs, learning_rate=1e-3)
        if batch:
            schedule = dataclasses.replace(schedule, batch_size=batch)
        names = [str(at) for at in range(streams)]
        parents, tasks = [None] * streams, [(0, 1)] * streams
        how: dict[str, Any] = {"seed": 0, "draws": names, "streams_at_once": streams, "device": device}
        learn_next(
            data, Recipe(method("finetune"), make, schedule=dataclasses.replace(schedule, epochs=1)), parents, tasks, **how
        )
        begin = time.perf_counter()
        made = learn_next(data, Recipe(method("finetune"), make, schedule=schedule), parents, tasks, **how)
        return epochs * streams / (time.perf_counter() - begin), made

    data = drawn(240, 5)
    slow, one = epochs_a_second(data, gcn, "cpu", 1)
    for streams in (1, 8, 32, 64) if CUDA else (1,):
        fast, other = epochs_a_second(data, gcn, "cuda", streams) if CUDA else (0.0, one)
        apart = float((one[0].state["weights"] - other[0].state["weights"]).abs().mean())
        told(f"GCN, {streams} streams at once", slow, fast, "epochs/s", f"weights {apart:.1e} apart on average")
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(2), 32 if quick else 640)
    x = draw.normal(size=(len(labels), 2, 3, 64 if quick else 300, 25)).astype(np.float32)
    ring = np.eye(25) + np.roll(np.eye(25), 1, 0) + np.roll(np.eye(25), -1, 0)
    rows = np.arange(len(labels))
    parts = np.stack([np.eye(25), np.triu(ring, 1) / 2, np.tril(ring, -1) / 2]).astype(np.float32)
    ntu = GraphData(x, labels, rows, rows[::64], rows[::64], parts, 2)
    few = GraphData(x[:: len(x) // 16], labels[:: len(x) // 16], rows[:16], rows[:4], rows[:4], parts, 2)
    slow = epochs_a_second(few, st_gcn, "cpu", 1, batch=16)[0] * 16
    fast = epochs_a_second(ntu, st_gcn, "cuda", 1, batch=64)[0] * len(x) if CUDA else 0
    told(f"ST-GCN, 2 bodies of {x.shape[3]} frames", slow, fast, "sequences/s")


def frames(quick: bool) -> None:
    """Frames of a video: eight, or all; on one thread, and of sixteen videos at once. Ours offers only the processor."""
    from benchwright.curation.video.decoders import pyav_frames
    from benchwright.curation.video.frame_plans import FramePlan, choose_frames
    from benchwright.curation.video.index import VideoIndex, read_index
    from benchwright.curation.video.limits import CpuBudget, VideoLimits

    budget = CpuBudget(VideoLimits(cpu_limit_s=3600))

    def decoded(index: VideoIndex, wanted: Sequence[int]) -> dict[int, bytes]:
        """Digests of the frames' pixels; NVIDIA's decoder interleaves the chroma."""
        found: dict[int, bytes] = {}
        for at, frame in pyav_frames(index, wanted, budget=budget):
            planes = [
                np.frombuffer(each, np.uint8).reshape(-1, each.line_size)[: each.height, : each.width]
                for each in frame.reformat(format="yuv420p").planes
            ]
            found[at] = blake3(b"".join(plane.tobytes() for plane in planes)).digest()
        return found

    def seconds(index: VideoIndex, wanted: Sequence[int], at_once: int = 1) -> float:
        """The least of three times."""
        call = lambda _: deque(pyav_frames(index, wanted, budget=budget), maxlen=0)  # noqa: E731
        times: list[float] = []
        with ThreadPoolExecutor(at_once) as pool:
            for _ in range(3):
                begin = time.perf_counter()
                list(pool.map(call, range(at_once)))
                times.append(time.perf_counter() - begin)
        return min(times)

    with tempfile.TemporaryDirectory() as folder:
        for path in videos(Path(folder), quick):
            index = read_index(str(path), budget=budget)
            every = list(range(index.n_frames))
            eight, _ = choose_frames(FramePlan("uniform", n=8), index.times_s, fps=index.fps)
            result = ""
            if CUDA:
                truth = decoded(index, every)
                with by_nvidia():
                    found, few = decoded(index, every), decoded(index, eight)
                wrong = sum(truth[at] != found.get(at) for at in truth) + sum(truth[at] != few.get(at) for at in eight)
                result = f"{wrong} OF {len(truth)} FRAMES DIFFER" if wrong else "all frames equal"
            for what, wanted, at_once, count in (
                ("eight frames", eight, 1, 1),
                ("all frames", every, 1, len(every)),
                ("all frames, 16 at once", every, 16, 16 * len(every)),
            ):
                slow, fast = count / seconds(index, wanted, at_once), 0.0
                if CUDA:
                    with by_nvidia():
                        fast = count / seconds(index, wanted, at_once)
                told(f"{path.stem}, {what}", slow, fast, "videos/s" if count == 1 else "frames/s", result)
                result = ""


@contextlib.contextmanager
def by_nvidia() -> Iterator[None]:
    """PyAV opens videos for the GPU's decoder; without torch's use of the GPU in the process its context stays open."""
    import av
    from av.codec.hwaccel import HWAccel

    hardware, plain = HWAccel("cuda", options={"primary_ctx": "1"}, allow_software_fallback=False), av.open
    held = av.CodecContext.create("h264", "r", hwaccel=hardware)
    av.open = functools.partial(plain, hwaccel=hardware)
    try:
        yield
    finally:
        av.open = plain
        del held


def videos(folder: Path, quick: bool) -> Iterator[Path]:
    """Moving smooth noise: 360p in three codecs, 1080p in H.264, a key frame every 12 or 250 frames."""
    import av

    draw = np.random.default_rng(0)
    codecs = {
        "h264": ("libx264", {"preset": "veryfast", "bf": "3"}, 360),
        "hevc": ("libx265", {"preset": "ultrafast", "x265-params": "log-level=error"}, 360),
        "vp9": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}, 360),
        "h264, large": ("libx264", {"preset": "veryfast", "bf": "3"}, 1080),
    }
    for (name, (codec, options, height)), gop in itertools.product(codecs.items(), (12, 250)):
        width = height * 16 // 9
        path = folder / f"{name.split(',')[0]} {height}p, GOP {gop}.mp4"
        wide = torch.from_numpy(draw.random((1, 3, 40, 60)).astype(np.float32))
        big = torch.nn.functional.interpolate(wide, (height + 256, width + 512), mode="bicubic")[0]
        whole = (big.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream(codec, rate=25, options=options)
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", gop
            stream.time_base = Fraction(1, 25)
            for number in range(60 if quick else 500 if height == 360 else 150):
                x, y = number * 5 % 512, number * 3 % 256
                picture = whole[y : y + height, x : x + width] ^ draw.integers(0, 8, (height, width, 1), dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture))))
            container.mux(stream.encode(None))
        yield path


SECTIONS = {each.__name__: each for each in (embed, features, retrieve, near, trainings, moco, graphs, frames)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.section:
        torch.set_num_threads(1)
        SECTIONS[given.section](given.quick)
        return
    where = torch.cuda.get_device_name() if CUDA else "no GPU"
    print(f"{where}; {os.cpu_count()} cores; torch {torch.__version__}\n")
    print(f"  {'':44}{'processor':>12}{'GPU':>12}{'ratio':>10}")
    failed = False
    for name in given.only:
        print(f"{name}: {(SECTIONS[name].__doc__ or '').splitlines()[0]}", flush=True)
        command = [sys.executable, __file__, "--section", name, *(["--quick"] if given.quick else [])]
        failed |= bool(subprocess.run(command, check=False).returncode)
    sys.exit(failed)


if __name__ == "__main__":
    main()
