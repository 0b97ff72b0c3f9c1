"""Sources of the runs that are looked at, in a file of their own: the code that a step may reach is read for each run."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from benchwright.curation.png import stored_png
from benchwright.curation.rows import Blob, Shape
from PIL import Image

N = 300


@dataclasses.dataclass(frozen=True)
class Pointed:
    key: str
    group: str
    score: float
    image: Blob
    vector: Annotated[np.ndarray, Shape((4,), "float32")]


def vectors() -> np.ndarray:
    made = np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)
    made[10] = made[20] = made[5]
    made[7] = 0
    return made


def pointed() -> Iterator[Pointed]:
    for at, vector in enumerate(vectors()):
        image = stored_png(np.full((2, 2, 3), at % 256, np.uint8))
        yield Pointed(f"row{at:03d}", "ab"[at % 2], at / N, Blob(image), vector)


def png(colour: tuple[int, int, int]) -> bytes:
    memory = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(memory, "PNG")
    return memory.getvalue()


@dataclasses.dataclass(frozen=True)
class Grouped:
    key: str
    image: Blob
    duplicate_group: str | None


def grouped() -> Iterator[Grouped]:
    for key, group in {"a": None, "b": "b", "c": "b", "d": None, "e": "e", "f": "e", "g": "e"}.items():
        yield Grouped(key, Blob(png((9, 9, 9))), group)


@dataclasses.dataclass(frozen=True)
class Held:
    key: str
    clip: Blob
    image_1: Blob
    image_2: Blob
    gt_1: list[float]
    gt_2: list[float]


def clip_of(kind: str) -> bytes:
    import av

    memory = io.BytesIO()
    codec, made = {"avi": ("mpeg4", "avi"), "y4m": ("wrapped_avframe", "yuv4mpegpipe"), "mkv": ("mpeg4", "matroska")}[kind]
    with av.open(memory, "w", format=made) as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for at in range(24):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 10 * at, np.uint8), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return memory.getvalue()


def held() -> Iterator[Held]:
    for kind in ("avi", "y4m", "mkv"):
        pixels = np.random.default_rng(0).integers(0, 60_000, (2, 40, 60, 3), np.uint16)
        files = [io.BytesIO(), io.BytesIO()]
        for file, each in zip(files, pixels, strict=True):
            np.save(file, each)
        yield Held(kind, Blob(clip_of(kind)), *(Blob(file.getvalue()) for file in files), [1.0, 0.5, 0.2], [0.3, 1.0, 0.9])
    broken = clip_of("avi")[:300]
    yield Held("broken", Blob(broken), Blob(b""), Blob(b""), [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])


@dataclasses.dataclass(frozen=True)
class Learned:
    key: str


def learned() -> Iterator[Learned]:
    yield Learned("a")


@dataclasses.dataclass(frozen=True)
class Odd:
    key: str
    label: str
    file: Blob


def odd(*, files: dict[str, str]) -> Iterator[Odd]:
    for name, data in files.items():
        yield Odd(name, f"{name}<img src=x onerror=alert(1)>", Blob(bytes.fromhex(data)))


@dataclasses.dataclass(frozen=True)
class Sampled:
    key: str
    frames: Blob
    sizes: list[int]


def sampled() -> Iterator[Sampled]:
    frames = [stored_png(np.full((2, 2, 3), shade, np.uint8)) for shade in (0, 100, 200)]
    yield Sampled("clip", Blob(b"".join(frames)), [*map(len, frames)])


@dataclasses.dataclass(frozen=True)
class Heard:
    key: str
    audio: Blob
    window: Annotated[np.ndarray, Shape((2, 50), "float32")]


SOUND = b"RIFF\x24\0\0\0WAVEfmt " + b"\0" * 28


def heard() -> Iterator[Heard]:
    yield Heard("a", Blob(SOUND), np.arange(100, dtype=np.float32).reshape(2, 50))
