"""A domain is a pair of arrays to learn from and a pair to be tested on; here arrays of a whole benchmark become domains."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .learner import Features, Labels


@dataclasses.dataclass(frozen=True)
class Domain:
    """One domain (a time bucket, say).

    Attributes:
        name: what tables call it.
        X_train, X_test: (n, d) float32.
        y_train, y_test: (n,) int64 class indices >= 0.
    """

    name: str
    X_train: Features
    y_train: Labels
    X_test: Features
    y_test: Labels

    def __post_init__(self) -> None:
        for split, X, y in (("train", self.X_train, self.y_train), ("test", self.X_test, self.y_test)):
            if X.ndim == 2 and y.shape == X.shape[:1] == (0,):
                raise ValueError(f"domain {self.name!r}: its {split} set is empty")
            if X.ndim != 2 or y.shape != X.shape[:1]:
                raise ValueError(f"domain {self.name!r}, {split}: features {X.shape} and labels {y.shape} do not pair")
            if X.dtype != np.float32 or y.dtype != np.int64:
                raise ValueError(f"domain {self.name!r}, {split}: {X.dtype} and {y.dtype}, not float32 and int64")
            if int(y.min()) < 0:
                raise ValueError(f"domain {self.name!r}, {split}: label {int(y.min())}, class indices start at 0")
        if self.X_train.shape[1] != self.X_test.shape[1]:
            raise ValueError(f"domain {self.name!r}: {self.X_train.shape[1]} features to learn, {self.X_test.shape[1]} to test")


def iid_domains(X: Features, y: ArrayLike, bucket: ArrayLike, split: ArrayLike) -> list[Domain]:
    """Domains of the iid protocol (one seed's split): learn the train rows of a bucket, test its test rows.

    Args:
        X: (n, d) float32, in any order; rows of a domain keep it.
        y: (n,) class indices.
        bucket: (n,) integers; domains come in ascending order.
        split: (n,) strings, "train" or "test".

    Raises:
        ValueError: another word in ``split``, arrays of different lengths, a bucket without one of the two.
    """
    labels, buckets, splits = np.asarray(y, dtype=np.int64), np.asarray(bucket), np.asarray(split).astype(str)
    _check_lengths(X, labels, buckets, splits)
    wrong = set(splits.tolist()) - {"train", "test"}
    if wrong:
        raise ValueError(f"split {min(wrong)!r}: rows are 'train' or 'test'")
    domains: list[Domain] = []
    for value in np.unique(buckets):
        train = np.flatnonzero((buckets == value) & (splits == "train"))
        test = np.flatnonzero((buckets == value) & (splits == "test"))
        domains.append(Domain(f"{value}", X[train], labels[train], X[test], labels[test]))
    return domains


def streaming_domains(X: Features, y: ArrayLike, bucket: ArrayLike) -> list[Domain]:
    """Domains of the streaming protocol: all rows of a bucket are tested first, as the future, and learned later.

    Args:
        X: (n, d) float32. Where rows stand bucket by bucket, domains are views and nothing is copied.
        y: (n,) class indices.
        bucket: (n,) integers; domains come in ascending order.
    """
    labels, buckets = np.asarray(y, dtype=np.int64), np.asarray(bucket)
    _check_lengths(X, labels, buckets)
    domains: list[Domain] = []
    for value in np.unique(buckets):
        rows = np.flatnonzero(buckets == value)
        contiguous = int(rows[-1]) - int(rows[0]) + 1 == len(rows)
        at = slice(int(rows[0]), int(rows[-1]) + 1) if contiguous else rows
        features, classes = X[at], labels[at]
        domains.append(Domain(f"{value}", features, classes, features, classes))
    return domains


def _check_lengths(X: Features, *columns: np.ndarray) -> None:
    lengths = {len(X), *(len(column) for column in columns)}
    if len(lengths) != 1:
        raise ValueError(f"features and columns have {sorted(lengths)} rows: one number is needed")


def fingerprint(domains: Sequence[Domain]) -> str:
    """SHA-256 over names, shapes and bytes of all arrays: a resumed run must find the rows that it started with."""
    known: dict[int, str] = {}  # the streaming protocol learns and tests the same arrays: hashed once
    whole = hashlib.sha256()
    for domain in domains:
        whole.update(f"{domain.name}\n".encode())
        for array in (domain.X_train, domain.y_train, domain.X_test, domain.y_test):
            if id(array) not in known:
                known[id(array)] = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
            whole.update(f"{array.shape} {array.dtype.str} {known[id(array)]}\n".encode())
    return whole.hexdigest()
