"""``train --track``: live tracking of trainings. It changes neither results nor keys, and its failures never stop a
training."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..curation.code_loading import UnknownName, load
from ..curation.registry import BUILT_IN
from ..training.trackers.registry import TRACKERS
from .errors import WrongUse

Log = Callable[[Mapping[str, float], int], None]
"""Logs numbers by name, at a step."""

_LOGGER = logging.getLogger("benchwright")


@dataclass(frozen=True)
class Track:
    """A tracker, and where it logs to.

    Attributes:
        reference: reference of the function that makes a tracker; see ``training.trackers.tracker.Tracker``.
        place: target in the tracker's terms: a folder, a project, a URL.
    """

    reference: str
    place: str


def track_of(text: str | None) -> Track | None:
    """Parse ``NAME`` or ``NAME=PLACE``; None stays None.

    Raises:
        WrongUse: there is no such tracker, or its package is not installed.

    >>> track_of("tensorboard=http://elsewhere/")
    Track(reference='benchwright.training.trackers.tensorboard:tensorboard', place='http://elsewhere/')
    >>> track_of("tensorbord=runs")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.errors.WrongUse: no tracker 'tensorbord': there are mlflow, tensorboard, wandb, ...
    """
    if text is None:
        return None
    name, _, place = text.partition("=")
    try:
        entry = TRACKERS.find(name)
        if entry.origin == BUILT_IN and importlib.util.find_spec(name) is None:
            raise WrongUse(f"--track {name} needs the package {name}: pip install {name}")
        load(entry.reference)
    except UnknownName as error:
        raise WrongUse(str(error)) from None
    if entry.origin == BUILT_IN and name != "wandb" and "://" not in place:  # the place of wandb is the name of a project
        place = os.path.abspath(place or name)  # workers may have another working directory
    return Track(entry.reference, place)


@contextlib.contextmanager
def logging_to(track: Track | None, name: str, facts: Mapping[str, Any]) -> Iterator[Log]:
    """A function that logs numbers within the block; without a tracker, or after it failed, it does nothing.

    Args:
        track: the tracker; None for none.
        name: name of the training.
        facts: facts of the training.
    """
    tracker: Any = None

    def log(values: Mapping[str, float], step: int) -> None:
        nonlocal tracker
        finite = {each: float(value) for each, value in values.items() if math.isfinite(value)}
        if tracker is not None and finite:
            with _surviving(track):
                tracker.log(finite, step)
                return
            tracker = None

    if track is not None:
        with _surviving(track):
            tracker = load(track.reference)(track.place, name, facts)
    try:
        yield log
    finally:
        if tracker is not None:
            with _surviving(track):
                tracker.close()


@contextlib.contextmanager
def _surviving(track: Track | None) -> Iterator[None]:
    """Log a failure in the block as a warning: errors of a tracker, which may talk to servers, must not stop a training."""
    try:
        yield
    except Exception as error:
        named = "" if track is None else f" {track.reference.rpartition(':')[2]}"
        _LOGGER.warning("tracker%s failed, and the training continues without it: %s: %s", named, type(error).__name__, error)
