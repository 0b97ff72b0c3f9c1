"""Predictors of a KOWL run: the open-world loop, what is stale, scores."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...curation.artifact import published_digest
from ...curation.files import remove, replacing, write_whole
from ...curation.store import Store
from ...datasets.kowl.samples import FEATURE
from ...datasets.kowl.splits import ROLES
from ..errors import WrongUse, did_you_mean
from ..results import EVAL, Failures, Result, code_of, current_results, dataset_digest, stale_results
from .config import KowlConfig

if TYPE_CHECKING:
    from ...datasets.reader.index import DatasetIndex
    from ...eval.protocols.open_world import Increment

TRANSFORM = "transform"
"""The stratification by visual transform."""


_SHOWN = {
    "mcc pre": "pre.{split}.classification.predictor.mcc",
    "mcc post": "post.{split}.classification.predictor.mcc",
    "top-1 post": "post.{split}.classification.predictor.top1_accuracy",
    "detection mcc": "pre.{split}.detection.predictor.mcc",
    "recognition nmi": "pre.{split}.recognition.predictor.nmi_arithmetic",
}
"""What ``eval`` prints: heading -> sum over all increments in ``results.json``."""

_SPLITS = ("validate+test", "test", "validate", "train")


def evaluate(
    config: KowlConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Run the open-world loop on the published shards; what is done already is read, not done again.

    Features are laid into one file beside the results and mapped: memory holds what a predictor keeps of them.

    Args:
        config: settings of the run.
        out: the run.
        methods: predictors; those of the settings by default.
        protocols: feedback amounts, as numbers in text; those of the settings by default.
        progress: told one line an increment.

    Returns:
        Feedback amount -> predictor -> rows of its tidy table.

    Raises:
        WrongUse: for a run without features; a predictor, a hyper-parameter or an amount that is not known.
        FileNotFoundError: the run has no dataset yet.
    """
    from ...eval.protocols.open_world import Setting, run_open_world
    from ...training.predictors.registry import make_predictor

    if config.features is None:
        raise WrongUse(f"{out} has no features: give the settings [features] and run again")
    hyper = _hyper_parameters(config, list(methods) or config.evaluation.predictors)
    amounts = [_amount(name) for name in protocols] or config.evaluation.feedback
    increments, classes, strata = read_increments(posixpath.join(out, "dataset"), Path(out) / EVAL)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    failures = Failures(progress)
    for amount in amounts:
        setting = Setting(amount, config.evaluation.experience_limit, config.evaluation.prior_knowledge)
        for name, settings in hyper.items():
            into = Path(out) / EVAL / f"feedback-{amount:g}" / name
            with failures.of(f"feedback-{amount:g}/{name}", f"evaluation.settings.{name}"):
                results.setdefault(f"{amount:g}", {})[name] = run_open_world(
                    make_predictor(name, settings, seed=config.seed, device=config.evaluation.device),
                    increments,
                    classes,
                    setting=setting,
                    identity=_identity(config, out, f"feedback-{amount:g}", name)["predictor"],
                    out=into,
                    progress=lambda line, name=name, amount=amount: progress(f"feedback {amount:g} {name}: {line}"),
                )
                if strata.num_rows:
                    _measure_strata(into, strata, amount)
    failures.check(out)
    return results


def _identity(config: KowlConfig, out: str, protocol: str, name: str) -> dict[str, Any]:
    """What the results of a predictor are of: its settings, the dataset, and the code that predicts and evaluates."""
    from ...datasets.reader.features import read_features
    from ...eval.protocols.open_world import Setting, run_open_world
    from ...eval.protocols.strata import measures_by_stratum
    from ...training.predictors.registry import KINDS, identity, make_predictor

    settings, e = _hyper_parameters(config, [name])[name], config.evaluation
    code = [*KINDS[name], run_open_world, measures_by_stratum, read_features]
    predictor = {
        **identity(name, settings, seed=config.seed),
        "code": code_of(code, alone=[make_predictor, read_increments, _strata]),
        "dataset_digest": dataset_digest(out),
    }
    setting = Setting(_amount(protocol), e.experience_limit, e.prior_knowledge)
    return {"predictor": predictor, "setting": dataclasses.asdict(setting)}


def _hyper_parameters(config: KowlConfig, chosen: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Predictor -> its hyper-parameters, checked before anything runs."""
    from ...training.predictors.registry import KINDS, make_predictor, paper_settings

    if unknown := [name for name in [*chosen, *config.evaluation.settings] if name not in KINDS]:
        raise WrongUse(f"no predictor {unknown[0]!r}: there are {', '.join(KINDS)}{did_you_mean(unknown[0], KINDS)}")
    hyper = {name: {**paper_settings()[name], **config.evaluation.settings.get(name, {})} for name in chosen}
    for name, settings in hyper.items():
        if strange := sorted(settings.keys() - paper_settings()[name].keys()):
            known = ", ".join(paper_settings()[name])
            raise WrongUse(f"evaluation.settings.{name} has no {strange[0]!r}: there are {known}")
        try:
            make_predictor(name, settings, seed=config.seed)
        except (ValueError, TypeError) as error:
            raise WrongUse(f"evaluation.settings.{name}: {error}") from None
    return hyper


def _amount(text: str) -> float:
    try:
        amount = float(text.removeprefix("feedback-"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1:
        raise WrongUse(f"no protocol {text!r}: a share of labels from 0 to 1 is wanted, such as 0.5")
    return amount


def _measure_strata(folder: Path, strata: pa.Table, amount: float) -> None:
    """Write ``strata.arrow`` and ``strata.csv``, measures by stratum."""
    import pyarrow.csv

    from ...eval.protocols.strata import measures_by_stratum

    table = measures_by_stratum(folder, strata, feedback=amount, phases=("pre", "post"), splits=("validate", "test"))
    for name, write in (("strata.arrow", _arrow), ("strata.csv", pyarrow.csv.write_csv)):
        sink = pa.BufferOutputStream()
        write(table, sink)
        write_whole(folder / name, sink.getvalue().to_pybytes())


def _arrow(table: pa.Table, sink: pa.BufferOutputStream) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_increments(url: str, mapped: Path | None = None) -> tuple[list[Increment], list[str], pa.Table]:
    """The increments of a published dataset in the order of its stream; the class names, sorted; and the strata.

    Args:
        url: folder of shards.
        mapped: folder for a file of all features, which is mapped and used again. None: they are held in memory.

    Returns:
        Increments; classes; and ``uid``, ``stratification``, ``stratum``, without rows where no stage told any.
    """
    from ...datasets.reader.index import DatasetIndex
    from ...eval.protocols.open_world import Increment, Samples

    index = DatasetIndex.open(url)
    table, features = index.table, _features(index, mapped)
    uid = np.asarray(table["key"].to_pylist(), dtype=np.str_)
    names, label = np.unique(np.asarray(table["label_recent_first"].to_pylist(), dtype=np.str_), return_inverse=True)
    role = np.asarray([ROLES.index(name) for name in table["role"].to_pylist()], dtype=np.int64)
    increment, position = table["increment"].to_numpy(), table["position"].to_numpy()

    def samples(number: int, part: int) -> Samples:
        rows = np.flatnonzero((increment == number) & (role == part))
        rows = rows[np.argsort(position[rows], kind="stable")]
        # Shards hold a part in one piece: then a view will do, and nothing is held twice.
        whole = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        vectors = features[rows[0] : rows[-1] + 1] if whole else features[rows]
        return Samples(uid[rows], vectors, label[rows].astype(np.int64))

    made = [
        Increment(str(number), *(samples(number, part) for part in range(len(ROLES))))
        for number in range(int(increment.max()) + 1)
    ]
    return made, names.tolist(), _strata(table)


def _features(index: DatasetIndex, mapped: Path | None) -> np.ndarray:
    from ...datasets.reader.features import read_features

    if mapped is None:
        return read_features(index, FEATURE)[0]
    digest = published_digest(Store(index.url))
    path = mapped / f"features-{digest[:16]}.npy"
    if not path.exists():
        for old in mapped.glob("features-*.npy"):
            remove(old)
        with replacing(path) as beside:
            read_features(index, FEATURE, into=beside)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _strata(table: pa.Table) -> pa.Table:
    """Strata of AVA-Kinetics, and of visual transforms, where stages have told them."""
    from ...datasets.ava_kinetics.strata import strata_of

    empty = pa.array([], pa.string())
    found = [pa.table({"uid": empty, "stratification": empty, "stratum": empty})]
    if "stratum_area" in table.column_names:
        found.append(strata_of(table))
    if "transform" in table.column_names:
        kind = pa.array([TRANSFORM] * table.num_rows, pa.string())
        found.append(pa.table({"uid": table["key"], "stratification": kind, "stratum": table["transform"]}))
    return pa.concat_tables([part.cast(found[0].schema) for part in found])


def scores(config: KowlConfig, out: str) -> dict[str, dict[str, Any]]:
    """Sums over all increments of every predictor that was run: feedback -> predictor -> ``mean`` and ``std``, by heading.

    One run each: there is no standard deviation.
    """
    found: dict[str, dict[str, Any]] = {}
    for path, value in _results(config, out):
        cumulative = value["cumulative"]
        split = next((name for name in _SPLITS if f"post.{name}.none.mcc" in cumulative), _SPLITS[-1])
        mean = {heading: cumulative.get(name.format(split=split)) for heading, name in _SHOWN.items()}
        protocol = path.parts[-3].replace("-", " ", 1)
        found.setdefault(protocol, {})[path.parts[-2]] = {"mean": mean, "std": dict.fromkeys(mean), "split": split}
    return found


def tidy(config: KowlConfig, out: str, file: str = "measures.arrow") -> pa.Table | None:
    """Measures of every predictor that was run, one table with a column ``predictor``; None where none was.

    Args:
        file: ``measures.arrow``, or ``strata.arrow`` for measures by stratum.
    """
    tables: list[pa.Table] = []
    for path, _ in _results(config, out):
        if not path.with_name(file).exists():
            continue
        with pa.ipc.open_file(str(path.with_name(file))) as reader:
            table = reader.read_all()
        tables.append(table.append_column("predictor", pa.array([path.parts[-2]] * table.num_rows, pa.string())))
    return pa.concat_tables(tables) if tables else None


def prior_knowledge(config: KowlConfig, out: str) -> Mapping[str, Any]:
    """Predictor and feedback -> what its result file says that it knew before."""
    return {
        f"{path.parts[-2]}, {path.parts[-3]}": value["identity"]["setting"]["prior_knowledge"]
        for path, value in _results(config, out)
    }


def _results(config: KowlConfig, out: str) -> list[Result]:
    return current_results(out, _RESULTS, functools.partial(_identity, config, out), "cumulative")


def stale(config: KowlConfig, out: str) -> dict[str, str]:
    """Results of another dataset, other settings or other code: folder -> why."""
    return stale_results(out, _RESULTS, functools.partial(_identity, config, out))


_RESULTS = "feedback-*/*"
"""Folders of results within ``eval/``."""
