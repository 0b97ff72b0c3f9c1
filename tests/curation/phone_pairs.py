"""``benchmarks/make_phone_pairs.py``, which draws scenes and writes DNGs; without pidng, tests that import it are skipped."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("pidng", reason="pidng writes the DNGs of these tests: pip install benchwright[dev]")
_SPEC = importlib.util.spec_from_file_location(
    "make_phone_pairs", Path(__file__).resolve().parents[2] / "benchmarks/make_phone_pairs.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
phone = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(phone)
