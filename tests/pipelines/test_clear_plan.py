"""The CLEAR plan follows its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchwright.curation.flow import Flow
from benchwright.datasets.clear.facts import facts, published_limits
from benchwright.pipelines import api


def plan(*overrides: str, config: str | None = None) -> Flow:
    return api.job(
        "clear", config=config, overrides=["source.metadata=yfcc", *overrides] if config is None else overrides
    ).flow("out")


def settings(flow: Flow, stage: str) -> dict[str, object]:
    return flow.stage(stage).step.all_settings()


def test_published_settings_are_the_papers_facts() -> None:
    flow, known = plan(), facts()
    flow.schemas()
    assert settings(flow, "first")["n"] == known.buckets.images == 7_850_000
    assert settings(flow, "bucketed")["buckets"] == known.buckets.count
    assert settings(flow, "bucketed")["by"] == "uploaded_unix"
    rule = settings(flow, "retrieved")["rule"]
    assert (rule.candidates, rule.per_class, rule.background) == (16_000, 600, "BACKGROUND")
    assert rule.background_rows == known.retrieval.background_per_prompt == 60
    concepts = settings(flow, "retrieved")["concepts"]
    assert [(c.name, *c.prompts) for c in concepts] == [(c.name, c.prompt) for c in known.classes]
    assert settings(flow, "asked")["first"] == min(known.buckets.labelled) == 1
    assert settings(flow, "chosen")["per_class"] == known.choice.per_class == 300
    assert settings(flow, "chosen")["classes"] == known.class_names
    assert settings(flow, "split")["test_share"] == known.iid.test_share
    encoder = settings(flow, "embedded")["encoder"]
    assert (encoder.model, encoder.weights) == (known.retrieval.encoder, "openai")
    assert settings(flow, "fetched")["limits"].min_bytes == known.buckets.min_bytes
    voted = settings(flow, "voted")
    assert (voted["workers"], voted["majority"]) == (known.review.workers, known.review.exact_votes)


def test_worker_options_are_those_that_were_shown() -> None:
    from benchwright.pipelines.clear_runs import options_of

    config = api.job("clear", overrides=["source.metadata=yfcc"]).config
    shown = {option.stands_for: option.shown for option in options_of(config)}
    assert shown == {fact.name: fact.shown for fact in facts().classes}


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        ('{kind = "clear10"}', "assign_buckets_by_limits"),
        ('{kind = "calendar", period = "year"}', "assign_calendar_buckets"),
        ('{kind = "equal_count", count = 3}', "assign_equal_count_buckets"),
    ],
)
def test_bucket_rules(rule: str, step: str) -> None:
    flow = plan(f"buckets.rule={rule}", "buckets.by=date_uploaded")
    assert flow.stage("bucketed").step.function.__name__ == step
    if "clear10" in rule:
        assert settings(flow, "bucketed")["limits"] == list(published_limits())
        assert len(published_limits()) == 11


def test_options_add_and_leave_out_stages() -> None:
    names = [stage.name for stage in plan(config="tiny").stages]
    assert "distinct" not in names
    assert "screened" not in names
    more = plan("images.drop_duplicates=true", "qa.max_sensitive_score=0.8", "qa.votes=none", config="tiny")
    more.schemas()
    names = [stage.name for stage in more.stages]
    assert {"distinct", "screened"} <= set(names)
    assert "voted" not in names
    assert "fetched" not in [stage.name for stage in plan("source.images_root=photos").stages if stage.kind == "each_batch"]


def test_a_plan_names_no_place_in_its_keys(tmp_path: Path) -> None:
    todo = api.job("clear", config="tiny")
    one, other = tmp_path / "one", tmp_path / "other"
    for out in (one, other):
        api.run(todo, str(out))
    assert [a.key for _, a in api.plan(todo, str(one))] == [a.key for _, a in api.plan(todo, str(other))]
