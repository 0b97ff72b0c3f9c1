"""Sections of the KOWL report about trainings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pyarrow.compute as pc

from ...eval.protocols.open_world.doubts import doubts
from ...eval.protocols.open_world.measures import NUISANCE, predictor_labels, tidy
from ...eval.report.blocks import CellValue, Section, Table, Text
from ...eval.report.nuisances import nuisance_sections
from ...eval.report.open_world import open_world_sections, strata_section
from ...eval.report.starting_release import starting_sections
from ...eval.report.trainings import own_metrics, settings_details
from ...eval.results import Line
from ..report import ReportedRun
from ..training_results import results
from .config import KowlConfig
from .paper import digests_of_sets, table_3_rows
from .protocols import START
from .stream import TRANSFORM


def training_sections(run: ReportedRun, config: KowlConfig, data: str) -> list[Section]:
    """Open-world measures, strata, visual transforms, and classifiers of the starting release.

    Args:
        run: the run, and its settings.
        data: why its data are not the paper's, see ``paper.data_differs``.
    """
    found = results(run.out)
    measured = tidy(found)
    of_start = [line for line in run.lines if line.protocol == START]
    starting = starting_sections(of_start, *table_3_rows(of_start, config, digests_of_sets(run, config), data))
    if not measured.num_rows:
        return starting
    everything = pc.equal(measured["stratification"], "")
    strata = measured.filter(pc.invert(everything))
    seen = strata.filter(pc.equal(strata["stratification"], NUISANCE))
    strata = strata.filter(pc.not_equal(strata["stratification"], NUISANCE))
    by_stratum = [strata_section(strata, title, about, kinds) for title, about, kinds in _STRATA]
    labels = predictor_labels(found)
    prior: list[Sequence[CellValue]] = []
    predictors: dict[str, Line] = {}
    for line in run.lines:
        if line.protocol == START:
            continue
        settings = line.rows["settings"][0].as_py()
        label = labels[line.method, line.model, settings]
        predictors[label] = dataclasses.replace(line, label=label)
        known = json.dumps(json.loads(settings)["prior_knowledge"], sort_keys=True)
        prior.append([f"{label}, {line.protocol}", known])
    own = [block for lines in run.protocols.values() for block in own_metrics(lines)]
    failed = doubts(found)
    texts = [Section("Settings that do not suit the data", [Text(failed, tone="note")])] if failed else []
    apart = settings_details(list(predictors.values()))
    differences = [Section("How predictors differ", apart)] if apart else []
    return [
        *texts,
        *differences,
        *open_world_sections(measured.filter(everything)),
        *(section for section in by_stratum if section is not None),
        *nuisance_sections(seen),
        *starting,
        Section("Prior knowledge", [Table(["run", "known before increment 0"], prior), *own]),
    ]


_AVA = {
    "actions": "By number of actions",
    "persons": "By number of persons",
    "area": "By size of the persons, in terciles",
    "activity": "By type of activity",
}
_ABOUT_AVA = (
    "Clips by AVA-Kinetics' annotations of their key frame; N/A: none. Classification task, as in the paper's Figure 12, on "
    "the test set, and below on training samples: the paper does not name the split.",
    "PM: person movement, OM: object manipulation, PI: person interaction: types of AVA's actions; a clip with two types "
    "counts in both. The paper's text has types of Kinetics' actions, of which no list is known to us.",
)
_ABOUT_TRANSFORMS = (
    "Nuisance novelty: the same classes under visual transforms. Rows named none are untransformed clips; the clips to "
    "transform were selected at random by key. The ranges of the transforms are ours; the paper's are unpublished.",
)
_STRATA = (
    ("Content of the clips", _ABOUT_AVA, _AVA),
    ("Visual transforms", _ABOUT_TRANSFORMS, {TRANSFORM: "By visual transform"}),
)
"""Sections of results by AVA-Kinetics stratum and by visual transform."""
