"""Illuminant estimation in folds: every measured pair is tested once, by an estimator that has not seen it.

The protocol is that of Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant
Estimation", CVPR 2021. It withholds what the released code uses: the truth of a test fold, by which that code selects its
checkpoint, and training rows that were re-illuminated with the light of a test pair. Both can be enabled (``looks_at_test``,
``lights_of_test``), and the results then say so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.rng import rng
from ...curation.stage_rows import Rows
from ...datasets.two_camera.folds import Fold, Lights, no_pictures
from ...datasets.two_camera.rows import TransformPairs
from ..metrics.angular import AngularStatistics, angular_error_deg, angular_statistics, first_two_folds_mean, fold_mean, pooled
from ..results import Value, measured

Direction = Literal["1to2", "2to1"]
FoldScheme = Literal["rotating", "fixed", "all pairs", "all pairs, validated"]
AVERAGE = "average"
"""The average of several runs: the mean of log R/G and of log B/G over them."""


class Estimator(Protocol):
    """Interface of an estimator; nothing is inherited. All folds are passed at once, so that they may be trained side by side.

    Optional members: ``looks_at_test = True`` if it needs ``gt_test``, which the results then say; ``needs_pictures = True``
    if it reads ``Fold.pictures``; ``artifacts()``, file name -> bytes of files to keep from the last call (weights);
    ``progress``, which is set to a function that takes a line of text now and then; and ``folder``, which is set to a local
    folder (``pathlib.Path``) reserved for the training: its files survive an interruption and are there on resuming.

    >>> class MeanLight:
    ...     def estimate_folds(self, folds):
    ...         return {0: [np.tile(fold.gt_train.mean(axis=0), (len(fold.key_test), 1)) for fold in folds]}
    >>> estimator: Estimator = MeanLight()
    """

    def estimate_folds(self, folds: Sequence[Fold]) -> Mapping[int, Sequence[Lights]]:
        """Estimate the lights of each fold's test rows: seed, or number of the run -> (m, 3) per fold, in any scale."""
        ...


@dataclasses.dataclass(frozen=True)
class PairExamples:
    """Rows of one direction as arrays.

    Attributes:
        key, pair, light: (n,) text: keys of the row, of the measured pair that it shows, and of the pair whose light it has.
        X: (n, 9) float32.
        gt: (n, 3) float64, divided by green.
        fold: (n,) int64.
        original: (n,) bool.

    >>> key = np.array(["a", "b"])
    >>> rows = PairExamples(key, key, key, np.zeros((2, 9), np.float32), np.ones((2, 3)), np.arange(2), np.ones(2, bool))
    >>> [fold.key_test.tolist() for fold in rotating_folds(rows)]
    [['a'], ['b']]
    """

    key: NDArray[np.str_]
    pair: NDArray[np.str_]
    light: NDArray[np.str_]
    X: NDArray[np.float32]
    gt: Lights
    fold: NDArray[np.int64]
    original: NDArray[np.bool_]


def examples(pairs: TransformPairs, *, direction: Direction) -> PairExamples:
    """Rows for one direction: the light in the first camera from the transform to the second ("1to2", as in the paper), or the
    reverse.

    Args:
        pairs: measured and re-illuminated rows.
        direction: "1to2" or "2to1".

    Raises:
        ValueError: a transform is missing (NaN), or a light is not above 0 in every channel.

    >>> from benchwright.datasets.two_camera.rows import TransformPairs
    >>> key, T, gt = np.array(["a"]), np.eye(3)[None], np.array([[0.5, 0.5, 0.25]])
    >>> pairs = TransformPairs(key, key, key, np.array([""]), np.array([True]), np.array([0]), gt, gt, T, T, T, T)
    >>> rows = examples(pairs, direction="1to2")
    >>> rows.X, rows.gt  # lights are divided by green
    (array([[1., 0., 0., 0., 1., 0., 0., 0., 1.]], dtype=float32), array([[1. , 1. , 0.5]]))
    """
    one, other = direction.split("to")
    X = np.asarray(getattr(pairs, f"transform_{one}to{other}"), dtype=np.float32).reshape(len(pairs), 9)
    gt = np.asarray(getattr(pairs, f"gt_{one}"), dtype=np.float64)
    bad = ~(np.isfinite(X).all(axis=1) & np.isfinite(gt).all(axis=1) & (gt > 0).all(axis=1))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"pair {pairs.key[row]}: a finite transform {direction} and a light above 0 are needed")
    light = np.where(pairs.original, pairs.source_key, pairs.target_key)
    return PairExamples(pairs.key, pairs.source_key, light, X, gt / gt[:, 1:2], pairs.fold, pairs.original)


def rotating_folds(
    rows: PairExamples, *, reveal_test: bool = False, lights_of_test: bool = False, relit_rows: int | None = None
) -> list[Fold]:
    """Folds in which each part in turn is the test set, and the others are the training set.

    Args:
        rows: measured and re-illuminated rows; only measured ones are tested.
        reveal_test: whether to pass ``gt_test``.
        lights_of_test: whether to keep training rows re-lit with the illuminant of a test pair.
        relit_rows: maximum number of re-illuminated training rows of each pair, drawn for each fold; None: all.

    Raises:
        ValueError: fewer than two folds, or a fold without measured rows.

    >>> pairs = np.array(["a", "b", "c"])
    >>> rows = PairExamples(pairs, pairs, pairs, np.zeros((3, 9), np.float32), np.ones((3, 3)), np.arange(3), np.ones(3, bool))
    >>> [(fold.name, fold.key_test.tolist(), fold.pair_train.tolist()) for fold in rotating_folds(rows)]
    [('fold 0', ['a'], ['b', 'c']), ('fold 1', ['b'], ['a', 'c']), ('fold 2', ['c'], ['a', 'b'])]
    """
    numbers = np.unique(rows.fold)
    if len(numbers) < 2:
        raise ValueError(f"folds {numbers.tolist()}: at least two are needed")
    folds: list[Fold] = []
    for number in numbers:
        test = rows.fold == number
        train = ~test if lights_of_test else ~test & ~np.isin(rows.light, rows.pair[test & rows.original])
        train = _at_most(relit_rows, rows, train, f"fold {number}")
        folds.append(_fold(f"fold {number}", rows, train, np.zeros(len(test), dtype=bool), test, reveal_test))
    return folds


def fixed_parts(rows: PairExamples, *, reveal_test: bool = False, lights_of_test: bool = False) -> list[Fold]:
    """The radiometric set's only fold: part 0 trains, part 1 validates, part 2 is tested. (The released code tests part 0.)

    Args:
        rows: measured and re-illuminated rows.
        reveal_test: whether to pass ``gt_test``.
        lights_of_test: whether to keep training rows re-lit with the illuminant of a pair of another part.

    >>> pairs = np.array(["a", "b", "c"])
    >>> rows = PairExamples(pairs, pairs, pairs, np.zeros((3, 9), np.float32), np.ones((3, 3)), np.arange(3), np.ones(3, bool))
    >>> [fold] = fixed_parts(rows)
    >>> fold.pair_train.tolist(), len(fold.X_validate), fold.key_test.tolist()
    (['a'], 1, ['c'])
    """
    withheld = np.isin(rows.light, rows.pair[(rows.fold != 0) & rows.original])
    train = (rows.fold == 0) & (~withheld | lights_of_test)
    return [_fold("test part", rows, train, rows.fold == 1, rows.fold == 2, reveal_test)]


def all_pairs(rows: PairExamples, *, validated: bool = False, relit_rows: int | None = None) -> list[Fold]:
    """One fold that trains on all rows, for a model to be deployed; it is tested on the same pairs, so that the errors are
    meaningless.

    Args:
        rows: measured and re-illuminated rows.
        validated: whether part 1 of ``fixed_parts`` is used for validation instead of training.
        relit_rows: see ``rotating_folds``.

    >>> pairs = np.array(["a", "b", "c"])
    >>> rows = PairExamples(pairs, pairs, pairs, np.zeros((3, 9), np.float32), np.ones((3, 3)), np.arange(3), np.ones(3, bool))
    >>> [fold] = all_pairs(rows)
    >>> fold.pair_train.tolist(), fold.key_test.tolist()
    (['a', 'b', 'c'], ['a', 'b', 'c'])
    """
    validate = (rows.fold == 1) & validated
    train = _at_most(relit_rows, rows, ~validate, "all pairs")
    return [_fold("all pairs", rows, train, validate, np.ones(len(validate), dtype=bool), False)]


def _at_most(count: int | None, rows: PairExamples, train: NDArray[np.bool_], name: str) -> NDArray[np.bool_]:
    """The mask with at most ``count`` re-illuminated rows of each pair, drawn at random; None: unchanged."""
    if count is None:
        return train
    order = rng(0, "two_camera relit rows", name).permutation(np.flatnonzero(train & ~rows.original))
    order = order[np.argsort(rows.pair[order], kind="stable")]
    _, starts, counts = np.unique(rows.pair[order], return_index=True, return_counts=True)
    kept = train.copy()
    kept[order[np.arange(len(order)) - np.repeat(starts, counts) >= count]] = False
    return kept


def _fold(name: str, rows: PairExamples, train: Any, validate: Any, test: Any, reveal_test: bool) -> Fold:
    validate, test = validate & rows.original, test & rows.original
    if not train.any() or not test.any():
        raise ValueError(f"{name}: {int(train.sum())} rows to learn from and {int(test.sum())} measured ones to test")
    return Fold(
        name=name,
        X_train=rows.X[train],
        gt_train=rows.gt[train],
        pair_train=rows.pair[train],
        light_train=rows.light[train],
        X_validate=rows.X[validate],
        gt_validate=rows.gt[validate],
        key_test=rows.key[test],
        X_test=rows.X[test],
        gt_test=rows.gt[test] if reveal_test else None,
    )


# ---------------------------------------------------------------------------------------------------------------- running

ESTIMATES = pa.schema(
    [
        ("key", pa.string()),
        ("run", pa.int64()),
        ("fold", pa.string()),
        ("name", pa.string()),
        ("gt_r_g", pa.float64()),
        ("gt_b_g", pa.float64()),
        ("estimate_r_g", pa.float64()),
        ("estimate_b_g", pa.float64()),
        ("file", pa.binary()),
    ]
)
"""Rows stored by a training, of two kinds: an estimate, by run and fold, of the test row whose key is ``name``, with the
truth; and an artifact of the estimator, a file called ``name``, which has no run."""


class NotFitted(ValueError):
    """An estimator cannot be fitted to the folds; the message says why, such as too few pictures for its moments.

    >>> class Picky:
    ...     def estimate_folds(self, folds):
    ...         raise ValueError(f"{len(folds[0].gt_train)} pictures, at least 9 are needed")
    >>> pairs, lights = np.array(list("abcdef")), np.ones((6, 3))
    >>> rows = PairExamples(pairs, pairs, pairs, np.zeros((6, 9), np.float32), lights, np.arange(6) % 2, np.ones(6, bool))
    >>> next(estimate_folds(Picky(), rows, parts="rotating"))
    Traceback (most recent call last):
        ...
    benchwright.eval.protocols.cross_validation.NotFitted: 3 pictures, at least 9 are needed
    """


def estimate_folds(
    estimator: Estimator,
    rows: PairExamples,
    *,
    parts: FoldScheme,
    lights_of_test: bool = False,
    relit_rows: int | None = None,
    pictures: Callable[..., Any] = no_pictures,
) -> Iterator[pa.Table]:
    """Train and test on every fold: tables of ``ESTIMATES``.

    Args:
        estimator: see ``Estimator``; it gets the truth of the test rows only if its ``looks_at_test`` is true.
        rows: see ``examples``.
        parts: "rotating" (``rotating_folds``), "fixed" (``fixed_parts``) or one of "all pairs" (``all_pairs``).
        lights_of_test: see ``rotating_folds``.
        relit_rows: see ``rotating_folds``.
        pictures: see ``Fold``.

    Raises:
        NotFitted: the estimator rejects these folds with a ``ValueError``.
        ValueError: the estimates do not fit the folds, or pictures cannot be read.

    >>> class MeanLight:
    ...     def estimate_folds(self, folds):
    ...         return {0: [np.tile(fold.gt_train.mean(axis=0), (len(fold.key_test), 1)) for fold in folds]}
    >>> pairs, lights = np.array(list("abcdef")), np.linspace([0.5, 1.0, 0.7], [0.7, 1.0, 0.5], 6)
    >>> rows = PairExamples(pairs, pairs, pairs, np.zeros((6, 9), np.float32), lights, np.arange(6) % 2, np.ones(6, bool))
    >>> [table] = estimate_folds(MeanLight(), rows, parts="rotating")
    >>> table.select(["fold", "name", "gt_r_g"]).to_pylist()[0]
    {'fold': 'fold 0', 'name': 'a', 'gt_r_g': 0.5}
    """
    reveal = bool(getattr(estimator, "looks_at_test", False))
    if parts in ("all pairs", "all pairs, validated"):
        folds = all_pairs(rows, validated=parts != "all pairs", relit_rows=relit_rows)
    elif parts == "fixed":
        folds = fixed_parts(rows, reveal_test=reveal, lights_of_test=lights_of_test)
    else:
        folds = rotating_folds(rows, reveal_test=reveal, lights_of_test=lights_of_test, relit_rows=relit_rows)
    unread: list[ValueError] = []

    def read(keys: NDArray[np.str_], lights: NDArray[np.str_] | None = None) -> Any:
        try:
            return pictures(keys) if lights is None else pictures(keys, lights)
        except ValueError as error:
            unread.append(error)
            raise

    folds = [dataclasses.replace(fold, pictures=read) for fold in folds]
    at = {key: row for row, key in enumerate(rows.key.tolist())}
    tables: list[pa.Table] = []
    try:
        estimated = estimator.estimate_folds(folds)
    except ValueError as error:
        if unread:  # the pictures are at fault, not the estimator
            raise unread[0] from None
        raise NotFitted(str(error)) from error
    for run, estimates in _checked(estimated, folds).items():
        for fold, lights in zip(folds, estimates, strict=True):
            names = fold.key_test.tolist()
            truth = rows.gt[[at[name] for name in names]]
            columns = [truth[:, 0], truth[:, 2], lights[:, 0], lights[:, 2], pa.nulls(len(names), pa.binary())]
            keys = [f"{run}/{fold.name}/{name}" for name in names]
            tables.append(pa.table([keys, [run] * len(names), [fold.name] * len(names), names, *columns], schema=ESTIMATES))
    yield pa.concat_tables(tables)
    files: Mapping[str, bytes] = estimator.artifacts() if hasattr(estimator, "artifacts") else {}  # type: ignore[attr-defined]
    if files:
        given = [{"key": f"file/{name}", "fold": "", "name": name, "file": data} for name, data in sorted(files.items())]
        yield pa.Table.from_pylist(given, schema=ESTIMATES)


def _checked(estimated: Mapping[int, Sequence[Lights]], folds: Sequence[Fold]) -> dict[int, list[Lights]]:
    """Estimates divided by green, after checking their shapes and values."""
    if not estimated or not all(type(run) is int for run in estimated):
        raise ValueError(f"runs {list(estimated)}: at least one is needed, and each is a whole number, such as its seed")
    found: dict[int, list[Lights]] = {}
    for run, lights in estimated.items():
        shapes = [np.shape(one) for one in lights]
        if shapes != [(len(fold.key_test), 3) for fold in folds]:
            raise ValueError(f"run {run}: estimates {shapes}, and the folds test {[len(f.key_test) for f in folds]} rows")
        given = [np.asarray(one, dtype=np.float64) for one in lights]
        if not all((np.isfinite(one) & (one >= 0)).all() and (one[:, 1] > 0).all() for one in given):
            raise ValueError(f"run {run}: estimates must be finite, not below 0, and above 0 in green")
        found[run] = [one / one[:, 1:2] for one in given]
    return found


# -------------------------------------------------------------------------------------------------------------- measuring


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Estimates stored by a training, as arrays.

    Attributes:
        folds: names of the folds.
        names: keys of the test rows of each fold.
        truth: (m, 3) lights of each fold, green 1.
        runs: seed or number of the run -> (m, 3) estimates of each fold, green 1; with several runs also ``AVERAGE``.
        errors: run -> (m,) errors in degrees of each fold.

    >>> class MeanLight:
    ...     def estimate_folds(self, folds):
    ...         return {0: [np.tile(fold.gt_train.mean(axis=0), (len(fold.key_test), 1)) for fold in folds]}
    >>> pairs, lights = np.array(list("abcdef")), np.linspace([0.5, 1.0, 0.7], [0.7, 1.0, 0.5], 6)
    >>> rows = PairExamples(pairs, pairs, pairs, np.zeros((6, 9), np.float32), lights, np.arange(6) % 2, np.ones(6, bool))
    >>> [table] = estimate_folds(MeanLight(), rows, parts="rotating")
    >>> found = estimates_of(table)
    >>> found.names, found.errors[0][0].round(1)  # degrees
    ([['a', 'c', 'e'], ['b', 'd', 'f']], array([7.4, 2.5, 2.5]))
    """

    folds: list[str]
    names: list[list[str]]
    truth: list[Lights]
    runs: dict[int | str, list[Lights]]
    errors: dict[int | str, list[NDArray[np.float64]]]


def estimates_of(rows: Rows | pa.Table) -> Estimates:
    """The estimates among the ``ESTIMATES`` rows stored by a training.

    >>> row = {"key": "0/fold 0/a", "run": 0, "fold": "fold 0", "name": "a", "gt_r_g": 1.0, "gt_b_g": 1.0}
    >>> table = pa.Table.from_pylist([{**row, "estimate_r_g": 0.5, "estimate_b_g": 1.0}], schema=ESTIMATES)
    >>> found = estimates_of(table)
    >>> found.folds, found.runs[0][0], found.errors[0][0].round(2)
    (['fold 0'], array([[0.5, 1. , 1. ]]), array([15.79]))
    """
    table = rows.table(ESTIMATES.names[1:-1]) if isinstance(rows, Rows) else rows
    table = table.filter(pc.is_valid(table["run"]))
    names: dict[str, list[str]] = {}
    truth: dict[str, Lights] = {}
    runs: dict[int | str, list[Lights]] = {}
    for run in pc.unique(table["run"]).to_pylist():
        of_run = table.filter(pc.equal(table["run"], run))
        for fold in pc.unique(of_run["fold"]).to_pylist():
            mine = of_run.filter(pc.equal(of_run["fold"], fold))
            names[fold], truth[fold] = mine["name"].to_pylist(), _lights(mine, "gt")
            runs.setdefault(run, []).append(_lights(mine, "estimate"))
    if len(runs) > 1:
        logs = [[np.log(np.maximum(lights, 1e-6)) for lights in run] for run in runs.values()]
        runs[AVERAGE] = [np.exp(np.mean(fold, axis=0)) for fold in zip(*logs, strict=True)]
    errors = {
        run: [angular_error_deg(one, gt) for one, gt in zip(found, truth.values(), strict=True)] for run, found in runs.items()
    }
    return Estimates(list(names), list(names.values()), list(truth.values()), runs, errors)


def _lights(table: pa.Table, name: str) -> Lights:
    return np.column_stack([table[f"{name}_r_g"].to_numpy(), np.ones(table.num_rows), table[f"{name}_b_g"].to_numpy()])


def measure_folds(*, predictions: Rows, looks_at_test: bool, lights_of_test: bool) -> Iterator[Value]:
    """Source step: the statistics of ``AngularStatistics`` in degrees, for each run as values of its seed.

    ``mean_deg`` and so on for each fold, which is the stratum; over all folds ``fold_mean_mean_deg`` and so on, ``pooled_...``
    and, for three folds, ``first_two_folds_mean_...`` (see ``metrics.angular``). The average of several runs has separate
    strata, and so have the smallest, the median and the largest value over all runs. Results that are not fair contain
    ``looks_at_test`` or ``lights_of_test`` with the value 1.

    Args:
        predictions: rows stored by the training; no rows if it diverged.
        looks_at_test: whether the truth of the test rows selected the checkpoint, as in the released code.
        lights_of_test: whether training rows are re-lit with illuminants of test pairs, as in the released augmentation.

    >>> row = {"key": "0/fold 0/a", "run": 0, "fold": "fold 0", "name": "a", "gt_r_g": 1.0, "gt_b_g": 1.0}
    >>> table = pa.Table.from_pylist([{**row, "estimate_r_g": 0.5, "estimate_b_g": 1.0}] * 3, schema=ESTIMATES)
    >>> first = next(measure_folds(predictions=Rows.of(table), looks_at_test=False, lights_of_test=False))
    >>> first.metric, first.stratum, round(first.value, 2)
    ('mean_deg', 'fold 0', 15.79)
    """
    if not predictions.num_rows:
        return
    unfair = {"looks_at_test": looks_at_test, "lights_of_test": lights_of_test}
    yield from (measured(name, 1.0, split="test") for name, is_so in unfair.items() if is_so)
    found = estimates_of(predictions)
    of_runs: dict[str, list[float]] = {}
    for run, errors in found.errors.items():
        average = run == AVERAGE
        seed = None if average else int(run)
        for fold, each in zip(found.folds, errors, strict=True):
            for name, value in _numbers(angular_statistics(each)):
                yield measured(name, value, split="test", stratum=f"{fold}, {AVERAGE}" if average else fold, seed=seed)
        for kind, over_folds in _over_folds(errors).items():
            for name, value in _numbers(over_folds):
                yield measured(f"{kind}_{name}", value, split="test", stratum=AVERAGE if average else "", seed=seed)
                if not average:
                    of_runs.setdefault(f"{kind}_{name}", []).append(value)
    for metric, values in of_runs.items():
        for stratum, value in {"least": min(values), "median": float(np.median(values)), "largest": max(values)}.items():
            yield measured(metric, value, split="test", stratum=f"{stratum} of runs")


def _over_folds(errors: Sequence[NDArray[np.float64]]) -> dict[str, AngularStatistics]:
    found = {"fold_mean": fold_mean(errors), "pooled": pooled(errors)}
    return {**found, "first_two_folds_mean": first_two_folds_mean(errors)} if len(errors) == 3 else found


def _numbers(statistics: AngularStatistics) -> Iterator[tuple[str, float]]:
    return ((f"{name}_deg", value) for name, value in dataclasses.asdict(statistics).items())
