"""What an open-world run leaves on disk, increment by increment.

::

    progress.json                       identity, one record a finished increment, the checkpoint's name and SHA-256
    after-003.npz                       the predictor's state after the last finished increment
    predictions/step-003-pre/test.parquet   uid, truth (class index), in the increment's order
    predictions/step-003-pre/test.npy       probabilities (n, c) float32; labels of the c columns stand in the record
    predictions/step-003-feedback.npy       rows of the training split that were labelled, in the order asked for

A step's files are written first and named, with their SHA-256, by ``progress.json``, which is replaced last: a kill at any
moment leaves the state after the last finished increment, and what it left half written is written again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...curation.files import write_whole, writing
from .predictor import Labels, Probabilities, State, Uids
from .run import Occupied, check_identity, checked_checkpoint, file_digest, read_held, remove_old, taking_up, to_json

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Stored:
    """Predictions of one split in one phase.

    Attributes:
        uid: (n,) strings.
        truth: (n,) int64 class indices.
        columns: (c,) int64 labels.
        probabilities: (n, c) float32, memory-mapped.
    """

    uid: Uids
    truth: Labels
    columns: Labels
    probabilities: Probabilities


def write_array(path: Path, array: NDArray[Any]) -> str:
    """Write a .npy; returns its SHA-256."""
    with writing(path) as stream:
        np.save(stream, array, allow_pickle=False)
    return file_digest(path)


def write_prediction(folder: Path, split: str, stored: Stored) -> Record:
    """Write one split's predictions; returns the record that ``read_prediction`` needs."""
    probabilities = write_array(folder / f"{split}.npy", stored.probabilities)
    with writing(folder / f"{split}.parquet") as stream:
        pq.write_table(pa.table({"uid": pa.array(stored.uid.tolist(), pa.string()), "truth": stored.truth}), stream)
    samples = file_digest(folder / f"{split}.parquet")
    return {"columns": stored.columns.tolist(), "n": len(stored.uid), "probabilities": probabilities, "samples": samples}


def read_prediction(folder: Path, split: str, record: Mapping[str, Any]) -> Stored:
    """Read what ``write_prediction`` wrote.

    Raises:
        Occupied: a file is missing or is not the one of the record.
    """
    for name, digest in ((f"{split}.parquet", record["samples"]), (f"{split}.npy", record["probabilities"])):
        _check(folder / name, digest, folder.parents[1])
    samples = pq.read_table(folder / f"{split}.parquet")
    probabilities = np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False)
    return Stored(
        np.asarray(samples["uid"].to_pylist(), dtype=np.str_),
        samples["truth"].to_numpy(),
        np.asarray(record["columns"], dtype=np.int64),
        probabilities,
    )


def read_rows(path: Path, digest: str) -> Labels:
    """The rows that were labelled in one increment."""
    _check(path, digest, path.parents[1])
    return np.load(path, allow_pickle=False)


def read_progress(out: Path, whose: Mapping[str, Any] | None = None) -> tuple[list[Record], State] | None:
    """Records of the finished increments and the predictor's state; None where nothing is finished.

    Raises:
        Occupied: the folder holds a run of another identity than ``whose``, or it is damaged.
    """
    held = read_held(out, "checkpoint", "steps")
    if held is None:
        return None
    if whose is not None:
        check_identity(held["identity"], whose, out)
    with taking_up(out), np.load(checked_checkpoint(out, held), allow_pickle=False) as arrays:
        return held["steps"], {name: arrays[name] for name in arrays.files}


def commit(out: Path, whose: Mapping[str, Any], steps: Sequence[Record], state: State) -> None:
    """Make the last of ``steps`` a finished one."""
    checkpoint = out / f"after-{len(steps):03}.npz"
    with writing(checkpoint) as stream:
        np.savez(stream, allow_pickle=False, **{name: np.asarray(state[name]) for name in sorted(state)})
    progress = {
        "checkpoint": {"file": checkpoint.name, "sha256": file_digest(checkpoint)},
        "format": 1,
        "identity": whose,
        "steps": list(steps),
    }
    write_whole(out / "progress.json", to_json(progress))
    remove_old(out, checkpoint)


def _check(path: Path, digest: str, out: Path) -> None:
    if not path.exists() or file_digest(path) != digest:
        raise Occupied(out, f"{path} is missing or is not the one that progress.json names")
