"""Lists drawn from a seed, in place of files, and features in place of a backbone's.

The lists are of releases that share samples, rename, split and drop labels, and lose videos.

A ``Drawing`` says what is drawn; ``synthetic.toml`` holds two. ``published`` follows KOWL's published counts: 840,213
samples, 718 labels, and Tables 1 and 2 of the paper to the sample; what the counts leave open (which samples the releases
share, how often each class comes within its group) is ours. ``tiny`` has the same shape in a thousand rows.

The labels, by the release that brings them: ``kept`` names of the first release that all later ones keep; ``renames``, given
another name by the second release, and mapped to it by the protocol; ``changed``, given another name by the second release,
so that both the old name (of samples that stay behind) and the new one are trained; names of the ``second`` release, the
``dropped`` of which the third does not have; ``late`` names of the third release, found on samples of the second; and names
of the ``third`` release alone.
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
    from ...curation.store import Rows


_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)
_CLIP_S = 10


class Group(NamedTuple):
    """``classes`` classes with ``rows`` samples in all, the counts rising evenly by ``width`` about their mean both ways."""

    classes: int
    rows: int
    width: int = 0


@dataclass(frozen=True)
class Arrival:
    """Samples that no earlier list holds.

    Attributes:
        release: place of the release, 0 to 2.
        split: the split that lists them.
        known: samples of labels that earlier releases brought (all labels, for release 0).
        novel: samples of labels that this release brings, rarest first.
        strays: samples of the first label that the next release brings (one test sample, in KOWL).
        missing: further samples whose video is not there.
        unlabelled: further samples without a label.
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
    """Samples of earlier lists (``sources``) that a list holds too: ``kept`` that are there and ``missing`` that are not."""

    release: int
    split: str
    sources: tuple[tuple[int, str], ...]
    kept: int
    missing: int = 0


@dataclass(frozen=True)
class Drawing:
    """See the module."""

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
    """Counts of the classes of a group, rising, int64 (classes,)."""
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

    Lists of the first two releases are sorted by label, as those of Kinetics-400 and -600 are; those of the third are not.
    """
    space, samples = _Space(drawing), _drawn(drawing, seed)
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
    """Source step: the clips whose video is not there, as ``kinetics.inventory.Held``."""
    samples = _drawn(drawing, seed)
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
    """Labels by number, their name in each release (None if it has none), and which numbers are of which kind."""

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
            # Late labels stand among those of the second release, so that both are rare and frequent.
            _mixed(self.second, self.late),
            self.third,
        ]

    def known(self, release: int) -> np.ndarray:
        """Labels that earlier releases brought and that this one has; for release 0, its own."""
        if release == 0:
            return self.brought[0]
        labels = np.concatenate(self.brought[:release])
        return labels[[self.names[release][label] is not None for label in labels]]


def _mixed(many: np.ndarray, few: np.ndarray) -> np.ndarray:
    places = np.concatenate([np.linspace(0, 1, len(many)), np.linspace(0, 1, len(few) + 2)[1:-1]])
    return np.concatenate([many, few])[np.argsort(places, kind="stable")]


@dataclasses.dataclass
class _Samples:
    """``label`` (-1: none), ``listed`` (n, 3: place of the split in each release, -1: not listed), ``missing``, identity."""

    label: np.ndarray
    listed: np.ndarray
    missing: np.ndarray
    youtube_id: np.ndarray
    time_start: np.ndarray


def _drawn(d: Drawing, seed: int) -> _Samples:
    space = _Space(d)
    label, listed, missing = _arrivals(d, space, seed)
    _repeats(d, space, label, listed, missing, seed)
    generator = rng(seed, "draw_lists", "identity")
    ids = _LETTERS[generator.integers(0, 64, size=(len(label), 11))]
    start = generator.integers(0, 300, size=len(label))
    # A few videos have two clips, which begin at different times.
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
        # Names that all releases have, so that a missing sample may be in any of their lists.
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
    """Labels repeated as the groups say, which take them in order."""
    counts = np.concatenate([np.empty(0, dtype=np.int64), *(ramp(group) for group in groups)])
    return np.repeat(labels[: len(counts)], counts)


def _repeats(d: Drawing, space: _Space, label: np.ndarray, listed: np.ndarray, missing: np.ndarray, seed: int) -> None:
    """Enter samples in later lists, in place. Those that must be there for their label's sake come first."""
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
    """Column that ``choose_centres`` adds: the label around whose centre the sample lies."""

    key: str
    centre: str


def choose_centres(rows: Rows, *, first: str, splits: Sequence[str], hidden: float, seed: int) -> Iterator[pa.Table]:
    """Whole step: the centre of every sample, around which its drawn feature lies.

    A sample is Gaussian, with standard deviation 1, around the centre of its label. Of the labels that later releases bring a
    share is ``hidden``: each of their samples lies around the centre of a starting label that is drawn for it alone, so that
    nothing but a label tells them from known samples.

    Args:
        rows: of ``unify.unify``: ``label_recent_first``, ``release``, ``split``.
        first: the release whose training labels are known at the start.
        splits: those of its splits that train.
        hidden: share in [0, 1] of the other labels, drawn label by label.
        seed: of the draws.

    Raises:
        ValueError: a share out of range, or no training sample of the first release.
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
    """Drawn features as a visual transform would leave them: each moved by noise of its own, which the transform's name draws.

    Args:
        rows: keys and drawn features.
        kind: name of the transform.
        strength: standard deviation of the noise, that of a sample being 1.
        seed: of the noise.
    """
    return [
        WithVector(
            row.key, (row.feature + strength * rng(seed, kind, row.key).standard_normal(len(row.feature))).astype(np.float32)
        )
        for row in rows
    ]


def draw_features(rows: Sequence[Centred], *, width: int, distance: float, seed: int) -> list[WithFeature]:
    """A vector for every sample.

    Args:
        rows: keys and centres.
        width: numbers of a vector.
        distance: mean distance of two centres in standard deviations of a sample, about.
        seed: of centres and samples.
    """
    scale = distance / math.sqrt(2 * width)
    names = {row.centre for row in rows}
    centres = {name: scale * rng(seed, "centres", name).standard_normal(width) for name in names}
    return [
        WithFeature(row.key, (centres[row.centre] + rng(seed, "sample", row.key).standard_normal(width)).astype(np.float32))
        for row in rows
    ]
