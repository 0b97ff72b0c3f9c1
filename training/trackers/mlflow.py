"""MLflow: a run per training, in the experiment ``benchwright``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ...curation.nested import flat
from .tracker import Tracker

_EXPERIMENT = "benchwright"
_TAG = "benchwright.training"
_MOST_LETTERS = 500
"""Maximum length of a parameter's value: MLflow's own limit is at least this in all versions."""


def mlflow(place: str, name: str, facts: Mapping[str, Any]) -> Tracker:
    """Runs of MLflow at a tracking URI, by default that of MLFLOW_TRACKING_URI."""
    package: Any = importlib.import_module("mlflow")
    client = package.MlflowClient(tracking_uri=place or None)
    there = client.get_experiment_by_name(_EXPERIMENT)
    experiment = client.create_experiment(_EXPERIMENT) if there is None else there.experiment_id
    known = client.search_runs([experiment], f"tags.`{_TAG}` = '{name}'", max_results=1)
    if known:
        return _Run(client, known[0].info.run_id)
    run = client.create_run(experiment, tags={_TAG: name}, run_name=name)
    for parameter, value in flat(facts).items():
        client.log_param(run.info.run_id, parameter, str(value)[:_MOST_LETTERS])
    return _Run(client, run.info.run_id)


class _Run:
    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)
