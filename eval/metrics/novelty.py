"""How soon novelty is detected, and to whom a class is novel (Prijatelj et al., JAIR 81, 2024, section 4.1).

*Novel to the predictor*: a class without labelled samples in its training data. *Novel to the evaluator*: a class that no
training split has shown yet, whatever share of the labels the predictor was given.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

End = Literal["last_sample", "last_novel"]
Detection = Literal["any", "strict"]
Counted = Literal["inclusive", "before"]


def is_novel(truth: ArrayLike, known: ArrayLike) -> NDArray[np.bool_]:
    """(n,) bool: whether the class is not in ``known``.

    Args:
        truth: (n,) class indices.
        known: (k,) class indices known to the predictor, or to the evaluator, in any order.

    >>> is_novel([0, 7, 2], known=[0, 1, 2])
    array([False,  True, False])
    """
    return ~np.isin(np.asarray(truth, dtype=np.int64), np.asarray(known, dtype=np.int64))


def says_unknown(predicted: ArrayLike) -> NDArray[np.bool_]:
    """(n,) bool: whether the prediction is "unknown" or a recognised cluster of unknowns: a negative label.

    Args:
        predicted: (n,) labels, see ``confusion``.

    >>> says_unknown([3, -1, -2])  # a class, "unknown", and the cluster unknown_0
    array([False,  True,  True])
    """
    return np.asarray(predicted, dtype=np.int64) < 0


@dataclasses.dataclass(frozen=True)
class Reaction:
    """The integers from which a reaction time is computed: 0-based positions and counts in one increment's order of samples.

    Attributes:
        first: a, position of the first novel sample; None if there is none.
        detected: d, position of the first sample from ``first`` on that is called unknown; None if none is.
        end: z, position of the last sample, or of the last novel one.
        novel: r, novel samples in all.
        novel_until: m, novel samples from a on until d, with or without d itself; r where nothing is detected.

    >>> never = Reaction(first=0, detected=None, end=9, novel=5, novel_until=5)
    >>> never.time
    1.0
    """

    first: int | None
    detected: int | None
    end: int
    novel: int
    novel_until: int

    @property
    def time(self) -> float:
        """Novelty reaction time, Eq. 1: 2 / ((z + 1 - a) / (d - a) + r / m), in [0, 1]; 0 is at once, 1 is never.

        It is the harmonic mean of the share of samples and the share of novel samples that passed until the detection.
        d = a gives 0 (the limit); nothing detected is d = z + 1 and m = r, which gives 1; NaN without a novel sample.

        >>> round(Reaction(first=2, detected=4, end=9, novel=4, novel_until=2).time, 3)  # 2 / (8/2 + 4/2)
        0.333
        """
        if self.first is None:
            return math.nan
        waited = (self.end + 1 if self.detected is None else self.detected) - self.first
        if waited == 0:
            return 0.0
        return 2 / ((self.end + 1 - self.first) / waited + self.novel / self.novel_until)


def reaction(
    novel: ArrayLike,
    unknown: ArrayLike,
    *,
    end: End = "last_sample",
    detection: Detection = "any",
    counted: Counted = "inclusive",
) -> Reaction:
    """Find the first novel sample and its detection. Order matters: rows as the increment presents them.

    Args:
        novel: (n,) bool, see ``is_novel``.
        unknown: (n,) bool, see ``says_unknown``.
        end: "last_sample" is the paper's text (``as_written``, and our default); "last_novel" its Figure 5. The released
            code has no implementation. A detection after the end does not count.
        detection: "any": the first sample called unknown, from the first novel one on; "strict": only a novel one counts.
        counted: the novel samples m until the detection d: "inclusive" counts d itself, as the paper's Figure 5 defines m (our
            default); "before" does not, as its text has it.

    Raises:
        ValueError: the shapes differ, arrays are not (n,) bool, or ``end``, ``detection`` or ``counted`` is none of the above.

    >>> novel = np.array([False, True, True, False, True])
    >>> unknown = np.array([True, False, True, False, False])  # the alarm before the first novel sample does not count
    >>> reaction(novel, unknown)
    Reaction(first=1, detected=2, end=4, novel=3, novel_until=2)
    >>> round(reaction(novel, unknown).time, 3)  # 2 / (4/1 + 3/2)
    0.364
    """
    is_new, called = np.asarray(novel), np.asarray(unknown)
    if is_new.ndim != 1 or is_new.shape != called.shape or is_new.dtype != bool or called.dtype != bool:
        raise ValueError(f"novel {is_new.shape} {is_new.dtype}, unknown {called.shape} {called.dtype}: both must be (n,) bool")
    for name, given, of in (("end", end, End), ("detection", detection, Detection), ("counted", counted, Counted)):
        if given not in get_args(of):
            raise ValueError(f"{name} {given!r}: one of {get_args(of)}")
    places = np.flatnonzero(is_new)
    if not len(places):
        return Reaction(None, None, len(is_new) - 1, 0, 0)
    first = int(places[0])
    last = len(is_new) - 1 if end == "last_sample" else int(places[-1])
    hits = called & is_new if detection == "strict" else called
    found = np.flatnonzero(hits[first : last + 1])
    if not len(found):
        return Reaction(first, None, last, len(places), len(places))
    detected = first + int(found[0])
    side = "right" if counted == "inclusive" else "left"
    return Reaction(first, detected, last, len(places), int(np.searchsorted(places, detected, side=side)))


def reaction_times(novel: ArrayLike, unknown: ArrayLike) -> dict[str, float]:
    """Times under all eight definitions: "<end>.<detection>", with ".before" if counted so -> time in [0, 1], or NaN.

    Args:
        novel, unknown: see ``reaction``.

    Raises:
        ValueError: as ``reaction``.

    >>> times = reaction_times(np.array([True, False, True, False]), np.array([False, True, True, False]))
    >>> {name: round(time, 2) for name, time in times.items() if name.startswith("last_sample")}
    {'last_sample.any': 0.33, 'last_sample.any.before': 0.33, 'last_sample.strict': 0.67, 'last_sample.strict.before': 0.5}
    """
    return {
        f"{end}.{detection}{'.before' if counted == 'before' else ''}": reaction(
            novel, unknown, end=end, detection=detection, counted=counted
        ).time
        for end, detection, counted in itertools.product(get_args(End), get_args(Detection), get_args(Counted))
    }
