"""What CLEAR's annotators are asked."""

from __future__ import annotations

from ...curation.qa.options import Option
from ...curation.qa.rounds import Round, Simulated
from .config import ClearConfig


def options_of(config: ClearConfig) -> list[Option]:
    """The choices that annotators see, in the order of the classes."""
    return [each.as_option() for each in config.classes]


def asked(config: ClearConfig) -> Round:
    """The only round: about the images that are retrieved and looked at, a batch a bucket."""
    qa = config.qa
    labelled = "asked" if config.buckets.first_labelled else "retrieved"
    return Round(
        stage=labelled if qa.max_sensitive_score is None else "screened",
        options=options_of(config),
        seed=config.seed,
        workers=qa.workers,
        background=config.retrieval.background,
        group="bucket",
        simulated=Simulated(qa.truth, qa.errors) if qa.votes == "simulated" else None,
    )


def rounds(config: ClearConfig) -> list[Round]:
    """For ``Benchmark.rounds``. With ``qa.votes = "none"``, too: annotators may be asked before their votes are counted."""
    return [asked(config)]
