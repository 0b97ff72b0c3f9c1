"""Answers of annotators as they come back: votes are added to those that the run looks for."""

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

from ..files import replacing
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
"""Metadata of the votes: by what their workers' ids were hashed, itself hashed."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import of votes gave.

    Attributes:
        votes: how many there are in all.
        votes_file: where they lie.
        added: how many of them this import brought.
        withdrawn: how many of earlier imports it took back, because their assignments count no longer.
        gold: the rows of ``worker_table`` of those who answered gold questions, the worst first.
        gold_again: answers to gold questions that count no second time.
        known: answers that earlier imports brought, which came again.
        rejects: reason -> answers that it rejected.
        rejects_file: where these are listed.
        missing: images short of votes.
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
    add their votes to those that the run looks for.

    Votes of MTurk's assignments that these files call rejected are taken back.

    Args:
        asked: the round.
        out: the run.
        results: files of the label form and of the sensitive form, any number of batches.
        salt: secret text that goes into the hashes of the workers' ids.
        replace: forget the votes of earlier imports.

    Raises:
        ValueError: for files that are no results, damaged votes, or another salt than that of earlier imports.
        Busy: where another import, or a run, is in progress in ``out``.
    """
    store, rows = asked_rows(asked, out)
    questions = questions_of(asked, rows)
    path, rejects_file = posixpath.join(out, asked.votes_file), posixpath.join(asked.folder, _REJECTS)
    mark = {_MARK: hash_worker("", salt).encode()}
    with lock(store, BUSY):  # imports add to what they read: one that another overtakes would lose its votes
        earlier = VOTES.empty_table() if replace or not store.exists(asked.votes_file) else read_votes(path)
        # A worker would have another hash, and an answer that comes again would count twice.
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
    """The table of a round's workers (``agreement.worker_table``), their answers to gold questions included."""
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
    """The votes of result files of MTurk (all ``.csv``), of exports of Label Studio (all ``.json``), or of a journal of answers
    (one ``.jsonl``).
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
    """The votes in the order in which a run keeps them."""
    return votes.take(pc.sort_indices(votes, [("form", "ascending"), ("key", "ascending"), ("worker", "ascending")]))


def _rejects_csv(rejects: pa.Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rejects.column_names)
    writer.writerows([guard_formula(value) for value in row.values()] for row in rejects.to_pylist())
    return text.getvalue().encode()


def own_salt(out: str) -> str:
    """Secret text for worker hashes, made once a run and kept next to it, readable by its owner alone.

    Raises:
        ValueError: where the file is empty or no text.
        Busy: where it does not exist yet, and another process is in progress in ``out``.
    """
    path = Path(out) / FOLDER / "salt"
    if not path.is_file():
        with lock(Store(out), BUSY):
            if not path.is_file():  # nobody made it in the meantime: votes that were hashed with it could not be added to
                with replacing(path) as temporary:
                    temporary.touch(mode=0o600)
                    temporary.write_text(secrets.token_hex(16))
    check_file(path)
    salt = path.read_bytes().decode("utf-8", "replace")
    if not salt.strip() or clean(salt) != salt or "\ufffd" in salt:
        raise ValueError(f"{path}: the salt is empty or no text: put it back, or remove the file and import all with --replace")
    adopt(path)  # of an earlier version, which kept no records
    return salt
