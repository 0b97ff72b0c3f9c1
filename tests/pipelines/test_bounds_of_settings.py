"""Numbers that a step could not use are refused when the settings are read, in one line that names the setting."""

from __future__ import annotations

import re

import pytest
from benchwright.pipelines import api, config
from benchwright.pipelines.config import ConfigError

RULE = "bodies={track='place', most_tracks=2, order='first', bodies=2, noise={min_frames=%s, max_spread=%s, max_share=%s}}"


@pytest.mark.parametrize(
    ("benchmark", "setting", "told"),
    [
        *(("clear", f"source={{kind='yfcc100m', metadata='m', pace={{{name}={value}}}}}", name)
          for name, value in [("timeout_s", 0), ("timeout_s", -1), ("timeout_s", 1e9), ("retries", -1), ("backoff_s", -1),
                              ("max_backoff_s", -0.5), ("concurrency", 0), ("concurrency", 10**9), ("per_host", 0),
                              ("min_interval_s", -1), ("offline_after", -1), ("user_agent", '"a\\nb"')]),
        ("clear", "retrieval.background_share=-0.5", "background_share"),
        ("clear", "retrieval.background_share=2", "background_share"),
        ("clear", "retrieval.near_duplicate_cosine=1.5", "near_duplicate_cosine"),
        ("clear", "encoder={kind='open_clip', model='RN50', block=0}", "block"),
        ("clear", "encoder={kind='open_clip', model='RN50', block=1000000000}", "block"),
        ("clear", "encoder={kind='conse', top_classes=-1}", "top_classes"),
        ("iirc", "shares.in_task=-0.1", "in_task"),
        ("iirc", "shares.cap=0", "cap"),
        ("skeleton", "tensor.frames=0", "frames"),
        ("skeleton", "tensor.bodies=-1", "bodies"),
        ("skeleton", "tensor.centre_joint=-1", "centre_joint"),
        ("skeleton", RULE % (-1, 0.8, 0.7), "min_frames"),
        ("skeleton", RULE % (1, -0.8, 0.7), "max_spread"),
        ("skeleton", RULE % (1, 0.8, 1.5), "max_share"),
        ("skeleton", "evaluation.network.width=99999999", "width"),
        ("skeleton", "evaluation.network.depth=99999999", "depth"),
        ("skeleton", "evaluation.architectures.widths=[99999999]", "widths"),
        ("two_camera", "source.patch_px=99999999", "patch_px"),
        ("kowl", "turns=[{release='a', split='train', role='train', held_out=-0.1}]", "held_out"),
        ("kowl", "increments.later=[{release='a', count=1000000000, seed=0}]", "count"),
        ("kowl", "increments.later=[{release='a', count=5, seed=-1}]", "seed"),
        ("two_camera", "folds={kind='rotating', count=3, seed=-1}", "seed"),
        ("two_camera", "folds={kind='rotating', count=3, seed=4294967296}", "seed"),
    ],
)  # fmt: skip
def test_a_number_out_of_bounds_is_one_line(benchmark: str, setting: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        api.job(benchmark, config="tiny", overrides=[setting])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("benchmark", ["clear", "vclimb", "iirc", "kowl", "skeleton", "two_camera"])
def test_what_is_packaged_is_within_the_bounds(benchmark: str) -> None:
    for variant in [None, *config.variants(benchmark)]:
        told = "this setting is missing"  # of places that the user has to name
        try:
            api.job(benchmark, config=variant)
        except ConfigError as error:
            told = str(error)
        assert re.search("this setting is missing|these settings are missing", told)
