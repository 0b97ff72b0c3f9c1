"""What is done with a KOWL run beside its plan: publishing, the open-world loop, its scores."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..curation.publish import Card
from ..curation.run import Run
from ..curation.store import Store
from ..datasets.kowl.samples import COLUMNS, FEATURE
from ..datasets.kowl.splits import ROLES
from ..datasets.kowl.tables import as_text, increment_table, published_table
from .kowl_config import KowlConfig
from .publish import publish_shards

if TYPE_CHECKING:
    from ..eval.protocols.open_world import Increment

EVAL = "eval"
"""Where results of predictors lie within the folder of a run: ``eval/feedback-<amount>/<predictor>/``."""

NEEDED = ("increment", "role", "novel", "label_recent_first")
"""Columns that the tables of increments are made from."""

_SHOWN = {
    "mcc pre": "pre.{split}.classification.predictor.mcc",
    "mcc post": "post.{split}.classification.predictor.mcc",
    "top-1 post": "post.{split}.classification.predictor.top1_accuracy",
    "detection mcc": "pre.{split}.detection.predictor.mcc",
    "recognition nmi": "pre.{split}.recognition.predictor.nmi_arithmetic",
}
"""What ``eval`` prints: heading -> sum over all increments in ``results.json``."""

_SPLITS = ("validate+test", "test", "validate", "train")

# ----------------------------------------------------------------------------------------------------------- publishing


def publish(run: Run, config: KowlConfig, folder: str) -> None:
    """Write the dataset: shards with index, card and manifest; or, without features, the table of increments with them."""
    table = run.rows("increments").table(list(NEEDED))
    summary = (
        f"The samples of {', '.join(config.labels.releases)} in one label space, each used once, in increments that bring "
        f"new classes (rules {config.increments.preset}, order {config.increments.order}).\n\n"
        f"Classes and samples of every increment, val and test together from increment 1 on, as in the paper's Table 1:\n\n"
        f"```\n{as_text(published_table(increment_table(table)))}```"
    )
    width = 0 if config.features is None else config.features.width
    releases = config.labels.releases
    card = Card(
        title="A KOWL-style benchmark",
        summary=summary,
        pipeline="kowl",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members={
            FEATURE: {"dtype": "float32", "shape": [width], "features": config.features.kind if config.features else "none"},
            "json": {"holds": "key, increment, role, position, novel and label"},
        },
        columns={
            **COLUMNS,
            **{f"label_{name}": f"label in {name}" for name in releases},
            **{f"split_{name}": f"split in {name}" for name in releases},
        },
        tags=["continual-learning", "open-world", "video-classification"],
    )
    if config.features is None:
        _publish_table(run, card, folder)
    else:
        publish_shards(run, card, folder)


_CITATION = """D. S. Prijatelj et al. Human Activity Recognition in an Open World.
Journal of Artificial Intelligence Research 81, 2024."""


def _publish_table(run: Run, card: Card, folder: str) -> None:
    """``increments.parquet``, ``README.md`` and ``dataset.json``: functions of the rows and the card alone."""
    index = run.rows().table().replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    pq.write_table(index, sink, compression="zstd", version="2.6", row_group_size=1 << 20)
    lines = [f"# {card.title}", "", card.summary, "", f"{index.num_rows:,} samples; content digest `{card.digest}`.", ""]
    lines += ["| column | meaning |", "| --- | --- |"]
    lines += [f"| `{name}` | {card.columns.get(name, '')} |" for name in index.column_names]
    lines += ["", "## Citation", "", "```", card.citation, "```", ""]
    files = {"increments.parquet": sink.getvalue().to_pybytes(), "README.md": "\n".join(lines).encode()}
    described = {
        "format": 1,
        "title": card.title,
        "pipeline": card.pipeline,
        "digest": card.digest,
        "licence": card.licence,
        "counts": {"samples": index.num_rows},
        "columns": {field.name: str(field.type) for field in index.schema},
        "files": {n: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for n, data in files.items()},
    }
    files["dataset.json"] = f"{json.dumps(described, sort_keys=True, indent=2, ensure_ascii=False)}\n".encode()
    target = Store(folder)
    for name, data in files.items():
        if target.size(name) != len(data) or target.read(name) != data:
            target.write(name, data)
    target.remove([name for name in target.list("") if name not in files])


# ------------------------------------------------------------------------------------------------------------ predictors


def evaluate(
    config: KowlConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Run the open-world loop on the published shards; what is done already is read, not done again.

    Args:
        config: settings of the run.
        out: the run.
        methods: predictors; those of the settings by default.
        protocols: feedback amounts, as numbers in text; those of the settings by default.
        progress: told one line an increment.

    Returns:
        Feedback amount -> predictor -> rows of its tidy table.

    Raises:
        ValueError: for a run without features, and a predictor or amount that is not known.
    """
    from ..eval.protocols.open_world import Setting, run_open_world
    from ..training.predictors.registry import KINDS, identity, make_predictor, paper_settings

    if config.features is None:
        raise ValueError(f"{out} has no features: give the settings [features] and run again")
    chosen = list(methods) or config.evaluation.predictors
    if unknown := [name for name in [*chosen, *config.evaluation.settings] if name not in KINDS]:
        raise ValueError(f"no predictor {unknown[0]!r}: there are {', '.join(KINDS)}")
    amounts = [_amount(name) for name in protocols] or config.evaluation.feedback
    increments, classes = read_increments(posixpath.join(out, "dataset"))
    hyper = {name: {**paper_settings()[name], **config.evaluation.settings.get(name, {})} for name in chosen}
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for amount in amounts:
        setting = Setting(amount, config.evaluation.experience_limit, config.evaluation.prior_knowledge)
        results[f"{amount:g}"] = {
            name: run_open_world(
                make_predictor(name, hyper[name], seed=config.seed, device=config.evaluation.device),
                increments,
                classes,
                setting=setting,
                identity=identity(name, hyper[name], seed=config.seed),
                out=Path(out) / EVAL / f"feedback-{amount:g}" / name,
                progress=lambda line, name=name, amount=amount: progress(f"feedback {amount:g} {name}: {line}"),
            )
            for name in chosen
        }
    return results


def _amount(text: str) -> float:
    try:
        amount = float(text.removeprefix("feedback-"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1:
        raise ValueError(f"no protocol {text!r}: a share of labels from 0 to 1 is wanted, such as 0.5")
    return amount


def read_increments(url: str) -> tuple[list[Increment], list[str]]:
    """The increments of a published dataset in the order of its stream, and the class names, sorted.

    Args:
        url: folder of shards. All features are held in memory, 4 bytes a number.
    """
    from ..datasets.reader.features import read_features
    from ..datasets.reader.index import DatasetIndex
    from ..eval.protocols.open_world import Increment, Samples

    features, table = read_features(DatasetIndex.open(url), FEATURE)
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
    return made, names.tolist()


def scores(out: str) -> dict[str, dict[str, Any]]:
    """Sums over all increments of every predictor that was run: feedback -> predictor -> ``mean`` and ``std``, by heading.

    One run each: there is no standard deviation.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in _result_files(out):
        cumulative = json.loads(path.read_text())["cumulative"]
        split = next((name for name in _SPLITS if f"post.{name}.none.mcc" in cumulative), _SPLITS[-1])
        mean = {heading: cumulative.get(name.format(split=split)) for heading, name in _SHOWN.items()}
        protocol = path.parts[-3].replace("-", " ", 1)
        found.setdefault(protocol, {})[path.parts[-2]] = {"mean": mean, "std": dict.fromkeys(mean), "split": split}
    return found


def tidy(out: str) -> pa.Table | None:
    """Measures of every predictor that was run, one table with a column ``predictor``; None where none was."""
    tables: list[pa.Table] = []
    for path in _result_files(out):
        with pa.ipc.open_file(str(path.with_name("measures.arrow"))) as reader:
            table = reader.read_all()
        tables.append(table.append_column("predictor", pa.array([path.parts[-2]] * table.num_rows, pa.string())))
    return pa.concat_tables(tables) if tables else None


def prior_knowledge(out: str) -> Mapping[str, Any]:
    """Predictor and feedback -> what its result file says that it knew before."""
    return {
        f"{path.parts[-2]}, {path.parts[-3]}": json.loads(path.read_text())["identity"]["setting"]["prior_knowledge"]
        for path in _result_files(out)
    }


def _result_files(out: str) -> Sequence[Path]:
    return sorted((Path(out) / EVAL).glob("feedback-*/*/results.json"))


def report(config: KowlConfig, out: str) -> str:
    """Write ``report.html`` and return its path."""
    from .kowl_report import write_report

    return write_report(config, out)
