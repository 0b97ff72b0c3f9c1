"""vCLIMB's splits by rule and seed: whole videos from segments (Untrim), roles, the order of classes, tasks.

The released split files are the benchmark: the seed of their orders is unknown. What is drawn here has the same counts, but
not the same members (UCF101's roles, the order of classes); ActivityNet's roles are official, so its members are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rng import uniform
from ...curation.rows import Sifted, sift, with_column
from ...curation.stages.external_sort import stable_order
from ...curation.stages.ranks import coded, draws, in_tables
from ..roles import ROLES
from ..videos.groups import whole_groups

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows


RoleRule = Literal["listed", "by_class", "by_group"]
"""See ``assign_clip_roles``."""


@dataclass(frozen=True)
class Untrimmed:
    """Columns that ``untrim`` changes or adds: ``key`` is the video's key, ``source_key`` the key of its first segment.

    Attributes:
        coverage: share of the video that its longest segment covers; above 1 if the listed times exceed the video.
        t_start: None: the whole video.
        t_end: None: the whole video.

    >>> row = Untrimmed("lake", source_key="lake-0000000-0004000", t_start=None, t_end=None, coverage=0.4)
    >>> row.coverage  # the longest segment has 4 of the video's 10 seconds
    0.4
    """

    key: str
    source_key: str
    t_start: float | None
    t_end: float | None
    coverage: float


@dataclass(frozen=True)
class InRole:
    """Column that ``assign_clip_roles`` fills.

    >>> InRole("lake", role="train")
    InRole(key='lake', role='train')
    """

    key: str
    role: str


@dataclass(frozen=True)
class InTask:
    """Columns that ``assign_tasks`` adds: position of the class in the order of learning, and its task, both from 0.

    >>> InTask("lake", class_index=11, task=1)  # such as 10 classes in task 0
    InTask(key='lake', class_index=11, task=1)
    """

    key: str
    class_index: int
    task: int


def untrim(
    rows: Rows, *, min_coverage: float = 0.0, several_labels: Literal["reject", "longest"] = "reject"
) -> Iterator[Sifted]:
    """Whole step (``expands``): one row per video instead of its segments, as the released code makes ActivityNet-Untrim.

    Rejected: ``multi_label`` and ``no_coverage``, once per video (for its first segment, in this order of rules), and
    ``same_video`` for the other segments. In total 0.154 % of the videos are rejected: the paper's 0.15 %.

    Args:
        rows: rows of ``ListedClip``; segments of one video have the same ``name`` and ``role``.
        min_coverage: the longest segment must cover more than this share of the video. The released flag is 0, which
            only rejects videos whose segments have no positive length.
        several_labels: ``reject`` videos with more than one label, as released, or assign the label whose segments have the
            longest total time (``longest``, our addition).

    Raises:
        ValueError: ``several_labels`` is neither.

    >>> from benchwright.curation.stage_rows import Rows
    >>> segments = {"key": ["a-0000000-0004000", "a-0006000-0008000"], "name": ["a", "a"], "role": ["train", "train"]}
    >>> times = {"t_start": [0.0, 6.0], "t_end": [4.0, 8.0], "video_s": [10.0, 10.0], "label": ["surfing", "surfing"]}
    >>> kept, rejected = next(untrim(Rows.of(pa.table({**segments, **times}))))
    >>> kept.select(["key", "coverage"]).to_pylist(), rejected["reason"].to_pylist()
    ([{'key': 'a', 'coverage': 0.4}], ['same_video'])
    """
    if several_labels not in ("reject", "longest"):
        raise ValueError(f"several_labels is {several_labels!r}: reject or longest")
    length = pl.col("t_end") - pl.col("t_start")
    frame = pl.DataFrame(pl.from_arrow(rows.table(["name", "role", "label", "t_start", "t_end", "video_s"])))
    frame = frame.with_row_index("at").with_columns(pl.col("role").fill_null(""), length=length)  # a list may lack roles
    video = ["name", "role"]
    facts = frame.group_by(video, maintain_order=True).agg(
        first=pl.col("at").first(), labels=pl.col("label").n_unique(), coverage=(pl.col("length") / pl.col("video_s")).max()
    )
    support = (
        frame.group_by([*video, "label"], maintain_order=True)
        .agg(support=pl.col("length").sum(), start=pl.col("at").first())
        .sort("support", "start", descending=[True, False], maintain_order=True)
        .group_by(video, maintain_order=True)
        .agg(longest=pl.col("label").first())
    )
    known = frame.select("at", *video).join(facts.join(support, on=video), on=video, how="left", maintain_order="left")
    known = known.with_columns(pl.col("coverage").fill_null(0))
    broken = {
        "same_video": (known["at"] != known["first"]).to_numpy(),
        "multi_label": (known["labels"] > 1).to_numpy() & (several_labels == "reject"),
        "no_coverage": ~(known["coverage"] > min_coverage).to_numpy(),
    }
    label, coverage = known["longest"], known["coverage"].to_numpy()
    del frame, facts, support, known
    for at, table in in_tables(rows):
        mine = slice(at, at + table.num_rows)
        table = with_column(table, "label", pa.array(label[mine].to_arrow()).cast(pa.string()))
        nulls = pa.nulls(table.num_rows, pa.float64())
        for name, column in (("source_key", table["key"]), ("t_start", nulls), ("t_end", nulls)):
            table = with_column(table, name, column)
        table = with_column(table, "coverage", pa.array(coverage[mine]))
        kept, rejected = sift(table, {reason: rule[mine] for reason, rule in broken.items()}, detail="name")
        keys = pl.Series(pl.from_arrow(kept["key"])).str.replace(r"-\d{7,}-\d{7,}(?:-\d+)?$", "")
        yield Sifted(with_column(kept, "key", pa.array(keys.to_arrow()).cast(pa.string())), rejected)


def role_counts(clips: int, train_share: float, val_share: float) -> tuple[int, int, int]:
    """Numbers of train, val and test clips of a class: the rule behind UCF101's split file, in the same floating point.

    ``0.7 + 0.1`` is slightly less than 0.8, so that a class of 110 clips has 87, not 88, before its test clips: only this rule
    reproduces the counts of all 101 classes.

    Args:
        clips: number of clips of the class.
        train_share, val_share: in [0, 1]; the rest is test.

    >>> role_counts(110, 0.7, 0.1)
    (77, 10, 23)
    """
    train, before_test = int(train_share * clips), int((train_share + val_share) * clips)
    return train, before_test - train, clips - before_test


def assign_clip_roles(
    rows: Rows,
    *,
    rule: RoleRule,
    train_share: float = 0.7,
    val_share: float = 0.1,
    seed: int,
) -> Iterator[Sifted]:
    """Whole step: assign a role to every clip.

    Args:
        rows: rows of ``ListedClip``.
        rule: ``listed`` keeps the list's roles (ActivityNet, Kinetics) and rejects ``no_role``. ``by_class`` draws the
            clips of each class as in UCF101's split file, so that groups are split between roles. ``by_group`` (ours) assigns
            whole groups of each class, in random order, to train while it has less than its share of the clips, then to val,
            then to test: nothing leaks, and counts are near the shares; each role has a group if there are at least three.
        train_share: share of the clips of a class for train.
        val_share: share of the clips of a class for val; the rest is test.
        seed: seed for the random choice.

    Raises:
        ValueError: an unknown rule, shares out of their range or above 1 in sum, or ``listed`` where no clip has a role.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": [f"clip{n}" for n in range(20)], "label": ["surfing"] * 20, "group": ["g01"] * 20}))
    >>> [(kept, _)] = assign_clip_roles(rows, rule="by_class", train_share=0.7, val_share=0.1, seed=0)
    >>> roles = kept["role"].to_pylist()
    >>> {role: roles.count(role) for role in ROLES}, role_counts(20, 0.7, 0.1)
    ({'train': 14, 'val': 1, 'test': 5}, (14, 1, 5))
    """
    if rule not in ("listed", "by_class", "by_group"):
        raise ValueError(f"rule is {rule!r}: listed, by_class or by_group")
    if not (0 < train_share < 1 and val_share >= 0 and train_share + val_share <= 1):
        raise ValueError(f"shares {train_share} and {val_share}: above 0 and below 1, with a sum of 1 at most")
    if rule == "listed":
        if rows.num_rows and sum(table["role"].null_count for table in rows.batches(["role"])) == rows.num_rows:
            raise ValueError(
                'no clip of the list has a role: split.roles="by_class" or "by_group" draws them, in place of "listed"'
            )
        for _, table in in_tables(rows):
            yield sift(table, {"no_role": np.asarray(table["role"].is_null())})
        return
    role = _drawn_roles(rows, rule, train_share, val_share, seed)
    for first, table in in_tables(rows):
        mine = pa.array(role[first : first + table.num_rows])
        yield sift(with_column(table, "role", pa.array(ROLES).take(mine)), {})


def _drawn_roles(rows: Rows, rule: RoleRule, train_share: float, val_share: float, seed: int) -> np.ndarray:
    """Index in ``ROLES`` of every clip's role, int8 (n,)."""
    labels, label = coded(rows, "label")
    drawn = draws(rows, seed, "assign_roles")[:] if rule == "by_class" else np.empty(0)
    groups, group = coded(rows, "group") if rule == "by_group" else ([], label)
    names = np.asarray(groups, dtype=object)
    role = np.full(rows.num_rows, 2, dtype=np.int8)
    by_label = np.split(stable_order(label.astype(np.int64)), np.cumsum(np.bincount(label, minlength=len(labels)))[:-1])
    for name, mine in zip(labels, by_label, strict=True) if labels else ():
        train, val, _ = role_counts(len(mine), train_share, val_share)
        if rule == "by_class":
            order = mine[np.argsort(drawn[mine], kind="stable")]
            role[order[:train]], role[order[train : train + val]] = 0, 1
        else:
            stage, until = f"assign_roles {name}", (train, train + val)
            last = until[1] < len(mine)
            role[mine] = whole_groups(
                names[group[mine]], seed=seed, stage=stage, until=until, with_middle=val_share > 0, with_last=last
            )
    return role


def task_sizes(classes: int, tasks: int) -> list[int]:
    """Number of classes of every task: equal, the remainder in the first (UCF101: 11 and 9 x 10; 6 and 19 x 5).

    Raises:
        ValueError: there are fewer classes than tasks, or no task.

    >>> task_sizes(101, 10)
    [11, 10, 10, 10, 10, 10, 10, 10, 10, 10]
    >>> task_sizes(3, 5)
    Traceback (most recent call last):
        ...
    ValueError: 3 classes in 5 tasks: expected at least one task, and at most one a class (split.tasks)
    """
    if not 1 <= tasks <= classes:
        raise ValueError(
            f"{classes} classes in {tasks} tasks: expected at least one task, and at most one a class (split.tasks)"
        )
    each = classes // tasks
    return [classes - each * (tasks - 1), *[each] * (tasks - 1)]


def assign_tasks(
    rows: Rows,
    *,
    tasks: int,
    order: Literal["drawn", "sorted"] | Sequence[str] = "drawn",
    seed: int,
    classes: Sequence[str] | None = None,
) -> Iterator[Sifted]:
    """Whole step: set the order in which classes are learned, and their tasks.

    Args:
        rows: rows with ``label``.
        tasks: number of tasks.
        order: ``drawn`` from the seed, ``sorted`` by name, or the names in order.
        seed: seed for the order.
        classes: classes to use; others are rejected as ``class_not_used``. None: all.

    Raises:
        ValueError: ``order`` does not name every class exactly once.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"], "label": ["surfing", "archery", "diving"]}))
    >>> [(kept, _)] = assign_tasks(rows, tasks=2, order="sorted", seed=0)
    >>> kept["class_index"].to_pylist(), kept["task"].to_pylist()
    ([2, 0, 1], [1, 0, 0])
    """
    labels: set[str] = set().union(*(table["label"].unique().to_pylist() for table in rows.batches(["label"])))
    names = sorted(labels if classes is None else labels & set(classes))
    if order == "drawn":
        drawn = uniform(seed, "assign_tasks", names)
        names = [names[at] for at in np.argsort(drawn, kind="stable")]
    elif order != "sorted":
        given = list(order)
        if sorted(given) != names:
            odd = sorted(set(given) ^ set(names)) or [name for name in given if given.count(name) > 1]
            raise ValueError(f"order of classes: {odd[0]!r} is named twice, or not there, or not named")
        names = given
    sizes = task_sizes(len(names), tasks)
    task_of = np.repeat(np.arange(tasks), sizes)
    for _, table in in_tables(rows):
        place = pc.index_in(table["label"], pa.array(names, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
        index = place.fill_null(-1).to_numpy().astype(np.int64)
        table = table.append_column("class_index", pa.array(index))
        table = table.append_column("task", pa.array(task_of[np.maximum(index, 0)].astype(np.int64)))
        yield sift(table, {"class_not_used": index < 0}, detail="label")


@dataclass(frozen=True)
class Cut:
    """Columns that ``cut_segments`` changes or adds; ``source_key`` is the video's key, ``segment`` counts from 0.

    Attributes:
        role: ``train``, ``val`` or ``test``.
        t_start: start in the video, seconds.
        t_end: end, seconds.

    >>> Cut("lake-part1", source_key="lake", role="test", t_start=5.0, t_end=10.0, segment=1).segment
    1
    """

    key: str
    source_key: str
    role: str
    t_start: float | None
    t_end: float | None
    segment: int


def cut_segments(rows: Rows, *, roles: Sequence[str]) -> Iterator[pa.Table]:
    """Whole step (``expands``): cut every video into segments of equal length, one per role, in order of time.

    For collections with too few recordings to split. Parts of one recording in different roles test only the pipeline, not
    recognition, and the leak report says so. Segment i begins with frame ``i * n_frames // len(roles)``. All segments keep the
    video's group.

    Args:
        rows: rows with columns ``key``, ``n_frames`` and ``fps`` of probed videos, and ``t_start``, ``t_end``.
        roles: roles of the segments in order of time: ``train``, ``val`` or ``test``.

    Raises:
        ValueError: a role is unknown, or there is none.

    >>> from benchwright.curation.stage_rows import Rows
    >>> video = {"key": "lake", "n_frames": 300, "fps": 30.0, "t_start": None, "t_end": None}
    >>> for cut in next(cut_segments(Rows.of(pa.Table.from_pylist([video])), roles=["train", "test"])).to_pylist():
    ...     print(cut["key"], cut["role"], cut["t_start"], cut["t_end"])
    lake-part0 train 0.0 5.0
    lake-part1 test 5.0 10.0
    """
    if not roles or not set(roles) <= set(ROLES):
        raise ValueError(f"roles are {', '.join(roles) or 'none'}: one a segment, each of {', '.join(ROLES)}")
    for _, table in in_tables(rows):
        yield _cut(table, roles)


def _cut(table: pa.Table, roles: Sequence[str]) -> pa.Table:
    parts = len(roles)
    number = np.tile(np.arange(parts), table.num_rows)
    table = table.take(pa.array(np.repeat(np.arange(table.num_rows), parts)))
    frames, fps = table["n_frames"].to_numpy(), table["fps"].to_numpy()
    columns = {
        "source_key": table["key"],
        "role": pa.array(list(roles)).take(pa.array(number)),
        "t_start": pa.array(number * frames // parts / fps),
        "t_end": pa.array((number + 1) * frames // parts / fps),
        "segment": pa.array(number.astype(np.int64)),
    }
    keys = pl.Series(pl.from_arrow(table["key"])) + pl.Series([f"-part{part}" for part in number.tolist()], dtype=pl.String)
    columns["key"] = pa.array(keys.to_arrow()).cast(pa.string())
    kept = table.drop_columns([name for name in columns if name in table.column_names])
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return kept


OnLostRole = Literal["keep", "error"]
"""What to do if a class lost all clips of a role: continue without them after a warning that names the class, or stop."""

_AT_MOST = 5
_LOGGER = logging.getLogger("benchwright")


def check_roles(rows: Rows, *, split: Rows, roles: Sequence[str], on_lost_role: OnLostRole) -> Iterator[pa.Table]:
    """Whole step: report classes that lack a role, because they lost its clips or never had any, and tasks without clips of a
    role. The rows are unchanged.

    Args:
        rows: usable clips, with ``label``, ``role`` and ``task``.
        split: all clips of the split, with the same columns.
        roles: roles needed for training and evaluation: the first is trained on, the last is reported.
        on_lost_role: what to do if a class lost one of these roles, or never had clips for the first or the last. If a class
            lost another role, there is only a warning.

    Raises:
        ValueError: a class lacks a needed role, and ``on_lost_role`` is ``error``.

    >>> from benchwright.curation.stage_rows import Rows
    >>> split = pa.table({"label": ["surfing", "surfing"], "role": ["train", "test"], "task": [0, 0]})
    >>> next(check_roles(Rows.of(split[:1]), split=Rows.of(split), roles=["train", "test"], on_lost_role="error"))
    Traceback (most recent call last):
        ...
    ValueError: class 'surfing' lost all its clips with role 'test' (1): give the videos ...
    """
    if never := _without(split, dict.fromkeys([roles[0], roles[-1]])):
        text = _few(never, "; ")
        if on_lost_role == "error":
            raise ValueError(
                f"{text}: training needs every class in both roles. Give more clips, change how roles are given (split.roles, "
                "split.train_share, split.val_share), leave the class out (split.classes names those that are used), or write "
                'shards that nothing can be trained on with split.on_lost_role="keep"'
            )
        _LOGGER.warning("%s; training will stop there", text)
    lost = lost_roles(split, rows)
    needed = [one for one in lost if one[1] in roles]
    if needed and on_lost_role == "error":
        raise ValueError(
            f"{_losses(needed)}: give the videos that are missing or broken (`benchwright rejects OUT` lists them), or go on "
            'without them with split.on_lost_role="keep"'
        )
    if lost:
        _LOGGER.warning("%s; the run continues without them", _losses(lost))
    for task, lacking in _tasks_without(rows, roles):
        _LOGGER.warning(
            "task %d has no clip with role %s, which evaluation.roles names: training will stop there. Change "
            "evaluation.roles, or how roles are given (split.roles, split.train_share, split.val_share)",
            task,
            " and none with role ".join(map(repr, lacking)),
        )
    for _, table in in_tables(rows):
        yield table


def _counted(rows: Rows) -> pl.DataFrame:
    """Number of clips of each class, role and task."""
    of = ["label", "role", "task"]
    there = [pl.DataFrame(pl.from_arrow(table)).group_by(of).agg(clips=pl.len()) for table in rows.batches(of)]
    return pl.concat(there).group_by(of).agg(pl.col("clips").sum())


def _without(split: Rows, roles: Iterable[str]) -> list[str]:
    """Messages on classes of the split without clips of one of these roles; ``_tasks_without`` reports tasks without any."""
    frame = _counted(split)
    lines: list[str] = []
    for role in roles:
        has = (pl.col("role") == role).any()
        tasks = frame.group_by("task").agg(known=has)
        classes = (
            frame.group_by("label", "task")
            .agg(known=has, clips=pl.col("clips").sum())
            .join(tasks, on="task", suffix="_of_task")
        )
        lacking = classes.filter(~pl.col("known") & pl.col("known_of_task")).sort("label")
        lines += [
            f"class {label!r} has no clip with role {role!r} among its {n}"
            for label, n in lacking.select("label", "clips").rows()
        ]
    return lines


def tell_lost_roles(before: Rows, after: Rows) -> None:
    """Warn if decoding lost all clips of a role in a class.

    >>> import sys
    >>> shown = logging.StreamHandler(sys.stdout)
    >>> logging.getLogger("benchwright").addHandler(shown)
    >>> from benchwright.curation.stage_rows import Rows
    >>> split = pa.table({"label": ["surfing", "surfing"], "role": ["train", "test"], "task": [0, 0]})
    >>> tell_lost_roles(Rows.of(split), Rows.of(split[:1]))
    their frames cannot be decoded: class 'surfing' lost all its clips with role 'test' (1); the run continues without them
    >>> logging.getLogger("benchwright").removeHandler(shown)
    """
    if lost := lost_roles(before, after):
        _LOGGER.warning("their frames cannot be decoded: %s; the run continues without them", _losses(lost))


def lost_roles(split: Rows, left: Rows) -> list[tuple[str, str, int]]:
    """Class, role, and its number of clips in ``split``, wherever ``left`` has none; sorted by class and role.

    >>> from benchwright.curation.stage_rows import Rows
    >>> split = pa.table({"label": ["surfing", "surfing", "diving"], "role": ["test", "test", "test"], "task": [0, 0, 0]})
    >>> lost_roles(Rows.of(split), Rows.of(split[2:]))
    [('surfing', 'test', 2)]
    """
    pair = ["label", "role"]
    had = _counted(split).group_by(pair).agg(pl.col("clips").sum())
    return had.join(_counted(left), on=pair, how="anti").sort(pair).rows()


def _losses(lost: Sequence[tuple[str, str, int]]) -> str:
    lines = [f"class {label!r} lost all its clips with role {role!r} ({count})" for label, role, count in lost]
    return _few(lines, ", ")


def _few(texts: Sequence[str], between: str) -> str:
    more = [f"and {len(texts) - _AT_MOST} more"] if len(texts) > _AT_MOST else []
    return between.join([*texts[:_AT_MOST], *more])


def _tasks_without(clips: Rows, roles: Sequence[str]) -> list[tuple[int, list[str]]]:
    there = _counted(clips).group_by("task").agg(pl.col("role").unique()).sort("task").rows()
    lacking = [(task, [role for role in dict.fromkeys(roles) if role not in found]) for task, found in there]
    return [one for one in lacking if one[1]]
