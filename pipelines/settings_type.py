"""The decorator of a type of settings."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, Field))
def settings_type(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose values are validated, and in which an unknown name is an error.

    >>> @settings_type
    ... class Sizes:
    ...     side_px: int = 224
    >>> Sizes(side_px="12")
    Sizes(side_px=12)
    """
    return cast(type[T], dataclass(cls, frozen=True, config=ConfigDict(extra="forbid")))
