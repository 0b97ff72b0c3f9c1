"""Try again what was rejected for a reason that may have passed, such as a server that did not answer."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Collection

from .artifact import Artifact, artifact_file, load_artifact
from .part_writer import folder, part_name
from .store import Store, StoreError


def forget_rejects(store: Store, reasons: Collection[str]) -> None:
    """Take away the parts that hold rejects for one of ``reasons``: a run then makes these again, and no others.

    A stage that is not finished, or whose record is damaged, is left as it is: a run looks at its parts itself.

    Raises:
        TypeError: for one text in place of several.
        StoreError: where no row was rejected for one of ``reasons``.
    """
    if isinstance(reasons, str):  # its letters would be the reasons
        raise TypeError(f"retry={reasons!r}: a list of reasons is needed")
    finished: dict[str, Artifact] = {}
    for stage in store.folders("stages"):
        with contextlib.suppress(StoreError):
            if (artifact := load_artifact(store, stage)) is not None:
                finished[stage] = artifact
    known = sorted({reason for artifact in finished.values() for reason in artifact.rejects})
    for reason in reasons:
        if reason not in known:
            told = f"there are {', '.join(known)}" if known else "none was rejected"
            raise StoreError(f"no row of {store.url} was rejected for {reason!r}: {told}")
    for stage, artifact in finished.items():
        if not any(artifact.rejects.get(reason) for reason in reasons):
            continue
        gone = [artifact_file(stage)]  # first: a stage that lacks a part must not say that it is finished
        for number, part in enumerate(artifact.parts):
            name = f"{part_name(number)}.rejects.parquet"
            if name not in part["files"]:
                continue
            rejected = store.read_parquet(posixpath.join(folder(stage), name), ["reason"])["reason"]
            if not set(reasons).isdisjoint(rejected.unique().to_pylist()):
                gone.append(posixpath.join(folder(stage), f"{part_name(number)}.parquet"))
        store.remove(gone)
