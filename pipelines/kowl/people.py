"""Trainings with labels from people: the stages that must come before one, and the rounds of questions."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact, load_artifact, load_run
from ...curation.flow import Flow, Step, join, rows_of, source
from ...curation.keys import where
from ...curation.qa.options import Option
from ...curation.qa.rounds import Round, asked_rows, unanswered
from ...curation.store import Store
from ...curation.verify import DATASET
from ...datasets.reader.index import DatasetIndex
from ..errors import WrongUse
from ..experiments import Training
from ..training_results import FOLDER, dataset_digest
from .clips import COLUMNS, FRAME_PX, with_clips
from .config import KowlConfig, People
from .protocols import BY_PEOPLE, feedback_of
from .requests import Answered, Asked, AskedPicture, check_address, majority_labels
from .stream import LABEL, request_labels

_ASKED = "asked_"


def check_people(config: KowlConfig, out: str) -> None:
    """Raise ``WrongUse`` if the settings of ``evaluation.people`` contradict each other or do not fit the samples."""
    if (people := config.evaluation.people) is None:
        raise WrongUse(
            "labels by people: set evaluation.people, such as --set 'evaluation.people={feedback=[0.1], address=...}'"
        )
    if not people.workers >= people.majority > people.workers / 2:
        rule = "it must be more than half of them, and no more than there are"
        raise WrongUse(f"evaluation.people.majority = {people.majority} of {people.workers} workers: {rule}")
    if people.address is None and not with_clips(config):
        raise WrongUse("evaluation.people.address: required, since features of this kind have no frames to show")
    if people.address is not None:
        check_address(people.address, _samples(out).column_names)


def by_people(config: KowlConfig, training: Training) -> Training:
    """The training, made to wait for people if its protocol says so."""
    if not training.protocol.endswith(BY_PEOPLE):
        return training
    assert config.evaluation.people is not None
    return dataclasses.replace(training, before=functools.partial(_before, people=config.evaluation.people, config=config))


def _before(
    one: Training, digest: str, out: str, make: Callable[[Flow], object], *, people: People, config: KowlConfig
) -> tuple[Flow, Mapping[str, Any]] | None:
    """Questions and answers, increment by increment; see ``Training.before``."""
    store, name = Store(posixpath.join(out, FOLDER)), one.name(digest)
    last = pc.max(_samples(out)["increment"]).as_py()
    flows: list[Flow] = []
    before: dict[str, Any] = {}
    for increment in range(1, int(last) + 1):
        given = {**one.learn.settings, **before, "training": one.facts(), "digest": digest, "increment": increment}
        asked = f"{_ASKED}{name}_{increment}"
        clips = None if people.address else with_clips(config)[0]
        ask = Step(request_labels, {**given, "address": people.address or "", "clips": clips})
        gives = Asked if clips is None else AskedPicture
        flows.append(source(asked, ask, gives=gives, max_rejects=None, may_be_empty=True))
        make(join(*flows))
        artifact = load_artifact(store, asked)
        assert artifact is not None
        if not artifact.rows:  # the budget is less than one sample
            continue
        round_of = _round(artifact, config, people, _names(out))
        if unanswered(round_of, store.url):
            return None
        votes = where(posixpath.join(store.url, round_of.votes_file))
        rule = {"votes": votes, "workers": people.workers, "majority": people.majority}
        earlier = {"earlier": before["answers"]} if before else {}
        answered = f"answered_{name}_{increment}"
        count = Step(majority_labels, {"asked": rows_of(asked), **rule, **earlier})
        flows.append(source(answered, count, gives=Answered, max_rejects=None, may_be_empty=True))
        before = {"answers": rows_of(answered)}
    return join(*flows), before


def rounds_of(config: KowlConfig, out: str) -> list[Round]:
    """Rounds of questions of the run's trainings, open or answered."""
    people = config.evaluation.people
    if people is None:
        return []
    return [_round(artifact, config, people, _names(out)) for artifact in _asked(out) if artifact.rows]


def _asked(out: str) -> Iterator[Artifact]:
    store = Store(posixpath.join(out, FOLDER))
    if not store.exists("run.json"):
        return
    digest = dataset_digest(out)
    for stage in load_run(store).stages:
        artifact = load_artifact(store, stage) if stage.startswith(_ASKED) else None
        if artifact is not None and artifact.recipe["settings"].get("digest") == digest:
            yield artifact


def answers_table(config: KowlConfig, out: str) -> list[list[str | int]]:
    """For every round: its name, the increment, the number of samples asked about, answered, and labelled by a majority; and
    how many of these labels equal those of the lists."""
    table = _samples(out)
    truth = dict(zip(table["key"].to_pylist(), table[LABEL].to_pylist(), strict=True))
    store, found = Store(posixpath.join(out, FOLDER)), list[list[str | int]]()
    for asked in rounds_of(config, out):
        _, rows = asked_rows(asked, store.url)
        short, increment = unanswered(asked, store.url), rows.table(["increment"])["increment"][0].as_py()
        answered = load_artifact(store, asked.stage.replace(_ASKED, "answered_", 1))
        said = [] if answered is None else answered.rows_view(store).table().to_pylist()
        mine = [row for row in said if row["increment"] == increment]
        right = sum(row["label"] == truth[row["key"]] for row in mine)
        found.append([asked.name, increment, rows.num_rows, rows.num_rows - len(short), len(mine), right])
    return found


def _samples(out: str) -> pa.Table:
    """The samples of the dataset."""
    return DatasetIndex.open(posixpath.join(out, DATASET)).table


def _names(out: str) -> list[str]:
    """All classes of the dataset, which annotators choose from."""
    return sorted(pc.unique(_samples(out)[LABEL]).to_pylist())


def _round(asked: Artifact, config: KowlConfig, people: People, classes: list[str]) -> Round:
    """The round of questions about the rows of a stage, named after the predictor, the budget and the increment."""
    settings = asked.recipe["settings"]
    facts = settings["training"]
    budget = f"{100 * feedback_of(facts['protocol'])[0]:g}"
    words = ["by", facts["method"], facts["model"], budget, asked.stage.split("_")[-2][:4], str(settings["increment"])]
    return Round(
        asked.stage,
        [Option(name) for name in classes],
        config.seed,
        name=re.sub(r"[^a-z0-9]+", "_", "_".join(filter(None, words)).lower()),
        workers=people.workers,
        image="" if people.address else "image",
        thumbnail_px=COLUMNS * FRAME_PX,
        medium=people.shows,
        forms=("labels",),
        group="increment",
        instructions=people.instructions,
    )
