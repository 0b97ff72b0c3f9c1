"""Which trainings of a CLEAR run match the paper's, by their records, and what the paper's tables print for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...curation.nested import flat
from ...datasets.clear.facts import FEATURES, RELEASED, PublishedCell, facts, published_tables
from ...eval.report.blocks import Block, Cell, CellValue, Table, value_of
from ...eval.report.trainings import PublishedRow, changes_text, digests_to_state
from ...eval.results import Line
from ...training.baselines.clear import paper_methods, paper_settings, presets
from ..feature_sets import EMBEDDING, PIXELS, stage_of
from ..report import ReportedRun
from .config import ClearConfig
from .paper_features import paper_name
from .source_config import ReleaseSource

OFFLINE = facts().offline
"""The paper's facts about training on all buckets at once."""

SAME = "images, features, splits and settings of the paper"

ROWS = frozenset(cell.row for table in published_tables() for cell in table.cells)
"""Methods that have a row in the paper's tables."""

_NAMES = {"ewc": "EWC", "si": "SI", "lwf": "LwF", "cwr": "CWR", "gdumb": "GDumb", "er": "ER", "agem": "AGEM", "nap": "Nap"}
_STARTS = {"scratch": "from scratch", "finetune": "fine-tuned"}


def features_of(line: Line, config: ClearConfig) -> str:
    """The features that a training used, as the paper's tables name them: see ``paper_features.paper_name``."""
    return paper_name(str(line.settings.get("features", EMBEDDING)), config)


def features_name(name: str) -> str:
    """The paper's name of a set of features, or our own name."""
    return FEATURES.get(name, name)


def network_of(line: Line) -> str:
    """The network that was trained, as the paper's tables name it."""
    return str(line.settings.get("model.backbone", line.model)) if line.model == "pictures" else line.model


def known_digests(config: ClearConfig) -> dict[str, str]:
    """Digests of the paper's data, ``dataset`` and by set of features: from the facts, and as stated in the settings."""
    found = {"dataset": facts().release.dataset_digest, **facts().release.feature_digests}
    if isinstance(config.source, ReleaseSource):
        ours = {released: name for name, released in RELEASED.items()}
        found |= {ours.get(name, name): digest for name, digest in config.source.published.items()}
    return found


def has_published_counts(table: pa.Table) -> bool:
    """Whether a dataset has as many images in each class and bucket as CLEAR-10, and all five splits."""
    counts = table.group_by(["bucket", "label"]).aggregate([([], "count_all")]).to_pylist()
    places = {(bucket, label) for bucket in facts().buckets.labelled for label in range(len(facts().class_names))}
    found = {(each["bucket"], each["label"]): each["count_all"] for each in counts}
    splits = all(not table[f"iid_seed{seed}"].null_count for seed in facts().iid.seeds)
    return splits and found == dict.fromkeys(places, facts().choice.per_class)


def digest_notes(run: ReportedRun, config: ClearConfig, table: pa.Table) -> list[Block]:
    """For a release with the published counts: its digests, and how to use them if it is the authors' archive."""
    s, shards = config.source, run.made.get("shards")
    if not isinstance(s, ReleaseSource) or shards is None or not has_published_counts(table):
        return []
    digests = {"dataset": shards.digest} | {name: run.made[stage_of(name)].digest for name in s.features}
    known = "this release, which has the published counts, is the authors' archive"
    return [digests_to_state(known, {f"source.published.{name}": digest for name, digest in digests.items()})]


def data_differs(digest: str, known: str) -> str:
    """Why the dataset of a run cannot be shown to be the paper's, by the digest of its shards and the known digest."""
    if not known:
        return "no digest of the paper's images and features is known, so this run's cannot be shown to be the same"
    return "" if digest == known else "the images, splits or features of this run are not those of the paper"


def why_not_the_papers(line: Line, features: str, known: Mapping[str, str]) -> str:
    """Why a training differs from the paper's, by its record; "" if it does not. ``known``: see ``known_digests``."""
    return why_not_its_settings(line, features) or why_not_its_features(line, features, known)


def why_not_its_settings(line: Line, features: str) -> str:
    """Why a training differs from the paper's in method, network or settings; "" if it does not."""
    if line.method not in ROWS:
        return "the method is not in the paper's tables"
    network = network_of(line)
    if not any(table.network == network and features in table.features for table in published_tables()):
        return f"the paper has no figures of {network} on {features_name(features)}"
    return changes_text(line, _settings(line, network, features), apart=_features_in(line))


def _features_in(line: Line) -> list[str]:
    """Settings that name features and their digest, which are compared separately."""
    return [name for name in line.settings if name.startswith("features")]


def why_not_the_papers_offline(line: Line) -> str:
    """Why a training on all buckets at once differs from the paper's; "" if it does not."""
    features = str(line.settings.get("features", EMBEDDING))
    if (network_of(line), features) != (OFFLINE.network, PIXELS):
        return f"the paper has a figure of {OFFLINE.network} on {features_name(PIXELS)}"
    return changes_text(line, _settings(line, OFFLINE.network, PIXELS), apart=_features_in(line))


def why_not_its_features(line: Line, features: str, known: Mapping[str, str]) -> str:
    """Why a training differs from the paper's in features; pixels and retrieval vectors are covered by the shards' digest."""
    digest = known.get(features)
    if digest == "":
        return f"no digest of the paper's {features_name(features)} features is known"
    recorded = [line.settings[name] for name in _features_in(line)]
    return "" if digest is None or digest in recorded else f"the {features_name(features)} features are not those of the paper"


def _settings(line: Line, network: str, features: str) -> list[Mapping[str, Any]]:
    """The paper's settings for a method, a network and features; one preset applies only to the features ``imagenet_rn50``."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in presets():
        model, settings = paper_settings(name)
        if features != PIXELS:
            settings.pop("view", None)
        if settings["model"].get("backbone", model) == network:
            found[name] = flat({**settings, "method": paper_methods()[line.method][1]})
    special = found.pop(f"{network}_imagenet", None)
    return [special] if special is not None and features == "imagenet_rn50" else [*found.values()]


def row_name(cell: PublishedCell) -> str:
    """The paper's name of the row of a cell: ``one bucket, alpha 0.5, fine-tuned``."""
    if cell.method in _NAMES:
        return _NAMES[cell.method]
    buffer = "cumulative" if cell.alpha is None else f"one bucket, alpha {cell.alpha:g}"
    return f"{buffer}{' i/k' if cell.method == 'dynamic_reservoir' else ''}, {_STARTS[cell.start]}"


def published_rows(
    label: str, lines: Mapping[tuple[str, str], Line], heading: Callable[[PublishedCell], str]
) -> list[PublishedRow]:
    """The paper's figures for one of our rows; tables with the same figures are named together.

    Args:
        label: label of the row.
        lines: (protocol, features) -> line of the row that was trained as in the paper, all with the same method and network.
        heading: heading of a cell's column.
    """
    found: list[tuple[list[str], str, dict[str, CellValue]]] = []
    for table in published_tables():
        cells = [
            cell
            for cell in table.cells
            if (line := lines.get((cell.protocol, cell.features))) is not None
            and (line.method, network_of(line)) == (cell.row, cell.network)
        ]
        values: dict[str, CellValue] = {
            heading(cell): Cell(cell.mean, note=f"± {cell.printed.split('±')[1]}") for cell in cells
        }
        same = [
            each for each in found if all(value_of(each[2].get(name)) in (None, value_of(it)) for name, it in values.items())
        ]
        if values and same:
            same[0][0].append(table.name)
            same[0][2].update({name: value for name, value in values.items() if name not in same[0][2]})
        elif values:
            found.append(([table.name], row_name(cells[0]), values))
    return [PublishedRow(name, f"the CLEAR paper, {named_tables(tables)}", values, label) for tables, name, values in found]


def named_tables(names: Iterable[str]) -> str:
    """``Tables 4 and 6``."""
    *most, last = (name.removeprefix("Table ") for name in names)
    return f"Tables {', '.join(most)} and {last}" if most else f"Table {last}"


def coverage_table(lines: Sequence[tuple[Line, str]], data: str, known: Mapping[str, str]) -> Table:
    """For every table of the paper: how many of its cells a run has with the paper's settings, and how many are comparable.

    Args:
        lines: lines, each with its features.
        data: why the data of the run differ from the paper's, or "".
        known: see ``known_digests``.
    """
    there: set[tuple[str, str, str, str]] = set()
    fair: set[tuple[str, str, str, str]] = set()
    for line, features in lines:
        place = line.protocol, network_of(line), features, line.method
        if not why_not_its_settings(line, features):
            there.add(place)
            fair |= set() if data or why_not_its_features(line, features, known) else {place}
    rows: list[Sequence[CellValue]] = []
    for table in published_tables():
        places = [(cell.protocol, cell.network, cell.features, cell.row) for cell in table.cells]
        counts = [len(places), *(sum(place in found for place in places) for found in (there, fair))]
        features = ", ".join(map(features_name, table.features))
        rows.append(
            [table.name.replace(" ", "\u00a0"), " and ".join(table.metrics), table.network, features, *counts, table.lacks]
        )
    columns = ["table", "protocol", "network", "features", "cells", "in this run", "comparable", "required for its figures"]
    return Table(columns, rows, "Tables of the paper, and how many of their cells this run has with the paper's settings")
