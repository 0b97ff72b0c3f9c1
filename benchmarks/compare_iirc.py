"""IIRC's assignment beside the PyPI package ``iirc`` 1.0.1 on the same input: sample for sample, time, memory.

The package is installed into a virtual environment of its own (--venv keeps it), and each side runs in a process of its own.
Compared are, for every configuration, role and task, the samples in their order and the labels that each shows. Timed are, in
CPU seconds, reading the input (lists, pixels), and building the four splits of configuration 0 from what was read (median of
three).

    python benchmarks/compare_iirc.py --official FOLDER [--tiny-imagenet val_10000.tar] [--quick] [--venv FOLDER]

``--official`` holds the package's own JSON files (hierarchies and task configurations; the package brings them as well).
Inputs: CIFAR-100's archive with random pixels, IIRC and class-incremental; Tiny-ImageNet's pictures, the first 40 of each class
to train and the last 10 to test, with ImageNet's hierarchy and configurations cut down to its classes; ImageNet's 998 classes
with ``--per-class`` empty files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench_iirc import Held
from benchwright.curation.stages.folder import open_folder, walk
from benchwright.datasets.class_images.cifar import read_archive
from benchwright.datasets.iirc.assign import Shares, assign
from benchwright.datasets.iirc.view import RefinedView

ROLES = ("train", "intask_valid", "posttask_valid", "test")

THEIRS = """
import hashlib, json, sys, time
from iirc import datasets_loader
from iirc.lifelong_dataset.base_dataset import BaseDataset
job = json.loads(sys.argv[1])
datasets_loader.metadata_root = job["metadata"]
class Plain(BaseDataset):
    def __getitem__(self, index): return self.get_item(index)
def build(datasets, facts, number):
    tasks, _ = datasets_loader._get_tasks_configuration(job["name"], number)
    return {split: Plain(datasets[split], tasks, setup=job["setup"], using_image_path=facts["using_image_path"],
        test_mode=split in ("posttask_valid", "test"), superclass_data_pct=facts["superclass_data_pct"],
        subclass_data_pct=facts["subclass_data_pct"], superclass_sampling_size_cap=facts["superclass_sampling_size_cap"])
        for split in datasets}, tasks
def name_of(sample, split):
    if isinstance(sample, str): return "/".join(sample.split("/")[-3:])
    number = int.from_bytes(sample.crop((0, 0, 4, 1)).tobytes()[::3], "little")
    return ("test" if split == "test" else "train") + "/%05d" % number
begun = time.process_time()
datasets, facts = datasets_loader._get_dataset(job["name"], job["root"])
read = time.process_time() - begun
spent = []
for _ in range(3):
    begun = time.process_time()
    first = build(datasets, facts, 0)
    spent.append(time.process_time() - begun)
built = sorted(spent)[1]
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
told = {}
names = {split: [name_of(sample[0], split) for sample in datasets[split]] for split in datasets}
for number in job["configurations"]:
    made, tasks = first if number == 0 else build(datasets, facts, number)
    for split, dataset in made.items():
        for task in range(len(tasks)):
            dataset.choose_task(task)
            whole = hashlib.sha256()
            for place, row in enumerate(dataset.cur_task_data_ids):
                labels = sorted(set(dataset.get_labels(place)) - {"None"})
                whole.update((names[split][row] + " " + "|".join(labels) + "\\n").encode())
            told["%d %s %d" % (number, split, task)] = [len(dataset), whole.hexdigest()]
json.dump({"read": read, "built": built, "peak_mib": peak, "told": told}, sys.stdout)
"""


def ours(job: dict[str, Any]) -> dict[str, Any]:
    """What this project makes of the same input."""
    facts = job["facts"]
    shares = Shares(
        in_task=facts["intask_valid_train_ratio"],
        post_task=facts["posttask_valid_train_ratio"],
        superclass=facts["superclass_data_pct"],
        subclass=facts["subclass_data_pct"],
        cap=facts["superclass_sampling_size_cap"],
    )

    def made(configurations: list[int]) -> Any:
        parts = assign(
            Held([listed]),  # type: ignore[arg-type]
            hierarchy=job["hierarchy"],
            setup="iirc" if job["setup"] == "IIRC" else "class_incremental",
            shares=shares,
            tasks=job["tasks"],
            configurations=configurations,
        )
        return pa.concat_tables(part.kept for part in parts)

    begun = time.process_time()
    listed = read(job)
    spent = time.process_time() - begun
    rounds: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        RefinedView(made([0]), 0)
        rounds.append(time.process_time() - begun)
    built = sorted(rounds)[1]
    # Not getrusage's maximum: that of the process that forked this one would be in it.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    table = made(job["configurations"])
    files = [name.removeprefix("./") for name in table["file"].to_pylist()]
    told: dict[str, Any] = {}
    for number in job["configurations"]:
        view = RefinedView(table, number)
        for role in ROLES:
            for task in range(len(view.tasks)):
                asked = role in ("posttask_valid", "test")
                given = view.evaluation(role, known=task, task=task) if asked else view.training(task, role=role)
                whole = hashlib.sha256()
                for row, labels in zip(given.rows.tolist(), given.labels.tolist(), strict=True):
                    whole.update(
                        f"{files[row]} {'|'.join(sorted(view.classes[label] for label in labels if label >= 0))}\n".encode()
                    )
                told[f"{number} {role} {task}"] = [len(given.rows), whole.hexdigest()]
    return {"read": spent, "built": built, "peak_mib": peak, "told": told}


def read(job: dict[str, Any]) -> Any:
    """The rows of the input; a picture is dropped as soon as its file is there, as a stage writes it out."""

    names = ("key", "split", "class_name", "file")
    if "cifar" in job["name"]:
        rows = ((one.key, one.split, one.class_name, one.file) for one in read_archive(root=job["root"]))
        return pa.table(
            {name: pa.array(column, pa.string()) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
        )
    listed: list[pa.Table] = []
    for at, entries in walk(open_folder(job["root"]), sizes=False):  # paths alone, as the package lists them
        split, _, name = at.partition("/")
        files = pa.array([f"{at}/{entry.name}" for entry in entries], pa.string())
        split, name = (pa.repeat(value, len(files)) for value in ("test" if split == "val" else split, name))
        listed.append(pa.table([files, split, name, files], names))
    return pa.concat_tables(listed)


# ---------------------------------------------------------------------------------------------------------------- inputs


def synthetic_cifar(folder: Path, quick: bool) -> None:
    """An archive of CIFAR-100's size (a tenth with ``quick``), the number of each picture in its first four reds."""
    generator = np.random.default_rng(0)
    inner = folder / "cifar-100-python"
    inner.mkdir(parents=True)
    names = sorted(json.loads((folder.parent / "metadata" / "cifar100_classes.json").read_text())["classes"])
    for name, count in (("train", 5_000 if quick else 50_000), ("test", 1_000 if quick else 10_000)):
        data = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
        data[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
        labels = generator.permutation(np.arange(count) % 100).tolist()
        content = {b"data": data, b"fine_labels": labels}
        (inner / name).write_bytes(pickle.dumps(content, protocol=4))
    (inner / "meta").write_bytes(pickle.dumps({b"fine_label_names": [name.encode() for name in names]}, protocol=4))


def tiny_imagenet(tar: Path, folder: Path, metadata: Path) -> None:
    """The pictures as train/ and val/ folders, and the official files cut down to their classes."""
    by_class: dict[str, list[tuple[str, bytes]]] = {}
    with tarfile.open(tar) as archive:
        for member in archive:
            body = archive.extractfile(member) if member.isfile() else None
            if body is not None:
                name, file = member.name.removeprefix("./").split("/")[-2:]
                by_class.setdefault(name, []).append((file, body.read()))
    for name, found in by_class.items():
        for number, (file, data) in enumerate(sorted(found)):
            place = folder / ("train" if number < 40 else "val") / name
            place.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(data)
    known: set[str] = set()
    for file in metadata.glob("iirc_imagenet*.json"):
        value = json.loads(file.read_text())
        if "hierarchy_wnids" in file.name:
            value["super_classes"] = {
                top: kept for top, subs in value["super_classes"].items() if (kept := [sub for sub in subs if sub in by_class])
            }
            value["other_sub_classes"] = [sub for sub in value["other_sub_classes"] if sub in by_class]
            known = {*by_class, *value["super_classes"]}
            file.write_text(json.dumps(value))
    for file in metadata.glob("iirc_imagenet*task_configurations.json"):
        value = json.loads(file.read_text())
        for name, tasks in value.items():
            kept_tasks = [left for labels in tasks.values() if (left := [label for label in labels if label in known])]
            value[name] = {f"task_{number}": labels for number, labels in enumerate(kept_tasks)}
        file.write_text(json.dumps(value))


def empty_imagenet(folder: Path, metadata: Path, per_class: int) -> None:
    """Folders of 998 classes with empty files: neither side looks into them."""
    tree = json.loads((metadata / "iirc_imagenet_hierarchy_wnids.json").read_text())
    for name in [*tree["other_sub_classes"], *(sub for subs in tree["super_classes"].values() for sub in subs)]:
        for split, count in (("train", per_class), ("val", max(per_class // 10, 1))):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                (place / f"{name}_{number}.JPEG").touch()


# ------------------------------------------------------------------------------------------------------------- comparing


def compare(python: Path, job: dict[str, Any]) -> bool:
    """Run both sides and print what was found. ``-O`` leaves out the package's own check for 998 classes."""

    def answer(what: str, command: list[str]) -> dict[str, Any]:
        run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=3600, check=False)
        if run.returncode:
            raise SystemExit(f"{what} failed:\n{run.stderr[-2000:]}")
        return json.loads(run.stdout[run.stdout.index('{"read') :])

    theirs = answer("iirc", [str(python), "-O", "-W", "ignore", "-c", THEIRS, json.dumps(job)])
    mine = answer("benchwright", [sys.executable, __file__, "--ours", json.dumps(job)])
    different = [place for place in {**theirs["told"], **mine["told"]} if theirs["told"].get(place) != mine["told"].get(place)]
    samples = sum(count for count, _ in theirs["told"].values())
    verdict = "DIFFERENT at " + ", ".join(different[:5]) if different else "equal, in order and labels"
    print(f"{job['title']}: {len(theirs['told']):,} sets, {samples:,} samples in them: {verdict}")
    for what in ("read", "built"):
        pair = (theirs[what], mine[what])
        print(f"  CPU seconds, {what}: iirc {pair[0]:.2f}, benchwright {pair[1]:.2f}: ratio {pair[0] / pair[1]:.1f}")
    print(f"  peak memory: iirc {theirs['peak_mib']:.0f} MiB, benchwright {mine['peak_mib']:.0f} MiB", flush=True)
    return not different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", type=Path, help="folder of the official JSON files")
    parser.add_argument("--tiny-imagenet", type=Path, help="tar of class folders")
    parser.add_argument("--per-class", type=int, default=260, help="files a class of the empty ImageNet")
    parser.add_argument("--venv", type=Path, help="environment with the package, made if it is not there")
    parser.add_argument("--quick", action="store_true", help="a tenth of CIFAR, 20 files a class, two configurations")
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        json.dump(ours(json.loads(options.ours)), sys.stdout)
        return
    if options.official is None:
        parser.error("--official is needed: the folder of the official JSON files")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        place: Path = options.venv or work / "venv"
        if not (place / "bin" / "python").exists():
            venv.create(place, with_pip=True)
        packages = ["iirc==1.0.1", "numpy", "Pillow"]
        subprocess.run(
            [place / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True, stdin=subprocess.DEVNULL
        )
        ok = [compare(place / "bin" / "python", job) for job in jobs(options, work)]
    sys.exit(0 if all(ok) else 1)


def jobs(options: argparse.Namespace, work: Path) -> Iterator[dict[str, Any]]:
    """One comparison after the other, its input made just before."""
    facts = json.loads((options.official / "dataset_configurations.json").read_text())
    few = [0, 1] if options.quick else None

    def metadata(folder: str) -> Path:
        made = work / folder / "metadata"
        made.mkdir(parents=True)
        for file in options.official.glob("*.json"):
            (made / file.name).write_text(file.read_text())
        return made

    def job(title: str, name: str, setup: str, root: Path, at: Path, count: int) -> dict[str, Any]:
        wnids = "iirc_cifar100_hierarchy.json" if "cifar" in name else "iirc_imagenet_hierarchy_wnids.json"
        wnids = "cifar100_classes.json" if setup == "CIL" else wnids
        return {
            "title": title,
            "name": name,
            "setup": setup,
            "root": str(root),
            "metadata": str(at),
            "hierarchy": str(at / wnids),
            "tasks": str(at / f"{name}_task_configurations.json"),
            "configurations": few or list(range(count)),
            "facts": facts[name.removesuffix("_full").removesuffix("_lite")],
        }

    at = metadata("cifar")
    synthetic_cifar(work / "cifar" / "data", options.quick)
    # The package wants the archive's folder within the root, this project the folder itself: a link serves both.
    root = work / "cifar" / "data" / "cifar-100-python"
    (root / "cifar-100-python").symlink_to(root)
    yield job("IIRC-CIFAR, random pixels", "iirc_cifar100", "IIRC", root, at, 10)
    yield job("class-incremental CIFAR, random pixels", "incremental_cifar100", "CIL", root, at, 10)
    if options.tiny_imagenet:
        at = metadata("tiny")
        tiny_imagenet(options.tiny_imagenet, work / "tiny" / "data", at)
        yield job(
            "IIRC-ImageNet-full on Tiny-ImageNet's 200 classes", "iirc_imagenet_full", "IIRC", work / "tiny" / "data", at, 5
        )
        yield job(
            "IIRC-ImageNet-lite on Tiny-ImageNet's 200 classes", "iirc_imagenet_lite", "IIRC", work / "tiny" / "data", at, 5
        )
    at, per_class = metadata("imagenet"), 20 if options.quick else options.per_class
    empty_imagenet(work / "imagenet" / "data", at, per_class)
    title = f"IIRC-ImageNet-full, 998 classes with {per_class} empty files"
    yield {**job(title, "iirc_imagenet_full", "IIRC", work / "imagenet" / "data", at, 1), "configurations": [0]}


if __name__ == "__main__":
    main()
