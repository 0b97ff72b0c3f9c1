"""Lists drawn from a seed instead of files, and features instead of a backbone's.

The generated releases share samples, rename, split and drop labels, and lose videos.

A ``Drawing`` describes what is drawn; ``synthetic.toml`` holds two. ``published`` follows KOWL's published counts: 840,213
samples, 718 labels, and Tables 1 and 2 of the paper exactly; what the counts leave open (which samples the releases share, how
frequent each class is within its group) is ours. ``tiny`` has the same structure in a thousand rows.

The labels by the release that introduces them: ``kept`` names of the first release that all later ones keep; ``renames``, given
another name by the second release, to which the protocol maps them; ``changed``, given another name by the second release, so
that both the old name (of samples only in the first release) and the new one are trained; names of the ``second`` release, of
which the third lacks the ``dropped`` ones; ``late`` names of the third release, on samples of the second; and names of the
``third`` release alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from ...curation.package_data import package_toml
from ...curation.rng import rng, uniform
from ..features.rows import WithFeature, WithVector
from ..kinetics.lists import SPLITS

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows


_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)
_CLIP_S = 10


class Group(NamedTuple):
    """``classes`` classes with ``rows`` samples in total; the counts rise evenly from mean - ``width`` to mean + ``width``."""

    classes: int
    rows: int
    width: int = 0


@dataclass(frozen=True)
class Arrival:
    """Samples that are in no earlier list.

    Attributes:
        release: index of the release, 0 to 2.
        split: the split that lists them.
        known: samples of labels that earlier releases introduced (all labels, for release 0).
        novel: samples of labels that this release introduces, rarest first.
        strays: samples of the first label that the next release introduces (one test sample, in KOWL).
        missing: additional samples whose video is missing.
        unlabelled: additional samples without a label.
    """

    release: int
    split: str
    known: tuple[Group, ...] = ()
    novel: tuple[Group, ...] = ()
    strays: int = 0
    missing: int = 0
    unlabelled: int = 0


@dataclass(frozen=True)
class Repeat:
    """Samples of earlier lists (``sources``) that a list repeats: ``kept`` with a video, and ``missing`` without."""

    release: int
    split: str
    sources: tuple[tuple[int, str], ...]
    kept: int
    missing: int = 0


@dataclass(frozen=True)
class Drawing:
    """What is drawn; see the docstring of the module."""

    releases: tuple[str, str, str]
    renames: tuple[tuple[str, str], ...]
    kept: int
    changed: int
    second: int
    dropped: int
    late: int
    third: int
    missing_unlabelled: int
    arrivals: tuple[Arrival, ...]
    repeats: tuple[Repeat, ...]


@functools.cache
def drawing(name: str) -> Drawing:
    """A drawing of ``synthetic.toml``: ``published`` or ``tiny``. Raises ``KeyError`` for another name."""
    return TypeAdapter(Drawing).validate_python(package_toml(__package__, "synthetic.toml")[name])


def ramp(group: Group) -> np.ndarray:
    """Counts of the classes of a group, ascending, int64 (classes,)."""
    mean = group.rows / group.classes
    counts = np.floor(mean + np.linspace(-group.width, group.width, group.classes)).astype(np.int64)
    over = group.rows - int(counts.sum())
    counts += over // group.classes
    counts[group.classes - over % group.classes :] += 1
    if counts.min() < 1:
        raise ValueError(f"{group}: a class without a sample")
    return counts


def draw_lists(*, drawing: Drawing, seed: int) -> Iterator[pa.Table]:
    """Source step: the rows of all lists, release by release and split by split, as ``kinetics.lists.Listed``.

    Lists of the first two releases are sorted by label, as for Kinetics-400 and -600; lists of the third are not.
    """
    space, samples = _Space(drawing), _draw_samples(drawing, seed)
    for age, release in enumerate(drawing.releases):
        names = pa.array([*space.names[age], None], pa.string())
        for place, split in enumerate(SPLITS):
            mine = np.flatnonzero(samples.listed[:, age] == place)
            order = rng(seed, "draw_lists", f"{release}/{split}").permutation(len(mine))
            mine = mine[order]
            if age < 2:
                mine = mine[
                    np.argsort(np.asarray([name or "" for name in space.names[age]])[samples.label[mine]], kind="stable")
                ]
            label = samples.label[mine]
            spelt = np.where(label < 0, len(names) - 1, label)
            yield pa.table(
                {
                    "key": pa.array([f"{release}/{split}:{number + 1}" for number in range(len(mine))], pa.string()),
                    "release": pa.array([release] * len(mine), pa.string()),
                    "split": pa.array([split] * len(mine), pa.string()),
                    "label": names.take(pa.array(spelt)),
                    "youtube_id": samples.youtube_id[mine].astype(str).tolist(),
                    "time_start": samples.time_start[mine],
                    "time_end": samples.time_start[mine] + _CLIP_S,
                }
            )


def draw_missing(*, drawing: Drawing, seed: int) -> Iterator[pa.Table]:
    """Source step: the clips whose video is missing, as ``kinetics.inventory.Held``."""
    samples = _draw_samples(drawing, seed)
    gone = np.flatnonzero(samples.missing)
    yield pa.table(
        {
            "key": pa.array([str(number + 1) for number in range(len(gone))], pa.string()),
            "youtube_id": samples.youtube_id[gone].astype(str).tolist(),
            "time_start": samples.time_start[gone],
            "time_end": samples.time_start[gone] + _CLIP_S,
        }
    )


class _Space:
    """Labels by number, their names in each release (None if it lacks the label), and the numbers of each kind of label."""

    def __init__(self, d: Drawing) -> None:
        kept = [f"action {n:03d}" for n in range(d.kept)]
        second = [f"second {n:03d}" for n in range(d.second)]
        late = [f"late {n:03d}" for n in range(d.late)]
        third = [f"third {n:03d}" for n in range(d.third)]
        old = [f"changed {n:03d}" for n in range(d.changed)]
        new = [f"changed {n:03d} (revised)" for n in range(d.changed)]
        sizes = [d.kept, len(d.renames), d.changed, d.changed, d.second, d.late, d.third]
        ends = np.cumsum(sizes)
        self.kept, self.renamed, self.old, self.new, self.second, self.late, self.third = (
            np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)
        )
        spelt = [pair[1] for pair in d.renames]
        parents = [kept[n % d.kept] for n in range(d.late)]
        none: list[str | None] = [None]
        self.names: list[list[str | None]] = [
            [
                *kept,
                *(pair[0] for pair in d.renames),
                *old,
                *old,
                *(kept[n % d.kept] for n in range(d.second + d.late)),
                *none * d.third,
            ],
            [*kept, *spelt, *none * d.changed, *new, *second, *parents, *none * d.third],
            [*kept, *spelt, *none * d.changed, *new, *second[: d.second - d.dropped], *none * d.dropped, *late, *third],
        ]
        self.brought = [
            np.concatenate([self.kept, self.renamed, self.old, self.new]),
            # Late labels are spread among those of the second release, so that there are rare and frequent ones.
            _mixed(self.second, self.late),
            self.third,
        ]

    def known(self, release: int) -> np.ndarray:
        """Labels that earlier releases introduced and that this release has; for release 0, its own labels."""
        if release == 0:
            return self.brought[0]
        labels = np.concatenate(self.brought[:release])
        return labels[[self.names[release][label] is not None for label in labels]]


def _mixed(many: np.ndarray, few: np.ndarray) -> np.ndarray:
    places = np.concatenate([np.linspace(0, 1, len(many)), np.linspace(0, 1, len(few) + 2)[1:-1]])
    return np.concatenate([many, few])[np.argsort(places, kind="stable")]


@dataclasses.dataclass
class _Samples:
    """``label`` (-1: none), ``listed`` (n, 3: index of the split in each release, -1: not listed), ``missing``, identity."""

    label: np.ndarray
    listed: np.ndarray
    missing: np.ndarray
    youtube_id: np.ndarray
    time_start: np.ndarray


def _draw_samples(d: Drawing, seed: int) -> _Samples:
    space = _Space(d)
    label, listed, missing = _arrivals(d, space, seed)
    _repeats(d, space, label, listed, missing, seed)
    generator = rng(seed, "draw_lists", "identity")
    ids = _LETTERS[generator.integers(0, 64, size=(len(label), 11))]
    start = generator.integers(0, 300, size=len(label))
    # Some videos have two clips, which begin at different times.
    again = np.arange(1, len(label), 500)
    ids[again] = ids[again - 1]
    start[again] = start[again - 1] + 1 + start[again] % 20
    return _Samples(label, listed, missing, ids.view("S11").ravel(), start)


def _arrivals(d: Drawing, space: _Space, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels: list[np.ndarray] = []
    listed: list[np.ndarray] = []
    missing: list[np.ndarray] = []
    for arrival in d.arrivals:
        known = space.known(arrival.release)
        # Names in all releases, so that a missing sample may be in any of their lists.
        plain = np.concatenate([space.kept, space.renamed])
        generator = rng(seed, "draw_arrivals", f"{arrival.release}/{arrival.split}")
        parts = [_dealt(known, arrival.known), _dealt(space.brought[arrival.release], arrival.novel)]
        parts.append(np.repeat(space.brought[min(arrival.release + 1, 2)][:1], arrival.strays))
        gone = plain[generator.integers(0, len(plain), size=arrival.missing)]
        some = np.concatenate([*parts, gone, np.full(arrival.unlabelled, -1)])
        place = np.full((len(some), 3), -1)
        place[:, arrival.release] = SPLITS.index(arrival.split)
        absent = np.zeros(len(some), dtype=bool)
        absent[len(some) - arrival.unlabelled - arrival.missing : len(some) - arrival.unlabelled] = True
        if arrival.unlabelled:
            absent[len(some) - d.missing_unlabelled :] = True
        labels.append(some)
        listed.append(place)
        missing.append(absent)
    return np.concatenate(labels), np.concatenate(listed), np.concatenate(missing)


def _dealt(labels: np.ndarray, groups: Sequence[Group]) -> np.ndarray:
    """Labels in order, each repeated by its count in the groups."""
    counts = np.concatenate([np.empty(0, dtype=np.int64), *(ramp(group) for group in groups)])
    return np.repeat(labels[: len(counts)], counts)


def _repeats(d: Drawing, space: _Space, label: np.ndarray, listed: np.ndarray, missing: np.ndarray, seed: int) -> None:
    """List samples again in later lists, in place. Samples whose label needs a later list come first."""
    forced = {1: space.new, 2: space.late}
    first = np.where(listed >= 0, np.arange(3), 9).min(axis=1)
    split = listed[np.arange(len(label)), np.minimum(first, 2)]
    for repeat in d.repeats:
        named = np.asarray([name is not None for name in space.names[repeat.release]] + [False])[label]
        free = named & (listed[:, repeat.release] < 0)
        source = np.zeros(len(label), dtype=bool)
        for release, name in repeat.sources:
            source |= (first == release) & (split == SPLITS.index(name))
        for absent, count in ((False, repeat.kept), (True, repeat.missing)):
            open_ = np.flatnonzero(free & source & (missing == absent))
            key = f"{repeat.release}/{repeat.split}/{absent}"
            open_ = rng(seed, "draw_repeats", key).permutation(open_)
            must = np.isin(label[open_], forced[repeat.release])
            chosen = open_[np.argsort(~must, kind="stable")][:count]
            if len(chosen) < count:
                raise ValueError(f"{repeat}: only {len(chosen)} samples can be listed again")
            listed[chosen, repeat.release] = SPLITS.index(repeat.split)
    for release, labels in forced.items():
        left = np.isin(label, labels) & (listed[:, release] < 0) & (first < release)
        if left.any():
            raise ValueError(f"{int(left.sum())} samples have a label of release {release} and are not listed there")


@dataclass(frozen=True)
class Centred:
    """Column that ``choose_centres`` adds: the label whose centre the sample is drawn around."""

    key: str
    centre: str


def choose_centres(rows: Rows, *, first: str, splits: Sequence[str], hidden: float, seed: int) -> Iterator[pa.Table]:
    """Whole step: choose the centre around which every sample's feature is drawn.

    A sample is Gaussian, with standard deviation 1, around the centre of its label. A share ``hidden`` of the labels that later
    releases introduce has no centre: each of their samples is drawn around the centre of a random starting label, so that only
    the label distinguishes it from known samples.

    Args:
        rows: rows of ``unify.unify``: ``label_recent_first``, ``release``, ``split``.
        first: the release whose training labels are known at the start.
        splits: training splits of this release.
        hidden: share in [0, 1] of the other labels, drawn label by label.
        seed: seed for all random draws.

    Raises:
        ValueError: the share is out of range, or the first release has no training sample.
    """
    if not 0 <= hidden <= 1:
        raise ValueError(f"hidden {hidden}: a share in [0, 1]")
    of = ["label_recent_first", "release", "split"]
    there = pa.concat_tables([table.group_by(of, use_threads=False).aggregate([]) for table in rows.batches(of)])
    label, trains = there["label_recent_first"], pc.is_in(there["split"], value_set=pa.array(splits, pa.string()))
    known = sorted(pc.unique(label.filter(pc.and_(pc.equal(there["release"], first), trains))).to_pylist())
    if not known:
        named = ", ".join(splits) or "no split"
        available = ", ".join(pc.unique(there["release"]).to_pylist()) or "no samples at all"
        raise ValueError(f"no sample of release {first!r} in {named} to train on: there are {available}")
    later = sorted(set(pc.unique(label).to_pylist()) - set(known))
    hides = uniform(seed, "hidden", later) < hidden
    away = pa.array([name for name, hide in zip(later, hides, strict=True) if hide], pa.string())
    for table in rows.batches():
        label = table["label_recent_first"]
        among = uniform(seed, "centre", table["key"].to_pylist())
        drawn = pa.array(known).take(pa.array((among * len(known)).astype(np.int64)))
        yield table.append_column("centre", pc.if_else(pc.is_in(label, value_set=away), drawn, label))


def displace_features(rows: Sequence[WithFeature], *, kind: str, strength: float, seed: int) -> list[WithVector]:
    """Generated features as if after a visual transform: each is moved by its own noise, drawn by the transform's name.

    Args:
        rows: keys and generated features.
        kind: name of the transform.
        strength: standard deviation of the noise; that of a sample is 1.
        seed: seed for the noise.
    """
    return [
        WithVector(
            row.key, (row.feature + strength * rng(seed, kind, row.key).standard_normal(len(row.feature))).astype(np.float32)
        )
        for row in rows
    ]


def draw_features(rows: Sequence[Centred], *, width: int, distance: float, seed: int) -> list[WithFeature]:
    """Draw a vector for every sample.

    Args:
        rows: keys and centres.
        width: length of a vector.
        distance: approximate mean distance of two centres, in standard deviations of a sample.
        seed: seed for centres and samples.
    """
    scale = distance / math.sqrt(2 * width)
    names = {row.centre for row in rows}
    centres = {name: scale * rng(seed, "centres", name).standard_normal(width) for name in names}
    return [
        WithFeature(row.key, (centres[row.centre] + rng(seed, "sample", row.key).standard_normal(width)).astype(np.float32))
        for row in rows
    ]
