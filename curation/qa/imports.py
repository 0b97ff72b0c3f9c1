"""Import of annotators' answers: adds their votes to the votes file of a round."""

from __future__ import annotations

import csv
import dataclasses
import io
import posixpath
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..local_files import replacing
from ..records import adopt, check_file
from ..run import lock
from ..store import Store
from .agreement import votes_kappa, worker_table
from .label_studio import read_label_studio
from .mturk import guard_formula
from .mturk_results import Votes, clean, hash_worker, read_mturk_results
from .options import Option
from .rounds import BUSY, FOLDER, Round, asked_rows, gold_key, questions_of
from .served import read_served
from .votes import FORMS, VOTES, missing_votes, read_votes, write_votes

_REJECTS = "import.rejects.csv"
"""File of a round that lists the answers that the last import rejected."""

_MARK = b"benchwright.salt"
"""Metadata key of a votes file: a hash of the salt of its worker hashes."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """Result of an import of votes.

    Attributes:
        votes: total number of votes.
        votes_file: path of the votes file.
        added: number of votes added by this import.
        withdrawn: number of earlier votes withdrawn because their assignments no longer count.
        gold: rows of ``worker_table`` of the workers who answered gold questions, lowest accuracy first.
        gold_again: number of repeated answers to gold questions, which were not counted again.
        known: number of answers that were imported before.
        rejects: reason -> number of rejected answers.
        rejects_file: path of the list of rejected answers.
        missing: images with too few votes.
        kappas: Fleiss' kappa by form.
    """

    votes: int
    votes_file: str
    added: int
    withdrawn: int
    gold: pa.Table
    gold_again: int
    known: int
    rejects: Mapping[str, int]
    rejects_file: str
    missing: pa.Table
    kappas: Mapping[str, float]


def import_votes(asked: Round, out: str, results: Sequence[str], *, salt: str, replace: bool = False) -> Imported:
    """Read MTurk result files, Label Studio exports (``.json``) or the journal of ``benchwright qa serve`` (``.jsonl``), and
    add their votes to the votes file of the round.

    Votes of MTurk assignments that are rejected in these files are withdrawn.

    Args:
        asked: the round.
        out: folder of the run.
        results: files of the label form and of the sensitive form, any number of batches.
        salt: secret text for the hashes of worker ids.
        replace: discard the votes of earlier imports.

    Raises:
        ValueError: files that are not results, damaged votes, or a salt that differs from that of earlier imports.
        Busy: another import, or a run, is in progress in ``out``.
    """
    store, rows = asked_rows(asked, out)
    questions = questions_of(asked, rows)
    path, rejects_file = posixpath.join(out, asked.votes_file), posixpath.join(asked.folder, _REJECTS)
    mark = {_MARK: hash_worker("", salt).encode()}
    with lock(store, BUSY):  # an import reads the votes and writes them again: concurrent imports would lose votes
        earlier = VOTES.empty_table() if replace or not store.exists(asked.votes_file) else read_votes(path)
        # With another salt, workers would have other hashes, and repeated answers would count twice.
        if (earlier.schema.metadata or mark).get(_MARK) not in (None, mark[_MARK]):
            raise ValueError(
                f"{path}: its worker ids were hashed with another salt: give the same --salt, or --replace the votes"
            )
        gold = gold_key(store, asked.folder)
        read = read_results(results, asked.options, salt, {**questions, **gold}, earlier, gold, asked.forms)
        kept = np.delete(np.arange(earlier.num_rows), list(read.withdrawn))
        votes = in_order(pa.concat_tables([earlier.take(kept), read.votes]))
        write_votes(votes.replace_schema_metadata(mark), path)
        store.write(rejects_file, _rejects_csv(read.rejects))
    reasons = {item["values"]: item["counts"] for item in pc.value_counts(read.rejects["reason"]).to_pylist()}
    workers = workers_of(asked, out, votes)
    return Imported(
        votes=votes.num_rows,
        votes_file=path,
        added=read.votes.num_rows,
        withdrawn=len(read.withdrawn),
        gold=workers.filter(pc.greater(workers["num_gold"], 0)).sort_by("gold_accuracy"),
        gold_again=read.gold_again,
        known=read.known,
        rejects=dict(sorted(reasons.items())),
        rejects_file=posixpath.join(out, rejects_file),
        missing=missing_votes(list(questions), votes, workers=asked.workers, forms=asked.forms),
        kappas={form: votes_kappa(votes, form=form) for form in sorted(pc.unique(votes["form"]).to_pylist())},
    )


def workers_of(asked: Round, out: str, votes: pa.Table) -> pa.Table:
    """The ``agreement.worker_table`` of a round, including answers to gold questions."""
    return worker_table(votes, gold=gold_key(Store(out), asked.folder), background=asked.background)


def read_results(
    results: Sequence[str],
    options: Sequence[Option],
    salt: str,
    questions: Mapping[str, str],
    earlier: pa.Table | None = None,
    gold: Collection[str] = (),
    forms: Sequence[str] = FORMS,
) -> Votes:
    """Read votes from MTurk result files (all ``.csv``), Label Studio exports (all ``.json``), or a journal of answers (one
    ``.jsonl``).
    """
    endings = {Path(name).suffix.lower() for name in results}
    if endings == {".json"}:
        return read_label_studio(results, options=options, salt=salt, keys=questions, earlier=earlier, forms=forms)
    if endings == {".jsonl"} and len(results) == 1:
        return read_served(results[0], options=options, salt=salt, keys=questions, earlier=earlier, forms=forms)
    if endings != {".csv"}:
        message = "all of them .csv (MTurk), all of them .json (Label Studio), or one .jsonl (`benchwright qa serve`)"
        raise ValueError(f"results {', '.join(results)}: {message}")
    return read_mturk_results(results, options=options, salt=salt, queries=questions, earlier=earlier, gold=gold)


def in_order(votes: pa.Table) -> pa.Table:
    """Sort votes as in the votes file: by form, key and worker."""
    return votes.take(pc.sort_indices(votes, [("form", "ascending"), ("key", "ascending"), ("worker", "ascending")]))


def _rejects_csv(rejects: pa.Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rejects.column_names)
    writer.writerows([guard_formula(value) for value in row.values()] for row in rejects.to_pylist())
    return text.getvalue().encode()


def own_salt(out: str) -> str:
    """Secret salt for worker hashes, created once per run and stored in its folder, readable only by its owner.

    Raises:
        ValueError: the file is empty or not text.
        Busy: the file does not exist yet, and another process is in progress in ``out``.
    """
    path = Path(out) / FOLDER / "salt"
    if not path.is_file():
        with lock(Store(out), BUSY):
            if not path.is_file():  # not created meanwhile: replacing it would make votes hashed with it unusable
                with replacing(path) as temporary:
                    temporary.touch(mode=0o600)
                    temporary.write_text(secrets.token_hex(16))
    check_file(path)
    salt = path.read_bytes().decode("utf-8", "replace")
    if not salt.strip() or clean(salt) != salt or "\ufffd" in salt:
        raise ValueError(f"{path}: the salt is empty or no text: put it back, or remove the file and import all with --replace")
    adopt(path)  # written by an earlier version, which kept no records
    return salt
