"""A release of CLEAR: its lists, its metadata and its vectors."""

from __future__ import annotations

from . import hostile_arrays, hostile_tables, valid
from .parser import Parser, Tree, by_plan

_CLASSES = ("BACKGROUND", "bus")
_EACH = 5


def _release() -> Tree:
    import torch

    names = [(label, name, f"{label}{number}") for label, name in enumerate(_CLASSES) for number in range(_EACH)]
    paths = {key: f"labeled_images/1/{name}/{key}.png" for _, name, key in names}
    made: Tree = {path: valid.picture("PNG", key) for key, path in paths.items()}
    lines = [f"{paths[key]} {label}".encode() for label, _, key in names]
    made |= {"class_names.txt": "\n".join(_CLASSES).encode(), "training_folder/bucket_indices.json": valid.text(["1"])}
    made["training_folder/filelists/1/all.txt"] = b"\n".join(lines)
    split = "training_folder/testset_ratio_0.3/split_0/1"
    made |= {f"{split}/train.txt": b"\n".join(lines[::2]), f"{split}/test.txt": b"\n".join(lines[1::2])}
    made["labeled_metadata.json"] = valid.text({"1": {name: f"labeled_metadata/1/{name}.json" for name in _CLASSES}})
    for of in _CLASSES:
        keys = [key for _, name, key in names if name == of]
        metadata = {key: {"ID": key, "DATE_TAKEN": "2006-02-28 20:33:06.0", "IMG_PATH": paths[key]} for key in keys}
        made[f"labeled_metadata/1/{of}.json"] = valid.text(metadata)
    values = torch.from_numpy(valid.draw("release").normal(size=(len(names), 4)).astype("float32"))
    made["training_folder/features/moco_b0/1/all.pth"] = valid.torch_file((values, [label for label, *_ in names]))
    return made


def _without_lists() -> Tree:
    return {name: data for name, data in _release().items() if not name.startswith("training_folder/")}


def parsers() -> list[Parser]:
    """The release's files, as a run reads them."""
    whole = by_plan("clear", ("source.root='{in}'",), "with_features", config="clear10_release")
    images = by_plan("clear", ("source.root='{in}'", "source.features=[]"), "checked", config="clear10_release")
    lists, metadata = "training_folder/filelists/1/all.txt", "labeled_metadata/1/bus.json"
    vectors = "training_folder/features/moco_b0/1/all.pth"
    return [
        Parser("release, list", _release, lists, images, text=True, specials=hostile_tables.lines(lists)),
        Parser("release, metadata", _without_lists, metadata, images, text=True, specials=hostile_tables.json_files(metadata)),
        Parser("release, vectors", _release, vectors, whole, specials=hostile_arrays.torch_files(vectors)),
    ]
