"""What a finished stage says of itself, and how to read it back."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from .keys import canonical, sha256
from .part_writer import folder, part_name
from .records import Damaged, unsealed
from .store import PartInfo, Rows, Store, StoreError


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A finished stage.

    Attributes:
        stage: its name.
        kind: one of ``flow.KINDS``.
        key: recipe key: what should be made, from kind, code, settings and the content of the inputs.
        digest: content digest: what was made.
        layout: digest of where payloads lie; stages that refer to them are made again when it changes.
        recipe: the function, its settings, its code's digest and the inputs' digests, readable.
        rows_in: rows that came in.
        rows: rows that went out.
        rejects: reason -> rows turned away.
        parts: for every part its number of rows and the size and SHA-256 of its files.
    """

    stage: str
    kind: str
    key: str
    digest: str
    layout: str
    recipe: Mapping[str, Any]
    rows_in: int
    rows: int
    rejects: Mapping[str, int]
    parts: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """For ``artifact.json``: the same for equal runs, byte for byte."""
        return sealed({**dataclasses.asdict(self), "parts": list(self.parts)})

    def files(self) -> dict[str, Mapping[str, Any]]:
        """Name within the store -> size and SHA-256, of all files of the stage but its two JSON files."""
        return {posixpath.join(folder(self.stage), name): facts for part in self.parts for name, facts in part["files"].items()}

    def rows_view(self, store: Store, recent: Mapping[str, pa.Table] | None = None) -> Rows:
        """The rows, for reading; those of parts that ``recent`` names by file are taken from there."""
        infos = tuple(
            PartInfo(posixpath.join(folder(self.stage), f"{part_name(number)}.parquet"), part["rows"])
            for number, part in enumerate(self.parts)
        )
        return Rows(store, read_schema(store, infos[0].name), infos, recent or {})

    def reject_files(self) -> list[str]:
        """Names within the store of the tables of rejects."""
        return [name for name in self.files() if name.endswith(".rejects.parquet")]


def read_schema(store: Store, name: str) -> pa.Schema:
    """Columns of a part, without the record in its footer."""
    return store.read_parquet(name, stop=0).schema.remove_metadata()


def artifact_file(stage: str) -> str:
    """Name of a stage's ``artifact.json`` within the store."""
    return posixpath.join(folder(stage), "artifact.json")


def load_artifact(store: Store, stage: str) -> Artifact | None:
    """A stage's artifact, or None where the stage is not finished. Raises ``StoreError`` where the record is damaged."""
    name = artifact_file(stage)
    if not store.exists(name):
        return None
    raw = read_sealed(store, name)
    try:
        raw["parts"] = tuple(raw["parts"])
        return Artifact(**raw)
    except (KeyError, TypeError) as error:
        raise StoreError(f"{store.url}: {name} is not the record of a stage: {error}") from None


def load_made(store: Store, stage: str) -> dict[str, Any]:
    """A stage's ``made.json``, which says when and how it was made; empty where there is none.

    Raises:
        StoreError: where it is damaged.
    """
    name = posixpath.join(folder(stage), "made.json")
    return read_sealed(store, name) if store.exists(name) else {}


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with a digest of itself, ``seal``, so that an edit shows."""
    return {**record, "seal": sha256(canonical(record))}


def read_sealed(store: Store, name: str) -> dict[str, Any]:
    """A record without its seal. Raises ``StoreError`` where the seal does not fit: the file was damaged, or edited."""
    try:
        return unsealed(store.read(name))
    except Damaged as error:
        raise StoreError(f"{posixpath.join(store.url, name)} {error}") from None


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """``run.json``: which pipeline filled a folder, with which settings and stages.

    Attributes:
        pipeline: its name.
        config: all settings.
        overrides: those given for this run alone.
        stages: their names in order.
        result: the one whose rows are the result.
        published: SHA-256 of the published ``dataset.json``, or "" before.
        outdated: whether that was made with other settings: the run with these has not come to its end.
    """

    pipeline: str
    config: Mapping[str, Any]
    overrides: Mapping[str, Any]
    stages: tuple[str, ...]
    result: str
    published: str = ""
    outdated: bool = False

    def after(self, earlier: RunRecord | None) -> RunRecord:
        """This record at the start of a run in the folder of an earlier one, whose dataset is there until a new one is."""
        if earlier is None or not earlier.published:
            return self
        outdated = earlier.outdated or earlier.config != self.config
        return dataclasses.replace(self, published=earlier.published, outdated=outdated)

    def save(self, store: Store) -> None:
        """Write ``run.json``."""
        store.write_json("run.json", sealed({**dataclasses.asdict(self), "stages": list(self.stages)}))


def load_run(store: Store) -> RunRecord:
    """Read ``run.json``. Raises ``StoreError`` where the folder holds no run."""
    if not store.exists("run.json"):
        raise StoreError(f"{store.url} holds no run: there is no run.json in it")
    raw = read_sealed(store, "run.json")
    try:
        raw["stages"] = tuple(raw["stages"])
        return RunRecord(**raw)
    except (KeyError, TypeError) as error:
        raise StoreError(f"{store.url}: run.json is not the record of a run: {error}") from None
