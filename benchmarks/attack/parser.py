"""What is attacked: a kind of file, a valid tree that holds one, and the public way on which a run would read it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Tree = dict[str, bytes]
"""Files of a folder by their path."""

Special = Callable[[Path], None]
"""Changes a valid tree on disk into a hostile one."""


@dataclasses.dataclass(frozen=True)
class Told:
    """What a run made of a folder.

    Attributes:
        rows: of the last stage; -1 where there are none to count.
        rejects: of all stages, by reason.
        source_rows: rows and rejects of the first stage that reads the attacked file; -1 likewise.
        lost: stages whose rows in are not rows out and rejects.
        details: what is said of the rejects.
    """

    rows: int = -1
    rejects: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    source_rows: int = -1
    lost: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Parser:
    """One row of the table.

    Attributes:
        name: of the kind of file.
        tree: a valid folder.
        attacked: the file in it that is changed.
        read: reads the folder as a run does, with a folder of its own to write to.
        others: further valid contents of the attacked file.
        text: whether its fields and lines are what is changed most.
        packed: see ``mutations.changed``.
        specials: hand-made trees by name.
        count: how many rows and rejects a careful reader finds in the attacked file, at least; None: it cannot be said.
        share: how many of the inputs it gets, 1 being the usual.
        forbidden: whether every file has to be refused, the valid one too.
    """

    name: str
    tree: Callable[[], Tree]
    attacked: str
    read: Callable[[Path, Path], Told]
    others: Callable[[], list[bytes]] = list
    text: bool = False
    packed: str = ""
    specials: Callable[[], Mapping[str, Special]] = dict
    count: Callable[[bytes], int] | None = None
    share: float = 1.0
    forbidden: bool = False

    @functools.cached_property
    def valid(self) -> Tree:
        """The valid tree, made once a process."""
        return self.tree()

    @functools.cached_property
    def hostile(self) -> Mapping[str, Special]:
        """What ``specials`` gives."""
        return self.specials()

    @functools.cached_property
    def spliced(self) -> list[bytes]:
        """What is spliced into the attacked file."""
        return self.others()


def by_plan(name: str, settings: tuple[str, ...], until: str, *, config: str = "tiny") -> Callable[[Path, Path], Told]:
    """Read by the plan of a pipeline, from its source to the stage ``until``; budgets of rejects are lifted.

    Args:
        name: of the pipeline.
        settings: as after ``--set``; ``{in}`` stands for the attacked folder.
        until: the last stage that is made.
        config: packaged settings that they are laid over.
    """
    return functools.partial(_read_by_plan, name, settings, until, config)


def _read_by_plan(name: str, settings: tuple[str, ...], until: str, config: str, folder: Path, out: Path) -> Told:
    from benchwright.curation.flow import Flow
    from benchwright.curation.run import run
    from benchwright.pipelines import api

    todo = api.job(name, config=config, overrides=[setting.replace("{in}", str(folder)) for setting in settings])
    whole = todo.flow(str(out))
    wanted = {until}
    for stage in reversed(whole.ordered()):
        if stage.name in wanted:
            wanted.update(stage.inputs())
    stages = tuple(dataclasses.replace(stage, max_rejects=None) for stage in whole.ordered() if stage.name in wanted)
    done = run(Flow(stages), str(out), scheduler="sync", pipeline=name)
    return told_of(done.store, done.artifacts, {stage.name for stage in stages if stage.expands})


def told_of(store: Any, artifacts: Any, expanding: set[str]) -> Told:
    """What the artifacts of a run say of its rows."""
    rejects: dict[str, int] = {}
    lost: list[str] = []
    details: list[str] = []
    for each in artifacts:
        for reason, count in each.rejects.items():
            rejects[reason] = rejects.get(reason, 0) + count
        for name in each.reject_files():
            details += store.read_parquet(name)["detail"].to_pylist()
        if each.kind != "source" and each.stage not in expanding and each.rows_in != each.rows + sum(each.rejects.values()):
            lost.append(each.stage)
    first = artifacts[0]
    return Told(artifacts[-1].rows, rejects, first.rows + sum(first.rejects.values()), tuple(lost), tuple(details))
