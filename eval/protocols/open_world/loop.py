"""KOWL's loop: an evaluator presents increments that contain new classes; a predictor predicts, requests labels and learns.

For every increment t (Prijatelj et al., "Human Activity Recognition in an Open World", JAIR 81, 2024):

a. *pre-feedback*: predictions for its training, validation and test rows, labels hidden (not for increment 0);
b. feedback: the predictor lists its training rows in the order in which it wants labels, and gets the first
   floor(amount x n) labels, from the stored truth or from people; increment 0 is always fully labelled, including its
   validation rows. Alternatively it gets no labels, but measures of its predictions for these rows (section 4.2);
c. the rows are added to the experience, and the predictor is fitted to all of it;
d. *post-feedback*: predictions for the same rows.

From increment 1 on, validation and test rows are one test set (section 4, Table 1), and are predicted in one call: a predictor
that clusters what it rejects gives both the same clusters. (The released code predicts one split after the other.)

The same rows under visual transforms, *nuisances*, are predicted separately: a twin of the predictor, in the predictor's state
after an increment, predicts the transformed rows of that increment and, before feedback, of the next one (section 4.3).
Anything that the twin learns from them is discarded.

Predictions are stored, and every measure is computed from stored predictions (``open_world.measures``). A run that was killed
continues after its last finished increment and yields the same rows.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....curation.checkpoint import Checkpoint
from ...metrics.confusion import top_labels
from .measures import TOP, in_test_set, matrices, ordered_measures
from .predictions import COLUMNS, FEEDBACK, Feedback, feedback_row, feedbacks, predicted_rows
from .predictor import Features, Labels, Predictor, Seen, Uids

_LOGGER = logging.getLogger("benchwright.training")
HIDDEN = -1


@dataclasses.dataclass(frozen=True)
class SplitSamples:
    """One split of one increment, in the order of presentation, on which the reaction time depends.

    Attributes:
        uid: (n,) strings, unique in the whole run.
        X: (n, d) float32; may be memory-mapped. n may be 0.
        y: (n,) int64 class indices >= 0.

    >>> SplitSamples(np.array(["a", "b"]), np.zeros((2, 4), np.float32), np.array([0, 1])).X.shape
    (2, 4)
    >>> SplitSamples(np.array(["a", "b"]), np.zeros((2, 4)), np.array([0, 1]))
    Traceback (most recent call last):
        ...
    ValueError: uids <U1, features float64, labels int64: str, float32, int64 are needed
    """

    uid: Uids
    X: Features
    y: Labels

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.y.shape != self.X.shape[:1] or self.uid.shape != self.y.shape:
            raise ValueError(f"uids {self.uid.shape}, features {self.X.shape} and labels {self.y.shape} do not pair")
        if self.X.dtype != np.float32 or self.y.dtype != np.int64 or self.uid.dtype.kind != "U":
            raise ValueError(
                f"uids {self.uid.dtype}, features {self.X.dtype}, labels {self.y.dtype}: str, float32, int64 are needed"
            )
        if len(self.y) and int(self.y.min()) < 0:
            raise ValueError(f"label {int(self.y.min())}: class indices start at 0")


@dataclasses.dataclass(frozen=True)
class Increment:
    """One increment. A split that a dataset lacks is empty (Kinetics-700 has no test rows of its own).

    >>> some = SplitSamples(np.array(["a"]), np.zeros((1, 4), np.float32), np.array([0]))
    >>> none = SplitSamples(np.array([], str), np.zeros((0, 4), np.float32), np.array([], np.int64))
    >>> list(Increment("2005", train=some, validate=none, test=none).splits)
    ['train']
    """

    name: str
    train: SplitSamples
    validate: SplitSamples
    test: SplitSamples

    @property
    def splits(self) -> dict[str, SplitSamples]:
        """The non-empty splits by name, in the order in which they are predicted."""
        every = {"train": self.train, "validate": self.validate, "test": self.test}
        return {name: samples for name, samples in every.items() if len(samples.y)}


@dataclasses.dataclass(frozen=True)
class Setting:
    """Settings of an experiment; the paper runs feedback 0, 0.5 and 1 without a limit.

    Attributes:
        feedback: share in [0, 1] of an increment's training rows that get labels, except in increment 0.
        experience_limit: most rows that the predictor may learn from; the newest are kept (our choice). None: all.
        scores: whether the predictor gets measures of its predictions for the training rows (``Predictor.take_scores``).

    >>> Setting(feedback=0.5).labels_given(increment=0, rows=7), Setting(feedback=0.5).labels_given(increment=1, rows=7)
    (7, 3)
    >>> Setting(feedback=50)
    Traceback (most recent call last):
        ...
    ValueError: feedback 50: a share in [0, 1]
    """

    feedback: float
    experience_limit: int | None = None
    scores: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.feedback <= 1:
            raise ValueError(f"feedback {self.feedback}: a share in [0, 1]")
        if self.experience_limit is not None and self.experience_limit < 1:
            raise ValueError(f"experience_limit {self.experience_limit}: at least 1, or None")

    def labels_given(self, increment: int, rows: int) -> int:
        """floor(amount x rows), computed exactly from the decimal amount; all rows of increment 0."""
        return rows if increment == 0 else math.floor(Fraction(repr(float(self.feedback))) * rows)


LearnedArrays = Mapping[str, np.ndarray]
"""State from which a predictor continues: ``Predictor.state``, as arrays."""

GivenLabels = Mapping[int, Mapping[str, int]]
"""Labels from people: increment -> uid -> class index."""


class Unanswered(Exception):
    """Labels from people are missing for an increment.

    Attributes:
        increment: number of the increment.
        uids: uids of the samples to label, in the requested order.

    >>> raise Unanswered(2, ["clip7", "clip3"])
    Traceback (most recent call last):
        ...
    benchwright.eval.protocols.open_world.loop.Unanswered: increment 2: 2 labels are requested
    """

    def __init__(self, increment: int, uids: list[str]) -> None:
        super().__init__(f"increment {increment}: {len(uids)} labels are requested")
        self.increment, self.uids = increment, uids


def run_open_world(
    predictor: Predictor,
    increments: Sequence[Increment],
    classes: Sequence[str],
    *,
    setting: Setting,
    folder: Path,
    tell: Callable[[str], None] = _LOGGER.info,
    nuisances: Mapping[str, Sequence[Increment]] = MappingProxyType({}),
    twin: Callable[[], Predictor] | None = None,
    answers: GivenLabels | None = None,
    keep: Callable[[int, LearnedArrays, Labels], None] | None = None,
) -> Iterator[pa.Table]:
    """Run, or continue from the checkpoint in ``folder``, and yield the rows of ``open_world.predictions``, one per table.

    Args:
        predictor: a new predictor; its state is replaced if the folder holds a part of this run.
        increments: increments in order; uids are unique over all of them.
        classes: names of the class indices.
        setting: see ``Setting``.
        folder: folder reserved for this run, see ``curation.keys.work_folder``. Predictions are kept there until the run is
            complete, so that memory holds the predictions for only one split.
        tell: called with a line of text after each increment.
        nuisances: visual transform -> the increments under it.
        twin: makes a new predictor like ``predictor``; needed with nuisances.
        answers: labels from people, used instead of those of the increments; requested rows without an answer stay
            unlabelled.
        keep: called with the number of each increment, the predictor's state after it, and the labels given for its training
            rows, ``HIDDEN`` where none was given. None: nothing is kept.

    Raises:
        ArithmeticError: the predictor's weights did not stay finite. Nothing was yielded then.
        Unanswered: raised at the first increment that is missing in ``answers``.

    >>> class Majority:  # see eval.protocols.open_world.predictor.Predictor
    ...     def fit(self, experience, validation):
    ...         y = np.concatenate([y for _, _, y in experience])
    ...         self.classes, counts = np.unique(y[y >= 0], return_counts=True)
    ...         self.share = (counts / counts.sum()).astype(np.float32)
    ...     def predict(self, uid, X):
    ...         return self.classes, np.tile(self.share, (len(X), 1))
    ...     def request(self, uid, X):
    ...         return list(uid)
    ...     def state(self):
    ...         return {"classes": self.classes, "share": self.share}
    >>> def samples(start, y):
    ...     uids = np.array([f"clip{start + n}" for n in range(len(y))], str)
    ...     return SplitSamples(uids, np.zeros((len(y), 4), np.float32), np.array(y, np.int64))
    >>> first = Increment("old", samples(0, [0, 0, 1]), samples(3, [0]), samples(4, [1]))
    >>> second = Increment("new", samples(5, [2, 2]), samples(7, []), samples(7, [2]))
    >>> Path("worlds").mkdir()
    >>> half = Setting(feedback=0.5)
    >>> rows = run_open_world(Majority(), [first, second], ["a", "b", "c"], setting=half, folder=Path("worlds"))
    >>> table = pa.concat_tables(rows)
    >>> table.select(["increment", "phase", "split"]).to_pylist()[-1]
    {'increment': 1, 'phase': 'post', 'split': 'test'}
    """
    _check(increments, classes)
    checkpoint = Checkpoint(folder)
    past = [feedback for place in checkpoint.files for feedback in feedbacks(pq.ParquetFile(place).read(columns=FEEDBACK))]
    experience: list[Seen] = []
    if checkpoint.state is not None:
        for feedback, increment in zip(past, increments, strict=False):
            labels = _labels(increment.train, feedback.labelled, _said(answers, len(experience)))
            _extend(experience, increment.train, labels, setting.experience_limit)
        predictor.restore(checkpoint.arrays(), tuple(experience))
    for t in range(len(past), len(increments)):
        place = folder / f"increment-{t:04}.parquet"
        with pq.ParquetWriter(place, COLUMNS) as writer:
            if t > 0:
                for row in _apart(twin, predictor, nuisances, experience, t, "pre"):
                    writer.write_table(row)
            for row in _step(predictor, increments, t, setting, past, experience, list(classes), answers):
                writer.write_table(row)
            for row in _apart(twin, predictor, nuisances, experience, t, "post"):
                writer.write_table(row)
        held = predictor.state()
        state = {name: np.asarray(held[name]) for name in sorted(held)}
        feedback = past[t]
        if keep is not None:
            keep(t, state, _labels(increments[t].train, feedback.labelled, _said(answers, t)))
        checkpoint.commit_arrays(state, place)
        given = f"{len(feedback.labelled)} of {feedback.samples} labels given"
        if t > 0 and setting.scores:
            given += ", and scores"
        elif t > 0 and len(feedback.labelled):
            given += ", simulated from the lists" if answers is None else ", by people"
        tell(f"increment {t} ({feedback.name}, {t + 1} of {len(increments)}): {given}")
    for place in checkpoint.files:
        with pq.ParquetFile(place) as file:
            yield from (file.read_row_group(number) for number in range(file.num_row_groups))


def see_through(
    predictor: Callable[[], Predictor],
    increments: Sequence[Increment],
    transformed: Sequence[Increment],
    *,
    transform: str,
    kept: Callable[[int], tuple[LearnedArrays, Labels]],
    experience_limit: int | None = None,
) -> Iterator[pa.Table]:
    """The rows that ``run_open_world`` would have yielded for a nuisance, computed from kept states without learning.

    Args:
        predictor: makes a new predictor.
        increments: increments that were learned.
        transformed: the same increments under the transform.
        transform: name of the transform.
        kept: number of an increment -> state and labels, as ``run_open_world`` passed them to ``keep``.
        experience_limit: see ``Setting``.

    >>> class Constant:
    ...     def restore(self, state, experience):
    ...         self.labels = state["labels"]
    ...
    ...     def predict(self, uid, X):
    ...         return self.labels, np.ones((len(X), 1), np.float32)
    >>> some = SplitSamples(np.array(["a"]), np.zeros((1, 4), np.float32), np.array([0]))
    >>> none = SplitSamples(np.array([], str), np.zeros((0, 4), np.float32), np.array([], np.int64))
    >>> world = [Increment("old", some, none, none)]
    >>> kept = lambda t: ({"labels": np.array([0])}, np.array([0]))
    >>> [row] = see_through(Constant, world, world, transform="rotation", kept=kept)
    >>> row.select(["increment", "phase", "split", "transform"]).to_pylist()
    [{'increment': 0, 'phase': 'post', 'split': 'train', 'transform': 'rotation'}]
    """
    experience: list[Seen] = []
    state: LearnedArrays = {}
    for t, increment in enumerate(increments):
        for phase in ("pre", "post"):
            if phase == "post":
                state, labels = kept(t)
                _extend(experience, increment.train, labels, experience_limit)
            if phase == "post" or t > 0:
                yield from _by_twin(predictor, state, experience, transformed[t], t, phase, transform)


def _step(
    predictor: Predictor,
    increments: Sequence[Increment],
    t: int,
    setting: Setting,
    past: list[Feedback],
    experience: list[Seen],
    classes: list[str],
    answers: GivenLabels | None,
) -> Iterator[pa.Table]:
    """The rows of one increment. Extends ``past`` and ``experience`` in place."""
    increment, validation = increments[t], increments[0].validate
    train = increment.train
    if t > 0:
        yield from _predicted(predictor, increment, t, "pre")
    rows = np.arange(len(train.y), dtype=np.int64)
    given = setting.labels_given(t, len(rows))
    if t > 0 and setting.scores and len(rows):
        _score(predictor, train, past[-1].known_to_predictor)
    asks, by_people = answers is not None and t > 0, _said(answers, t)
    if 0 < given < len(rows) or (asks and given):
        rows = _requested(predictor, train, given)
    rows = rows[:given]
    if asks and given:
        if by_people is None:
            raise Unanswered(t, train.uid[rows].tolist())
        rows = rows[[uid in by_people for uid in train.uid[rows].tolist()]]
    labels = _labels(train, rows, by_people)
    _extend(experience, train, labels, setting.experience_limit)
    predictor.fit(tuple(experience), (validation.uid, validation.X, validation.y))
    feedback = Feedback(
        increment.name,
        len(train.y),
        rows,
        _union(past[-1].known_to_evaluator if past else [], train.y),
        _union(past[-1].known_to_predictor if past else [], labels[rows]),
        sum(len(y) for _, _, y in experience),
    )
    past.append(feedback)
    yield feedback_row(t, feedback, classes if t == 0 else None)
    yield from _predicted(predictor, increment, t, "post")


def _apart(
    twin: Callable[[], Predictor] | None,
    predictor: Predictor,
    nuisances: Mapping[str, Sequence[Increment]],
    experience: list[Seen],
    t: int,
    phase: str,
) -> Iterator[pa.Table]:
    """The rows of an increment under each transform, predicted by a twin of the predictor."""
    if not nuisances:
        return
    if twin is None:
        raise ValueError("nuisances need a copy of the predictor: set the function that makes it")
    state = predictor.state()
    for transform, increments in nuisances.items():
        yield from _by_twin(twin, state, experience, increments[t], t, phase, transform)


def _by_twin(
    make: Callable[[], Predictor],
    state: LearnedArrays,
    experience: list[Seen],
    increment: Increment,
    t: int,
    phase: str,
    transform: str,
) -> Iterator[pa.Table]:
    """The rows of an increment under a transform, predicted by a new predictor with a copy of the state."""
    twin = make()
    twin.restore({name: np.array(value) for name, value in state.items()}, tuple(experience))
    yield from _predicted(twin, increment, t, phase, transform)


def _predicted(predictor: Predictor, increment: Increment, t: int, phase: str, transform: str = "") -> Iterator[pa.Table]:
    for together in _sets(increment, t):
        parts = list(together.values())
        uid, X = (parts[0].uid, parts[0].X) if len(parts) == 1 else _joined(parts)
        columns, probabilities = predictor.predict(uid, X)
        columns = np.asarray(columns)
        probabilities = np.asarray(probabilities)
        where = f"prediction of {type(predictor).__name__} for {increment.name}, {' and '.join(together)}"
        if probabilities.shape != (len(uid), len(columns)) or probabilities.dtype != np.float32:
            raise ValueError(f"{where}: {probabilities.shape} {probabilities.dtype}, not ({len(uid)}, {len(columns)}) float32")
        if columns.dtype != np.int64 or len(np.unique(columns)) != len(columns) or not len(columns):
            raise ValueError(f"{where}: columns {columns.dtype} {columns[:5].tolist()}...: distinct int64 labels are needed")
        sums = probabilities.sum(axis=1, dtype=np.float64)
        bad = ~(np.abs(sums - 1) < 1e-3) | (probabilities.min(axis=1) < 0)
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(
                f"{where}: row {at} sums to {sums[at]} with least {probabilities[at].min()}: probabilities are needed"
            )
        start = 0
        for split, samples in together.items():
            mine = probabilities[start : start + len(samples.y)]
            yield from predicted_rows(t, phase, split, samples.uid, samples.y, columns, mine, transform)
            start += len(samples.y)


def _sets(increment: Increment, t: int) -> list[dict[str, SplitSamples]]:
    """The splits by name that are predicted in one call, in the order of the calls."""
    splits = increment.splits
    test = {name: splits.pop(name) for name in list(splits) if t > 0 and in_test_set(t, name)}
    return [*({name: samples} for name, samples in splits.items()), *([test] if test else [])]


def _joined(parts: Sequence[SplitSamples]) -> tuple[Uids, Features]:
    return np.concatenate([each.uid for each in parts]), np.concatenate([each.X for each in parts])


def _requested(predictor: Predictor, train: SplitSamples, given: int) -> Labels:
    """Row numbers of the samples that the predictor wants labelled first."""
    wanted = [str(uid) for uid in predictor.request(train.uid, train.X)][:given]
    row_of = {uid: row for row, uid in enumerate(train.uid.tolist())}
    strange = [uid for uid in wanted if uid not in row_of]
    if strange or len(set(wanted)) != given:
        repeated = f"{len(set(wanted))} different ones among the first {given}"
        problem = f"{strange[0]!r} is not one of them" if strange else repeated
        raise ValueError(f"{type(predictor).__name__} requested labels of {len(train.uid)} uids: {problem}")
    return np.array([row_of[uid] for uid in wanted], dtype=np.int64)


def _said(answers: GivenLabels | None, t: int) -> Mapping[str, int] | None:
    """Labels from people for an increment; None if they were not asked, as for increment 0."""
    return None if answers is None or t == 0 else answers.get(t)


def _labels(train: SplitSamples, rows: Labels, by_people: Mapping[str, int] | None) -> Labels:
    """Labels of all rows: of ``rows`` the stored truth, or those from people; ``HIDDEN`` for the others."""
    labels = np.full(len(train.y), HIDDEN, dtype=np.int64)
    labels[rows] = train.y[rows] if by_people is None else [by_people[uid] for uid in train.uid[rows].tolist()]
    return labels


def _score(predictor: Predictor, train: SplitSamples, known: list[int]) -> None:
    """Pass the predictor measures of its predictions for training rows whose labels it does not see."""
    if (take := getattr(predictor, "take_scores", None)) is None:
        raise ValueError(f"{type(predictor).__name__} accepts no scores: it needs a method take_scores(uid, X, scores)")
    columns, probabilities = predictor.predict(train.uid, train.X)
    ordered = matrices(train.y, top_labels(columns, probabilities, TOP), {"predictor": known})
    named = ((task, ordered_measures(each)) for (_, task), each in ordered.items())
    take(train.uid, train.X, {f"{task}.{measure}": value for task, found in named for measure, value in found.items()})


def _extend(experience: list[Seen], train: SplitSamples, labels: Labels, limit: int | None) -> None:
    experience.append((train.uid, train.X, labels))
    if limit is None:
        return
    left = limit
    for at in reversed(range(len(experience))):
        uid, X, y = experience[at]
        start = max(0, len(y) - left)
        experience[at] = (uid[start:], X[start:], y[start:])
        left -= len(y) - start


def _union(known: list[int], labels: Labels) -> list[int]:
    return np.union1d(np.asarray(known, dtype=np.int64), labels).tolist()


def _check(increments: Sequence[Increment], classes: Sequence[str]) -> None:
    if not increments or not len(increments[0].train.y):
        raise ValueError("increment 0 has no training rows: there is nothing to train on first")
    every = [samples for one in increments for samples in one.splits.values()]
    widths = sorted({samples.X.shape[1] for samples in every})
    if len(widths) != 1:
        raise ValueError(f"splits have {widths} features: one width is needed")
    highest = max(int(samples.y.max()) for samples in every)
    if highest >= len(classes):
        raise ValueError(f"class index {highest} with {len(classes)} class names")
    uids = np.concatenate([samples.uid for samples in every])
    values, counts = np.unique(uids, return_counts=True)
    if len(values) != len(uids):
        raise ValueError(
            f"uid {values[np.argmax(counts)]!r} comes {counts.max()} times: a sample belongs to one split of one increment"
        )
