"""Near-duplicates of real photos: what is found among resized, re-encoded, brightened and cropped copies, and in what time.

Prints precision and recall by threshold, for hashes and vectors, the time beside imagehash with all pairs compared (and
imagededup, where IMAGEDEDUP_PYTHON names the python of an environment that has it), and how time and memory grow with the rows.

    python benchmarks/bench_near_duplicates.py ../shared/data/photos/imagenet_samples [--photos 200] [--rows 1000000]
    python benchmarks/bench_near_duplicates.py --quick
"""

from __future__ import annotations

import argparse
import collections
import io
import itertools
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench_preprocess import photos
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import EfficientNetLite
from benchwright.curation.rows import Blob
from benchwright.curation.stage_rows import Rows
from benchwright.curation.stages.near_duplicates import near_duplicates_by_hash
from benchwright.curation.stages.near_hashes import hash_pairs
from benchwright.curation.stages.near_vectors import VectorSearch, vector_pairs
from benchwright.curation.stages.picture_hash import Picture, hash_picture
from benchwright.curation.stages.unit_vectors import Stacked
from PIL import Image, ImageEnhance

DISTANCES = (2, 4, 6, 8, 10, 12)
COSINES = (0.99, 0.98, 0.97, 0.95, 0.92, 0.9)

Near = set[tuple[int, int]]


def saved(picture: Image.Image, kind: str = "JPEG", **how: int) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **how)
    return stream.getvalue()


def variants(picture: Image.Image) -> dict[str, bytes]:
    w, h = picture.size
    edge = w // 20, h // 20
    return {
        "as it is": saved(picture, "PNG"),
        "half the size": saved(picture.resize((w // 2, h // 2)), quality=90),
        "quality 30": saved(picture, quality=30),
        "WebP": saved(picture, "WEBP", quality=70),
        "brighter": saved(ImageEnhance.Brightness(picture).enhance(1.25), quality=90),
        "2 % cut off": saved(picture.crop((w // 50, h // 50, w - w // 50, h - h // 50)), quality=90),
        "5 % cut off": saved(picture.crop((*edge, w - edge[0], h - edge[1])), quality=90),
        "mirrored": saved(picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT), quality=90),
    }


def told(name: str, found: Near, photo: list[int], kind: list[str]) -> None:
    """Precision over pairs; recall of the pairs with the photo as it is, by the sort of copy."""
    right = {(a, b) for a, b in found if photo[a] == photo[b]}
    kinds = list(dict.fromkeys(kind))[1:]
    first = {photo[at]: at for at in range(len(photo)) if kind[at] == "as it is"}
    hits = collections.Counter(kind[b] for a, b in right if a == first[photo[a]])
    recall = "  ".join(f"{each} {hits[each] / len(first):.2f}" for each in kinds)
    print(f"{name:14} precision {len(right) / max(len(found), 1):.4f} ({len(found) - len(right)} wrong)  recall: {recall}")


def ordered(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> Near:
    return {(min(a, b), max(a, b)) for left, right in pairs for a, b in zip(left.tolist(), right.tolist(), strict=True)}


def timed(name: str, call: object) -> tuple[float, object]:
    started = time.perf_counter()
    result = call()  # type: ignore[operator]
    seconds = time.perf_counter() - started
    print(f"{name:46} {seconds:8.2f} s")
    return seconds, result


def quality(pictures: Sequence[bytes]) -> list[bytes]:
    files: list[bytes] = []
    photo: list[int] = []
    kind: list[str] = []
    for number, picture in enumerate(pictures):
        for name, data in variants(Image.open(io.BytesIO(picture)).convert("RGB")).items():
            files.append(data)
            photo.append(number)
            kind.append(name)
    print(f"{len(files)} files of {len(pictures)} photos")
    _, hashes = timed("hashes, decoding included", lambda: [hash_picture(Picture("x", Blob(data))).phash for data in files])
    codes = np.array([[int(each, 16)] for each in hashes], np.uint64)  # type: ignore[attr-defined]
    unique, first = np.unique(codes, axis=0, return_inverse=True)
    members = [np.flatnonzero(first.reshape(-1) == at) for at in range(len(unique))]
    same = {pair for each in members for pair in itertools.combinations(each.tolist(), 2)}
    for distance in DISTANCES:
        found = set(same)
        for a, b in ordered((pair.left, pair.right) for pair in hash_pairs(unique, distance)):
            found |= {(min(x, y), max(x, y)) for x in members[a].tolist() for y in members[b].tolist()}
        told(f"{distance} bits", found, photo, kind)
    model = load_encoder(EfficientNetLite(kind="efficientnet_lite"))  # type: ignore[arg-type]
    _, vectors = timed("vectors of EfficientNet-Lite0", lambda: model.encode_prepared([model.prepare(data) for data in files]))
    for cosine in COSINES:
        args = np.arange(len(files)), [str(at) for at in range(len(files))], cosine, VectorSearch()
        pairs = vector_pairs(Stacked([np.asarray(vectors)]), *args)
        told(f"cosine {cosine}", ordered((pair.left, pair.right) for pair in pairs), photo, kind)
    return files


def beside_others(files: list[bytes], rows: int) -> None:
    import imagehash

    _, theirs = timed(
        f"imagehash.phash of {len(files)} files", lambda: [imagehash.phash(Image.open(io.BytesIO(data))) for data in files]
    )
    few = theirs[:1000]  # type: ignore[index]
    brute, _ = timed(
        f"imagehash, all pairs of {len(few)} compared", lambda: sum(a - b <= 6 for a, b in itertools.combinations(few, 2))
    )
    whole = Rows.of(pa.table({"key": [str(at) for at in range(len(few))], "phash": [str(each) for each in few]}))
    ours, _ = timed(f"near_duplicates_by_hash of {len(few)}", lambda: list(near_duplicates_by_hash(whole)))
    print(f"ratio {brute / ours:.1f}; of {rows:,} rows all pairs would take {brute * (rows / len(few)) ** 2 / 86400:.1f} days")
    if python := os.environ.get("IMAGEDEDUP_PYTHON"):
        with tempfile.TemporaryDirectory() as folder:
            for at, data in enumerate(files):
                Path(folder, f"{at:05}.{Image.open(io.BytesIO(data)).format.lower()}").write_bytes(data)  # type: ignore[union-attr]
            script = (
                "import sys, json, time; from imagededup.methods import PHash; t = time.time(); "
                "e = PHash(verbose=False).encode_images(sys.argv[1]); a = time.time() - t; t = time.time(); "
                "f = PHash(verbose=False).find_duplicates(encoding_map=e, max_distance_threshold=6); "
                "print(json.dumps([a, time.time() - t, sum(map(len, f.values())) // 2]))"
            )
            done = subprocess.run([python, "-c", script, folder], capture_output=True, text=True, check=True)
            hashing, finding, pairs = json.loads(done.stdout.splitlines()[-1])
        print(f"imagededup: hashes {hashing:.2f} s, near-duplicates {finding:.2f} s, {pairs} pairs")


def growth(rows: int) -> None:
    draw = np.random.default_rng(0)
    count = 10_000
    while count <= rows:
        codes = [f"{code:016x}" for code in draw.integers(0, 1 << 63, count).tolist()]
        whole = Rows.of(pa.table({"key": [f"{at:08}" for at in range(count)], "phash": codes}))
        timed(f"near_duplicates_by_hash, {count:,} rows", lambda whole=whole: list(near_duplicates_by_hash(whole)))
        print(f"{'':46} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MB at most so far")
        count *= 10
    for count in (10_000, 40_000):
        vectors = draw.normal(size=(count, 128)).astype(np.float32)
        vectors[count // 2 :] = vectors[: count // 2] + 0.15 * vectors[count // 2 :]
        args = Stacked([vectors]), np.arange(count), [f"{at:08}" for at in range(count)], 0.97
        for kind in ("flat", "ivf"):
            timed(
                f"vectors (128), {kind}, {count:,} rows",
                lambda args=args, kind=kind: sum(len(pair.left) for pair in vector_pairs(*args, VectorSearch(kind))),  # type: ignore[arg-type]
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="JPEG files; by default those that the other benchmarks take")
    parser.add_argument("--quick", action="store_true", help="20 photos, 100,000 rows")
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    count, rows = (20, 100_000) if args.quick else (args.photos, args.rows)
    if args.folder:
        found = sorted(path for path in args.folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
        pictures = [path.read_bytes() for path in found[:count]]
    else:
        pictures = photos(count)
    files = quality(pictures)
    beside_others(files, rows)
    growth(rows)


if __name__ == "__main__":
    main()
