"""The roles of samples: for training, for validation and for testing."""

from typing import Literal

Role = Literal["train", "val", "test"]

ROLES = ("train", "val", "test")
"""Roles, in the order of the tables."""

ROLE_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""Name of a role in lists from outside, in lower case -> role."""
