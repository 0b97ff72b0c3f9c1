"""Illuminant estimation in folds: every measured pair is tested once, by an estimator that has not seen it.

Source: PROTOCOLS.md 3.3 and 3.5. The protocol holds back what the released code looks at: the truth of a test fold, by which
that code selects its checkpoint, and training rows that were re-illuminated with the light of a test pair. Both can be had
(``looks_at_test``, ``lights_of_test``), and the results then say so in words.

An estimator's folder holds ``errors.csv`` (a line an image and run), ``results.json`` (statistics; it names the CSV with its
SHA-256 and is written last), and what the estimator gives as artifacts. A folder that is finished is read, not made again.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...curation.files import remove_half_written, write_whole
from ...datasets.two_camera.rows import TransformPairs
from ..metrics.angular import AngularStatistics, angular_error_deg, angular_statistics, first_two_folds_mean, fold_mean, pooled
from .run import Occupied, check_identity, read_results, to_json

Lights = NDArray[np.float64]
Direction = Literal["1to2", "2to1"]
COLUMNS = ("run", "fold", "image", "gt_r_g", "gt_b_g", "estimate_r_g", "estimate_b_g", "error_deg")
AVERAGE = "average"
"""The run that averages the others: the mean of log R/G and of log B/G over seeds."""

_LOOKED = "the checkpoint was selected on the test fold, as the released code does: not a fair figure"
_LIGHTS = "training rows wear the lights of test pairs, as in the released augmentation: not a fair figure"


@dataclasses.dataclass(frozen=True)
class Fold:
    """One training and its test.

    Attributes:
        name: what tables call it.
        X_train: (n, 9) float32, transforms row by row.
        gt_train: (n, 3) float64, lights divided by green.
        pair_train: (n,) key of the measured pair that a row shows.
        light_train: (n,) key of the pair whose light it wears; its own pair's where it was measured.
        X_validate, gt_validate: rows to choose a checkpoint by; none where the estimator must hold out some itself.
        key_test: (m,) keys of the measured pairs that are tested.
        X_test: (m, 9) float32.
        gt_test: (m, 3) float64; None where it is held back from the estimator.
    """

    name: str
    X_train: NDArray[np.float32]
    gt_train: Lights
    pair_train: NDArray[np.str_]
    light_train: NDArray[np.str_]
    X_validate: NDArray[np.float32]
    gt_validate: Lights
    key_test: NDArray[np.str_]
    X_test: NDArray[np.float32]
    gt_test: Lights | None


class Estimator(Protocol):
    """What the protocol asks of an estimator; nothing is inherited. All folds come at once, so that they may be trained side by
    side."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON values that say what it is: settings, seeds."""
        ...

    @property
    def looks_at_test(self) -> bool:
        """Whether it needs ``gt_test``. The results say so."""
        ...

    def estimate_folds(self, folds: Sequence[Fold]) -> Mapping[str, Sequence[Lights]]:
        """Name of a run (a seed, say) -> (m, 3) estimates, in any scale, of each fold's test rows."""
        ...

    def artifacts(self) -> Mapping[str, bytes]:
        """File name -> content, of what is worth keeping of the last call (weights)."""
        ...


@dataclasses.dataclass(frozen=True)
class Examples:
    """Rows of one direction as arrays.

    Attributes:
        key, pair, light: (n,) text: the row's key, the key of the measured pair that it shows, and that of its light.
        X: (n, 9) float32.
        gt: (n, 3) float64, divided by green.
        fold: (n,) int64.
        original: (n,) bool.
    """

    key: NDArray[np.str_]
    pair: NDArray[np.str_]
    light: NDArray[np.str_]
    X: NDArray[np.float32]
    gt: Lights
    fold: NDArray[np.int64]
    original: NDArray[np.bool_]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all arrays."""
        digest = hashlib.sha256()
        for field in dataclasses.fields(self):
            array = np.ascontiguousarray(getattr(self, field.name))
            digest.update(f"{field.name} {array.dtype.str} {array.shape};".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def examples(pairs: TransformPairs, *, direction: Direction, chart: bool = False) -> Examples:
    """Rows for one direction: the light in the first camera from the transform to the second ("1to2", the paper's), or the
    other way round.

    Args:
        pairs: measured and re-illuminated rows.
        direction: see above.
        chart: the transform of the chart's patches instead of the picture's.

    Raises:
        ValueError: a transform is not there (NaN), or a light has no green.
    """
    one, other = direction.split("to")
    transforms = getattr(pairs, f"transform_{'chart_' if chart else ''}{one}to{other}")
    X = np.asarray(transforms, dtype=np.float32).reshape(len(pairs), 9)
    gt = np.asarray(getattr(pairs, f"gt_{one}"), dtype=np.float64)
    bad = ~(np.isfinite(X).all(axis=1) & np.isfinite(gt).all(axis=1) & (gt > 0).all(axis=1))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"pair {pairs.key[row]}: a finite transform {direction} and a light above 0 are needed")
    light = np.where(pairs.original, pairs.source_key, pairs.target_key)
    return Examples(pairs.key, pairs.source_key, light, X, gt / gt[:, 1:2], pairs.fold, pairs.original)


def rotating_folds(rows: Examples, *, reveal_test: bool = False, lights_of_test: bool = False) -> list[Fold]:
    """Each fold in turn is tested, and the others are learned from.

    Args:
        rows: measured and re-illuminated rows; tests are of measured ones alone.
        reveal_test: put ``gt_test`` in.
        lights_of_test: keep training rows that wear the light of a test pair.

    Raises:
        ValueError: fewer than two folds, or a fold without measured rows.
    """
    numbers = np.unique(rows.fold)
    if len(numbers) < 2:
        raise ValueError(f"folds {numbers.tolist()}: at least two are needed")
    folds: list[Fold] = []
    for number in numbers:
        test = rows.fold == number
        train = ~test if lights_of_test else ~test & ~np.isin(rows.light, rows.pair[test & rows.original])
        folds.append(_fold(f"fold {number}", rows, train, np.zeros(len(test), dtype=bool), test, reveal_test))
    return folds


def fixed_parts(rows: Examples, *, reveal_test: bool = False) -> list[Fold]:
    """The radiometric set's one fold: part 0 is learned from, 1 validates, 2 is tested. (The released code tests part 0.)"""
    return [_fold("test part", rows, rows.fold == 0, rows.fold == 1, rows.fold == 2, reveal_test)]


def _fold(name: str, rows: Examples, train: Any, validate: Any, test: Any, reveal_test: bool) -> Fold:
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


@dataclasses.dataclass(frozen=True)
class Results:
    """What an estimator gave.

    Attributes:
        errors: run -> errors (m,) in degrees of each fold's test rows.
        summary: the content of ``results.json``.
    """

    errors: Mapping[str, Sequence[NDArray[np.float64]]]
    summary: Mapping[str, Any]


def evaluate_folds(
    estimator: Estimator,
    rows: Examples,
    *,
    parts: Literal["rotating", "fixed"],
    identity: Mapping[str, Any],
    out: Path,
    lights_of_test: bool = False,
) -> Results:
    """Train and test on every fold and write the results, or read them where ``out`` holds this very evaluation.

    Args:
        estimator: see ``Estimator``; it gets the truth of the test rows only if it says that it looks at it.
        rows: see ``examples``.
        parts: "rotating" (``rotating_folds``) or "fixed" (``fixed_parts``).
        identity: JSON values beside the estimator's own that tell this evaluation from others (direction, data).
        out: folder of this estimator alone.
        lights_of_test: see ``rotating_folds``.

    Raises:
        Occupied: ``out`` holds another evaluation.
        ValueError: ``out`` is damaged, or the estimates do not fit the folds.
    """
    whose = {
        **identity,
        "data": rows.fingerprint,
        "estimator": dict(estimator.identity),
        "lights_of_test": lights_of_test,
        "parts": parts,
    }
    if (held := _held(out, whose)) is not None:
        return held
    remove_half_written(out)
    reveal = estimator.looks_at_test
    if parts == "fixed":
        folds = fixed_parts(rows, reveal_test=reveal)
    else:
        folds = rotating_folds(rows, reveal_test=reveal, lights_of_test=lights_of_test)
    at = {key: row for row, key in enumerate(rows.key.tolist())}
    truths = [rows.gt[[at[key] for key in fold.key_test.tolist()]] for fold in folds]
    found = _checked(estimator.estimate_folds(folds), folds)
    if len(found) > 1:
        logs = [[np.log(np.maximum(lights, 1e-6)) for lights in run] for run in found.values()]
        found[AVERAGE] = [np.exp(np.mean(fold, axis=0)) for fold in zip(*logs, strict=True)]
    errors = {name: [angular_error_deg(e, gt) for e, gt in zip(run, truths, strict=True)] for name, run in found.items()}
    files = {"errors.csv": _errors_csv(found, errors, folds, truths), **estimator.artifacts()}
    for name, data in files.items():
        write_whole(out / name, data)
    summary = {
        "format": 1,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        "identity": whose,
        "warnings": [*([_LOOKED] if reveal else []), *([_LIGHTS] if lights_of_test else [])],
        **_statistics(errors, [fold.name for fold in folds]),
    }
    write_whole(out / "results.json", to_json(summary))
    return Results(errors, summary)


def _checked(estimated: Mapping[str, Sequence[Lights]], folds: Sequence[Fold]) -> dict[str, list[Lights]]:
    """Estimates divided by green."""
    if not estimated or AVERAGE in estimated:
        raise ValueError(f"runs {list(estimated)}: at least one is needed, and none is called {AVERAGE!r}")
    found: dict[str, list[Lights]] = {}
    for name, lights in estimated.items():
        shapes = [one.shape for one in lights]
        if shapes != [(len(fold.key_test), 3) for fold in folds]:
            raise ValueError(f"run {name!r}: estimates {shapes}, and the folds test {[len(f.key_test) for f in folds]} rows")
        if not all((np.isfinite(one) & (one >= 0)).all() and (one[:, 1] > 0).all() for one in lights):
            raise ValueError(f"run {name!r}: estimates must be finite, not below 0, and above 0 in green")
        found[name] = [np.asarray(one, dtype=np.float64) / one[:, 1:2] for one in lights]
    return found


def _statistics(errors: Mapping[str, Sequence[NDArray[np.float64]]], names: Sequence[str]) -> dict[str, Any]:
    """``runs``: run -> fold_mean, pooled, folds, as_released_first_two_folds_mean; ``over_runs``: of the runs' fold means."""
    runs: dict[str, Any] = {}
    for run, folds in errors.items():
        runs[run] = {
            "fold_mean": _json(fold_mean(folds)),
            "folds": {name: _json(angular_statistics(fold)) for name, fold in zip(names, folds, strict=True)},
            "pooled": _json(pooled(folds)),
        }
        if len(folds) == 3:
            runs[run]["as_released_first_two_folds_mean"] = _json(first_two_folds_mean(folds))
    each = {run: values for run, values in runs.items() if run != AVERAGE}
    over = {
        kind: {
            name: {"max": max(values), "median": float(np.median(values)), "min": min(values)}
            for name in runs[next(iter(each))][kind]
            for values in [[run[kind][name] for run in each.values()]]
        }
        for kind in ("fold_mean", "pooled")
    }
    return {"over_runs": over, "runs": runs}


def _json(statistics: AngularStatistics) -> dict[str, float]:
    return dataclasses.asdict(statistics)


def _errors_csv(
    found: Mapping[str, Sequence[Lights]],
    errors: Mapping[str, Sequence[NDArray[np.float64]]],
    folds: Sequence[Fold],
    truths: Sequence[Lights],
) -> bytes:
    """``COLUMNS``; numbers are exact (repr)."""
    stream = io.StringIO()
    lines = csv.writer(stream, lineterminator="\n")
    lines.writerow(COLUMNS)
    for run, lights in found.items():
        for k, fold in enumerate(folds):
            numbers = np.column_stack([truths[k][:, [0, 2]], lights[k][:, [0, 2]], errors[run][k]]).tolist()
            lines.writerows([run, fold.name, key, *row] for key, row in zip(fold.key_test.tolist(), numbers, strict=True))
    return stream.getvalue().encode()


def _held(out: Path, whose: Mapping[str, Any]) -> Results | None:
    """What ``out`` holds of this evaluation; None where it is not finished."""
    path = out / "results.json"
    if not path.exists():
        return None
    try:
        summary = read_results(path, "files", "runs", "warnings")
    except ValueError as error:
        raise Occupied(out, str(error).partition(": remove it")[0]) from None
    check_identity(summary["identity"], whose, out)
    for name, digest in summary["files"].items():
        if not (out / name).exists() or hashlib.sha256((out / name).read_bytes()).hexdigest() != digest:
            raise Occupied(out, f"{out / name} is missing or is not the one that results.json names")
    errors: dict[str, dict[str, list[float]]] = {}
    with (out / "errors.csv").open(encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream):
            errors.setdefault(line["run"], {}).setdefault(line["fold"], []).append(float(line["error_deg"]))
    return Results({run: [np.array(fold) for fold in folds.values()] for run, folds in errors.items()}, summary)
