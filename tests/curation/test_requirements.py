"""What is checked before a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from benchwright.curation.flow import PlanError, source, step
from benchwright.curation.requirements import check_devices


@dataclasses.dataclass(frozen=True)
class Number:
    key: str


def numbers() -> Iterator[Number]:
    yield Number("1")


def measured(row: Number, *, device: Any) -> Number:
    return Number(str(torch.tensor(float(row.key))))


@pytest.mark.parametrize("device", [None, "auto", "left", "cpu"])
def test_a_setting_called_device_may_mean_anything(device: Any) -> None:
    check_devices(source("drawn", step(numbers)).each("measured", step(measured, device=device)).stages)


def test_a_gpu_that_is_not_there_is_told() -> None:
    flow = source("drawn", step(numbers)).each("measured", step(measured, device="cuda:99"))
    with pytest.raises(PlanError, match="stage 'measured': device = 'cuda:99': this machine has none that torch can use"):
        check_devices(flow.stages)
