"""The HTML report of a KOWL run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact
from ...curation.store import Store
from ...datasets.kowl.facts import facts
from ...datasets.kowl.tables import class_density, increment_table, published_table
from ...datasets.kowl.transitions import KINDS, transition_counts, transitions
from ...eval.protocols.open_world_measures import predictor_labels, tidy
from ...eval.report.blocks import Block, Cards, Details, Section, Table, Text, Value
from ...eval.report.figures import bar_chart
from ...eval.report.flows import Change, flow_chart
from ...eval.report.open_world import density_figure, open_world_sections
from ...eval.report.open_world_strata import strata_section
from ..experiments import results
from ..own import shown
from ..report import finished_stages, stage_cards, write_page
from .card import NEEDED
from .config import DrawnFeatures, DrawnLists, ExtractedFeatures, KowlConfig
from .stream import TRANSFORM

_EDGES = 60
"""Changed labels that are shown of each pair of releases."""

_BANDS = 28
"""Of these, those in the picture."""


def write_report(config: KowlConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    store = Store(out)
    made = finished_stages(store)
    found = results(out)
    measured = tidy(found)
    everything = pc.equal(measured["stratification"], "")
    sections = [Section("Summary", [_cards(made), *_caveats(config)])]
    if "unified" in made:
        sections.append(_labels(config, made["unified"].rows_view(store)))
    if "increments" in made:
        samples = made["increments"].rows_view(store).table(list(NEEDED))
        sections.append(_increments(config, samples))
        density = class_density(samples)
        if measured.num_rows:
            whole, strata = measured.filter(everything), measured.filter(pc.invert(everything))
            sections += open_world_sections(whole, density=density, published_note=_comparable(config))
            sections += _strata(config, strata)
            sections.append(_prior(found))
        elif (figure := density_figure(density, caption="Training samples by class.")) is not None:
            sections.append(Section("Class density", [figure]))
    subtitle = f"{', '.join(config.labels.releases)}; rules {config.increments.preset}, seed {config.seed}"
    drawn = f"{shown(config.source.kind)}, seed {config.seed}"
    return write_page("A KOWL-style benchmark", subtitle, sections, made, out, drawn=drawn)


def _cards(made: Mapping[str, Artifact]) -> Cards:
    shown = [
        ("listed", "rows of the lists", "in all releases"),
        ("unified", "labelled samples", "by id, start and end"),
        ("increments", "in the increments", "with video and feature"),
    ]
    return Cards(stage_cards(made, shown))


def _caveats(config: KowlConfig) -> list[Block]:
    told: list[str] = []
    if isinstance(config.source, DrawnLists):
        told.append("The lists of this run are DRAWN from a seed: ids, labels and missing videos are made up.")
    if isinstance(config.features, DrawnFeatures):
        told.append(
            f"The features of this run are DRAWN: Gaussians whose centres lie about {config.features.distance:g} standard "
            f"deviations apart. Of the later classes a share of {config.features.hidden:g} lies around the centres of "
            "starting classes: before feedback nobody can tell these from known ones. Scores say nothing about videos."
        )
    if isinstance(config.features, ExtractedFeatures) and config.features.backbone.kind == "built_in":
        told.append("Features are of the built-in backbone, colours and edges: scores say nothing about networks.")
    return [Text(told, tone="note")] if told else []


def _comparable(config: KowlConfig) -> str:
    if isinstance(config.features, DrawnFeatures) or isinstance(config.source, DrawnLists):
        return "Drawn data: the paper's figures cannot be compared with these."
    return ""


def _labels(config: KowlConfig, rows: Any) -> Section:
    releases = config.labels.releases
    edges = transitions(rows.table([f"label_{release}" for release in releases]), releases)
    counts = transition_counts(edges).to_pylist()
    blocks: list[Block] = [
        Text(["What becomes of the labels of samples that a release and the next both hold. The rule of the kinds is ours."]),
        Table(
            ["from", "to", "kind", "old labels", "new labels", "samples"],
            [list(row.values()) for row in counts],
            "Transitions between releases",
        ),
    ]
    frame = pl.DataFrame(pl.from_arrow(edges)).filter(pl.col("kind") != "kept")
    for (old, new), mine in frame.partition_by(["from_release", "to_release"], as_dict=True, maintain_order=True).items():
        top = mine.sort("samples", descending=True, maintain_order=True).head(_EDGES)
        kinds = mine.group_by("kind", maintain_order=True).agg(pl.col("samples").sum())
        names, values = kinds["kind"].to_list(), kinds["samples"].to_list()
        pair = f"{old} to {new}"
        bands = [Change(*row) for row in _grouped(top.head(_BANDS)).rows()]
        blocks.append(
            flow_chart(
                bands,
                KINDS,
                old_axis=str(old),
                new_axis=str(new),
                value_axis="samples",
                caption=f"The {len(bands)} most frequent changes of labels, {pair}, of {mine.height}.",
            )
        )
        blocks.append(
            bar_chart(names, values, label_axis="kind", value_axis="samples", caption=f"Samples given another label, {pair}.")
        )
        lines: list[Sequence[Value]] = [list(row) for row in top.select("from_label", "to_label", "kind", "samples").rows()]
        title = f"Changed labels, {pair}: {top.height} of {mine.height}, most samples first"
        blocks.append(Details(title, [Table(["from", "to", "kind", "samples"], lines)]))
    return Section("Labels over the releases", blocks)


def _grouped(changes: pl.DataFrame) -> pl.DataFrame:
    """Changes of one old label side by side, the kinds in their order."""
    place = pl.col("kind").cast(pl.Enum(KINDS))
    first = pl.col("samples").max().over("from_label")
    return changes.sort(place.min().over("from_label"), first, "from_label", "samples", descending=[False, True, False, True])[
        ["from_label", "to_label", "kind", "samples"]
    ]


def _increments(config: KowlConfig, samples: pa.Table) -> Section:
    ours = increment_table(samples)
    blocks: list[Block] = [
        _numbers(published_table(ours), "This run, as in Table 1 (val and test together from increment 1 on)")
    ]
    f = facts()
    if tuple(config.labels.releases) == f.labels.releases:
        published = pa.table({name: pa.array(column) for name, column in f.table_1.items()})
        if "increment" not in published.column_names:
            published = published.add_column(0, "increment", pa.array(range(published.num_rows)))
        same = published_table(ours).select(published.column_names).equals(published.cast(published.schema))
        verdict = "This run's table is the published one, number for number." if same else "This run's table differs from it."
        blocks += [_numbers(published, "Table 1 of the paper"), Text([verdict], tone="good" if same else "plain")]
    blocks.append(Details("By role, as in Table 2", [_numbers(ours, "This run, val and test apart")]))
    return Section("Increments", blocks)


def _numbers(table: pa.Table, caption: str) -> Table:
    rows: list[Sequence[Value]] = [[str(row.pop("increment")), *row.values()] for row in table.to_pylist()]
    headings = ["increment", *(name.replace("_", " ") for name in table.column_names if name != "increment")]
    return Table(headings, rows, caption)


_AVA = {
    "actions": "By number of different actions",
    "persons": "By number of persons",
    "area": "By size of the persons, thirds of equal count",
    "activity": "By type of activity",
}
_ABOUT_AVA = (
    "Clips by what AVA-Kinetics annotates in their key frame; N/A: nothing. Classification task, validation and test samples.",
    "PM: person movement, OM: object manipulation, PI: person interaction; a clip that shows two types counts in both.",
)
_ABOUT_TRANSFORMS = (
    "Nuisance novelty: the same classes, seen otherwise. The rows named none are clips seen as they are; which clips were "
    "transformed was drawn by their keys. The ranges of the transforms are ours, the paper's are unpublished.",
)


def _strata(config: KowlConfig, table: pa.Table) -> list[Section]:
    """Measures by AVA-Kinetics stratum and by visual transform."""
    found = [
        strata_section(table, "What clips show", _ABOUT_AVA, _AVA, note=_comparable(config)),
        strata_section(table, "Visual transforms", _ABOUT_TRANSFORMS, {TRANSFORM: "By visual transform"}),
    ]
    return [section for section in found if section is not None]


def _prior(found: pa.Table) -> Section:
    labels = predictor_labels(found)
    trained = found.select(["protocol", "method", "model", "settings"]).group_by(
        ["protocol", "method", "model", "settings"], use_threads=False
    )
    rows: list[Sequence[Value]] = []
    for protocol, *key in (row.values() for row in trained.aggregate([]).to_pylist()):
        known = json.loads(key[2])["prior_knowledge"]
        rows.append([f"{labels[tuple(key)]}, {protocol}", json.dumps(known, sort_keys=True)])
    return Section("Prior knowledge", [Table(["run", "known before increment 0"], rows)])
