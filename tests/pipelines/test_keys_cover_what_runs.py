"""Every function of ours that runs within a step is among the definitions of the step's key, and so is every global it names.

The tiny configurations run under a profiler that sees each call, which knows nothing of how the keys are made.
"""

from __future__ import annotations

import ast
import dis
import functools
import gc
import importlib
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from benchwright.curation import local_files, parts, shards, stage_rows, store, tasks
from benchwright.curation.code_changes import definitions
from benchwright.curation.reachable_code import Definitions
from benchwright.pipelines import api
from benchwright.pipelines.catalogue import TITLES

# Between the engine and a step: what these call is the step, or what it gave. Code is known by its id: its hash goes through
# all its constants and names, at each call that is watched.
BORDER = {id(each.__code__) for each in (parts._called, parts._batch_call, parts._encoded)}
# How rows and payloads are read is the engine's: they have digests of their own, and the layout on disk is part of every key.
STORES = {store.__file__, stage_rows.__file__}
ENGINE = {Path(str(each.__file__)).name for each in (parts, shards)}


def _of_a_step(code: CodeType) -> bool:
    return Path(code.co_filename).name not in ENGINE


class Watch:
    """Notes which code of ours runs within the steps of which stage."""

    def __init__(self) -> None:
        gc.collect()  # generators of earlier tests would be seen to end
        self.seen: dict[str, dict[int, tuple[CodeType, Mapping[str, Any]]]] = defaultdict(dict)
        self.stage = ""
        self.steps: list[FrameType] = []
        self.hidden: list[FrameType] = []
        self.threads: dict[threading.Thread, bool] = {}

    def main(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "return":
            for frames in (self.steps, self.hidden):
                if frames and frames[-1] is frame:
                    frames.pop()

    def _enter(self, frame: FrameType) -> None:
        code, back = frame.f_code, frame.f_back
        if code is parts.make_parts.__code__:
            self.stage = frame.f_locals["task"].stage.name
        elif back is not None and back.f_code is tasks.stage_tasks.__code__:
            pieces = back.f_locals["stage"].pieces
            if pieces is not None and code is pieces.function.__code__:
                self.stage = back.f_locals["stage"].name
                self.steps.append(frame)
        elif back is not None and id(back.f_code) in BORDER and id(code) not in BORDER and _of_a_step(code):
            self.steps.append(frame)
        if code.co_filename in STORES or code.co_name == "<module>":
            self.hidden.append(frame)  # reading rows, or importing
        if self.steps and not self.hidden:
            self._note(frame)

    def beside(self, frame: FrameType, event: str, _: Any) -> None:
        """Threads: those of a step, but not those of the engine, which write."""
        if event != "call" or not str(frame.f_globals.get("__name__")).startswith("benchwright."):
            return
        # The engine's: a part is put in its place while the next is made, and a step counts its rows.
        if frame.f_code.co_filename in {local_files.__file__, *STORES}:
            return
        me = threading.current_thread()  # its number may be that of a thread that has ended
        self.threads.setdefault(me, Path(frame.f_code.co_filename).name not in ENGINE)
        if self.threads[me] and frame.f_code.co_name != "<module>":
            self._note(frame)

    def _note(self, frame: FrameType) -> None:
        if str(frame.f_globals.get("__name__")).startswith("benchwright.") and frame.f_code.co_filename != "<string>":
            self.seen[self.stage][id(frame.f_code)] = frame.f_code, frame.f_globals


@functools.cache
def lines_of(path: str) -> dict[int, frozenset[str]]:
    """Line -> global names that the statement there binds."""
    found: dict[int, frozenset[str]] = {}
    for node in ast.parse(Path(path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names, first = frozenset([node.name]), min([node.lineno, *(each.lineno for each in node.decorator_list)])
        else:
            stored = [each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
            names, first = frozenset(each.id for each in stored), node.lineno
        found.update(dict.fromkeys(range(first, (node.end_lineno or first) + 1), names))
    return found


def own_globals(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Definitions that the globals of running code stand for: those of its own file, and functions and classes of others."""
    bound = frozenset[str]().union(*lines_of(code.co_filename).values())
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname != "LOAD_GLOBAL" or name not in names:
            continue
        value = names[name]
        if name in bound:
            yield str(names["__name__"]), name
        elif isinstance(value, type | FunctionType) and str(value.__module__).startswith("benchwright."):
            yield value.__module__, value.__qualname__


def missed(keys: Mapping[str, Definitions], watch: Watch) -> list[str]:
    """What ran and is not in the key of its stage."""
    told: list[str] = []
    for stage, reached in keys.items():
        for code, names in watch.seen[stage].values():
            module = str(names["__name__"])
            candidates = lines_of(code.co_filename).get(code.co_firstlineno, frozenset())
            known = reached.get(module, {})
            if "*" not in known and not candidates & known.keys():
                told.append(f"{stage}: {module}.{code.co_qualname}")
            for place, name in own_globals(code, names):
                if "*" not in (held := reached.get(place, {})) and name not in held:
                    told.append(f"{stage}: {place}.{name}, which {module}.{code.co_qualname} names")
    return sorted(set(told))


@pytest.fixture(scope="module")
def large_packages() -> None:
    """They are there before the profiler is, which would make their import twice as long. Imports are no part of a step."""
    for name in ("torch", "sklearn.cluster", "colour", "pandas", "polars", "scipy.interpolate"):
        importlib.import_module(name)


@pytest.mark.usefixtures("large_packages")
@pytest.mark.parametrize("name", sorted(TITLES))
def test_what_runs_within_a_step_is_in_its_key(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("benchwright"), "handlers", [])  # a command's, of an earlier test: no part of a step
    todo = api.job(name, config="tiny")
    watch, before = Watch(), sys.getprofile()
    threading.setprofile(watch.beside)
    sys.setprofile(watch.main)
    try:
        api.run(todo, str(tmp_path), scheduler="sync")
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    flow = todo.flow(str(tmp_path))
    keys = {stage.name: definitions(stage) for stage in flow.stages}
    assert missed(keys, watch) == []
    # The test can fail: it saw something in every stage, and a key without definitions lacks it.
    assert {line.partition(":")[0] for line in missed({stage: {} for stage in keys}, watch)} == keys.keys()
