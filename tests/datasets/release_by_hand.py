"""A release of CLEAR made by hand, from what its authors write of their folders: none of our writers is used.

See "The resulting folder looks like" and "Prepare folders for Avalanche training" in the README of
linzhiqiu/continual-learning.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image

CLASSES = ["BACKGROUND", "camera", "computer"]
BUCKETS = ["1", "2"]
EACH = 7


def picture(bucket: str, label: int, number: int) -> bytes:
    drawn = np.random.default_rng([int(bucket), label, number]).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    drawn[..., label] = 255
    out = io.BytesIO()
    Image.fromarray(drawn).save(out, "JPEG")
    return out.getvalue()


def vector(bucket: str, label: int, number: int) -> torch.Tensor:
    drawn = torch.from_numpy(np.random.default_rng([9, int(bucket), label, number]).normal(size=6)).float()
    return drawn + 4 * torch.eye(6)[label]


def identity(bucket: str, label: int, number: int) -> str:
    return str(648321013 + 7919 * number - 1000 * int(bucket) + label)  # not in the order of their numbers


def write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def write_concepts(root: Path, numbers: range = range(EACH)) -> None:
    """What ``prepare_concepts.py`` leaves: images and metadata."""
    write(root / "concept_group_dict.json", json.dumps({"NAME": "CLEAR10-TEST", "BACKGROUND": 1}))
    write(root / "class_names.txt", "\n".join(CLASSES))
    write(root / "clip_result.json", "{}")
    index: dict[str, dict[str, str]] = {}
    for bucket in BUCKETS:
        index[bucket] = {}
        for label, name in enumerate(CLASSES):
            metadata = {}
            for number in numbers:
                key = identity(bucket, label, number)
                path = f"labeled_images/{bucket}/{name}/{key}.jpg"
                write(root / path, picture(bucket, label, number))
                metadata[key] = {
                    "ID": key,
                    "DATE_TAKEN": f"200{3 + int(bucket)}-02-28 20:33:06.0",
                    "DATE_UPLOADED": str(1141639556 + 31536000 * int(bucket) + number),
                    "LICENSE_NAME": "Attribution License",
                    "IMG_DIR": "/data3/zhiqiul/clear_datasets/CLEAR10-TEST",
                    "IMG_PATH": path,
                }
            index[bucket][name] = f"labeled_metadata/{bucket}/{name}.json"
            write(root / index[bucket][name], json.dumps(metadata))
    write(root / "labeled_metadata.json", json.dumps(index))


def write_features(root: Path, name: str = "moco_b0", numbers: range = range(EACH)) -> None:
    """What ``prepare_features.py`` leaves."""
    index: dict[str, dict[str, str]] = {}
    for bucket in BUCKETS:
        index[bucket] = {each: f"features/{name}/{bucket}/{each}.pth" for each in CLASSES}
        for label, place in enumerate(index[bucket].values()):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            torch.save({identity(bucket, label, n): vector(bucket, label, n) for n in numbers}, root / place)
    write(root / f"features/{name}/features.json", json.dumps(index))


def write_training_folder(root: Path, name: str = "moco_b0") -> None:
    """What ``prepare_training_folder.py --testset_ratio 0.3`` leaves."""
    folder = root / "training_folder"
    write(folder / "bucket_indices.json", json.dumps(BUCKETS))
    for bucket in BUCKETS:
        all_of = [(label, number) for label in range(len(CLASSES)) for number in range(EACH)]
        lines = [f"labeled_images/{bucket}/{CLASSES[k]}/{identity(bucket, k, n)}.jpg {k}" for k, n in all_of]
        write(folder / f"filelists/{bucket}/all.txt", "\n".join(lines))
        features = folder / f"features/{name}/{bucket}/all.pth"
        features.parent.mkdir(parents=True)
        torch.save((torch.stack([vector(bucket, k, n) for k, n in all_of]), [k for k, _ in all_of]), features)
        for seed in range(5):
            order = list(range(len(lines)))
            random.seed(seed)
            random.shuffle(order)
            tested = int(len(lines) * 0.3)
            split = folder / f"testset_ratio_0.3/split_{seed}/{bucket}"
            for part, chosen in (("train", order[: len(order) - tested]), ("test", order[len(order) - tested :])):
                write(split / f"{part}.txt", "\n".join(lines[at] for at in chosen))
                write(split / f"{part}_indices.json", json.dumps(chosen))


def write_release(root: Path) -> Path:
    """The whole folder."""
    write_concepts(root)
    write_training_folder(root)
    return root


def write_train_test(root: Path) -> Path:
    """The layout of July 2022: a folder for training, and one for the test set."""
    for part, numbers in (("train", range(5)), ("test", range(5, EACH))):
        write_concepts(root / part, numbers)
        write_features(root / part, numbers=numbers)
    return root
