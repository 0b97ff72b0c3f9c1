"""Label hierarchies of two levels: superclasses with subclasses, and lone subclasses. Read, check, restrict and propose them.

Forms of a file, by its extension:

* ``.json``, the official form: ``{"super_classes": {name: [subclass, ...]}, "other_sub_classes": [subclass, ...]}``; or a list
  of lone classes for the class-incremental setup: ``{"classes": [class, ...]}``;
* ``.toml``: a table ``[superclasses]`` of lists, and a list ``lone``;
* ``.csv``: columns ``subclass`` and ``superclass``, the latter empty for lone ones.
"""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import IO, Any, cast

import fsspec

from ...curation.bounded_reading import parse_json, read_stream
from ...curation.csv_files import whole_csv_rows

MAX_BYTES = 1 << 26
"""Larger files are refused; the official ones have at most 30 kB."""

_SPLIT_FOLDERS = {"train", "training", "val", "valid", "validation", "test", "testing"}


@dataclass(frozen=True)
class Hierarchy:
    """Superclasses with their subclasses, and lone subclasses. The order is that of the file: rows are sorted by it.

    Raises:
        ValueError: a repeated name, two parents, more than two levels, a cycle, a superclass without subclass, an empty name.

    >>> tree = Hierarchy((("animal", ("cat", "dog")),), ("house",))
    >>> tree.labels, tree.parents
    (('animal', 'cat', 'dog', 'house'), {'cat': 'animal', 'dog': 'animal', 'house': None})
    """

    superclasses: tuple[tuple[str, tuple[str, ...]], ...]
    lone: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parents: dict[str, str] = {}
        tops = [name for name, _ in self.superclasses]
        for name, inner in self.superclasses:
            if not inner:
                raise ValueError(f"superclass {name!r} has no subclass: at least one")
            for sub in inner:
                if sub in parents:
                    twice = f"twice under {name!r}" if parents[sub] == name else f"under {parents[sub]!r} and under {name!r}"
                    raise ValueError(f"subclass {sub!r} appears {twice}: one parent, once")
                parents[sub] = name
        for name in (*tops, *self.subclasses):
            if not name or name != name.strip() or not name.isprintable():
                raise ValueError(f"class name {name!r}: printable, not empty, no space at its ends")
        _check_levels(parents, tops)
        for what, names in (("superclass", tops), ("lone subclass", self.lone)):
            if (again := _repeated(names)) is not None:
                raise ValueError(f"{what} {again!r} appears twice")
        for name in self.lone:
            if name in parents or name in tops:
                raise ValueError(f"lone subclass {name!r} is a {'subclass' if name in parents else 'superclass'} as well")
        if not self.subclasses:
            raise ValueError("no class at all")

    @property
    def subclasses(self) -> tuple[str, ...]:
        """All subclasses: those of the superclasses in order, then the lone ones."""
        return (*(sub for _, inner in self.superclasses for sub in inner), *self.lone)

    @property
    def parents(self) -> dict[str, str | None]:
        """Subclass -> its superclass or None, in the order of ``subclasses``."""
        above: dict[str, str | None] = {sub: name for name, inner in self.superclasses for sub in inner}
        return above | dict.fromkeys(self.lone)

    @property
    def labels(self) -> tuple[str, ...]:
        """All names, superclasses first."""
        return (*(name for name, _ in self.superclasses), *self.subclasses)

    def restricted(self, classes: Collection[str], *, min_subclasses: int = 1) -> Hierarchy:
        """Keep only these subclasses. Superclasses with fewer than ``min_subclasses`` are removed, their subclasses made lone.

        Raises:
            ValueError: no class is left.
        """
        left = [(name, tuple(sub for sub in inner if sub in classes)) for name, inner in self.superclasses]
        kept = tuple((name, inner) for name, inner in left if len(inner) >= max(min_subclasses, 1))
        freed = (sub for _, inner in left if len(inner) < min_subclasses for sub in inner)
        return Hierarchy(kept, (*freed, *(sub for sub in self.lone if sub in classes)))

    def flat(self) -> Hierarchy:
        """The same subclasses, all lone: the class-incremental set-up."""
        return Hierarchy((), self.subclasses)


def read_hierarchy(path: str) -> Hierarchy:
    """Read and check a hierarchy file.

    Raises:
        ValueError: the file has none of the three forms, or breaks a rule of ``Hierarchy``; the message names the file.
    """
    readers = {".json": _official, ".toml": _toml, ".csv": _csv}
    ending = posixpath.splitext(path)[1].lower()
    if ending not in readers:
        raise ValueError(f"hierarchy {path!r}: its ending is {ending!r}, and {', '.join(readers)} are read")
    try:
        return readers[ending](read_utf8(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"hierarchy {path!r}: {error}") from None


def read_utf8(path: str) -> str:
    """Text of a file without byte order mark. Raises ``ValueError`` beyond ``MAX_BYTES``, or if it is not UTF-8."""
    with fsspec.open(path, "rb") as stream:
        data = read_stream(cast("IO[bytes]", stream), "it", max_bytes=MAX_BYTES)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start}") from None


def _official(text: str) -> Hierarchy:
    value = parse_json(text.encode())
    if isinstance(value, dict) and value.keys() == {"classes"}:
        return Hierarchy((), _names("'classes'", cast("dict[str, Any]", value)["classes"]))
    return _of_tables(value, "super_classes", "other_sub_classes")


def _toml(text: str) -> Hierarchy:
    return _of_tables(tomllib.loads(text), "superclasses", "lone")


def _of_tables(value: Any, tops: str, lone: str) -> Hierarchy:
    if not isinstance(value, dict) or not value.keys() <= {tops, lone}:
        raise ValueError(f"no table of {tops!r} and {lone!r}")
    tables = cast("dict[str, Any]", value)
    named = tables.get(tops, {})
    if not isinstance(named, dict):
        raise ValueError(f"{tops!r} is not a table of superclass -> list of subclasses")
    inner = {str(name): _names(f"superclass {name!r}", listed) for name, listed in cast("dict[Any, Any]", named).items()}
    return Hierarchy(tuple(inner.items()), _names(repr(lone), tables.get(lone, [])))


def _names(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in cast("list[Any]", value)):
        raise ValueError(f"{what} is not a list of names")
    return tuple(cast("list[str]", value))


def _csv(text: str) -> Hierarchy:
    inner: dict[str, list[str]] = {}
    lone: list[str] = []
    for sub, top in _columns(text, "subclass", "superclass"):
        (inner.setdefault(top, []) if top else lone).append(sub)
    return Hierarchy(tuple((name, tuple(subs)) for name, subs in inner.items()), tuple(lone))


def _columns(text: str, one: str, other: str) -> Iterator[tuple[str, str]]:
    for _, row in whole_csv_rows(text.split("\n"), "the CSV", dict.fromkeys((one, other), "hierarchy.path")):
        yield row[one].strip(), row[other].strip()


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def _check_levels(parents: Mapping[str, str], tops: Iterable[str]) -> None:
    for name in tops:
        if name in parents:
            way = [name]
            while way[-1] in parents and len(way) < 50:
                way.append(parents[way[-1]])
                if way[-1] == name:
                    raise ValueError(f"a cycle: {' < '.join(way)}")
            raise ValueError(f"{name!r} is a superclass, and a subclass of {parents[name]!r}: there are two levels")


def hierarchy_of_places(places: Iterable[tuple[str, str, str]]) -> Hierarchy:
    """The hierarchy given by folders of pictures.

    Args:
        places: split, class and path of each folder. Pictures next to the folders of subclasses have no class.

    Raises:
        ValueError: folders are deeper, a class is not named by its folder, or ``Hierarchy`` rejects the result.

    >>> hierarchy_of_places([("", "cat", "animal/cat"), ("", "animal", "animal"), ("", "house", "house")])
    Hierarchy(superclasses=(('animal', ('cat',)),), lone=('house',))
    """
    inner: dict[str, list[str]] = {}
    lone: list[str] = []
    ordered = sorted(places)
    like = sorted({folder.split("/")[0] for split, _, folder in ordered if not split} & _SPLIT_FOLDERS)
    hint = f"; if {' and '.join(map(repr, like))} separate training and test data, name them in source.splits" if like else ""
    for split, name, folder in ordered:
        folders = folder.split("/")[1 if split else 0 :]
        folders = folders[:-1] if folders[-1:] == ["images"] else folders
        if folders[-1:] != [name] or len(folders) > 2:
            raise ValueError(
                f"folder {folder!r} of class {name!r}: expected superclass/subclass/ or subclass/ if hierarchy.kind is "
                f"'folders'; of other folders, give a file of the hierarchy{hint}"
            )
        group = inner.setdefault(folders[0], []) if len(folders) == 2 else lone
        if name not in group:
            group.append(name)
    try:
        return Hierarchy(
            tuple((name, tuple(subs)) for name, subs in sorted(inner.items())),
            tuple(name for name in lone if name not in inner),
        )
    except ValueError as error:
        raise ValueError(f"hierarchy of the folders: {error}{hint}") from None


# ------------------------------------------------------------------------------------------------------------ proposals


def read_parents(path: str) -> dict[str, tuple[str, ...]]:
    """Child -> its parents, from a file with two columns.

    Args:
        path: ``.csv`` with columns ``child`` and ``parent``, or any other text with a parent and a child per line, such as
            ImageNet's ``wordnet.is_a.txt``.

    Raises:
        ValueError: a line does not have two names; the message names the file and the line.
    """
    try:
        text = read_utf8(path)
        if path.lower().endswith(".csv"):
            pairs = list(_columns(text, "child", "parent"))
        else:
            pairs = [(words[-1], words[0]) if len(words) == 2 else ("", "") for words in map(str.split, text.splitlines())]
        above: dict[str, tuple[str, ...]] = {}
        for number, (child, parent) in enumerate(pairs, 1):
            if not child or not parent:
                raise ValueError(f"pair {number}: expected a parent and a child")
            above[child] = (*above.get(child, ()), parent)
    except ValueError as error:
        raise ValueError(f"parents {path!r}: {error}") from None
    return above


def propose(
    classes: Iterable[str], parents: Mapping[str, Sequence[str]], *, min_subclasses: int, max_subclasses: int
) -> Hierarchy:
    """A two-level hierarchy from a graph of any depth, in which a class may have several parents.

    Ancestors become superclasses in order from the most specific one (fewest classes below, then by name): each takes those
    classes below it that are still free, if they are ``min_subclasses`` to ``max_subclasses``. The rule is ours.

    Args:
        classes: the subclasses; each keeps its position.
        parents: child -> parents. A class that is not in it is lone.

    Raises:
        ValueError: contradictory limits, a cycle, or a class that is an ancestor of another.

    >>> parents = {"cat": ["animal"], "dog": ["animal"], "animal": ["thing"], "house": ["thing"]}
    >>> propose(["cat", "dog", "house"], parents, min_subclasses=2, max_subclasses=2)
    Hierarchy(superclasses=(('animal', ('cat', 'dog')),), lone=('house',))
    """
    if not 1 <= min_subclasses <= max_subclasses:
        raise ValueError(f"min_subclasses {min_subclasses}, max_subclasses {max_subclasses}: 1 <= min <= max")
    leaves = list(dict.fromkeys(classes))
    above = {leaf: _ancestors(leaf, parents) for leaf in leaves}
    try:
        TopologicalSorter({name: parents.get(name, ()) for name in sorted({*leaves}.union(*above.values()))}).prepare()
    except CycleError as error:
        raise ValueError(f"a circle of parents through {error.args[1][0]!r} and {error.args[1][1]!r}") from None
    below: dict[str, list[str]] = {}
    for leaf in leaves:
        for ancestor in above[leaf]:
            below.setdefault(ancestor, []).append(leaf)
    for leaf in leaves:
        if leaf in below:
            raise ValueError(f"class {leaf!r} is above class {below[leaf][0]!r}: one of them cannot be a subclass")
    taken: dict[str, str] = {}
    for ancestor in sorted(below, key=lambda name: (len(below[name]), name)):
        free = [leaf for leaf in below[ancestor] if leaf not in taken]
        if min_subclasses <= len(free) <= max_subclasses:
            taken |= dict.fromkeys(free, ancestor)
    inner: dict[str, list[str]] = {}
    for leaf in leaves:
        if leaf in taken:
            inner.setdefault(taken[leaf], []).append(leaf)
    return Hierarchy(
        tuple((name, tuple(subs)) for name, subs in inner.items()), tuple(leaf for leaf in leaves if leaf not in taken)
    )


def _ancestors(leaf: str, parents: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    left = [leaf]
    while left:
        above = [name for name in parents.get(left.pop(), ()) if name not in found]
        found.update(above)
        left += above
    return found
