"""Publish the shards of a run: the tars under their own names, with index, card and manifest, in one folder."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..curation.artifact import load_run
from ..curation.local_files import replacing
from ..curation.part_writer import folder
from ..curation.publish import ATTRIBUTION, DatasetCard, RepeatedKey, attribution_csv, dataset_files, fact_of
from ..curation.run import Run
from ..curation.store import Store
from ..datasets.reader.features import FEATURES


def publish_shards(
    run: Run,
    card: DatasetCard,
    into: str,
    *,
    leave_out: Collection[str] = (),
    features: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Write the dataset folder of a run whose last stage is a ``shards`` stage.

    If rows name their licences, ``ATTRIBUTION.csv`` is among the files. Tars are hard links if the file system supports them.
    Files of an earlier dataset that are not part of this one are removed.

    Args:
        run: a finished run.
        card: description of the dataset; its ``digest`` is the run's.
        into: the folder to write: a path or fsspec URL, as the run's.
        leave_out: columns to leave out of the index.
        features: files of feature sets already written, with size and SHA-256: see ``feature_sets.write_features``.

    Raises:
        ValueError: the tars hold two samples of one key.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("words.py"), "words")
    >>> card = DatasetCard("Words", "Texts, and how many words each has.", "words", done.result.digest, licence="other")
    >>> publish_shards(done, card, "words/again", leave_out=["commonest"])
    >>> bw.open_dataset("words/again").table.column_names
    ['key', 'shard', 'offset', 'size', 'words', 'sha256']
    """
    store, artifact = run.store, run.result
    tars = {posixpath.basename(n): facts for n, facts in artifact.files().items() if n.endswith(".tar")}
    index = _index(run, leave_out)
    owed = attribution_csv(index)
    beside = {} if owed is None else {ATTRIBUTION: owed}
    facts = {name: fact_of(data) for name, data in beside.items()}
    try:
        written = {**dataset_files(index, card, tars, {**features, **facts}), **beside}
    except RepeatedKey as error:
        raise ValueError(_repeated(run, error.key)) from None
    target = Store(into)
    for name in tars:
        _link(store, posixpath.join(folder(artifact.stage), name), target, name, tars[name])
    write_files(target, written, keep=tars)
    target.remove([name for each in target.list(FEATURES) if (name := posixpath.join(FEATURES, each)) not in features])
    target.remove_folder(FEATURES)


def write_files(target: Store, files: Mapping[str, bytes], *, keep: Collection[str] = ()) -> None:
    """Make ``files`` the only content of a folder, besides those to ``keep``; unchanged files are not written again.

    >>> target = Store("published")
    >>> write_files(target, {"README.md": b"Words", "0000.txt": b"one"})
    >>> write_files(target, {"0001.txt": b"two"}, keep=["README.md"])
    >>> sorted(target.list(""))
    ['0001.txt', 'README.md']
    """
    for name, data in files.items():
        if target.size(name) != len(data) or target.read(name) != data:
            target.write(name, data)
    target.remove([name for name in target.list("") if name not in files and name not in keep])


def publish_plainly(run: Run, config: Any, folder: str) -> None:
    """Publish the shards of a run with a card that names only its pipeline, without licence or content. A plan that does not
    end with shards publishes nothing.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("words.py"), "plain")
    >>> publish_plainly(done, None, "plain/again")
    >>> len(bw.open_dataset("plain/again"))
    2
    """
    if run.result.kind != "shards":
        return
    name = load_run(run.store).pipeline
    publish_shards(run, DatasetCard(name, "", name, run.result.digest, licence="other"), folder)


def _repeated(run: Run, key: str) -> str:
    """Message about a repeated key: names the earliest stage whose output has it twice, and the rows."""
    made = {artifact.stage: artifact for artifact in run.artifacts}
    stage, rows = run.result.stage, _rows_of(run, run.result.stage, key)
    while before := next((name for name in made[stage].recipe["inputs"] if len(_rows_of(run, name, key)) > 1), None):
        stage, rows = before, _rows_of(run, before, key)
    return (
        f"stage {stage!r}: key {key!r} is on rows {rows[0]} and {rows[1]}, so the dataset is not published: give each row "
        "a unique key, or use take_first to reject repeated ones"
    )


def _rows_of(run: Run, stage: str, key: str) -> list[int]:
    return np.flatnonzero(pc.equal(run.rows(stage).table(["key"])["key"], key)).tolist()


def _index(run: Run, leave_out: Collection[str]) -> pa.Table:
    rows = run.rows()
    table = rows.table([name for name in rows.column_names if name not in leave_out])
    places = ["key", "shard", "offset", "size"]
    return table.select([*places, *(name for name in table.column_names if name not in places)])


def _link(store: Store, name: str, target: Store, new: str, facts: Mapping[str, Any]) -> None:
    if store.local is not None and target.local is not None:
        source, link = store.path(name), target.path(new)
        if os.path.exists(link) and os.path.samefile(source, link):
            return
        with replacing(link) as temporary:
            try:
                os.link(source, temporary)
            except OSError:  # another file system, or one without hard links
                shutil.copyfile(source, temporary)
        return
    with store.open(name) as stream, target.writing(new) as out:
        shutil.copyfileobj(stream, out, 1 << 22)
