"""Which trainings of a KOWL run match the paper's, by its record, and the paper's Tables 1 to 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...curation.nested import flat
from ...datasets.kowl.facts import facts
from ...datasets.kowl.tables import increment_table, published_table
from ...eval.report.blocks import Block, Text
from ...eval.report.starting_release import SPLITS
from ...eval.report.trainings import PublishedRow, changes_text, digests_to_state
from ...eval.results import Line
from ...training.predictors.paper import paper_settings, released_settings, start_settings
from ..report import ReportedRun
from .config import MAIN, DrawnFeatures, ExtractedFeatures, KowlConfig, VideoFeatures, stage_apart


def data_differs(config: KowlConfig, samples: pa.Table) -> str:
    """Why scores on the starting release are not from the paper's samples and features; "" if they may be."""
    if not has_published_counts(config, published_table(increment_table(samples))):
        return "the increments are not those of the paper's Table 1"
    every = config.sets.values()
    if any(isinstance(each, DrawnFeatures) for each in every):
        return "features are synthetic"
    if any(isinstance(each, ExtractedFeatures | VideoFeatures) and not each.checkpoint for each in every):
        return "features come from random weights, or from the built-in backbone"
    return ""


def table_3_rows(
    found: Sequence[Line], config: KowlConfig, digests: Mapping[str, str], data: str
) -> tuple[list[PublishedRow], list[Block]]:
    """The rows of Table 3 that lines of the starting release can be compared with, and why there are none for the others.

    Args:
        found: lines of protocol ``start``.
        config: settings of the run.
        digests: see ``digests_of_sets``.
        data: see ``data_differs``.
    """
    table = facts().table_3
    rows: list[PublishedRow] = []
    reasons: dict[str, None] = {}
    for line in found:
        name, why = ("", data) if data else _row_of(line, config, digests)
        if why:
            reasons[why] = None
            continue
        at = table["classifier"].index(name)
        values = {heading: table[split][at] for split, heading in SPLITS.items()}
        rows.append(PublishedRow(name, "Table 3", values, under=line.label))
    notes: list[Block] = []
    if reasons:
        others = "Table 3 of the paper is not shown" + (" for the other classifiers" if rows else "")
        notes.append(Text([f"{others}: {'; '.join(reasons)}."], tone="note"))
    unstated = {name: digest for name, digest in digests.items() if not _stated(config, name, digest)}
    if not data and unstated:
        known = "features come from the paper's weights of TimeSformer (for X3D-M write X3D instead of TSF)"
        sets = {f"evaluation.published.TSF.{name}": digest for name, digest in unstated.items()}
        notes.append(digests_to_state(known, sets, "rows of Table 3 are"))
    return rows, notes


def digests_of_sets(run: ReportedRun, config: KowlConfig) -> dict[str, str]:
    """Feature set -> digest of the finished stage with its vectors, for that of ``[features]`` the shards."""
    stages = {MAIN: "shards", **{name: stage_apart(name, "") for name in config.feature_sets}}
    return {name: run.made[stage].digest for name, stage in stages.items() if stage in run.made}


def _stated(config: KowlConfig, features: str, digest: str) -> list[str]:
    """The paper's backbones, TSF or X3D, whose features the settings state these to be; ``digest``: the run's, "" for none."""
    return [backbone for backbone, sets in config.evaluation.published.items() if digest and sets.get(features) == digest]


def _row_of(line: Line, config: KowlConfig, digests: Mapping[str, str]) -> tuple[str, str]:
    """The row of Table 3 for a training, or else why there is none."""
    features = line.model or MAIN
    digest = digests.get(features, "")
    if not (stated := _stated(config, features, digest)):
        if others := [sets[features] for sets in config.evaluation.published.values() if features in sets]:
            return (
                "",
                f"evaluation.published states {', '.join(others)} for {features}, and the run has {digest or 'no such set'}",
            )
        return "", f"no digest shows that {features} come from the paper's X3D-M or TimeSformer weights"
    [backbone, *_] = stated
    part = "predictor.ann." if line.method == "ann_evm" else "predictor."
    epochs = line.settings.get(f"{part}epochs")
    names = {"original": "Original", "ann": f"ANN {epochs}", "ann_evm": f"ANN {epochs} + EVM", "evm": "EVM"}
    name = f"{backbone} {names.get(line.method, line.method)}"
    if name not in facts().table_3["classifier"]:
        return "", f"the table has no row {name}"
    paper = paper_settings()
    ann = {**paper["ann"], **start_settings()["ann"], "epochs": epochs}
    settings = {**paper, "ann": ann, "ann_evm": {"ann": ann, "evm": paper["evm"]}}[line.method]
    own = {"predictor": settings, "experience_limit": None}
    variants = [flat(own)]
    if "ann" in line.method:
        width = config.sets[features].width
        text, released = ann, {**ann, **released_settings()["ann"][backbone]}
        # The text's network and the released one, each with its hidden layer as a number or, if it is that wide, as 0.
        every = [
            text,
            {**text, "hidden": width},
            released,
            *([{**released, "hidden": 0}] if released["hidden"] == width else []),
        ]
        variants = [{**flat(own), **{f"{part}{name}": value for name, value in each.items()}} for each in every]
    apart = [each for each in line.settings if each.startswith("prior_knowledge")]
    changed = changes_text(line, variants, apart=apart)
    return ("", changed) if changed else (name, "")


def has_published_counts(config: KowlConfig, ours: pa.Table) -> bool:
    """Whether a run has the paper's releases and the increments of its Table 1, given by ``published_table``."""
    f = facts()
    if tuple(config.labels.releases) != f.labels.releases:
        return False
    published = table_1()
    mine = ours.select(published.column_names).to_pydict()
    # Table 2 counts a novel test sample of increment 0 that Table 1 leaves out.
    both = facts().table_1["test_novel"][0], facts().table_2["test_novel"][0]
    if mine["test_novel"] and mine["test_novel"][0] in both:
        mine["test_novel"][0] = both[0]
    return mine == published.to_pydict()


def table_1() -> pa.Table:
    """Table 1 of the paper: one row per increment."""
    published = pa.table({name: pa.array(column) for name, column in facts().table_1.items()})
    return published.add_column(0, "increment", pa.array(range(published.num_rows)))


def table_2() -> pa.Table:
    """Table 2 of the paper, with the columns of ``datasets.kowl.tables.increment_table``.

    The samples of increments 6 to 10 are listed under validate there, and play the test role: here they are under test.
    """
    printed, whole = facts().table_2, table_1()
    at = printed["test_known"].index(0)
    names = ["known_classes", "known", "novel_classes", "novel"]
    columns = {name: whole[name] for name in ("increment", "known_classes", "novel_classes")}
    columns |= {f"train_{name}": whole[name if "classes" in name else f"train_{name}"] for name in names}
    for role, other in (("val", "test"), ("test", "val")):
        columns |= {f"{role}_{name}": [*printed[f"{role}_{name}"][:at], *printed[f"{other}_{name}"][at:]] for name in names}
    return pa.table(columns)
