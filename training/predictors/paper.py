"""The paper's hyper-parameters of predictors."""

from __future__ import annotations

from typing import Any

from ...curation.package_data import package_toml


def paper_settings() -> dict[str, dict[str, Any]]:
    """``kowl.toml``: predictor -> hyper-parameters.

    >>> paper_settings()["ann"]["epochs"]
    1
    """
    return {name: table for name, table in package_toml(__package__, "kowl.toml").items() if name not in ("start", "released")}


def start_settings() -> dict[str, dict[str, Any]]:
    """``[start]`` of ``kowl.toml``: predictor -> changes for the starting release alone, the paper's Table 3.

    >>> start_settings()
    {'ann': {'validation_error': 0}}
    """
    return package_toml(__package__, "kowl.toml")["start"]


def released_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """``[released]`` of ``kowl.toml``: predictor -> backbone, "TSF" or "X3D" -> values of the released configurations that
    differ from the text's.

    >>> released_settings()["ann"]["X3D"]
    {'hidden': 2048, 'dropout': 0.75}
    """
    return package_toml(__package__, "kowl.toml")["released"]
