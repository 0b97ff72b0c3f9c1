"""A run as its pages read it: stages, rows, payloads, and the path of a row through the stages."""

from __future__ import annotations

import dataclasses
import functools
import os
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

from ...curation.artifact import Artifact, RunRecord, artifact_file, load_artifact, load_made, load_run
from ...curation.part_writer import folder, part_name, written_parts
from ...curation.rows import REJECTS, is_array, is_blob
from ...curation.shards import read_sample
from ...curation.store import Store, StoreError
from ...curation.video.frames import unpack_frames
from .cache import Cache
from .clips import clip_jpegs
from .payloads import Payload, payload_of
from .query import Refused
from .table import Database, ParquetRows

MOST_BYTES = 1 << 26
"""Larger payloads are not read."""
_SENT_BYTES = 1 << 26
FRAMES = 3
"""From this number of pictures on, the pictures of a row are the frames of a clip."""
_RECENT = 2000
_MOST_MADE = 20
"""Most rows made from one row that are listed."""


class NotThere(Refused):
    """A stage, row or payload that the run does not have."""


def _sizes(row: Mapping[str, Any], size: int) -> list[int]:
    """Sizes of the files concatenated in a payload of ``size`` bytes, if a column of the row contains them."""
    lists = (value for value in row.values() if isinstance(value, list) and len(value) > 1)
    whole = (value for value in lists if all(isinstance(each, int) and each > 0 for each in value))
    return next((value for value in whole if sum(value) == size), [])


@functools.lru_cache(maxsize=256)
def _loaded(store: Store, stage: str, state: tuple[int, ...]) -> Artifact | None:
    """The artifact of a stage, cached while its file has that state: every picture of a page needs it."""
    return load_artifact(store, stage)


@functools.lru_cache(maxsize=16)
def _record(store: Store, state: tuple[int, ...]) -> RunRecord:
    return load_run(store)


def _state(path: str) -> tuple[int, ...]:
    """Inode, modification time and size, which change when a file is replaced."""
    facts = os.stat(path)
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _schema(store: Store, name: str, digest: str) -> pa.Schema:
    """Columns of a part; cached for a finished stage, by its digest."""
    kept = _schemas.get((store, name, digest)) if digest else None
    return kept or _schemas.keep((store, name, digest), store.read_parquet(name, stop=0).schema)


_schemas: Cache[pa.Schema] = Cache(256, lambda _: 1)


@dataclasses.dataclass(frozen=True)
class RelatedRow:
    """An earlier or later form of a row: its stage, its key, and a note on what happened to it."""

    stage: str
    key: str
    note: str = ""
    rejected: bool = False


@dataclasses.dataclass(frozen=True)
class ShownPicture:
    """Addresses of a picture of a row, and of its larger version."""

    name: str
    thumb: str
    large: str

    @classmethod
    def of(cls, run: ShownRun, stage: str, key: str, name: str) -> ShownPicture:
        """The picture of a payload."""
        return cls(name, *(payload_address(run, stage, key, name, form) for form in ("thumb", "large")))


@dataclasses.dataclass(frozen=True)
class ShownRun:
    """A run in a local folder.

    Attributes:
        out: the folder.
        base: prefix of the addresses of its pages.
        database: database that reads its tables.
        compared: whether another run is shown next to it.
        recent: recently shown rows, by stage, content digest and key: their pictures are requested next.
        pictures: pictures sent by visitors for a search, by digest.
    """

    out: str
    base: str
    database: Database
    compared: bool = False
    recent: Cache[dict[str, Any]] = dataclasses.field(
        default_factory=lambda: Cache(_RECENT, lambda _: 1), repr=False, compare=False
    )
    pictures: Cache[bytes] = dataclasses.field(default_factory=lambda: Cache(_SENT_BYTES, len), repr=False, compare=False)

    @property
    def store(self) -> Store:
        """The folder as a store."""
        return Store(self.out)

    @property
    def record(self) -> RunRecord:
        """Record of the run: pipeline, stages and settings."""
        try:
            return _record(self.store, _state(self.store.path("run.json")))
        except FileNotFoundError:
            return load_run(self.store)  # raises an error that says so

    def stages(self) -> dict[str, Artifact | None]:
        """Every stage in order, None for those that are not finished."""
        return {name: self.artifact(name) for name in self.record.stages}

    def artifact(self, stage: str) -> Artifact | None:
        """The artifact of a stage; None if it is not finished. Raises ``NotThere`` if the run has no such stage."""
        names = self.record.stages
        if stage not in names:
            raise NotThere(f"no stage {stage[:80]!r}: there are {', '.join(names)}")
        try:
            return _loaded(self.store, stage, _state(self.store.path(artifact_file(stage))))
        except FileNotFoundError:
            return None

    def rows(self, stage: str) -> ParquetRows:
        """Rows of a stage; for an unfinished stage, those of the parts written so far."""
        artifact = self.artifact(stage)
        if artifact is not None:
            names = [posixpath.join(folder(stage), f"{part_name(number)}.parquet") for number in range(len(artifact.parts))]
            count = artifact.rows
        else:
            names = [f"{part}.parquet" for part in written_parts(self.store, stage)]
            count = sum(self._count(name) for name in names)
        schema = (
            _schema(self.store, names[0], artifact.digest if artifact else "") if names else pa.schema([("key", pa.string())])
        )
        return ParquetRows(self.database, [self.file(name) for name in names], schema, count)

    def rejects(self, stage: str) -> ParquetRows:
        """Rejected rows of a stage, finished or not."""
        artifact = self.artifact(stage)
        names = (
            artifact.reject_files() if artifact else [f"{part}.rejects.parquet" for part in written_parts(self.store, stage)]
        )
        names = [name for name in names if artifact or self.store.exists(name)]
        count = sum(artifact.rejects.values()) if artifact else sum(self.part_rejects(stage).values())
        return ParquetRows(self.database, [self.file(name) for name in names], REJECTS, count)

    def _count(self, name: str) -> int:
        return pq.read_metadata(self.file(name)).num_rows

    def part_rejects(self, stage: str) -> dict[str, int]:
        """Reason -> rows, over the parts written so far."""
        found: dict[str, int] = {}
        for part in written_parts(self.store, stage):
            for reason, rows in self.store.footer(f"{part}.parquet")["rejects"].items():
                found[reason] = found.get(reason, 0) + rows
        return found

    def progress(self, stage: str) -> dict[str, Any]:
        """Progress of an unfinished stage: parts, rows and rejects, rows per second, and seconds since the last part."""
        parts = [f"{part}.parquet" for part in written_parts(self.store, stage)]
        times = sorted(os.stat(self.store.path(name)).st_mtime for name in parts)
        rejects = self.part_rejects(stage)
        rows = sum(self._count(name) for name in parts)
        taken = times[-1] - times[0] if len(times) > 1 else 0.0
        done = rows + sum(rejects.values())
        rate = done * (len(times) - 1) / len(times) / taken if taken > 0.05 else None  # the first part took time before
        since = time.time() - times[-1] if times else None
        return {"parts": len(parts), "rows": rows, "rejects": rejects, "rate": rate, "since": since, "done": done}

    def seconds(self, stage: str) -> float | None:
        """How long a finished stage took."""
        return load_made(self.store, stage).get("seconds")

    def file(self, name: str) -> str:
        """Full path of a file that the records name. Raises ``StoreError`` if a link leads out of the run."""
        path = os.path.realpath(self.store.path(name))
        if os.path.commonpath([path, os.path.realpath(self.out)]) != os.path.realpath(self.out):
            raise StoreError(f"{name} is a link that leaves the run: nothing is read through it")
        return path

    # ---------------------------------------------------------------------------------------------------- one row

    def row(self, stage: str, key: str) -> dict[str, Any]:
        """The row with that key. Raises ``NotThere`` if there is none."""
        artifact = self.artifact(stage)
        if (row := self.recent.get((stage, artifact.digest if artifact else "", key))) is not None:
            return row
        found = self.rows(stage).by_key(key)
        if not found:
            raise NotThere(f"stage {stage} has no row {key[:200]!r}")
        return found[0]

    def remember(self, stage: str, rows: Sequence[dict[str, Any]]) -> None:
        """Cache rows that are shown, for the requests of their pictures."""
        artifact = self.artifact(stage)
        for row in rows:
            self.recent.keep((stage, artifact.digest if artifact else "", row["key"]), row)

    def payloads(self, stage: str, row: Mapping[str, Any], only: str = "") -> dict[str, Payload]:
        """Payloads of a row: by column, or, for a sample in a shard, by extension. Payloads that are too large are left out.

        Args:
            stage: stage of the row.
            row: columns of the row.
            only: name of a single payload to return; "" for all.
        """
        found: dict[str, Payload] = {}
        for name, value in self._values(stage, row, only):
            payload = payload_of(name, value)
            if payload.kind == "clip" and payload.data is not None and (not only or only.startswith(f"{name}:")):
                try:
                    jpegs = clip_jpegs(payload.data)
                except Refused as error:
                    jpegs, payload = [], dataclasses.replace(payload, note=str(error))
                found |= {each: Payload(each, "picture", jpeg) for at, jpeg in enumerate(jpegs) if (each := f"{name}:{at:04d}")}
            found[name] = payload
        return {name: payload for name, payload in found.items() if only in ("", name)}

    def _values(self, stage: str, row: Mapping[str, Any], only: str) -> Iterator[tuple[str, Any]]:
        artifact = self.artifact(stage)
        if artifact is not None and artifact.kind == "shards":
            yield from self._sample(stage, row).items()
            return
        for field in self.rows(stage).schema:
            ref = row.get(field.name) if only in ("", field.name) or only.startswith(f"{field.name}:") else None
            if not ref:
                continue
            if is_blob(field) and ref["size"] <= MOST_BYTES:
                self.file(ref["file"])
                data, sizes = self.store.blob(ref).read(), _sizes(row, ref["size"])
                frames = unpack_frames(data, sizes) if sizes else []
                yield from ((f"{field.name}:{at:04d}", frame) for at, frame in enumerate(frames))
                if not frames:
                    yield field.name, data
            elif is_array(field):
                self.file(ref["file"])
                stored = self.store.array(ref["file"])
                if stored[:1].nbytes <= MOST_BYTES:
                    yield field.name, stored[ref["row"]].copy()

    def _sample(self, stage: str, row: Mapping[str, Any]) -> dict[str, bytes]:
        if row["size"] > MOST_BYTES:
            return {}
        name = posixpath.join(folder(stage), f"{row['shard']}.tar")
        self.file(name)
        return read_sample(self.store.read(name, row["offset"], row["size"]), row["key"], place=name, base=row["offset"])

    def payload(self, stage: str, key: str, name: str) -> Payload:
        """One payload of a row. Raises ``NotThere`` if the row has none of that name."""
        found = self.payloads(stage, self.row(stage, key), name)
        if name not in found:
            raise NotThere(
                f"row {key[:200]!r} of stage {stage} has no payload {name[:80]!r}, or one that is too large to be shown"
            )
        return found[name]

    def before(self, stage: str, row: Mapping[str, Any]) -> list[RelatedRow]:
        """The rows that a row was made from, nearest first, back to the source."""
        stages = self.stages()
        found: dict[tuple[str, str], RelatedRow] = {}
        waiting = [(stage, row)]
        while waiting:
            name, one = waiting.pop(0)
            artifact = stages[name]
            for source in artifact.recipe["inputs"] if artifact else ():
                if stages.get(source) is None:
                    continue
                for key in dict.fromkeys(filter(None, [one.get("source_key"), one["key"]])):
                    rows = [] if (source, key) in found else self.rows(source).by_key(str(key))
                    if rows:
                        found[source, key] = RelatedRow(source, str(key))
                        waiting.append((source, rows[0]))
                        break
        return list(found.values())

    def after(self, stage: str, key: str) -> list[RelatedRow]:
        """What a row became in later stages, up to its shard or the stage that rejected it."""
        stages = self.stages()
        keys: dict[str, list[str]] = {stage: [key]}
        found: list[RelatedRow] = []
        for name, artifact in stages.items():
            before = [one for source in (artifact.recipe["inputs"] if artifact else ()) for one in keys.get(source, ())]
            if artifact is None or name == stage:
                continue
            for one in dict.fromkeys(before):
                rows = self.rows(name)
                mine = rows.by_key(one)
                if not mine and "source_key" in rows.schema.names:
                    mine = rows.by_key(one, "source_key", _MOST_MADE)
                for row in mine:
                    text = f"shard {row['shard']}.tar, byte {row['offset']:,}" if artifact.kind == "shards" else ""
                    found.append(RelatedRow(name, row["key"], text))
                    keys.setdefault(name, []).append(row["key"])
                if not mine:
                    gone = self.rejects(name).by_key(one)
                    found += [
                        RelatedRow(name, one, ": ".join(filter(None, (each["reason"], each["detail"]))), rejected=True)
                        for each in gone
                    ]
        return found


def pictured(run: ShownRun, stage: str, found: Sequence[dict[str, Any]]) -> list[str]:
    """Payloads that are shown next to each row, going by the first row: at most two pictures, or the first frame of a clip."""
    if not found:
        return []
    names = [name for name, payload in run.payloads(stage, found[0]).items() if payload.seen]
    return names[: 1 if len(names) >= FRAMES else 2]


def row_address(run: ShownRun, stage: str, key: str) -> str:
    """Address of a row's page. The key is in the query, since it may be any text, such as ".."."""
    return f"{run.base}/stage/{stage}/row?{urlencode({'key': key})}"


def payload_address(run: ShownRun, stage: str, key: str, name: str, form: str, **more: str) -> str:
    """Address of a payload, in one of its forms."""
    return f"{run.base}/stage/{stage}/payload?{urlencode({'key': key, 'name': name, 'form': form, **more})}"
