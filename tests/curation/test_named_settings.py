"""A method that a step is given as a setting: what is made depends on the code of that one method, and not on others."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from benchwright.curation.flow import Flow, PlanError, source, step
from benchwright.curation.keys import as_json, named
from benchwright.curation.run import Progress, run, status

# Worker processes cannot import the tests: the steps travel with the tasks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

METHODS = """
    def helped(x):
        return x + 1
    def plus(x):
        return helped(x)
    def twice(x):
        return 2 * x
"""


@dataclass(frozen=True)
class Number:
    key: str
    value: int


def read(*, count: int) -> Iterator[Number]:
    yield from (Number(f"k{n:02d}", n) for n in range(count))


def apply(row: Number, *, method: Callable[[int], int]) -> Number:
    return Number(row.key, method(row.value))


def negative(x: int) -> int:
    return -x


def plan(method: Any, count: int = 3) -> Flow:
    return source("read", step(read, count=count)).each("applied", step(apply, method=method))


def values(flow: Flow, out: Path, **settings: Any) -> list[int]:
    return run(flow, str(out), **settings).rows().table()["value"].to_pylist()


def test_a_function_may_be_a_setting(tmp_path: Path) -> None:
    assert values(plan(negative), tmp_path, scheduler="threads") == [0, -1, -2]
    assert values(plan(negative), tmp_path / "apart", scheduler="processes", workers=1) == [0, -1, -2]
    with pytest.raises(TypeError, match="at the top level of a module"):
        as_json("method", lambda x: x)


@pytest.mark.parametrize("scheduler", ["sync", "processes"])
def test_a_setting_may_name_a_function_in_a_file(tmp_path: Path, scheduler: str) -> None:
    methods = tmp_path / f"methods_of_{scheduler}.py"
    methods.write_text(textwrap.dedent(METHODS))
    out = tmp_path / "out"
    flow = plan(named(f"{methods}:plus"))
    assert values(flow, out, scheduler=scheduler, workers=1) == [1, 2, 3]
    assert values(plan(named("operator:neg")), tmp_path / "module", scheduler=scheduler, workers=1) == [0, -1, -2]

    methods.write_text(textwrap.dedent(METHODS).replace("2 * x", "3 * x"))
    assert [artifact is not None for _, artifact in status(flow, str(out))] == [True, True]
    methods.write_text(textwrap.dedent(METHODS).replace("x + 1", "x + 10"))
    assert [artifact is not None for _, artifact in status(flow, str(out))] == [True, False]

    told: list[Progress] = []
    run(flow, str(out), on_progress=told.append)
    assert [each.why for each in told if each.state == "stale"] == [f"methods_of_{scheduler}.helped changed"]
    with pytest.raises(LookupError, match="has no 'minus'"):
        named(f"{methods}:minus")


def test_a_stage_is_kept_only_where_nothing_but_code_changed(tmp_path: Path) -> None:
    methods, out = tmp_path / "kept_methods.py", str(tmp_path / "out")
    methods.write_text(textwrap.dedent(METHODS))
    flow = plan(named(f"{methods}:plus"))

    def keep(flow: Flow, *stages: str) -> Sequence[str]:
        told: list[Progress] = []
        run(flow, out, keep_stale=stages, on_progress=told.append)
        return [each.state for each in told if each.stage == "applied" and each.state != "running"]

    with pytest.raises(PlanError, match="stage 'applied' cannot be kept: it has not run"):
        keep(flow, "applied")
    with pytest.raises(PlanError, match="no stage 'aplied' to keep: there are read, applied"):
        keep(flow, "aplied")
    made = run(flow, out).result
    methods.write_text(textwrap.dedent(METHODS).replace("x + 1", "x + 10"))
    assert keep(flow, "applied") == ["reused"]
    assert keep(flow) == ["reused"]  # it stays kept
    kept = run(flow, out).result
    assert (kept.digest, kept.key, kept.recipe) == (made.digest, made.key, made.recipe)
    assert kept.kept["changed"] == "kept_methods.helped changed"
    assert kept.kept["was"].keys() == kept.kept["code"].keys() == {"step", "setting method"}
    assert kept.kept["was"]["setting method"] != kept.kept["code"]["setting method"]

    methods.write_text(textwrap.dedent(METHODS).replace("x + 1", "x + 100"))  # another change
    assert status(flow, out)[1][1] is None
    methods.write_text(textwrap.dedent(METHODS))  # and back to what made it
    assert keep(flow) == ["reused"]
    assert not run(flow, out).result.kept

    other = plan(named(f"{methods}:twice"))
    with pytest.raises(PlanError, match="'applied' cannot be kept: setting method = ") as refused:
        keep(other, "applied")
    assert str(refused.value).endswith("; --keep-stale applied applies only to changed code: run without it")
    with pytest.raises(PlanError, match="'applied' cannot be kept: its input read has different rows"):
        keep(plan(named(f"{methods}:plus"), count=4), "applied")
    assert keep(plan(named(f"{methods}:plus"), count=4)) == ["stale", "done"]
