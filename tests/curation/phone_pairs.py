"""``benchmarks/make_phone_pairs.py``, which draws scenes and writes DNGs; without pidng, tests that import it are skipped."""

from __future__ import annotations

import pytest

from tests.files import ROOT, module_of

pytest.importorskip("pidng", reason="pidng writes the DNGs of these tests: pip install benchwright[dev]")
phone = module_of(ROOT / "benchmarks/make_phone_pairs.py")
