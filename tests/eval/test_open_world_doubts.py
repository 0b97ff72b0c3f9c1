"""Predictors that failed for want of data are told of, with the figure that shows it; others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.keys import canonical
from benchwright.curation.registry import load_name
from benchwright.curation.rows import schema_of
from benchwright.eval.protocols.open_world.doubts import doubts
from benchwright.eval.results import RESULTS, Value, measured
from benchwright.training.predictors.paper import paper_settings
from benchwright.training.predictors.registry import PREDICTORS, new_predictor


def told(method: str, settings: dict[str, Any], *, rows: int, said: int, novel: int = 30, count: int = 100) -> list[str]:
    values = [measured("labels_given", rows, position=0)]
    values += [
        measured(f"pre.{name}", value, split="test_set")
        for name, value in (("samples", count), ("said_unknown", said), ("novel", novel))
    ]
    table = pa.Table.from_pylist([vars(value) for value in values], schema=schema_of(Value))
    facts = {"benchmark": "kowl", "dataset": "", "experiment": "", "protocol": "feedback 1", "method": method, "model": ""}
    facts |= {"settings": canonical({"predictor": settings}), "seed": 0}
    columns = {name: pa.array([facts[name]] * len(values)) if name in facts else table[name] for name in RESULTS.names}
    return doubts(pa.table(columns, schema=RESULTS))


def test_what_suits_the_data_is_not_told_of() -> None:
    paper = paper_settings()
    assert told("ann", paper["ann"], rows=218_371, said=20) == []
    assert told("evm", paper["evm"], rows=5_000, said=20) == []
    assert told("gmm_finch", paper["gmm_finch"], rows=500, said=20) == []
    assert told("evm", paper["evm"], rows=5_000, said=0, novel=0) == []  # there was nothing to be found
    assert told("evm", paper["evm"], rows=5_000, said=100, novel=100) == []


def test_one_optimiser_step_is_told() -> None:
    paper = {**paper_settings()["ann"], "least_steps": 1}
    [line] = told("ann", paper, rows=240, said=20)
    assert "increment 0 was learned in 1 optimiser steps (240 samples in batches of 240, epochs: 1)" in line
    assert line.endswith("raise evaluation.settings.ann.epochs")
    [line] = told("ann", paper_settings()["ann"], rows=240, said=20)
    assert "10 optimiser steps (240 samples in batches of 24, epochs: 1)" in line


def test_nothing_and_everything_unknown_are_told() -> None:
    paper = paper_settings()
    [line] = told("evm", {**paper["evm"], "tail_share": 1.0}, rows=144, said=0)
    assert "before feedback it called 0 of 100 samples unknown, 30 were of new classes" in line
    assert line.endswith("lower evaluation.settings.evm.tail_size (100) or tail_share (1.0)")
    [line] = told("gmm_finch", paper["gmm_finch"], rows=500, said=100)
    assert line.endswith('set evaluation.settings.gmm_finch.shrinkage = "oas"')
    [line] = told("gmm_finch", paper["gmm_finch"], rows=500, said=0)
    assert line.endswith("raise evaluation.settings.gmm_finch.min_error_tol (0.05)")
    assert len(told("mine", {}, rows=500, said=0)) == 1
    assert len(told("mine", {}, rows=500, said=1, novel=3_000, count=10_000)) == 1
    assert told("mine", {}, rows=500, said=31, novel=3_000, count=10_000) == []


def test_both_parts_of_an_ann_and_an_evm_are_told_of() -> None:
    paper = paper_settings()
    settings = {"ann": {**paper["ann"], "least_steps": 1}, "evm": paper["evm"]}
    few, none = told("ann_evm", settings, rows=240, said=0)
    assert few.endswith("raise evaluation.settings.ann_evm.ann.epochs")
    assert none.endswith("lower evaluation.settings.ann_evm.evm.tail_size (100) or tail_share (0.1)")


@pytest.mark.parametrize(("share", "unknown"), [(1.0, False), (0.1, True)])
def test_a_short_tail_finds_what_a_tail_of_all_strangers_does_not(share: float, unknown: bool) -> None:
    draw = np.random.default_rng(0)
    centres = 3 * draw.normal(size=(7, 16))
    y = np.repeat(np.arange(7), 20)
    X = (centres[y] + draw.normal(size=(140, 16))).astype(np.float32)
    uid = np.array([f"c{n}" for n in range(140)])
    known = y < 6
    evm = new_predictor(load_name(PREDICTORS, "evm"), {**paper_settings()["evm"], "tail_share": share}, seed=0)
    evm.fit([(uid[known], X[known], y[known])], (uid[:0], X[:0], y[:0]))
    columns, shares = evm.predict(uid[~known], X[~known])
    assert bool((columns[shares.argmax(axis=1)] == -1).any()) == unknown


def test_evm_fits_all_rows_again_when_its_tail_grows() -> None:
    """What comes later lies far from all that was there: old rows keep their nearest strangers, and more of them count."""
    draw = np.random.default_rng(1)
    y = np.concatenate([np.tile(np.arange(4), 10), np.full(80, 4)])
    centres = np.concatenate([np.abs(draw.normal(size=(4, 8))), np.full((1, 8), -3.0)])
    X = (centres[y] + 0.1 * draw.normal(size=(120, 8))).astype(np.float32)
    uid = np.array([f"c{n}" for n in range(120)])
    parts = [(uid[:40], X[:40], y[:40]), (uid[40:], X[40:], y[40:])]
    found = []
    for steps in ([parts[:1], parts], [parts]):
        evm = new_predictor(load_name(PREDICTORS, "evm"), {**paper_settings()["evm"], "tail_size": 4}, seed=0)
        for experience in steps:
            evm.fit(experience, parts[0])
        found.append(evm.state()["fitted"])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
