"""Plans: sequences of plain functions bound to their settings.

A plan reads top to bottom, and nothing runs until it is passed to ``curation.run.run``::

    def plan(config: Config) -> Flow:
        return (
            source("listed", step(list_images, root=where(config.root)))
            .each("decoded", step(decode, max_pixels=config.max_pixels), max_rejects=0.01)
            .whole("placed", step(assign_sessions, sessions=config.sessions, seed=config.seed))
        )

The kinds of stage, by the input of their step:

==============  ==============================================================================================
``source``      nothing, or one of the pieces that ``pieces`` names: yields rows, or Arrow tables
``each``        one row: returns one row, or raises ``Reject``; in parallel
``each_batch``  the rows of one part: returns one row or ``Rejected`` for each, in order; in parallel; may be ``async``
``table``       the rows of one part as an Arrow table: returns a table; vectorised, in parallel
``whole``       all rows, as ``stage_rows.Rows``: yields tables; for ordering, splits, selection
``shards``      one row: returns the members of one sample of a WebDataset tar; one part per shard
==============  ==============================================================================================

An ``each`` step names only the columns that it needs: the columns of its input type are replaced by those of its output
type, and all others pass through.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from .budget import Budget
from .code_loading import module_of
from .keys import How, Named, Where, WhereOfRows, WorkFolder
from .reachable_code import Reached, reached
from .rows import BLOB, SNAKE_CASE, Rejected, is_array, schema_of
from .shard_assignment import Placed, assign_shards

P = ParamSpec("P")
InRow = TypeVar("InRow")
OutRow = TypeVar("OutRow")

KINDS = ("source", "each", "each_batch", "table", "whole", "shards")


class PlanError(ValueError):
    """A plan cannot run. The message names the stage, the rule and the value.

    >>> Flow(()).stage("decoded")
    Traceback (most recent call last):
        ...
    benchwright.curation.flow.PlanError: no stage 'decoded' in this plan: it has ...
    """


@dataclasses.dataclass(frozen=True)
class Step:
    """A plain function bound to its settings. Make it with ``step``.

    >>> from words import count_words
    >>> counted = step(count_words, min_words=3)
    >>> counted.name, counted.all_settings()
    ('words.count_words', {'min_words': 3})
    """

    function: Callable[..., Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Dotted name of the function."""
        return f"{module_of(self.function)}.{self.function.__qualname__}"

    def all_settings(self) -> dict[str, Any]:
        """The settings with the function's defaults filled in, by name."""
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is not inspect.Parameter.empty
        }
        return dict(sorted({**defaults, **self.settings}.items()))

    def code(self) -> Reached:
        """Code that the function and the classes of its settings reach."""
        own = reached(self.function)
        tops = {"benchwright", module_of(self.function).partition(".")[0]}
        types = {each for value in self.settings.values() for each in _types_in(value)}
        others = [each for each in types if each.__qualname__ not in own.definitions.get(module_of(each), ())]
        ours = [each for each in others if module_of(each).partition(".")[0] in tops]
        return own.with_others(map(reached, sorted(ours, key=lambda each: (module_of(each), each.__qualname__))))


@typing.overload
def step(function: Callable[Concatenate[InRow, P], OutRow], *args: P.args, **settings: P.kwargs) -> Step: ...
@typing.overload
def step(function: Callable[P, OutRow], *args: P.args, **settings: P.kwargs) -> Step: ...
def step(function: Callable[..., Any], *args: Any, **settings: Any) -> Step:
    """Bind a function to its settings, which are its keyword-only arguments.

    Both this call and a type checker report a setting that the function does not have.

    Args:
        function: a top-level function of a module.
        settings: its keyword-only arguments: numbers, text, lists, tables, frozen dataclasses, functions and classes; wrapped
            in ``where``, ``how``, ``named`` or ``rows_of`` if they are not plain values.

    Raises:
        PlanError: worker processes could not find the function, or the settings do not match its arguments.

    >>> import benchwright as bw
    >>> from words import count_words
    >>> bw.step(count_words, min_words=3).settings
    {'min_words': 3}
    >>> bw.step(count_words, minimum=3)
    Traceback (most recent call last):
        ...
    benchwright.curation.flow.PlanError: step count_words: no setting 'minimum'; it has min_words
    """
    name = getattr(function, "__qualname__", repr(function))
    if "<" in name or not inspect.isroutine(function):
        raise PlanError(f"step {name}: a step is a function at the top level of a module, so that workers can find it")
    if args:
        raise PlanError(f"step {name}: settings are given by name")
    parameters = inspect.signature(function).parameters
    accepted = {p.name for p in parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    required = {n for n in accepted if parameters[n].default is inspect.Parameter.empty}
    if unknown := settings.keys() - accepted:
        raise PlanError(f"step {name}: no setting {sorted(unknown)[0]!r}; it has {', '.join(sorted(accepted)) or 'none'}")
    if missing := required - settings.keys():
        raise PlanError(f"step {name}: setting {sorted(missing)[0]!r} is missing and has no default")
    for setting, value in settings.items():
        if marked := _marked_inside(value):
            raise PlanError(
                f"step {name}: setting {setting!r} holds {marked} inside it: mark a whole setting, or split it into several"
            )
    return Step(function, settings)


def _types_in(value: Any) -> set[type]:
    """Dataclasses of a setting and of all values nested in it."""
    if isinstance(value, How):
        return _types_in(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {type(value)}.union(*(_types_in(getattr(value, field.name)) for field in dataclasses.fields(value)))
    if isinstance(value, Mapping):
        return set[type]().union(*map(_types_in, typing.cast("Mapping[Any, Any]", value).values()))
    if isinstance(value, list | tuple):
        return set[type]().union(*map(_types_in, typing.cast("collections.abc.Sequence[Any]", value)))
    return set()


def _marked_inside(value: Any) -> str:
    """First mark, such as ``where``, that is nested in a setting, where the engine misses it; "" if there is none.

    ``named`` is allowed in mappings, lists and tuples, but not in dataclasses and ``how``.
    """
    inner: list[Any] = []
    if isinstance(value, How):
        inner = [value.value]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        inner = [item for item in typing.cast("Mapping[Any, Any]", value).values() if not isinstance(item, Named)]
    elif isinstance(value, list | tuple):
        inner = [item for item in typing.cast("collections.abc.Sequence[Any]", value) if not isinstance(item, Named)]
    marks = {
        Where: "where(...)",
        WhereOfRows: "where_of_rows(...)",
        How: "how(...)",
        Named: "named(...)",
        StageRef: "rows_of(...)",
    }
    found = next((marks[type(item)] for item in inner if type(item) in marks), "")
    return found or next((deeper for deeper in map(_marked_inside, inner) if deeper), "")


@dataclasses.dataclass(frozen=True)
class StageRef:
    """Placeholder among the settings for the rows of another stage; see ``rows_of``."""

    name: str


def rows_of(stage: str) -> Any:
    """A setting that becomes the ``stage_rows.Rows`` of another stage when the step is called: a second input.

    Args:
        stage: name of the other stage in the plan.

    >>> import benchwright as bw
    >>> from words import Text, read_texts
    >>> def unseen(row: Text, *, known: Any) -> Text: ...
    >>> old, new = (bw.source(name, bw.step(read_texts, folder=bw.where(name))) for name in ("old", "new"))
    >>> flow = bw.join(old, new).each("unseen", bw.step(unseen, known=bw.rows_of("old")), max_rejects=None)
    >>> flow.stage("unseen").inputs()
    ('new', 'old')
    """
    return StageRef(stage)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a plan; see ``Flow`` for the meaning of the fields.

    >>> from words import read_texts
    >>> listed = source("listed", step(read_texts, folder="texts"), max_rejects=0.5).stage("listed")
    >>> listed.kind, listed.budget.limit, listed.inputs()
    ('source', 0.5, ())
    """

    name: str
    kind: str
    step: Step
    after: str | None
    pieces: Step | None = None
    gives: type | pa.Schema | None = None
    rows_per_part: int = 256
    max_rejects: float | Budget | None = 0
    expands: bool = False
    waits: str = ""
    may_be_empty: bool = False
    needs: str | None = None

    @property
    def budget(self) -> Budget:
        """How many rows the stage may reject."""
        return self.max_rejects if isinstance(self.max_rejects, Budget) else Budget(self.max_rejects)

    @property
    def steps(self) -> list[Step]:
        """The stage's step, and the step that lists its pieces if it has one."""
        return [self.step, *([self.pieces] if self.pieces else [])]

    @property
    def has_room(self) -> bool:
        """Whether the step asks for a work folder for each part, see ``keys.work_folder``."""
        return any(isinstance(value, WorkFolder) for value in self.step.settings.values())

    def inputs(self) -> tuple[str, ...]:
        """Names of the stages that this stage reads, the upstream stage first."""
        extra = [value.name for value in self.step.settings.values() if isinstance(value, StageRef)]
        return tuple(dict.fromkeys([*([self.after] if self.after else []), *extra]))


@dataclasses.dataclass(frozen=True)
class Flow:
    """A plan: stages in order. Each method returns a longer plan; the last stage is its result.

    The methods share these arguments:

    * ``name``: snake_case, unique in the plan; names the stage's folder.
    * ``step``: the function to run; see ``step``.
    * ``max_rejects``: number of rejects above which the run fails: a number of rows, a share of the input rows if
      below 1, or None for a stage whose purpose is to reject rows; or a ``Budget``, which also names the
      expected reasons and the setting that decides. 0 by default. Not part of the key.
    * ``rows_per_part``: rows per task. Affects neither rows nor digests.
    * ``needs``: a resource that cluster workers offer (``"GPU"``, by ``dask worker --resources GPU=1``): parts run only on
      workers that offer it, and each part takes one unit; ``"GPU=2,BIG_MEMORY"``: two units, and one of another resource. "":
      any worker. None: ``"GPU"`` for a stage whose setting ``device`` is a GPU, any worker for all others. Not part of the
      key, and without effect when there is no cluster.
    * ``gives``: row dataclass of the columns that a ``table`` or ``whole`` step adds or changes, or their schema if it depends
      on settings; None if the columns do not change. For ``each`` and ``each_batch``: the row dataclass if it depends on
      settings; None to use the function's return annotation.

    >>> import benchwright as bw
    >>> from words import Placed, count_words, place, read_texts, sample
    >>> flow = (
    ...     bw.source("listed", bw.step(read_texts, folder=bw.where("texts")))
    ...     .each("counted", bw.step(count_words, min_words=3), max_rejects=0.5)
    ...     .whole("placed", bw.step(place, files_per_shard=4), gives=Placed)
    ...     .shards("shards", bw.step(sample))
    ... )
    >>> flow.last, [stage.name for stage in flow.stages]
    ('shards', ['listed', 'counted', 'placed', 'shards'])
    >>> flow.schemas()["shards"].names
    ['key', 'words', 'commonest', 'shard', 'offset', 'size', 'sha256']
    """

    stages: tuple[Stage, ...]

    def _then(self, stage: Stage) -> Flow:
        return Flow((*self.stages, stage))

    def each(
        self,
        name: str,
        step: Step,
        *,
        gives: type | None = None,
        max_rejects: float | Budget | None = 0,
        rows_per_part: int = 256,
        needs: str | None = None,
    ) -> Flow:
        """Add a stage that runs row by row, in parallel: ``fn(row, **settings) -> row``, or raises ``Reject``."""
        return self._then(Stage(name, "each", step, self.last, None, gives, rows_per_part, max_rejects, needs=needs))

    def each_batch(
        self,
        name: str,
        step: Step,
        *,
        gives: type | None = None,
        max_rejects: float | Budget | None = 0,
        rows_per_part: int = 256,
        needs: str | None = None,
    ) -> Flow:
        """Add a stage that runs on all rows of a part, in parallel: ``fn(rows, **settings) -> rows or Rejected``, in order."""
        return self._then(Stage(name, "each_batch", step, self.last, None, gives, rows_per_part, max_rejects, needs=needs))

    def table(
        self,
        name: str,
        step: Step,
        *,
        gives: type | pa.Schema | None = None,
        max_rejects: float | Budget | None = 0,
        rows_per_part: int = 65536,
        needs: str | None = None,
    ) -> Flow:
        """Add a stage that runs on a part as an Arrow table, in parallel: ``fn(table, **settings) -> table or Sifted``."""
        return self._then(Stage(name, "table", step, self.last, None, gives, rows_per_part, max_rejects, needs=needs))

    def whole(
        self,
        name: str,
        step: Step,
        *,
        gives: type | pa.Schema | None = None,
        max_rejects: float | Budget | None = 0,
        expands: bool = False,
        waits: str = "",
        needs: str | None = None,
    ) -> Flow:
        """Add a stage that runs on all rows at once: ``fn(rows, **settings) -> table, Sifted, or an iterable of them``.

        With ``expands``, one row may become several: the step returns a column ``source_key`` with the key of the input row.
        ``waits`` says what a person has to do if a file among the settings does not exist yet: the run then ends before
        this stage with that message instead of failing.
        """
        return self._then(Stage(name, "whole", step, self.last, None, gives, 0, max_rejects, expands, waits, needs=needs))

    def shards(
        self,
        name: str,
        step: Step,
        *,
        by: Sequence[str] | None = None,
        max_samples: int = 1000,
        max_rejects: float | Budget | None = 0,
        needs: str | None = None,
    ) -> Flow:
        """Add a stage that writes tar shards: ``fn(row, **settings) -> {extension: payload}``.

        The rows must be grouped by their column ``shard``. The stage adds the columns ``offset`` and ``size``, the bytes of
        the sample in its tar, and ``sha256`` of its members.

        Args:
            name: name of the stage.
            step: see above.
            by: columns whose values distinguish shards; a stage ``placed`` before this one assigns the shards, see
                ``shard_assignment.assign_shards``. None: rows have the column ``shard`` already.
            max_samples: maximum number of samples in a shard, for ``by``.
            max_rejects, needs: see ``Flow``.
        """
        if by is not None:
            place = Step(assign_shards, {"by": [*by], "max_samples": max_samples})
            return self.whole("placed", place, gives=Placed).shards(name, step, max_rejects=max_rejects, needs=needs)
        return self._then(Stage(name, "shards", step, self.last, None, None, 0, max_rejects, needs=needs))

    def after(self, name: str) -> Flow:
        """Branch the plan: the same plan, in which the next stage follows the stage ``name``."""
        return Flow((*(s for s in self.stages if s.name != name), self.stage(name)))

    @property
    def last(self) -> str:
        """Name of the stage whose rows are the plan's result."""
        return self.stages[-1].name

    def stage(self, name: str) -> Stage:
        """The stage of that name. Raises ``PlanError`` if there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise PlanError(f"no stage {name!r} in this plan: it has {', '.join(s.name for s in self.stages)}")

    def ordered(self) -> tuple[Stage, ...]:
        """The stages sorted so that each follows its inputs, otherwise in the order in which they were written.

        Raises ``PlanError`` if stages wait for one another, or for one that is not in the plan.
        """
        done: list[Stage] = []
        names: set[str] = set()
        waiting = list(self.stages)
        while waiting:
            ready = next((stage for stage in waiting if names.issuperset(stage.inputs())), None)
            if ready is None:
                raise PlanError(f"stages {', '.join(s.name for s in waiting)} wait for stages that do not come before them")
            waiting.remove(ready)
            names.add(ready.name)
            done.append(ready)
        return tuple(done)

    def schemas(self) -> dict[str, pa.Schema]:
        """Columns of every stage, by stage name; checks that each step finds the columns that it takes.

        Raises:
            PlanError: a stage name is repeated or malformed, or a column is missing or of another type.
        """
        schemas: dict[str, pa.Schema] = {}
        for stage in self.ordered():
            if stage.name in schemas:
                raise PlanError(f"stage {stage.name!r} appears twice in the plan")
            if not SNAKE_CASE.match(stage.name):
                raise PlanError(f"stage name {stage.name!r} is not snake_case")
            for name in stage.inputs():
                self.stage(name)
            upstream = schemas[stage.after] if stage.after else pa.schema([])
            schemas[stage.name] = _columns(stage, upstream)
        return schemas


def source(
    name: str,
    step: Step,
    *,
    pieces: Step | None = None,
    gives: type | pa.Schema | None = None,
    max_rejects: float | Budget | None = 0,
    rows_per_part: int = 65536,
    may_be_empty: bool = False,
    needs: str | None = None,
) -> Flow:
    """Begin a plan.

    Args:
        name: snake_case name of the stage.
        step: ``fn(**settings)``, or with ``pieces`` ``fn(piece, **settings)``; yields rows and ``Rejected``, or tables.
        pieces: ``fn(**settings) -> iterable of str``: cheap, in a fixed order. Pieces are read in parallel and committed one
            by one, one part each.
        gives: row dataclass of the columns, or their schema; optional if the function's return annotation names it.
        max_rejects: see ``Flow``.
        rows_per_part: without ``pieces``, rows buffered before writing; choose a small number if rows carry payloads.
        may_be_empty: whether zero rows are valid, as for a list of missing files; otherwise the run fails.
        needs: see ``Flow``.

    >>> import benchwright as bw
    >>> from words import read_texts
    >>> flow = bw.source("listed", bw.step(read_texts, folder=bw.where("texts")))
    >>> flow.schemas()["listed"].names
    ['key', 'text']
    """
    made = Stage(name, "source", step, None, pieces, gives, rows_per_part, max_rejects, may_be_empty=may_be_empty, needs=needs)
    return Flow((made,))


def join(*flows: Flow) -> Flow:
    """Merge plans, for a later stage that reads several of them (``rows_of``). The result is that of the last plan.

    Args:
        flows: one or more plans; if stages have the same name, the last one is used.

    >>> import benchwright as bw
    >>> from words import read_texts
    >>> old, new = (bw.source(name, bw.step(read_texts, folder=bw.where(name))) for name in ("old", "new"))
    >>> bw.join(old, new).last
    'new'
    """
    return Flow(tuple({stage.name: stage for flow in flows for stage in flow.stages}.values())).after(flows[-1].last)


# ------------------------------------------------------------------------------------------------------------- columns


def row_types(stage: Stage) -> tuple[type | None, type | pa.Schema | None]:
    """Row dataclasses that the stage's function takes and returns, from the plan or its annotations; None if it uses tables."""
    if stage.kind in ("table", "whole") or (stage.kind == "source" and stage.gives is not None):
        return None, stage.gives
    hints = typing.get_type_hints(stage.step.function)
    given = stage.gives or _row_in(hints.get("return"))
    if stage.kind == "source":
        return None, given
    first = next(iter(inspect.signature(stage.step.function).parameters), "")
    taken = _row_in(hints.get(first))
    if taken is None or (given is None and stage.kind != "shards"):
        raise PlanError(f"stage {stage.name!r}: {stage.step.name} must name its row dataclasses in its annotations")
    return taken, given


def _row_in(hint: Any) -> type | None:
    origin = typing.get_origin(hint)
    if origin is collections.abc.Coroutine:
        return _row_in(typing.get_args(hint)[2])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint
    if isinstance(hint, TypeVar) or hint is Rejected or origin in (dict, collections.abc.Mapping):
        return None
    return next((row for row in map(_row_in, typing.get_args(hint)) if row is not None), None)


def _columns(stage: Stage, upstream: pa.Schema) -> pa.Schema:
    taken, given = row_types(stage)
    if stage.kind == "shards":
        extra = pa.schema([("offset", pa.int64()), ("size", pa.int64()), ("sha256", pa.string())])
        _check_taken(stage, schema_of(typing.cast(type, taken)), upstream)
        _check_taken(stage, pa.schema([("shard", pa.string())]), upstream, "; or give .shards by=[...] and max_samples=N")
        return _merged([f for f in upstream if not (f.type.equals(BLOB) or is_array(f))], extra)
    if given is None:
        if stage.kind in ("table", "whole"):
            return upstream
        raise PlanError(f"stage {stage.name!r}: say which columns {stage.step.name} returns: gives=RowDataclass")
    if taken is None:
        return _merged(upstream, schema_of(given))
    wanted = schema_of(taken)
    _check_taken(stage, wanted, upstream)
    return _merged([field for field in upstream if field.name not in wanted.names], schema_of(given))


def _check_taken(stage: Stage, wanted: pa.Schema, upstream: pa.Schema, hint: str = "") -> None:
    for field in wanted:
        if field.name not in upstream.names:
            raise PlanError(
                f"stage {stage.name!r} takes a column {field.name!r}, which {stage.after!r} does not give: "
                f"it gives {', '.join(upstream.names)}{hint}"
            )
        found = upstream.field(field.name)
        if not found.type.equals(field.type):
            raise PlanError(
                f"stage {stage.name!r} takes {field.name!r} as {field.type}, and {stage.after!r} gives it as {found.type}"
            )


def _merged(upstream: collections.abc.Iterable[pa.Field], given: pa.Schema) -> pa.Schema:
    carried = [field for field in upstream if field.name not in given.names]
    head = [field for field in given if field.name == "key"]
    return pa.schema([*head, *(f for f in carried), *(f for f in given if f.name != "key")])
