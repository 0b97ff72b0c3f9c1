"""The recipe of a stage, from which its key is computed: step, settings, inputs, and content of the sources."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from .artifact import Artifact
from .flow import PlanError, Stage, StageRef
from .keys import How, Where, WhereOfRows, as_json, canonical, sha256
from .rows import without_addresses
from .store import Store, remote_errors

FORMAT = 2
"""Version of the layout on disk and of content digests; part of every key."""


def recipe_of(
    stage: Stage, schema: pa.Schema, made: Mapping[str, Artifact], store: Store, known: dict[str, tuple[str, str]]
) -> tuple[dict[str, Any], str]:
    """The readable recipe of a stage, and a digest of the witnesses of its sources.

    Args:
        stage: the stage.
        schema: schema of its rows.
        made: artifacts of earlier stages, by name.
        store: store of the run.
        known: fingerprints of sources that were read before, see ``keys.fingerprint``.

    Raises:
        PlanError: a setting differs in every run, or a source folder contains the run's folder or is among its stages.
    """
    witnesses: list[str] = []
    for source in sources_among(stage).values():
        for path in source.places:
            _check_apart(stage, store, path)

    def settings(values: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in values.items():
            if isinstance(value, How):
                continue
            if isinstance(value, StageRef):
                out[name] = {"rows_of": value.name}
            elif isinstance(value, Where):
                with remote_errors(str(value)) if "://" in str(value) else contextlib.nullcontext():
                    mark = value.fingerprint(known)
                witnesses.append(mark.witness)
                out[name] = {"content": mark.content}
            else:
                out[name] = as_json(name, value)
                _check_repeatable(stage, name, canonical(out[name]))
        return out

    recipe: dict[str, Any] = {
        "format": FORMAT,
        "kind": stage.kind,
        "step": stage.step.name,
        "code": stage.step.code().digest,
        "settings": settings(stage.step.all_settings()),
        "inputs": {name: made[name].digest for name in stage.inputs()},
        "columns": [f"{field.name}: {field.type}" for field in schema],
    }
    if stage.pieces:
        recipe["pieces"] = {
            "step": stage.pieces.name,
            "code": stage.pieces.code().digest,
            "settings": settings(stage.pieces.all_settings()),
        }
    return recipe, sha256(canonical(witnesses))


def missing_source(stage: Stage) -> str:
    """The first source path among the settings that does not exist, or ""."""
    return next((str(path) for path in sources_among(stage).values() if not _there(path)), "")


def within(stage: Stage, store: Store) -> dict[str, str]:
    """Settings whose source is in the folder of the run, such as votes: name -> path relative to that folder."""
    out = store.local
    if out is None:
        return {}
    places = {name: Path(str(path)).absolute() for name, path in sources_among(stage).items() if "://" not in path}
    return {name: str(p.relative_to(out.absolute())) for name, p in places.items() if p.is_relative_to(out.absolute())}


def sources_among(stage: Stage) -> dict[str, Where]:
    """Sources among the settings, by name, except those whose path depends on rows (``WhereOfRows``)."""
    values = [each for step in stage.steps for each in step.all_settings().items()]
    return {name: value for name, value in values if isinstance(value, Where) and not isinstance(value, WhereOfRows)}


def _check_repeatable(stage: Stage, name: str, value: str) -> None:
    if without_addresses(value) != value:
        raise PlanError(
            f"stage {stage.name!r}: setting {name} = {value:.80} contains a memory address, which differs in "
            "every run: give its values"
        )


def _check_apart(stage: Stage, store: Store, path: str) -> None:
    """Raise ``PlanError`` if the run writes into a source folder, whose content would then change with each run."""
    out = store.local
    if out is None or "://" in path or not os.path.isdir(path):
        return
    real, own = os.path.realpath(path), os.path.realpath(out)
    if f"{own}/".startswith(f"{real}/") or f"{real}/".startswith(f"{own}/stages/"):
        raise PlanError(f"stage {stage.name!r}: the source {path} and the run's folder {store.url} are one inside the other")


def _there(path: str) -> bool:
    import fsspec

    with remote_errors(path) if "://" in path else contextlib.nullcontext():
        fs, root = fsspec.core.url_to_fs(path)
        return bool(fs.exists(root))
