"""Records of finished stages and of runs: writing, reading and validating them."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from .part_writer import folder, part_name
from .reachable_code import Definitions
from .records import PUBLISHED, Damaged, sealed, unsealed
from .rows import SNAKE_CASE
from .stage_rows import PartInfo, Rows
from .store import Store, StoreError


def _file_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not {"/", "\\", "\0"} & set(name)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A finished stage.

    Attributes:
        stage: name of the stage.
        kind: one of ``flow.KINDS``.
        key: recipe key: identifies what should be made, by kind, code, settings and the content of the inputs.
        digest: content digest: identifies what was made.
        layout: digest of the locations of payloads; stages that refer to them are recomputed when it changes.
        recipe: the readable recipe: function, settings, digest of the code and digests of the inputs.
        rows_in: number of input rows.
        rows: number of output rows.
        rejects: reason -> number of rejected rows.
        parts: for every part, its number of rows and the size and SHA-256 of its files.
        kept: empty unless the artifact is used although its code has changed: the recipe ``key`` and digests of ``code`` for
            which it was kept, ``was``, the digests of the code that made it, ``definitions``, those of the new code, what
            ``changed``, in words, and the time, ``at``.
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
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Content of ``artifact.json``; the same, byte for byte, for equal runs."""
        record = {**vars(self), "parts": list(self.parts)}  # dataclasses.asdict would copy the record of every file
        return sealed({name: value for name, value in record.items() if self.kept or name != "kept"})

    def files(self) -> dict[str, Mapping[str, Any]]:
        """Name within the store -> size and SHA-256, for all files of the stage's parts."""
        return {posixpath.join(folder(self.stage), name): facts for part in self.parts for name, facts in part["files"].items()}

    def rows_view(self, store: Store, recent: Mapping[str, pa.Table] | None = None) -> Rows:
        """View of the rows; parts whose files are in ``recent`` are not read but taken from there."""
        infos = tuple(
            PartInfo(posixpath.join(folder(self.stage), name), part["rows"], part["files"].get(name, {}).get("size"))
            for number, part in enumerate(self.parts)
            for name in [f"{part_name(number)}.parquet"]
        )
        schema = store.read_parquet(infos[0].name, stop=0).schema.remove_metadata()  # drops the record in the footer
        return Rows(store, schema, infos, recent or {})

    def reject_files(self) -> list[str]:
        """Names within the store of the tables of rejects."""
        return [name for name in self.files() if name.endswith(".rejects.parquet")]


def artifact_file(stage: str) -> str:
    """Name of a stage's ``artifact.json`` within the store."""
    return posixpath.join(folder(stage), "artifact.json")


def load_artifact(store: Store, stage: str) -> Artifact | None:
    """A stage's artifact, or None if the stage is not finished. Raises ``StoreError`` if the record is damaged."""
    name = artifact_file(stage)
    if not store.exists(name):
        return None
    raw = read_sealed(store, name)
    shape = {**_ARTIFACT, "kept": _KEPT} if raw.get("kept") else _ARTIFACT
    if isinstance(raw.get("recipe"), dict):
        more = {name: each for name, each in _RECIPE_MAY_HAVE.items() if name in raw["recipe"]}
        shape = {**shape, "recipe": {**_RECIPE, **more}}
    if fault := _whole_fault(raw, shape) or _artifact_fault(raw, stage):
        raise StoreError(f"{store.url}: {name} is not the record of a stage: {fault}")
    raw["parts"] = tuple(raw["parts"])
    return Artifact(**raw)


def _artifact_fault(raw: Mapping[str, Any], stage: str) -> str:
    """First fault in a record of the right shape; "" if there is none."""
    if raw["stage"] != stage:
        return f"it is of stage {raw['stage']!r:.60}"
    settings = {**raw["recipe"]["settings"], **raw["recipe"].get("pieces", {}).get("settings", {})}
    for name in raw["recipe"]["within"]:
        if not isinstance(settings.get(name), dict) or "content" not in settings[name]:
            return f"recipe.within names {name!r:.60}, which is no source"
    return "" if raw["parts"] else "parts is empty"


def code_file(stage: str) -> str:
    """Name of a stage's ``code.json`` within the store, which lists the definitions that its code reached."""
    return posixpath.join(folder(stage), "code.json")


def load_code(store: Store, stage: str) -> Definitions:
    """The definitions that a stage's code reached when the stage was made: see ``reachable_code.Reached``; empty if unknown."""
    try:
        record = read_sealed(store, code_file(stage)) if store.exists(code_file(stage)) else {}
    except StoreError:  # used only in messages about what changed
        return {}
    return {} if _fault(record, _CODE) else record["definitions"]


def load_made(store: Store, stage: str) -> dict[str, Any]:
    """A stage's ``made.json``, which records when and how the stage was made; empty if there is none.

    Raises:
        StoreError: the file is damaged.
    """
    name = posixpath.join(folder(stage), "made.json")
    made = read_sealed(store, name) if store.exists(name) else {}
    shape = _MADE
    if "cost" in made:
        there = made["cost"] if isinstance(made["cost"], dict) else ()
        shape = {**_MADE, "cost": {**_COST, **{field: each for field, each in _COST_MAY_HAVE.items() if field in there}}}
    if made and (fault := _fault(made, shape)):
        raise StoreError(f"{store.url}: {name} does not say how a stage was computed: {fault}")
    return made


def read_sealed(store: Store, name: str) -> dict[str, Any]:
    """A record without its seal. Raises ``StoreError`` if the seal does not match: the file was damaged or edited."""
    try:
        return unsealed(store.read(name))
    except Damaged as error:
        raise StoreError(f"{posixpath.join(store.url, name)} {error}") from None


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """``run.json``: which pipeline filled a folder, with which settings and stages.

    Attributes:
        pipeline: name of the pipeline.
        config: all settings.
        overrides: the settings that apply to this run only.
        stages: names of the stages in order.
        result: name of the stage whose rows are the result.
        published: SHA-256 of the published ``dataset.json``; "" before publication.
        outdated: whether the published dataset was made with other settings, because the run with these is not finished.
        code: code that the run used and that is not built in: ``pipeline`` or a setting -> its name, see ``registry``.
        beside: further published folder -> SHA-256 of its ``dataset.json``.
    """

    pipeline: str
    config: Mapping[str, Any]
    overrides: Mapping[str, Any]
    stages: tuple[str, ...]
    result: str
    published: str = ""
    outdated: bool = False
    code: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def after(self, earlier: RunRecord | None) -> RunRecord:
        """This record at the start of a run in the folder of an earlier one, whose dataset stays until it is replaced."""
        if earlier is None:
            return self
        outdated = bool(earlier.published) and (earlier.outdated or earlier.config != self.config)
        return dataclasses.replace(self, published=earlier.published, outdated=outdated, beside=earlier.beside)

    def save(self, store: Store) -> None:
        """Write ``run.json``."""
        record = {**dataclasses.asdict(self), "stages": list(self.stages)}
        store.write_json("run.json", sealed({k: v for k, v in record.items() if v or k not in ("code", "beside")}))


def load_run(store: Store) -> RunRecord:
    """Read ``run.json``. Raises ``StoreError`` if the folder holds no run."""
    if not store.exists("run.json"):
        raise StoreError(f"{store.url} contains no run: it has no run.json; `benchwright run ... --out` makes one")
    raw = read_sealed(store, "run.json")
    raw.setdefault("published", "")
    raw.setdefault("outdated", False)
    raw.setdefault("code", {})
    raw.setdefault("beside", {})
    fault = _whole_fault(raw, _RUN)
    if not fault and not (raw["result"] in raw["stages"] and all(map(SNAKE_CASE.match, raw["stages"]))):
        fault = "its stages have no result among them, or names that no stage has"
    if fault:
        raise StoreError(f"{store.url}: run.json is not the record of a run: {fault}")
    raw["stages"] = tuple(raw["stages"])
    return RunRecord(**raw)


def unfinished(store: Store) -> str:
    """Why the run in a folder is not complete, and the command that resumes it; "" if it is complete.

    >>> unfinished(Store("out"))
    ''
    """
    record = load_run(store)
    again = f"repeat `benchwright run {record.code.get('pipeline', record.pipeline)} ... --out {store.url}`"
    result = load_artifact(store, record.result)
    if result is None:
        first = next(stage for stage in record.stages if load_artifact(store, stage) is None)
        return f"the run is not finished: stage {first!r} has not run yet: {again} to resume it"
    # Runs that ``benchwright run`` did not start, such as the trainings within a run, publish nothing.
    if record.pipeline and result.kind == "shards" and not _is_published(store, record, result):
        return f"the dataset is not published: {again}, which says why"
    return ""


def _is_published(store: Store, record: RunRecord, result: Artifact) -> bool:
    try:
        return bool(record.published) and published_digest(store, "dataset/dataset.json") == result.digest
    except (StoreError, OSError):  # damaged or missing, which is reported where the file is read
        return True


def stale_stage(stages: Mapping[str, Artifact | None]) -> str:
    """Why the stages (name -> artifact, in order) are not up to date with their inputs; "" if they are.

    >>> stale_stage({"listed": None})
    "stage 'listed' has not run yet"
    """
    for name, artifact in stages.items():
        if artifact is None:
            return f"stage {name!r} has not run yet"
        for before, digest in artifact.recipe["inputs"].items():
            if (made := stages.get(before)) is None or made.digest != digest:
                return f"stage {name!r} is computed from earlier rows of stage {before!r}"
    return ""


# A matching seal does not show who made a record, so all fields that are read later are checked.
_FILE: Any = {"sha256": str, "size": int}
_PART: Any = {"rows": int, "files": {_file_name: _FILE}}
_INPUTS: Any = {str: str}
_RECIPE: Any = {"step": str, "code": str, "settings": {str: None}, "inputs": _INPUTS, "layouts": str, "within": {str: str}}
_RECIPE_MAY_HAVE: Any = {"named": {str: str}, "pieces": {"step": str, "code": str, "settings": {str: None}}}
_ARTIFACT: Any = {
    **dict.fromkeys(("stage", "kind", "key", "digest", "layout"), str),
    **dict.fromkeys(("rows_in", "rows"), int),
    "recipe": _RECIPE,
    "rejects": {str: int},
    "parts": [_PART],
}
_KEPT: Any = {"key": str, "code": {str: str}, "was": {str: str}, "definitions": {str: {str: str}}, "changed": str, "at": str}
_CODE: Any = {"definitions": {str: {str: str}}}
_MADE: Any = {"made_at": str, "seconds": float, "versions": {str: str}}
_COST: Any = {
    **dict.fromkeys(("rows", "tasks", "retries", "peak_bytes"), int),
    **dict.fromkeys(("cpu_seconds", "start_seconds", "start_cpu_seconds"), float),
}
_COST_MAY_HAVE: Any = {"busy_seconds": float, "start_busy_seconds": float, "worker_peak_bytes": int}
_RUN: Any = {
    **dict.fromkeys(("pipeline", "result", "published"), str),
    "config": {str: None},
    "overrides": {str: None},
    "stages": [str],
    "outdated": bool,
    "code": {str: str},
    "beside": {PUBLISHED.__contains__: str},
}


def _whole_fault(value: Mapping[str, Any], shape: Mapping[str, Any]) -> str:
    unknown = sorted(value.keys() - shape.keys())
    return f"it has an unexpected {unknown[0]!r:.60}" if unknown else _fault(value, shape)


def _fault(value: Any, shape: Any, place: str = "it") -> str:
    """The first place at which a value does not match the shape; "" if it matches.

    A shape is a type; a list with the shape of the items; a dict of required names and their shapes (other names are allowed,
    except in ``_whole_fault``); or a dict with one key, ``str`` or a check of names, and the shape of all values. None matches
    anything.
    """
    if shape is None:
        return ""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is not a list"
        return next((fault for n, item in enumerate(value) if (fault := _fault(item, shape[0], f"{place}[{n}]"))), "")
    if isinstance(shape, dict):
        return _table_fault(value, shape, place)
    fits = isinstance(value, int | float if shape is float else shape) and (shape is bool or not isinstance(value, bool))
    return "" if fits and not (shape is int and value < 0) else f"{place} = {value!r:.60} is not a {shape.__name__}"


def _table_fault(value: Any, shape: Any, place: str) -> str:
    if not isinstance(value, dict):
        return f"{place} is not a table"
    name = next(iter(shape))
    if not isinstance(name, str):  # any names that pass the check
        odd = next((one for one in value if name is not str and not name(one)), None)
        if odd is not None:
            return f"{place} has a name {odd!r:.60}"
        return next((fault for one, item in value.items() if (fault := _fault(item, shape[name], f"{place}.{one}"[:80]))), "")
    if missing := [one for one in shape if one not in value]:
        return f"{place} has no {missing[0]!r}"
    return next((fault for one in shape if (fault := _fault(value[one], shape[one], one))), "")


def published_digest(store: Store, name: str = "dataset.json") -> str:
    """Content digest of the published dataset that a manifest describes. Raises ``StoreError`` if it is not a manifest."""
    manifest = store.read_json(name)
    digest = manifest.get("digest") if isinstance(manifest, dict) else None
    if not isinstance(digest, str):
        raise StoreError(f"{store.url}: {name} is not the manifest of a dataset: it has no digest; run again to regenerate it")
    return digest
