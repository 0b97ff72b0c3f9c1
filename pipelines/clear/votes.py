"""CLEAR's annotators: what they are asked, their answers as they come back, and SIMULATED ones."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import os
import posixpath
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact, load_artifact, load_run
from ...curation.files import remove, remove_half_written, replacing
from ...curation.keys import WhereOfRows, as_json, canonical, sha256, where, where_of_rows
from ...curation.qa.agreement import votes_kappa, worker_table
from ...curation.qa.label_studio import export_tasks, read_label_studio
from ...curation.qa.mturk import Gold, checked_gold, export_batches, guard_formula, read_gold_key
from ...curation.qa.mturk_results import Votes, clean, csv_records, hash_worker, read_mturk_results
from ...curation.qa.options import Option
from ...curation.qa.votes import VOTES, missing_votes, read_votes, write_votes
from ...curation.records import adopt, check_file
from ...curation.rows import Blob
from ...curation.run import Run, lock
from ...curation.store import Rows, Store, StoreError
from ..emptied import check_not_empty
from .config import ClearConfig

VOTES_FILE = "qa/votes.parquet"
"""Where the votes of people lie within the folder of a run."""

REJECTS_FILE = "qa/import.rejects.csv"
"""Where the answers lie that the last import turned away."""

GOLD_FILE = "qa/gold_key.json"
"""Where the key of all gold questions lies that were exported."""

_BUSY = "another import or a run is at work in {}: wait for it, and import again"
_SIMULATED = "votes-SIMULATED-"
_MARK = b"benchwright.salt"
"""Metadata of the votes: by what their workers' ids were hashed, itself hashed."""


def options_of(config: ClearConfig) -> list[Option]:
    """The choices that annotators see, in the order of the classes."""
    return [each.as_option() for each in config.classes]


def _asked(store: Store) -> Artifact | None:
    """The stage before the votes, of those that the run has: others are left from earlier settings."""
    stages = load_run(store).stages
    return load_artifact(store, next((stage for stage in ("screened", "asked") if stage in stages), "retrieved"))


def asked_rows(out: str) -> tuple[Store, Rows]:
    """The rows that annotators are asked about: those of the stage before the votes."""
    store = Store(out)
    artifact = _asked(store)
    if artifact is None:
        raise StoreError(f"{out}: nothing is retrieved yet; run the pipeline first")
    return store, artifact.rows_view(store)


def votes_place(config: ClearConfig, out: str) -> str:
    """Where the votes of a run lie, as a setting of a step. Those of people stay in one file.

    Simulated votes have a file for all that they depend on: the settings, and the rows that were asked about.
    """
    if config.qa.votes != "simulated":
        return where(posixpath.join(out, VOTES_FILE))
    qa = config.qa
    asked = [config.seed, qa.workers, qa.truth, qa.errors, options_of(config), config.retrieval.background]
    name = f"{_SIMULATED}{sha256(canonical(as_json('qa', asked)))[:16]}.parquet"
    return where_of_rows(posixpath.join(out, "qa", name))


def votes_of(config: ClearConfig, out: str) -> pa.Table | None:
    """The votes that a run counts, None where there are none yet."""
    place = votes_place(config, out)
    if isinstance(place, WhereOfRows):
        asked = _asked(Store(out))
        place = place.of(asked.digest) if asked else ""
    return read_votes(place) if config.qa.votes != "none" and Path(place).is_file() else None


def export_questions(
    config: ClearConfig,
    out: str,
    folder: str,
    *,
    tool: Literal["mturk", "label-studio"] = "mturk",
    batch_size: int | None = None,
    thumbnails: bool = True,
    gold: str | None = None,
    gold_per_batch: int = 5,
) -> list[Path]:
    """Write the forms and batches for annotators of a run.

    Args:
        config: settings of the run.
        out: the run.
        folder: where the files go.
        tool: who asks: MTurk, or Label Studio.
        batch_size: most images a batch; a batch a bucket by default.
        thumbnails: put images into the batches, rather than the addresses of the column ``url``.
        gold: CSV file of questions whose answer is known (MTurk only): ``class_name`` and ``file``, a path beside the CSV, or
            ``url`` where addresses are sent. Their right answers lie in ``private/``, which is not for upload, and beside the
            run, where the import looks for them.
        gold_per_batch: how many of them each batch gets.

    Returns:
        The files to upload.
    """
    store, rows = asked_rows(out)
    columns = ["key", "bucket", "concept", *(["url"] if not thumbnails else [])]
    if not thumbnails and "url" not in rows.column_names:
        raise ValueError(f"{out}: its images have no addresses: leave out --urls to send thumbnails")
    images = _blobs(rows) if thumbnails else None
    if tool == "label-studio":
        background = config.retrieval.background
        return list(export_tasks(rows.table(columns), folder, options=options_of(config), background=background, images=images))
    questions = None if gold is None else _gold(gold, gold_per_batch, config, thumbnails=thumbnails)
    written = export_batches(
        rows.table(columns),
        folder,
        options=options_of(config),
        background=config.retrieval.background,
        seed=config.seed,
        batch_size=batch_size,
        images=images,
        gold=questions,
    )
    if written.gold_key is not None:
        _keep_gold_key(store, read_gold_key(str(written.gold_key)))
    return [*written.forms, *written.batches]


def _gold(path: str, per_batch: int, config: ClearConfig, *, thumbnails: bool) -> Gold:
    place = "file" if thumbnails else "url"
    folder = Path(os.path.realpath(path)).parent
    classes = {*(each.name for each in config.classes), config.retrieval.background}
    asked: dict[str, tuple[str, bytes]] = {}
    for line, row in _gold_lines(path, ("class_name", place), classes):
        name, where_from = row["class_name"], f"{path} line {line}"
        what = _gold_file(folder, row[place], where_from).read_bytes() if thumbnails else row[place].encode()
        # Named after what is asked: another file of gold questions may be in use later, while answers to this one still come.
        key = f"gold{sha256(name.encode() + bytes(1) + what)[:16]}"
        if key in asked:
            raise ValueError(f"{where_from}: this question stands there twice")
        asked[key] = name, what
    if not asked:
        raise ValueError(f"{path}: no gold question stands below its header")
    table = pa.table({"key": list(asked), "concept": [name for name, _ in asked.values()]})
    if thumbnails:
        return Gold(table, per_batch, {key: what for key, (_, what) in asked.items()})
    return Gold(table.append_column("url", pa.array([what.decode() for _, what in asked.values()])), per_batch)


def _gold_lines(path: str, needed: Sequence[str], classes: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and fields of the gold questions. Raises ``ValueError`` for the first line that is none."""

    def check_header(path: Path, header: list[str]) -> None:
        if any(header.count(name) != 1 for name in needed):
            raise ValueError(f"{path}: gold questions need a header with the columns {', '.join(needed)}, each once")

    for line, header, fields in csv_records(Path(path), check_header):
        if len(fields) != len(header):
            raise ValueError(f"{path} line {line}: {len(fields)} fields, the header has {len(header)}")
        row = dict(zip(header, fields, strict=True))
        for name in needed:
            if not row[name].strip() or clean(row[name]) != row[name]:
                raise ValueError(f"{path} line {line}: {name} is {row[name]!a:.60}: it must be text, in UTF-8")
        if row["class_name"] not in classes:
            raise ValueError(f"{path} line {line}: class_name {row['class_name']!r:.60} is no class of the run")
        yield line, row


def _gold_file(folder: Path, name: str, place: str) -> Path:
    file = Path(os.path.realpath(folder / name))
    if not file.is_relative_to(folder):
        raise ValueError(f"{place}: file {name!r} lies outside the folder of the CSV")
    if not file.is_file():
        raise ValueError(f"{place}: file {name!r} is no file beside the CSV")
    return file


def gold_key(out: str) -> dict[str, str]:
    """Key -> right class of all gold questions of a run's exports; empty where there were none."""
    store = Store(out)
    if store.local:
        check_file(store.local / GOLD_FILE)
    key = store.read_json(GOLD_FILE) if store.exists(GOLD_FILE) else {}
    return checked_gold(key, posixpath.join(out, GOLD_FILE))


def _keep_gold_key(store: Store, placed: Mapping[str, str]) -> None:
    """Add questions to the key beside the run. Those of earlier exports stay: their answers may still come."""
    with lock(store, _BUSY):
        store.write_json(GOLD_FILE, {**gold_key(store.url), **placed})
        if store.local:
            (store.local / GOLD_FILE).chmod(0o600)


def _blobs(rows: Rows) -> dict[str, Blob]:
    return dict(zip(rows.table(["key"])["key"].to_pylist(), rows.blobs("image"), strict=True))


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import of votes gave.

    Attributes:
        votes: how many there are in all.
        added: how many of them this import brought.
        withdrawn: how many of earlier imports it took back, because their assignments count no longer.
        gold: the rows of ``worker_table`` of those who answered gold questions, the worst first.
        gold_again: answers to gold questions that count no second time.
        rejects: reason -> answers that it turned away.
        rejects_file: where these are listed.
        missing: images short of votes.
        kappas: Fleiss' kappa by form.
    """

    votes: int
    added: int
    withdrawn: int
    gold: pa.Table
    gold_again: int
    rejects: Mapping[str, int]
    rejects_file: str
    missing: pa.Table
    kappas: Mapping[str, float]


def import_votes(config: ClearConfig, out: str, results: Sequence[str], *, salt: str, replace: bool = False) -> Imported:
    """Read MTurk result files, or Label Studio exports (``.json``), and add their votes to those that the run looks for.

    Votes of MTurk's assignments that these files call rejected are taken back.

    Args:
        config: settings of the run.
        out: the run.
        results: files of the label form and of the sensitive form, any number of batches.
        salt: secret text that goes into the hashes of the workers' ids.
        replace: forget the votes of earlier imports.

    Raises:
        ValueError: for files that are no results, damaged votes, or another salt than that of earlier imports.
        Busy: where another import, or a run, is at work in ``out``.
    """
    store, rows = asked_rows(out)
    asked = _queries(rows)
    path = posixpath.join(out, VOTES_FILE)
    mark = {_MARK: hash_worker("", salt).encode()}
    with lock(store, _BUSY):  # imports add to what they read: one that another overtakes would lose its votes
        earlier = VOTES.empty_table() if replace or not store.exists(VOTES_FILE) else read_votes(path)
        # A worker would have another hash, and an answer that comes again would count twice.
        if (earlier.schema.metadata or mark).get(_MARK) not in (None, mark[_MARK]):
            raise ValueError(
                f"{path}: its worker ids were hashed with another salt: give the same --salt, or --replace the votes"
            )
        gold = gold_key(out)
        read = _read_results(results, options_of(config), salt, {**asked, **gold}, earlier, gold)
        kept = np.delete(np.arange(earlier.num_rows), list(read.withdrawn))
        votes = _sorted(pa.concat_tables([earlier.take(kept), read.votes]))
        write_votes(votes.replace_schema_metadata(mark), path)
        store.write(REJECTS_FILE, _rejects_csv(read.rejects))
    reasons = {item["values"]: item["counts"] for item in pc.value_counts(read.rejects["reason"]).to_pylist()}
    short = missing_votes(list(asked), votes, workers=config.qa.workers)
    kappas = {form: votes_kappa(votes, form=form) for form in sorted(pc.unique(votes["form"]).to_pylist())}
    rejects_file = posixpath.join(out, REJECTS_FILE)
    workers = workers_of(config, out, votes)
    return Imported(
        votes=votes.num_rows,
        added=read.votes.num_rows,
        withdrawn=len(read.withdrawn),
        gold=workers.filter(pc.greater(workers["num_gold"], 0)).sort_by("gold_accuracy"),
        gold_again=read.gold_again,
        rejects=dict(sorted(reasons.items())),
        rejects_file=rejects_file,
        missing=short,
        kappas=kappas,
    )


def workers_of(config: ClearConfig, out: str, votes: pa.Table) -> pa.Table:
    """The table of a run's workers (``agreement.worker_table``), their answers to gold questions included."""
    return worker_table(votes, gold=gold_key(out), background=config.retrieval.background)


def _queries(rows: Rows) -> dict[str, str]:
    table = rows.table(["key", "concept"])
    return dict(zip(table["key"].to_pylist(), table["concept"].to_pylist(), strict=True))


def _sorted(votes: pa.Table) -> pa.Table:
    return votes.take(pc.sort_indices(votes, [("form", "ascending"), ("key", "ascending"), ("worker", "ascending")]))


def _rejects_csv(rejects: pa.Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rejects.column_names)
    writer.writerows([guard_formula(value) for value in row.values()] for row in rejects.to_pylist())
    return text.getvalue().encode()


def own_salt(out: str) -> str:
    """Secret text for worker hashes, made once a run and kept beside it, readable by its owner alone.

    Raises:
        ValueError: where the file is empty or no text.
        Busy: where it is to be made, and another process is at work in ``out``.
    """
    path = Path(out) / "qa" / "salt"
    if not path.is_file():
        with lock(Store(out), _BUSY):
            if not path.is_file():  # nobody made it in the meantime: votes that were hashed with it could not be added to
                with replacing(path) as beside:
                    beside.touch(mode=0o600)
                    beside.write_text(secrets.token_hex(16))
    check_file(path)
    salt = path.read_bytes().decode("utf-8", "replace")
    if not salt.strip() or clean(salt) != salt or "\ufffd" in salt:
        raise ValueError(f"{path}: the salt is empty or no text: put it back, or remove the file and import all with --replace")
    adopt(path)  # of an earlier version, which kept no records
    return salt


def _read_results(
    results: Sequence[str],
    options: Sequence[Option],
    salt: str,
    queries: Mapping[str, str],
    earlier: pa.Table | None = None,
    gold: Collection[str] = (),
) -> Votes:
    endings = {Path(name).suffix.lower() for name in results}
    if endings == {".json"}:
        return read_label_studio(results, options=options, salt=salt, keys=queries, earlier=earlier)
    if endings != {".csv"}:
        raise ValueError(f"results {', '.join(results)}: all of them .csv (MTurk), or all of them .json (Label Studio)")
    return read_mturk_results(results, options=options, salt=salt, queries=queries, earlier=earlier, gold=gold)


def answer(run: Run, config: ClearConfig, out: str) -> bool:
    """Let SIMULATED annotators answer where the settings say so; the files go the way of real ones, export and import."""
    check_not_empty(run, out, "to ask annotators about")  # people neither
    place = votes_place(config, out)
    if not isinstance(place, WhereOfRows):
        return False
    from ...curation.qa.simulated import ErrorRates, simulate_results

    store = Store(out)
    votes_file = place.of(run.result.digest)
    with contextlib.ExitStack() as stack:
        # Beside the run for people to look at, apart from what people were asked; where that is no folder, only the votes stay.
        folder = store.local / "qa" / "simulated" if store.local else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        files = export_questions(config, out, str(folder / "export"))
        rates = config.qa.errors
        results = simulate_results(
            [str(path) for path in files if path.suffix == ".csv"],
            _truth(config, out),
            str(folder / "results"),
            options=options_of(config),
            seed=config.seed,
            workers=config.qa.workers,
            errors=ErrorRates(rates.none, rates.extra, rates.wrong, rates.sensitive),
        )
        remove_half_written(folder)
        for old in {*map(str, (folder / "results").glob("SIMULATED_*.csv"))} - {*results}:
            remove(old)
        votes = _read_results(results, options_of(config), f"simulated-{config.seed}", _queries(run.rows())).votes
    write_votes(_sorted(votes), votes_file)
    others = [name for name in store.list("qa") if name.startswith(_SIMULATED) and name != posixpath.basename(votes_file)]
    store.remove([posixpath.join("qa", name) for name in others])
    return True


def _truth(config: ClearConfig, out: str) -> pa.Table:
    """``key`` and ``true_class`` from the labels that came with the images. Only simulated annotators may look at it."""
    _, rows = asked_rows(out)
    if "labels" not in rows.column_names:
        raise ValueError('qa.votes = "simulated" needs a source whose images come with labels')
    table = rows.table([name for name in ("key", "labels", "file") if name in rows.column_names])
    truth: list[str | None] = []
    for row in table.to_pylist():
        value = json.loads(row["labels"]).get(config.qa.truth)
        if not isinstance(value, str | None):
            raise ValueError(
                f"{row.get('file', 'image')}, key {row['key']!r}: its label {config.qa.truth!r} is {value!r:.60}: "
                "the name of a class, or null"
            )
        truth.append(value)
    if all(value is None for value in truth):
        raise ValueError(f'qa.votes = "simulated": no image has the label {config.qa.truth!r}')
    return pa.table({"key": table["key"], "true_class": pa.array(truth, pa.string())})
