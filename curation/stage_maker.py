"""Make one stage of a run: its key, which parts exist already, its tasks, and its commit."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import functools
import importlib.metadata
import platform
import posixpath
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from .artifact import Artifact, artifact_file, code_file, load_artifact
from .budget import check_not_empty
from .code_changes import change, change_of_sources, codes, codes_of, definitions, edited, in_no_file, named_in, without_code
from .cost import Meter
from .digest import Ledger
from .flow import PlanError, Stage
from .key_hashes import KeySum, key_hashes
from .keys import WhereOfRows, canonical, sha256
from .local_files import remove_half_written
from .part_writer import BEGUN, WORK, PartRecord, StepFailed, folder, part_name
from .parts import Offer
from .reachable_code import one_look
from .recipe import recipe_of, sources_among, within
from .records import sealed
from .requirements import needs_gpu
from .store import Store, StoreError
from .tasks import PartTask, stage_tasks

FINGERPRINTS = ".fingerprints.json"
"""File of a run's folder with the fingerprints of sources that were read, so that unchanged files are not read again."""

_RECORDED = (
    *("benchwright", "numpy", "scipy", "pyarrow", "polars", "dask", "faiss-cpu", "faiss-gpu"),
    *("torch", "torchvision", "timm", "open_clip_torch", "onnxruntime", "openvino"),
    *("pillow", "simplejpeg", "av", "rawpy", "opencv-python-headless", "colour-science"),
)
"""Packages on which the content of a stage may depend; their versions are recorded in ``made.json``."""

StageState = Literal["stale", "running", "done", "reused", "waiting"]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Argument of ``on_progress``, which is called after every part, and once at the end of every stage.

    Attributes:
        stage: name of the stage.
        index: its place in the plan, from 0.
        stages: number of stages in the plan.
        state: ``running``, ``done``, ``reused``, ``waiting``, or ``stale``: it exists, and is made again.
        rows: number of input rows so far.
        rows_before: number of those in parts that were there, of a run that was interrupted.
        rows_total: number of all its input rows; None if it is not known yet, as for a source.
        rejects: number of rejected rows so far.
        seconds: time since the stage began.
        why: why an existing stage is stale.
        bytes: size of the files of a stage that has just been made.
        cost: its cost, see ``Meter.cost``.

    >>> from words import read_texts
    >>> from benchwright import source, step, where
    >>> from benchwright.curation.run import run
    >>> told = []
    >>> done = run(source("listed", step(read_texts, folder=where("texts"))), "told", scheduler="sync", on_progress=told.append)
    >>> told[-1].stage, told[-1].state, told[-1].rows, told[-1].rejects
    ('listed', 'done', 3, 0)
    """

    stage: str
    index: int
    stages: int
    state: StageState
    rows: int
    rows_total: int | None
    rejects: int
    seconds: float
    why: str = ""
    bytes: int = 0
    cost: Mapping[str, Any] | None = None
    rows_before: int = 0

    @property
    def rows_per_s(self) -> float | None:
        """Input rows a second, of those made now; None if there are none, or the time is too short to tell."""
        now = self.rows - self.rows_before
        return now / self.seconds if now and self.seconds > 0.05 else None


class Reporter:
    def __init__(self, tell: Callable[[Progress], None], stage: str, index: int, stages: int) -> None:
        self._tell, self._stage, self._index, self._stages = tell, stage, index, stages
        self._started = time.perf_counter()
        self.rows_before = 0

    def __call__(self, state: StageState, rows: int, rows_total: int | None, rejects: int, why: str = "", **more: Any) -> None:
        seconds = time.perf_counter() - self._started
        more["rows_before"] = self.rows_before
        self._tell(Progress(self._stage, self._index, self._stages, state, rows, rows_total, rejects, seconds, why, **more))


@dataclasses.dataclass(frozen=True)
class StageJob:
    """A task for a worker.

    Attributes:
        task: what to make.
        done: called with the records of its parts when it has ended, in the thread of the run. The last call of a stage commits
            it.
        offer: called with the rows of its parts, if it runs in this process.
        meter: receives the cost of the task.
    """

    task: PartTask
    done: Callable[[list[PartRecord]], None]
    offer: Offer
    meter: Meter


def _placed(stage: Stage, made: Mapping[str, Artifact]) -> Stage:
    """The stage with the paths of sources that depend on its input rows, which are known once the stage before is made."""
    places = {name: value for name, value in stage.step.settings.items() if isinstance(value, WhereOfRows)}
    if not places or stage.after is None:
        return stage
    known = {name: value.of(made[stage.after].digest) for name, value in places.items()}
    return dataclasses.replace(stage, step=dataclasses.replace(stage.step, settings={**stage.step.settings, **known}))


class StageMaker:
    """Makes one stage: ``begin`` returns the jobs to run, and when these are done, ``artifact`` is available."""

    def __init__(
        self,
        store: Store,
        stage: Stage,
        schema: pa.Schema,
        made: Mapping[str, Artifact],
        known: dict[str, tuple[str, str]],
        recent: dict[str, pa.Table] | None = None,
        sums: dict[str, KeySum] | None = None,
        *,
        following: Stage | None = None,
        keep_stale: bool = False,
        outlived: bool = False,
        alone: bool = True,
    ) -> None:
        """Prepare a stage.

        Args:
            store: store of the run.
            stage: the stage.
            schema: schema of its rows.
            made: artifacts of earlier stages, by name.
            known: fingerprints of sources, see ``keys.fingerprint``; updated in place.
            recent: parts of the previous stage that are still in memory, by file name; updated in place.
            sums: name of a stage -> sum of the keys of its rows, if the next stage needs it; updated in place.
            following: the next stage; if it reads this one, the rows are kept in memory.
            keep_stale: whether to use the existing artifact although its code has changed.
            outlived: whether workers that make its parts may outlive the run.
            alone: whether no other stage is made at the same time.
        """
        self.store, self.stage, self.schema, self.made, self.known = store, _placed(stage, made), schema, made, known
        self.recent: dict[str, pa.Table] = {} if recent is None else recent
        self.sums: dict[str, KeySum] = {} if sums is None else sums
        self.following, self.keep_stale, self.alone = following, keep_stale, alone
        self._begun = uuid.uuid4().hex if outlived else ""
        self._artifact: Artifact | None = None

    @property
    def artifact(self) -> Artifact:
        """The artifact that was made or reused. Raises ``RuntimeError`` before."""
        if self._artifact is None:
            raise RuntimeError(f"stage {self.stage.name!r} has not run yet")
        return self._artifact

    def _layouts(self) -> str:
        return sha256(canonical([self.made[name].layout for name in self.stage.inputs()]))

    def reusable(self) -> Artifact | None:
        """The existing artifact if it is complete and what this plan would make, otherwise None."""
        return self._reusable(self._there(), *recipe_of(self.stage, self.schema, self.made, self.store, self.known))

    def _there(self) -> Artifact | None:
        try:
            return load_artifact(self.store, self.stage.name)
        except StoreError:  # a damaged record counts as none: the parts are then checked one by one
            return None

    def _reusable(self, artifact: Artifact | None, recipe: Mapping[str, Any], witness: str) -> Artifact | None:
        if artifact is None or sha256(canonical(recipe)) not in (artifact.key, artifact.kept.get("key")):
            return None
        return artifact if self._whole(artifact, witness) else None

    def _whole(self, artifact: Artifact, witness: str) -> bool:
        """Whether the artifact's sources and inputs are unchanged, and its files exist with the recorded sizes."""
        if artifact.recipe["layouts"] != self._layouts():
            return False
        there = self.store.sizes(folder(self.stage.name))
        if self._witness(there) != witness.encode():
            return False
        return all(there.get(posixpath.basename(name)) == facts["size"] for name, facts in artifact.files().items())

    def _kept(self, artifact: Artifact | None, recipe: Mapping[str, Any], witness: str) -> Artifact:
        """The existing artifact, marked as made by earlier code. Raises ``PlanError`` if more than the code has changed."""
        refused = f"stage {self.stage.name!r} cannot be kept"
        if artifact is None:
            raise PlanError(f"{refused}: it has not run, or its record is damaged: run without --keep-stale {self.stage.name}")
        if without_code(recipe) != without_code(artifact.recipe) or not self._whole(artifact, witness):
            why = self._why(artifact, recipe, only_code=False)
            raise PlanError(f"{refused}: {why}; --keep-stale {self.stage.name} applies only to changed code: run without it")
        kept = {
            "key": sha256(canonical(recipe)),
            "code": codes(self.stage),
            "was": codes_of(artifact.recipe),
            "definitions": definitions(self.stage),
            "changed": change(self.stage, dataclasses.replace(artifact, kept={}), self.store),
            "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        }
        return self._save(dataclasses.replace(artifact, kept=kept))

    def _save(self, artifact: Artifact) -> Artifact:
        self.store.write_json(artifact_file(artifact.stage), artifact.to_json())
        return artifact

    def _why(self, artifact: Artifact, recipe: Mapping[str, Any], *, only_code: bool = True) -> str:
        """Why the existing stage is stale."""
        if not only_code or not (reason := change(self.stage, artifact, self.store)):
            reason = change_of_sources(recipe, artifact)
        return reason or change(self.stage, artifact, self.store) or "a source or a file of the stage changed"

    def _witness(self, there: Collection[str]) -> bytes:
        """Content of the file ``.witness``; empty unless it is ``there``. It is only compared, so damage does no harm."""
        return self.store.read(posixpath.join(folder(self.stage.name), ".witness")) if ".witness" in there else b""

    def _remove(self, names: Iterable[str]) -> None:
        """Remove files of the stage's folder."""
        self.store.remove([posixpath.join(folder(self.stage.name), name) for name in names])

    @one_look()
    def begin(self, report: Reporter) -> list[StageJob]:
        """Reuse what exists, and return the jobs that make the missing parts; the last one commits the stage."""
        if self.store.local is not None:
            remove_half_written(self.store.local / folder(self.stage.name))
        recipe, witness = recipe_of(self.stage, self.schema, self.made, self.store, self.known)
        if self.known or self.store.exists(FINGERPRINTS):
            self.store.write_json(FINGERPRINTS, sealed({"sources": self.known}))
        old = self._there()
        artifact = self._reusable(old, recipe, witness)
        if artifact is None and self.keep_stale:
            artifact = self._kept(old, recipe, witness)
        if artifact is not None:
            if artifact.kept and artifact.key == sha256(canonical(recipe)):  # the code is again the one that made it
                artifact = self._save(dataclasses.replace(artifact, kept={}))
            if self.store.local is None:
                self._remove_room()  # what a killed worker sent may have come after the stage was finished
            self._check_rejects(artifact)  # the budget may have changed, or have been exceeded before
            report("reused", artifact.rows_in, artifact.rows_in, sum(artifact.rejects.values()))
            self._artifact = artifact
            return []
        if old is not None:
            report("stale", 0, None, 0, self._why(old, recipe))
        if typed := in_no_file(self.stage):
            raise PlanError(
                f"stage {self.stage.name!r}: {typed} is not in a file, so an edit could not be detected: import it from one"
            )
        if reason := edited(definitions(self.stage, files=False)):
            raise PlanError(f"stage {self.stage.name!r}: {reason}: restart Python, or reload the module, and run again")
        key = sha256(canonical(recipe))
        recipe["layouts"] = self._layouts()
        recipe["within"] = within(self.stage, self.store)
        if references := named_in(self.stage):
            recipe["named"] = references
        where = folder(self.stage.name)
        there = self.store.sizes(where)
        if BEGUN in there:  # until it is gone, workers of an earlier run may write
            self._remove([BEGUN])
            there = self.store.sizes(where)
        known = self._witness(there) == witness.encode()
        stale = [name for name in sorted(there) if not known or name in ("artifact.json", "made.json", "code.json")]
        self._remove(stale)
        there = {name: there[name] for name in there.keys() - stale}
        self.store.write(posixpath.join(where, ".witness"), witness.encode())
        if self._begun:
            self.store.write(posixpath.join(where, BEGUN), self._begun.encode())
        meter = Meter(alone=self.alone)
        ledger = Ledger(self.store, self.stage, self.following)

        def commit(records: dict[int, PartRecord]) -> None:
            cost: dict[str, Any] = {}

            def write_made() -> None:
                cost.update({**meter.cost(), "gpu": needs_gpu(self.stage)})
                self._write_made(meter.seconds, witness, cost)

            artifact = self._commit(key, recipe, [records[number] for number in sorted(records)], ledger, write_made)
            if ledger.row_keys:
                self.sums[self.stage.name] = ledger.row_keys
            if ledger.keeps or self.stage.inputs():
                self.recent.clear()
                self.recent.update(ledger.recent)
            self._check_rejects(artifact)
            size = sum(facts["size"] for facts in artifact.files().values())
            report("done", artifact.rows_in, artifact.rows_in, sum(artifact.rejects.values()), bytes=size, cost=cost)
            self._artifact = artifact

        return self._jobs(sha256(canonical([key, recipe["layouts"]])), there, report, ledger, meter, commit)

    def _jobs(
        self,
        key: str,
        there: Mapping[str, int],
        report: Reporter,
        ledger: Ledger,
        meter: Meter,
        commit: Callable[[dict[int, PartRecord]], None],
    ) -> list[StageJob]:
        tasks = stage_tasks(self.stage, self.schema, key, self.made, self.store, self.recent)
        records: dict[int, PartRecord] = {}
        # A task that makes several parts is recomputed as a whole: only its end shows that all of them exist.
        todo = [task for task in tasks if not self._one_part(task) or not self._is_finished(task, there, records)]
        total = self.made[self.stage.after].rows if self.stage.after else None

        # Rejects of parts that are recomputed must not be shown meanwhile as rejects of this run.
        kept = {name for record in records.values() for name in record.files}
        self._remove(name for name in there if name.endswith(".rejects.parquet") and name not in kept)

        left = len(todo)
        rows = report.rows_before = sum(record.rows_in for record in records.values())
        rejects = collections.Counter(_totals(list(records.values())))
        checked: list[PartRecord] = []
        counts = collections.Counter[str]()
        rows_checked = 0

        def check_budget() -> None:
            """Check the parts before the first missing one, so that errors do not depend on the order in which parts end."""
            nonlocal rows_checked
            while len(checked) in records:
                record = records[len(checked)]
                checked.append(record)
                counts.update(record.rejects)
                rows_checked += record.rows_in
                self.stage.budget.check(self.store, self.stage.name, counts, rows_checked, self._reject_files(checked))

        def done(made: list[PartRecord]) -> None:
            nonlocal left, rows
            left -= 1
            meter.mark(sum(record.rows_in for record in made))
            records.update({record.number: record for record in made})
            ledger.follow(records)
            rows += sum(record.rows_in for record in made)
            rejects.update(_totals(made))
            report("running", total if self.stage.kind == "whole" and total else rows, total, rejects.total())
            if (self.stage.budget.limit or 0) >= 1:
                check_budget()
            if not left:
                commit(records)

        if not todo:
            commit(records)
        return [StageJob(dataclasses.replace(task, begun=self._begun), done, ledger.offer, meter) for task in todo]

    def _one_part(self, task: PartTask) -> bool:
        return self.stage.kind != "whole" and not (self.stage.kind == "source" and task.piece is None)

    def _is_finished(self, task: PartTask, there: Mapping[str, int], records: dict[int, PartRecord]) -> bool:
        """Whether the part exists from an interrupted run with the same signature; if so, add its record to ``records``.

        ``there`` are the sizes of the files in the stage's folder.
        """
        name = f"{part_name(task.number)}.parquet"
        if name not in there:
            return False
        place = posixpath.join(folder(self.stage.name), name)
        try:
            data = self.store.at_once(place, there[name])
            footer = self.store.footer(place, data)
            if footer["signature"] != task.signature():
                return False
            data = self.store.read(place) if data is None else data
            rows = self.store.read_parquet(place, ["key"], data=data).num_rows
        except StoreError:  # a damaged part is recomputed
            return False
        files = dict(footer["files"])
        if any(there.get(other) != facts["size"] for other, facts in files.items()):
            return False
        files[name] = {"sha256": sha256(data), "size": len(data)}
        records[task.number] = PartRecord(task.number, footer["rows_in"], rows, footer["rejects"], files)
        return True

    # -------------------------------------------------------------------------------------------------- commit

    @one_look()
    def _commit(
        self, key: str, recipe: Mapping[str, Any], records: list[PartRecord], ledger: Ledger, write_made: Callable[[], None]
    ) -> Artifact:
        stage = self.stage
        digest = ledger.finish(records)
        rejects = _totals(records)
        rows = sum(record.rows for record in records)
        rows_in = self.made[stage.after].rows if stage.after else sum(record.rows_in for record in records)
        if stage.after:
            self._check_sum(rows_in, rows, sum(rejects.values()), ledger.keys)
        parts = tuple({"rows": record.rows, "files": dict(sorted(record.files.items()))} for record in records)
        layout = payload_layout(recipe["layouts"], parts)
        artifact = Artifact(stage.name, stage.kind, key, digest, layout, recipe, rows_in, rows, rejects, parts)
        kept = {posixpath.basename(name) for name in artifact.files()} | {".witness"}
        self._remove(name for name in self.store.list(folder(stage.name)) if name not in kept)
        self._remove_room()
        self.store.write_json(code_file(stage.name), sealed({"definitions": definitions(stage)}))
        write_made()
        return self._save(artifact)  # last: it says that the stage is finished

    def _remove_room(self) -> None:
        """Remove what the tasks kept while they ran."""
        if self.stage.has_room:
            self.store.remove_tree(posixpath.join(folder(self.stage.name), WORK))

    def _check_sum(self, rows_in: int, rows: int, rejected: int, keys_out: KeySum | None) -> None:
        stage = self.stage
        if not stage.expands and rows_in != rows + rejected:
            raise StepFailed(
                f"stage {stage.name!r} does not account for its rows: {rows_in} in, {rows} out and {rejected} rejected"
            )
        if keys_out is None:
            return
        keys_in = None if stage.expands else self.sums.get(stage.after or "")
        if keys_in is None:
            keys_in = KeySum(distinct=stage.expands)
            for table in self.made[stage.after or ""].rows_view(self.store, self.recent).batches(["key"]):
                keys_in.add(key_hashes(table["key"]))
        if keys_in.total() != keys_out.total():
            raise StepFailed(f"stage {stage.name!r} returned keys, as rows or rejects, that are not those of its input rows")

    def _check_rejects(self, artifact: Artifact) -> None:
        """Raise ``TooManyRejects``, or ``NoRows`` for a source without rows or a stage that rejected all of them."""
        files = artifact.reject_files()
        self.stage.budget.check(self.store, self.stage.name, artifact.rejects, artifact.rows_in, files)
        # A stage whose purpose is to reject rows (no limit) may reject all of them.
        counts = self.stage.budget.limit is not None and artifact.rows_in
        if counts or not (self.stage.after or self.stage.may_be_empty):
            check_not_empty(self.store, self.stage.name, artifact.rows, artifact.rejects, files, sources_among(self.stage))

    def _reject_files(self, records: Sequence[PartRecord]) -> Iterator[str]:
        for record in records:
            names = (name for name in record.files if name.endswith(".rejects.parquet"))
            yield from (posixpath.join(folder(self.stage.name), name) for name in names)

    def _write_made(self, seconds: float, witness: str, cost: Mapping[str, Any]) -> None:
        made = {"made_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "seconds": round(seconds, 3)}
        code = sha256(self.store.read(code_file(self.stage.name)))
        made = sealed({**made, "versions": _versions(), "witness": witness, "code": code, "cost": cost})
        self.store.write_json(posixpath.join(folder(self.stage.name), "made.json"), made)


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _RECORDED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def payload_layout(inputs: str, parts: Sequence[Mapping[str, Any]]) -> str:
    """Digest of the locations of the payloads that a stage refers to: its own payload files, and the layouts of its inputs."""
    payloads = [file for part in parts for file in part["files"].items() if not file[0].endswith(".parquet")]
    return sha256(canonical([inputs, payloads]))


def _totals(records: Sequence[PartRecord]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for record in records:
        for reason, count in record.rejects.items():
            totals[reason] = totals.get(reason, 0) + count
    return dict(sorted(totals.items()))
