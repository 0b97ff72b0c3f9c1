"""Check that a run's folder matches its records, and compare two runs row by row."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .artifact import Artifact, artifact_file, code_file, load_artifact, load_run, read_sealed, unfinished
from .digest import ContentDigest
from .flow import Flow
from .keys import canonical, fingerprint, sha256
from .part_writer import WORK, folder
from .records import PUBLISHED, Problem, check_records, runs_within
from .rows import is_array, is_blob
from .run import run
from .stage_maker import payload_layout
from .store import Store, StoreError, file_sha256

DATASET, UNLABELLED = PUBLISHED
"""Folders of a run that are published."""

_COMPARED = 1 << 16
"""Number of rows that ``compare`` converts to Python values at a time."""

_OWN_FILES = {"artifact.json", "made.json", "code.json", ".witness"}


def mending(problems: Sequence[Problem]) -> list[str]:
    """Lines that say how to repair the problems; none if nothing has to be removed for that."""
    names = sorted({problem.remove for problem in problems if problem.remove})
    of_run = [name for name in names if name.split("/")[0] in ("stages", *PUBLISHED)]
    others = [name for name in names if name not in of_run]
    lines: list[str] = []
    if of_run:
        text = "To repair it, remove these and run again (a run regenerates only what is missing or has the wrong size):"
        lines += [text, *(f"  {name}" for name in of_run)]
    if others:
        text = "To repair it, remove these; then `run`, `train` and `report` regenerate their files:"
        lines += [text, *(f"  {name}" for name in others)]
    return lines


def verify(url: str, *, on_stage: Callable[[str], None] = lambda _: None) -> list[Problem]:
    """Check all files, digests and counts of a run, and that each stage was made from the present rows of its inputs.

    Args:
        url: folder of the run.
        on_stage: called with the name of each stage before it is checked.

    Returns:
        The problems, in the order of the stages; empty if all files match their records.

    Raises:
        StoreError: ``url`` contains no run, or its ``run.json`` does not match its seal.

    >>> import benchwright as bw
    >>> bw.verify("out")  # every byte matches its record
    []
    """
    store = Store(url)
    problems: list[Problem] = []
    artifacts: dict[str, Artifact] = {}
    record = load_run(store)
    pending: list[str] = []
    for stage in record.stages:
        on_stage(stage)
        try:
            artifact = load_artifact(store, stage)
            if artifact is None:
                pending.append(stage)
                continue
            artifacts[stage] = artifact
            problems.extend(_check_stage(store, artifact, artifacts))
        except StoreError as error:
            # Without its record, a stage is checked part by part in the next run, and recorded again.
            problems.append(Problem(f"stage {stage}", str(error), "that it is complete", artifact_file(stage)))
    if pending:
        place = f"stage {pending[0]}" if len(pending) == 1 else f"{len(pending)} stages, {', '.join(pending)}"
        problems.append(Problem(place, "not finished", "that the run has them: run again"))
    elif record.result in artifacts and unfinished(store):
        problems.append(Problem(DATASET, "not published", "that every stage is finished: run again"))
    for name in store.folders("stages"):
        if name not in record.stages:
            text = "no such stage: it is left over from an earlier plan, or foreign, and can be removed"
            problems.append(Problem(folder(name), "the folder exists", text, folder(name)))
    if strays := store.list("stages"):
        problems.extend(Problem(f"stages/{name}", "the file exists", "nothing of it", f"stages/{name}") for name in strays)
    for name, sha256_ in {**dict.fromkeys(PUBLISHED, ""), **record.beside, DATASET: record.published}.items():
        if sha256_ or store.folders(name) or store.list(name):
            on_stage(name)
            problems.extend(_check_published(store, name, sha256_))
    if store.local is not None:
        on_stage("results, votes and report")
        within = {place: stage for stage, made in artifacts.items() for place in made.recipe.get("within", {}).values()}
        problems.extend(_with_mending(store.local, found) for found in check_records(store.local, within))
    for name in nested_runs(store):
        problems.extend(_verify_within(name, posixpath.join(url, name)))
    return problems


def nested_runs(store: Store) -> list[str]:
    """Folders of the runs nested in the folder of a run, such as that of its trainings, relative to it."""
    if store.local is None:
        return [name for name in store.folders("") if store.exists(f"{name}/run.json")]
    return [inner.relative_to(store.local).as_posix() for inner in runs_within(store.local)]


def _verify_within(name: str, url: str) -> Iterator[Problem]:
    """The problems of a run nested in the folder of another run, at ``name``."""
    try:
        found = verify(url)
    except StoreError as error:
        yield Problem(posixpath.join(name, "run.json"), str(error), "that it is complete", name)
        return
    for each in found:
        place = posixpath.join(name, each.place) if "/" in each.place else f"{name}: {each.place}"
        yield dataclasses.replace(each, place=place, remove=each.remove and posixpath.join(name, each.remove))


def _with_mending(out: Path, problem: Problem) -> Problem:
    """The problem of a file outside the stages and the dataset, with what to remove to repair it.

    Files in ``qa`` are not removed, since no command can make people's answers again.
    """
    place = problem.place
    if place.startswith("qa/"):
        return problem
    folder_ = posixpath.dirname(place)
    whole = any((out / folder_ / name).is_file() for name in ("progress.json", "results.json")) if folder_ else False
    return dataclasses.replace(problem, remove=folder_ if whole else place if (out / place).exists() else "")


def _check_stage(store: Store, artifact: Artifact, made: Mapping[str, Artifact]) -> Iterator[Problem]:
    where = folder(artifact.stage)
    place = f"stage {artifact.stage}"
    recipe = {name: value for name, value in artifact.recipe.items() if name not in ("layouts", "named", "within")}
    if sha256(canonical(recipe)) != artifact.key:
        yield Problem(place, "its recipe has another digest", f"key {artifact.key[:12]}", where)
    for name, digest in artifact.recipe["inputs"].items():
        if name not in made or made[name].digest != digest:
            found = f"input {name} has digest {made[name].digest[:12]}" if name in made else f"input {name} is missing"
            yield Problem(place, found, digest[:12])
    yield from _check_sources(store, artifact)
    damaged = list(_check_files(store, artifact.files()))
    yield from damaged
    known = {posixpath.basename(name) for name in artifact.files()} | _OWN_FILES
    if store.local is None:
        known.add(WORK)  # the upload of a checkpoint may arrive after its worker was lost; the next run removes it
    yield from _strangers(store, where, known)
    made = read_sealed(store, posixpath.join(where, "made.json"))
    yield from _check_witness(store, where, made)
    if store.exists(code_file(artifact.stage)):
        read_sealed(store, code_file(artifact.stage))
    elif "code" in made:  # earlier versions did not record it
        # If the stage's record is removed, the next run reuses its parts and writes all its records again.
        yield Problem(code_file(artifact.stage), "the file is missing", str(made["code"])[:12], artifact_file(artifact.stage))
    if damaged:
        return
    if payload_layout(artifact.recipe["layouts"], artifact.parts) != artifact.layout:
        yield Problem(place, "its payload files differ", f"layout {artifact.layout[:12]}", where)
    rows = artifact.rows_view(store)
    digest = ContentDigest(rows.schema)
    for table in rows.batches():
        digest.update(table)
    if digest.hexdigest() != artifact.digest:
        yield Problem(place, f"its rows have digest {digest.hexdigest()[:12]}", artifact.digest[:12], where)
    if digest.rows != artifact.rows:
        yield Problem(place, f"{digest.rows} rows", f"{artifact.rows}", where)
    counts = reject_counts(store, artifact)
    if counts != dict(artifact.rejects):
        yield Problem(place, f"rejects {counts}", f"{dict(artifact.rejects)}", where)


def _check_witness(store: Store, where: str, made: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that ``.witness``, the digest of the state of the sources, matches the copy in ``made.json``."""
    recorded = made.get("witness")
    name = posixpath.join(where, ".witness")
    found = store.read(name).decode("utf-8", "replace") if store.exists(name) else "missing"
    if recorded is not None and found != recorded:  # earlier versions did not record it
        yield Problem(name, f"it is {found[:12]!a}", str(recorded)[:12], where)


def _strangers(store: Store, where: str, known: Collection[str]) -> Iterator[Problem]:
    names = [("file", name) for name in store.list(where) if name not in known]
    names += [("folder", name) for name in store.folders(where) if name not in known]
    for kind, name in names:
        place = posixpath.join(where, name)
        yield Problem(place, f"the {kind} exists", "nothing of it", place)


def _check_sources(store: Store, artifact: Artifact) -> Iterator[Problem]:
    """Check sources that are in the folder of the run, such as votes."""
    settings = {**artifact.recipe["settings"], **artifact.recipe.get("pieces", {}).get("settings", {})}
    for name, place in artifact.recipe.get("within", {}).items():
        recorded = str(settings[name]["content"])
        if not store.exists(place):
            yield Problem(place, "the file is missing", f"stage {artifact.stage} read it")
        elif (found := fingerprint(store.path(place)).content) != recorded:
            yield Problem(place, f"its content is {found[:12]}", f"stage {artifact.stage} read {recorded[:12]}")


def reject_counts(store: Store, artifact: Artifact) -> dict[str, int]:
    """Reason -> number of rows, counted in the tables of rejects."""
    counts: dict[str, int] = {}
    for name in artifact.reject_files():
        for item in pc.value_counts(store.read_parquet(name, ["reason"])["reason"]).to_pylist():
            counts[item["values"]] = counts.get(item["values"], 0) + item["counts"]
    return dict(sorted(counts.items()))


def _check_files(store: Store, files: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    for name, facts in files.items():
        size = store.size(name)
        if size is None:
            yield Problem(name, "the file is missing", f"{facts['size']} bytes")
        elif size != facts["size"]:
            yield Problem(name, f"{size} bytes", f"{facts['size']} bytes", name)
        elif (found := file_sha256(store, name)) != facts["sha256"]:
            yield Problem(name, f"SHA-256 {found[:12]}", str(facts["sha256"])[:12], name)


def _check_published(store: Store, within: str, published: str) -> Iterator[Problem]:
    manifest = posixpath.join(within, "dataset.json")
    found = file_sha256(store, manifest) if store.exists(manifest) else "missing"
    if found != published:
        available = manifest if found != "missing" else ""
        yield Problem(manifest, f"SHA-256 {found[:12]}", published[:12] or "nothing of it", available)
        return
    listed = {posixpath.join(within, name): facts for name, facts in store.read_json(manifest)["files"].items()}
    yield from _check_files(store, listed)
    held = {within: set[str]()} | {posixpath.dirname(name): set[str]() for name in listed}
    for name in [*listed, manifest, *(each for each in held if each != within)]:
        held[posixpath.dirname(name)].add(posixpath.basename(name))
    for where, known in held.items():
        yield from _strangers(store, where, known)


def made_again(flow: Flow, url: str, scratch: str, **how_to_run: Any) -> list[Problem]:
    """Repeat the whole run in ``scratch`` and compare every file of every stage with the records in ``url``."""
    store = Store(url)
    problems: list[Problem] = []
    for again in run(flow, scratch, **how_to_run).artifacts:
        recorded = load_artifact(store, again.stage)
        if recorded is None:
            problems.append(Problem(f"stage {again.stage}", "it is not finished", "that the run has it"))
        elif recorded.digest != again.digest:
            problems.append(
                Problem(f"stage {again.stage}", f"recomputed, it has digest {again.digest[:12]}", recorded.digest[:12])
            )
        elif recorded.files() != again.files():
            problems.append(Problem(f"stage {again.stage}", "recomputed, its rows are the same but its files differ", "others"))
    return problems


# ------------------------------------------------------------------------------------------------------------- compare


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one stage differs between two runs.

    Attributes:
        stage: name of the stage.
        rows: number of rows in the first and in the second run.
        only_first: keys that only the first run has.
        only_second: keys that only the second run has.
        changed: column -> keys of the common rows whose values differ.
        moved: whether the common rows are in a different order.
        columns: columns that only one run has.
        only_in: "first" or "second" if only that run has the stage; all other fields are then empty.

    >>> Difference("counted", (3, 2), ["short"], [], {}, moved=False, columns=[]).same
    False
    """

    stage: str
    rows: tuple[int, int]
    only_first: Sequence[str]
    only_second: Sequence[str]
    changed: Mapping[str, Sequence[str]]
    moved: bool
    columns: Sequence[str]
    only_in: str = ""

    @property
    def same(self) -> bool:
        """Whether the stage has the same rows, in the same order, in both runs."""
        return not (self.only_first or self.only_second or self.changed or self.moved or self.columns or self.only_in)


def compare(first: str, second: str, *, stage: str | None = None) -> list[Difference]:
    """Compare the stages of two runs, or one stage, by joining rows on their keys.

    Args:
        first: folder of a run.
        second: folder of another run.
        stage: a stage that both runs have; by default every stage.

    Returns:
        One difference per stage, in the order of the first run, then those of stages that only the second run has. Stages with
        the same digest are not read; only the existence and sizes of their files are checked.

    Raises:
        StoreError: a folder contains no run, the runs share no stage, ``stage`` is not in both, a common stage is not finished,
            or a file is missing or has the wrong size.

    >>> import benchwright as bw
    >>> for name, least in (("loose", 1), ("strict", 3)):
    ...     done = bw.run(bw.job("words.py", overrides=[f"min_words={least}"]), name)
    >>> [(each.stage, each.rows, each.only_first) for each in bw.compare("loose", "strict") if not each.same]
    [('counted', (3, 2), ['short']), ('placed', (3, 2), ['short']), ('shards', (3, 2), ['short'])]
    """
    stores = Store(first), Store(second)
    names = [load_run(store).stages for store in stores]
    shared = [name for name in names[0] if name in names[1]]
    if stage is not None:
        if stage not in shared:
            raise StoreError(f"stage {stage!r} is not in both runs: they share {', '.join(shared) or 'none'}")
        return [_compare_stage(stores, stage)]
    if not shared:
        raise StoreError(f"{first} and {second} share no stage")
    found = [_compare_stage(stores, name) if name in shared else _alone(name, "first") for name in names[0]]
    return [*found, *(_alone(name, "second") for name in names[1] if name not in shared)]


def _alone(stage: str, which: str) -> Difference:
    return Difference(stage, (0, 0), [], [], {}, moved=False, columns=[], only_in=which)


def _compare_stage(stores: tuple[Store, Store], stage: str) -> Difference:
    artifacts = [load_artifact(store, stage) for store in stores]
    missing = [store.url for store, artifact in zip(stores, artifacts, strict=True) if artifact is None]
    if missing:
        raise StoreError(f"stage {stage!r} is not finished in {missing[0]}")
    one, other = (artifact for artifact in artifacts if artifact is not None)
    counts = (one.rows, other.rows)
    if one.digest == other.digest:
        # The rows are not read, but missing or truncated files do not have that digest.
        for store, artifact in zip(stores, (one, other), strict=True):
            there = store.sizes(folder(stage))
            for name, facts in artifact.files().items():
                if there.get(posixpath.basename(name)) != facts["size"]:
                    raise StoreError(
                        f"{store.url}: file {name} is missing or has the wrong size: `benchwright verify` has details"
                    )
        return Difference(stage, counts, (), (), {}, False, ())
    tables = [_comparable(a.rows_view(store).table()) for store, a in zip(stores, (one, other), strict=True)]
    left, right = tables
    place = pc.index_in(left["key"], value_set=right["key"])
    both, places = left.filter(place.is_valid()), place.drop_null()
    partners = right.take(places)
    changed: dict[str, list[str]] = {}
    for name in left.column_names:
        if name != "key" and name in right.column_names:
            rows = list(_unlike(both[name], partners[name]))
            if rows:
                changed[name] = both["key"].take(pa.array(rows)).to_pylist()
    return Difference(
        stage,
        counts,
        left.filter(place.is_null())["key"].to_pylist(),
        right.filter(pc.invert(pc.is_in(right["key"], value_set=left["key"])))["key"].to_pylist(),
        changed,
        bool(np.any(np.diff(places.to_numpy()) < 0)),
        sorted({*left.column_names} ^ {*right.column_names}),
    )


def _unlike(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Iterator[int]:
    """Rows at which two columns of the same length differ. Nulls are equal to each other, and so are NaNs."""
    for start in range(0, len(one), _COMPARED):
        left, right = one.slice(start, _COMPARED), other.slice(start, _COMPARED)
        if not left.equals(right):
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            yield from (start + n for n, (a, b) in enumerate(pairs) if a != b and repr(a) != repr(b))


def _comparable(table: pa.Table) -> pa.Table:
    """The table with payloads replaced by their digests, since their locations do not matter."""
    for index, field in enumerate(table.schema):
        if is_blob(field) or is_array(field):
            table = table.set_column(index, field.name, pc.struct_field(table[field.name], "sha256"))
    return table
