"""The paper's hyper-parameters of predictors."""

from __future__ import annotations

from typing import Any

from ...curation.package_data import package_toml


def paper_settings() -> dict[str, dict[str, Any]]:
    """``kowl.toml``: name -> hyper-parameters.

    >>> paper_settings()["ann"]["epochs"]
    1
    """
    return package_toml(__package__, "kowl.toml")
